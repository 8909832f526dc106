//! What is emitted, and where to.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration::parse_duration;

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
    /// Serve series under the names of another server too, for dashboards and gateways that ask for those: `sglang` adds
    /// `sglang:num_running_reqs` and others, see docs/metrics.md.
    #[arg(long, value_enum, value_name = "SERVER", env = "RADIOSONDE_METRICS_ALIAS")]
    pub metrics_alias: Option<MetricsAlias>,
    /// Which good probes are traced: `all`, `failures` (none of them), or a ratio from 0 to 1. Probes that failed or were
    /// slow, and the first one after a change of the server's status, are traced always.
    #[arg(long, value_name = "WHICH", default_value = "all", value_parser = parse_trace_probes,
          env = "RADIOSONDE_TRACE_PROBES")]
    pub trace_probes: Ratio,
    /// From when on a probe is slow, and traced always.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration,
          env = "RADIOSONDE_TRACE_SLOW_PROBE")]
    pub trace_slow_probe: Duration,
    /// The share of all other requests that is traced, from 0 to 1; a caller that sends a traceparent decides by its
    /// flag. Requests that failed (5xx) or were slow are traced always. Default: as OTEL_TRACES_SAMPLER says, else 1.
    #[arg(long, value_name = "RATIO", value_parser = parse_ratio, env = "RADIOSONDE_TRACE_RATIO")]
    pub trace_ratio: Option<Ratio>,
    /// From when on a request is slow, and traced always.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration,
          env = "RADIOSONDE_TRACE_SLOW_REQUEST")]
    pub trace_slow_request: Duration,
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

/// Servers whose names series can have beside their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MetricsAlias {
    /// SGLang.
    Sglang,
}

/// Shapes of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Human,
    /// For machines.
    Json,
}

/// A number from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio(f64);

impl Ratio {
    /// The number.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}

fn parse_ratio(text: &str) -> Result<Ratio, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.map(Ratio).ok_or_else(|| format!("'{text}' is no ratio: write a number from 0 to 1, as in 0.01"))
}

fn parse_trace_probes(text: &str) -> Result<Ratio, String> {
    match text {
        "all" => Ok(Ratio(1.0)),
        "failures" => Ok(Ratio(0.0)),
        ratio => parse_ratio(ratio).map_err(|_| {
            format!("'{text}' is none of 'all', 'failures' and a ratio, which is a number from 0 to 1, as in 0.01")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios() {
        for (text, want) in [("all", Some(1.0)), ("failures", Some(0.0)), ("0.01", Some(0.01)), ("1", Some(1.0))] {
            assert_eq!(parse_trace_probes(text).ok().map(Ratio::get), want, "{text}");
        }
        for text in ["", "none", "-0.1", "1.1", "NaN", "inf", "1%"] {
            let error = parse_trace_probes(text).unwrap_err();
            assert!(error.contains(&format!("'{text}'")) && error.contains("0 to 1"), "{text}: {error}");
            assert!(parse_ratio(text).is_err(), "{text}");
        }
        assert!(parse_ratio("all").is_err(), "a word of the other flag");
    }
}
