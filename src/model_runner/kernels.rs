//! The arithmetic of a forward pass: int8 matrix products over repacked weights, and the loops between them.
//!
//! Every kernel is written once, over [`Lanes`]: sixteen numbers at a time. What these are, an AVX-512 register or a
//! plain array, is chosen when the crate is built ([`Native`]). [`Portable`] is always there and is the oracle of the
//! tests: all backends agree with it bit by bit, because every sum is taken in the same order with fused multiply-adds.

pub mod lanes;
pub mod activations;
pub mod packed;
pub mod pack;
pub mod float;
pub mod elementwise;
pub mod layer_norm;
pub mod gelu;
pub mod team;

pub use activations::{Activations, Columns};
pub use lanes::{Lanes, Native, Portable};
pub use packed::PackedLinear;
pub use team::Team;

/// Numbers in one step of every kernel.
pub const LANES: usize = 16;

/// Inner dimension of a quantised block, of weights as of activations.
pub const BLOCK: usize = 32;
