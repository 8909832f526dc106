//! Sizes and constants out of the metadata, checked so that no later arithmetic can fail.

use candle_core::quantized::gguf_file::Value;

use super::family::Family;
use super::gguf::GgufFile;
use super::{LoadError, LoadOptions, turn_ends};
use crate::io_struct::TokenId;
use crate::model_runner::decoder::DecoderConfig;
use crate::model_runner::decoder::rope::{RopeConfig, RopeScaling, Yarn};

/// Base of the rotation where a file does not name one, as in llama.cpp.
pub(super) const DEFAULT_ROPE_BASE: f32 = 10_000.0;

/// Keys that name a token at which a turn ends.
const EOS_KEYS: [&str; 3] =
    ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"];

/// The configuration of a decoder whose keys begin with `architecture`.
pub(super) fn read(
    file: &GgufFile,
    architecture: &str,
    family: Family,
    options: &LoadOptions,
) -> Result<DecoderConfig, LoadError> {
    Hparams { file, architecture }.config(family, options)
}

/// A file, and what its keys begin with.
struct Hparams<'a> {
    file: &'a GgufFile,
    architecture: &'a str,
}

/// The heads of keys and values, and how wide any head is.
struct Heads {
    head_count_kv: usize,
    head_dim: usize,
    value_dim: usize,
}

