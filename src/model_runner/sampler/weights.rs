//! Exponentials of one row of logits, as wide as the machine computes: a row is as long as the vocabulary, and a step has
//! one for each request.

use std::f32::consts::{LN_2, LOG2_E};

use crate::io_struct::TokenId;
use crate::model_runner::LogitsRow;

/// Logits that are looked at together.
const WIDTH: usize = 16;
/// Logits whose weights are summed up before they are added to the others, a multiple of [`WIDTH`].
const BLOCK: usize = 512;

/// The weights `exp((logit - largest) * sharpness)` of a row, summed up by blocks.
#[derive(Debug)]
pub struct Weights<'a> {
    row: LogitsRow<'a>,
    curve: Curve,
    blocks: Vec<f64>,
}

/// `exp((logit - largest) * sharpness)` as a power of two.
#[derive(Debug, Clone, Copy)]
pub struct Curve {
    largest: f32,
    /// `sharpness / ln 2`.
    doublings: f32,
}

impl<'a> Weights<'a> {
    /// Of a row.
    #[must_use]
    pub fn new(row: LogitsRow<'a>, sharpness: f32) -> Self {
        let curve = Curve::new(row.largest(), sharpness);
        let blocks = row.values().chunks(BLOCK).map(|block| curve.sum(block)).collect();
        Self { row, curve, blocks }
    }

    /// Of all tokens.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.blocks.iter().sum()
    }

    /// The token at `share`, in `0..1`, of the way along all weights.
    #[must_use]
    pub fn at(&self, share: f64) -> TokenId {
        let mut left = share * self.total();
        for (block, weight) in self.blocks.iter().enumerate() {
            if left < *weight {
                return self.within(block, left);
            }
            left -= weight;
        }
        self.row.argmax() // rounding has carried it past the end
    }

    fn within(&self, block: usize, mut left: f64) -> TokenId {
        let logits = self.row.values()[block * BLOCK..].iter().take(BLOCK);
        let mut last = block * BLOCK;
        for (token, logit) in (block * BLOCK..).zip(logits) {
            let weight = f64::from(self.curve.weight(*logit));
            if weight > 0.0 {
                last = token;
            }
            left -= weight;
            if left < 0.0 {
                break;
            }
        }
        TokenId(last as u32)
    }
}

impl Curve {
    /// `largest` is the largest logit.
    #[must_use]
    pub fn new(largest: f32, sharpness: f32) -> Self {
        Self { largest, doublings: sharpness * LOG2_E }
    }

    /// The order of additions is written down, so the sum is the same on every machine.
    fn sum(self, logits: &[f32]) -> f64 {
        let (groups, rest) = logits.as_chunks::<WIDTH>();
        let mut sums = [0.0; WIDTH];
        for group in groups {
            for (sum, logit) in sums.iter_mut().zip(group) {
                *sum += self.weight(*logit);
            }
        }
        let rest = rest.iter().map(|logit| self.weight(*logit));
        sums.into_iter().chain(rest).map(f64::from).sum()
    }

    /// At a logit. Without branches, so that the compiler makes lanes of it: a power of two by the bits of a float, times the
    /// polynomial that is nearest to `2^x` in `-0.5..=0.5` among those that are 1 at 0. Right to 3e-7 near the largest logit
    /// and to 1e-5 where weights vanish; 0 below e^-87, and for what is not a number.
    #[inline(always)]
    #[must_use]
    pub fn weight(self, logit: f32) -> f32 {
        /// Added to a number below 2^22, this leaves its nearest integer in the lowest bits.
        const ROUND: f32 = 12_582_912.0;
        const LOWEST: f32 = -126.0;
        let power = (logit - self.largest) * self.doublings;
        let clamped = if power > LOWEST { power } else { LOWEST };
        let rounded = clamped + ROUND;
        let part = clamped - (rounded - ROUND);
        let mut series = 1.326_472_7e-3_f32;
        for coefficient in [9.671_513e-3, 5.550_733_6e-2, 2.402_224_2e-1, LN_2, 1.0] {
            series = series.mul_add(part, coefficient);
        }
        let scale = f32::from_bits((rounded.to_bits() << 23).wrapping_add(0x3f80_0000));
        if power > LOWEST { series * scale } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_exponentials() {
        let weight = |logit| Curve::new(0.0, 1.0).weight(logit);
        let mut worst: f64 = 0.0;
        for step in 0..870_000 {
            let x = -(step as f32) * 1e-4;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(weight(x)) - exact).abs() / exact);
        }
        assert!(worst < 1e-5, "{worst}");
        let near = (0..10_000).map(|step| -(step as f32) * 1e-4);
        let worst = near.map(|x| (f64::from(weight(x)) / f64::from(x).exp() - 1.0).abs()).fold(0.0, f64::max);
        assert!(worst < 3e-7, "{worst}");
        assert_eq!(weight(0.0), 1.0);
        for nothing in [-88.0, -1e30, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(weight(nothing), 0.0, "{nothing}");
        }
    }

    #[test]
    fn a_share_of_the_way_is_a_token_by_its_weight() {
        let logits: Vec<f32> = (0..1300).map(|i| if i % 13 == 0 { 0.0 } else { f32::NEG_INFINITY }).collect();
        let mut room = Vec::new();
        let weights = Weights::new(LogitsRow::new(&logits, &mut room), 1.0);
        assert_eq!(weights.total(), 100.0);
        for (share, want) in [(0.0, 0), (0.005, 0), (0.015, 13), (0.505, 650), (0.995, 1287), (1.0, 0)] {
            assert_eq!(weights.at(share), TokenId(want), "{share}");
        }
    }
}
