//! The traces of probes and requests, whole, over the wire, from real processes.

use std::time::Duration;

use expect_test::{Expect, expect};
use radiosonde::telemetry::OtlpProtocol;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::collector::{Collector, Seen};
use crate::support::{Server, eventually, in_background};

const REMOTE: &str = "00-0123456789abcdef0123456789abcdef-2222222222222222-01";
const TRACE: &str = "0123456789abcdef0123456789abcdef";
const PARENT: &str = "2222222222222222";
const MOMENT: Duration = Duration::from_secs(10);
/// Its second step never ends, and its engine is not started again.
const DOOMED: [&str; 2] = ["--model=scripted:stuck_step=2,stuck_ms=60000", "--engine-restarts=0"];
const KEYS: [&str; 8] = [
    "probe.branch",
    "probe.outcome",
    "probe.evidence",
    "probe.stalled_at",
    "probe.cause",
    "scheduler.step.phase",
    "scheduler.step.tokens",
    "request.outcome",
];

/// A server that exports to a collector.
async fn traced(protocol: OtlpProtocol, args: &[&str]) -> (Server, Collector) {
    let collector = Collector::start(protocol);
    let endpoint = format!("--otlp-traces-endpoint={}", collector.endpoint());
    let name = match protocol {
        OtlpProtocol::Grpc => "--otlp-traces-protocol=grpc",
        OtlpProtocol::HttpProtobuf => "--otlp-traces-protocol=http/protobuf",
    };
    let server = Server::start(&[&[endpoint.as_str(), name], args].concat()).await;
    (server, collector)
}

/// Waits until the root of the trace has come, and compares the tree.
async fn check(collector: &Collector, spans: usize, want: &Expect) {
    collector.wait(MOMENT, |seen| seen.iter().filter(|seen| seen.trace_id() == TRACE).count() >= spans).await;
    want.assert_eq(&collector.tree(TRACE, &KEYS));
    collector.well_formed(TRACE, Some(PARENT));
}

async fn probe(server: &Server, path: &str) -> u16 {
    server.client().get(server.url(path)).header("traceparent", REMOTE).send().await.unwrap().status().as_u16()
}

fn tokens(prompt: usize, output: u32) -> Value {
    json!({"input_ids": vec![65; prompt], "sampling_params": {"max_new_tokens": output, "ignore_eos": true}})
}

