//! What became of the spans: evidence that does not arrive must be missed somewhere.

use prometheus::{Error, IntCounter, Registry};

use super::declare::counter;

/// The series of trace export.
#[derive(Debug, Clone)]
pub struct ExportMetrics {
    exported: IntCounter,
    dropped: IntCounter,
}

impl ExportMetrics {
    /// Declares the series.
    ///
    /// # Errors
    /// A name is declared twice.
    pub fn register(registry: &Registry) -> Result<Self, Error> {
        Ok(Self {
            exported: counter(
                registry,
                "radiosonde_trace_spans_exported_total",
                "Spans that the collector took. Stays at zero if no collector is configured.",
            )?,
            dropped: counter(
                registry,
                "radiosonde_trace_spans_dropped_total",
                "Spans lost: the collector refused or did not answer, or the export queue was full. Traces of this \
                 time have holes.",
            )?,
        })
    }

    /// The collector took `spans` spans.
    pub fn exported(&self, spans: u64) {
        self.exported.inc_by(spans);
    }

    /// `spans` spans were lost.
    pub fn dropped(&self, spans: u64) {
        self.dropped.inc_by(spans);
    }

    /// Spans lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.dropped.get()
    }
}
