//! What the answer of `/generate` looks like.

use expect_test::{Expect, expect};

use super::*;
use crate::http_server::generate::exchange::stream_response;
use crate::http_server::generate::exchange::tests::{read, request, token};
use crate::http_server::generate::request::tests::model;
use crate::io_struct::{AbortKind, LogprobsWanted, TokenLogprob};
use crate::tokenizer_manager::request::Usage;

/// Tells of a request with the prompt `[98, 97]`.
fn teller(logprobs: Shown) -> Teller {
    let answer = Answer { model: Arc::new(model()), arrived: MonoNanos::now(), with_prompt: logprobs.text };
    Teller { answer, rid: Rid::from_caller("r").unwrap(), prompt: Arc::from([TokenId(98), TokenId(97)]), logprobs }
}

fn shown(wanted: LogprobsWanted, text: bool) -> Shown {
    Shown { wanted: Some(wanted), text }
}

/// The object without its latency, which no test can know.
fn stable(mut object: Value) -> Value {
    let latency = object["meta_info"]["e2e_latency"].take();
    assert!(latency.as_f64().is_some_and(|seconds| seconds >= 0.0), "{latency}");
    object["meta_info"].as_object_mut().unwrap().remove("e2e_latency");
    object
}

#[test]
fn an_answer_names_how_it_ended() {
    let check = |reason: FinishReason, want: Value| {
        let object = teller(Shown::default()).object(&token(97, "a", Some(reason)));
        assert_eq!(object["meta_info"]["finish_reason"], want);
    };
    check(FinishReason::StopToken(TokenId(2)), json!({"type": "stop", "matched": 2}));
    check(FinishReason::StopString("x".to_owned()), json!({"type": "stop", "matched": "x"}));
    check(FinishReason::Length(3), json!({"type": "length", "length": 3}));
    let aborted = FinishReason::Abort { message: "why".to_owned(), kind: AbortKind::Requested };
    check(aborted, json!({"type": "abort", "message": "why", "status_code": null, "err_type": null}));
}

#[test]
fn a_whole_answer() {
    let usage = Usage { prompt_tokens: 4, completion_tokens: 1, cached_tokens: 3, num_retractions: 0 };
    let output = GenerateOutput { usage, ..token(97, "a", Some(FinishReason::Length(1))) };
    let check = |want: Expect| {
        want.assert_eq(&format!("{:#}", stable(teller(Shown::default()).object(&output))));
    };
    check(expect![[r#"
        {
          "text": "a",
          "output_ids": [
            97
          ],
          "meta_info": {
            "id": "r",
            "finish_reason": {
              "type": "length",
              "length": 1
            },
            "prompt_tokens": 4,
            "completion_tokens": 1,
            "cached_tokens": 3,
            "num_retractions": 0
          }
        }"#]]);
}

#[test]
fn logprobs_stand_side_by_side() {
    let entry = |token: u32, logprob: f32| TokenLogprob {
        token: TokenId(token),
        logprob,
        top: vec![(TokenId(98), -0.25)],
        asked: vec![(TokenId(256), f32::NEG_INFINITY)],
    };
    let output = GenerateOutput {
        logprobs: vec![entry(97, -0.5)],
        input_logprobs: vec![entry(97, -1.5)],
        ..token(97, "a", Some(FinishReason::Length(1)))
    };
    let lists = |wanted: LogprobsWanted, text: bool| {
        let object = stable(teller(shown(wanted, text)).object(&output));
        let meta = object["meta_info"].as_object().unwrap().clone();
        (Value::Object(meta.into_iter().filter(|(key, _)| key.contains("logprobs")).collect()), object)
    };
    let (all, object) = lists(LogprobsWanted { top: 1, token_ids: vec![TokenId(256)], input_from: Some(0) }, true);
    let want = json!({
        "input_token_logprobs": [[null, 98, "b"], [-1.5, 97, "a"]],
        "output_token_logprobs": [[-0.5, 97, "a"]],
        "input_top_logprobs": [null, [[-0.25, 98, "b"]]],
        "output_top_logprobs": [[[-0.25, 98, "b"]]],
        "input_token_ids_logprobs": [null, [[-9999.0, 256, "<|end|>"]]],
        "output_token_ids_logprobs": [[[-9999.0, 256, "<|end|>"]]],
    });
    assert_eq!((all, &object["prompt_token_ids"]), (want, &json!([98, 97])));
    let nothing_of_the_prompt = GenerateOutput { input_logprobs: Vec::new(), ..output.clone() };
    let object = teller(shown(LogprobsWanted::default(), false)).object(&nothing_of_the_prompt);
    let meta = &object["meta_info"];
    assert_eq!(
        (&meta["input_token_logprobs"], &meta["output_token_logprobs"]),
        (&json!([]), &json!([[-0.5, 97, null]]))
    );
    assert_eq!((meta.get("output_top_logprobs"), object.get("prompt_token_ids")), (None, None));
}

#[tokio::test]
async fn a_stream_says_everything_so_far_each_time() {
    let (state, stream) = request();
    let chunks = Cumulative::new(vec![teller(Shown::default())], Shape::List);
    let response = stream_response(vec![stream], chunks);
    let reader = read(response);
    state.push(token(104, "h", None));
    let feed = async {
        tokio::task::yield_now().await;
        state.push(token(105, "i", Some(FinishReason::Length(2))));
    };
    let (events, ()) = futures::join!(reader, feed);
    let events: Vec<&str> = events.lines().collect();
    assert_eq!(events.last(), Some(&"[DONE]"));
    let objects: Vec<Value> =
        events[..events.len() - 1].iter().map(|event| stable(serde_json::from_str(event).unwrap())).collect();
    let told: Vec<_> =
        objects.iter().map(|object| (&object["text"], &object["output_ids"], &object["index"])).collect();
    assert_eq!(told, [(&json!("h"), &json!([104]), &json!(0)), (&json!("hi"), &json!([104, 105]), &json!(0))]);
    assert_eq!(objects[0]["meta_info"]["finish_reason"], Value::Null);
}
