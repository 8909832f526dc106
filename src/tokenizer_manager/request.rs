//! One request in the table: what arrived and was not yet taken, and its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::Span;

use super::ServedModel;
use super::submit::SubmitError;
use crate::clock::MonoNanos;
use crate::io_struct::{AbortKind, FinishReason, Rid, TokenId, TokenLogprob};
use crate::probe_ledger::autopsy::millis;
use crate::telemetry::labels::RequestOutcome;
use crate::telemetry::log::REQUESTS;
use crate::telemetry::spans::{self, RequestAttributes};

/// Token counts of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Output tokens so far.
    pub completion_tokens: u32,
    /// Prompt tokens that were found in the prefix cache.
    pub cached_tokens: u32,
    /// How often the request had to give its KV pages back.
    pub num_retractions: u32,
}

/// News of a request: everything since the last time somebody asked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GenerateOutput {
    /// New text, whole characters only.
    pub text: String,
    /// New tokens.
    pub output_ids: Vec<TokenId>,
    /// One for each new token, if asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// One for each token of the prompt that was asked about, in the first news.
    pub input_logprobs: Vec<TokenLogprob>,
    /// What an embedding model made of the text.
    pub embedding: Vec<f32>,
    /// Set on the last news.
    pub finish_reason: Option<FinishReason>,
    /// Counts so far.
    pub usage: Usage,
}

impl GenerateOutput {
    /// Adds what came later.
    pub fn append(&mut self, news: Self) {
        self.text.push_str(&news.text);
        self.output_ids.extend(news.output_ids);
        self.logprobs.extend(news.logprobs);
        self.input_logprobs.extend(news.input_logprobs);
        self.embedding.extend(news.embedding);
        self.finish_reason = news.finish_reason;
        self.usage = news.usage;
    }
}

/// The table's half of a request. Never blocks and never grows beyond the output itself.
#[derive(Debug, Default)]
pub struct RequestState {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    admitted: bool,
    pending: Option<GenerateOutput>,
    ended: bool,
}

impl RequestState {
    /// The scheduler has taken the request in.
    pub fn admit(&self) {
        self.lock().admitted = true;
        self.changed.notify_one();
    }

    /// Something arrived. Nothing is accepted after the end. The waiter hears of it by [`Self::ring`].
    pub fn put(&self, news: GenerateOutput) {
        let mut inner = self.lock();
        if inner.ended {
            return;
        }
        inner.admitted = true;
        inner.ended = news.finish_reason.is_some();
        match &mut inner.pending {
            Some(pending) => pending.append(news),
            None => inner.pending = Some(news),
        }
    }

    /// Wakes the waiter.
    pub fn ring(&self) {
        self.changed.notify_one();
    }

    /// Something arrived: [`Self::put`] and [`Self::ring`].
    pub fn push(&self, news: GenerateOutput) {
        self.put(news);
        self.ring();
    }

