//! What may be set about the scheduler, checked before.

use std::time::Duration;

use super::schedule_policy::Priorities;
use crate::config::SchedulePolicy;

/// Limits of the scheduler.
#[derive(Debug, Clone, Copy)]
pub struct SchedulerConfig {
    /// The most prompt tokens of one step.
    pub chunked_prefill_size: usize,
    /// How long a step should last at most; `None`: as long as it takes.
    pub max_step_time: Option<Duration>,
    /// Whether what has been computed is kept for those who begin alike.
    pub prefix_cache: PrefixCache,
    /// Who waits least.
    pub policy: SchedulePolicy,
    /// What the priorities of requests mean.
    pub priorities: Priorities,
    /// The most tokens of one step of an embedding model.
    pub max_prefill_tokens: usize,
    /// The most requests that run at once.
    pub max_running_requests: usize,
    /// The most requests that wait.
    pub max_queued_requests: usize,
    /// KV pool size in tokens.
    pub max_total_tokens: usize,
}

/// Whether what has been computed is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrefixCache {
    /// As long as there is room.
    On,
    /// As long as its request runs.
    Off,
}
