//! Log export, for those who want lines beside their traces: off unless asked for, and never in the way.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry_appender_tracing::layer::{OpenTelemetryTracingBridge, TracingSpanAttributes};
use opentelemetry_otlp::LogExporter as OtlpExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{
    BatchConfigBuilder, BatchLogProcessor, LogBatch, LogExporter, LogProcessor, SdkLogRecord, SdkLogger,
    SdkLoggerProvider,
};

use super::exporter::{self, Health};
use super::resource::resource;
use super::runtime::ExportRuntime;
use super::settings::{self, Destination, Queue};
use super::signal::Signal;
use super::variables::Env;
use super::{OtlpConfig, OtlpError, OtlpProtocol};
use crate::telemetry::labels::RecordLoss;
use crate::telemetry::metrics::LogMetrics;
use crate::telemetry::spans::names::{PROBE_ID, REQUEST_RID, Side};

/// Turns log lines into records.
pub type Bridge = OpenTelemetryTracingBridge<SdkLoggerProvider, SdkLogger>;

/// The export of log lines, if there is one.
#[derive(Debug)]
pub struct LogExport {
    provider: Option<SdkLoggerProvider>,
    account: Arc<Account>,
    /// Last, so that it is there as long as anybody exports.
    _runtime: Option<ExportRuntime>,
}

impl LogExport {
    /// Sets up export to where `config` and the environment say; without an endpoint for logs, nothing is exported.
    ///
    /// # Errors
    /// An endpoint or a variable is wrong, or the export thread cannot start.
    pub fn new(config: &OtlpConfig, metrics: LogMetrics) -> Result<Self, OtlpError> {
        let env = Env(&|name| std::env::var(name).ok());
        let queue = settings::queue(Signal::Logs, &env)?;
        let account = Arc::new(Account::new(queue.capacity, metrics));
        let Some(destination) = settings::destination(Signal::Logs, config, &env)? else {
            return Ok(Self { provider: None, account, _runtime: None });
        };
        let runtime = match destination.protocol {
            OtlpProtocol::Grpc => Some(ExportRuntime::start()?),
            OtlpProtocol::HttpProtobuf => None,
        };
        let inside = runtime.as_ref().map(ExportRuntime::enter);
        let exporter = CountingExporter::new(&destination, Arc::clone(&account))?;
        let processor = CountingProcessor::new(exporter, queue, Arc::clone(&account));
        drop(inside);
        let provider = SdkLoggerProvider::builder().with_resource(resource(Side::Frontend));
        Ok(Self { provider: Some(provider.with_log_processor(processor).build()), account, _runtime: runtime })
    }

    /// What hands lines over; records carry the ids of the request or probe and of the span they were written in.
    #[must_use]
    pub fn bridge(&self) -> Option<Bridge> {
        let ids = TracingSpanAttributes::allowlist([REQUEST_RID, PROBE_ID]);
        let bridge = |provider| Bridge::builder(provider).with_tracing_span_attributes(ids).build();
        self.provider.as_ref().map(bridge)
    }

    /// Sends what is queued and stops, within `deadline`, whatever the collector does. Blocks the calling thread, so
    /// not for an async one. What could not be sent is counted and told in one warning.
    pub fn shutdown(&self, deadline: Duration) {
        let Some(provider) = self.provider.clone() else { return };
        let (done, all_done) = mpsc::channel();
        // On a thread of its own, which is left behind if the collector holds it: the process ends anyway.
        let flush = move || drop(done.send(provider.shutdown_with_timeout(deadline)));
        if let Err(error) = thread::Builder::new().name("otlp-shutdown".to_owned()).spawn(flush) {
            tracing::warn!(%error, "log records cannot be flushed");
        }
        // An early error means that the other end is gone, which is an answer too.
        let _ = all_done.recv_timeout(deadline);
        let lost = self.account.close();
        if lost > 0 {
            tracing::warn!(records = lost, "log records were lost: the collector did not take them");
        }
    }
}

