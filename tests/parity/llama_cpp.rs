//! The default model against llama.cpp: ids of texts, and log-probabilities of prompts.
//!
//! `llama_cpp/goldens.py` has written what it is compared with.

use std::fs;
use std::path::Path;

use radiosonde::io_struct::{ModelSource, TokenId};
use radiosonde::model_runner::{PAGE_SIZE, PageId, SequenceSlice};
use radiosonde::tokenizer::{ControlTokens, Tokenizer};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{model_path, runner};

/// A text, its ids, and its ids if written-out control tokens are text, where these are others.
#[derive(Deserialize)]
struct Text(String, Vec<u32>, #[serde(default)] Option<Vec<u32>>);

/// Ids of a prompt, those that follow greedily, and for each but the first the log-probability after those before it.
#[derive(Deserialize)]
struct Prompt(Vec<u32>, Vec<u32>, Vec<f64>);

fn lines<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parity/llama_cpp").join(name);
    let text = fs::read_to_string(path).expect("the goldens are here");
    text.lines().map(|line| serde_json::from_str(line).expect("the script has written it")).collect()
}

#[test]
fn ids_are_those_of_llama_cpp() {
    let tokenizer = Tokenizer::for_source(&ModelSource::Gguf(model_path())).expect("a tokenizer");
    let texts: Vec<Text> = lines("ids.jsonl");
    assert_eq!(texts.len(), 400);
    let mut wrong = Vec::new();
    for Text(text, parsed, plain) in texts {
        let plain = plain.unwrap_or_else(|| parsed.clone());
        for (control, theirs) in [(ControlTokens::Parse, parsed), (ControlTokens::AsText, plain)] {
            let ours = tokenizer.encode(&text, control).expect("a text");
            if ours.iter().map(|id| id.0).ne(theirs.iter().copied()) {
                wrong.push(format!("{text:?}, {control:?}: {ours:?}, not {theirs:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Both round activations to 8 bits, each in its own way, and so are off from the model in 32 bits by about as much as
/// from each other: by less where the model is sure, as of its own text, than in texts of others.
#[test]
fn logprobs_are_close_to_llama_cpps() {
    let prompts: Vec<Prompt> = lines("logprobs.jsonl");
    assert_eq!(prompts.len(), 20);
    let mut runner = runner(&model_path(), 2);
    let (mut of_prompts, mut of_greedy) = (Vec::new(), Vec::new());
    for Prompt(prompt, greedy, theirs) in &prompts {
        let tokens: Vec<TokenId> = prompt.iter().chain(greedy).copied().map(TokenId).collect();
        let pages: Vec<PageId> = (0..16).map(PageId).take(tokens.len().div_ceil(PAGE_SIZE)).collect();
        let slice = |start| SequenceSlice { tokens: &tokens[start..=start], start, pages: &pages, wants_logits: true };
        let logits = runner.forward(&(0..tokens.len() - 1).map(slice).collect::<Vec<_>>()).expect("a sound batch");
        for (place, (row, theirs)) in logits.rows().zip(theirs).enumerate() {
            let off = (logprob(row, tokens[place + 1].index()) - theirs).abs();
            if place + 1 < prompt.len() { &mut of_prompts } else { &mut of_greedy }.push(off);
        }
    }
    let mean = |off: &[f64]| off.iter().sum::<f64>() / off.len() as f64;
    let found = [(of_greedy.len(), mean(&of_greedy)), (of_prompts.len(), mean(&of_prompts))];
    let [(480, greedy), (560, prompt)] = found else { panic!("{found:?}") };
    assert!(greedy < 0.05 && prompt < 0.07, "mean absolute differences: {found:?}");
}

fn logprob(row: &[f32], token: usize) -> f64 {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|logit| f64::from(logit - largest).exp()).sum();
    f64::from(row[token] - largest) - sum.ln()
}