impl Hparams<'_> {
    fn config(&self, family: Family, options: &LoadOptions) -> Result<DecoderConfig, LoadError> {
        self.refuse_unsupported()?;
        let head_count = self.positive("attention.head_count")?;
        let embedding_length = self.positive("embedding_length")?;
        let Heads { head_count_kv, head_dim, value_dim } = self.heads(head_count, embedding_length)?;
        let rms_eps = self.required_float("attention.layer_norm_rms_epsilon")?;
        if rms_eps < 0.0 {
            return Err(self.bad("attention.layer_norm_rms_epsilon", format!("{rms_eps} is negative")));
        }
        Ok(DecoderConfig {
            block_count: self.positive("block_count")?,
            embedding_length,
            feed_forward_length: self.positive("feed_forward_length")?,
            head_count,
            head_count_kv,
            head_dim,
            value_dim,
            rope: self.rope(family, head_dim)?,
            rms_eps,
            context_length: self.context_length(options)?,
            kv_cache_dtype: options.kv_cache_dtype,
        })
    }

    /// What would give wrong answers if it were passed over.
    fn refuse_unsupported(&self) -> Result<(), LoadError> {
        match self.integer("expert_count")?.unwrap_or(0) {
            0 | 1 => Ok(()),
            _ => Err(self.file.unsupported("a mixture of experts")),
        }
    }

    fn rope(&self, family: Family, head_dim: usize) -> Result<RopeConfig, LoadError> {
        let dim = self.integer("rope.dimension_count")?.unwrap_or(head_dim);
        if dim > head_dim || !dim.is_multiple_of(2) || dim == 0 {
            let message = format!("{dim} is not an even part of the head's {head_dim} dimensions");
            return Err(self.bad("rope.dimension_count", message));
        }
        let base = self.float("rope.freq_base")?.unwrap_or(DEFAULT_ROPE_BASE);
        if base < 1.0 {
            return Err(self.bad("rope.freq_base", format!("{base} is below 1")));
        }
        Ok(RopeConfig { dim, pairs: family.gguf_pairs(), base, scaling: self.rope_scaling(base)? })
    }

    /// Files from before there were types have a linear factor alone.
    fn rope_scaling(&self, base: f32) -> Result<RopeScaling, LoadError> {
        let kind = match self.file.content().metadata.get(&self.key("rope.scaling.type")) {
            None if self.float("rope.scale_linear")?.is_some() => {
                return Ok(RopeScaling::Linear(self.stretch("rope.scale_linear")?));
            }
            None => return Ok(RopeScaling::None),
            Some(Value::String(kind)) => kind.as_str(),
            Some(_) => return Err(self.bad("rope.scaling.type", "is not a text".to_owned())),
        };
        match kind {
            "none" => Ok(RopeScaling::None),
            "linear" => Ok(RopeScaling::Linear(self.stretch("rope.scaling.factor")?)),
            "yarn" => self.yarn(base).map(RopeScaling::Yarn),
            other => Err(self.file.unsupported(format!("the rope scaling {other:?}"))),
        }
    }

    /// As llama.cpp reads it: the attention factor of the file comes on top of the usual one.
    fn yarn(&self, base: f32) -> Result<Yarn, LoadError> {
        let factor = self.stretch("rope.scaling.factor")?;
        let own = self.float("rope.scaling.attn_factor")?.unwrap_or(1.0);
        let or = |key, default: f32| self.float(key).map(|value| value.unwrap_or(default));
        let yarn = Yarn {
            factor,
            original_context: self.positive("rope.scaling.original_context_length")? as f32,
            beta_fast: or("rope.scaling.yarn_beta_fast", Yarn::BETA_FAST)?,
            beta_slow: or("rope.scaling.yarn_beta_slow", Yarn::BETA_SLOW)?,
            attention_factor: own * Yarn::usual_attention_factor(factor),
        };
        yarn.check(base).map_err(|message| self.bad("rope.scaling.type", message))?;
        Ok(yarn)
    }

    fn stretch(&self, key: &str) -> Result<f32, LoadError> {
        let factor = self.required_float(key)?;
        if factor < 1.0 { Err(self.bad(key, format!("{factor} is below 1"))) } else { Ok(factor) }
    }

    fn heads(&self, head_count: usize, embedding_length: usize) -> Result<Heads, LoadError> {
        let kv_key = "attention.head_count_kv";
        let head_count_kv = self.integer(kv_key)?.unwrap_or(head_count);
        if head_count_kv == 0 || !head_count.is_multiple_of(head_count_kv) {
            return Err(self.bad(kv_key, format!("{head_count_kv} does not divide {head_count} heads")));
        }
        let head_dim = self.integer("attention.key_length")?.unwrap_or(embedding_length / head_count);
        let value_dim = self.integer("attention.value_length")?.unwrap_or(head_dim);
        if head_dim == 0 || value_dim == 0 {
            let dimensions = format!("{head_dim} dimensions, and values of {value_dim}");
            return Err(self.file.unsupported(format!("{head_count} heads of {dimensions}")));
        }
        Ok(Heads { head_count_kv, head_dim, value_dim })
    }

    /// No more than a sliding window, if there is one: up to there, it hides nothing.
    fn context_length(&self, options: &LoadOptions) -> Result<usize, LoadError> {
        let learnt = self.positive("context_length")?;
        let window = self.integer("attention.sliding_window")?.filter(|window| *window > 0);
        let available = window.map_or(learnt, |window| window.min(learnt));
        match options.context_length {
            Some(asked) if asked as usize > available => Err(self.file.context_too_long(asked, available)),
            Some(asked) => Ok(asked as usize),
            None => Ok(available),
        }
    }

    fn positive(&self, key: &str) -> Result<usize, LoadError> {
        match self.integer(key)? {
            Some(0) => Err(self.bad(key, "is 0".to_owned())),
            Some(value) => Ok(value),
            None => Err(self.bad(key, "is missing".to_owned())),
        }
    }

    fn integer(&self, key: &str) -> Result<Option<usize>, LoadError> {
        self.file.integer(&self.key(key))
    }

    fn float(&self, key: &str) -> Result<Option<f32>, LoadError> {
        self.file.float(&self.key(key))
    }

    fn required_float(&self, key: &str) -> Result<f32, LoadError> {
        self.float(key)?.ok_or_else(|| self.bad(key, "is missing".to_owned()))
    }

    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn bad(&self, key: &str, message: String) -> LoadError {
        self.file.bad_metadata(&self.key(key), message)
    }
}

/// What the model is called, or else the name of its file.
pub(super) fn name(file: &GgufFile) -> String {
    file.string("general.name").unwrap_or_else(|_| file.stem())
}

/// All ids that end a turn, each once: those of the keys, and those that the chat template writes behind a turn.
pub(super) fn eos_token_ids(file: &GgufFile) -> Vec<TokenId> {
    let template = file.string("tokenizer.chat_template").unwrap_or_default();
    let ends: Vec<&str> = turn_ends::of_template(&template).collect();
    let tokens = match file.content().metadata.get("tokenizer.ggml.tokens") {
        Some(Value::Array(tokens)) => tokens.as_slice(),
        _ => &[],
    };
    let is_end = |token: &Value| matches!(token, Value::String(text) if ends.contains(&text.as_str()));
    let of_template = tokens.iter().enumerate().filter(|(_, token)| is_end(token)).map(|(id, _)| id);
    let of_keys = EOS_KEYS.iter().filter_map(|key| file.integer(key).ok().flatten());
    let ids = of_keys.chain(of_template);
    let mut ids: Vec<TokenId> = ids.filter_map(|id| u32::try_from(id).ok()).map(TokenId).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