    /// Has the last news arrived?
    #[must_use]
    pub fn ended(&self) -> bool {
        self.lock().ended
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The caller's half of a request. Dropping it before the end aborts the request everywhere.
pub struct RequestStream {
    rid: Rid,
    prompt_ids: Arc<[TokenId]>,
    /// What the API calls the prompt: the field to blame if it is too long.
    prompt_field: &'static str,
    state: Arc<RequestState>,
    finished: bool,
    /// Counts of the news that were taken.
    usage: Usage,
    books: Option<Books>,
    limit: Option<Limit>,
    on_drop: Option<Box<dyn FnOnce() + Send + Sync>>,
}

/// How long a request may take.
struct Limit {
    ends: Instant,
    /// Ends the request, which then has its last news.
    end: Box<dyn FnOnce() + Send + Sync>,
}

/// A user's request in its server span, which the caller's half alone keeps open.
pub struct Books {
    /// The server span.
    pub span: Span,
    /// The model that answers.
    pub model: Arc<ServedModel>,
    /// When it was submitted.
    pub submitted: MonoNanos,
    /// How long the first news took.
    pub first_news: Option<Duration>,
    /// The status of the answer is out: what goes wrong from here on is not in it.
    pub answer_began: bool,
}

impl RequestStream {
    /// Pairs with `state`; `on_drop` runs once, whether the request ended or not. `books`: where its end is told.
    pub fn new(
        rid: Rid,
        prompt_ids: Arc<[TokenId]>,
        state: Arc<RequestState>,
        books: Option<Books>,
        on_drop: impl FnOnce() + Send + Sync + 'static,
    ) -> Self {
        Self {
            rid,
            prompt_ids,
            prompt_field: "prompt",
            state,
            finished: false,
            usage: Usage::default(),
            books,
            limit: None,
            on_drop: Some(Box::new(on_drop)),
        }
    }

    /// The same for an API that calls the prompt `field`.
    #[must_use]
    pub fn with_prompt_field(mut self, field: &'static str) -> Self {
        self.prompt_field = field;
        self
    }

    /// The request may take until `ends`; then `end` is called, which must bring its last news.
    pub fn limit(&mut self, ends: Instant, end: impl FnOnce() + Send + Sync + 'static) {
        self.limit = Some(Limit { ends, end: Box::new(end) });
    }

    /// Waits for `changed`, or until the request has taken too long.
    async fn until(&mut self, changed: impl Future<Output = ()>) {
        let Some(limit) = &self.limit else { return changed.await };
        if timeout_at(limit.ends, changed).await.is_err()
            && let Some(limit) = self.limit.take()
        {
            (limit.end)();
        }
    }

    /// Of the requests of one HTTP request, the first tells its end on the server span.
    pub fn leave_root_to_first(&mut self) {
        self.books = None;
    }

    /// The status of the answer leaves before the request has ended.
    pub fn answer_begins(&mut self) {
        if let Some(books) = &mut self.books {
            books.answer_began = true;
        }
    }

    /// The request's id.
    #[must_use]
    pub fn rid(&self) -> &Rid {
        &self.rid
    }

    /// The prompt as the model sees it.
    #[must_use]
    pub fn prompt_ids(&self) -> &Arc<[TokenId]> {
        &self.prompt_ids
    }

    /// What the API calls the prompt.
    #[must_use]
    pub fn prompt_field(&self) -> &'static str {
        self.prompt_field
    }

    /// Waits until the scheduler has taken the request in, so that a refusal is still an HTTP status.
    ///
    /// # Errors
    /// The request was refused, or its engine died.
    pub async fn admitted(&mut self) -> Result<(), SubmitError> {
        let state = Arc::clone(&self.state);
        loop {
            let changed = state.changed.notified();
            {
                let inner = state.lock();
                if let Some(GenerateOutput { finish_reason: Some(reason), usage, .. }) = inner.pending.as_ref()
                    && let FinishReason::Abort { message, kind } = reason
                {
                    let Some(refused) = SubmitError::of_abort(*kind, message, self.prompt_field) else {
                        return Ok(()); // told with the news
                    };
                    if matches!(kind, AbortKind::StepFailed | AbortKind::Grammar(_)) {
                        self.usage = *usage;
                        self.tell(reason); // a step took it in
                    }
                    self.books = None; // the status of the answer tells
                    return Err(refused);
                }
                if inner.admitted {
                    return Ok(());
                }
            }
            self.until(changed).await;
        }
    }

    /// The next news; `None` after the last.
    pub async fn next(&mut self) -> Option<GenerateOutput> {
        if self.finished {
            return None;
        }
        let state = Arc::clone(&self.state);
        loop {
            let changed = state.changed.notified();
            let pending = state.lock().pending.take();
            if let Some(news) = pending {
                self.usage = news.usage;
                if let Some(books) = self.books.as_mut().filter(|_| !news.output_ids.is_empty()) {
                    books.first_news.get_or_insert_with(|| books.submitted.elapsed());
                }
                if let Some(reason) = &news.finish_reason {
                    self.finished = true;
                    self.tell(reason);
                }
                return Some(news);
            }
            self.until(changed).await;
        }
    }
}

impl RequestStream {
    fn tell(&mut self, reason: &FinishReason) {
        let Some(books) = self.books.take() else { return };
        let outcome = reason.outcome();
        let (error, why) = match reason {
            FinishReason::Abort { message, kind } => (Some(message.as_str()), Some(kind.as_str())),
            _ => (None, None),
        };
        let request = RequestAttributes {
            model: &books.model.served_name,
            prompt_tokens: u32::try_from(self.prompt_ids.len()).unwrap_or(u32::MAX),
            cached_tokens: self.usage.cached_tokens,
            completion_tokens: self.usage.completion_tokens,
            retractions: self.usage.num_retractions,
            first_news: books.first_news,
            finish_reason: outcome.as_str(),
            outcome,
            error,
            broken: why.filter(|_| books.answer_began),
        };
        spans::record_request(&books.span, &request);
        books.span.in_scope(|| {
            tracing::debug!(
                target: REQUESTS,
                rid = self.rid.as_str(),
                %outcome,
                prompt_tokens = request.prompt_tokens,
                cached_tokens = request.cached_tokens,
                completion_tokens = request.completion_tokens,
                first_output_ms = books.first_news.map(millis),
                duration_ms = millis(books.submitted.elapsed()),
                "request ended"
            );
        });
        if let Some(error) = error.filter(|_| outcome == RequestOutcome::Error) {
            books.span.in_scope(|| tracing::warn!(rid = self.rid.as_str(), error, "request failed"));
        }
    }
}

impl Drop for RequestStream {
    fn drop(&mut self) {
        let left = FinishReason::Abort { message: "the client left".to_owned(), kind: AbortKind::Requested };
        let pending = self.state.lock().pending.take();
        self.usage = pending.map_or(self.usage, |news| news.usage); // made, and never to be sent
        self.tell(&left);
        if let Some(on_drop) = self.on_drop.take() {
            on_drop();
        }
    }
}
