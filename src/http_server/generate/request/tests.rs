//! Tables of bodies: which requests they become, and which field is to blame.

use serde_json::json;

use super::*;
use crate::http_server::generate::body::parse;
use crate::io_struct::{EngineLimits, ModelInfo, ModelSource, ModelTask, TokenId};
use crate::tokenizer::Tokenizer;
use crate::tokenizer::bytes::VOCAB_SIZE;

/// A model without weights or chat template: one token a byte.
pub(crate) fn model() -> ServedModel {
    let source = ModelSource::Scripted(String::new());
    ServedModel {
        tokenizer: Tokenizer::for_source(&source).unwrap(),
        info: ModelInfo {
            source,
            name: "scripted".to_owned(),
            architecture: "scripted".to_owned(),
            task: ModelTask::Generate,
            vocab_size: VOCAB_SIZE,
            context_length: 64,
            eos_token_ids: vec![TokenId(256)],
            max_total_tokens: 64,
            kernels: None,
            kv_cache_dtype: None,
            weight_bytes: 0,
            load_seconds: 0.0,
        },
        limits: EngineLimits::default(),
        served_name: "served".to_owned(),
        chat_template: None,
    }
}

fn plan(body: &Value) -> Result<Plan, ApiError> {
    parse::<GenerateBody>(body.to_string().as_bytes())?.plan(&model())
}

fn text(text: &str) -> Prompt {
    Prompt::Text(text.to_owned())
}

fn ids(ids: &[u32]) -> Prompt {
    Prompt::Ids(ids.iter().copied().map(TokenId).collect())
}

#[test]
fn one_prompt_or_several() {
    let check = |body: Value, shape: Shape, want: &[Prompt]| {
        let plan = plan(&body).unwrap();
        let prompts: Vec<Prompt> = plan.requests.iter().map(|request| (*request.prompt).clone()).collect();
        assert_eq!((plan.shape, prompts), (shape, want.to_vec()), "{body}");
    };
    check(json!({"text": "a"}), Shape::Single, &[text("a")]);
    check(json!({"text": ["a"]}), Shape::List, &[text("a")]);
    check(json!({"text": ["a", "b"], "input_ids": null}), Shape::List, &[text("a"), text("b")]);
    check(json!({"input_ids": [0, 256]}), Shape::Single, &[ids(&[0, 256])]);
    check(json!({"input_ids": [[1], [2, 3]]}), Shape::List, &[ids(&[1]), ids(&[2, 3])]);
    check(json!({"text": "a", "sampling_params": {"n": 2}}), Shape::List, &[text("a"), text("a")]);
    check(json!({"text": "a", "nosuch": 1, "rid": null, "stream": null}), Shape::Single, &[text("a")]);
}

#[test]
fn bodies_that_are_refused() {
    let check = |body: Value, param: Option<&str>| {
        let error = plan(&body).unwrap_err();
        assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, param), "{body}: {}", error.message);
    };
    check(json!({}), Some("text"));
    check(json!({"text": "a", "input_ids": [1]}), Some("text"));
    check(json!({"text": ""}), Some("text"));
    check(json!({"text": []}), Some("text"));
    check(json!({"text": ["a", ""]}), Some("text"));
    check(json!({"text": 1}), Some("text"));
    for refused in [json!([]), json!([-1]), json!([257]), json!([1_u64 << 40]), json!([1.5]), json!([[1, 2], [257]])] {
        check(json!({"input_ids": refused}), Some("input_ids"));
    }
    for refused in [json!([[1], []]), json!([[]]), json!([1, [2]]), json!("a"), json!(["a"]), json!([null])] {
        check(json!({"input_ids": refused}), Some("input_ids"));
    }
    check(json!({"text": "a", "sampling_params": {"temperature": -1}}), Some("temperature"));
    check(json!({"text": "a", "sampling_params": {"temperature": "x"}}), Some("sampling_params.temperature"));
    check(json!({"text": "a", "sampling_params": 1}), Some("sampling_params"));
    check(json!({"text": ["a", "b"], "sampling_params": [{}]}), Some("sampling_params"));
    check(json!({"text": ["a"], "sampling_params": [[]]}), Some("sampling_params[0]"));
    check(json!({"text": ["a"], "sampling_params": [{"top_p": "x"}]}), Some("sampling_params[0].top_p"));
    check(json!({"text": "a", "rid": ""}), Some("rid"));
    check(json!({"text": "a", "rid": "x".repeat(129)}), Some("rid"));
    check(json!({"text": ["a", "b"], "rid": ["x", "x"]}), Some("rid"));
    check(json!({"text": ["a", "b"], "rid": ["x"]}), Some("rid"));
    check(json!({"text": ["a", "b"], "rid": ["x", "x-0"], "sampling_params": [{"n": 2}, {}]}), Some("rid"));
    check(json!({"text": "a", "stream": "yes"}), Some("stream"));
    check(json!({"text": "a", "return_logprob": true, "top_logprobs_num": 21}), Some("top_logprobs_num"));
    check(json!({"text": "a", "return_logprob": true, "logprob_start_len": -2}), Some("logprob_start_len"));
    for unsupported in ["image_data", "lora_path", "input_embeds", "custom_logit_processor", "session_params"] {
        check(json!({"text": "a", unsupported: "x"}), Some(unsupported));
    }
}

