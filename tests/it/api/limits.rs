//! What does not fit.

use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Map, Value, json};

use super::{error, get, json, ok, post, refused, send};
use crate::support::{Server, eventually};

#[tokio::test]
async fn what_does_not_fit_into_the_context_is_refused_with_its_numbers() {
    let server = Server::start(&["--model", "scripted", "--context-length", "64"]).await;
    for (path, body) in [
        ("/v1/completions", json!({"prompt": "abc", "max_tokens": 999_999})),
        ("/v1/completions", json!({"prompt": "abc", "max_tokens": 1, "max_completion_tokens": 999_999})),
        ("/generate", json!({"text": "abc", "sampling_params": {"max_new_tokens": 999_999}})),
    ] {
        let (status, error) = refused(&server, path, body.clone()).await;
        assert_eq!((status, &error["code"]), (400, &json!("context_length_exceeded")), "{body}");
        let message = error["message"].as_str().unwrap();
        for number in ["64", "3", "999999"] {
            assert!(message.contains(number), "{number}: {message}");
        }
        assert!(!message.contains(" -"), "no negative number: {message}");
    }
    for text in ["x".repeat(64), "x".repeat(65)] {
        let (status, error) = refused(&server, "/generate", json!({"text": text})).await;
        assert_eq!((status, &error["code"]), (400, &json!("context_length_exceeded")));
    }
    let fits = ok(&server, "/generate", json!({"text": "x".repeat(60), "sampling_params": {"ignore_eos": true}})).await;
    assert_eq!(fits["meta_info"]["completion_tokens"], 4, "a length that is not asked for is what is left");
    let fits = ok(&server, "/v1/completions", json!({"prompt": "x".repeat(60), "ignore_eos": true})).await;
    assert_eq!(fits["usage"]["completion_tokens"], 4);
}

#[tokio::test]
async fn a_long_prompt_is_refused_for_its_length_and_holds_nobody_up() {
    let server = Server::start_default().await;
    let words = "word ".repeat(600_000);
    for (path, body) in [
        ("/generate", json!({"text": words})),
        ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": words}]})),
    ] {
        let long = send(&server, path, body.to_string());
        let health = async {
            let asked = Instant::now();
            let (status, _) = get(&server, Method::GET, "/health").await;
            (status, asked.elapsed())
        };
        let (long, (status, took)) = tokio::join!(long, health);
        assert_eq!(status, 200);
        assert!(took < Duration::from_secs(1), "{took:?}");
        let (status, answer) = json(long).await;
        assert_eq!((status, &error(&answer)["code"]), (400, &json!("context_length_exceeded")), "{path}");
    }
}

/// As many at once as the frontend has workers: none of them may stand.
#[tokio::test]
async fn long_chats_are_tokenized_and_hold_nobody_up() {
    let server = Server::start_default().await;
    let words = "word ".repeat(1_200_000);
    let body = json!({"messages": [{"role": "user", "content": words}]}).to_string();
    let long = async || json(send(&server, "/v1/tokenize", body.clone()).await).await;
    let health = async {
        for _ in 0..20 {
            let asked = Instant::now();
            assert_eq!(get(&server, Method::GET, "/health").await.0, 200);
            let took = asked.elapsed();
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
    };
    let (first, second, ()) = tokio::join!(long(), long(), health);
    for (status, answer) in [first, second] {
        assert_eq!(status, 200);
        assert!(answer["count"].as_u64().unwrap() >= 1_200_000);
    }
}

#[tokio::test]
async fn a_body_above_the_limit_is_a_413_in_the_one_shape() {
    let server = Server::start(&["--model", "scripted", "--max-body-mib", "1"]).await;
    let body = json!({"text": "x".repeat(2 << 20)}).to_string();
    let (status, answer) = json(send(&server, "/generate", body).await).await;
    assert_eq!(status, 413);
    let message = error(&answer)["message"].as_str().unwrap();
    assert_eq!(message, "the body is larger than 1 MiB, the limit of --max-body-mib");
}

#[tokio::test]
async fn what_a_request_is_compared_with_has_limits_that_its_refusal_names() {
    let server = Server::start(&["--model", "scripted"]).await;
    let sampled = |params: Value| json!({"text": vec!["a"; 64], "sampling_params": params});
    let biased: Map<String, Value> = (0..=4096).map(|id| (id.to_string(), json!(1))).collect();
    let tools = json!([{"type": "function", "function": {"name": "f"}}]);
    for (path, body, param, limit) in [
        ("/generate", sampled(json!({"stop": vec!["x"; 33]})), "stop", "32"),
        ("/generate", sampled(json!({"stop": "x".repeat(5000)})), "stop", "4096"),
        ("/v1/completions", json!({"prompt": "a", "stop": "x".repeat(5000)}), "stop", "4096"),
        ("/generate", sampled(json!({"stop_token_ids": vec![1; 2000]})), "stop_token_ids", "1024"),
        ("/generate", sampled(json!({"logit_bias": biased})), "logit_bias", "4096"),
        ("/generate", sampled(json!({"regex": "a".repeat(2 << 20)})), "regex", "1048576"),
        ("/generate", sampled(json!({"json_schema": {"const": "a".repeat(2 << 20)}})), "json_schema", "1048576"),
        ("/generate", sampled(json!({"regex": "a".repeat(1 << 20), "n": 2})), "regex", "67108864"),
        (
            "/parse_function_call",
            json!({"text": "a".repeat(2 << 20), "tools": tools, "tool_call_parser": "hermes"}),
            "text",
            "1048576",
        ),
    ] {
        let (status, error) = refused(&server, path, body).await;
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(param) && message.contains(limit), "{message}");
    }
    let text = ok(&server, "/v1/detokenize", json!({"tokens": vec![97; 1 << 20]})).await["text"].clone();
    assert_eq!(text, "a".repeat(1 << 20));
}

/// A process that stands reads nothing: when the socket is full, calls wait in front of it, and not any number of them.
#[tokio::test]
async fn control_calls_to_an_engine_that_stands_are_refused_when_too_many_wait() {
    let server = Server::start(&["--model", "scripted", "--self-probe-interval", "0"]).await;
    server.stop_engine().await;
    let call = async || post(&server, "/configure_logging", json!({"log_level": "info"})).await;
    let mut refused = None;
    for _ in 0..20_000 {
        refused = Some(call().await).filter(|(status, _)| *status != 200);
        if refused.is_some() {
            break;
        }
    }
    let (status, answer) = refused.expect("the socket takes so many and no more");
    assert_eq!((status, &error(&answer)["code"]), (503, &json!("not_serving")));
    assert!(answer["error"]["message"].as_str().unwrap().contains("64 control calls wait"), "{answer}");
    server.signal_engine(Signal::CONT);
    eventually(Duration::from_secs(20), async || call().await.0 == 200).await;
}
