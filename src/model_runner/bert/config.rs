//! The numbers that make an encoder, out of `config.json` and the files of sentence-transformers.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::EncoderError;
use crate::model_runner::kernels::pack::fill::head_width;

/// Sizes and constants of an encoder, checked: nothing is zero, and what must divide does.
///
/// Sizes are those of the model. In memory its rows are as wide as the kernels want them, filled up with zeros when they
/// are loaded.
#[derive(Debug, Clone, PartialEq)]
pub struct BertConfig {
    /// Width of a token's values; also the length of an embedding.
    pub hidden_size: usize,
    /// Layers.
    pub num_hidden_layers: usize,
    /// Heads; divides `hidden_size`.
    pub num_attention_heads: usize,
    /// Width inside of a feed-forward layer.
    pub intermediate_size: usize,
    /// Added to the variance in a norm.
    pub layer_norm_eps: f32,
    /// Rows of the position table.
    pub max_position_embeddings: usize,
    /// Rows of the type table.
    pub type_vocab_size: usize,
    /// Rows of the word table.
    pub vocab_size: usize,
    /// The most tokens of a text.
    pub context_length: usize,
    /// From the tokens' values to one vector.
    pub pooling: Pooling,
}

impl BertConfig {
    /// Dimensions of a head.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    /// Columns of a head, a multiple of 16.
    #[must_use]
    pub fn head_width(&self) -> usize {
        head_width(self.num_attention_heads, self.head_dim())
    }
}

/// From the tokens' values to one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pooling {
    /// Which tokens count.
    pub mode: PoolingMode,
    /// The vector is made 1 long.
    pub normalise: bool,
}

/// Which tokens count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolingMode {
    /// Their mean.
    Mean,
    /// The first alone.
    Cls,
    /// The largest of each column.
    Max,
    /// Their sum, divided by the root of their number.
    MeanSqrtLen,
}

/// `config.json`, as far as it matters.
#[derive(Deserialize)]
struct Raw {
    model_type: Option<String>,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    hidden_act: String,
    layer_norm_eps: f32,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    vocab_size: usize,
    position_embedding_type: Option<String>,
}

#[derive(Deserialize)]
struct Module {
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct SentenceBert {
    max_seq_length: Option<usize>,
}

#[derive(Deserialize)]
struct RawPooling {
    pooling_mode: Option<String>,
    #[serde(default)]
    pooling_mode_cls_token: bool,
    #[serde(default)]
    pooling_mode_mean_tokens: bool,
    #[serde(default)]
    pooling_mode_max_tokens: bool,
    #[serde(default)]
    pooling_mode_mean_sqrt_len_tokens: bool,
    #[serde(default)]
    pooling_mode_weightedmean_tokens: bool,
    #[serde(default)]
    pooling_mode_lasttoken: bool,
}

#[derive(Deserialize)]
struct Prompts {
    default_prompt_name: Option<String>,
}

/// Reads the configuration of the model in `folder`; `context_length` is what was asked for.
pub(super) fn read(folder: &Path, context_length: Option<u32>) -> Result<BertConfig, EncoderError> {
    let path = folder.join("config.json");
    let raw: Raw = json(&path)?.ok_or_else(|| EncoderError::missing(&path))?;
    raw.check(&path)?;
    let made_for = json::<SentenceBert>(&folder.join("sentence_bert_config.json"))?.and_then(|it| it.max_seq_length);
    let available = raw.max_position_embeddings;
    let asked = context_length.map(|tokens| tokens as usize);
    if let Some(asked) = asked.filter(|asked| *asked > available || *asked == 0) {
        return Err(EncoderError::ContextLength { path, asked, available });
    }
    Ok(BertConfig {
        hidden_size: raw.hidden_size,
        num_hidden_layers: raw.num_hidden_layers,
        num_attention_heads: raw.num_attention_heads,
        intermediate_size: raw.intermediate_size,
        layer_norm_eps: raw.layer_norm_eps,
        max_position_embeddings: available,
        type_vocab_size: raw.type_vocab_size,
        vocab_size: raw.vocab_size,
        context_length: asked.or(made_for.filter(|tokens| *tokens > 0)).map_or(available, |it| it.min(available)),
        pooling: pooling(folder)?,
    })
}

impl Raw {
    fn check(&self, path: &Path) -> Result<(), EncoderError> {
        let unsupported = |feature: String| Err(EncoderError::Unsupported { path: path.to_owned(), feature });
        match self.model_type.as_deref() {
            Some("bert") => {}
            other => return unsupported(format!("the model type {:?}; known: bert", other.unwrap_or_default())),
        }
        if self.hidden_act != "gelu" {
            return unsupported(format!("the activation {:?}; known: gelu", self.hidden_act));
        }
        if let Some(kind) = self.position_embedding_type.as_deref().filter(|kind| *kind != "absolute") {
            return unsupported(format!("positions of the type {kind:?}; known: absolute"));
        }
        let (width, heads) = (self.hidden_size, self.num_attention_heads);
        // No count in a model comes near 2^32, so what is larger is a mistake, and products of two cannot overflow.
        let uncounted = |key: &'static str, value: usize| match u32::try_from(value) {
            Ok(0) => Some((key, "is 0".to_owned())),
            Err(_) => Some((key, "is not a count below 2^32".to_owned())),
            Ok(_) => None,
        };
        let wrong = [
            uncounted("hidden_size", width),
            uncounted("intermediate_size", self.intermediate_size),
            uncounted("num_hidden_layers", self.num_hidden_layers),
            uncounted("max_position_embeddings", self.max_position_embeddings),
            uncounted("type_vocab_size", self.type_vocab_size),
            uncounted("vocab_size", self.vocab_size),
            (heads == 0 || !width.is_multiple_of(heads))
                .then(|| ("num_attention_heads", format!("is {heads}; {width} columns are not that many heads"))),
            (self.layer_norm_eps.is_nan() || self.layer_norm_eps < 0.0)
                .then(|| ("layer_norm_eps", format!("is {}", self.layer_norm_eps))),
        ];
        match wrong.into_iter().flatten().next() {
            Some((key, message)) => Err(EncoderError::Config { path: path.to_owned(), key, message }),
            None => Ok(()),
        }
    }
}

