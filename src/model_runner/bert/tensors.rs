//! All tensors of an encoder, out of its safetensors file and repacked as they come.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

use super::dense::{Embeddings, Matrix, Norm};
use super::layer::Layer;
use super::load::Precision;
use super::{BertConfig, EncoderError};
use crate::model_runner::kernels::pack::fill::{Fill, Fills};

/// The file of the weights.
const FILE: &str = "model.safetensors";

/// Reads the weights. The file is read and not mapped: one that shrinks while it is mapped kills the process.
pub(super) fn read(
    folder: &Path,
    config: &BertConfig,
    precision: Precision,
) -> Result<(Embeddings, Vec<Layer>), EncoderError> {
    let path = folder.join(FILE);
    let bytes = fs::read(&path).map_err(|source| EncoderError::Io { path: path.clone(), source })?;
    let tensors = SafeTensors::deserialize(&bytes)
        .map_err(|error| EncoderError::Weights { path: path.clone(), message: error.to_string() })?;
    let prefix = if tensors.names().iter().any(|name| name.starts_with("bert.")) { "bert." } else { "" };
    let mut reader = Reader { path, tensors, prefix, precision, used: HashSet::new() };
    let (width, words) = (config.hidden_size, config.vocab_size);
    let table = "embeddings.word_embeddings.weight";
    let positions = "embeddings.position_embeddings.weight";
    let types = "embeddings.token_type_embeddings.weight";
    let fill = Fill::to_blocks(width);
    let embeddings = Embeddings {
        words: fill.vector(reader.values(table, &[words, width])?),
        positions: fill.vector(reader.values(positions, &[config.max_position_embeddings, width])?),
        first_type: fill.vector(reader.values(types, &[config.type_vocab_size, width])?[..width].to_vec()),
        norm: reader.norm("embeddings.LayerNorm", config)?,
    };
    let layers = (0..config.num_hidden_layers).map(|layer| reader.layer(config, layer)).collect::<Result<_, _>>()?;
    reader.refuse_unused()?;
    Ok((embeddings, layers))
}

struct Reader<'a> {
    path: PathBuf,
    tensors: SafeTensors<'a>,
    /// In front of the names, in files that were written with a head.
    prefix: &'static str,
    precision: Precision,
    used: HashSet<String>,
}

impl Reader<'_> {
    fn layer(&mut self, config: &BertConfig, layer: usize) -> Result<Layer, EncoderError> {
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        let (width, wide) = (config.hidden_size, config.intermediate_size);
        let heads = ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
        let (hidden, inside) = (Fill::to_blocks(width), Fill::to_blocks(wide));
        let head = Fill { of: config.head_dim(), to: config.head_width() };
        let fills = |rows, columns| Fills { rows, columns };
        Ok(Layer {
            qkv: self.matrix(&heads, [width, width], fills(head, hidden))?,
            attention_output: self.matrix(&[name("attention.output.dense")], [width, width], fills(hidden, head))?,
            attention_norm: self.norm(&name("attention.output.LayerNorm"), config)?,
            up: self.matrix(&[name("intermediate.dense")], [wide, width], fills(inside, hidden))?,
            down: self.matrix(&[name("output.dense")], [width, wide], fills(hidden, inside))?,
            norm: self.norm(&name("output.LayerNorm"), config)?,
        })
    }

    /// Matrices of one shape on top of each other, with their biases.
    fn matrix(
        &mut self,
        names: &[String],
        [outputs, inputs]: [usize; 2],
        fills: Fills,
    ) -> Result<Matrix, EncoderError> {
        let (mut weights, mut bias) = (Vec::new(), Vec::new());
        for name in names {
            weights.extend(self.values(&format!("{name}.weight"), &[outputs, inputs])?);
            bias.extend(self.values(&format!("{name}.bias"), &[outputs])?);
        }
        let matrix = Matrix::new(self.precision, (weights, inputs), bias, fills);
        matrix.map_err(|error| self.bad(&names[0], error.to_string()))
    }

    /// Old files call weight and bias gamma and beta.
    fn norm(&mut self, name: &str, config: &BertConfig) -> Result<Norm, EncoderError> {
        let width = [config.hidden_size];
        let is_old = self.tensors.tensor(&format!("{}{name}.gamma", self.prefix)).is_ok();
        let [weight, bias] = if is_old { ["gamma", "beta"] } else { ["weight", "bias"] };
        let fill = Fill::to_blocks(config.hidden_size);
        Ok(Norm {
            columns: config.hidden_size,
            weight: fill.vector(self.values(&format!("{name}.{weight}"), &width)?),
            bias: fill.vector(self.values(&format!("{name}.{bias}"), &width)?),
            eps: config.layer_norm_eps,
        })
    }

    /// A tensor as floats, row after row.
    fn values(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, EncoderError> {
        let name = format!("{}{name}", self.prefix);
        let view = self.tensors.tensor(&name).map_err(|_| self.bad(&name, "is missing".to_owned()))?;
        if view.shape() != shape {
            return Err(self.bad(&name, format!("has the shape {:?}, expected {shape:?}", view.shape())));
        }
        let data = view.data();
        let values = match view.dtype() {
            Dtype::F32 => data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            Dtype::F16 => data.as_chunks().0.iter().map(|bytes| f16::from_le_bytes(*bytes).to_f32()).collect(),
            Dtype::BF16 => data.as_chunks().0.iter().map(|bytes| bf16::from_le_bytes(*bytes).to_f32()).collect(),
            other => return Err(self.bad(&name, format!("has the type {other:?}; known: F32, F16, BF16"))),
        };
        self.used.insert(name);
        Ok(values)
    }

    /// A tensor that nothing reads means that the answers would be wrong; but what only training or another head needs
    /// may be there.
    fn refuse_unused(&self) -> Result<(), EncoderError> {
        let is_harmless = |name: &str| {
            let own = name.strip_prefix(self.prefix).unwrap_or(name);
            own.starts_with("pooler.") || own == "embeddings.position_ids" || name.starts_with("cls.")
        };
        let names = self.tensors.names();
        let unused = names.into_iter().filter(|name| !self.used.contains(*name) && !is_harmless(name)).min();
        match unused {
            Some(name) => Err(self.bad(name, "is not part of a BERT that is known here".to_owned())),
            None => Ok(()),
        }
    }

    fn bad(&self, tensor: &str, message: String) -> EncoderError {
        EncoderError::Tensor { path: self.path.clone(), tensor: tensor.to_owned(), message }
    }
}
