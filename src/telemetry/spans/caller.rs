//! Who asked, and for what: what the root span knows before anything has happened.

use std::net::SocketAddr;

use axum::http::header::{HOST, USER_AGENT};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Uri, Version};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::names::{
    CLIENT_ADDRESS, GEN_AI_OPERATION_NAME, GEN_AI_PROVIDER_NAME, GEN_AI_REQUEST_CHOICE_COUNT,
    GEN_AI_REQUEST_MAX_TOKENS, GEN_AI_REQUEST_MODEL, GEN_AI_REQUEST_SEED, GEN_AI_REQUEST_STREAM,
    GEN_AI_REQUEST_TEMPERATURE, GEN_AI_REQUEST_TOP_P, GEN_AI_RESPONSE_ID, NETWORK_PROTOCOL_VERSION, PROVIDER,
    REQUEST_GRAMMAR, SERVER_ADDRESS, SERVER_PORT, SYNTHETIC_TEST, URL_SCHEME, USER_AGENT_ORIGINAL,
    USER_AGENT_SYNTHETIC_TYPE,
};
use super::{MAX_TEXT, bounded};
use crate::telemetry::labels::{GrammarField, RequestEndpoint};

/// How probers introduce themselves: Kubernetes, the blackbox exporter, Google's and Amazon's load balancers.
const PROBERS: &[&str] = &["kube-probe/", "Blackbox Exporter/", "GoogleHC/", "ELB-HealthChecker/"];

/// The port of HTTP where none is named.
const HTTP_PORT: u16 = 80;

/// Who asked, and how.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The other end of the connection; a proxy's word on who is behind it is not taken.
    pub peer: Option<SocketAddr>,
    /// HTTP's version.
    pub version: Version,
    /// The address as the client wrote it: with HTTP/2, the host is there.
    pub uri: &'a Uri,
    /// The rest.
    pub headers: &'a HeaderMap,
}

/// Writes who asked on the root span.
pub fn record_caller(span: &Span, caller: &Caller<'_>) {
    span.set_attribute(URL_SCHEME, "http");
    let host = caller.uri.authority().map(Authority::as_str).or_else(|| text(caller.headers, HOST));
    if let Some((name, port)) = host.and_then(split_host) {
        span.set_attribute(SERVER_ADDRESS, name);
        span.set_attribute(SERVER_PORT, i64::from(port));
    }
    if let Some(version) = version(caller.version) {
        span.set_attribute(NETWORK_PROTOCOL_VERSION, version);
    }
    if let Some(peer) = caller.peer {
        span.set_attribute(CLIENT_ADDRESS, peer.ip().to_canonical().to_string());
    }
    if let Some(user_agent) = text(caller.headers, USER_AGENT) {
        span.set_attribute(USER_AGENT_ORIGINAL, bounded(user_agent, MAX_TEXT).to_owned());
        if PROBERS.iter().any(|prober| user_agent.starts_with(prober)) {
            span.set_attribute(USER_AGENT_SYNTHETIC_TYPE, SYNTHETIC_TEST);
        }
    }
}

/// What was asked for, of one HTTP request.
#[derive(Debug, Clone, Copy)]
pub struct CallAttributes<'a> {
    /// The API.
    pub endpoint: RequestEndpoint,
    /// The model, by the name that it is served by.
    pub model: &'a str,
    /// The answer's id.
    pub response_id: &'a str,
    /// How many answers.
    pub choices: usize,
    /// They are to be streamed.
    pub stream: bool,
    /// The most tokens of an answer, if the caller said so.
    pub max_tokens: Option<u32>,
    /// 0 is greedy.
    pub temperature: f32,
    /// In (0, 1].
    pub top_p: f32,
    /// The caller's seed.
    pub seed: Option<u64>,
    /// The field with the grammar that all answers follow.
    pub grammar: Option<GrammarField>,
}

