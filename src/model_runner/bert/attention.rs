//! Attention in both directions: each token of a text sees all of it, and nothing of its neighbours in the batch.

use std::ops::Range;

use crate::model_runner::kernels::elementwise::exp;
use crate::model_runner::kernels::{Columns, LANES, Lanes, Team};

/// Queries that share the reading of keys and values.
const QUERIES: usize = 8;

/// One text's rows in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sequence {
    pub(super) first_row: usize,
    pub(super) rows: usize,
}

impl Sequence {
    pub(super) fn range(self) -> Range<usize> {
        self.first_row..self.first_row + self.rows
    }
}

/// How the columns are shared out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attention {
    pub(super) heads: usize,
    /// Columns of a head, a multiple of 16.
    pub(super) width: usize,
    /// Those of them that count; the others are 0.
    pub(super) head_dim: usize,
}

/// Attends for all texts of a block. `qkv` has the columns of all queries, keys and values, to which the bias is still to
/// be added; `out` gets the columns of all heads.
///
/// The keys' bias is left out: it adds the same to all scores of a query, and so nothing to their weights.
pub(super) fn attend<L: Lanes>(
    team: &Team,
    shape: Attention,
    sequences: &[Sequence],
    (qkv, bias): (&Columns, &[f32]),
    out: &mut Columns,
) {
    let (rows, width) = (qkv.rows(), shape.heads * shape.width);
    out.reshape(rows, width);
    let mut items = Vec::with_capacity(shape.heads * sequences.len());
    for (head, tiles) in out.tiles_mut().chunks_mut(rows * shape.width / LANES).enumerate() {
        let mut rest: Vec<&mut [[f32; LANES]]> = tiles.chunks_mut(rows).collect();
        for sequence in sequences {
            let mut parts = Vec::with_capacity(rest.len());
            for tile in &mut rest {
                let (part, after) = std::mem::take(tile).split_at_mut(sequence.rows);
                *tile = after;
                parts.push(part);
            }
            items.push((head, *sequence, parts));
        }
    }
    items.sort_by_key(|(_, sequence, _)| std::cmp::Reverse(sequence.rows));
    let scores: usize = sequences.iter().map(|sequence| sequence.rows * sequence.rows).sum();
    team.for_each(scores * 2 * width / LANES, items.into_iter(), |(head, sequence, mut out)| {
        L::vectorise(
            #[inline(always)]
            || Head { shape, head, sequence, qkv, bias }.attend::<L>(&mut out),
        );
    });
}

/// One head of one text.
struct Head<'a> {
    shape: Attention,
    head: usize,
    sequence: Sequence,
    qkv: &'a Columns,
    bias: &'a [f32],
}

/// What queries, keys and values are called by their place in `qkv`.
#[derive(Clone, Copy)]
enum Part {
    Queries,
    Keys,
    Values,
}

