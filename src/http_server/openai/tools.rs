//! Functions that a model may ask its caller to call.

pub mod calls;
mod object;

use std::collections::HashSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::http_server::error::ApiError;
use crate::io_struct::{Grammar, GrammarSyntax};
use crate::telemetry::labels::GrammarField;
use crate::tokenizer::chat_template::ChatTemplate;
use calls::{CallFormat, CallStream};

/// The most tools of one request.
pub const MAX_TOOLS: usize = 128;
/// The longest name of a function, in characters.
const MAX_NAME_CHARS: usize = 128;

/// A tool as it comes. Unknown fields are ignored.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
pub struct Tool {
    /// `function`; there is nothing else.
    #[serde(rename = "type", default = "function")]
    pub kind: String,
    /// What can be called.
    pub function: Function,
}

fn function() -> String {
    "function".to_owned()
}

/// What can be called.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    pub parameters: Option<Value>,
}

/// Who decides on a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Choice {
    /// The model.
    Auto,
    /// There is one.
    Required,
    /// There is one of this function.
    Named(String),
}

/// The tools of a request, if it may call any.
#[derive(Debug, Clone)]
pub struct Tools {
    list: Vec<Tool>,
    choice: Choice,
    /// More than one call.
    parallel: bool,
}

/// The fields of a chat that concern tools.
#[derive(Debug, Default)]
pub struct ToolFields {
    /// `tools`
    pub tools: Option<Vec<Tool>>,
    /// `tool_choice`
    pub choice: Option<Value>,
    /// `parallel_tool_calls`
    pub parallel: Option<bool>,
}

impl ToolFields {
    /// Checks them; `None` if nothing may be called.
    ///
    /// # Errors
    /// The field that is to blame.
    pub fn check(self) -> Result<Option<Tools>, ApiError> {
        let list = self.tools.unwrap_or_default();
        check_list(&list)?;
        let choice = match &self.choice {
            None | Some(Value::Null) => Choice::Auto,
            Some(Value::String(choice)) if choice == "none" => return Ok(None),
            Some(Value::String(choice)) if choice == "auto" => Choice::Auto,
            Some(Value::String(choice)) if choice == "required" => Choice::Required,
            Some(choice) => match choice["function"]["name"].as_str() {
                Some(name) => Choice::Named(name.to_owned()),
                None => {
                    let message = "tool_choice must be none, auto, required or {\"type\": \"function\", \"function\": \
                                   {\"name\": ..}}";
                    return Err(ApiError::invalid("tool_choice", message));
                }
            },
        };
        match &choice {
            Choice::Auto if list.is_empty() => return Ok(None),
            Choice::Required if list.is_empty() => {
                return Err(ApiError::invalid("tool_choice", "tool_choice is required, and there are no tools"));
            }
            Choice::Named(name) if list.iter().all(|tool| tool.function.name != *name) => {
                let name: String = name.chars().take(MAX_NAME_CHARS).collect();
                return Err(ApiError::invalid("tool_choice", format!("tool_choice names '{name}', which is no tool")));
            }
            Choice::Auto | Choice::Required | Choice::Named(_) => {}
        }
        Ok(Some(Tools { list, choice, parallel: self.parallel.unwrap_or(true) }))
    }
}

fn check_list(list: &[Tool]) -> Result<(), ApiError> {
    if list.len() > MAX_TOOLS {
        return Err(ApiError::invalid("tools", format!("there are {} tools; the limit is {MAX_TOOLS}", list.len())));
    }
    let mut names = HashSet::new();
    for (i, Tool { kind, function }) in list.iter().enumerate() {
        let refuse = |field: &str, message: &str| {
            let param = format!("tools[{i}].{field}");
            Err(ApiError::invalid(param.clone(), format!("{param} {message}")))
        };
        let len = function.name.chars().count();
        if kind != "function" {
            return refuse("type", "must be function");
        } else if len == 0 || len > MAX_NAME_CHARS {
            return refuse("function.name", &format!("has {len} characters; it must have from 1 to {MAX_NAME_CHARS}"));
        } else if !names.insert(&function.name) {
            return refuse("function.name", "is given twice");
        } else if !matches!(function.parameters, None | Some(Value::Null | Value::Object(_))) {
            return refuse("function.parameters", "must be a JSON schema, an object");
        }
    }
    Ok(())
}

