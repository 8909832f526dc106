//! One log line: time, level, target, what happened, its fields, and the ids of its trace, request and probe.

use std::fmt;

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt;
use serde_json::Value;
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
        let message = match fields.take(MESSAGE) {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => event.metadata().name().to_owned(),
        };
        add_ids(&mut fields, ids::of_scope(context.event_scope()));
        match self.0 {
            LogFormat::Human => human(&mut to, event.metadata(), &message, &fields),
            LogFormat::Json => json(&mut to, event.metadata(), &message, &fields),
        }
    }
}

/// The trace's ids come from the context that is entered now, thus from after the caller's trace was joined.
fn add_ids(fields: &mut Fields, ids: SpanIds) {
    fields.add("rid", ids.rid);
    fields.add("probe_id", ids.probe_id);
    let context = Context::current();
    let span = context.span().span_context().clone();
    if span.is_valid() {
        fields.add("trace_id", Some(span.trace_id().to_string()));
        fields.add("span_id", Some(span.span_id().to_string()));
    }
}

fn human(to: &mut Writer<'_>, from: &Metadata<'_>, message: &str, fields: &Fields) -> fmt::Result {
    SystemTime.format_time(to)?;
    let (colour, plain) = if to.has_ansi_escapes() { (colour(*from.level()), "\x1b[0m") } else { ("", "") };
    write!(to, " {colour}{:>5}{plain} {}: {message}", from.level(), from.target())?;
    for (key, value) in fields.iter() {
        match value {
            Value::String(text) if reads_as_one(text) => write!(to, " {key}={text}")?,
            other => write!(to, " {key}={other}")?,
        }
    }
    writeln!(to)
}

/// Whether a reader can tell where `text` ends without quotes.
fn reads_as_one(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '"' || c == '=')
}

fn json(to: &mut Writer<'_>, from: &Metadata<'_>, message: &str, fields: &Fields) -> fmt::Result {
    let mut time = String::new();
    SystemTime.format_time(&mut Writer::new(&mut time))?;
    let head = [("timestamp", &*time), ("level", from.level().as_str()), ("target", from.target()), (MESSAGE, message)];
    let mut separator = "{";
    for (key, value) in head {
        write!(to, "{separator}\"{key}\":{}", Value::from(value))?;
        separator = ",";
    }
    // Whatever a field is called, the head stays what it is.
    for (key, value) in fields.iter().filter(|(key, _)| head.iter().all(|(taken, _)| taken != key)) {
        write!(to, ",{}:{value}", Value::from(key))?;
    }
    writeln!(to, "}}")
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
