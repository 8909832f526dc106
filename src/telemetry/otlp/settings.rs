//! Where traces and logs go and which: the command line first, then the standard variables of OpenTelemetry, else nowhere.

use std::time::Duration;

use super::sampling::{Callers, Policy, Rule, SamplingConfig, Share};
use super::signal::{Names, Signal};
use super::tls::{self, TlsFiles};
use super::variables::{Env, MILLISECONDS};
use super::{OtlpConfig, OtlpError, OtlpProtocol};
use crate::telemetry::spans::MAX_TEXT;

/// What the specification takes for the collector if nothing is said.
const DEFAULT_ENDPOINT: &str = "http://localhost:4317";
/// The port on which collectors speak HTTP.
const HTTP_PORT: u16 = 4318;
/// How long an export may take, from the OTLP exporter specification.
const TIMEOUT: Duration = Duration::from_secs(10);
/// A collector, fully resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Destination {
    /// The URL to export to, path included.
    pub endpoint: String,
    /// How to speak to it.
    pub protocol: OtlpProtocol,
    /// How long an export may take, retries included.
    pub timeout: Duration,
    /// Whether it is compressed.
    pub compression: Compression,
    /// What proves who is who.
    pub tls: TlsFiles,
}

/// How an export is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
}

/// What waits for export, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Queue {
    /// The most spans or records that wait; beyond it the newest are lost.
    pub capacity: usize,
    /// The most of one export.
    pub batch: usize,
    /// How long one waits for company.
    pub delay: Duration,
}

impl Queue {
    /// Of both services' spans. The delay is short: during an incident somebody waits for the trace.
    const TRACES: Self = Self { capacity: 4096, batch: 512, delay: Duration::from_millis(250) };
    /// Of log records.
    const LOGS: Self = Self { capacity: 2048, batch: 512, delay: Duration::from_millis(500) };
}

/// Resolves the destination of `signal`, `None` if nothing is exported.
pub(super) fn destination(
    signal: Signal,
    config: &OtlpConfig,
    env: &Env<'_>,
) -> Result<Option<Destination>, OtlpError> {
    let names = signal.names();
    let Some((endpoint, is_base)) = base(signal, config, env)? else { return Ok(None) };
    let protocol = match config.protocol {
        Some(protocol) => protocol,
        None => protocol_of(&endpoint, names, env)?,
    };
    let endpoint = with_scheme(endpoint, protocol, names, env)?;
    let endpoint = match protocol {
        OtlpProtocol::HttpProtobuf if is_base => format!("{}{}", endpoint.trim_end_matches('/'), names.http_path),
        OtlpProtocol::HttpProtobuf | OtlpProtocol::Grpc => endpoint,
    };
    let choices = [("gzip", Compression::Gzip), ("none", Compression::None)];
    let compression = env.choice(names.compression, &choices, "gzip or none")?.unwrap_or(Compression::None);
    let tls = if endpoint.starts_with("https://") { tls::files(names, env)? } else { TlsFiles::default() };
    Ok(Some(Destination { endpoint, protocol, timeout: timeout(names, env)?, compression, tls }))
}

