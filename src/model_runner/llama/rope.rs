//! Rotary position embedding: each pair of neighbouring dimensions is turned by an angle that grows with the position.
//!
//! GGUF files of the llama architecture store queries and keys for *interleaved* pairs, `(x[2i], x[2i+1])`, and not for
//! the two halves that Hugging Face's code pairs. <https://arxiv.org/abs/2104.09864>

use super::LlamaConfig;

/// Frequencies of one model.
pub(super) struct Rope {
    /// Radians a position, for each pair.
    frequencies: Vec<f32>,
}

/// Sines and cosines of the rows of one batch: computed once, used by all heads of all layers.
pub(super) struct Angles {
    pairs: usize,
    /// `(cos, sin)`, row after row.
    turns: Vec<(f32, f32)>,
}

impl Rope {
    /// `base^(-2i / rope_dim)` for pair `i`, divided by the file's own factor if it has them.
    pub(super) fn new(config: &LlamaConfig, factors: Option<&[f32]>) -> Self {
        let frequency = |pair: usize| {
            let exponent = (2 * pair) as f32 / config.rope_dim as f32;
            let factor = factors.map_or(1.0, |factors| factors[pair]);
            1.0 / (config.rope_freq_base.powf(exponent) * factor)
        };
        Self { frequencies: (0..config.rope_dim / 2).map(frequency).collect() }
    }

    /// The angles of these positions.
    pub(super) fn angles(&self, positions: impl Iterator<Item = usize>) -> Angles {
        let turn = |position: usize| {
            self.frequencies.iter().map(move |frequency| {
                let (sin, cos) = (position as f32 * frequency).sin_cos();
                (cos, sin)
            })
        };
        Angles { pairs: self.frequencies.len(), turns: positions.flat_map(turn).collect() }
    }
}

impl Angles {
    /// Turns the leading dimensions of one head of `row`.
    #[inline(always)]
    pub(super) fn rotate(&self, row: usize, head: &mut [f32]) {
        let turns = &self.turns[row * self.pairs..][..self.pairs];
        for ([a, b], (cos, sin)) in head.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
            (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
        }
    }
}
