//! One layer: attention, then the feed-forward, each added to what came in and normed.

use super::attention::{Attention, attend};
use super::dense::{Matrix, Norm};
use super::{BertConfig, Block};
use crate::model_runner::kernels::gelu::gelu_product;
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
    /// Input of a matrix.
    input: Activations,
    qkv: Columns,
    attended: Columns,
    wide: Activations,
}

impl Layer {
    pub(super) fn bytes(&self) -> usize {
        [&self.qkv, &self.attention_output, &self.up, &self.down].into_iter().map(|matrix| matrix.weights.bytes()).sum()
    }

    /// Moves `block.x` one layer on. Biases are added by whoever reads a matrix's output next.
    pub(super) fn forward<L: Lanes>(&self, team: &Team, config: &BertConfig, block: &mut Block, s: &mut Scratch) {
        let Block { x, sequences, .. } = block;
        self.qkv.take::<L>(team, x, &mut s.input);
        self.qkv.weights.forward::<L>(team, &s.input, &mut s.qkv);
        let (heads, width) = (config.num_attention_heads, config.head_width());
        let attention = Attention { heads, width, head_dim: config.head_dim() };
        attend::<L>(team, attention, sequences, (&s.qkv, &self.qkv.bias), &mut s.attended);
        self.attention_output.take::<L>(team, &s.attended, &mut s.input);
        self.attention_output.weights.add_to::<L>(team, &s.input, x);
        self.attention_norm.apply::<L>(team, &self.attention_output.bias, x);
        self.up.take::<L>(team, x, &mut s.input);
        gelu_product::<L>(team, &self.up.weights, &self.up.bias, &s.input, self.down.weights.form(), &mut s.wide);
        self.down.weights.add_to::<L>(team, &s.wide, x);
        self.norm.apply::<L>(team, &self.down.bias, x);
    }
}
