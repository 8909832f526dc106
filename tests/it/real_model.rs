//! The real model's engine is killed, stopped and asked by impatient probers: who waits, who fails, and what is left.

#![expect(clippy::print_stdout, reason = "how long a recovery takes is worth knowing, and decides nothing")]

use std::time::{Duration, Instant};

use futures::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Server, eventually, in_background};

const MOMENT: Duration = Duration::from_secs(60);

/// How a request ended, as its client sees it.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Whole,
    Error(String),
}

/// Sends a request for `output` tokens and reads the answer to its end.
fn send(server: &Server, output: u32, stream: bool) -> tokio::task::JoinHandle<End> {
    let body = json!({
        "input_ids": [504, 3575, 282, 4649, 314], "stream": stream,
        "sampling_params": {"max_new_tokens": output, "ignore_eos": true, "temperature": 0},
    });
    let request = server.client().post(server.url("/generate")).json(&body);
    in_background(async move {
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        if stream && status == 200 {
            assert!(text.ends_with("data: [DONE]\n\n"), "the stream has no end: {text}");
        }
        let last = text.lines().rfind(|line| line.contains('{')).unwrap_or_default().trim_start_matches("data: ");
        let last: Value = serde_json::from_str(last).unwrap();
        match last["error"]["message"].as_str() {
            Some(message) => End::Error(message.to_owned()),
            None => {
                assert_eq!((status, &last["meta_info"]["completion_tokens"]), (200, &json!(output)), "{last}");
                End::Whole
            }
        }
    })
}

async fn is_up_again(server: &Server) -> bool {
    server.metric("radiosonde_engine_restarts_total").await == 1.0
        && server.metric_with("radiosonde_server_status", &[("status", "up")]).await == 1.0
}

/// What the newest engine says of its start.
fn load_seconds(server: &Server) -> f64 {
    let log = server.log();
    let mut loaded = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["load_seconds"].as_f64());
    loaded.next_back().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_engine_costs_the_running_requests_and_no_others() {
    let server = Server::start_default_with(&["--max-running-requests=8"]).await;
    let running: Vec<_> = (0..8).map(|i| send(&server, 4000, i % 2 == 0)).collect();
    eventually(MOMENT, async || {
        let begun = server.metric("radiosonde_time_to_first_token_seconds_count").await;
        (begun, server.metric("radiosonde_num_running_reqs").await) == (8.0, 8.0)
    })
    .await;
    let queued: Vec<_> = (0..8).map(|i| send(&server, 8, i % 2 == 0)).collect();
    eventually(MOMENT, async || server.metric("radiosonde_num_queue_reqs").await == 8.0).await;
    let killed = Instant::now();
    server.signal_engine(Signal::KILL);
    for end in join_all(running).await {
        let End::Error(message) = end.unwrap() else { panic!("its engine was killed") };
        assert!(message.contains("engine"), "{message}");
    }
    let failed = killed.elapsed();
    eventually(MOMENT, async || is_up_again(&server).await).await;
    let up = killed.elapsed();
    for end in join_all(queued).await {
        assert_eq!(end.unwrap(), End::Whole, "it had no output: nobody is to notice");
    }
    println!("killed to failed {failed:?}, to up {up:?}, of it loading {:.3} s", load_seconds(&server));
    server.at_rest(MOMENT).await;
    assert_eq!(server.probe("/health_generate?evidence=own").await.story(), "200 ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_engine_is_told_at_once() {
    let server = Server::start_default().await;
    server.signal_engine(Signal::KILL);
    let mut seen = None;
    eventually(MOMENT, async || {
        let answer = server.probe("/health_generate").await;
        let failed = answer.status != 200;
        seen = failed.then_some(answer);
        failed
    })
    .await;
    let body = seen.unwrap().body;
    assert!(body["cause"] == "engine_dead" || body["outcome"] == "starting", "{body}");
    eventually(MOMENT, async || is_up_again(&server).await).await;
    assert_eq!(server.probe("/health").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_engine_is_named_and_goes_on_where_it_stood() {
    let server = Server::start_default_with(&["--health-check-timeout=1s"]).await;
    let request = send(&server, 200, true);
    eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
    server.stop_engine().await;
    let answer = server.probe("/health_generate?evidence=own").await;
    assert_eq!((answer.status, &answer.body["cause"]), (503, &json!("engine_frozen")), "{}", answer.body);
    server.signal_engine(Signal::CONT);
    eventually(MOMENT, async || server.probe("/health").await.status == 200).await;
    assert_eq!(request.await.unwrap(), End::Whole, "it was stopped, not lost");
    server.at_rest(MOMENT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_impatient_probes_leave_nothing() {
    let server = Server::start_default().await;
    let request = send(&server, 200, false);
    eventually(MOMENT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
    for _ in 0..10 {
        let probes = (0..30).map(|i| {
            let path = ["/health", "/health_generate"][i % 2];
            let probe = server.client().get(server.url(path)).timeout(Duration::from_millis(20)).send();
            async { drop(probe.await) } // most are cut off
        });
        join_all(probes).await;
    }
    assert_eq!(request.await.unwrap(), End::Whole);
    server.at_rest(MOMENT).await;
    let gone = server.metric_with("radiosonde_health_probe_total", &[("outcome", "client_gone")]).await;
    println!("{gone} of 300 probes were cut off");
    assert_eq!(server.probe("/health").await.status, 200);
}
