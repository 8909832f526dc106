//! Span names and attribute keys: the single source of `docs/traces.md`.

use opentelemetry_semantic_conventions::attribute as semconv;
use serde::Serialize;

use crate::telemetry::labels::Hop;

/// The instrumentation scope of every span of ours.
pub const SCOPE: &str = "radiosonde";

/// The root of an HTTP request: its method and its route, as in `GET /health`.
pub const SERVER_SPAN: &str = "{method} {route}";
/// The root of a probe that the server sent by itself.
pub const SELF_PROBE: &str = "self_probe";
/// `http.request.method`
pub const HTTP_REQUEST_METHOD: &str = semconv::HTTP_REQUEST_METHOD;
/// `http.route`
pub const HTTP_ROUTE: &str = semconv::HTTP_ROUTE;
/// `url.path`
pub const URL_PATH: &str = semconv::URL_PATH;
/// `http.response.status_code`
pub const HTTP_RESPONSE_STATUS_CODE: &str = semconv::HTTP_RESPONSE_STATUS_CODE;
/// `error.type`
pub const ERROR_TYPE: &str = semconv::ERROR_TYPE;
/// The probe's id, as in its JSON body and in `/debug/probes`.
pub const PROBE_ID: &str = "probe.id";
/// Which way the scheduler took, on the root and on the decision.
pub const PROBE_BRANCH: &str = "probe.branch";
/// How the probe ended.
pub const PROBE_OUTCOME: &str = "probe.outcome";
/// What proved life.
pub const PROBE_EVIDENCE: &str = "probe.evidence";
/// The sick hop.
pub const PROBE_STALLED_AT: &str = "probe.stalled_at";
/// What made it sick.
pub const PROBE_CAUSE: &str = "probe.cause";
/// The cause in a sentence.
pub const PROBE_CAUSE_DETAIL: &str = "probe.cause_detail";
/// The probe's limit.
pub const PROBE_LIMIT: &str = "probe.limit_seconds";
/// The request's id.
pub const REQUEST_RID: &str = "request.rid";
/// How the request ended.
pub const REQUEST_OUTCOME: &str = "request.outcome";
/// The model that served a request (GenAI semantic conventions, as the other `gen_ai` keys).
pub const GEN_AI_REQUEST_MODEL: &str = "gen_ai.request.model";
/// Tokens of the prompt.
pub const GEN_AI_USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens of the output.
pub const GEN_AI_USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Why the request ended.
pub const GEN_AI_RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// The number of a scheduler step.
pub const STEP_NUMBER: &str = "scheduler.step.number";
/// What the step worked on.
pub const STEP_PHASE: &str = "scheduler.step.phase";
/// Tokens in the step.
pub const STEP_TOKENS: &str = "scheduler.step.tokens";
/// Sequences in the step.
pub const STEP_REQUESTS: &str = "scheduler.step.requests";
/// `process.pid`
pub const PROCESS_PID: &str = semconv::PROCESS_PID;

/// The status message of a hop that had not ended when the verdict fell.
pub const UNFINISHED: &str = "unfinished";

/// Which process a span tells of: it decides on the resource that the span carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The frontend, `service.name` radiosonde.
    Frontend,
    /// The engine, `service.name` radiosonde-engine.
    Engine,
}

impl Side {
    /// The process that `hop` belongs to.
    #[must_use]
    pub const fn of(hop: Hop) -> Self {
        match hop {
            Hop::Http | Hop::Submit | Hop::IpcToEngine | Hop::IpcToFrontend | Hop::Detokenizer | Hop::Receive => {
                Self::Frontend
            }
            Hop::Inbox
            | Hop::ProcessInput
            | Hop::Queue
            | Hop::ReturnHealthCheckIpcs
            | Hop::RunBatch
            | Hop::Forward
            | Hop::Prefill
            | Hop::Decode => Self::Engine,
        }
    }

    /// The `service.name` by default.
    #[must_use]
    pub const fn service(self) -> &'static str {
        match self {
            Self::Frontend => "radiosonde",
            Self::Engine => "radiosonde-engine",
        }
    }
}

