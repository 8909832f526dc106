//! One fault at a time, on real processes: each has its hop, its cause and its end.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::Answer;
use crate::support::process_tree::is_stopped;
use crate::support::rig::Rig;
use crate::support::{Server, eventually};

const MOMENT: Duration = Duration::from_secs(10);
const ARGS: [&str; 3] = ["--model=scripted:step_ms=20", "--health-check-timeout=800ms", "--chunked-prefill-size=16"];

/// What the server does when the fault comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    Idle,
    /// One prompt of many chunks: no output for a long time.
    Prefill,
    /// Eight streams.
    Decode,
}

/// Probes the server under `load` with `fault` until a probe fails, which must tell the `story`; then all must be well
/// again.
async fn check(rig: &Rig, load: Load, fault: Value, path: &str, story: &str) -> Answer {
    let work = match load {
        Load::Idle => rig.requests(0, 0, 0),
        Load::Prefill => rig.requests(1, 8000, 1),
        Load::Decode => rig.requests(8, 1, 4000),
    };
    rig.busy_with([0, 1, 8][load as usize], 0).await;
    rig.fault(&fault).await;
    let answer = rig.failing_probe(path).await;
    assert_eq!(answer.story(), story, "{load:?} {fault}: {}", answer.body);
    assert_eq!(answer.body["status"], "unhealthy", "{}", answer.body);
    rig.end_faults().await;
    work.abort();
    rig.back_at_rest().await;
    answer
}

