//! Streams of a model whose every byte is a token, and streams that fail.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::api::{error, events, ok, refused, text_of};
use crate::support::Server;
use crate::support::tiny::folder;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";
const GENERATE: &str = "/generate";

/// A hot model of bytes says much that is no text, and some characters of several bytes: llama.cpp#28724,
/// llama.cpp#4036, Blaizzy/mlx-vlm#1147.
#[tokio::test]
async fn half_characters_are_kept_back_and_broken_ones_are_replaced() {
    let (folder, seeds) = (folder(), 0..50);
    let server = Server::start_folder(&folder, &[]).await;
    let completion = |seed: u32, stream: bool| json!({"prompt": "a", "seed": seed, "temperature": 1.5, "max_tokens": 60, "ignore_eos": true, "stream": stream});
    let both = seeds.clone().map(async |seed| {
        let whole = ok(&server, COMPLETIONS, completion(seed, false)).await;
        let whole = whole["choices"][0]["text"].as_str().unwrap().to_owned();
        assert_eq!(text_of(&events(&server, COMPLETIONS, completion(seed, true)).await), whole, "seed {seed}");
        whole
    });
    let wholes: Vec<String> = join_all(both).await;
    let broken = |c: char| c == char::REPLACEMENT_CHARACTER;
    assert!(wholes.iter().any(|text| text.contains(broken)), "{wholes:?}");
    assert!(wholes.iter().any(|text| text.chars().any(|c| !c.is_ascii() && !broken(c))), "{wholes:?}");

    let native = seeds.map(async |seed| {
        let sampling = json!({"sampling_seed": seed, "temperature": 1.5, "max_new_tokens": 60, "ignore_eos": true});
        let events = events(&server, GENERATE, json!({"text": "a", "sampling_params": sampling, "stream": true})).await;
        let last = events.last().unwrap();
        assert_eq!(last["text"], wholes[seed as usize], "seed {seed}: the same by the other API");
        let ids = last["output_ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap());
        let bytes: Vec<u8> = ids.filter_map(|id| u8::try_from(id).ok()).collect();
        assert_eq!(last["text"].as_str().unwrap(), String::from_utf8_lossy(&bytes), "seed {seed}: a token is a byte");
    });
    join_all(native).await;
}

/// mistral.rs#1874, lemonade-sdk/lemonade#3448
#[tokio::test]
async fn a_stream_that_fails_says_so_and_ends_in_every_api() {
    let folder = folder();
    let server = Server::start_folder(&folder, &["--enable-drills", "--self-probe-interval=0"]).await;
    // Or all is over before the answer has begun, and it is no stream.
    ok(&server, "/debug/fault", json!({"fault": "slow_steps", "ms": 50})).await;
    let chat = json!([{"role": "user", "content": "a"}]);
    let completion = json!({"prompt": "a", "max_tokens": 50, "ignore_eos": true});
    for (path, body) in [
        (COMPLETIONS, completion.clone()),
        (CHAT, json!({"messages": chat, "max_tokens": 50, "ignore_eos": true})),
        (GENERATE, json!({"text": "a", "sampling_params": {"max_new_tokens": 50, "ignore_eos": true}})),
    ] {
        ok(&server, "/debug/fault", json!({"fault": "fail_step", "nth": 8})).await;
        let mut body = body;
        body["stream"] = json!(true);
        // To the end of the connection's answer, or this waits for ever.
        let all = tokio::time::timeout(Duration::from_secs(20), events(&server, path, body)).await.unwrap();
        let (last, before) = all.split_last().unwrap();
        error(last);
        assert!(!before.is_empty(), "{path}: what was said before arrives");
        let ends = before
            .iter()
            .flat_map(|event| [&event["choices"][0]["finish_reason"], &event["meta_info"]["finish_reason"]]);
        assert!(ends.into_iter().all(Value::is_null), "{path}: a failure is no good end: {before:?}");
    }
    ok(&server, "/debug/fault", json!({"fault": "fail_step", "nth": 8})).await;
    assert_eq!(refused(&server, COMPLETIONS, completion).await.0, 500, "before the first byte it is a status");
}

/// Rapid-MLX#792, nextlevelbuilder/goclaw#50
#[tokio::test]
async fn the_usage_of_a_chat_is_one_event_if_it_is_asked_for() {
    let folder = folder();
    let server = Server::start_folder(&folder, &[]).await;
    let ask = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "ignore_eos": true});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let usages = |events: &[Value]| events.iter().filter(|event| !event["usage"].is_null()).count();
    let with = json!({"stream": true, "stream_options": {"include_usage": true}});
    let with = events(&server, CHAT, ask(with)).await;
    let last = with.last().unwrap();
    assert_eq!((usages(&with), &last["choices"]), (1, &json!([])));
    let count = |key: &str| last["usage"][key].as_u64().unwrap();
    assert_eq!((count("completion_tokens"), count("total_tokens")), (3, count("prompt_tokens") + 3));
    for options in [json!({"include_usage": false}), json!({}), Value::Null] {
        let without = events(&server, CHAT, ask(json!({"stream": true, "stream_options": options}))).await;
        assert_eq!(usages(&without), 0, "{options}");
        assert!(without.iter().all(|event| event["choices"] != json!([])), "{options}");
    }
    for without_stream in [json!({"stream_options": {"include_usage": true}}), with_stream(false)] {
        let (status, error) = refused(&server, CHAT, ask(without_stream)).await;
        assert_eq!((status, &error["param"]), (400, &json!("stream_options")));
    }
}

fn with_stream(stream: bool) -> Value {
    json!({"stream": stream, "stream_options": {"include_usage": true}})
}
