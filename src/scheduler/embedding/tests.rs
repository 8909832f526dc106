//! The scheduler of an embedding model, turned by hand.

use std::sync::{Arc, Mutex};

use super::super::{SchedulerConfig, SchedulerInput, Turn};
use super::*;
use crate::drills::Drills;
use crate::io_struct::{AbortReq, Envelope, ModelInfo, ModelSource, ModelTask, PauseMode, ProbeId, ToEngine, TokenId};
use crate::model_runner::{ForwardError, ModelRunner};
use crate::scheduler::tests::{Arrivals, ROOMY};

/// Embeds a text into its length. A shared log shows which lengths ran together; a text of 13 tokens fails its step.
struct LengthRunner {
    info: ModelInfo,
    log: Arc<Mutex<Vec<Vec<usize>>>>,
}

impl ModelRunner for LengthRunner {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn forward_into(&mut self, batch: &[SequenceSlice<'_>], logits: &mut Logits) -> Result<(), ForwardError> {
        let lengths: Vec<usize> = batch.iter().map(|slice| slice.tokens.len()).collect();
        self.log.lock().unwrap().push(lengths.clone());
        if lengths.contains(&13) {
            return Err(ForwardError::Scripted(13));
        }
        *logits = Logits::new(lengths.into_iter().map(|length| length as f32).collect(), 1);
        Ok(())
    }
}

#[derive(Default)]
struct Sent(Vec<FromEngine>);

impl Outbox for Sent {
    fn send(&mut self, _: &HttpWorkerIpc, msg: FromEngine) {
        self.0.push(msg);
    }
    fn broadcast(&mut self, msg: FromEngine) {
        self.0.push(msg);
    }
}

struct Bench {
    scheduler: Scheduler,
    log: Arc<Mutex<Vec<Vec<usize>>>>,
    sent: Sent,
}

impl Bench {
    /// Three texts and 20 tokens a step, two more texts in the queue, 30 tokens a text.
    fn new() -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let info = ModelInfo {
            source: ModelSource::Scripted(String::new()),
            name: "lengths".to_owned(),
            architecture: "scripted".to_owned(),
            task: ModelTask::Embed { dimensions: 1, normalised: false },
            vocab_size: 100,
            context_length: 30,
            eos_token_ids: Vec::new(),
            max_total_tokens: 0,
            kernels: None,
            kv_cache_dtype: None,
            weight_bytes: 0,
            load_seconds: 0.0,
        };
        let config = SchedulerConfig {
            chunked_prefill_size: 8,
            max_prefill_tokens: 20,
            max_running_requests: 3,
            max_queued_requests: 2,
            max_total_tokens: 0,
            ..ROOMY
        };
        let runner = LengthRunner { info, log: Arc::clone(&log) };
        let scheduler = Scheduler::new(Box::new(runner), config, Arc::default(), Drills::default());
        Self { scheduler, log, sent: Sent::default() }
    }

    fn step(&mut self, arrivals: Vec<Vec<SchedulerInput>>) -> Turn {
        self.scheduler.step(&mut Arrivals(arrivals.into()), &mut self.sent)
    }

    fn run(&mut self, arrivals: Vec<SchedulerInput>) {
        let mut turn = self.step(vec![arrivals]);
        for _ in 0..100 {
            if turn == Turn::Idle {
                return;
            }
            turn = self.step(vec![]);
        }
        panic!("never idle");
    }

    /// Lengths of the texts of each step.
    fn steps(&self) -> Vec<Vec<usize>> {
        self.log.lock().unwrap().clone()
    }

    /// How each request ended, in order: `a=5`, or `a: why`.
    fn ends(&self) -> Vec<String> {
        let end = |output: &EmbeddingOutput| match (&output.finish_reason, &output.embedding[..]) {
            (FinishReason::Length(0), [value]) => format!("{}={value}", output.rid),
            (FinishReason::Abort { kind, .. }, []) => format!("{}: {}", output.rid, kind.as_str()),
            other => panic!("{other:?}"),
        };
        let batches = self.sent.0.iter().filter_map(|msg| match msg {
            FromEngine::Output(EngineOutput::BatchEmbedding(batch)) => Some(&batch.outputs),
            _ => None,
        });
        batches.flatten().map(end).collect()
    }

    fn vouched(&self) -> usize {
        let vouched = |msg: &&FromEngine| matches!(msg, FromEngine::Output(EngineOutput::HealthCheck(_)));
        self.sent.0.iter().filter(vouched).count()
    }
}

