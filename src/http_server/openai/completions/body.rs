//! The body of a completion, and the prompts in it.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::http_server::error::ApiError;
use crate::http_server::generate::request::{refuse_empty, refuse_many};
use crate::http_server::openai::{Delivery, StreamOptions};
use crate::http_server::sampling::{self, MAX_SAMPLES, MAX_TOP_LOGPROBS};
use crate::tokenizer_manager::ServedModel;
use crate::tokenizer_manager::submit::Prompt;

/// The body of `/v1/completions`, its sampling fields apart. `null` is absent, and unknown fields are ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub struct CompletionsBody {
    pub model: Option<String>,
    pub prompt: Option<Prompts>,
    pub rid: Option<String>,
    pub priority: Option<i64>,
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    pub echo: Option<bool>,
    pub logprobs: Option<i64>,
    pub best_of: Option<i64>,
    pub suffix: Option<Value>,
    pub lora_path: Option<Value>,
    pub prompt_logprobs: Option<Value>,
    pub custom_logit_processor: Option<Value>,
    pub return_hidden_states: Option<Value>,
}

/// The four forms of a prompt.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string, a list of strings, a list of token ids, or a list of such lists")]
#[schemars(inline)]
pub enum Prompts {
    /// One text.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
    /// The ids of one prompt.
    Ids(Vec<i64>),
    /// The ids of several.
    IdLists(Vec<Vec<i64>>),
}

impl CompletionsBody {
    /// How the answer is to be delivered.
    ///
    /// # Errors
    /// Options for a stream that is not asked for.
    pub fn delivery(&self) -> Result<Delivery, ApiError> {
        Delivery::asked(self.stream, self.stream_options)
    }

    /// `Some(n)`: logprobs are asked for, with `n` rivals each.
    ///
    /// # Errors
    /// Out of range.
    pub fn top_logprobs(&self) -> Result<Option<u32>, ApiError> {
        self.logprobs.map(|top| sampling::whole("logprobs", top, 0..=MAX_TOP_LOGPROBS.into())).transpose()
    }

    /// How many samples of each prompt are drawn, for the best `n` of them.
    ///
    /// # Errors
    /// Fewer than `n`, too many, or more than `n` for a stream, which cannot wait for the best.
    pub fn samples(&self, n: u32, delivery: Delivery) -> Result<u32, ApiError> {
        let Some(best_of) = self.best_of else { return Ok(n) };
        let best_of = sampling::whole("best_of", best_of, n.into()..=MAX_SAMPLES.into())?;
        if best_of > n && delivery != Delivery::Whole {
            let message =
                format!("best_of is {best_of} and n is {n}; a stream cannot wait for the best, so they must be equal");
            return Err(ApiError::invalid("best_of", message));
        }
        Ok(best_of)
    }

    /// Refuses what is asked for and cannot be had.
    ///
    /// # Errors
    /// The field.
    pub fn refuse_unsupported(&self) -> Result<(), ApiError> {
        sampling::refuse([
            ("suffix", &self.suffix),
            ("lora_path", &self.lora_path),
            ("prompt_logprobs", &self.prompt_logprobs),
            ("custom_logit_processor", &self.custom_logit_processor),
            ("return_hidden_states", &self.return_hidden_states),
        ])
    }

    /// The prompts, none of them empty.
    ///
    /// # Errors
    /// None, or one that is to blame.
    pub fn prompts(self, model: &ServedModel) -> Result<Vec<Prompt>, ApiError> {
        let ids = |ids| sampling::token_ids("prompt", Some(ids), model.info.vocab_size).map(Prompt::Ids);
        let prompts = match self.prompt {
            None => Vec::new(),
            Some(Prompts::Text(text)) => vec![Prompt::Text(text)],
            Some(Prompts::Texts(texts)) => texts.into_iter().map(Prompt::Text).collect(),
            Some(Prompts::Ids(list)) => vec![ids(list)?],
            Some(Prompts::IdLists(lists)) => lists.into_iter().map(ids).collect::<Result<_, _>>()?,
        };
        if prompts.is_empty() {
            return Err(ApiError::invalid("prompt", "prompt must not be empty"));
        }
        refuse_many("prompt", prompts.len())?;
        prompts.iter().try_for_each(|prompt| refuse_empty("prompt", prompt, model))?;
        Ok(prompts)
    }
}
