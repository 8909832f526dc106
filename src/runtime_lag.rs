//! Whether the frontend itself keeps up: when its canaries last beat, and the times at which they did not.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::MonoNanos;

/// How often a canary is to beat.
pub const CANARY_INTERVAL: Duration = Duration::from_millis(100);

/// Later than this is a stall; less is what timers and busy machines do.
const STALL: Duration = Duration::from_millis(50);

/// So many stalls are remembered.
const KEPT_STALLS: usize = 64;

/// The two canaries of a frontend.
#[derive(Debug, Default)]
pub struct RuntimeLag {
    /// A task on the main runtime: late if its workers are blocked, or get no CPU.
    pub task: Canary,
    /// A thread of its own: late only if the process gets no CPU, or is stopped.
    pub thread: Canary,
}

impl RuntimeLag {
    /// For how long since `began` each canary should have beaten and did not: task, thread.
    #[must_use]
    pub fn since(&self, began: MonoNanos, now: MonoNanos) -> (Duration, Duration) {
        (self.task.stalled_since(began, now), self.thread.stalled_since(began, now))
    }
}

/// Something that beats as long as it is let.
#[derive(Debug)]
pub struct Canary(Mutex<Beats>);

#[derive(Debug)]
struct Beats {
    last: MonoNanos,
    /// From when to when a beat was overdue.
    stalls: VecDeque<(MonoNanos, MonoNanos)>,
}

impl Default for Canary {
    fn default() -> Self {
        Self(Mutex::new(Beats { last: MonoNanos::now(), stalls: VecDeque::new() }))
    }
}

impl Canary {
    /// It beats, at `now`.
    pub fn beat(&self, now: MonoNanos) {
        let mut beats = self.beats();
        let due = beats.last.after(CANARY_INTERVAL);
        if now.since(due) > STALL {
            if beats.stalls.len() == KEPT_STALLS {
                beats.stalls.pop_front();
            }
            beats.stalls.push_back((due, now));
        }
        beats.last = now;
    }

    /// By how much its next beat is late.
    #[must_use]
    pub fn overdue(&self, now: MonoNanos) -> Duration {
        now.since(self.beats().last.after(CANARY_INTERVAL))
    }

    /// For how long since `began` it stalled, the present moment included.
    #[must_use]
    pub fn stalled_since(&self, began: MonoNanos, now: MonoNanos) -> Duration {
        let beats = self.beats();
        let due = beats.last.after(CANARY_INTERVAL);
        let present = (now.since(due) > STALL).then_some((due, now));
        beats.stalls.iter().copied().chain(present).map(|(from, to)| to.since(from.max(began))).sum()
    }

    fn beats(&self) -> MutexGuard<'_, Beats> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_overdue_and_lies_in_the_time_asked_for_counts() {
        let canary = Canary::default();
        let start = canary.beats().last;
        let at = |ms| start.after(Duration::from_millis(ms));
        let stalled = |began, now| canary.stalled_since(at(began), at(now)).as_millis();
        assert_eq!(stalled(0, 140), 0, "a little late is what timers are");
        assert_eq!(stalled(0, 400), 300, "due at 100");
        assert_eq!(stalled(300, 400), 100, "the part before it began is not its own");
        canary.beat(at(1000));
        assert_eq!((stalled(0, 1050), stalled(500, 1050), stalled(1000, 1050)), (900, 500, 0));
        assert_eq!(canary.overdue(at(1350)), Duration::from_millis(250));
    }
}
