//! Where each span is: waiting for export, taken by the collector, left out on purpose, or lost.

use std::sync::atomic::{AtomicBool, Ordering};

use opentelemetry_sdk::error::OTelSdkResult;

use crate::telemetry::labels::SpanLoss;
use crate::telemetry::metrics::ExportMetrics;

/// The books of both services' spans; every span that is kept goes through them once.
#[derive(Debug)]
pub(super) struct Account {
    /// The most spans that may wait.
    capacity: usize,
    closed: AtomicBool,
    metrics: ExportMetrics,
}

impl Account {
    /// Nothing so far.
    pub fn new(capacity: usize, metrics: ExportMetrics) -> Self {
        Self { capacity, closed: AtomicBool::new(false), metrics }
    }

    /// Counts one more waiting span; false, and the span is lost, if too many wait already or nobody exports any more.
    pub fn admit(&self) -> bool {
        if self.closed.load(Ordering::Acquire) {
            self.metrics.dropped(SpanLoss::Shutdown, 1);
            return false;
        }
        if self.metrics.queued().fetch_add(1, Ordering::AcqRel) < self.capacity {
            return true;
        }
        let turned_away = self.settle(1);
        self.metrics.dropped(SpanLoss::QueueFull, turned_away);
        false
    }

    /// A batch of `spans` came back.
    pub fn exported(&self, spans: usize, result: &OTelSdkResult) {
        let settled = self.settle(spans);
        match result {
            Ok(()) => self.metrics.exported(settled),
            Err(_) => self.metrics.dropped(SpanLoss::ExportFailed, settled),
        }
    }

    /// `spans` spans are not exported, because their trace is not to be kept.
    pub fn unsampled(&self, spans: usize) {
        self.metrics.unsampled(wide(spans));
    }

    /// `spans` spans are lost before they were queued.
    pub fn lost(&self, reason: SpanLoss, spans: usize) {
        self.metrics.dropped(reason, wide(spans));
    }

    /// Books what still waits as lost, tells in one warning what was lost in all, and takes no more.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let stranded = self.metrics.queued().swap(0, Ordering::AcqRel);
        self.metrics.dropped(SpanLoss::Shutdown, wide(stranded));
        let [queue_full, export_failed, shutdown, buffer_full] =
            [SpanLoss::QueueFull, SpanLoss::ExportFailed, SpanLoss::Shutdown, SpanLoss::BufferFull]
                .map(|reason| self.metrics.lost(reason));
        let spans = queue_full + export_failed + shutdown + buffer_full;
        if spans > 0 {
            tracing::warn!(
                spans,
                queue_full,
                export_failed,
                shutdown,
                buffer_full,
                "spans were lost: the collector did not take them"
            );
        }
    }

    /// `spans` spans wait no longer. How many of them did: after the end they are booked as lost already.
    fn settle(&self, spans: usize) -> u64 {
        let less = |waiting: usize| Some(waiting.saturating_sub(spans));
        // Both arms are the number before: the closure always gives a value.
        let (Ok(waited) | Err(waited)) = self.metrics.queued().fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        wide(waited.min(spans))
    }
}

fn wide(spans: usize) -> u64 {
    u64::try_from(spans).unwrap_or(u64::MAX)
}
