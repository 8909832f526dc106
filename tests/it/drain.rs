//! The end in phases: readiness off, still served, refused, ended; and what forces it.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Server, eventually, in_background, is_running};

const MOMENT: Duration = Duration::from_secs(10);

async fn status(server: &Server, url: &str) -> u16 {
    server.client().get(url).send().await.unwrap().status().as_u16()
}

fn completion(tokens: u32) -> Value {
    json!({
        "model": "default", "prompt": "a", "max_tokens": tokens, "ignore_eos": true, "stream": true,
        "stream_options": {"include_usage": true},
    })
}

/// Begins a stream of `tokens` tokens; its status, and its text when it has ended.
async fn stream(server: &Server, tokens: u32) -> (u16, tokio::task::JoinHandle<String>) {
    let request = server.client().post(server.url("/v1/completions")).json(&completion(tokens));
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), in_background(async move { answer.text().await.unwrap_or_default() }))
}

fn whole(text: &str, tokens: u32) -> bool {
    text.contains(&format!("\"completion_tokens\":{tokens}")) && text.ends_with("data: [DONE]\n\n")
}

/// What Kubernetes does: the signal, then endpoints are taken out while requests still arrive, then the end.
#[tokio::test(flavor = "multi_thread")]
async fn readiness_goes_first_then_new_work_then_the_process() {
    let mut server = Server::start(&["--model=scripted:step_ms=30", "--drain-settle=700ms"]).await;
    let mut streams = Vec::new();
    for _ in 0..4 {
        streams.push(stream(&server, 60).await);
    }
    let asked = Instant::now();
    server.signal(Signal::TERM);
    eventually(MOMENT, async || status(&server, &server.admin_url("/readyz")).await == 503).await;
    assert!(asked.elapsed() < Duration::from_millis(500), "readiness is off long before work is refused");
    for path in ["/health", "/health_generate", "/ready", "/ping"] {
        assert_eq!(status(&server, &server.url(path)).await, 503, "{path}");
    }
    assert_eq!(status(&server, &server.admin_url("/livez")).await, 200, "no reason to restart what ends");
    let late = stream(&server, 60).await;
    assert_eq!(late.0, 200, "who has not seen it yet is still served");
    streams.push(late);
    eventually(MOMENT, async || stream(&server, 1).await.0 == 503).await;
    assert!(asked.elapsed() >= Duration::from_millis(700), "new work was refused before the time to settle had passed");
    assert!(server.metrics().await.contains("radiosonde_server_status{status=\"draining\"} 1"));
    for (status, text) in streams {
        let text = text.await.unwrap();
        assert!(status == 200 && whole(&text, 60), "{text}");
    }
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_budget_bounds_all_phases() {
    let args = ["--model=scripted:step_ms=50", "--drain-timeout=600ms", "--drain-settle=60s"];
    let mut server = Server::start(&args).await;
    let (_, text) = stream(&server, 4000).await;
    server.signal(Signal::TERM);
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(0), "and not after a minute");
    let text = text.await.unwrap();
    assert!(text.contains("its time to drain has passed") && text.ends_with("data: [DONE]\n\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_it_at_once() {
    for (signals, code) in [([Signal::TERM, Signal::TERM], 143), ([Signal::TERM, Signal::INT], 130)] {
        let mut server = Server::start(&["--model=scripted:step_ms=50"]).await;
        let (_, text) = stream(&server, 4000).await;
        let engine = server.engine_pid();
        server.signal(signals[0]);
        eventually(MOMENT, async || status(&server, &server.admin_url("/readyz")).await == 503).await;
        server.signal(signals[1]);
        assert_eq!(server.wait_exit(MOMENT).await.code(), Some(code));
        let text = text.await.unwrap();
        assert!(text.contains("told to end at once") && text.ends_with("data: [DONE]\n\n"), "{text}");
        eventually(MOMENT, async || !is_running(engine)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_is_heard_while_it_starts() {
    let mut server = Server::start_unready(&["--model=scripted:load_ms=60000"], &[]).await;
    eventually(MOMENT, async || server.log().contains("frontend connected")).await;
    server.stop_engine().await;
    server.signal(Signal::INT);
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(0), "nothing has to be drained");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_dies_while_it_drains_ends_it() {
    let mut server = Server::start(&["--model=scripted:step_ms=50"]).await;
    let (_, text) = stream(&server, 4000).await;
    server.signal(Signal::TERM);
    eventually(MOMENT, async || status(&server, &server.admin_url("/readyz")).await == 503).await;
    server.signal_engine(Signal::KILL);
    assert_eq!(server.wait_exit(MOMENT).await.code(), Some(1));
    assert!(text.await.unwrap().contains("the engine is dead"));
}

#[test]
fn bad_arguments_have_a_code_of_their_own() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_radiosonde"));
    let ended = command.args(["--drain-settle=soon"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
}
