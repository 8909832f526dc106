//! The two products of attention over keys and values of 8 bits: both in whole numbers.
//!
//! A query becomes bytes, so that its scores are dot products of bytes. A weight, times the step of its value, becomes a
//! number of 14 bits, two bytes of 7, whose step is that of its query in 16 pages: small weights beside a large one
//! are not lost.

use super::super::PAGE_SIZE;
use super::super::kernels::{LANES, Lanes};
use super::SEGMENT_PAGES;
use super::segments::Products;
use super::walk::{Walk, bundle};

/// Numbers of queries for which there is a kernel of the first product.
const SCORE_WIDTHS: [usize; 6] = [12, 8, 6, 4, 3, 2];

/// The same of the second product, which has two sums for each.
const VALUE_WIDTHS: [usize; 2] = [3, 2];

/// Columns of values that are summed up in registers at once, in lanes.
const VALUE_LANES: usize = 4;

/// What is added to keys and values to make them unsigned.
const OFFSET: f32 = 128.0;

/// Worth of the high byte of a weight.
const HIGH: f32 = 128.0;

/// The largest weight: the high byte is at most 127, the low one at most 64 in either direction.
const LARGEST_WEIGHT: f32 = 127.0 * HIGH;

/// Pages of which the weights of a query have one step.
const STEP_PAGES: usize = 16;

/// Groups of four tokens in a page.
const WORDS: usize = PAGE_SIZE / 4;

/// The queries of a group at one KV head as bytes, transposed in bundles.
#[derive(Debug, Default)]
pub(super) struct Queries {
    /// Query after query, a word for each four dimensions.
    rows: Vec<i32>,
    /// Bundle after bundle; in each, for each four dimensions, one word a query.
    words: Vec<i32>,
    steps: Vec<Step>,
    head_dim: usize,
}

/// What makes a score out of a dot product of bytes.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// Worth of one step of the query.
    worth: f32,
    /// What the offset of the keys has added.
    offset: f32,
}

impl Products for Queries {
    #[inline(always)]
    fn set<L: Lanes>(&mut self, queries: &[f32], head_dim: usize) {
        let Self { rows, words, steps, .. } = self;
        rows.clear();
        words.clear();
        steps.clear();
        steps.extend(queries.chunks_exact(head_dim).map(|query| quantise::<L>(query, rows)));
        let mut first = 0;
        while first < steps.len() {
            let width = bundle(steps.len() - first, &SCORE_WIDTHS);
            for word in 0..head_dim / 4 {
                words.extend((first..first + width).map(|query| rows[query * head_dim / 4 + word]));
            }
            first += width;
        }
        self.head_dim = head_dim;
    }

    #[inline(always)]
    fn score<L: Lanes>(&self, walk: Walk<'_>, scores: &mut [[f32; LANES]]) {
        for (page, id) in walk.ids.iter().enumerate() {
            let keys = walk.kv.keys(walk.head, *id).as_chunks().0;
            let key_steps = L::load(walk.kv.key_steps(walk.head, *id));
            walk.ask_behind_keys(page);
            let mut first = 0;
            while first < self.steps.len() {
                let width = bundle(self.steps.len() - first, &SCORE_WIDTHS);
                let words = &self.words[first * self.head_dim / 4..][..width * self.head_dim / 4];
                let (steps, scores) = (&self.steps[first..], &mut scores[first * SEGMENT_PAGES + page..]);
                match width {
                    12 => score_page::<L, 12>(keys, key_steps, words, steps, scores),
                    8 => score_page::<L, 8>(keys, key_steps, words, steps, scores),
                    6 => score_page::<L, 6>(keys, key_steps, words, steps, scores),
                    4 => score_page::<L, 4>(keys, key_steps, words, steps, scores),
                    3 => score_page::<L, 3>(keys, key_steps, words, steps, scores),
                    2 => score_page::<L, 2>(keys, key_steps, words, steps, scores),
                    _ => score_page::<L, 1>(keys, key_steps, words, steps, scores),
                }
                first += width;
            }
        }
    }

    #[inline(always)]
    fn add_values<L: Lanes>(&self, walk: Walk<'_>, _: usize, weights: &mut [[f32; LANES]], out: &mut [f32]) {
        let mut words = [Weights::NONE; VALUE_WIDTHS[0]];
        for (block, ids) in walk.ids.chunks(STEP_PAGES).enumerate() {
            let start = block * STEP_PAGES;
            (start..start + ids.len()).for_each(|page| walk.ask_behind_values(page));
            let block = Block { walk: Walk { ids, ..walk }, head_dim: self.head_dim };
            let mut first = 0;
            while first < self.steps.len() {
                let width = bundle(self.steps.len() - first, &VALUE_WIDTHS);
                for (query, words) in words.iter_mut().take(width).enumerate() {
                    let weights = &mut weights[(first + query) * SEGMENT_PAGES + start..][..ids.len()];
                    words.quantise::<L>(block.walk, weights);
                }
                let out = &mut out[first * self.head_dim..];
                match width {
                    3 => block.add_columns::<L, 3>(&words, out),
                    2 => block.add_columns::<L, 2>(&words, out),
                    _ => block.add_columns::<L, 1>(&words, out),
                }
                first += width;
            }
        }
    }
}

