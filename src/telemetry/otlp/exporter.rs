//! The OTLP exporter, with an account of what it sent and a log line when that changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry_otlp::{
    Compression as OtlpCompression, ExporterBuildError, Protocol, SpanExporter as OtlpExporter, WithExportConfig,
    WithHttpConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tonic::transport::{Channel, Endpoint};

use super::account::Account;
use super::http_client::BlockingClient;
use super::settings::{Compression, Destination};
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

/// Builds the exporter. For gRPC, inside the runtime that shall drive the connection. Headers come from the standard
/// variables, which the library reads.
pub(super) fn build(
    destination: &Destination,
    account: Arc<Account>,
    health: Arc<Health>,
) -> Result<CountingExporter, OtlpError> {
    let endpoint = destination.endpoint.clone();
    let inner = match destination.protocol {
        OtlpProtocol::Grpc => over_grpc(OtlpExporter::builder().with_tonic(), destination)?.build()?,
        OtlpProtocol::HttpProtobuf => over_http(OtlpExporter::builder().with_http(), destination)?.build()?,
    };
    Ok(CountingExporter { inner, endpoint, account, health })
}

/// The exporter that `builder` builds, of any signal, speaks gRPC to `destination`.
pub(super) fn over_grpc<B>(builder: B, destination: &Destination) -> Result<B, OtlpError>
where
    B: WithExportConfig + WithTonicConfig,
{
    let builder = builder.with_timeout(destination.timeout);
    let builder = match destination.compression {
        Compression::Gzip => builder.with_compression(OtlpCompression::Gzip),
        Compression::None => builder,
    };
    Ok(builder.with_channel(channel(destination).map_err(unusable)?))
}

/// A connection that is made when it is first needed, and again whenever it has ended.
fn channel(destination: &Destination) -> Result<Channel, tonic::transport::Error> {
    let mut endpoint = Endpoint::from_shared(destination.endpoint.clone())?
        .connect_timeout(destination.timeout)
        .timeout(destination.timeout);
    if destination.endpoint.starts_with("https://") {
        endpoint = endpoint.tls_config(destination.tls.for_grpc())?;
    }
    Ok(endpoint.connect_lazy())
}

/// The exporter that `builder` builds, of any signal, speaks HTTP to `destination`.
pub(super) fn over_http<B>(builder: B, destination: &Destination) -> Result<B, OtlpError>
where
    B: WithExportConfig + WithHttpConfig,
{
    let builder = builder
        .with_http_client(BlockingClient::new(destination)?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(&destination.endpoint)
        .with_timeout(destination.timeout);
    Ok(match destination.compression {
        Compression::Gzip => builder.with_compression(OtlpCompression::Gzip),
        Compression::None => builder,
    })
}

/// What the transport says of itself is in the source of its error.
fn unusable(error: tonic::transport::Error) -> ExporterBuildError {
    let source = std::error::Error::source(&error).map(ToString::to_string);
    ExporterBuildError::InvalidConfiguration(source.unwrap_or_else(|| error.to_string()))
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
