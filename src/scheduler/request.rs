//! One request inside the scheduler: its tokens, its pages, and how far it has come.

use super::kv_pool::{KvPool, PageTable};
use super::schedule_policy::Rank;
use crate::io_struct::{
    AbortKind, BatchTokenIdOutput, EngineOutput, FinishReason, FromEngine, HttpWorkerIpc, Purpose, Rid, SamplingParams,
    TokenId, TokenIdOutput, TokenLogprob, TokenizedGenerateReqInput,
};
use crate::model_runner::sampler::SamplingInput;

/// A request that waits or runs.
#[derive(Debug)]
pub struct Request {
    /// Who asked.
    pub worker: HttpWorkerIpc,
    /// Its id, unique for its worker.
    pub rid: Rid,
    /// Why it exists.
    pub purpose: Purpose,
    /// Its place among all others.
    pub rank: Rank,
    /// How to sample and when to stop.
    pub params: SamplingParams,
    /// Logprobs wanted, with so many rivals.
    pub top_logprobs: Option<u32>,
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
            purpose: input.purpose,
            rank,
            seed: input.sampling_params.sampling_seed.unwrap_or_else(rand::random),
            params: input.sampling_params,
            top_logprobs: input.top_logprobs,
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
        self.num_retractions += 1;
    }

    /// Takes over what is known of its tokens by now. Its last one always runs, for its logits are wanted; and a probe
    /// runs as a whole, for it must prove that the model does.
    pub fn share(&mut self, kv_pool: &mut KvPool) {
        if self.decoding || self.purpose != Purpose::Serve {
            return;
        }
        let before = self.computed;
        kv_pool.share(&mut self.pages, &self.tokens[..self.tokens.len() - 1]);
        self.computed = before.max(self.pages.shared_tokens());
        if self.num_retractions == 0 {
            self.cached_tokens += self.computed - before;
        }
    }

    /// Its tokens, as far as they may come out of the cache.
    #[must_use]
    pub fn shareable(&self) -> &[TokenId] {
        match self.purpose {
            Purpose::Serve => &self.tokens[..self.tokens.len() - 1],
            Purpose::HealthCheck(_) => &[],
        }
    }

    /// `tokens` more of its tokens are computed, and so for everybody who begins alike; not those of a probe.
    pub fn computed(&mut self, tokens: usize, kv_pool: &mut KvPool) {
        self.computed += tokens;
        if self.purpose == Purpose::Serve {
            kv_pool.keep(&mut self.pages, &self.tokens[..self.computed]);
        }
    }

    /// What the choice of its next token depends on.
    #[must_use]
    pub fn sampling_input(&self) -> SamplingInput<'_> {
        let (prompt, output) = self.tokens.split_at(self.prompt_len);
        SamplingInput { params: &self.params, prompt, output, seed: self.seed, top_logprobs: self.top_logprobs }
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
        &self,
        token: Option<TokenId>,
        logprobs: Vec<TokenLogprob>,
        finish_reason: Option<FinishReason>,
    ) -> TokenIdOutput {
        let hidden = matches!(finish_reason, Some(FinishReason::StopToken(_)));
        TokenIdOutput {
            rid: self.rid.clone(),
            purpose: self.purpose,
            output_ids: token.filter(|_| !hidden).into_iter().collect(),
            logprobs: if hidden { Vec::new() } else { logprobs },
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
            purpose: input.purpose,
            output_ids: Vec::new(),
            logprobs: Vec::new(),
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
pub fn ended(request: &Request, kind: AbortKind, message: String) -> FromEngine {
    let output = request.output(None, Vec::new(), Some(FinishReason::Abort { message, kind }));
    FromEngine::Output(EngineOutput::BatchTokenId(BatchTokenIdOutput { outputs: vec![output] }))
}

fn count(tokens: usize) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}
