//! Tool calls in what a model writes, piece by piece: the whole is read as a stream too, so both say the same.

use super::object::CallObject;
use crate::config::ToolCallParser;

/// How calls are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallFormat {
    /// `<tool_call>{"name": .., "arguments": {..}}</tool_call>`, as Hermes and Qwen do.
    Hermes,
    /// `{"name": .., "parameters": {..}}`, several of them with `;` between, perhaps behind `<|python_tag|>`.
    Llama3,
    /// `[{"name": .., "parameters": {..}}, ..]`: a grammar forces it.
    List,
}

impl From<ToolCallParser> for CallFormat {
    fn from(parser: ToolCallParser) -> Self {
        match parser {
            ToolCallParser::Hermes => Self::Hermes,
            ToolCallParser::Llama3 => Self::Llama3,
        }
    }
}

impl CallFormat {
    /// What stands in front of calls, wherever they are.
    const fn opening(self) -> Option<&'static str> {
        match self {
            Self::Hermes => Some("<tool_call>"),
            Self::Llama3 => Some("<|python_tag|>"),
            Self::List => None,
        }
    }

    /// What stands behind them, if it has to.
    const fn closing(self) -> Option<&'static str> {
        match self {
            Self::Hermes => Some("</tool_call>"),
            Self::Llama3 => None,
            Self::List => Some("]"),
        }
    }

    /// The first letter of an output that is nothing but calls.
    const fn first_letter(self) -> Option<char> {
        match self {
            Self::Hermes => None,
            Self::Llama3 => Some('{'),
            Self::List => Some('['),
        }
    }

    fn separates(self, letter: char) -> bool {
        letter.is_whitespace()
            || match self {
                Self::Hermes => false,
                Self::Llama3 => letter == ';' || letter == ',',
                Self::List => letter == ',',
            }
    }
}

/// A piece of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Said to the user.
    Text(String),
    /// A call begins.
    Call {
        /// Its place among the calls of the output.
        index: u32,
        /// What is called.
        name: String,
    },
    /// More of a call's arguments.
    Arguments {
        /// Which call.
        index: u32,
        /// As the model wrote them.
        text: String,
    },
}

#[derive(Debug)]
enum Mode {
    Text,
    /// Inside of the marks, with no object begun.
    Between,
    Call(Box<CallObject>),
}

/// Takes an output apart. What looks like a call and is none stays text.
#[derive(Debug)]
pub struct CallStream {
    format: CallFormat,
    /// What may be called.
    names: Vec<String>,
    /// The most calls; more are dropped.
    most: u32,
    calls: u32,
    mode: Mode,
    /// Nothing but white space has come.
    at_start: bool,
    /// Not yet decided on.
    pending: String,
    /// Taken since the last text or call: text again, if no call follows.
    opened: String,
    /// Bytes of the present call's arguments that are out; `None`: its name is not.
    sent: Option<usize>,
}

impl CallStream {
    /// For calls of `names` in `format`, at most `most` of them.
    #[must_use]
    pub fn new(format: CallFormat, names: Vec<String>, most: u32) -> Self {
        Self {
            format,
            names,
            most,
            calls: 0,
            mode: Mode::Text,
            at_start: true,
            pending: String::new(),
            opened: String::new(),
            sent: None,
        }
    }

