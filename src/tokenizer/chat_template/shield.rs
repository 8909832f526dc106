//! Keeps what users type from becoming control tokens.
//!
//! A mark is put into every place of a message where a control token stands, or where one could come into being once
//! the template has written its own text before and behind it. The rendered text is cut at control tokens while the
//! marks are in it, and they are taken out again afterwards.

use serde_json::{Map, Value};

use super::ROLES;
use crate::tokenizer::control::ControlTokenFinder;

/// Marks for one chat.
pub struct Shield<'c> {
    control: &'c ControlTokenFinder,
    mark: char,
}

impl<'c> Shield<'c> {
    /// Finds a mark that neither the template nor a message holds: a noncharacter, which no text has reason to hold.
    /// `None` if all 66 are taken.
    pub fn new(control: &'c ControlTokenFinder, template: &str, messages: &[Value]) -> Option<Self> {
        let mut free: Vec<char> = noncharacters().collect();
        let mut take = |text: &str| {
            for c in text.chars().filter(|c| is_noncharacter(*c)) {
                free.retain(|mark| *mark != c);
            }
        };
        take(template);
        messages.iter().for_each(|message| visit(message, &mut take));
        Some(Self { control, mark: *free.first()? })
    }

    /// `message` with marks. A role of [`ROLES`] stays as it is: templates make control tokens of roles on purpose.
    pub fn message(&self, message: &Value) -> Value {
        let Value::Object(fields) = message else { return self.value(message) };
        let known_role = |key: &str, value: &Value| key == "role" && value.as_str().is_some_and(|r| ROLES.contains(&r));
        let field = |(key, value): (&String, &Value)| {
            let value = if known_role(key, value) { value.clone() } else { self.value(value) };
            (self.text(key), value)
        };
        Value::Object(fields.iter().map(field).collect())
    }

    /// Takes the marks out again.
    pub fn lift(&self, text: &str) -> String {
        text.replace(self.mark, "")
    }

    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(values) => Value::Array(values.iter().map(|value| self.value(value)).collect()),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(key, value)| (self.text(key), self.value(value)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn text(&self, text: &str) -> String {
        let body = text.trim(); // templates often trim, so what is inside is what meets the template's own text
        let begin = text.len() - text.trim_start().len();
        let mut marked = String::with_capacity(text.len() + 8);
        for (at, c) in text.char_indices() {
            if at == begin && self.could_end_one(body) {
                marked.push(self.mark);
            }
            marked.push(c);
            if self.could_begin_one(&text[at..], begin + body.len() - at.min(begin + body.len())) {
                marked.push(self.mark);
            }
        }
        marked
    }

    /// Could `body`, behind some text of the template, be the end or the middle of a control token?
    fn could_end_one(&self, body: &str) -> bool {
        let ends = |token: &str| token.char_indices().skip(1).any(|(at, _)| body.starts_with(&token[at..]));
        !body.is_empty() && self.control.tokens().iter().any(|(token, _)| token.contains(body) || ends(token))
    }

    /// Does `rest` begin with a control token, or could its first `body` bytes, which are all of it but spaces, be the
    /// beginning of one?
    fn could_begin_one(&self, rest: &str, body: usize) -> bool {
        let begins = |token: &str| body > 0 && token.starts_with(&rest[..body]);
        self.control.at_start(rest.as_bytes()).is_some()
            || self.control.tokens().first().is_some_and(|(longest, _)| body < longest.len())
                && self.control.tokens().iter().any(|(token, _)| begins(token))
    }
}

fn visit(value: &Value, take: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => take(text),
        Value::Array(values) => values.iter().for_each(|value| visit(value, take)),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| {
            take(key);
            visit(value, take);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Unicode's noncharacters: U+FDD0 to U+FDEF, and the last two of each of the 17 planes.
pub fn noncharacters() -> impl Iterator<Item = char> {
    let last_two = (0..=16_u32).flat_map(|plane| [(plane << 16) | 0xFFFE, (plane << 16) | 0xFFFF]);
    ('\u{FDD0}'..='\u{FDEF}').chain(last_two.filter_map(char::from_u32))
}

fn is_noncharacter(c: char) -> bool {
    matches!(c, '\u{FDD0}'..='\u{FDEF}') || (u32::from(c) & 0xFFFE) == 0xFFFE
}
