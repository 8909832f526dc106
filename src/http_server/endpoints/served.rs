//! The table of what is served.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{Endpoint, Family, SchemaOf};
use crate::http_server::abort_request::AbortBody;
use crate::http_server::embed::Encoded;
use crate::http_server::embed::body::EncodeBody;
use crate::http_server::generate::request::GenerateBody;
use crate::http_server::health::ProbeQuery;
use crate::http_server::info::LoadsQuery;
use crate::http_server::levels::{Logging, LoggingBody, TraceLevelQuery, Tracing};
use crate::http_server::openai::embeddings::{EmbeddingsBody, List};
use crate::http_server::openai::tokenize::{DetokenizeBody, TokenizeBody};
use crate::http_server::openapi::answers::{
    Aborted, Alive, ChatCompletion, ChatCompletionChunk, Completion, Document, Done, Drills, Generated, Incidents,
    Loads, Model, ModelInfo, ModelList, ParsedCalls, Probes, Root, SeparatedReasoning, ServerInfo, Texts, Tokens,
};
use crate::http_server::openapi::requests::{ChatRequest, CompletionRequest};
use crate::http_server::parse::{FunctionCallBody, ReasoningBody};
use crate::http_server::pause::PauseBody;
use crate::http_server::readiness::Readiness;
use crate::http_server::sampling::OneOrMany;
use crate::io_struct::Fault;
use crate::probe_ledger::autopsy::Autopsy;

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

/// Media types of what Prometheus reads.
const EXPOSITION: &[&str] = &["text/plain", "application/openmetrics-text"];

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn of(family: Family, methods: &'static [&'static str], path: &'static str, what: &'static str) -> Endpoint {
    Endpoint {
        family,
        methods,
        path,
        what,
        statuses: &[200],
        alias_of: None,
        asks: None,
        takes: None,
        body_is_optional: false,
        gives: None,
        streams: None,
        texts: &[],
    }
}

const fn alias(family: Family, methods: &'static [&'static str], path: &'static str, of: &'static str) -> Endpoint {
    Endpoint { alias_of: Some(of), ..self::of(family, methods, path, "The same, by its older name.") }
}

impl Endpoint {
    const fn answers(self, statuses: &'static [u16]) -> Self {
        Self { statuses, ..self }
    }

    const fn asks(self, query: SchemaOf) -> Self {
        Self { asks: Some(query), ..self }
    }

    const fn takes(self, body: SchemaOf) -> Self {
        Self { takes: Some(body), ..self }
    }

    const fn may_take(self, body: SchemaOf) -> Self {
        Self { body_is_optional: true, ..self.takes(body) }
    }

    const fn gives(self, answer: SchemaOf) -> Self {
        Self { gives: Some(answer), ..self }
    }

    const fn streams(self, event: SchemaOf) -> Self {
        Self { streams: Some(event), ..self }
    }

    const fn texts(self, types: &'static [&'static str]) -> Self {
        Self { texts: types, ..self }
    }
}