/// Appends the words of one query.
#[inline(always)]
fn quantise<L: Lanes>(query: &[f32], words: &mut Vec<i32>) -> Step {
    let lanes = query.as_chunks::<LANES>().0;
    let largest = lanes.iter().fold(L::splat(0.0), |largest, lanes| L::max(largest, L::abs(L::load(lanes))));
    let largest = L::largest(largest);
    let inverse = L::splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
    let mut sum = 0;
    for lanes in lanes {
        let bytes = L::round_to_i8(L::mul(L::load(lanes), inverse));
        sum += bytes.iter().map(|byte| i32::from(*byte)).sum::<i32>();
        words.extend(bytes.as_chunks::<4>().0.iter().map(word));
    }
    Step { worth: largest / 127.0, offset: OFFSET * sum as f32 }
}

#[inline(always)]
fn word(bytes: &[i8; 4]) -> i32 {
    i32::from_le_bytes(bytes.map(i8::cast_unsigned))
}

#[inline(always)]
fn score_page<L: Lanes, const C: usize>(
    keys: &[[u8; 4 * LANES]],
    key_steps: L::Floats,
    words: &[i32],
    steps: &[Step],
    scores: &mut [[f32; LANES]],
) {
    let mut sums = [L::no_ints(); C];
    for (bytes, words) in keys.iter().zip(words.as_chunks::<C>().0) {
        let bytes = L::load_bytes(bytes);
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = L::dot_bytes(*sum, bytes, *word);
        }
    }
    for ((sum, step), scores) in sums.iter().zip(steps).zip(scores.iter_mut().step_by(SEGMENT_PAGES)) {
        let dot = L::sub(L::to_floats(*sum), L::splat(step.offset));
        L::store(L::mul(dot, L::mul(key_steps, L::splat(step.worth))), scores);
    }
}

/// The weights of one query in some pages, times the steps of the values, as words of four tokens.
#[derive(Clone, Copy)]
struct Weights {
    high: [[i32; WORDS]; STEP_PAGES],
    low: [[i32; WORDS]; STEP_PAGES],
    /// Worth of one step.
    worth: f32,
    /// What the offset of the values adds.
    offset: f32,
}

impl Weights {
    const NONE: Self = Self { high: [[0; WORDS]; STEP_PAGES], low: [[0; WORDS]; STEP_PAGES], worth: 0.0, offset: 0.0 };

    #[inline(always)]
    fn quantise<L: Lanes>(&mut self, walk: Walk<'_>, weights: &mut [[f32; LANES]]) {
        let mut largest = L::splat(0.0);
        for (weights, id) in weights.iter_mut().zip(walk.ids) {
            let products = L::mul(L::load(weights), L::load(walk.kv.value_steps(walk.head, *id)));
            largest = L::max(largest, products);
            L::store(products, weights);
        }
        let largest = L::largest(largest);
        let inverse = L::splat(if largest > 0.0 { LARGEST_WEIGHT / largest } else { 0.0 });
        let mut sum = L::splat(0.0);
        for (page, weights) in weights.iter().enumerate() {
            let weights = L::round(L::mul(L::load(weights), inverse));
            let high = L::round(L::mul(weights, L::splat(1.0 / HIGH)));
            let low = L::sub(weights, L::mul(high, L::splat(HIGH)));
            sum = L::add(sum, weights);
            self.high[page] = words::<L>(high);
            self.low[page] = words::<L>(low);
        }
        self.worth = largest / LARGEST_WEIGHT;
        self.offset = OFFSET * L::sum(sum);
    }
}

#[inline(always)]
fn words<L: Lanes>(values: L::Floats) -> [i32; WORDS] {
    let bytes = L::round_to_i8(values);
    let bytes = bytes.as_chunks().0;
    std::array::from_fn(|index| word(&bytes[index]))
}

struct Block<'a> {
    walk: Walk<'a>,
    head_dim: usize,
}

impl Block<'_> {
    #[inline(always)]
    fn add_columns<L: Lanes, const C: usize>(&self, weights: &[Weights], out: &mut [f32]) {
        let lanes = self.head_dim / LANES;
        let mut first = 0;
        while first < lanes {
            if lanes - first >= VALUE_LANES {
                self.add_lanes::<L, C, VALUE_LANES>(first, weights, out);
                first += VALUE_LANES;
            } else {
                self.add_lanes::<L, C, 1>(first, weights, out);
                first += 1;
            }
        }
    }

    /// `W` times sixteen columns from lane `first` on, for `C` queries.
    #[inline(always)]
    fn add_lanes<L: Lanes, const C: usize, const W: usize>(&self, first: usize, weights: &[Weights], out: &mut [f32]) {
        let lanes = self.head_dim / LANES;
        let Walk { kv, head, ids, .. } = self.walk;
        let mut sums = [[[L::no_ints(); 2]; W]; C];
        for (page, id) in ids.iter().enumerate() {
            let values: &[[u8; 4 * LANES]] = kv.values(head, *id).as_chunks().0;
            for (group, values) in values.chunks_exact(lanes).enumerate() {
                for lane in 0..W {
                    let bytes = L::load_bytes(&values[first + lane]);
                    for (sums, weights) in sums.iter_mut().zip(weights) {
                        let [high, low] = sums[lane];
                        let high = L::dot_bytes(high, bytes, weights.high[page][group]);
                        sums[lane] = [high, L::dot_bytes(low, bytes, weights.low[page][group])];
                    }
                }
            }
        }
        for (query, sums) in sums.iter().enumerate() {
            let weights = &weights[query];
            let out = out[query * self.head_dim + first * LANES..].as_chunks_mut().0;
            for (lane, [high, low]) in sums.iter().enumerate() {
                let sum = L::mul_add(L::to_floats(*high), L::splat(HIGH), L::to_floats(*low));
                let sum = L::sub(sum, L::splat(weights.offset));
                L::store(L::mul_add(sum, L::splat(weights.worth), L::load(&out[lane])), &mut out[lane]);
            }
        }
    }
}
