//! Station 2: text to ids, into the table, to the engine.

use std::sync::Arc;

use opentelemetry::Context;
use tokio::time::Instant;

use super::request::{Books, RequestState, RequestStream};
use super::table::{Entry, MAX_LIVE_REQUESTS, Refused};
use super::{ServedModel, TokenizerManager};
use crate::clock::MonoNanos;
use crate::io_struct::{
    AbortKind, LogprobsWanted, ProbeId, Purpose, Rid, SamplingParams, ToEngine, TokenId, TokenizedEmbeddingReqInput,
    TokenizedGenerateReqInput,
};
use crate::server_status::ServerStatus;
use crate::telemetry::labels::{Hop, RequestEndpoint};
use crate::telemetry::spans;
use crate::tokenizer::{ControlTokens, PromptPart, TokenizerError};

/// Longer texts are tokenized on a thread of their own: two megabytes take a second.
pub(super) const INLINE_TOKENIZE_BYTES: usize = 4096;

/// The most logprobs of a prompt: about ten bytes each, they travel in one frame.
const MAX_INPUT_LOGPROBS: usize = 1 << 20;

/// A request as the APIs hand it over; SGLang's `GenerateReqInput` for one prompt.
#[derive(Debug, Clone)]
pub struct GenerateReqInput {
    /// The caller's rid, or a fresh one.
    pub rid: Rid,
    /// What to continue; samples of one prompt share it, which may be as large as a body.
    pub prompt: Arc<Prompt>,
    /// Checked parameters. Their `max_new_tokens` is the API's default, cut to the room left in the context.
    pub sampling_params: SamplingParams,
    /// The output length that the caller asked for: refused, not cut, if there is no room for it.
    pub max_new_tokens: Option<u32>,
    /// Which logprobs are reported.
    pub logprobs: Option<LogprobsWanted>,
    /// Who goes first; refused unless the engine knows priorities.
    pub priority: Option<i64>,
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
    /// `--request-timeout`
    #[error("{0}")]
    TimedOut(String),
    /// The engine is gone.
    #[error("the engine is dead")]
    EngineDead,
    /// The runtime failed.
    #[error("{0}")]
    Failed(String),
}

impl SubmitError {
    /// What an abort of `kind` is for the caller, whose API calls the prompt `prompt_field`. `None` for one on request:
    /// that is an end like any other.
    #[must_use]
    pub fn of_abort(kind: AbortKind, message: &str, prompt_field: &str) -> Option<Self> {
        let message = message.to_owned();
        let error = match kind {
            AbortKind::QueueFull => Self::QueueFull(message),
            AbortKind::TooLarge => Self::ContextLength { param: prompt_field.to_owned(), message },
            AbortKind::Requested => return None,
            AbortKind::CutOff => Self::NotServing(message),
            AbortKind::TimedOut => Self::TimedOut(message),
            AbortKind::Grammar(field) => Self::Invalid { param: field.as_str().to_owned(), message },
            AbortKind::StepFailed => Self::Failed(message),
            AbortKind::EngineDead => Self::EngineDead,
        };
        Some(error)
    }
}

impl TokenizerManager {
    /// The model that is served.
    ///
    /// # Errors
    /// Nothing is served yet, or no longer.
    pub fn model(&self) -> Result<Arc<ServedModel>, SubmitError> {
        let report = self.inner.status.report();
        match report.status {
            ServerStatus::Starting => Err(SubmitError::NotServing(report.reason)),
            ServerStatus::Draining if report.refuses_work => Err(SubmitError::NotServing(report.reason)),
            _ if report.engine_dead => Err(SubmitError::EngineDead),
            ServerStatus::Up | ServerStatus::UnHealthy | ServerStatus::Draining => {
                let model = self.inner.model.get();
                model.cloned().ok_or_else(|| SubmitError::NotServing("no model is loaded".to_owned()))
            }
        }
    }

    /// Hands a user's request to the engine.
    ///
    /// # Errors
    /// Bad input, or a server that does not serve.
    pub async fn generate_request(&self, request: GenerateReqInput) -> Result<RequestStream, SubmitError> {
        let began = MonoNanos::now();
        let model = self.model()?;
        model.check_task(request.endpoint)?;
        if request.priority.is_some() && !model.limits.priority_scheduling {
            return Err(no_priorities());
        }
        let fields = Fields::of(request.endpoint, &request.prompt);
        let input_ids = tokenize(&model, request.prompt, fields).await?;
        if let Some(wanted) = &request.logprobs {
            check_input_logprobs(wanted, input_ids.len())?;
        }
        let mut sampling_params = request.sampling_params;
        let (asked, most) = (request.max_new_tokens, sampling_params.max_new_tokens);
        sampling_params.max_new_tokens = output_room(&model, input_ids.len(), asked, most, fields)?;
        let input = TokenizedGenerateReqInput {
            rid: request.rid,
            serial: self.inner.table.next_serial(),
            purpose: Purpose::Serve,
            input_ids,
            sampling_params,
            logprobs: request.logprobs,
            priority: request.priority,
        };
        let stream = self.submit(ToEngine::Generate(Box::new(input)), Purpose::Serve, Some(request.endpoint), began)?;
        Ok(stream.with_prompt_field(fields.prompt))
    }

