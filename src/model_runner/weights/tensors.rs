//! All tensors of a decoder, read one after the other and repacked as they come.

use std::collections::HashSet;

use candle_core::Device;
use candle_core::quantized::QTensor;

use super::LoadError;
use super::family::Family;
use super::gguf::{GgufFile, plain};
use super::safetensors::Shards;
use crate::model_runner::decoder::{DecoderConfig, DecoderWeights, HeadNorms, LayerWeights};
use crate::model_runner::kernels::PackedLinear;
use crate::model_runner::kernels::pack::Part;
use crate::model_runner::kernels::pack::fill::{Fill, Fills};

/// A file, or several, with tensors under names.
pub(super) trait TensorFile {
    /// Rows first; `None`: there is no such tensor.
    fn shape(&self, name: &str) -> Option<&[usize]>;

    /// Reads one tensor of the expected shape.
    ///
    /// # Errors
    /// It is missing, of another shape, or cannot be read.
    fn read(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, LoadError>;

    /// All names.
    fn names(&self) -> Vec<&str>;

    /// A refusal that names a tensor.
    fn bad(&self, name: &str, message: String) -> LoadError;

    /// A refusal that names a feature.
    fn refuse(&self, feature: String) -> LoadError;
}

/// Where a folder's output head is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// It is the embedding, whatever else the file holds.
    Tied,
    /// It is a tensor of its own.
    Own,
    /// It is a tensor of its own if there is one.
    Either,
}

/// What the parts of a decoder are called, `.weight` and `.bias` left out.
struct Names {
    embedding: &'static str,
    norm: &'static str,
    head: &'static str,
    /// In front of the number of a layer.
    layer: &'static str,
    attention_norm: &'static str,
    query: &'static str,
    key: &'static str,
    value: &'static str,
    query_norm: &'static str,
    key_norm: &'static str,
    attention_output: &'static str,
    ffn_norm: &'static str,
    ffn_gate: &'static str,
    ffn_up: &'static str,
    ffn_down: &'static str,
}

const GGUF: Names = Names {
    embedding: "token_embd",
    norm: "output_norm",
    head: "output",
    layer: "blk",
    attention_norm: "attn_norm",
    query: "attn_q",
    key: "attn_k",
    value: "attn_v",
    query_norm: "attn_q_norm",
    key_norm: "attn_k_norm",
    attention_output: "attn_output",
    ffn_norm: "ffn_norm",
    ffn_gate: "ffn_gate",
    ffn_up: "ffn_up",
    ffn_down: "ffn_down",
};

const FOLDER: Names = Names {
    embedding: "model.embed_tokens",
    norm: "model.norm",
    head: "lm_head",
    layer: "model.layers",
    attention_norm: "input_layernorm",
    query: "self_attn.q_proj",
    key: "self_attn.k_proj",
    value: "self_attn.v_proj",
    query_norm: "self_attn.q_norm",
    key_norm: "self_attn.k_norm",
    attention_output: "self_attn.o_proj",
    ffn_norm: "post_attention_layernorm",
    ffn_gate: "mlp.gate_proj",
    ffn_up: "mlp.up_proj",
    ffn_down: "mlp.down_proj",
};

/// A GGUF file's own divisors of the rotation frequencies.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Reads the weights of a GGUF file, and the divisors of its rotation frequencies if it has them. The head is the
/// embedding where the file has no other.
pub(super) fn read_gguf(
    file: &mut GgufFile,
    config: &DecoderConfig,
    family: Family,
) -> Result<(DecoderWeights, Option<Vec<f32>>), LoadError> {
    let mut reader = Reader { file, names: &GGUF, family, used: HashSet::new() };
    let vocab_size = reader.rows_of(&weight(GGUF.embedding))?;
    let weights = reader.decoder(config, vocab_size, Head::Either)?;
    let factors = reader.rope_factors(config)?;
    reader.refuse_unused(|_| false)?;
    Ok((weights, factors))
}

