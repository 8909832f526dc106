//! A model without weights: declared latencies and faults, for drills, demos and tests of rare faults.
//!
//! `scripted:step_ms=100,token_us=50,fail_step=5,stuck_step=3,stuck_ms=5000,load_ms=200,dimensions=8`

use std::str::FromStr;
use std::time::Duration;

use super::{ForwardError, Logits, ModelRunner, SequenceSlice};
use crate::io_struct::{ModelInfo, ModelSource, ModelTask, TokenId};
use crate::tokenizer::bytes::{END_OF_TURN, VOCAB_SIZE};

/// The context of the scripted model, in tokens.
const CONTEXT_LENGTH: u32 = 8192;

/// What the script says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    /// Each step lasts at least so long.
    pub step: Duration,
    /// Each token of a step lasts so long in addition.
    pub token: Duration,
    /// Loading lasts so long.
    pub load: Duration,
    /// The step with this number (from 1) fails.
    pub fail_step: Option<u64>,
    /// The step with this number (from 1) lasts `stuck` in addition.
    pub stuck_step: Option<u64>,
    /// How long the stuck step is stuck.
    pub stuck: Duration,
    /// It embeds, in vectors of this length, and generates nothing.
    pub dimensions: Option<u32>,
}

/// The longest vector of a script.
const MAX_DIMENSIONS: u64 = 4096;

/// What is wrong with a script.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "scripted model: '{0}' is not one of step_ms, token_us, load_ms, fail_step, stuck_step, stuck_ms with a number, or \
     dimensions with one from 1 to {MAX_DIMENSIONS}"
)]
pub struct ScriptError(String);

impl FromStr for Script {
    type Err = ScriptError;

    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        for entry in text.split(',').filter(|entry| !entry.is_empty()) {
            let wrong = || ScriptError(entry.to_owned());
            let (key, value) = entry.split_once('=').ok_or_else(wrong)?;
            let value: u64 = value.parse().map_err(|_| wrong())?;
            match key {
                "step_ms" => script.step = Duration::from_millis(value),
                "token_us" => script.token = Duration::from_micros(value),
                "load_ms" => script.load = Duration::from_millis(value),
                "fail_step" => script.fail_step = Some(value),
                "stuck_step" => script.stuck_step = Some(value),
                "stuck_ms" => script.stuck = Duration::from_millis(value),
                "dimensions" if (1..=MAX_DIMENSIONS).contains(&value) => script.dimensions = u32::try_from(value).ok(),
                _ => return Err(wrong()),
            }
        }
        Ok(script)
    }
}

/// Follows a [`Script`]. Its next token is a letter that depends on position and last token alone.
pub struct ScriptedRunner {
    script: Script,
    info: ModelInfo,
    steps: u64,
}

impl ScriptedRunner {
    /// "Loads" the model that `text` describes, for a KV pool of `max_total_tokens`.
    ///
    /// # Errors
    /// The script cannot be read.
    pub fn load(text: &str, context_length: Option<u32>, max_total_tokens: u32) -> Result<Self, ScriptError> {
        let script: Script = text.parse()?;
        std::thread::sleep(script.load); // the script declares it
        let info = ModelInfo {
            source: ModelSource::Scripted(text.to_owned()),
            name: "scripted".to_owned(),
            architecture: "scripted".to_owned(),
            task: script.task(),
            vocab_size: VOCAB_SIZE,
            context_length: context_length.unwrap_or(CONTEXT_LENGTH).min(CONTEXT_LENGTH),
            eos_token_ids: vec![END_OF_TURN],
            max_total_tokens: if script.dimensions.is_some() { 0 } else { max_total_tokens },
            kernels: None,
            kv_cache_dtype: None,
            weight_bytes: 0,
            load_seconds: script.load.as_secs_f64(),
        };
        Ok(Self { script, info, steps: 0 })
    }
}

impl ModelRunner for ScriptedRunner {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn forward_into(&mut self, batch: &[SequenceSlice<'_>], logits: &mut Logits) -> Result<(), ForwardError> {
        self.steps += 1;
        let tokens: usize = batch.iter().map(|slice| slice.tokens.len()).sum();
        let mut latency = self.script.step + self.script.token * u32::try_from(tokens).unwrap_or(u32::MAX);
        if self.script.stuck_step == Some(self.steps) {
            latency += self.script.stuck;
        }
        std::thread::sleep(latency); // the script declares it
        if self.script.fail_step == Some(self.steps) {
            return Err(ForwardError::Scripted(self.steps));
        }
        if let Some(dimensions) = self.script.dimensions {
            let values = batch.iter().flat_map(|slice| direction(slice, dimensions as usize)).collect();
            *logits = Logits::new(values, dimensions as usize);
            return Ok(());
        }
        let vocab_size = VOCAB_SIZE as usize;
        let mut values = Vec::new();
        for slice in batch.iter().filter(|slice| slice.wants_logits) {
            let row = values.len();
            values.resize(row + vocab_size, 0.0);
            values[row + next_letter(slice).index()] = 10.0;
        }
        *logits = Logits::new(values, vocab_size);
        Ok(())
    }
}

impl Script {
    fn task(&self) -> ModelTask {
        match self.dimensions {
            None => ModelTask::Generate,
            Some(dimensions) => ModelTask::Embed { dimensions, normalised: true },
        }
    }
}

/// How often each token occurs, modulo the length of the vector, which is then made 1: anagrams are the same.
fn direction(slice: &SequenceSlice<'_>, dimensions: usize) -> Vec<f32> {
    let mut counts = vec![0.0; dimensions];
    slice.tokens.iter().for_each(|token| counts[token.index() % dimensions] += 1.0);
    let length = counts.iter().map(|count| count * count).sum::<f32>().sqrt();
    counts.into_iter().map(|count| count / length).collect()
}

/// A lower-case letter or a space.
fn next_letter(slice: &SequenceSlice<'_>) -> TokenId {
    let last = slice.tokens.last().map_or(0, |token| token.0);
    let position = (slice.start + slice.tokens.len()) as u32;
    let choice = (last.wrapping_mul(31).wrapping_add(position.wrapping_mul(17))) % 27;
    TokenId(if choice == 26 { u32::from(b' ') } else { u32::from(b'a') + choice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts() {
        assert_eq!("".parse(), Ok(Script::default()));
        let want = Script { step: Duration::from_millis(7), fail_step: Some(5), ..Script::default() };
        assert_eq!("step_ms=7,fail_step=5".parse(), Ok(want));
        for wrong in ["step_ms", "step_ms=", "step_ms=-1", "nosuch=1", "dimensions=0", "dimensions=5000"] {
            assert!(wrong.parse::<Script>().is_err(), "{wrong}");
        }
    }
}
