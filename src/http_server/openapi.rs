//! `/openapi.json`: the table of paths and the types behind it, as an OpenAPI 3.1 document.

pub mod answers;
pub mod requests;

use std::sync::LazyLock;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::endpoints::{self, Access, ENDPOINTS, Endpoint, Family, SchemaOf};

/// Written once, when somebody first asks.
static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());

/// The path.
pub fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/openapi.json", get(async || ([(CONTENT_TYPE, "application/json")], TEXT.as_str())))
}

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut writer = Writer::new();
    let mut paths = Map::new();
    for endpoint in ENDPOINTS {
        let operations =
            endpoint.methods.iter().map(|method| (method.to_lowercase(), writer.operation(endpoint, method)));
        paths.insert(shown(endpoint.path), operations.collect::<Map<_, _>>().into());
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "radiosonde",
            "version": env!("CARGO_PKG_VERSION"),
            "description": env!("CARGO_PKG_DESCRIPTION"),
            "license": {"name": env!("CARGO_PKG_LICENSE"), "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "tags": Family::ALL.map(|family| json!({"name": endpoints::title(family)})),
        "paths": paths,
        "components": {
            "schemas": writer.schemas(),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    })
}

/// The path as OpenAPI writes it: a rest of several segments is one parameter.
fn shown(path: &str) -> String {
    path.replace("{*", "{")
}

/// Writes operations, and collects the schemas that they name.
struct Writer {
    /// Of what is read: what may be left out is optional.
    requests: SchemaGenerator,
    /// Of what is written: what is always there is required.
    answers: SchemaGenerator,
}

impl Writer {
    fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        Self { requests: settings.clone().into_generator(), answers: settings.for_serialize().into_generator() }
    }

    fn schemas(&mut self) -> Map<String, Value> {
        let mut schemas = self.requests.take_definitions(true);
        schemas.values_mut().for_each(hide_refused);
        schemas.extend(self.answers.take_definitions(true));
        schemas
    }

    fn operation(&mut self, endpoint: &Endpoint, method: &str) -> Value {
        let mut operation = json!({
            "operationId": operation_id(endpoint.path, method),
            "summary": endpoint.what,
            "tags": [endpoints::title(endpoint.family)],
            "parameters": self.parameters(endpoint),
            "responses": self.responses(endpoint),
        });
        if endpoint.alias_of.is_some() {
            operation["deprecated"] = true.into();
        }
        operation["security"] = match endpoints::access(Some(endpoint.path)) {
            Access::Open => json!([]),
            Access::Api | Access::Admin => json!([{}, {"key": []}]),
        };
        if let Some(schema) = endpoint.takes.filter(|_| ["POST", "PUT"].contains(&method)) {
            let content = json!({"application/json": {"schema": schema(&mut self.requests)}});
            operation["requestBody"] = json!({"required": !endpoint.body_is_optional, "content": content});
        }
        operation
    }

    fn parameters(&mut self, endpoint: &Endpoint) -> Vec<Value> {
        let segments = endpoint.path.split('/');
        let names = segments.filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let in_path = names.map(|name| {
            let name = name.trim_start_matches('*');
            json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})
        });
        in_path.chain(endpoint.asks.map(query).unwrap_or_default()).collect()
    }

    fn responses(&mut self, endpoint: &Endpoint) -> Map<String, Value> {
        let mut statuses: Vec<u16> = endpoint.statuses.iter().chain(&[401, 500]).copied().collect();
        statuses.sort_unstable();
        statuses.dedup();
        statuses.into_iter().map(|status| (status.to_string(), self.response(endpoint, status))).collect()
    }

    fn response(&mut self, endpoint: &Endpoint, status: u16) -> Value {
        // A 503 of health is a verdict, and its body is that of a 200.
        let is_verdict = status == 503 && endpoint.family == Family::Health;
        let mut response = json!({"description": meaning(status, is_verdict)});
        if status == 200 || is_verdict {
            response["content"] = self.content(endpoint).into();
        } else {
            response["content"] = json!({"application/json": {"schema": self.answer::<answers::ErrorBody>()}});
        }
        if status == 503 && !is_verdict {
            response["headers"] = json!({"Retry-After": {"required": true, "schema": {"type": "string"}}});
        }
        response
    }

    fn content(&mut self, endpoint: &Endpoint) -> Map<String, Value> {
        let mut content = Map::new();
        if let Some(schema) = endpoint.gives {
            content.insert("application/json".to_owned(), json!({"schema": schema(&mut self.answers)}));
        }
        if let Some(event) = endpoint.streams {
            let schema = json!({"type": "string", "description": "`data: <x-event>` .., then `data: [DONE]`"});
            let media = json!({"schema": schema, "x-event": event(&mut self.answers)});
            content.insert("text/event-stream".to_owned(), media);
        }
        let text = |kind: &&str| ((*kind).to_owned(), json!({"schema": {"type": "string"}}));
        content.extend(endpoint.texts.iter().map(text));
        content
    }

    fn answer<T: JsonSchema>(&mut self) -> Schema {
        self.answers.subschema_for::<T>()
    }
}

