//! What radiosonde emits: series, spans and logs. Their names exist here and nowhere else.

pub mod metrics;
pub mod spans;
pub mod labels;
pub mod exposition;
pub mod otlp;
pub mod log;
pub mod docs;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

pub use log::{LogConfig, LogControl, LogError, LogFormat};
pub use metrics::{Metrics, MetricsAlias};
pub use otlp::logs::LogExport;
pub use otlp::{OtlpConfig, OtlpError, OtlpProtocol, SamplingConfig, Tracers};

/// What a frontend emits, and how.
#[derive(Debug, Clone, Default)]
pub struct TelemetryConfig {
    /// Where traces go.
    pub otlp: OtlpConfig,
    /// Which traces go there.
    pub sampling: SamplingConfig,
    /// Where log records go, beside standard error.
    pub otlp_logs: OtlpConfig,
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
    /// The export of log lines.
    pub logs: Arc<LogExport>,
    /// Changes which lines there are.
    pub log_control: LogControl,
}

impl Telemetry {
    /// Sends what is queued and stops, traces and logs at once, within `deadline`. Blocks the calling thread, so not for
    /// an async one.
    pub fn shutdown(&self, deadline: Duration) {
        thread::scope(|both| {
            let logs = thread::Builder::new().name("logs-shutdown".to_owned());
            let logs = logs.spawn_scoped(both, || self.logs.shutdown(deadline));
            self.tracers.shutdown(deadline);
            if logs.is_err() {
                self.logs.shutdown(Duration::ZERO); // without a thread there is time for one of them only
            }
        });
    }
}

/// Why telemetry could not start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// A series is declared wrongly.
    #[error("cannot declare the metrics")]
    Metrics(#[from] prometheus::Error),
    /// The OTLP settings are wrong.
    #[error("cannot set up the export of traces or logs")]
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
    let tracers = Arc::new(Tracers::new(&config.otlp, &config.sampling, metrics.exports.clone())?);
    let logs = Arc::new(LogExport::new(&config.otlp_logs, metrics.logs.clone())?);
    let log_control = log::init(&config.log, tracers.frontend(), &logs, &metrics.logs)?;
    Ok(Telemetry { metrics, tracers, logs, log_control })
}
