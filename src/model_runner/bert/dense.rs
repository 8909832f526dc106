//! An encoder's tables and matrices, in either precision.

use super::load::Precision;
use crate::io_struct::TokenId;
use crate::model_runner::kernels::activations::copy;
use crate::model_runner::kernels::layer_norm::{LayerNorm, layer_norm};
use crate::model_runner::kernels::pack::FloatWeights;
use crate::model_runner::kernels::pack::fill::Fills;
use crate::model_runner::kernels::{Activations, Columns, LANES, Lanes, PackedLinear, Team};

/// What a token's values are at first.
pub(super) struct Embeddings {
    /// Row after row, one for each id of the vocabulary.
    pub(super) words: Vec<f32>,
    /// One row for each place in a text.
    pub(super) positions: Vec<f32>,
    /// The row of a text that stands alone.
    pub(super) first_type: Vec<f32>,
    pub(super) norm: Norm,
}

impl Embeddings {
    pub(super) fn bytes(&self) -> usize {
        size_of_val(self.words.as_slice()) + size_of_val(self.positions.as_slice())
    }

    /// Word, place and type of each token of `texts`, which have `rows` tokens, added and normed.
    pub(super) fn embed<L: Lanes>(&self, team: &Team, texts: &[&[TokenId]], rows: usize, x: &mut Columns) {
        let width = self.first_type.len();
        x.reshape(rows, width);
        let tiles = x.tiles_mut();
        let tokens = texts.iter().flat_map(|text| text.iter().enumerate());
        for (row, (position, token)) in tokens.enumerate() {
            let (words, positions) = (&self.words[token.index() * width..], &self.positions[position * width..]);
            for tile in 0..width / LANES {
                let at = |values: &[f32], lane: usize| values[tile * LANES + lane];
                tiles[tile * rows + row] = std::array::from_fn(|lane| at(words, lane) + at(positions, lane));
            }
        }
        self.norm.apply::<L>(team, &self.first_type, x);
    }
}

/// A norm over a token's values.
pub(super) struct Norm {
    /// How many of its columns count; the others are 0.
    pub(super) columns: usize,
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) eps: f32,
}

impl Norm {
    /// Adds `before` to each row of `x`, and norms it.
    pub(super) fn apply<L: Lanes>(&self, team: &Team, before: &[f32], x: &mut Columns) {
        let Self { columns, weight, bias, eps } = self;
        layer_norm::<L>(team, before, LayerNorm { weight, bias, columns: *columns, eps: *eps }, x);
    }
}

/// A matrix and its bias.
pub(super) struct Matrix {
    pub(super) weights: PackedLinear,
    /// Added by whoever reads the output.
    pub(super) bias: Vec<f32>,
}

impl Matrix {
    /// Packs `weights`, row after row with `inputs` columns each, and fills rows, columns and `bias` up.
    ///
    /// # Errors
    /// The rows cannot be packed.
    pub(super) fn new(
        precision: Precision,
        (weights, inputs): (Vec<f32>, usize),
        bias: Vec<f32>,
        fills: Fills,
    ) -> Result<Self, candle_core::Error> {
        let floats = match precision {
            Precision::F32 => FloatWeights::Keep,
            Precision::Int8 => FloatWeights::Round,
        };
        let weights = PackedLinear::pack_floats(weights, inputs, fills, floats)?;
        Ok(Self { weights, bias: fills.rows.vector(bias) })
    }

    /// `x` as the matrix wants it.
    pub(super) fn take<L: Lanes>(&self, team: &Team, x: &Columns, to: &mut Activations) {
        copy::<L>(team, x, self.weights.input_shape(x.rows()), to);
    }
}