fn detail(answer: &Answer) -> &str {
    answer.body["cause_detail"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_loop() {
    let rig = Rig::start(&ARGS).await;
    let fault = || json!({"fault": "loop_frozen", "seconds": 60});
    for (load, path) in [
        (Load::Idle, "/health"),
        (Load::Prefill, "/health_generate"),
        (Load::Decode, "/health?evidence=own"),
        (Load::Idle, "/health?timeout=100ms"),
    ] {
        let answer = check(&rig, load, fault(), path, "503 timeout scheduler.inbox loop_frozen").await;
        assert!(detail(&answer).starts_with("no step is in flight"), "{}", detail(&answer));
        assert!(answer.late_by_ms() < 200.0, "{}", answer.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_forms_no_batch() {
    let rig = Rig::start(&ARGS).await;
    let fault = || json!({"fault": "no_batches", "seconds": 60});
    let idle = "503 timeout scheduler.waiting_queue not_scheduling";
    let busy = "503 timeout scheduler.return_health_check_ipcs not_scheduling";
    for path in ["/health", "/health?timeout=100ms"] {
        let answer = check(&rig, Load::Idle, fault(), path, idle).await;
        assert!(detail(&answer).starts_with("the loop turns and forms no batch"), "{}", detail(&answer));
    }
    check(&rig, Load::Prefill, fault(), "/health", busy).await;
    check(&rig, Load::Decode, fault(), "/health_generate", busy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_kv_pool() {
    let rig = Rig::start(&ARGS).await;
    let fault = || json!({"fault": "out_of_kv", "seconds": 60});
    for (load, hop) in [(Load::Idle, "scheduler.waiting_queue"), (Load::Decode, "scheduler.return_health_check_ipcs")] {
        let story = format!("503 timeout {hop} not_scheduling");
        let answer = check(&rig, load, fault(), "/health", &story).await;
        assert!(detail(&answer).starts_with("the KV pool lacks"), "{}", detail(&answer));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_steps() {
    let rig = Rig::start(&ARGS).await;
    let slow = || json!({"fault": "slow_steps", "ms": 5000});
    let story = "503 timeout model_runner.forward step_stuck";
    check(&rig, Load::Idle, slow(), "/health", story).await;
    check(&rig, Load::Idle, slow(), "/health?timeout=100ms", story).await;
    check(&rig, Load::Prefill, slow(), "/health", "503 timeout scheduler.inbox step_stuck").await;
    rig.fault(&json!({"fault": "slow_steps", "ms": 100})).await;
    assert_eq!(rig.probe("/health").await.story(), "200 ok", "slow, and alive");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails() {
    let rig = Rig::start(&ARGS).await;
    let fault = || json!({"fault": "fail_step", "nth": 1});
    let answer = check(&rig, Load::Idle, fault(), "/health", "503 error scheduler.run_batch step_failed").await;
    assert!(detail(&answer).contains("fail_step"), "{}", detail(&answer));
    let work = rig.requests(8, 1, 4000);
    rig.busy_with(8, 0).await;
    rig.fault(&json!({"fault": "fail_step", "nth": 3})).await;
    assert_eq!(work.await.unwrap(), [Some(500); 8]);
    rig.back_at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_lost_on_the_way_back() {
    let rig = Rig::start(&ARGS).await;
    let lost = "503 timeout ipc.to_frontend return_path_lost";
    let drop = || json!({"fault": "drop_health_check_output"});
    check(&rig, Load::Prefill, drop(), "/health", lost).await;
    check(&rig, Load::Decode, drop(), "/health_generate?evidence=own", lost).await;
    check(&rig, Load::Prefill, json!({"fault": "delay_health_check_output", "ms": 5000}), "/health", lost).await;
    rig.fault(&drop()).await;
    assert_eq!(rig.probe("/health").await.story(), "200 ok", "an idle scheduler's answer is an ordinary one");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_does_not_read() {
    let rig = Rig::start(&ARGS).await;
    let fault = || json!({"fault": "engine_stops_reading", "seconds": 2});
    let story = "503 timeout ipc.to_engine ipc_backpressure";
    for (load, path) in [
        (Load::Idle, "/health"),
        (Load::Idle, "/health?timeout=100ms"),
        (Load::Prefill, "/health"),
        (Load::Decode, "/health?evidence=own"),
    ] {
        let answer = check(&rig, load, fault(), path, story).await;
        assert!(detail(&answer).starts_with("the engine lives"), "{}", detail(&answer));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frontend_that_does_not_read() {
    let rig = Rig::start(&ARGS).await;
    let fault = || json!({"fault": "frontend_stops_reading", "seconds": 60});
    let story = "503 timeout ipc.to_frontend frontend_stalled";
    for (load, path) in
        [(Load::Idle, "/health"), (Load::Idle, "/health?timeout=150ms"), (Load::Decode, "/health_generate")]
    {
        check(&rig, load, fault(), path, story).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_detokenizer() {
    let rig = Rig::start(&ARGS).await;
    let fault = || json!({"fault": "detokenizer_stuck", "seconds": 60});
    check(&rig, Load::Idle, fault(), "/health", "503 timeout detokenizer detokenizer_stuck").await;
    check(&rig, Load::Idle, fault(), "/health?timeout=100ms", "503 timeout detokenizer detokenizer_stuck").await;
    let work = rig.requests(1, 8000, 1);
    rig.busy_with(1, 0).await;
    rig.fault(&fault()).await;
    assert_eq!(rig.probe("/health").await.story(), "200 ok", "a busy scheduler's answer needs no text");
    rig.end_faults().await;
    work.abort();
    rig.back_at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frontend_that_stands() {
    let rig = Rig::start(&ARGS).await;
    for stop in [false, true] {
        rig.fault(&json!({"fault": "no_batches", "seconds": 60})).await;
        let before = rig.page().await;
        let probe = async { rig.bare_probe("/health").await };
        let stand = async {
            eventually(MOMENT, async || rig.server.metric("radiosonde_health_probes_in_flight").await == 1.0).await;
            if stop {
                rig.server.signal(Signal::STOP);
                tokio::time::sleep(Duration::from_millis(1500)).await; // this is how long the fault lasts
                rig.server.signal(Signal::CONT);
            } else {
                rig.fault(&json!({"fault": "frontend_blocked", "seconds": 1.5})).await;
            }
        };
        let (answer, ()) = tokio::join!(probe, stand);
        assert_eq!(answer.story(), "503 timeout http frontend_stalled", "{}", answer.body);
        let who = if stop { "process got no CPU" } else { "runtime was blocked" };
        assert!(detail(&answer).contains(who), "{}", detail(&answer));
        rig.agree(&before, &answer).await;
        rig.end_faults().await;
        rig.back_at_rest().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_engine_is_known_however_short_the_limit() {
    let rig = Rig::start(&ARGS).await;
    for path in ["/health", "/health?timeout=50ms"] {
        rig.server.signal_engine(Signal::STOP);
        eventually(MOMENT, async || is_stopped(rig.server.engine_pid())).await;
        let answer = rig.failing_probe(path).await;
        assert_eq!(answer.story(), "503 timeout ipc.to_engine engine_frozen", "{}", answer.body);
        rig.server.signal_engine(Signal::CONT);
        rig.back_at_rest().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduler_that_panics() {
    let mut rig = Rig::start(&ARGS).await;
    let work = rig.requests(8, 1, 4000);
    rig.busy_with(8, 0).await;
    rig.scheduler_panics().await;
    let answer = rig.failing_probe("/health").await;
    assert_eq!((answer.status, &answer.body["cause"]), (503, &json!("engine_dead")), "{}", answer.body);
    assert_eq!(work.await.unwrap(), [Some(503); 8]);
    assert_eq!(rig.server.wait_exit(MOMENT).await.code(), Some(1));
    assert!(rig.server.log().contains("a drill: scheduler_panic"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_load() {
    let args = ["--model=scripted", "--fault=slow_load:seconds=1.5", "--fault=slow_steps:ms=1"];
    let mut rig = Rig::start_unready(&args).await;
    let answer = rig.probe("/health").await;
    assert_eq!((answer.story().as_str(), &answer.body["status"]), ("503 starting", &json!("starting")));
    rig.server.wait_healthy().await;
    assert_eq!(rig.post("/debug/fault", &json!({"fault": "slow_load", "seconds": 1})).await, 400, "too late");
    assert!(rig.server.metric("radiosonde_process_lag_seconds").await < 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_flag_nothing_can_be_broken() {
    let server = Server::start(&["--model=scripted"]).await;
    let url = server.url("/debug/fault");
    let client = server.client();
    let fault = json!({"fault": "scheduler_panic"});
    for request in [client.post(&url).json(&fault), client.get(&url), client.delete(&url)] {
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        assert_eq!(status, 403);
        assert!(answer.text().await.unwrap().contains("--enable-drills"));
    }
    let answer = client.get(server.url("/health")).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn drills_are_listed_and_checked() {
    let rig = Rig::start(&["--model=scripted", "--fault=out_of_kv:seconds=0.001"]).await;
    rig.fault(&json!({"fault": "loop_frozen", "seconds": 0.001})).await;
    rig.fault(&json!({"fault": "drop_health_check_output"})).await;
    eventually(MOMENT, async || {
        let list = rig.server.client().get(rig.server.url("/debug/fault")).send().await.unwrap();
        let list: Value = list.json().await.unwrap();
        list == json!({"on": [{"fault": "drop_health_check_output", "ends_in_seconds": null}]})
    })
    .await;
    for wrong in [json!({}), json!({"fault": "nosuch"}), json!({"fault": "loop_frozen"}), json!([])] {
        assert_eq!(rig.post("/debug/fault", &wrong).await, 400, "{wrong}");
    }
    rig.end_faults().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_no_illness() {
    let rig = Rig::start(&["--model=scripted:step_ms=20", "--health-check-timeout=800ms"]).await;
    let tokens = |handle: &tokio::task::JoinHandle<Vec<Option<u16>>>| handle.is_finished();
    for mode in ["in_place", "retract"] {
        let work = rig.requests(4, 10, 50);
        rig.busy_with(4, 0).await;
        assert_eq!(rig.post("/pause_generation", &json!({"mode": mode})).await, 200);
        let late = rig.requests(1, 10, 5);
        let (running, queued) = if mode == "retract" { (0, 5) } else { (4, 1) };
        rig.busy_with(running, queued).await;
        for path in ["/health", "/health_generate?evidence=own"] {
            let answer = rig.probe(path).await;
            assert_eq!((answer.story().as_str(), &answer.body["status"]), ("200 paused", &json!("up")));
        }
        assert_eq!(rig.server.metric("radiosonde_paused").await, 1.0);
        assert!(!tokens(&work) && !tokens(&late), "nothing goes on");
        assert_eq!(rig.post("/continue_generation", &json!({})).await, 200);
        assert_eq!(work.await.unwrap(), [Some(200); 4]);
        assert_eq!(late.await.unwrap(), [Some(200)]);
        rig.back_at_rest().await;
    }
    let work = rig.requests(4, 10, 4000);
    rig.busy_with(4, 0).await;
    assert_eq!(rig.post("/pause_generation", &Value::Null).await, 400);
    let abort = rig.server.client().post(rig.server.url("/pause_generation")).send().await.unwrap();
    assert_eq!(abort.status().as_u16(), 200, "abort is SGLang's default");
    assert_eq!(work.await.unwrap(), [Some(200); 4], "ended by request is an end, with finish_reason abort");
    assert_eq!(rig.post("/pause_generation", &json!({"mode": "nosuch"})).await, 400);
    assert_eq!(rig.post("/continue_generation", &json!({})).await, 200);
    rig.back_at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_that_a_pause_finds_waiting_says_so_and_a_silent_engine_is_not_taken_for_paused() {
    let rig = Rig::start(&ARGS).await;
    rig.fault(&json!({"fault": "no_batches", "seconds": 60})).await;
    let pause = async {
        eventually(MOMENT, async || rig.server.metric("radiosonde_health_probes_in_flight").await == 1.0).await;
        assert_eq!(rig.post("/pause_generation", &json!({"mode": "in_place"})).await, 200);
    };
    let (answer, ()) = tokio::join!(rig.bare_probe("/health"), pause);
    assert_eq!((answer.story().as_str(), &answer.body["status"]), ("200 paused", &json!("up")), "{}", answer.body);
    rig.end_faults().await;
    rig.server.stop_engine().await;
    let answer = rig.failing_probe("/health").await; // until its last heartbeat is old, it is paused
    assert_eq!(answer.body["cause"], "engine_frozen", "{}", answer.body);
    rig.server.signal_engine(Signal::CONT);
    assert_eq!(rig.post("/continue_generation", &json!({})).await, 200);
    rig.back_at_rest().await;
}
