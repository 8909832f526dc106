//! Streams by hand: what a client reads when requests end well, fail, or are given up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::to_bytes;
use expect_test::expect;
use serde_json::json;

use super::*;
use crate::io_struct::{AbortKind, Rid, TokenId};
use crate::telemetry::labels::GrammarField;
use crate::tokenizer_manager::request::RequestState;

/// Both halves of a request.
pub(crate) fn request() -> (Arc<RequestState>, RequestStream) {
    let state = Arc::new(RequestState::default());
    let stream = RequestStream::new(Rid::random(), Arc::from([TokenId(1)]), Arc::clone(&state), None, || {});
    (state, stream)
}

/// One token's news.
pub(crate) fn token(id: u32, text: &str, finish_reason: Option<FinishReason>) -> GenerateOutput {
    GenerateOutput { text: text.to_owned(), output_ids: vec![TokenId(id)], finish_reason, ..GenerateOutput::default() }
}

/// The data of each event, in order.
pub(crate) async fn read(response: Response) -> String {
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let text = String::from_utf8(body.to_vec()).unwrap();
    text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").expect(event).to_owned() + "\n").collect()
}

struct Plain;

impl Chunks for Plain {
    fn news(&mut self, index: usize, news: GenerateOutput) -> Vec<Value> {
        vec![json!([index, news.text, news.finish_reason.is_some()])]
    }

    fn closing(&mut self) -> Vec<Value> {
        vec![json!("closing")]
    }
}

fn abort(kind: AbortKind) -> Option<FinishReason> {
    Some(FinishReason::Abort { message: "why".to_owned(), kind })
}

#[tokio::test]
async fn a_stream_that_ends_well() {
    let (first, stream) = request();
    let (second, other) = request();
    first.push(token(5, "a", None));
    first.push(token(6, "b", Some(FinishReason::Length(2))));
    second.push(token(5, "x", Some(FinishReason::Length(1))));
    expect![[r#"
        [0,"ab",true]
        [1,"x",true]
        "closing"
        [DONE]
    "#]]
    .assert_eq(&read(stream_response(vec![stream, other], Plain)).await);
}

#[tokio::test]
async fn a_failure_in_the_middle_is_the_last_event() {
    let (state, stream) = request();
    let (_runs_on, other) = request();
    state.push(token(5, "a", None));
    state.push(GenerateOutput { finish_reason: abort(AbortKind::StepFailed), ..GenerateOutput::default() });
    expect![[r#"
        [0,"a",false]
        {"error":{"message":"why","type":"server_error","param":null,"code":null}}
        [DONE]
    "#]]
    .assert_eq(&read(stream_response(vec![stream, other], Plain)).await);
}

#[tokio::test]
async fn a_stream_that_is_dropped_gives_its_requests_up() {
    let given_up = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&given_up);
    let stream = RequestStream::new(Rid::random(), Arc::from([TokenId(1)]), Arc::default(), None, move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    drop(stream_response(vec![stream], Plain));
    assert_eq!(given_up.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn whole_outputs_are_collected_in_order() {
    let (first, a) = request();
    let (second, b) = request();
    second.push(token(2, "b", Some(FinishReason::StopToken(TokenId(9)))));
    first.push(token(1, "a", None));
    first.push(token(3, "c", Some(FinishReason::Length(2))));
    let outputs = collect(&mut [a, b]).await.unwrap();
    let texts: Vec<_> = outputs.iter().map(|whole| (whole.text.as_str(), whole.output_ids.len())).collect();
    assert_eq!(texts, [("ac", 2), ("b", 1)]);
}

#[tokio::test]
async fn a_failure_is_an_error_and_no_answer() {
    let (first, a) = request();
    let (second, b) = request();
    first.push(token(1, "a", Some(FinishReason::Length(1))));
    second.push(token(1, "b", abort(AbortKind::EngineDead)));
    assert_eq!(collect(&mut [a, b]).await.unwrap_err().status.as_u16(), 503);
}

/// A refusal after the scheduler had taken the request in blames the same field as one before.
#[tokio::test]
async fn a_prompt_that_is_too_long_has_the_name_that_its_api_gives_it() {
    let refused = || {
        let (state, stream) = request();
        state.push(GenerateOutput { finish_reason: abort(AbortKind::TooLarge), ..GenerateOutput::default() });
        stream.with_prompt_field("messages")
    };
    let error = ApiError::from(refused().admitted().await.unwrap_err());
    assert_eq!(error.param.as_deref(), Some("messages"));
    let error = collect(&mut [refused()]).await.unwrap_err();
    assert_eq!((error.param.as_deref(), error.code), (Some("messages"), Some("context_length_exceeded")));
    let events = read(stream_response(vec![refused()], Plain)).await;
    assert!(events.contains(r#""param":"messages""#), "{events}");
}

#[test]
fn each_kind_of_abort_has_its_status() {
    let check = |kind, status: u16| {
        let error = abort_error(abort(kind).as_ref(), "text").unwrap();
        assert_eq!(error.status.as_u16(), status, "{kind:?}");
    };
    check(AbortKind::QueueFull, 503);
    check(AbortKind::TooLarge, 400);
    check(AbortKind::StepFailed, 500);
    check(AbortKind::Grammar(GrammarField::Ebnf), 400);
    check(AbortKind::EngineDead, 503);
    check(AbortKind::CutOff, 503);
    check(AbortKind::TimedOut, 503);
    assert!(abort_error(abort(AbortKind::Requested).as_ref(), "text").is_none(), "an abort on request is an answer");
    assert!(abort_error(Some(&FinishReason::Length(1)), "text").is_none());
    assert!(abort_error(None, "text").is_none());
}
