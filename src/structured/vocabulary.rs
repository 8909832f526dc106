//! A model's vocabulary as llguidance reads it.

use llguidance::toktrie::{TokRxInfo, TokTrie, TokenizerEnv};

use super::GrammarError;
use crate::io_struct::{ModelInfo, TokenId};
use crate::tokenizer::{ControlTokens, Tokenizer};

/// The tokens of `tokenizer`, as many as the model that `info` describes has rows of logits. Control tokens are marked, so
/// that no text is made of them.
pub(super) fn trie(tokenizer: &Tokenizer, info: &ModelInfo) -> Result<TokTrie, GrammarError> {
    let ends: Vec<u32> = info.eos_token_ids.iter().map(|id| id.0).filter(|id| *id < info.vocab_size).collect();
    let Some(end) = ends.first() else {
        return Err(GrammarError::new("the model names no token that ends its output"));
    };
    let mut words: Vec<Vec<u8>> = (0..info.vocab_size).map(|id| tokenizer.token_bytes(TokenId(id)).to_vec()).collect();
    let control = tokenizer.control_tokens().iter().map(|(_, id)| *id);
    for id in control.chain(ends.iter().copied().map(TokenId)) {
        if let Some(word) = words.get_mut(id.index()).filter(|word| word.first() != Some(&MARKER)) {
            word.insert(0, MARKER);
        }
    }
    Ok(TokTrie::from(&TokRxInfo::new(info.vocab_size, *end), &words).with_eos_tokens(&ends))
}

const MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Tokenizes as the model is used to.
pub(super) struct ModelVocabulary {
    /// Its tokens.
    pub trie: TokTrie,
    /// Text to tokens.
    pub tokenizer: Tokenizer,
}

impl ModelVocabulary {
    /// A tokenizer may add a space in front or normalise: then the longest tokens that fit are taken.
    fn tokens(&self, text: &str) -> Vec<u32> {
        let ids = self.tokenizer.encode(text, ControlTokens::AsText).unwrap_or_default();
        let same = ids.iter().flat_map(|id| self.tokenizer.token_bytes(*id)).eq(text.as_bytes());
        if same { ids.iter().map(|id| id.0).collect() } else { self.trie.greedy_tokenize(text.as_bytes()) }
    }
}

impl TokenizerEnv for ModelVocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.trie
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.trie.tokenize_with_greedy_fallback(bytes, |text| self.tokens(text))
    }
}
