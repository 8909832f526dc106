//! The scheduler, turned by hand. After each turn, every page of the pool has one owner.

use std::sync::Mutex;

use super::schedule_policy::Priorities;
use super::*;
use crate::config::SchedulePolicy;
use crate::io_struct::{
    FinishReason, LogprobsWanted, ModelInfo, ModelSource, ModelTask, PauseMode, SamplingParams, TokenId, TokenIdOutput,
};
use crate::model_runner::{ForwardError, Logits, SequenceSlice};

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

#[derive(Default)]
struct Arrivals(VecDeque<Vec<SchedulerInput>>);

impl Inbox for Arrivals {
    fn take(&mut self) -> Vec<SchedulerInput> {
        self.0.pop_front().unwrap_or_default()
    }
}

#[derive(Default)]
pub(super) struct Sent(pub(super) Vec<(String, FromEngine)>);

impl Outbox for Sent {
    fn send(&mut self, worker: &HttpWorkerIpc, msg: FromEngine) {
        self.0.push((worker.to_string(), msg));
    }
    fn broadcast(&mut self, msg: FromEngine) {
        self.0.push(("*".to_owned(), msg));
    }
}

pub(super) struct Bench {
    pub(super) scheduler: Scheduler,
    pub(super) log: Arc<Mutex<Vec<Vec<usize>>>>,
    pub(super) sent: Sent,
}

pub(super) fn bench(config: SchedulerConfig) -> Bench {
    bench_with(config, false)
}

