//! The root span of each HTTP request, in the caller's trace where there is one.

use axum::http::{HeaderMap, HeaderName};
use opentelemetry::propagation::Extractor;
use opentelemetry::trace::{Status, TraceContextExt};
use opentelemetry::{Context, Value, global};
use tracing::Span;
use tracing::field::Empty;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::names::{
    ERROR_TYPE, HTTP_REQUEST_METHOD, HTTP_RESPONSE_STATUS_CODE, HTTP_ROUTE, PROBE_ID, REQUEST_RID, SELF_PROBE,
    SYNTHETIC_TEST, URL_PATH, USER_AGENT_SYNTHETIC_TYPE,
};
use super::{MAX_TEXT, bounded};

/// What semantic conventions say of a method that is none of HTTP's.
const OTHER_METHOD: &str = "_OTHER";

/// The span of one HTTP request, started and ready to be entered. A `traceparent` header makes it part of the caller's
/// trace. `route` is the matched pattern, never the path, so that span names stay few.
#[must_use]
pub fn server_span(method: &str, route: &str, path: &str, headers: &HeaderMap) -> Span {
    let (name, method) = match known(method) {
        Some(method) => (format!("{method} {route}"), method),
        None => (format!("HTTP {route}"), OTHER_METHOD),
    };
    // At error level, so that the ids on it reach the log lines at any log level; the level itself is not exported.
    let span = tracing::error_span!(
        parent: None,
        "http",
        otel.name = name,
        otel.kind = "server",
        request.rid = Empty,
        probe.id = Empty
    );
    let parent =
        global::get_text_map_propagator(|known| known.extract_with_context(&Context::new(), &Headers(headers)));
    if parent.span().span_context().is_valid() {
        // Before anything starts the span: a started one keeps the trace that it was born into.
        if let Err(error) = span.set_parent(parent) {
            tracing::debug!(%error, "the caller's trace is not continued");
        }
    }
    span.set_attribute(HTTP_REQUEST_METHOD, method);
    span.set_attribute(HTTP_ROUTE, route.to_owned());
    span.set_attribute(URL_PATH, bounded(path, MAX_TEXT).to_owned());
    // Starts it now: on a span that has not started, a later status would replace an earlier one that says more.
    let _started = span.context();
    span
}

/// The root span of a probe that nobody asked for, started and ready to be entered.
#[must_use]
pub fn self_probe_span() -> Span {
    let span = tracing::error_span!(
        parent: None,
        "self_probe",
        otel.name = SELF_PROBE,
        otel.kind = "internal",
        probe.id = Empty
    );
    span.set_attribute(USER_AGENT_SYNTHETIC_TYPE, SYNTHETIC_TEST);
    let _started = span.context();
    span
}

/// Tells the span, and the log lines inside it, which request it is. Once.
pub fn name_request(span: &Span, rid: &str) {
    span.record(REQUEST_RID, bounded(rid, MAX_TEXT));
}

/// Tells the span, and the log lines inside it, which probe it is. Once.
pub fn name_probe(span: &Span, probe_id: &str) {
    span.record(PROBE_ID, bounded(probe_id, MAX_TEXT));
}

/// The status of the answer; 500 and above make the span an error.
pub fn record_status(span: &Span, status: u16) {
    span.set_attribute(HTTP_RESPONSE_STATUS_CODE, i64::from(status));
    if status >= 500 {
        span.set_attribute(ERROR_TYPE, Value::from(status.to_string()));
        // Without a text: whoever knows more, before or after, says it in its place.
        span.set_status(Status::error(""));
    }
}

/// The span ends now. Left to itself, it would end when it was last entered, which is before what ends with it.
pub fn end(span: &Span) {
    span.in_scope(|| {});
}

/// The span's place in its trace, for [`super::write_hops`]. Starts the span.
#[must_use]
pub fn context(span: &Span) -> Context {
    span.context()
}

/// The trace id in hexadecimal; `None` without a subscriber that traces. Starts the span.
#[must_use]
pub fn trace_id(span: &Span) -> Option<String> {
    let context = span.context();
    let id = context.span().span_context().clone();
    id.is_valid().then(|| id.trace_id().to_string())
}

fn known(method: &str) -> Option<&'static str> {
    const METHODS: &[&str] = &["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
    METHODS.iter().find(|known| **known == method).copied()
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
