//! Below a scheduler, a prompt that is taken from the prefix cache goes on, to the last bit, as one that is computed.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use candle_core::quantized::GgmlDType;
use radiosonde::config::SchedulePolicy;
use radiosonde::drills::Drills;
use radiosonde::io_struct::{
    EngineOutput, Envelope, FromEngine, HttpWorkerIpc, KvCacheDtype, LogprobsWanted, Purpose, Rid, SamplingParams,
    ToEngine, TokenId, TokenIdOutput, TokenizedGenerateReqInput,
};
use radiosonde::model_runner::ModelRunner;
use radiosonde::model_runner::weights::{LoadOptions, load};
use radiosonde::scheduler::outbox::Outbox;
use radiosonde::scheduler::schedule_policy::Priorities;
use radiosonde::scheduler::{Inbox, PrefixCache, Scheduler, SchedulerConfig, SchedulerInput, Turn};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::options;
use crate::tiny::{Tiny, VOCAB};
use crate::widths::ODD;

#[derive(Default)]
struct Arrivals(VecDeque<SchedulerInput>);

impl Inbox for Arrivals {
    fn take(&mut self) -> Vec<SchedulerInput> {
        self.0.pop_front().into_iter().collect()
    }
}

#[derive(Default)]
struct Outputs(Vec<TokenIdOutput>);

impl Outbox for Outputs {
    fn send(&mut self, _: &HttpWorkerIpc, msg: FromEngine) {
        if let FromEngine::Output(EngineOutput::BatchTokenId(batch)) = msg {
            self.0.extend(batch.outputs);
        }
    }
    fn broadcast(&mut self, _: FromEngine) {}
}

/// Some of them begin alike; half are sampled, and all want logprobs, which tell every bit of the logits.
fn requests(random: &mut StdRng) -> Vec<TokenizedGenerateReqInput> {
    let token = |random: &mut StdRng| TokenId(random.random_range(0..VOCAB as u32));
    let stems: Vec<Vec<_>> = [16, 50, 100].map(|len| (0..len).map(|_| token(random)).collect()).into();
    let request = |number: u64| {
        let stem = stems.choose(random).expect("three");
        let own: Vec<_> = (0..random.random_range(1..40)).map(|_| token(random)).collect();
        let temperature = [0.0, 0.8][random.random_range(0..2)];
        TokenizedGenerateReqInput {
            rid: Rid::from_caller(&number.to_string()).expect("a short rid"),
            serial: number,
            purpose: Purpose::Serve,
            input_ids: [stem.as_slice(), &own].concat(),
            sampling_params: SamplingParams {
                max_new_tokens: random.random_range(1..30),
                temperature,
                sampling_seed: Some(number),
                ignore_eos: true,
                ..SamplingParams::default()
            },
            logprobs: Some(LogprobsWanted { top: 3, ..LogprobsWanted::default() }),
            priority: None,
        }
    };
    (0..24).map(request).collect()
}

/// What each request got: its tokens, and the bits of their logprobs.
type Answers = BTreeMap<String, Vec<(TokenId, u32)>>;

/// Serves `requests` and returns the answers and how many prompt tokens were not computed.
fn serve(
    runner: Box<dyn ModelRunner>,
    config: SchedulerConfig,
    requests: &[TokenizedGenerateReqInput],
) -> (Answers, u32) {
    let mut scheduler = Scheduler::new(runner, config, Arc::default(), Drills::default());
    let message = |request: &TokenizedGenerateReqInput| {
        let envelope = Envelope::now(ToEngine::Generate(Box::new(request.clone())));
        SchedulerInput::Message(HttpWorkerIpc::new("test"), Box::new(envelope))
    };
    let (mut inbox, mut out) = (Arrivals(requests.iter().map(message).collect()), Outputs::default());
    while scheduler.step(&mut inbox, &mut out) != Turn::Idle || !inbox.0.is_empty() {}
    let (mut answers, mut cached) = (Answers::new(), 0);
    for output in out.0 {
        let got = answers.entry(output.rid.to_string()).or_default();
        got.extend(output.logprobs.iter().map(|logprob| (logprob.token, logprob.logprob.to_bits())));
        cached += output.finish_reason.map_or(0, |_| output.cached_tokens);
    }
    (answers, cached)
}

#[test]
fn cached_is_computed_to_the_last_bit() {
    check(&Tiny::new(GgmlDType::Q4_1), KvCacheDtype::F16, 0..6);
}

#[test]
fn of_any_width() {
    check(&Tiny::of(ODD, GgmlDType::F16), KvCacheDtype::Int8, 6..9);
}

fn check(model: &Tiny, kv_cache_dtype: KvCacheDtype, seeds: Range<u64>) {
    let file = tempfile::NamedTempFile::new().expect("a place for a file");
    std::fs::write(file.path(), model.bytes()).expect("a small file");
    let runner = || load(file.path(), &LoadOptions { kv_cache_dtype, ..options(2) }).expect("a sound file");
    for seed in seeds {
        let mut random = StdRng::seed_from_u64(seed);
        let requests = requests(&mut random);
        let plain = SchedulerConfig {
            chunked_prefill_size: 512,
            max_step_time: None,
            prefix_cache: PrefixCache::Off,
            policy: SchedulePolicy::Fcfs,
            priorities: Priorities::Off,
            max_prefill_tokens: 512,
            max_running_requests: 1,
            max_queued_requests: 100,
            max_total_tokens: 1024,
        };
        let (expected, none) = serve(runner(), plain, &requests);
        assert_eq!((expected.len(), none), (requests.len(), 0));
        let mixed = SchedulerConfig {
            chunked_prefill_size: random.random_range(1..100),
            max_step_time: [None, Some(Duration::from_millis(5))][random.random_range(0..2)],
            prefix_cache: PrefixCache::On,
            policy: [SchedulePolicy::Fcfs, SchedulePolicy::Lpm][random.random_range(0..2)],
            max_running_requests: random.random_range(2..8),
            max_total_tokens: random.random_range(16..40) * 16, // requests are retracted, and what is kept makes room
            ..plain
        };
        let (got, cached) = serve(runner(), mixed, &requests);
        assert!(cached > 0, "seed {seed}: they begin alike");
        assert_eq!(got, expected, "seed {seed}: {mixed:?}");
    }
}
