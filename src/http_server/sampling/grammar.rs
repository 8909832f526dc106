//! The fields that say what an output must look like; at most one of them.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::SamplingFields;
use crate::http_server::error::ApiError;
use crate::http_server::openapi::requests::TextOrObject;
use crate::io_struct::grammar::MAX_GRAMMAR_BYTES;
use crate::io_struct::{Grammar, GrammarSyntax};
use crate::telemetry::labels::GrammarField;

/// OpenAI's `response_format`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct ResponseFormat {
    /// `text`, `json_object`, `json_schema` or `structural_tag`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What `json_schema` means.
    #[serde(default)]
    pub json_schema: Option<JsonSchemaFormat>,
    /// The tags of a `structural_tag`: `begin`, `schema`, `end`.
    #[serde(default)]
    pub structures: Option<Value>,
    /// What a tag begins with.
    #[serde(default)]
    pub triggers: Option<Value>,
    /// Both in the newer form of `triggered_tags`.
    #[serde(default)]
    pub format: Option<Value>,
}

/// A schema in a `response_format`. Its name is of no use here, and it is always followed strictly.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct JsonSchemaFormat {
    /// The schema.
    #[serde(default, alias = "schema_")]
    #[schemars(with = "Option<TextOrObject>")]
    pub schema: Option<Value>,
}

impl SamplingFields {
    /// The grammar that is asked for. `null` and empty text ask for none.
    ///
    /// # Errors
    /// More than one, or one that is too long or of the wrong type. Whether it can be compiled is found out later.
    pub(super) fn grammar(&self) -> Result<Option<Grammar>, ApiError> {
        let asked = [
            json(GrammarField::JsonSchema, GrammarSyntax::JsonSchema, self.json_schema.as_ref()),
            text(GrammarField::Regex, GrammarSyntax::Regex, self.regex.as_ref())?,
            text(GrammarField::Ebnf, GrammarSyntax::Ebnf, self.ebnf.as_ref())?,
            json(GrammarField::StructuralTag, GrammarSyntax::StructuralTag, self.structural_tag.as_ref()),
            self.response_format.as_ref().map(of_format).transpose()?.flatten(),
        ];
        let mut asked = asked.into_iter().flatten();
        match (asked.next(), asked.next()) {
            (Some(first), Some(second)) => {
                let (first, second) = (first.field.as_str(), second.field.as_str());
                let message = format!("{first} and {second} are given; an output can follow only one of them");
                Err(ApiError::invalid(second, message))
            }
            (Some(grammar), None) if grammar.text.len() > MAX_GRAMMAR_BYTES => {
                let (field, len) = (grammar.field, grammar.text.len());
                let message = format!("{field} has {len} bytes; the limit is {MAX_GRAMMAR_BYTES}");
                Err(ApiError::invalid(field.as_str(), message))
            }
            (grammar, _) => Ok(grammar),
        }
    }
}

/// JSON as text, or as the object itself.
fn json(field: GrammarField, syntax: GrammarSyntax, value: Option<&Value>) -> Option<Grammar> {
    let text = match value? {
        Value::Null => return None,
        Value::String(text) if text.is_empty() => return None,
        Value::String(text) => text.as_str().into(),
        object => object.to_string().into(),
    };
    Some(Grammar { field, syntax, text })
}

fn text(field: GrammarField, syntax: GrammarSyntax, value: Option<&Value>) -> Result<Option<Grammar>, ApiError> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) => Ok(Some(Grammar { field, syntax, text: text.as_str().into() })),
        Some(_) => Err(ApiError::invalid(field.as_str(), format!("{field} must be a string"))),
    }
}

