//! What becomes of a request, told by its trace.

use std::collections::HashSet;

use expect_test::expect;
use rustix::process::Signal;
use serde_json::json;

use super::{MOMENT, TRACE, Traced, tokens};
use crate::support::collector::Seen;
use crate::support::{eventually, in_background};

fn streamed(prompt: usize, output: u32) -> serde_json::Value {
    let mut body = tokens(prompt, output);
    body["stream"] = json!(true);
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_prompt_takes_three_steps() {
    let traced = Traced::scripted("step_ms=20", &["--chunked-prefill-size=100", "--max-step-time=0"]).await;
    let answer = traced.post("/generate", &tokens(250, 5)).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    traced
        .check(
            11,
            &expect![[r#"
                POST /generate request.outcome=length request.retractions=0
                  tokenizer_manager.submit
                  ipc.to_engine
                  scheduler.inbox
                  scheduler.process_input_requests
                  scheduler.waiting_queue
                  scheduler.prefill prefill.chunks=3 [prefill.chunk*3]
                  scheduler.decode [first_token]
                  ipc.to_frontend
                  detokenizer
                  tokenizer_manager.receive
            "#]],
        )
        .await;
    let spans = traced.collector.spans();
    let named = |name: &str| spans.iter().find(|seen| seen.span.name == name && seen.trace_id() == TRACE).unwrap();
    let number = |seen: &Seen, key: &str| seen.attributes[key].parse::<u64>().unwrap();
    let (prefill, decode) = (named("scheduler.prefill"), named("scheduler.decode"));
    let (first, last) = (number(prefill, "scheduler.step.first"), number(prefill, "scheduler.step.last"));
    assert_eq!(last, first + 2, "a chunk a step");
    assert_eq!(number(decode, "scheduler.step.first"), last + 1);
    assert_eq!(number(decode, "scheduler.step.last"), last + 4, "a token a step");
    assert!(named("detokenizer").attributes.contains_key("detokenizer.total_seconds"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_streams() {
    let traced = Traced::scripted("step_ms=20", &[]).await;
    let body = json!({"prompt": "abc", "max_tokens": 5, "ignore_eos": true, "stream": true});
    let answer = traced.post("/v1/completions", &body).send().await.unwrap();
    let sent = answer.bytes().await.unwrap().len();
    traced
        .check(
            12,
            &expect![[r#"
                POST /v1/completions request.outcome=length request.retractions=0
                  tokenizer_manager.submit
                  ipc.to_engine
                  scheduler.inbox
                  scheduler.process_input_requests
                  scheduler.waiting_queue
                  scheduler.prefill prefill.chunks=1 [prefill.chunk]
                  scheduler.decode [first_token]
                  http.stream
                  ipc.to_frontend
                  detokenizer
                  tokenizer_manager.receive
            "#]],
        )
        .await;
    let stream = traced.collector.spans().into_iter().find(|seen| seen.span.name == "http.stream").unwrap();
    assert_eq!(stream.attributes["http.response.body.size"], sent.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_ends_with_a_stop_string() {
    let traced = Traced::scripted("step_ms=20", &[]).await;
    let whole = json!({"text": "a", "sampling_params": {"max_new_tokens": 8, "temperature": 0, "ignore_eos": true}});
    let whole: serde_json::Value = traced.untraced("/generate", &whole).send().await.unwrap().json().await.unwrap();
    let stop: String = whole["text"].as_str().unwrap().chars().skip(2).take(1).collect();
    let sampling = json!({"max_new_tokens": 200, "temperature": 0, "ignore_eos": true, "stop": stop});
    let answer = traced.post("/generate", &json!({"text": "a", "sampling_params": sampling})).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    traced
        .check(
            10,
            &expect![[r#"
                POST /generate request.outcome=stop request.retractions=0
                  tokenizer_manager.submit
                  ipc.to_engine
                  scheduler.inbox
                  scheduler.process_input_requests
                  scheduler.waiting_queue
                  scheduler.prefill prefill.chunks=1 [prefill.chunk]
                  scheduler.decode [first_token]
                  detokenizer
                  tokenizer_manager.receive
            "#]],
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_client_leaves_in_the_middle() {
    let traced = Traced::scripted("step_ms=20", &[]).await;
    let mut answer = traced.post("/generate", &streamed(3, 4000)).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    answer.chunk().await.unwrap().unwrap();
    drop(answer);
    traced
        .check(
            9,
            &expect![[r#"
                POST /generate request.outcome=abort request.retractions=0
                  tokenizer_manager.submit
                  ipc.to_engine
                  scheduler.inbox
                  scheduler.process_input_requests
                  scheduler.waiting_queue
                  scheduler.prefill prefill.chunks=1 [prefill.chunk]
                  scheduler.decode [first_token, abort]
                  http.stream
            "#]],
        )
        .await;
    let root = traced.root().await;
    assert_eq!(root.error(), None, "a client that leaves is no error");
    assert_eq!(root.attributes["gen_ai.response.finish_reasons"], "[abort]");
    assert_ne!(root.attributes["gen_ai.usage.output_tokens"], "0", "what it got counts");
    assert!(!root.attributes.contains_key("error.type"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_step_fails() {
    let traced = Traced::scripted("step_ms=20,fail_step=6", &[]).await;
    let answer = traced.post("/generate", &tokens(3, 20)).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 500);
    traced
        .check(
            11,
            &expect![[r#"
                POST /generate request.outcome=error request.retractions=0 ERROR scripted failure of step 6
                  tokenizer_manager.submit
                  ipc.to_engine
                  scheduler.inbox
                  scheduler.process_input_requests
                  scheduler.waiting_queue
                  scheduler.prefill prefill.chunks=1 [prefill.chunk]
                  scheduler.decode [first_token] ERROR unfinished
                  ipc.to_frontend
                  detokenizer
                  tokenizer_manager.receive
            "#]],
        )
        .await;
    let root = traced.root().await;
    assert_eq!((&*root.attributes["error.type"], &*root.attributes["http.response.status_code"]), ("500", "500"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_says_why_although_its_status_was_good() {
    let traced = Traced::scripted("step_ms=20,fail_step=6", &[]).await;
    let answer = traced.post("/generate", &streamed(3, 20)).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    assert!(answer.text().await.unwrap().contains("\"error\""));
    let root = traced.root().await;
    assert_eq!(root.error(), Some("scripted failure of step 6"));
    let seen = (&*root.attributes["error.type"], &*root.attributes["http.response.status_code"]);
    assert_eq!(seen, ("step_failed", "200"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_refused_for_its_input() {
    let traced = Traced::scripted("step_ms=1", &["--context-length=64"]).await;
    let answer = traced.post("/generate", &tokens(65, 1)).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 400);
    let root = traced.root().await;
    assert_eq!((root.error(), &*root.attributes["http.response.status_code"]), (None, "400"));
    assert!(!root.attributes.contains_key("error.type"), "it is the client's mistake: {:?}", root.attributes);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_retracted() {
    // Two requests grow to 44 tokens each, and there is room for 64.
    let traced = Traced::scripted("step_ms=5", &["--max-total-tokens=64", "--disable-radix-cache"]).await;
    // A pause lets them begin together.
    let pause = traced.untraced("/pause_generation", &json!({"mode": "in_place"})).send();
    assert_eq!(pause.await.unwrap().status().as_u16(), 200);
    let queued = async |count| traced.server.metric("radiosonde_num_queue_reqs").await == count;
    let oldest = in_background(traced.untraced("/generate", &tokens(4, 40)).send());
    eventually(MOMENT, async || queued(1.0).await).await;
    let youngest = in_background(traced.post("/generate", &tokens(4, 40)).send());
    eventually(MOMENT, async || queued(2.0).await).await;
    let go_on = traced.untraced("/continue_generation", &json!({})).send();
    assert_eq!(go_on.await.unwrap().status().as_u16(), 200);
    for answer in [oldest, youngest] {
        assert_eq!(answer.await.unwrap().unwrap().status().as_u16(), 200);
    }
    traced
        .check(
            13,
            &expect![[r#"
                POST /generate request.outcome=length request.retractions=1
                  tokenizer_manager.submit
                  ipc.to_engine
                  scheduler.inbox
                  scheduler.process_input_requests
                  scheduler.waiting_queue
                  scheduler.prefill prefill.chunks=1 [prefill.chunk]
                  scheduler.decode [first_token, retraction]
                    scheduler.waiting_queue
                    scheduler.prefill prefill.chunks=1 [prefill.chunk]
                  ipc.to_frontend
                  detokenizer
                  tokenizer_manager.receive
            "#]],
        )
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_engine_dies_before_it_has_output() {
    let traced = Traced::scripted("step_ms=50", &["--max-running-requests=1"]).await;
    let running = traced.keep_busy("running", 4, 4000).await;
    let queued = in_background(traced.post("/generate", &tokens(4, 3)).send());
    eventually(MOMENT, async || traced.server.metric("radiosonde_num_queue_reqs").await == 1.0).await;
    traced.server.signal_engine(Signal::KILL);
    running.await.unwrap();
    assert_eq!(queued.await.unwrap().unwrap().status().as_u16(), 200);
    traced
        .check(
            15,
            &expect![[r#"
                POST /generate request.outcome=length request.retractions=0
                  tokenizer_manager.submit
                  ipc.to_engine
                  scheduler.inbox
                  scheduler.process_input_requests
                  scheduler.waiting_queue ERROR unfinished
                  ipc.to_engine [engine_restart]
                  scheduler.inbox
                  scheduler.process_input_requests
                  scheduler.waiting_queue
                  scheduler.prefill prefill.chunks=1 [prefill.chunk]
                  scheduler.decode [first_token]
                  ipc.to_frontend
                  detokenizer
                  tokenizer_manager.receive
            "#]],
        )
        .await;
    let spans = traced.collector.spans().into_iter();
    let of_trace = spans.filter(|seen| seen.trace_id() == TRACE);
    let engines: HashSet<_> = of_trace.filter_map(|seen| seen.attributes.get("process.pid").cloned()).collect();
    assert_eq!(engines.len(), 2, "each hop names the engine that it was in");
}
