//! The tokenizer against the real file, and against files that lie.

use std::path::PathBuf;

use candle_core::quantized::gguf_file::{Value, write};

use super::*;

/// The default model's file.
pub(crate) fn model_file() -> PathBuf {
    crate::model_hub::default_model().unwrap()
}

fn ids(raw: &[u32]) -> Vec<TokenId> {
    raw.iter().copied().map(TokenId).collect()
}

fn decode(tokenizer: &GgufTokenizer, ids: &[TokenId]) -> Vec<u8> {
    ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).copied().collect()
}

/// The ids are those of a merge-by-rank encoder written apart from this one.
#[test]
fn known_ids() {
    let tokenizer = GgufTokenizer::open(&model_file()).unwrap();
    let check = |text: &str, want: &[u32]| {
        assert_eq!(tokenizer.encode(text, ControlTokens::AsText).unwrap(), ids(want), "{text:?}");
    };
    check("Hello world", &[19556, 905]);
    check("  two  spaces\n\tand tabs ", &[216, 827, 216, 5600, 198, 197, 397, 29416, 216]);
    check(
        "It's 2026; I'll pay $1234.50.",
        &[1589, 506, 216, 34, 32, 34, 38, 43, 339, 3060, 2290, 1885, 33, 34, 35, 36, 30, 37, 32, 30],
    );
    check("Grüße, 你好 🙂", &[27302, 7170, 34878, 85, 28, 216, 18645, 250, 48392, 138, 47526]);
    check("fn main() { }", &[7853, 1085, 1000, 1662, 4029]);
    check("<|im_end|>", &[44, 108, 306, 79, 486, 108, 46]);
    check("Ⅷ ½ १२", &[173, 223, 117, 216, 16738, 216, 9310, 117, 9310, 118]);
    check("👩‍👩‍👧", &[10813, 235, 119, 321, 231, 10813, 235, 119, 321, 231, 10813, 235, 117]);
}

#[test]
fn decoding_gives_back_what_was_encoded() {
    let tokenizer = GgufTokenizer::open(&model_file()).unwrap();
    for text in [
        "",
        " ",
        "a",
        "  leading and   multiple  spaces ",
        "tabs\tand\nnewlines\r\n\n\nend",
        "Ünïcödé – 你好，世界 – Привет – 🙂👩‍👩‍👧‍👦",
        "'s 't 'RE don't DON'T",
        "0123456789 १२३ ٣ Ⅷ ½",
        "\u{200b}\u{feff}zero width \u{fdd0}",
        "<|im_start|>user\n<|im_end|>",
    ] {
        for control in [ControlTokens::Parse, ControlTokens::AsText] {
            let ids = tokenizer.encode(text, control).unwrap();
            assert_eq!(String::from_utf8(decode(&tokenizer, &ids)).unwrap(), text, "{control:?}");
        }
    }
}

#[test]
fn control_tokens_are_parsed_only_where_asked_for() {
    let tokenizer = GgufTokenizer::open(&model_file()).unwrap();
    assert_eq!(tokenizer.control_tokens().len(), 17);
    let text = "<|im_start|>x<|im_end|><|endoftext|>";
    let parsed = tokenizer.encode(text, ControlTokens::Parse).unwrap();
    assert_eq!((parsed.len(), parsed[0], &parsed[2..]), (4, TokenId(1), &ids(&[2, 0])[..]));
    for (token, _) in tokenizer.control_tokens() {
        let typed = tokenizer.encode(token, ControlTokens::AsText).unwrap();
        assert!(typed.iter().all(|id| id.0 > 16), "{token}: {typed:?}");
    }
}

