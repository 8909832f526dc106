//! Every message between the processes, in the order in which a request meets them.

pub mod ids;
pub mod embedding;
pub mod engine_event;
pub mod fault;
pub mod grammar;
pub mod kernel_backend;
pub mod kv_cache_dtype;
pub mod sampling_params;

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use embedding::{BatchEmbeddingOutput, EmbeddingOutput, ModelTask, TokenizedEmbeddingReqInput};
pub use engine_event::{EngineEvent, Heartbeat, PrefillChunk, StepInFlight, StepInfo};
pub use fault::{Fault, FaultSide};
pub use grammar::{Grammar, GrammarSyntax};
pub use ids::{HttpWorkerIpc, ProbeId, Rid, TokenId};
pub use kernel_backend::KernelBackend;
pub use kv_cache_dtype::KvCacheDtype;
pub use sampling_params::SamplingParams;

use crate::clock::MonoNanos;
use crate::telemetry::labels::{GrammarField, RequestOutcome};

/// The version of this module's wire form. Both sides say theirs first and refuse another's.
pub const PROTOCOL_VERSION: u32 = 11;

/// A payload on its way to the next station.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope<T> {
    /// The payload.
    pub msg: T,
    /// When it was sent, on the clock that both processes of a host share.
    pub sent_at: MonoNanos,
}

impl<T> Envelope<T> {
    /// Stamps `msg` with the time now.
    #[must_use]
    pub fn now(msg: T) -> Self {
        Self { msg, sent_at: MonoNanos::now() }
    }
}

/// The first frame of each side on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the sender.
    pub protocol: u32,
    /// Crate version of the sender, for the log.
    pub version: String,
    /// Process id of the sender.
    pub pid: u32,
    /// The name under which the engine knows a frontend: replies and events find their way back by it. The engine
    /// repeats it.
    pub http_worker_ipc: HttpWorkerIpc,
}

/// Why a request exists. A probe is known by this, never by the look of its rid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// Somebody wants the text.
    Serve,
    /// A health probe wants to know that the runtime moves.
    HealthCheck(ProbeId),
}

/// Frontend → engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ToEngine {
    /// A request to run.
    Generate(Box<TokenizedGenerateReqInput>),
    /// A text to embed.
    Embed(TokenizedEmbeddingReqInput),
    /// Forget a request or a probe, wherever it is.
    Abort(AbortReq),
    /// Run no batch until [`ToEngine::Continue`].
    Pause(PauseMode),
    /// Run batches again.
    Continue,
    /// Forget what is kept for requests to come.
    FlushCache(FlushId),
    /// A drill begins; ignored without `--enable-drills`.
    Fault(Fault),
    /// All drills end.
    FaultsOff,
    /// Log what this filter lets through.
    LogFilter(String),
}

impl ToEngine {
    /// The request in it, if it is one: whose it is, its serial, and its tokens.
    #[must_use]
    pub fn request(&self) -> Option<(&Rid, u64, &[TokenId])> {
        match self {
            Self::Generate(request) => Some((&request.rid, request.serial, &request.input_ids)),
            Self::Embed(request) => Some((&request.rid, request.serial, &request.input_ids)),
            _ => None,
        }
    }
}

/// What becomes of the requests that a pause finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// They end. SGLang's default.
    #[default]
    Abort,
    /// They give their KV pages back and start again later, without a token lost or changed.
    Retract,
    /// They stay where they are, with their KV pages.
    InPlace,
}

/// Which flush an answer belongs to: a number that its frontend has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FlushId(pub u64);

/// What became of a flush. Nothing is flushed under a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FlushOutcome {
    /// The prefix cache is empty.
    Flushed {
        /// What was in it.
        tokens: u64,
    },
    /// Nothing was done.
    Busy {
        /// Requests in the batch.
        running: u32,
        /// Requests that wait.
        waiting: u32,
    },
}

