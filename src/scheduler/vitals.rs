//! The engine's vital signs: written by the scheduler, read by the heartbeat even while the scheduler is stuck.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::MonoNanos;
use crate::io_struct::{Heartbeat, StepInFlight};

/// Counts behind atomics: a reader never waits for the scheduler.
#[derive(Debug, Default)]
pub struct VitalsPage {
    loop_iterations: AtomicU64,
    /// Nanoseconds.
    last_turn: AtomicU64,
    batches: AtomicU64,
    /// Nanoseconds; 0 for none.
    last_batch_result: AtomicU64,
    retractions: AtomicU64,
    preemptions: AtomicU64,
    /// Nanoseconds.
    grammar_wait: AtomicU64,
    inbox: AtomicU32,
    waiting: AtomicU32,
    running: AtomicU32,
    return_health_check_ipcs: AtomicU32,
    /// Nanoseconds; 0 for none.
    return_health_check_oldest: AtomicU64,
    kv_used_tokens: AtomicU32,
    kv_evictable_tokens: AtomicU32,
    kv_evicted_tokens: AtomicU64,
    kv_lacking_tokens: AtomicU32,
    prefill_budget: AtomicU32,
    paused: AtomicBool,
    step: Mutex<Option<StepInFlight>>,
}

/// Lengths of the scheduler's queues.
#[derive(Debug, Clone, Copy)]
pub struct Queues {
    /// User requests without a place in the batch.
    pub waiting: usize,
    /// User requests in the batch.
    pub running: usize,
    /// Parked probes.
    pub return_health_check_ipcs: usize,
    /// When the oldest of them was sent.
    pub return_health_check_oldest: Option<MonoNanos>,
    /// KV pool tokens in use.
    pub kv_used_tokens: usize,
    /// KV pool tokens that are kept and that nobody uses.
    pub kv_evictable_tokens: usize,
    /// Tokens that were kept and had to make room, in all.
    pub kv_evicted_tokens: u64,
    /// What the head of the queue lacks in the KV pool.
    pub kv_lacking_tokens: usize,
    /// Prompt tokens that a step can take.
    pub prefill_budget: usize,
    /// No batch runs until somebody says so.
    pub paused: bool,
}

impl VitalsPage {
    /// The loop turned.
    pub fn loop_turned(&self) {
        self.loop_iterations.fetch_add(1, Relaxed);
        self.last_turn.store(MonoNanos::now().0, Relaxed);
    }

    /// A message was received for the scheduler.
    pub fn inbox_entered(&self) {
        self.inbox.fetch_add(1, Relaxed);
    }

    /// The scheduler took `count` messages.
    pub fn inbox_taken(&self, count: usize) {
        self.inbox.fetch_sub(saturate(count), Relaxed);
    }

    /// A running request gave its place to another of higher priority.
    pub fn preempted(&self) {
        self.preemptions.fetch_add(1, Relaxed);
    }

    /// The scheduler waited so long for grammars and their masks.
    pub fn grammar_waited(&self, waited: Duration) {
        self.grammar_wait.fetch_add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// A running request gave its KV pages back, because there were no more.
    pub fn retracted(&self) {
        self.retractions.fetch_add(1, Relaxed);
    }

    /// A step begins.
    pub fn step_began(&self, step: StepInFlight) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = Some(step);
    }

    /// The step in flight ended.
    pub fn step_ended(&self) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.batches.fetch_add(1, Relaxed);
    }

    /// A batch ended, and its result is good.
    pub fn batch_result(&self) {
        self.last_batch_result.store(MonoNanos::now().0, Relaxed);
    }

    /// The queues have changed.
    pub fn set_queues(&self, queues: &Queues) {
        self.waiting.store(saturate(queues.waiting), Relaxed);
        self.running.store(saturate(queues.running), Relaxed);
        self.return_health_check_ipcs.store(saturate(queues.return_health_check_ipcs), Relaxed);
        self.return_health_check_oldest.store(queues.return_health_check_oldest.map_or(0, |at| at.0), Relaxed);
        self.kv_used_tokens.store(saturate(queues.kv_used_tokens), Relaxed);
        self.kv_evictable_tokens.store(saturate(queues.kv_evictable_tokens), Relaxed);
        self.kv_evicted_tokens.store(queues.kv_evicted_tokens, Relaxed);
        self.prefill_budget.store(saturate(queues.prefill_budget), Relaxed);
        self.kv_lacking_tokens.store(saturate(queues.kv_lacking_tokens), Relaxed);
        self.paused.store(queues.paused, Relaxed);
    }

    /// The signs now, for a reader in front of whose socket `outbox` messages wait and who was sent
    /// `health_check_outputs`.
    #[must_use]
    pub fn heartbeat(&self, outbox: usize, health_check_outputs: u64) -> Heartbeat {
        let instant = |nanos: &AtomicU64| Some(MonoNanos(nanos.load(Relaxed))).filter(|at| at.0 > 0);
        Heartbeat {
            loop_iterations: self.loop_iterations.load(Relaxed),
            batches: self.batches.load(Relaxed),
            step: *self.step.lock().unwrap_or_else(PoisonError::into_inner),
            inbox: self.inbox.load(Relaxed),
            waiting: self.waiting.load(Relaxed),
            running: self.running.load(Relaxed),
            return_health_check_ipcs: self.return_health_check_ipcs.load(Relaxed),
            return_health_check_oldest: instant(&self.return_health_check_oldest),
            kv_used_tokens: self.kv_used_tokens.load(Relaxed),
            outbox: saturate(outbox),
            retractions: self.retractions.load(Relaxed),
            preemptions: self.preemptions.load(Relaxed),
            grammar_wait: Duration::from_nanos(self.grammar_wait.load(Relaxed)),
            last_turn: MonoNanos(self.last_turn.load(Relaxed)),
            kv_evictable_tokens: self.kv_evictable_tokens.load(Relaxed),
            kv_evicted_tokens: self.kv_evicted_tokens.load(Relaxed),
            prefill_budget: self.prefill_budget.load(Relaxed),
            kv_lacking_tokens: self.kv_lacking_tokens.load(Relaxed),
            paused: self.paused.load(Relaxed),
            last_batch_result: instant(&self.last_batch_result),
            health_check_outputs,
        }
    }
}

fn saturate(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
