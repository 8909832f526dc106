//! Models that need what is not here are refused by name, and generators are told from encoders.

use std::fs;

use candle_core::quantized::gguf_file::Value as GgufValue;
use expect_test::{Expect, expect};
use radiosonde::model_runner::weights::folder::is_generator;
use radiosonde::model_runner::weights::{LoadOptions, load};
use serde_json::{Value, json};

use super::files::{GgufModel, write_folder};
use super::golden;
use super::refusals::check_folder;
use crate::options;

fn check_key(family: &str, key: &str, value: Value, expected: &Expect) {
    let mut golden = golden(family);
    golden.config[key] = value;
    check_folder(write_folder(&golden).path(), &options(1), expected);
}

#[test]
fn sizes_that_do_not_fit() {
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
        &expect![
            "FOLDER/model.safetensors: tensor model.layers.0.mlp.gate_proj.weight: has the shape [96, 64], expected [40, 64]"
        ],
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
        &expect![
            "FOLDER/model.safetensors: tensor model.layers.0.self_attn.q_proj.weight: has the shape [64, 64], expected [80, 64]"
        ],
    );
    check_key("llama", "head_dim", json!(0), &expect!["FOLDER/config.json: metadata head_dim: is 0"]);
    check_key(
        "llama",
        "head_dim",
        json!(17),
        &expect![
            "FOLDER/config.json: metadata partial_rotary_factor: 1 of 17 dimensions is not an even number of them"
        ],
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
}

#[test]
fn features_that_are_not_here() {
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
fn rotations_that_do_not_fit() {
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
