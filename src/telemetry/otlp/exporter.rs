//! The OTLP exporter, with an account of what it sent and a log line when that changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_otlp::{Protocol, SpanExporter as OtlpExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};

use super::processor::Account;
use super::settings::Destination;
use super::{OtlpError, OtlpProtocol};

/// Whether the last export failed, so that a dead collector is one log line and not one for each batch.
#[derive(Debug, Default)]
pub(super) struct Health {
    failing: AtomicBool,
}

impl Health {
    /// Whether `failed` is news.
    pub fn changes(&self, failed: bool) -> bool {
        self.failing.swap(failed, Ordering::Relaxed) != failed
    }
}

/// Sends batches and books what became of them.
#[derive(Debug)]
pub(super) struct CountingExporter {
    inner: OtlpExporter,
    endpoint: String,
    account: Arc<Account>,
    health: Arc<Health>,
}

/// Builds the exporter. For gRPC, inside the runtime that shall drive the connection. Headers, timeout and compression
/// come from the standard variables.
pub(super) fn build(
    destination: &Destination,
    account: Arc<Account>,
    health: Arc<Health>,
) -> Result<CountingExporter, OtlpError> {
    let endpoint = destination.endpoint.clone();
    let inner = match destination.protocol {
        OtlpProtocol::Grpc => OtlpExporter::builder().with_tonic().with_endpoint(&endpoint).build()?,
        OtlpProtocol::HttpProtobuf => {
            let builder = OtlpExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
            builder.with_endpoint(&endpoint).build()?
        }
    };
    Ok(CountingExporter { inner, endpoint, account, health })
}

impl SpanExporter for CountingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.inner.export(batch).await;
        self.account.exported(spans, &result);
        if self.health.changes(result.is_err()) {
            match &result {
                Ok(()) => tracing::info!(endpoint = self.endpoint, "traces reach the collector again"),
                Err(error) => tracing::warn!(%error, endpoint = self.endpoint, "traces do not reach the collector"),
            }
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.inner.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}
