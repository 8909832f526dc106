//! What a step costs beside its forward pass: the gap between two steps, with 32 streams of the default model.
//!
//! `RADIOSONDE_BENCH_THREADS` are the threads of the forward pass.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use radiosonde::config::SchedulePolicy;
use radiosonde::drills::Drills;
use radiosonde::io_struct::{
    EngineEvent, Envelope, FromEngine, HttpWorkerIpc, KvCacheDtype, LogprobsWanted, Purpose, Rid, SamplingParams,
    ToEngine, TokenId, TokenizedGenerateReqInput,
};
use radiosonde::model_runner::weights::{LoadOptions, load};
use radiosonde::scheduler::outbox::Outbox;
use radiosonde::scheduler::schedule_policy::Priorities;
use radiosonde::scheduler::{Inbox, PrefixCache, Scheduler, SchedulerConfig, SchedulerInput};
use radiosonde::telemetry::labels::StepPhase;

const STREAMS: usize = 32;
const CONTEXT: usize = 128;
const STEPS: u32 = 40;
const POOL_TOKENS: u32 = 16_384;

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo test --benches` asks for a quick pass only.
    if !std::env::args().any(|arg| arg == "--bench") {
        return Ok(());
    }
    let greedy = SamplingParams { temperature: 0.0, ..SamplingParams::default() };
    let sampled = SamplingParams::default();
    let nucleus = SamplingParams { temperature: 0.7, top_p: 0.9, ..SamplingParams::default() };
    let best_of = SamplingParams { temperature: 0.7, top_k: Some(40), ..SamplingParams::default() };
    for (what, params) in [("greedy", greedy), ("sampled", sampled), ("top_p 0.9", nucleus), ("top_k 40", best_of)] {
        report(what, &params, None)?;
    }
    report("greedy, logprobs", &SamplingParams { temperature: 0.0, ..SamplingParams::default() }, Some(5))
}

#[derive(Default)]
struct Arrivals(Vec<SchedulerInput>);

impl Inbox for Arrivals {
    fn take(&mut self) -> Vec<SchedulerInput> {
        std::mem::take(&mut self.0)
    }
}

/// When steps began and ended.
#[derive(Default)]
struct Steps {
    phase: Option<StepPhase>,
    ended: Option<Instant>,
    began: Option<Instant>,
    forward: Vec<Duration>,
    gaps: Vec<Duration>,
}

impl Outbox for Steps {
    fn send(&mut self, _: &HttpWorkerIpc, _: FromEngine) {}

    fn broadcast(&mut self, msg: FromEngine) {
        match msg {
            FromEngine::Event(EngineEvent::StepBegan(step)) => {
                self.phase = Some(step.phase);
                self.gaps.extend(self.ended.take().map(|ended| ended.elapsed()));
                self.began = Some(Instant::now());
            }
            FromEngine::Event(EngineEvent::StepEnded(_)) => {
                self.forward.extend(self.began.take().map(|began| began.elapsed()));
                self.ended = Some(Instant::now());
            }
            _ => {}
        }
    }
}

fn report(what: &str, params: &SamplingParams, top_logprobs: Option<u32>) -> Result<(), Box<dyn Error>> {
    let threads = std::env::var("RADIOSONDE_BENCH_THREADS").ok().map(|text| text.parse()).transpose()?;
    let options = LoadOptions {
        context_length: None,
        max_total_tokens: POOL_TOKENS,
        threads,
        pin_threads: false,
        kv_cache_dtype: KvCacheDtype::F16,
        kernels: None,
    };
    let runner = load(&radiosonde::model_hub::default_model()?, &options)?;
    let config = SchedulerConfig {
        chunked_prefill_size: 512,
        max_step_time: Some(Duration::from_millis(100)),
        prefix_cache: PrefixCache::On,
        policy: SchedulePolicy::Fcfs,
        priorities: Priorities::Off,
        max_prefill_tokens: 512,
        max_running_requests: STREAMS,
        max_queued_requests: STREAMS,
        max_total_tokens: POOL_TOKENS as usize,
    };
    let mut scheduler = Scheduler::new(runner, config, Arc::default(), Drills::default());
    let requests = (0..STREAMS).map(|number| request(number, params, top_logprobs));
    let mut inbox = Arrivals(requests.collect::<Result<_, _>>()?);
    let (mut filling, mut steps) = (Steps::default(), Steps::default());
    let mut prefill = Vec::new();
    while filling.phase != Some(StepPhase::Decode) {
        let began = Instant::now();
        scheduler.step(&mut inbox, &mut filling);
        scheduler.step_took(began.elapsed());
        prefill.push(began.elapsed());
    }
    for _ in 0..STEPS {
        scheduler.step(&mut inbox, &mut steps);
    }
    let (forward, gap) = (median(steps.forward), median(steps.gaps));
    let share = 100.0 * gap.as_secs_f64() / (gap + forward).as_secs_f64();
    let longest = prefill.into_iter().max().unwrap_or_default();
    say(&format!(
        "{what:18} forward {forward:9.2?}  gap {gap:9.2?}  {share:5.2} %  longest step of the prefill {longest:9.2?}"
    ));
    Ok(())
}

fn request(
    number: usize,
    params: &SamplingParams,
    top_logprobs: Option<u32>,
) -> Result<SchedulerInput, Box<dyn Error>> {
    let prompt = (0..CONTEXT).map(|i| TokenId(1000 + ((i + 131 * number) * 7919 % 40_000) as u32));
    let input = TokenizedGenerateReqInput {
        rid: Rid::from_caller(&format!("r{number}"))?,
        serial: 0,
        purpose: Purpose::Serve,
        input_ids: prompt.collect(),
        sampling_params: SamplingParams { max_new_tokens: 200, ignore_eos: true, ..params.clone() },
        logprobs: top_logprobs.map(|top| LogprobsWanted { top, ..LogprobsWanted::default() }),
        priority: None,
    };
    let envelope = Envelope::now(ToEngine::Generate(Box::new(input)));
    Ok(SchedulerInput::Message(HttpWorkerIpc::new("bench"), Box::new(envelope)))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[expect(clippy::print_stdout, reason = "the result")]
fn say(line: &str) {
    println!("{line}");
}