impl Tools {
    /// As the chat template gets them.
    #[must_use]
    pub fn for_template(&self) -> Vec<Value> {
        self.list.iter().map(|tool| json!(tool)).collect()
    }

    /// What forces the call that is asked for; `None` where the model decides.
    ///
    /// # Errors
    /// Two tools mean different things by one of their `$defs`.
    pub fn grammar(&self) -> Result<Option<Grammar>, ApiError> {
        let (wanted, most): (Vec<&Function>, _) = match &self.choice {
            Choice::Auto => return Ok(None),
            Choice::Required => (self.functions().collect(), if self.parallel { None } else { Some(1) }),
            Choice::Named(name) => (self.functions().filter(|function| function.name == *name).collect(), Some(1)),
        };
        let mut definitions = Map::new();
        let calls = wanted.into_iter().map(|function| call_schema(function, &mut definitions));
        let calls = calls.collect::<Result<Vec<Value>, ApiError>>()?;
        let mut schema = json!({"type": "array", "minItems": 1, "items": {"anyOf": calls}});
        if let Some(most) = most {
            schema["maxItems"] = json!(most);
        }
        schema.as_object_mut().into_iter().for_each(|schema| schema.extend(definitions.clone()));
        let (field, syntax) = (GrammarField::Tools, GrammarSyntax::JsonSchema);
        Ok(Some(Grammar { field, syntax, text: schema.to_string().into() }))
    }

    fn functions(&self) -> impl Iterator<Item = &Function> {
        self.list.iter().map(|tool| &tool.function)
    }

    /// How calls are written: as the grammar forces them, as the flag says, or as the template shows.
    ///
    /// # Errors
    /// The model decides, and nobody knows how it writes calls.
    pub fn format(&self, flag: Option<CallFormat>, template: Option<&ChatTemplate>) -> Result<CallFormat, ApiError> {
        match self.choice {
            Choice::Required | Choice::Named(_) => Ok(CallFormat::List),
            Choice::Auto => flag.or_else(|| shown(template?)).ok_or_else(|| {
                let message = "tools are given, and the chat template does not show how this model writes calls: start \
                               the server with --tool-call-parser, or force a call by tool_choice";
                ApiError::invalid("tools", message)
            }),
        }
    }

    /// Finds their calls in an output.
    #[must_use]
    pub fn stream(&self, format: CallFormat) -> CallStream {
        let names = self.functions().map(|function| function.name.clone()).collect();
        CallStream::new(format, names, if self.parallel { u32::MAX } else { 1 })
    }
}

/// The format of which a template speaks.
fn shown(template: &ChatTemplate) -> Option<CallFormat> {
    if template.holds("<tool_call>") && template.holds("arguments") {
        Some(CallFormat::Hermes)
    } else if template.holds("tools") && template.holds("\"parameters\": dictionary") {
        Some(CallFormat::Llama3)
    } else {
        None
    }
}

/// A call of `function`; what its schema defines for itself moves to `definitions`, where references look for it.
fn call_schema(function: &Function, definitions: &mut Map<String, Value>) -> Result<Value, ApiError> {
    let mut parameters = match &function.parameters {
        Some(Value::Object(schema)) => schema.clone(),
        _ => Map::from_iter([("type".to_owned(), json!("object"))]),
    };
    for key in ["$defs", "definitions"] {
        let Some(Value::Object(own)) = parameters.remove(key) else { continue };
        let all = definitions.entry(key).or_insert_with(|| json!({}));
        for (name, schema) in own {
            if all.get(&name).is_some_and(|known| *known != schema) {
                let message = format!("tools mean different things by {key}/{name}; rename one of them");
                return Err(ApiError::invalid("tools", message));
            }
            all[name] = schema;
        }
    }
    Ok(json!({
        "type": "object",
        "properties": {"name": {"const": function.name}, "parameters": parameters},
        "required": ["name", "parameters"],
        "additionalProperties": false
    }))
}

#[cfg(test)]
mod tests;
