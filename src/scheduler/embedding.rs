//! The requests of an embedding model: each runs whole, in one step, and keeps nothing.

use std::collections::{BTreeMap, VecDeque};

use super::outbox::Outbox;
use super::step_budget::{StepBudget, StepWork};
use super::{Purpose, Scheduler};
use crate::io_struct::{
    AbortKind, BatchEmbeddingOutput, EmbeddingOutput, EngineEvent, EngineOutput, FinishReason, FromEngine,
    HttpWorkerIpc, PrefillChunk, Rid, StepInfo, TokenizedEmbeddingReqInput,
};
use crate::model_runner::{Logits, SequenceSlice};
use crate::telemetry::labels::{Hop, StepPhase};

/// A text that waits for its step, or is in it.
#[derive(Debug)]
pub(super) struct EmbeddingRequest {
    worker: HttpWorkerIpc,
    input: TokenizedEmbeddingReqInput,
    /// A probe that had to wait in the queue.
    queued: bool,
}

/// The texts, first come, first served.
#[derive(Debug, Default)]
pub(super) struct EmbeddingRequests {
    waiting: VecDeque<EmbeddingRequest>,
    /// In the step that runs.
    running: Vec<EmbeddingRequest>,
}

/// What the requests of each frontend got.
type News = BTreeMap<HttpWorkerIpc, Vec<EmbeddingOutput>>;

impl EmbeddingRequest {
    pub(super) fn new(worker: HttpWorkerIpc, input: TokenizedEmbeddingReqInput) -> Self {
        Self { worker, input, queued: false }
    }

    fn is_served(&self) -> bool {
        self.input.purpose == Purpose::Serve
    }

    fn send(&self, event: EngineEvent, out: &mut dyn Outbox) {
        out.send(&self.worker, FromEngine::Event(event));
    }

    fn enters(&self, hop: Hop, out: &mut dyn Outbox) {
        self.send(EngineEvent::HopEntered { rid: self.input.rid.clone(), serial: self.input.serial, hop }, out);
    }

    fn leaves(&self, hop: Hop, out: &mut dyn Outbox) {
        self.send(EngineEvent::HopLeft { rid: self.input.rid.clone(), serial: self.input.serial, hop }, out);
    }

    fn output(&self, embedding: Vec<f32>, finish_reason: FinishReason) -> EmbeddingOutput {
        EmbeddingOutput {
            rid: self.input.rid.clone(),
            serial: self.input.serial,
            purpose: self.input.purpose,
            embedding,
            finish_reason,
            prompt_tokens: u32::try_from(self.input.input_ids.len()).unwrap_or(u32::MAX),
        }
    }

    /// Its end without result.
    fn ended(&self, kind: AbortKind, message: String) -> FromEngine {
        let outputs = vec![self.output(Vec::new(), FinishReason::Abort { message, kind })];
        FromEngine::Output(EngineOutput::BatchEmbedding(BatchEmbeddingOutput { outputs }))
    }
}

impl EmbeddingRequests {
    /// Nothing waits and nothing runs, probes included.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// Adds a request that is admitted, or a probe.
    pub(super) fn push(&mut self, request: EmbeddingRequest) {
        self.waiting.push_back(request);
    }

    /// Users' requests that wait, and those that run.
    pub(super) fn served(&self) -> [usize; 2] {
        let served = |request: &&EmbeddingRequest| request.is_served();
        [self.waiting.iter().filter(served).count(), self.running.iter().filter(served).count()]
    }

