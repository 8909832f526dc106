//! A scheduler on a bench, with a model whose every output is known: what all its tests turn by hand.

use std::sync::Mutex;

use crate::config::SchedulePolicy;
use crate::io_struct::{ModelInfo, ModelSource, ModelTask, SamplingParams, TokenId, TokenIdOutput};
use crate::model_runner::{ForwardError, Logits, SequenceSlice};
use crate::scheduler::schedule_policy::Priorities;
use crate::scheduler::*;

/// The next token is the sum of all before it, each as often as its place says, modulo 100: it sees a token that is lost,
/// doubled or elsewhere. A shared log shows what ran.
struct SumRunner {
    info: ModelInfo,
    kv: Vec<u32>,
    log: Arc<Mutex<Vec<Vec<usize>>>>,
    fail: bool,
}

impl ModelRunner for SumRunner {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn forward_into(&mut self, batch: &[SequenceSlice<'_>], logits: &mut Logits) -> Result<(), ForwardError> {
        self.log.lock().unwrap().push(batch.iter().map(|slice| slice.tokens.len()).collect());
        if self.fail {
            return Err(ForwardError::Scripted(1));
        }
        let mut values = Vec::new();
        for slice in batch {
            let place =
                |position: usize| slice.pages[position / PAGE_SIZE].0 as usize * PAGE_SIZE + position % PAGE_SIZE;
            for (i, token) in slice.tokens.iter().enumerate() {
                self.kv[place(slice.start + i)] = token.0;
            }
            if slice.wants_logits {
                let all: Vec<u32> =
                    (0..slice.start + slice.tokens.len()).map(|position| self.kv[place(position)]).collect();
                let mut row = vec![0.0; 100];
                row[next(&all) as usize] = 1.0;
                values.extend(row);
            }
        }
        *logits = Logits::new(values, 100);
        Ok(())
    }
}

/// What comes, turn by turn.
#[derive(Default)]
pub(in crate::scheduler) struct Arrivals(pub(in crate::scheduler) VecDeque<Vec<SchedulerInput>>);

impl Inbox for Arrivals {
    fn take(&mut self) -> Vec<SchedulerInput> {
        self.0.pop_front().unwrap_or_default()
    }
}

#[derive(Default)]
pub(in crate::scheduler) struct Sent(pub(in crate::scheduler) Vec<(String, FromEngine)>);

impl Outbox for Sent {
    fn send(&mut self, worker: &HttpWorkerIpc, msg: FromEngine) {
        self.0.push((worker.to_string(), msg));
    }
    fn broadcast(&mut self, msg: FromEngine) {
        self.0.push(("*".to_owned(), msg));
    }
}

pub(in crate::scheduler) struct Bench {
    pub(in crate::scheduler) scheduler: Scheduler,
    pub(in crate::scheduler) log: Arc<Mutex<Vec<Vec<usize>>>>,
    pub(in crate::scheduler) sent: Sent,
}

pub(in crate::scheduler) fn bench(config: SchedulerConfig) -> Bench {
    bench_with(config, false)
}

pub(in crate::scheduler) fn bench_with(config: SchedulerConfig, fail: bool) -> Bench {
    let log = Arc::new(Mutex::new(Vec::new()));
    let info = ModelInfo {
        source: ModelSource::Scripted(String::new()),
        name: "sum".to_owned(),
        architecture: "scripted".to_owned(),
        task: ModelTask::Generate,
        vocab_size: 100,
        context_length: 4096,
        eos_token_ids: vec![TokenId(99)],
        max_total_tokens: 4096,
        kernels: None,
        kv_cache_dtype: None,
        weight_bytes: 0,
        load_seconds: 0.0,
    };
    let runner = SumRunner { info, kv: vec![0; config.max_total_tokens], log: Arc::clone(&log), fail };
    let scheduler = Scheduler::new(Box::new(runner), config, Arc::default(), Drills::default());
    Bench { scheduler, log, sent: Sent::default() }
}

pub(in crate::scheduler) const ROOMY: SchedulerConfig = SchedulerConfig {
    chunked_prefill_size: 8,
    max_step_time: None,
    prefix_cache: PrefixCache::On,
    policy: SchedulePolicy::Fcfs,
    priorities: Priorities::Off,
    max_prefill_tokens: 8,
    max_running_requests: 4,
    max_queued_requests: 4,
    max_total_tokens: 1024,
};

pub(in crate::scheduler) fn request(rid: &str, prompt: &[u32], max_new_tokens: u32) -> SchedulerInput {
    let sampling_params =
        SamplingParams { max_new_tokens, temperature: 0.0, ignore_eos: true, ..SamplingParams::default() };
    let input = TokenizedGenerateReqInput {
        rid: Rid::from_caller(rid).unwrap(),
        serial: 0,
        purpose: Purpose::Serve,
        input_ids: prompt.iter().copied().map(TokenId).collect(),
        sampling_params,
        logprobs: None,
        priority: None,
    };
    SchedulerInput::Message(HttpWorkerIpc::new("w"), Box::new(Envelope::now(ToEngine::Generate(Box::new(input)))))
}

pub(in crate::scheduler) fn probe() -> (Rid, SchedulerInput) {
    let probe = ProbeId::random();
    let input = TokenizedGenerateReqInput {
        rid: probe.rid(),
        serial: 0,
        purpose: Purpose::HealthCheck(probe),
        input_ids: vec![TokenId(0)],
        sampling_params: SamplingParams::probe(),
        logprobs: None,
        priority: None,
    };
    (
        probe.rid(),
        SchedulerInput::Message(HttpWorkerIpc::new("w"), Box::new(Envelope::now(ToEngine::Generate(Box::new(input))))),
    )
}

pub(in crate::scheduler) fn abort(rid: &Rid) -> SchedulerInput {
    let msg = ToEngine::Abort(AbortReq { rid: rid.clone(), serial: 0 });
    SchedulerInput::Message(HttpWorkerIpc::new("w"), Box::new(Envelope::now(msg)))
}

impl Bench {
    pub(in crate::scheduler) fn step(&mut self, arrivals: Vec<Vec<SchedulerInput>>) -> Turn {
        let turn = self.scheduler.step(&mut Arrivals(arrivals.into()), &mut self.sent);
        let requests = self.scheduler.running.iter().chain(&self.scheduler.waiting);
        self.scheduler.kv_pool.audit(requests.map(|request| &request.pages));
        turn
    }

