//! The arithmetic of a forward pass: matrix products over repacked weights, and the loops between them.
//!
//! Every kernel is written once, over [`Lanes`]: sixteen numbers at a time. What these are, an AVX-512 register or a
//! plain array, is chosen when a model is loaded ([`backend`]). [`Portable`] is always there and is the oracle of the
//! tests: all backends agree with it bit by bit, because every sum is taken in the same order with fused multiply-adds.

pub mod backend;
pub mod lanes;
pub mod activations;
mod tiles;
mod sixteens;
pub mod tile_memory;
mod panels;
pub mod packed;
pub mod pack;
pub mod elementwise;
pub mod layer_norm;
pub mod gelu;
pub mod peaks;
pub mod prefetch;
pub mod scratch;
pub mod team;

pub use activations::{Activations, Columns, Form};
pub use lanes::{Lanes, Portable};
pub use packed::PackedLinear;
pub use team::Team;

/// Numbers in one step of every kernel.
pub const LANES: usize = 16;

/// Inner dimension of a block, of weights as of activations.
pub const BLOCK: usize = 32;
