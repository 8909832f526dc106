//! Configurations that are read, and those that are refused.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;

/// A folder with `config.json`, a small BERT's changed by `change`, and with other files.
fn folder(change: &[(&str, Value)], files: &[(&str, Value)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut config = json!({
        "model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 96, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "max_position_embeddings": 40,
        "type_vocab_size": 2, "vocab_size": 50, "position_embedding_type": "absolute",
    });
    change.iter().for_each(|(key, value)| config[*key] = value.clone());
    for (name, value) in [("config.json", config)].iter().chain(files) {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value.to_string()).unwrap();
    }
    folder
}

fn modules(kinds: &[&str]) -> Value {
    let module =
        |kind: &&str| json!({"path": format!("1_{kind}"), "type": format!("sentence_transformers.models.{kind}")});
    kinds.iter().map(module).collect()
}

#[test]
fn what_the_files_say() {
    let check = |files: &[(&str, Value)], asked: Option<u32>, context: usize, mode: PoolingMode, normalise: bool| {
        let folder = folder(&[], files);
        let config = read(folder.path(), asked).unwrap();
        assert_eq!((config.context_length, config.pooling), (context, Pooling { mode, normalise }), "{files:?}");
    };
    let short = ("sentence_bert_config.json", json!({"max_seq_length": 30, "do_lower_case": false}));
    check(&[], None, 40, PoolingMode::Mean, false);
    check(std::slice::from_ref(&short), None, 30, PoolingMode::Mean, false);
    check(std::slice::from_ref(&short), Some(40), 40, PoolingMode::Mean, false);
    let normed = ("modules.json", modules(&["Transformer", "Pooling", "Normalize"]));
    let pooling = |config: Value| ("1_Pooling/config.json", config);
    let cls = pooling(json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}));
    check(&[normed.clone(), cls], None, 40, PoolingMode::Cls, true);
    let named = pooling(json!({"pooling_mode": "max"}));
    check(&[("modules.json", modules(&["Transformer", "Pooling"])), named], Some(7), 7, PoolingMode::Max, false);
    let root = pooling(json!({"pooling_mode_mean_sqrt_len_tokens": true}));
    check(&[normed, root], None, 40, PoolingMode::MeanSqrtLen, true);
}

#[test]
fn what_is_refused() {
    let check = |change: &[(&str, Value)], files: &[(&str, Value)], asked: Option<u32>, want: Expect| {
        let folder = folder(change, files);
        let error = read(folder.path(), asked).unwrap_err().to_string();
        want.assert_eq(&error.replace(folder.path().to_str().unwrap(), "FOLDER"));
    };
    let of = |change: &[(&str, Value)], want: Expect| check(change, &[], None, want);
    of(
        &[("model_type", json!("t5"))],
        expect![[r#"FOLDER/config.json needs the model type "t5"; known: bert, which is not supported"#]],
    );
    of(
        &[("hidden_act", json!("relu"))],
        expect![[r#"FOLDER/config.json needs the activation "relu"; known: gelu, which is not supported"#]],
    );
    of(
        &[("position_embedding_type", json!("relative_key"))],
        expect![[
            r#"FOLDER/config.json needs positions of the type "relative_key"; known: absolute, which is not supported"#
        ]],
    );
    of(&[("hidden_size", json!(0))], expect!["FOLDER/config.json: hidden_size is 0"]);
    of(
        &[("intermediate_size", json!(1_u64 << 32))],
        expect!["FOLDER/config.json: intermediate_size is not a count below 2^32"],
    );
    of(&[("num_hidden_layers", json!(0))], expect!["FOLDER/config.json: num_hidden_layers is 0"]);
    of(
        &[("num_attention_heads", json!(3))],
        expect!["FOLDER/config.json: num_attention_heads is 3; 64 columns are not that many heads"],
    );
    of(&[("layer_norm_eps", json!(-1.0))], expect!["FOLDER/config.json: layer_norm_eps is -1"]);
    of(
        &[("vocab_size", json!(-1))],
        expect!["FOLDER/config.json: invalid value: integer `-1`, expected usize at line 1 column 214"],
    );
    check(&[], &[], Some(41), expect!["a context length of 41 was asked for, FOLDER/config.json has 40 positions"]);
    let dense = ("modules.json", modules(&["Transformer", "Dense"]));
    check(
        &[],
        &[dense],
        None,
        expect!["FOLDER/modules.json needs the module sentence_transformers.models.Dense, which is not supported"],
    );
    let lost = ("modules.json", modules(&["Pooling"]));
    check(
        &[],
        std::slice::from_ref(&lost),
        None,
        expect!["cannot read FOLDER/1_Pooling/config.json: entity not found"],
    );
    let both = ("1_Pooling/config.json", json!({"pooling_mode_cls_token": true, "pooling_mode_max_tokens": true}));
    check(
        &[],
        &[lost, both],
        None,
        expect!["FOLDER/1_Pooling/config.json needs a mode of pooling, which is not supported"],
    );
    let prompt = ("config_sentence_transformers.json", json!({"default_prompt_name": "query"}));
    check(
        &[],
        &[prompt],
        None,
        expect![[
            r#"FOLDER/config_sentence_transformers.json needs the default prompt "query" in front of each text, which is not supported"#
        ]],
    );
}