    pub(in crate::scheduler) fn run(&mut self, arrivals: Vec<SchedulerInput>) {
        let mut turn = self.step(vec![arrivals]);
        for _ in 0..10_000 {
            if turn == Turn::Idle {
                return;
            }
            turn = self.step(vec![]);
        }
        panic!("never idle");
    }

    pub(in crate::scheduler) fn outputs(&self, rid: &str) -> Vec<TokenIdOutput> {
        self.all_outputs().filter(|output| output.rid.as_str() == rid).cloned().collect()
    }

    /// Who got something, in order.
    pub(in crate::scheduler) fn news(&self) -> Vec<String> {
        self.all_outputs().map(|output| output.rid.to_string()).collect()
    }

    /// Who ended, in order.
    pub(in crate::scheduler) fn finished(&self) -> Vec<String> {
        let ended = self.all_outputs().filter(|output| output.finish_reason.is_some());
        ended.map(|output| output.rid.to_string()).collect()
    }

    fn all_outputs(&self) -> impl Iterator<Item = &TokenIdOutput> {
        let batches = self.sent.0.iter().filter_map(|(_, msg)| match msg {
            FromEngine::Output(EngineOutput::BatchTokenId(batch)) => Some(&batch.outputs),
            _ => None,
        });
        batches.flatten()
    }

    pub(in crate::scheduler) fn text(&self, rid: &str) -> Vec<u32> {
        self.outputs(rid).iter().flat_map(|output| &output.output_ids).map(|id| id.0).collect()
    }

    pub(in crate::scheduler) fn vouched(&self) -> Vec<Rid> {
        let vouched = self.sent.0.iter().filter_map(|(_, msg)| match msg {
            FromEngine::Output(EngineOutput::HealthCheck(answer)) => Some(answer.rid.clone()),
            _ => None,
        });
        vouched.collect()
    }

    pub(in crate::scheduler) fn branches(&self) -> Vec<ProbeBranch> {
        let branches = self.sent.0.iter().filter_map(|(_, msg)| match msg {
            FromEngine::Event(EngineEvent::ProbeBranch { branch, .. }) => Some(*branch),
            _ => None,
        });
        branches.collect()
    }

    pub(in crate::scheduler) fn is_clean(&self) -> bool {
        self.scheduler.is_fully_idle()
            && self.scheduler.return_health_check_ipcs.is_empty()
            && self.scheduler.kv_pool.used_tokens() == 0
    }
}

pub(in crate::scheduler) fn next(tokens: &[u32]) -> u32 {
    (1..).zip(tokens).fold(0, |sum, (place, token)| (sum + place * token) % 100)
}

/// What `SumRunner` says after `prompt`.
pub(in crate::scheduler) fn expected(prompt: &[u32], len: usize) -> Vec<u32> {
    let mut all = prompt.to_vec();
    for _ in 0..len {
        all.push(next(&all));
    }
    all.split_off(prompt.len())
}

pub(in crate::scheduler) fn message(msg: ToEngine) -> SchedulerInput {
    SchedulerInput::Message(HttpWorkerIpc::new("w"), Box::new(Envelope::now(msg)))
}