/// Writes what was asked for on the root span.
pub fn record_call(span: &Span, call: &CallAttributes<'_>) {
    span.set_attribute(GEN_AI_OPERATION_NAME, operation(call.endpoint));
    span.set_attribute(GEN_AI_PROVIDER_NAME, PROVIDER);
    span.set_attribute(GEN_AI_REQUEST_MODEL, bounded(call.model, MAX_TEXT).to_owned());
    span.set_attribute(GEN_AI_REQUEST_STREAM, call.stream);
    span.set_attribute(GEN_AI_REQUEST_TEMPERATURE, shortest(call.temperature));
    span.set_attribute(GEN_AI_REQUEST_TOP_P, shortest(call.top_p));
    span.set_attribute(GEN_AI_RESPONSE_ID, bounded(call.response_id, MAX_TEXT).to_owned());
    if call.choices != 1 {
        span.set_attribute(GEN_AI_REQUEST_CHOICE_COUNT, i64::try_from(call.choices).unwrap_or(i64::MAX));
    }
    if let Some(max_tokens) = call.max_tokens {
        span.set_attribute(GEN_AI_REQUEST_MAX_TOKENS, i64::from(max_tokens));
    }
    if let Some(seed) = call.seed {
        span.set_attribute(GEN_AI_REQUEST_SEED, seed.cast_signed()); // as the caller wrote it
    }
    if let Some(field) = call.grammar {
        span.set_attribute(REQUEST_GRAMMAR, field.as_str());
    }
}

/// What was asked for, of one HTTP request with texts to embed.
#[derive(Debug, Clone, Copy)]
pub struct EmbeddingCall<'a> {
    /// The API.
    pub endpoint: RequestEndpoint,
    /// The model, by the name that it is served by.
    pub model: &'a str,
    /// The answer's id.
    pub response_id: &'a str,
}

/// Writes what was asked for on the root span.
pub fn record_embedding_call(span: &Span, call: &EmbeddingCall<'_>) {
    span.set_attribute(GEN_AI_OPERATION_NAME, operation(call.endpoint));
    span.set_attribute(GEN_AI_PROVIDER_NAME, PROVIDER);
    span.set_attribute(GEN_AI_REQUEST_MODEL, bounded(call.model, MAX_TEXT).to_owned());
    span.set_attribute(GEN_AI_RESPONSE_ID, bounded(call.response_id, MAX_TEXT).to_owned());
}

/// `/generate` takes chats too, rendered by its caller; to us it is text.
const fn operation(endpoint: RequestEndpoint) -> &'static str {
    match endpoint {
        RequestEndpoint::ChatCompletions => "chat",
        RequestEndpoint::Completions | RequestEndpoint::Generate => "text_completion",
        RequestEndpoint::Embeddings | RequestEndpoint::Encode => "embeddings",
    }
}

/// 0.7 and not 0.699999988079071, which is what the nearest `f32` is as an `f64`.
fn shortest(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| f64::from(value))
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Host and port; `None` if that is no host.
fn split_host(host: &str) -> Option<(String, u16)> {
    let authority: Authority = bounded(host, MAX_TEXT).parse().ok()?;
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    (!name.is_empty()).then(|| (name.to_owned(), authority.port_u16().unwrap_or(HTTP_PORT)))
}

/// As ALPN and the conventions write it.
fn version(version: Version) -> Option<&'static str> {
    match version {
        Version::HTTP_10 => Some("1.0"),
        Version::HTTP_11 => Some("1.1"),
        Version::HTTP_2 => Some("2"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_its_port() {
        for (host, want) in [
            ("127.0.0.1:8080", Some(("127.0.0.1", 8080))),
            ("llm.example", Some(("llm.example", 80))),
            ("[::1]:9", Some(("::1", 9))),
            ("", None),
            ("a b", None),
        ] {
            assert_eq!(split_host(host), want.map(|(name, port)| (name.to_owned(), port)), "{host:?}");
        }
    }

    #[test]
    fn a_number_is_what_the_caller_wrote() {
        assert_eq!((shortest(0.7), shortest(1.0), shortest(0.0)), (0.7, 1.0, 0.0));
    }
}
