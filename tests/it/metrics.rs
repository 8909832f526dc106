//! The page at `/metrics` as a whole: its form, what it counts and what it must not, and that it never lies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::join_all;
use reqwest::Response;
use serde_json::{Value, json};

use crate::support::{Server, eventually, in_background};

const MOMENT: Duration = Duration::from_secs(10);

/// How long a gauge may be wrong after what it tells of has ended.
const PROMISED: Duration = Duration::from_secs(1);

fn body(prompt: usize, output: u32, stream: bool) -> Value {
    let sampling = json!({"max_new_tokens": output, "ignore_eos": true});
    json!({"input_ids": vec![65; prompt], "stream": stream, "sampling_params": sampling})
}

async fn generate(server: &Server, body: &Value) -> Response {
    let answer = server.client().post(server.url("/generate")).json(body).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    answer
}

/// Streams that have begun, or wait for their turn.
async fn streams(server: &Server, count: usize, prompt: usize) -> Vec<Response> {
    let body = body(prompt, 4000, true);
    join_all((0..count).map(|_| generate(server, &body))).await
}

/// Samples of a page by name and labels.
fn samples(page: &str) -> BTreeMap<&str, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap()).map(|(series, value)| (series, value.parse().unwrap())).collect()
}

/// The families of kind `counter` and `histogram`: what must never fall.
fn rising(page: &str) -> BTreeMap<&str, f64> {
    let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let rising: BTreeSet<&str> = kinds.filter(|(_, kind)| *kind != "gauge").map(|(name, _)| name).collect();
    let family = |series: &str| {
        let name = series.split('{').next().unwrap();
        let parts = ["", "_bucket", "_sum", "_count"].into_iter().filter_map(|part| name.strip_suffix(part));
        parts.into_iter().any(|name| rising.contains(name))
    };
    samples(page).into_iter().filter(|(series, _)| family(series)).collect()
}

