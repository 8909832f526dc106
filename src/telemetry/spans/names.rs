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
/// The events of an answer that streams, below the root.
pub const HTTP_STREAM: &str = "http.stream";
/// A chunk of the prompt begins.
pub const EVENT_PREFILL_CHUNK: &str = "prefill.chunk";
/// The first token is there.
pub const EVENT_FIRST_TOKEN: &str = "first_token";
/// The KV pages were given back.
pub const EVENT_RETRACTION: &str = "retraction";
/// The request was sent to another engine.
pub const EVENT_ENGINE_RESTART: &str = "engine_restart";
/// Nobody wants the rest.
pub const EVENT_ABORT: &str = "abort";
/// The most events of one hop; what comes after them is counted, where there is a count.
pub const MAX_EVENTS: usize = 64;
/// The most links of one hop.
pub const MAX_LINKS: usize = 32;
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
/// `http.response.body.size`
pub const HTTP_RESPONSE_BODY_SIZE: &str = semconv::HTTP_RESPONSE_BODY_SIZE;
/// `url.scheme`
pub const URL_SCHEME: &str = semconv::URL_SCHEME;
/// `server.address`
pub const SERVER_ADDRESS: &str = semconv::SERVER_ADDRESS;
/// `server.port`
pub const SERVER_PORT: &str = semconv::SERVER_PORT;
/// `client.address`
pub const CLIENT_ADDRESS: &str = semconv::CLIENT_ADDRESS;
/// `network.protocol.version`
pub const NETWORK_PROTOCOL_VERSION: &str = semconv::NETWORK_PROTOCOL_VERSION;
/// `user_agent.original`
pub const USER_AGENT_ORIGINAL: &str = semconv::USER_AGENT_ORIGINAL;
/// `user_agent.synthetic.type`
pub const USER_AGENT_SYNTHETIC_TYPE: &str = semconv::USER_AGENT_SYNTHETIC_TYPE;
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
/// The field with the grammar that its output follows.
pub const REQUEST_GRAMMAR: &str = "request.grammar";
/// How often it gave its KV pages back.
pub const REQUEST_RETRACTIONS: &str = "request.retractions";
/// What was asked for. The `gen_ai` keys are those of the GenAI semantic conventions; the crate of the conventions marks
/// its own constants as deprecated, because they have moved to a repository of their own.
pub const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
/// Who serves.
pub const GEN_AI_PROVIDER_NAME: &str = "gen_ai.provider.name";
/// The model that was asked for.
pub const GEN_AI_REQUEST_MODEL: &str = "gen_ai.request.model";
/// The answer is to be streamed.
pub const GEN_AI_REQUEST_STREAM: &str = "gen_ai.request.stream";
/// How many answers were asked for.
pub const GEN_AI_REQUEST_CHOICE_COUNT: &str = "gen_ai.request.choice.count";
/// The most tokens of an answer.
pub const GEN_AI_REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
/// The temperature.
pub const GEN_AI_REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
/// `top_p`
pub const GEN_AI_REQUEST_TOP_P: &str = "gen_ai.request.top_p";
/// The seed.
pub const GEN_AI_REQUEST_SEED: &str = "gen_ai.request.seed";
/// The model that answered.
pub const GEN_AI_RESPONSE_MODEL: &str = "gen_ai.response.model";
/// The answer's id.
pub const GEN_AI_RESPONSE_ID: &str = "gen_ai.response.id";
/// Why the request ended.
pub const GEN_AI_RESPONSE_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// From the request to the first news of its output.
pub const GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
/// Tokens of the prompt.
pub const GEN_AI_USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens of the prompt that were found in the prefix cache.
pub const GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// Tokens of the output.
pub const GEN_AI_USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// The number of a scheduler step.
pub const STEP_NUMBER: &str = "scheduler.step.number";
/// What the step worked on.
pub const STEP_PHASE: &str = "scheduler.step.phase";
/// Tokens in the step.
pub const STEP_TOKENS: &str = "scheduler.step.tokens";
/// Sequences in the step.
pub const STEP_REQUESTS: &str = "scheduler.step.requests";
/// The first step of a hop that takes several.
pub const STEP_FIRST: &str = "scheduler.step.first";
/// The last step of a hop that takes several.
pub const STEP_LAST: &str = "scheduler.step.last";
/// Chunks of the prompt.
pub const PREFILL_CHUNKS: &str = "prefill.chunks";
/// Tokens of a chunk.
pub const CHUNK_TOKENS: &str = "prefill.chunk.tokens";
/// How long all of the output took to become text.
pub const DETOKENIZER_SECONDS: &str = "detokenizer.total_seconds";
/// `process.pid`
pub const PROCESS_PID: &str = semconv::PROCESS_PID;

