//! The two products of attention, over one block of pages: queries by keys, weights by values.

use std::array::from_fn;

use super::super::kernels::prefetch::prefetch;
use super::super::kernels::{LANES, Lanes};
use super::super::{PAGE_SIZE, PageId};
use super::{BLOCK_PAGES, KvLayer};

/// Queries that meet a key while it is in a register.
const SCORE_WIDTH: usize = 12;

/// Columns of values that are summed up in registers at once, in lanes.
const VALUE_LANES: usize = 4;

/// The queries of a group at one KV head, transposed in bundles: what meets one key lies side by side.
pub(super) struct Queries {
    /// Bundle after bundle; in each, for each dimension, one number a query.
    transposed: Vec<f32>,
    count: usize,
    head_dim: usize,
}

/// The widths into which `count` queries are cut: of the sizes for which there is a kernel, the largest first.
fn bundle(count: usize) -> usize {
    [SCORE_WIDTH, 8, 6, 4, 3, 2].into_iter().find(|width| *width <= count).unwrap_or(1)
}

impl Queries {
    /// `queries`: query after query.
    #[inline(always)]
    pub(super) fn new(queries: &[f32], head_dim: usize) -> Self {
        let count = queries.len() / head_dim;
        let mut transposed = Vec::with_capacity(queries.len());
        let mut first = 0;
        while first < count {
            let width = bundle(count - first);
            for dim in 0..head_dim {
                transposed.extend((first..first + width).map(|query| queries[query * head_dim + dim]));
            }
            first += width;
        }
        Self { transposed, count, head_dim }
    }

    /// Scores of all queries: query after query, one row of sixteen for each of [`BLOCK_PAGES`] pages, those of `ids`
    /// filled in. The values of these pages, which come next, are asked for meanwhile.
    #[inline(always)]
    pub(super) fn score<L: Lanes>(&self, kv: &KvLayer, head: usize, ids: &[PageId], scores: &mut [[f32; LANES]]) {
        for (page, id) in ids.iter().enumerate() {
            let keys = kv.keys(head, *id);
            prefetch(kv.values(head, *id));
            let mut first = 0;
            while first < self.count {
                let width = bundle(self.count - first);
                let queries = &self.transposed[first * self.head_dim..][..width * self.head_dim];
                let scores = &mut scores[first * BLOCK_PAGES + page..];
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
    for (sum, scores) in sums.iter().zip(scores.iter_mut().step_by(BLOCK_PAGES)) {
        L::store(*sum, scores);
    }
}

/// Adds to each query's row of `out` the values of the first `tokens` tokens of the block, by its weights. The keys of the
/// pages `next`, which come next, are asked for meanwhile.
#[inline(always)]
pub(super) fn add_values<L: Lanes>(
    kv: &KvLayer,
    head: usize,
    [ids, next]: [&[PageId]; 2],
    tokens: usize,
    weights: &[[f32; LANES]],
    out: &mut [f32],
) {
    let dim = kv.shape().head_dim;
    let (mut weights, mut out, mut next) = (weights, out, next);
    while !out.is_empty() {
        let width = bundle(out.len() / dim).min(6);
        let (some, rest) = out.split_at_mut(width * dim);
        let block = Block { kv, head, ids, next, tokens, weights };
        match width {
            6 => block.add_columns::<L, 6>(some),
            4 => block.add_columns::<L, 4>(some),
            3 => block.add_columns::<L, 3>(some),
            2 => block.add_columns::<L, 2>(some),
            _ => block.add_columns::<L, 1>(some),
        }
        weights = &weights[width * BLOCK_PAGES..];
        (out, next) = (rest, &[]);
    }
}

struct Block<'a> {
    kv: &'a KvLayer,
    head: usize,
    ids: &'a [PageId],
    /// Their keys are asked for while the first columns are summed up.
    next: &'a [PageId],
    tokens: usize,
    weights: &'a [[f32; LANES]],
}

impl Block<'_> {
    #[inline(always)]
    fn add_columns<L: Lanes, const C: usize>(&self, out: &mut [f32]) {
        let lanes = self.kv.shape().head_dim / LANES;
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
        let dim = self.kv.shape().head_dim;
        let column = first * LANES;
        let mut sums: [[L::Floats; W]; C] = from_fn(|query| {
            let out = out[query * dim + column..].as_chunks().0;
            from_fn(|lane| L::load(&out[lane]))
        });
        for (page, id) in self.ids.iter().enumerate() {
            let tokens = self.tokens.saturating_sub(page * PAGE_SIZE).min(PAGE_SIZE);
            if let (0, Some(next)) = (first, self.next.get(page)) {
                prefetch(self.kv.keys(self.head, *next));
            }
            let weights: [&[f32; LANES]; C] = from_fn(|query| &self.weights[query * BLOCK_PAGES + page]);
            let values = self.kv.values(self.head, *id);
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
