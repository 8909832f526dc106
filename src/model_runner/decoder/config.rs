//! The numbers that make a decoder.

use super::super::attention::KvShape;
use super::rope::RopeConfig;
use crate::io_struct::KvCacheDtype;

/// Sizes and constants of a model, checked: nothing is zero, and what must divide does.
#[derive(Debug, Clone, PartialEq)]
pub struct DecoderConfig {
    /// Layers.
    pub block_count: usize,
    /// Width of the residual stream, a multiple of 32.
    pub embedding_length: usize,
    /// Width inside of a feed-forward layer, a multiple of 32.
    pub feed_forward_length: usize,
    /// Query heads.
    pub head_count: usize,
    /// Key and value heads; divides `head_count`.
    pub head_count_kv: usize,
    /// Width of a head, a multiple of 16.
    pub head_dim: usize,
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
    /// Width of all queries together.
    #[must_use]
    pub fn query_width(&self) -> usize {
        self.head_count * self.head_dim
    }

    /// Width of all keys together, as of all values.
    #[must_use]
    pub fn kv_width(&self) -> usize {
        self.head_count_kv * self.head_dim
    }

    /// What a layer keeps for each token.
    #[must_use]
    pub fn kv_shape(&self) -> KvShape {
        KvShape {
            kv_heads: self.head_count_kv,
            queries_per_head: self.head_count / self.head_count_kv,
            head_dim: self.head_dim,
            dtype: self.kv_cache_dtype,
        }
    }
}