/// The value of [`GEN_AI_PROVIDER_NAME`].
pub const PROVIDER: &str = "radiosonde";
/// The value of [`USER_AGENT_SYNTHETIC_TYPE`] on probes.
pub const SYNTHETIC_TEST: &str = "test";
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
        Hop::Queue => {
            "Waiting for a place in a batch, the first time or, inside another span, again. Long: too many requests, or \
             no batch forms."
        }
        Hop::ReturnHealthCheckIpcs => {
            "A probe of a busy scheduler waits for the batch in flight; linked to the requests in it."
        }
        Hop::RunBatch => "The batch of an idle scheduler's probe, from planning to output.",
        Hop::Forward => "The forward pass of that batch, inside `scheduler.run_batch`. Unfinished: the model hangs.",
        Hop::Prefill => {
            "Prompt chunks of a user request, first to last, each an event. Inside `scheduler.decode`: computed again."
        }
        Hop::Decode => "Output tokens of a user request, first to last, waits in between included.",
        Hop::IpcToFrontend => "On the socket to the frontend. Unfinished: sent and never received.",
        Hop::Detokenizer => "Ids to text: the last piece; `detokenizer.total_seconds` is all of them.",
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

/// Every kind of span: the roots, then the hops in flow order, then an answer that streams.
#[must_use]
pub fn spans() -> Vec<SpanInfo> {
    let root = |name, meaning| SpanInfo { name, service: Side::Frontend.service(), meaning };
    let hop = |&hop: &Hop| SpanInfo { name: hop.as_str(), service: Side::of(hop).service(), meaning: meaning(hop) };
    let roots = [
        root(SERVER_SPAN, meaning(Hop::Http)),
        root(SELF_PROBE, "A probe that the server sent by itself, from its start to its verdict."),
    ];
    let stream = SpanInfo {
        name: HTTP_STREAM,
        service: Side::Frontend.service(),
        meaning: "An answer that streams, from its first byte to its last. Long after the other hops: the client reads \
                  slowly.",
    };
    // The root is the hop of HTTP.
    let hops = Hop::ALL.iter().filter(|&&hop| hop != Hop::Http).map(hop);
    roots.into_iter().chain(hops).chain([stream]).collect()
}

/// One kind of event inside a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EventInfo {
    /// Its name.
    pub name: &'static str,
    /// Which spans have it.
    pub on: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

