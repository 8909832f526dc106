//! What radiosonde emits: series, spans and logs. Their names exist here and nowhere else.

pub mod metrics;
pub mod spans;
pub mod labels;
pub mod exposition;
pub mod otlp;
pub mod log;

use std::sync::Arc;

pub use log::{LogConfig, LogError, LogFormat};
pub use metrics::{Metrics, MetricsAlias};
pub use otlp::{OtlpConfig, OtlpError, OtlpProtocol, SamplingConfig, Tracers};

/// What a frontend emits, and how.
#[derive(Debug, Clone, Default)]
pub struct TelemetryConfig {
    /// Where traces go.
    pub otlp: OtlpConfig,
    /// How log lines look.
    pub log: LogConfig,
    /// Under which names series are served beside their own.
    pub metrics_alias: Option<MetricsAlias>,
}

/// The frontend's telemetry, ready to use.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// The series.
    pub metrics: Arc<Metrics>,
    /// The writers of spans; shut them down last.
    pub tracers: Arc<Tracers>,
}

/// Why telemetry could not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A series is declared wrongly.
    #[error("cannot declare the metrics")]
    Metrics(#[from] prometheus::Error),
    /// The OTLP settings are wrong.
    #[error("cannot set up trace export")]
    Otlp(#[from] OtlpError),
    /// The log settings are wrong.
    #[error("cannot set up logging")]
    Log(#[from] LogError),
}

/// Starts the telemetry of a frontend: metrics, traces and the global log subscriber. Once per process.
///
/// # Errors
/// The settings are wrong, or a subscriber is installed already.
pub fn init(config: &TelemetryConfig) -> Result<Telemetry, TelemetryError> {
    let metrics = Arc::new(Metrics::new()?.with_alias(config.metrics_alias));
    let tracers = Arc::new(Tracers::new(&config.otlp, metrics.exports.clone())?);
    log::init(&config.log, tracers.frontend())?;
    Ok(Telemetry { metrics, tracers })
}
