//! Tables of bodies: what they become, and which field is to blame.

use serde_json::json;

use super::*;

const VOCAB: u32 = 100;

fn parse(endpoint: RequestEndpoint, body: Value) -> Result<Sampling, ApiError> {
    serde_json::from_value::<SamplingFields>(body).unwrap().check(endpoint, VOCAB)
}

fn native(body: Value) -> Sampling {
    parse(RequestEndpoint::Generate, body).unwrap()
}

#[test]
fn a_field_that_is_left_out_or_null_has_the_apis_default() {
    for body in [json!({}), json!({"temperature": null, "top_k": null, "stop": null, "n": null, "json_schema": null})] {
        assert_eq!(native(body.clone()), Sampling { params: SamplingParams::default(), max_new_tokens: None, n: 1 });
        let most = |endpoint| parse(endpoint, body.clone()).unwrap().params.max_new_tokens;
        assert_eq!(most(RequestEndpoint::Completions), 16);
        assert_eq!(most(RequestEndpoint::ChatCompletions), u32::MAX);
    }
}

#[test]
fn every_field_arrives() {
    let body = json!({
        "max_new_tokens": 9, "min_new_tokens": 2, "temperature": 0.5, "top_p": 0.25, "top_k": 7, "min_p": 0.125,
        "frequency_penalty": -2, "presence_penalty": 2, "repetition_penalty": 1.5, "stop": ["a", "b"],
        "stop_token_ids": [3, 99], "ignore_eos": true, "skip_special_tokens": false, "no_stop_trim": true,
        "logit_bias": {"5": -100, "6": 1.5}, "sampling_seed": -1, "n": 3, "nosuch": {"field": 1}
    });
    let params = SamplingParams {
        max_new_tokens: 9,
        min_new_tokens: 2,
        temperature: 0.5,
        top_p: 0.25,
        top_k: Some(7),
        min_p: 0.125,
        frequency_penalty: -2.0,
        presence_penalty: 2.0,
        repetition_penalty: 1.5,
        stop: vec!["a".to_owned(), "b".to_owned()],
        stop_token_ids: vec![TokenId(3), TokenId(99)],
        ignore_eos: true,
        skip_special_tokens: false,
        no_stop_trim: true,
        logit_bias: vec![(TokenId(5), -100.0), (TokenId(6), 1.5)],
        grammar: None,
        sampling_seed: Some(u64::MAX),
    };
    assert_eq!(native(body), Sampling { params, max_new_tokens: Some(9), n: 3 });
}

#[test]
fn openai_has_its_own_names() {
    let check = |body: Value, want: Option<u32>| {
        let sampling = parse(RequestEndpoint::ChatCompletions, body.clone()).unwrap();
        assert_eq!(sampling.max_new_tokens, want, "{body}");
    };
    check(json!({"max_tokens": 5}), Some(5));
    check(json!({"max_completion_tokens": 6}), Some(6));
    check(json!({"max_tokens": 5, "max_completion_tokens": 6}), Some(6));
    check(json!({"max_tokens": 0}), Some(0));
    check(json!({"max_new_tokens": 5}), None);
    let sampling = parse(RequestEndpoint::Completions, json!({"seed": 4, "min_tokens": 1, "stop": "x"})).unwrap();
    assert_eq!((sampling.params.sampling_seed, sampling.params.min_new_tokens), (Some(4), 1));
    assert_eq!(sampling.params.stop, ["x"]);
}

#[test]
fn values_at_the_edge_are_taken() {
    assert!(native(json!({"temperature": 1e-7, "top_p": 0.95})).params.is_greedy());
    assert!(!native(json!({"temperature": 1e-4})).params.is_greedy());
    assert_eq!(native(json!({"top_k": -1})).params.top_k, None);
    assert_eq!(native(json!({"top_k": 1})).params.top_k, Some(1));
    for body in [
        json!({"temperature": 1000}),
        json!({"top_p": 1}),
        json!({"min_p": 1}),
        json!({"repetition_penalty": 2}),
        json!({"max_new_tokens": 0}),
        json!({"stop": []}),
        json!({"stop": vec!["x"; 32]}),
        json!({"stop": vec!["x".repeat(128); 32]}),
        json!({"stop_token_ids": vec![1; 1024]}),
        json!({"n": 128}),
        json!({"response_format": {"type": "text"}}),
        json!({"regex": "", "use_beam_search": false, "json_schema": null}),
    ] {
        native(body);
    }
}

