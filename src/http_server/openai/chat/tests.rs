//! What a client of the chat API reads.

use expect_test::expect;

use super::*;
use crate::http_server::generate::exchange::tests::{read, request, token};
use crate::http_server::generate::request::tests::model;
use crate::io_struct::{FinishReason, TokenId};

const USAGE_LAST: UsageIn = UsageIn { last: true, each: false };
const NO_USAGE: UsageIn = UsageIn { last: false, each: false };

fn chat(n: usize, logprobs: bool) -> Chat {
    let reply = Reply { id: "chatcmpl-r".to_owned(), created: 7, model: Arc::new(model()), n };
    Chat { reply, logprobs, plan: Plan::default() }
}

fn counted(output: GenerateOutput, prompt_tokens: u32, completion_tokens: u32) -> GenerateOutput {
    GenerateOutput { usage: Usage { prompt_tokens, completion_tokens, ..Usage::default() }, ..output }
}

#[tokio::test]
async fn a_stream_says_the_role_first_and_the_usage_last() {
    let (state, stream) = request();
    state.push(counted(token(104, "hi", Some(FinishReason::StopToken(TokenId(256)))), 3, 2));
    let events = read(stream_response(vec![stream], ChatChunks::new(chat(1, false), 1, USAGE_LAST))).await;
    expect![[r#"
        {"id":"chatcmpl-r","object":"chat.completion.chunk","created":7,"model":"served","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null,"matched_stop":null}]}
        {"id":"chatcmpl-r","object":"chat.completion.chunk","created":7,"model":"served","choices":[{"index":0,"delta":{"content":"hi"},"logprobs":null,"finish_reason":null,"matched_stop":null}]}
        {"id":"chatcmpl-r","object":"chat.completion.chunk","created":7,"model":"served","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","matched_stop":256}]}
        {"id":"chatcmpl-r","object":"chat.completion.chunk","created":7,"model":"served","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}}
        [DONE]
    "#]].assert_eq(&events);
}

#[tokio::test]
async fn a_stream_without_usage_has_none() {
    let (state, stream) = request();
    state.push(token(104, "", None));
    state.push(token(104, "h", Some(FinishReason::Length(2))));
    let events = read(stream_response(vec![stream], ChatChunks::new(chat(1, false), 1, NO_USAGE))).await;
    assert_eq!(events.matches("\"usage\"").count(), 0);
    assert_eq!(events.matches("\"finish_reason\":null").count(), 2);
    assert_eq!(events.matches("\"finish_reason\":\"length\"").count(), 1);
}

#[tokio::test]
async fn every_choice_has_its_own_role_and_end() {
    let (first, a) = request();
    let (second, b) = request();
    first.push(token(104, "h", Some(FinishReason::StopString("x".to_owned()))));
    second.push(token(104, "h", Some(FinishReason::Length(1))));
    let events = read(stream_response(vec![a, b], ChatChunks::new(chat(2, false), 2, NO_USAGE))).await;
    for index in ["\"index\":0", "\"index\":1"] {
        let of_choice: Vec<&str> = events.lines().filter(|event| event.contains(index)).collect();
        assert!(of_choice[0].contains("\"role\":\"assistant\""), "{of_choice:?}");
        assert_eq!(of_choice.iter().filter(|event| !event.contains("\"finish_reason\":null")).count(), 1);
    }
}

#[test]
fn a_whole_answer() {
    let entry = TokenLogprob { token: TokenId(104), logprob: -0.5, top: Vec::new(), asked: Vec::new() };
    let first = counted(token(104, "h", Some(FinishReason::StopToken(TokenId(256)))), 3, 2);
    let second =
        GenerateOutput { logprobs: vec![entry], ..counted(token(104, "h", Some(FinishReason::Length(1))), 3, 1) };
    let answer = chat(2, true).whole(vec![first, second]);
    expect![[r#"
        {
          "id": "chatcmpl-r",
          "object": "chat.completion",
          "created": 7,
          "model": "served",
          "choices": [
            {
              "index": 0,
              "message": {
                "role": "assistant",
                "content": "h"
              },
              "logprobs": {
                "content": [],
                "refusal": null
              },
              "finish_reason": "stop",
              "matched_stop": 256
            },
            {
              "index": 1,
              "message": {
                "role": "assistant",
                "content": "h"
              },
              "logprobs": {
                "content": [
                  {
                    "token": "h",
                    "logprob": -0.5,
                    "bytes": [
                      104
                    ],
                    "top_logprobs": []
                  }
                ],
                "refusal": null
              },
              "finish_reason": "length",
              "matched_stop": null
            }
          ],
          "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 3,
            "total_tokens": 6,
            "prompt_tokens_details": {
              "cached_tokens": 0
            }
          }
        }"#]]
    .assert_eq(&format!("{answer:#}"));
}

#[tokio::test]
async fn a_model_without_template_has_no_chat() {
    let error = render(Arc::new(model()), vec![json!({"role": "user", "content": "a"})], Vec::new(), Map::new())
        .await
        .unwrap_err();
    assert_eq!(error.status.as_u16(), 400);
    assert!(error.message.contains("no chat template"), "{}", error.message);
}
