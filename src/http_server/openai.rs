//! OpenAI's APIs: chat, completions, embeddings, models, and the tokens of a text.

pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod logprobs;
pub mod tools;
pub mod reasoning;
pub mod models;
pub mod tokenize;
pub mod reply;

use axum::Router;
use axum::routing::{get, post};
use schemars::JsonSchema;
use serde::Deserialize;

use super::endpoints::aliases;
use super::error::ApiError;
use super::generate::ApiState;

/// The paths below `/v1`, and the older names of some of them.
pub fn routes() -> Router<ApiState> {
    Router::new()
        .route("/v1/chat/completions", post(chat::chat_completions))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/tokenize", post(tokenize::tokenize))
        .route("/v1/detokenize", post(tokenize::detokenize))
        .route(aliases::TOKENIZE, post(tokenize::tokenize))
        .route(aliases::DETOKENIZE, post(tokenize::detokenize))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*model}", get(models::one))
}

/// OpenAI's `stream_options`.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StreamOptions {
    /// The last event before the end carries the usage of the whole request.
    pub include_usage: Option<bool>,
    /// Each event carries the usage of its choice so far, as in SGLang.
    pub continuous_usage_stats: Option<bool>,
}

/// Which events of a stream carry usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageIn {
    /// One of its own, the last: the whole request's.
    pub last: bool,
    /// Each: that of its choice so far.
    pub each: bool,
}

/// How an answer is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// One JSON object.
    Whole,
    /// Events.
    Stream {
        /// Which of them carry usage.
        usage: UsageIn,
    },
}

impl Delivery {
    /// What `stream` and `stream_options` ask for.
    ///
    /// # Errors
    /// Options for a stream that is not asked for.
    pub fn asked(stream: Option<bool>, options: Option<StreamOptions>) -> Result<Self, ApiError> {
        match (stream.unwrap_or(false), options) {
            (true, options) => {
                let options = options.unwrap_or_default();
                let (last, each) = (options.include_usage, options.continuous_usage_stats);
                Ok(Self::Stream { usage: UsageIn { last: last.unwrap_or(false), each: each.unwrap_or(false) } })
            }
            (false, None) => Ok(Self::Whole),
            (false, Some(_)) => Err(ApiError::invalid("stream_options", "stream_options needs stream: true")),
        }
    }
}