fn of_format(format: &ResponseFormat) -> Result<Option<Grammar>, ApiError> {
    let field = GrammarField::ResponseFormat;
    let schema = match (format.kind.as_str(), &format.json_schema) {
        ("structural_tag", _) => {
            let ResponseFormat { structures, triggers, format, .. } = format;
            let tags = serde_json::json!({"structures": structures, "triggers": triggers, "format": format});
            return Ok(json(field, GrammarSyntax::StructuralTag, Some(&tags)));
        }
        ("text", _) => return Ok(None),
        ("json_object", _) => r#"{"type":"object"}"#.to_owned(),
        ("json_schema", Some(JsonSchemaFormat { schema: Some(schema) })) => schema.to_string(),
        ("json_schema", _) => {
            let param = "response_format.json_schema.schema";
            return Err(ApiError::invalid(param, format!("{param} is missing")));
        }
        (kind, _) => {
            let kind: String = kind.chars().take(80).collect();
            let message = format!(
                "response_format of type '{kind}' is not supported; text, json_object, json_schema and structural_tag are"
            );
            return Err(ApiError::invalid("response_format", message));
        }
    };
    Ok(Some(Grammar { field, syntax: GrammarSyntax::JsonSchema, text: schema.into() }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_asks_for_a_grammar() {
        let check = |fields: Value, want: Option<(GrammarField, GrammarSyntax, &str)>| {
            let fields: SamplingFields = serde_json::from_value(fields).unwrap();
            let grammar = fields.grammar().unwrap();
            let got = grammar.as_ref().map(|grammar| (grammar.field, grammar.syntax, &*grammar.text));
            assert_eq!(got, want);
        };
        use {GrammarField as F, GrammarSyntax as S};
        check(json!({}), None);
        check(json!({"json_schema": null, "regex": "", "ebnf": null, "response_format": {"type": "text"}}), None);
        check(json!({"json_schema": {"b": 1, "a": 2}}), Some((F::JsonSchema, S::JsonSchema, r#"{"b":1,"a":2}"#)));
        check(json!({"json_schema": "{}"}), Some((F::JsonSchema, S::JsonSchema, "{}")));
        check(json!({"regex": "a+"}), Some((F::Regex, S::Regex, "a+")));
        check(json!({"ebnf": "root ::= \"a\""}), Some((F::Ebnf, S::Ebnf, "root ::= \"a\"")));
        let object = Some((F::ResponseFormat, S::JsonSchema, r#"{"type":"object"}"#));
        check(json!({"response_format": {"type": "json_object"}}), object);
        let schema = json!({"name": "x", "schema": {"type": "object"}, "strict": true});
        check(json!({"response_format": {"type": "json_schema", "json_schema": schema}}), object);
        check(json!({"structural_tag": {"format": 1}}), Some((F::StructuralTag, S::StructuralTag, r#"{"format":1}"#)));
        let tags = r#"{"structures":[],"triggers":["<"],"format":null}"#;
        let format = json!({"type": "structural_tag", "structures": [], "triggers": ["<"]});
        check(json!({"response_format": format}), Some((F::ResponseFormat, S::StructuralTag, tags)));
    }

    #[test]
    fn what_is_refused() {
        let check = |fields: Value, param: &str| {
            let parsed: SamplingFields = serde_json::from_value(fields.clone()).unwrap();
            assert_eq!(parsed.grammar().unwrap_err().param.as_deref(), Some(param), "{fields}");
        };
        check(json!({"regex": 7}), "regex");
        check(json!({"regex": "a".repeat(MAX_GRAMMAR_BYTES + 1)}), "regex");
        check(json!({"json_schema": {"const": "a".repeat(MAX_GRAMMAR_BYTES)}}), "json_schema");
        check(json!({"ebnf": ["a"]}), "ebnf");
        check(json!({"regex": "a", "ebnf": "b"}), "ebnf");
        check(json!({"json_schema": {}, "response_format": {"type": "json_object"}}), "response_format");
        check(json!({"response_format": {"type": "grammar"}}), "response_format");
        check(json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema.schema");
        let without = json!({"type": "json_schema", "json_schema": {"name": "x"}});
        check(json!({"response_format": without}), "response_format.json_schema.schema");
    }
}
