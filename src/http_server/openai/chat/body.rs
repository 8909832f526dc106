//! The body of a chat, and the messages that the template gets.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::http_server::error::ApiError;
use crate::http_server::openai::tools::{Tool, ToolFields, Tools};
use crate::http_server::openai::{Delivery, StreamOptions};
use crate::http_server::openapi::requests::TextOrObject;
use crate::http_server::sampling::{self, MAX_TOP_LOGPROBS};
use crate::tokenizer::chat_template::ROLES;

/// The body of `/v1/chat/completions`, its sampling fields apart. `null` is absent, and unknown fields are ignored.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub struct ChatBody {
    pub model: Option<String>,
    pub messages: Option<Vec<Message>>,
    pub rid: Option<String>,
    pub priority: Option<i64>,
    pub stream: Option<bool>,
    pub stream_options: Option<StreamOptions>,
    pub logprobs: Option<bool>,
    pub top_logprobs: Option<i64>,
    pub tools: Option<Vec<Tool>>,
    #[schemars(with = "Option<TextOrObject>")]
    pub tool_choice: Option<Value>,
    pub parallel_tool_calls: Option<bool>,
    pub separate_reasoning: Option<bool>,
    pub stream_reasoning: Option<bool>,
    pub functions: Option<Value>,
    pub function_call: Option<Value>,
    pub audio: Option<Value>,
    pub prediction: Option<Value>,
    pub lora_path: Option<Value>,
    pub chat_template: Option<Value>,
    pub chat_template_kwargs: Option<Map<String, Value>>,
    pub web_search_options: Option<Value>,
    pub continue_final_message: Option<Value>,
    pub custom_logit_processor: Option<Value>,
    pub return_hidden_states: Option<Value>,
}

/// One message of a chat.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub struct Message {
    pub role: String,
    #[serde(default)]
    pub content: Option<Content>,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub tool_calls: Option<Vec<Value>>,
    #[serde(default)]
    pub tool_call_id: Option<String>,
}

/// What a message says.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string, or a list of parts with a type each")]
#[schemars(inline)]
pub enum Content {
    /// In one piece.
    Text(String),
    /// In several.
    Parts(Vec<Part>),
}

/// A piece of a message.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are the API's own")]
pub struct Part {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub text: Option<String>,
}

impl ChatBody {
    /// How the answer is to be delivered.
    ///
    /// # Errors
    /// Options for a stream that is not asked for.
    pub fn delivery(&self) -> Result<Delivery, ApiError> {
        Delivery::asked(self.stream, self.stream_options)
    }

    /// `Some(n)`: logprobs are asked for, with `n` rivals each.
    ///
    /// # Errors
    /// Out of range, or rivals without logprobs.
    pub fn top_logprobs(&self) -> Result<Option<u32>, ApiError> {
        let top = sampling::whole("top_logprobs", self.top_logprobs.unwrap_or(0), 0..=MAX_TOP_LOGPROBS.into())?;
        match self.logprobs {
            Some(true) => Ok(Some(top)),
            None | Some(false) if top > 0 => {
                Err(ApiError::invalid("top_logprobs", "top_logprobs needs logprobs: true"))
            }
            None | Some(false) => Ok(None),
        }
    }

    /// The tools that may be called.
    ///
    /// # Errors
    /// The field that is to blame.
    pub fn take_tools(&mut self) -> Result<Option<Tools>, ApiError> {
        let (tools, choice) = (self.tools.take(), self.tool_choice.take());
        ToolFields { tools, choice, parallel: self.parallel_tool_calls }.check()
    }

    /// Refuses what is asked for and cannot be had. Functions that must not be called are no demand.
    ///
    /// # Errors
    /// The field.
    pub fn refuse_unsupported(&self) -> Result<(), ApiError> {
        let none = |choice: &Option<Value>| choice.as_ref().is_some_and(|choice| choice == "none");
        let functions = if none(&self.function_call) { &None } else { &self.functions };
        let asks = |value: &&Value| !value.is_null() && *value != "auto" && *value != "none";
        let asked = |value: &Option<Value>| value.as_ref().filter(asks).cloned();
        sampling::refuse([
            ("functions", functions),
            ("function_call", &asked(&self.function_call)),
            ("audio", &self.audio),
            ("prediction", &self.prediction),
            ("web_search_options", &self.web_search_options),
            ("lora_path", &self.lora_path),
            ("chat_template", &self.chat_template),
            ("continue_final_message", &self.continue_final_message),
            ("custom_logit_processor", &self.custom_logit_processor),
            ("return_hidden_states", &self.return_hidden_states),
        ])
    }

    /// The messages as the template gets them: `content` is always a string.
    ///
    /// # Errors
    /// None, or one that is to blame.
    pub fn messages(self) -> Result<Vec<Value>, ApiError> {
        let messages = self.messages.unwrap_or_default();
        if messages.is_empty() {
            return Err(ApiError::invalid("messages", "messages must hold at least one message"));
        }
        messages.into_iter().enumerate().map(|(i, message)| message.into_value(&format!("messages[{i}]"))).collect()
    }
}

