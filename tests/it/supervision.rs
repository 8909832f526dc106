//! An engine that dies costs its users as little as possible, and leaves a report.

use std::time::Duration;

use futures::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::Answer;
use crate::support::{Server, eventually, in_background};

const MOMENT: Duration = Duration::from_secs(20);

/// Status and body of a request for `output` tokens.
async fn generate(server: &Server, output: u32) -> (u16, Value) {
    let body = json!({
        "input_ids": [65, 66, 67],
        "sampling_params": {"max_new_tokens": output, "ignore_eos": true, "temperature": 0},
    });
    let answer = server.client().post(server.url("/generate")).json(&body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn incidents(server: &Server) -> Vec<Value> {
    let answer = server.client().get(server.url("/debug/incidents")).send().await.unwrap();
    let mut body: Value = answer.json().await.unwrap();
    body["incidents"].as_array_mut().unwrap().drain(..).collect()
}

/// The engine was started again so many times, and is ready.
async fn is_up_again(server: &Server, times: f64) -> bool {
    server.metric("radiosonde_engine_restarts_total").await == times
        && server.metric_with("radiosonde_server_status", &[("status", "up")]).await == 1.0
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_requests_survive_the_engine_and_running_ones_hear_of_its_death() {
    let server =
        Server::start(&["--model=scripted:step_ms=100", "--max-running-requests=8", "--max-step-time=0"]).await;
    let first = server.engine_pid();
    let (mut expected_status, mut expected) = generate(&server, 10).await;
    assert_eq!(expected_status, 200);
    let requests = async { join_all((0..16).map(|_| generate(&server, 10))).await };
    let kill = async {
        eventually(MOMENT, async || {
            let running = server.metric("radiosonde_num_running_reqs").await;
            let waiting = server.metric("radiosonde_num_queue_reqs").await;
            let tokens = server.metric("radiosonde_generation_tokens_total").await;
            (running, waiting) == (8.0, 8.0) && tokens >= 18.0
        })
        .await;
        server.signal_engine(Signal::KILL);
    };
    let (answers, ()) = tokio::join!(requests, kill);
    let (good, bad): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(status, _)| *status == 200);
    assert_eq!((good.len(), bad.len()), (8, 8), "{bad:?}");
    expected["meta_info"].take();
    for (_, mut answer) in good {
        answer["meta_info"].take();
        assert_eq!(answer, expected, "as if nothing had happened");
    }
    for (status, answer) in bad {
        expected_status = status;
        assert_eq!(status, 503, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("engine"), "{answer}");
    }
    assert_eq!(expected_status, 503);
    eventually(MOMENT, async || is_up_again(&server, 1.0).await).await;
    assert_ne!(server.engine_pid(), first);
    assert_eq!(server.metric("radiosonde_request_table_size").await, 0.0);
    let reports = incidents(&server).await;
    assert_eq!(reports.len(), 1, "{reports:?}");
    let report = &reports[0];
    assert_eq!(report["cause"], "engine_dead");
    assert_eq!(report["exit_status"], "was killed by signal 9 (SIGKILL)");
    assert_eq!((&report["requests_failed"], &report["requests_kept"]), (&json!(8), &json!(8)), "{report}");
    assert!(
        !report["last_steps"].as_array().unwrap().is_empty() && report["heartbeat"]["batches"].is_u64(),
        "{report}"
    );
    assert!(report["stderr_tail"].to_string().contains("model loaded"), "{report}");
}

/// It has no output for its client, so it is sent again; and then the detokenizer must know nothing of the first answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_answer_was_in_the_detokenizer_is_answered_by_the_next_engine() {
    let server = Server::start(&["--model=scripted:load_ms=1000", "--enable-drills", "--self-probe-interval=0"]).await;
    let (_, expected) = generate(&server, 1).await;
    let drill = async |fault: reqwest::RequestBuilder| assert_eq!(fault.send().await.unwrap().status(), 200);
    let stuck = json!({"fault": "detokenizer_stuck", "seconds": 600});
    drill(server.client().post(server.url("/debug/fault")).json(&stuck)).await;
    let batches = async || server.metric("radiosonde_scheduler_batches_total").await;
    let before = batches().await;
    let kill = async {
        eventually(MOMENT, async || batches().await > before).await;
        server.signal_engine(Signal::KILL);
        eventually(MOMENT, async || server.metric("radiosonde_engine_up").await == 0.0).await;
        drill(server.client().delete(server.url("/debug/fault"))).await; // before there is another engine
    };
    let answer = tokio::time::timeout(MOMENT, generate(&server, 1));
    let (answer, ()) = tokio::join!(answer, kill);
    let (status, answer) = answer.expect("the request is not forgotten");
    assert_eq!((status, &answer["text"]), (200, &expected["text"]), "{answer}");
    assert_eq!(server.metric("radiosonde_engine_restarts_total").await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_visible_and_names_its_reason() {
    let server = Server::start(&["--model=scripted:load_ms=1500"]).await;
    server.signal_engine(Signal::KILL);
    eventually(Duration::from_secs(1), async || server.probe("/health").await.body["cause"] == "engine_dead").await;
    eventually(MOMENT, async || {
        let Answer { status, body } = server.probe("/health").await;
        let reason = body["reason"].as_str().unwrap_or_default();
        status == 503 && body["status"] == "starting" && reason.contains("restart 1 of 3") && reason.contains("SIGKILL")
            || body["outcome"] == "starting"
    })
    .await;
    let (status, answer) = generate(&server, 1).await;
    assert!(status == 503 || status == 200, "{answer}");
    eventually(MOMENT, async || server.probe("/health").await.status == 200).await;
    assert_eq!(generate(&server, 3).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spent_budget_ends_the_server_with_a_reason() {
    let mut server = Server::start(&["--model=scripted", "--engine-restarts=1"]).await;
    server.signal_engine(Signal::ILL);
    eventually(MOMENT, async || is_up_again(&server, 1.0).await).await;
    server.signal_engine(Signal::ABORT);
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(1));
    let log = server.log();
    assert!(
        log.contains("was killed by signal 4 (SIGILL)") && log.contains("was killed by signal 6 (SIGABRT)"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_a_restart_is_forgotten() {
    let server = Server::start(&["--model=scripted:step_ms=200,load_ms=500", "--max-running-requests=1"]).await;
    let send = |output: u32| {
        let body = json!({"input_ids": [65], "sampling_params": {"max_new_tokens": output, "ignore_eos": true}});
        in_background(server.client().post(server.url("/generate")).json(&body).send())
    };
    let running = send(1000);
    eventually(MOMENT, async || server.metric("radiosonde_generation_tokens_total").await >= 1.0).await;
    let waiting = send(1000);
    eventually(MOMENT, async || server.metric("radiosonde_num_queue_reqs").await == 1.0).await;
    server.signal_engine(Signal::KILL);
    assert_eq!(running.await.unwrap().unwrap().status().as_u16(), 503);
    waiting.abort();
    eventually(MOMENT, async || is_up_again(&server, 1.0).await).await;
    assert_eq!(generate(&server, 1).await.0, 200, "the only place is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_probes_of_one_cause_are_one_report() {
    let server = Server::start(&["--model=scripted", "--health-check-timeout=800ms"]).await;
    for episode in 1..=2 {
        server.stop_engine().await;
        for _ in 0..3 {
            assert_eq!(server.probe("/health").await.status, 503);
        }
        server.signal_engine(Signal::CONT);
        assert_eq!(server.probe("/health").await.status, 200);
        let reports = incidents(&server).await;
        assert_eq!(reports.len(), episode, "{reports:?}");
        let newest = &reports[0];
        assert_eq!((&newest["cause"], &newest["failed_probes"]), (&json!("engine_frozen"), &json!(3)), "{newest}");
        assert_eq!(newest["probe"]["stalled_at"], "ipc.to_engine");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_two_engines_died_with_is_given_up() {
    let server = Server::start(&["--model=scripted:step_ms=6000"]).await;
    let request = async { generate(&server, 1).await };
    let kills = async {
        for times in [0.0, 1.0] {
            eventually(MOMENT, async || {
                server.metric("radiosonde_engine_restarts_total").await == times
                    && server.metric("radiosonde_engine_up").await == 1.0 // from here on, it is this engine that tells
                    && server.metric("radiosonde_num_running_reqs").await == 1.0
            })
            .await;
            server.signal_engine(Signal::KILL);
        }
    };
    let ((status, answer), ()) = tokio::join!(request, kills);
    assert_eq!(status, 503, "it may be what kills them: {answer}");
    eventually(MOMENT, async || is_up_again(&server, 2.0).await).await;
    assert_eq!(server.metric("radiosonde_request_table_size").await, 0.0);
}
