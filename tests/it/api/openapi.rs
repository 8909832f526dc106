//! `/openapi.json`, and answers that are what it says.

use radiosonde::http_server::openapi::answers::{
    Aborted, ChatCompletion, ChatCompletionChunk, Completion, Done, Generated, ModelInfo, ModelList, Root, ServerInfo,
    Texts, Tokens,
};
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{error, events, get, ok, post};
use crate::support::Server;

fn is<T: DeserializeOwned>(answer: &Value) {
    serde_json::from_value::<T>(answer.clone()).unwrap_or_else(|error| panic!("{error}: {answer}"));
}

#[tokio::test]
async fn the_document_is_served_and_its_paths_are_there() {
    let server = Server::start(&["--model", "scripted"]).await;
    let (status, document) = get(&server, Method::GET, "/openapi.json").await;
    assert_eq!((status, &document["openapi"]), (200, &json!("3.1.0")));
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = path.replace("{model}", "default").replace("{probe_id}", "nosuch");
        for (method, operation) in operations.as_object().unwrap() {
            let request = server.client().request(method.to_uppercase().parse().unwrap(), server.url(&path));
            let answer = request.send().await.unwrap();
            let response = &operation["responses"][answer.status().as_str()];
            assert!(response.is_object(), "{method} {path}: {} is not documented", answer.status());
            let kind = answer.headers()["content-type"].to_str().unwrap().split(';').next().unwrap().to_owned();
            assert!(response["content"].get(&kind).is_some(), "{method} {path}: {kind} is not documented");
        }
    }
}

#[tokio::test]
async fn answers_have_the_types_of_the_document() {
    let server = Server::start_default().await;
    let chat =
        json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "logprobs": true, "top_logprobs": 2});
    is::<ChatCompletion>(&ok(&server, "/v1/chat/completions", chat.clone()).await);
    let completion = json!({"prompt": ["a", "b"], "max_tokens": 3, "logprobs": 2, "echo": true, "n": 2});
    is::<Completion>(&ok(&server, "/v1/completions", completion.clone()).await);
    let generate = json!({
        "text": ["a", "b"], "sampling_params": {"max_new_tokens": 3, "stop": "e"}, "return_logprob": true,
        "return_prompt_token_ids": true
    });
    is::<Vec<Generated>>(&ok(&server, "/generate", generate.clone()).await);
    let stream = json!({"stream": true, "stream_options": {"include_usage": true}});
    let streamed = |mut body: Value| {
        body.as_object_mut().unwrap().extend(stream.as_object().unwrap().clone());
        body
    };
    for (path, body, check) in [
        ("/v1/chat/completions", chat, is::<ChatCompletionChunk> as fn(&Value)),
        ("/v1/completions", completion, is::<Completion>),
        ("/generate", generate, is::<Generated>),
    ] {
        events(&server, path, streamed(body)).await.iter().for_each(check);
    }
    let tokens = ok(&server, "/v1/tokenize", json!({"prompt": ["a", "b c"]})).await;
    is::<Tokens>(&tokens);
    is::<Texts>(&ok(&server, "/v1/detokenize", json!({"tokens": tokens["tokens"]})).await);
    is::<Aborted>(&ok(&server, "/abort_request", json!({"rid": "nosuch"})).await);
    is::<Done>(&ok(&server, "/continue_generation", json!({})).await);
    for (path, check) in [
        ("/", is::<Root> as fn(&Value)),
        ("/v1/models", is::<ModelList>),
        ("/model_info", is::<ModelInfo>),
        ("/server_info", is::<ServerInfo>),
    ] {
        check(&get(&server, Method::GET, path).await.1);
    }
}

#[tokio::test]
async fn what_cannot_be_read_of_an_address_is_refused_in_the_one_shape() {
    let server = Server::start(&["--model", "scripted"]).await;
    for (path, want) in [
        ("/health?timeout=1s&timeout=2s", 400),
        ("/health?evidence=hearsay", 400),
        ("/v1/loads?format=json&format=json", 400),
        ("/v1/models/%ff", 404),
        ("/debug/probes/%ff", 404),
    ] {
        let (status, answer) = get(&server, Method::GET, path).await;
        assert_eq!(status, want, "{path}");
        error(&answer);
    }
    let (status, answer) = post(&server, "/pause_generation", json!({"mode": "nosuch"})).await;
    assert_eq!((status, &error(&answer)["param"]), (400, &json!("mode")));
}
