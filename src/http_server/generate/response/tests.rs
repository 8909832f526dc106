//! What the answer of `/generate` looks like.

use expect_test::{Expect, expect};

use super::*;
use crate::http_server::generate::exchange::stream_response;
use crate::http_server::generate::exchange::tests::{read, request, token};
use crate::http_server::generate::request::tests::model;
use crate::io_struct::AbortKind;
use crate::tokenizer_manager::request::Usage;

fn answer(top: Option<u32>) -> Answer {
    Answer { model: Arc::new(model()), arrived: MonoNanos::now(), logprobs: Logprobs { top, text: top == Some(1) } }
}

/// The object without its latency, which no test can know.
fn stable(mut object: Value) -> Value {
    let latency = object["meta_info"]["e2e_latency"].take();
    assert!(latency.as_f64().is_some_and(|seconds| seconds >= 0.0), "{latency}");
    object["meta_info"].as_object_mut().unwrap().remove("e2e_latency");
    object
}

fn rid() -> Rid {
    Rid::from_caller("r").unwrap()
}

#[test]
fn an_answer_names_how_it_ended() {
    let check = |reason: FinishReason, want: Value| {
        let object = answer(None).object(&rid(), &token(97, "a", Some(reason)));
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
    let entry = TokenLogprob { token: TokenId(97), logprob: -0.5, top: vec![(TokenId(98), -0.25)] };
    let output = GenerateOutput { usage, logprobs: vec![entry], ..token(97, "a", Some(FinishReason::Length(1))) };
    let check = |top: Option<u32>, want: Expect| {
        want.assert_eq(&format!("{:#}", stable(answer(top).object(&rid(), &output))));
    };
    check(
        None,
        expect![[r#"
        {
          "meta_info": {
            "cached_tokens": 3,
            "completion_tokens": 1,
            "finish_reason": {
              "length": 1,
              "type": "length"
            },
            "id": "r",
            "num_retractions": 0,
            "prompt_tokens": 4
          },
          "output_ids": [
            97
          ],
          "text": "a"
        }"#]],
    );
    let with = stable(answer(Some(1)).object(&rid(), &output));
    assert_eq!(with["meta_info"]["output_token_logprobs"], json!([[-0.5, 97, "a"]]));
    assert_eq!(with["meta_info"]["output_top_logprobs"], json!([[[-0.25, 98, "b"]]]));
    let without_rivals = stable(answer(Some(0)).object(&rid(), &output));
    assert_eq!(without_rivals["meta_info"]["output_token_logprobs"], json!([[-0.5, 97, null]]));
    assert_eq!(without_rivals["meta_info"].get("output_top_logprobs"), None);
}

#[tokio::test]
async fn a_stream_says_everything_so_far_each_time() {
    let (state, stream) = request();
    let chunks = Cumulative::new(answer(None), Shape::List, [rid()]);
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
