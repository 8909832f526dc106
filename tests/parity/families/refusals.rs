//! Folders whose files are broken or do not fit together are refused by name.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use expect_test::{Expect, expect};
use radiosonde::model_runner::weights::{LoadOptions, load_folder};
use serde_json::json;

use super::files::write_folder;
use super::{Golden, golden};
use crate::options;

/// The tensors of one file.
type Shapes = BTreeMap<String, Vec<usize>>;

const SHARD: &str = "model-00003-of-00004.safetensors";

pub(super) fn check_folder(folder: &Path, options: &LoadOptions, expected: &Expect) {
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
}

#[test]
fn headers_and_indices_that_lie() {
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
