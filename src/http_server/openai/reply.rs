//! What every answer of OpenAI's APIs carries.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::clock::{MonoNanos, WallAnchor};
use crate::io_struct::FinishReason;
use crate::tokenizer_manager::ServedModel;
use crate::tokenizer_manager::request::Usage;

/// What all objects of one answer have in common.
#[derive(Clone)]
pub struct Reply {
    /// `chatcmpl-<rid>` or `cmpl-<rid>`.
    pub id: String,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// Who answers.
    pub model: Arc<ServedModel>,
    /// Samples of each prompt: the choices of a prompt stand side by side.
    pub n: usize,
}

impl Reply {
    /// An object of this answer.
    #[must_use]
    pub fn object(&self, kind: &str, choices: Vec<Value>) -> Value {
        json!({
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model.served_name,
            "choices": choices,
        })
    }

    /// Tokens of the whole answer, from those of each choice; a prompt counts once however often it is sampled.
    #[must_use]
    pub fn usage(&self, choices: &[Usage]) -> Value {
        let prompts = || choices.iter().step_by(self.n.max(1));
        let prompt: u64 = prompts().map(|usage| u64::from(usage.prompt_tokens)).sum();
        let cached: u64 = prompts().map(|usage| u64::from(usage.cached_tokens)).sum();
        let completion: u64 = choices.iter().map(|usage| u64::from(usage.completion_tokens)).sum();
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": cached},
        })
    }
}

/// Adds `finish_reason` and, as SGLang does, `matched_stop` to a choice. Both keys are always there.
pub fn finish(choice: &mut Value, reason: Option<&FinishReason>) {
    let (name, matched) = match reason {
        Some(FinishReason::StopToken(id)) => (json!("stop"), json!(id)),
        Some(FinishReason::StopString(text)) => (json!("stop"), json!(text)),
        Some(FinishReason::Grammar) => (json!("stop"), Value::Null),
        Some(FinishReason::Length(_)) => (json!("length"), Value::Null),
        // On request, that is: all other aborts are errors, and no choice ends with them.
        Some(FinishReason::Abort { .. }) => (json!("abort"), Value::Null),
        None => (Value::Null, Value::Null),
    };
    choice["finish_reason"] = name;
    choice["matched_stop"] = matched;
}

/// Seconds since the Unix epoch.
#[must_use]
pub fn unix_seconds_now() -> u64 {
    WallAnchor::now().unix_seconds(MonoNanos::now()) as u64
}
