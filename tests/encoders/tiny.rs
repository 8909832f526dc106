//! BERTs of a few thousand random weights against transformers.

use std::fs;

use radiosonde::io_struct::TokenId;
use radiosonde::model_runner::SequenceSlice;
use radiosonde::model_runner::bert::Precision;
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;

use super::{embed, embed_alone, goldens, runner};

/// A text, and what transformers makes of it.
#[derive(Deserialize)]
struct Golden {
    ids: Vec<u32>,
    mean: Vec<f32>,
    cls: Vec<f32>,
    max: Vec<f32>,
}

/// One vector of a golden.
type Vector = fn(&Golden) -> &[f32];

fn read(model: &str) -> Vec<Golden> {
    let text = fs::read_to_string(goldens().join(model).join("goldens.json")).expect("the goldens are here");
    serde_json::from_str(&text).expect("the script has written them")
}

/// A copy of the model that can be changed.
pub(crate) fn copy() -> TempDir {
    copy_of("tiny")
}

fn copy_of(model: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(goldens().join(model).join(name), folder.path().join(name)).expect("the model is here");
    }
    folder
}

/// A copy with the files of sentence-transformers.
fn pooling(model: &str, mode: &str) -> TempDir {
    let folder = copy_of(model);
    let modules = json!([{"path": "", "type": "a.Transformer"}, {"path": "1_Pooling", "type": "a.Pooling"}]);
    fs::write(folder.path().join("modules.json"), modules.to_string()).expect("a file");
    fs::create_dir(folder.path().join("1_Pooling")).expect("a folder");
    let config = json!({"pooling_mode": mode});
    fs::write(folder.path().join("1_Pooling/config.json"), config.to_string()).expect("a file");
    folder
}

/// Compares the vectors of all texts with those of transformers, and with the same texts alone.
fn check(model: &str, precision: Precision, is_close: fn(&[f32], &[f32]) -> bool) {
    let goldens = read(model);
    let texts: Vec<Vec<TokenId>> =
        goldens.iter().map(|golden| golden.ids.iter().copied().map(TokenId).collect()).collect();
    let modes: [(&str, Vector); 3] =
        [("mean", |golden| &golden.mean), ("cls", |golden| &golden.cls), ("max", |golden| &golden.max)];
    for (mode, theirs) in modes {
        let mut runner = runner(pooling(model, mode).path(), precision);
        let ours = embed(&mut *runner, &texts);
        for (ours, golden) in ours.iter().zip(&goldens) {
            let (theirs, tokens) = (theirs(golden), golden.ids.len());
            assert_eq!(ours.len(), theirs.len(), "{model}, {mode}");
            assert!(is_close(ours, theirs), "{model}, {mode}, {tokens} tokens: {ours:?}, not {theirs:?}");
        }
        assert!(embed_alone(&mut *runner, &texts) == ours, "{model}, {mode}: not the same alone");
    }
}

#[test]
fn hidden_states_are_those_of_transformers() {
    for model in ["tiny", "odd"] {
        check(model, Precision::F32, |a, b| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4));
    }
}

#[test]
fn bytes_come_close_at_any_width() {
    check("odd", Precision::Int8, |a, b| {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt() > 0.995
    });
}

#[test]
fn a_batch_beyond_the_model_is_refused_and_the_next_one_runs() {
    let mut runner = runner(copy().path(), Precision::F32);
    let text = |ids: &[u32]| ids.iter().copied().map(TokenId).collect::<Vec<_>>();
    for (tokens, start) in [(text(&[]), 0), (text(&[1; 49]), 0), (text(&[1, 40]), 0), (text(&[1]), 3)] {
        let slice = SequenceSlice { tokens: &tokens, start, pages: &[], wants_logits: true };
        assert!(runner.forward(&[slice]).is_err(), "{tokens:?} from {start} on");
    }
    assert_eq!(embed(&mut *runner, &[text(&[1, 39]), text(&[1; 48])]).len(), 2);
    assert!(embed(&mut *runner, &[]).is_empty());
}
