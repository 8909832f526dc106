//! Clients that leave, queues that are full, and rids that come again.

use std::time::Duration;

use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::{error, events, get, json, ok, post, refused, send};
use crate::support::{Server, eventually};

const SOON: Duration = Duration::from_secs(2);

/// How long after its client something may go on.
const PROMISED: Duration = Duration::from_secs(1);

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
        eventually(PROMISED, || async {
            running(&server).await == 0.0
                && queued(&server).await == 0.0
                && server.metric("radiosonde_kv_used_tokens").await == idle
                && server.metric("radiosonde_num_aborted_requests_total").await == aborted + 2.0
        })
        .await;
    }
    let generated = async || server.metric("radiosonde_generation_tokens_total").await;
    let before = generated().await;
    let short = json!({"text": "a", "sampling_params": {"max_new_tokens": 1}});
    let answer = ok(&server, "/generate", short).await;
    let latency = answer["meta_info"]["e2e_latency"].as_f64().unwrap();
    assert!(latency < 1.0, "it waits for nobody who has left, who would need 20 s: {latency} s");
    assert_eq!(generated().await, before + 1.0, "nobody else has gone on");
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

/// The one answer to an abort: how many requests it ended.
async fn abort(server: &Server, body: Value) -> Value {
    ok(server, "/abort_request", body).await["aborted"].clone()
}

/// What `/abort_request` ends says so: once something runs, `aborts` are sent; the events of the call.
async fn aborted(server: &Server, path: &str, body: Value, running_reqs: f64, aborts: Value, want: u64) -> Vec<Value> {
    let abort = async {
        eventually(SOON, || async { running(server).await + queued(server).await == running_reqs }).await;
        assert_eq!(abort(server, aborts.clone()).await, want, "{aborts}");
    };
    let (events, ()) = tokio::join!(events(server, path, body), abort);
    eventually(SOON, || async { running(server).await + queued(server).await == 0.0 }).await;
    events
}

#[tokio::test]
async fn an_aborted_stream_ends_with_the_finish_reason_abort() {
    let server = Server::start(&["--model", "scripted:step_ms=30"]).await;
    let mut native = long(true);
    native["rid"] = json!("r");
    let seen = aborted(&server, "/generate", native.clone(), 1.0, json!({"rid": "r"}), 1).await;
    let last = &seen.last().unwrap()["meta_info"];
    let reason = json!({"type": "abort", "message": "aborted on request", "status_code": null, "err_type": null});
    assert_eq!(last["finish_reason"], reason);
    assert_eq!(last["prompt_tokens"], 1, "what was counted stays: {last}");

    let text = json!({"prompt": "a", "max_tokens": 200, "ignore_eos": true, "stream": true, "rid": "c", "n": 2});
    let seen = aborted(&server, "/v1/completions", text, 2.0, json!({"rid": "cmpl-c"}), 2).await;
    let reasons: Vec<&Value> = seen.iter().map(|event| &event["choices"][0]["finish_reason"]).collect();
    assert_eq!(reasons.iter().filter(|reason| **reason == "abort").count(), 2, "{reasons:?}");
    assert!(reasons.iter().all(|reason| reason.is_null() || **reason == "abort"), "{reasons:?}");

    let others = json!({"text": ["a", "b", "c"], "sampling_params": native["sampling_params"], "stream": true});
    let seen = aborted(&server, "/generate", others, 3.0, json!({"abort_all": true}), 3).await;
    let ended = seen.iter().filter(|event| event["meta_info"]["finish_reason"]["type"] == "abort").count();
    assert_eq!(ended, 3);
    assert_eq!(server.metric("radiosonde_num_aborted_requests_total").await, 6.0);
    assert_eq!(server.metric("radiosonde_request_table_size").await, 0.0);
}

#[tokio::test]
async fn an_abort_reaches_what_waits_and_leaves_the_others_alone() {
    let server = Server::start(&["--model", "scripted:step_ms=30", "--max-running-requests", "1"]).await;
    let ask = |rid: &str| {
        let mut body = long(false);
        (body["rid"], body["sampling_params"]["max_new_tokens"]) = (json!(rid), json!(30));
        body
    };
    let waiting = async {
        eventually(SOON, || async { running(&server).await == 1.0 }).await;
        let abort = async {
            eventually(SOON, || async { queued(&server).await == 1.0 }).await;
            assert_eq!(abort(&server, json!({"rid": "waits"})).await, 1);
        };
        let (answer, ()) = tokio::join!(ok(&server, "/generate", ask("waits")), abort);
        answer
    };
    let (runs, waits) = tokio::join!(ok(&server, "/generate", ask("runs")), waiting);
    assert_eq!(runs["meta_info"]["finish_reason"], json!({"type": "length", "length": 30}));
    assert_eq!((&waits["text"], &waits["meta_info"]["finish_reason"]["type"]), (&json!(""), &json!("abort")));
    assert_eq!(waits["meta_info"]["completion_tokens"], 0);
}

#[tokio::test]
async fn an_abort_that_means_nobody_says_so() {
    let server = Server::start(&["--model", "scripted"]).await;
    assert_eq!(abort(&server, json!({"rid": "nosuch"})).await, 0);
    assert_eq!(abort(&server, json!({"abort_all": true})).await, 0);
    for nobody in [json!({}), json!({"rid": ""}), json!({"rid": null, "abort_all": false})] {
        let (status, error) = refused(&server, "/abort_request", nobody).await;
        assert_eq!((status, &error["param"]), (400, &json!("rid")));
    }
    assert_eq!(refused(&server, "/abort_request", json!({"rid": 1})).await.0, 400);
}

/// Output of the first request with a rid may still be on its way when the second one begins.
#[tokio::test]
async fn a_rid_that_is_used_again_gets_nothing_of_its_former_self() {
    let server = Server::start(&["--model", "scripted:step_ms=1"]).await;
    let ask = |rid: &str, text: &str, tokens: u32| {
        let sampling = json!({"max_new_tokens": tokens, "ignore_eos": true, "temperature": 0});
        json!({"rid": rid, "text": text, "sampling_params": sampling})
    };
    let fresh = ok(&server, "/generate", ask("fresh", "xyz", 20)).await;
    for round in 0..15 {
        let former = ok(&server, "/generate", ask("r", "a", 4000));
        let again = async {
            eventually(SOON, || async { abort(&server, json!({"rid": "r"})).await == 1 }).await;
            ok(&server, "/generate", ask("r", "xyz", 20)).await
        };
        let (former, again) = tokio::join!(former, again);
        assert_eq!(former["meta_info"]["finish_reason"]["type"], "abort", "{round}");
        for key in ["text", "output_ids"] {
            assert_eq!(again[key], fresh[key], "{round}");
        }
    }
}
