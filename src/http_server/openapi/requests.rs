//! Bodies that are read in two parts, as one type for the document.

use schemars::JsonSchema;
use serde_json::{Map, Value};

use crate::http_server::openai::chat::body::ChatBody;
use crate::http_server::openai::completions::body::CompletionsBody;
use crate::http_server::sampling::SamplingFields;

/// A text, or the object itself: what fields of any type may hold.
#[derive(JsonSchema)]
#[schemars(untagged, inline)]
pub enum TextOrObject {
    /// As text.
    Text(String),
    /// As it is.
    Object(Map<String, Value>),
}

/// The body of `/v1/chat/completions`. `null` is absent, and unknown fields are ignored.
#[derive(JsonSchema)]
pub struct ChatRequest {
    /// What is said, and how the answer is delivered.
    #[schemars(flatten)]
    pub body: ChatBody,
    /// How the answer is sampled.
    #[schemars(flatten)]
    pub sampling: SamplingFields,
}

/// The body of `/v1/completions`. `null` is absent, and unknown fields are ignored.
#[derive(JsonSchema)]
pub struct CompletionRequest {
    /// What is continued, and how the answer is delivered.
    #[schemars(flatten)]
    pub body: CompletionsBody,
    /// How the answer is sampled.
    #[schemars(flatten)]
    pub sampling: SamplingFields,
}
