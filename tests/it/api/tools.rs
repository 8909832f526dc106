//! Tool calls and reasoning: what the model wrote, taken apart, at once and as a stream.

use serde_json::{Value, json};

use super::{events, ok, refused};
use crate::support::Server;

const CHAT: &str = "/v1/chat/completions";

fn tools() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 16}, "days": {"$ref": "#/$defs/days"}},
        "required": ["city", "days"],
        "additionalProperties": false,
        "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 9}}
    });
    json!([
        {"type": "function", "function": {"name": "get_weather", "description": "A forecast.", "parameters": parameters}},
        {"type": "function", "function": {"name": "get_time"}}
    ])
}

fn ask(fields: &Value) -> Value {
    let messages = json!([{"role": "user", "content": "What will the weather be in Paris?"}]);
    let mut body =
        json!({"model": "default", "messages": messages, "temperature": 0, "max_tokens": 120, "tools": tools()});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

/// Content, reasoning, calls without their ids, and finish reason of a stream, put together as a client does.
async fn streamed(server: &Server, mut body: Value) -> Value {
    body["stream"] = json!(true);
    let (mut content, mut reasoning, mut calls, mut reason) = (String::new(), String::new(), Vec::new(), Value::Null);
    for event in events(server, CHAT, body).await {
        let (choice, delta) = (&event["choices"][0], &event["choices"][0]["delta"]);
        content.push_str(delta["content"].as_str().unwrap_or_default());
        reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let (index, function) = (call["index"].as_u64().unwrap() as usize, &call["function"]);
            if index == calls.len() {
                assert!(call["id"].as_str().is_some_and(|id| id.starts_with("call_")) && call["type"] == "function");
                calls.push((function["name"].as_str().unwrap().to_owned(), String::new()));
            }
            calls[index].1.push_str(function["arguments"].as_str().unwrap());
        }
        if !choice["finish_reason"].is_null() {
            assert_eq!(reason, Value::Null, "one end");
            reason = choice["finish_reason"].clone();
        }
    }
    json!({"content": content, "reasoning": reasoning, "calls": calls, "reason": reason})
}

/// The same of a whole answer.
async fn whole(server: &Server, body: Value) -> Value {
    let answer = ok(server, CHAT, body).await;
    let (choice, message) = (&answer["choices"][0], &answer["choices"][0]["message"]);
    let call = |call: &Value| {
        assert!(call["id"].as_str().is_some_and(|id| id.starts_with("call_")) && call["type"] == "function");
        json!([call["function"]["name"], call["function"]["arguments"]])
    };
    let calls: Vec<Value> = message["tool_calls"].as_array().into_iter().flatten().map(call).collect();
    let text = |key: &str| message[key].as_str().unwrap_or_default();
    let (content, reasoning) = (text("content"), text("reasoning_content"));
    json!({"content": content, "reasoning": reasoning, "calls": calls, "reason": choice["finish_reason"]})
}

fn check_forecast(call: &Value) {
    assert_eq!(call[0], "get_weather");
    let arguments: Value =
        serde_json::from_str(call[1].as_str().unwrap()).unwrap_or_else(|error| panic!("{error}: {call}"));
    assert!(arguments["city"].is_string() && (1..=9).contains(&arguments["days"].as_i64().unwrap()), "{arguments}");
}

#[tokio::test]
async fn a_call_that_is_forced_is_one_by_its_schema() {
    let server = Server::start_default().await;
    let named = json!({"tool_choice": {"type": "function", "function": {"name": "get_weather"}}});
    let answer = whole(&server, ask(&named)).await;
    assert_eq!((&answer["reason"], &answer["content"]), (&json!("tool_calls"), &json!("")), "{answer}");
    assert_eq!(answer["calls"].as_array().unwrap().len(), 1, "{answer}");
    check_forecast(&answer["calls"][0]);
    assert_eq!(streamed(&server, ask(&named)).await, answer);
    let required = ask(&json!({"tool_choice": "required", "parallel_tool_calls": false, "n": 2}));
    let answer = ok(&server, CHAT, required).await;
    for choice in answer["choices"].as_array().unwrap() {
        let calls = choice["message"]["tool_calls"].as_array().unwrap();
        assert!(calls.len() == 1 && choice["message"]["content"].is_null(), "{choice}");
        assert!(["get_weather", "get_time"].contains(&calls[0]["function"]["name"].as_str().unwrap()), "{choice}");
    }
    let both = ask(&json!({"tool_choice": "required", "regex": "a"}));
    assert_eq!(refused(&server, CHAT, both).await.1["param"], "tool_choice");
    let mut wrong = ask(&json!({"tool_choice": "required"}));
    wrong["tools"][0]["function"]["parameters"]["properties"]["city"]["type"] = json!("nosuch");
    let (status, error) = refused(&server, CHAT, wrong).await;
    assert_eq!((status, &error["param"]), (400, &json!("tools")));
}