#[test]
fn a_token_has_the_bytes_it_stands_for() {
    let tokenizer = GgufTokenizer::open(&model_file()).unwrap();
    assert_eq!(tokenizer.token_bytes(TokenId(2)), b"<|im_end|>");
    assert_eq!(tokenizer.token_bytes(TokenId(49_152)), b"");
    assert_eq!(tokenizer.token_bytes(TokenId(u32::MAX)), b"");
    let smile = tokenizer.encode("🙂", ControlTokens::AsText).unwrap();
    assert!(smile.len() > 1, "a character of several tokens");
    assert_eq!(decode(&tokenizer, &smile), "🙂".as_bytes());
}

#[test]
fn a_long_prompt_of_spaces_is_no_trap() {
    let tokenizer = GgufTokenizer::open(&model_file()).unwrap();
    for text in [" ".repeat(1 << 20) + "x", "x".repeat(1 << 18), "word ".repeat(1 << 16)] {
        let ids = tokenizer.encode(&text, ControlTokens::AsText).unwrap();
        assert_eq!(decode(&tokenizer, &ids), text.as_bytes());
    }
}

fn strings(texts: &[&str]) -> Value {
    Value::Array(texts.iter().map(|text| Value::String((*text).to_owned())).collect())
}

/// A sound tokenizer of five tokens, to be spoilt key by key.
fn small() -> Vec<(&'static str, Value)> {
    let text = |text: &str| Value::String(text.to_owned());
    vec![
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("gpt-2")),
        ("tokenizer.ggml.tokens", strings(&["a", "b", "ab", "<x>", "yé"])),
        ("tokenizer.ggml.token_type", Value::Array([1, 1, 1, 3, 4].map(Value::I32).to_vec())),
        ("tokenizer.ggml.merges", strings(&["a b"])),
        ("tokenizer.ggml.bos_token_id", Value::U32(3)),
    ]
}

fn open_with(key: &'static str, value: Option<Value>) -> Result<GgufTokenizer, TokenizerError> {
    let mut metadata = small();
    metadata.retain(|(name, _)| *name != key);
    metadata.extend(value.map(|value| (key, value)));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let pairs: Vec<(&str, &Value)> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    write(&mut file, &pairs, &[]).unwrap();
    GgufTokenizer::open(file.path())
}

#[test]
fn a_small_tokenizer() {
    let tokenizer = open_with("general.name", None).unwrap();
    assert_eq!(tokenizer.encode("ab<x>yéb", ControlTokens::Parse).unwrap(), ids(&[2, 3, 4, 1]));
    assert_eq!(tokenizer.token_bytes(TokenId(4)), "yé".as_bytes());
}

#[test]
fn a_begin_of_text_token_is_what_the_file_says() {
    let begin = |value| open_with("tokenizer.ggml.add_bos_token", value).unwrap().begin_of_text();
    assert_eq!(begin(None), None);
    assert_eq!(begin(Some(Value::Bool(false))), None);
    assert_eq!(begin(Some(Value::Bool(true))), Some(TokenId(3)));
    let without = open_with("tokenizer.ggml.bos_token_id", None).unwrap();
    assert_eq!(without.begin_of_text(), None);
}

#[test]
fn metadata_that_lies_is_refused() {
    let check = |key, value: Option<Value>, want: &str| {
        let error = open_with(key, value).err().expect(want).to_string();
        assert!(error.contains(want), "{key}: {error}");
    };
    let text = |text: &str| Some(Value::String(text.to_owned()));
    check("tokenizer.ggml.model", text("t5"), "only byte-level BPE");
    check("tokenizer.ggml.model", text("llama"), "user's own");
    check("tokenizer.ggml.model", None, "no tokenizer.ggml.model");
    check("tokenizer.ggml.pre", text("nosuch"), "'nosuch'");
    check("tokenizer.ggml.pre", text("default"), "'default'");
    check("tokenizer.ggml.pre", Some(Value::U32(1)), "not a string");
    check("tokenizer.ggml.tokens", None, "no tokenizer.ggml.tokens");
    check("tokenizer.ggml.tokens", text("a"), "not a list");
    check("tokenizer.ggml.tokens", Some(Value::Array(vec![Value::U32(1)])), "not a string");
    check("tokenizer.ggml.tokens", Some(strings(&["a"])), "1 tokens and 5 token types");
    check("tokenizer.ggml.token_type", text("a"), "not a list");
    check("tokenizer.ggml.token_type", Some(strings(&["1"])), "not a whole number");
    check("tokenizer.ggml.merges", Some(strings(&["ab"])), "not a pair");
    check("tokenizer.ggml.merges", Some(strings(&["a z"])), "not a pair");
    check("tokenizer.ggml.merges", Some(strings(&["a <x>"])), "not a pair");
    check("tokenizer.ggml.merges", Some(strings(&["ab ab"])), "does not make a token");
    check("tokenizer.ggml.add_bos_token", Some(Value::U32(1)), "not a truth value");
    check("general.alignment", Some(Value::U32(0)), "malformed");
}

