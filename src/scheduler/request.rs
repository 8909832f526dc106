//! One request inside the scheduler: its tokens, its pages, and how far it has come.

use std::ops::Range;

use super::kv_pool::{KvPool, PageTable};
use super::schedule_policy::Rank;
use crate::io_struct::{
    AbortKind, BatchTokenIdOutput, EngineOutput, FinishReason, FromEngine, HttpWorkerIpc, LogprobsWanted, Purpose, Rid,
    SamplingParams, TokenId, TokenIdOutput, TokenLogprob, TokenizedGenerateReqInput,
};
use crate::model_runner::sampler::SamplingInput;
use crate::structured::worker::Constraint;

/// A request that waits or runs.
#[derive(Debug)]
pub struct Request {
    /// Who asked.
    pub worker: HttpWorkerIpc,
    /// Its id, unique for its worker.
    pub rid: Rid,
    /// Comes back with each output.
    pub serial: u64,
    /// Why it exists.
    pub purpose: Purpose,
    /// Its place among all others.
    pub rank: Rank,
    /// How to sample and when to stop.
    pub params: SamplingParams,
    /// Its grammar, in step with its output; a retraction changes neither.
    pub constraint: Option<Constraint>,
    /// Logprobs wanted.
    pub logprobs: Option<LogprobsWanted>,
    /// Those of the prompt, until they are sent with the first output.
    pub input_logprobs: Vec<TokenLogprob>,
    /// Prompt and output.
    pub tokens: Vec<TokenId>,
    /// Length of the prompt.
    pub prompt_len: usize,
    /// Tokens whose keys and values are in the pool.
    pub computed: usize,
    /// Its pages of the pool.
    pub pages: PageTable,
    /// It has said something since it got its place: nothing is missing but its newest token.
    pub decoding: bool,
    /// Prompt tokens that somebody else had computed.
    pub cached_tokens: usize,
    /// Drives sampling; drawn once, so that a retracted request goes on as if nothing had happened.
    pub seed: u64,
    /// How often it gave its pages back.
    pub num_retractions: u32,
    /// A probe that had to wait in the queue.
    pub queued: bool,
}

impl Request {
    /// A request that has just arrived.
    #[must_use]
    pub fn new(worker: HttpWorkerIpc, input: TokenizedGenerateReqInput, rank: Rank) -> Self {
        Self {
            worker,
            rid: input.rid,
            serial: input.serial,
            purpose: input.purpose,
            rank,
            seed: input.sampling_params.sampling_seed.unwrap_or_else(rand::random),
            params: input.sampling_params,
            constraint: None,
            logprobs: input.logprobs,
            input_logprobs: Vec::new(),
            prompt_len: input.input_ids.len(),
            tokens: input.input_ids,
            computed: 0,
            pages: PageTable::default(),
            decoding: false,
            cached_tokens: 0,
            num_retractions: 0,
            queued: false,
        }
    }

    /// Output tokens so far.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// Gives up what was computed, so that it can start again.
    pub fn retract(&mut self, kv_pool: &mut KvPool) {
        kv_pool.release(&mut self.pages);
        (self.computed, self.decoding) = (0, false);
        self.input_logprobs.clear(); // sent, or computed again
        self.num_retractions += 1;
    }

    /// Takes over what is known of its tokens by now.
    pub fn share(&mut self, kv_pool: &mut KvPool) {
        let before = self.computed;
        let len = self.shareable_len();
        kv_pool.share(&mut self.pages, &self.tokens[..len]);
        self.computed = before.max(self.pages.shared_tokens());
        if self.num_retractions == 0 {
            self.cached_tokens += self.computed - before;
        }
    }

    /// Its tokens, as far as they may come out of the cache: a token whose logits are wanted runs, and so does a probe as a
    /// whole, for it must prove that the model does.
    #[must_use]
    pub fn shareable(&self) -> &[TokenId] {
        &self.tokens[..self.shareable_len()]
    }

    fn shareable_len(&self) -> usize {
        match self.purpose {
            Purpose::Serve => self.scores_from().unwrap_or(usize::MAX).min(self.tokens.len() - 1),
            Purpose::HealthCheck(_) => 0,
        }
    }

