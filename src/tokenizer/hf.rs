//! A `tokenizer.json`, as the hub's models carry it: how an embedding model reads a text.

use std::path::Path;

use tokenizers::{Decoder, Tokenizer as HfTokenizer};

use super::{ControlTokens, TokenizerError, Vocabulary};
use crate::io_struct::TokenId;

/// A tokenizer of the `tokenizers` library, as its file describes it.
///
/// What the file says of truncation and padding is left out: texts are refused, not cut, and batches are not padded.
pub struct HfVocabulary {
    /// Written-out control tokens are text.
    as_text: HfTokenizer,
    /// Written-out control tokens are control tokens.
    parsing: HfTokenizer,
    control: Vec<(String, TokenId)>,
    /// What each token stands for, as far as one token alone says it.
    bytes: Vec<Vec<u8>>,
}

impl HfVocabulary {
    /// Reads `path`.
    ///
    /// # Errors
    /// The file cannot be read, or is no `tokenizer.json`.
    pub fn open(path: &Path) -> Result<Self, TokenizerError> {
        let unreadable = |error: tokenizers::Error| TokenizerError::File {
            path: path.display().to_string(),
            message: error.to_string(),
        };
        let mut parsing = HfTokenizer::from_file(path).map_err(unreadable)?;
        parsing.with_truncation(None).map_err(unreadable)?;
        parsing.with_padding(None);
        let mut as_text = parsing.clone();
        as_text.set_encode_special_tokens(true);
        let special = parsing.get_added_tokens_decoder().into_iter().filter(|(_, token)| token.special);
        let control = special.map(|(id, token)| (token.content, TokenId(id))).collect();
        let size = u32::try_from(parsing.get_vocab_size(true)).unwrap_or(u32::MAX);
        let bytes = (0..size).map(|id| text_of(&parsing, id)).collect();
        Ok(Self { as_text, parsing, control, bytes })
    }
}

/// What the decoder makes of one token.
fn text_of(tokenizer: &HfTokenizer, id: u32) -> Vec<u8> {
    let Some(token) = tokenizer.id_to_token(id) else { return Vec::new() };
    let decoded = tokenizer.get_decoder().map(|decoder| decoder.decode(vec![token.clone()]));
    decoded.and_then(Result::ok).unwrap_or(token).into_bytes()
}

fn ids(encoded: tokenizers::Result<tokenizers::Encoding>) -> Result<Vec<TokenId>, TokenizerError> {
    let encoding = encoded.map_err(|error| TokenizerError::Encode(error.to_string()))?;
    Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
}

impl Vocabulary for HfVocabulary {
    fn encode(&self, text: &str, control: ControlTokens) -> Result<Vec<TokenId>, TokenizerError> {
        ids(match control {
            ControlTokens::AsText => self.as_text.encode_fast(text, false),
            ControlTokens::Parse => self.parsing.encode_fast(text, false),
        })
    }

    fn encode_for_embedding(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        ids(self.as_text.encode_fast(text, true))
    }

    fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.bytes.get(id.index()).map_or(&[], Vec::as_slice)
    }

    fn control_tokens(&self) -> &[(String, TokenId)] {
        &self.control
    }
}

#[cfg(test)]
mod tests {
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
        std::fs::write(file.path(), WORDS).unwrap();
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
        std::fs::write(file.path(), "{}").unwrap();
        let error = HfVocabulary::open(file.path()).err().unwrap().to_string();
        assert!(error.contains(file.path().to_str().unwrap()), "{error}");
    }
}
