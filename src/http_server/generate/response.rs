//! The answer of `/generate`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::exchange::Chunks;
use super::logprobs::Shown;
use super::request::Shape;
use crate::clock::MonoNanos;
use crate::io_struct::{FinishReason, Rid, TokenId};
use crate::tokenizer_manager::ServedModel;
use crate::tokenizer_manager::request::{GenerateOutput, RequestStream};

/// What the answers of one call have in common.
#[derive(Clone)]
pub struct Answer {
    /// Who answers.
    pub model: Arc<ServedModel>,
    /// When the call arrived.
    pub arrived: MonoNanos,
    /// The ids of the prompt are part of the answer.
    pub with_prompt: bool,
}

impl Answer {
    /// Tells the output of one request of the call.
    #[must_use]
    pub fn teller(&self, stream: &RequestStream, logprobs: Shown) -> Teller {
        Teller { answer: self.clone(), rid: stream.rid().clone(), prompt: Arc::clone(stream.prompt_ids()), logprobs }
    }
}

/// Tells the output of one request.
pub struct Teller {
    answer: Answer,
    rid: Rid,
    prompt: Arc<[TokenId]>,
    logprobs: Shown,
}

impl Teller {
    /// The answer to the request, from its whole output so far.
    #[must_use]
    pub fn object(&self, output: &GenerateOutput) -> Value {
        let usage = output.usage;
        let mut meta_info = json!({
            "id": self.rid,
            "finish_reason": output.finish_reason.as_ref().map(finish_reason),
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
            "num_retractions": usage.num_retractions,
            "e2e_latency": self.answer.arrived.elapsed().as_secs_f64(),
        });
        self.logprobs.add(&mut meta_info, &self.answer.model, &self.prompt, output);
        let mut answer = json!({"text": output.text, "output_ids": output.output_ids, "meta_info": meta_info});
        if self.answer.with_prompt {
            answer["prompt_token_ids"] = json!(self.prompt);
        }
        answer
    }
}

/// SGLang's object of a finish reason.
#[must_use]
pub fn finish_reason(reason: &FinishReason) -> Value {
    match reason {
        FinishReason::StopToken(id) => json!({"type": "stop", "matched": id}),
        FinishReason::StopString(text) => json!({"type": "stop", "matched": text}),
        FinishReason::Grammar => json!({"type": "stop", "matched": null}),
        FinishReason::Length(length) => json!({"type": "length", "length": length}),
        FinishReason::Abort { message, .. } => {
            json!({"type": "abort", "message": message, "status_code": null, "err_type": null})
        }
    }
}

/// Events of `/generate`: the whole answer so far, each time.
pub struct Cumulative {
    shape: Shape,
    outputs: Vec<(Teller, GenerateOutput)>,
}

impl Cumulative {
    /// For the requests that `tellers` tell of.
    #[must_use]
    pub fn new(tellers: Vec<Teller>, shape: Shape) -> Self {
        Self { shape, outputs: tellers.into_iter().map(|teller| (teller, GenerateOutput::default())).collect() }
    }
}

impl Chunks for Cumulative {
    fn news(&mut self, index: usize, news: GenerateOutput) -> Vec<Value> {
        let (teller, whole) = &mut self.outputs[index];
        whole.append(news);
        let mut answer = teller.object(whole);
        if self.shape == Shape::List {
            answer["index"] = json!(index);
        }
        vec![answer]
    }

    fn closing(&mut self) -> Vec<Value> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests;
