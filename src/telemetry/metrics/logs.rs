//! What became of the log lines: a line that is not there must be missed somewhere.

use prometheus::{Error, IntCounter, IntCounterVec, Registry};

use super::declare::{counter, counter_vec};
use crate::telemetry::labels::RecordLoss;

/// The series of the log.
#[derive(Debug, Clone)]
pub struct LogMetrics {
    suppressed: IntCounter,
    exported: IntCounter,
    dropped: IntCounterVec,
}

impl LogMetrics {
    /// Declares the series.
    ///
    /// # Errors
    /// A name is declared twice.
    pub fn register(registry: &Registry) -> Result<Self, Error> {
        let metrics = Self {
            suppressed: counter(
                registry,
                "radiosonde_log_lines_suppressed_total",
                "Lines of the frontend that were not written because the same one came too often. Whatever they told is \
                 counted in its own series.",
            )?,
            exported: counter(
                registry,
                "radiosonde_log_records_exported_total",
                "Log lines that the collector took. Stays at zero if none is configured for logs.",
            )?,
            dropped: counter_vec(
                registry,
                "radiosonde_log_records_dropped_total",
                "Log lines that the collector did not get; standard error has them all. queue_full: they came faster than \
                 they left; export_failed: it refused or did not answer; shutdown: the server ended first.",
                &["reason"],
            )?,
        };
        for &reason in RecordLoss::ALL {
            metrics.dropped.with_label_values(&[reason.as_str()]);
        }
        Ok(metrics)
    }

    /// A line was not written.
    pub fn suppressed(&self) {
        self.suppressed.inc();
    }

    /// The collector took `records` records.
    pub fn exported(&self, records: u64) {
        self.exported.inc_by(records);
    }

    /// `records` records were lost.
    pub fn dropped(&self, reason: RecordLoss, records: u64) {
        self.dropped.with_label_values(&[reason.as_str()]).inc_by(records);
    }

    /// Records lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        RecordLoss::ALL.iter().map(|reason| self.dropped.with_label_values(&[reason.as_str()]).get()).sum()
    }
}
