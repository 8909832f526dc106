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
pub(crate) const LAYERS: usize = 2;

/// Base of the rotation.
pub(crate) const ROPE_BASE: f32 = 10_000.0;

/// Added to the mean square in a norm.
pub(crate) const EPS: f32 = 1e-5;

/// What a model is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) width: usize,
    pub(crate) ffn: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    /// Of a head of queries or keys.
    pub(crate) key_dim: usize,
    /// Of a head of values.
    pub(crate) value_dim: usize,
    /// Of a head's dimensions, those that are rotated.
    pub(crate) rope_dim: usize,
}

impl Sizes {
    /// Each as the kernels like it.
    pub(crate) const USUAL: Self =
        Self { width: WIDTH, ffn: 512, heads: 4, kv_heads: 2, key_dim: 64, value_dim: 64, rope_dim: 64 };
}

/// A model as parts, to be changed before it is written.
pub(crate) struct Tiny {
    pub(crate) sizes: Sizes,
    pub(crate) metadata: BTreeMap<String, Value>,
    pub(crate) tensors: BTreeMap<String, QTensor>,
}

impl Tiny {
    /// Its matrices in the format `dtype`, always the same weights.
    pub(crate) fn new(dtype: GgmlDType) -> Self {
        Self::of(Sizes::USUAL, dtype)
    }

    /// The same of other sizes.
    pub(crate) fn of(sizes: Sizes, dtype: GgmlDType) -> Self {
        let Sizes { width, ffn, heads, kv_heads, key_dim, value_dim, .. } = sizes;
        let (mut random, spread) = (StdRng::seed_from_u64(7), 1.6 / (width as f32).sqrt());
        let mut tensors = BTreeMap::new();
        let mut add = |name: String, shape: &[usize], dtype| {
            let scale = if shape.len() == 1 { 1.0 } else { spread };
            let values: Vec<f32> = (0..shape.iter().product()).map(|_| random.random_range(-scale..scale)).collect();
            let tensor = Tensor::from_vec(values, shape, &Device::Cpu).expect("the shape fits");
            tensors.insert(name, QTensor::quantize(&tensor, dtype).expect("a known format"));
        };
        add("token_embd.weight".to_owned(), &[VOCAB, width], dtype);
        add("output_norm.weight".to_owned(), &[width], GgmlDType::F32);
        for layer in 0..LAYERS {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            add(name("attn_norm"), &[width], GgmlDType::F32);
            add(name("attn_q"), &[heads * key_dim, width], dtype);
            add(name("attn_k"), &[kv_heads * key_dim, width], dtype);
            add(name("attn_v"), &[kv_heads * value_dim, width], dtype);
            add(name("attn_output"), &[width, heads * value_dim], dtype);
            add(name("ffn_norm"), &[width], GgmlDType::F32);
            add(name("ffn_gate"), &[ffn, width], dtype);
            add(name("ffn_up"), &[ffn, width], dtype);
            add(name("ffn_down"), &[width, ffn], dtype);
        }
        Self { sizes, metadata: metadata(sizes), tensors }
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

fn metadata(sizes: Sizes) -> BTreeMap<String, Value> {
    let Sizes { width, ffn, heads, kv_heads, key_dim, value_dim, rope_dim } = sizes;
    let count = |count: usize| Value::U32(u32::try_from(count).expect("a tiny model"));
    // Files of usual sizes leave them out.
    let lengths = [("llama.attention.key_length", count(key_dim)), ("llama.attention.value_length", count(value_dim))];
    let is_usual = key_dim == width / heads && value_dim == key_dim;
    let keys = [
        ("general.architecture", Value::String("llama".to_owned())),
        ("general.name", Value::String("Tiny".to_owned())),
        ("llama.block_count", count(LAYERS)),
        ("llama.context_length", count(512)),
        ("llama.embedding_length", count(width)),
        ("llama.feed_forward_length", count(ffn)),
        ("llama.attention.head_count", count(heads)),
        ("llama.attention.head_count_kv", count(kv_heads)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(EPS)),
        ("llama.rope.dimension_count", count(rope_dim)),
        ("llama.rope.freq_base", Value::F32(ROPE_BASE)),
        ("tokenizer.ggml.eos_token_id", count(2)),
        ("tokenizer.ggml.eot_token_id", count(1)),
        ("tokenizer.ggml.eom_token_id", count(2)),
    ];
    let lengths = lengths.into_iter().filter(|_| !is_usual);
    keys.into_iter().chain(lengths).map(|(key, value)| (key.to_owned(), value)).collect()
}
