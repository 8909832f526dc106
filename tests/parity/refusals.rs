//! Broken files and batches are refused by name, and nothing panics.

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use expect_test::{Expect, expect};
use radiosonde::io_struct::TokenId;
use radiosonde::model_runner::weights::{LoadError, LoadOptions, load};
use radiosonde::model_runner::{PageId, SequenceSlice};

use crate::tiny::{Tiny, WIDTH};
use crate::{options, runner};

fn check_with(options: &LoadOptions, bytes: &[u8], expected: &Expect) {
    let dir = tempfile::tempdir().expect("a place for a file");
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, bytes).expect("a small file");
    let message = load(&path, options).err().map_or("loaded".to_owned(), |error| error.to_string());
    expected.assert_eq(&message.replace(&*path.to_string_lossy(), "FILE"));
}

fn check(bytes: &[u8], expected: &Expect) {
    check_with(&options(1), bytes, expected);
}

fn tiny() -> Tiny {
    Tiny::new(GgmlDType::Q4_1)
}

fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// A header by hand.
#[derive(Default)]
struct Header(Vec<u8>);

impl Header {
    fn new(tensors: u64, metadata: u64) -> Self {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3u32.to_le_bytes());
        Self(bytes).u64(tensors).u64(metadata)
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn text(mut self, text: &str) -> Self {
        self = self.u64(text.len() as u64);
        self.0.extend(text.as_bytes());
        self
    }

    /// A tensor named `t` in format F32.
    fn tensor(self, dims: &[u64], offset: u64) -> Self {
        let header = dims.iter().fold(self.text("t").u32(dims.len() as u32), |header, dim| header.u64(*dim));
        header.u32(0).u64(offset)
    }

    fn padded(mut self) -> Vec<u8> {
        self.0.resize(4096, 0);
        self.0
    }
}

#[test]
fn cut_files() {
    let bytes = tiny().bytes();
    check(&bytes, &expect![["loaded"]]);
    check(
        &bytes[..bytes.len() - 1000],
        &expect!["FILE is truncated: tensor token_embd.weight needs 760192 bytes of file, 759192 are present"],
    );
    check(
        &bytes[..bytes.len() / 2],
        &expect!["FILE is truncated: tensor blk.1.attn_k.weight needs 392960 bytes of file, 380096 are present"],
    );
    check(
        &bytes[..100],
        &expect![
            "FILE is not a GGUF file that can be read: gguf: header declares 20 tensors and 14 metadata entries, needs at least 662 bytes, only 76 remaining"
        ],
    );
    check(&[], &expect!["FILE is not a GGUF file that can be read: it ends too early, after 0 bytes"]);
}

#[test]
fn every_cut_is_refused() {
    let bytes = tiny().bytes();
    let dir = tempfile::tempdir().expect("a place for a file");
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, &bytes).expect("a small file");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("just written");
    // Every length that ends in the header, some that end in the tensors; shorter and shorter.
    for len in (0..4000).chain((4000..bytes.len() - 64).step_by(9973)).rev() {
        file.set_len(len as u64).expect("a small file");
        assert!(load(&path, &options(1)).is_err(), "cut to {len} bytes");
    }
}

