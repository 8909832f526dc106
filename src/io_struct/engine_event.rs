//! What the engine says of its work; never proof of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{FlushId, FlushOutcome, Rid};
use crate::clock::MonoNanos;
use crate::telemetry::labels::{Hop, ProbeBranch, StepPhase};

/// What the engine says of its work, before and after it does it. Its time is the envelope's `sent_at`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum EngineEvent {
    /// A request or probe reached a station.
    HopEntered {
        /// Whose.
        rid: Rid,
        /// Its serial: the next request with its rid is not meant.
        serial: u64,
        /// Which.
        hop: Hop,
    },
    /// A request or probe left a station.
    HopLeft {
        /// Whose.
        rid: Rid,
        /// Its serial: the next request with its rid is not meant.
        serial: u64,
        /// Which.
        hop: Hop,
    },
    /// The scheduler decided on a probe.
    ProbeBranch {
        /// Whose.
        rid: Rid,
        /// Which way.
        branch: ProbeBranch,
    },
    /// A request gave its KV pages back and waits again; what it has computed is lost, what it has said is not.
    Retracted {
        /// Whose.
        rid: Rid,
    },
    /// A step begins; sent before the forward pass.
    StepBegan(StepInfo),
    /// The prompt chunks of one frontend's requests in the step that began last; only if there are any.
    PrefillChunks(Vec<PrefillChunk>),
    /// The step with this number ended.
    StepEnded(StepInfo),
    /// The scheduler holds its batches, or does not any more.
    Paused(bool),
    /// What became of a [`super::ToEngine::FlushCache`].
    CacheFlushed {
        /// Which.
        id: FlushId,
        /// Whether anything was done.
        outcome: FlushOutcome,
    },
    /// Every 250 ms, from a thread that is not the scheduler's.
    Heartbeat(Heartbeat),
}

/// One step of the scheduler: one batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInfo {
    /// Counts from 1.
    pub number: u64,
    /// What it works on.
    pub phase: StepPhase,
    /// Tokens in the batch.
    pub tokens: u32,
    /// Sequences in the batch.
    pub requests: u32,
}

/// One request's part of a step that works on its prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefillChunk {
    /// Whose.
    pub rid: Rid,
    /// Tokens of the chunk.
    pub tokens: u32,
}

/// A step that began and has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepInFlight {
    /// Which.
    pub step: StepInfo,
    /// When it began.
    pub began: MonoNanos,
}

/// The engine's vital signs, readable while the scheduler is stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Heartbeat {
    /// Turns of the scheduler's loop.
    pub loop_iterations: u64,
    /// Batches that ended.
    pub batches: u64,
    /// The step in flight.
    pub step: Option<StepInFlight>,
    /// Messages received and not yet seen by the scheduler.
    pub inbox: u32,
    /// Requests without a place in the batch.
    pub waiting: u32,
    /// Requests in the batch; probes left out.
    pub running: u32,
    /// Probes that wait for a batch result.
    pub return_health_check_ipcs: u32,
    /// Since when the oldest of them waits.
    pub return_health_check_oldest: Option<MonoNanos>,
    /// KV pool tokens in use.
    pub kv_used_tokens: u32,
    /// KV pool tokens that are kept for requests to come, and that no request uses.
    pub kv_evictable_tokens: u32,
    /// Kept tokens that had to make room, in all.
    pub kv_evicted_tokens: u64,
    /// Prompt tokens that a step can take.
    pub prefill_budget: u32,
    /// Messages that wait in front of this frontend's socket.
    pub outbox: u32,
    /// Requests that had to give their KV pages back, in all.
    pub retractions: u64,
    /// Requests that had to give their places to others of higher priority, in all.
    pub preemptions: u64,
    /// How long the scheduler has waited for grammars and their masks, in all.
    pub grammar_wait: Duration,
    /// When the scheduler's loop last turned.
    pub last_turn: MonoNanos,
    /// What the head of the queue lacks in the KV pool, in tokens.
    pub kv_lacking_tokens: u32,
    /// The scheduler holds its batches.
    pub paused: bool,
    /// When a batch last ended with a result.
    pub last_batch_result: Option<MonoNanos>,
    /// Dedicated answers to probes that were sent to this frontend, in all.
    pub health_check_outputs: u64,
}
