//! Requests that are refused: the status, the shape, and the field that is to blame.

use reqwest::Method;
use serde_json::{Value, json};

use crate::api::{error, get, json, ok, refused, send};
use crate::support::Server;
use crate::support::tiny::folder;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const GENERATE: &str = "/generate";

fn chat() -> Value {
    json!([{"role": "user", "content": "a"}])
}

/// sglang#33504, vllm#12886, vllm#1352
#[tokio::test]
async fn whatever_is_wrong_has_one_shape_and_names_its_field() {
    let folder = folder();
    let server = Server::start_folder(&folder, &[]).await;
    for (path, body, status, kind, param) in [
        (CHAT, "{\"model\":".to_owned(), 400, "invalid_request_error", Value::Null),
        (
            CHAT,
            json!({"messages": chat(), "max_tokens": "x"}).to_string(),
            400,
            "invalid_request_error",
            json!("max_tokens"),
        ),
        (CHAT, json!({"model": "default"}).to_string(), 400, "invalid_request_error", json!("messages")),
        (COMPLETIONS, json!({"model": "default"}).to_string(), 400, "invalid_request_error", json!("prompt")),
        (GENERATE, json!({"sampling_params": {}}).to_string(), 400, "invalid_request_error", json!("text")),
        (CHAT, json!({"messages": chat(), "model": "nope"}).to_string(), 404, "not_found_error", json!("model")),
        ("/v1/nosuch", "{}".to_owned(), 404, "not_found_error", Value::Null),
        ("/v1/models", "{}".to_owned(), 405, "invalid_request_error", Value::Null),
    ] {
        let answer = send(&server, path, body.clone()).await;
        assert_eq!(answer.headers()["content-type"], "application/json", "{path} {body}");
        let (got, answer) = json(answer).await;
        let error = error(&answer);
        assert_eq!((got, &error["type"], &error["param"]), (status, &json!(kind), &param), "{path} {body}: {answer}");
    }
}

/// vllm#4667, vllm#33418, vllm#42474
#[tokio::test]
async fn the_context_is_filled_to_its_edge_and_no_further() {
    let folder = folder();
    let server = Server::start_folder(&folder, &["--context-length=64"]).await;
    let prompt = ok(&server, "/v1/tokenize", json!({"messages": chat()})).await["count"].as_u64().unwrap();
    let room = |used: u64| 64 - used;
    for (path, body, used, length, field) in [
        (CHAT, json!({"messages": chat(), "ignore_eos": true}), prompt, "/max_tokens", "max_tokens"),
        (COMPLETIONS, json!({"prompt": "abc", "ignore_eos": true}), 3, "/max_tokens", "max_tokens"),
        (
            GENERATE,
            json!({"text": "abc", "sampling_params": {"ignore_eos": true, "max_new_tokens": null}}),
            3,
            "/sampling_params/max_new_tokens",
            "max_new_tokens",
        ),
    ] {
        let asking = |tokens: u64| {
            let (mut body, (parent, key)) = (body.clone(), length.rsplit_once('/').unwrap());
            body.pointer_mut(parent).unwrap()[key] = json!(tokens);
            body
        };
        ok(&server, path, asking(room(used))).await;
        for tokens in [room(used) + 1, 64, 999_999] {
            let (status, error) = refused(&server, path, asking(tokens)).await;
            let blame = (status, &error["code"], &error["param"]);
            assert_eq!(blame, (400, &json!("context_length_exceeded"), &json!(field)), "{path} {tokens}");
            let message = error["message"].as_str().unwrap();
            let numbers: Vec<u64> =
                message.split(|c: char| !c.is_ascii_digit()).filter_map(|it| it.parse().ok()).collect();
            assert_eq!(numbers, [used, tokens, 64], "{message}");
        }
    }
    for (path, body, field) in [
        (CHAT, json!({"messages": [{"role": "user", "content": "x".repeat(64)}]}), "messages"),
        (COMPLETIONS, json!({"prompt": "x".repeat(64)}), "prompt"),
        (GENERATE, json!({"text": "x".repeat(64)}), "text"),
        (GENERATE, json!({"input_ids": vec![97; 64]}), "input_ids"),
    ] {
        let (_, error) = refused(&server, path, body).await;
        assert_eq!((&error["code"], &error["param"]), (&json!("context_length_exceeded"), &json!(field)));
    }
    for path in [CHAT, COMPLETIONS] {
        let mut body = json!({"max_tokens": 999_999, "max_completion_tokens": 1, "ignore_eos": true});
        body[if path == CHAT { "messages" } else { "prompt" }] = if path == CHAT { chat() } else { json!("abc") };
        let answer = ok(&server, path, body.clone()).await;
        assert_eq!(answer["usage"]["completion_tokens"], 1, "the newer name wins");
        body.as_object_mut().unwrap().retain(|key, _| !key.starts_with("max_"));
        ok(&server, path, body).await;
    }
}

/// vllm#9634, vllm#51795, vllm#35231; sglang#5230
#[tokio::test]
async fn an_embedding_of_what_is_no_token_is_refused_as_a_whole() {
    let server = Server::start(&["--model=scripted:dimensions=8"]).await;
    for ids in
        [json!([257]), json!([-1]), json!([1_u64 << 40]), json!([1.5]), json!([[1, 2], [257]]), json!([[1], [-1]])]
    {
        for (path, field) in [("/v1/embeddings", "input"), ("/encode", "input_ids")] {
            let (status, error) = refused(&server, path, json!({field: ids})).await;
            assert_eq!((status, &error["param"]), (400, &json!(field)), "{path} {ids}");
        }
    }
    let long = "x".repeat(8193);
    assert_eq!(refused(&server, "/encode", json!({"text": long})).await.1["param"], "text");
    assert_eq!(refused(&server, "/v1/embeddings", json!({"input": long})).await.1["param"], "input");
    assert_eq!(server.metric("radiosonde_num_requests_total").await, 0.0);
    ok(&server, "/v1/embeddings", json!({"input": [256]})).await;
    assert_eq!(get(&server, Method::GET, "/health_generate?evidence=own").await.0, 200);
}

/// sglang#4574, sglang#11401, vllm#17248, llama.cpp#19051
#[tokio::test]
async fn a_chat_in_a_form_that_cannot_be_followed_is_no_free_text() {
    let folder = folder();
    let server = Server::start_folder(&folder, &[]).await;
    for schema in [json!({"type": "nosuch"}), json!({"type": "string", "pattern": "("})] {
        for stream in [false, true] {
            let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
            let body = json!({"messages": chat(), "response_format": format, "stream": stream});
            let (status, error) = refused(&server, CHAT, body).await;
            assert_eq!((status, &error["param"]), (400, &json!("response_format")), "{schema}");
        }
    }
    assert_eq!(server.metric("radiosonde_num_requests_total").await, 0.0, "nothing was scheduled");
}
