//! The dashboards as files: their panels, and their queries with Grafana's variables filled in.

use serde_json::Value;

use crate::{files, read};

/// One dashboard.
pub struct Board {
    /// Its path from the root.
    pub file: String,
    /// What is in it.
    pub json: Value,
}

impl Board {
    /// All of them, by name.
    pub fn all() -> Vec<Self> {
        let parse = |file: String| {
            let json = serde_json::from_str(&read(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            Self { file, json }
        };
        files("dashboards", ".json").into_iter().map(parse).collect()
    }

    /// Its name in addresses.
    pub fn uid(&self) -> &str {
        text(&self.json, "/uid")
    }

    /// Rows and panels.
    pub fn everything(&self) -> impl Iterator<Item = &Value> {
        self.json["panels"].as_array().into_iter().flatten()
    }

    /// Panels.
    pub fn panels(&self) -> impl Iterator<Item = &Value> {
        self.everything().filter(|panel| panel["type"] != "row")
    }
}

/// The string at a place, or an empty one.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// An expression as Grafana sends it with everything selected, an hour shown and a scrape every 15 s.
pub fn all_selected(expression: &str) -> String {
    variables_filled(&expression.replace("$job", ".+").replace("$instance", ".+"))
}

/// The same, with job and instance left as they are.
pub fn variables_filled(expression: &str) -> String {
    [("$__rate_interval", "1m"), ("$__range", "1h")]
        .iter()
        .fold(expression.to_owned(), |text, (variable, span)| text.replace(variable, span))
}
