//! One forward pass over a batch of sequences at different stages.

pub mod weights;
pub mod decoder;
pub mod bert;
pub mod attention;
pub mod kernels;
pub mod logits;
pub mod sampler;
pub mod scripted;

use crate::io_struct::{ModelInfo, TokenId};
pub use logits::{Logits, LogitsRow};

/// Tokens in one KV page.
pub const PAGE_SIZE: usize = 16;

/// A page of the KV pool; the scheduler hands them out, the runner holds what is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// One sequence's part of a batch: a chunk of its prompt, or its one newest token. An embedding model takes each sequence
/// whole, and looks at no pages.
#[derive(Debug, Clone, Copy)]
pub struct SequenceSlice<'a> {
    /// The tokens to run, at positions `start..start + tokens.len()`. Never empty.
    pub tokens: &'a [TokenId],
    /// Tokens of this sequence that are in the KV pool already.
    pub start: usize,
    /// Its pages in order: position `p` lives in `pages[p / PAGE_SIZE]`. Covers at least `start + tokens.len()`.
    pub pages: &'a [PageId],
    /// Logits of its last token are wanted; the embedding of an embedding model always is.
    pub wants_logits: bool,
}

/// A forward pass that failed. The batch is lost, the runner is not.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The tensor library refused.
    #[error("forward pass failed: {0}")]
    Tensor(#[from] candle_core::Error),
    /// The batch does not fit the model: a token, a position or a page that does not exist.
    #[error("batch refused: {0}")]
    Batch(String),
    /// A drill said so.
    #[error("a drill: fail_step")]
    Drill,
    /// A script said so.
    #[error("scripted failure of step {0}")]
    Scripted(u64),
}

/// A model, loaded. The same sequence gives bitwise the same logits alone, in any batch and at any chunk size.
pub trait ModelRunner: Send {
    /// What is loaded.
    fn info(&self) -> &ModelInfo;

    /// Runs `batch`, writes its keys and values into their pages, and the wanted logits to `logits`, whatever was in
    /// there: its memory is used again. A sequence may stand in several slices, side by side, each of which begins where
    /// the one before it ends: so logits are wanted in its middle.
    ///
    /// # Errors
    /// The batch could not be run, and the logits mean nothing; the runner can go on with the next one.
    fn forward_into(&mut self, batch: &[SequenceSlice<'_>], logits: &mut Logits) -> Result<(), ForwardError>;

    /// Calls `work` for each number below `count`, on the threads of the forward pass where there are any.
    fn for_each(&self, count: usize, work: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(work);
    }

    /// [`forward_into`](Self::forward_into) new memory.
    ///
    /// # Errors
    /// As there.
    fn forward(&mut self, batch: &[SequenceSlice<'_>]) -> Result<Logits, ForwardError> {
        let mut logits = Logits::default();
        self.forward_into(batch, &mut logits)?;
        Ok(logits)
    }
}
