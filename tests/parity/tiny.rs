//! A llama of a few thousand weights, written with candle's GGUF writer.

use std::collections::BTreeMap;
use std::io::Cursor;

use candle_core::quantized::gguf_file::{Value, write};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Wide enough for the formats with 256 weights to a block.
pub(crate) const WIDTH: usize = 256;
/// No multiple of 16.
pub(crate) const VOCAB: usize = 100;
const LAYERS: usize = 2;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const FFN: usize = 512;

/// A model as parts, to be changed before it is written.
pub(crate) struct Tiny {
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) tensors: BTreeMap<String, QTensor>,
}

impl Tiny {
    /// Its matrices in the format `dtype`, always the same weights.
    pub(crate) fn new(dtype: GgmlDType) -> Self {
        let (mut random, kv) = (StdRng::seed_from_u64(7), WIDTH / HEADS * KV_HEADS);
        let mut tensors = BTreeMap::new();
        let mut add = |name: String, shape: &[usize], dtype| {
            let scale = if shape.len() == 1 { 1.0 } else { 0.1 };
            let values: Vec<f32> = (0..shape.iter().product()).map(|_| random.random_range(-scale..scale)).collect();
            let tensor = Tensor::from_vec(values, shape, &Device::Cpu).expect("the shape fits");
            tensors.insert(name, QTensor::quantize(&tensor, dtype).expect("a known format"));
        };
        add("token_embd.weight".to_owned(), &[VOCAB, WIDTH], dtype);
        add("output_norm.weight".to_owned(), &[WIDTH], GgmlDType::F32);
        for layer in 0..LAYERS {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            add(name("attn_norm"), &[WIDTH], GgmlDType::F32);
            add(name("attn_q"), &[WIDTH, WIDTH], dtype);
            add(name("attn_k"), &[kv, WIDTH], dtype);
            add(name("attn_v"), &[kv, WIDTH], dtype);
            add(name("attn_output"), &[WIDTH, WIDTH], dtype);
            add(name("ffn_norm"), &[WIDTH], GgmlDType::F32);
            add(name("ffn_gate"), &[FFN, WIDTH], dtype);
            add(name("ffn_up"), &[FFN, WIDTH], dtype);
            add(name("ffn_down"), &[WIDTH, FFN], dtype);
        }
        Self { metadata: metadata(), tensors }
    }

    /// Sets a key of the metadata.
    pub(crate) fn set(mut self, key: &str, value: Value) -> Self {
        self.metadata.insert(key.to_owned(), value);
        self
    }

    /// Removes a key of the metadata.
    pub(crate) fn without(mut self, key: &str) -> Self {
        self.metadata.remove(key);
        self
    }

    /// Sets a tensor to zeros of some shape.
    pub(crate) fn with_zeros(mut self, name: &str, shape: &[usize]) -> Self {
        let zeros = Tensor::zeros(shape, candle_core::DType::F32, &Device::Cpu).expect("a small tensor");
        self.tensors.insert(name.to_owned(), QTensor::quantize(&zeros, GgmlDType::F32).expect("no rounding"));
        self
    }

    /// Removes a tensor.
    pub(crate) fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.remove(name);
        self
    }

    /// The file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let metadata: Vec<_> = self.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<_> = self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        let mut file = Cursor::new(Vec::new());
        write(&mut file, &metadata, &tensors).expect("memory does not refuse");
        file.into_inner()
    }
}

fn metadata() -> BTreeMap<String, Value> {
    let count = |count: usize| Value::U32(u32::try_from(count).expect("a tiny model"));
    [
        ("general.architecture", Value::String("llama".to_owned())),
        ("general.name", Value::String("Tiny".to_owned())),
        ("llama.block_count", count(LAYERS)),
        ("llama.context_length", count(512)),
        ("llama.embedding_length", count(WIDTH)),
        ("llama.feed_forward_length", count(FFN)),
        ("llama.attention.head_count", count(HEADS)),
        ("llama.attention.head_count_kv", count(KV_HEADS)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("llama.rope.dimension_count", count(WIDTH / HEADS)),
        ("llama.rope.freq_base", Value::F32(10_000.0)),
        ("tokenizer.ggml.eos_token_id", count(2)),
        ("tokenizer.ggml.eot_token_id", count(1)),
        ("tokenizer.ggml.eom_token_id", count(2)),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}
