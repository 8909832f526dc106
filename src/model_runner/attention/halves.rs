//! The two products of attention in half precision, over one segment: queries by keys, weights by values.

use std::array::from_fn;

use super::super::PAGE_SIZE;
use super::super::kernels::{LANES, Lanes};
use super::SEGMENT_PAGES;
use super::segments::Products;
use super::walk::{Walk, bundle};

/// Queries that meet a key while it is in a register.
const SCORE_WIDTH: usize = 12;

/// Queries whose values are summed up at once.
const VALUE_WIDTH: usize = 6;

/// Numbers of queries for which there is a kernel of the first product.
const SCORE_WIDTHS: [usize; 6] = [SCORE_WIDTH, 8, 6, 4, 3, 2];

/// The same of the second product.
const VALUE_WIDTHS: [usize; 4] = [VALUE_WIDTH, 4, 3, 2];

/// Columns of values that are summed up in registers at once, in lanes.
const VALUE_LANES: usize = 4;

/// The queries of a group at one KV head, transposed in bundles: what meets one key lies side by side.
#[derive(Debug, Default)]
pub(super) struct Queries {
    /// Bundle after bundle; in each, for each dimension, one number a query.
    transposed: Vec<f32>,
    count: usize,
    head_dim: usize,
}

impl Products for Queries {
    #[inline(always)]
    fn set<L: Lanes>(&mut self, queries: &[f32], head_dim: usize) {
        (self.count, self.head_dim) = (queries.len() / head_dim, head_dim);
        self.transposed.clear();
        let mut first = 0;
        while first < self.count {
            let width = bundle(self.count - first, &SCORE_WIDTHS);
            for dim in 0..head_dim {
                self.transposed.extend((first..first + width).map(|query| queries[query * head_dim + dim]));
            }
            first += width;
        }
    }

    #[inline(always)]
    fn score<L: Lanes>(&self, walk: Walk<'_>, scores: &mut [[f32; LANES]]) {
        for (page, id) in walk.ids.iter().enumerate() {
            let keys = bytemuck::cast_slice(walk.kv.keys(walk.head, *id));
            walk.ask_behind_keys(page);
            let mut first = 0;
            while first < self.count {
                let width = bundle(self.count - first, &SCORE_WIDTHS);
                let queries = &self.transposed[first * self.head_dim..][..width * self.head_dim];
                let scores = &mut scores[first * SEGMENT_PAGES + page..];
                match width {
                    SCORE_WIDTH => score_page::<L, SCORE_WIDTH>(keys, queries, scores),
                    8 => score_page::<L, 8>(keys, queries, scores),
                    6 => score_page::<L, 6>(keys, queries, scores),
                    4 => score_page::<L, 4>(keys, queries, scores),
                    3 => score_page::<L, 3>(keys, queries, scores),
                    2 => score_page::<L, 2>(keys, queries, scores),
                    _ => score_page::<L, 1>(keys, queries, scores),
                }
                first += width;
            }
        }
    }

    #[inline(always)]
    fn add_values<L: Lanes>(&self, walk: Walk<'_>, tokens: usize, weights: &mut [[f32; LANES]], out: &mut [f32]) {
        let (mut weights, mut out, mut first) = (&*weights, out, true);
        while !out.is_empty() {
            let width = bundle(out.len() / self.head_dim, &VALUE_WIDTHS);
            let (some, rest) = out.split_at_mut(width * self.head_dim);
            let block = Block { walk, first, tokens, weights };
            match width {
                VALUE_WIDTH => block.add_columns::<L, VALUE_WIDTH>(some),
                4 => block.add_columns::<L, 4>(some),
                3 => block.add_columns::<L, 3>(some),
                2 => block.add_columns::<L, 2>(some),
                _ => block.add_columns::<L, 1>(some),
            }
            weights = &weights[width * SEGMENT_PAGES..];
            (out, first) = (rest, false);
        }
    }
}

/// Dimensions are summed up in order, whatever the width.
#[inline(always)]
fn score_page<L: Lanes, const C: usize>(keys: &[[u16; PAGE_SIZE]], queries: &[f32], scores: &mut [[f32; LANES]]) {
    let mut sums = [L::splat(0.0); C];
    for (key, queries) in keys.iter().zip(queries.as_chunks::<C>().0) {
        let key = L::widen(key);
        for (sum, query) in sums.iter_mut().zip(queries) {
            *sum = L::mul_add(key, L::splat(*query), *sum);
        }
    }
    for (sum, scores) in sums.iter().zip(scores.iter_mut().step_by(SEGMENT_PAGES)) {
        L::store(*sum, scores);
    }
}

struct Block<'a> {
    walk: Walk<'a>,
    /// The first queries ask for what comes next.
    first: bool,
    tokens: usize,
    weights: &'a [[f32; LANES]],
}

impl Block<'_> {
    #[inline(always)]
    fn add_columns<L: Lanes, const C: usize>(&self, out: &mut [f32]) {
        let lanes = self.walk.kv.shape().head_dim / LANES;
        let mut first = 0;
        while first < lanes {
            if lanes - first >= VALUE_LANES {
                self.add_lanes::<L, C, VALUE_LANES>(first, out);
                first += VALUE_LANES;
            } else {
                self.add_lanes::<L, C, 1>(first, out);
                first += 1;
            }
        }
    }

    /// `W` times sixteen columns from lane `first` on, for `C` queries. Tokens are summed up in order.
    #[inline(always)]
    fn add_lanes<L: Lanes, const C: usize, const W: usize>(&self, first: usize, out: &mut [f32]) {
        let dim = self.walk.kv.shape().head_dim;
        let column = first * LANES;
        let mut sums: [[L::Floats; W]; C] = from_fn(|query| {
            let out = out[query * dim + column..].as_chunks().0;
            from_fn(|lane| L::load(&out[lane]))
        });
        let Walk { kv, head, ids, .. } = self.walk;
        for (page, id) in ids.iter().enumerate() {
            let tokens = self.tokens.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE);
            if self.first && first == 0 {
                self.walk.ask_behind_values(page);
            }
            let weights: [&[f32; LANES]; C] = from_fn(|query| &self.weights[query * SEGMENT_PAGES + page]);
            let values: &[u16] = bytemuck::cast_slice(kv.values(head, *id));
            for (token, values) in values.chunks_exact(dim).take(tokens).enumerate() {
                let values = values[column..].as_chunks().0;
                let values: [L::Floats; W] = from_fn(|lane| L::widen(&values[lane]));
                for (sums, weights) in sums.iter_mut().zip(&weights) {
                    let weight = L::splat(weights[token]);
                    for (sum, value) in sums.iter_mut().zip(&values) {
                        *sum = L::mul_add(*value, weight, *sum);
                    }
                }
            }
        }
        // Counted loops: the compiler must see that there are C times W sums to keep them in registers.
        for (query, sums) in sums.iter().enumerate() {
            let out = out[query * dim + column..].as_chunks_mut().0;
            for (lane, sum) in sums.iter().enumerate() {
                L::store(*sum, &mut out[lane]);
            }
        }
    }
}
