//! An encoder's tables and matrices, in either precision.

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Error, Tensor};

use super::load::Precision;
use crate::io_struct::TokenId;
use crate::model_runner::kernels::activations::quantise;
use crate::model_runner::kernels::float::FloatLinear;
use crate::model_runner::kernels::layer_norm::layer_norm;
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
    pub(super) weight: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) eps: f32,
}

impl Norm {
    /// Adds `before` to each row of `x`, and norms it.
    pub(super) fn apply<L: Lanes>(&self, team: &Team, before: &[f32], x: &mut Columns) {
        layer_norm::<L>(team, before, [&self.weight, &self.bias], self.eps, x);
    }
}

/// A matrix and its bias.
pub(super) struct Matrix {
    weights: Weights,
    /// Added by whoever reads the output.
    pub(super) bias: Vec<f32>,
}

enum Weights {
    Floats(FloatLinear),
    Bytes(PackedLinear),
}

impl Matrix {
    /// Packs `weights`, row after row with `inputs` columns each.
    ///
    /// # Errors
    /// They have no whole rows.
    pub(super) fn new(precision: Precision, weights: &[f32], inputs: usize, bias: Vec<f32>) -> Result<Self, Error> {
        let weights = match precision {
            Precision::F32 => Weights::Floats(FloatLinear::pack(weights, inputs)),
            Precision::Int8 => {
                let rows = Tensor::from_slice(weights, (bias.len(), inputs), &Device::Cpu)?;
                Weights::Bytes(PackedLinear::pack(&[&QTensor::quantize(&rows, GgmlDType::F32)?])?)
            }
        };
        Ok(Self { weights, bias })
    }

    /// `out = x Wᵀ`; `bytes` is room for `x` in bytes.
    pub(super) fn forward<L: Lanes>(&self, team: &Team, x: &Columns, bytes: &mut Activations, out: &mut Columns) {
        match &self.weights {
            Weights::Floats(weights) => weights.forward::<L>(team, x, out),
            Weights::Bytes(weights) => {
                quantise::<L>(team, x, weights.inputs(), bytes);
                weights.forward::<L>(team, bytes, out);
            }
        }
    }

    /// `out += x Wᵀ`
    pub(super) fn add_to<L: Lanes>(&self, team: &Team, x: &Columns, bytes: &mut Activations, out: &mut Columns) {
        match &self.weights {
            Weights::Floats(weights) => weights.add_to::<L>(team, x, out),
            Weights::Bytes(weights) => {
                quantise::<L>(team, x, weights.inputs(), bytes);
                weights.add_to::<L>(team, bytes, out);
            }
        }
    }
}
