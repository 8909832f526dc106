//! The admin listener, and what is answered from the last verdict: readiness, liveness, gRPC health, self-probes.

use std::time::Duration;

use expect_test::expect;
use radiosonde::telemetry::OtlpProtocol;
use rustix::process::Signal;
use serde_json::{Value, json};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::support::collector::{Collector, Seen};
use crate::support::{Server, eventually, in_background};

const MOMENT: Duration = Duration::from_secs(10);

async fn get(server: &Server, url: &str) -> (u16, Value) {
    let answer = server.client().get(url).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Status codes of the five paths on the admin listener.
async fn statuses(server: &Server) -> [u16; 5] {
    let mut all = [0; 5];
    for (status, path) in all.iter_mut().zip(["/livez", "/readyz", "/startupz", "/ready", "/ping"]) {
        *status = get(server, &server.admin_url(path)).await.0;
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn both_listeners_tell_the_same() {
    let server = Server::start(&["--model=scripted"]).await;
    for path in ["/health", "/health_generate", "/livez", "/readyz", "/startupz", "/ready", "/ping", "/debug/probes"] {
        for url in [server.url(path), server.admin_url(path)] {
            assert_eq!(get(&server, &url).await.0, 200, "{url}");
        }
    }
    let page = server.client().get(server.admin_url("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("\nradiosonde_engine_up 1\n"));
    let wrong = server.client().post(server.admin_url("/generate")).send().await.unwrap();
    assert_eq!(wrong.status().as_u16(), 404, "the admin listener takes no work");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_has_its_answer() {
    let mut server = Server::start_unready(&["--model=scripted:load_ms=1500"], &[]).await;
    assert_eq!(statuses(&server).await, [200, 503, 503, 503, 503]);
    let (_, body) = get(&server, &server.admin_url("/readyz")).await;
    assert_eq!((&body["ready"], &body["status"], &body["verdict"]), (&json!(false), &json!("starting"), &Value::Null));
    server.wait_healthy().await;
    assert_eq!(statuses(&server).await, [200; 5]);
    let (_, body) = get(&server, &server.admin_url("/readyz")).await;
    let seen = (&body["ready"], &body["status"], &body["verdict"]["outcome"], &body["reason"]);
    assert_eq!(seen, (&json!(true), &json!("up"), &json!("ok"), &json!("the probe's own answer was received")));
    assert!(body["age_ms"].as_f64().unwrap() >= 0.0 && body["fresh_for_ms"] == 31_000.0, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_probe_unroutes_and_a_good_one_routes_again() {
    let server = Server::start(&["--model=scripted", "--health-check-timeout=500ms"]).await;
    server.stop_engine().await;
    assert_eq!(get(&server, &server.url("/health")).await.0, 503);
    assert_eq!(statuses(&server).await, [200, 503, 200, 503, 503], "a restart is not called for");
    let (_, body) = get(&server, &server.admin_url("/readyz")).await;
    let verdict = &body["verdict"];
    assert_eq!((&verdict["cause"], &verdict["stalled_at"]), (&json!("engine_frozen"), &json!("ipc.to_engine")));
    server.signal_engine(Signal::CONT);
    assert_eq!(get(&server, &server.url("/health")).await.0, 200);
    assert_eq!(statuses(&server).await, [200; 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_engine_is_beyond_hope() {
    let server = Server::start(&["--model=scripted", "--engine-restarts=0"]).await;
    server.signal_engine(Signal::KILL);
    eventually(MOMENT, async || statuses(&server).await == [503, 503, 200, 503, 503]).await;
    let (_, body) = get(&server, &server.admin_url("/livez")).await;
    assert!(body["reason"].as_str().unwrap().contains("killed by signal 9"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_probes_itself() {
    let collector = Collector::start(OtlpProtocol::Grpc);
    let endpoint = format!("--otlp-traces-endpoint={}", collector.endpoint());
    let server = Server::start(&["--model=scripted", "--self-probe-interval=300ms", &endpoint]).await;
    let own = |seen: &Seen| seen.span.name == "self_probe";
    let whole = |seen: &[Seen]| {
        let trace = seen.iter().find(|seen| own(seen)).map(Seen::trace_id);
        trace.is_some_and(|trace| seen.iter().filter(|seen| seen.trace_id() == trace).count() == 10)
    };
    collector.wait(MOMENT, whole).await;
    let trace = collector.spans().into_iter().find(own).unwrap().trace_id();
    collector.well_formed(&trace, None);
    expect![[r#"
        self_probe probe.branch=idle probe.outcome=ok probe.evidence=own_answer
          tokenizer_manager.submit
          ipc.to_engine
          scheduler.inbox
          scheduler.process_input_requests probe.branch=idle
          scheduler.run_batch
            model_runner.forward
          ipc.to_frontend
          detokenizer
          tokenizer_manager.receive
    "#]]
    .assert_eq(&collector.tree(&trace, &["probe.branch", "probe.outcome", "probe.evidence"]));
    let labels = [("endpoint", "self"), ("outcome", "ok"), ("branch", "idle")];
    eventually(MOMENT, async || server.metric_with("radiosonde_health_probe_total", &labels).await >= 2.0).await;
    let (_, kept) = get(&server, &server.admin_url("/debug/probes")).await;
    assert_eq!(kept["probes"][0]["endpoint"], "self", "{kept}");
    assert_eq!(server.metric("radiosonde_num_requests_total").await, 0.0, "a probe is no request");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_self_probe_finds_a_fault_and_its_end() {
    let args = ["--model=scripted", "--self-probe-interval=200ms", "--health-check-timeout=400ms"];
    let server = Server::start(&args).await;
    server.stop_engine().await;
    eventually(MOMENT, async || get(&server, &server.admin_url("/readyz")).await.0 == 503).await;
    let (_, body) = get(&server, &server.admin_url("/readyz")).await;
    assert_eq!((&body["status"], &body["verdict"]["cause"]), (&json!("unhealthy"), &json!("engine_frozen")), "{body}");
    server.signal_engine(Signal::CONT);
    eventually(MOMENT, async || get(&server, &server.admin_url("/readyz")).await.0 == 200).await;
    let users = [("endpoint", "/health")];
    let before = server.metric_with("radiosonde_health_probe_total", &users).await;
    assert!(before >= 1.0, "only the harness has asked for the start");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_a_sign_of_life_and_spares_the_self_probe() {
    let args = ["--model=scripted:step_ms=20", "--self-probe-interval=1s", "--health-check-timeout=500ms"];
    let server = Server::start(&args).await;
    let body = json!({"text": "a", "sampling_params": {"max_new_tokens": 200, "ignore_eos": true}});
    let request = server.client().post(server.url("/generate")).json(&body);
    let before = server.metric_with("radiosonde_health_probe_total", &[("endpoint", "self")]).await;
    let work = in_background(async move { request.send().await.unwrap().status().as_u16() });
    while !work.is_finished() {
        let (status, body) = get(&server, &server.admin_url("/readyz")).await;
        assert_eq!(status, 200, "{body}");
    }
    assert_eq!(work.await.unwrap(), 200);
    let after = server.metric_with("radiosonde_health_probe_total", &[("endpoint", "self")]).await;
    assert_eq!(before, after, "for four seconds, output came every 20 ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_self_probes_a_verdict_does_not_age() {
    let server = Server::start(&["--model=scripted", "--self-probe-interval=0"]).await;
    let (status, body) = get(&server, &server.admin_url("/readyz")).await;
    assert_eq!((status, &body["fresh_for_ms"]), (200, &Value::Null), "{body}");
}

async fn grpc(server: &Server) -> HealthClient<tonic::transport::Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(server.admin_url("")).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

fn ask(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_health_is_readiness() {
    let server = Server::start(&["--model=scripted", "--health-check-timeout=500ms"]).await;
    let mut client = grpc(&server).await;
    for service in ["", "radiosonde"] {
        let answer = client.check(ask(service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving);
    }
    assert_eq!(client.check(ask("nobody")).await.unwrap_err().code(), tonic::Code::NotFound);
    let mut unknown = client.watch(ask("nobody")).await.unwrap().into_inner();
    let status = |answer: Option<HealthCheckResponse>| answer.unwrap().status();
    assert_eq!(status(unknown.message().await.unwrap()), ServingStatus::ServiceUnknown);

    let mut watch = client.watch(ask("radiosonde")).await.unwrap().into_inner();
    assert_eq!(status(watch.message().await.unwrap()), ServingStatus::Serving);
    server.stop_engine().await;
    assert_eq!(get(&server, &server.url("/health")).await.0, 503);
    assert_eq!(status(watch.message().await.unwrap()), ServingStatus::NotServing);
    assert_eq!(client.check(ask("")).await.unwrap().into_inner().status(), ServingStatus::NotServing);
    server.signal_engine(Signal::CONT);
    assert_eq!(get(&server, &server.url("/health")).await.0, 200);
    assert_eq!(status(watch.message().await.unwrap()), ServingStatus::Serving);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_listener_does_not_need_the_engine() {
    let server = Server::start(&["--model=scripted"]).await;
    server.stop_engine().await;
    let flood: Vec<_> = (0..50)
        .map(|_| {
            let request = server.client().get(server.url("/health"));
            in_background(async move { request.send().await.map(|answer| answer.status()) })
        })
        .collect();
    eventually(MOMENT, async || server.metric("radiosonde_health_probes_in_flight").await == 50.0).await;
    for path in ["/livez", "/readyz", "/metrics", "/debug/probes", "/ping"] {
        let answer = server.client().get(server.admin_url(path)).timeout(MOMENT).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200, "{path}");
    }
    server.signal_engine(Signal::CONT);
    for probe in flood {
        assert_eq!(probe.await.unwrap().unwrap().as_u16(), 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_thread_does_not_need_the_main_runtime() {
    let args = ["--model=scripted", "--enable-drills", "--health-check-timeout=1s", "--self-probe-interval=300ms"];
    let mut server = Server::start(&args).await;
    let fault = json!({"fault": "frontend_blocked", "seconds": 60});
    assert_eq!(server.client().post(server.admin_url("/debug/fault")).json(&fault).send().await.unwrap().status(), 200);
    eventually(MOMENT, async || get(&server, &server.admin_url("/readyz")).await.0 == 503).await;
    let (_, body) = get(&server, &server.admin_url("/readyz")).await;
    assert_eq!(
        (&body["status"], &body["verdict"]["cause"]),
        (&json!("unhealthy"), &json!("frontend_stalled")),
        "{body}"
    );
    let request = server.client().get(server.url("/ping"));
    let unanswered = in_background(async move { request.send().await.is_ok() });
    eventually(MOMENT, async || get(&server, &server.admin_url("/livez")).await.0 == 503).await;
    let page = server.client().get(server.admin_url("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(page.contains("\nradiosonde_server_status{status=\"unhealthy\"} 1\n"));
    assert!(!unanswered.is_finished(), "the main runtime was to stand still");
    server.signal(Signal::TERM);
    eventually(MOMENT, async || get(&server, &server.admin_url("/readyz")).await.1["status"] == "draining").await;
    server.signal(Signal::TERM);
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(143), "nobody else could end it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_not_ready_and_not_probed_without_end() {
    let server = Server::start(&["--model=scripted", "--self-probe-interval=200ms"]).await;
    let pause = server.client().post(server.url("/pause_generation")).send().await.unwrap();
    assert_eq!(pause.status(), 200);
    let (status, body) = get(&server, &server.admin_url("/readyz")).await;
    assert_eq!((status, &body["status"], &body["reason"]), (503, &json!("up"), &json!("generation is paused")));
    assert_eq!([get(&server, &server.url("/ready")).await.0, get(&server, &server.url("/ping")).await.0], [503, 200]);
    let labels = [("endpoint", "self"), ("outcome", "paused")];
    eventually(MOMENT, async || server.metric_with("radiosonde_health_probe_total", &labels).await >= 2.0).await;
    assert!(server.metric_with("radiosonde_health_probe_total", &labels).await < 20.0, "an interval lies between two");
    assert_eq!(server.client().post(server.url("/continue_generation")).send().await.unwrap().status(), 200);
    eventually(MOMENT, async || get(&server, &server.admin_url("/readyz")).await.0 == 200).await;
}