    /// Hands a probe to the engine, the smallest request that its model runs: one token, of which a generation model says
    /// the likeliest next one and an embedding model the vector.
    ///
    /// # Errors
    /// The table is full.
    pub fn submit_probe(&self, probe: ProbeId, began: MonoNanos) -> Result<RequestStream, SubmitError> {
        let (rid, purpose, input_ids) = (probe.rid(), Purpose::HealthCheck(probe), vec![TokenId(0)]);
        let serial = self.inner.table.next_serial();
        let embeds = self.inner.model.get().is_some_and(|model| !model.info.task.is_generation());
        let input = if embeds {
            ToEngine::Embed(TokenizedEmbeddingReqInput { rid, serial, purpose, input_ids })
        } else {
            let sampling_params = SamplingParams::probe();
            let logprobs = None;
            let priority = None;
            let input =
                TokenizedGenerateReqInput { rid, serial, purpose, input_ids, sampling_params, logprobs, priority };
            ToEngine::Generate(Box::new(input))
        };
        self.submit(input, purpose, None, began)
    }

    /// Table, detokenizer, ledger, socket: the answer finds everybody prepared.
    pub(super) fn submit(
        &self,
        input: ToEngine,
        purpose: Purpose,
        endpoint: Option<RequestEndpoint>,
        began: MonoNanos,
    ) -> Result<RequestStream, SubmitError> {
        if endpoint.is_some() {
            self.refuse_if_unread()?;
        }
        let (rid, serial, input_ids) = input.request().expect("a request is submitted");
        let (rid, prompt_ids): (Rid, Arc<[TokenId]>) = (rid.clone(), input_ids.into());
        let state = Arc::new(RequestState::default());
        let entry = Entry {
            state: Arc::clone(&state),
            serial,
            purpose,
            endpoint,
            prompt_tokens: u32::try_from(prompt_ids.len()).unwrap_or(u32::MAX),
            submitted: began,
            admitted: None,
            queued: None,
            newest: None,
            input: endpoint.is_some().then(|| Arc::new(input.clone())),
            epoch: 0,
            sends: 0,
        };
        let root = current_root();
        let send = |epoch| {
            if let ToEngine::Generate(input) = &input {
                self.inner.detokenizer.register(&rid, serial, epoch, &input.sampling_params);
            }
            self.inner.ledger.begin(&rid, serial, purpose, root, began);
            self.inner.ledger.enter(&rid, Hop::Submit, began);
            let submitted = MonoNanos::now();
            self.inner.ledger.leave(&rid, Hop::Submit, submitted);
            self.inner.ledger.enter(&rid, Hop::IpcToEngine, submitted);
            self.send(input, epoch);
        };
        self.inner.table.insert(&rid, entry, send).map_err(|refused| refusal(&refused, &rid))?;
        if self.inner.status.report().engine_dead {
            self.fail(&rid, serial, "the engine is dead"); // it died between the check and the entry
        }
        let books = endpoint.zip(self.inner.model.get()).map(|(_, model)| Books {
            span: tracing::Span::current(),
            model: Arc::clone(model),
            submitted: began,
            first_news: None,
            answer_began: false,
        });
        let (manager, gone) = (self.clone(), rid.clone());
        let under_way = endpoint.map(|_| self.inner.streams.token());
        let release = move || {
            manager.release(&gone, serial);
            drop(under_way);
        };
        let mut stream = RequestStream::new(rid.clone(), prompt_ids, state, books, release);
        if let Some(limit) = self.inner.request_limit.filter(|_| endpoint.is_some()) {
            let manager = self.clone();
            stream.limit(Instant::now() + limit, move || manager.time_out(&rid, serial, limit));
        }
        Ok(stream)
    }
}

/// The current span as a parent for spans that are written later. Only its ids are kept: a handle on the span itself
/// would keep it open, and unexported, as long as the flight lasts.
fn current_root() -> Context {
    use opentelemetry::trace::TraceContextExt;
    let current = spans::context(&tracing::Span::current());
    Context::new().with_remote_span_context(current.span().span_context().clone())
}

fn refusal(refused: &Refused, rid: &Rid) -> SubmitError {
    match refused {
        Refused::Duplicate => SubmitError::Invalid {
            param: "rid".to_owned(),
            message: format!("rid '{rid}' belongs to a request that is still running"),
        },
        Refused::Full => {
            SubmitError::QueueFull(format!("{MAX_LIVE_REQUESTS} requests are live on this frontend; try again later"))
        }
    }
}

fn no_priorities() -> SubmitError {
    let message =
        "priority is given, but this server runs without --enable-priority-scheduling; leave it out".to_owned();
    SubmitError::Invalid { param: "priority".to_owned(), message }
}

/// What an API calls the fields that may be to blame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields {
    /// What is to be continued, or embedded.
    pub(super) prompt: &'static str,
    /// How long the output may be.
    output: &'static str,
}