/// Every path that is served, in reading order.
pub const ENDPOINTS: &[Endpoint] = &[
    of(Family::OpenAi, POST, "/v1/chat/completions", "Answers the last message of a chat.")
        .answers(GENERATES)
        .takes(schema::<ChatRequest>)
        .gives(schema::<ChatCompletion>)
        .streams(schema::<ChatCompletionChunk>),
    of(Family::OpenAi, POST, "/v1/completions", "Continues one prompt or several.")
        .answers(GENERATES)
        .takes(schema::<CompletionRequest>)
        .gives(schema::<Completion>)
        .streams(schema::<Completion>),
    of(Family::OpenAi, POST, "/v1/embeddings", "Embeds one text or several, with an embedding model.")
        .answers(GENERATES)
        .takes(schema::<EmbeddingsBody>)
        .gives(schema::<List<'static>>),
    of(Family::OpenAi, GET, "/v1/models", "What is served.").answers(&[200, 503]).gives(schema::<ModelList>),
    of(Family::OpenAi, GET, "/v1/models/{*model}", "One model, by its name or `default`.")
        .answers(&[200, 404, 503])
        .gives(schema::<Model>),
    of(Family::OpenAi, POST, "/v1/tokenize", "The tokens of `prompt`, a text or a list of them, or of `messages`.")
        .answers(READS)
        .takes(schema::<TokenizeBody>)
        .gives(schema::<Tokens>),
    alias(Family::OpenAi, POST, aliases::TOKENIZE, "/v1/tokenize")
        .answers(READS)
        .takes(schema::<TokenizeBody>)
        .gives(schema::<Tokens>),
    of(Family::OpenAi, POST, "/v1/detokenize", "The text of `tokens`, a list of ids or a list of such lists.")
        .answers(READS)
        .takes(schema::<DetokenizeBody>)
        .gives(schema::<Texts>),
    alias(Family::OpenAi, POST, aliases::DETOKENIZE, "/v1/detokenize")
        .answers(READS)
        .takes(schema::<DetokenizeBody>)
        .gives(schema::<Texts>),
    of(Family::Native, POST_PUT, "/generate", "Continues one prompt or several, with SGLang's fields.")
        .answers(GENERATES)
        .takes(schema::<GenerateBody>)
        .gives(schema::<OneOrMany<Generated>>)
        .streams(schema::<Generated>),
    of(Family::Native, POST_PUT, "/encode", "Embeds one text or several, with SGLang's fields.")
        .answers(GENERATES)
        .takes(schema::<EncodeBody>)
        .gives(schema::<OneOrMany<Encoded>>),
    of(
        Family::Native,
        POST,
        "/parse_function_call",
        "The calls in a `text` of at most 1 MiB that a model wrote, of `tools`, as `tool_call_parser` or the server's flag \
         reads them.",
    )
    .answers(&[200, 400, 413, 415])
    .takes(schema::<FunctionCallBody>)
    .gives(schema::<ParsedCalls>),
    of(
        Family::Native,
        POST,
        "/separate_reasoning",
        "Reasoning and answer in a `text` that a model wrote, as `reasoning_parser` or the server's flag reads them.",
    )
    .answers(&[200, 400, 413, 415])
    .takes(schema::<ReasoningBody>)
    .gives(schema::<SeparatedReasoning>),
    of(Family::Info, GET, "/", "Name and version.").gives(schema::<Root>),
    of(Family::Info, GET, "/openapi.json", "This API, as OpenAPI 3.1.").gives(schema::<Document>),
    of(Family::Info, GET, "/model_info", "The model: path, architecture, vocabulary, context, stop tokens.")
        .answers(&[200, 503])
        .gives(schema::<ModelInfo>),
    alias(Family::Info, GET, aliases::MODEL_INFO, "/model_info").answers(&[200, 503]).gives(schema::<ModelInfo>),
    of(Family::Info, GET, "/server_info", "Version, status, limits, and the load.")
        .answers(&[200, 503])
        .gives(schema::<ServerInfo>),
    alias(Family::Info, GET, aliases::SERVER_INFO, "/server_info").answers(&[200, 503]).gives(schema::<ServerInfo>),
    of(
        Family::Info,
        GET,
        "/v1/loads",
        "How busy the server is, for gateways; `format=json` or `prometheus`, `include=` some of core, memory, queues, \
         all.",
    )
    .answers(&[200, 400, 503])
    .asks(schema::<LoadsQuery>)
    .gives(schema::<Loads>)
    .texts(&["text/plain"]),
    of(
        Family::Control,
        POST,
        "/abort_request",
        "Ends the requests of `rid`, or with `abort_all: true` all of this frontend's. They end with the finish reason \
         abort; the answer says how many there were.",
    )
    .answers(&[200, 400, 413, 415])
    .takes(schema::<AbortBody>)
    .gives(schema::<Aborted>),
    of(
        Family::Control,
        POST,
        "/pause_generation",
        "Runs no batch from now on; `mode` says what becomes of the requests: abort (default), retract, in_place.",
    )
    .answers(&[200, 400, 413, 503])
    .may_take(schema::<PauseBody>)
    .gives(schema::<Done>),
    of(
        Family::Control,
        &["POST", "GET"],
        "/flush_cache",
        "Forgets the prefix cache; 400 while requests run or wait, and then nothing is done.",
    )
    .answers(&[200, 400, 503])
    .texts(&["text/plain"]),
    of(
        Family::Control,
        POST,
        "/configure_logging",
        "Changes what is logged from now on, here and in the engine: `log_level`, and with `log_requests` a line for each \
         finished request.",
    )
    .answers(&[200, 400, 413, 415, 503])
    .takes(schema::<LoggingBody>)
    .gives(schema::<Logging>),
    of(
        Family::Control,
        &["GET", "POST"],
        "/set_trace_level",
        "Changes how many good traces are kept: `level` 0 none, 1 as the flags say, 2 or 3 all. Failed and slow ones always \
         are.",
    )
    .answers(&[200, 400])
    .asks(schema::<TraceLevelQuery>)
    .gives(schema::<Tracing>),
    of(Family::Control, POST, "/continue_generation", "Runs batches again.").answers(&[200, 503]).gives(schema::<Done>),
    of(
        Family::Control,
        &["GET", "POST", "DELETE"],
        "/debug/fault",
        "Faults on purpose, with `--enable-drills`: what is on, switch one on, switch all off.",
    )
    .answers(&[200, 400, 403, 503])
    .takes(schema::<Fault>)
    .gives(schema::<Drills>),
    of(Family::Health, GET, "/health", "A probe that crosses the whole runtime.")
        .answers(&[200, 400, 503])
        .asks(schema::<ProbeQuery>)
        .gives(schema::<Autopsy>),
    of(Family::Health, GET, "/health_generate", "The same, also with `--disable-health-generation`.")
        .answers(&[200, 400, 503])
        .asks(schema::<ProbeQuery>)
        .gives(schema::<Autopsy>),
    of(Family::Health, GET, "/readyz", "May traffic be sent here? From the last verdict.")
        .answers(&[200, 503])
        .gives(schema::<Readiness>),
    of(Family::Health, GET, "/livez", "Alive, or would a restart help? 503: it would.")
        .answers(&[200, 503])
        .gives(schema::<Alive>),
    of(Family::Health, GET, "/startupz", "503 until it has started.").answers(&[200, 503]).gives(schema::<Readiness>),
    of(Family::Health, GET, "/ready", "Readiness as SGLang has it.").answers(&[200, 503]).gives(schema::<Readiness>),
    of(Family::Health, GET, "/ping", "Health as SageMaker asks for it.")
        .answers(&[200, 503])
        .gives(schema::<Readiness>),
    of(Family::Health, GET, "/metrics", "The series, for Prometheus.").texts(EXPOSITION),
    of(Family::Health, GET, "/debug/probes", "The last probes, hop by hop.").gives(schema::<Probes>),
    of(Family::Health, GET, "/debug/probes/{probe_id}", "One of them.").answers(&[200, 404]).gives(schema::<Autopsy>),
    of(Family::Health, GET, "/debug/incidents", "The last reports of incidents.").gives(schema::<Incidents>),
];
