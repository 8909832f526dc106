//! A `tokenizer.json`, as the hub's models carry it.

mod postprocessing;
mod spelling;

use std::fs;
use std::path::Path;

use tokenizers::Tokenizer as HfTokenizer;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::PrependScheme;

use super::{ControlTokens, TokenizerError, Vocabulary};
use crate::io_struct::TokenId;
use postprocessing::refuse_unsound;
use spelling::Spelling;

/// A tokenizer of the `tokenizers` library, as its file describes it.
///
/// What the file says of truncation and padding is left out: texts are refused, not cut, and batches are not padded.
pub struct HfVocabulary {
    /// Written-out control tokens are text.
    as_text: HfTokenizer,
    /// Written-out control tokens are control tokens.
    parsing: HfTokenizer,
    /// Like `as_text`, without the space that some put in front of what begins a text: for what follows a control token.
    inside: Option<HfTokenizer>,
    control: Vec<(String, TokenId)>,
    /// What each token stands for, as far as one token alone says it.
    bytes: Vec<Vec<u8>>,
    begin_of_text: Option<TokenId>,
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
        let text = fs::read(path).map_err(|error| unreadable(error.into()))?;
        // The library takes some of what it reads for sound JSON, and panics where it is not.
        serde_json::from_slice::<serde_json::Value>(&text).map_err(|error| unreadable(error.into()))?;
        let mut parsing = HfTokenizer::from_bytes(&text).map_err(unreadable)?;
        refuse_unsound(&parsing).map_err(|message| unreadable(message.into()))?;
        parsing.with_truncation(None).map_err(unreadable)?;
        parsing.with_padding(None);
        let mut as_text = parsing.clone();
        as_text.set_encode_special_tokens(true);
        let special = parsing.get_added_tokens_decoder().into_iter().filter(|(_, token)| token.special);
        let control = special.map(|(id, token)| (token.content, TokenId(id))).collect();
        let size = u32::try_from(parsing.get_vocab_size(true)).unwrap_or(u32::MAX);
        let spelling = Spelling::of(&parsing);
        let bytes = (0..size).map(|id| spelling.bytes(&parsing, id)).collect();
        let begin_of_text = begin_of_text(&as_text)?;
        Ok(Self { inside: inside(&as_text), as_text, parsing, control, bytes, begin_of_text })
    }
}

/// The one token that stands in front of a text and behind which nothing stands. An encoder's texts have two.
fn begin_of_text(tokenizer: &HfTokenizer) -> Result<Option<TokenId>, TokenizerError> {
    Ok(match ids(tokenizer.encode_fast("", true))?[..] {
        [begin] => Some(begin),
        _ => None,
    })
}

/// A tokenizer for what does not begin a text, if that makes a difference.
fn inside(as_text: &HfTokenizer) -> Option<HfTokenizer> {
    let Some(PreTokenizerWrapper::Metaspace(words)) = as_text.get_pre_tokenizer() else { return None };
    if words.get_prepend_scheme() != PrependScheme::First {
        return None;
    }
    let (mut words, mut inside) = (words.clone(), as_text.clone());
    words.set_prepend_scheme(PrependScheme::Never);
    inside.with_pre_tokenizer(Some(words));
    Some(inside)
}

fn ids(encoded: tokenizers::Result<tokenizers::Encoding>) -> Result<Vec<TokenId>, TokenizerError> {
    let encoding = encoded.map_err(|error| TokenizerError::Encode(error.to_string()))?;
    Ok(encoding.get_ids().iter().copied().map(TokenId).collect())
}

impl Vocabulary for HfVocabulary {
    fn encode(&self, text: &str, control: ControlTokens) -> Result<Vec<TokenId>, TokenizerError> {
        ids(match control {
            ControlTokens::AsText => self.inside.as_ref().unwrap_or(&self.as_text).encode_fast(text, false),
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

    fn begin_of_text(&self) -> Option<TokenId> {
        self.begin_of_text
    }
}

#[cfg(test)]
mod tests;