/// Pieces of a few letters, with scores and a byte.
fn pieces(change: &[(&'static str, Value)]) -> Result<GgufTokenizer, TokenizerError> {
    let scores = [0.0, 0.0, 0.0, 0.0, -3.0, -4.0, -1.0, -2.0, -9.0, -9.0, -9.0, -9.0];
    let tokens = ["<unk>", "<s>", "</s>", "<0xC3>", "▁a", "▁ab", "ab", "bc", "▁", "a", "b", "c"];
    let kinds = [2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 1];
    let mut metadata = vec![
        ("tokenizer.ggml.model", Value::String("llama".to_owned())),
        ("tokenizer.ggml.tokens", strings(&tokens)),
        ("tokenizer.ggml.token_type", Value::Array(kinds.map(Value::I32).to_vec())),
        ("tokenizer.ggml.scores", Value::Array(scores.map(Value::F32).to_vec())),
        ("tokenizer.ggml.bos_token_id", Value::U32(1)),
    ];
    for (key, value) in change {
        metadata.retain(|(name, _)| name != key);
        metadata.push((*key, value.clone()));
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let pairs: Vec<(&str, &Value)> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    write(&mut file, &pairs, &[]).unwrap();
    GgufTokenizer::open(file.path())
}

#[test]
fn pieces_are_put_together_by_their_scores() {
    let tokenizer = pieces(&[]).unwrap();
    let check = |text: &str, want: &[u32]| {
        assert_eq!(tokenizer.encode(text, ControlTokens::Parse).unwrap(), ids(want), "{text:?}");
    };
    check("abc", &[5, 11]); // ab is better than bc, and ▁ab than ▁a
    check("bc", &[8, 7]);
    check("a  c", &[4, 8, 8, 11]);
    check("</s>a", &[2, 4]);
    check("", &[]);
    check("a\u{c0}", &[4]); // its second byte is no token: it is left out
    assert_eq!(tokenizer.encode("</s>", ControlTokens::AsText).unwrap(), ids(&[8]));
    assert_eq!(decode(&tokenizer, &ids(&[5, 3, 8])), b" ab\xc3 ");
    assert_eq!(tokenizer.begin_of_text(), Some(TokenId(1)));
    let as_is = pieces(&[("tokenizer.ggml.add_space_prefix", Value::Bool(false))]).unwrap();
    assert_eq!(as_is.encode("bc", ControlTokens::Parse).unwrap(), ids(&[7]));
    let short = pieces(&[("tokenizer.ggml.scores", Value::Array(vec![Value::F32(0.0)]))]);
    assert!(short.err().unwrap().to_string().contains("12 tokens and 1 scores"));
}

#[test]
fn a_file_that_is_no_gguf_is_refused() {
    for bytes in [&b""[..], b"GGUF", b"GGUF\x03\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
    {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        assert!(matches!(GgufTokenizer::open(file.path()), Err(TokenizerError::File { .. })), "{bytes:?}");
    }
    assert!(matches!(GgufTokenizer::open(Path::new("/no/such/file")), Err(TokenizerError::File { .. })));
}
