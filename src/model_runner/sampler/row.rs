//! Passes over one row of logits, as wide as the machine computes: a row is as long as the vocabulary, and a step has one
//! for each request.

use crate::io_struct::TokenId;

/// Logits that are looked at together.
const WIDTH: usize = 16;
/// Logits of which only the largest counts at first.
const NEIGHBOURS: usize = 64;
/// Logits whose weights are summed up before they are added to the others, a multiple of [`WIDTH`].
const BLOCK: usize = 512;

/// The largest logit; never a NaN.
#[must_use]
pub fn largest(logits: &[f32]) -> f32 {
    let (groups, rest) = logits.as_chunks::<WIDTH>();
    let mut largest = [f32::NEG_INFINITY; WIDTH];
    for group in groups {
        for (largest, logit) in largest.iter_mut().zip(group) {
            *largest = if *logit > *largest { *logit } else { *largest };
        }
    }
    largest.iter().chain(rest).fold(f32::NEG_INFINITY, |a, b| if *b > a { *b } else { a })
}

/// The first of the largest.
#[must_use]
pub fn argmax(logits: &[f32]) -> TokenId {
    let largest = largest(logits);
    let place = logits.iter().position(|logit| *logit == largest);
    TokenId(place.unwrap_or_default() as u32)
}

/// The largest logits of each group of neighbours: what says how low one must go to find so many.
#[derive(Debug)]
pub struct Peaks {
    peaks: Vec<f32>,
}

impl Peaks {
    /// Of `logits`.
    #[must_use]
    pub fn new(logits: &[f32]) -> Self {
        Self { peaks: logits.chunks(NEIGHBOURS).map(largest).collect() }
    }

    /// A logit that at least `count` reach, and few more unless they are neighbours; `None`: there are too few groups to
    /// tell.
    #[must_use]
    pub fn floor(&mut self, count: usize) -> Option<f32> {
        let place = count.checked_sub(1).filter(|place| *place < self.peaks.len())?;
        let (_, floor, _) = self.peaks.select_nth_unstable_by(place, |a, b| b.total_cmp(a));
        Some(*floor)
    }
}

/// The tokens whose logits are at least `floor`, in order of their ids.
#[must_use]
pub fn at_least(logits: &[f32], floor: f32) -> Vec<(TokenId, f32)> {
    let mut found = Vec::new();
    for (group, first) in logits.chunks(WIDTH).zip((0..).step_by(WIDTH)) {
        if group.iter().fold(false, |any, logit| any | (*logit >= floor)) {
            let tokens = (first..).map(TokenId).zip(group.iter().copied());
            found.extend(tokens.filter(|(_, logit)| *logit >= floor));
        }
    }
    found
}

/// The weights `exp((logit - largest) * sharpness)` of a row, summed up by blocks.
#[derive(Debug)]
pub struct Weights<'a> {
    logits: &'a [f32],
    largest: f32,
    sharpness: f32,
    blocks: Vec<f64>,
}

impl<'a> Weights<'a> {
    /// Of `logits`; `largest` is the largest of them.
    #[must_use]
    pub fn new(logits: &'a [f32], largest: f32, sharpness: f32) -> Self {
        let blocks = logits.chunks(BLOCK).map(|block| sum(block, largest, sharpness)).collect();
        Self { logits, largest, sharpness, blocks }
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
        argmax(self.logits) // rounding has carried it past the end
    }

