//! What a body may say, and what is said of one that is wrong.

use reqwest::Method;
use serde_json::{Value, json};

use super::{error, get, json, ok, post, refused, send};
use crate::support::Server;

const GENERATE: &str = "/generate";
const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

async fn is_alive(server: &Server) {
    assert_eq!(get(server, Method::GET, "/health").await.0, 200);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_a_400_in_the_one_shape() {
    let server = Server::start(&["--model", "scripted"]).await;
    for path in [GENERATE, COMPLETIONS, CHAT] {
        for body in ["{\"model\":", "", "[]", "null", "{\"max_tokens\":\"x\"}", "{\"sampling_params\":3}", "{}"] {
            let (status, answer) = json(send(&server, path, body).await).await;
            assert_eq!((status, &error(&answer)["type"]), (400, &json!("invalid_request_error")), "{path} {body}");
        }
    }
    let plain = server.client().post(server.url(GENERATE)).body("{\"text\":\"a\"}").send().await.unwrap();
    let (status, answer) = json(plain).await;
    assert_eq!(status, 415);
    error(&answer);
}

#[tokio::test]
async fn a_wrong_path_or_method_has_the_one_shape() {
    let server = Server::start(&["--model", "scripted"]).await;
    for (method, path, want) in [
        (Method::GET, GENERATE, 405),
        (Method::DELETE, CHAT, 405),
        (Method::POST, "/v1/models", 405),
        (Method::GET, "/nosuch", 404),
        (Method::POST, "/v1/nosuch", 404),
    ] {
        let (status, answer) = get(&server, method.clone(), path).await;
        assert_eq!(status, want, "{method} {path}");
        error(&answer);
    }
}

#[tokio::test]
async fn the_model_has_a_name_and_answers_to_default() {
    let server =
        Server::start(&["--model", "scripted", "--served-model-name", "org/mine", "--context-length", "64"]).await;
    let (status, list) = get(&server, Method::GET, "/v1/models").await;
    assert_eq!((status, &list["data"][0]["id"]), (200, &json!("org/mine")));
    assert_eq!(list["data"][0]["max_model_len"], 64);
    for (name, want) in [("org/mine", 200), ("default", 200), ("nope", 404)] {
        assert_eq!(get(&server, Method::GET, &format!("/v1/models/{name}")).await.0, want, "{name}");
        let body = json!({"model": name, "prompt": "a", "max_tokens": 1});
        let (status, answer) = post(&server, COMPLETIONS, body).await;
        assert_eq!(status, want, "{answer}");
        if want == 404 {
            assert_eq!(error(&answer)["code"], "model_not_found");
        } else {
            assert_eq!(answer["model"], "org/mine");
        }
    }
    ok(&server, COMPLETIONS, json!({"prompt": "a", "max_tokens": 1})).await;
}

#[tokio::test]
async fn null_is_as_good_as_absent() {
    let server = Server::start_default().await;
    let messages = json!([{"role": "user", "content": "a"}]);
    let plain = json!({"model": "default", "messages": messages, "temperature": 0, "max_tokens": 8});
    let mut nulls = plain.clone();
    for field in [
        "max_completion_tokens",
        "response_format",
        "stop",
        "seed",
        "logit_bias",
        "tools",
        "tool_choice",
        "stream",
        "stream_options",
        "top_p",
        "top_k",
        "user",
        "n",
        "logprobs",
        "top_logprobs",
        "frequency_penalty",
        "presence_penalty",
        "min_p",
        "metadata",
        "audio",
        "rid",
    ] {
        nulls[field] = Value::Null;
    }
    let text = |answer: &Value| answer["choices"][0]["message"]["content"].clone();
    assert_eq!(text(&ok(&server, CHAT, nulls).await), text(&ok(&server, CHAT, plain).await));
}

#[tokio::test]
async fn an_empty_prompt_is_a_400_and_nothing_else() {
    let server = Server::start_default().await;
    for (path, body) in [
        (GENERATE, json!({"text": ""})),
        (GENERATE, json!({"text": ["a", ""]})),
        (GENERATE, json!({"input_ids": []})),
        (GENERATE, json!({"input_ids": [[1], []]})),
        (COMPLETIONS, json!({"prompt": ""})),
        (COMPLETIONS, json!({"prompt": [""]})),
        (COMPLETIONS, json!({"prompt": []})),
        (CHAT, json!({"messages": []})),
    ] {
        assert_eq!(refused(&server, path, body.clone()).await.0, 400, "{path} {body}");
    }
    is_alive(&server).await;
}

#[tokio::test]
async fn an_id_outside_of_the_vocabulary_is_a_400_and_nothing_else() {
    let server = Server::start(&["--model", "scripted"]).await;
    let wrong =
        [json!([257]), json!([-1]), json!([1_u64 << 40]), json!([1.5]), json!([[1, 2], [257]]), json!([[1, 2], [-1]])];
    for ids in wrong {
        assert_eq!(refused(&server, GENERATE, json!({"input_ids": ids})).await.0, 400, "{ids}");
        assert_eq!(refused(&server, COMPLETIONS, json!({"prompt": ids})).await.0, 400, "{ids}");
    }
    is_alive(&server).await;
    let last = json!({"input_ids": [256], "sampling_params": {"max_new_tokens": 1}});
    assert_eq!(ok(&server, GENERATE, last).await["meta_info"]["prompt_tokens"], 1);
}

#[tokio::test]
async fn unknown_fields_are_ignored_and_known_extensions_obeyed() {
    let server = Server::start_default().await;
    let body = json!({
        "model": "default", "prompt": "a", "max_tokens": 8, "ignore_eos": true, "top_k": 5, "min_p": 0.1,
        "repetition_penalty": 1.1, "foo": 1, "store": false, "metadata": {}
    });
    let answer = ok(&server, COMPLETIONS, body).await;
    assert_eq!(answer["usage"]["completion_tokens"], 8);
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn temperature_zero_is_greedy_whatever_else_is_asked() {
    let server = Server::start_default().await;
    let ask = |params: Value| json!({"text": "Once upon a time", "sampling_params": params});
    let greedy = ok(&server, GENERATE, ask(json!({"temperature": 0, "max_new_tokens": 8}))).await["text"].clone();
    for temperature in [json!(0), json!(1e-7)] {
        for _ in 0..10 {
            let params = json!({"temperature": temperature, "top_p": 0.95, "top_k": 50, "max_new_tokens": 8});
            assert_eq!(ok(&server, GENERATE, ask(params)).await["text"], greedy, "{temperature}");
        }
    }
    let cold = json!({"temperature": 1e-4, "max_new_tokens": 4, "ignore_eos": true});
    assert_ne!(ok(&server, GENERATE, ask(cold)).await["text"], "");
    ok(&server, GENERATE, ask(json!({"top_k": -1, "max_new_tokens": 1}))).await;
    for (params, param) in
        [(json!({"temperature": -1}), "temperature"), (json!({"top_p": 0}), "top_p"), (json!({"top_k": 0}), "top_k")]
    {
        let (status, error) = refused(&server, GENERATE, ask(params)).await;
        assert_eq!((status, &error["param"]), (400, &json!(param)));
    }
}

#[tokio::test]
async fn an_echo_stands_in_front_of_the_completion() {
    let server = Server::start(&["--model", "scripted"]).await;
    let ask = json!({"prompt": "a b", "echo": true, "logprobs": 1, "max_tokens": 2, "ignore_eos": true});
    let answer = ok(&server, COMPLETIONS, ask).await;
    let choice = &answer["choices"][0];
    assert!(choice["text"].as_str().unwrap().starts_with("a b"), "{choice}");
    for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(choice["logprobs"][list].as_array().unwrap().len(), 3 + 2, "{list}");
    }
    assert_eq!(choice["logprobs"]["token_logprobs"][0], Value::Null);
    let offsets: Vec<u64> =
        choice["logprobs"]["text_offset"].as_array().unwrap().iter().map(|o| o.as_u64().unwrap()).collect();
    assert!(offsets[0] == 0 && offsets.is_sorted(), "{offsets:?}");
}

#[tokio::test]
async fn several_prompts_and_samples_come_back_in_order() {
    let server = Server::start(&["--model", "scripted"]).await;
    let sampling = json!({"temperature": 0, "max_new_tokens": 3, "ignore_eos": true});
    let alone = |text: &str| json!({"text": text, "sampling_params": sampling});
    let list = ok(&server, GENERATE, json!({"text": ["abc", "x"], "sampling_params": sampling, "rid": "r"})).await;
    for (index, text) in ["abc", "x"].into_iter().enumerate() {
        assert_eq!(list[index]["text"], ok(&server, GENERATE, alone(text)).await["text"]);
        assert_eq!(list[index]["meta_info"]["id"], format!("r-{index}"));
    }
    let body = json!({"prompt": ["abc", "x"], "n": 2, "max_tokens": 3, "ignore_eos": true, "temperature": 0});
    let answer = ok(&server, COMPLETIONS, body).await;
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|choice| choice["index"].clone()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(choices[0]["text"], choices[1]["text"]);
    assert_eq!(answer["usage"], usage(3 + 1, 4 * 3, &answer));
    let (status, error) = refused(&server, GENERATE, json!({"text": ["a", "b"], "rid": ["x", "x"]})).await;
    assert_eq!((status, &error["param"]), (400, &json!("rid")));
}

fn usage(prompt: u64, completion: u64, answer: &Value) -> Value {
    json!({
        "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
        "prompt_tokens_details": answer["usage"]["prompt_tokens_details"]
    })
}

#[tokio::test]
async fn put_is_as_good_as_post() {
    let server = Server::start(&["--model", "scripted"]).await;
    let body = json!({"text": "a", "sampling_params": {"max_new_tokens": 1}});
    let response = server.client().put(server.url(GENERATE)).json(&body).send().await.unwrap();
    assert_eq!(json(response).await.0, 200);
}
