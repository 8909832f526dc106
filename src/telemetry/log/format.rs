//! One log line: time, level, target, what happened, its fields, and the ids of its trace, request and probe.

use std::fmt;

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt;
use serde_json::{Map, Value};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::LogFormat;
use super::fields::{Fields, MESSAGE};
use super::ids::{self, SpanIds};

/// Writes log lines in one of the shapes.
pub(super) struct Line(pub LogFormat);

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = match fields.0.remove(MESSAGE) {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => event.metadata().name().to_owned(),
        };
        add_ids(&mut fields.0, ids::of_scope(context.event_scope()));
        match self.0 {
            LogFormat::Human => human(&mut to, event.metadata(), &message, &fields.0),
            LogFormat::Json => json(&mut to, event.metadata(), message, fields.0),
        }
    }
}

/// The trace's ids come from the context that is entered now, thus from after the caller's trace was joined. A field that
/// the line itself has stays as it is.
fn add_ids(fields: &mut Map<String, Value>, ids: SpanIds) {
    let mut add = |key: &str, value: Option<String>| {
        if let (Some(value), false) = (value, fields.contains_key(key)) {
            fields.insert(key.to_owned(), Value::String(value));
        }
    };
    let context = Context::current();
    let span = context.span().span_context().clone();
    if span.is_valid() {
        add("trace_id", Some(span.trace_id().to_string()));
        add("span_id", Some(span.span_id().to_string()));
    }
    add("rid", ids.rid);
    add("probe_id", ids.probe_id);
}

fn human(to: &mut Writer<'_>, from: &Metadata<'_>, message: &str, fields: &Map<String, Value>) -> fmt::Result {
    SystemTime.format_time(to)?;
    let (colour, plain) = if to.has_ansi_escapes() { (colour(*from.level()), "\x1b[0m") } else { ("", "") };
    write!(to, " {colour}{:>5}{plain} {}: {message}", from.level(), from.target())?;
    for (key, value) in fields {
        match value {
            // Quoted where a reader could not tell where it ends.
            Value::String(text) if !text.is_empty() && !text.contains([' ', '"', '=', '\n']) => {
                write!(to, " {key}={text}")?;
            }
            other => write!(to, " {key}={other}")?,
        }
    }
    writeln!(to)
}

fn json(to: &mut Writer<'_>, from: &Metadata<'_>, message: String, fields: Map<String, Value>) -> fmt::Result {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    let mut line = Map::new();
    line.insert("timestamp".to_owned(), time.into());
    line.insert("level".to_owned(), from.level().as_str().into());
    line.insert("target".to_owned(), from.target().into());
    line.insert(MESSAGE.to_owned(), message.into());
    for (key, value) in fields {
        // Whatever a field is called, the four above stay what they are.
        line.entry(key).or_insert(value);
    }
    writeln!(to, "{}", Value::Object(line))
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "\x1b[31m",
        Level::WARN => "\x1b[33m",
        Level::INFO => "\x1b[32m",
        Level::DEBUG => "\x1b[34m",
        Level::TRACE => "\x1b[35m",
    }
}
