//! Station 2: text to ids, into the table, to the engine.

use crate::io_struct::{Rid, SamplingParams, TokenId};
use crate::telemetry::labels::RequestEndpoint;

/// A request as the APIs hand it over; SGLang's `GenerateReqInput` for one prompt.
#[derive(Debug, Clone)]
pub struct GenerateReqInput {
    /// The caller's rid, or a fresh one.
    pub rid: Rid,
    /// What to continue.
    pub prompt: Prompt,
    /// Checked parameters. `max_new_tokens` is `None` if the caller did not ask: the room left in the context bounds it.
    pub sampling_params: SamplingParams,
    /// `None`: the caller gave no output length.
    pub max_new_tokens: Option<u32>,
    /// `Some(n)`: logprobs of the output tokens and their `n` likeliest rivals.
    pub top_logprobs: Option<u32>,
    /// Which API it came by, for metrics.
    pub endpoint: RequestEndpoint,
}

/// What to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// A raw prompt: whoever writes it writes its control tokens too.
    Text(String),
    /// A rendered chat template; nothing is added to it.
    Rendered(Vec<PromptPart>),
    /// Ids.
    Ids(Vec<TokenId>),
}

/// A piece of a rendered chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptPart {
    /// A control token that the template wrote.
    Control(TokenId),
    /// Everything between two of them, what users typed included: never becomes a control token.
    Text(String),
}

/// Why a request was refused.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// A field is to blame.
    #[error("{message}")]
    Invalid {
        /// The field.
        param: String,
        /// What is wrong, with the limit.
        message: String,
    },
    /// Does not fit into the context.
    #[error("{message}")]
    ContextLength {
        /// The field.
        param: String,
        /// With context, prompt and asked output.
        message: String,
    },
    /// `--max-queued-requests` reached.
    #[error("{0}")]
    QueueFull(String),
    /// Starting or draining.
    #[error("{0}")]
    NotServing(String),
    /// The engine is gone.
    #[error("the engine is dead")]
    EngineDead,
    /// The runtime failed.
    #[error("{0}")]
    Failed(String),
}
