//! Station 5: ids to text, whole characters only, up to the first stop string.

mod incremental;
mod stop;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::io_struct::{BatchTokenIdOutput, FinishReason, Rid, SamplingParams, TokenIdOutput};
use crate::tokenizer::Tokenizer;
use incremental::IncrementalText;
use stop::StopStrings;

/// A batch's news with text.
#[derive(Debug)]
pub struct BatchStrOutput {
    /// One entry for each of the batch.
    pub outputs: Vec<StrOutput>,
}

/// News of one request with text.
#[derive(Debug)]
pub struct StrOutput {
    /// New text. A half character, and what may become a stop string, is kept for later.
    pub text: String,
    /// The tokens, with the finish reason that the text brought about.
    pub output: TokenIdOutput,
    /// A stop string ended it, the engine does not know yet.
    pub ends_early: bool,
    /// How long all of the request's output so far took to become text.
    pub spent: Duration,
}

/// What is being decoded.
#[derive(Debug)]
struct Decoding {
    serial: u64,
    /// The engine that it was sent to: another one begins the output anew.
    epoch: u64,
    text: IncrementalText,
    stop: StopStrings,
    skip_special_tokens: bool,
    spent: Duration,
}

/// Ids to text for all live requests.
#[derive(Debug, Default)]
pub struct Detokenizer {
    live: Mutex<HashMap<Rid, Decoding>>,
}

impl Detokenizer {
    /// Expects output of `rid` from its beginning, as far as it bears `serial` and comes from the engine of `epoch`.
    pub fn register(&self, rid: &Rid, serial: u64, epoch: u64, params: &SamplingParams) {
        let decoding = Decoding {
            serial,
            epoch,
            text: IncrementalText::default(),
            stop: StopStrings::new(&params.stop, params.no_stop_trim),
            skip_special_tokens: params.skip_special_tokens,
            spent: Duration::ZERO,
        };
        self.live().insert(rid.clone(), decoding);
    }

    /// Expects nothing more of `rid` that bears `serial`.
    pub fn forget(&self, rid: &Rid, serial: u64) {
        let mut live = self.live();
        if live.get(rid).is_some_and(|decoding| decoding.serial == serial) {
            live.remove(rid);
        }
    }

