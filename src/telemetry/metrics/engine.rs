//! What the engine reported, and what the server concluded from it.

use std::time::Duration;

use prometheus::{Error, HistogramVec, IntCounter, IntCounterVec, Registry};

use super::declare::{counter, counter_vec, histogram_vec};
use crate::telemetry::labels::{Cause, ServerStatus, StatusReason, StepPhase};

/// Bucket edges in seconds: from one decode step of a small model to a prefill chunk that should have been shorter.
const STEP_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0];

/// Bucket edges: from one decode to the largest chunk that anybody sets.
const STEP_TOKEN_BUCKETS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0];

/// Bucket edges: sequences in one batch.
const BATCH_SIZE_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Every change of status that can happen, and what makes it.
pub const TRANSITIONS: &[(ServerStatus, ServerStatus, StatusReason)] = &[
    (ServerStatus::Starting, ServerStatus::Up, StatusReason::EngineReady),
    (ServerStatus::Starting, ServerStatus::UnHealthy, StatusReason::EngineDied),
    (ServerStatus::Starting, ServerStatus::Draining, StatusReason::DrainBegan),
    (ServerStatus::Up, ServerStatus::Starting, StatusReason::EngineRestarting),
    (ServerStatus::Up, ServerStatus::UnHealthy, StatusReason::ProbeFailed),
    (ServerStatus::Up, ServerStatus::UnHealthy, StatusReason::EngineDied),
    (ServerStatus::Up, ServerStatus::Draining, StatusReason::DrainBegan),
    (ServerStatus::UnHealthy, ServerStatus::Starting, StatusReason::EngineRestarting),
    (ServerStatus::UnHealthy, ServerStatus::Up, StatusReason::ProbeOk),
    (ServerStatus::UnHealthy, ServerStatus::Draining, StatusReason::DrainBegan),
];

/// One step of the scheduler that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepEnd {
    /// What it worked on.
    pub phase: StepPhase,
    /// Tokens in its batch.
    pub tokens: u32,
    /// Sequences in its batch.
    pub requests: u32,
    /// How long it ran.
    pub took: Duration,
}

/// The series of the engine's reports and of the server's status.
#[derive(Debug)]
pub struct EngineMetrics {
    step_duration: HistogramVec,
    step_tokens: HistogramVec,
    batch_size: HistogramVec,
    health_check_outputs: IntCounter,
    transitions: IntCounterVec,
    incidents: IntCounterVec,
    restarts: IntCounter,
}

impl EngineMetrics {
    /// Declares the series.
    ///
    /// # Errors
    /// A name is declared twice.
    pub fn register(registry: &Registry) -> Result<Self, Error> {
        let metrics = Self {
            step_duration: histogram_vec(
                registry,
                "radiosonde_scheduler_step_duration_seconds",
                "Duration of the scheduler's steps that ended, one batch each. A busy probe waits for at most one \
                 step, so the slowest step is the slowest healthy probe.",
                STEP_BUCKETS,
                &["phase"],
            )?,
            step_tokens: histogram_vec(
                registry,
                "radiosonde_scheduler_step_tokens",
                "Tokens in the scheduler's steps that ended. Prefill near radiosonde_chunked_prefill_size: long prompts \
                 run in chunks, and each one holds decoding requests up.",
                STEP_TOKEN_BUCKETS,
                &["phase"],
            )?,
            batch_size: histogram_vec(
                registry,
                "radiosonde_scheduler_batch_size",
                "Sequences in the scheduler's steps that ended. Near radiosonde_max_running_requests: the batch is full.",
                BATCH_SIZE_BUCKETS,
                &["phase"],
            )?,
            health_check_outputs: counter(
                registry,
                "radiosonde_health_check_outputs_received_total",
                "Dedicated answers to probes that met a busy scheduler, as received by this frontend.",
            )?,
            restarts: counter(
                registry,
                "radiosonde_engine_restarts_total",
                "Engines that were started because the one before was gone. Each one has a report at /debug/incidents.",
            )?,
            transitions: counter_vec(
                registry,
                "radiosonde_server_status_transitions_total",
                "Changes of the server's status, and what made them. Many between up and unhealthy mean that probes \
                 fail now and then.",
                &["from", "to", "reason"],
            )?,
            incidents: counter_vec(
                registry,
                "radiosonde_incidents_total",
                "Incident reports written, by cause: one for each death of an engine, and for each cause of failed \
                 probes until a probe succeeds again. Read them at /debug/incidents.",
                &["cause"],
            )?,
        };
        metrics.initialise();
        Ok(metrics)
    }

    /// The engine reported the end of a step.
    pub fn step_ended(&self, step: StepEnd) {
        let phase = [step.phase.as_str()];
        self.step_duration.with_label_values(&phase).observe(step.took.as_secs_f64());
        self.step_tokens.with_label_values(&phase).observe(step.tokens.into());
        self.batch_size.with_label_values(&phase).observe(step.requests.into());
    }

    /// A `HealthCheckOutput` came.
    pub fn health_check_output_received(&self) {
        self.health_check_outputs.inc();
    }

    /// An engine is started in place of another.
    pub fn restarted(&self) {
        self.restarts.inc();
    }

    /// The server's status changed.
    pub fn status_changed(&self, from: ServerStatus, to: ServerStatus, reason: StatusReason) {
        self.transitions.with_label_values(&[from.as_str(), to.as_str(), reason.as_str()]).inc();
    }

    /// An incident report was written.
    pub fn incident_reported(&self, cause: Cause) {
        self.incidents.with_label_values(&[cause.as_str()]).inc();
    }

    fn initialise(&self) {
        for &phase in StepPhase::ALL {
            for series in [&self.step_duration, &self.step_tokens, &self.batch_size] {
                series.with_label_values(&[phase.as_str()]);
            }
        }
        for (from, to, reason) in TRANSITIONS {
            self.transitions.with_label_values(&[from.as_str(), to.as_str(), reason.as_str()]);
        }
        for &cause in Cause::ALL {
            self.incidents.with_label_values(&[cause.as_str()]);
        }
    }
}