impl Head<'_> {
    #[inline(always)]
    fn attend<L: Lanes>(&self, out: &mut [&mut [[f32; LANES]]]) {
        let keys = self.keys();
        let groups = self.sequence.rows.div_ceil(LANES);
        let mut queries = vec![0.0; QUERIES * self.shape.width];
        let mut weights = vec![[0.0; LANES]; QUERIES * groups];
        for first in (0..self.sequence.rows).step_by(QUERIES) {
            let count = QUERIES.min(self.sequence.rows - first);
            self.queries(first, count, &mut queries);
            score::<L>(&queries, &keys, self.shape.width, &mut weights);
            let mut inverse = [0.0; QUERIES];
            for (weights, inverse) in weights.chunks_exact_mut(groups).zip(&mut inverse) {
                *inverse = 1.0 / soften::<L>(weights, self.sequence.rows);
            }
            for (tile, out) in out.iter_mut().enumerate() {
                let values = &self.tile(Part::Values, tile)[self.sequence.range()];
                let bias = L::load(self.bias(Part::Values, tile));
                let sums = blend::<L>(weights.as_flattened(), groups * LANES, values);
                let out = &mut out[first..first + count];
                for ((sum, inverse), out) in sums.into_iter().zip(inverse).zip(out) {
                    L::store(L::mul_add(sum, L::splat(inverse), bias), out);
                }
            }
        }
    }

    /// Sixteen columns of this head, of every row of the block.
    #[inline(always)]
    fn tile(&self, part: Part, tile: usize) -> &[[f32; LANES]] {
        self.qkv.tile(self.column(part) / LANES + tile)
    }

    #[inline(always)]
    fn bias(&self, part: Part, tile: usize) -> &[f32; LANES] {
        &self.bias.as_chunks::<LANES>().0[self.column(part) / LANES + tile]
    }

    #[inline(always)]
    fn column(&self, part: Part) -> usize {
        (part as usize * self.shape.heads + self.head) * self.shape.width
    }

    /// The keys, sixteen side by side: for each sixteen, dimension after dimension. Lanes beyond the text are 0.
    #[inline(always)]
    fn keys(&self) -> Vec<[f32; LANES]> {
        let width = self.shape.width;
        let mut keys = vec![[0.0; LANES]; self.sequence.rows.div_ceil(LANES) * width];
        for tile in 0..width / LANES {
            let rows = &self.tile(Part::Keys, tile)[self.sequence.range()];
            for (group, rows) in rows.chunks(LANES).enumerate() {
                let keys = &mut keys[group * width + tile * LANES..][..LANES];
                for (dimension, keys) in keys.iter_mut().enumerate() {
                    for (lane, row) in rows.iter().enumerate() {
                        keys[lane] = row[dimension];
                    }
                }
            }
        }
        keys
    }

    /// Up to eight queries with bias and scale, one after the other. Those beyond `count` are left as they are: nobody
    /// looks at what becomes of them.
    #[inline(always)]
    fn queries(&self, first: usize, count: usize, to: &mut [f32]) {
        let scale = 1.0 / (self.shape.head_dim as f32).sqrt();
        for (query, to) in to.chunks_exact_mut(self.shape.width).take(count).enumerate() {
            for (tile, to) in to.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                let values = &self.tile(Part::Queries, tile)[self.sequence.first_row + first + query];
                let bias = self.bias(Part::Queries, tile);
                for (to, (value, bias)) in to.iter_mut().zip(values.iter().zip(bias)) {
                    *to = (value + bias) * scale;
                }
            }
        }
    }
}

/// Scores of eight queries against all keys, query after query.
#[inline(always)]
fn score<L: Lanes>(queries: &[f32], keys: &[[f32; LANES]], width: usize, to: &mut [[f32; LANES]]) {
    let groups = to.len() / QUERIES;
    for (group, keys) in keys.chunks_exact(width).enumerate() {
        let mut sums = [L::splat(0.0); QUERIES];
        for (dimension, keys) in keys.iter().enumerate() {
            let keys = L::load(keys);
            for (query, sum) in sums.iter_mut().enumerate() {
                *sum = L::mul_add(L::splat(queries[query * width + dimension]), keys, *sum);
            }
        }
        for (query, sum) in sums.into_iter().enumerate() {
            L::store(sum, &mut to[query * groups + group]);
        }
    }
}

/// Scores to weights, those from `count` on to 0; returns the sum of the weights.
#[inline(always)]
fn soften<L: Lanes>(scores: &mut [[f32; LANES]], count: usize) -> f32 {
    let seen = |group: usize| count.saturating_sub(group * LANES).min(LANES);
    let hidden = L::splat(f32::NEG_INFINITY);
    let mut largest = hidden;
    for (group, scores) in scores.iter().enumerate() {
        largest = L::max(largest, L::keep_first(L::load(scores), seen(group), hidden));
    }
    let shift = L::splat(L::largest(largest));
    let mut sum = L::splat(0.0);
    for (group, scores) in scores.iter_mut().enumerate() {
        let weights = exp::<L>(L::sub(L::load(scores), shift));
        let weights = L::keep_first(weights, seen(group), L::splat(0.0));
        sum = L::add(sum, weights);
        L::store(weights, scores);
    }
    L::sum(sum)
}

/// Sixteen columns of the values, weighed for eight queries. `stride`: from one query's weights to the next one's.
#[inline(always)]
fn blend<L: Lanes>(weights: &[f32], stride: usize, values: &[[f32; LANES]]) -> [L::Floats; QUERIES] {
    let mut sums = [L::splat(0.0); QUERIES];
    for (key, values) in values.iter().enumerate() {
        let values = L::load(values);
        for (query, sum) in sums.iter_mut().enumerate() {
            *sum = L::mul_add(L::splat(weights[query * stride + key]), values, *sum);
        }
    }
    sums
}

#[cfg(test)]
mod tests;