#[test]
fn hostile_headers() {
    let mut wrong_magic = tiny().bytes();
    wrong_magic[..4].copy_from_slice(b"GGML");
    check(&wrong_magic, &expect!["FILE is not a GGUF file that can be read: unknown magic 0x4c4d4747"]);
    check(
        &Header::new(u64::MAX, 0).padded(),
        &expect![
            "FILE is not a GGUF file that can be read: gguf: tensor_count 18446744073709551615 exceeds max 1073741824"
        ],
    );
    check(
        &Header::new(0, u64::MAX).padded(),
        &expect![
            "FILE is not a GGUF file that can be read: gguf: metadata_kv_count 18446744073709551615 exceeds max 1073741824"
        ],
    );
    check(
        &Header::new(1 << 20, 0).padded(),
        &expect![
            "FILE is not a GGUF file that can be read: gguf: header declares 1048576 tensors and 0 metadata entries, needs at least 25165824 bytes, only 4072 remaining"
        ],
    );
    check(
        &Header::new(0, 1).u64(u64::MAX - 8).padded(),
        &expect![
            "FILE is not a GGUF file that can be read: gguf: string length 18446744073709551607 exceeds max 1073741824"
        ],
    );
    let array = Header::new(0, 1).text("array").u32(9);
    check(
        &array.u32(10).u64(1 << 29).padded(),
        &expect![
            "FILE is not a GGUF file that can be read: gguf: array of 536870912 elements needs at least 4294967296 bytes, only 4043 remaining"
        ],
    );
    let mut nested = Header::new(0, 1).text("nested").u32(9);
    for _ in 0..200 {
        nested = nested.u32(9).u64(1);
    }
    check(
        &nested.padded(),
        &expect!["FILE is not a GGUF file that can be read: gguf: value nesting depth exceeds max 64"],
    );
    check(
        &Header::new(0, 1).text("general.alignment").u32(4).u32(0).padded(),
        &expect!["FILE is not a GGUF file that can be read: general.alignment is 0"],
    );
    check(
        &Header::new(0, 1).text("k").u32(99).padded(),
        &expect!["FILE is not a GGUF file that can be read: unrecognized value-type 0x000063"],
    );
    check(
        &Header::new(1, 0).tensor(&[1 << 62, 1 << 62], 0).padded(),
        &expect!["FILE: tensor t: the shape [4611686018427387904, 4611686018427387904] is beyond all files"],
    );
    check(
        &Header::new(1, 0).tensor(&[1 << 61, 2], 0).padded(),
        &expect!["FILE: tensor t: the shape [2, 2305843009213693952] is beyond all files"],
    );
    check(
        &Header::new(1, 0).tensor(&[4], u64::MAX - 2).padded(),
        &expect!["FILE is truncated: tensor t needs 18446744073709551615 bytes of file, 4096 are present"],
    );
    check(
        &Header::new(1, 0).tensor(&[4], u64::MAX / 2).padded(),
        &expect!["FILE is truncated: tensor t needs 9223372036854775887 bytes of file, 4096 are present"],
    );
    check(
        &Header::new(1, 0).tensor(&[1; 5], 0).padded(),
        &expect!["FILE is not a GGUF file that can be read: gguf: tensor 't' has 5 dimensions, max is 4"],
    );
    check(
        &Header::new(1, 0).tensor(&[], 0).padded(),
        &expect!["FILE: tensor t: rows of the shape [] are not whole blocks of 1"],
    );
}

