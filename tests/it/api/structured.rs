//! Output that follows a schema, a regular expression or a grammar, from the real default model.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};

use super::{events, ok, refused};
use crate::support::{Server, eventually};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const GENERATE: &str = "/generate";

/// An object of three fields, in this order.
fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "age": {"type": "integer", "minimum": 1, "maximum": 120},
            "likes": {"type": "array", "items": {"enum": ["tea", "wind", "clouds"]}, "minItems": 1, "maxItems": 3}
        },
        "required": ["name", "age", "likes"],
        "additionalProperties": false
    })
}

fn check_person(text: &Value) {
    let person: Value = serde_json::from_str(text.as_str().unwrap()).unwrap_or_else(|error| panic!("{error}: {text}"));
    let fields = person.as_object().unwrap();
    assert_eq!(fields.keys().collect::<Vec<_>>(), ["name", "age", "likes"], "{person}");
    assert!(person["name"].as_str().unwrap().chars().count() <= 12, "{person}");
    assert!((1..=120).contains(&person["age"].as_i64().unwrap()), "{person}");
    let likes = person["likes"].as_array().unwrap();
    assert!((1..=3).contains(&likes.len()), "{person}");
    assert!(likes.iter().all(|like| ["tea", "wind", "clouds"].contains(&like.as_str().unwrap())), "{person}");
}

