//! Everything that is emitted, described: what `radiosonde telemetry` prints, and what stands in `docs/`.

mod logs;
mod metrics;
mod traces;

use serde::Serialize;
use serde_json::{Map, Value};

/// What can be described apart from the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// The series, and their names elsewhere.
    Metrics,
    /// The spans, their events and attributes, and the variables of export.
    Traces,
    /// The log lines.
    Logs,
}

impl Section {
    /// Every section, in the order in which an incident asks for them.
    pub const ALL: &'static [Self] = &[Self::Metrics, Self::Traces, Self::Logs];

    const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Traces => "traces",
            Self::Logs => "logs",
        }
    }

    fn markdown(self) -> Result<String, prometheus::Error> {
        match self {
            Self::Metrics => metrics::markdown(),
            Self::Traces => Ok(traces::markdown()),
            Self::Logs => Ok(logs::markdown()),
        }
    }

    fn json(self) -> Result<Value, prometheus::Error> {
        match self {
            Self::Metrics => metrics::json().map(Value::Object),
            Self::Traces => Ok(traces::json()),
            Self::Logs => Ok(logs::json()),
        }
    }
}

/// The `sections` for people, with an empty line between two. Of one section, it is the file of its name in `docs/`.
///
/// # Errors
/// A series is declared wrongly.
pub fn markdown(sections: &[Section]) -> Result<String, prometheus::Error> {
    let texts: Result<Vec<_>, _> = sections.iter().map(|section| section.markdown()).collect();
    Ok(texts?.join("\n"))
}

/// The `sections` for programs: one object, with a member for each.
///
/// # Errors
/// A series is declared wrongly.
pub fn json(sections: &[Section]) -> Result<String, prometheus::Error> {
    let mut all = Map::new();
    for section in sections {
        all.insert(section.name().to_owned(), section.json()?);
    }
    Ok(format!("{:#}\n", Value::Object(all)))
}

/// A table of `rows` under `head`.
fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let head = head.map(str::to_owned);
    let rule = [(); N].map(|()| "---".to_owned());
    let mut text = format!("| {} |\n|{}|\n", head.join(" | "), rule.join("|"));
    for row in rows {
        text.push_str(&format!("| {} |\n", row.join(" | ")));
    }
    text
}

/// `text` in the type of code.
fn code(text: &str) -> String {
    format!("`{text}`")
}

/// All of `texts` in the type of code, with spaces between.
fn codes<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    texts.into_iter().map(code).collect::<Vec<_>>().join(" ")
}

/// What is described is made of texts and lists alone.
fn to_value(described: &impl Serialize) -> Value {
    serde_json::to_value(described).expect("text can be written as JSON")
}
