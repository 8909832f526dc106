//! What the frontend knows of the engine without asking it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::MonoNanos;
use crate::io_struct::{Heartbeat, StepInFlight, StepInfo};

/// The state of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Not yet there.
    Connecting,
    /// Frames go both ways.
    Connected {
        /// The engine's process.
        pid: u32,
    },
    /// Gone for good.
    Dead {
        /// How it was noticed: end of connection, exit status, signal.
        reason: String,
    },
}

/// The engine as last seen.
#[derive(Debug)]
pub struct EngineView {
    seen: Mutex<Seen>,
    link: watch::Sender<Link>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    heartbeat: Heartbeat,
    heartbeat_at: MonoNanos,
    step: Option<StepInFlight>,
    last_step: u64,
}

impl Seen {
    fn nothing() -> Self {
        Self { heartbeat: Heartbeat::default(), heartbeat_at: MonoNanos::now(), step: None, last_step: 0 }
    }
}

/// The engine at one moment.
#[derive(Debug, Clone)]
pub struct EngineSnapshot {
    /// The connection.
    pub link: Link,
    /// The last heartbeat; all zero before the first.
    pub heartbeat: Heartbeat,
    /// How long ago it came; since the start of this process, before the first.
    pub heartbeat_age: Duration,
    /// The step in flight and its age.
    pub step: Option<(StepInfo, Duration)>,
}

impl Default for EngineView {
    fn default() -> Self {
        Self { seen: Mutex::new(Seen::nothing()), link: watch::Sender::new(Link::Connecting) }
    }
}

impl EngineView {
    /// Now.
    #[must_use]
    pub fn snapshot(&self) -> EngineSnapshot {
        let seen = *self.seen();
        let now = MonoNanos::now();
        EngineSnapshot {
            link: self.link.borrow().clone(),
            heartbeat: seen.heartbeat,
            heartbeat_age: now.since(seen.heartbeat_at),
            step: seen.step.map(|flight| (flight.step, now.since(flight.began))),
        }
    }

    /// Hears of changes of the connection.
    #[must_use]
    pub fn watch_link(&self) -> watch::Receiver<Link> {
        self.link.subscribe()
    }

    /// The engine is gone.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(*self.link.borrow(), Link::Dead { .. })
    }

    /// The connection stands; what was seen of an engine before this one is forgotten.
    pub fn connected(&self, pid: u32) {
        *self.seen() = Seen::nothing();
        self.link.send_replace(Link::Connected { pid });
    }

    /// The engine is gone. The first reason stays, unless a better one (an exit status) comes.
    pub fn died(&self, reason: String) {
        self.link.send_replace(Link::Dead { reason });
    }

    /// A heartbeat came.
    pub fn heartbeat(&self, heartbeat: Heartbeat) {
        let mut seen = self.seen();
        if let Some(flight) = heartbeat.step.filter(|flight| flight.step.number > seen.last_step) {
            seen.last_step = flight.step.number;
            seen.step = Some(flight);
        }
        seen.heartbeat = heartbeat;
        seen.heartbeat_at = MonoNanos::now();
    }

    /// A step began.
    pub fn step_began(&self, step: StepInfo, began: MonoNanos) {
        let mut seen = self.seen();
        seen.last_step = step.number;
        seen.step = Some(StepInFlight { step, began });
    }

    /// A step ended; how long it took.
    pub fn step_ended(&self, step: StepInfo, ended: MonoNanos) -> Option<Duration> {
        let mut seen = self.seen();
        let flight = seen.step.take_if(|flight| flight.step.number <= step.number)?;
        seen.last_step = seen.last_step.max(step.number);
        Some(ended.since(flight.began))
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
