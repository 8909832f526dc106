//! Station 3: decides what runs, and vouches for the probes that had to wait for it.

pub mod settings;
pub mod event_loop;
pub mod request;
pub mod schedule_policy;
pub mod schedule_batch;
pub mod step_budget;
pub mod kv_pool;
pub mod radix_cache;
pub mod outbox;
pub mod vitals;
mod batch_result;
mod sampling;
mod embedding;
mod grammar;
mod pause;
mod flush_cache;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::MonoNanos;
use crate::drills::Drills;
use crate::io_struct::{
    AbortKind, AbortReq, EngineEvent, EngineOutput, Envelope, FromEngine, HealthCheckOutput, HttpWorkerIpc, ProbeId,
    Purpose, Rid, ToEngine, TokenizedEmbeddingReqInput, TokenizedGenerateReqInput,
};
use crate::model_runner::{Logits, ModelRunner, PAGE_SIZE};
use crate::structured::worker::GrammarWorkers;
use crate::telemetry::labels::{Hop, ProbeBranch};
use embedding::{EmbeddingRequest, EmbeddingRequests};
use kv_pool::KvPool;
use outbox::Outbox;
use radix_cache::RadixCache;
use request::Request;
use schedule_policy::{Rank, enqueue};
pub use settings::{PrefixCache, SchedulerConfig};
use step_budget::{StepBudget, StepWork};
use vitals::VitalsPage;

/// What reaches the scheduler.
#[derive(Debug)]
pub enum SchedulerInput {
    /// A message of a frontend.
    Message(HttpWorkerIpc, Box<Envelope<ToEngine>>),
    /// A frontend's connection ended: nobody waits for its requests any more.
    WorkerGone(HttpWorkerIpc),
}

/// Where input comes from; taken twice in a step.
pub trait Inbox {
    /// Everything that has arrived, oldest first; never waits.
    fn take(&mut self) -> Vec<SchedulerInput>;
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// A batch ran.
    Worked,
    /// Requests wait, and yet no batch could be formed.
    Blocked,
    /// Nothing runs until somebody says so.
    Paused,
    /// Nothing to do.
    Idle,
}

/// A probe that met a busy scheduler.
#[derive(Debug)]
struct ParkedProbe {
    worker: HttpWorkerIpc,
    probe: ProbeId,
    rid: Rid,
    request: ProbeRequest,
    sent_at: MonoNanos,
}

/// A probe as its kind of model runs it.
#[derive(Debug)]
enum ProbeRequest {
    Generate(Box<TokenizedGenerateReqInput>),
    Embed(TokenizedEmbeddingReqInput),
}

impl ProbeRequest {
    fn serial(&self) -> u64 {
        match self {
            Self::Generate(request) => request.serial,
            Self::Embed(request) => request.serial,
        }
    }
}

/// The scheduler: no clock, no channel, no thread. [`event_loop`] turns it.
pub struct Scheduler {
    runner: Box<dyn ModelRunner>,
    config: SchedulerConfig,
    waiting: VecDeque<Request>,
    running: Vec<Request>,
    embeddings: EmbeddingRequests,
    return_health_check_ipcs: VecDeque<ParkedProbe>,
    kv_pool: KvPool,
    step_budget: StepBudget,
    /// What the last step did, until somebody says how long it took.
    last_work: Option<StepWork>,
    /// Those of the last step, for their memory.
    logits: Logits,
    /// Prompt tokens that a step could take when the last one was planned.
    prefill_budget: usize,
    vitals: Arc<VitalsPage>,
    drills: Drills,
    grammars: Option<Arc<GrammarWorkers>>,
    paused: bool,
    steps: u64,
    arrivals: u64,
}

