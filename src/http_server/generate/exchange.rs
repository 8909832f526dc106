//! What all request APIs share: hand the requests over, and bring the answers back, at once or as events.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use futures::stream::{self, SelectAll, Stream, StreamExt};
use serde_json::Value;

use crate::http_server::error::ApiError;
use crate::io_struct::{FinishReason, Grammar};
use crate::telemetry::spans::{self, CallAttributes};
use crate::tokenizer_manager::request::{GenerateOutput, RequestStream};
use crate::tokenizer_manager::submit::{GenerateReqInput, SubmitError};
use crate::tokenizer_manager::{ServedModel, TokenizerManager};

/// A comment goes down a silent stream this often, so that no proxy takes it for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The most bytes of the grammars of one call, each counted as often as a request follows it: the engine has them all.
const MAX_CALL_GRAMMAR_BYTES: usize = 64 << 20;

/// Hands all `requests` over and waits until the scheduler has taken them in, so that a refusal is still a status. The
/// trace says what was asked for, by `call`.
///
/// # Errors
/// One was refused; the others are given up.
pub async fn submit(
    tokenizer_manager: &TokenizerManager,
    call: &Call<'_>,
    requests: Vec<GenerateReqInput>,
) -> Result<Vec<RequestStream>, ApiError> {
    call.tell(&requests);
    check_grammars(tokenizer_manager, &requests).await?;
    let mut streams = Vec::with_capacity(requests.len());
    for request in requests {
        let mut stream = tokenizer_manager.generate_request(request).await?;
        if !streams.is_empty() {
            stream.leave_root_to_first();
        }
        streams.push(stream);
    }
    for stream in &mut streams {
        stream.admitted().await?;
    }
    Ok(streams)
}

/// Compiles each grammar once. Neighbours that share one are known by that: two thousand of them are not read through.
async fn check_grammars(manager: &TokenizerManager, requests: &[GenerateReqInput]) -> Result<(), SubmitError> {
    let asked = requests.iter().filter_map(|request| request.sampling_params.grammar.as_ref());
    let mut grammars: Vec<&Grammar> = asked.collect();
    let bytes: usize = grammars.iter().map(|grammar| grammar.text.len()).sum();
    if let Some(grammar) = grammars.first().filter(|_| bytes > MAX_CALL_GRAMMAR_BYTES) {
        let (count, param) = (grammars.len(), grammar.field.as_str().to_owned());
        let message = format!(
            "{param}: the grammars of {count} requests have {bytes} bytes in all; the limit of one call is \
             {MAX_CALL_GRAMMAR_BYTES}"
        );
        return Err(SubmitError::Invalid { param, message });
    }
    grammars.dedup_by(|next, before| Arc::ptr_eq(&next.text, &before.text));
    for grammar in grammars.into_iter().collect::<HashSet<_>>() {
        manager.check_grammar(grammar).await?;
    }
    Ok(())
}

/// What the requests of one HTTP request have in common.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Who answers.
    pub model: &'a ServedModel,
    /// The answer's id.
    pub id: &'a str,
    /// It is to be streamed.
    pub stream: bool,
}

impl Call<'_> {
    fn tell(&self, requests: &[GenerateReqInput]) {
        let Some(first) = requests.first() else { return };
        let params = &first.sampling_params;
        let call = CallAttributes {
            endpoint: first.endpoint,
            model: &self.model.served_name,
            response_id: self.id,
            choices: requests.len(),
            stream: self.stream,
            max_tokens: first.max_new_tokens,
            temperature: params.temperature,
            top_p: params.top_p,
            seed: params.sampling_seed,
            grammar: params.grammar.as_ref().map(|grammar| grammar.field),
        };
        spans::record_call(&tracing::Span::current(), &call);
    }
}

