//! `/v1/completions`

pub mod body;

use std::cmp::Ordering;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::{Value, json};

use super::logprobs::{CompletionLogprobs, Scored};
use super::reply::{Reply, finish, unix_seconds_now};
use super::{Delivery, UsageIn, models};
use crate::http_server::error::ApiError;
use crate::http_server::generate::ApiState;
use crate::http_server::generate::body::SampledJson;
use crate::http_server::generate::exchange::{Call, Chunks, collect, stream_response, submit};
use crate::http_server::generate::logprobs::finite;
use crate::http_server::generate::request::{caller_rid, numbered, samples};
use crate::http_server::sampling::Sampling;
use crate::io_struct::{LogprobsWanted, Rid, TokenId};
use crate::telemetry::labels::RequestEndpoint;
use crate::tokenizer_manager::request::{GenerateOutput, RequestStream, Usage};
use crate::tokenizer_manager::submit::{GenerateReqInput, Prompt};
use body::CompletionsBody;

/// Continues one prompt or several. The response carries the call's `Rid` as an extension.
///
/// # Errors
/// Bad input, or a server that does not serve.
pub async fn completions(
    State(state): State<ApiState>,
    SampledJson(body, fields): SampledJson<CompletionsBody>,
) -> Result<Response, ApiError> {
    let model = state.tokenizer_manager.model()?;
    models::check(body.model.as_deref(), &model)?;
    let mut sampling = fields.check(RequestEndpoint::Completions, model.info.vocab_size)?;
    body.refuse_unsupported()?;
    let (delivery, top_logprobs, echo) = (body.delivery()?, body.top_logprobs()?, body.echo.unwrap_or(false));
    let rid = caller_rid(body.rid.as_deref())?;
    let n = sampling.n;
    sampling.n = body.samples(n, delivery)?;
    let ranks = sampling.n > n;
    let wanted = |top| LogprobsWanted { top, token_ids: Vec::new(), input_from: echo.then_some(0) };
    let wanted = top_logprobs.map(wanted).or(ranks.then(LogprobsWanted::default));
    let priority = body.priority;
    let mut requests = requests(&rid, body.prompts(&model)?, &sampling, wanted.as_ref())?;
    requests.iter_mut().for_each(|request| request.priority = priority);
    let reply = Reply { id: format!("cmpl-{rid}"), created: unix_seconds_now(), model, n: sampling.n as usize };

    let prompts: Vec<_> = requests.iter().map(|request| echo.then(|| Arc::clone(&request.prompt))).collect();
    let call = Call { model: &reply.model, id: &reply.id, stream: delivery != Delivery::Whole };
    let mut streams = submit(&state.tokenizer_manager, &call, requests).await?;
    let choice = |(stream, prompt): (&RequestStream, Option<Arc<Prompt>>)| {
        let echo = prompt.map(|prompt| Echo::new(&reply, stream, &prompt));
        Choice { echo, logprobs: top_logprobs.map(|_| CompletionLogprobs::default()), usage: Usage::default() }
    };
    let choices: Vec<Choice> = streams.iter().zip(prompts).map(choice).collect();
    let answer = match delivery {
        Delivery::Stream { usage } => {
            stream_response(streams, CompletionChunks { reply, choices, usage_wanted: usage })
        }
        Delivery::Whole => {
            let outputs = collect(&mut streams).await?;
            Json(whole(&reply, n as usize, choices.into_iter().zip(outputs).collect())).into_response()
        }
    };
    Ok((Extension(rid), answer).into_response())
}

/// All samples of the first prompt, then of the second, ...
fn requests(
    rid: &Rid,
    prompts: Vec<Prompt>,
    sampling: &Sampling,
    logprobs: Option<&LogprobsWanted>,
) -> Result<Vec<GenerateReqInput>, ApiError> {
    let mut requests = Vec::new();
    let count = prompts.len();
    for (number, prompt) in prompts.into_iter().enumerate() {
        let request = GenerateReqInput {
            rid: if count == 1 { rid.clone() } else { numbered(rid, number)? },
            prompt: Arc::new(prompt),
            sampling_params: sampling.params.clone(),
            max_new_tokens: sampling.max_new_tokens,
            logprobs: logprobs.cloned(),
            priority: None,
            endpoint: RequestEndpoint::Completions,
        };
        samples(request, sampling.n, &mut requests)?;
    }
    Ok(requests)
}

