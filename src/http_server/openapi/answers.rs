//! What is answered, as types: the document is made of them, and tests read real answers into them.

use std::collections::BTreeMap;

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

/// A chat's answer.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatCompletion {
    /// `chatcmpl-<rid>`
    pub id: String,
    /// `chat.completion`
    pub object: String,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// Who answers.
    pub model: String,
    /// As many as `n`.
    pub choices: Vec<ChatChoice>,
    /// Tokens of all of it.
    pub usage: Usage,
}

/// One sample of a chat's answer.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatChoice {
    /// From 0.
    pub index: u32,
    /// What is said.
    pub message: ChatMessage,
    /// If they were asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended.
    pub finish_reason: FinishName,
    /// The stop string or token.
    pub matched_stop: Option<MatchedStop>,
}

/// What the model says.
#[derive(Debug, JsonSchema, Deserialize)]
pub struct ChatMessage {
    /// `assistant`
    pub role: String,
    /// The text.
    pub content: Option<String>,
}

/// One event of a chat's stream.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatCompletionChunk {
    /// `chatcmpl-<rid>`
    pub id: String,
    /// `chat.completion.chunk`
    pub object: String,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// Who answers.
    pub model: String,
    /// None in the event that carries the usage alone.
    pub choices: Vec<ChatChunkChoice>,
    /// With `stream_options`: tokens so far, or of all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// News of one sample.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatChunkChoice {
    /// From 0.
    pub index: u32,
    /// What is new.
    pub delta: ChatDelta,
    /// If they were asked for.
    pub logprobs: Option<ChatLogprobs>,
    /// Null until the end.
    pub finish_reason: Option<FinishName>,
    /// The stop string or token.
    pub matched_stop: Option<MatchedStop>,
}

/// What was said since the last event.
#[derive(Debug, JsonSchema, Deserialize)]
pub struct ChatDelta {
    /// In the first event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// Logprobs of a chat.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatLogprobs {
    /// One entry for each token.
    pub content: Vec<ChatLogprob>,
    /// Always null.
    pub refusal: Option<Value>,
}

/// Of one token of a chat.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatLogprob {
    /// Its text.
    pub token: String,
    /// At most 0; -9999 where it is minus infinity.
    pub logprob: f32,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The likeliest tokens in its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub top_logprobs: Vec<ChatLogprob>,
}

/// Why a choice ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishName {
    /// A stop token or a stop string.
    Stop,
    /// The asked number of tokens, or the end of the context.
    Length,
    /// Calls, which the caller is to make.
    ToolCalls,
    /// Ended on request.
    Abort,
}

/// What a choice stopped at.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(untagged)]
#[schemars(inline)]
pub enum MatchedStop {
    /// A token.
    Token(u32),
    /// A stop string.
    Text(String),
}

/// A completion, whole or one event of its stream.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Completion {
    /// `cmpl-<rid>`
    pub id: String,
    /// `text_completion`
    pub object: String,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// Who answers.
    pub model: String,
    /// All samples of the first prompt, then of the second, and so on.
    pub choices: Vec<CompletionChoice>,
    /// Always there in a whole answer; in a stream as `stream_options` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// One sample of a completion.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionChoice {
    /// From 0.
    pub index: u32,
    /// The text, or what is new of it.
    pub text: String,
    /// If they were asked for.
    pub logprobs: Option<CompletionLogprobs>,
    /// Null until the end.
    pub finish_reason: Option<FinishName>,
    /// The stop string or token.
    pub matched_stop: Option<MatchedStop>,
}

/// Logprobs of a completion: lists side by side.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompletionLogprobs {
    /// The tokens' texts.
    pub tokens: Vec<String>,
    /// Null for the first token of an echoed prompt.
    pub token_logprobs: Vec<Option<f32>>,
    /// The likeliest tokens by their text.
    pub top_logprobs: Vec<Option<BTreeMap<String, f32>>>,
    /// Where each begins, in characters.
    pub text_offset: Vec<u64>,
}

/// Tokens of an answer.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Of the prompts.
    pub prompt_tokens: u64,
    /// Of all samples.
    pub completion_tokens: u64,
    /// Both.
    pub total_tokens: u64,
    /// More about the prompts.
    pub prompt_tokens_details: PromptTokensDetails,
}

/// More about the tokens of the prompts.
#[derive(Debug, JsonSchema, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptTokensDetails {
    /// Found in the prefix cache.
    pub cached_tokens: u64,
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