#[test]
fn models_that_do_not_fit() {
    check(
        &tiny().set("general.architecture", text("nosucharch")).bytes(),
        &expect![[r#"FILE has the unknown architecture "nosucharch"; known: llama, qwen2, qwen3"#]],
    );
    check(&tiny().without("general.architecture").bytes(), &expect!["FILE: metadata general.architecture: is missing"]);
    check(&tiny().without("llama.block_count").bytes(), &expect!["FILE: metadata llama.block_count: is missing"]);
    check(
        &tiny().set("llama.block_count", Value::U32(3)).bytes(),
        &expect!["FILE: tensor blk.2.attn_norm.weight: is missing"],
    );
    check(
        &tiny().set("llama.attention.head_count", Value::U32(0)).bytes(),
        &expect!["FILE: metadata llama.attention.head_count: is 0"],
    );
    check(
        &tiny().set("llama.attention.head_count", Value::I64(-4)).bytes(),
        &expect!["FILE: metadata llama.attention.head_count: is not a count below 2^32"],
    );
    check(
        &tiny().set("llama.attention.head_count_kv", Value::U32(3)).bytes(),
        &expect!["FILE: metadata llama.attention.head_count_kv: 3 does not divide 4 heads"],
    );
    check(
        &tiny().set("llama.embedding_length", Value::U64(1 << 40)).bytes(),
        &expect!["FILE: metadata llama.embedding_length: is not a count below 2^32"],
    );
    check(
        &tiny().set("llama.embedding_length", Value::U32(4096)).bytes(),
        &expect!["FILE: tensor token_embd.weight: has the shape [100, 256], expected [100, 4096]"],
    );
    check(
        &tiny().set("llama.rope.freq_base", Value::F32(f32::NAN)).bytes(),
        &expect!["FILE: metadata llama.rope.freq_base: is not a finite number"],
    );
    check(
        &tiny().set("llama.rope.dimension_count", Value::U32(65)).bytes(),
        &expect!["FILE: metadata llama.rope.dimension_count: 65 is not an even part of the head's 64 dimensions"],
    );
    check(
        &tiny().set("llama.rope.scaling.type", text("yarn")).bytes(),
        &expect!["FILE: metadata llama.rope.scaling.factor: is missing"],
    );
    check(
        &tiny().set("llama.expert_count", Value::U32(8)).bytes(),
        &expect!["FILE needs a mixture of experts, which is not supported"],
    );
    check(
        &tiny().without_tensor("blk.1.ffn_down.weight").bytes(),
        &expect!["FILE: tensor blk.1.ffn_down.weight: is missing"],
    );
    check(&tiny().without_tensor("token_embd.weight").bytes(), &expect!["FILE: tensor token_embd.weight: is missing"]);
    check(
        &tiny().with_zeros("output_norm.weight", &[WIDTH - 1]).bytes(),
        &expect!["FILE: tensor output_norm.weight: has the shape [255], expected [256]"],
    );
    check(
        &tiny().with_zeros("token_embd.weight", &[WIDTH]).bytes(),
        &expect!["FILE: tensor token_embd.weight: has the shape [256], expected a matrix"],
    );
    check(
        &tiny().with_zeros("blk.0.attn_q.bias", &[WIDTH]).bytes(),
        &expect!["FILE: tensor blk.0.attn_k.bias: is missing"],
    );
    let long = LoadOptions { context_length: Some(513), ..options(1) };
    // Two layers, two KV heads of 64 dimensions, keys and values in half precision: 1 KiB a token, 4 TiB in all.
    let vast = LoadOptions { max_total_tokens: u32::MAX, ..options(1) };
    let dir = tempfile::tempdir().expect("a place for a file");
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, tiny().bytes()).expect("a small file");
    assert!(matches!(load(&path, &vast), Err(LoadError::KvPool { needed: 4_398_046_511_104, .. })));
    check_with(&long, &tiny().bytes(), &expect!["a context length of 513 was asked for, FILE has 512"]);
}

#[test]
fn heads_and_rows_that_are_not_those_of_the_tensors() {
    check(
        &tiny().set("llama.attention.head_count", Value::U32(512)).bytes(),
        &expect!["FILE needs 512 heads of 0 dimensions, and values of 0, which is not supported"],
    );
    check(
        &tiny().set("llama.attention.value_length", Value::U32(0)).bytes(),
        &expect!["FILE needs 4 heads of 64 dimensions, and values of 0, which is not supported"],
    );
    check(
        &tiny().set("llama.attention.value_length", Value::U32(48)).bytes(),
        &expect!["FILE: tensor blk.0.attn_v.weight: has the shape [128, 256], expected [96, 256]"],
    );
    check(
        &tiny().set("llama.feed_forward_length", Value::U32(500)).bytes(),
        &expect!["FILE: tensor blk.0.ffn_gate.weight: has the shape [512, 256], expected [500, 256]"],
    );
    let heads = ["head_count", "head_count_kv"].map(|key| format!("llama.attention.{key}"));
    let vast = heads.iter().fold(tiny(), |model, key| model.set(key, Value::U32(u32::MAX)));
    let file = tempfile::NamedTempFile::new().expect("a place for a file");
    let bytes = vast.set("llama.attention.key_length", Value::U32(u32::MAX)).bytes();
    std::fs::write(file.path(), bytes).expect("a small file");
    assert!(matches!(load(file.path(), &options(1)), Err(LoadError::KvPool { needed: u64::MAX, .. })));
}

#[test]
fn batches_that_do_not_fit() {
    let dir = tempfile::tempdir().expect("a place for a file");
    let path = dir.path().join("model.gguf");
    std::fs::write(&path, tiny().bytes()).expect("a small file");
    let mut runner = runner(&path, 1);
    let mut check = |tokens: &[u32], start: usize, pages: &[u32], expected: Expect| {
        let tokens: Vec<_> = tokens.iter().copied().map(TokenId).collect();
        let pages: Vec<_> = pages.iter().copied().map(PageId).collect();
        let slice = SequenceSlice { tokens: &tokens, start, pages: &pages, wants_logits: false };
        let result = runner.forward(&[slice]);
        expected.assert_eq(&result.err().map_or("ran".to_owned(), |error| error.to_string()));
    };
    check(&[1, 2], 0, &[511], expect![["ran"]]);
    check(&[], 0, &[0], expect!["batch refused: sequence 0: no tokens"]);
    check(&[100], 0, &[0], expect!["batch refused: sequence 0: token 100 is not below the vocabulary size 100"]);
    check(&[1, 2], 15, &[0], expect!["batch refused: sequence 0: 17 tokens need 2 pages, 1 are given"]);
    check(&[1], 0, &[512], expect!["batch refused: sequence 0: page 512 is not in the pool of 512"]);
    check(&[1], 512, &[0; 40], expect!["batch refused: sequence 0: 513 tokens, the context length is 512"]);
    check(
        &[1],
        usize::MAX,
        &[0; 40],
        expect!["batch refused: sequence 0: 18446744073709551615 tokens, the context length is 512"],
    );
    assert!(runner.forward(&[]).expect("nothing to do").values.is_empty());
}
