//! The default model against llama.cpp: ids of texts, and log-probabilities of prompts.
//!
//! `llama_cpp/goldens.py` has written what it is compared with.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use candle_core::Device;
use candle_core::quantized::gguf_file::{Content, write};
use candle_core::quantized::{GgmlDType, QTensor};
use radiosonde::io_struct::{ModelSource, TokenId};
use radiosonde::model_runner::{PAGE_SIZE, PageId, SequenceSlice};
use radiosonde::tokenizer::{ControlTokens, Tokenizer};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::NamedTempFile;

use crate::{model_path, runner};

/// A text, its ids, and its ids if written-out control tokens are text, where these are others.
#[derive(Deserialize)]
struct Text(String, Vec<u32>, #[serde(default)] Option<Vec<u32>>);

/// Ids of a prompt, those that follow greedily, and for each but the first the log-probability after those before it: of
/// the model as it is, and with all its weights unpacked to F32.
#[derive(Deserialize)]
struct Prompt(Vec<u32>, Vec<u32>, Vec<f64>, Vec<f64>);

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
/// from each other. A change in a last bit upstream rounds other activations up: llama.cpp is off from itself by 0.046
/// where it holds keys and values in 32 bits, not 16, of prompts' own tokens by 0.052.
#[test]
fn logprobs_are_close_to_llama_cpps() {
    let prompts = prompts();
    let ours = logprobs(&model_path(), &prompts);
    let mut of_parts = [Vec::new(), Vec::new()];
    let (mut off_from_floats, mut theirs_off_from_floats) = (Vec::new(), Vec::new());
    for (Prompt(prompt, _, theirs, floats), ours) in prompts.iter().zip(&ours) {
        let offs = differences(ours, theirs);
        of_parts[0].extend(&offs[..prompt.len() - 1]);
        of_parts[1].extend(&offs[prompt.len() - 1..]);
        off_from_floats.extend(differences(ours, floats));
        theirs_off_from_floats.extend(differences(theirs, floats));
    }
    let [(560, of_prompts), (480, of_greedy)] = of_parts.each_ref().map(|offs| (offs.len(), mean(offs))) else {
        panic!("the goldens have other lengths")
    };
    let of_all = mean(&of_parts.concat());
    assert!(of_all < 0.05, "mean absolute difference: {of_all}");
    assert!(of_prompts < 0.07 && of_greedy < 0.05, "of prompts {of_prompts}, of what follows {of_greedy}");
    let (ours, theirs) = (mean(&off_from_floats), mean(&theirs_off_from_floats));
    assert!(ours < 1.1 * theirs, "off from 32 bits by {ours}, llama.cpp by {theirs}");
}

/// Where nothing is rounded to 8 bits they agree, so that it is this rounding alone in which the two differ above. Left
/// are our keys and values in 16 bits, and the order of sums.
#[test]
fn logprobs_in_single_precision_are_llama_cpps() {
    let prompts = prompts();
    let file = in_single_precision(&model_path());
    let ours = logprobs(file.path(), &prompts);
    let offs: Vec<f64> =
        prompts.iter().zip(&ours).flat_map(|(Prompt(_, _, _, floats), ours)| differences(ours, floats)).collect();
    let (mean, largest) = (mean(&offs), offs.iter().copied().fold(0.0, f64::max));
    assert_eq!(offs.len(), 1040);
    assert!(mean < 0.001 && largest < 0.02, "absolute differences: mean {mean}, largest {largest}");
}

fn prompts() -> Vec<Prompt> {
    let prompts: Vec<Prompt> = lines("logprobs.jsonl");
    assert_eq!(prompts.len(), 20);
    prompts
}

/// The same file with every tensor unpacked to F32.
fn in_single_precision(path: &Path) -> NamedTempFile {
    let mut file = File::open(path).expect("the file is there");
    let content = Content::read(&mut file).expect("the file is sound");
    let mut floats = |name: &str| {
        let tensor = content.tensor(&mut file, name, &Device::Cpu)?.dequantize(&Device::Cpu)?;
        QTensor::quantize(&tensor, GgmlDType::F32)
    };
    let tensors: Vec<_> =
        content.tensor_infos.keys().map(|name| (name.as_str(), floats(name).expect("a known format"))).collect();
    let metadata: Vec<_> = content.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
    let tensors: Vec<_> = tensors.iter().map(|(name, tensor)| (*name, tensor)).collect();
    let written = NamedTempFile::new().expect("a place for a file");
    let mut writer = BufWriter::new(written.as_file());
    write(&mut writer, &metadata, &tensors).and_then(|()| Ok(writer.flush()?)).expect("a place for 540 MB");
    drop(writer);
    written
}

/// For each prompt what its third part holds: ours.
fn logprobs(model: &Path, prompts: &[Prompt]) -> Vec<Vec<f64>> {
    let mut runner = runner(model, 2);
    let of_prompt = |Prompt(prompt, greedy, ..): &Prompt| {
        let tokens: Vec<TokenId> = prompt.iter().chain(greedy).copied().map(TokenId).collect();
        let pages: Vec<PageId> = (0..16).map(PageId).take(tokens.len().div_ceil(PAGE_SIZE)).collect();
        let slice = |start| SequenceSlice { tokens: &tokens[start..=start], start, pages: &pages, wants_logits: true };
        let logits = runner.forward(&(0..tokens.len() - 1).map(slice).collect::<Vec<_>>()).expect("a sound batch");
        logits.rows().zip(&tokens[1..]).map(|(row, token)| logprob(row, token.index())).collect()
    };
    prompts.iter().map(of_prompt).collect()
}

fn differences(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    assert_eq!(ours.len(), theirs.len());
    ours.iter().zip(theirs).map(|(ours, theirs)| (ours - theirs).abs()).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn logprob(row: &[f32], token: usize) -> f64 {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|logit| f64::from(logit - largest).exp()).sum();
    f64::from(row[token] - largest) - sum.ln()
}
