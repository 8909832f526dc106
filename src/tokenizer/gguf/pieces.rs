//! Vocabularies of pieces with scores, as SentencePiece makes them: Llama 2, the first Mistrals.
//!
//! Of all neighbours that are a piece together, those with the best score are put together first. That is BPE, with the
//! pairs in order of the score of what they make. What is in no piece is written in bytes.

use std::cmp::Ordering;

use tokenizers::Tokenizer as HfTokenizer;
use tokenizers::models::bpe::{BPE, Merges, Vocab};

use super::metadata::Metadata;
use super::{Token, TokenKind, unsupported};
use crate::tokenizer::TokenizerError;

/// What stands for a space in a piece.
const SPACE: &str = "▁";

/// How a text is written for a vocabulary of pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    /// A space goes in front of it, and in front of what follows a control token.
    Space,
    /// It is taken as it is.
    AsIs,
}

impl Front {
    pub(super) fn of(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let space = metadata.flag("tokenizer.ggml.add_space_prefix")?.unwrap_or(true);
        Ok(if space { Self::Space } else { Self::AsIs })
    }

    /// The text in the letters of the pieces.
    pub(super) fn write(self, text: &str) -> String {
        let escaped = text.replace(' ', SPACE);
        match self {
            Self::Space if !text.is_empty() => format!("{SPACE}{escaped}"),
            Self::Space | Self::AsIs => escaped,
        }
    }
}

/// The encoder of a vocabulary of pieces.
pub(super) fn bpe(metadata: &Metadata, tokens: &[Token<'_>]) -> Result<HfTokenizer, TokenizerError> {
    if let Some(token) = tokens.iter().find(|token| token.kind == TokenKind::UserDefined) {
        return Err(TokenizerError::Unsupported(format!("{:?}, a piece of the user's own, among scores", token.text)));
    }
    let scores = metadata.floats("tokenizer.ggml.scores")?;
    if scores.len() != tokens.len() {
        let message = format!("tokenizer.ggml has {} tokens and {} scores", tokens.len(), scores.len());
        return Err(TokenizerError::Unsupported(message));
    }
    let words = tokens.iter().filter(|token| token.kind != TokenKind::Control);
    let vocab: Vocab = words.map(|token| (token.text.to_owned(), token.id.0)).collect();
    let merges = merges(tokens, &scores, &vocab);
    let model = BPE::builder().vocab_and_merges(vocab, merges).byte_fallback(true);
    Ok(HfTokenizer::new(model.build().map_err(unsupported)?))
}

/// Every way to make a piece of two others, the best pieces first.
fn merges(tokens: &[Token<'_>], scores: &[f32], vocab: &Vocab) -> Merges {
    let mut ranked: Vec<_> = tokens.iter().zip(scores).filter(|(token, _)| token.kind == TokenKind::Normal).collect();
    ranked.sort_by(|(_, a), (_, b)| b.partial_cmp(a).unwrap_or(Ordering::Equal));
    let pairs = |token: &Token<'_>| {
        let cuts = token.text.char_indices().skip(1);
        let pairs = cuts.map(|(at, _)| token.text.split_at(at));
        let are_pieces = |(left, right): &(&str, &str)| vocab.contains_key(*left) && vocab.contains_key(*right);
        let pairs = pairs.filter(are_pieces).map(|(left, right)| (left.to_owned(), right.to_owned()));
        pairs.collect::<Merges>()
    };
    ranked.into_iter().flat_map(|(token, _)| pairs(token)).collect()
}

/// The bytes of one piece.
pub(super) fn spelled(token: &Token<'_>) -> Vec<u8> {
    match token.kind {
        TokenKind::Byte => {
            let digits = token.text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'));
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            byte.map_or_else(|| token.text.as_bytes().to_vec(), |byte| vec![byte])
        }
        TokenKind::Normal => token.text.replace(SPACE, " ").into_bytes(),
        TokenKind::Control | TokenKind::UserDefined => token.text.as_bytes().to_vec(),
    }
}
