//! What a probe's answer says of it, and what `/debug/probes` keeps.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::Flight;
use super::cause::{Diagnosis, Evidence};
use crate::clock::MonoNanos;
use crate::engine_view::{EngineSnapshot, Link};
use crate::telemetry::labels::{
    Cause, Hop, ProbeBranch, ProbeEndpoint, ProbeEvidence, ProbeOutcome, ServerStatus, StepPhase,
};

/// A probe's end. Serialised, it is the body of the answer.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Autopsy {
    /// The server's status after the verdict.
    pub status: ServerStatus,
    /// The verdict.
    pub healthy: bool,
    /// The verdict in a sentence.
    pub reason: String,
    /// The probe's id, and its rid in the engine.
    pub probe_id: String,
    /// Where it came in.
    pub endpoint: ProbeEndpoint,
    /// Which way the scheduler took.
    pub branch: ProbeBranch,
    /// What proved life.
    pub evidence: ProbeEvidence,
    /// How it ended.
    pub outcome: ProbeOutcome,
    /// From the handler's start to the verdict.
    pub duration_ms: f64,
    /// How long it would have waited.
    pub limit_ms: f64,
    /// Seconds since the Unix epoch at its start.
    pub started_at: f64,
    /// The trace, if traces are made.
    pub trace_id: Option<String>,
    /// A failed probe: the hop that never finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalled_at: Option<Hop>,
    /// A failed probe: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// A failed probe: the evidence for the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause_detail: Option<String>,
    /// Hop after hop, in milliseconds since the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<TimelineEntry>,
    /// Requests of this frontend that were in the batches that it waited for: their rids, at most 32.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waited_for: Vec<String>,
    /// A failed probe: the step in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepReport>,
    /// A failed probe: how long the queues were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<QueueReport>,
    /// A failed probe: how old the signs of life were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ages: Option<AgeReport>,
}

/// A hop in milliseconds since the probe's start.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct TimelineEntry {
    /// Which.
    pub hop: Hop,
    /// When it was entered.
    pub entered_ms: f64,
    /// When it was left; null: never.
    pub left_ms: Option<f64>,
}

/// The step in flight.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct StepReport {
    /// Counts from 1.
    pub number: u64,
    /// What it works on.
    pub phase: StepPhase,
    /// Tokens in its batch.
    pub tokens: u32,
    /// Sequences in its batch.
    pub requests: u32,
    /// How long it has been running.
    pub running_for_ms: f64,
}

/// Lengths of queues, as last seen.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct QueueReport {
    /// In front of the socket to the engine.
    pub to_engine: usize,
    /// Received by the engine, not seen by the scheduler.
    pub inbox: u32,
    /// Requests without a place in the batch.
    pub waiting: u32,
    /// Requests in the batch.
    pub running: u32,
    /// Probes that wait for a batch result.
    pub return_health_check_ipcs: u32,
    /// In front of the socket to this frontend.
    pub to_frontend: u32,
}

/// Ages of the signs of life.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct AgeReport {
    /// Of `last_receive_tstamp`: the proof that the device moves.
    pub last_receive_ms: f64,
    /// Of the last heartbeat: the proof that the engine's process runs.
    pub heartbeat_ms: f64,
    /// Of the step in flight; null if there is none.
    pub step_ms: Option<f64>,
}

/// What the frontend knows at the moment of a verdict.
#[derive(Debug, Clone)]
pub struct Scene {
    /// The engine.
    pub engine: EngineSnapshot,
    /// Age of `last_receive_tstamp`.
    pub last_receive_age: Duration,
    /// Messages in front of the socket to the engine.
    pub to_engine_depth: usize,
    /// The kernel says that the engine's process is stopped.
    pub engine_stopped: bool,
    /// How long the probe has lived.
    pub lived: Duration,
    /// For how long of that the main runtime stood.
    pub runtime_lag: Duration,
    /// For how long of that the process got no CPU.
    pub process_lag: Duration,
}

impl Scene {
    /// The evidence for a cause, with the probe's `flight` if it got so far.
    #[must_use]
    pub fn evidence(&self, flight: Option<&Flight>) -> Evidence {
        let heartbeat = &self.engine.heartbeat;
        let engine_dead = match &self.engine.link {
            Link::Dead { reason } => Some(reason.clone()),
            _ => None,
        };
        Evidence {
            whereabouts: flight.and_then(|flight| flight.timeline.whereabouts()),
            lived: self.lived,
            engine_dead,
            engine_stopped: self.engine_stopped,
            runtime_lag: self.runtime_lag,
            process_lag: self.process_lag,
            away_from_socket: self.engine.away_from_socket,
            heartbeat_age: self.engine.heartbeat_age,
            step: self.engine.step,
            loop_stood: self.engine.loop_stood,
            waiting: heartbeat.waiting,
            parked: heartbeat.return_health_check_ipcs,
            kv_lacking_tokens: heartbeat.kv_lacking_tokens,
            kv_used_tokens: heartbeat.kv_used_tokens,
            inbox: heartbeat.inbox,
            to_engine_depth: self.to_engine_depth,
        }
    }

    /// The queues.
    #[must_use]
    pub fn queues(&self) -> QueueReport {
        let heartbeat = &self.engine.heartbeat;
        QueueReport {
            to_engine: self.to_engine_depth,
            inbox: heartbeat.inbox,
            waiting: heartbeat.waiting,
            running: heartbeat.running,
            return_health_check_ipcs: heartbeat.return_health_check_ipcs,
            to_frontend: heartbeat.outbox,
        }
    }

    /// The ages.
    #[must_use]
    pub fn ages(&self) -> AgeReport {
        AgeReport {
            last_receive_ms: millis(self.last_receive_age),
            heartbeat_ms: millis(self.engine.heartbeat_age),
            step_ms: self.engine.step.map(|(_, age)| millis(age)),
        }
    }
}

impl Autopsy {
    /// Adds what a failed probe has to say.
    #[must_use]
    pub fn failed(mut self, scene: &Scene, diagnosis: Diagnosis) -> Self {
        self.stalled_at = Some(diagnosis.stalled_at);
        self.cause = Some(diagnosis.cause);
        self.cause_detail = Some(diagnosis.detail);
        self.step = scene.engine.step.map(|(step, age)| StepReport {
            number: step.number,
            phase: step.phase,
            tokens: step.tokens,
            requests: step.requests,
            running_for_ms: millis(age),
        });
        self.queues = Some(scene.queues());
        self.ages = Some(scene.ages());
        self
    }
}

/// The hops of `flight` in milliseconds since `start`.
#[must_use]
pub fn timeline(flight: &Flight, start: MonoNanos) -> Vec<TimelineEntry> {
    let entries = flight.timeline.hops().iter().map(|record| TimelineEntry {
        hop: record.hop,
        entered_ms: millis(record.entered.since(start)),
        left_ms: record.left.map(|left| millis(left.since(start))),
    });
    entries.collect()
}

/// With three decimals.
#[must_use]
pub fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
