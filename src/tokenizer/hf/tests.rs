//! Small tokenizers of every kind, and a file that is none.

use super::*;

/// A WordPiece tokenizer of a few words, with BERT's normaliser and its tokens around a text.
const WORDS: &str = r###"{
    "version": "1.0",
    "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
    "padding": {"strategy": {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
    "added_tokens": [
        {"id": 0, "special": true, "content": "[PAD]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
        {"id": 2, "special": true, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
        {"id": 3, "special": true, "content": "[SEP]", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}
    ],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]}, "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}}},
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "sonde": 4, "radio": 5, "##sonde": 6, "[": 7, "]": 8, "sep": 9}}
}"###;

#[test]
fn a_text_is_read_as_the_file_says_and_its_brackets_are_text() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), WORDS).unwrap();
    let words = HfVocabulary::open(file.path()).unwrap();
    let check = |text: &str, want: &[u32]| {
        let ids = words.encode_for_embedding(text).unwrap();
        assert_eq!(ids.iter().map(|id| id.0).collect::<Vec<_>>(), want, "{text:?}");
    };
    check("Radiosonde", &[2, 5, 6, 3]);
    check("RADIO sonde radio sonde radio", &[2, 5, 4, 5, 4, 5, 3]);
    check("rádio nosuch", &[2, 5, 1, 3]);
    check("", &[2, 3]);
    check("[SEP]", &[2, 7, 9, 8, 3]);
    assert_eq!(words.encode("[SEP]", ControlTokens::Parse).unwrap(), [TokenId(3)]);
    assert_eq!((words.token_bytes(TokenId(4)), words.token_bytes(TokenId(99))), (&b"sonde"[..], &b""[..]));
}

#[test]
fn a_file_that_is_none_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "{}").unwrap();
    let error = HfVocabulary::open(file.path()).err().unwrap().to_string();
    assert!(error.contains(file.path().to_str().unwrap()), "{error}");
}

/// A tokenizer whose words are split by `model` and put together by `decoder`.
fn open(model: &str, rest: &str) -> HfVocabulary {
    let added = |id: u32, content: &str, special: bool| {
        format!(
            r#"{{"id": {id}, "special": {special}, "content": "{content}", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}}"#
        )
    };
    let added = [added(0, "<s>", true), added(1, "</s>", true), added(7, "<think>", false)].join(",");
    let text = format!(r#"{{"version": "1.0", "added_tokens": [{added}], {rest}, "model": {model}}}"#);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    HfVocabulary::open(file.path()).unwrap()
}

const BEGIN: &str = r#""post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}"#;

fn bytes_of(words: &HfVocabulary, ids: &[TokenId]) -> Vec<u8> {
    ids.iter().flat_map(|id| words.token_bytes(*id)).copied().collect()
}

#[test]
fn bytes_of_a_byte_level_vocabulary() {
    let model = r#"{"type": "BPE", "vocab": {"<s>": 0, "</s>": 1, "Ã": 2, "©": 3, "Ġ": 4, "a": 5, "Ġa": 6}, "merges": ["Ġ a"]}"#;
    let rest = r#""normalizer": null, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}"#;
    let words = open(model, &format!("{rest}, {BEGIN}"));
    let ids = words.encode("é a<think></s>", ControlTokens::Parse).unwrap();
    assert_eq!(ids, [2, 3, 6, 7, 1].map(TokenId));
    assert_eq!(bytes_of(&words, &ids), "é a<think></s>".as_bytes());
    assert_eq!(words.token_bytes(TokenId(2)), [0xc3], "half a character");
    assert_eq!(words.begin_of_text(), Some(TokenId(0)));
}

#[test]
fn bytes_of_a_vocabulary_of_pieces() {
    let model = r#"{"type": "BPE", "byte_fallback": true, "unk_token": "</s>",
        "vocab": {"<s>": 0, "</s>": 1, "<0xC3>": 2, "<0xA9>": 3, "▁": 4, "a": 5, "▁a": 6}, "merges": ["▁ a"]}"#;
    let decoder = r#""decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}"#;
    let old = r#""normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}, "pre_tokenizer": null"#;
    let words = open(model, &format!("{old}, {decoder}, {BEGIN}"));
    assert_eq!(words.encode("a a", ControlTokens::AsText).unwrap(), [6, 6].map(TokenId));
    assert_eq!(bytes_of(&words, &[4, 2, 3, 6].map(TokenId)), " é a".as_bytes());
    let new = r#""normalizer": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false}"#;
    let words = open(model, &format!("{new}, {decoder}, {BEGIN}"));
    let encode = |control| words.encode("a", control).unwrap();
    assert_eq!((encode(ControlTokens::Parse), encode(ControlTokens::AsText)), (vec![TokenId(6)], vec![TokenId(5)]));
}