impl Scheduler {
    /// A scheduler for `runner` that shows its counts on `vitals`.
    #[must_use]
    pub fn new(runner: Box<dyn ModelRunner>, config: SchedulerConfig, vitals: Arc<VitalsPage>, drills: Drills) -> Self {
        let generates = runner.info().task.is_generation();
        let most = if generates { config.chunked_prefill_size } else { config.max_prefill_tokens };
        let cache = (config.prefix_cache == PrefixCache::On).then(RadixCache::default);
        Self {
            runner,
            config,
            waiting: VecDeque::new(),
            running: Vec::new(),
            embeddings: EmbeddingRequests::default(),
            return_health_check_ipcs: VecDeque::new(),
            kv_pool: KvPool::new(config.max_total_tokens / PAGE_SIZE, cache),
            step_budget: StepBudget::new(most, config.max_step_time),
            last_work: None,
            logits: Logits::default(),
            prefill_budget: most,
            vitals,
            drills,
            grammars: None,
            paused: false,
            steps: 0,
            arrivals: 0,
        }
    }

    /// One turn: take in what arrived, run at most one batch, then vouch for the probes that had to wait for it.
    ///
    /// Input is taken again after the batch: a probe that arrived while it ran is vouched for by its result too, and
    /// waits for the rest of one step, never for a second one.
    pub fn step(&mut self, inbox: &mut dyn Inbox, out: &mut dyn Outbox) -> Turn {
        self.process_input_requests(inbox.take(), out);
        self.run_parked_probe_if_idle(out);
        let ran = self.run_batch(out);
        if ran {
            self.process_input_requests(inbox.take(), out);
            self.maybe_send_health_check_signal(out); // after the batch: a reply proves that the device moved
        } else {
            self.tell_waiting_probes(out);
        }
        self.publish_vitals();
        match (ran, self.is_fully_idle() && self.return_health_check_ipcs.is_empty()) {
            (true, _) => Turn::Worked,
            (false, _) if self.paused => Turn::Paused,
            (false, true) => Turn::Idle,
            (false, false) => Turn::Blocked,
        }
    }

    /// The turn that has just ended took so long, and ran a batch: the next ones are planned by it.
    pub fn step_took(&mut self, took: Duration) {
        if let Some(work) = self.last_work.take() {
            self.step_budget.learn(&work, took);
        }
    }

