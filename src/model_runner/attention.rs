//! Attention over the paged KV pool: each token looks at everything before it in its own sequence.
//!
//! Work is shared by groups of up to [`GROUP_ROWS`] neighbouring tokens of one sequence and one KV head, so that a key
//! is read once for all queries that look at it. Whatever the group, a query meets the same keys in the same order and
//! in the same steps of 16 pages, counted from the start of the sequence: its result depends on nothing else.

pub mod kv_pool;
mod pages;

pub use kv_pool::{KvLayer, KvShape};

use super::kernels::elementwise::exp;
use super::kernels::{LANES, Lanes, Team};
use super::{PAGE_SIZE, PageId};

/// Tokens of one sequence that share the reading of the keys.
pub const GROUP_ROWS: usize = 8;

/// Pages whose scores are held at once: with the 24 queries of a usual group that is 24 KiB, which the first level cache
/// holds.
const BLOCK_PAGES: usize = 16;

/// Neighbouring tokens of one sequence in a batch.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// The first of them, as a row of the batch.
    pub first_row: usize,
    /// How many, up to [`GROUP_ROWS`].
    pub rows: usize,
    /// Position of the first in its sequence.
    pub start: usize,
    /// The pages of its sequence.
    pub pages: &'a [PageId],
}

/// Output of [`attend`]: for each KV head, row after row, the values of its query heads.
#[derive(Debug, Default)]
pub struct Attended {
    rows: usize,
    /// Floats of one row at one KV head.
    width: usize,
    values: Vec<f32>,
}

impl Attended {
    /// Thirty-two or sixteen neighbouring columns of one row, in the order of the query heads.
    #[inline(always)]
    #[must_use]
    pub fn columns(&self, row: usize, column: usize) -> &[f32; LANES] {
        let (head, column) = (column / self.width, column % self.width);
        let start = (head * self.rows + row) * self.width + column;
        self.values[start..].first_chunk().expect("heads are whole lanes wide")
    }
}

/// Attends for all groups of a batch of `rows` rows.
///
/// `query(row, head, to)` writes the rotated query of one head, `shape.head_dim` floats, already scaled by
/// `1 / sqrt(head_dim)`.
pub fn attend<L: Lanes>(
    team: &Team,
    kv: &KvLayer,
    groups: &[Group<'_>],
    query: impl Fn(usize, usize, &mut [f32]) + Sync,
    out: &mut Attended,
) {
    let shape = kv.shape();
    let rows = groups.iter().map(|group| group.rows).sum::<usize>();
    let width = shape.queries_per_head * shape.head_dim;
    (out.rows, out.width) = (rows, width);
    out.values.resize(rows * width * shape.kv_heads, 0.0);
    let mut items = Vec::with_capacity(groups.len() * shape.kv_heads);
    let mut rest = out.values.as_mut_slice();
    for head in 0..shape.kv_heads {
        for group in groups {
            let (part, after) = rest.split_at_mut(group.rows * width);
            rest = after;
            items.push((head, group, part));
        }
    }
    // The longest first: the short ones fill the gaps at the end.
    items.sort_by_key(|(_, group, _)| std::cmp::Reverse(group.rows * (group.start + group.rows)));
    let keys: usize = groups.iter().map(|group| group.rows * (group.start + group.rows)).sum();
    team.for_each(keys * width * shape.kv_heads / LANES, items.into_iter(), |(head, group, out)| {
        L::vectorise(
            #[inline(always)]
            || {
                let mut queries = vec![0.0; out.len()];
                for (index, to) in queries.chunks_exact_mut(shape.head_dim).enumerate() {
                    let (row, of_head) = (index / shape.queries_per_head, index % shape.queries_per_head);
                    query(group.first_row + row, head * shape.queries_per_head + of_head, to);
                }
                attend_group::<L>(kv, head, group, &queries, out);
            },
        );
    });
}

/// The running softmax of one query over the keys so far.
#[derive(Clone, Copy)]
struct Running {
    largest: f32,
    sum: f32,
}

/// All queries of a group at one KV head. `queries` and `out`: query after query, `head_dim` floats each.
#[inline(always)]
fn attend_group<L: Lanes>(kv: &KvLayer, head: usize, group: &Group<'_>, queries: &[f32], out: &mut [f32]) {
    let shape = kv.shape();
    let count = queries.len() / shape.head_dim;
    let end = group.start + group.rows;
    let queries = pages::Queries::new(queries, shape.head_dim);
    let mut running = vec![Running { largest: f32::NEG_INFINITY, sum: 0.0 }; count];
    let mut scores = vec![[0.0; LANES]; count * BLOCK_PAGES];
    out.fill(0.0);
    for (block, ids) in group.pages[..end.div_ceil(PAGE_SIZE)].chunks(BLOCK_PAGES).enumerate() {
        let start = block * BLOCK_PAGES * PAGE_SIZE;
        queries.score::<L>(kv, head, ids, &mut scores);
        let per_query = scores.chunks_exact_mut(BLOCK_PAGES).zip(out.chunks_exact_mut(shape.head_dim));
        for (index, (scores, out)) in per_query.enumerate() {
            let visible = group.start + index / shape.queries_per_head + 1;
            let scores = &mut scores[..ids.len()];
            running[index].take::<L>(scores, visible.saturating_sub(start), out);
        }
        pages::add_values::<L>(kv, head, ids, end - start, &scores, out);
    }
    for (running, out) in running.iter().zip(out.chunks_exact_mut(shape.head_dim)) {
        let inverse = 1.0 / running.sum;
        out.iter_mut().for_each(|value| *value *= inverse);
    }
}

impl Running {
    /// Turns the scores of one block into weights, those at or after `visible` into 0, and scales what has been summed
    /// up so far, weights and values, to the largest score seen.
    #[inline(always)]
    fn take<L: Lanes>(&mut self, scores: &mut [[f32; LANES]], visible: usize, values: &mut [f32]) {
        let hidden = L::splat(f32::NEG_INFINITY);
        let seen = |page: usize| visible.saturating_sub(page * PAGE_SIZE).min(LANES);
        let mut largest = hidden;
        for (page, scores) in scores.iter().enumerate() {
            largest = L::max(largest, L::keep_first(L::load(scores), seen(page), hidden));
        }
        let largest = L::largest(largest).max(self.largest);
        let shift = L::splat(largest);
        let mut sum = L::splat(0.0);
        for (page, scores) in scores.iter_mut().enumerate() {
            let weights = exp::<L>(L::sub(L::load(scores), shift));
            let weights = L::keep_first(weights, seen(page), L::splat(0.0));
            sum = L::add(sum, weights);
            L::store(weights, scores);
        }
        if largest > self.largest {
            // The first block has nothing to scale: e^-inf is not asked for.
            let factor = if self.sum > 0.0 { exp_one::<L>(self.largest - largest) } else { 0.0 };
            self.sum *= factor;
            values.iter_mut().for_each(|value| *value *= factor);
        }
        self.largest = largest;
        self.sum += L::sum(sum);
    }
}

#[inline(always)]
fn exp_one<L: Lanes>(x: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    L::store(exp::<L>(L::splat(x)), &mut lanes);
    lanes[0]
}

#[cfg(test)]
mod tests;
