//! What is emitted, and where to.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// What is emitted.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Telemetry")]
pub struct TelemetryArgs {
    /// Where to send traces by OTLP. The standard OTEL_EXPORTER_OTLP_* variables work too; without either, nothing is
    /// sent.
    #[arg(long, value_name = "URL", env = "RADIOSONDE_OTLP_TRACES_ENDPOINT")]
    pub otlp_traces_endpoint: Option<String>,
    /// How to send them. Default: OTEL_EXPORTER_OTLP_(TRACES_)PROTOCOL, else grpc; a port of 4318 means http.
    #[arg(long, value_enum, value_name = "PROTOCOL", env = "RADIOSONDE_OTLP_TRACES_PROTOCOL")]
    pub otlp_traces_protocol: Option<OtlpProtocol>,
    /// Where to send log lines by OTLP, beside standard error. OTEL_EXPORTER_OTLP_LOGS_ENDPOINT works too, and so does
    /// OTEL_EXPORTER_OTLP_ENDPOINT together with OTEL_LOGS_EXPORTER=otlp; without, none are sent.
    #[arg(long, value_name = "URL", env = "RADIOSONDE_OTLP_LOGS_ENDPOINT")]
    pub otlp_logs_endpoint: Option<String>,
    /// How to send them. Default: OTEL_EXPORTER_OTLP_(LOGS_)PROTOCOL, else grpc; a port of 4318 means http.
    #[arg(long, value_enum, value_name = "PROTOCOL", env = "RADIOSONDE_OTLP_LOGS_PROTOCOL")]
    pub otlp_logs_protocol: Option<OtlpProtocol>,
    /// Where reports of incidents are written, the last 32. Default: `radiosonde/incidents` in the user's state folder.
    #[arg(long, value_name = "FOLDER", env = "RADIOSONDE_INCIDENTS")]
    pub incidents: Option<PathBuf>,
    #[command(flatten)]
    #[expect(missing_docs, reason = "the section says it")]
    pub log: LogArgs,
}

/// How logs look.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Telemetry")]
pub struct LogArgs {
    /// Human lines or one JSON object a line, on standard error, each with trace and request ids.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "human", env = "RADIOSONDE_LOG_FORMAT")]
    pub log_format: LogFormat,
    /// What to log: a level, or targets with levels as in `radiosonde=debug`.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "RADIOSONDE_LOG_LEVEL")]
    pub log_level: String,
}

/// Wire protocols of OTLP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OtlpProtocol {
    /// gRPC, usually port 4317.
    Grpc,
    /// HTTP with protobuf bodies, usually port 4318.
    #[value(name = "http/protobuf", alias = "http")]
    HttpProtobuf,
}

/// Shapes of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// For machines.
    Json,
}
