//! How the text of a token stands for bytes.

use std::collections::HashMap;

use tokenizers::decoders::DecoderWrapper;
use tokenizers::{Decoder, Tokenizer};

use crate::tokenizer::gguf::byte_alphabet;

/// What a vocabulary's decoder says of its tokens.
pub(super) enum Spelling {
    /// Each letter is a byte.
    ByteLevel(HashMap<char, u8>),
    /// A low line of its own (▁) is a space, and `<0x0A>` is a byte.
    Pieces,
    /// What the decoder makes of one token: whole words, as encoders have them.
    Words,
}

impl Spelling {
    pub(super) fn of(tokenizer: &Tokenizer) -> Self {
        let decoders = match tokenizer.get_decoder() {
            Some(DecoderWrapper::Sequence(sequence)) => sequence.get_decoders(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        if decoders.iter().any(|decoder| matches!(decoder, DecoderWrapper::ByteLevel(_))) {
            Self::ByteLevel(byte_alphabet().zip(0..=u8::MAX).collect())
        } else if decoders.iter().any(|it| matches!(it, DecoderWrapper::ByteFallback(_) | DecoderWrapper::Metaspace(_)))
        {
            Self::Pieces
        } else {
            Self::Words
        }
    }

    /// The bytes of one token; empty for an id outside of the vocabulary. Added tokens are written out.
    pub(super) fn bytes(&self, tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
        let Some(token) = tokenizer.id_to_token(id) else { return Vec::new() };
        let is_added = tokenizer.get_added_vocabulary().simple_id_to_token(id).is_some();
        match self {
            Self::ByteLevel(_) | Self::Pieces if is_added => token.into_bytes(),
            Self::ByteLevel(alphabet) => {
                let bytes: Option<Vec<u8>> = token.chars().map(|letter| alphabet.get(&letter).copied()).collect();
                bytes.unwrap_or_else(|| token.into_bytes())
            }
            Self::Pieces => piece(&token),
            Self::Words => {
                let decoded = tokenizer.get_decoder().map(|decoder| decoder.decode(vec![token.clone()]));
                decoded.and_then(Result::ok).unwrap_or(token).into_bytes()
            }
        }
    }
}

fn piece(token: &str) -> Vec<u8> {
    let digits = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).filter(|digits| digits.len() == 2);
    match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
        Some(byte) => vec![byte],
        None => token.replace('▁', " ").into_bytes(),
    }
}
