//! Answers that come as events.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use eventsource_stream::Eventsource;
use futures::{StreamExt, stream};
use serde_json::{Value, json};

use super::{error, events, ok, post, send, text_of};
use crate::support::Server;

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn deltas_add_up_to_the_whole_text() {
    let server = Server::start_default().await;
    for seed in 0..8 {
        let body = |stream: bool| {
            json!({
                "model": "default", "prompt": "你好 🙂", "seed": seed, "temperature": 1.5, "max_tokens": 40,
                "ignore_eos": true, "stream": stream
            })
        };
        let whole = ok(&server, COMPLETIONS, body(false)).await;
        let whole = whole["choices"][0]["text"].as_str().unwrap();
        let streamed = events(&server, COMPLETIONS, body(true)).await;
        assert_eq!(text_of(&streamed), whole, "seed {seed}");
    }
}

#[tokio::test]
async fn a_stop_string_ends_the_text_wherever_the_tokens_are_cut() {
    let server = Server::start_default().await;
    let ask = json!({
        "model": "default", "prompt": "The capital of France is", "temperature": 0, "max_tokens": 32, "ignore_eos": true
    });
    let with = |fields: Value| {
        let mut body = ask.clone();
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let whole = ok(&server, COMPLETIONS, ask.clone()).await;
    let whole = whole["choices"][0]["text"].as_str().unwrap().to_owned();
    let stop: String = whole.chars().skip(10).take(6).collect();
    let before = &whole[..whole.find(&stop).unwrap()];

    for stop in [json!(stop), json!([stop]), json!(["\u{1}", "\u{2}", "\u{3}", stop])] {
        let answer = ok(&server, COMPLETIONS, with(json!({"stop": stop}))).await;
        assert_eq!(answer["choices"][0]["text"], before, "{stop}");
        assert_eq!(answer["choices"][0]["finish_reason"], "stop");
        let streamed = events(&server, COMPLETIONS, with(json!({"stop": stop, "stream": true}))).await;
        assert_eq!(text_of(&streamed), before, "{stop}");
        assert_eq!(streamed.last().unwrap()["choices"][0]["finish_reason"], "stop");
    }
    let kept = ok(&server, COMPLETIONS, with(json!({"stop": stop, "no_stop_trim": true}))).await;
    assert_eq!(kept["choices"][0]["text"], format!("{before}{stop}"));

    let sampling = json!({"temperature": 0, "max_new_tokens": 32, "ignore_eos": true, "stop": stop});
    let native = json!({"text": ask["prompt"], "sampling_params": sampling});
    let streamed = json!({"text": ask["prompt"], "sampling_params": sampling, "stream": true});
    for native in [ok(&server, "/generate", native).await, events(&server, "/generate", streamed).await.pop().unwrap()]
    {
        assert_eq!(native["text"], before);
        assert_eq!(native["meta_info"]["finish_reason"], json!({"type": "stop", "matched": stop}));
    }
    let sampling =
        json!({"temperature": 0, "max_new_tokens": 32, "ignore_eos": true, "stop": stop, "no_stop_trim": true});
    let kept = ok(&server, "/generate", json!({"text": ask["prompt"], "sampling_params": sampling})).await;
    assert_eq!(kept["text"], format!("{before}{stop}"));
    let alone: Vec<Value> = kept["output_ids"].as_array().unwrap().iter().map(|id| json!([id])).collect();
    let pieces = ok(&server, "/v1/detokenize", json!({"tokens": alone})).await["text"].clone();
    let within = |piece: &Value| piece.as_str().unwrap().contains(&stop);
    assert!(!pieces.as_array().unwrap().iter().any(within), "it was meant to lie across tokens: {pieces}");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_a_status_and_no_stream() {
    let server = Server::start(&["--model", "scripted"]).await;
    for wrong in [json!({"n": 0}), json!({"top_p": 0}), json!({"max_tokens": 999_999}), json!({"prompt": ""})] {
        let mut body = json!({"model": "default", "prompt": "a", "stream": true});
        body.as_object_mut().unwrap().extend(wrong.as_object().unwrap().clone());
        let response = send(&server, COMPLETIONS, body.to_string()).await;
        assert_eq!(response.headers()["content-type"], "application/json", "{wrong}");
        assert_eq!(response.status(), 400, "{wrong}");
    }
}

#[tokio::test]
async fn a_failure_in_the_middle_is_an_event_and_the_end() {
    let server = Server::start(&["--model", "scripted:fail_step=8,step_ms=50"]).await;
    let body = json!({"model": "default", "prompt": "a", "max_tokens": 50, "ignore_eos": true, "stream": true});
    let streamed = events(&server, COMPLETIONS, body).await;
    let (last, before) = streamed.split_last().unwrap();
    error(last);
    assert!(before.iter().all(|event| event.get("error").is_none()));
    assert!(!text_of(before).is_empty(), "the tokens before it arrive");
    let (status, _) = post(&server, COMPLETIONS, json!({"prompt": "a", "max_tokens": 2})).await;
    assert_eq!(status, 200, "one failed step is not the end of the server");
}

#[tokio::test]
async fn usage_is_the_last_event_and_only_if_asked_for() {
    let server = Server::start(&["--model", "scripted"]).await;
    let ask = |options: Value| {
        json!({
            "model": "default", "prompt": "abc", "max_tokens": 3, "ignore_eos": true, "stream": true,
            "stream_options": options
        })
    };
    let with = events(&server, COMPLETIONS, ask(json!({"include_usage": true}))).await;
    let (last, before) = with.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["prompt_tokens"], 3);
    assert_eq!(last["usage"]["completion_tokens"], 3);
    assert_eq!(last["usage"]["total_tokens"], 6);
    assert!(before.iter().all(|event| event.get("usage").is_none_or(Value::is_null)));
    for options in [json!({"include_usage": false}), json!({}), json!(null)] {
        let without = events(&server, COMPLETIONS, ask(options.clone())).await;
        assert!(without.iter().all(|event| event.get("usage").is_none_or(Value::is_null)), "{options}");
    }
    let counts = |events: &[Value]| -> Vec<u64> {
        events.iter().map(|event| event["usage"]["completion_tokens"].as_u64().unwrap()).collect()
    };
    for also_last in [false, true] {
        let options = json!({"continuous_usage_stats": true, "include_usage": also_last});
        let each = counts(&events(&server, COMPLETIONS, ask(options)).await);
        assert!(each.is_sorted() && each.last() == Some(&3), "{each:?}");
        assert!(each.len() > usize::from(also_last), "{each:?}");
    }
    let mut without_stream = ask(json!({"include_usage": true}));
    without_stream["stream"] = json!(false);
    let (status, answer) = post(&server, COMPLETIONS, without_stream).await;
    assert_eq!((status, &error(&answer)["param"]), (400, &json!("stream_options")));
}

#[tokio::test]
async fn every_event_of_a_chat_has_its_place() {
    let server = Server::start_default().await;
    let ask = |fields: Value| {
        let mut body = json!({
            "model": "default", "temperature": 0, "max_tokens": 8, "stream": true, "n": 2,
            "messages": [{"role": "user", "content": "Say hi."}]
        });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    for (fields, reason) in [
        (json!({"ignore_eos": true}), "length"),
        (json!({"logit_bias": {"2": 100}}), "stop"),
        (json!({"stop": ["e", "i", "o", "a"], "max_tokens": 64}), "stop"),
    ] {
        let streamed = events(&server, CHAT, ask(fields.clone())).await;
        for key in ["id", "created", "model", "object"] {
            assert!(streamed.iter().all(|event| event[key] == streamed[0][key] && !event[key].is_null()), "{key}");
        }
        assert_eq!(streamed[0]["object"], "chat.completion.chunk");
        for index in 0..2 {
            let choices = streamed.iter().flat_map(|event| event["choices"].as_array().unwrap());
            let choices: Vec<&Value> = choices.filter(|choice| choice["index"] == index).collect();
            assert_eq!(choices[0]["delta"]["role"], "assistant", "{fields}");
            assert!(choices.iter().all(|choice| choice.get("finish_reason").is_some()), "{fields}");
            let reasons = choices.iter().map(|choice| &choice["finish_reason"]).filter(|reason| !reason.is_null());
            assert_eq!(reasons.collect::<Vec<_>>(), [reason], "{fields}");
        }
    }
}

#[tokio::test]
async fn a_silent_stream_is_kept_alive_with_comments() {
    let server = Server::start(&["--model", "scripted:step_ms=1600", "--chunked-prefill-size", "100"]).await;
    let ids: Vec<u32> = (0..800).map(|id| id % 256).collect();
    let body = json!({"model": "default", "prompt": ids, "max_tokens": 1, "ignore_eos": true, "stream": true});
    let asked = Instant::now();
    let response = send(&server, COMPLETIONS, body.to_string()).await;
    assert!(asked.elapsed() < Duration::from_secs(1), "headers do not wait for the prompt: {:?}", asked.elapsed());
    let text = response.text().await.unwrap();
    let before_data = text.split("data:").next().unwrap();
    let comments = before_data.lines().filter(|line| line.starts_with(':')).count();
    assert!(comments >= 2, "{text}");
    let bytes = stream::iter([Ok::<_, Infallible>(text.as_bytes())]);
    let parsed: Vec<String> = bytes.eventsource().map(|event| event.unwrap().data).collect().await;
    let sent: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(parsed, sent, "a client's parser passes the comments over");
}

#[tokio::test]
async fn several_prompts_are_streamed_side_by_side() {
    let server = Server::start(&["--model", "scripted"]).await;
    let sampling = json!({"temperature": 0, "max_new_tokens": 6, "ignore_eos": true});
    let ask = |stream: bool| json!({"text": ["abc", "xyz"], "sampling_params": sampling, "stream": stream});
    let whole = ok(&server, "/generate", ask(false)).await;
    let streamed = events(&server, "/generate", ask(true)).await;
    for index in 0..2 {
        let of_prompt: Vec<&Value> = streamed.iter().filter(|event| event["index"] == index).collect();
        let texts: Vec<&str> = of_prompt.iter().map(|event| event["text"].as_str().unwrap()).collect();
        assert!(texts.windows(2).all(|pair| pair[1].starts_with(pair[0])), "each says all so far: {texts:?}");
        let last = of_prompt.last().unwrap();
        assert_eq!(last["text"], whole[index]["text"]);
        assert_eq!(last["output_ids"], whole[index]["output_ids"]);
        assert_eq!(last["meta_info"]["finish_reason"], json!({"type": "length", "length": 6}));
        assert!(of_prompt.iter().rev().skip(1).all(|event| event["meta_info"]["finish_reason"].is_null()));
    }
}
