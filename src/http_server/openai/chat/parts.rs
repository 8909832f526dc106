//! What of an output is said to the user, what is thought, and what is a call.

use serde_json::{Value, json};

use crate::http_server::openai::reasoning::ReasoningStream;
use crate::http_server::openai::tools::calls::{CallStream, Piece};

/// Takes one output apart; without either, all of it is said.
#[derive(Debug, Default)]
pub struct Parts {
    /// Finds reasoning.
    pub reasoning: Option<ReasoningStream>,
    /// Finds calls.
    pub calls: Option<CallStream>,
}

/// Whether more of an output comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// More comes.
    Open,
    /// That was all.
    Last,
}

impl Parts {
    /// The next `text` as deltas of a stream, what is certain by now.
    pub fn deltas(&mut self, text: &str, end: End) -> Vec<Value> {
        let mut deltas = Vec::new();
        let mut answer = text.to_owned();
        if let Some(stream) = &mut self.reasoning {
            let mut parts = stream.push(text);
            if end == End::Last {
                let last = stream.finish();
                parts.reasoning.push_str(&last.reasoning);
                parts.answer.push_str(&last.answer);
            }
            if !parts.reasoning.is_empty() {
                deltas.push(json!({ "reasoning_content": parts.reasoning }));
            }
            answer = parts.answer;
        }
        let pieces = match &mut self.calls {
            None if answer.is_empty() => Vec::new(),
            None => vec![Piece::Text(answer)],
            Some(stream) => {
                let mut pieces = stream.push(&answer);
                pieces.extend(if end == End::Last { stream.finish() } else { Vec::new() });
                pieces
            }
        };
        deltas.extend(pieces.into_iter().map(delta));
        deltas
    }

    /// The message of a whole output.
    pub fn message(&mut self, text: &str) -> Value {
        let mut message = json!({"role": "assistant", "content": ""});
        if self.reasoning.is_some() {
            message["reasoning_content"] = Value::Null;
        }
        if self.calls.is_some() {
            message["tool_calls"] = Value::Null;
        }
        for delta in self.deltas(text, End::Last) {
            for key in ["content", "reasoning_content"] {
                if let Some(text) = delta[key].as_str() {
                    message[key] = json!(message[key].as_str().unwrap_or_default().to_owned() + text);
                }
            }
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                add(&mut message["tool_calls"], call);
            }
        }
        if !message["tool_calls"].is_null() && message["content"] == "" {
            message["content"] = Value::Null;
        }
        message
    }

    /// An output that ends well and calls something has the finish reason `tool_calls`.
    pub fn say_calls(&self, choice: &mut Value) {
        if choice["finish_reason"] == "stop" && self.calls.as_ref().is_some_and(CallStream::has_calls) {
            choice["finish_reason"] = json!("tool_calls");
        }
    }
}

fn delta(piece: Piece) -> Value {
    match piece {
        Piece::Text(text) => json!({ "content": text }),
        Piece::Call { index, name } => {
            let id = format!("call_{}", uuid::Uuid::new_v4().simple());
            let function = json!({"name": name, "arguments": ""});
            json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
        }
        Piece::Arguments { index, text } => {
            json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
        }
    }
}

/// Adds a delta to a list of calls, as a client does.
fn add(calls: &mut Value, delta: &Value) {
    if delta.get("id").is_some() {
        match calls.as_array_mut() {
            Some(calls) => calls.push(delta.clone()),
            None => *calls = json!([delta]),
        }
    } else if let Some(call) = calls.as_array_mut().and_then(|calls| calls.last_mut()) {
        let arguments = &mut call["function"]["arguments"];
        let more = delta["function"]["arguments"].as_str().unwrap_or_default();
        *arguments = json!(arguments.as_str().unwrap_or_default().to_owned() + more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ReasoningParser;
    use crate::http_server::openai::reasoning::Telling;
    use crate::http_server::openai::tools::calls::CallFormat;

    const OUTPUT: &str = "<think>\nI should ask.\n</think>\n\nLet me ask.\n<tool_call>\n{\"name\": \"f\", \"arguments\": \
                          {\"a\": \"é\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";

    fn parts() -> Parts {
        Parts {
            reasoning: Some(ReasoningStream::new(ReasoningParser::Qwen3, Telling::AtOnce)),
            calls: Some(CallStream::new(CallFormat::Hermes, vec!["f".to_owned()], u32::MAX)),
        }
    }

    fn without_ids(mut message: Value) -> Value {
        for call in message["tool_calls"].as_array_mut().into_iter().flatten() {
            assert!(call["id"].take().as_str().is_some_and(|id| id.starts_with("call_")));
        }
        message
    }

    #[test]
    fn deltas_put_together_are_the_message() {
        let function = |arguments: &str| json!({"name": "f", "arguments": arguments});
        let call = |i, arguments| json!({"index": i, "id": null, "type": "function", "function": function(arguments)});
        let want = json!({
            "role": "assistant", "content": "Let me ask.", "reasoning_content": "I should ask.",
            "tool_calls": [call(0, "{\"a\": \"é\"}"), call(1, "{}")],
        });
        assert_eq!(without_ids(parts().message(OUTPUT)), want);
        let letters: Vec<char> = OUTPUT.chars().collect();
        for size in 1..letters.len() {
            let mut parts = parts();
            let mut deltas: Vec<Value> = letters
                .chunks(size)
                .flat_map(|chunk| parts.deltas(&chunk.iter().collect::<String>(), End::Open))
                .collect();
            deltas.extend(parts.deltas("", End::Last));
            let text = |key: &str| deltas.iter().filter_map(|delta| delta[key].as_str()).collect::<String>();
            assert_eq!(
                (text("content"), text("reasoning_content")),
                ("Let me ask.".to_owned(), "I should ask.".to_owned())
            );
            let mut calls = Value::Null;
            let pieces = deltas.iter().filter_map(|delta| delta["tool_calls"].as_array()).flatten();
            pieces.for_each(|piece| add(&mut calls, piece));
            assert_eq!(without_ids(json!({"tool_calls": calls}))["tool_calls"], want["tool_calls"]);
        }
    }

    #[test]
    fn what_is_not_looked_for_is_said() {
        assert_eq!(Parts::default().message(OUTPUT), json!({"role": "assistant", "content": OUTPUT}));
        assert_eq!(Parts::default().message(""), json!({"role": "assistant", "content": ""}));
        let only_call = "<tool_call>{\"name\": \"f\"}</tool_call>";
        assert_eq!(parts().message(only_call)["content"], Value::Null);
        assert_eq!(parts().message("Well.")["tool_calls"], Value::Null);
    }
}
