//! The BERT family: one forward pass over texts of any lengths, without a row of padding.

pub mod config;
pub mod error;
pub mod load;
mod attention;
mod dense;
mod layer;
mod pooling;
mod tensors;

use std::marker::PhantomData;

use super::kernels::backend::WithLanes;
use super::kernels::{Columns, Lanes, Team};
use super::{ForwardError, Logits, ModelRunner, SequenceSlice};
use crate::io_struct::{ModelInfo, TokenId};
use attention::Sequence;
pub use config::{BertConfig, Pooling};
use dense::Embeddings;
pub use error::EncoderError;
use layer::{Layer, Scratch};
pub(super) use load::folder_name;
pub use load::{EncoderOptions, Precision, load};

/// Rows of a block: its activations stay in the second level cache from one layer's matrix to the next.
const BLOCK_ROWS: usize = 128;

/// An encoder with its threads, on kernels for one set of instructions.
struct BertRunner<L> {
    parts: BertParts,
    scratch: Scratch,
    lanes: PhantomData<L>,
}

/// What a runner is put together from.
struct BertParts {
    info: ModelInfo,
    config: BertConfig,
    embeddings: Embeddings,
    layers: Vec<Layer>,
    team: Team,
}

impl WithLanes for BertParts {
    type Output = Box<dyn ModelRunner>;

    fn run<L: Lanes>(self) -> Box<dyn ModelRunner> {
        Box::new(BertRunner::<L> { parts: self, scratch: Scratch::default(), lanes: PhantomData })
    }
}

/// Whole texts that go through a layer together: as many as fit into [`BLOCK_ROWS`], or a longer one alone.
#[derive(Default)]
struct Block {
    /// The values of the texts' tokens, row after row, at the layer that was computed last.
    x: Columns,
    sequences: Vec<Sequence>,
    rows: usize,
}

impl BertParts {
    fn check(&self, slice: &SequenceSlice<'_>) -> Result<(), String> {
        let (vocab_size, context) = (self.info.vocab_size as usize, self.info.context_length as usize);
        let tokens = slice.tokens.len();
        if tokens == 0 || tokens > context || slice.start > 0 {
            return Err(format!("{tokens} tokens from {} on; a text is run whole, with 1 to {context}", slice.start));
        }
        match slice.tokens.iter().find(|token| token.index() >= vocab_size) {
            Some(token) => Err(format!("token {token} is not below the vocabulary size {vocab_size}")),
            None => Ok(()),
        }
    }

    /// The texts in blocks, embedded.
    fn blocks<L: Lanes>(&self, batch: &[SequenceSlice<'_>]) -> Vec<Block> {
        let mut blocks: Vec<(Block, Vec<&[TokenId]>)> = Vec::new();
        for slice in batch {
            let rows = slice.tokens.len();
            let fits = blocks.last().is_some_and(|(block, _)| block.rows + rows <= BLOCK_ROWS);
            if !fits {
                blocks.push((Block::default(), Vec::new()));
            }
            if let Some((block, texts)) = blocks.last_mut() {
                block.sequences.push(Sequence { first_row: block.rows, rows });
                block.rows += rows;
                texts.push(slice.tokens);
            }
        }
        let embedded = blocks.into_iter().map(|(mut block, texts)| {
            self.embeddings.embed::<L>(&self.team, &texts, block.rows, &mut block.x);
            block
        });
        embedded.collect()
    }
}

impl<L: Lanes> ModelRunner for BertRunner<L> {
    fn info(&self) -> &ModelInfo {
        &self.parts.info
    }

    fn forward_into(&mut self, batch: &[SequenceSlice<'_>], logits: &mut Logits) -> Result<(), ForwardError> {
        for (index, slice) in batch.iter().enumerate() {
            self.parts.check(slice).map_err(|message| ForwardError::Batch(format!("sequence {index}: {message}")))?;
        }
        let BertParts { config, layers, team, .. } = &self.parts;
        let mut blocks = self.parts.blocks::<L>(batch);
        for layer in layers {
            for block in &mut blocks {
                layer.forward::<L>(team, config, block, &mut self.scratch);
            }
        }
        let width = config.hidden_size;
        logits.vocab_size = width;
        logits.values.resize(batch.len() * width, 0.0);
        let sequences = blocks.iter().flat_map(|block| block.sequences.iter().map(|sequence| (&block.x, *sequence)));
        for ((x, sequence), out) in sequences.zip(logits.values.chunks_exact_mut(width)) {
            config.pooling.pool::<L>(x, sequence, out);
        }
        Ok(())
    }
}
