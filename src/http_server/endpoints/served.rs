//! The table of what is served.

use super::{Endpoint, Family};

/// Older names of paths, as SGLang still has them.
pub mod aliases {
    /// `/model_info`
    pub const MODEL_INFO: &str = "/get_model_info";
    /// `/server_info`
    pub const SERVER_INFO: &str = "/get_server_info";
    /// `/v1/tokenize`
    pub const TOKENIZE: &str = "/tokenize";
    /// `/v1/detokenize`
    pub const DETOKENIZE: &str = "/detokenize";
}

const GET: &[&str] = &["GET"];
const POST: &[&str] = &["POST"];
const POST_PUT: &[&str] = &["POST", "PUT"];

/// Of what runs the model.
const GENERATES: &[u16] = &[200, 400, 404, 413, 415, 500, 503];
/// Of what reads a body and does not run the model.
const READS: &[u16] = &[200, 400, 404, 413, 415, 503];

const fn of(family: Family, methods: &'static [&'static str], path: &'static str, what: &'static str) -> Endpoint {
    Endpoint { family, methods, path, what, statuses: &[200], alias_of: None }
}

const fn alias(family: Family, methods: &'static [&'static str], path: &'static str, of: &'static str) -> Endpoint {
    Endpoint { family, methods, path, what: "The same, by its older name.", statuses: &[200], alias_of: Some(of) }
}

impl Endpoint {
    const fn answers(self, statuses: &'static [u16]) -> Self {
        Self { statuses, ..self }
    }
}

/// Every path that is served, in reading order.
pub const ENDPOINTS: &[Endpoint] = &[
    of(Family::OpenAi, POST, "/v1/chat/completions", "Answers the last message of a chat.").answers(GENERATES),
    of(Family::OpenAi, POST, "/v1/completions", "Continues one prompt or several.").answers(GENERATES),
    of(Family::OpenAi, POST, "/v1/embeddings", "Embeds one text or several, with an embedding model.")
        .answers(GENERATES),
    of(Family::OpenAi, GET, "/v1/models", "What is served.").answers(&[200, 503]),
    of(Family::OpenAi, GET, "/v1/models/{*model}", "One model, by its name or `default`.").answers(&[200, 404, 503]),
    of(Family::OpenAi, POST, "/v1/tokenize", "The tokens of `prompt`, a text or a list of them, or of `messages`.")
        .answers(READS),
    alias(Family::OpenAi, POST, aliases::TOKENIZE, "/v1/tokenize").answers(READS),
    of(Family::OpenAi, POST, "/v1/detokenize", "The text of `tokens`, a list of ids or a list of such lists.")
        .answers(READS),
    alias(Family::OpenAi, POST, aliases::DETOKENIZE, "/v1/detokenize").answers(READS),
    of(Family::Native, POST_PUT, "/generate", "Continues one prompt or several, with SGLang's fields.")
        .answers(GENERATES),
    of(Family::Native, POST_PUT, "/encode", "Embeds one text or several, with SGLang's fields.").answers(GENERATES),
    of(
        Family::Native,
        POST,
        "/parse_function_call",
        "The calls in a `text` that a model wrote, of `tools`, as `tool_call_parser` or the server's flag reads them.",
    )
    .answers(&[200, 400, 413, 415]),
    of(
        Family::Native,
        POST,
        "/separate_reasoning",
        "Reasoning and answer in a `text` that a model wrote, as `reasoning_parser` or the server's flag reads them.",
    )
    .answers(&[200, 400, 413, 415]),
    of(Family::Info, GET, "/", "Name and version."),
    of(Family::Info, GET, "/model_info", "The model: path, architecture, vocabulary, context, stop tokens.")
        .answers(&[200, 503]),
    alias(Family::Info, GET, aliases::MODEL_INFO, "/model_info").answers(&[200, 503]),
    of(Family::Info, GET, "/server_info", "Version, status, limits, and the load.").answers(&[200, 503]),
    alias(Family::Info, GET, aliases::SERVER_INFO, "/server_info").answers(&[200, 503]),
    of(
        Family::Info,
        GET,
        "/v1/loads",
        "How busy the server is, for gateways; `format=json` or `prometheus`, `include=` some of core, memory, queues, \
         all.",
    )
    .answers(&[200, 400, 503]),
    of(
        Family::Control,
        POST,
        "/abort_request",
        "Ends the requests of `rid`, or with `abort_all: true` all of this frontend's. They end with the finish reason \
         abort; the answer says how many there were.",
    )
    .answers(&[200, 400, 413, 415]),
    of(
        Family::Control,
        POST,
        "/pause_generation",
        "Runs no batch from now on; `mode` says what becomes of the requests: abort (default), retract, in_place.",
    )
    .answers(&[200, 400, 413, 503]),
    of(
        Family::Control,
        &["POST", "GET"],
        "/flush_cache",
        "Forgets the prefix cache; 400 while requests run or wait, and then nothing is done.",
    )
    .answers(&[200, 400, 503]),
    of(Family::Control, POST, "/continue_generation", "Runs batches again.").answers(&[200, 503]),
    of(
        Family::Control,
        &["GET", "POST", "DELETE"],
        "/debug/fault",
        "Faults on purpose, with `--enable-drills`: what is on, switch one on, switch all off.",
    )
    .answers(&[200, 400, 403]),
    of(Family::Health, GET, "/health", "A probe that crosses the whole runtime.").answers(&[200, 400, 503]),
    of(Family::Health, GET, "/health_generate", "The same, also with `--disable-health-generation`.")
        .answers(&[200, 400, 503]),
    of(Family::Health, GET, "/readyz", "May traffic be sent here? From the last verdict.").answers(&[200, 503]),
    of(Family::Health, GET, "/livez", "Alive, or would a restart help? 503: it would.").answers(&[200, 503]),
    of(Family::Health, GET, "/startupz", "503 until it has started.").answers(&[200, 503]),
    of(Family::Health, GET, "/ready", "Readiness as SGLang has it.").answers(&[200, 503]),
    of(Family::Health, GET, "/ping", "Health as SageMaker asks for it.").answers(&[200, 503]),
    of(Family::Health, GET, "/metrics", "The series, for Prometheus."),
    of(Family::Health, GET, "/debug/probes", "The last probes, hop by hop."),
    of(Family::Health, GET, "/debug/probes/{probe_id}", "One of them.").answers(&[200, 404]),
    of(Family::Health, GET, "/debug/incidents", "The last reports of incidents."),
];
