//! Logprobs of prompts and outputs, in the forms of both APIs.

use serde_json::{Value, json};

use super::{ok, refused};
use crate::support::Server;

const GENERATE: &str = "/generate";
const COMPLETIONS: &str = "/v1/completions";

/// The logprobs in a list of `[logprob, id, text]`.
fn logprobs(list: &Value) -> Vec<Option<f64>> {
    list.as_array().unwrap().iter().map(|entry| entry[0].as_f64()).collect()
}

fn ids(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|entry| entry[1].as_u64().unwrap()).collect()
}

/// What the model says of its own words after a prompt, it says of the same words inside of a prompt.
#[tokio::test]
async fn a_prompt_is_scored_as_the_same_words_are_when_they_are_said() {
    let server = Server::start_default_with(&["--chunked-prefill-size", "5"]).await;
    let said = json!({
        "text": "The capital of France is", "return_logprob": true, "top_logprobs_num": 3, "return_prompt_token_ids": true,
        "sampling_params": {"temperature": 0, "max_new_tokens": 24, "ignore_eos": true}
    });
    let said = ok(&server, GENERATE, said).await;
    assert_eq!(said["meta_info"]["input_token_logprobs"], json!([]), "-1: those of the output alone");
    let prompt = said["prompt_token_ids"].as_array().unwrap().clone();
    let whole: Vec<Value> = prompt.iter().chain(said["output_ids"].as_array().unwrap()).cloned().collect();
    let ask = |from: usize, chosen: Value| {
        json!({
            "input_ids": whole, "return_logprob": true, "top_logprobs_num": 3, "logprob_start_len": from,
            "token_ids_logprob": chosen, "return_text_in_logprobs": true,
            "sampling_params": {"temperature": 0, "max_new_tokens": 0}
        })
    };
    let from = prompt.len() - 1;
    let scored = ok(&server, GENERATE, ask(from, json!([]))).await["meta_info"].clone();
    let told = &said["meta_info"];
    assert_eq!(scored["input_token_logprobs"][0][0], Value::Null, "{scored}");
    assert_eq!(
        logprobs(&scored["input_token_logprobs"])[1..],
        logprobs(&told["output_token_logprobs"]),
        "bit by bit: the same rows, whatever they are computed with"
    );
    assert_eq!(ids(&scored["input_token_logprobs"])[1..], ids(&told["output_token_logprobs"]));
    for (place, top) in told["output_top_logprobs"].as_array().unwrap().iter().enumerate() {
        let scored = &scored["input_top_logprobs"][place + 1];
        assert_eq!((logprobs(scored), ids(scored)), (logprobs(top), ids(top)), "{place}");
    }
    assert!(scored["input_token_logprobs"][1][2].is_string() && told["output_token_logprobs"][0][2].is_null());

    let all = ok(&server, GENERATE, ask(0, json!([0, 2]))).await["meta_info"].clone();
    let list = logprobs(&all["input_token_logprobs"]);
    assert_eq!(list.len(), whole.len());
    assert!(list[0].is_none() && list[1..].iter().all(|logprob| logprob.is_some_and(|logprob| logprob <= 0.0)));
    let asked = all["input_token_ids_logprobs"].as_array().unwrap();
    assert_eq!((asked.len(), &asked[0]), (whole.len(), &Value::Null));
    assert!(asked[1..].iter().all(|entry| ids(entry) == [0, 2]), "{asked:?}");
    assert_eq!(all["output_token_logprobs"], json!([]));
}

#[tokio::test]
async fn an_echo_has_the_logprobs_of_the_prompt() {
    let server = Server::start_default().await;
    let ask = |tokens: u32| {
        json!({
            "prompt": "Radio waves travel at the speed of light.", "echo": true, "logprobs": 2, "max_tokens": tokens,
            "temperature": 0, "ignore_eos": true
        })
    };
    for tokens in [0, 3] {
        let answer = ok(&server, COMPLETIONS, ask(tokens)).await;
        let lists = &answer["choices"][0]["logprobs"];
        let prompt = answer["usage"]["prompt_tokens"].as_u64().unwrap();
        for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
            assert_eq!(lists[list].as_array().unwrap().len() as u64, prompt + u64::from(tokens), "{list}");
        }
        let token_logprobs = lists["token_logprobs"].as_array().unwrap();
        assert!(token_logprobs[0].is_null() && lists["top_logprobs"][0].is_null());
        assert!(token_logprobs[1..].iter().all(|logprob| logprob.as_f64().is_some_and(|it| it <= 0.0)), "{lists}");
        let joined: String = lists["tokens"].as_array().unwrap().iter().map(|token| token.as_str().unwrap()).collect();
        assert_eq!(answer["choices"][0]["text"], joined);
    }
}

