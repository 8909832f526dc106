//! Queries, keys and values out of their common product, one head at a time: bias, norm, rotation.

use super::super::kernels::{Columns, LANES, Lanes};
use super::rope::Angles;
use super::{DecoderConfig, LayerWeights};

/// Norms over each head of the queries and of the keys, as Qwen3 has them: `head_dim` weights each, without zeros behind
/// them.
#[derive(Debug)]
pub struct HeadNorms {
    /// Of queries.
    pub query: Vec<f32>,
    /// Of keys.
    pub key: Vec<f32>,
}

/// The product of one layer, to be read head by head.
#[derive(Clone, Copy)]
pub(super) struct Heads<'a> {
    pub(super) config: &'a DecoderConfig,
    /// Columns of a head, as [`DecoderConfig::head_width`] says.
    pub(super) width: usize,
    pub(super) layer: &'a LayerWeights,
    pub(super) angles: &'a Angles,
    pub(super) qkv: &'a Columns,
}

impl Heads<'_> {
    /// The rotated query of one head.
    #[inline(always)]
    pub(super) fn query<L: Lanes>(&self, row: usize, head: usize, to: &mut [f32]) {
        self.take(row, head, to);
        if let Some(norms) = &self.layer.head_norms {
            norm::<L>(to, &norms.query, self.config.rms_eps);
        }
        self.angles.rotate(row, to);
    }

    /// The rotated key of one head.
    #[inline(always)]
    pub(super) fn key<L: Lanes>(&self, row: usize, head: usize, to: &mut [f32]) {
        self.take(row, self.config.head_count + head, to);
        if let Some(norms) = &self.layer.head_norms {
            norm::<L>(to, &norms.key, self.config.rms_eps);
        }
        self.angles.rotate(row, to);
    }

    /// The value of one head.
    #[inline(always)]
    pub(super) fn value(&self, row: usize, head: usize, to: &mut [f32]) {
        self.take(row, self.config.head_count + self.config.head_count_kv + head, to);
    }

    /// `head` counts the heads of the queries, then those of the keys, then those of the values.
    #[inline(always)]
    fn take(&self, row: usize, head: usize, to: &mut [f32]) {
        let column = head * self.width;
        self.qkv.gather(row, column, to);
        if let Some(bias) = &self.layer.qkv_bias {
            to.iter_mut().zip(&bias[column..]).for_each(|(to, bias)| *to += bias);
        }
    }
}

/// `x / rms(x) * weight` over one head; what is behind its weights is 0, and stays it.
#[inline(always)]
fn norm<L: Lanes>(head: &mut [f32], weight: &[f32], eps: f32) {
    let mut squares = L::splat(0.0);
    for x in head.as_chunks::<LANES>().0 {
        squares = L::mul_add(L::load(x), L::load(x), squares);
    }
    let inverse = 1.0 / (L::sum(squares) / weight.len() as f32 + eps).sqrt();
    head.iter_mut().zip(weight).for_each(|(x, weight)| *x = *x * inverse * weight);
}