/// What `modules.json` says of pooling. Without it, sentence-transformers takes the mean and leaves its length alone.
fn pooling(folder: &Path) -> Result<Pooling, EncoderError> {
    let unsupported = |path: &Path, feature: String| EncoderError::Unsupported { path: path.to_owned(), feature };
    let prompts = folder.join("config_sentence_transformers.json");
    if let Some(name) = json::<Prompts>(&prompts)?.and_then(|it| it.default_prompt_name) {
        return Err(unsupported(&prompts, format!("the default prompt {name:?} in front of each text")));
    }
    let mut pooling = Pooling { mode: PoolingMode::Mean, normalise: false };
    let path = folder.join("modules.json");
    for Module { path: place, kind } in json::<Vec<Module>>(&path)?.unwrap_or_default() {
        match kind.rsplit('.').next() {
            Some("Transformer") => {}
            Some("Normalize") => pooling.normalise = true,
            Some("Pooling") => {
                let path = folder.join(place).join("config.json");
                let raw: RawPooling = json(&path)?.ok_or_else(|| EncoderError::missing(&path))?;
                pooling.mode = raw.mode().ok_or_else(|| unsupported(&path, "a mode of pooling".to_owned()))?;
            }
            _ => return Err(unsupported(&path, format!("the module {kind}"))),
        }
    }
    Ok(pooling)
}

impl RawPooling {
    /// The mode; `None` for several at once, and for those that are not known here.
    fn mode(&self) -> Option<PoolingMode> {
        if let Some(mode) = &self.pooling_mode {
            return match mode.as_str() {
                "mean" => Some(PoolingMode::Mean),
                "cls" => Some(PoolingMode::Cls),
                "max" => Some(PoolingMode::Max),
                "mean_sqrt_len_tokens" => Some(PoolingMode::MeanSqrtLen),
                _ => None,
            };
        }
        let modes = [
            (self.pooling_mode_cls_token, Some(PoolingMode::Cls)),
            (self.pooling_mode_mean_tokens, Some(PoolingMode::Mean)),
            (self.pooling_mode_max_tokens, Some(PoolingMode::Max)),
            (self.pooling_mode_mean_sqrt_len_tokens, Some(PoolingMode::MeanSqrtLen)),
            (self.pooling_mode_weightedmean_tokens, None),
            (self.pooling_mode_lasttoken, None),
        ];
        let mut asked = modes.into_iter().filter(|(asked, _)| *asked);
        let (_, mode) = asked.next()?;
        if asked.next().is_some() { None } else { mode }
    }
}

/// The file, read; `None` if there is none.
fn json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, EncoderError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(EncoderError::Io { path: path.to_owned(), source }),
    };
    let bad = |error: serde_json::Error| EncoderError::Json { path: path.to_owned(), message: error.to_string() };
    serde_json::from_str(&text).map(Some).map_err(bad)
}

#[cfg(test)]
mod tests;
