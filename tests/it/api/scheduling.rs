//! What a client can do about the scheduler: cached tokens, a flush, priorities.

use reqwest::Method;
use serde_json::{Value, json};

use super::{error, ok, post};
use crate::support::{Server, eventually, in_background};

const LIMIT: std::time::Duration = std::time::Duration::from_secs(20);

fn body(prompt: usize, output: u32) -> Value {
    json!({"input_ids": vec![65; prompt], "sampling_params": {"max_new_tokens": output, "ignore_eos": true}})
}

async fn cached(server: &Server, prompt: usize) -> u64 {
    let answer = ok(server, "/generate", body(prompt, 2)).await;
    answer["meta_info"]["cached_tokens"].as_u64().unwrap()
}

async fn flush(server: &Server, method: Method) -> (u16, String) {
    let answer = server.client().request(method, server.url("/flush_cache")).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test]
async fn cached_tokens_are_told_and_a_flush_ends_them() {
    let server = Server::start(&["--model=scripted"]).await;
    assert_eq!((cached(&server, 40).await, cached(&server, 40).await, cached(&server, 100).await), (0, 32, 32));
    let completion = json!({"model": "default", "prompt": vec![65; 100], "max_tokens": 1});
    let usage = &ok(&server, "/v1/completions", completion).await["usage"];
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 96, "{usage}");
    let asked = server.metric("radiosonde_prompt_tokens_total").await;
    assert_eq!((asked, server.metric("radiosonde_cached_tokens_total").await), (280.0, 160.0));
    eventually(LIMIT, async || server.metric("radiosonde_kv_evictable_tokens").await == 96.0).await;
    for (method, tokens) in [(Method::POST, 96), (Method::GET, 0)] {
        assert_eq!(flush(&server, method).await, (200, format!("Cache flushed. It held {tokens} tokens.\n")));
    }
    assert_eq!(cached(&server, 40).await, 0);
    server.at_rest(LIMIT).await;
}

#[tokio::test]
async fn a_flush_waits_for_nobody() {
    let server = Server::start(&["--model=scripted:step_ms=20"]).await;
    let request = server.client().post(server.url("/generate")).json(&body(2, 4000));
    let busy = in_background(async move { request.send().await.map(drop) });
    eventually(LIMIT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
    let (status, text) = flush(&server, Method::POST).await;
    assert_eq!(status, 400);
    assert!(text.contains("1 requests run and 0 wait"), "{text}");
    busy.abort();
    eventually(LIMIT, async || flush(&server, Method::POST).await.0 == 200).await;
}

#[tokio::test]
async fn a_server_without_a_cache_computes_everything() {
    let server = Server::start(&["--model=scripted", "--disable-radix-cache"]).await;
    assert_eq!((cached(&server, 40).await, cached(&server, 40).await), (0, 0));
    assert_eq!(flush(&server, Method::POST).await.0, 200);
}

#[tokio::test]
async fn a_priority_is_refused_where_there_are_none() {
    let server = Server::start(&["--model=scripted"]).await;
    let completion = json!({"model": "default", "prompt": "a", "priority": -1});
    let generate = json!({"text": "a", "priority": 0});
    for (path, body) in [("/generate", generate), ("/v1/completions", completion)] {
        let (status, answer) = post(&server, path, body).await;
        assert_eq!((status, &error(&answer)["param"]), (400, &json!("priority")), "{path}");
        assert!(error(&answer)["message"].as_str().unwrap().contains("--enable-priority-scheduling"), "{answer}");
    }
}

#[tokio::test]
async fn a_high_priority_takes_the_place_of_a_low_one() {
    let flags = ["--model=scripted:step_ms=20", "--enable-priority-scheduling", "--max-running-requests=1"];
    let server = Server::start(&flags).await;
    let with = |mut body: Value, priority: i64| {
        body["priority"] = json!(priority);
        body
    };
    let request = server.client().post(server.url("/generate")).json(&with(body(2, 4000), 0));
    let low = in_background(async move { request.send().await.map(drop) });
    eventually(LIMIT, async || server.metric("radiosonde_num_running_reqs").await == 1.0).await;
    let high = ok(&server, "/generate", with(body(2, 3), 11)).await;
    assert_eq!(high["meta_info"]["completion_tokens"], 3);
    assert!(!low.is_finished(), "it runs on");
    eventually(LIMIT, async || server.metric("radiosonde_num_preemptions_total").await == 1.0).await;
    let (status, answer) = post(&server, "/generate", json!({"text": "a", "priority": "high"})).await;
    assert_eq!(status, 400, "{answer}");
    low.abort();
    server.at_rest(LIMIT).await;
}