#[tokio::test]
async fn each_prompt_of_a_list_asks_for_itself() {
    let server = Server::start(&["--model", "scripted", "--chunked-prefill-size", "3"]).await;
    let sampling = json!({"temperature": 0, "max_new_tokens": 2, "ignore_eos": true});
    let body = json!({
        "text": ["abcdefghij", "xy", "z"], "return_logprob": [true, false, true], "logprob_start_len": [4, -1, 0],
        "sampling_params": sampling
    });
    let answers = ok(&server, GENERATE, body).await;
    assert_eq!(ids(&answers[0]["meta_info"]["input_token_logprobs"]), b"efghij".map(u64::from));
    assert_eq!(answers[1]["meta_info"].get("output_token_logprobs"), None);
    assert_eq!(answers[2]["meta_info"]["input_token_logprobs"], json!([[null, u64::from(b'z'), null]]));
    assert_eq!(answers[2]["meta_info"]["output_token_logprobs"].as_array().unwrap().len(), 2);
    for (wrong, param) in [
        (json!({"text": "abc", "return_logprob": true, "logprob_start_len": 3}), "logprob_start_len"),
        (json!({"text": "abc", "return_logprob": true, "logprob_start_len": -2}), "logprob_start_len"),
        (json!({"text": "abc", "return_logprob": true, "token_ids_logprob": [257]}), "token_ids_logprob"),
        (json!({"text": "abc", "return_logprob": [true, true]}), "return_logprob"),
    ] {
        let (status, error) = refused(&server, GENERATE, wrong.clone()).await;
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{wrong}");
    }
    let many: Vec<u32> = (0..1024).map(|id| id % 257).collect();
    let large = json!({
        "text": "a".repeat(2000), "return_logprob": true, "logprob_start_len": 0, "token_ids_logprob": many
    });
    let (status, error) = refused(&server, GENERATE, large).await;
    assert_eq!((status, error["message"].as_str().unwrap().contains("1048576")), (400, true), "{error}");
}

/// Two requests that come to their first output in the same step bring more than one frame holds.
#[tokio::test]
async fn many_logprobs_at_once_reach_their_callers() {
    let server = Server::start(&["--model", "scripted", "--chunked-prefill-size", "8192"]).await;
    let chosen: Vec<u32> = (0..500).map(|id| id % 257).collect();
    let body = json!({
        "text": ["a".repeat(2000), "b".repeat(2000)], "return_logprob": true, "logprob_start_len": 0,
        "token_ids_logprob": chosen, "sampling_params": {"max_new_tokens": 1}
    });
    let answers = ok(&server, GENERATE, body).await;
    for answer in answers.as_array().unwrap() {
        let lists = answer["meta_info"]["input_token_ids_logprobs"].as_array().unwrap();
        assert_eq!((lists.len(), lists[1999].as_array().unwrap().len()), (2000, 500));
    }
}

#[tokio::test]
async fn the_best_of_several_samples_is_the_likeliest() {
    let server = Server::start_default().await;
    let ask = |fields: Value| {
        let mut body = json!({
            "prompt": ["Once upon a time", "The sky is"], "max_tokens": 6, "ignore_eos": true, "seed": 5, "logprobs": 0
        });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    let mean = |choice: &Value| {
        let list: Vec<f64> =
            choice["logprobs"]["token_logprobs"].as_array().unwrap().iter().map(|it| it.as_f64().unwrap()).collect();
        list.iter().sum::<f64>() / list.len() as f64
    };
    let all = ok(&server, COMPLETIONS, ask(json!({"n": 4}))).await;
    let best = ok(&server, COMPLETIONS, ask(json!({"n": 2, "best_of": 4}))).await;
    for prompt in 0..2 {
        let of = |answer: &Value, n: usize| answer["choices"].as_array().unwrap()[prompt * n..][..n].to_vec();
        let mut drawn = of(&all, 4);
        drawn.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
        let texts = |choices: &[Value]| choices.iter().map(|choice| choice["text"].clone()).collect::<Vec<_>>();
        assert_eq!(texts(&of(&best, 2)), texts(&drawn[..2]), "prompt {prompt}");
    }
    assert_eq!(best["usage"]["completion_tokens"], all["usage"]["completion_tokens"], "all that were drawn count");
    for wrong in [json!({"best_of": 2, "n": 3}), json!({"best_of": 2, "stream": true}), json!({"best_of": 129})] {
        let (status, error) = refused(&server, COMPLETIONS, ask(wrong.clone())).await;
        assert_eq!((status, &error["param"]), (400, &json!("best_of")), "{wrong}");
    }
}