/// Waits for the whole output of each of `streams`.
///
/// # Errors
/// One ended with an error, the first of them in the order of the streams.
pub async fn collect(streams: &mut [RequestStream]) -> Result<Vec<GenerateOutput>, ApiError> {
    let outputs = join_all(streams.iter_mut().map(|stream| async move {
        let mut whole = GenerateOutput::default();
        while let Some(news) = stream.next().await {
            whole.append(news);
        }
        abort_error(whole.finish_reason.as_ref(), stream.prompt_field()).map_or(Ok(whole), Err)
    }));
    outputs.await.into_iter().collect()
}

/// The error that a request ended with, if it ended with one; its API calls the prompt `prompt_field`. An abort on
/// request is an answer, with the finish reason abort.
fn abort_error(finish_reason: Option<&FinishReason>, prompt_field: &str) -> Option<ApiError> {
    let Some(FinishReason::Abort { message, kind }) = finish_reason else { return None };
    let error = SubmitError::of_abort(*kind, message, prompt_field)?;
    Some(ApiError::from(error).of_accepted())
}

/// How an API writes its stream.
pub trait Chunks: Send + 'static {
    /// The events of `news` of the request at `index`. An output that ended with an error has no finish reason here:
    /// the error is an event of its own.
    fn news(&mut self, index: usize, news: GenerateOutput) -> Vec<Value>;

    /// The events after all requests have ended well.
    fn closing(&mut self) -> Vec<Value>;
}

/// The answer to a streaming request: `data: <json>` events in the order in which they come, `data: [DONE]`, end.
/// An error in the middle is an event too, and the last one. Dropping the answer gives all requests up.
pub fn stream_response(mut streams: Vec<RequestStream>, chunks: impl Chunks) -> Response {
    streams.iter_mut().for_each(RequestStream::answer_begins);
    let events = stream::unfold(EventSource::new(streams, chunks), |mut source| async move {
        let data = source.next().await?;
        Some((Ok::<_, Infallible>(Event::default().data(data)), source))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive")).into_response()
}

type News = Pin<Box<dyn Stream<Item = (usize, GenerateOutput)> + Send>>;

struct EventSource<C> {
    chunks: C,
    /// What the API calls the prompt; one call has one name for it.
    prompt_field: &'static str,
    /// `None` after the last.
    news: Option<SelectAll<News>>,
    ready: VecDeque<String>,
}

impl<C: Chunks> EventSource<C> {
    fn new(streams: Vec<RequestStream>, chunks: C) -> Self {
        let news = |(index, stream)| -> News {
            let news = stream::unfold(stream, |mut stream: RequestStream| async move {
                let news = stream.next().await?;
                Some((news, stream))
            });
            Box::pin(news.map(move |news| (index, news)))
        };
        Self {
            chunks,
            prompt_field: streams.first().map_or("prompt", RequestStream::prompt_field),
            news: Some(stream::select_all(streams.into_iter().enumerate().map(news))),
            ready: VecDeque::new(),
        }
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Some(data);
            }
            match self.news.as_mut()?.next().await {
                Some((index, news)) => self.take(index, news),
                None => {
                    let closing = self.chunks.closing();
                    self.end(closing);
                }
            }
        }
    }

    fn take(&mut self, index: usize, mut news: GenerateOutput) {
        let error = abort_error(news.finish_reason.as_ref(), self.prompt_field);
        if error.is_some() {
            news.finish_reason = None;
        }
        let is_news = error.is_none() || !news.output_ids.is_empty() || !news.text.is_empty();
        if is_news {
            let chunks = self.chunks.news(index, news);
            self.ready.extend(chunks.iter().map(Value::to_string));
        }
        if let Some(error) = error {
            self.end(vec![error.body()]);
        }
    }

    fn end(&mut self, last: Vec<Value>) {
        self.news = None; // drops what still runs, which aborts it
        self.ready.extend(last.iter().map(Value::to_string));
        self.ready.push_back("[DONE]".to_owned());
    }
}

#[cfg(test)]
pub(crate) mod tests;