    /// Drops what nobody wants any more.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&HttpWorkerIpc, &Rid, u64) -> bool) {
        self.waiting.retain(|request| !is_gone(&request.worker, &request.input.rid, request.input.serial));
    }

    /// Ends every user's request that waits; probes stay.
    pub(super) fn abort_all(&mut self, message: &str, out: &mut dyn Outbox) {
        self.waiting.retain(|request| {
            if request.is_served() {
                out.send(&request.worker, request.ended(AbortKind::Requested, message.to_owned()));
            }
            !request.is_served()
        });
    }

    /// A probe that could have run and did not says that it is in the queue.
    pub(super) fn tell_waiting_probes(&mut self, out: &mut dyn Outbox) {
        for request in self.waiting.iter_mut().filter(|request| !request.is_served() && !request.queued) {
            request.queued = true;
            request.enters(Hop::Queue, out);
        }
    }

    /// Moves the head of the queue into the step: at most `requests`, and as many as `budget` has room for, but always one.
    /// Returns what the step will have to do.
    fn form_batch(&mut self, requests: usize, budget: &StepBudget, out: &mut dyn Outbox) -> StepWork {
        let mut work = StepWork::default();
        while self.running.len() < requests {
            let fits = |request: &mut EmbeddingRequest| request.input.input_ids.len() <= budget.chunk(&work, 0);
            let is_first = self.running.is_empty();
            let Some(request) = self.waiting.pop_front_if(|request| is_first || fits(request)) else { break };
            work.add_prefill(0, request.input.input_ids.len());
            if request.is_served() || request.queued {
                request.leaves(Hop::Queue, out);
            }
            if request.is_served() {
                request.enters(Hop::Prefill, out);
            } else {
                request.enters(Hop::RunBatch, out);
                request.enters(Hop::Forward, out);
            }
            self.running.push(request);
        }
        work
    }

    /// Tells each frontend which of its texts are about to run, in one message.
    fn tell_chunks(&self, out: &mut dyn Outbox) {
        let mut chunks: BTreeMap<&HttpWorkerIpc, Vec<PrefillChunk>> = BTreeMap::new();
        for EmbeddingRequest { worker, input, .. } in self.running.iter().filter(|request| request.is_served()) {
            let tokens = u32::try_from(input.input_ids.len()).unwrap_or(u32::MAX);
            chunks.entry(worker).or_default().push(PrefillChunk { rid: input.rid.clone(), tokens });
        }
        for (worker, chunks) in chunks {
            out.send(worker, FromEngine::Event(EngineEvent::PrefillChunks(chunks)));
        }
    }

    /// Ends the step: each request gets its row, or the reason why there is none.
    fn finish(&mut self, result: Result<Logits, String>, out: &mut dyn Outbox) {
        let mut news = News::new();
        let mut rows = result.as_ref().map(Logits::rows);
        for request in self.running.drain(..) {
            request.leaves(if request.is_served() { Hop::Prefill } else { Hop::RunBatch }, out);
            let output = match &mut rows {
                Ok(rows) => {
                    let row = rows.next().expect("the runner returns a row for each slice that wants one");
                    request.output(row.to_vec(), FinishReason::Length(0))
                }
                Err(message) => {
                    let reason = FinishReason::Abort { message: message.to_string(), kind: AbortKind::StepFailed };
                    request.output(Vec::new(), reason)
                }
            };
            news.entry(request.worker).or_default().push(output);
        }
        for (worker, outputs) in news {
            let output = EngineOutput::BatchEmbedding(BatchEmbeddingOutput { outputs });
            out.send(&worker, FromEngine::Output(output));
        }
    }
}

impl Scheduler {
    /// Takes a user's text in, or an idle scheduler's probe.
    pub(super) fn process_embedding(
        &mut self,
        worker: HttpWorkerIpc,
        input: TokenizedEmbeddingReqInput,
        out: &mut dyn Outbox,
    ) {
        let request = EmbeddingRequest::new(worker, input);
        if let Err((kind, message)) = self.admit_embedding(&request) {
            return out.send(&request.worker, request.ended(kind, message));
        }
        if request.is_served() {
            request.enters(Hop::Queue, out);
        }
        self.embeddings.push(request);
    }

    fn admit_embedding(&self, request: &EmbeddingRequest) -> Result<(), (AbortKind, String)> {
        let (tokens, limit) = (request.input.input_ids.len(), self.runner.info().context_length as usize);
        if tokens > limit {
            let message = format!("the text has {tokens} tokens, at most {limit} fit into the context");
            return Err((AbortKind::TooLarge, message));
        }
        let live: usize = self.embeddings.served().iter().sum();
        if request.is_served() && live >= self.config.max_running_requests + self.config.max_queued_requests {
            let limit = self.config.max_queued_requests;
            let message = format!("{limit} requests wait already (--max-queued-requests); try again later");
            return Err((AbortKind::QueueFull, message));
        }
        Ok(())
    }

    /// Runs at most one batch of texts. True if one ran and its result is good.
    pub(super) fn run_embedding_batch(&mut self, out: &mut dyn Outbox) -> bool {
        self.prefill_budget = self.step_budget.chunk(&StepWork::default(), 0);
        let work = self.embeddings.form_batch(self.config.max_running_requests, &self.step_budget, out);
        if self.embeddings.running.is_empty() {
            return false;
        }
        self.steps += 1;
        let slices = self.embeddings.running.iter().map(|request| SequenceSlice {
            tokens: &request.input.input_ids,
            start: 0,
            pages: &[],
            wants_logits: true,
        });
        let slices: Vec<SequenceSlice<'_>> = slices.collect();
        let tokens: usize = slices.iter().map(|slice| slice.tokens.len()).sum();
        let info = StepInfo {
            number: self.steps,
            phase: StepPhase::Prefill,
            tokens: u32::try_from(tokens).unwrap_or(u32::MAX),
            requests: u32::try_from(slices.len()).unwrap_or(u32::MAX),
        };
        self.publish_vitals();
        out.broadcast(FromEngine::Event(EngineEvent::StepBegan(info)));
        self.embeddings.tell_chunks(out);
        let result = self.runner.forward(&slices);
        out.broadcast(FromEngine::Event(EngineEvent::StepEnded(info)));
        for request in self.embeddings.running.iter().filter(|request| !request.is_served()) {
            request.leaves(Hop::Forward, out);
        }
        let good = result.is_ok();
        match &result {
            Ok(_) => {
                self.vitals.batch_result();
                self.last_work = Some(work);
            }
            Err(error) => self.tell_failed_step(info.number, error),
        }
        self.embeddings.finish(result.map_err(|error| error.to_string()), out);
        good
    }
}

#[cfg(test)]
mod tests;
