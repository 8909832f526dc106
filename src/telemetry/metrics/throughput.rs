//! Tokens of the last seconds: a rate that does not depend on who scrapes when.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// So many whole seconds before the present one are in the rate.
pub const WINDOW_SECONDS: u32 = 5;

/// A power of two above the window: the second that is counted now is not one of those that are read.
const SLOTS: usize = 8;

/// Counts by the second, in a ring. Neither counting nor reading waits.
#[derive(Debug)]
pub struct Throughput {
    began: Instant,
    /// The second in the upper half, what was counted in it in the lower.
    slots: [AtomicU64; SLOTS],
}

impl Default for Throughput {
    fn default() -> Self {
        Self { began: Instant::now(), slots: Default::default() }
    }
}

impl Throughput {
    /// Counts `tokens` now.
    pub fn add(&self, tokens: u32) {
        self.add_at(self.second(), tokens);
    }

    /// Tokens a second over the last [`WINDOW_SECONDS`]; fewer seconds count as long as there are no more.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.per_second_at(self.second())
    }

    fn second(&self) -> u32 {
        u32::try_from(self.began.elapsed().as_secs()).unwrap_or(u32::MAX)
    }

    fn add_at(&self, second: u32, tokens: u32) {
        let more = |slot: u64| {
            let (at, count) = unpack(slot);
            let before = if at == second { count } else { 0 };
            Some(u64::from(second) << 32 | u64::from(before.saturating_add(tokens)))
        };
        // It cannot fail: the closure always gives a value.
        let _ = self.slots[second as usize % SLOTS].fetch_update(Relaxed, Relaxed, more);
    }

    fn per_second_at(&self, now: u32) -> f64 {
        let window = now.saturating_sub(WINDOW_SECONDS)..now;
        let slots = self.slots.iter().map(|slot| unpack(slot.load(Relaxed)));
        let tokens: u64 = slots.filter(|(at, _)| window.contains(at)).map(|(_, count)| u64::from(count)).sum();
        tokens as f64 / f64::from(WINDOW_SECONDS.min(now).max(1))
    }
}

fn unpack(slot: u64) -> (u32, u32) {
    ((slot >> 32) as u32, slot as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_seconds_count() {
        let throughput = Throughput::default();
        let check = |now, want: f64| assert_eq!(throughput.per_second_at(now), want, "after {now} s");
        check(0, 0.0);
        throughput.add_at(0, 10);
        check(0, 0.0); // the second has not ended
        check(1, 10.0);
        check(2, 5.0);
        throughput.add_at(3, 20);
        throughput.add_at(3, 20);
        check(5, 10.0);
        check(6, 8.0); // the first second is out
        check(8, 8.0);
        check(9, 0.0);
        throughput.add_at(11, 5); // in the place of the third
        check(12, 1.0);
        check(u32::MAX, 0.0);
    }
}