/// A request as the scheduler sees it: ids only.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenizedGenerateReqInput {
    /// Unique among the live requests of its frontend.
    pub rid: Rid,
    /// Tells two requests apart that had the same rid one after the other; comes back with each output.
    pub serial: u64,
    /// Why it exists.
    pub purpose: Purpose,
    /// The prompt; never empty, every id below the model's vocabulary size.
    pub input_ids: Vec<TokenId>,
    /// How to choose the next token and when to stop. Stop strings are the detokenizer's business.
    pub sampling_params: SamplingParams,
    /// Its priority, if it has one and the engine knows of any.
    pub priority: Option<i64>,
    /// Report logprobs.
    pub logprobs: Option<LogprobsWanted>,
}

/// Which logprobs a request reports, beside those of its output tokens.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LogprobsWanted {
    /// Those of so many of the likeliest tokens, at each place.
    pub top: u32,
    /// Those of these tokens, at each place.
    pub token_ids: Vec<TokenId>,
    /// Those of the prompt's tokens behind this place; the first token of a prompt never has one. `None`: of no token of
    /// the prompt. Less than its length.
    pub input_from: Option<u32>,
}

/// Ends one request early. Typed, so an abort of a probe is never mistaken for a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortReq {
    /// The request to end.
    pub rid: Rid,
    /// [`TokenizedGenerateReqInput::serial`] of the request: the next one with its rid is not meant.
    pub serial: u64,
}

/// Engine → frontend. Outputs move `last_receive_tstamp`; everything else only describes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum FromEngine {
    /// The model is loaded and has run once; also sent to a frontend that connects later.
    Ready(EngineInfo),
    /// Proof of work.
    Output(EngineOutput),
    /// Description of work; never proof of it.
    Event(EngineEvent),
}

/// An engine that is ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineInfo {
    /// What it serves.
    pub model: ModelInfo,
    /// How much of it.
    pub limits: EngineLimits,
}

/// How the engine is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EngineLimits {
    /// The most requests in the batch.
    pub max_running_requests: u32,
    /// The most requests that wait.
    pub max_queued_requests: u32,
    /// The most prompt tokens of one step.
    pub chunked_prefill_size: u32,
    /// How long a step should last at most; zero: as long as it takes.
    pub max_step_time: Duration,
    /// Tokens in one page of the KV pool.
    pub page_size: u32,
    /// Requests may have priorities.
    pub priority_scheduling: bool,
}

/// What the engine serves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Where the weights and the tokenizer come from.
    pub source: ModelSource,
    /// `general.name` of the file, or of the scripted model.
    pub name: String,
    /// `llama`, ..., or `scripted`.
    pub architecture: String,
    /// What it is for.
    pub task: ModelTask,
    /// Rows of the embedding: ids at or above are refused.
    pub vocab_size: u32,
    /// The most tokens of one sequence, prompt and output together.
    pub context_length: u32,
    /// Ids that end a turn.
    pub eos_token_ids: Vec<TokenId>,
    /// KV pool size in tokens; 0 for a model that keeps nothing.
    pub max_total_tokens: u32,
    /// Instructions that the kernels use; `None` where there are no kernels.
    pub kernels: Option<KernelBackend>,
    /// How keys and values are held; `None` where none are.
    pub kv_cache_dtype: Option<KvCacheDtype>,
    /// Weights in memory, in bytes.
    pub weight_bytes: u64,
    /// Seconds from start of the engine to loaded.
    pub load_seconds: f64,
}

/// Where a model comes from, resolved: nothing is left to fetch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelSource {
    /// A GGUF file on this host.
    Gguf(PathBuf),
    /// A folder as the hub has it: `config.json`, `tokenizer.json` and weights in safetensors.
    Folder(PathBuf),
    /// No weights: a script of latencies and faults, see `model_runner::scripted`.
    Scripted(String),
}

/// Proof that the engine moved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum EngineOutput {
    /// Tokens of one batch result for one frontend.
    BatchTokenId(BatchTokenIdOutput),
    /// Embeddings of one batch result for one frontend.
    BatchEmbedding(BatchEmbeddingOutput),
    /// A busy scheduler vouches for probes after a batch result, or when it goes idle.
    HealthCheck(HealthCheckOutput),
}