    /// Nothing runs and nothing waits but probes.
    #[must_use]
    pub fn is_fully_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && self.embeddings.is_empty()
    }

    /// Looks at each arrival, once.
    fn process_input_requests(&mut self, inbox: Vec<SchedulerInput>, out: &mut dyn Outbox) {
        for input in inbox {
            match input {
                SchedulerInput::Message(worker, envelope) => match envelope.msg {
                    ToEngine::Generate(request) => self.process_generate(worker, *request, envelope.sent_at, out),
                    ToEngine::Embed(request) => self.process_embed(worker, request, envelope.sent_at, out),
                    ToEngine::Abort(AbortReq { rid, serial }) => {
                        self.forget(|owner, id, sent| *owner == worker && *id == rid && sent == serial);
                    }
                    ToEngine::Pause(mode) => self.pause(mode, out),
                    ToEngine::Continue => self.resume(out),
                    ToEngine::FlushCache(id) => self.flush_cache(&worker, id, out),
                    // The ipc thread has done it; this turn sees it.
                    ToEngine::Fault(_) | ToEngine::FaultsOff | ToEngine::LogFilter(_) => {}
                },
                SchedulerInput::WorkerGone(worker) => self.forget(|owner, _, _| *owner == worker),
            }
        }
        self.publish_vitals();
    }

    fn process_generate(
        &mut self,
        worker: HttpWorkerIpc,
        request: TokenizedGenerateReqInput,
        sent_at: MonoNanos,
        out: &mut dyn Outbox,
    ) {
        let (rid, serial, purpose) = (request.rid.clone(), request.serial, request.purpose);
        if let Some(probe) = self.meet(&worker, (&rid, serial), purpose, out) {
            let request = ProbeRequest::Generate(Box::new(request));
            self.return_health_check_ipcs.push_back(ParkedProbe { worker, probe, rid, request, sent_at });
            return;
        }
        let rank = self.next_rank(&request);
        if let Err((kind, message)) = self.admit(&request, rank, out) {
            out.send(&worker, request::abort_output(&request, kind, message));
            return;
        }
        if purpose == Purpose::Serve {
            out.send(&worker, FromEngine::Event(EngineEvent::HopEntered { rid, serial, hop: Hop::Queue }));
        }
        let request = self.begin_grammar(Request::new(worker, request, rank));
        enqueue(&mut self.waiting, request);
    }

    fn next_rank(&mut self, request: &TokenizedGenerateReqInput) -> Rank {
        self.arrivals += 1;
        Rank::new(request.purpose, request.priority, self.arrivals, self.config.priorities)
    }

    fn process_embed(
        &mut self,
        worker: HttpWorkerIpc,
        request: TokenizedEmbeddingReqInput,
        sent_at: MonoNanos,
        out: &mut dyn Outbox,
    ) {
        let rid = request.rid.clone();
        match self.meet(&worker, (&rid, request.serial), request.purpose, out) {
            Some(probe) => {
                let request = ProbeRequest::Embed(request);
                self.return_health_check_ipcs.push_back(ParkedProbe { worker, probe, rid, request, sent_at });
            }
            None => self.process_embedding(worker, request, out),
        }
    }

    /// Looks at an arrival, known by rid and serial, and says so. Returns the probe that is to be parked, if it is one.
    fn meet(
        &self,
        worker: &HttpWorkerIpc,
        (rid, serial): (&Rid, u64),
        purpose: Purpose,
        out: &mut dyn Outbox,
    ) -> Option<ProbeId> {
        let mut event = |event| out.send(worker, FromEngine::Event(event));
        event(EngineEvent::HopLeft { rid: rid.clone(), serial, hop: Hop::Inbox });
        event(EngineEvent::HopEntered { rid: rid.clone(), serial, hop: Hop::ProcessInput });
        let branch = self.probe_branch(purpose);
        if let Some(branch) = branch {
            event(EngineEvent::ProbeBranch { rid: rid.clone(), branch });
        }
        event(EngineEvent::HopLeft { rid: rid.clone(), serial, hop: Hop::ProcessInput });
        match (branch, purpose) {
            (Some(ProbeBranch::Busy), Purpose::HealthCheck(probe)) => {
                event(EngineEvent::HopEntered { rid: rid.clone(), serial, hop: Hop::ReturnHealthCheckIpcs });
                Some(probe)
            }
            _ => None,
        }
    }

    /// A probe must not queue behind a long prefill, so a busy scheduler parks it. `None` for other requests.
    fn probe_branch(&self, purpose: Purpose) -> Option<ProbeBranch> {
        match purpose {
            Purpose::Serve => None,
            Purpose::HealthCheck(_) if self.is_fully_idle() => Some(ProbeBranch::Idle),
            Purpose::HealthCheck(_) => Some(ProbeBranch::Busy),
        }
    }

    /// Is there a place for `request`, now or later? One of lower priority may have to make room in the queue.
    fn admit(
        &mut self,
        request: &TokenizedGenerateReqInput,
        rank: Rank,
        out: &mut dyn Outbox,
    ) -> Result<(), (AbortKind, String)> {
        let asked = request.input_ids.len() + request.sampling_params.max_new_tokens as usize;
        let pool = self.kv_pool.total_tokens();
        if asked > pool {
            let message = format!("prompt and output need {asked} tokens, the KV pool (--max-total-tokens) has {pool}");
            return Err((AbortKind::TooLarge, message));
        }
        let served = |request: &&Request| request.purpose == Purpose::Serve; // a probe takes nobody's place
        let live = self.running.iter().filter(served).count() + self.waiting.iter().filter(served).count();
        if request.purpose == Purpose::Serve
            && live >= self.config.max_running_requests + self.config.max_queued_requests
            && !self.displace_last_waiting(rank, out)
        {
            let limit = self.config.max_queued_requests;
            let message = format!("{limit} requests wait already (--max-queued-requests); try again later");
            return Err((AbortKind::QueueFull, message));
        }
        Ok(())
    }

    /// Drops requests and probes, wherever they are, and takes their KV pages back.
    fn forget(&mut self, is_gone: impl Fn(&HttpWorkerIpc, &Rid, u64) -> bool) {
        self.waiting.retain(|request| !is_gone(&request.worker, &request.rid, request.serial));
        self.embeddings.forget(&is_gone);
        let is_gone_probe = |parked: &ParkedProbe| is_gone(&parked.worker, &parked.rid, parked.request.serial());
        self.return_health_check_ipcs.retain(|parked| !is_gone_probe(parked));
        let kv_pool = &mut self.kv_pool;
        self.running.retain_mut(|request| {
            let gone = is_gone(&request.worker, &request.rid, request.serial);
            if gone {
                kv_pool.release(&mut request.pages);
            }
            !gone
        });
    }

    /// Answers every parked probe. Called after a good batch result, and only then: a loop that turns proves nothing.
    fn maybe_send_health_check_signal(&mut self, out: &mut dyn Outbox) {
        let parked = (0..).zip(self.return_health_check_ipcs.drain(..));
        for (place, ParkedProbe { worker, probe, rid, request, .. }) in parked {
            let serial = request.serial();
            let left = EngineEvent::HopLeft { rid: rid.clone(), serial, hop: Hop::ReturnHealthCheckIpcs };
            out.send(&worker, FromEngine::Event(left));
            let answer = HealthCheckOutput { rid, probe, place };
            out.send(&worker, FromEngine::Output(EngineOutput::HealthCheck(answer)));
        }
    }

    /// When the work that the probes waited for is gone (aborted, failed), the oldest runs after all, and vouches for
    /// the others.
    fn run_parked_probe_if_idle(&mut self, out: &mut dyn Outbox) {
        if !self.is_fully_idle() {
            return;
        }
        if let Some(ParkedProbe { worker, rid, request, .. }) = self.return_health_check_ipcs.pop_front() {
            let left = EngineEvent::HopLeft { rid, serial: request.serial(), hop: Hop::ReturnHealthCheckIpcs };
            out.send(&worker, FromEngine::Event(left));
            match request {
                ProbeRequest::Generate(request) => {
                    let rank = self.next_rank(&request);
                    enqueue(&mut self.waiting, Request::new(worker, *request, rank));
                }
                ProbeRequest::Embed(request) => self.embeddings.push(EmbeddingRequest::new(worker, request)),
            }
        }
    }

    /// A probe that could have run and did not is in the queue, and says so.
    fn tell_waiting_probes(&mut self, out: &mut dyn Outbox) {
        for request in self.waiting.iter_mut().filter(|request| request.purpose != Purpose::Serve && !request.queued) {
            request.queued = true;
            let entered = EngineEvent::HopEntered { rid: request.rid.clone(), serial: request.serial, hop: Hop::Queue };
            out.send(&request.worker, FromEngine::Event(entered));
        }
        self.embeddings.tell_waiting_probes(out);
    }

    fn publish_vitals(&self) {
        let serves = |request: &&Request| request.purpose == Purpose::Serve;
        let [texts_waiting, texts_running] = self.embeddings.served();
        let oldest = self.return_health_check_ipcs.front().map(|parked| parked.sent_at);
        self.vitals.set_queues(&vitals::Queues {
            waiting: self.waiting.iter().filter(serves).count() + texts_waiting,
            running: self.running.iter().filter(serves).count() + texts_running,
            return_health_check_ipcs: self.return_health_check_ipcs.len(),
            return_health_check_oldest: oldest,
            kv_used_tokens: self.kv_pool.used_tokens(),
            kv_evictable_tokens: self.kv_pool.evictable_tokens(),
            kv_evicted_tokens: self.kv_pool.evicted_tokens(),
            kv_lacking_tokens: self.kv_lacking_tokens(),
            prefill_budget: self.prefill_budget,
            paused: self.paused,
        });
    }
}

#[cfg(test)]
mod tests;