/// Every event of ours.
pub const EVENTS: &[EventInfo] = &[
    EventInfo {
        name: EVENT_PREFILL_CHUNK,
        on: "`scheduler.prefill`",
        meaning: "A step with a chunk of the prompt begins: `scheduler.step.number`, `prefill.chunk.tokens`. The first \
                  64; `prefill.chunks` counts all.",
    },
    EventInfo { name: EVENT_FIRST_TOKEN, on: "`scheduler.decode`", meaning: "The first token of the output is there." },
    EventInfo {
        name: EVENT_RETRACTION,
        on: "`scheduler.prefill`, `scheduler.decode`",
        meaning: "The KV pool is full, or a pause asked for it: the request gave its pages back. It waits and computes \
                  again below this span, the first 8 times; `request.retractions` counts all.",
    },
    EventInfo {
        name: EVENT_ENGINE_RESTART,
        on: "`ipc.to_engine`",
        meaning: "The engine died before the request had output: it was sent to the next one.",
    },
    EventInfo {
        name: EVENT_ABORT,
        on: "the hop that it was in",
        meaning: "Nobody wants the rest: the client left, or asked for the end. No error.",
    },
];

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
    attribute(STEP_FIRST, "`scheduler.prefill`, `scheduler.decode`", "Number of its first step."),
    attribute(STEP_LAST, "`scheduler.prefill`, `scheduler.decode`", "Number of its last step."),
    attribute(PREFILL_CHUNKS, "`scheduler.prefill`", "Chunks of the prompt, each in a step of its own."),
    attribute(CHUNK_TOKENS, "event `prefill.chunk`", "Tokens of the chunk."),
    attribute(DETOKENIZER_SECONDS, "`detokenizer` of a request", "Time for all of its output, in seconds."),
    attribute(REQUEST_RID, "root of a request, link to it", "Its id, as in the answer and in the logs."),
    attribute(REQUEST_OUTCOME, "root of a request", "How it ended, as in `radiosonde_requests_finished_total`."),
    attribute(
        REQUEST_GRAMMAR,
        "root of a request",
        "The field that says what its output must look like, if there is one, as in `radiosonde_grammars_total`.",
    ),
    attribute(REQUEST_RETRACTIONS, "root of a request", "How often it gave its KV pages back."),
    attribute(GEN_AI_OPERATION_NAME, "root of a request", "`chat`, `text_completion` or `embeddings`."),
    attribute(GEN_AI_PROVIDER_NAME, "root of a request", "`radiosonde`."),
    attribute(GEN_AI_REQUEST_MODEL, "root of a request", "The model that was asked for; `default` by its own name."),
    attribute(GEN_AI_REQUEST_STREAM, "root of a request", "Whether the answer is to be streamed."),
    attribute(GEN_AI_REQUEST_CHOICE_COUNT, "root of a request", "How many answers were asked for, if more than one."),
    attribute(GEN_AI_REQUEST_MAX_TOKENS, "root of a request", "The most tokens of an answer, if the caller said so."),
    attribute(GEN_AI_REQUEST_TEMPERATURE, "root of a request", "0 is greedy."),
    attribute(GEN_AI_REQUEST_TOP_P, "root of a request", "In (0, 1]."),
    attribute(GEN_AI_REQUEST_SEED, "root of a request", "The seed, if the caller gave one."),
    attribute(GEN_AI_RESPONSE_MODEL, "root of a request", "The model that answered."),
    attribute(GEN_AI_RESPONSE_ID, "root of a request", "The answer's id, as in its body."),
    attribute(GEN_AI_RESPONSE_FINISH_REASONS, "root of a request", "Why it ended, one entry."),
    attribute(
        GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK,
        "root of a request",
        "From submit to the first news of the output, in seconds.",
    ),
    attribute(GEN_AI_USAGE_INPUT_TOKENS, "root of a request", "Tokens of the prompt."),
    attribute(
        GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS,
        "root of a request",
        "Tokens of the prompt that were found in the prefix cache.",
    ),
    attribute(GEN_AI_USAGE_OUTPUT_TOKENS, "root of a request", "Tokens of the output, up to the end whatever it was."),
    attribute(HTTP_REQUEST_METHOD, "root", "The method; `_OTHER` for one that HTTP does not know."),
    attribute(HTTP_ROUTE, "root", "The route, not the path."),
    attribute(URL_PATH, "root", "The path, at most 512 bytes, without the query."),
    attribute(URL_SCHEME, "root", "`http`."),
    attribute(SERVER_ADDRESS, "root", "The host that the client named, without its port."),
    attribute(SERVER_PORT, "root", "The port that the client named; 80 if it named none."),
    attribute(CLIENT_ADDRESS, "root", "The address at the other end of the connection: a proxy's, if there is one."),
    attribute(NETWORK_PROTOCOL_VERSION, "root", "`1.1`, `2`, ..."),
    attribute(USER_AGENT_ORIGINAL, "root", "The header `User-Agent`, at most 512 bytes."),
    attribute(
        USER_AGENT_SYNTHETIC_TYPE,
        "root of a probe",
        "`test`, if the server sent it, or a prober that says so in `User-Agent`.",
    ),
    attribute(HTTP_RESPONSE_STATUS_CODE, "root", "The status of the answer; absent if the client left before it."),
    attribute(HTTP_RESPONSE_BODY_SIZE, "`http.stream`", "Bytes that were sent."),
    attribute(
        ERROR_TYPE,
        "root",
        "The status again if it is 500 or above; of an answer that broke while it was sent, why: `step_failed`, \
         `engine_dead`, ...",
    ),
    attribute(PROCESS_PID, "spans of the engine", "The engine's process, also after it is gone."),
];
