//! A call as it is written: a JSON object with a name and arguments, read letter by letter.

use std::ops::Range;

/// What has been read of one object.
#[derive(Debug, Default)]
pub struct CallObject {
    text: String,
    depth: u32,
    in_string: bool,
    escaped: bool,
    string_begin: usize,
    /// The last key of the outermost object.
    key: String,
    in_value: bool,
    name: Option<String>,
    /// Where the arguments begin, until they end.
    begun: Option<usize>,
    ended: Option<Range<usize>>,
    /// Arguments that are JSON in a string.
    quoted: Option<String>,
}

impl CallObject {
    /// Takes the next letter; the first is `{`. True if the object ends with it.
    pub fn feed(&mut self, letter: char) -> bool {
        let at = self.text.len();
        self.text.push(letter);
        if self.in_string {
            match letter {
                _ if self.escaped => self.escaped = false,
                '\\' => self.escaped = true,
                '"' => {
                    self.in_string = false;
                    if self.depth == 1 {
                        self.string_ended(at + 1);
                    }
                }
                _ => {}
            }
            return false;
        }
        match letter {
            '"' => (self.in_string, self.string_begin) = (true, at),
            '{' | '[' => {
                if self.depth == 1 && self.in_value && is_arguments(&self.key) && self.ended.is_none() {
                    self.begun = Some(at);
                }
                self.depth += 1;
            }
            '}' | ']' => {
                self.depth -= 1;
                if self.depth == 1 {
                    self.ended = self.begun.take().map(|begin| begin..at + 1).or(self.ended.take());
                }
            }
            ':' if self.depth == 1 => self.in_value = true,
            ',' if self.depth == 1 => self.in_value = false,
            _ => {}
        }
        self.depth == 0
    }

    fn string_ended(&mut self, end: usize) {
        let string = serde_json::from_str::<String>(&self.text[self.string_begin..end]).ok();
        match (self.in_value, self.key.as_str()) {
            (false, _) => self.key = string.unwrap_or_default(),
            (true, "name") => self.name = self.name.take().or(string),
            (true, key) if is_arguments(key) => self.quoted = string,
            (true, _) => {}
        }
    }

    /// The object so far.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is to be called, once it is known.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The arguments so far, as they are written.
    #[must_use]
    pub fn arguments(&self) -> &str {
        match (&self.ended, self.begun) {
            (Some(range), _) => &self.text[range.clone()],
            (None, Some(begin)) => &self.text[begin..],
            (None, None) => "",
        }
    }

    /// The arguments of an object that has ended; `{}` if there are none.
    #[must_use]
    pub fn all_arguments(&self) -> &str {
        match (self.arguments(), &self.quoted) {
            ("", Some(quoted)) => quoted,
            ("", None) => "{}",
            (arguments, _) => arguments,
        }
    }
}

fn is_arguments(key: &str) -> bool {
    key == "arguments" || key == "parameters"
}
