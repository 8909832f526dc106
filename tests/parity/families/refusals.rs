//! Folders and files that are broken, or that need what is not here, are refused by name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use candle_core::quantized::gguf_file::Value as GgufValue;
use expect_test::{Expect, expect};
use radiosonde::model_runner::weights::folder::is_generator;
use radiosonde::model_runner::weights::{LoadOptions, load, load_folder};
use serde_json::{Value, json};

use super::files::{GgufModel, write_folder};
use super::{Golden, golden};
use crate::options;

/// The tensors of one file.
type Shapes = BTreeMap<String, Vec<usize>>;

const SHARD: &str = "model-00003-of-00004.safetensors";

fn check_folder(folder: &Path, options: &LoadOptions, expected: &Expect) {
    let message = load_folder(folder, options).err().map_or("loaded".to_owned(), |error| error.to_string());
    expected.assert_eq(&message.replace(&*folder.to_string_lossy(), "FOLDER"));
}

/// A model in several files, one of which is changed.
fn check_file(name: &str, change: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>, expected: &Expect) {
    let folder = write_folder(&golden("llama3"));
    let path = folder.path().join(name);
    match change(fs::read(&path).unwrap_or_default()) {
        Some(bytes) => fs::write(&path, bytes).expect("a small file"),
        None => fs::remove_file(&path).expect("it is there"),
    }
    check_folder(folder.path(), &options(1), expected);
}

fn check_key(family: &str, key: &str, value: Value, expected: &Expect) {
    let mut golden = golden(family);
    golden.config[key] = value;
    check_folder(write_folder(&golden).path(), &options(1), expected);
}

/// A header of one's own in front of as many zeros.
fn with_header(header: &str, len: u64, zeros: usize) -> Vec<u8> {
    let mut bytes = len.to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + zeros, 0);
    bytes
}

