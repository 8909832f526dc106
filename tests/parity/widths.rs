//! Models of any width give the answer of plain arithmetic, and the same bits whatever they are run with.

use candle_core::quantized::GgmlDType;
use radiosonde::io_struct::{KvCacheDtype, TokenId};
use radiosonde::model_runner::kernels::backend::supported;
use radiosonde::model_runner::weights::{LoadOptions, load};
use radiosonde::model_runner::{PageId, SequenceSlice};

use crate::tiny::{Sizes, Tiny, VOCAB};
use crate::{options, plain};

/// No width is a multiple of anything, values are shorter than keys, and a part of a head is rotated.
pub(crate) const ODD: Sizes =
    Sizes { width: 45, ffn: 77, heads: 3, kv_heads: 1, key_dim: 22, value_dim: 13, rope_dim: 12 };

/// Rows are whole blocks of 32, and a block belongs to several heads.
const STRADDLING: Sizes =
    Sizes { width: 96, ffn: 160, heads: 4, kv_heads: 2, key_dim: 24, value_dim: 24, rope_dim: 24 };

/// Values are longer than keys, and whole blocks.
const LONG_VALUES: Sizes =
    Sizes { width: 64, ffn: 96, heads: 2, kv_heads: 2, key_dim: 40, value_dim: 96, rope_dim: 40 };

/// Rows are whole blocks of 256.
const THIN: Sizes = Sizes { width: 256, ffn: 256, heads: 32, kv_heads: 8, key_dim: 8, value_dim: 8, rope_dim: 8 };

fn prompt() -> Vec<u32> {
    (0..41).map(|i| i * 37 % VOCAB as u32).collect()
}

/// Logits after the prompt, of which at most `chunk` tokens are run at once.
fn logits(model: &Tiny, options: &LoadOptions, chunk: usize) -> Vec<f32> {
    let file = tempfile::NamedTempFile::new().expect("a place for a file");
    std::fs::write(file.path(), model.bytes()).expect("a small file");
    let mut runner = load(file.path(), options).expect("a sound file");
    let tokens: Vec<_> = prompt().into_iter().map(TokenId).collect();
    let (mut start, mut logits) = (0, Vec::new());
    for tokens in tokens.chunks(chunk) {
        let slice = SequenceSlice { tokens, start, pages: &[PageId(5), PageId(3), PageId(4)], wants_logits: true };
        logits = runner.forward(&[slice]).expect("a sound batch").values;
        start += tokens.len();
    }
    logits
}

fn norm(values: impl Iterator<Item = f32>) -> f32 {
    values.map(|value| value * value).sum::<f32>().sqrt()
}

#[test]
fn any_width_gives_the_plain_logits() {
    use GgmlDType::{BF16, F16, F32, Q4_0, Q4K, Q5_1, Q6K, Q8_0};
    for (sizes, dtypes) in [
        (ODD, &[F32, F16, BF16][..]),
        (STRADDLING, &[F16, Q8_0, Q5_1, Q4_0]),
        (LONG_VALUES, &[BF16, Q8_0, Q4_0]),
        (THIN, &[F32, Q6K, Q4K]),
    ] {
        for dtype in dtypes {
            let model = Tiny::of(sizes, *dtype);
            let theirs = plain::logits(&model, &prompt());
            for kv_cache_dtype in [KvCacheDtype::F16, KvCacheDtype::Int8] {
                let ours = logits(&model, &LoadOptions { kv_cache_dtype, ..options(2) }, 64);
                assert_eq!(ours.len(), theirs.len());
                let error = norm(ours.iter().zip(&theirs).map(|(a, b)| a - b)) / norm(theirs.iter().copied());
                let is_float = matches!(dtype, F32 | F16 | BF16);
                let tolerance = if is_float && kv_cache_dtype == KvCacheDtype::F16 { 1e-3 } else { 0.05 };
                assert!(error < tolerance, "{sizes:?} {dtype:?} {kv_cache_dtype:?}: relative error {error}");
            }
        }
    }
}

#[test]
fn backends_chunks_and_threads_change_nothing() {
    for (sizes, dtype) in [(ODD, GgmlDType::F32), (STRADDLING, GgmlDType::Q8_0), (LONG_VALUES, GgmlDType::Q4_0)] {
        let model = Tiny::of(sizes, dtype);
        for kv_cache_dtype in [KvCacheDtype::F16, KvCacheDtype::Int8] {
            let bits = |kernels, chunk, threads| {
                let options = LoadOptions { kernels, kv_cache_dtype, ..options(threads) };
                logits(&model, &options, chunk).into_iter().map(f32::to_bits).collect::<Vec<_>>()
            };
            let expected = bits(None, 64, 1);
            for (backend, (chunk, threads)) in supported().into_iter().zip([(1, 2), (7, 1), (16, 3), (40, 2)]) {
                let got = bits(Some(backend), chunk, threads);
                assert_eq!(got, expected, "{sizes:?} {dtype:?} {kv_cache_dtype:?}, {backend:?}, chunks of {chunk}");
            }
        }
    }
}
