//! A folder with a generator that is small enough to be written anew for each test.

use std::collections::BTreeMap;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize_to_file};
use serde_json::{Value, json};
use tempfile::TempDir;

const WIDTH: usize = 32;
/// Rows of the embedding: the bytes, the control tokens behind them, and some that nothing is spelt with.
pub const VOCAB: usize = 272;
/// Begins a turn.
pub const START: u32 = 256;
/// Ends one.
pub const END: u32 = 257;
/// Ends a text.
pub const END_OF_TEXT: u32 = 258;

/// What a chat is written as, if nobody says otherwise.
pub const TEMPLATE: &str =
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}<|start|>assistant";

/// A Qwen2 of one layer and random weights, whose every byte is a token, with [`TEMPLATE`].
pub fn folder() -> TempDir {
    folder_with(TEMPLATE, BeginsTexts::No)
}

/// Whether the tokenizer puts a token in front of each text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginsTexts {
    /// It does not.
    No,
    /// [`START`].
    WithStart,
}

/// The same with another template, or another tokenizer.
pub fn folder_with(template: &str, begins: BeginsTexts) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: Value| std::fs::write(folder.path().join(name), content.to_string()).unwrap();
    write(
        "config.json",
        json!({
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": WIDTH, "intermediate_size": WIDTH,
            "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_act": "silu", "max_position_embeddings": 512,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": true, "vocab_size": VOCAB,
            "eos_token_id": END_OF_TEXT, "use_sliding_window": false, "sliding_window": 16
        }),
    );
    write("generation_config.json", json!({"eos_token_id": [END_OF_TEXT, 7]}));
    write(
        "tokenizer_config.json",
        json!({"chat_template": template, "bos_token": "<|start|>", "eos_token": {"content": "<|end|>"}}),
    );
    write("tokenizer.json", tokenizer(begins));
    weights(&folder.path().join("model.safetensors"));
    folder
}

/// Each byte has a letter: printable Latin-1 itself, the others one from U+0100 on.
fn tokenizer(begins: BeginsTexts) -> Value {
    let mut others = '\u{100}'..;
    let letter = |byte: u8| match char::from(byte) {
        c @ ('!'..='~' | '\u{A1}'..='\u{AC}' | '\u{AE}'..='\u{FF}') => c,
        _ => others.next().unwrap(),
    };
    let vocab: BTreeMap<char, u32> = (0..=u8::MAX).map(letter).zip(0..).collect();
    let added = [("<|start|>", START), ("<|end|>", END), ("<|endoftext|>", END_OF_TEXT)].map(|(content, id)| {
        json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false})
    });
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let around = match begins {
        BeginsTexts::No => Value::Null,
        BeginsTexts::WithStart => json!({
            "type": "TemplateProcessing", "pair": [],
            "single": [{"SpecialToken": {"id": "<|start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<|start|>": {"id": "<|start|>", "ids": [START], "tokens": ["<|start|>"]}}
        }),
    };
    json!({"version": "1.0", "added_tokens": added, "normalizer": null, "pre_tokenizer": level, "post_processor": around,
        "decoder": level, "model": {"type": "BPE", "vocab": vocab, "merges": []}})
}

fn weights(path: &Path) {
    let layer = |part: &str| format!("model.layers.0.{part}");
    let square = [
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.o_proj",
        "mlp.gate_proj",
        "mlp.up_proj",
        "mlp.down_proj",
    ];
    let square = square.map(|part| (layer(&format!("{part}.weight")), vec![WIDTH, WIDTH]));
    let bias = ["q", "k", "v"].map(|part| (layer(&format!("self_attn.{part}_proj.bias")), vec![WIDTH]));
    let norms =
        ["input_layernorm", "post_attention_layernorm"].map(|part| (layer(&format!("{part}.weight")), vec![WIDTH]));
    let rest =
        [("model.embed_tokens.weight".to_owned(), vec![VOCAB, WIDTH]), ("model.norm.weight".to_owned(), vec![WIDTH])];
    let tensors: Vec<_> = square.into_iter().chain(bias).chain(norms).chain(rest).collect();
    let mut random = StdRng::seed_from_u64(7);
    let bytes = |shape: &Vec<usize>| -> Vec<u8> {
        (0..shape.iter().product()).flat_map(|_| random.random_range(-1.0_f32..1.0).to_le_bytes()).collect()
    };
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, shape)| shape).map(bytes).collect();
    let views = tensors.iter().zip(&bytes);
    let views = views.map(|((name, shape), bytes)| (name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
    serialize_to_file(views, None, path).unwrap();
}
