//! The models of the goldens as files: folders as transformers writes them, and GGUF.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use candle_core::quantized::gguf_file::{Value as GgufValue, write};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};

use super::Golden;

/// Name of a file, name of a tensor, its shape.
pub(crate) type Names = BTreeMap<String, BTreeMap<String, Vec<usize>>>;

/// The weights of a tensor, as the script computes them.
fn weights(name: &str, shape: &[usize]) -> Vec<f32> {
    let state = name.bytes().fold(2_166_136_261_u32, |state, byte| (state ^ u32::from(byte)).wrapping_mul(16_777_619));
    let value = |place: u32| {
        let mut x = place.wrapping_mul(2_654_435_761).wrapping_add(state);
        x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
        x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
        x ^= x >> 16;
        let value = ((x >> 24) as f32 - 128.0) / 128.0;
        match name {
            norm if norm.ends_with("norm.weight") => 1.0 + value / 4.0,
            bias if bias.ends_with("bias") => value,
            "model.embed_tokens.weight" | "lm_head.weight" => value / 16.0,
            _ => value / 4.0,
        }
    };
    let len: usize = shape.iter().product();
    (0..u32::try_from(len).expect("a tiny model")).map(value).collect()
}

/// The folder that transformers would write, without a tokenizer.
pub(crate) fn write_folder(golden: &Golden) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let place = |name: &str| folder.path().join(name);
    fs::write(place("config.json"), golden.config.to_string()).expect("a small file");
    let dtype = dtype(&golden.config);
    for (file, tensors) in &golden.files {
        let bytes: Vec<_> = tensors.iter().map(|(name, shape)| bytes(&weights(name, shape), dtype)).collect();
        let views = tensors.iter().zip(&bytes).map(|((name, shape), bytes)| {
            (name, TensorView::new(dtype, shape.clone(), bytes).expect("as many bytes as the shape needs"))
        });
        serialize_to_file(views, None, &place(file)).expect("a small file");
    }
    if golden.files.len() > 1 {
        let places = golden.files.iter().flat_map(|(file, tensors)| tensors.keys().map(move |name| (name, file)));
        let index = json!({"metadata": {}, "weight_map": places.collect::<HashMap<_, _>>()});
        fs::write(place("model.safetensors.index.json"), index.to_string()).expect("a small file");
    }
    folder
}

fn dtype(config: &Value) -> Dtype {
    match config["dtype"].as_str() {
        Some("float16") => Dtype::F16,
        Some("bfloat16") => Dtype::BF16,
        _ => Dtype::F32,
    }
}

fn bytes(values: &[f32], dtype: Dtype) -> Vec<u8> {
    let bytes = |value: &f32| match dtype {
        Dtype::F16 => f16::from_f32(*value).to_le_bytes().to_vec(),
        Dtype::BF16 => bf16::from_f32(*value).to_le_bytes().to_vec(),
        _ => value.to_le_bytes().to_vec(),
    };
    values.iter().flat_map(bytes).collect()
}

/// What the parts of a tensor's name are called in GGUF files.
const GGUF_NAMES: [(&str, &str); 15] = [
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("model.layers", "blk"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

/// A model on its way into a GGUF file.
pub(crate) struct GgufModel {
    pub(crate) metadata: BTreeMap<String, GgufValue>,
    tensors: BTreeMap<String, QTensor>,
}

impl GgufModel {
    pub(crate) fn new(golden: &Golden) -> Self {
        let config = &golden.config;
        let family = config["model_type"].as_str().expect("a name");
        let architecture = if family == "mistral" { "llama" } else { family };
        let tensors = golden.files.values().flatten().map(|(name, shape)| {
            let mut values = weights(name, shape);
            if dtype(config) == Dtype::BF16 {
                values.iter_mut().for_each(|value| *value = bf16::from_f32(*value).to_f32());
            }
            if architecture == "llama" && (name.contains("q_proj") || name.contains("k_proj")) {
                values = as_neighbours(&values, shape, count(config, "head_dim"));
            }
            let tensor = Tensor::from_vec(values, shape.as_slice(), &Device::Cpu).expect("the shape fits");
            (gguf_name(name), QTensor::quantize(&tensor, GgmlDType::F32).expect("no rounding"))
        });
        Self { metadata: metadata(config, architecture), tensors: tensors.collect() }
    }

    pub(crate) fn write(&self) -> NamedTempFile {
        let mut file = NamedTempFile::new().expect("a place for a file");
        let metadata: Vec<_> = self.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<_> = self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        write(&mut file, &metadata, &tensors).expect("a small file");
        file
    }
}

fn gguf_name(name: &str) -> String {
    GGUF_NAMES.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

/// The rows of each head in the order in which llama.cpp rotates them: the two halves are shuffled into each other.
fn as_neighbours(values: &[f32], shape: &[usize], head_dim: usize) -> Vec<f32> {
    let width = shape[1];
    let row = |row: usize| {
        let (head, place) = (row / head_dim, row % head_dim);
        let from = head * head_dim + place / 2 + place % 2 * (head_dim / 2);
        &values[from * width..][..width]
    };
    (0..shape[0]).flat_map(row).copied().collect()
}

fn count(config: &Value, key: &str) -> usize {
    let heads = || config["hidden_size"].as_u64().zip(config["num_attention_heads"].as_u64()).map(|(w, n)| w / n);
    let value = config[key].as_u64().or_else(|| if key == "head_dim" { heads() } else { None });
    usize::try_from(value.expect(key)).expect("a tiny model")
}

fn metadata(config: &Value, architecture: &str) -> BTreeMap<String, GgufValue> {
    let number = |key: &str| GgufValue::U32(u32::try_from(count(config, key)).expect("a tiny model"));
    let rope = &config["rope_parameters"];
    let float = |value: &Value| GgufValue::F32(value.as_f64().expect("a number") as f32);
    let mut metadata: BTreeMap<String, GgufValue> = [
        ("block_count", number("num_hidden_layers")),
        ("context_length", number("max_position_embeddings")),
        ("embedding_length", number("hidden_size")),
        ("feed_forward_length", number("intermediate_size")),
        ("attention.head_count", number("num_attention_heads")),
        ("attention.head_count_kv", number("num_key_value_heads")),
        ("attention.key_length", number("head_dim")),
        ("attention.value_length", number("head_dim")),
        ("attention.layer_norm_rms_epsilon", float(&config["rms_norm_eps"])),
        ("rope.freq_base", float(&rope["rope_theta"])),
    ]
    .map(|(key, value)| (format!("{architecture}.{key}"), value))
    .into();
    let mut set = |key: &str, value| metadata.insert(format!("{architecture}.{key}"), value);
    if let Some(kind) = rope["rope_type"].as_str().filter(|kind| *kind != "default") {
        set("rope.scaling.type", GgufValue::String(kind.to_owned()));
        set("rope.scaling.factor", float(&rope["factor"]));
    }
    if let Some(original) = rope["original_max_position_embeddings"].as_u64() {
        set("rope.scaling.original_context_length", GgufValue::U32(u32::try_from(original).expect("a short one")));
    }
    metadata.insert("general.architecture".to_owned(), GgufValue::String(architecture.to_owned()));
    metadata
}