#[test]
fn values_out_of_range_name_field_and_limit() {
    let check = |body: Value, param: &str, limit: &str| {
        let error = parse(RequestEndpoint::Generate, body.clone()).unwrap_err();
        assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some(param)), "{body}");
        assert!(error.message.contains(param) && error.message.contains(limit), "{body}: {}", error.message);
    };
    check(json!({"temperature": -1}), "temperature", "at least 0");
    check(json!({"temperature": 1e300}), "temperature", "a number");
    check(json!({"top_p": 0}), "top_p", "above 0");
    check(json!({"top_p": 1.1}), "top_p", "at most 1");
    check(json!({"top_p": 1e-300}), "top_p", "above 0");
    check(json!({"top_k": 0}), "top_k", "-1");
    check(json!({"top_k": -2}), "top_k", "at least 1");
    check(json!({"min_p": -0.1}), "min_p", "from 0 to 1");
    check(json!({"min_p": 1.1}), "min_p", "from 0 to 1");
    check(json!({"frequency_penalty": 2.1}), "frequency_penalty", "from -2 to 2");
    check(json!({"presence_penalty": -2.1}), "presence_penalty", "from -2 to 2");
    check(json!({"repetition_penalty": 0}), "repetition_penalty", "above 0");
    check(json!({"repetition_penalty": 2.1}), "repetition_penalty", "at most 2");
    check(json!({"max_new_tokens": -1}), "max_new_tokens", "from 0");
    check(json!({"max_new_tokens": 1_u64 << 40}), "max_new_tokens", "4294967295");
    check(json!({"max_new_tokens": 3, "min_new_tokens": 4}), "min_new_tokens", "from 0 to 3");
    check(json!({"min_new_tokens": -1}), "min_new_tokens", "from 0");
    check(json!({"stop": vec!["x"; 33]}), "stop", "32");
    check(json!({"stop": ["a", ""]}), "stop", "empty");
    check(json!({"stop": "x".repeat(4097)}), "stop", "4097 bytes in all; the limit is 4096");
    check(json!({"stop": ["x".repeat(4000), "é".repeat(50)]}), "stop", "4100 bytes");
    check(json!({"stop_token_ids": vec![1; 1025]}), "stop_token_ids", "1025 ids; the limit is 1024");
    let biased: BTreeMap<String, f64> = (0..=4096).map(|id| (id.to_string(), 1.0)).collect();
    check(json!({"logit_bias": biased}), "logit_bias", "4097 entries; the limit is 4096");
    check(json!({"stop_token_ids": [100]}), "stop_token_ids", "from 0 to 99");
    check(json!({"stop_token_ids": [-1]}), "stop_token_ids", "from 0 to 99");
    check(json!({"logit_bias": {"100": 1}}), "logit_bias", "from 0 to 99");
    check(json!({"logit_bias": {"x": 1}}), "logit_bias", "'x'");
    check(json!({"logit_bias": {"-1": 1}}), "logit_bias", "'-1'");
    check(json!({"logit_bias": {"1": 101}}), "logit_bias", "from -100 to 100");
    check(json!({"n": 0}), "n", "from 1 to 128");
    check(json!({"n": 129}), "n", "from 1 to 128");
}

#[test]
fn what_is_not_supported_is_refused_and_never_ignored() {
    let check = |body: Value, param: &str| {
        let error = parse(RequestEndpoint::ChatCompletions, body).unwrap_err();
        assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some(param)));
        assert!(error.message.contains("not supported"), "{}", error.message);
    };
    for field in ["stop_regex", "guided_json", "guided_regex", "guided_grammar", "guided_choice", "structured_outputs"]
    {
        check(json!({field: "x"}), field);
        check(json!({field: {"x": 1}}), field);
    }
    check(json!({"beam_width": 4}), "beam_width");
    check(json!({"use_beam_search": true}), "use_beam_search");
    check(json!({"response_format": {"type": "nosuch"}}), "response_format");
}