/// Tokens of one batch result, for the requests of one frontend.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BatchTokenIdOutput {
    /// One entry for each request that got a token or ended.
    pub outputs: Vec<TokenIdOutput>,
}

/// News of one request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TokenIdOutput {
    /// Which request.
    pub rid: Rid,
    /// [`TokenizedGenerateReqInput::serial`] of the request.
    pub serial: u64,
    /// Why it exists: the frontend may have forgotten it meanwhile.
    pub purpose: Purpose,
    /// Tokens since the last output, the matched stop token left out.
    pub output_ids: Vec<TokenId>,
    /// One entry for each of `output_ids`, if asked for.
    pub logprobs: Vec<TokenLogprob>,
    /// One entry for each token of the prompt that was asked about; all of them with the first output.
    pub input_logprobs: Vec<TokenLogprob>,
    /// Set on the last output.
    pub finish_reason: Option<FinishReason>,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Output tokens so far, a matched stop token counted.
    pub completion_tokens: u32,
    /// Prompt tokens that were found in the prefix cache.
    pub cached_tokens: u32,
    /// How often the request had to give its KV pages back.
    pub num_retractions: u32,
}

/// The logprob of one token and of its rivals, natural logarithm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// The token that stands there.
    pub token: TokenId,
    /// Its logprob, at most 0.
    pub logprob: f32,
    /// The likeliest tokens, best first.
    pub top: Vec<(TokenId, f32)>,
    /// The tokens of [`LogprobsWanted::token_ids`], in that order.
    pub asked: Vec<(TokenId, f32)>,
}

/// Why a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// A stop token of the model or of the request.
    StopToken(TokenId),
    /// A stop string of the request; found by the detokenizer, never sent by an engine.
    StopString(String),
    /// The output is complete: its grammar allows nothing more.
    Grammar,
    /// The output has this many tokens.
    Length(u32),
    /// Ended without result.
    Abort {
        /// What happened, for the user.
        message: String,
        /// Why, for the program.
        kind: AbortKind,
    },
}

impl FinishReason {
    /// As a label.
    #[must_use]
    pub const fn outcome(&self) -> RequestOutcome {
        match self {
            Self::StopToken(_) | Self::StopString(_) | Self::Grammar => RequestOutcome::Stop,
            Self::Length(_) => RequestOutcome::Length,
            Self::Abort { kind: AbortKind::Requested, .. } => RequestOutcome::Abort,
            Self::Abort { .. } => RequestOutcome::Error,
        }
    }
}

/// Why a request ended without result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AbortKind {
    /// Refused on arrival: `--max-queued-requests`.
    QueueFull,
    /// Can never fit: more tokens than the KV pool has.
    TooLarge,
    /// Asked for by the frontend.
    Requested,
    /// The forward pass failed.
    StepFailed,
    /// The grammar of this field turned out to be more than can be followed.
    Grammar(GrammarField),
    /// The engine is gone; made by the frontend, never sent by an engine.
    EngineDead,
    /// The server ends before the request did; made by the frontend, never sent by an engine.
    CutOff,
    /// It took longer than it may; made by the frontend, never sent by an engine.
    TimedOut,
}

impl AbortKind {
    /// As the error of a trace.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::TooLarge => "too_large",
            Self::Requested => "requested",
            Self::StepFailed => "step_failed",
            Self::Grammar(_) => "grammar",
            Self::EngineDead => "engine_dead",
            Self::CutOff => "cut_off",
            Self::TimedOut => "timed_out",
        }
    }
}

/// The dedicated answer to a probe that met a busy scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheckOutput {
    /// The probe's rid, so that the ledger can tell its own answer from other traffic.
    pub rid: Rid,
    /// The probe that is vouched for.
    pub probe: ProbeId,
    /// Its place among the probes that the same batch result vouches for, from 0.
    pub place: u32,
}