/// Where each record is: waiting, taken by the collector, or lost.
#[derive(Debug)]
struct Account {
    /// The most records that may wait.
    capacity: usize,
    pending: AtomicUsize,
    closed: AtomicBool,
    metrics: LogMetrics,
}

impl Account {
    fn new(capacity: usize, metrics: LogMetrics) -> Self {
        Self { capacity, pending: AtomicUsize::new(0), closed: AtomicBool::new(false), metrics }
    }

    /// Counts one more waiting record; false, and it is lost, if too many wait already or nobody takes it any more.
    fn admit(&self) -> bool {
        if self.closed.load(Ordering::Acquire) {
            self.metrics.dropped(RecordLoss::Shutdown, 1);
            return false;
        }
        if self.pending.fetch_add(1, Ordering::AcqRel) < self.capacity {
            return true;
        }
        let turned_away = self.settle(1);
        self.metrics.dropped(RecordLoss::QueueFull, turned_away);
        false
    }

    /// A batch of `records` came back. Those that were given up at the end are booked already.
    fn exported(&self, records: usize, result: &OTelSdkResult) {
        let settled = self.settle(records);
        match result {
            Ok(()) => self.metrics.exported(settled),
            Err(_) => self.metrics.dropped(RecordLoss::ExportFailed, settled),
        }
    }

    /// Books what still waits as lost, and says how many were lost in all.
    fn close(&self) -> u64 {
        self.closed.store(true, Ordering::Release);
        let stranded = self.settle(usize::MAX);
        self.metrics.dropped(RecordLoss::Shutdown, stranded);
        self.metrics.lost()
    }

    /// Takes up to `records` off what waits; how many those were.
    fn settle(&self, records: usize) -> u64 {
        let less = |pending: usize| Some(pending.saturating_sub(records));
        let before = self.pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).unwrap_or_default();
        u64::try_from(before.min(records)).unwrap_or(u64::MAX)
    }
}

/// Counts records in; the exporter counts them out.
#[derive(Debug)]
struct CountingProcessor {
    inner: BatchLogProcessor,
    account: Arc<Account>,
}

impl CountingProcessor {
    /// Exports through `exporter`, on a thread of its own.
    fn new(exporter: CountingExporter, Queue { capacity, batch, delay }: Queue, account: Arc<Account>) -> Self {
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(capacity)
            .with_max_export_batch_size(batch)
            .with_scheduled_delay(delay)
            .build();
        Self { inner: BatchLogProcessor::builder(exporter).with_batch_config(config).build(), account }
    }
}

impl LogProcessor for CountingProcessor {
    fn emit(&self, record: &mut SdkLogRecord, scope: &InstrumentationScope) {
        // The batch processor drops silently when its queue is full, so it is never given more than it can hold.
        if self.account.admit() {
            self.inner.emit(record, scope);
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

/// Sends batches and books what became of them.
#[derive(Debug)]
struct CountingExporter {
    inner: OtlpExporter,
    endpoint: String,
    account: Arc<Account>,
    health: Health,
}

impl CountingExporter {
    fn new(destination: &Destination, account: Arc<Account>) -> Result<Self, OtlpError> {
        let endpoint = destination.endpoint.clone();
        let inner = match destination.protocol {
            OtlpProtocol::Grpc => exporter::over_grpc(OtlpExporter::builder().with_tonic(), destination)?.build()?,
            OtlpProtocol::HttpProtobuf => {
                exporter::over_http(OtlpExporter::builder().with_http(), destination)?.build()?
            }
        };
        Ok(Self { inner, endpoint, account, health: Health::default() })
    }
}

impl LogExporter for CountingExporter {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let records = batch.iter().count();
        let result = self.inner.export(batch).await;
        self.account.exported(records, &result);
        // These two lines are not exported themselves: the SDK keeps what its own thread says away from the bridge.
        if self.health.changes(result.is_err()) {
            match &result {
                Ok(()) => tracing::info!(endpoint = self.endpoint, "log records reach the collector again"),
                Err(error) => {
                    tracing::warn!(%error, endpoint = self.endpoint, "log records do not reach the collector");
                }
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
