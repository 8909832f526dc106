//! What the frontend knows of the engine without asking it.

pub mod kernel;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::MonoNanos;
use crate::io_struct::{Heartbeat, StepInFlight, StepInfo};
use crate::telemetry::labels::Hop;

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
    paused: watch::Sender<bool>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    heartbeat: Heartbeat,
    heartbeat_at: MonoNanos,
    /// When the engine connected; the start of this process, before the first.
    since: MonoNanos,
    step: Option<StepInFlight>,
    /// The last step whose begin was told as an event: a heartbeat may overtake the event of its end.
    told: Option<StepInFlight>,
    last_step: u64,
    /// What keeps the frontend from reading the engine's socket, and since when.
    away: Option<(Hop, MonoNanos)>,
}

impl Seen {
    fn nothing() -> Self {
        let now = MonoNanos::now();
        let heartbeat = Heartbeat::default();
        Self { heartbeat, heartbeat_at: now, since: now, step: None, told: None, last_step: 0, away: None }
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
    /// How long the scheduler's loop had not turned when the last heartbeat was sent.
    pub loop_stood: Duration,
    /// How long ago the loop last turned, as far as is known; since the engine connected, if it never did.
    pub loop_age: Duration,
    /// How long ago a batch last ended with a result, as of the last heartbeat; since the engine connected, if none did.
    pub last_batch_result_age: Duration,
    /// The step in flight and its age.
    pub step: Option<(StepInfo, Duration)>,
    /// Since when the frontend has not been back at the engine's socket, and what keeps it.
    pub away_from_socket: Option<(Hop, Duration)>,
    /// The scheduler holds its batches.
    pub paused: bool,
}

impl Default for EngineView {
    fn default() -> Self {
        let link = watch::Sender::new(Link::Connecting);
        Self { seen: Mutex::new(Seen::nothing()), link, paused: watch::Sender::new(false) }
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
            loop_stood: seen.heartbeat_at.since(seen.heartbeat.last_turn),
            loop_age: now.since(if seen.heartbeat.last_turn.0 > 0 { seen.heartbeat.last_turn } else { seen.since }),
            last_batch_result_age: now.since(seen.heartbeat.last_batch_result.unwrap_or(seen.since)),
            step: seen.step.map(|flight| (flight.step, now.since(flight.began))),
            away_from_socket: seen.away.map(|(hop, since)| (hop, now.since(since))),
            paused: *self.paused.borrow(),
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

    /// Hears of pauses of generation.
    #[must_use]
    pub fn watch_paused(&self) -> watch::Receiver<bool> {
        self.paused.subscribe()
    }

    /// Generation is paused, or continues.
    pub fn set_paused(&self, paused: bool) {
        self.paused.send_if_modified(|before| std::mem::replace(before, paused) != paused);
    }

    /// The frontend holds something that it has read, and is on its way to `hop` with it.
    pub fn leaves_socket(&self, hop: Hop) {
        self.seen().away = Some((hop, MonoNanos::now()));
    }

    /// The frontend is ready to read again.
    pub fn back_at_socket(&self) {
        self.seen().away = None;
    }

    /// The connection stands; what was seen of an engine before this one is forgotten.
    pub fn connected(&self, pid: u32) {
        self.set_paused(false);
        *self.seen() = Seen::nothing();
        self.link.send_replace(Link::Connected { pid });
    }

    /// The engine is gone. The first reason stays, unless a better one (an exit status) comes.
    pub fn died(&self, reason: String) {
        self.link.send_replace(Link::Dead { reason });
    }

    /// A heartbeat came that was sent at `sent_at`.
    pub fn heartbeat(&self, heartbeat: Heartbeat, sent_at: MonoNanos) {
        self.set_paused(heartbeat.paused);
        let mut seen = self.seen();
        if let Some(flight) = heartbeat.step.filter(|flight| flight.step.number > seen.last_step) {
            seen.last_step = flight.step.number;
            seen.step = Some(flight);
        }
        seen.heartbeat = heartbeat;
        seen.heartbeat_at = sent_at;
    }

    /// A step began.
    pub fn step_began(&self, step: StepInfo, began: MonoNanos) {
        let (mut seen, flight) = (self.seen(), StepInFlight { step, began });
        seen.told = Some(flight);
        if step.number >= seen.last_step {
            seen.last_step = step.number;
            seen.step = Some(flight);
        }
    }

    /// A step ended; how long it took. `None` if its begin was never heard of.
    pub fn step_ended(&self, step: StepInfo, ended: MonoNanos) -> Option<Duration> {
        let mut seen = self.seen();
        let known = [seen.told.take(), seen.step];
        let flight = known.into_iter().flatten().find(|flight| flight.step.number == step.number);
        seen.step.take_if(|flight| flight.step.number <= step.number);
        seen.last_step = seen.last_step.max(step.number);
        Some(ended.since(flight?.began))
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::labels::StepPhase;

    #[test]
    fn a_heartbeat_that_overtakes_an_event_hides_no_step() {
        let view = EngineView::default();
        let step = |number| StepInfo { number, phase: StepPhase::Decode, tokens: 1, requests: 1 };
        let at = |ms: u64| MonoNanos(ms * 1_000_000);
        let now = || view.snapshot().step.map(|(step, _)| step.number);
        let beat = |number, began| Heartbeat {
            step: Some(StepInFlight { step: step(number), began }),
            ..Heartbeat::default()
        };
        view.step_began(step(1), at(10));
        view.heartbeat(beat(2, at(30)), at(35));
        assert_eq!(now(), Some(2));
        assert_eq!(view.step_ended(step(1), at(25)), Some(Duration::from_millis(15)));
        assert_eq!(now(), Some(2), "the end of an older step");
        view.step_began(step(2), at(30));
        assert_eq!(view.step_ended(step(2), at(70)), Some(Duration::from_millis(40)));
        assert_eq!(now(), None);
        view.heartbeat(beat(2, at(30)), at(71));
        assert_eq!(now(), None, "it has ended");
        view.heartbeat(beat(3, at(80)), at(85));
        assert_eq!(view.step_ended(step(3), at(90)), Some(Duration::from_millis(10)), "known by the heartbeat alone");
        assert_eq!(view.step_ended(step(5), at(99)), None, "never heard of");
    }
}
