//! Log lines on standard error, for people or for machines, each with the ids that lead to its trace.

pub mod events;
mod control;
mod fields;
mod format;
mod ids;
mod limit;

use std::io::{IsTerminal, stderr};

use opentelemetry_sdk::trace::SdkTracer;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::filter::{FilterExt, ParseError, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Registry, fmt, reload};

pub use control::{LogChoice, LogControl, REQUESTS};
use format::Line;
use ids::RememberIds;
use limit::Limit;

use super::metrics::LogMetrics;
use super::otlp::logs::{Bridge, LogExport};

/// Shapes of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// How log lines look, and which are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Their shape.
    pub format: LogFormat,
    /// A level, or targets with levels as in `radiosonde=debug,warn`.
    pub filter: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { format: LogFormat::default(), filter: "info".to_owned() }
    }
}

/// Why logging could not start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter cannot be read.
    #[error("'{filter}' is no log filter: write a level, or targets with levels as in radiosonde=debug,warn")]
    Filter {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// The thread that tells of suppressed lines could not start.
    #[error("cannot start the thread of the log")]
    Thread(#[from] std::io::Error),
    /// A word in the filter is no level.
    #[error(
        "'{word}' is no log level: write off, error, warn, info, debug, trace, or a target with one as in radiosonde=debug"
    )]
    Level {
        /// What was given.
        word: String,
    },
    /// There is no subscriber any more whose filter could change.
    #[error("the log filter cannot be changed")]
    Change(#[from] reload::Error),
    /// Somebody installed a subscriber before.
    #[error("logging is set up already")]
    Twice(#[from] TryInitError),
}

/// The targets that spans and span events come from.
const OURS: &str = env!("CARGO_CRATE_NAME");

/// Installs the subscriber of a frontend: log lines, which `export` takes too, and spans written through `tracer`. Once
/// per process. Returns what changes the filter of the lines.
///
/// # Errors
/// The filter cannot be read, a thread cannot start, or a subscriber is installed already.
pub fn init(
    config: &LogConfig,
    tracer: &SdkTracer,
    export: &LogExport,
    metrics: &LogMetrics,
) -> Result<LogControl, LogError> {
    let (subscriber, control) = subscriber(config, tracer, export, metrics, stderr)?;
    subscriber.try_init()?;
    Ok(control)
}

/// What [`init`] installs, with log lines that go to `writer`.
///
/// # Errors
/// The filter cannot be read, or a thread cannot start.
pub fn subscriber<W>(
    config: &LogConfig,
    tracer: &SdkTracer,
    export: &LogExport,
    metrics: &LogMetrics,
    writer: W,
) -> Result<(impl Subscriber + Send + Sync, LogControl), LogError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let spans = tracing_opentelemetry::layer()
        .with_tracer(tracer.clone())
        // Times and threads of polling would stand beside the busy and idle of the scheduler, and mislead.
        .with_tracked_inactivity(false)
        .with_threads(false)
        .with_location(false)
        .with_target(false)
        .with_filter(filter_fn(traced));
    let (lines, control) = lines(config, writer, export.bridge(), Some(metrics.clone()))?;
    Ok((Registry::default().with(spans).with(RememberIds).with(lines), control))
}

/// Installs the subscriber of an engine, which opens no spans: log lines only. Once per process.
///
/// # Errors
/// The filter cannot be read, a thread cannot start, or a subscriber is installed already.
pub fn init_plain(config: &LogConfig) -> Result<LogControl, LogError> {
    let (lines, control) = lines(config, stderr, None, None)?;
    Registry::default().with(RememberIds).with(lines).try_init()?;
    Ok(control)
}

/// What is filtered and limited is so for both: a line that is written is a record, and none else is.
fn lines<S, W>(
    config: &LogConfig,
    writer: W,
    records: Option<Bridge>,
    metrics: Option<LogMetrics>,
) -> Result<(impl Layer<S>, LogControl), LogError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let (filter, control) = LogControl::new(&config.filter)?;
    let layer = fmt::layer().with_ansi(stderr().is_terminal()).event_format(Line(config.format)).with_writer(writer);
    // Whoever carries records must not make any: each would bring forth the next.
    let records = records.map(|bridge| bridge.with_filter(filter_fn(|metadata| metadata.target().starts_with(OURS))));
    Ok((layer.and_then(records).with_filter(filter.and(Limit::start(metrics)?)), control))
}

/// Our spans, and what was logged inside them at info or above.
fn traced(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(OURS) && (metadata.is_span() || *metadata.level() <= Level::INFO)
}
