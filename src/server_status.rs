//! What the server can say of itself: one owner, everybody else watches.

use std::sync::Mutex;
use std::sync::PoisonError;

use tokio::sync::watch;

use crate::clock::MonoNanos;
pub use crate::telemetry::labels::ServerStatus;

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
    /// Graceful exit begins.
    Drain,
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
}

/// Called with each change of status: from, to.
type OnTransition = Box<dyn Fn(ServerStatus, ServerStatus) + Send + Sync>;

/// The owner of the status.
pub struct StatusBoard {
    current: watch::Sender<StatusReport>,
    writing: Mutex<()>,
    on_transition: OnTransition,
}

impl StatusBoard {
    /// Starting; `on_transition` hears of each change.
    pub fn new(on_transition: impl Fn(ServerStatus, ServerStatus) + Send + Sync + 'static) -> Self {
        let report = StatusReport {
            status: ServerStatus::Starting,
            reason: "starting".to_owned(),
            since: MonoNanos::now(),
            engine_dead: false,
        };
        Self { current: watch::Sender::new(report), writing: Mutex::new(()), on_transition: Box::new(on_transition) }
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

    /// Something happened; the status follows.
    pub fn apply(&self, event: StatusEvent) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.report();
        let Some(after) = next(&before, event) else { return };
        if after.status != before.status {
            (self.on_transition)(before.status, after.status);
            tracing::info!(from = %before.status, to = %after.status, reason = after.reason, "server status changed");
        }
        self.current.send_replace(after);
    }
}

/// The transitions, all of them. `None`: nothing changes.
fn next(now: &StatusReport, event: StatusEvent) -> Option<StatusReport> {
    use ServerStatus::{Draining, Starting, UnHealthy, Up};
    let (status, reason, engine_dead) = match (now.status, event) {
        (status, StatusEvent::EngineDied(reason)) if !now.engine_dead => {
            (if status == Draining { Draining } else { UnHealthy }, reason, true)
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
    Some(StatusReport { status, reason, since, engine_dead })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(events: &[StatusEvent], want: &str) {
        let seen = std::sync::Arc::new(Mutex::new(vec!["starting".to_owned()]));
        let log = std::sync::Arc::clone(&seen);
        let board = StatusBoard::new(move |_, to| log.lock().unwrap().push(to.to_string()));
        for event in events {
            board.apply(event.clone());
        }
        assert_eq!(seen.lock().unwrap().join(" "), want, "{events:?}");
    }

    #[test]
    fn transitions() {
        use StatusEvent::{Drain, EngineDied, ProbeFailed, ProbeOk, Ready};
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
    }
}