#[test]
fn shards_that_are_broken() {
    check_file(SHARD, Some, &expect![["loaded"]]);
    check_file(
        SHARD,
        |_| None,
        &expect!["cannot read FOLDER/model-00003-of-00004.safetensors: No such file or directory (os error 2)"],
    );
    check_file(
        SHARD,
        |_| Some(Vec::new()),
        &expect![
            "FOLDER/model-00003-of-00004.safetensors is not a safetensors file that can be read: it has 0 bytes, 8 are the least"
        ],
    );
    check_file(
        SHARD,
        |bytes| Some(bytes[..200].to_vec()),
        &expect![
            "FOLDER/model-00003-of-00004.safetensors is not a safetensors file that can be read: its header is said to have 776 bytes, 192 are the most that it can have"
        ],
    );
    check_file(
        SHARD,
        |bytes| Some(bytes[..bytes.len() - 100].to_vec()),
        &expect![
            "FOLDER/model-00003-of-00004.safetensors is truncated: tensor model.norm.weight needs 99856 bytes of file, 99756 are present"
        ],
    );
    check_file(
        SHARD,
        |bytes| Some(bytes[..bytes.len() / 2].to_vec()),
        &expect![
            "FOLDER/model-00003-of-00004.safetensors is truncated: tensor model.layers.1.mlp.gate_proj.weight needs 50192 bytes of file, 49928 are present"
        ],
    );
    check_file(
        SHARD,
        |_| Some(with_header("{}", u64::MAX, 0)),
        &expect![
            "FOLDER/model-00003-of-00004.safetensors is not a safetensors file that can be read: its header is said to have 18446744073709551615 bytes, 2 are the most that it can have"
        ],
    );
    check_file(
        SHARD,
        |_| Some(with_header("{}", 3, 0)),
        &expect![
            "FOLDER/model-00003-of-00004.safetensors is not a safetensors file that can be read: its header is said to have 3 bytes, 2 are the most that it can have"
        ],
    );
    check_file(
        SHARD,
        |_| Some(with_header("{", 1, 0)),
        &expect![
            "FOLDER/model-00003-of-00004.safetensors is not a safetensors file that can be read: its header: EOF while parsing an object at line 1 column 1"
        ],
    );
    check_file(
        SHARD,
        |_| Some(with_header("{}", 2, 0)),
        &expect!["FOLDER/model-00003-of-00004.safetensors: tensor model.layers.1.input_layernorm.weight: is missing"],
    );
    let tensor = |shape: &str, end: u64| {
        let header = format!(r#"{{"t":{{"dtype":"F32","shape":{shape},"data_offsets":[0,{end}]}}}}"#);
        Some(with_header(&header, header.len() as u64, 64))
    };
    check_file(
        SHARD,
        |_| tensor("[16]", 32),
        &expect![
            "FOLDER/model-00003-of-00004.safetensors is not a safetensors file that can be read: its header: invalid shape, data type, or offset for tensor"
        ],
    );
    check_file(
        SHARD,
        |_| tensor("[18446744073709551615,2]", 64),
        &expect![
            "FOLDER/model-00003-of-00004.safetensors is not a safetensors file that can be read: its header: overflow computing buffer size from shape and/or element type"
        ],
    );
    check_file(
        SHARD,
        |_| tensor("[4611686018427387904]", 0),
        &expect![
            "FOLDER/model-00003-of-00004.safetensors is not a safetensors file that can be read: its header: overflow computing buffer size from shape and/or element type"
        ],
    );
    check_file(
        SHARD,
        |_| tensor("[64]", 256),
        &expect![
            "FOLDER/model-00003-of-00004.safetensors is truncated: tensor t needs 321 bytes of file, 129 are present"
        ],
    );
    check_file(
        "model.safetensors.index.json",
        |_| Some(b"[]".to_vec()),
        &expect![
            "FOLDER/model.safetensors.index.json: invalid length 0, expected struct Index with 1 element at line 1 column 2"
        ],
    );
    check_file(
        "model.safetensors.index.json",
        |_| None,
        &expect!["cannot read FOLDER/model.safetensors: No such file or directory (os error 2)"],
    );
    let outside = json!({"weight_map": {"t": "../t.safetensors"}}).to_string();
    check_file(
        "model.safetensors.index.json",
        |_| Some(outside.into_bytes()),
        &expect![[r#"FOLDER/model.safetensors.index.json: "../t.safetensors" is not a file of this folder"#]],
    );
}

#[test]
fn every_cut_is_refused() {
    let folder = write_folder(&golden("qwen2"));
    let path = folder.path().join("model.safetensors");
    let len = fs::read(&path).expect("it is there").len();
    let file = fs::OpenOptions::new().write(true).open(&path).expect("just written");
    for len in (0..3000).chain((3000..len).step_by(9973)).rev() {
        file.set_len(len as u64).expect("a small file");
        assert!(load_folder(folder.path(), &options(1)).is_err(), "cut to {len} bytes");
    }
}

#[test]
fn tensors_that_do_not_fit() {
    let change = |family: &str, change: &dyn Fn(&mut Shapes), expected: &Expect| {
        let mut golden: Golden = golden(family);
        golden.files.values_mut().for_each(change);
        check_folder(write_folder(&golden).path(), &options(1), expected);
    };
    let add = |name: &'static str, shape: &'static [usize]| {
        move |shapes: &mut Shapes| drop(shapes.insert(name.to_owned(), shape.to_vec()))
    };
    let remove = |name: &'static str| move |shapes: &mut Shapes| drop(shapes.remove(name));
    change(
        "qwen2",
        &remove("model.layers.1.self_attn.k_proj.bias"),
        &expect!["FOLDER/model.safetensors: tensor model.layers.1.self_attn.k_proj.bias: is missing"],
    );
    change(
        "qwen3",
        &remove("model.layers.0.self_attn.q_norm.weight"),
        &expect!["FOLDER/model.safetensors: tensor model.layers.0.self_attn.q_norm.weight: is missing"],
    );
    change("qwen3", &remove("lm_head.weight"), &expect!["FOLDER/model.safetensors: tensor lm_head.weight: is missing"]);
    change("llama", &add("lm_head.weight", &[128, 64]), &expect![["loaded"]]);
    change("llama", &add("model.layers.0.self_attn.rotary_emb.inv_freq", &[8]), &expect![["loaded"]]);
    change(
        "llama",
        &add("model.layers.0.self_attn.o_proj.bias", &[64]),
        &expect![
            "FOLDER/model.safetensors needs the tensor model.layers.0.self_attn.o_proj.bias, which is not supported"
        ],
    );
    change(
        "llama",
        &add("model.layers.0.self_attn.q_proj.bias", &[64]),
        &expect!["FOLDER/model.safetensors: tensor model.layers.0.self_attn.k_proj.bias: is missing"],
    );
    change(
        "llama",
        &add("model.layers.0.self_attn.q_norm.weight", &[16]),
        &expect![
            "FOLDER/model.safetensors needs the tensor model.layers.0.self_attn.q_norm.weight, which is not supported"
        ],
    );
    change(
        "llama",
        &add("model.norm.weight", &[65]),
        &expect!["FOLDER/model.safetensors: tensor model.norm.weight: has the shape [65], expected [64]"],
    );
}

#[test]
fn configurations_that_do_not_fit() {
    check_key(
        "llama",
        "model_type",
        json!("gemma"),
        &expect![[r#"FOLDER/config.json has the unknown architecture "gemma"; known: llama, mistral, qwen2, qwen3"#]],
    );
    check_key(
        "llama",
        "model_type",
        Value::Null,
        &expect![[r#"FOLDER/config.json has the unknown architecture ""; known: llama, mistral, qwen2, qwen3"#]],
    );
    check_key(
        "llama",
        "hidden_size",
        Value::Null,
        &expect!["FOLDER/config.json: hidden_size: invalid type: null, expected usize at line 1 column 189"],
    );
    check_key(
        "llama",
        "hidden_size",
        json!(-1),
        &expect!["FOLDER/config.json: hidden_size: invalid value: integer `-1`, expected usize at line 1 column 187"],
    );
    check_key(
        "llama",
        "hidden_size",
        json!(1_u64 << 40),
        &expect!["FOLDER/config.json: metadata hidden_size: is not a count below 2^32"],
    );
    check_key(
        "llama",
        "intermediate_size",
        json!(40),
        &expect!["FOLDER/config.json: metadata intermediate_size: 40 is no multiple of 32"],
    );
    check_key(
        "llama",
        "num_attention_heads",
        json!(0),
        &expect!["FOLDER/config.json: metadata num_attention_heads: is 0"],
    );
    check_key(
        "llama",
        "num_key_value_heads",
        json!(3),
        &expect!["FOLDER/config.json: metadata num_key_value_heads: 3 does not divide 4 heads"],
    );
    check_key(
        "llama",
        "head_dim",
        json!(20),
        &expect!["FOLDER/config.json needs 4 heads of 20 dimensions, which is not supported"],
    );
    check_key(
        "llama",
        "vocab_size",
        json!(127),
        &expect![
            "FOLDER/model.safetensors: tensor model.embed_tokens.weight: has the shape [128, 64], expected [127, 64]"
        ],
    );
    check_key("llama", "rms_norm_eps", json!(-1.0), &expect!["FOLDER/config.json: metadata rms_norm_eps: is -1"]);
    check_key(
        "llama",
        "hidden_act",
        json!("gelu"),
        &expect![[r#"FOLDER/config.json needs the activation "gelu"; known: silu, which is not supported"#]],
    );
    check_key(
        "llama",
        "quantization_config",
        json!({"quant_method": "gptq"}),
        &expect![[r#"FOLDER/config.json needs weights of the quantization method "gptq", which is not supported"#]],
    );
    check_key(
        "llama",
        "rope_parameters",
        json!({"rope_type": "longrope"}),
        &expect![[r#"FOLDER/config.json needs the rope scaling "longrope", which is not supported"#]],
    );
    check_key(
        "llama",
        "rope_parameters",
        json!({"rope_type": "linear"}),
        &expect!["FOLDER/config.json: metadata factor: is missing, which its rope scaling needs"],
    );
    check_key(
        "llama",
        "rope_parameters",
        json!({"rope_type": "linear", "factor": 0.0}),
        &expect!["FOLDER/config.json: metadata factor: 0 is below 1"],
    );
    check_key(
        "llama",
        "rope_parameters",
        json!({"rope_theta": 0.5}),
        &expect!["FOLDER/config.json: metadata rope_theta: 0.5 is below 1"],
    );
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32});
    check_key(
        "llama",
        "rope_parameters",
        llama3,
        &expect![
            "FOLDER/config.json: metadata rope_scaling: has the factors 4 and 4 for 32 tokens; all are above 0, and they rise"
        ],
    );
    let yarn = json!({"rope_type": "yarn", "factor": 8.0, "beta_slow": -1.0});
    check_key(
        "llama",
        "rope_parameters",
        yarn,
        &expect![
            "FOLDER/config.json: metadata rope_scaling: is yarn with numbers that are not positive, or a base of 10000"
        ],
    );
    check_key(
        "llama",
        "rope_parameters",
        json!({"rope_type": "yarn", "factor": 8.0, "mscale": 1.0}),
        &expect!["FOLDER/config.json needs yarn with mscale, or without truncate, which is not supported"],
    );
    check_key(
        "qwen2",
        "layer_types",
        json!(["full_attention", "linear_attention"]),
        &expect![[r#"FOLDER/config.json needs layers of the type "linear_attention", which is not supported"#]],
    );
    check_key(
        "llama",
        "eos_token_id",
        json!("</s>"),
        &expect!["FOLDER/config.json: eos_token_id: expected an id or a list of ids at line 1 column 141"],
    );
}

#[test]
fn a_context_beyond_the_window_is_refused() {
    let folder = write_folder(&golden("mistral"));
    let asked = |context_length| LoadOptions { context_length: Some(context_length), ..options(1) };
    check_folder(folder.path(), &asked(200), &expect![["loaded"]]);
    check_folder(
        folder.path(),
        &asked(201),
        &expect!["a context length of 201 was asked for, FOLDER/config.json has 200"],
    );
    let mut model = GgufModel::new(&golden("mistral"));
    model.metadata.insert("llama.attention.sliding_window".to_owned(), GgufValue::U32(128));
    let file = model.write();
    assert_eq!(load(file.path(), &options(1)).expect("a sound file").info().context_length, 128);
    assert!(load(file.path(), &asked(129)).is_err());
}

#[test]
fn scalings_of_gguf_files_that_do_not_fit() {
    let check = |key: &str, value: GgufValue, expected: &Expect| {
        let mut model = GgufModel::new(&golden("qwen3_yarn"));
        model.metadata.insert(format!("qwen3.rope.scaling.{key}"), value);
        let file = model.write();
        let message = load(file.path(), &options(1)).err().map_or("loaded".to_owned(), |error| error.to_string());
        expected.assert_eq(&message.replace(&*file.path().to_string_lossy(), "FILE"));
    };
    check(
        "type",
        GgufValue::String("longrope".to_owned()),
        &expect![[r#"FILE needs the rope scaling "longrope", which is not supported"#]],
    );
    check("type", GgufValue::U32(1), &expect!["FILE: metadata qwen3.rope.scaling.type: is not a text"]);
    check("factor", GgufValue::F32(0.5), &expect!["FILE: metadata qwen3.rope.scaling.factor: 0.5 is below 1"]);
    check(
        "original_context_length",
        GgufValue::U32(0),
        &expect!["FILE: metadata qwen3.rope.scaling.original_context_length: is 0"],
    );
    check(
        "yarn_beta_fast",
        GgufValue::F32(-1.0),
        &expect![
            "FILE: metadata qwen3.rope.scaling.type: is yarn with numbers that are not positive, or a base of 10000"
        ],
    );
}

#[test]
fn generators_are_told_from_encoders() {
    let check = |config: Value, want: bool| {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("config.json"), config.to_string()).expect("a small file");
        assert_eq!(is_generator(folder.path()), want, "{config}");
        fs::write(folder.path().join("modules.json"), "[]").expect("a small file");
        assert!(!is_generator(folder.path()), "an embedding model by its modules.json");
    };
    check(json!({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}), true);
    check(json!({"model_type": "gemma", "architectures": ["GemmaForCausalLM"]}), true);
    check(json!({"model_type": "qwen3"}), true);
    check(json!({"model_type": "qwen3", "architectures": ["Qwen3ForSequenceClassification"]}), false);
    check(json!({"model_type": "bert", "architectures": ["BertModel"]}), false);
    check(json!({"model_type": "bert"}), false);
    check(json!([]), false);
}