fn asked(text: &str, params: &Value) -> Value {
    let mut sampling = json!({"max_new_tokens": 200, "temperature": 0});
    sampling.as_object_mut().unwrap().extend(params.as_object().unwrap().clone());
    json!({"text": text, "sampling_params": sampling})
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_that_follow_and_do_not_follow_run_side_by_side() {
    let server = Server::start_default().await;
    let free = asked("The capital of France is", &json!({"max_new_tokens": 40, "ignore_eos": true}));
    let alone = ok(&server, GENERATE, free.clone()).await["output_ids"].clone();
    let schema = person();
    let bodies = [
        free.clone(),
        asked("A person as JSON:", &json!({"json_schema": schema})),
        asked("A person as JSON:", &json!({"json_schema": schema.to_string(), "temperature": 1.5, "sampling_seed": 7})),
        asked("A date:", &json!({"regex": "[12][0-9]{3}-[01][0-9]-[0-3][0-9]"})),
        asked("Yes or no?", &json!({"ebnf": "root ::= (\"yes\" | \"no\") \"!\""})),
        asked("Yes or no?", &json!({"ebnf": "start: (\"yes\" | \"no\") \"!\"", "top_k": 3, "temperature": 1})),
        asked("Count:", &json!({"regex": "(1, 2, 3, )+", "max_new_tokens": 30, "temperature": 1, "top_p": 0.9})),
        free,
    ];
    let answers = join_all(bodies.into_iter().map(|body| ok(&server, GENERATE, body))).await;
    let text = |i: usize| answers[i]["text"].as_str().unwrap();
    for i in [0, 7] {
        assert_eq!(answers[i]["output_ids"], alone, "whoever else runs");
    }
    for i in [1, 2] {
        check_person(&answers[i]["text"]);
        assert_eq!(answers[i]["meta_info"]["finish_reason"], json!({"type": "stop", "matched": null}));
    }
    let date: Vec<&str> = text(3).split('-').collect();
    assert!(date.len() == 3 && date.iter().all(|part| part.bytes().all(|b| b.is_ascii_digit())), "{}", text(3));
    for i in [4, 5] {
        assert!(["yes!", "no!"].contains(&text(i)), "{}", text(i));
    }
    assert!(text(6).starts_with("1, 2, 3, ") && text(6).len() >= 30, "{}", text(6));
    assert_eq!(server.metric_with("radiosonde_grammars_total", &[("field", "regex"), ("outcome", "ok")]).await, 2.0);
    let waited = async || server.metric("radiosonde_grammar_wait_time_seconds_total").await > 0.0;
    eventually(Duration::from_secs(5), waited).await;
}

#[tokio::test]
async fn a_response_format_is_followed_at_once_and_as_a_stream() {
    let server = Server::start_default().await;
    let format = json!({"type": "json_schema", "json_schema": {"name": "person", "strict": true, "schema": person()}});
    let messages = json!([{"role": "user", "content": "Tell me of a person."}]);
    let mut body = json!({
        "model": "default", "messages": messages, "temperature": 0, "max_tokens": 200, "response_format": format,
        "logprobs": true, "top_logprobs": 3
    });
    let answer = ok(&server, CHAT, body.clone()).await;
    let choice = &answer["choices"][0];
    check_person(&choice["message"]["content"]);
    assert_eq!(choice["finish_reason"], "stop");
    for entry in choice["logprobs"]["content"].as_array().unwrap() {
        let logprob = entry["logprob"].as_f64().unwrap();
        assert!((-1000.0..=0.0).contains(&logprob), "of what the grammar allows: {entry}");
        let top = &entry["top_logprobs"][0]["logprob"];
        assert_eq!(top.as_f64().unwrap(), logprob, "greedy: the likeliest of them, {entry}");
    }
    body["stream"] = json!(true);
    let events = events(&server, CHAT, body).await;
    let text: String = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(json!(text), choice["message"]["content"]);
    let body = json!({
        "prompt": "An object: ", "temperature": 0, "max_tokens": 60, "regex": null,
        "response_format": {"type": "json_object"}
    });
    let answer = ok(&server, COMPLETIONS, body).await;
    assert!(answer["choices"][0]["text"].as_str().unwrap().starts_with('{'), "{answer}");
    let body = json!({"prompt": "A digit: ", "max_tokens": 9, "regex": "[0-9]", "n": 3, "min_tokens": 5});
    let answer = ok(&server, COMPLETIONS, body).await;
    for choice in answer["choices"].as_array().unwrap() {
        assert!(choice["text"].as_str().unwrap().parse::<u8>().is_ok_and(|digit| digit < 10), "{choice}");
        assert_eq!((&choice["finish_reason"], &choice["matched_stop"]), (&json!("stop"), &Value::Null));
    }
}

/// The prompt shows the tag, and the schema asks for a field that the prompt has not.
#[tokio::test(flavor = "multi_thread")]
async fn free_text_has_tags_that_follow_their_schema() {
    let server = Server::start_default().await;
    let schema = json!({
        "type": "object",
        "properties": {"city": {"enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"],
        "additionalProperties": false
    });
    let tags = json!({
        "type": "structural_tag",
        "structures": [{"begin": "<weather>", "schema": schema, "end": "</weather>"}],
        "triggers": ["<weather>"]
    });
    let shown =
        |city: &str| format!("Q: The weather in {city}?\nA: Let me see. <weather>{{\"city\": \"{city}\"}}</weather>\n");
    let prompt = format!("{}{}{}Q: The weather in Rome?\nA:", shown("Paris"), shown("Berlin"), shown("Madrid"));
    let native = asked(&prompt, &json!({"structural_tag": tags.to_string(), "max_new_tokens": 60, "stop": ["\nQ:"]}));
    let native = ok(&server, GENERATE, native).await["text"].clone();
    let body = json!({
        "model": "default", "prompt": prompt, "temperature": 0, "max_tokens": 60, "stop": ["\nQ:"], "response_format": tags,
    });
    let answer = ok(&server, COMPLETIONS, body).await;
    assert_eq!(answer["choices"][0]["text"], native);
    let text = native.as_str().unwrap();
    let (free, rest) = text.split_once("<weather>").unwrap_or_else(|| panic!("no tag in {text:?}"));
    assert!(free.contains("Let me see"), "{text:?}");
    let (inside, _) = rest.split_once("</weather>").unwrap_or_else(|| panic!("no end in {text:?}"));
    let inside: Value = serde_json::from_str(inside).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    assert_eq!(inside["city"], "Rome", "{text:?}");
    assert!((1..=9).contains(&inside["days"].as_i64().unwrap()), "{text:?}");
    let labels = [("field", "structural_tag"), ("outcome", "ok")];
    assert_eq!(server.metric_with("radiosonde_grammars_total", &labels).await, 1.0);
}

#[tokio::test]
async fn a_grammar_that_cannot_be_followed_is_a_400_by_its_field() {
    let server = Server::start(&["--model=scripted"]).await;
    let deep = |open: &str| open.repeat(50_000);
    for (params, field) in [
        (json!({"json_schema": "{"}), "json_schema"),
        (json!({"json_schema": {"type": "nosuch"}}), "json_schema"),
        (json!({"json_schema": {"type": "string", "pattern": "("}}), "json_schema"),
        (json!({"json_schema": {"$ref": "#/nosuch"}}), "json_schema"),
        (
            json!({"json_schema": {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}}}),
            "json_schema",
        ),
        (json!({"json_schema": deep("[")}), "json_schema"),
        (json!({"regex": "("}), "regex"),
        (json!({"regex": deep("(")}), "regex"),
        (json!({"ebnf": "("}), "ebnf"),
        (json!({"ebnf": format!("start: {}", deep("("))}), "ebnf"),
        (json!({"ebnf": "root ::= nosuch"}), "ebnf"),
        (json!({"regex": "a", "json_schema": {}}), "regex"),
        (json!({"structural_tag": "x"}), "structural_tag"),
        (json!({"structural_tag": {"structures": [], "triggers": ["<"]}}), "structural_tag"),
        (json!({"structural_tag": {"format": {"type": "sequence", "elements": []}}}), "structural_tag"),
    ] {
        let (status, error) = refused(&server, GENERATE, asked("a", &params)).await;
        assert_eq!((status, &error["param"]), (400, &json!(field)), "{field}: {error}");
        assert!(error["message"].as_str().unwrap().contains(field), "{error}");
    }
    for format in [
        json!({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nosuch"}}}),
        json!({"type": "x"}),
        json!({"type": "structural_tag"}),
    ] {
        let body = json!({"model": "default", "prompt": "a", "response_format": format});
        let (status, error) = refused(&server, COMPLETIONS, body).await;
        assert_eq!((status, &error["param"]), (400, &json!("response_format")));
    }
    assert_eq!(server.metric("radiosonde_num_requests_total").await, 0.0, "nothing was scheduled");
    let labels = [("field", "ebnf"), ("outcome", "refused")];
    assert_eq!(server.metric_with("radiosonde_grammars_total", &labels).await, 3.0);
    // It compiles, and is found to be too much when it is followed.
    let (status, error) =
        refused(&server, GENERATE, asked("a", &json!({"regex": "((a{1,1000}){1,1000}){1,1000}"}))).await;
    assert_eq!((status, &error["param"]), (400, &json!("regex")), "{error}");
    assert!(error["message"].as_str().unwrap().starts_with("regex cannot be followed: "), "{error}");
    let digits = ok(&server, GENERATE, asked("a", &json!({"regex": "[0-9]{4}"}))).await;
    assert!(digits["text"].as_str().unwrap().parse::<u16>().is_ok(), "{digits}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_too_small_costs_no_output_its_grammar() {
    let model = crate::support::real_model().await;
    let tight = ["--model", model.to_str().unwrap(), "--chunked-prefill-size=5", "--max-total-tokens=320"];
    let server = Server::start(&tight).await;
    let ask = |i: usize| asked(&format!("A list of {i} numbers:"), &json!({"regex": "\\[([0-9]{3},){20}[0-9]{3}\\]"}));
    for answer in join_all((0..6).map(ask).map(|body| ok(&server, GENERATE, body))).await {
        let numbers: Vec<String> =
            answer["text"].as_str().unwrap().trim_matches(['[', ']']).split(',').map(str::to_owned).collect();
        assert!(numbers.len() == 21 && numbers.iter().all(|number| number.len() == 3), "{answer}");
    }
    assert!(server.metric("radiosonde_num_retractions_total").await > 0.0, "the pool was meant to be too small");
}
