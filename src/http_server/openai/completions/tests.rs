//! What a client of the completions API reads.

use expect_test::expect;

use super::*;
use crate::http_server::generate::body::parse;
use crate::http_server::generate::exchange::tests::{read, request, token};
use crate::http_server::generate::request::tests::model;
use crate::http_server::sampling::SamplingFields;
use crate::io_struct::{FinishReason, TokenLogprob};

const USAGE_LAST: UsageIn = UsageIn { last: true, each: false };
const NO_USAGE: UsageIn = UsageIn { last: false, each: false };

fn reply(n: usize) -> Reply {
    Reply { id: "cmpl-r".to_owned(), created: 7, model: Arc::new(model()), n }
}

fn choice(reply: &Reply, stream: &RequestStream, echo: bool, logprobs: bool) -> Choice {
    let echo = echo.then(|| Echo::new(reply, stream, &Prompt::Text("\u{1}".to_owned())));
    Choice { echo, logprobs: logprobs.then(CompletionLogprobs::default), usage: Usage::default() }
}

fn counted(output: GenerateOutput) -> GenerateOutput {
    let usage = Usage { prompt_tokens: 1, completion_tokens: 1, cached_tokens: 1, num_retractions: 0 };
    GenerateOutput { usage, ..output }
}

#[tokio::test]
async fn a_stream_ends_with_usage_if_asked() {
    let (state, stream) = request();
    let reply = reply(1);
    let choices = vec![choice(&reply, &stream, false, false)];
    state.push(counted(token(104, "h", Some(FinishReason::Length(1)))));
    let events =
        read(stream_response(vec![stream], CompletionChunks { reply, choices, usage_wanted: USAGE_LAST })).await;
    expect![[r#"
        {"id":"cmpl-r","object":"text_completion","created":7,"model":"served","choices":[{"index":0,"text":"h","logprobs":null,"finish_reason":"length","matched_stop":null}]}
        {"id":"cmpl-r","object":"text_completion","created":7,"model":"served","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"prompt_tokens_details":{"cached_tokens":1}}}
        [DONE]
    "#]].assert_eq(&events);
}

#[tokio::test]
async fn a_stream_without_usage_has_none_and_no_chunk_for_half_a_character() {
    let (state, stream) = request();
    let reply = reply(1);
    let choices = vec![choice(&reply, &stream, false, false)];
    let mut chunks = CompletionChunks { reply, choices, usage_wanted: NO_USAGE };
    assert!(chunks.news(0, token(0xF0, "", None)).is_empty());
    state.push(token(104, "h", Some(FinishReason::Length(1))));
    let events = read(stream_response(vec![stream], chunks)).await;
    assert_eq!((events.lines().count(), events.matches("usage").count()), (2, 0));
}

#[test]
fn an_echo_stands_in_front_once() {
    let (_state, stream) = request();
    let reply = reply(1);
    let mut choice = choice(&reply, &stream, true, true);
    let entry = TokenLogprob { token: TokenId(104), logprob: -0.5, top: vec![(TokenId(104), -0.5)], asked: vec![] };
    let news = GenerateOutput { logprobs: vec![entry], ..token(104, "h", None) };
    let first = choice.piece(&reply, 0, &news);
    assert_eq!(first["text"], "\u{1}h");
    let logprobs = json!({
        "tokens": ["\u{1}", "h"], "token_logprobs": [null, -0.5], "top_logprobs": [null, {"h": -0.5}],
        "text_offset": [0, 1]
    });
    assert_eq!(first["logprobs"], logprobs);
    let second = choice.piece(&reply, 0, &news);
    assert_eq!((&second["text"], &second["logprobs"]["text_offset"]), (&json!("h"), &json!([2])));
}

#[test]
fn a_prompt_counts_once_however_often_it_is_sampled() {
    let outputs = || vec![counted(token(104, "h", Some(FinishReason::Length(1)))); 4];
    let (_state, stream) = request();
    let answer = |n| {
        let reply = reply(n);
        let choices = (0..4).map(|_| choice(&reply, &stream, false, false)).collect();
        let choices: Vec<Choice> = choices;
        whole(&reply, n, choices.into_iter().zip(outputs()).collect())
    };
    let usage = |prompt: u32| {
        json!({
            "prompt_tokens": prompt, "completion_tokens": 4, "total_tokens": prompt + 4,
            "prompt_tokens_details": {"cached_tokens": prompt}
        })
    };
    assert_eq!(answer(1)["usage"], usage(4));
    assert_eq!(answer(2)["usage"], usage(2));
    assert_eq!(answer(4)["usage"], usage(1));
    let indices: Vec<_> = answer(2)["choices"].as_array().unwrap().iter().map(|c| c["index"].clone()).collect();
    assert_eq!(indices, [0, 1, 2, 3]);
}

#[test]
fn prompts_in_all_their_forms() {
    let check = |prompt: Value, want: Result<usize, &str>| {
        let body: CompletionsBody = match parse(json!({"prompt": prompt}).to_string().as_bytes()) {
            Ok(body) => body,
            Err(error) => return assert_eq!(error.param.as_deref(), want.err(), "{prompt}"),
        };
        let got = body.prompts(&model()).map(|prompts| prompts.len()).map_err(|error| error.param);
        assert_eq!(got, want.map_err(|param| Some(param.to_owned())), "{prompt}");
    };
    check(json!("a"), Ok(1));
    check(json!(["a", "b"]), Ok(2));
    check(json!([1, 2, 3]), Ok(1));
    check(json!([[1, 2], [3]]), Ok(2));
    for refused in [json!(null), json!(""), json!([]), json!([""]), json!(["a", ""]), json!([[]]), json!([[1], []])] {
        check(refused, Err("prompt"));
    }
    for refused in
        [json!([257]), json!([-1]), json!([1.5]), json!([[1], [257]]), json!(1), json!({"a": 1}), json!([1, "a"])]
    {
        check(refused, Err("prompt"));
    }
}

#[test]
fn bodies_that_are_refused() {
    let check = |body: Value, param: Option<&str>| {
        let bytes = body.to_string().into_bytes();
        let fields: SamplingFields = parse(&bytes).unwrap();
        let sampling = fields.check(RequestEndpoint::Completions, 257).unwrap();
        let body: CompletionsBody = parse(&bytes).unwrap();
        let samples = |delivery| body.samples(sampling.n, delivery).map(drop);
        let refused =
            body.refuse_unsupported().and(body.top_logprobs().map(drop)).and(body.delivery().and_then(samples));
        assert_eq!(refused.err().and_then(|error| error.param).as_deref(), param);
    };
    check(json!({"best_of": null, "suffix": null, "suffix": ""}), None);
    check(json!({"best_of": 2, "n": 2}), None);
    check(json!({"best_of": 2}), None);
    check(json!({"best_of": 2, "stream": true}), Some("best_of"));
    check(json!({"best_of": 2, "n": 2, "stream": true}), None);
    check(json!({"best_of": 129}), Some("best_of"));
    check(json!({"best_of": 1, "n": 2}), Some("best_of"));
    check(json!({"suffix": "x"}), Some("suffix"));
    check(json!({"prompt_logprobs": 1}), Some("prompt_logprobs"));
    check(json!({"logprobs": 21}), Some("logprobs"));
    check(json!({"logprobs": -1}), Some("logprobs"));
    check(json!({"stream_options": {"include_usage": true}}), Some("stream_options"));
    check(json!({"stream": false, "stream_options": {}}), Some("stream_options"));
    check(json!({"stream": true, "stream_options": {"include_usage": null}}), None);
    check(json!({"stream_options": null}), None);
}

#[test]
fn the_best_samples_of_each_prompt_are_chosen() {
    let (_state, stream) = request();
    let reply = reply(3);
    let sample = |text: &str, logprobs: &[f32]| {
        let entry = |logprob: &f32| TokenLogprob { token: TokenId(104), logprob: *logprob, top: vec![], asked: vec![] };
        let logprobs = logprobs.iter().map(entry).collect();
        let output = GenerateOutput { logprobs, ..counted(token(104, text, Some(FinishReason::Length(1)))) };
        (choice(&reply, &stream, false, false), output)
    };
    let samples = vec![
        sample("long and likely", &[-0.1, -0.1, -0.1]),
        sample("short", &[-0.2]),
        sample("likeliest", &[-0.05]),
        sample("nothing", &[]),
        sample("good", &[-1.0]),
        sample("better", &[-0.5, -0.7]),
    ];
    let answer = whole(&reply, 2, samples);
    let texts: Vec<&str> =
        answer["choices"].as_array().unwrap().iter().map(|choice| choice["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["likeliest", "long and likely", "better", "good"]);
    assert_eq!(answer["choices"][3]["index"], 3);
    assert_eq!((&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]), (&json!(2), &json!(6)));
}
