//! The one clock that both processes of a host share.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds on `CLOCK_MONOTONIC`: comparable between the processes of one host, never set back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct MonoNanos(pub u64);

impl MonoNanos {
    /// The time now.
    #[must_use]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        let secs = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        Self(secs * 1_000_000_000 + nanos)
    }

    /// The time `later` after this.
    #[must_use]
    pub fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long ago this was; zero if it lies ahead.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().since(self)
    }
}

/// How long this thread has had a core: what it did, however long it waited.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Translates monotonic times into wall clock times for spans. Anchored once, so spans of one process never reorder
/// when the wall clock is set.
#[derive(Debug, Clone, Copy)]
pub struct WallAnchor {
    wall: std::time::SystemTime,
    mono: MonoNanos,
}

impl WallAnchor {
    /// Anchors the two clocks to each other. They cannot be read at once, and a thread may lose its core in between: the
    /// closest of a few readings counts.
    #[must_use]
    pub fn now() -> Self {
        let (mut anchor, mut closest) = Self::read();
        for _ in 0..16 {
            if closest <= Duration::from_micros(2) {
                break;
            }
            let (other, gap) = Self::read();
            if gap < closest {
                (anchor, closest) = (other, gap);
            }
        }
        anchor
    }

    /// One reading, and how long it took.
    #[expect(clippy::disallowed_methods, reason = "the one place where the wall clock is read")]
    fn read() -> (Self, Duration) {
        let before = MonoNanos::now();
        let wall = std::time::SystemTime::now();
        let gap = before.elapsed();
        (Self { wall, mono: before.after(gap / 2) }, gap)
    }

    /// The wall clock time of `at`.
    #[must_use]
    pub fn wall(&self, at: MonoNanos) -> std::time::SystemTime {
        if at >= self.mono { self.wall + at.since(self.mono) } else { self.wall - self.mono.since(at) }
    }

    /// Seconds since the Unix epoch at `at`.
    #[must_use]
    pub fn unix_seconds(&self, at: MonoNanos) -> f64 {
        self.wall(at).duration_since(std::time::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
    }
}
