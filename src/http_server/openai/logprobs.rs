//! Logprobs in the two forms that OpenAI's APIs have for them.

use serde_json::{Map, Value, json};

use crate::http_server::generate::logprobs::finite;
use crate::io_struct::{TokenId, TokenLogprob};
use crate::tokenizer::Tokenizer;

/// Chat: an entry for each token, its rivals inside it.
#[must_use]
pub fn chat(tokenizer: &Tokenizer, entries: &[TokenLogprob]) -> Value {
    let one = |token: TokenId, logprob: f32| {
        let bytes = tokenizer.token_bytes(token);
        json!({"token": String::from_utf8_lossy(bytes), "logprob": finite(logprob), "bytes": bytes})
    };
    let entry = |entry: &TokenLogprob| {
        let mut object = one(entry.token, entry.logprob);
        object["top_logprobs"] = entry.top.iter().map(|(token, logprob)| one(*token, *logprob)).collect();
        object
    };
    json!({"content": entries.iter().map(entry).collect::<Vec<_>>(), "refusal": null})
}

/// Completions: four lists side by side. Goes on where it stopped, so that a stream's offsets run through.
#[derive(Debug, Clone, Default)]
pub struct CompletionLogprobs {
    /// Characters so far.
    offset: usize,
}

/// A token of a completion; the first one of an echoed prompt has no logprob.
#[derive(Debug, Clone, Copy)]
pub enum Scored<'l> {
    /// Nothing stands before it.
    First(TokenId),
    /// Of the prompt or of the output.
    Entry(&'l TokenLogprob),
}

impl CompletionLogprobs {
    /// The lists for the next `tokens`.
    pub fn lists<'l>(&mut self, tokenizer: &Tokenizer, tokens: impl IntoIterator<Item = Scored<'l>>) -> Value {
        let (mut texts, mut logprobs, mut rivals, mut offsets) = (vec![], vec![], vec![], vec![]);
        for scored in tokens {
            let (token, logprob, top) = match scored {
                Scored::First(token) => (token, Value::Null, Value::Null),
                Scored::Entry(entry) => (entry.token, json!(finite(entry.logprob)), top(tokenizer, entry)),
            };
            texts.push(json!(token_text(tokenizer, token)));
            logprobs.push(logprob);
            rivals.push(top);
            offsets.push(json!(self.offset));
            self.offset += characters(tokenizer.token_bytes(token));
        }
        json!({"tokens": texts, "token_logprobs": logprobs, "top_logprobs": rivals, "text_offset": offsets})
    }
}

/// The likeliest tokens by their text, and the chosen one in any case.
fn top(tokenizer: &Tokenizer, entry: &TokenLogprob) -> Value {
    let chosen = (entry.token, entry.logprob);
    let all = entry.top.iter().copied().chain([chosen]);
    let all = all.map(|(token, logprob)| (token_text(tokenizer, token), json!(finite(logprob))));
    Value::Object(all.collect::<Map<_, _>>())
}

/// The text of a token; one that is a part of a character only is written as `bytes:\xf0\x9f`.
fn token_text(tokenizer: &Tokenizer, token: TokenId) -> String {
    let bytes = tokenizer.token_bytes(token);
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => "bytes:".to_owned() + &bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>(),
    }
}

/// Characters that begin in `bytes`.
fn characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| (**byte & 0b1100_0000) != 0b1000_0000).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io_struct::ModelSource;

    fn tokenizer() -> Tokenizer {
        Tokenizer::for_source(&ModelSource::Scripted(String::new())).unwrap()
    }

    fn entry(token: u8, logprob: f32, top: &[(u8, f32)]) -> TokenLogprob {
        let top = top.iter().map(|(token, logprob)| (TokenId((*token).into()), *logprob)).collect();
        TokenLogprob { token: TokenId(token.into()), logprob, top, asked: Vec::new() }
    }

    #[test]
    fn chat_entries_hold_their_rivals() {
        let entries = [entry(b'a', -0.5, &[(b'b', -0.25), (b'a', -0.5)]), entry(0xf0, f32::NEG_INFINITY, &[])];
        let want = json!({"content": [
            {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [
                {"token": "b", "logprob": -0.25, "bytes": [98]},
                {"token": "a", "logprob": -0.5, "bytes": [97]},
            ]},
            {"token": "\u{fffd}", "logprob": -9999.0, "bytes": [0xf0], "top_logprobs": []},
        ], "refusal": null});
        assert_eq!(chat(&tokenizer(), &entries), want);
    }

    #[test]
    fn completion_lists_run_side_by_side() {
        let mut lists = CompletionLogprobs::default();
        let prompt = "é".bytes().map(|byte| Scored::First(TokenId(byte.into())));
        let first = entry(b'a', -0.5, &[(b'b', -0.25)]);
        let want = json!({
            "tokens": ["bytes:\\xc3", "bytes:\\xa9", "a"],
            "token_logprobs": [null, null, -0.5],
            "top_logprobs": [null, null, {"b": -0.25, "a": -0.5}],
            "text_offset": [0, 1, 1],
        });
        assert_eq!(lists.lists(&tokenizer(), prompt.chain([Scored::Entry(&first)])), want);
        let more = lists.lists(&tokenizer(), [Scored::Entry(&entry(b'c', -1.0, &[]))]);
        assert_eq!((&more["text_offset"], &more["top_logprobs"]), (&json!([2]), &json!([{"c": -1.0}])));
    }
}
