//! One layer: attention, then the feed-forward, each added to what came in and normed.

use super::attention::{Attention, attend};
use super::dense::{Matrix, Norm};
use super::{BertConfig, Block};
use crate::model_runner::kernels::gelu::gelu;
use crate::model_runner::kernels::{Activations, Columns, Lanes, Team};

/// Weights of one layer.
pub(super) struct Layer {
    /// Queries, keys and values on top of each other.
    pub(super) qkv: Matrix,
    /// Heads back to the tokens' values.
    pub(super) attention_output: Matrix,
    pub(super) attention_norm: Norm,
    /// To the wide inside of the feed-forward.
    pub(super) up: Matrix,
    /// And back.
    pub(super) down: Matrix,
    pub(super) norm: Norm,
}

/// The values of a block on their way through a layer; kept from pass to pass, so that their memory is.
#[derive(Default)]
pub(super) struct Scratch {
    qkv: Columns,
    attended: Columns,
    wide: Columns,
    /// The input of a matrix of bytes.
    bytes: Activations,
}

impl Layer {
    /// Moves `block.x` one layer on. Biases are added by whoever reads a matrix's output next.
    pub(super) fn forward<L: Lanes>(&self, team: &Team, config: &BertConfig, block: &mut Block, s: &mut Scratch) {
        let Block { x, sequences, .. } = block;
        self.qkv.forward::<L>(team, x, &mut s.bytes, &mut s.qkv);
        let attention = Attention { heads: config.num_attention_heads, head_dim: config.head_dim() };
        attend::<L>(team, attention, sequences, (&s.qkv, &self.qkv.bias), &mut s.attended);
        self.attention_output.add_to::<L>(team, &s.attended, &mut s.bytes, x);
        self.attention_norm.apply::<L>(team, &self.attention_output.bias, x);
        self.up.forward::<L>(team, x, &mut s.bytes, &mut s.wide);
        gelu::<L>(team, &self.up.bias, &mut s.wide);
        self.down.add_to::<L>(team, &s.wide, &mut s.bytes, x);
        self.norm.apply::<L>(team, &self.down.bias, x);
    }
}
