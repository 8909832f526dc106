//! Text to ids and back, and the chat template, all from the model's own file.

pub mod gguf;
pub mod hf;
pub mod bytes;
pub mod control;
pub mod chat_template;

use crate::io_struct::{ModelSource, TokenId};

/// A piece of a rendered chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PromptPart {
    /// A control token that the template wrote.
    Control(TokenId),
    /// Everything between two of them, what users typed included: never becomes a control token.
    Text(String),
}

/// What control tokens written out in a text mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlTokens {
    /// `<|im_end|>` is the control token.
    Parse,
    /// `<|im_end|>` is ten characters.
    AsText,
}

/// Why a tokenizer cannot be had or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file cannot be read.
    #[error("cannot read {path}: {message}")]
    File {
        /// The file.
        path: String,
        /// Why.
        message: String,
    },
    /// The file describes a tokenizer that is not supported.
    #[error("unsupported tokenizer: {0}")]
    Unsupported(String),
    /// The text cannot be encoded.
    #[error("cannot tokenize: {0}")]
    Encode(String),
}

/// A tokenizer whose every token is a fixed string of bytes, so that text can be put together token by token.
pub struct Tokenizer {
    vocab: Box<dyn Vocabulary>,
}

/// The kinds of tokenizers.
pub trait Vocabulary: Send + Sync {
    /// Text to ids; nothing is added in front or behind.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    fn encode(&self, text: &str, control: ControlTokens) -> Result<Vec<TokenId>, TokenizerError>;

    /// A text to ids as an embedding model wants it: with its tokens around the text, and no control token out of it.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    fn encode_for_embedding(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        self.encode(text, ControlTokens::AsText)
    }

    /// The bytes of one token; empty for an id outside of the vocabulary.
    fn token_bytes(&self, id: TokenId) -> &[u8];

    /// Control tokens (`<|im_end|>`, ...): text and id.
    fn control_tokens(&self) -> &[(String, TokenId)];

    /// The token that the model wants in front of a raw prompt.
    fn begin_of_text(&self) -> Option<TokenId> {
        None
    }
}

impl Tokenizer {
    /// The tokenizer that belongs to `source`.
    ///
    /// # Errors
    /// The file cannot be read, or names a tokenizer that is not supported.
    pub fn for_source(source: &ModelSource) -> Result<Self, TokenizerError> {
        Ok(match source {
            ModelSource::Gguf(path) => Self { vocab: Box::new(gguf::GgufTokenizer::open(path)?) },
            ModelSource::Folder(path) => {
                Self { vocab: Box::new(hf::HfVocabulary::open(&path.join("tokenizer.json"))?) }
            }
            ModelSource::Scripted(_) => Self { vocab: Box::new(bytes::ByteTokenizer::new()) },
        })
    }

    /// Text to ids; nothing is added in front or behind.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    pub fn encode(&self, text: &str, control: ControlTokens) -> Result<Vec<TokenId>, TokenizerError> {
        self.vocab.encode(text, control)
    }

    /// A raw prompt to ids: its control tokens are parsed, and the model's begin-of-text token stands in front if it
    /// wants one. May be empty.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        let mut ids: Vec<TokenId> = self.vocab.begin_of_text().into_iter().collect();
        ids.extend(self.encode(text, ControlTokens::Parse)?);
        Ok(ids)
    }

    /// A text to ids as an embedding model wants it: with its tokens around the text, and no control token out of it.
    ///
    /// # Errors
    /// The tokenizer refuses the text.
    pub fn encode_for_embedding(&self, text: &str) -> Result<Vec<TokenId>, TokenizerError> {
        self.vocab.encode_for_embedding(text)
    }

    /// The bytes of one token; empty for an id outside of the vocabulary.
    #[must_use]
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        self.vocab.token_bytes(id)
    }

    /// Is `id` a control token?
    #[must_use]
    pub fn is_control(&self, id: TokenId) -> bool {
        self.control_tokens().iter().any(|(_, control)| *control == id)
    }

    /// Control tokens: text and id.
    #[must_use]
    pub fn control_tokens(&self) -> &[(String, TokenId)] {
        self.vocab.control_tokens()
    }

    /// Ids to text in one go, bytes that are not UTF-8 replaced by U+FFFD.
    #[must_use]
    pub fn decode(&self, ids: &[TokenId]) -> String {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| self.token_bytes(*id)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
