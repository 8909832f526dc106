//! All tensors of a llama, read one after the other and repacked as they come.

use std::collections::HashSet;

use candle_core::Device;
use candle_core::quantized::QTensor;

use super::LoadError;
use super::gguf::{GgufFile, plain};
use crate::model_runner::kernels::PackedLinear;
use crate::model_runner::llama::{LayerWeights, LlamaConfig, LlamaWeights};

/// Reads the weights. The head is the embedding where the file has no other.
pub(super) fn read(file: &mut GgufFile, config: &LlamaConfig) -> Result<LlamaWeights, LoadError> {
    let mut reader = Reader { file, used: HashSet::new() };
    let width = config.embedding_length;
    let vocab_size = reader.rows_of("token_embd.weight")?;
    let embedding = reader.matrix("token_embd.weight", [vocab_size, width])?;
    let head = match reader.file.tensor_info("output.weight") {
        Some(_) => Some(reader.matrix("output.weight", [vocab_size, width])?),
        None => None,
    };
    let norm = reader.vector("output_norm.weight", width)?;
    let rope_factors = reader.rope_factors(config)?;
    let layers = (0..config.block_count).map(|layer| reader.layer(config, layer)).collect::<Result<_, _>>()?;
    reader.refuse_unused()?;
    Ok(LlamaWeights { embedding, head, norm, layers, rope_factors })
}

struct Reader<'a> {
    file: &'a mut GgufFile,
    used: HashSet<String>,
}

impl Reader<'_> {
    fn layer(&mut self, config: &LlamaConfig, layer: usize) -> Result<LayerWeights, LoadError> {
        let name = |part: &str| format!("blk.{layer}.{part}.weight");
        let (width, ffn) = (config.embedding_length, config.feed_forward_length);
        let (queries, kv) = (config.query_width(), config.kv_width());
        Ok(LayerWeights {
            attention_norm: self.vector(&name("attn_norm"), width)?,
            qkv: self.stacked(&[
                (name("attn_q"), [queries, width]),
                (name("attn_k"), [kv, width]),
                (name("attn_v"), [kv, width]),
            ])?,
            attention_output: self.matrix(&name("attn_output"), [width, queries])?,
            ffn_norm: self.vector(&name("ffn_norm"), width)?,
            ffn_gate_up: self.stacked(&[(name("ffn_gate"), [ffn, width]), (name("ffn_up"), [ffn, width])])?,
            ffn_down: self.matrix(&name("ffn_down"), [width, ffn])?,
        })
    }

    fn rows_of(&self, name: &str) -> Result<usize, LoadError> {
        let info = self.file.tensor_info(name).ok_or_else(|| self.file.bad_tensor(name, "is missing"))?;
        match info.shape.dims() {
            [rows, _] if *rows > 0 && u32::try_from(*rows).is_ok() => Ok(*rows),
            dims => Err(self.file.bad_tensor(name, format!("has the shape {dims:?}, expected a matrix"))),
        }
    }

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, LoadError> {
        self.used.insert(name.to_owned());
        self.file.tensor(name, shape)
    }

    fn matrix(&mut self, name: &str, shape: [usize; 2]) -> Result<PackedLinear, LoadError> {
        self.stacked(&[(name.to_owned(), shape)])
    }

    fn stacked(&mut self, parts: &[(String, [usize; 2])]) -> Result<PackedLinear, LoadError> {
        let tensors =
            parts.iter().map(|(name, shape)| self.tensor(name, shape)).collect::<Result<Vec<_>, LoadError>>()?;
        let packed = PackedLinear::pack(&tensors.iter().collect::<Vec<_>>());
        packed.map_err(|error| self.file.bad_tensor(&parts[0].0, plain(error)))
    }

    fn vector(&mut self, name: &str, len: usize) -> Result<Vec<f32>, LoadError> {
        let tensor = self.tensor(name, &[len])?;
        let values = tensor.dequantize(&Device::Cpu).and_then(|tensor| tensor.to_vec1::<f32>());
        values.map_err(|error| self.file.bad_tensor(name, plain(error)))
    }

    /// Llama 3.1 and later stretch the rotation by a factor for each frequency.
    fn rope_factors(&mut self, config: &LlamaConfig) -> Result<Option<Vec<f32>>, LoadError> {
        let name = "rope_freqs.weight";
        if self.file.tensor_info(name).is_none() {
            return Ok(None);
        }
        let factors = self.vector(name, config.rope_dim / 2)?;
        if factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
            Ok(Some(factors))
        } else {
            Err(self.file.bad_tensor(name, "has factors that are not positive"))
        }
    }

    /// A tensor that nothing reads (a bias, say) means that the answers would be wrong.
    fn refuse_unused(&self) -> Result<(), LoadError> {
        let unused = self.file.content().tensor_infos.keys().filter(|name| !self.used.contains(*name)).min();
        match unused {
            Some(name) => Err(self.file.unsupported(format!("the tensor {name}"))),
            None => Ok(()),
        }
    }
}
