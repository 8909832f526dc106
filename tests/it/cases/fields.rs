//! Fields that are null, extra, or obeyed, of every request that has a body.

use std::collections::BTreeSet;

use radiosonde::http_server::openapi::document;
use serde_json::{Map, Value, json};

use crate::api::{ok, refused};
use crate::support::Server;
use crate::support::tiny::folder;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const GENERATE: &str = "/generate";

/// The names of the fields that the document lists for `path`.
fn fields(document: &Value, path: &str) -> BTreeSet<String> {
    let schema = &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
    properties(document, schema["$ref"].as_str().unwrap().rsplit('/').next().unwrap())
}

fn properties(document: &Value, schema: &str) -> BTreeSet<String> {
    document["components"]["schemas"][schema]["properties"].as_object().unwrap().keys().cloned().collect()
}

fn nulls(names: BTreeSet<String>) -> Map<String, Value> {
    names.into_iter().map(|name| (name, Value::Null)).collect()
}

/// `body`, and null in every other field.
fn with_nulls(mut names: Map<String, Value>, body: &Value) -> Value {
    names.extend(body.as_object().unwrap().clone());
    names.into()
}

/// What is the same each time that the same is asked.
fn lasting(mut answer: Value) -> Value {
    for key in ["id", "created"] {
        answer[key].take();
    }
    if let Some(meta) = answer.get_mut("meta_info") {
        for key in ["id", "e2e_latency", "cached_tokens"] {
            meta[key].take();
        }
    }
    if let Some(usage) = answer.get_mut("usage") {
        usage["prompt_tokens_details"].take();
    }
    answer
}

/// vllm#19862, vllm#6707, sglang#4589
#[tokio::test]
async fn null_in_any_field_is_as_good_as_no_field() {
    let (document, folder) = (document(), folder());
    let server = Server::start_folder(&folder, &["--context-length=64"]).await;
    let embeds = Server::start(&["--model=scripted:dimensions=8"]).await;
    let chat = json!({"messages": [{"role": "user", "content": "a"}], "temperature": 0});
    for (server, path, body) in [
        (&server, CHAT, chat),
        (&server, COMPLETIONS, json!({"prompt": "a", "temperature": 0})),
        (&server, GENERATE, json!({"text": "a", "sampling_params": {"temperature": 0}})),
        (&server, "/v1/tokenize", json!({"prompt": "a"})),
        (&server, "/v1/detokenize", json!({"tokens": [97]})),
        (&embeds, "/v1/embeddings", json!({"input": "a"})),
        (&embeds, "/encode", json!({"text": "a"})),
    ] {
        let mut full = with_nulls(nulls(fields(&document, path)), &body);
        assert!(full.as_object().unwrap().len() > body.as_object().unwrap().len(), "{path}: no field is optional");
        if path == GENERATE {
            let sampling = nulls(properties(&document, "SamplingFields"));
            full["sampling_params"] = with_nulls(sampling, &body["sampling_params"]);
        }
        let (plain, full) = (ok(server, path, body).await, ok(server, path, full).await);
        assert_eq!(lasting(plain), lasting(full), "{path}");
    }
}

/// mistralai/platform-docs-public#7, vllm#2754
#[tokio::test]
async fn extensions_are_obeyed_at_the_top_of_a_body() {
    let folder = folder();
    let server = Server::start_folder(&folder, &[]).await;
    let chat = json!([{"role": "user", "content": "a"}]);
    for (path, prompt, text) in [
        (COMPLETIONS, json!({"prompt": "a"}), "/choices/0/text"),
        (CHAT, json!({"messages": chat}), "/choices/0/message/content"),
    ] {
        let ask = async |more: Value| {
            let mut body = prompt.clone();
            let fields = body.as_object_mut().unwrap();
            fields.extend(
                json!({"max_tokens": 8, "ignore_eos": true, "foo": 1, "store": false}).as_object().unwrap().clone(),
            );
            fields.extend(more.as_object().unwrap().clone());
            let answer = ok(&server, path, body).await;
            let end = (&answer["usage"]["completion_tokens"], &answer["choices"][0]["finish_reason"]);
            assert_eq!(end, (&json!(8), &json!("length")), "{answer}");
            answer.pointer(text).unwrap().clone()
        };
        let greedy = ask(json!({"temperature": 0})).await;
        assert_ne!(ask(json!({"temperature": 5, "seed": 1})).await, greedy, "there is something to obey");
        for one_is_left in [json!({"top_k": 1}), json!({"min_p": 1})] {
            let mut hot = one_is_left.clone();
            hot.as_object_mut().unwrap().extend(json!({"temperature": 5, "seed": 1}).as_object().unwrap().clone());
            assert_eq!(ask(hot).await, greedy, "{path} {one_is_left}");
        }
        let bias = json!({"120": 100, "121": 70}); // x, and then y
        let free = ask(json!({"temperature": 0, "logit_bias": bias})).await;
        let penalised = ask(json!({"temperature": 0, "logit_bias": bias, "repetition_penalty": 2})).await;
        assert_eq!((free, penalised), (json!("xxxxxxxx"), json!("xyxxxxxx")), "{path}");
    }
}

/// Lines of what is out of range, and of what is at its edge: candle-vllm#307, vibrantlabsai/ragas#264, TGI#440.
#[tokio::test]
async fn sampling_fields_have_their_ranges() {
    let server = Server::start(&["--model=scripted"]).await;
    let ask = |params: &Value| {
        let mut sampling = json!({"max_new_tokens": 1});
        sampling.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
        json!({"text": "a", "sampling_params": sampling})
    };
    for good in [
        json!({"temperature": 0, "top_p": 0.95}),
        json!({"temperature": 1e-7}),
        json!({"temperature": 1e-4}),
        json!({"top_p": 1}),
        json!({"top_k": -1}),
        json!({"top_k": 1}),
        json!({"max_new_tokens": 0}),
    ] {
        ok(&server, GENERATE, ask(&good)).await;
    }
    for (bad, param) in [
        (json!({"temperature": -1}), "temperature"),
        (json!({"temperature": -1e-9}), "temperature"),
        (json!({"temperature": 1e39}), "temperature"),
        (json!({"top_p": 0}), "top_p"),
        (json!({"top_p": 1.01}), "top_p"),
        (json!({"top_k": 0}), "top_k"),
        (json!({"top_k": -2}), "top_k"),
        (json!({"max_new_tokens": -1}), "max_new_tokens"),
    ] {
        let (status, error) = refused(&server, GENERATE, ask(&bad)).await;
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{bad}");
        assert!(error["message"].as_str().unwrap().contains(param), "{error}");
    }
}
