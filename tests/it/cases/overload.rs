//! A full queue under probes, and rids that come again after every kind of end.

use std::time::Duration;

use futures::future::{Either, join_all, select};
use serde_json::{Value, json};

use crate::api::{error, ok, send};
use crate::support::{Server, eventually, in_background};

const MOMENT: Duration = Duration::from_secs(10);

fn body(rid: Option<&str>, output: u32, stream: bool) -> Value {
    let sampling = json!({"max_new_tokens": output, "ignore_eos": true, "temperature": 0});
    json!({"rid": rid, "text": "a", "stream": stream, "sampling_params": sampling})
}

/// sglang#7565, ollama/ollama#4124, tenstorrent/tt-inference-server#863, TGI#439
#[tokio::test]
async fn probes_succeed_as_long_as_the_queue_is_full() {
    let args = ["--model=scripted:step_ms=200", "--max-running-requests=1", "--max-queued-requests=1"];
    let server = Server::start(&args).await;
    let ask = async || {
        let answer = send(&server, "/generate", body(None, 8, true).to_string()).await;
        let (status, retry) = (answer.status().as_u16(), answer.headers().contains_key("retry-after"));
        (status, retry, answer.text().await.unwrap())
    };
    let mut asked = Box::pin(join_all((0..6).map(|_| ask())));
    let (mut probes, mut full) = (0, 0);
    let answers = loop {
        let probe = Box::pin(async {
            let queued = server.metric("radiosonde_num_queue_reqs").await;
            let paths = ["/health", "/health_generate"].map(|path| server.probe(path));
            (queued, join_all(paths).await)
        });
        match select(asked, probe).await {
            Either::Left((answers, _)) => break answers,
            Either::Right(((queued, answers), still_asked)) => {
                assert!(answers.iter().all(|answer| answer.status == 200), "{answers:?}");
                (probes, full) = (probes + 1, full + u32::from(queued == 1.0));
                asked = still_asked;
            }
        }
    };
    assert!(full > 0, "{probes} probes, none of them with a full queue");
    let (accepted, rejected): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.0 == 200);
    assert!(rejected.len() >= 3, "{rejected:?}");
    for (status, retry, text) in &rejected {
        assert_eq!((*status, *retry), (503, true), "{text}");
        assert_eq!(error(&serde_json::from_str(text).unwrap())["code"], "queue_full");
    }
    assert!(accepted.iter().all(|(_, _, text)| text.ends_with("data: [DONE]\n\n") && !text.contains("\"error\"")));
    let counted = server.metric("radiosonde_requests_rejected_total").await;
    let full = server.metric_with("radiosonde_requests_rejected_total", &[("reason", "queue_full")]).await;
    assert_eq!((counted, full), (rejected.len() as f64, rejected.len() as f64), "each once, for one reason");
    let ended = server.metric("radiosonde_requests_finished_total").await;
    assert_eq!(ended, accepted.len() as f64, "and not as a request that ended");
}

/// sglang#24070, sglang#12205
#[tokio::test]
async fn a_rid_that_never_ran_is_free_again() {
    let server = Server::start(&["--model=scripted:step_ms=20", "--max-running-requests=1"]).await;
    let fresh = ok(&server, "/generate", body(Some("fresh"), 4, false)).await;
    let load = async |running: f64, queued: f64| {
        eventually(MOMENT, async || {
            server.metric("radiosonde_num_running_reqs").await == running
                && server.metric("radiosonde_num_queue_reqs").await == queued
        })
        .await;
    };
    let request = |body: Value| {
        let request = server.client().post(server.url("/generate")).json(&body);
        in_background(async move { request.send().await.map(drop) })
    };
    let runs = request(body(Some("runs"), 4000, false));
    load(1.0, 0.0).await;
    for by_request in [true, false] {
        let waits = request(body(Some("r"), 4, false));
        load(1.0, 1.0).await;
        if by_request {
            assert_eq!(ok(&server, "/abort_request", json!({"rid": "r"})).await["aborted"], 1);
        } else {
            waits.abort(); // its client leaves
        }
        load(1.0, 0.0).await;
    }
    runs.abort();
    let again = ok(&server, "/generate", body(Some("r"), 4, false)).await;
    assert_eq!((&again["text"], &again["output_ids"]), (&fresh["text"], &fresh["output_ids"]));
    server.at_rest(MOMENT).await;
}