/// Reads the weights of a folder.
pub(super) fn read_folder(
    shards: &mut Shards,
    config: &DecoderConfig,
    family: Family,
    vocab_size: usize,
    head: Head,
) -> Result<DecoderWeights, LoadError> {
    let mut reader = Reader { file: shards, names: &FOLDER, family, used: HashSet::new() };
    let weights = reader.decoder(config, vocab_size, head)?;
    // Old files hold the rotation frequencies too, and those with a tied head a copy of the embedding.
    reader.refuse_unused(|name| {
        name.ends_with(".rotary_emb.inv_freq") || (head == Head::Tied && name == weight(FOLDER.head))
    })?;
    Ok(weights)
}

fn weight(name: &str) -> String {
    format!("{name}.weight")
}

/// One side of a tensor.
#[derive(Clone, Copy)]
struct Side {
    parts: usize,
    /// Length of each, and how it is filled up.
    fill: Fill,
}

impl Side {
    /// As the file has it.
    fn len(self) -> usize {
        self.parts * self.fill.of
    }
}

/// The sides of a decoder's tensors.
#[derive(Clone, Copy)]
struct Sides {
    residual: Side,
    feed_forward: Side,
    queries: Side,
    keys: Side,
    values: Side,
    /// What attention makes of the values: for each head of the queries as much as of theirs.
    attended: Side,
}

impl Sides {
    fn of(config: &DecoderConfig) -> Self {
        let whole = |length: usize| Side { parts: 1, fill: Fill::to_blocks(length) };
        let heads = |parts: usize, of: usize| Side { parts, fill: Fill { of, to: config.head_width() } };
        Self {
            residual: whole(config.embedding_length),
            feed_forward: whole(config.feed_forward_length),
            queries: heads(config.head_count, config.head_dim),
            keys: heads(config.head_count_kv, config.head_dim),
            values: heads(config.head_count_kv, config.value_dim),
            attended: heads(config.head_count, config.value_dim),
        }
    }
}

struct Reader<'a> {
    file: &'a mut dyn TensorFile,
    names: &'static Names,
    family: Family,
    used: HashSet<String>,
}

