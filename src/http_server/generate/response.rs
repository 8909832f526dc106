//! The answer of `/generate`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::exchange::{Chunks, abort_error, append};
use super::request::Shape;
use crate::clock::MonoNanos;
use crate::http_server::error::ApiError;
use crate::io_struct::{AbortKind, FinishReason, Rid, TokenId, TokenLogprob};
use crate::tokenizer_manager::ServedModel;
use crate::tokenizer_manager::request::GenerateOutput;

/// What the answers of one call have in common.
#[derive(Clone)]
pub struct Answer {
    /// Who answers.
    pub model: Arc<ServedModel>,
    /// When the call arrived.
    pub arrived: MonoNanos,
    /// Which logprobs were asked for.
    pub logprobs: Logprobs,
}

/// Which logprobs were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logprobs {
    /// Those of the output tokens, and of how many rivals each.
    pub top: Option<u32>,
    /// Each with the token's text.
    pub text: bool,
}

impl Answer {
    /// The answer to one request, from its whole output so far.
    #[must_use]
    pub fn object(&self, rid: &Rid, output: &GenerateOutput) -> Value {
        let usage = output.usage;
        let mut answer = json!({
            "text": output.text,
            "output_ids": output.output_ids,
            "meta_info": {
                "id": rid,
                "finish_reason": output.finish_reason.as_ref().map(finish_reason),
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "cached_tokens": usage.cached_tokens,
                "num_retractions": usage.num_retractions,
                "e2e_latency": self.arrived.elapsed().as_secs_f64(),
            }
        });
        if let Some(top) = self.logprobs.top {
            let of = |entry: &TokenLogprob| self.triple(entry.token, entry.logprob);
            answer["meta_info"]["output_token_logprobs"] = output.logprobs.iter().map(of).collect();
            if top > 0 {
                let rivals = |entry: &TokenLogprob| -> Value {
                    entry.top.iter().map(|(token, logprob)| self.triple(*token, *logprob)).collect()
                };
                answer["meta_info"]["output_top_logprobs"] = output.logprobs.iter().map(rivals).collect();
            }
        }
        answer
    }

    /// `[logprob, id, text or null]`
    fn triple(&self, token: TokenId, logprob: f32) -> Value {
        let text = self.logprobs.text.then(|| self.model.tokenizer.decode(&[token]));
        json!([finite(logprob), token, text])
    }
}

/// A logprob as JSON can hold it: never above 0, and impossible is -9999, as OpenAI has it.
#[must_use]
pub fn finite(logprob: f32) -> f32 {
    logprob.clamp(-9999.0, 0.0)
}

/// Aborts on request are an answer here, with finish reason `abort`; all others are an error.
#[must_use]
pub fn error(finish_reason: Option<&FinishReason>) -> Option<ApiError> {
    match finish_reason {
        Some(FinishReason::Abort { kind: AbortKind::Requested, .. }) => None,
        other => abort_error(other),
    }
}

/// SGLang's object of a finish reason.
#[must_use]
pub fn finish_reason(reason: &FinishReason) -> Value {
    match reason {
        FinishReason::StopToken(id) => json!({"type": "stop", "matched": id}),
        FinishReason::StopString(text) => json!({"type": "stop", "matched": text}),
        FinishReason::Length(length) => json!({"type": "length", "length": length}),
        FinishReason::Abort { message, .. } => {
            let status = abort_error(Some(reason)).map(|error| error.status.as_u16());
            json!({"type": "abort", "message": message, "status_code": status, "err_type": "aborted"})
        }
    }
}

/// Events of `/generate`: the whole answer so far, each time.
pub struct Cumulative {
    answer: Answer,
    shape: Shape,
    outputs: Vec<(Rid, GenerateOutput)>,
}

impl Cumulative {
    /// For requests with these rids.
    #[must_use]
    pub fn new(answer: Answer, shape: Shape, rids: impl IntoIterator<Item = Rid>) -> Self {
        Self { answer, shape, outputs: rids.into_iter().map(|rid| (rid, GenerateOutput::default())).collect() }
    }
}

impl Chunks for Cumulative {
    fn news(&mut self, index: usize, news: GenerateOutput) -> Vec<Value> {
        let (rid, whole) = &mut self.outputs[index];
        append(whole, news);
        let mut answer = self.answer.object(rid, whole);
        if self.shape == Shape::List {
            answer["index"] = json!(index);
        }
        vec![answer]
    }

    fn closing(&mut self) -> Vec<Value> {
        Vec::new()
    }

    fn error(&self, finish_reason: Option<&FinishReason>) -> Option<ApiError> {
        error(finish_reason)
    }
}

#[cfg(test)]
mod tests;
