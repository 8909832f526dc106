//! The request APIs of a real server, as a client meets them.

mod abort;
mod bodies;
mod chat;
mod clients;
mod endpoints;
mod limits;
mod logprobs;
mod openapi;
mod scheduling;
mod streaming;
mod structured;
mod tools;

use reqwest::{Method, Response};
use serde_json::Value;

use crate::support::Server;

pub(crate) async fn send(server: &Server, path: &str, body: impl Into<reqwest::Body>) -> Response {
    let request = server.client().post(server.url(path)).header("content-type", "application/json");
    request.body(body).send().await.unwrap()
}

/// Status and JSON body.
pub(crate) async fn post(server: &Server, path: &str, body: Value) -> (u16, Value) {
    json(send(server, path, body.to_string()).await).await
}

pub(crate) async fn get(server: &Server, method: Method, path: &str) -> (u16, Value) {
    json(server.client().request(method, server.url(path)).send().await.unwrap()).await
}

pub(crate) async fn json(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{status} {error}: {text}")))
}

/// The JSON body of a 200.
pub(crate) async fn ok(server: &Server, path: &str, body: Value) -> Value {
    let (status, answer) = post(server, path, body.clone()).await;
    assert_eq!(status, 200, "{path} {body}: {answer}");
    answer
}

/// A refusal, in its one shape: status and the error.
pub(crate) async fn refused(server: &Server, path: &str, body: Value) -> (u16, Value) {
    let (status, answer) = post(server, path, body.clone()).await;
    assert_ne!(status, 200, "{path} {body}: {answer}");
    (status, error(&answer).clone())
}

pub(crate) fn error(answer: &Value) -> &Value {
    let error = &answer["error"];
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{answer}");
    for key in ["type", "param", "code"] {
        assert!(error.get(key).is_some(), "no {key}: {answer}");
    }
    error
}

/// The events of a stream without its `[DONE]`, which must be the last.
pub(crate) async fn events(server: &Server, path: &str, body: Value) -> Vec<Value> {
    let response = send(server, path, body.to_string()).await;
    assert_eq!(response.status(), 200, "{body}");
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let text = response.text().await.unwrap();
    let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, events) = data.split_last().unwrap_or_else(|| panic!("no event: {text}"));
    assert_eq!(*last, "[DONE]");
    events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// The text of a streamed completion, put together.
pub(crate) fn text_of(events: &[Value]) -> String {
    events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect()
}