fn bench_with(config: SchedulerConfig, fail: bool) -> Bench {
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

pub(super) const ROOMY: SchedulerConfig = SchedulerConfig {
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

pub(super) fn request(rid: &str, prompt: &[u32], max_new_tokens: u32) -> SchedulerInput {
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

pub(super) fn probe() -> (Rid, SchedulerInput) {
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

pub(super) fn abort(rid: &Rid) -> SchedulerInput {
    let msg = ToEngine::Abort(AbortReq { rid: rid.clone(), serial: 0 });
    SchedulerInput::Message(HttpWorkerIpc::new("w"), Box::new(Envelope::now(msg)))
}

impl Bench {
    pub(super) fn step(&mut self, arrivals: Vec<Vec<SchedulerInput>>) -> Turn {
        let turn = self.scheduler.step(&mut Arrivals(arrivals.into()), &mut self.sent);
        let requests = self.scheduler.running.iter().chain(&self.scheduler.waiting);
        self.scheduler.kv_pool.audit(requests.map(|request| &request.pages));
        turn
    }

    pub(super) fn run(&mut self, arrivals: Vec<SchedulerInput>) {
        let mut turn = self.step(vec![arrivals]);
        for _ in 0..10_000 {
            if turn == Turn::Idle {
                return;
            }
            turn = self.step(vec![]);
        }
        panic!("never idle");
    }

    pub(super) fn outputs(&self, rid: &str) -> Vec<TokenIdOutput> {
        self.all_outputs().filter(|output| output.rid.as_str() == rid).cloned().collect()
    }

    /// Who got something, in order.
    pub(super) fn news(&self) -> Vec<String> {
        self.all_outputs().map(|output| output.rid.to_string()).collect()
    }

    /// Who ended, in order.
    pub(super) fn finished(&self) -> Vec<String> {
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

    pub(super) fn text(&self, rid: &str) -> Vec<u32> {
        self.outputs(rid).iter().flat_map(|output| &output.output_ids).map(|id| id.0).collect()
    }

    fn vouched(&self) -> Vec<Rid> {
        let vouched = self.sent.0.iter().filter_map(|(_, msg)| match msg {
            FromEngine::Output(EngineOutput::HealthCheck(answer)) => Some(answer.rid.clone()),
            _ => None,
        });
        vouched.collect()
    }

    fn branches(&self) -> Vec<ProbeBranch> {
        let branches = self.sent.0.iter().filter_map(|(_, msg)| match msg {
            FromEngine::Event(EngineEvent::ProbeBranch { branch, .. }) => Some(*branch),
            _ => None,
        });
        branches.collect()
    }

    pub(super) fn is_clean(&self) -> bool {
        self.scheduler.is_fully_idle()
            && self.scheduler.return_health_check_ipcs.is_empty()
            && self.scheduler.kv_pool.used_tokens() == 0
    }
}

fn next(tokens: &[u32]) -> u32 {
    (1..).zip(tokens).fold(0, |sum, (place, token)| (sum + place * token) % 100)
}

/// What `SumRunner` says after `prompt`.
pub(super) fn expected(prompt: &[u32], len: usize) -> Vec<u32> {
    let mut all = prompt.to_vec();
    for _ in 0..len {
        all.push(next(&all));
    }
    all.split_off(prompt.len())
}

#[test]
fn long_prompts_run_in_chunks_beside_decodes() {
    let mut bench = bench(ROOMY);
    bench.run(vec![request("a", &[1], 4), request("b", &[2; 20], 2)]);
    assert_eq!(bench.text("a"), expected(&[1], 4));
    assert_eq!(bench.text("b"), expected(&[2; 20], 2));
    assert_eq!(*bench.log.lock().unwrap(), [vec![1, 7], vec![1, 8], vec![1, 5], vec![1, 1]]);
    assert!(bench.is_clean());
}

#[test]
fn the_last_output_names_the_reason_and_the_counts() {
    let mut bench = bench(ROOMY);
    bench.run(vec![request("a", &[1, 2], 3), request("none", &[1, 2, 3], 0)]);
    let last = bench.outputs("a").pop().unwrap();
    assert_eq!(last.finish_reason, Some(FinishReason::Length(3)));
    assert_eq!((last.prompt_tokens, last.completion_tokens), (2, 3));
    let none = bench.outputs("none");
    assert_eq!((none.len(), none[0].finish_reason.clone()), (1, Some(FinishReason::Length(0))));
    assert!(bench.is_clean());
}

#[test]
fn a_stop_token_ends_the_output_and_is_not_shown() {
    let mut bench = bench(ROOMY);
    let SchedulerInput::Message(worker, mut envelope) = request("a", &[90], 9) else { unreachable!() };
    if let ToEngine::Generate(input) = &mut envelope.msg {
        input.input_ids = vec![TokenId(99)]; // says 99 at once, the model's own stop token
        input.sampling_params.ignore_eos = false;
    }
    bench.run(vec![SchedulerInput::Message(worker, envelope)]);
    let only = bench.outputs("a").pop().unwrap();
    assert_eq!(only.finish_reason, Some(FinishReason::StopToken(TokenId(99))));
    assert_eq!((only.output_ids.len(), only.completion_tokens), (0, 1));
}

#[test]
fn an_idle_scheduler_runs_the_probe() {
    let mut bench = bench(ROOMY);
    let (rid, input) = probe();
    assert_eq!(bench.step(vec![vec![input]]), Turn::Worked);
    assert_eq!(bench.branches(), [ProbeBranch::Idle]);
    assert_eq!(bench.text(rid.as_str()).len(), 1);
    assert!(bench.vouched().is_empty() && bench.is_clean());
}

#[test]
fn a_busy_scheduler_vouches_after_the_batch() {
    let mut bench = bench(ROOMY);
    bench.step(vec![vec![request("a", &[1; 24], 1)]]);
    let (rid, input) = probe();
    assert_eq!(bench.step(vec![vec![input]]), Turn::Worked);
    assert_eq!(bench.branches(), [ProbeBranch::Busy]);
    assert_eq!(bench.vouched(), [rid], "each prefill chunk is a batch result");
    let step_ended =
        bench.sent.0.iter().rposition(|(_, msg)| matches!(msg, FromEngine::Event(EngineEvent::StepEnded(_))));
    let vouched =
        bench.sent.0.iter().position(|(_, msg)| matches!(msg, FromEngine::Output(EngineOutput::HealthCheck(_))));
    assert!(step_ended < vouched, "vouched for before the device moved");
}

#[test]
fn a_probe_that_arrives_during_a_batch_is_vouched_for_by_its_result() {
    let mut bench = bench(ROOMY);
    let (rid, input) = probe();
    bench.step(vec![vec![request("a", &[1; 24], 1)], vec![input]]);
    assert_eq!(bench.vouched(), [rid]);
}

#[test]
fn of_many_probes_one_runs_and_all_are_answered() {
    let mut bench = bench(ROOMY);
    let (rids, inputs): (Vec<Rid>, Vec<SchedulerInput>) = (0..200).map(|_| probe()).unzip();
    bench.run(inputs);
    assert_eq!(bench.branches().iter().filter(|branch| **branch == ProbeBranch::Idle).count(), 1);
    assert_eq!(bench.text(rids[0].as_str()).len(), 1);
    assert_eq!(bench.vouched(), rids[1..]);
    assert!(bench.is_clean());
}

#[test]
fn a_failed_step_vouches_for_nobody() {
    let mut bench = bench_with(ROOMY, true);
    let (rid, input) = probe();
    bench.step(vec![vec![request("a", &[1; 24], 1), request("b", &[1], 1), input]]);
    assert!(bench.vouched().is_empty());
    bench.run(vec![]);
    assert!(bench.vouched().is_empty());
    for rid in ["a", "b", rid.as_str()] {
        let reason = bench.outputs(rid).pop().unwrap().finish_reason;
        assert!(matches!(reason, Some(FinishReason::Abort { kind: AbortKind::StepFailed, .. })), "{rid}: {reason:?}");
    }
    assert!(bench.is_clean());
}

#[test]
fn a_probe_whose_wait_has_lost_its_object_runs_itself() {
    let mut bench = bench(ROOMY);
    let (first, input) = probe();
    let (second, other) = probe();
    let arrivals = vec![request("a", &[1; 24], 1), input, other, abort(&Rid::from_caller("a").unwrap())];
    bench.run(arrivals);
    assert_eq!(bench.text(first.as_str()).len(), 1);
    assert_eq!(bench.vouched(), [second]);
    assert!(bench.is_clean());
}

#[test]
fn an_abort_of_a_probe_is_not_a_probe() {
    let mut bench = bench(ROOMY);
    let (rid, input) = probe();
    bench.scheduler.process_input_requests(vec![request("a", &[1; 24], 1), input], &mut bench.sent);
    assert_eq!(bench.scheduler.return_health_check_ipcs.len(), 1);
    bench.scheduler.process_input_requests(vec![abort(&rid)], &mut bench.sent);
    assert!(bench.scheduler.return_health_check_ipcs.is_empty());
}

#[test]
fn a_users_rid_may_look_like_a_probe() {
    let mut bench = bench(ROOMY);
    bench.run(vec![request("a", &[1; 24], 4), request("HEALTH_CHECK_mine", &[5], 2)]);
    assert_eq!(bench.text("HEALTH_CHECK_mine"), expected(&[5], 2));
}

#[test]
fn places_and_queue_are_limited() {
    let mut bench = bench(SchedulerConfig { max_running_requests: 1, max_queued_requests: 1, ..ROOMY });
    let six = (0..6).map(|i| request(&format!("r{i}"), &[i + 1], 2)).collect();
    bench.run(six);
    for i in 0..6 {
        let rid = format!("r{i}");
        let last = bench.outputs(&rid).pop().unwrap().finish_reason.unwrap();
        if i < 2 {
            assert_eq!(bench.text(&rid), expected(&[i + 1], 2));
        } else {
            assert!(matches!(last, FinishReason::Abort { kind: AbortKind::QueueFull, .. }), "{rid}: {last:?}");
        }
    }
}

#[test]
fn a_request_that_can_never_fit_is_refused() {
    let mut bench = bench(SchedulerConfig { max_total_tokens: 64, ..ROOMY });
    bench.run(vec![request("a", &[1; 60], 5), request("b", &[1; 60], 4)]);
    let reason = bench.outputs("a").pop().unwrap().finish_reason;
    assert!(matches!(reason, Some(FinishReason::Abort { kind: AbortKind::TooLarge, .. })), "{reason:?}");
    assert_eq!(bench.text("b"), expected(&[1; 60], 4));
}

#[test]
fn a_full_pool_retracts_the_youngest_and_loses_nothing() {
    let mut bench = bench(SchedulerConfig { max_total_tokens: 96, ..ROOMY });
    bench.run((0..4).map(|i| request(&format!("r{i}"), &[i + 1; 10], 40)).collect());
    for i in 0..4 {
        assert_eq!(bench.text(&format!("r{i}")), expected(&[i + 1; 10], 40), "r{i}");
    }
    let retracted: u32 = (0..4).map(|i| bench.outputs(&format!("r{i}")).pop().unwrap().num_retractions).sum();
    assert!(retracted > 0, "the pool was meant to be too small");
    assert_eq!(bench.outputs("r0").pop().unwrap().num_retractions, 0, "the oldest always runs on");
    assert!(bench.is_clean());
}

#[test]
fn aborts_and_lost_workers_leave_nothing_behind() {
    let mut bench = bench(SchedulerConfig { max_running_requests: 1, ..ROOMY });
    let rid = |text| Rid::from_caller(text).unwrap();
    let (_, input) = probe();
    bench.step(vec![vec![request("running", &[1; 20], 9), request("waiting", &[1], 9), input]]);
    bench.step(vec![vec![abort(&rid("running")), abort(&rid("waiting")), abort(&rid("never seen"))]]);
    assert!(bench.is_clean());
    let (_, input) = probe();
    bench.step(vec![vec![request("a", &[1; 20], 9), request("b", &[1], 9), input]]);
    bench.step(vec![vec![SchedulerInput::WorkerGone(HttpWorkerIpc::new("w"))]]);
    assert!(bench.is_clean());
}

pub(super) fn message(msg: ToEngine) -> SchedulerInput {
    SchedulerInput::Message(HttpWorkerIpc::new("w"), Box::new(Envelope::now(msg)))
}

#[test]
fn a_pause_holds_batches_and_loses_nothing() {
    for (mode, running, waiting) in [(PauseMode::InPlace, 2, 1), (PauseMode::Retract, 0, 3)] {
        let mut bench = bench(ROOMY);
        bench.step(vec![vec![request("a", &[1, 2], 6), request("b", &[3; 12], 4)]]);
        let turn = bench.step(vec![vec![message(ToEngine::Pause(mode)), request("late", &[5], 3)]]);
        assert_eq!((turn, bench.step(vec![])), (Turn::Paused, Turn::Paused));
        assert_eq!((bench.scheduler.running.len(), bench.scheduler.waiting.len()), (running, waiting), "{mode:?}");
        bench.run(vec![message(ToEngine::Continue)]);
        assert_eq!(bench.text("a"), expected(&[1, 2], 6), "{mode:?}");
        assert_eq!(bench.text("b"), expected(&[3; 12], 4), "{mode:?}");
        assert_eq!(bench.text("late"), expected(&[5], 3), "{mode:?}");
        assert!(bench.is_clean());
    }
}

#[test]
fn a_pause_may_end_what_it_finds_but_no_probe() {
    let mut bench = bench(ROOMY);
    bench.step(vec![vec![request("a", &[1, 2], 6)]]);
    let (rid, input) = probe();
    bench.step(vec![vec![request("b", &[3], 4), input, message(ToEngine::Pause(PauseMode::Abort))]]);
    for request in ["a", "b"] {
        let last = bench.outputs(request).pop().unwrap().finish_reason;
        assert!(matches!(last, Some(FinishReason::Abort { kind: AbortKind::Requested, .. })), "{request}: {last:?}");
    }
    assert!(bench.outputs(rid.as_str()).is_empty() && bench.vouched().is_empty());
    bench.run(vec![message(ToEngine::Continue)]);
    assert_eq!(bench.outputs(rid.as_str()).len(), 1, "it runs after all");
    assert!(bench.is_clean());
}

#[test]
fn a_probe_that_no_batch_takes_is_in_the_queue_and_users_keep_their_places() {
    let mut bench = bench(ROOMY);
    let no_batches = crate::io_struct::Fault::NoBatches { seconds: Duration::from_secs(60) };
    bench.scheduler.drills = Drills::enabled(&[no_batches]);
    let (rid, input) = probe();
    assert_eq!((bench.step(vec![vec![input]]), bench.step(vec![])), (Turn::Blocked, Turn::Blocked));
    let queued = bench.sent.0.iter().filter(|(_, msg)| {
        matches!(msg, FromEngine::Event(EngineEvent::HopEntered { rid: whose, hop: Hop::Queue }) if *whose == rid)
    });
    assert_eq!(queued.count(), 1);
    bench.step(vec![(0..9).map(|i| request(&i.to_string(), &[1], 1)).collect()]);
    assert_eq!(bench.outputs("8").len(), 1, "four have a place and four wait; the ninth is refused");
    assert!((0..8).all(|i| bench.outputs(&i.to_string()).is_empty()), "a probe takes nobody's place");
    bench.scheduler.drills.switch_off();
    bench.run(vec![]);
    assert!(bench.is_clean());
}

fn scored(rid: &str, prompt: &[u32], max_new_tokens: u32, from: u32) -> SchedulerInput {
    let SchedulerInput::Message(worker, mut envelope) = request(rid, prompt, max_new_tokens) else { unreachable!() };
    if let ToEngine::Generate(input) = &mut envelope.msg {
        input.logprobs = Some(LogprobsWanted { top: 1, token_ids: Vec::new(), input_from: Some(from) });
    }
    SchedulerInput::Message(worker, envelope)
}

/// The tokens behind `from`, and what `SumRunner` would have said in their places.
fn check_scores(bench: &Bench, rid: &str, prompt: &[u32], from: usize) {
    let outputs = bench.outputs(rid);
    let told: Vec<_> = outputs.iter().map(|output| output.input_logprobs.len()).collect();
    assert_eq!(
        (told[0], told[1..].iter().sum::<usize>()),
        (prompt.len() - 1 - from, 0),
        "{rid}: with the first output"
    );
    for (entry, place) in outputs[0].input_logprobs.iter().zip(from + 1..) {
        assert_eq!(entry.token.0, prompt[place], "{rid} {place}");
        assert_eq!(entry.top[0].0.0, next(&prompt[..place]), "{rid} {place}");
    }
}

#[test]
fn prompts_are_scored_place_by_place_in_the_same_steps() {
    let mut bench = bench(ROOMY);
    let prompt: Vec<u32> = (1..=10).collect();
    bench.run(vec![scored("a", &prompt, 2, 2)]);
    check_scores(&bench, "a", &prompt, 2);
    assert_eq!(bench.text("a"), expected(&prompt, 2), "the output is what it is without");
    assert_eq!(*bench.log.lock().unwrap(), [vec![2, 1, 1, 1, 1, 1, 1], vec![1, 1], vec![1]]);
    bench.run(vec![scored("none", &prompt, 0, 0), scored("last", &prompt, 1, 9)]);
    check_scores(&bench, "none", &prompt, 0);
    check_scores(&bench, "last", &prompt, 9);
    assert!(bench.is_clean());
}

#[test]
fn a_step_scores_a_bounded_number_of_places() {
    let mut bench = bench(SchedulerConfig { chunked_prefill_size: 1000, ..ROOMY });
    let prompt: Vec<u32> = (0..150).map(|token| token % 90).collect();
    bench.run(vec![scored("a", &prompt, 1, 0), scored("b", &prompt, 1, 0), request("c", &prompt, 1)]);
    for rid in ["a", "b"] {
        check_scores(&bench, rid, &prompt, 0);
    }
    let rows = |slices: &Vec<usize>| slices.iter().filter(|tokens| **tokens == 1).count();
    assert!(bench.log.lock().unwrap().iter().all(|slices| rows(slices) <= 64));
    assert!(bench.log.lock().unwrap()[0].contains(&150), "others are not held up");
}

#[test]
fn a_retracted_request_scores_its_prompt_once() {
    let mut retractions = 0;
    for pages in 5..12 {
        let mut bench = bench(SchedulerConfig { max_total_tokens: pages * PAGE_SIZE, ..ROOMY });
        let prompt: Vec<u32> = (1..=30).collect();
        bench.run(vec![request("old", &[1], 40), scored("a", &prompt, 20, 0), scored("b", &prompt, 20, 3)]);
        for (rid, from) in [("a", 0), ("b", 3)] {
            check_scores(&bench, rid, &prompt, from);
            assert_eq!(bench.text(rid), expected(&prompt, 20));
            retractions += bench.outputs(rid).pop().unwrap().num_retractions;
        }
        assert!(bench.is_clean());
    }
    assert!(retractions > 0, "the pools are small enough");
}

#[test]
fn an_abort_means_one_life_of_a_rid() {
    let mut bench = bench(ROOMY);
    let SchedulerInput::Message(worker, mut second) = request("a", &[1], 3) else { unreachable!() };
    if let ToEngine::Generate(input) = &mut second.msg {
        input.serial = 1;
    }
    let late = abort(&Rid::from_caller("a").unwrap());
    bench.run(vec![SchedulerInput::Message(worker, second), late]);
    assert_eq!((bench.text("a"), bench.outputs("a")[0].serial), (expected(&[1], 3), 1));
}
