//! The scripted model's tokenizer: one token a byte, and one control token that ends a turn.

use super::{ControlTokens, TokenizerError, Vocabulary};
use crate::io_struct::TokenId;

/// The control token that ends a turn.
pub const END_OF_TURN: TokenId = TokenId(256);

/// Bytes and [`END_OF_TURN`].
pub const VOCAB_SIZE: u32 = 257;

/// One token a byte.
pub struct ByteTokenizer {
    bytes: Vec<u8>,
    control: Vec<(String, TokenId)>,
}

impl ByteTokenizer {
    /// There is only one.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: (0..=u8::MAX).collect(), control: vec![("<|end|>".to_owned(), END_OF_TURN)] }
    }
}

impl Default for ByteTokenizer {
    fn default() -> Self {
        Self::new()
    }
}

impl Vocabulary for ByteTokenizer {
    fn encode(&self, text: &str, control: ControlTokens) -> Result<Vec<TokenId>, TokenizerError> {
        let (end, id) = (&self.control[0].0, END_OF_TURN);
        let mut ids = Vec::with_capacity(text.len());
        for (i, part) in text.split(end.as_str()).enumerate() {
            if i > 0 {
                match control {
                    ControlTokens::Parse => ids.push(id),
                    ControlTokens::AsText => ids.extend(end.bytes().map(|byte| TokenId(byte.into()))),
                }
            }
            ids.extend(part.bytes().map(|byte| TokenId(byte.into())));
        }
        Ok(ids)
    }

    fn token_bytes(&self, id: TokenId) -> &[u8] {
        match self.bytes.get(id.index()) {
            Some(byte) => std::slice::from_ref(byte),
            None if id == END_OF_TURN => self.control[0].0.as_bytes(),
            None => &[],
        }
    }

    fn control_tokens(&self) -> &[(String, TokenId)] {
        &self.control
    }
}
