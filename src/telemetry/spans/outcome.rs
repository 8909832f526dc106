//! What the root span says of its probe or request once that has ended.

use std::time::Duration;

use opentelemetry::trace::Status;
use opentelemetry::{Array, StringValue, Value};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::names::{
    ERROR_TYPE, GEN_AI_RESPONSE_FINISH_REASONS, GEN_AI_RESPONSE_MODEL, GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK,
    GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, GEN_AI_USAGE_INPUT_TOKENS, GEN_AI_USAGE_OUTPUT_TOKENS, PROBE_BRANCH,
    PROBE_CAUSE, PROBE_CAUSE_DETAIL, PROBE_EVIDENCE, PROBE_LIMIT, PROBE_OUTCOME, PROBE_STALLED_AT, REQUEST_OUTCOME,
    REQUEST_RETRACTIONS,
};
use super::{MAX_TEXT, bounded};
use crate::telemetry::labels::{Cause, Hop, ProbeBranch, ProbeEvidence, ProbeOutcome, RequestOutcome};

/// What is known of a probe at its verdict; its id is on the span since [`super::name_probe`].
#[derive(Debug, Clone, Copy)]
pub struct ProbeAttributes<'a> {
    /// Which way the scheduler took.
    pub branch: ProbeBranch,
    /// How it ended.
    pub outcome: ProbeOutcome,
    /// What proved life.
    pub evidence: ProbeEvidence,
    /// The sick hop, if it failed.
    pub stalled_at: Option<Hop>,
    /// What made it sick, if it failed.
    pub cause: Option<Cause>,
    /// The cause in a sentence, if it failed.
    pub detail: Option<&'a str>,
    /// How long it was allowed to wait.
    pub limit: Duration,
}

/// Writes a probe's end on its root span; a failed probe makes it an error that says where and why.
pub fn record_probe(span: &Span, probe: &ProbeAttributes<'_>) {
    span.set_attribute(PROBE_BRANCH, probe.branch.as_str());
    span.set_attribute(PROBE_OUTCOME, probe.outcome.as_str());
    span.set_attribute(PROBE_EVIDENCE, probe.evidence.as_str());
    span.set_attribute(PROBE_LIMIT, probe.limit.as_secs_f64());
    if let Some(hop) = probe.stalled_at {
        span.set_attribute(PROBE_STALLED_AT, hop.as_str());
    }
    if let Some(cause) = probe.cause {
        span.set_attribute(PROBE_CAUSE, cause.as_str());
    }
    if let Some(detail) = probe.detail {
        span.set_attribute(PROBE_CAUSE_DETAIL, bounded(detail, MAX_TEXT).to_owned());
    }
    if failed(probe.outcome) {
        span.set_status(Status::error(verdict(probe)));
    }
}

/// What is known of a request at its end; its rid is on the span since [`super::name_request`].
#[derive(Debug, Clone, Copy)]
pub struct RequestAttributes<'a> {
    /// The model that served it.
    pub model: &'a str,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the prompt that were found in the prefix cache.
    pub cached_tokens: u32,
    /// Tokens of the output.
    pub completion_tokens: u32,
    /// How often it gave its KV pages back.
    pub retractions: u32,
    /// From submit to the first news; `None` if there were none.
    pub first_news: Option<Duration>,
    /// Why it ended, in the API's words.
    pub finish_reason: &'a str,
    /// How it ended.
    pub outcome: RequestOutcome,
    /// What went wrong, if the runtime failed it.
    pub error: Option<&'a str>,
    /// Why the answer broke after its status was sent; the status says nothing of it.
    pub broken: Option<&'static str>,
}

/// Writes a request's end on its root span. A client that left is no error, an engine that failed is.
pub fn record_request(span: &Span, request: &RequestAttributes<'_>) {
    let finish_reason: StringValue = bounded(request.finish_reason, MAX_TEXT).to_owned().into();
    span.set_attribute(GEN_AI_RESPONSE_MODEL, bounded(request.model, MAX_TEXT).to_owned());
    span.set_attribute(GEN_AI_USAGE_INPUT_TOKENS, i64::from(request.prompt_tokens));
    span.set_attribute(GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS, i64::from(request.cached_tokens));
    span.set_attribute(GEN_AI_USAGE_OUTPUT_TOKENS, i64::from(request.completion_tokens));
    span.set_attribute(REQUEST_RETRACTIONS, i64::from(request.retractions));
    if let Some(first_news) = request.first_news {
        span.set_attribute(GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK, first_news.as_secs_f64());
    }
    span.set_attribute(GEN_AI_RESPONSE_FINISH_REASONS, Value::Array(Array::String(vec![finish_reason])));
    span.set_attribute(REQUEST_OUTCOME, request.outcome.as_str());
    if request.outcome == RequestOutcome::Error {
        let message = request.error.unwrap_or("the runtime failed the request");
        span.set_status(Status::error(bounded(message, MAX_TEXT).to_owned()));
        if let Some(why) = request.broken {
            span.set_attribute(ERROR_TYPE, why);
        }
    }
}

/// Whether the server failed; a client that left says nothing about it.
fn failed(outcome: ProbeOutcome) -> bool {
    match outcome {
        ProbeOutcome::Ok | ProbeOutcome::Shortcut | ProbeOutcome::Paused | ProbeOutcome::ClientGone => false,
        ProbeOutcome::Timeout
        | ProbeOutcome::EngineDead
        | ProbeOutcome::Starting
        | ProbeOutcome::Draining
        | ProbeOutcome::Error => true,
    }
}

/// `timeout at scheduler.inbox: step_stuck`, as far as it is known.
fn verdict(probe: &ProbeAttributes<'_>) -> String {
    let place = probe.stalled_at.map_or_else(String::new, |hop| format!(" at {hop}"));
    let cause = probe.cause.map_or_else(String::new, |cause| format!(": {cause}"));
    format!("{}{place}{cause}", probe.outcome)
}