    /// Takes the next `text`, and returns what is certain by now.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.pending.push_str(text);
        let mut pieces = Vec::new();
        while self.advance(&mut pieces) {}
        pieces
    }

    /// The output has ended.
    pub fn finish(&mut self) -> Vec<Piece> {
        let left = match &self.mode {
            Mode::Call(_) if self.sent.is_some() => String::new(),
            Mode::Call(call) => format!("{}{}", self.opened, call.text()),
            Mode::Text | Mode::Between => format!("{}{}", self.opened, self.pending),
        };
        self.pending.clear();
        if left.is_empty() || self.is_gap(&left) { Vec::new() } else { vec![Piece::Text(left)] }
    }

    /// Does `taken` do no more than to stand behind a call?
    fn is_gap(&self, taken: &str) -> bool {
        self.calls > 0 && taken.chars().all(|letter| self.format.separates(letter))
    }

    /// Has a call begun?
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.calls > 0 || self.sent.is_some()
    }

    /// One step; false if more text is needed.
    fn advance(&mut self, pieces: &mut Vec<Piece>) -> bool {
        if self.pending.is_empty() {
            return false;
        }
        match &mut self.mode {
            Mode::Text => self.advance_text(pieces),
            Mode::Between => self.advance_between(pieces),
            Mode::Call(_) => self.advance_call(pieces),
        }
    }

    fn advance_text(&mut self, pieces: &mut Vec<Piece>) -> bool {
        if self.at_start {
            let Some(first) = self.pending.trim_start().chars().next() else { return false };
            self.at_start = false;
            if self.format.first_letter() == Some(first) {
                let calls = self.pending.trim_start();
                // The bracket of a list belongs to it, the brace of a lone call to the call.
                let rest = if self.format == CallFormat::List { &calls[1..] } else { calls };
                self.opened = self.pending[..self.pending.len() - rest.len()].to_owned();
                self.pending = rest.to_owned();
                self.mode = Mode::Between;
                return true;
            }
        }
        let Some(opening) = self.format.opening() else {
            text(pieces, std::mem::take(&mut self.pending));
            return false;
        };
        if let Some(at) = self.pending.find(opening) {
            let rest = self.pending.split_off(at + opening.len());
            let said = std::mem::replace(&mut self.pending, rest);
            let (said, opened) = said.split_at(said[..at].trim_end().len());
            self.opened = opened.to_owned();
            text(pieces, said.to_owned());
            self.mode = Mode::Between;
            return true;
        }
        // The beginning of a mark may be at the end, and white space in front of a mark is nobody's.
        let certain = self.pending.len() - partial(&self.pending, opening);
        let certain = self.pending[..certain].trim_end().len();
        let rest = self.pending.split_off(certain);
        text(pieces, std::mem::replace(&mut self.pending, rest));
        false
    }

    fn advance_between(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let behind = self.pending.trim_start_matches(|letter| self.format.separates(letter));
        let gap = self.pending.len() - behind.len();
        let taken = if gap > 0 {
            gap
        } else if self.pending.starts_with('{') {
            self.mode = Mode::Call(Box::default());
            return true;
        } else if let Some(closing) = self.format.closing() {
            if self.pending.starts_with(closing) {
                self.mode = Mode::Text;
                closing.len()
            } else if closing.starts_with(&self.pending) {
                return false;
            } else {
                return self.give_up("", pieces);
            }
        } else {
            return self.give_up("", pieces);
        };
        let rest = self.pending.split_off(taken);
        let taken = std::mem::replace(&mut self.pending, rest);
        if matches!(self.mode, Mode::Between) {
            self.opened.push_str(&taken);
        } else {
            self.opened.clear();
        }
        true
    }

    fn advance_call(&mut self, pieces: &mut Vec<Piece>) -> bool {
        let Mode::Call(call) = &mut self.mode else { return false };
        let mut letters = self.pending.chars();
        let ended = letters.by_ref().any(|letter| call.feed(letter));
        let rest = letters.as_str().to_owned();
        self.pending = rest;
        let known = call.name().is_some_and(|name| self.names.iter().any(|known| known == name));
        let none = if ended { !known } else { call.name().is_some() && !known };
        if none {
            let written = call.text().to_owned();
            return self.give_up(&written, pieces);
        }
        if known {
            let (name, index) = (call.name().unwrap_or_default().to_owned(), self.calls);
            let arguments = if ended { call.all_arguments() } else { call.arguments() };
            let wanted = index < self.most;
            if self.sent.is_none() && wanted {
                pieces.push(Piece::Call { index, name });
            }
            let sent = self.sent.unwrap_or(0);
            if arguments.len() > sent && wanted {
                pieces.push(Piece::Arguments { index, text: arguments[sent..].to_owned() });
            }
            self.sent = Some(arguments.len());
        }
        if ended {
            self.calls = (self.calls + 1).min(self.most);
            self.sent = None;
            self.opened.clear();
            self.mode = Mode::Between;
        }
        ended
    }

    /// It was no call: what was taken for one is text.
    fn give_up(&mut self, written: &str, pieces: &mut Vec<Piece>) -> bool {
        let opened = std::mem::take(&mut self.opened);
        let opened = if self.is_gap(&opened) { String::new() } else { opened };
        text(pieces, opened + written);
        self.mode = Mode::Text;
        true
    }
}

fn text(pieces: &mut Vec<Piece>, said: String) {
    if !said.is_empty() {
        pieces.push(Piece::Text(said));
    }
}

/// How many bytes at the end of `text` could be the beginning of `mark`.
#[must_use]
pub fn partial(text: &str, mark: &str) -> usize {
    let lens = (1..mark.len()).rev().filter(|len| mark.is_char_boundary(*len));
    lens.into_iter().find(|len| text.ends_with(&mark[..*len])).unwrap_or(0)
}

#[cfg(test)]
mod tests;
