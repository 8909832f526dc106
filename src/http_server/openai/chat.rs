//! `/v1/chat/completions`

pub mod body;
mod parts;
mod plan;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Map, Value, json};

use super::reply::{Reply, finish, unix_seconds_now};
use super::{Delivery, UsageIn, logprobs, models};
use crate::http_server::apart::apart;
use crate::http_server::error::ApiError;
use crate::http_server::generate::ApiState;
use crate::http_server::generate::body::SampledJson;
use crate::http_server::generate::exchange::{Call, Chunks, collect, stream_response, submit};
use crate::http_server::generate::request::{caller_rid, samples};
use crate::io_struct::{LogprobsWanted, TokenLogprob};
use crate::telemetry::labels::RequestEndpoint;
use crate::tokenizer::PromptPart;
use crate::tokenizer_manager::ServedModel;
use crate::tokenizer_manager::request::{GenerateOutput, Usage};
use crate::tokenizer_manager::submit::{GenerateReqInput, Prompt};
use body::ChatBody;
use parts::{End, Parts};
use plan::Plan;

/// Answers the last message of a chat. The response carries the call's `Rid` as an extension.
///
/// # Errors
/// Bad input, a chat that the model's template refuses, or a server that does not serve.
pub async fn chat_completions(
    State(state): State<ApiState>,
    SampledJson(mut body, fields): SampledJson<ChatBody>,
) -> Result<Response, ApiError> {
    let model = state.tokenizer_manager.model()?;
    models::check(body.model.as_deref(), &model)?;
    body.refuse_unsupported()?;
    let mut sampling = fields.check(RequestEndpoint::ChatCompletions, model.info.vocab_size)?;
    let plan = Plan::new(&mut body, &mut sampling.params, &model, state.parsers)?;
    let (delivery, top_logprobs) = (body.delivery()?, body.top_logprobs()?);
    let (rid, priority) = (caller_rid(body.rid.as_deref())?, body.priority);
    let extra = body.chat_template_kwargs.take().unwrap_or_default();
    let prompt = render(Arc::clone(&model), body.messages()?, plan.tools_for_template(), extra).await?;
    let request = GenerateReqInput {
        rid: rid.clone(),
        prompt: Arc::new(Prompt::Rendered(prompt)),
        sampling_params: sampling.params,
        max_new_tokens: sampling.max_new_tokens,
        logprobs: top_logprobs.map(|top| LogprobsWanted { top, ..LogprobsWanted::default() }),
        priority,
        endpoint: RequestEndpoint::ChatCompletions,
    };
    let mut requests = Vec::new();
    samples(request, sampling.n, &mut requests)?;
    let n = requests.len();
    let reply = Reply { id: format!("chatcmpl-{rid}"), created: unix_seconds_now(), model, n };
    let chat = Chat { reply, logprobs: top_logprobs.is_some(), plan };

    let call = Call { model: &chat.reply.model, id: &chat.reply.id, stream: delivery != Delivery::Whole };
    let mut streams = submit(&state.tokenizer_manager, &call, requests).await?;
    let answer = match delivery {
        Delivery::Stream { usage } => stream_response(streams, ChatChunks::new(chat, n, usage)),
        Delivery::Whole => Json(chat.whole(collect(&mut streams).await?)).into_response(),
    };
    Ok((Extension(rid), answer).into_response())
}

/// Renders on a thread where it may take its time: a chat can be as large as a body. `tools`: what may be called;
/// `extra`: variables of the template.
///
/// # Errors
/// The model has no template, or it refuses the messages.
pub async fn render(
    model: Arc<ServedModel>,
    messages: Vec<Value>,
    tools: Vec<Value>,
    extra: Map<String, Value>,
) -> Result<Vec<PromptPart>, ApiError> {
    apart(move || {
        let parts = match &model.chat_template {
            Some(template) => template.render_with(&messages, &tools, &extra, &model.tokenizer),
            None => Err("this model has no chat template; use /v1/completions or /generate".to_owned()),
        };
        parts.map_err(|message| ApiError::invalid("messages", message))
    })
    .await
}

