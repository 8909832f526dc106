//! Where traces go and which: the command line first, then the standard variables of OpenTelemetry, else nowhere.

use std::time::Duration;

use super::sampling::{Callers, Policy, Rule, SamplingConfig, Share};
use super::tls::{self, TlsFiles};
use super::variables::{Env, MILLISECONDS};
use super::{OtlpConfig, OtlpError, OtlpProtocol};
use crate::telemetry::spans::MAX_TEXT;

/// The path that OTLP/HTTP appends to a base endpoint (OTLP exporter specification).
const HTTP_TRACES_PATH: &str = "/v1/traces";
/// The port on which collectors speak HTTP.
const HTTP_PORT: u16 = 4318;
/// How long an export may take, from the OTLP exporter specification.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most spans of both services that wait for export; beyond it the newest are lost.
const QUEUE: usize = 4096;
/// The most spans of one export.
const BATCH: usize = 512;
/// How long a span waits for company. Short: during an incident somebody waits for the trace.
const DELAY: Duration = Duration::from_millis(250);

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

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
    /// The most spans that wait.
    pub capacity: usize,
    /// The most spans of one export.
    pub batch: usize,
    /// How long a span waits for company.
    pub delay: Duration,
}

/// Resolves the destination, `None` if nothing is exported.
pub(super) fn destination(config: &OtlpConfig, env: &Env<'_>) -> Result<Option<Destination>, OtlpError> {
    if switched_off(env)? {
        return Ok(None);
    }
    let (endpoint, is_base) = if let Some(flag) = &config.endpoint {
        (flag.clone(), without_path(flag))
    } else if let Some((variable, endpoint)) = env.first([TRACES_ENDPOINT, ENDPOINT]) {
        (endpoint, variable == ENDPOINT)
    } else {
        return Ok(None);
    };
    let protocol = match config.protocol {
        Some(protocol) => protocol,
        None => protocol_of(&endpoint, env)?,
    };
    let endpoint = with_scheme(endpoint, protocol, env)?;
    let endpoint = match protocol {
        OtlpProtocol::HttpProtobuf if is_base => format!("{}{HTTP_TRACES_PATH}", endpoint.trim_end_matches('/')),
        OtlpProtocol::HttpProtobuf | OtlpProtocol::Grpc => endpoint,
    };
    let choices = [("gzip", Compression::Gzip), ("none", Compression::None)];
    let names = ["OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION"];
    let compression = env.choice(names, &choices, "gzip or none")?.unwrap_or(Compression::None);
    let tls = if endpoint.starts_with("https://") { tls::files(env)? } else { TlsFiles::default() };
    Ok(Some(Destination { endpoint, protocol, timeout: timeout(env)?, compression, tls }))
}

/// `OTEL_SDK_DISABLED` and `OTEL_TRACES_EXPORTER`, which the SDK leaves to the application.
fn switched_off(env: &Env<'_>) -> Result<bool, OtlpError> {
    if env.first(["OTEL_SDK_DISABLED"]).is_some_and(|(_, value)| value.eq_ignore_ascii_case("true")) {
        return Ok(true);
    }
    let off = env.choice(["OTEL_TRACES_EXPORTER"], &[("otlp", false), ("none", true)], "otlp or none")?;
    Ok(off.unwrap_or(false))
}

fn protocol_of(endpoint: &str, env: &Env<'_>) -> Result<OtlpProtocol, OtlpError> {
    let choices = [("grpc", OtlpProtocol::Grpc), ("http/protobuf", OtlpProtocol::HttpProtobuf)];
    let names = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
    if let Some(protocol) = env.choice(names, &choices, "grpc or http/protobuf")? {
        return Ok(protocol);
    }
    let port = authority(endpoint).rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    Ok(if port == Some(HTTP_PORT) { OtlpProtocol::HttpProtobuf } else { OtlpProtocol::Grpc })
}

/// The endpoint with its scheme; where it has none, `OTEL_EXPORTER_OTLP_INSECURE` may give it, for gRPC alone.
fn with_scheme(endpoint: String, protocol: OtlpProtocol, env: &Env<'_>) -> Result<String, OtlpError> {
    if endpoint.starts_with("http://") || endpoint.starts_with("https://") {
        return Ok(endpoint);
    }
    let names = ["OTEL_EXPORTER_OTLP_TRACES_INSECURE", "OTEL_EXPORTER_OTLP_INSECURE"];
    let scheme = env.choice(names, &[("true", "http"), ("false", "https")], "true or false")?;
    match scheme {
        Some(scheme) if protocol == OtlpProtocol::Grpc && !endpoint.contains("://") => {
            Ok(format!("{scheme}://{endpoint}"))
        }
        _ => Err(OtlpError::Endpoint(endpoint)),
    }
}

fn timeout(env: &Env<'_>) -> Result<Duration, OtlpError> {
    let names = ["OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"];
    let export = milliseconds(env.number(names, &MILLISECONDS)?).unwrap_or(TIMEOUT);
    let processor = milliseconds(env.number(["OTEL_BSP_EXPORT_TIMEOUT"], &MILLISECONDS)?);
    Ok(processor.map_or(export, |processor| processor.min(export)))
}

/// The queue's measures.
pub(super) fn queue(env: &Env<'_>) -> Result<Queue, OtlpError> {
    let sizes = (1..=65_536, "a number of spans from 1 to 65536");
    let capacity = env.number(["OTEL_BSP_MAX_QUEUE_SIZE"], &sizes)?.unwrap_or(QUEUE);
    let batches = (1..=capacity, "a number of spans from 1 to OTEL_BSP_MAX_QUEUE_SIZE");
    let batch = env.number(["OTEL_BSP_MAX_EXPORT_BATCH_SIZE"], &batches)?.unwrap_or(BATCH.min(capacity));
    let delay = milliseconds(env.number(["OTEL_BSP_SCHEDULE_DELAY"], &MILLISECONDS)?).unwrap_or(DELAY);
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