impl Reader<'_> {
    fn decoder(&mut self, config: &DecoderConfig, vocab_size: usize, head: Head) -> Result<DecoderWeights, LoadError> {
        let (sides, names) = (Sides::of(config), self.names);
        let vocab = Side { parts: vocab_size, fill: Fill::NONE };
        let embedding = self.matrix(&weight(names.embedding), [vocab, sides.residual])?;
        let own = weight(names.head);
        let head = match head {
            Head::Tied => None,
            Head::Either if self.file.shape(&own).is_none() => None,
            Head::Own | Head::Either => Some(self.matrix(&own, [vocab, sides.residual])?),
        };
        let norm = self.vector(&weight(names.norm), sides.residual)?;
        let layers = (0..config.block_count).map(|layer| self.layer(&sides, layer)).collect::<Result<_, _>>()?;
        Ok(DecoderWeights { embedding, head, norm, layers })
    }

    fn layer(&mut self, sides: &Sides, layer: usize) -> Result<LayerWeights, LoadError> {
        let names = self.names;
        let name = |part: &str| weight(&format!("{}.{layer}.{part}", names.layer));
        let Sides { residual, feed_forward, queries, keys, values, attended } = *sides;
        Ok(LayerWeights {
            attention_norm: self.vector(&name(names.attention_norm), residual)?,
            qkv: self.stacked(&[
                (name(names.query), [queries, residual]),
                (name(names.key), [keys, residual]),
                (name(names.value), [values, residual]),
            ])?,
            qkv_bias: self.bias(sides, layer)?,
            head_norms: self.head_norms(sides, layer)?,
            attention_output: self.matrix(&name(names.attention_output), [residual, attended])?,
            ffn_norm: self.vector(&name(names.ffn_norm), residual)?,
            ffn_gate_up: self.stacked(&[
                (name(names.ffn_gate), [feed_forward, residual]),
                (name(names.ffn_up), [feed_forward, residual]),
            ])?,
            ffn_down: self.matrix(&name(names.ffn_down), [residual, feed_forward])?,
        })
    }

    /// Of queries, keys and values: all three or none.
    fn bias(&mut self, sides: &Sides, layer: usize) -> Result<Option<Vec<f32>>, LoadError> {
        let name = |part: &str| format!("{}.{layer}.{part}.bias", self.names.layer);
        let names = [self.names.query, self.names.key, self.names.value].map(name);
        if !self.family.has_bias() && names.iter().all(|name| self.file.shape(name).is_none()) {
            return Ok(None);
        }
        let sides = [sides.queries, sides.keys, sides.values];
        let parts = names.iter().zip(sides).map(|(name, side)| self.vector(name, side));
        Ok(Some(parts.collect::<Result<Vec<_>, _>>()?.concat()))
    }

    /// Nothing is filled in: a norm counts the columns of a head by its weights.
    fn head_norms(&mut self, sides: &Sides, layer: usize) -> Result<Option<HeadNorms>, LoadError> {
        if !self.family.has_head_norms() {
            return Ok(None);
        }
        let name = |part: &str| weight(&format!("{}.{layer}.{part}", self.names.layer));
        let [query, key] = [self.names.query_norm, self.names.key_norm].map(name);
        let head = Side { parts: sides.keys.fill.of, fill: Fill::NONE };
        Ok(Some(HeadNorms { query: self.vector(&query, head)?, key: self.vector(&key, head)? }))
    }

    fn rows_of(&self, name: &str) -> Result<usize, LoadError> {
        match self.file.shape(name) {
            None => Err(self.file.bad(name, "is missing".to_owned())),
            Some([rows, _]) if *rows > 0 && u32::try_from(*rows).is_ok() => Ok(*rows),
            Some(dims) => Err(self.file.bad(name, format!("has the shape {dims:?}, expected a matrix"))),
        }
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, LoadError> {
        self.used.insert(name.to_owned());
        self.file.read(name, shape)
    }

    fn matrix(&mut self, name: &str, shape: [Side; 2]) -> Result<PackedLinear, LoadError> {
        self.stacked(&[(name.to_owned(), shape)])
    }

    fn stacked(&mut self, parts: &[(String, [Side; 2])]) -> Result<PackedLinear, LoadError> {
        let tensors = parts.iter().map(|(name, shape)| self.tensor(name, &shape.map(Side::len)));
        let tensors = tensors.collect::<Result<Vec<_>, LoadError>>()?;
        let filled = tensors.iter().zip(parts).map(|(tensor, (_, [rows, columns]))| {
            let fills = Fills { rows: rows.fill, columns: columns.fill };
            Part { tensor, fills }
        });
        let packed = PackedLinear::pack(&filled.collect::<Vec<_>>());
        packed.map_err(|error| self.file.bad(&parts[0].0, plain(error)))
    }

    fn vector(&mut self, name: &str, side: Side) -> Result<Vec<f32>, LoadError> {
        let tensor = self.tensor(name, &[side.len()])?;
        let values = tensor.dequantize(&Device::Cpu).and_then(|tensor| tensor.to_vec1::<f32>());
        values.map(|values| side.fill.vector(values)).map_err(|error| self.file.bad(name, plain(error)))
    }

    /// Llama 3.1 and later stretch the rotation by a factor for each frequency.
    fn rope_factors(&mut self, config: &DecoderConfig) -> Result<Option<Vec<f32>>, LoadError> {
        if self.file.shape(ROPE_FACTORS).is_none() {
            return Ok(None);
        }
        let factors = self.vector(ROPE_FACTORS, Side { parts: config.rope.dim / 2, fill: Fill::NONE })?;
        if factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
            Ok(Some(factors))
        } else {
            Err(self.file.bad(ROPE_FACTORS, "has factors that are not positive".to_owned()))
        }
    }

    /// A tensor that nothing reads (a bias, say) means that the answers would be wrong.
    fn refuse_unused(&self, is_harmless: impl Fn(&str) -> bool) -> Result<(), LoadError> {
        let names = self.file.names().into_iter();
        match names.filter(|name| !self.used.contains(*name) && !is_harmless(name)).min() {
            Some(name) => Err(self.file.refuse(format!("the tensor {name}"))),
            None => Ok(()),
        }
    }
}