fn assert_nothing_fell(before: &str, after: &str) {
    let after = rising(after);
    for (series, value) in rising(before) {
        assert!(after.get(series).is_some_and(|now| *now >= value), "{series}: {value}, then {:?}", after.get(series));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_streams_leave_the_gauges_within_a_second() {
    let server = Server::start(&["--model=scripted:step_ms=20", "--max-running-requests=10"]).await;
    let load = ["radiosonde_num_running_reqs", "radiosonde_num_queue_reqs", "radiosonde_token_usage"];
    let streams = streams(&server, 20, 3).await;
    eventually(MOMENT, async || {
        let page = server.metrics().await;
        let now = samples(&page);
        (now[load[0]], now[load[1]]) == (10.0, 10.0) && now[load[2]] > 0.0
    })
    .await;
    drop(streams);
    eventually(PROMISED, async || {
        let page = server.metrics().await;
        let now = samples(&page);
        load.iter().chain(&["radiosonde_kv_used_tokens"]).all(|name| now[name] == 0.0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_accepted_ends_and_every_prompt_counts() {
    let server = Server::start(&["--model=scripted:step_ms=20"]).await;
    let cut = streams(&server, 5, 7).await;
    let finished = join_all((0..5).map(|_| async { generate(&server, &body(11, 3, false)).await.text().await })).await;
    assert!(finished.iter().all(Result::is_ok));
    drop(cut);
    let ended = async || server.metric("radiosonde_requests_finished_total").await;
    eventually(PROMISED, async || ended().await == 10.0).await;
    for (name, want) in [
        ("radiosonde_num_requests_total", 10.0),
        ("radiosonde_num_aborted_requests_total", 5.0),
        ("radiosonde_e2e_request_latency_seconds_count", 10.0),
        ("radiosonde_prompt_tokens_total", 5.0 * 7.0 + 5.0 * 11.0),
        ("radiosonde_cached_tokens_total", 0.0),
        ("radiosonde_requests_in_flight", 0.0),
    ] {
        assert_eq!(server.metric(name).await, want, "{name}");
    }
    for (outcome, want) in [("abort", 5.0), ("length", 5.0)] {
        let labels = [("outcome", outcome)];
        assert_eq!(server.metric_with("radiosonde_requests_finished_total", &labels).await, want, "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sample_is_a_number_before_anything_has_happened() {
    let began = Instant::now();
    let mut server = Server::start_unready(&["--model=scripted:load_ms=500"], &[]).await;
    let fresh = server.metrics().await;
    assert!(samples(&fresh).values().all(|value| value.is_finite()), "{fresh}");
    let lived = began.elapsed().as_secs_f64();
    for name in [
        "radiosonde_last_receive_age_seconds",
        "radiosonde_last_batch_result_age_seconds",
        "radiosonde_scheduler_loop_age_seconds",
        "radiosonde_health_verdict_age_seconds",
        "radiosonde_engine_heartbeat_age_seconds",
    ] {
        let age = samples(&fresh)[name];
        assert!((0.0..=lived).contains(&age), "{name} is {age}, the server is {lived} s old");
    }
    assert!(!fresh.contains("radiosonde_model_info"), "it is not loaded yet");
    assert_eq!(samples(&fresh)["radiosonde_context_length"], 0.0);
    server.wait_healthy().await;
    let ready = server.metrics().await;
    assert!(samples(&ready).values().all(|value| value.is_finite()), "{ready}");
    assert_nothing_fell(&fresh, &ready);
}

#[tokio::test]
async fn the_page_has_the_form_that_a_scraper_reads() {
    let server = Server::start(&["--model=scripted"]).await;
    for (url, follow) in
        [(server.url("/metrics"), true), (server.admin_url("/metrics"), true), (server.url("/metrics/"), false)]
    {
        let answer = server.client().get(&url).send().await.unwrap();
        assert_eq!(answer.url().as_str(), url, "no redirection");
        if !follow {
            assert_eq!(answer.status().as_u16(), 404, "{url}");
            continue;
        }
        assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8", "{url}");
        let page = answer.text().await.unwrap();
        assert!(page.ends_with('\n'));
        for keyword in ["# HELP ", "# TYPE "] {
            let names: Vec<_> = page.lines().filter_map(|line| line.strip_prefix(keyword)?.split(' ').next()).collect();
            assert_eq!(
                names.len(),
                names.iter().collect::<BTreeSet<_>>().len(),
                "{keyword}is there once for each family"
            );
        }
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let names = samples(&page);
        let mut names = names.keys().map(|series| series.split('{').next().unwrap());
        assert!(names.all(|name| name.chars().all(legal)), "a colon belongs to recording rules");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_users_write_is_no_series() {
    let server = Server::start(&["--model=scripted", "--self-probe-interval=0"]).await;
    let before = server.metrics().await;
    let call = |i: u32| {
        let secret = format!("secret{i}x{}", rand::random::<u32>());
        let body = json!({
            "model": secret, "user": secret, "rid": secret, "messages": [{"role": "user", "content": secret}],
        });
        let url =
            server.url(&format!("/v1/{}", if i.is_multiple_of(3) { secret.as_str() } else { "chat/completions" }));
        let request = server.client().post(url).json(&body).header("user-agent", secret);
        async move { request.send().await.unwrap().status().as_u16() }
    };
    let statuses: Vec<u16> = futures::stream::iter((0..300).map(call)).buffer_unordered(16).collect().await;
    assert_eq!(statuses, [404; 300]);
    let one = server.client().get(server.url("/v1/models/secret")).send().await.unwrap();
    assert_eq!(one.status().as_u16(), 404);
    let after = server.metrics().await;
    assert!(!after.contains("secret"), "{after}");
    let series = |page: &str| samples(page).into_keys().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(series(&before), series(&after));
    let counted = async || server.metric_with("radiosonde_http_requests_total", &[("code", "4xx")]).await;
    eventually(MOMENT, async || counted().await == 301.0).await; // and yet each was counted
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_changes_nothing() {
    let server = Server::start(&["--model=scripted", "--self-probe-interval=0"]).await;
    let page = async |url: String| server.client().get(url).send().await.unwrap().text().await.unwrap();
    let steady = |page: &str| -> Vec<String> {
        let own = |series: &str| series.contains("_cpu_seconds_total"); // scraping costs time
        rising(page).into_iter().filter(|(series, _)| !own(series)).map(|sample| format!("{sample:?}")).collect()
    };
    let at_rest = async || {
        let first = server.metrics().await; // the last heartbeat may be older than what the last probe did
        steady(&first) == steady(&server.metrics().await) && samples(&first)["radiosonde_request_table_size"] == 0.0
    };
    eventually(MOMENT, at_rest).await;
    time_of_two_heartbeats(&server).await;
    let first = page(server.url("/metrics")).await;
    assert_eq!(steady(&first), steady(&page(server.admin_url("/metrics")).await), "two scrapers see the same");
    assert_eq!(server.client().get(server.url("/health")).send().await.unwrap().status().as_u16(), 200);
    let last = page(server.url("/metrics")).await;
    assert_nothing_fell(&first, &last);
    let of_users = |page: &str| -> Vec<String> {
        let probes = ["_health_", "_http_", "_scheduler_", "_trace_", "_cpu_seconds_total"];
        let mine = steady(page).into_iter().filter(|sample| !probes.iter().any(|part| sample.contains(part)));
        mine.collect()
    };
    assert_eq!(of_users(&first), of_users(&last), "a probe is nobody's request");
}

/// Returns when the heartbeat has been renewed twice: the page tells what the engine is now.
async fn time_of_two_heartbeats(server: &Server) {
    for _ in 0..2 {
        let mut before = 0.0;
        eventually(MOMENT, async || {
            let age = server.metric("radiosonde_engine_heartbeat_age_seconds").await;
            std::mem::replace(&mut before, age) > age
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_never_fall_whatever_happens() {
    let server = Server::start(&["--model=scripted:step_ms=5", "--max-running-requests=4"]).await;
    let (client, generate, health) = (server.client(), server.url("/generate"), server.url("/health"));
    let work = in_background(async move {
        for i in 0..12_u32 {
            let twin = json!({"rid": format!("twin{i}"), "text": "a", "sampling_params": {"max_new_tokens": 60, "ignore_eos": true}});
            let twins = join_all((0..2).map(|_| client.post(&generate).json(&twin).send())).await;
            let mut statuses: Vec<_> = twins.into_iter().map(|answer| answer.unwrap().status().as_u16()).collect();
            statuses.sort_unstable();
            assert_eq!(statuses, [200, 400], "one rid, one live request");
            drop(client.post(&generate).json(&body(3, 4000, true)).send().await); // begun, and cut
            assert_eq!(client.get(&health).send().await.unwrap().status().as_u16(), 200);
        }
    });
    let (mut before, mut scrapes) = (server.metrics().await, 0);
    while !work.is_finished() {
        let now = server.metrics().await;
        assert_nothing_fell(&before, &now);
        assert!(samples(&now).values().all(|value| value.is_finite() && *value >= 0.0), "{now}");
        (before, scrapes) = (now, scrapes + 1);
    }
    work.await.unwrap();
    assert!(scrapes > 10, "{scrapes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_does_not_grow_with_what_nobody_scrapes() {
    let server = Server::start(&["--model=scripted"]).await;
    let resident_kib = || -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    let ask = async |count: usize| {
        let body = body(1, 1, false);
        let all = futures::stream::iter((0..count).map(|_| generate(&server, &body)));
        all.buffer_unordered(32).for_each(async |answer| drop(answer.bytes().await.unwrap())).await;
    };
    ask(2_000).await;
    let before = resident_kib();
    ask(18_000).await;
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 20 * 1024, "{grown} KiB in 18000 requests");
    assert_eq!(server.metric("radiosonde_num_requests_total").await, 20_000.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_frontend_has_a_page_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("engine.sock");
    let radiosonde = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_radiosonde"));
        command.args(args).stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let socket = path.to_str().unwrap();
    let mut engine = radiosonde(&["engine", "--listen", socket, "--model=scripted"]).spawn().unwrap();
    eventually(MOMENT, async || path.exists()).await;
    let mut frontends = Vec::new();
    for _ in 0..2 {
        let mut server = Server::spawn(radiosonde(&["frontend", "--engine", socket, "--port=0"])).await;
        server.wait_healthy().await;
        frontends.push(server);
    }
    let asked = [60, 40];
    for (server, count) in frontends.iter().zip(asked) {
        join_all((0..count).map(|_| async { generate(server, &body(2, 2, false)).await.bytes().await.unwrap() })).await;
    }
    for (server, count) in frontends.iter().zip(asked) {
        let mut before = server.metrics().await;
        for _ in 0..50 {
            let page = server.metrics().await;
            assert_nothing_fell(&before, &page);
            assert_eq!(samples(&page)["radiosonde_num_requests_total{endpoint=\"/generate\"}"], f64::from(count));
            assert!(!page.contains("pid="), "{page}");
            before = page;
        }
    }
    let [a, b] = [&frontends[0], &frontends[1]];
    eventually(MOMENT, async || {
        let batches = a.metric("radiosonde_scheduler_batches_total").await;
        batches > 0.0 && batches == b.metric("radiosonde_scheduler_batches_total").await
    })
    .await;
    engine.kill().unwrap();
    engine.wait().unwrap();
}