#[tokio::test]
async fn a_call_of_the_models_own_is_found_in_its_format() {
    let server = Server::start_default_with(&["--tool-call-parser=hermes"]).await;
    let call = r#"<tool_call>\n\{"name": "get_weather", "arguments": \{"city": "[A-Z][a-z]{2,9}", "days": [1-9]\}\}\n</tool_call>"#;
    let answer = whole(&server, ask(&json!({"regex": format!("Let me see\\.\n{call}\n{call}")}))).await;
    assert_eq!((&answer["reason"], &answer["content"]), (&json!("tool_calls"), &json!("Let me see.")), "{answer}");
    let calls = answer["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2, "{answer}");
    calls.iter().for_each(check_forecast);
    let body = ask(&json!({"regex": format!("Let me see\\.\n{call}\n{call}")}));
    assert_eq!(streamed(&server, body).await, answer);
    let none = ask(&json!({"regex": call, "tool_choice": "none"}));
    let answer = whole(&server, none).await;
    assert!(answer["content"].as_str().unwrap().starts_with("<tool_call>") && answer["reason"] == "stop", "{answer}");
    let free = whole(&server, ask(&json!({}))).await;
    assert!(!free["content"].as_str().unwrap().is_empty() && free["calls"] == json!([]), "{free}");
    let result = json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"}
    ]);
    ok(&server, CHAT, ask(&json!({"messages": result, "max_tokens": 1}))).await;
}

#[tokio::test]
async fn reasoning_stands_apart() {
    let server = Server::start_default_with(&["--reasoning-parser=deepseek-r1"]).await;
    let ask = |fields: Value| {
        let mut body = ask(&fields);
        body["tools"].take();
        body
    };
    let together = whole(&server, ask(json!({"separate_reasoning": false}))).await;
    let apart = whole(&server, ask(json!({}))).await;
    assert_eq!((&apart["content"], &together["reasoning"]), (&json!(""), &json!("")));
    assert_eq!(apart["reasoning"].as_str().unwrap(), together["content"].as_str().unwrap().trim());
    assert!(!apart["reasoning"].as_str().unwrap().is_empty());
    for stream_reasoning in [true, false] {
        assert_eq!(streamed(&server, ask(json!({"stream_reasoning": stream_reasoning}))).await, apart);
    }
    let shaped = whole(&server, ask(json!({"regex": "yes|no"}))).await;
    assert!(["yes", "no"].contains(&shaped["content"].as_str().unwrap()), "a grammar leaves no room for it: {shaped}");
}

#[tokio::test]
async fn a_text_from_elsewhere_is_taken_apart() {
    let server = Server::start(&["--model=scripted", "--reasoning-parser=qwen3"]).await;
    let text = "Well.\n<tool_call>{\"name\": \"get_time\", \"arguments\": {\"zone\": 1}}</tool_call>";
    let mut body = json!({"text": text, "tools": tools(), "tool_call_parser": "qwen25"});
    let calls = json!([{"tool_index": 0, "name": "get_time", "parameters": "{\"zone\": 1}"}]);
    let answer = ok(&server, "/parse_function_call", body.clone()).await;
    assert_eq!(answer, json!({"normal_text": "Well.", "calls": calls}));
    body["tool_call_parser"] = json!("nosuch");
    let (status, error) = refused(&server, "/parse_function_call", body.clone()).await;
    assert_eq!((status, &error["param"]), (400, &json!("tool_call_parser")));
    assert!(error["message"].as_str().unwrap().contains("hermes, llama3"), "{error}");
    body["tool_call_parser"] = Value::Null;
    assert_eq!(refused(&server, "/parse_function_call", body).await.0, 400, "no flag");
    let text = "<think>Hm.</think>Yes.";
    let want = json!({"reasoning_text": "Hm.", "text": "Yes."});
    assert_eq!(ok(&server, "/separate_reasoning", json!({"text": text})).await, want);
    let named = json!({"text": "Hm.</think>Yes.", "reasoning_parser": "deepseek-r1"});
    assert_eq!(ok(&server, "/separate_reasoning", named).await, want);
    let (status, error) = refused(&server, "/separate_reasoning", json!({"text": text, "reasoning_parser": "x"})).await;
    assert_eq!((status, &error["param"]), (400, &json!("reasoning_parser")));
}