/// The endpoint as it is given, and whether the path of the signal is still missing in it.
fn base(signal: Signal, config: &OtlpConfig, env: &Env<'_>) -> Result<Option<(String, bool)>, OtlpError> {
    let names = signal.names();
    let switch = switch(names, env)?;
    if switch == Some(Switch::Off) {
        return Ok(None);
    }
    if let Some(flag) = &config.endpoint {
        return Ok(Some((flag.clone(), without_path(flag))));
    }
    let [exact, general] = names.endpoint;
    if let Some((_, endpoint)) = env.first([exact]) {
        return Ok(Some((endpoint, false)));
    }
    let general = env.first([general]).map(|(_, endpoint)| endpoint);
    Ok(match (signal, switch) {
        (Signal::Traces, _) => general,
        (Signal::Logs, Some(Switch::On)) => Some(general.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned())),
        (Signal::Logs, _) => None, // whoever reads standard error would have each line twice
    }
    .map(|endpoint| (endpoint, true)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Switch {
    On,
    Off,
}

/// `OTEL_SDK_DISABLED` and `OTEL_(TRACES|LOGS)_EXPORTER`, which the SDK leaves to the application.
fn switch(names: &Names, env: &Env<'_>) -> Result<Option<Switch>, OtlpError> {
    if env.first(["OTEL_SDK_DISABLED"]).is_some_and(|(_, value)| value.eq_ignore_ascii_case("true")) {
        return Ok(Some(Switch::Off));
    }
    env.choice([names.exporter], &[("otlp", Switch::On), ("none", Switch::Off)], "otlp or none")
}

fn protocol_of(endpoint: &str, names: &Names, env: &Env<'_>) -> Result<OtlpProtocol, OtlpError> {
    let choices = [("grpc", OtlpProtocol::Grpc), ("http/protobuf", OtlpProtocol::HttpProtobuf)];
    if let Some(protocol) = env.choice(names.protocol, &choices, "grpc or http/protobuf")? {
        return Ok(protocol);
    }
    let port = authority(endpoint).rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    Ok(if port == Some(HTTP_PORT) { OtlpProtocol::HttpProtobuf } else { OtlpProtocol::Grpc })
}

/// The endpoint with its scheme; where it has none, `OTEL_EXPORTER_OTLP_INSECURE` may give it, for gRPC alone.
fn with_scheme(endpoint: String, protocol: OtlpProtocol, names: &Names, env: &Env<'_>) -> Result<String, OtlpError> {
    if endpoint.starts_with("http://") || endpoint.starts_with("https://") {
        return Ok(endpoint);
    }
    let scheme = env.choice(names.insecure, &[("true", "http"), ("false", "https")], "true or false")?;
    match scheme {
        Some(scheme) if protocol == OtlpProtocol::Grpc && !endpoint.contains("://") => {
            Ok(format!("{scheme}://{endpoint}"))
        }
        _ => Err(OtlpError::Endpoint(endpoint)),
    }
}

fn timeout(names: &Names, env: &Env<'_>) -> Result<Duration, OtlpError> {
    let export = milliseconds(env.number(names.timeout, &MILLISECONDS)?).unwrap_or(TIMEOUT);
    let processor = milliseconds(env.number([names.processor_timeout], &MILLISECONDS)?);
    Ok(processor.map_or(export, |processor| processor.min(export)))
}

/// The queue's measures.
pub(super) fn queue(signal: Signal, env: &Env<'_>) -> Result<Queue, OtlpError> {
    let names = signal.names();
    let default = match signal {
        Signal::Traces => Queue::TRACES,
        Signal::Logs => Queue::LOGS,
    };
    let (size, legal) = names.queue;
    let capacity = env.number([size], &(1..=65_536, legal))?.unwrap_or(default.capacity);
    let (size, legal) = names.batch;
    let batch = env.number([size], &(1..=capacity, legal))?.unwrap_or(default.batch.min(capacity));
    let delay = milliseconds(env.number([names.delay], &MILLISECONDS)?).unwrap_or(default.delay);
    Ok(Queue { capacity, batch, delay })
}

/// The most bytes of a text in a span.
pub(super) fn longest_text(env: &Env<'_>) -> Result<usize, OtlpError> {
    let names = ["OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"];
    let limit = env.number(names, &(1..=usize::MAX, "a number of bytes from 1"))?;
    Ok(limit.unwrap_or(MAX_TEXT).min(MAX_TEXT))
}

/// Whether a caller's trace is continued.
pub(super) fn continues_traces(env: &Env<'_>) -> Result<bool, OtlpError> {
    let Some((variable, value)) = env.first(["OTEL_PROPAGATORS"]) else { return Ok(true) };
    let names = |wanted: &str| value.split(',').any(|name| name.trim().eq_ignore_ascii_case(wanted));
    match () {
        () if names("none") => Ok(false),
        () if names("tracecontext") => Ok(true),
        () if names("baggage") => Ok(false),
        () => Err(OtlpError::Variable { variable, value, legal: "tracecontext, baggage or none" }),
    }
}

/// The rules of sampling.
pub(super) fn policy(config: &SamplingConfig, env: &Env<'_>) -> Result<Policy, OtlpError> {
    let (share, callers) = match config.requests {
        Some(share) => (share, Callers::Obeyed),
        None => sampler(env)?.unwrap_or((Share::ALL, Callers::Obeyed)),
    };
    let probes = Rule { share: config.probes, slow: config.slow_probe, callers: Callers::Obeyed };
    Ok(Policy::new(probes, Rule { share, slow: config.slow_request, callers }))
}

/// `OTEL_TRACES_SAMPLER` and its argument.
fn sampler(env: &Env<'_>) -> Result<Option<(Share, Callers)>, OtlpError> {
    const LEGAL: &str = "always_on, always_off or traceidratio, or one of them after parentbased_";
    const RATIO: &str = "OTEL_TRACES_SAMPLER_ARG";
    let ratio = || match env.first([RATIO]) {
        None => Ok(Share::ALL),
        Some((variable, value)) => value.trim().parse().ok().and_then(Share::new).ok_or(OtlpError::Variable {
            variable,
            value,
            legal: "a ratio from 0 to 1",
        }),
    };
    let Some((variable, value)) = env.first(["OTEL_TRACES_SAMPLER"]) else { return Ok(None) };
    let (callers, name) = match value.trim().strip_prefix("parentbased_") {
        Some(name) => (Callers::Obeyed, name),
        None => (Callers::Ignored, value.trim()),
    };
    match name {
        "always_on" => Ok(Some((Share::ALL, callers))),
        "always_off" => Ok(Some((Share::NONE, callers))),
        "traceidratio" => Ok(Some((ratio()?, callers))),
        _ => Err(OtlpError::Variable { variable, value, legal: LEGAL }),
    }
}

fn milliseconds(number: Option<usize>) -> Option<Duration> {
    number.and_then(|number| u64::try_from(number).ok()).map(Duration::from_millis)
}

/// `host:port` of a URL.
fn authority(endpoint: &str) -> &str {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

fn without_path(endpoint: &str) -> bool {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    rest.split_once('/').is_none_or(|(_, path)| path.is_empty())
}

#[cfg(test)]
mod tests;
