//! Structural tags, as SGLang and xgrammar have them: free text in which whatever begins like a tag is one.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{GrammarError, with_bounded_space};

/// Any text.
const ANY: &str = "/(?s:.)*/";

/// The same in Lark.
///
/// # Errors
/// `text` is not of SGLang's form, or its tags and triggers do not belong together.
pub(super) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let mut json = serde_json::Deserializer::from_str(text);
    let read: StructuralTag = serde_path_to_error::deserialize(&mut json).map_err(GrammarError::new)?;
    json.end().map_err(GrammarError::new)?;
    read.triggered()?.lark()
}

#[derive(Deserialize)]
struct StructuralTag {
    structures: Option<Vec<Structure>>,
    triggers: Option<Vec<String>>,
    format: Option<Format>,
}

/// A tag in the older form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Structure {
    begin: String,
    schema: Option<Value>,
    end: String,
}

/// The one of xgrammar's formats that is known here.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format {
    TriggeredTags(Triggered),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Triggered {
    triggers: Vec<String>,
    tags: Vec<Tag>,
    /// The output begins with a tag.
    #[serde(default)]
    at_least_one: bool,
    /// The output ends after a tag.
    #[serde(default)]
    stop_after_first: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tag {
    #[serde(rename = "type", default)]
    _kind: TagKind,
    begin: String,
    content: Content,
    end: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum TagKind {
    #[default]
    Tag,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Content {
    JsonSchema { json_schema: Value },
}

impl StructuralTag {
    fn triggered(self) -> Result<Triggered, GrammarError> {
        match self {
            Self { structures: None, triggers: None, format: Some(Format::TriggeredTags(triggered)) } => Ok(triggered),
            Self { structures: Some(structures), triggers: Some(triggers), format: None } => {
                let tag = |Structure { begin, schema, end }| {
                    let content = Content::JsonSchema { json_schema: schema.unwrap_or(Value::Bool(true)) };
                    Tag { _kind: TagKind::Tag, begin, content, end }
                };
                let tags = structures.into_iter().map(tag).collect();
                Ok(Triggered { triggers, tags, at_least_one: false, stop_after_first: false })
            }
            _ => Err(GrammarError::new("it needs structures and triggers, or a format")),
        }
    }
}

impl Triggered {
    fn lark(self) -> Result<String, GrammarError> {
        let of_triggers = self.tags_of_triggers()?;
        let start = match (self.at_least_one, self.stop_after_first) {
            (false, false) => "tag* REST",
            (true, false) => "first tag* REST",
            (false, true) => "REST | tag",
            (true, true) => "first",
        };
        let (mut tag, mut first, mut none, mut rules) = (Vec::new(), Vec::new(), Vec::new(), String::new());
        for (index, (trigger, tags)) in of_triggers.into_iter().enumerate() {
            let after: Vec<String> =
                tags.iter().map(|of| format!("{} t{of}", literal(&self.tags[*of].begin[trigger.len()..]))).collect();
            tag.push(format!("f{index} ({})", after.join(" | ")));
            first.extend(tags.iter().map(|of| format!("{} t{of}", literal(&self.tags[*of].begin))));
            none.push(format!("{ANY} {} {ANY}", literal(trigger)));
            rules += &format!("f{index}[lazy]: {ANY} {}\n", literal(trigger));
        }
        for (index, Tag { content: Content::JsonSchema { json_schema }, end, .. }) in self.tags.iter().enumerate() {
            let schema = with_bounded_space(json_schema.clone())?;
            rules += &format!("t{index}: %json {schema} {}\n", literal(end));
        }
        rules += &format!("tag: {}\nfirst: {}\n", tag.join(" | "), first.join(" | "));
        Ok(format!("start: {start}\n{rules}REST: {ANY} & ~({})\n", none.join(" | ")))
    }

    /// For each trigger that can come first the tags behind it, as indices: a longer one would never be reached.
    fn tags_of_triggers(&self) -> Result<Vec<(&str, Vec<usize>)>, GrammarError> {
        let mut triggers: Vec<&str> = self.triggers.iter().map(String::as_str).collect();
        triggers.sort_by_key(|trigger| trigger.len());
        triggers.dedup();
        if triggers.first().is_none_or(|shortest| shortest.is_empty()) || self.tags.is_empty() {
            return Err(GrammarError::new("it needs tags, and triggers that are not empty"));
        }
        let begins = |trigger: &str| self.tags.iter().any(|tag| tag.begin.starts_with(trigger));
        if let Some(idle) = triggers.iter().find(|trigger| !begins(trigger)) {
            return Err(GrammarError::new(format!("no tag begins with the trigger {}", json!(idle))));
        }
        let mut all: Vec<(&str, Vec<usize>)> = triggers.into_iter().map(|trigger| (trigger, Vec::new())).collect();
        for (index, tag) in self.tags.iter().enumerate() {
            match all.iter_mut().find(|(trigger, _)| tag.begin.starts_with(trigger)) {
                Some((_, tags)) => tags.push(index),
                None => {
                    return Err(GrammarError::new(format!("{} begins with none of the triggers", json!(tag.begin))));
                }
            }
        }
        all.retain(|(_, tags)| !tags.is_empty());
        Ok(all)
    }
}

/// A string of Lark is written as one of JSON; an empty one is left out.
fn literal(text: &str) -> String {
    if text.is_empty() { String::new() } else { Value::from(text).to_string() }
}
