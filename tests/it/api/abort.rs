//! Clients that leave, queues that are full, and rids that come again.

use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::{error, events, get, json, ok, post, refused, send};
use crate::support::{Server, eventually};

const SOON: Duration = Duration::from_secs(2);

fn long(stream: bool) -> Value {
    json!({"text": "a", "stream": stream, "sampling_params": {"max_new_tokens": 200, "ignore_eos": true}})
}

async fn running(server: &Server) -> f64 {
    server.metric("radiosonde_num_running_reqs").await
}

async fn queued(server: &Server) -> f64 {
    server.metric("radiosonde_num_queue_reqs").await
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_with_it() {
    let server = Server::start(&["--model", "scripted:step_ms=100", "--max-running-requests", "1"]).await;
    let idle = server.metric("radiosonde_kv_used_tokens").await;
    for stream in [true, false] {
        let aborted = server.metric("radiosonde_num_aborted_requests_total").await;
        let runs = send(&server, "/generate", long(stream).to_string());
        let waits = send(&server, "/generate", long(stream).to_string());
        let both_are_there =
            eventually(SOON, || async { running(&server).await == 1.0 && queued(&server).await == 1.0 });
        tokio::select! {
            () = both_are_there => {}
            _ = async { tokio::join!(hold(runs), hold(waits)) } => panic!("nobody ends before the clients leave"),
        }
        eventually(SOON, || async {
            running(&server).await == 0.0
                && queued(&server).await == 0.0
                && server.metric("radiosonde_kv_used_tokens").await == idle
                && server.metric("radiosonde_num_aborted_requests_total").await == aborted + 2.0
        })
        .await;
    }
    let short = json!({"text": "a", "sampling_params": {"max_new_tokens": 1}});
    ok(&server, "/generate", short).await;
}

/// Reads an answer to its end.
async fn hold(answer: impl Future<Output = Response>) {
    answer.await.bytes().await.unwrap();
}

#[tokio::test]
async fn a_full_queue_is_a_503_before_any_byte() {
    let server = Server::start(&[
        "--model",
        "scripted:step_ms=200",
        "--max-running-requests",
        "1",
        "--max-queued-requests",
        "1",
    ])
    .await;
    let body = json!({"text": "a", "stream": true, "sampling_params": {"max_new_tokens": 8, "ignore_eos": true}});
    let ask = || async {
        let response = send(&server, "/generate", body.to_string()).await;
        let retry_after = response.headers().contains_key("retry-after");
        (response.status().as_u16(), retry_after, response.text().await.unwrap())
    };
    let probe = get(&server, Method::GET, "/health");
    let (a, b, c, d, e, f, probe) = tokio::join!(ask(), ask(), ask(), ask(), ask(), ask(), probe);
    assert_eq!(probe.0, 200, "a full queue is no illness");
    let (accepted, rejected): (Vec<_>, Vec<_>) = [a, b, c, d, e, f].into_iter().partition(|answer| answer.0 == 200);
    assert!(rejected.len() >= 3, "{rejected:?}");
    for (status, retry_after, text) in &rejected {
        assert_eq!((*status, *retry_after), (503, true), "{text}");
        assert_eq!(error(&serde_json::from_str(text).unwrap())["code"], "queue_full");
    }
    for (_, _, text) in &accepted {
        assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("\"error\""), "{text}");
    }
    let counted = server.metric_with("radiosonde_requests_rejected_total", &[("reason", "queue_full")]).await;
    assert_eq!(counted, rejected.len() as f64);
}

#[tokio::test]
async fn a_rid_is_free_again_once_its_request_has_ended() {
    let server = Server::start(&["--model", "scripted"]).await;
    let sampling = json!({"temperature": 0, "max_new_tokens": 4, "ignore_eos": true});
    let ask = |rid: &str| json!({"rid": rid, "text": "a", "sampling_params": sampling});
    let fresh = ok(&server, "/generate", ask("fresh")).await;
    assert_eq!(refused(&server, "/generate", json!({"rid": "r", "input_ids": [-1]})).await.0, 400);
    for _ in 0..3 {
        let again = ok(&server, "/generate", ask("r")).await;
        assert_eq!((&again["text"], &again["meta_info"]["id"]), (&fresh["text"], &json!("r")));
    }
    eventually(SOON, || async { server.metric("radiosonde_request_table_size").await == 0.0 }).await;
}

#[tokio::test]
async fn a_rid_is_used_once_at_a_time() {
    let server = Server::start(&["--model", "scripted:step_ms=50"]).await;
    let body = json!({
        "rid": "x", "text": "a", "stream": true, "sampling_params": {"max_new_tokens": 20, "ignore_eos": true}
    });
    let second = async {
        eventually(SOON, || async { running(&server).await == 1.0 }).await;
        post(&server, "/generate", json!({"rid": "x", "text": "a"})).await
    };
    let (first, (status, answer)) = tokio::join!(events(&server, "/generate", body), second);
    assert_eq!((status, error(&answer)["message"].as_str().unwrap().contains('x')), (400, true), "{answer}");
    assert_eq!(first.last().unwrap()["meta_info"]["completion_tokens"], 20, "the first is whole");
    assert_eq!(json(server.client().get(server.url("/health")).send().await.unwrap()).await.0, 200);
}