    /// `tokens` more of its tokens are computed, and so for everybody who begins alike; not those of a probe.
    pub fn computed(&mut self, tokens: usize, kv_pool: &mut KvPool) {
        self.computed += tokens;
        if self.purpose == Purpose::Serve {
            kv_pool.keep(&mut self.pages, &self.tokens[..self.computed]);
        }
    }

    /// The first place of the prompt whose logits are wanted: they are those of the token behind it. `None`: of none, or
    /// of none any more.
    #[must_use]
    pub fn scores_from(&self) -> Option<usize> {
        let from = self.logprobs.as_ref()?.input_from? as usize;
        (self.output_len() == 0).then_some(from)
    }

    /// The places whose logits are wanted among the `count` next ones to be computed.
    #[must_use]
    pub fn scored(&self, count: usize) -> Range<usize> {
        let end = (self.computed + count).min(self.prompt_len - 1);
        match self.scores_from() {
            Some(from) if from.max(self.computed) < end => from.max(self.computed)..end,
            _ => end..end,
        }
    }

    /// It has its next token after `count` more are computed, and not only what it was asked for.
    #[must_use]
    pub fn samples_after(&self, count: usize) -> bool {
        self.computed + count == self.tokens.len() && self.params.max_new_tokens > 0
    }

    /// What the choice of its next token depends on, if only the tokens of `allowed` may come.
    #[must_use]
    pub fn sampling_input<'a>(&'a self, allowed: Option<&'a [u32]>) -> SamplingInput<'a> {
        let (prompt, output) = self.tokens.split_at(self.prompt_len);
        let logprobs = self.logprobs.as_ref();
        SamplingInput { params: &self.params, prompt, output, seed: self.seed, logprobs, allowed }
    }

    /// Why the request ends with `token` as its newest output, if it does. `eos` are the model's own stop tokens.
    #[must_use]
    pub fn finish_reason(&self, token: TokenId, eos: &[TokenId]) -> Option<FinishReason> {
        let output = self.output_len();
        let may_stop = output >= self.params.min_new_tokens as usize;
        let is_eos = !self.params.ignore_eos && eos.contains(&token);
        if may_stop && (is_eos || self.params.stop_token_ids.contains(&token)) {
            return Some(FinishReason::StopToken(token));
        }
        (output >= self.params.max_new_tokens as usize).then_some(FinishReason::Length(self.params.max_new_tokens))
    }

    /// News of this request; a matched stop token is counted but not shown.
    #[must_use]
    pub fn output(
        &mut self,
        token: Option<TokenId>,
        logprobs: Vec<TokenLogprob>,
        finish_reason: Option<FinishReason>,
    ) -> TokenIdOutput {
        let hidden = matches!(finish_reason, Some(FinishReason::StopToken(_)));
        TokenIdOutput {
            rid: self.rid.clone(),
            serial: self.serial,
            purpose: self.purpose,
            output_ids: token.filter(|_| !hidden).into_iter().collect(),
            logprobs: if hidden { Vec::new() } else { logprobs },
            input_logprobs: std::mem::take(&mut self.input_logprobs),
            finish_reason,
            prompt_tokens: count(self.prompt_len),
            completion_tokens: count(self.output_len()),
            cached_tokens: count(self.cached_tokens),
            num_retractions: self.num_retractions,
        }
    }
}

/// The answer to a request that never got a place.
#[must_use]
pub fn abort_output(input: &TokenizedGenerateReqInput, kind: AbortKind, message: String) -> FromEngine {
    FromEngine::Output(EngineOutput::BatchTokenId(BatchTokenIdOutput {
        outputs: vec![TokenIdOutput {
            rid: input.rid.clone(),
            serial: input.serial,
            purpose: input.purpose,
            output_ids: Vec::new(),
            logprobs: Vec::new(),
            input_logprobs: Vec::new(),
            finish_reason: Some(FinishReason::Abort { message, kind }),
            prompt_tokens: count(input.input_ids.len()),
            completion_tokens: 0,
            cached_tokens: 0,
            num_retractions: 0,
        }],
    }))
}

/// The end of a request without result.
#[must_use]
pub fn ended(request: &mut Request, kind: AbortKind, message: String) -> FromEngine {
    let output = request.output(None, Vec::new(), Some(FinishReason::Abort { message, kind }));
    FromEngine::Output(EngineOutput::BatchTokenId(BatchTokenIdOutput { outputs: vec![output] }))
}

fn count(tokens: usize) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
