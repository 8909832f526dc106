//! What OpenAI's APIs answer, as types.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

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
