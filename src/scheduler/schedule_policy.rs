//! Who goes first, in the queue and in the batch.

use std::cmp::Reverse;
use std::collections::VecDeque;

use super::Scheduler;
use super::outbox::Outbox;
use super::request::Request;
use crate::config::SchedulePolicy;
use crate::io_struct::{AbortKind, EngineEvent, FromEngine, Purpose};
use crate::model_runner::PAGE_SIZE;
use crate::telemetry::labels::Hop;

/// A longer queue is served first come, first served, whatever the policy: to compare that many prompts with the cache
/// takes longer than it saves. SGLang's limit.
const LPM_QUEUE_LIMIT: usize = 128;

/// What the priorities of requests mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priorities {
    /// Nothing: there are none.
    Off,
    /// Requests of one come before those of another.
    On {
        /// Which.
        first: FirstPriority,
        /// A request takes the place of one that runs if their priorities are further apart than this.
        preemption_threshold: u32,
    },
}

/// Which priorities come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstPriority {
    /// High values.
    High,
    /// Low values.
    Low,
}

/// A request's place among all: the smaller goes first, and no two are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    weight: Reverse<i64>,
    arrival: u64,
}

impl Rank {
    /// Of the `arrival`-th request. A probe has nothing before it, a request without priority everything that has one.
    #[must_use]
    pub fn new(purpose: Purpose, priority: Option<i64>, arrival: u64, priorities: Priorities) -> Self {
        let weight = match (purpose, priorities) {
            (Purpose::HealthCheck(_), _) => i64::MAX,
            (Purpose::Serve, Priorities::Off) => 0,
            (Purpose::Serve, Priorities::On { first: FirstPriority::High, .. }) => priority.unwrap_or(i64::MIN),
            (Purpose::Serve, Priorities::On { first: FirstPriority::Low, .. }) => {
                priority.map_or(i64::MIN, i64::saturating_neg)
            }
        };
        Self { weight: Reverse(weight), arrival }
    }

    /// By how much more this weighs than `other`.
    fn ahead_of(self, other: Self) -> i64 {
        self.weight.0.saturating_sub(other.weight.0)
    }
}

/// Puts `request` into the queue by its rank; a policy with another order makes it before it serves the queue.
pub fn enqueue(waiting: &mut VecDeque<Request>, request: Request) {
    let place = waiting.partition_point(|other| other.rank < request.rank);
    waiting.insert(place, request);
}

impl Scheduler {
    /// Puts the queue into the order in which it is to be served; first come, first served, it is in that already.
    pub(super) fn order_waiting(&mut self) {
        let is_full = self.running.len() >= self.config.max_running_requests;
        if is_full && self.config.priorities == Priorities::Off {
            return; // nobody gets a place, and nobody makes one
        }
        let waiting = self.waiting.make_contiguous();
        match self.config.policy {
            SchedulePolicy::Lpm if waiting.len() <= LPM_QUEUE_LIMIT => waiting.sort_by_cached_key(|request| {
                let cached = self.kv_pool.cached_tokens(request.shareable());
                (request.rank.weight, Reverse(cached), request.rank.arrival)
            }),
            SchedulePolicy::Lpm | SchedulePolicy::Fcfs => waiting.sort_unstable_by_key(|request| request.rank),
        }
    }

    /// Takes the places and pages of requests that run and weigh much less than the head of the queue, if it gets on by
    /// that; they go on later.
    pub(super) fn preempt_for_head(&mut self, out: &mut dyn Outbox) {
        let Priorities::On { preemption_threshold, .. } = self.config.priorities else { return };
        let Some(head) = self.waiting.front() else { return };
        let lacking = self.kv_lacking_tokens() / PAGE_SIZE;
        let (mut places, mut pages) = (self.config.max_running_requests - self.running.len(), 0);
        let mut victims = 0;
        for request in self.running.iter().rev() {
            let goes = head.rank.ahead_of(request.rank) > i64::from(preemption_threshold);
            if !goes || (places > 0 && pages >= lacking) {
                break;
            }
            let with_its_slack = request.pages.pages().len() + 1;
            (victims, places, pages) = (victims + 1, places + 1, pages + with_its_slack);
        }
        if places > 0 && pages >= lacking {
            for _ in 0..victims {
                self.vitals.preempted();
                self.retract_last(out);
            }
        }
    }

    /// The last in the batch gives its place and its pages back.
    pub(super) fn retract_last(&mut self, out: &mut dyn Outbox) {
        let Some(mut request) = self.running.pop() else { return };
        request.retract(&mut self.kv_pool);
        if request.purpose == Purpose::Serve {
            for event in [
                EngineEvent::Retracted { rid: request.rid.clone() },
                EngineEvent::HopEntered { rid: request.rid.clone(), serial: request.serial, hop: Hop::Queue },
            ] {
                out.send(&request.worker, FromEngine::Event(event));
            }
        }
        enqueue(&mut self.waiting, request);
    }

    /// A full queue has a place for who weighs more than its last, which ends.
    pub(super) fn displace_last_waiting(&mut self, rank: Rank, out: &mut dyn Outbox) -> bool {
        let queued = self.waiting.iter().enumerate().filter(|(_, request)| request.purpose == Purpose::Serve);
        let last = queued.max_by_key(|(_, request)| request.rank);
        let Some((place, _)) = last.filter(|(_, last)| rank.ahead_of(last.rank) > 0) else { return false };
        if let Some(mut request) = self.waiting.remove(place) {
            let message = "the queue is full, and a request of higher priority took the place; try again later";
            let ended = super::request::ended(&mut request, AbortKind::QueueFull, message.to_owned());
            out.send(&request.worker, ended);
        }
        true
    }
}

#[cfg(test)]
mod tests;
