//! What is answered, as types: the document is made of them, and tests read real answers into them.

mod openai;

pub use openai::*;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::http_server::error::ApiError;
use crate::http_server::sampling::OneOrMany;
use crate::probe_ledger::autopsy::Autopsy;
use crate::telemetry::exposition::loads::Load;
use crate::telemetry::labels::ServerStatus;

/// Any error of the APIs.
#[derive(JsonSchema)]
pub struct ErrorBody {
    /// What is wrong.
    pub error: ApiError,
}

/// What is served.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelList {
    /// `list`
    pub object: String,
    /// One.
    pub data: Vec<Model>,
}

/// A model.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Its name.
    pub id: String,
    /// `model`
    pub object: String,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// `radiosonde`
    pub owned_by: String,
    /// The name in its file.
    pub root: String,
    /// The context in tokens.
    pub max_model_len: u32,
    /// It generates; else it embeds.
    pub is_generation: bool,
}

/// The tokens of a text, or of several.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// Ids, or a list of them for each text.
    pub tokens: OneOrMany<OneOrMany<u32>>,
    /// How many.
    pub count: OneOrMany<u64>,
    /// The context in tokens.
    pub max_model_len: u32,
}

/// The text of tokens, or several.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Texts {
    /// One for each list of ids.
    pub text: OneOrMany<String>,
}

/// What `/generate` answers to one prompt; in a stream, the whole answer so far.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Generated {
    /// The text.
    pub text: String,
    /// Its tokens.
    pub output_ids: Vec<u32>,
    /// All about it.
    pub meta_info: MetaInfo,
    /// With `return_prompt_token_ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_ids: Option<Vec<u32>>,
    /// Whose event it is, where several prompts or samples were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

/// All about an answer of `/generate`.
#[derive(Debug, JsonSchema, Deserialize)]
pub struct MetaInfo {
    /// The rid.
    pub id: String,
    /// Null until the end; `type` is `stop`, `length` or `abort`.
    pub finish_reason: Option<Map<String, Value>>,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens of the output.
    pub completion_tokens: u32,
    /// Found in the prefix cache.
    pub cached_tokens: u32,
    /// How often it had to give way.
    pub num_retractions: u32,
    /// In seconds.
    pub e2e_latency: f64,
    /// Logprobs, as asked for.
    #[serde(flatten)]
    pub logprobs: Map<String, Value>,
}

/// Calls that were found in a text.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParsedCalls {
    /// What is said beside them.
    pub normal_text: String,
    /// In their order.
    pub calls: Vec<ParsedCall>,
}

/// A call that was found in a text.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParsedCall {
    /// Its place among the calls.
    pub tool_index: u32,
    /// What is called.
    pub name: String,
    /// JSON, as the model wrote it.
    pub parameters: String,
}

/// A text in two parts.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeparatedReasoning {
    /// What was thought.
    pub reasoning_text: String,
    /// What is said.
    pub text: String,
}

/// Who is here.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// `radiosonde`
    pub name: String,
    /// Its version.
    pub version: String,
    /// Where to ask for health.
    pub health: String,
}

/// An OpenAPI document.
#[derive(Debug, JsonSchema, Deserialize)]
pub struct Document {
    /// Its version.
    pub openapi: String,
    /// Path by path.
    pub paths: Map<String, Value>,
}

/// The model.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are SGLang's own")]
pub struct ModelInfo {
    pub model_path: String,
    pub tokenizer_path: String,
    pub served_model_name: String,
    pub is_generation: bool,
    pub embedding_dimensions: Option<u32>,
    pub preferred_sampling_params: Option<Value>,
    pub weight_version: String,
    pub has_image_understanding: bool,
    pub has_audio_understanding: bool,
    pub model_type: String,
    pub architectures: Vec<String>,
    pub vocab_size: u32,
    pub context_length: u32,
    pub eos_token_ids: Vec<u32>,
    pub has_chat_template: bool,
}

/// Limits and load.
#[derive(Debug, JsonSchema, Deserialize)]
#[expect(missing_docs, reason = "the names are SGLang's own")]
pub struct ServerInfo {
    pub version: String,
    pub status: ServerStatus,
    pub model_path: String,
    pub served_model_name: String,
    pub context_length: u32,
    pub max_total_num_tokens: u32,
    pub max_running_requests: u32,
    pub max_queued_requests: u32,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// How busy the server is.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names are SGLang's own")]
pub struct Loads {
    pub timestamp: String,
    pub version: String,
    pub dp_rank_count: u32,
    pub loads: Vec<RankLoad>,
    pub aggregate: Map<String, Value>,
}

/// The load of one rank; there is one.
#[derive(Debug, JsonSchema)]
#[expect(missing_docs, reason = "the names are SGLang's own")]
pub struct RankLoad {
    pub dp_rank: u32,
    #[schemars(flatten)]
    pub load: Load,
    #[schemars(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Map<String, Value>>,
    #[schemars(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<Map<String, Value>>,
}

/// How many requests were ended.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aborted {
    /// `ok`
    pub status: String,
    /// Requests.
    pub aborted: u64,
}

/// It is done.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Done {
    /// In a sentence.
    pub message: String,
    /// `ok`
    pub status: String,
}

/// Faults that are on.
#[derive(JsonSchema)]
pub struct Drills {
    /// Each with `ends_in_seconds`.
    pub on: Vec<Drill>,
}

/// A fault that is on.
#[derive(JsonSchema)]
pub struct Drill {
    /// Which.
    pub fault: String,
    /// Null: until it is switched off or used up.
    pub ends_in_seconds: Option<f64>,
}

/// Is a restart needed?
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alive {
    /// False: nothing but a restart can help.
    pub alive: bool,
    /// Why.
    pub reason: String,
    /// What follows from it.
    pub meaning: String,
}

/// The last probes.
#[derive(JsonSchema)]
pub struct Probes {
    /// How many are kept.
    pub kept: u32,
    /// Newest first.
    pub probes: Vec<Autopsy>,
}

/// The last reports.
#[derive(JsonSchema)]
pub struct Incidents {
    /// How many are kept.
    pub kept: u32,
    /// Newest first.
    pub incidents: Vec<Map<String, Value>>,
}
