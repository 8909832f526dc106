//! The Llama runner against candle's own, against itself in other company, and against files that are broken.
//!
//! The tests with the real model fetch it if it is not in the cache.

#[path = "parity/batching.rs"]
mod batching;
#[path = "parity/candle.rs"]
mod candle;
#[path = "parity/families.rs"]
mod families;
#[path = "parity/formats.rs"]
mod formats;
#[path = "parity/llama_cpp.rs"]
mod llama_cpp;
#[path = "parity/plain.rs"]
mod plain;
#[path = "parity/prefix_cache.rs"]
mod prefix_cache;
#[path = "parity/prompts.rs"]
mod prompts;
#[path = "parity/refusals.rs"]
mod refusals;
#[path = "parity/tiny.rs"]
mod tiny;
#[path = "parity/widths.rs"]
mod widths;

use std::path::{Path, PathBuf};

use radiosonde::io_struct::{KvCacheDtype, TokenId};
use radiosonde::model_runner::ModelRunner;
use radiosonde::model_runner::weights::{LoadOptions, load};

/// The file of the default model.
fn model_path() -> PathBuf {
    radiosonde::model_hub::default_model().expect("the default model can be fetched")
}

fn options(threads: usize) -> LoadOptions {
    LoadOptions {
        context_length: None,
        max_total_tokens: 8192,
        threads: Some(threads),
        pin_threads: false,
        kv_cache_dtype: KvCacheDtype::F16,
        kernels: None,
    }
}

fn runner(path: &Path, threads: usize) -> Box<dyn ModelRunner> {
    load(path, &options(threads)).expect("a sound file")
}

/// The likeliest token, the first of equals.
fn greedy(logits: &[f32]) -> TokenId {
    let mut best = 0;
    for (token, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = token;
        }
    }
    TokenId(u32::try_from(best).expect("a vocabulary is smaller than 2^32"))
}
