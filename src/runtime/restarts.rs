//! How often the engine may be started again, and how long to wait before.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Restarts older than this are forgotten.
const WINDOW: Duration = Duration::from_secs(600);

/// The wait before the first restart; each further one within the window waits twice as long.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);

/// The longest wait.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// The restarts that are left.
#[derive(Debug)]
pub struct RestartBudget {
    limit: usize,
    spent: VecDeque<Instant>,
}

impl RestartBudget {
    /// `limit` restarts within ten minutes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, spent: VecDeque::new() }
    }

    /// Takes one restart at `now`: how long to wait before it, or `None` if the budget is spent.
    pub fn take(&mut self, now: Instant) -> Option<Duration> {
        self.spent.retain(|at| now.duration_since(*at) < WINDOW);
        if self.spent.len() >= self.limit {
            return None;
        }
        let doublings = u32::try_from(self.spent.len()).unwrap_or(u32::MAX).min(16);
        self.spent.push_back(now);
        Some((FIRST_BACKOFF * 2u32.pow(doublings)).min(LONGEST_BACKOFF))
    }

    /// How many of how many are spent, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("restart {} of {}", self.spent.len(), self.limit)
    }
}

/// Waits: what made the last engine die may need a moment to pass.
pub async fn wait(backoff: Duration) {
    tokio::time::sleep(backoff).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_spent_and_comes_back() {
        let (mut budget, start) = (RestartBudget::new(3), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(budget.take(at(0)), Some(Duration::from_millis(500)));
        assert_eq!(budget.take(at(1)), Some(Duration::from_secs(1)));
        assert_eq!(budget.take(at(2)), Some(Duration::from_secs(2)));
        assert_eq!(budget.describe(), "restart 3 of 3");
        assert_eq!(budget.take(at(599)), None);
        assert_eq!(budget.take(at(601)), Some(Duration::from_secs(1)), "two of the last ten minutes are left");
        assert_eq!(RestartBudget::new(0).take(start), None);
    }
}
