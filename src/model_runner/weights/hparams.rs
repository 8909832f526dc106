//! Sizes and constants out of the metadata, checked so that no later arithmetic can fail.

use candle_core::quantized::gguf_file::Value;

use super::gguf::GgufFile;
use super::{LoadError, LoadOptions};
use crate::io_struct::TokenId;
use crate::model_runner::kernels::{BLOCK, LANES};
use crate::model_runner::llama::LlamaConfig;

/// Base of the rotation where a file does not name one, as in llama.cpp.
const DEFAULT_ROPE_BASE: f32 = 10_000.0;

/// Keys that name a token at which a turn ends.
const EOS_KEYS: [&str; 3] =
    ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

/// The configuration of a llama.
pub(super) fn read(file: &GgufFile, options: &LoadOptions) -> Result<LlamaConfig, LoadError> {
    refuse_unsupported(file)?;
    let head_count = positive(file, "llama.attention.head_count")?;
    let embedding_length = multiple(file, "llama.embedding_length", BLOCK)?;
    let (head_count_kv, head_dim) = heads(file, head_count, embedding_length)?;
    let rope_dim = file.integer("llama.rope.dimension_count")?.unwrap_or(head_dim);
    if rope_dim > head_dim || !rope_dim.is_multiple_of(2) || rope_dim == 0 {
        let message = format!("{rope_dim} is not an even part of the head's {head_dim} dimensions");
        return Err(file.bad_metadata("llama.rope.dimension_count", message));
    }
    let rope_freq_base = file.float("llama.rope.freq_base")?.unwrap_or(DEFAULT_ROPE_BASE);
    if rope_freq_base < 1.0 {
        return Err(file.bad_metadata("llama.rope.freq_base", format!("{rope_freq_base} is below 1")));
    }
    let eps_key = "llama.attention.layer_norm_rms_epsilon";
    let rms_eps = file.float(eps_key)?.ok_or_else(|| file.bad_metadata(eps_key, "is missing"))?;
    if rms_eps < 0.0 {
        return Err(file.bad_metadata(eps_key, format!("{rms_eps} is negative")));
    }
    Ok(LlamaConfig {
        block_count: positive(file, "llama.block_count")?,
        embedding_length,
        feed_forward_length: multiple(file, "llama.feed_forward_length", BLOCK)?,
        head_count,
        head_count_kv,
        head_dim,
        rope_dim,
        rope_freq_base,
        rms_eps,
        context_length: context_length(file, options)?,
        kv_cache_dtype: options.kv_cache_dtype,
    })
}

/// What the model is called, or else the name of its file.
pub(super) fn name(file: &GgufFile) -> String {
    file.string("general.name").unwrap_or_else(|_| file.stem())
}

/// All ids that end a turn, each once.
pub(super) fn eos_token_ids(file: &GgufFile) -> Vec<TokenId> {
    let ids = EOS_KEYS.iter().filter_map(|key| file.integer(key).ok().flatten());
    let mut ids: Vec<TokenId> = ids.filter_map(|id| u32::try_from(id).ok()).map(TokenId).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// What would give wrong answers if it were passed over.
fn refuse_unsupported(file: &GgufFile) -> Result<(), LoadError> {
    if file.integer("llama.expert_count")?.unwrap_or(0) > 1 {
        return Err(file.unsupported("a mixture of experts"));
    }
    match file.content().metadata.get("llama.rope.scaling.type") {
        None => Ok(()),
        Some(Value::String(kind)) if kind == "none" => Ok(()),
        Some(other) => Err(file.unsupported(format!("rope scaling {other:?}"))),
    }
}

fn heads(file: &GgufFile, head_count: usize, embedding_length: usize) -> Result<(usize, usize), LoadError> {
    let kv_key = "llama.attention.head_count_kv";
    let head_count_kv = file.integer(kv_key)?.unwrap_or(head_count);
    if head_count_kv == 0 || !head_count.is_multiple_of(head_count_kv) {
        return Err(file.bad_metadata(kv_key, format!("{head_count_kv} does not divide {head_count} heads")));
    }
    let key_length = "llama.attention.key_length";
    let head_dim = file.integer(key_length)?.unwrap_or(embedding_length / head_count);
    let value_length = file.integer("llama.attention.value_length")?.unwrap_or(head_dim);
    if value_length != head_dim {
        return Err(file.unsupported(format!("keys of {head_dim} and values of {value_length} dimensions")));
    }
    if head_dim == 0 || !head_dim.is_multiple_of(LANES) || !(head_dim * head_count).is_multiple_of(BLOCK) {
        return Err(file.unsupported(format!("{head_count} heads of {head_dim} dimensions")));
    }
    Ok((head_count_kv, head_dim))
}

fn context_length(file: &GgufFile, options: &LoadOptions) -> Result<usize, LoadError> {
    let available = positive(file, "llama.context_length")?;
    match options.context_length {
        Some(asked) if asked as usize > available => Err(file.context_too_long(asked, available)),
        Some(asked) => Ok(asked as usize),
        None => Ok(available),
    }
}

fn positive(file: &GgufFile, key: &str) -> Result<usize, LoadError> {
    match file.integer(key)? {
        Some(0) => Err(file.bad_metadata(key, "is 0")),
        Some(value) => Ok(value),
        None => Err(file.bad_metadata(key, "is missing")),
    }
}

fn multiple(file: &GgufFile, key: &str, of: usize) -> Result<usize, LoadError> {
    let value = positive(file, key)?;
    if value.is_multiple_of(of) {
        Ok(value)
    } else {
        Err(file.bad_metadata(key, format!("{value} is no multiple of {of}")))
    }
}