struct Chat {
    reply: Reply,
    /// They were asked for.
    logprobs: bool,
    plan: Plan,
}

impl Chat {
    fn whole(&self, outputs: Vec<GenerateOutput>) -> Value {
        let usages: Vec<Usage> = outputs.iter().map(|output| output.usage).collect();
        let choice = |(index, output): (usize, GenerateOutput)| {
            let mut parts = self.plan.parts();
            let mut choice = json!({
                "index": index,
                "message": parts.message(&output.text),
                "logprobs": self.logprobs(&output.logprobs),
            });
            finish(&mut choice, output.finish_reason.as_ref());
            parts.say_calls(&mut choice);
            choice
        };
        let mut answer = self.reply.object("chat.completion", outputs.into_iter().enumerate().map(choice).collect());
        answer["usage"] = self.reply.usage(&usages);
        answer
    }

    fn logprobs(&self, entries: &[TokenLogprob]) -> Option<Value> {
        self.logprobs.then(|| logprobs::chat(&self.reply.model.tokenizer, entries))
    }
}

/// Events of a chat: the role, then what was said since the last event, then how it ended.
struct ChatChunks {
    chat: Chat,
    /// Counts of each choice, once its role has been sent.
    usages: Vec<Option<Usage>>,
    /// Each choice, taken apart.
    parts: Vec<Parts>,
    usage_wanted: UsageIn,
}

impl ChatChunks {
    fn new(chat: Chat, n: usize, usage_wanted: UsageIn) -> Self {
        let parts = (0..n).map(|_| chat.plan.parts()).collect();
        Self { chat, usages: vec![None; n], parts, usage_wanted }
    }

    fn chunk(&self, choices: Vec<Value>) -> Value {
        self.chat.reply.object("chat.completion.chunk", choices)
    }
}

impl Chunks for ChatChunks {
    fn news(&mut self, index: usize, news: GenerateOutput) -> Vec<Value> {
        let mut choices = Vec::new();
        let mut push = |delta: Value, logprobs: Option<Value>, reason| {
            let mut choice = json!({"index": index, "delta": delta, "logprobs": logprobs});
            finish(&mut choice, reason);
            choices.push(choice);
        };
        let end = if news.finish_reason.is_some() { End::Last } else { End::Open };
        let mut deltas = self.parts[index].deltas(&news.text, end);
        if self.usages[index].replace(news.usage).is_none() {
            push(json!({"role": "assistant", "content": ""}), None, None);
        }
        if deltas.is_empty() && !news.logprobs.is_empty() {
            deltas.push(json!({"content": ""}));
        }
        let mut logprobs = self.chat.logprobs(&news.logprobs);
        for delta in deltas {
            push(delta, logprobs.take(), None);
        }
        if news.finish_reason.is_some() {
            push(json!({}), None, news.finish_reason.as_ref());
            choices.last_mut().into_iter().for_each(|choice| self.parts[index].say_calls(choice));
        }
        let each = self.usage_wanted.each.then(|| self.chat.reply.usage(&[news.usage]));
        let chunk = |choice| {
            let mut chunk = self.chunk(vec![choice]);
            if let Some(usage) = &each {
                chunk["usage"] = usage.clone();
            }
            chunk
        };
        choices.into_iter().map(chunk).collect()
    }

    fn closing(&mut self) -> Vec<Value> {
        if !self.usage_wanted.last {
            return Vec::new();
        }
        let usages: Vec<Usage> = self.usages.iter().map(|usage| usage.unwrap_or_default()).collect();
        let mut last = self.chunk(Vec::new());
        last["usage"] = self.chat.reply.usage(&usages);
        vec![last]
    }
}

#[cfg(test)]
mod tests;
