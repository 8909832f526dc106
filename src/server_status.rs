//! What the server can say of itself: one owner, everybody else watches.

pub mod last_verdict;

use std::sync::Mutex;
use std::sync::PoisonError;

use tokio::sync::watch;

use crate::clock::MonoNanos;
pub use crate::telemetry::labels::{ServerStatus, StatusReason};
use last_verdict::LastVerdict;

/// What happened to the server as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StatusEvent {
    /// Start goes on; the reason says what it waits for.
    StillStarting(String),
    /// The model is loaded and has run once.
    Ready,
    /// A probe heard something in time.
    ProbeOk,
    /// A probe's limit passed, with the reason.
    ProbeFailed(String),
    /// The engine is gone, and another one will be started.
    EngineLost(String),
    /// The engine is gone for good, with the reason.
    EngineDied(String),
    /// Graceful exit begins: readiness is off, new work is still served.
    Drain,
    /// Graceful exit begins or goes on: new work is refused.
    RefuseWork,
}

impl StatusEvent {
    /// Its kind, as a label of the change that it makes. `None`: it never makes one.
    const fn reason(&self) -> Option<StatusReason> {
        match self {
            Self::StillStarting(_) => None,
            Self::Ready => Some(StatusReason::EngineReady),
            Self::ProbeOk => Some(StatusReason::ProbeOk),
            Self::ProbeFailed(_) => Some(StatusReason::ProbeFailed),
            Self::EngineLost(_) => Some(StatusReason::EngineRestarting),
            Self::EngineDied(_) => Some(StatusReason::EngineDied),
            Self::Drain | Self::RefuseWork => Some(StatusReason::DrainBegan),
        }
    }
}

/// The status, why, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusReport {
    /// The status.
    pub status: ServerStatus,
    /// Why, for people.
    pub reason: String,
    /// When it became so.
    pub since: MonoNanos,
    /// The engine is gone: no probe can make the server `Up` again.
    pub engine_dead: bool,
    /// It has been `Up`: the start is over, for good.
    pub been_up: bool,
    /// New work is refused because the server ends.
    pub refuses_work: bool,
}

/// Called with each change of status: from, to, what made it.
type OnTransition = Box<dyn Fn(ServerStatus, ServerStatus, StatusReason) + Send + Sync>;

/// The owner of the status.
pub struct StatusBoard {
    current: watch::Sender<StatusReport>,
    verdict: watch::Sender<Option<LastVerdict>>,
    writing: Mutex<()>,
    on_transition: OnTransition,
}

impl StatusBoard {
    /// Starting; `on_transition` hears of each change.
    pub fn new(on_transition: impl Fn(ServerStatus, ServerStatus, StatusReason) + Send + Sync + 'static) -> Self {
        let report = StatusReport {
            status: ServerStatus::Starting,
            reason: "starting".to_owned(),
            since: MonoNanos::now(),
            engine_dead: false,
            been_up: false,
            refuses_work: false,
        };
        Self {
            current: watch::Sender::new(report),
            verdict: watch::Sender::new(None),
            writing: Mutex::new(()),
            on_transition: Box::new(on_transition),
        }
    }

    /// The status now.
    #[must_use]
    pub fn report(&self) -> StatusReport {
        self.current.borrow().clone()
    }

    /// Hears of each change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<StatusReport> {
        self.current.subscribe()
    }

    /// What the last probe concluded; `None` before the first, also of an engine that was started again.
    #[must_use]
    pub fn last_verdict(&self) -> Option<LastVerdict> {
        self.verdict.borrow().clone()
    }

    /// Hears of each verdict.
    #[must_use]
    pub fn watch_verdict(&self) -> watch::Receiver<Option<LastVerdict>> {
        self.verdict.subscribe()
    }

    /// A probe concluded.
    pub fn conclude(&self, verdict: LastVerdict) {
        self.verdict.send_replace(Some(verdict));
    }

    /// Something happened; the status follows.
    pub fn apply(&self, event: StatusEvent) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, kind) = (self.report(), event.reason());
        let Some(after) = next(&before, event) else { return };
        if before.status == ServerStatus::Starting && after.status == ServerStatus::Up {
            self.verdict.send_replace(None); // it was about the engine before
        }
        if let Some(kind) = kind.filter(|_| after.status != before.status) {
            (self.on_transition)(before.status, after.status, kind);
            tracing::info!(from = %before.status, to = %after.status, reason = after.reason, "server status changed");
        }
        self.current.send_replace(after);
    }
}

