//! The fields of a log line, as JSON values.

use std::error::Error;
use std::fmt::Debug;

use serde_json::Value;
use tracing::field::{Field, Visit};

/// The name under which `tracing` passes the text of an event.
pub(super) const MESSAGE: &str = "message";

/// The fields of an event, in its order.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<(&'static str, Value)>);

impl Fields {
    /// Takes a field out.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        let index = self.0.iter().position(|(key, _)| *key == name)?;
        Some(self.0.remove(index).1)
    }

    /// Adds a field behind the others; one that the event itself has stays as it is.
    pub fn add(&mut self, name: &'static str, value: Option<String>) {
        if let (Some(value), false) = (value, self.0.iter().any(|(key, _)| *key == name)) {
            self.0.push((name, Value::String(value)));
        }
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        self.0.iter().map(|(key, value)| (*key, value))
    }

    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.push((field.name(), value.into()));
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    /// The error and what it came from, in one text.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        self.put(field, text);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}"));
    }
}
