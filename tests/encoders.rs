//! Embedding models against the libraries that others embed with, and against themselves in other company.
//!
//! `tests/encoders/goldens.py` has written what they are compared with. MiniLM is fetched if it is not in the cache.

#[path = "encoders/minilm.rs"]
mod minilm;
#[path = "encoders/refusals.rs"]
mod refusals;
#[path = "encoders/tiny.rs"]
mod tiny;

use std::path::{Path, PathBuf};

use radiosonde::io_struct::TokenId;
use radiosonde::model_runner::bert::{EncoderOptions, Precision, load};
use radiosonde::model_runner::{ModelRunner, SequenceSlice};

/// What the script has written.
fn goldens() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/encoders")
}

fn runner(folder: &Path, precision: Precision) -> Box<dyn ModelRunner> {
    load(folder, &EncoderOptions { context_length: None, precision, threads: Some(2), kernels: None })
        .expect("a sound folder")
}

/// The embeddings of texts that run in one batch.
fn embed(runner: &mut dyn ModelRunner, texts: &[Vec<TokenId>]) -> Vec<Vec<f32>> {
    let slice = |tokens| SequenceSlice { tokens, start: 0, pages: &[], wants_logits: true };
    let batch: Vec<SequenceSlice<'_>> = texts.iter().map(|text| slice(text.as_slice())).collect();
    let logits = runner.forward(&batch).expect("sound texts");
    logits.rows().map(<[f32]>::to_vec).collect()
}

/// One after the other, each in a batch of its own.
fn embed_alone(runner: &mut dyn ModelRunner, texts: &[Vec<TokenId>]) -> Vec<Vec<f32>> {
    texts.iter().flat_map(|text| embed(runner, std::slice::from_ref(text))).collect()
}