/// Fields that may have any type are those that are known and refused, or of others' making: nobody should send them.
fn hide_refused(schema: &mut Value) {
    let is_typed = |schema: &Value| {
        ["type", "anyOf", "oneOf", "allOf", "$ref", "enum", "const"].iter().any(|key| schema.get(key).is_some())
    };
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.retain(|_, schema| is_typed(schema));
    }
}

/// Each field of a query is a parameter.
fn query(schema: SchemaOf) -> Vec<Value> {
    let mut generator =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true).into_generator();
    let schema = schema(&mut generator).to_value();
    let fields = schema["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, schema): (String, Value)| json!({"name": name, "in": "query", "required": false, "schema": {"type": "string"}, "description": schema["description"]});
    fields.into_iter().map(parameter).collect()
}

fn operation_id(path: &str, method: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    format!("{}_{}", method.to_lowercase(), if words.is_empty() { "root".to_owned() } else { words.join("_") })
}

fn meaning(status: u16, is_verdict: bool) -> &'static str {
    match status {
        200 => "It worked.",
        400 => "Bad input: the message names field and limit.",
        401 => "No key, or a wrong one, where keys are asked for.",
        403 => "Not allowed by this server's flags.",
        404 => "There is no such thing.",
        413 => "The body is too large (--max-body-mib).",
        415 => "The body is not JSON.",
        503 if is_verdict => "The verdict is bad.",
        503 => "Not now: the queue is full, or the server starts, drains or has no engine.",
        _ => "The server failed.",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_document_has_every_path_method_and_status() {
        let document = document();
        let paths = document["paths"].as_object().unwrap();
        assert_eq!(paths.len(), ENDPOINTS.len());
        for endpoint in ENDPOINTS {
            let operations = paths[&shown(endpoint.path)].as_object().unwrap();
            let methods: BTreeSet<String> = operations.keys().map(|method| method.to_uppercase()).collect();
            assert_eq!(methods, endpoint.methods.iter().map(ToString::to_string).collect(), "{}", endpoint.path);
            for operation in operations.values() {
                for status in endpoint.statuses.iter().chain(&[401, 500]) {
                    let response = &operation["responses"][status.to_string()];
                    assert!(response["content"].as_object().is_some_and(|content| !content.is_empty()), "{operation}");
                }
            }
        }
    }

    #[test]
    fn every_name_is_explained() {
        let document = document();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let text = document.to_string();
        let mut named = text.split("\"#/components/schemas/").skip(1).map(|rest| rest.split('"').next().unwrap());
        assert!(named.clone().count() > schemas.len());
        assert!(named.all(|name| schemas.contains_key(name)));
    }

    #[test]
    fn no_name_means_two_things() {
        let mut writer = Writer::new();
        for endpoint in ENDPOINTS {
            endpoint.methods.iter().for_each(|method| drop(writer.operation(endpoint, method)));
        }
        let (read, written) = (writer.requests.take_definitions(true), writer.answers.take_definitions(true));
        for (name, schema) in &read {
            assert!(written.get(name).is_none_or(|other| other == schema), "{name}");
        }
    }
}
