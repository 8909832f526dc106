//! A batch processor that knows how many spans it holds, so that none is lost unseen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanProcessor};

use super::exporter::CountingExporter;
use crate::telemetry::metrics::ExportMetrics;

/// The most spans of both services that wait for export; beyond it the newest are lost.
const QUEUE: usize = 4096;
/// The most spans of one export.
const BATCH: usize = 512;
/// How long a span waits for company. Short: during an incident somebody waits for the trace.
const DELAY: Duration = Duration::from_millis(250);

/// Where each span of a process is: waiting, taken by the collector, or lost.
#[derive(Debug)]
pub(super) struct Account {
    pending: AtomicUsize,
    metrics: ExportMetrics,
}

impl Account {
    /// Nothing so far.
    pub fn new(metrics: ExportMetrics) -> Self {
        Self { pending: AtomicUsize::new(0), metrics }
    }

    /// Counts one more waiting span; false, and the span is lost, if too many wait already.
    pub fn admit(&self) -> bool {
        if self.pending.fetch_add(1, Ordering::AcqRel) < QUEUE {
            return true;
        }
        self.settle(1);
        self.metrics.dropped(1);
        false
    }

    /// A batch of `spans` came back.
    pub fn exported(&self, spans: usize, result: &OTelSdkResult) {
        let spans_u64 = u64::try_from(spans).unwrap_or(u64::MAX);
        match result {
            Ok(()) => self.metrics.exported(spans_u64),
            Err(_) => self.metrics.dropped(spans_u64),
        }
        self.settle(spans);
    }

    /// Books what still waits as lost, and says how many were lost in all.
    pub fn close(&self) -> u64 {
        let stranded = self.pending.swap(0, Ordering::AcqRel);
        self.metrics.dropped(u64::try_from(stranded).unwrap_or(u64::MAX));
        self.metrics.lost()
    }

    fn settle(&self, spans: usize) {
        let less = |pending: usize| Some(pending.saturating_sub(spans));
        // It cannot fail: the closure always gives a value.
        let _ = self.pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
    }
}

/// Counts spans in; the exporter counts them out.
#[derive(Debug)]
pub(super) struct CountingProcessor {
    inner: BatchSpanProcessor,
    account: Arc<Account>,
}

impl CountingProcessor {
    /// Exports through `exporter`, on a thread of its own.
    pub fn new(exporter: CountingExporter, account: Arc<Account>) -> Self {
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE)
            .with_max_export_batch_size(BATCH)
            .with_scheduled_delay(DELAY)
            .build();
        Self { inner: BatchSpanProcessor::new(exporter, config), account }
    }
}

impl SpanProcessor for CountingProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.inner.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        // The batch processor drops silently when its queue is full, so it is never given more than it can hold.
        if span.span_context.is_sampled() && self.account.admit() {
            self.inner.on_end(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
