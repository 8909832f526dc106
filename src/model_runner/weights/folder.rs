//! The numbers of a decoder and where it stops, out of the JSON files of a folder.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::family::Family;
use super::tensors::Head;
use super::{LoadError, LoadOptions};
use crate::io_struct::TokenId;
use crate::model_runner::decoder::DecoderConfig;
use rope::RawRope;

mod rope;
mod stops;

const CONFIG: &str = "config.json";

/// What a folder says of its decoder.
pub(super) struct Folder {
    pub(super) family: Family,
    pub(super) config: DecoderConfig,
    /// Rows of the embedding.
    pub(super) vocab_size: usize,
    pub(super) head: Head,
    /// Ids at which a turn ends.
    pub(super) stops: Vec<TokenId>,
}

/// `config.json`, as far as it matters.
#[derive(Deserialize)]
struct Raw {
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    hidden_act: Option<String>,
    max_position_embeddings: usize,
    rms_norm_eps: f32,
    vocab_size: usize,
    tie_word_embeddings: Option<bool>,
    rope_theta: Option<f32>,
    partial_rotary_factor: Option<f32>,
    rope_scaling: Option<RawRope>,
    rope_parameters: Option<RawRope>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
    quantization_config: Option<serde_json::Value>,
}

/// What tells a generator from an encoder.
#[derive(Deserialize)]
struct Kind {
    model_type: Option<String>,
    architectures: Option<Vec<String>>,
}

/// Is there a generator in `folder`? A model that sentence-transformers has wrapped up is none, whatever is inside of it.
#[must_use]
pub fn is_generator(folder: &Path) -> bool {
    let Ok(Some(kind)) = json::<Kind>(&folder.join(CONFIG)) else { return false };
    let is_causal = |name: &String| name.ends_with("ForCausalLM");
    let is_known = || kind.model_type.as_deref().and_then(Family::of_folder).is_some();
    let is_generator = kind.architectures.as_ref().map_or_else(is_known, |names| names.iter().any(is_causal));
    is_generator && !folder.join("modules.json").exists()
}

/// Reads `config.json`, and the other files for where a turn ends.
pub(super) fn read(folder: &Path, options: &LoadOptions) -> Result<Folder, LoadError> {
    let path = folder.join(CONFIG);
    let kind: Kind = required(&path)?;
    let architecture = kind.model_type.unwrap_or_default();
    let Some(family) = Family::of_folder(&architecture) else {
        return Err(LoadError::UnknownArchitecture { path, architecture, known: Family::folder_names() });
    };
    let raw: Raw = required(&path)?;
    let head = match raw.tie_word_embeddings {
        Some(true) => Head::Tied,
        Some(false) => Head::Own,
        None => Head::Either,
    };
    let vocab_size = raw.vocab_size;
    let config = Checked { path, family }.config(&raw, options)?;
    Ok(Folder { family, config, vocab_size, head, stops: stops::read(folder)? })
}

/// The file whose numbers are checked, and the family that they are for.
struct Checked {
    path: PathBuf,
    family: Family,
}

impl Checked {
    fn config(&self, raw: &Raw, options: &LoadOptions) -> Result<DecoderConfig, LoadError> {
        self.refuse_unsupported(raw)?;
        let head_count = raw.num_attention_heads;
        for (key, value) in [
            ("hidden_size", raw.hidden_size),
            ("intermediate_size", raw.intermediate_size),
            ("num_hidden_layers", raw.num_hidden_layers),
            ("num_attention_heads", head_count),
            ("max_position_embeddings", raw.max_position_embeddings),
            ("vocab_size", raw.vocab_size),
        ] {
            self.count(key, value)?;
        }
        if !raw.rms_norm_eps.is_finite() || raw.rms_norm_eps < 0.0 {
            return Err(self.bad("rms_norm_eps", format!("is {}", raw.rms_norm_eps)));
        }
        let head_count_kv = raw.num_key_value_heads.unwrap_or(head_count);
        if head_count_kv == 0 || !head_count.is_multiple_of(head_count_kv) {
            return Err(self.bad("num_key_value_heads", format!("{head_count_kv} does not divide {head_count} heads")));
        }
        let head_dim = raw.head_dim.unwrap_or_else(|| self.usual_head_dim(raw));
        self.count("head_dim", head_dim)?;
        let (rope, learnt) = self.rope(raw, head_dim)?;
        Ok(DecoderConfig {
            block_count: raw.num_hidden_layers,
            embedding_length: raw.hidden_size,
            feed_forward_length: raw.intermediate_size,
            head_count,
            head_count_kv,
            head_dim,
            value_dim: head_dim,
            rope,
            rms_eps: raw.rms_norm_eps,
            context_length: self.context_length(raw, learnt, options)?,
            kv_cache_dtype: options.kv_cache_dtype,
        })
    }

