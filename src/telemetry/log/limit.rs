//! Bounds the lines of each call site: a fault that repeats must neither fill the disk nor hide the other lines.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use super::fields::{Fields, MESSAGE};
use crate::telemetry::metrics::LogMetrics;

/// Lines that one call site may write at once.
const BURST: f64 = 20.0;
/// Lines a second that it may write for long.
const PER_SECOND: f64 = 10.0;
/// A flood is over when no line was suppressed for so long.
const QUIET: Duration = Duration::from_secs(1);
/// One that goes on is told this often.
const STILL: Duration = Duration::from_secs(60);

/// Lets a bounded number of lines of each call site through. Errors always pass, and so does what is below `info`: that
/// is written only where somebody asked for it.
#[derive(Debug)]
pub(super) struct Limit {
    sites: Arc<Sites>,
    /// `None` where there is no page of metrics.
    metrics: Option<LogMetrics>,
    flood: SyncSender<()>,
}

impl Limit {
    /// A limit, and the thread that tells what it held back.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(metrics: Option<LogMetrics>) -> std::io::Result<Self> {
        let (flood, floods) = sync_channel(1);
        let sites = Arc::new(Sites::default());
        let watched = Arc::downgrade(&sites);
        thread::Builder::new().name("log-limit".to_owned()).spawn(move || tell(&watched, &floods))?;
        Ok(Self { sites, metrics, flood })
    }
}

impl<S: Subscriber> Filter<S> for Limit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn callsite_enabled(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::always() // each event is looked at below, at no cost to those that nobody wants
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::TRACE)
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if ![Level::WARN, Level::INFO].contains(metadata.level()) {
            return true;
        }
        let admission = self.sites.admit(metadata.callsite(), Instant::now(), || text(event));
        if admission == Admission::FloodBegins {
            let _ = self.flood.try_send(()); // full: the thread has been called already
        }
        if let (Some(metrics), true) = (&self.metrics, admission != Admission::Passes) {
            metrics.suppressed();
        }
        admission == Admission::Passes
    }
}

fn text(event: &Event<'_>) -> String {
    let mut fields = Fields::default();
    event.record(&mut fields);
    match fields.take(MESSAGE) {
        Some(Value::String(text)) => text,
        _ => event.metadata().name().to_owned(),
    }
}

/// Waits for a flood and tells of it when it is over, until nobody logs any more.
fn tell(sites: &Weak<Sites>, floods: &Receiver<()>) {
    while floods.recv().is_ok() {
        loop {
            if floods.recv_timeout(QUIET) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            let Some(sites) = sites.upgrade() else { return };
            let told = sites.take_over(Instant::now());
            for (line, count) in told.over {
                tracing::warn!(lines = count, line, "lines were suppressed: too many of one kind");
            }
            if !told.others {
                break;
            }
        }
    }
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Passes,
    /// Suppressed, the first of many.
    FloodBegins,
    Suppressed,
}

#[derive(Debug, Default)]
struct Sites(Mutex<HashMap<Identifier, Site>>);

#[derive(Debug)]
struct Site {
    /// Lines that may be written now.
    credit: f64,
    seen: Instant,
    flood: Option<Flood>,
}

/// What one call site could not write.
#[derive(Debug)]
struct Flood {
    line: String,
    count: u64,
    began: Instant,
    last: Instant,
}

/// What is to be told.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    /// The text of a line and how many were suppressed.
    over: Vec<(String, u64)>,
    /// Whether other floods go on.
    others: bool,
}

impl Sites {
    /// Whether a line of `site` may be written; `line` gives its text.
    fn admit(&self, site: Identifier, now: Instant, line: impl FnOnce() -> String) -> Admission {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let site = sites.entry(site).or_insert(Site { credit: BURST, seen: now, flood: None });
        let since = now.saturating_duration_since(site.seen).as_secs_f64();
        (site.credit, site.seen) = ((site.credit + since * PER_SECOND).min(BURST), now);
        if site.credit >= 1.0 {
            site.credit -= 1.0;
            return Admission::Passes;
        }
        let Some(flood) = &mut site.flood else {
            site.flood = Some(Flood { line: line(), count: 1, began: now, last: now });
            return Admission::FloodBegins;
        };
        (flood.count, flood.last) = (flood.count + 1, now);
        Admission::Suppressed
    }

    /// The floods that are over, and those that have gone on for long: they begin anew.
    fn take_over(&self, now: Instant) -> Told {
        let mut sites = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = |flood: &mut Flood| {
            let since = |then: Instant| now.saturating_duration_since(then);
            since(flood.last) >= QUIET || since(flood.began) >= STILL
        };
        let due = sites.values_mut().filter_map(|site| site.flood.take_if(is_due));
        let mut over: Vec<_> = due.map(|flood| (flood.line, flood.count)).collect();
        over.sort();
        Told { over, others: sites.values().any(|site| site.flood.is_some()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(name: &str) -> Identifier {
        // An identifier is an address, so each needs a byte of its own.
        struct Wide(#[expect(dead_code, reason = "it has a size")] u8);
        impl tracing::Callsite for Wide {
            fn set_interest(&self, _: Interest) {}
            fn metadata(&self) -> &Metadata<'_> {
                unreachable!("nobody asks")
            }
        }
        static A: Wide = Wide(1);
        static B: Wide = Wide(2);
        Identifier(if name == "a" { &A } else { &B })
    }

    #[test]
    fn a_site_has_a_burst_and_a_rate_of_its_own() {
        let (sites, start) = (Sites::default(), Instant::now());
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let admitted = |name: &str, lines: usize, seconds: f64| {
            let admit = || sites.admit(site(name), at(seconds), || name.to_owned());
            (0..lines).filter(|_| admit() == Admission::Passes).count()
        };
        assert_eq!(admitted("a", 100, 0.0), 20);
        assert_eq!(admitted("b", 5, 0.0), 5, "the other is not touched");
        assert_eq!(admitted("a", 100, 0.55), 5);
        assert_eq!(sites.take_over(at(1.5)), Told { over: vec![], others: true }, "it may go on");
        let over = vec![("a".to_owned(), 80 + 95)];
        assert_eq!(sites.take_over(at(1.6)), Told { over, others: false });
        assert_eq!(sites.take_over(at(1.6)), Told { over: vec![], others: false }, "told once");
        assert_eq!(admitted("a", 100, 100.0), 20, "credit does not grow beyond the burst");
    }

    #[test]
    fn a_flood_without_an_end_is_told_each_minute() {
        let (sites, start) = (Sites::default(), Instant::now());
        let mut told = 0;
        for tenth in 0..1300_u32 {
            let now = start + tenth * Duration::from_millis(100);
            for _ in 0..10 {
                sites.admit(site("a"), now, String::new);
            }
            told += sites.take_over(now).over.len();
        }
        assert_eq!(told, 2);
    }
}
