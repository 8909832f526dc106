//! The traces of probes and requests, whole, over the wire, from real processes.

mod requests;
mod callers;
mod real_model;

use std::time::Duration;

use expect_test::{Expect, expect};
use radiosonde::telemetry::OtlpProtocol;
use reqwest::RequestBuilder;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::collector::{Collector, Seen};
use crate::support::{Answer, Server, eventually, in_background, probe};

const REMOTE: &str = "00-0123456789abcdef0123456789abcdef-2222222222222222-01";
const TRACE: &str = "0123456789abcdef0123456789abcdef";
const PARENT: &str = "2222222222222222";
const MOMENT: Duration = Duration::from_secs(10);
/// Its second step never ends, and its engine is not started again.
const DOOMED: [&str; 2] = ["--model=scripted:stuck_step=2,stuck_ms=60000", "--engine-restarts=0"];
const KEYS: [&str; 10] = [
    "probe.branch",
    "probe.outcome",
    "probe.evidence",
    "probe.stalled_at",
    "probe.cause",
    "scheduler.step.phase",
    "scheduler.step.tokens",
    "request.outcome",
    "request.retractions",
    "prefill.chunks",
];

/// A server that exports to a collector. What is sent with [`Traced::get`] and [`Traced::post`] is in one trace, that
/// of the caller.
struct Traced {
    server: Server,
    collector: Collector,
}

impl Traced {
    async fn start(protocol: OtlpProtocol, args: &[&str]) -> Self {
        let collector = Collector::start(protocol);
        let endpoint = format!("--otlp-traces-endpoint={}", collector.endpoint());
        let name = match protocol {
            OtlpProtocol::Grpc => "--otlp-traces-protocol=grpc",
            OtlpProtocol::HttpProtobuf => "--otlp-traces-protocol=http/protobuf",
        };
        let server = Server::start(&[&[endpoint.as_str(), name], args].concat()).await;
        Self { server, collector }
    }

    /// By gRPC, with a scripted model.
    async fn scripted(script: &str, args: &[&str]) -> Self {
        let model = format!("--model=scripted:{script}");
        Self::start(OtlpProtocol::Grpc, &[&[model.as_str()], args].concat()).await
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.server.client().get(self.server.url(path)).header("traceparent", REMOTE)
    }

    fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.server.client().post(self.server.url(path)).header("traceparent", REMOTE).json(body)
    }

    /// In no trace of the caller's.
    fn untraced(&self, path: &str, body: &Value) -> RequestBuilder {
        self.server.client().post(self.server.url(path)).json(body)
    }

    async fn probe(&self, path: &str) -> Answer {
        probe::ask(self.get(path)).await
    }

    /// Waits until so many spans of the trace have come, and compares the tree.
    async fn check(&self, spans: usize, want: &Expect) {
        let all = |seen: &[Seen]| seen.iter().filter(|seen| seen.trace_id() == TRACE).count() >= spans;
        self.collector.wait(MOMENT, all).await;
        want.assert_eq(&self.collector.tree(TRACE, &KEYS));
        self.collector.well_formed(TRACE, Some(PARENT));
    }

    /// The root of the trace, when it has come.
    async fn root(&self) -> Seen {
        let is_root = |seen: &&Seen| seen.trace_id() == TRACE && seen.parent_id() == PARENT;
        let spans = self.collector.wait(MOMENT, |seen| seen.iter().any(|seen| is_root(&seen))).await;
        spans.iter().find(is_root).unwrap().clone()
    }

    /// The probe of the trace is linked to the root of the request `rid`, which is in another trace.
    async fn assert_linked(&self, rid: &str) {
        let is_it = |seen: &Seen| seen.attributes.get("request.rid").is_some_and(|name| name == rid);
        let spans = self.collector.wait(MOMENT, |seen| seen.iter().any(is_it)).await;
        let request = spans.iter().find(|seen| is_it(seen)).unwrap();
        let links = spans.iter().filter(|seen| seen.trace_id() == TRACE).flat_map(|seen| &seen.span.links);
        let targets: Vec<_> = links.map(|link| (&link.trace_id, &link.span_id)).collect();
        assert_eq!(targets, [(&request.span.trace_id, &request.span.span_id)]);
        assert_ne!(request.trace_id(), TRACE);
    }

    /// Keeps the scheduler busy with a request of `output` steps until the returned task ends. It is in a trace of its
    /// own.
    async fn keep_busy(&self, rid: &str, prompt: usize, output: u32) -> tokio::task::JoinHandle<()> {
        let mut body = tokens(prompt, output);
        body["rid"] = json!(rid);
        let request = self.untraced("/generate", &body);
        let busy = in_background(async move {
            let _ = request.send().await;
        });
        eventually(MOMENT, async || self.server.metric("radiosonde_num_running_reqs").await == 1.0).await;
        busy
    }
}