    fn within(&self, block: usize, mut left: f64) -> TokenId {
        let logits = self.logits[block * BLOCK..].iter().take(BLOCK);
        let mut last = block * BLOCK;
        for (token, logit) in (block * BLOCK..).zip(logits) {
            let weight = f64::from(weight(*logit, self.largest, self.sharpness));
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

/// The order of additions is written down, so the sum is the same on every machine.
fn sum(logits: &[f32], largest: f32, sharpness: f32) -> f64 {
    let (groups, rest) = logits.as_chunks::<WIDTH>();
    let mut sums = [0.0; WIDTH];
    for group in groups {
        for (sum, logit) in sums.iter_mut().zip(group) {
            *sum += weight(*logit, largest, sharpness);
        }
    }
    let rest = rest.iter().map(|logit| weight(*logit, largest, sharpness));
    sums.into_iter().chain(rest).map(f64::from).sum()
}

/// `exp((logit - largest) * sharpness)`, without branches, so that the compiler makes lanes of it: a power of two by the
/// bits of a float, times a polynomial. Right to 3e-7 near the largest logit and to 1e-5 where weights vanish; 0 below
/// e^-87, and for what is not a number.
#[inline(always)]
fn weight(logit: f32, largest: f32, sharpness: f32) -> f32 {
    /// Added to a number below 2^22, this leaves its nearest integer in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    const LOWEST: f32 = -126.0;
    let power = (logit - largest) * sharpness * std::f32::consts::LOG2_E;
    let clamped = if power > LOWEST { power } else { LOWEST };
    let rounded = clamped + ROUND;
    let part = clamped - (rounded - ROUND);
    let mut series = 1.535_336_2e-4;
    for coefficient in [1.339_887_4e-3, 9.618_437e-3, 5.550_332_5e-2, 2.402_264_8e-1, 6.931_472e-1, 1.0] {
        series = series * part + coefficient;
    }
    let scale = f32::from_bits((rounded.to_bits() << 23).wrapping_add(0x3f80_0000));
    if power > LOWEST { series * scale } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_exponentials() {
        let mut worst: f64 = 0.0;
        for step in 0..870_000 {
            let x = -(step as f32) * 1e-4;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(weight(x, 0.0, 1.0)) - exact).abs() / exact);
        }
        assert!(worst < 1e-5, "{worst}");
        let near = (0..10_000).map(|step| -(step as f32) * 1e-4);
        let worst = near.map(|x| (f64::from(weight(x, 0.0, 1.0)) / f64::from(x).exp() - 1.0).abs()).fold(0.0, f64::max);
        assert!(worst < 3e-7, "{worst}");
        assert_eq!(weight(0.0, 0.0, 1.0), 1.0);
        for nothing in [-88.0, -1e30, f32::NEG_INFINITY, f32::NAN] {
            assert_eq!(weight(nothing, 0.0, 1.0), 0.0, "{nothing}");
        }
    }

    #[test]
    fn the_largest_wherever_it_is() {
        for len in [1, 15, 16, 17, 100] {
            for place in 0..len {
                let mut logits = vec![-1.0; len];
                (logits[0], logits[len - 1]) = (f32::NAN, f32::NEG_INFINITY);
                logits[place] = 2.0;
                assert_eq!((argmax(&logits), largest(&logits)), (TokenId(place as u32), 2.0));
                assert_eq!(at_least(&logits, 2.0), [(TokenId(place as u32), 2.0)]);
            }
        }
        assert_eq!(argmax(&[3.0; 40]), TokenId(0), "the first of many");
        assert_eq!(argmax(&[f32::NAN; 40]), TokenId(0));
    }

    #[test]
    fn a_floor_is_reached_by_as_many_as_asked_for() {
        let logits: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1000) as f32).collect();
        let mut peaks = Peaks::new(&logits);
        for count in 1..=16 {
            let found = at_least(&logits, peaks.floor(count).unwrap()).len();
            assert!((count..4 * count + 20).contains(&found), "{found} for {count}");
        }
        assert_eq!((peaks.floor(0), peaks.floor(17)), (None, None), "there are 16 groups");
        assert_eq!(Peaks::new(&[2.0; 200]).floor(3), Some(2.0));
        assert_eq!(Peaks::new(&[f32::NAN; 200]).floor(1), Some(f32::NEG_INFINITY));
    }

    #[test]
    fn a_share_of_the_way_is_a_token_by_its_weight() {
        let logits: Vec<f32> = (0..1300).map(|i| if i % 13 == 0 { 0.0 } else { f32::NEG_INFINITY }).collect();
        let weights = Weights::new(&logits, 0.0, 1.0);
        assert_eq!(weights.total(), 100.0);
        for (share, want) in [(0.0, 0), (0.005, 0), (0.015, 13), (0.505, 650), (0.995, 1287), (1.0, 0)] {
            assert_eq!(weights.at(share), TokenId(want), "{share}");
        }
    }
}