    /// Decodes one batch of the engine of `epoch`. What nobody expects is dropped.
    #[must_use]
    pub fn detokenize(&self, tokenizer: &Tokenizer, batch: BatchTokenIdOutput, epoch: u64) -> BatchStrOutput {
        let mut live = self.live();
        let mut before = Instant::now();
        let outputs = batch.outputs.into_iter().filter_map(|output| {
            let expected = |decoding: &&mut Decoding| decoding.serial == output.serial && decoding.epoch == epoch;
            let decoding = live.get_mut(&output.rid).filter(expected)?;
            let mut decoded = decoding.decode(tokenizer, output);
            let now = Instant::now(); // the only telemetry for each output: one reading of the clock
            decoding.spent += now - before;
            (before, decoded.spent) = (now, decoding.spent);
            if decoded.output.finish_reason.is_some() {
                live.remove(&decoded.output.rid);
            }
            Some(decoded)
        });
        BatchStrOutput { outputs: outputs.collect() }
    }

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<Rid, Decoding>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Decoding {
    fn decode(&mut self, tokenizer: &Tokenizer, mut output: TokenIdOutput) -> StrOutput {
        let mut text = String::new();
        for id in &output.output_ids {
            if !(self.skip_special_tokens && tokenizer.is_control(*id)) {
                self.text.push(tokenizer.token_bytes(*id), &mut text);
            }
        }
        if output.finish_reason.is_some() {
            self.text.finish(&mut text);
        }
        let mut passed = self.stop.pass(&text);
        let ends_early = passed.matched.is_some() && output.finish_reason.is_none();
        match passed.matched {
            Some(stop) => output.finish_reason = Some(FinishReason::StopString(stop)),
            None if output.finish_reason.is_some() => passed.text.push_str(&self.stop.release()),
            None => {}
        }
        StrOutput { text: passed.text, output, ends_early, spent: self.spent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io_struct::{ModelSource, Purpose, TokenId};

    fn output_of(rid: &Rid, byte: u8) -> TokenIdOutput {
        TokenIdOutput {
            rid: rid.clone(),
            serial: 7,
            purpose: Purpose::Serve,
            output_ids: vec![TokenId(byte.into())],
            logprobs: Vec::new(),
            input_logprobs: Vec::new(),
            finish_reason: None,
            prompt_tokens: 1,
            completion_tokens: 1,
            cached_tokens: 0,
            num_retractions: 0,
        }
    }

    /// Feeds `bytes` as tokens one by one; the deltas joined by `|`, and how it ended.
    fn check(params: &SamplingParams, bytes: &[u8], want: &str, want_end: Option<&FinishReason>) {
        let tokenizer = Tokenizer::for_source(&ModelSource::Scripted(String::new())).unwrap();
        let detokenizer = Detokenizer::default();
        let rid = Rid::random();
        detokenizer.register(&rid, 7, 0, params);
        let stray = TokenIdOutput { serial: 6, ..output_of(&rid, b'?') };
        let batch = detokenizer.detokenize(&tokenizer, BatchTokenIdOutput { outputs: vec![stray] }, 0);
        assert!(batch.outputs.is_empty(), "output of an earlier request with the same rid");
        let (mut deltas, mut end) = (Vec::new(), None);
        for (i, byte) in bytes.iter().enumerate() {
            let last = i + 1 == bytes.len();
            let finish_reason = last.then_some(FinishReason::Length(9));
            let output = TokenIdOutput { finish_reason, completion_tokens: i as u32 + 1, ..output_of(&rid, *byte) };
            let batch = detokenizer.detokenize(&tokenizer, BatchTokenIdOutput { outputs: vec![output] }, 0);
            for decoded in batch.outputs {
                deltas.push(decoded.text);
                end = decoded.output.finish_reason.or(end);
            }
        }
        assert_eq!((deltas.join("|").as_str(), end.as_ref()), (want, want_end), "{bytes:?}");
        assert!(detokenizer.live().is_empty());
    }

    /// Prose, code and other alphabets, and then any tokens at all, one by one: what a library's streaming decoder
    /// loses or fails on (tokenizers#1141, tokenizers#1699, tokenizers#1705).
    #[test]
    fn ten_thousand_tokens_one_by_one_are_the_whole_text() {
        let tokenizer = Tokenizer::for_source(&ModelSource::Gguf(crate::model_hub::default_model().unwrap())).unwrap();
        let text =
            "Once upon a time, it said \u{201c}hello\u{201d}.\n\tfn main() { let x = a[0] + 1; }  // 你好，世界 🙂👩‍👩‍👧 \
                    Привет, १२३.\r\n"
                .repeat(150);
        let written = tokenizer.encode(&text, crate::tokenizer::ControlTokens::AsText).unwrap();
        let any: Vec<TokenId> = (0..10_000_u32).map(|i| TokenId(i.wrapping_mul(2_654_435_761) % 49_152)).collect();
        assert!(written.len() >= 10_000, "{}", written.len());
        for (ids, want) in [(written, Some(text.as_str())), (any, None)] {
            let shown = ids.iter().filter(|id| !tokenizer.is_control(**id));
            let bytes: Vec<u8> = shown.flat_map(|id| tokenizer.token_bytes(*id)).copied().collect();
            let whole = String::from_utf8_lossy(&bytes);
            assert!(want.is_none_or(|text| text == whole));
            let (detokenizer, rid) = (Detokenizer::default(), Rid::random());
            detokenizer.register(&rid, 7, 0, &SamplingParams::default());
            let mut joined = String::new();
            for (i, id) in ids.iter().enumerate() {
                let finish_reason = (i + 1 == ids.len()).then_some(FinishReason::Length(9));
                let output = TokenIdOutput { output_ids: vec![*id], finish_reason, ..output_of(&rid, 0) };
                let batch = detokenizer.detokenize(&tokenizer, BatchTokenIdOutput { outputs: vec![output] }, 0);
                joined.extend(batch.outputs.into_iter().map(|output| output.text));
            }
            assert_eq!(joined, whole);
        }
    }

    #[test]
    fn characters_stay_whole_and_stop_strings_stay_inside() {
        let plain = SamplingParams::default();
        let length = FinishReason::Length(9);
        check(&plain, b"hi\xF0\x9F\x98\x80", "h|i||||😀", Some(&length));
        check(&plain, b"a\xFFb", "a|\u{FFFD}|b", Some(&length));
        check(&plain, b"a\xF0\x9F", "a||\u{FFFD}", Some(&length));
        let stop = |stop: &[&str], no_stop_trim| SamplingParams {
            stop: stop.iter().map(|s| (*s).to_owned()).collect(),
            no_stop_trim,
            ..SamplingParams::default()
        };
        let matched = |text: &str| FinishReason::StopString(text.to_owned());
        check(&stop(&["END"], false), b"abENDcd", "a|b|||", Some(&matched("END")));
        check(&stop(&["END"], true), b"abENDcd", "a|b|||END", Some(&matched("END")));
        check(&stop(&["END"], false), b"aENxE", "a|||ENx|E", Some(&length));
        check(&stop(&["abc", "b"], false), b"abc", "|a", Some(&matched("b")));
        check(&stop(&["aab"], false), b"aaab", "||a|", Some(&matched("aab")));
        check(&stop(&["é"], false), "xé".as_bytes(), "x||", Some(&matched("é")));
    }
}