/// The prompt, to be sent in front of the output.
struct Echo {
    text: String,
    ids: Arc<[TokenId]>,
}

impl Echo {
    fn new(reply: &Reply, stream: &RequestStream, prompt: &Prompt) -> Self {
        let text = match prompt {
            Prompt::Text(text) => text.clone(),
            Prompt::Ids(_) | Prompt::Rendered(_) => reply.model.tokenizer.decode(stream.prompt_ids()),
        };
        Self { text, ids: Arc::clone(stream.prompt_ids()) }
    }
}

/// One choice, so far.
struct Choice {
    /// Still to be sent.
    echo: Option<Echo>,
    /// They were asked for.
    logprobs: Option<CompletionLogprobs>,
    usage: Usage,
}

impl Choice {
    /// The next piece of the choice, or all of it.
    fn piece(&mut self, reply: &Reply, index: usize, news: &GenerateOutput) -> Value {
        self.usage = news.usage;
        let echo = self.echo.take();
        let first = echo.as_ref().and_then(|echo| echo.ids.first()).copied().map(Scored::First);
        let entries = news.input_logprobs.iter().chain(&news.logprobs).map(Scored::Entry);
        let tokens = first.into_iter().chain(entries);
        let logprobs = self.logprobs.as_mut().map(|lists| lists.lists(&reply.model.tokenizer, tokens));
        let text = echo.map_or_else(String::new, |echo| echo.text) + &news.text;
        let mut choice = json!({"index": index, "text": text, "logprobs": logprobs});
        finish(&mut choice, news.finish_reason.as_ref());
        choice
    }
}

/// The answer with the `n` best samples of each prompt.
fn whole(reply: &Reply, n: usize, mut samples: Vec<(Choice, GenerateOutput)>) -> Value {
    let usages: Vec<Usage> = samples.iter().map(|(_, output)| output.usage).collect();
    if n < reply.n {
        samples.chunks_mut(reply.n).for_each(|of_prompt| of_prompt.sort_by(|(_, a), (_, b)| likelier(a, b)));
    }
    let best = samples.chunks_mut(reply.n).flat_map(|of_prompt| of_prompt.iter_mut().take(n));
    let pieces = best.enumerate().map(|(index, (choice, output))| choice.piece(reply, index, output)).collect();
    let mut answer = reply.object("text_completion", pieces);
    answer["usage"] = reply.usage(&usages);
    answer
}

/// The sample with the higher logprob a token comes first; one without tokens comes last.
fn likelier(a: &GenerateOutput, b: &GenerateOutput) -> Ordering {
    let mean = |output: &GenerateOutput| {
        let sum: f32 = output.logprobs.iter().map(|entry| finite(entry.logprob)).sum();
        if output.logprobs.is_empty() { f32::NEG_INFINITY } else { sum / output.logprobs.len() as f32 }
    };
    mean(b).total_cmp(&mean(a))
}

/// Events of a completion: what was written since the last one.
struct CompletionChunks {
    reply: Reply,
    choices: Vec<Choice>,
    usage_wanted: UsageIn,
}

impl Chunks for CompletionChunks {
    fn news(&mut self, index: usize, news: GenerateOutput) -> Vec<Value> {
        let choice = &mut self.choices[index];
        let nothing_to_say = news.text.is_empty() && news.finish_reason.is_none() && choice.echo.is_none();
        if nothing_to_say && (choice.logprobs.is_none() || news.logprobs.is_empty()) {
            choice.usage = news.usage;
            return Vec::new(); // a character that is not whole yet
        }
        let piece = choice.piece(&self.reply, index, &news);
        let mut event = self.reply.object("text_completion", vec![piece]);
        if self.usage_wanted.each {
            event["usage"] = self.reply.usage(&[news.usage]);
        }
        vec![event]
    }

    fn closing(&mut self) -> Vec<Value> {
        if !self.usage_wanted.last {
            return Vec::new();
        }
        let mut last = self.reply.object("text_completion", Vec::new());
        last["usage"] = self.reply.usage(&self.choices.iter().map(|choice| choice.usage).collect::<Vec<_>>());
        vec![last]
    }
}

#[cfg(test)]
mod tests;