/// What the span of `hop` tells.
#[must_use]
pub const fn meaning(hop: Hop) -> &'static str {
    match hop {
        Hop::Http => "The HTTP server: from the first byte of the request to the verdict.",
        Hop::Submit => "Text to ids, request table, hand-over to the connection. Long: the frontend lags.",
        Hop::IpcToEngine => "On the socket to the engine. Unfinished: the engine does not read.",
        Hop::Inbox => "Received by the engine, not yet seen by the scheduler. Long: it waits for the step in flight.",
        Hop::ProcessInput => "The scheduler's decision; `probe.branch` is its result.",
        Hop::Queue => "Waiting for the first place in a batch. Long: too many requests, or no batch forms.",
        Hop::ReturnHealthCheckIpcs => "A probe of a busy scheduler waits for the batch in flight.",
        Hop::RunBatch => "The batch of an idle scheduler's probe, from planning to output.",
        Hop::Forward => "The forward pass of that batch, inside `scheduler.run_batch`. Unfinished: the model hangs.",
        Hop::Prefill => "Prompt chunks of a user request, first to last.",
        Hop::Decode => "Output tokens of a user request, second to last.",
        Hop::IpcToFrontend => "On the socket to the frontend. Unfinished: sent and never received.",
        Hop::Detokenizer => "Ids to text.",
        Hop::Receive => "Matched to its waiter; `last_receive_tstamp` moves at its end.",
    }
}

/// One kind of span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SpanInfo {
    /// Its name; that of the root is a pattern.
    pub name: &'static str,
    /// The `service.name` by default.
    pub service: &'static str,
    /// What it tells.
    pub meaning: &'static str,
}

/// Every kind of span: the roots, then the hops in flow order.
#[must_use]
pub fn spans() -> Vec<SpanInfo> {
    let root = |name, meaning| SpanInfo { name, service: Side::Frontend.service(), meaning };
    let hop = |&hop: &Hop| SpanInfo { name: hop.as_str(), service: Side::of(hop).service(), meaning: meaning(hop) };
    let roots = [
        root(SERVER_SPAN, meaning(Hop::Http)),
        root(SELF_PROBE, "A probe that the server sent by itself, from its start to its verdict."),
    ];
    // The root is the hop of HTTP.
    roots.into_iter().chain(Hop::ALL.iter().filter(|&&hop| hop != Hop::Http).map(hop)).collect()
}

/// One attribute key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct AttributeInfo {
    /// Its name.
    pub key: &'static str,
    /// Which spans carry it.
    pub on: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

const fn attribute(key: &'static str, on: &'static str, meaning: &'static str) -> AttributeInfo {
    AttributeInfo { key, on, meaning }
}

/// Every attribute of ours, in the order in which an incident asks for them.
pub const ATTRIBUTES: &[AttributeInfo] = &[
    attribute(PROBE_STALLED_AT, "root of a failed probe", "The hop that never ended: where to look."),
    attribute(PROBE_CAUSE, "root of a failed probe", "Why, from a closed set: what to do."),
    attribute(PROBE_CAUSE_DETAIL, "root of a failed probe", "Why, in a sentence with figures; at most 512 bytes."),
    attribute(PROBE_OUTCOME, "root of a probe", "How it ended, as in `radiosonde_health_probe_total`."),
    attribute(PROBE_BRANCH, "root of a probe, its decision", "`idle`, `busy`, or `none` if nobody decided."),
    attribute(PROBE_EVIDENCE, "root of a probe", "`own_answer`, `other_traffic` or `none`."),
    attribute(PROBE_LIMIT, "root of a probe", "How long it was allowed to wait, in seconds."),
    attribute(PROBE_ID, "root of a probe", "Its id, as in the JSON body and in `/debug/probes`."),
    attribute(STEP_NUMBER, "hops with a step", "Number of the scheduler step, from 1."),
    attribute(STEP_PHASE, "hops with a step", "`prefill`, `decode` or `mixed`."),
    attribute(STEP_TOKENS, "hops with a step", "Tokens in the step."),
    attribute(STEP_REQUESTS, "hops with a step", "Sequences in the step."),
    attribute(REQUEST_RID, "root of a request", "Its id, as in the answer and in the logs."),
    attribute(REQUEST_OUTCOME, "root of a request", "How it ended, as in `radiosonde_requests_finished_total`."),
    attribute(GEN_AI_REQUEST_MODEL, "root of a request", "The model that served it."),
    attribute(GEN_AI_USAGE_INPUT_TOKENS, "root of a request", "Tokens of the prompt."),
    attribute(GEN_AI_USAGE_OUTPUT_TOKENS, "root of a request", "Tokens of the output."),
    attribute(GEN_AI_RESPONSE_FINISH_REASONS, "root of a request", "Why it ended, one entry."),
    attribute(HTTP_REQUEST_METHOD, "root", "The method; `_OTHER` for one that HTTP does not know."),
    attribute(HTTP_ROUTE, "root", "The route, not the path."),
    attribute(URL_PATH, "root", "The path, at most 512 bytes, without the query."),
    attribute(HTTP_RESPONSE_STATUS_CODE, "root", "The status of the answer; absent if the client left before it."),
    attribute(ERROR_TYPE, "root", "The status again if it is 500 or above."),
    attribute(PROCESS_PID, "spans of the engine", "The engine's process, also after it is gone."),
];
