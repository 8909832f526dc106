//! Our greedy choice is candle's wherever candle is sure of it.

use std::fs::File;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use radiosonde::io_struct::TokenId;
use radiosonde::model_runner::{PageId, SequenceSlice};

use crate::prompts::PROMPTS;
use crate::{greedy, model_path, runner};

/// Tokens that are forced on both.
const STEPS: usize = 64;

/// Candle is sure if its two best logits are this far apart: int8 activations move a logit by less.
const SURE: f32 = 1.0;

pub(crate) struct Candle(ModelWeights);

impl Candle {
    pub(crate) fn load(path: &std::path::Path) -> Self {
        let mut file = File::open(path).expect("the file is there");
        let content = Content::read(&mut file).expect("the file is sound");
        Self(ModelWeights::from_gguf(content, &mut file, &Device::Cpu).expect("a llama"))
    }

    /// Logits of the last of `tokens`.
    pub(crate) fn forward(&mut self, tokens: &[u32], start: usize) -> Vec<f32> {
        let input = Tensor::new(tokens, &Device::Cpu).and_then(|input| input.unsqueeze(0)).expect("a row of tokens");
        let logits = self.0.forward(&input, start).and_then(|logits| logits.flatten_all()?.to_vec1());
        logits.expect("candle runs its own model")
    }
}

/// How far the best logit is above the second.
fn margin(logits: &[f32], best: TokenId) -> f32 {
    let others = logits.iter().enumerate().filter(|(token, _)| *token != best.index());
    logits[best.index()] - others.map(|(_, logit)| *logit).fold(f32::NEG_INFINITY, f32::max)
}

#[test]
fn greedy_choice_is_candles_where_candle_is_sure() {
    let path = model_path();
    let (mut ours, mut candle) = (runner(&path, 2), Candle::load(&path));
    let pages: Vec<PageId> = (0..16).map(PageId).collect();
    let (mut sure, mut steps) = (0, 0);
    for prompt in PROMPTS {
        let (mut start, mut tokens) = (0, prompt.to_vec());
        for step in 0..STEPS {
            let theirs = candle.forward(&tokens, start);
            let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
            let slice = SequenceSlice { tokens: &ids, start, pages: &pages, wants_logits: true };
            let choice = greedy(&ours.forward(&[slice]).expect("a sound batch").values);
            let expected = greedy(&theirs);
            steps += 1;
            if margin(&theirs, expected) > SURE {
                sure += 1;
                assert_eq!(choice, expected, "prompt of {} tokens, step {step}", prompt.len());
            }
            start += tokens.len();
            tokens = vec![expected.0];
        }
    }
    assert!(sure > steps / 4, "candle was sure of {sure} of {steps} only: the test says nothing");
}
