//! Health probes against real processes: what they answer, why, and what they leave behind.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Server, eventually};

const HEALTH: [&str; 2] = ["/health", "/health_generate"];
const MOMENT: Duration = Duration::from_secs(10);

/// Status and body.
async fn probe(server: &Server, path: &str) -> (u16, Value) {
    let answer = server.probe(path).await;
    (answer.status, answer.body)
}

/// Sends a prompt of `prompt` tokens that asks for `output` tokens; the answer's status.
async fn generate(server: &Server, prompt: usize, output: u32) -> u16 {
    let body = json!({
        "input_ids": (0..prompt).map(|i| i % 200 + 20).collect::<Vec<_>>(),
        "sampling_params": {"max_new_tokens": output, "ignore_eos": true, "temperature": 0},
    });
    let answer = server.client().post(server.url("/generate")).json(&body).send().await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    assert!(status != 200 || text.contains("output_ids"), "{text}");
    status
}

async fn nothing_is_left(server: &Server) {
    server.at_rest(MOMENT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_runs_each_probe() {
    let server = Server::start_default().await;
    for i in 0..50 {
        let (status, body) = probe(&server, HEALTH[i % 2]).await;
        let seen = (&body["branch"], &body["evidence"], &body["outcome"], &body["healthy"], &body["status"]);
        let want = (&json!("idle"), &json!("own_answer"), &json!("ok"), &json!(true), &json!("up"));
        assert_eq!((status, seen), (200, want), "{body}");
        let hops: Vec<_> =
            body["timeline"].as_array().unwrap().iter().map(|hop| hop["hop"].as_str().unwrap()).collect();
        let want = [
            "tokenizer_manager.submit",
            "ipc.to_engine",
            "scheduler.inbox",
            "scheduler.process_input_requests",
            "scheduler.run_batch",
            "model_runner.forward",
            "ipc.to_frontend",
            "detokenizer",
            "tokenizer_manager.receive",
        ];
        assert_eq!(hops, want, "{body}");
        assert!(body["timeline"].as_array().unwrap().iter().all(|hop| hop["left_ms"].is_f64()), "{body}");
    }
    let (_, kept) = probe(&server, "/debug/probes").await;
    assert!(kept["probes"].as_array().unwrap().len() >= 50);
    let id = kept["probes"][3]["probe_id"].as_str().unwrap();
    assert_eq!(probe(&server, &format!("/debug/probes/{id}")).await.1, kept["probes"][3]);
    assert_eq!(probe(&server, "/debug/probes/HEALTH_CHECK_never").await.0, 404);
    nothing_is_left(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_prefill_answers_every_probe_on_the_busy_branch() {
    let server = Server::start_default().await;
    let prefill = async { assert_eq!(generate(&server, 6000, 1).await, 200) };
    let probes = async {
        eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
        for i in 0..20 {
            let (status, body) = probe(&server, HEALTH[i % 2]).await;
            assert_eq!(
                (status, &body["branch"], &body["evidence"]),
                (200, &json!("busy"), &json!("own_answer")),
                "{body}"
            );
        }
        assert_eq!(server.metric("radiosonde_num_running_reqs").await, 1.0, "the prefill was to outlast the probes");
    };
    tokio::join!(prefill, probes);
    nothing_is_left(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_chunks_are_no_outage() {
    let server =
        Server::start(&["--model=scripted:step_ms=300", "--health-check-timeout=1s", "--chunked-prefill-size=100"])
            .await;
    let prefill = async { assert_eq!(generate(&server, 800, 1).await, 200) };
    let probes = async {
        eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
        while server.metric("radiosonde_num_running_reqs").await == 1.0 {
            let (status, body) = probe(&server, "/health_generate").await;
            assert_eq!(status, 200, "work advances chunk by chunk: {body}");
            let age = server.metric("radiosonde_last_receive_age_seconds").await;
            assert!(age < 1.0, "the age is {age}, a chunk takes 0.3 s");
        }
    };
    tokio::join!(prefill, probes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_engine_is_known_at_once() {
    let mut server = Server::start(&["--model=scripted:step_ms=50", "--engine-restarts=0"]).await;
    let in_flight = async { generate(&server, 10, 4000).await };
    let kill = async {
        eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
        server.signal_engine(Signal::KILL);
        eventually(Duration::from_secs(1), async || probe(&server, "/health").await.0 == 503).await;
        for path in HEALTH {
            let (status, body) = probe(&server, path).await;
            assert_eq!((status, &body["cause"], &body["status"]), (503, &json!("engine_dead"), &json!("unhealthy")));
            assert_eq!(body["stalled_at"], "ipc.to_engine", "{body}");
        }
        eventually(Duration::from_secs(1), async || {
            let (_, body) = probe(&server, "/health").await;
            body["cause_detail"].as_str().unwrap().contains("was killed by signal 9")
        })
        .await;
        assert_eq!(server.metric_with("radiosonde_server_status", &[("status", "unhealthy")]).await, 1.0);
        assert_eq!(generate(&server, 10, 1).await, 503, "new work is refused");
    };
    let (status, ()) = tokio::join!(in_flight, kill);
    assert_eq!(status, 503, "a request in flight ends with an error");
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(1), "so that somebody starts it again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_engine_is_named_and_comes_back() {
    let server = Server::start(&["--model=scripted", "--health-check-timeout=1s"]).await;
    server.stop_engine().await;
    for path in HEALTH {
        let (status, body) = probe(&server, path).await;
        assert_eq!(
            (status, &body["outcome"], &body["cause"]),
            (503, &json!("timeout"), &json!("engine_frozen")),
            "{body}"
        );
        assert_eq!((&body["stalled_at"], &body["status"]), (&json!("ipc.to_engine"), &json!("unhealthy")));
    }
    server.signal_engine(Signal::CONT);
    let (status, body) = probe(&server, "/health").await;
    assert_eq!((status, &body["status"]), (200, &json!("up")), "{body}");
    nothing_is_left(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_step_is_named() {
    let server = Server::start(&["--model=scripted:stuck_step=2,stuck_ms=4000", "--health-check-timeout=1s"]).await;
    let (status, body) = probe(&server, "/health").await;
    assert_eq!((status, &body["outcome"], &body["cause"]), (503, &json!("timeout"), &json!("step_stuck")), "{body}");
    assert_eq!((&body["stalled_at"], &body["branch"]), (&json!("model_runner.forward"), &json!("idle")));
    assert_eq!((&body["step"]["number"], &body["step"]["phase"]), (&json!(2), &json!("prefill")), "{body}");
    assert!(
        body["cause_detail"]
            .as_str()
            .unwrap()
            .starts_with("step 2 (prefill, 1 tokens, 1 requests) has been running for")
    );
    assert!(body["ages"]["heartbeat_ms"].as_f64().unwrap() < 750.0, "heartbeats go on: {body}");
    for _ in 0..2 {
        let (status, body) = probe(&server, "/health").await;
        let seen = (&body["stalled_at"], &body["cause"], &body["branch"]);
        assert_eq!((status, seen), (503, (&json!("scheduler.inbox"), &json!("step_stuck"), &json!("none"))), "{body}");
    }
    eventually(MOMENT, async || probe(&server, "/health").await.0 == 200).await;
    assert_eq!(server.metric_with("radiosonde_server_status", &[("status", "up")]).await, 1.0);
    nothing_is_left(&server).await;
    assert_eq!(generate(&server, 3, 2).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_may_wait_less() {
    let server = Server::start(&["--model=scripted:step_ms=400"]).await;
    let (status, body) = probe(&server, "/health?timeout=100ms").await;
    assert_eq!((status, &body["outcome"], &body["limit_ms"]), (503, &json!("timeout"), &json!(100.0)), "{body}");
    let (_, body) = probe(&server, "/health?timeout=500s").await;
    assert_eq!(body["limit_ms"], 20_000.0, "more than the configured limit is not to be had");
    for wrong in ["/health?timeout=soon", "/health?timeout=0", "/health_generate?evidence=hearsay"] {
        let (status, body) = probe(&server, wrong).await;
        assert_eq!((status, &body["error"]["type"]), (400, &json!("invalid_request_error")), "{wrong}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn own_evidence_is_the_probes_own_answer() {
    let server = Server::start(&["--model=scripted:step_ms=20"]).await;
    let probes = async {
        eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
        let (mut pairs, mut vouched_for) = (0, false);
        while pairs < 10 || !vouched_for {
            let (status, body) = probe(&server, "/health_generate?evidence=own").await;
            assert_eq!((status, &body["evidence"]), (200, &json!("own_answer")), "{body}");
            let (status, body) = probe(&server, "/health_generate").await;
            assert_eq!(status, 200, "{body}");
            vouched_for |= body["evidence"] == "other_traffic";
            pairs += 1;
        }
    };
    tokio::select! {
        status = generate(&server, 10, 8000) => panic!("{status}, and no token of it ever vouched for a probe"),
        () = probes => {}
    }
    nothing_is_left(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_cut_off_by_their_client_leave_nothing() {
    let server = Server::start(&["--model=scripted:step_ms=100"]).await;
    let stream = async { assert_eq!(generate(&server, 10, 40).await, 200) };
    let before = server.metric("radiosonde_num_aborted_requests_total").await;
    let cut = async {
        for _ in 0..10 {
            let probes = (0..30).map(|i| {
                let request = server.client().get(server.url(HEALTH[i % 2]));
                async move { request.timeout(Duration::from_millis(20)).send().await.is_err() }
            });
            join_all(probes).await;
        }
    };
    tokio::join!(stream, cut);
    nothing_is_left(&server).await;
    assert!(server.metric_with("radiosonde_health_probe_total", &[("outcome", "client_gone")]).await > 200.0);
    assert_eq!(server.metric("radiosonde_num_aborted_requests_total").await, before, "a probe is no request");
    assert_eq!(probe(&server, "/health").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_probes_at_once() {
    let server = Server::start_default().await;
    for busy in [false, true] {
        let work = async { if busy { generate(&server, 2000, 8).await } else { 200 } };
        let probes = async {
            if busy {
                eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
            }
            join_all((0..200).map(|i| probe(&server, HEALTH[i % 2]))).await
        };
        let (status, answers) = tokio::join!(work, probes);
        assert_eq!(status, 200);
        let ids: HashSet<_> = answers.iter().map(|(_, body)| body["probe_id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), 200);
        assert!(answers.iter().all(|(status, _)| *status == 200));
        nothing_is_left(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_after_a_standstill_leave_no_orphans() {
    let server = Server::start(&["--model=scripted:stuck_step=2,stuck_ms=3000", "--health-check-timeout=400ms"]).await;
    for _ in 0..5 {
        assert_eq!(probe(&server, "/health_generate").await.0, 503);
    }
    nothing_is_left(&server).await;
    assert_eq!(probe(&server, "/health_generate").await.0, 200);
    assert_eq!(generate(&server, 1, 2).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_has_its_answer() {
    let mut server = Server::start_unready(&["--model=scripted:load_ms=1500"], &[]).await;
    for path in HEALTH {
        let (status, body) = probe(&server, path).await;
        assert_eq!(
            (status, &body["status"], &body["outcome"]),
            (503, &json!("starting"), &json!("starting")),
            "{body}"
        );
    }
    assert_eq!(generate(&server, 1, 1).await, 503);
    server.wait_healthy().await;
    for path in HEALTH {
        assert_eq!(probe(&server, path).await.0, 200);
        let head = server.client().head(server.url(path)).send().await.unwrap();
        assert_eq!((head.status().as_u16(), head.text().await.unwrap().len()), (200, 0));
        let post = server.client().post(server.url(path)).send().await.unwrap();
        assert_eq!(post.status().as_u16(), 405);
    }
    assert_eq!(server.client().head(server.url("/metrics")).send().await.unwrap().status().as_u16(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_generation_health_touches_nothing() {
    let server = Server::start(&["--model=scripted", "--disable-health-generation"]).await;
    server.stop_engine().await;
    let (status, body) = probe(&server, "/health").await;
    assert_eq!((status, &body["outcome"]), (200, &json!("shortcut")), "{body}");
    let (status, _) = probe(&server, "/health_generate?timeout=300ms").await;
    assert_eq!(status, 503, "this one still probes");
    server.signal_engine(Signal::CONT);
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_not_counted_as_requests() {
    let server = Server::start(&["--model=scripted"]).await;
    assert_eq!(generate(&server, 4, 4).await, 200);
    let series = [
        "radiosonde_num_requests_total",
        "radiosonde_prompt_tokens_total",
        "radiosonde_generation_tokens_total",
        "radiosonde_time_to_first_token_seconds_count",
        "radiosonde_e2e_request_latency_seconds_count",
    ];
    let mut before = Vec::new();
    for name in series {
        before.push(server.metric(name).await);
    }
    let probes = server.metric("radiosonde_health_probe_total").await;
    for i in 0..100 {
        assert_eq!(probe(&server, HEALTH[i % 2]).await.0, 200);
    }
    for (name, before) in series.into_iter().zip(before) {
        assert_eq!(server.metric(name).await, before, "{name}");
    }
    assert_eq!(server.metric("radiosonde_health_probe_total").await, probes + 100.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn long_prefills_do_not_hold_up_health_and_metrics() {
    let server = Server::start_default().await;
    let prefills = join_all((0..8).map(|_| generate(&server, 1000, 1)));
    let watch = async {
        eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await > 1.0).await;
        for _ in 0..20 {
            let scrape = server.client().get(server.url("/metrics")).timeout(Duration::from_secs(1)).send().await;
            assert_eq!(scrape.unwrap().status().as_u16(), 200);
            assert_eq!(probe(&server, "/health").await.0, 200);
        }
    };
    let (statuses, ()) = tokio::join!(prefills, watch);
    assert_eq!(statuses, [200; 8]);
}
