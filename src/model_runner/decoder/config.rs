//! The numbers that make a decoder.

use super::super::attention::KvShape;
use super::super::kernels::BLOCK;
use super::super::kernels::elementwise::RmsNorm;
use super::super::kernels::pack::fill::head_width;
use super::rope::RopeConfig;
use crate::io_struct::KvCacheDtype;

/// Sizes and constants of a model, checked: nothing is zero, and what must divide does.
///
/// Lengths are those of the model. In memory its rows are as wide as the kernels want them, filled up with zeros when they
/// are loaded: that is what the methods say.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    /// Layers.
    pub block_count: usize,
    /// Width of the residual stream.
    pub embedding_length: usize,
    /// Width inside of a feed-forward layer.
    pub feed_forward_length: usize,
    /// Query heads.
    pub head_count: usize,
    /// Key and value heads; divides `head_count`.
    pub head_count_kv: usize,
    /// Width of a head of the queries and of the keys.
    pub head_dim: usize,
    /// Width of a head of the values.
    pub value_dim: usize,
    /// How queries and keys are rotated.
    pub rope: RopeConfig,
    /// Added to the mean square in a norm.
    pub rms_eps: f32,
    /// The most tokens of a sequence.
    pub context_length: usize,
    /// How keys and values are held.
    pub kv_cache_dtype: KvCacheDtype,
}

impl DecoderConfig {
    /// Columns of the residual stream, a multiple of 32.
    #[must_use]
    pub fn residual_width(&self) -> usize {
        self.embedding_length.next_multiple_of(BLOCK)
    }

    /// Columns of a head, whatever it is a head of.
    #[must_use]
    pub fn head_width(&self) -> usize {
        head_width(self.head_count, self.head_dim.max(self.value_dim))
    }

    /// A norm of the residual stream.
    #[must_use]
    pub fn norm<'a>(&self, weight: &'a [f32]) -> RmsNorm<'a> {
        RmsNorm { weight, columns: self.embedding_length, eps: self.rms_eps }
    }

    /// What a layer keeps for each token.
    #[must_use]
    pub fn kv_shape(&self) -> KvShape {
        KvShape {
            kv_heads: self.head_count_kv,
            queries_per_head: self.head_count / self.head_count_kv,
            head_dim: self.head_width(),
            dtype: self.kv_cache_dtype,
        }
    }
}