    /// Where the file does not say it.
    fn usual_head_dim(&self, raw: &Raw) -> usize {
        match self.family {
            Family::Qwen3 => 128,
            Family::Llama | Family::Mistral | Family::Qwen2 => raw.hidden_size / raw.num_attention_heads,
        }
    }

    /// What would give wrong answers if it were passed over.
    fn refuse_unsupported(&self, raw: &Raw) -> Result<(), LoadError> {
        if let Some(act) = raw.hidden_act.as_ref().filter(|act| *act != "silu") {
            return Err(self.unsupported(format!("the activation {act:?}; known: silu")));
        }
        if let Some(quantization) = raw.quantization_config.as_ref().filter(|it| !it.is_null()) {
            let method = quantization["quant_method"].as_str().unwrap_or("unknown");
            return Err(self.unsupported(format!("weights of the quantization method {method:?}")));
        }
        let is_known = |kind: &String| ["full_attention", "sliding_attention"].contains(&kind.as_str());
        match raw.layer_types.iter().flatten().find(|kind| !is_known(kind)) {
            Some(kind) => Err(self.unsupported(format!("layers of the type {kind:?}"))),
            None => Ok(()),
        }
    }

    /// No more than a sliding window, if one is in use: up to there, it hides nothing.
    fn context_length(&self, raw: &Raw, learnt: usize, options: &LoadOptions) -> Result<usize, LoadError> {
        let slides = match self.family {
            Family::Mistral => true,
            Family::Qwen2 | Family::Qwen3 => raw.use_sliding_window == Some(true),
            Family::Llama => false,
        };
        let window = raw.sliding_window.filter(|window| slides && *window > 0);
        let available = window.map_or(learnt, |window| window.min(learnt));
        match options.context_length.map(|asked| asked as usize) {
            Some(asked) if asked > available => Err(LoadError::ContextLength {
                path: self.path.clone(),
                asked: super::number(asked),
                available: super::number(available),
            }),
            Some(asked) => Ok(asked),
            None => Ok(available),
        }
    }

    fn count(&self, key: &str, value: usize) -> Result<(), LoadError> {
        // No count in a model comes near 2^32, so what is larger is a mistake, and products of two cannot overflow.
        match u32::try_from(value) {
            Ok(0) => Err(self.bad(key, "is 0".to_owned())),
            Err(_) => Err(self.bad(key, "is not a count below 2^32".to_owned())),
            Ok(_) => Ok(()),
        }
    }

    fn bad(&self, key: &str, message: String) -> LoadError {
        LoadError::Metadata { path: self.path.clone(), key: key.to_owned(), message }
    }

    fn unsupported(&self, feature: String) -> LoadError {
        LoadError::Unsupported { path: self.path.clone(), feature }
    }
}

/// The file, read.
fn required<T: DeserializeOwned>(path: &Path) -> Result<T, LoadError> {
    let missing = || LoadError::Io { path: path.to_owned(), source: std::io::ErrorKind::NotFound.into() };
    json(path)?.ok_or_else(missing)
}

/// The file, read; `None` if there is none.
fn json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, LoadError> {
    match fs::read(path) {
        Ok(text) => {
            let parsed = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(&text));
            parsed.map(Some).map_err(|error| LoadError::Json { path: path.to_owned(), message: error.to_string() })
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(LoadError::Io { path: path.to_owned(), source }),
    }
}