impl Fields {
    pub(super) fn of(endpoint: RequestEndpoint, prompt: &Prompt) -> Self {
        let (prompt, output) = match (endpoint, prompt) {
            (RequestEndpoint::ChatCompletions, _) => ("messages", "max_tokens"),
            (RequestEndpoint::Completions, _) => ("prompt", "max_tokens"),
            (RequestEndpoint::Embeddings, _) => ("input", "max_tokens"),
            (RequestEndpoint::Generate | RequestEndpoint::Encode, Prompt::Ids(_)) => ("input_ids", "max_new_tokens"),
            (RequestEndpoint::Generate | RequestEndpoint::Encode, _) => ("text", "max_new_tokens"),
        };
        Self { prompt, output }
    }
}

/// Ids of the prompt, each one within the vocabulary, at least one.
async fn tokenize(model: &Arc<ServedModel>, prompt: Arc<Prompt>, fields: Fields) -> Result<Vec<TokenId>, SubmitError> {
    let is_quick = match &*prompt {
        Prompt::Ids(_) => true,
        Prompt::Text(text) => text.len() <= INLINE_TOKENIZE_BYTES,
        Prompt::Rendered(_) => false,
    };
    let ids = if is_quick {
        encode(model, &prompt, fields)?
    } else {
        let model = Arc::clone(model);
        let encode = move || encode(&model, &prompt, fields);
        tokio::task::spawn_blocking(encode).await.map_err(|error| SubmitError::Failed(error.to_string()))??
    };
    check_ids(model, &ids, fields.prompt)?;
    Ok(ids)
}

/// Refuses ids without a row in the vocabulary, and a prompt without any; `param` is to blame.
pub(super) fn check_ids(model: &ServedModel, ids: &[TokenId], param: &str) -> Result<(), SubmitError> {
    let vocab_size = model.info.vocab_size;
    let refuse = |message| Err(SubmitError::Invalid { param: param.to_owned(), message });
    if let Some(id) = ids.iter().find(|id| id.0 >= vocab_size) {
        return refuse(format!("token id {id} is out of range: the vocabulary has {vocab_size} rows"));
    }
    if ids.is_empty() {
        return refuse(format!("{param} has no tokens; at least 1 is needed"));
    }
    Ok(())
}

fn encode(model: &ServedModel, prompt: &Prompt, fields: Fields) -> Result<Vec<TokenId>, SubmitError> {
    let refused = |encoded: Result<Vec<TokenId>, TokenizerError>| {
        encoded.map_err(|error| SubmitError::Invalid { param: fields.prompt.to_owned(), message: error.to_string() })
    };
    match prompt {
        Prompt::Ids(ids) => Ok(ids.clone()),
        Prompt::Text(text) => refused(model.tokenizer.encode_prompt(text)),
        Prompt::Rendered(parts) => {
            let mut ids = Vec::new();
            for part in parts {
                match part {
                    PromptPart::Control(id) => ids.push(*id),
                    PromptPart::Text(text) => ids.extend(refused(model.tokenizer.encode(text, ControlTokens::AsText))?),
                }
            }
            Ok(ids)
        }
    }
}

/// Logprobs of a prompt begin inside it, and fit into one message.
fn check_input_logprobs(wanted: &LogprobsWanted, prompt: usize) -> Result<(), SubmitError> {
    let Some(from) = wanted.input_from.map(|from| from as usize) else { return Ok(()) };
    let param = "logprob_start_len".to_owned();
    if from >= prompt {
        let message = format!("logprob_start_len is {from}; the prompt has {prompt} tokens, and it must be less");
        return Err(SubmitError::Invalid { param, message });
    }
    let each = 1 + wanted.top as usize + wanted.token_ids.len();
    if (prompt - from).saturating_mul(each) > MAX_INPUT_LOGPROBS {
        let message = format!(
            "logprobs of {} prompt tokens with {each} each were asked for; the limit is {MAX_INPUT_LOGPROBS} in all",
            prompt - from
        );
        return Err(SubmitError::Invalid { param, message });
    }
    Ok(())
}

/// How many tokens may follow a prompt of `prompt` tokens.
fn output_room(
    model: &ServedModel,
    prompt: usize,
    asked: Option<u32>,
    default: u32,
    fields: Fields,
) -> Result<u32, SubmitError> {
    let limit = model.token_limit();
    let room = limit.saturating_sub(u32::try_from(prompt).unwrap_or(u32::MAX));
    if room == 0 {
        let message = format!(
            "the prompt has {prompt} tokens, and at most {limit} fit into the context, with at least 1 left for output"
        );
        return Err(SubmitError::ContextLength { param: fields.prompt.to_owned(), message });
    }
    match asked {
        Some(asked) if asked > room => {
            let message = format!(
                "the prompt has {prompt} tokens and {asked} were asked for as output, but only {limit} fit into the \
                 context"
            );
            Err(SubmitError::ContextLength { param: fields.output.to_owned(), message })
        }
        Some(asked) => Ok(asked),
        None => Ok(default.min(room)),
    }
}