fn from(worker: &str, msg: ToEngine) -> SchedulerInput {
    SchedulerInput::Message(HttpWorkerIpc::new(worker), Box::new(Envelope::now(msg)))
}

fn embed(rid: Rid, purpose: Purpose, length: usize) -> ToEngine {
    ToEngine::Embed(TokenizedEmbeddingReqInput { rid, serial: 0, purpose, input_ids: vec![TokenId(1); length] })
}

fn text(rid: &str, length: usize) -> SchedulerInput {
    from("w", embed(Rid::from_caller(rid).unwrap(), Purpose::Serve, length))
}

fn probe() -> SchedulerInput {
    let probe = ProbeId::random();
    from("w", embed(probe.rid(), Purpose::HealthCheck(probe), 1))
}

#[test]
fn a_step_is_bounded_by_tokens_and_by_requests_and_holds_at_least_one() {
    let check = |lengths: &[usize], want: &[&[usize]]| {
        let mut bench = Bench::new();
        let texts = lengths.iter().enumerate().map(|(number, length)| text(&number.to_string(), *length)).collect();
        bench.run(texts);
        assert_eq!(bench.steps(), want, "{lengths:?}");
        let ends: Vec<String> =
            lengths.iter().enumerate().map(|(number, length)| format!("{number}={length}")).collect();
        assert_eq!(bench.ends(), ends);
    };
    check(&[5], &[&[5]]);
    check(&[10, 10, 1], &[&[10, 10], &[1]]);
    check(&[1, 1, 1, 1, 1], &[&[1, 1, 1], &[1, 1]]);
    check(&[30, 1], &[&[30], &[1]]);
    check(&[1, 30, 1], &[&[1], &[30], &[1]]);
}

#[test]
fn what_cannot_be_taken_in_is_answered_at_once() {
    let mut bench = Bench::new();
    let texts = ["a", "b", "c", "d", "e", "f"].map(|rid| text(rid, 2));
    bench.run([text("long", 31)].into_iter().chain(texts).collect());
    assert_eq!(bench.ends(), ["long: too_large", "f: queue_full", "a=2", "b=2", "c=2", "d=2", "e=2"]);
}

#[test]
fn a_step_that_fails_ends_its_own_texts_alone() {
    let mut bench = Bench::new();
    bench.run(vec![text("a", 7), text("b", 13), text("c", 8)]);
    assert_eq!(bench.ends(), ["a: step_failed", "b: step_failed", "c=8"]);
}

#[test]
fn an_idle_scheduler_embeds_a_probe_and_a_busy_one_vouches_for_it() {
    let mut bench = Bench::new();
    bench.run(vec![probe()]);
    assert_eq!((bench.steps(), bench.ends().len(), bench.vouched()), (vec![vec![1]], 1, 0));
    bench.step(vec![vec![text("a", 20), text("b", 20), probe()], vec![probe(), probe()]]);
    assert_eq!((bench.steps().len(), bench.vouched()), (2, 3), "those that came meanwhile too");
    bench.run(vec![]);
    assert_eq!(bench.steps(), [vec![1], vec![20], vec![20]]);
}

#[test]
fn a_failed_step_vouches_for_nobody() {
    let mut bench = Bench::new();
    bench.step(vec![vec![text("a", 13), probe()]]);
    assert_eq!(bench.vouched(), 0);
    bench.step(vec![]);
    assert_eq!((bench.steps().len(), bench.ends().len()), (2, 2), "then it runs itself");
}

#[test]
fn who_is_gone_is_forgotten_and_a_pause_aborts() {
    let mut bench = Bench::new();
    let gone = ToEngine::Abort(AbortReq { rid: Rid::from_caller("b").unwrap(), serial: 0 });
    let other = from("other", embed(Rid::from_caller("c").unwrap(), Purpose::Serve, 3));
    let leaves = SchedulerInput::WorkerGone(HttpWorkerIpc::new("other"));
    bench.run(vec![text("a", 2), text("b", 2), other, from("w", gone), leaves]);
    assert_eq!(bench.ends(), ["a=2"]);
    let pause = from("w", ToEngine::Pause(PauseMode::Abort));
    assert_eq!(bench.step(vec![vec![text("d", 2), pause, text("e", 2)]]), Turn::Paused);
    assert_eq!(bench.ends(), ["a=2", "d: requested"]);
    bench.run(vec![from("w", ToEngine::Continue)]);
    assert_eq!(bench.ends(), ["a=2", "d: requested", "e=2"]);
}
