//! Series by series: each one moves when, and only when, what it tells of happens.

use std::time::Duration;

use futures::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Server, eventually, in_background};

const MOMENT: Duration = Duration::from_secs(20);

fn long(output: u32) -> Value {
    json!({"input_ids": [65, 65], "sampling_params": {"max_new_tokens": output, "ignore_eos": true}})
}

async fn get(server: &Server, path: &str) -> u16 {
    server.client().get(server.url(path)).send().await.unwrap().status().as_u16()
}

/// A request that runs for a long time, until the task is aborted.
async fn keep_busy(server: &Server) -> tokio::task::JoinHandle<u16> {
    let request = server.client().post(server.url("/generate")).json(&long(4000));
    let busy = in_background(async move { request.send().await.unwrap().status().as_u16() });
    eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
    busy
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_that_share_an_answer_and_answers_that_come_late() {
    let server = Server::start(&["--model=scripted:step_ms=400", "--enable-drills", "--self-probe-interval=0"]).await;
    let busy = keep_busy(&server).await;
    let hop = [("hop", "scheduler.return_health_check_ipcs")];
    let parked = async || server.metric("radiosonde_return_health_check_ipcs_depth").await;
    let answered = async || server.metric("radiosonde_health_check_outputs_received_total").await;
    let mut rounds = 0.0;
    // Three at once are parked together, unless a step ends in between.
    while server.metric("radiosonde_health_probes_coalesced_total").await == 0.0 {
        let probes = join_all((0..3).map(|_| get(&server, "/health_generate?evidence=own"))).await;
        assert_eq!(probes, [200; 3]);
        rounds += 1.0;
        assert!(rounds < 20.0);
    }
    assert!(server.metric("radiosonde_health_probes_coalesced_total").await <= 2.0);
    let sent = "radiosonde_health_check_outputs_sent_total";
    eventually(MOMENT, async || server.metric(sent).await == answered().await).await;
    assert_eq!(answered().await, 3.0 * rounds);
    let crossed = server.metric_with("radiosonde_health_probe_hop_duration_seconds_count", &hop).await;
    assert_eq!((crossed, parked().await), (3.0 * rounds, 0.0));
    assert_eq!(server.metric("radiosonde_health_probes_orphaned_total").await, 0.0, "each waited for its own");

    let fault = json!({"fault": "delay_health_check_output", "ms": 1500});
    assert_eq!(server.client().post(server.url("/debug/fault")).json(&fault).send().await.unwrap().status(), 200);
    // Other traffic is as good; if it was on its way already, the scheduler hears of the probe's end in time.
    eventually(MOMENT, async || {
        assert_eq!(get(&server, "/health").await, 200);
        server.metric("radiosonde_health_probes_orphaned_total").await > 0.0
    })
    .await;
    busy.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_hop_counts_up_to_the_verdict() {
    let server = Server::start(&["--model=scripted", "--health-check-timeout=500ms", "--self-probe-interval=0"]).await;
    let hop = [("hop", "ipc.to_engine")];
    let seconds = async || server.metric_with("radiosonde_health_probe_hop_duration_seconds_sum", &hop).await;
    let before = seconds().await;
    server.stop_engine().await;
    assert_eq!(get(&server, "/health").await, 503);
    let grown = seconds().await - before;
    assert!(grown > 0.3, "{grown} s of the 0.5 that the probe waited");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_exchange_is_counted_by_route_and_end() {
    let server = Server::start_unready(&["--model=scripted:step_ms=20,load_ms=1000"], &[]).await;
    let count = async |route: &str, code: &str| {
        server.metric_with("radiosonde_http_requests_total", &[("route", route), ("code", code)]).await
    };
    assert_eq!(get(&server, "/readyz").await, 503);
    eventually(MOMENT, async || count("/readyz", "5xx").await == 1.0).await;
    assert_eq!(server.client().get(server.admin_url("/livez")).send().await.unwrap().status().as_u16(), 200);
    assert_eq!(server.client().post(server.url("/livez")).send().await.unwrap().status().as_u16(), 405);
    assert_eq!(get(&server, "/nowhere").await, 404);
    for (route, code) in [("/livez", "2xx"), ("/livez", "4xx"), ("unmatched", "4xx")] {
        eventually(MOMENT, async || count(route, code).await == 1.0).await;
    }
    eventually(MOMENT, async || get(&server, "/health").await == 200).await;

    let in_flight = async || server.metric_with("radiosonde_http_requests_in_flight", &[("route", "/generate")]).await;
    let mut body = long(4000);
    body["stream"] = json!(true);
    let stream = server.client().post(server.url("/generate")).json(&body).send().await.unwrap();
    assert_eq!(in_flight().await, 1.0);
    let busy = in_background({
        let request = server.client().post(server.url("/generate")).json(&long(4000));
        async move { request.send().await.map(drop) }
    });
    eventually(MOMENT, async || in_flight().await == 2.0).await;
    let whole = server.client().post(server.url("/generate")).json(&long(3)).send().await.unwrap();
    assert_eq!(whole.status().as_u16(), 200);
    drop((stream, whole.bytes().await.unwrap()));
    busy.abort();
    eventually(MOMENT, async || in_flight().await == 0.0).await;
    assert_eq!((count("/generate", "2xx").await, count("/generate", "none").await), (2.0, 1.0));
    let route = [("route", "/generate")];
    assert_eq!(server.metric_with("radiosonde_http_request_duration_seconds_count", &route).await, 3.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_configured_can_be_read() {
    let server = Server::start(&[
        "--model=scripted",
        "--served-model-name=mine",
        "--max-running-requests=3",
        "--max-queued-requests=5",
        "--chunked-prefill-size=48",
        "--max-step-time=250ms",
        "--context-length=1000",
        "--max-total-tokens=800",
        "--self-probe-interval=7s",
        "--drain-timeout=9s",
        "--engine-restarts=2",
    ])
    .await;
    for (name, want) in [
        ("radiosonde_max_running_requests", 3.0),
        ("radiosonde_max_queued_requests", 5.0),
        ("radiosonde_chunked_prefill_size", 48.0),
        ("radiosonde_max_step_time_seconds", 0.25),
        ("radiosonde_context_length", 1000.0),
        ("radiosonde_max_total_num_tokens", 800.0),
        ("radiosonde_self_probe_interval_seconds", 7.0),
        ("radiosonde_drain_timeout_seconds", 9.0),
        ("radiosonde_engine_restarts_limit", 2.0),
        ("radiosonde_health_check_timeout_seconds", 20.0),
    ] {
        assert_eq!(server.metric(name).await, want, "{name}");
    }
    let model = [("model", "mine"), ("architecture", "scripted")];
    assert_eq!(server.metric_with("radiosonde_model_info", &model).await, 1.0);
    let pages = [("page_size", "16"), ("num_pages", "50")];
    assert_eq!(server.metric_with("radiosonde_cache_config_info", &pages).await, 1.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_and_queues_are_measured() {
    let args = ["--model=scripted:step_ms=10", "--max-running-requests=1", "--self-probe-interval=0"];
    let server = Server::start(&args).await;
    let before = server.metric("radiosonde_queue_time_seconds_count").await;
    assert_eq!(before, 0.0, "a probe does not queue with users");
    let requests = join_all((0..3).map(|_| server.client().post(server.url("/generate")).json(&long(10)).send())).await;
    assert!(requests.into_iter().all(|answer| answer.unwrap().status().is_success()));
    assert_eq!(server.metric("radiosonde_queue_time_seconds_count").await, 3.0);
    let waited = server.metric("radiosonde_queue_time_seconds_sum").await;
    assert!(waited > 0.2, "the second waits for ten steps, the third for twenty: {waited} s");
    let decode = [("phase", "decode")];
    let steps = server.metric_with("radiosonde_scheduler_step_duration_seconds_count", &decode).await;
    assert_eq!(steps, 27.0, "nine steps for each request after its first token");
    for name in ["radiosonde_scheduler_step_tokens", "radiosonde_scheduler_batch_size"] {
        let (sum, count) = (format!("{name}_sum"), format!("{name}_count"));
        assert_eq!(server.metric_with(&sum, &decode).await, steps, "one token, one sequence");
        assert_eq!(server.metric_with(&count, &decode).await, steps);
    }
    let prefill = [("phase", "prefill")];
    let tokens = server.metric_with("radiosonde_scheduler_step_tokens_sum", &prefill).await;
    let prefills = server.metric_with("radiosonde_scheduler_step_tokens_count", &prefill).await;
    assert_eq!(tokens, prefills + 3.0, "two tokens for each request, one for each probe");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_engine_is_seen_from_outside() {
    let args = ["--model=scripted", "--health-check-timeout=500ms", "--self-probe-interval=0"];
    let server = Server::start(&args).await;
    let transition = async |from: &str, to: &str, reason: &str| {
        let labels = [("from", from), ("to", to), ("reason", reason)];
        server.metric_with("radiosonde_server_status_transitions_total", &labels).await
    };
    assert_eq!(
        (server.metric("radiosonde_ready").await, transition("starting", "up", "engine_ready").await),
        (1.0, 1.0)
    );
    server.stop_engine().await;
    assert_eq!(get(&server, "/health").await, 503);
    assert_eq!(
        (server.metric("radiosonde_ready").await, transition("up", "unhealthy", "probe_failed").await),
        (0.0, 1.0)
    );
    assert_eq!(server.metric_with("radiosonde_incidents_total", &[("cause", "engine_frozen")]).await, 1.0);
    assert_eq!(server.metric("radiosonde_incidents_total").await, 1.0);
    for name in ["resident_memory_bytes", "threads", "open_fds", "start_time_seconds"] {
        assert!(server.metric(&format!("radiosonde_engine_{name}")).await > 1.0, "{name} does not need the engine");
    }
    let silence = async || {
        let loop_age = server.metric("radiosonde_scheduler_loop_age_seconds").await;
        (server.metric("radiosonde_last_batch_result_age_seconds").await, loop_age)
    };
    let before = silence().await;
    eventually(MOMENT, async || silence().await.0 > before.0 && silence().await.1 > before.1).await;
    server.signal_engine(Signal::CONT);
    assert_eq!(get(&server, "/health?evidence=own").await, 200);
    assert_eq!((server.metric("radiosonde_ready").await, transition("unhealthy", "up", "probe_ok").await), (1.0, 1.0));
    eventually(MOMENT, async || silence().await.0 < before.0 && silence().await.1 < before.1).await;
    assert!(server.metric("radiosonde_health_verdict_age_seconds").await < 20.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_is_told_with_its_reason() {
    let server = Server::start(&["--model=scripted", "--self-probe-interval=0"]).await;
    let started = server.metric("radiosonde_engine_start_time_seconds").await;
    let own = server.metric("process_start_time_seconds").await;
    assert!(started >= own - 1.0 && own > 1.0, "{started} {own}");
    server.signal_engine(Signal::KILL);
    eventually(MOMENT, async || {
        let ready = [("from", "starting"), ("to", "up"), ("reason", "engine_ready")];
        server.metric_with("radiosonde_server_status_transitions_total", &ready).await == 2.0
    })
    .await;
    let lost = [("from", "up"), ("to", "starting"), ("reason", "engine_restarting")];
    assert_eq!(server.metric_with("radiosonde_server_status_transitions_total", &lost).await, 1.0);
    assert_eq!(server.metric_with("radiosonde_incidents_total", &[("cause", "engine_dead")]).await, 1.0);
    assert!(server.metric("radiosonde_engine_start_time_seconds").await > started);
    assert_eq!(server.metric("process_start_time_seconds").await, own, "the frontend is the same");
    assert!(server.metric("process_max_fds").await > server.metric("process_open_fds").await);
}
