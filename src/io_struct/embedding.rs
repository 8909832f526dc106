//! Embeddings: SGLang's `TokenizedEmbeddingReqInput` and `BatchEmbeddingOutput`.

use serde::{Deserialize, Serialize};

use super::{FinishReason, Purpose, Rid, TokenId};

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ModelTask {
    /// It continues texts.
    #[default]
    Generate,
    /// It turns each text into one vector.
    Embed {
        /// Length of the vector.
        dimensions: u32,
        /// Each vector has the length 1.
        normalised: bool,
    },
}

impl ModelTask {
    /// SGLang's `is_generation`.
    #[must_use]
    pub const fn is_generation(self) -> bool {
        matches!(self, Self::Generate)
    }

    /// Length of its vectors; `None` if it makes none.
    #[must_use]
    pub const fn dimensions(self) -> Option<u32> {
        match self {
            Self::Generate => None,
            Self::Embed { dimensions, .. } => Some(dimensions),
        }
    }
}

/// A text to embed as the scheduler sees it: ids only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenizedEmbeddingReqInput {
    /// Unique among the live requests of its frontend.
    pub rid: Rid,
    /// Tells two requests apart that had the same rid one after the other; comes back with the output.
    pub serial: u64,
    /// Why it exists.
    pub purpose: Purpose,
    /// The text with the tokens that the model wants around it; never empty, every id below the vocabulary size, no
    /// longer than the context.
    pub input_ids: Vec<TokenId>,
}

/// Embeddings of one batch result, for the requests of one frontend.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BatchEmbeddingOutput {
    /// One entry for each request, which ends with it.
    pub outputs: Vec<EmbeddingOutput>,
}

/// The end of one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EmbeddingOutput {
    /// Which request.
    pub rid: Rid,
    /// Which of those that had this rid.
    pub serial: u64,
    /// Why it exists: the frontend may have forgotten it meanwhile.
    pub purpose: Purpose,
    /// The vector; empty if the request ended without result.
    pub embedding: Vec<f32>,
    /// [`FinishReason::Length`] of 0, as SGLang has it, or why there is no result.
    pub finish_reason: FinishReason,
    /// Tokens of the text.
    pub prompt_tokens: u32,
}