fn tokens(prompt: usize, output: u32) -> Value {
    json!({"input_ids": vec![65; prompt], "sampling_params": {"max_new_tokens": output, "ignore_eos": true}})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_probe() {
    for protocol in [OtlpProtocol::Grpc, OtlpProtocol::HttpProtobuf] {
        let traced = Traced::start(protocol, &["--model=scripted"]).await;
        assert_eq!(traced.probe("/health_generate").await.status, 200);
        traced
            .check(
                10,
                &expect![[r#"
                GET /health_generate probe.branch=idle probe.outcome=ok probe.evidence=own_answer
                  tokenizer_manager.submit
                  ipc.to_engine
                  scheduler.inbox
                  scheduler.process_input_requests probe.branch=idle
                  scheduler.run_batch
                    model_runner.forward scheduler.step.phase=prefill scheduler.step.tokens=1
                  ipc.to_frontend
                  detokenizer
                  tokenizer_manager.receive
            "#]],
            )
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_probe() {
    let traced = Traced::start(OtlpProtocol::Grpc, &["--model=scripted:step_ms=50"]).await;
    let busy = traced.keep_busy("held-up-by-me", 4, 40).await;
    let answer = traced.probe("/health?evidence=own").await;
    assert_eq!((answer.status, &answer.body["waited_for"]), (200, &json!(["held-up-by-me"])), "{}", answer.body);
    traced
        .check(
            8,
            &expect![[r#"
        GET /health probe.branch=busy probe.outcome=ok probe.evidence=own_answer
          tokenizer_manager.submit
          ipc.to_engine
          scheduler.inbox
          scheduler.process_input_requests probe.branch=busy
          scheduler.return_health_check_ipcs links=1
          ipc.to_frontend
          tokenizer_manager.receive
    "#]],
        )
        .await;
    busy.await.unwrap();
    traced.assert_linked("held-up-by-me").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_whose_step_is_stuck() {
    let args = ["--model=scripted:stuck_step=2,stuck_ms=60000", "--health-check-timeout=1s"];
    let traced = Traced::start(OtlpProtocol::Grpc, &args).await;
    assert_eq!(traced.probe("/health_generate").await.status, 503);
    traced.check(7, &expect![[r#"
        GET /health_generate probe.branch=idle probe.outcome=timeout probe.evidence=none probe.stalled_at=model_runner.forward probe.cause=step_stuck ERROR timeout at model_runner.forward: step_stuck
          tokenizer_manager.submit
          ipc.to_engine
          scheduler.inbox
          scheduler.process_input_requests probe.branch=idle
          scheduler.run_batch ERROR unfinished
            model_runner.forward scheduler.step.phase=prefill scheduler.step.tokens=1 ERROR unfinished
    "#]]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_of_a_stopped_engine() {
    let traced = Traced::start(OtlpProtocol::HttpProtobuf, &["--model=scripted", "--health-check-timeout=1s"]).await;
    traced.server.stop_engine().await;
    assert_eq!(traced.probe("/health_generate").await.status, 503);
    traced.check(3, &expect![[r#"
        GET /health_generate probe.branch=none probe.outcome=timeout probe.evidence=none probe.stalled_at=ipc.to_engine probe.cause=engine_frozen ERROR timeout at ipc.to_engine: engine_frozen
          tokenizer_manager.submit
          ipc.to_engine ERROR unfinished
    "#]]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_whose_engine_dies_under_it() {
    let traced = Traced::start(OtlpProtocol::Grpc, &DOOMED).await;
    let kill = async {
        eventually(MOMENT, async || traced.server.metric("radiosonde_scheduler_step_age_seconds").await > 0.0).await;
        traced.server.signal_engine(Signal::KILL);
    };
    let (answer, ()) = tokio::join!(traced.probe("/health_generate"), kill);
    assert_eq!(answer.status, 503);
    traced.check(7, &expect![[r#"
        GET /health_generate probe.branch=idle probe.outcome=engine_dead probe.evidence=none probe.stalled_at=model_runner.forward probe.cause=engine_dead ERROR engine_dead at model_runner.forward: engine_dead
          tokenizer_manager.submit
          ipc.to_engine
          scheduler.inbox
          scheduler.process_input_requests probe.branch=idle
          scheduler.run_batch ERROR unfinished
            model_runner.forward scheduler.step.phase=prefill scheduler.step.tokens=1 ERROR unfinished
    "#]]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_of_an_engine_that_is_dead_already() {
    let traced = Traced::start(OtlpProtocol::Grpc, &DOOMED).await;
    traced.server.signal_engine(Signal::KILL);
    eventually(MOMENT, async || traced.server.metric("radiosonde_engine_up").await == 0.0).await;
    assert_eq!(traced.probe("/health").await.status, 503);
    traced.check(1, &expect![[r#"
        GET /health probe.branch=none probe.outcome=engine_dead probe.evidence=none probe.stalled_at=ipc.to_engine probe.cause=engine_dead ERROR engine_dead at ipc.to_engine: engine_dead
    "#]]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_whose_client_has_gone() {
    let traced = Traced::start(OtlpProtocol::Grpc, &["--model=scripted:stuck_step=2,stuck_ms=2000"]).await;
    let request = traced.get("/health");
    let gone = async {
        eventually(MOMENT, async || traced.server.metric("radiosonde_scheduler_step_age_seconds").await > 0.0).await;
    };
    tokio::select! {
        _ = request.send() => panic!("the step is stuck"),
        () = gone => {}
    }
    traced
        .check(
            7,
            &expect![[r#"
            GET /health probe.branch=idle probe.outcome=client_gone probe.evidence=none
              tokenizer_manager.submit
              ipc.to_engine
              scheduler.inbox
              scheduler.process_input_requests probe.branch=idle
              scheduler.run_batch ERROR unfinished
                model_runner.forward scheduler.step.phase=prefill scheduler.step.tokens=1 ERROR unfinished
        "#]],
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_at_the_end() {
    let traced = Traced::start(OtlpProtocol::Grpc, &["--model=scripted"]).await;
    for _ in 0..50 {
        let answer = traced.untraced("/generate", &tokens(1, 1)).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
    }
    let Traced { server, collector } = traced;
    assert_eq!(server.stop().await.code(), Some(0));
    let roots = collector.spans().iter().filter(|seen| seen.span.name == "POST /generate").count();
    assert_eq!(roots, 50);
}