/// The transitions, all of them. `None`: nothing changes.
fn next(now: &StatusReport, event: StatusEvent) -> Option<StatusReport> {
    use ServerStatus::{Draining, Starting, UnHealthy, Up};
    let refuses_work = match event {
        StatusEvent::RefuseWork => true,
        StatusEvent::Drain if now.status == Starting => true, // there is nothing to serve it with
        _ => now.refuses_work,
    };
    let (status, reason, engine_dead) = match (now.status, event) {
        (status, StatusEvent::EngineDied(reason)) if !now.engine_dead => {
            (if status == Draining { Draining } else { UnHealthy }, reason, true)
        }
        (_, StatusEvent::RefuseWork) if !now.refuses_work => {
            (Draining, "draining: new work is refused".to_owned(), now.engine_dead)
        }
        (Draining, _) => return None,
        (_, StatusEvent::EngineLost(reason)) if !now.engine_dead => (Starting, reason, false),
        (_, StatusEvent::Drain) => (Draining, "draining: graceful exit has begun".to_owned(), now.engine_dead),
        (Starting, StatusEvent::StillStarting(reason)) => (Starting, reason, false),
        (Starting, StatusEvent::Ready) if !now.engine_dead => (Up, "the model is loaded".to_owned(), false),
        (UnHealthy, StatusEvent::ProbeOk) if !now.engine_dead => (Up, "a probe succeeded".to_owned(), false),
        (Up | UnHealthy, StatusEvent::ProbeFailed(reason)) if !now.engine_dead => (UnHealthy, reason, false),
        _ => return None,
    };
    let since = if status == now.status { now.since } else { MonoNanos::now() };
    Some(StatusReport { status, reason, since, engine_dead, been_up: now.been_up || status == Up, refuses_work })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::engine::TRANSITIONS;

    fn check(events: &[StatusEvent], want: &str) {
        let seen = std::sync::Arc::new(Mutex::new(vec!["starting".to_owned()]));
        let log = std::sync::Arc::clone(&seen);
        let board = StatusBoard::new(move |_, to, _| log.lock().unwrap().push(to.to_string()));
        for event in events {
            board.apply(event.clone());
        }
        assert_eq!(seen.lock().unwrap().join(" "), want, "{events:?}");
    }

    #[test]
    fn transitions() {
        use StatusEvent::{Drain, EngineDied, ProbeFailed, ProbeOk, Ready, RefuseWork};
        let failed = || ProbeFailed("r".to_owned());
        let died = || EngineDied("r".to_owned());
        check(&[], "starting");
        check(&[ProbeOk, failed()], "starting");
        check(&[Ready, ProbeOk], "starting up");
        check(&[Ready, failed(), failed(), ProbeOk], "starting up unhealthy up");
        check(&[Ready, died(), ProbeOk, failed(), Ready], "starting up unhealthy");
        check(&[died(), Ready], "starting unhealthy");
        let lost = || StatusEvent::EngineLost("r".to_owned());
        check(&[Ready, lost(), ProbeOk, failed(), lost(), Ready], "starting up starting up");
        check(&[Ready, failed(), lost(), died(), lost()], "starting up unhealthy starting unhealthy");
        check(&[Ready, Drain, lost()], "starting up draining");
        check(&[Ready, Drain, ProbeOk, failed(), died(), Ready], "starting up draining");
        check(&[Drain, Ready], "starting draining");
        check(&[Ready, died(), Drain], "starting up unhealthy draining");
        check(&[Ready, RefuseWork, Drain], "starting up draining");
    }

    #[test]
    fn every_change_has_its_series_and_every_series_its_change() {
        let (report, text) = (StatusBoard::new(|_, _, _| ()).report(), || "r".to_owned());
        let events = [
            StatusEvent::StillStarting(text()),
            StatusEvent::Ready,
            StatusEvent::ProbeOk,
            StatusEvent::ProbeFailed(text()),
            StatusEvent::EngineLost(text()),
            StatusEvent::EngineDied(text()),
            StatusEvent::Drain,
            StatusEvent::RefuseWork,
        ];
        let mut seen = std::collections::BTreeSet::new();
        for (&status, event) in
            ServerStatus::ALL.iter().flat_map(|status| events.iter().map(move |event| (status, event)))
        {
            let after = next(&StatusReport { status, ..report.clone() }, event.clone());
            if let Some(after) = after.filter(|after| after.status != status) {
                seen.insert((status, after.status, event.reason().expect("what makes a change has a kind")));
            }
        }
        assert_eq!(seen, TRANSITIONS.iter().copied().collect());
    }

    #[test]
    fn draining_settles_before_it_refuses() {
        let refuses = |events: &[StatusEvent]| {
            let board = StatusBoard::new(|_, _, _| ());
            events.iter().for_each(|event| board.apply(event.clone()));
            board.report().refuses_work
        };
        use StatusEvent::{Drain, EngineDied, Ready, RefuseWork};
        let died = EngineDied("r".to_owned());
        for (events, want) in [
            (&[Ready, Drain][..], false),
            (&[Ready, Drain, RefuseWork], true),
            (&[Ready, Drain, RefuseWork, died], true),
            (&[Drain], true),
            (&[Ready, RefuseWork], true),
        ] {
            assert_eq!(refuses(events), want, "{events:?}");
        }
    }

    #[test]
    fn a_new_engine_has_no_verdict_and_the_start_stays_over() {
        let board = StatusBoard::new(|_, _, _| ());
        let verdict = LastVerdict {
            healthy: false,
            outcome: crate::telemetry::labels::ProbeOutcome::Timeout,
            reason: "r".to_owned(),
            stalled_at: None,
            cause: None,
            at: MonoNanos::now(),
        };
        board.conclude(verdict.clone());
        assert!(!board.report().been_up);
        board.apply(StatusEvent::Ready);
        assert_eq!((board.last_verdict(), board.report().been_up), (None, true));
        board.conclude(verdict.clone());
        board.apply(StatusEvent::ProbeFailed("r".to_owned()));
        assert_eq!((board.last_verdict(), board.report().been_up), (Some(verdict), true));
    }
}
