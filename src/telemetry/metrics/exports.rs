//! What became of the spans: evidence that does not arrive must be missed somewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use prometheus::{Error, IntCounter, IntCounterVec, PullingGauge, Registry};

use super::declare::{counter, counter_vec};
use crate::telemetry::labels::SpanLoss;

/// The series of trace export.
#[derive(Debug, Clone)]
pub struct ExportMetrics {
    exported: IntCounter,
    dropped: IntCounterVec,
    unsampled: IntCounter,
    queued: Arc<AtomicUsize>,
}

impl ExportMetrics {
    /// Declares the series.
    ///
    /// # Errors
    /// A name is declared twice.
    pub fn register(registry: &Registry) -> Result<Self, Error> {
        let queued = Arc::new(AtomicUsize::new(0));
        registry.register(Box::new(queue_gauge(Arc::clone(&queued))?))?;
        let dropped = counter_vec(
            registry,
            "radiosonde_trace_spans_dropped_total",
            "Spans lost on their way to the collector; traces of this time have holes. queue_full: it takes them more \
             slowly than they are written. export_failed: it refused them or did not answer in time, the log says why. \
             shutdown: they still waited when the server ended. buffer_full: too many traces waited for their end to be \
             judged by it.",
            &["reason"],
        )?;
        for reason in SpanLoss::ALL {
            dropped.with_label_values(&[reason.as_str()]);
        }
        Ok(Self {
            exported: counter(
                registry,
                "radiosonde_trace_spans_exported_total",
                "Spans that the collector took. Stays at zero if no collector is configured.",
            )?,
            dropped,
            unsampled: counter(
                registry,
                "radiosonde_trace_spans_unsampled_total",
                "Spans left out on purpose: their trace ended well and in time, and its share is not among those that \
                 are kept (--trace-probes, --trace-ratio).",
            )?,
            queued,
        })
    }

    /// The collector took `spans` spans.
    pub fn exported(&self, spans: u64) {
        self.exported.inc_by(spans);
    }

    /// `spans` spans were lost.
    pub fn dropped(&self, reason: SpanLoss, spans: u64) {
        self.dropped.with_label_values(&[reason.as_str()]).inc_by(spans);
    }

    /// `spans` spans were left out on purpose.
    pub fn unsampled(&self, spans: u64) {
        self.unsampled.inc_by(spans);
    }

    /// Spans lost so far.
    #[must_use]
    pub fn lost(&self, reason: SpanLoss) -> u64 {
        self.dropped.with_label_values(&[reason.as_str()]).get()
    }

    /// How many spans wait for export: the queue's own account, which the gauge reads.
    #[must_use]
    pub fn queued(&self) -> &AtomicUsize {
        &self.queued
    }
}

fn queue_gauge(queued: Arc<AtomicUsize>) -> Result<PullingGauge, Error> {
    #[expect(clippy::cast_precision_loss, reason = "the queue holds far fewer than 2^52 spans")]
    let read = move || queued.load(Ordering::Relaxed) as f64;
    PullingGauge::new(
        "radiosonde_trace_spans_queued",
        "Spans that wait for the collector, those of an export under way included. Does it stay near \
         OTEL_BSP_MAX_QUEUE_SIZE (4096)? Then the collector is slow or away, and spans are lost.",
        Box::new(read),
    )
}
