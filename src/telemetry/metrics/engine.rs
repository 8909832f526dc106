//! What the engine reported, and what the server concluded from it.

use std::time::Duration;

use prometheus::{Error, HistogramVec, IntCounter, IntCounterVec, Registry};

use super::declare::{counter, counter_vec, gauge_vec, histogram_vec};
use crate::telemetry::labels::{ServerStatus, StepPhase};

/// Bucket edges in seconds: from one decode step of a small model to a prefill chunk that should have been shorter.
const STEP_BUCKETS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0];

/// The series of the engine's reports and of the server's status.
#[derive(Debug)]
pub struct EngineMetrics {
    step_duration: HistogramVec,
    health_check_outputs: IntCounter,
    transitions: IntCounterVec,
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
                "Changes of the server's status. Many between up and unhealthy mean that probes fail now and then.",
                &["from", "to"],
            )?,
        };
        let build =
            gauge_vec(registry, "radiosonde_build_info", "Always 1; the version is in the label.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        metrics.initialise();
        Ok(metrics)
    }

    /// The engine reported the end of a step.
    pub fn step_ended(&self, phase: StepPhase, duration: Duration) {
        self.step_duration.with_label_values(&[phase.as_str()]).observe(duration.as_secs_f64());
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
    pub fn status_changed(&self, from: ServerStatus, to: ServerStatus) {
        self.transitions.with_label_values(&[from.as_str(), to.as_str()]).inc();
    }

    fn initialise(&self) {
        for &phase in StepPhase::ALL {
            self.step_duration.with_label_values(&[phase.as_str()]);
        }
        for &from in ServerStatus::ALL.iter().filter(|&&from| from != ServerStatus::Draining) {
            for &to in ServerStatus::ALL.iter().filter(|&&to| to != from) {
                self.transitions.with_label_values(&[from.as_str(), to.as_str()]);
            }
        }
    }
}