/// Keeps the scheduler busy with a request of `output` steps until the returned task ends.
async fn keep_busy(server: &Server, output: u32) -> tokio::task::JoinHandle<()> {
    let request = server.client().post(server.url("/generate")).json(&tokens(4, output));
    let busy = in_background(async move {
        let _ = request.send().await;
    });
    eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
    busy
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_probe() {
    for protocol in [OtlpProtocol::Grpc, OtlpProtocol::HttpProtobuf] {
        let (server, collector) = traced(protocol, &["--model=scripted"]).await;
        assert_eq!(probe(&server, "/health_generate").await, 200);
        check(
            &collector,
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
    let (server, collector) = traced(OtlpProtocol::Grpc, &["--model=scripted:step_ms=50"]).await;
    let busy = keep_busy(&server, 40).await;
    assert_eq!(probe(&server, "/health?evidence=own").await, 200);
    check(
        &collector,
        8,
        &expect![[r#"
        GET /health probe.branch=busy probe.outcome=ok probe.evidence=own_answer
          tokenizer_manager.submit
          ipc.to_engine
          scheduler.inbox
          scheduler.process_input_requests probe.branch=busy
          scheduler.return_health_check_ipcs
          ipc.to_frontend
          tokenizer_manager.receive
    "#]],
    )
    .await;
    busy.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_whose_step_is_stuck() {
    let args = ["--model=scripted:stuck_step=2,stuck_ms=60000", "--health-check-timeout=1s"];
    let (server, collector) = traced(OtlpProtocol::Grpc, &args).await;
    assert_eq!(probe(&server, "/health_generate").await, 503);
    check(&collector, 7, &expect![[r#"
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
    let (server, collector) =
        traced(OtlpProtocol::HttpProtobuf, &["--model=scripted", "--health-check-timeout=1s"]).await;
    server.stop_engine().await;
    assert_eq!(probe(&server, "/health_generate").await, 503);
    check(&collector, 3, &expect![[r#"
        GET /health_generate probe.branch=none probe.outcome=timeout probe.evidence=none probe.stalled_at=ipc.to_engine probe.cause=engine_frozen ERROR timeout at ipc.to_engine: engine_frozen
          tokenizer_manager.submit
          ipc.to_engine ERROR unfinished
    "#]]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_whose_engine_dies_under_it() {
    let (server, collector) = traced(OtlpProtocol::Grpc, &DOOMED).await;
    let kill = async {
        eventually(MOMENT, async || server.metric("radiosonde_scheduler_step_age_seconds").await > 0.0).await;
        server.signal_engine(Signal::KILL);
    };
    let (status, ()) = tokio::join!(probe(&server, "/health_generate"), kill);
    assert_eq!(status, 503);
    check(&collector, 7, &expect![[r#"
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
    let (server, collector) = traced(OtlpProtocol::Grpc, &DOOMED).await;
    server.signal_engine(Signal::KILL);
    eventually(MOMENT, async || server.metric("radiosonde_engine_up").await == 0.0).await;
    assert_eq!(probe(&server, "/health").await, 503);
    check(&collector, 1, &expect![[r#"
        GET /health probe.branch=none probe.outcome=engine_dead probe.evidence=none probe.stalled_at=ipc.to_engine probe.cause=engine_dead ERROR engine_dead at ipc.to_engine: engine_dead
    "#]]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_whose_client_has_gone() {
    let (server, collector) = traced(OtlpProtocol::Grpc, &["--model=scripted:stuck_step=2,stuck_ms=2000"]).await;
    let request = server.client().get(server.url("/health")).header("traceparent", REMOTE);
    let gone = async {
        eventually(MOMENT, async || server.metric("radiosonde_scheduler_step_age_seconds").await > 0.0).await;
    };
    tokio::select! {
        _ = request.send() => panic!("the step is stuck"),
        () = gone => {}
    }
    check(
        &collector,
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
async fn a_request_and_one_that_fails_and_one_whose_client_has_gone() {
    let (server, collector) = traced(OtlpProtocol::Grpc, &["--model=scripted:step_ms=20,fail_step=8"]).await;
    let send = |body: Value| server.client().post(server.url("/generate")).header("traceparent", REMOTE).json(&body);
    assert_eq!(send(tokens(3, 2)).send().await.unwrap().status().as_u16(), 200);
    check(
        &collector,
        10,
        &expect![[r#"
        POST /generate request.outcome=length
          tokenizer_manager.submit
          ipc.to_engine
          scheduler.inbox
          scheduler.process_input_requests
          scheduler.waiting_queue
          scheduler.prefill
          scheduler.decode
          ipc.to_frontend
          detokenizer
          tokenizer_manager.receive
    "#]],
    )
    .await;
    assert_eq!(send(tokens(3, 20)).send().await.unwrap().status().as_u16(), 500);
    let failed = |seen: &Seen| seen.span.name == "POST /generate" && seen.error().is_some();
    collector.wait(MOMENT, |seen| seen.iter().any(failed)).await;
    let root = collector.spans().into_iter().find(failed).unwrap();
    assert_eq!(root.error(), Some("scripted failure of step 8"));

    assert_eq!(send(json!({"input_ids": [-1]})).send().await.unwrap().status().as_u16(), 400);
    let busy = keep_busy(&server, 4000).await;
    busy.abort();
    let aborted = |seen: &Seen| seen.attributes.get("request.outcome").is_some_and(|outcome| outcome == "abort");
    collector.wait(MOMENT, |seen| seen.iter().any(aborted)).await;
    let root = collector.spans().into_iter().find(aborted).unwrap();
    assert_eq!(root.error(), None, "a client that leaves is no error");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_at_the_end() {
    let (server, collector) = traced(OtlpProtocol::Grpc, &["--model=scripted"]).await;
    for _ in 0..50 {
        let answer = server.client().post(server.url("/generate")).json(&tokens(1, 1)).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
    }
    assert_eq!(server.stop().await.code(), Some(0));
    let roots = collector.spans().iter().filter(|seen| seen.span.name == "POST /generate").count();
    assert_eq!(roots, 50);
}
