//! Reasoning in what a model writes, `<think>..</think>` in front of the answer, piece by piece.

use super::tools::calls::partial;
use crate::config::ReasoningParser;

const BEGIN: &str = "<think>";
const END: &str = "</think>";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nothing but white space has come.
    Start,
    Reasoning,
    Answer,
}

/// Whether reasoning is told as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    /// Piece by piece.
    AtOnce,
    /// When it is whole.
    Whole,
}

/// Takes an output apart. White space around the reasoning is nobody's.
#[derive(Debug)]
pub struct ReasoningStream {
    place: Place,
    /// The model reasons even where it does not say so: its template has begun it.
    always: bool,
    telling: Telling,
    pending: String,
    /// Reasoning that is not told yet.
    kept: String,
    /// The next part has not begun: its white space is dropped.
    fresh: bool,
}

/// What is certain by now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parts {
    /// More of the reasoning.
    pub reasoning: String,
    /// More of the answer.
    pub answer: String,
}

impl ReasoningStream {
    /// For what a model writes that reasons as `parser` says.
    #[must_use]
    pub fn new(parser: ReasoningParser, telling: Telling) -> Self {
        let always = match parser {
            ReasoningParser::Qwen3 => false,
            ReasoningParser::Qwen3Thinking | ReasoningParser::DeepseekR1 => true,
        };
        let (pending, kept) = (String::new(), String::new());
        Self { place: Place::Start, always, telling, pending, kept, fresh: true }
    }

    /// Takes the next `text`, and returns what is certain by now.
    pub fn push(&mut self, text: &str) -> Parts {
        self.pending.push_str(text);
        let mut parts = Parts::default();
        if self.place == Place::Start {
            self.begin();
        }
        if self.place == Place::Reasoning {
            self.reason(&mut parts);
        }
        if self.place == Place::Answer {
            self.answer(&mut parts);
        }
        parts
    }

    /// The output has ended.
    pub fn finish(&mut self) -> Parts {
        let left = std::mem::take(&mut self.pending);
        match self.place {
            Place::Reasoning => {
                Parts { reasoning: std::mem::take(&mut self.kept) + left.trim_end(), ..Parts::default() }
            }
            Place::Start if self.always => Parts { reasoning: left.trim().to_owned(), ..Parts::default() },
            Place::Start | Place::Answer => Parts { answer: left, ..Parts::default() },
        }
    }

    fn begin(&mut self) {
        let begun = self.pending.trim_start();
        if let Some(rest) = begun.strip_prefix(BEGIN) {
            self.pending = rest.to_owned();
            self.place = Place::Reasoning;
        } else if !BEGIN.starts_with(begun) {
            (self.place, self.fresh) = if self.always { (Place::Reasoning, true) } else { (Place::Answer, false) };
        }
    }

    fn reason(&mut self, parts: &mut Parts) {
        self.drop_space();
        let end = self.pending.find(END);
        let certain = end.unwrap_or_else(|| self.pending.len() - partial(&self.pending, END));
        let told = self.pending[..certain].trim_end().len();
        let rest = self.pending.split_off(end.map_or(told, |end| end + END.len()));
        self.pending.truncate(told);
        self.kept.push_str(&std::mem::replace(&mut self.pending, rest));
        self.fresh &= self.kept.is_empty();
        if end.is_some() {
            (self.place, self.fresh) = (Place::Answer, true);
        }
        if end.is_some() || self.telling == Telling::AtOnce {
            self.fresh |= end.is_some();
            parts.reasoning = std::mem::take(&mut self.kept);
        }
    }

    fn answer(&mut self, parts: &mut Parts) {
        self.drop_space();
        self.fresh &= self.pending.is_empty();
        parts.answer = std::mem::take(&mut self.pending);
    }

    fn drop_space(&mut self) {
        if self.fresh {
            self.pending = self.pending.trim_start().to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(parser: ReasoningParser, telling: Telling, output: &str, size: usize) -> Vec<Parts> {
        let letters: Vec<char> = output.chars().collect();
        let mut stream = ReasoningStream::new(parser, telling);
        let mut parts: Vec<Parts> =
            letters.chunks(size).map(|chunk| stream.push(&chunk.iter().collect::<String>())).collect();
        parts.push(stream.finish());
        parts
    }

    #[test]
    fn what_is_reasoning_and_what_is_the_answer() {
        let check = |parser, output: &str, reasoning: &str, answer: &str| {
            for (size, telling) in (1..=output.len().max(1)).flat_map(|s| [(s, Telling::AtOnce), (s, Telling::Whole)]) {
                let parts = read(parser, telling, output, size);
                let told: String = parts.iter().map(|parts| parts.reasoning.as_str()).collect();
                let said: String = parts.iter().map(|parts| parts.answer.as_str()).collect();
                assert_eq!((told.as_str(), said.as_str()), (reasoning, answer), "{output:?} in pieces of {size}");
                let times = parts.iter().filter(|parts| !parts.reasoning.is_empty()).count();
                assert!(telling == Telling::AtOnce || times <= 1);
            }
        };
        check(ReasoningParser::Qwen3, "<think>\nTwo and\n two.\n</think>\n\nFour. \n", "Two and\n two.", "Four. \n");
        check(ReasoningParser::Qwen3, "<think>\n\n</think>\n\nFour.", "", "Four.");
        check(ReasoningParser::Qwen3, "Four < <think>5</think>", "", "Four < <think>5</think>");
        check(ReasoningParser::Qwen3, " <thin", "", " <thin");
        check(ReasoningParser::Qwen3, "<think>Two </thi", "Two </thi", "");
        check(ReasoningParser::Qwen3, "", "", "");
        check(ReasoningParser::DeepseekR1, "Two and two.\n</think>\nFour.", "Two and two.", "Four.");
        check(ReasoningParser::DeepseekR1, "<think>Two.</think>Four.</think>", "Two.", "Four.</think>");
        check(ReasoningParser::DeepseekR1, "Two and", "Two and", "");
        check(ReasoningParser::Qwen3Thinking, "<th</think>é", "<th", "é");
    }

    #[test]
    fn reasoning_is_told_as_it_comes() {
        let parts = read(ReasoningParser::DeepseekR1, Telling::AtOnce, "ab c</think>d", 1);
        let told: Vec<&str> =
            parts.iter().map(|parts| parts.reasoning.as_str()).filter(|told| !told.is_empty()).collect();
        assert_eq!(told, ["a", "b", " c"]);
    }
}