#[test]
fn rids_are_the_callers_or_fresh() {
    let check = |body: Value, want: &[&str]| {
        let plan = plan(&body).unwrap();
        let rids: Vec<&str> = plan.requests.iter().map(|request| request.rid.as_str()).collect();
        assert_eq!(rids, want, "{body}");
    };
    check(json!({"text": "a", "rid": "x"}), &["x"]);
    check(json!({"text": "a", "rid": ["x"]}), &["x"]);
    check(json!({"text": ["a", "b"], "rid": "x"}), &["x-0", "x-1"]);
    check(json!({"text": ["a", "b"], "rid": ["x", "y"]}), &["x", "y"]);
    check(json!({"text": "a", "rid": "x", "sampling_params": {"n": 3}}), &["x-0", "x-1", "x-2"]);
    check(json!({"text": ["a", "b"], "rid": "x", "sampling_params": {"n": 2}}), &["x-0-0", "x-0-1", "x-1-0", "x-1-1"]);
    let fresh = plan(&json!({"text": ["a", "b"]})).unwrap().requests;
    assert_ne!(fresh[0].rid, fresh[1].rid);
}

#[test]
fn each_sample_has_a_seed_of_its_own() {
    let body = json!({"text": "a", "sampling_params": {"n": 3, "sampling_seed": -2}});
    let seeds = plan(&body).unwrap().requests.into_iter().map(|request| request.sampling_params.sampling_seed);
    assert_eq!(seeds.collect::<Vec<_>>(), [Some(u64::MAX - 1), Some(u64::MAX), Some(0)]);
}

#[test]
fn each_prompt_can_have_its_own_sampling() {
    let body = json!({"text": ["a", "b"], "sampling_params": [{"max_new_tokens": 1}, {"top_k": 5}]});
    let requests = plan(&body).unwrap().requests;
    assert_eq!((requests[0].max_new_tokens, requests[1].max_new_tokens), (Some(1), None));
    assert_eq!(requests[1].sampling_params.top_k, Some(5));
}

#[test]
fn logprobs_are_counted_only_where_asked_for() {
    let check = |body: Value, want: Option<u32>| {
        assert_eq!(plan(&body).unwrap().requests[0].logprobs.as_ref().map(|wanted| wanted.top), want);
    };
    check(json!({"text": "a"}), None);
    check(json!({"text": "a", "top_logprobs_num": 3}), None);
    check(json!({"text": "a", "return_logprob": true, "logprob_start_len": -1}), Some(0));
    check(json!({"text": "a", "return_logprob": true, "top_logprobs_num": 3}), Some(3));
}

#[test]
fn one_body_asks_for_a_bounded_number_of_requests() {
    let prompts = |count: usize, n: u32| json!({"text": vec!["a"; count], "sampling_params": {"n": n}});
    let check = |body: Value, want: Result<usize, &str>| {
        let got = plan(&body).map(|plan| plan.requests.len()).map_err(|error| error.param.unwrap_or_default());
        assert_eq!(got, want.map_err(str::to_owned));
    };
    check(prompts(MAX_REQUESTS, 1), Ok(MAX_REQUESTS));
    check(prompts(MAX_REQUESTS + 1, 1), Err("text"));
    check(json!({"input_ids": vec![[1]; MAX_REQUESTS + 1]}), Err("input_ids"));
    check(prompts(MAX_REQUESTS / 64, 64), Ok(MAX_REQUESTS));
    check(prompts(MAX_REQUESTS / 64 + 1, 64), Err("n"));
}

#[test]
fn samples_share_their_prompt() {
    let plan = plan(&json!({"text": "a", "sampling_params": {"n": 3}})).unwrap();
    assert!(plan.requests.iter().all(|request| Arc::ptr_eq(&request.prompt, &plan.requests[0].prompt)));
}
