//! Rotary position embedding: each pair of dimensions is turned by an angle that grows with the position.
//!
//! <https://arxiv.org/abs/2104.09864>

use std::f32::consts::TAU;

/// How a model rotates, checked: no divisor is zero.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// Leading dimensions of a head that are rotated, even.
    pub dim: usize,
    /// Which of them belong together.
    pub pairs: Pairs,
    /// Base of the frequencies, at least 1.
    pub base: f32,
    /// What stretches them.
    pub scaling: RopeScaling,
}

/// Which dimensions are turned together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// `(x[2i], x[2i+1])`: GGUF files of the llama architecture, whose queries and keys were reordered for it.
    Neighbours,
    /// `(x[i], x[i + dim/2])`: Hugging Face's code, and GGUF files of the other architectures.
    Halves,
}

/// How the frequencies of a short training are stretched over a longer context.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All are divided by one number.
    Linear(f32),
    /// Each is divided by its own number, one for each pair.
    Factors(Vec<f32>),
    /// As in Llama 3.1.
    Llama3(Llama3),
    /// <https://arxiv.org/abs/2309.00071>
    Yarn(Yarn),
}

/// Slow frequencies are divided by `factor`, fast ones are kept, those between are mixed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Llama3 {
    /// Divisor of the slow ones.
    pub factor: f32,
    /// A frequency is slow if it turns less often than this in the original context.
    pub low_freq_factor: f32,
    /// And fast if it turns more often than this.
    pub high_freq_factor: f32,
    /// Tokens of the original context.
    pub original_context: f32,
}

/// Like [`Llama3`] with the border by dimension and not by frequency, and attention sharpened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// Divisor of the slow frequencies.
    pub factor: f32,
    /// Tokens of the original context.
    pub original_context: f32,
    /// Turns in the original context from which on a frequency is kept.
    pub beta_fast: f32,
    /// Turns up to which a frequency is divided.
    pub beta_slow: f32,
    /// Queries and keys are multiplied by it.
    pub attention_factor: f32,
}

/// Frequencies of one model.
pub(super) struct Rope {
    /// Radians a position, for each pair.
    frequencies: Vec<f32>,
    pairs: Pairs,
    /// Of all that is rotated.
    length: f32,
}

/// Sines and cosines of the rows of one batch: computed once, used by all heads of all layers.
pub(super) struct Angles {
    pairs: Pairs,
    /// How many in a head.
    count: usize,
    /// `(cos, sin)`, row after row.
    turns: Vec<(f32, f32)>,
}

impl Rope {
    /// `base^(-2i / dim)` for pair `i`, stretched.
    pub(super) fn new(config: &RopeConfig) -> Self {
        let plain = |pair: usize| 1.0 / config.base.powf((2 * pair) as f32 / config.dim as f32);
        let frequency = |pair| plain(pair) / config.scaling.divisor(config, pair, plain(pair));
        let length = if let RopeScaling::Yarn(yarn) = &config.scaling { yarn.attention_factor } else { 1.0 };
        Self { frequencies: (0..config.dim / 2).map(frequency).collect(), pairs: config.pairs, length }
    }

    /// Room for angles, to be written again for each batch.
    pub(super) fn no_angles(&self) -> Angles {
        Angles { pairs: self.pairs, count: self.frequencies.len(), turns: Vec::new() }
    }

    /// The angles of these positions.
    pub(super) fn write_angles(&self, positions: impl Iterator<Item = usize>, to: &mut Angles) {
        to.turns.clear();
        for position in positions {
            to.turns.extend(self.frequencies.iter().map(|frequency| {
                let (sin, cos) = (position as f32 * frequency).sin_cos();
                (cos * self.length, sin * self.length)
            }));
        }
    }
}

impl Angles {
    /// Turns the leading dimensions of one head of `row`.
    #[inline(always)]
    pub(super) fn rotate(&self, row: usize, head: &mut [f32]) {
        let turns = &self.turns[row * self.count..][..self.count];
        let turn = |a: &mut f32, b: &mut f32, (cos, sin): (f32, f32)| {
            (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
        };
        match self.pairs {
            Pairs::Neighbours => {
                for ([a, b], by) in head.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
                    turn(a, b, *by);
                }
            }
            Pairs::Halves => {
                let (first, second) = head.split_at_mut(self.count);
                for ((a, b), by) in first.iter_mut().zip(second).zip(turns) {
                    turn(a, b, *by);
                }
            }
        }
    }
}

impl RopeScaling {
    /// By what the frequency of a pair is divided.
    fn divisor(&self, config: &RopeConfig, pair: usize, frequency: f32) -> f32 {
        match self {
            Self::None => 1.0,
            Self::Linear(factor) => *factor,
            Self::Factors(factors) => factors[pair],
            Self::Llama3(llama3) => llama3.divisor(frequency),
            Self::Yarn(yarn) => yarn.divisor(config, pair),
        }
    }
}

impl Llama3 {
    /// Whether numbers come out.
    ///
    /// # Errors
    /// What is wrong, in words that follow the name of the key.
    pub fn check(&self) -> Result<(), String> {
        let Self { low_freq_factor: low, high_freq_factor: high, original_context, .. } = *self;
        if low > 0.0 && high > low && high.is_finite() && original_context > 0.0 {
            return Ok(());
        }
        Err(format!("has the factors {low} and {high} for {original_context} tokens; all are above 0, and they rise"))
    }

    fn divisor(&self, frequency: f32) -> f32 {
        let turns = self.original_context * frequency / TAU;
        let kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor);
        mixed(self.factor, kept)
    }
}

impl Yarn {
    /// [`beta_fast`](Self::beta_fast) where a file does not name one.
    pub const BETA_FAST: f32 = 32.0;
    /// [`beta_slow`](Self::beta_slow) where a file does not name one.
    pub const BETA_SLOW: f32 = 1.0;

    /// [`attention_factor`](Self::attention_factor) where a file does not name one.
    #[must_use]
    pub fn usual_attention_factor(factor: f32) -> f32 {
        0.1 * factor.max(1.0).ln() + 1.0
    }

    /// Whether numbers come out.
    ///
    /// # Errors
    /// What is wrong, in words that follow the name of the key.
    pub fn check(&self, base: f32) -> Result<(), String> {
        let positive = [self.original_context, self.beta_fast, self.beta_slow, self.attention_factor];
        if base <= 1.0 || positive.iter().any(|value| !value.is_finite() || *value <= 0.0) {
            return Err(format!("is yarn with numbers that are not positive, or a base of {base}"));
        }
        Ok(())
    }

    fn divisor(&self, config: &RopeConfig, pair: usize) -> f32 {
        let dim = config.dim as f32;
        // The pair that makes so many turns in the original context.
        let border = |turns: f32| dim * (self.original_context / (turns * TAU)).ln() / (2.0 * config.base.ln());
        let low = border(self.beta_fast).floor().max(0.0);
        let high = border(self.beta_slow).ceil().min(dim - 1.0);
        mixed(self.factor, 1.0 - (pair as f32 - low) / (high - low).max(0.001))
    }
}

/// The divisor of a frequency of which the share `kept` stays as it is and the rest is divided by `factor`.
fn mixed(factor: f32, kept: f32) -> f32 {
    let kept = kept.clamp(0.0, 1.0);
    1.0 / ((1.0 - kept) / factor + kept)
}