impl Message {
    fn into_value(self, path: &str) -> Result<Value, ApiError> {
        if !ROLES.contains(&self.role.as_str()) {
            let role: String = self.role.chars().take(40).collect();
            let message = format!("{path}.role is '{role}'; it must be one of {}", ROLES.join(", "));
            return Err(ApiError::invalid(format!("{path}.role"), message));
        }
        let content = match self.content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => joined(parts, path)?,
        };
        let mut message = json!({"role": self.role, "content": content});
        if let Some(name) = self.name {
            message["name"] = name.into();
        }
        if let Some(calls) = self.tool_calls {
            message["tool_calls"] = calls.into_iter().map(with_parsed_arguments).collect();
        }
        if let Some(id) = self.tool_call_id {
            message["tool_call_id"] = id.into();
        }
        Ok(message)
    }
}

/// Arguments are JSON in a string for clients, and an object for templates.
fn with_parsed_arguments(mut call: Value) -> Value {
    let parsed = call["function"]["arguments"].as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    if let Some(parsed) = parsed.filter(Value::is_object) {
        call["function"]["arguments"] = parsed;
    }
    call
}

fn joined(parts: Vec<Part>, path: &str) -> Result<String, ApiError> {
    let text = |(i, part): (usize, Part)| match (part.kind.as_str(), part.text) {
        ("text", Some(text)) => Ok(text),
        ("text", None) => {
            let param = format!("{path}.content[{i}].text");
            let message = format!("{param} is missing");
            Err(ApiError::invalid(param, message))
        }
        (kind, _) => {
            let kind: String = kind.chars().take(40).collect();
            let message = format!("{path}.content[{i}] is of type '{kind}', which this text model does not take");
            Err(ApiError::invalid(format!("{path}.content[{i}].type"), message))
        }
    };
    parts.into_iter().enumerate().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(body: Value) -> ChatBody {
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn content_comes_in_one_piece_or_in_parts() {
        let check = |message: Value, want: Value| {
            assert_eq!(body(json!({"messages": [message]})).messages().unwrap(), [want]);
        };
        for role in ROLES {
            let want = json!({"role": role, "content": "ab"});
            check(json!({"role": role, "content": "ab"}), want.clone());
            let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
            check(json!({"role": role, "content": parts, "refusal": null}), want);
        }
        let calls = |arguments: Value| json!([{"id": "1", "function": {"name": "f", "arguments": arguments}}]);
        for (arguments, want) in
            [(json!("{\"a\":1}"), json!({"a": 1})), (json!("{"), json!("{")), (json!({}), json!({}))]
        {
            check(
                json!({"role": "assistant", "content": null, "tool_calls": calls(arguments)}),
                json!({"role": "assistant", "content": "", "tool_calls": calls(want)}),
            );
        }
        check(json!({"role": "assistant"}), json!({"role": "assistant", "content": ""}));
        check(
            json!({"role": "tool", "content": "x", "tool_call_id": "1", "name": "n"}),
            json!({"role": "tool", "content": "x", "tool_call_id": "1", "name": "n"}),
        );
    }

    #[test]
    fn messages_that_are_refused() {
        let check = |messages: Value, param: &str, message: &str| {
            let error = body(json!({"messages": messages})).messages().unwrap_err();
            assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some(param)), "{messages}");
            assert!(error.message.contains(message), "{}", error.message);
        };
        check(json!(null), "messages", "at least one");
        check(json!([]), "messages", "at least one");
        check(json!([{"role": "<|im_end|>", "content": "a"}]), "messages[0].role", "<|im_end|>");
        let image = json!([{"type": "image_url", "image_url": {"url": "http://localhost/a.png"}}]);
        check(json!([{"role": "user", "content": image}]), "messages[0].content[0].type", "image_url");
        check(json!([{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text", "missing");
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        let check = |asked: Value, param: Option<&str>| {
            let refused = body(asked.clone()).refuse_unsupported().err().and_then(|error| error.param);
            assert_eq!(refused.as_deref(), param, "{asked}");
        };
        let functions = json!([{"name": "f"}]);
        check(json!({"tools": [], "tool_choice": "auto", "function_call": "auto", "functions": null}), None);
        check(json!({"functions": functions, "function_call": "none", "audio": null}), None);
        check(json!({"functions": functions, "tool_choice": "none"}), Some("functions"));
        check(json!({"web_search_options": {"x": 1}}), Some("web_search_options"));
        check(json!({"function_call": {"name": "f"}}), Some("function_call"));
        check(json!({"audio": {"voice": "x"}}), Some("audio"));
        check(json!({"lora_path": "x"}), Some("lora_path"));
        check(json!({"continue_final_message": true}), Some("continue_final_message"));
    }

    #[test]
    fn logprobs_and_their_rivals() {
        let check = |asked: Value, want: Result<Option<u32>, &str>| {
            let got = body(asked.clone()).top_logprobs();
            assert_eq!(got.map_err(|error| error.param), want.map_err(|param| Some(param.to_owned())), "{asked}");
        };
        check(json!({}), Ok(None));
        check(json!({"logprobs": null, "top_logprobs": null}), Ok(None));
        check(json!({"logprobs": false, "top_logprobs": 0}), Ok(None));
        check(json!({"logprobs": true}), Ok(Some(0)));
        check(json!({"logprobs": true, "top_logprobs": 20}), Ok(Some(20)));
        check(json!({"logprobs": true, "top_logprobs": 21}), Err("top_logprobs"));
        check(json!({"logprobs": true, "top_logprobs": -1}), Err("top_logprobs"));
        check(json!({"top_logprobs": 2}), Err("top_logprobs"));
    }
}
