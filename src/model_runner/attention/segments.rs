//! Softmax in parts: over one segment of a sequence, and over all of them together.

use std::cell::RefCell;

use super::super::PAGE_SIZE;
use super::super::PageId;
use super::super::kernels::elementwise::exp;
use super::super::kernels::{LANES, Lanes};
use super::halves;
use super::int8;
use super::walk::Walk;
use super::{Group, KvLayer, KvShape, SEGMENT_PAGES};
use crate::io_struct::KvCacheDtype;

/// The queries of a group at one KV head before one segment of their sequence.
pub(super) struct Segment<'a> {
    pub(super) head: usize,
    pub(super) group: Group<'a>,
    /// Position of its first token.
    pub(super) start: usize,
    pub(super) pages: &'a [PageId],
    pub(super) out: Output<'a>,
}

/// Where the result of a segment goes: query after query, `head_dim` floats each.
pub(super) enum Output<'a> {
    /// There is no other segment: this is the result of the group.
    Whole(&'a mut [f32]),
    /// To be put together with others: the sum of the values by their weights, and of each query how large these are.
    Part { values: &'a mut [f32], running: &'a mut [Running] },
}

/// What a thread needs for the segment that it is at; kept, so that no segment takes memory from the system.
#[derive(Debug, Default)]
pub(super) struct Desk {
    queries: Vec<f32>,
    scores: Vec<[f32; LANES]>,
    running: Vec<Running>,
    halves: halves::Queries,
    bytes: int8::Queries,
}

/// Works at this thread's desk.
pub(super) fn at_desk(work: impl FnOnce(&mut Desk)) {
    thread_local!(static DESK: RefCell<Desk> = RefCell::default());
    DESK.with_borrow_mut(work);
}

/// The softmax of one query over the keys of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    largest: f32,
    /// Of the weights, where that of the largest score is 1.
    sum: f32,
}

/// The queries of a group at one KV head, in the form in which they meet keys and values of some precision.
pub(super) trait Products {
    /// Takes the place of the queries before. `queries`: query after query.
    fn set<L: Lanes>(&mut self, queries: &[f32], head_dim: usize);

    /// Scores of all queries: query after query, one row of sixteen for each of [`SEGMENT_PAGES`] pages, those of `walk`
    /// filled in.
    fn score<L: Lanes>(&self, walk: Walk<'_>, scores: &mut [[f32; LANES]]);

    /// Adds to each query's row of `out` the values of the first `tokens` tokens of `walk`, by its weights, which mean
    /// nothing afterwards.
    fn add_values<L: Lanes>(&self, walk: Walk<'_>, tokens: usize, weights: &mut [[f32; LANES]], out: &mut [f32]);
}

impl Segment<'_> {
    /// `query(row, head, to)` writes the query of one head.
    #[inline(always)]
    pub(super) fn attend<L: Lanes>(self, kv: &KvLayer, desk: &mut Desk, query: impl Fn(usize, usize, &mut [f32])) {
        Walk { kv, head: self.head, ids: self.pages }.begin();
        let KvShape { queries_per_head, head_dim, dtype, .. } = kv.shape();
        let Desk { queries, scores, running, halves, bytes } = desk;
        let count = self.group.rows * queries_per_head;
        queries.resize(count * head_dim, 0.0);
        for (index, to) in queries.chunks_exact_mut(head_dim).enumerate() {
            let (row, of_head) = (index / queries_per_head, index % queries_per_head);
            query(self.group.first_row + row, self.head * queries_per_head + of_head, to);
        }
        scores.resize(count * SEGMENT_PAGES, [0.0; LANES]);
        match dtype {
            KvCacheDtype::F16 => {
                halves.set::<L>(queries, head_dim);
                self.attend_with::<L, _>(kv, halves, scores, running);
            }
            KvCacheDtype::Int8 => {
                bytes.set::<L>(queries, head_dim);
                self.attend_with::<L, _>(kv, bytes, scores, running);
            }
        }
    }

    #[inline(always)]
    fn attend_with<L: Lanes, P: Products>(
        self,
        kv: &KvLayer,
        queries: &P,
        scores: &mut [[f32; LANES]],
        running: &mut Vec<Running>,
    ) {
        let KvShape { queries_per_head, head_dim, .. } = kv.shape();
        let Self { head, group, start, pages, mut out } = self;
        let walk = Walk { kv, head, ids: pages };
        queries.score::<L>(walk, scores);
        running.clear();
        for (index, scores) in scores.chunks_exact_mut(SEGMENT_PAGES).enumerate() {
            let visible = group.start + index / queries_per_head + 1;
            running.push(Running::of::<L>(&mut scores[..pages.len()], visible.saturating_sub(start)));
        }
        let (Output::Whole(values) | Output::Part { values, .. }) = &mut out;
        values.fill(0.0);
        queries.add_values::<L>(walk, group.start + group.rows - start, scores, values);
        out.finish(head_dim, running);
    }
}

impl Output<'_> {
    #[inline(always)]
    fn finish(self, head_dim: usize, running: &[Running]) {
        match self {
            Self::Whole(values) => {
                for (values, running) in values.chunks_exact_mut(head_dim).zip(running) {
                    let inverse = 1.0 / running.sum;
                    // Zero is added as in `merge`, of whose result this is the short form: it has no negative zeros.
                    values.iter_mut().for_each(|value| *value = (0.0 + *value) * inverse);
                }
            }
            Self::Part { running: to, .. } => to.copy_from_slice(running),
        }
    }
}

impl Running {
    /// Before the first key.
    pub(super) const NOTHING: Self = Self { largest: f32::NEG_INFINITY, sum: 0.0 };

    /// Turns the scores of a segment into weights, those at or after `visible` into 0.
    #[inline(always)]
    fn of<L: Lanes>(scores: &mut [[f32; LANES]], visible: usize) -> Self {
        let hidden = L::splat(f32::NEG_INFINITY);
        let seen = |page: usize| visible.saturating_sub(page * PAGE_SIZE).min(LANES);
        let mut largest = hidden;
        for (page, scores) in scores.iter().enumerate() {
            largest = L::max(largest, L::keep_first(L::load(scores), seen(page), hidden));
        }
        let largest = L::largest(largest);
        let shift = L::splat(largest);
        let mut sum = L::splat(0.0);
        for (page, scores) in scores.iter_mut().enumerate() {
            let weights = exp::<L>(L::sub(L::load(scores), shift));
            let weights = L::keep_first(weights, seen(page), L::splat(0.0));
            sum = L::add(sum, weights);
            L::store(weights, scores);
        }
        Self { largest, sum: L::sum(sum) }
    }
}

/// Puts the segments of a group together, in order, into `values`: query after query. `parts` and `running` hold the same
/// for segment after segment. A segment of which a query sees nothing changes nothing.
#[inline(always)]
pub(super) fn merge<L: Lanes>(head_dim: usize, values: &mut [f32], parts: &[f32], running: &[Running]) {
    let queries = values.len() / head_dim;
    for (query, values) in values.chunks_exact_mut(head_dim).enumerate() {
        let of_query = running.iter().skip(query).step_by(queries);
        let largest = of_query.clone().fold(f32::NEG_INFINITY, |largest, running| largest.max(running.largest));
        let mut sum = 0.0;
        values.fill(0.0);
        for (segment, running) in of_query.enumerate().filter(|(_, running)| running.sum > 0.0) {
            let factor = exp_one::<L>(running.largest - largest);
            sum += factor * running.sum;
            let part = &parts[(segment * queries + query) * head_dim..][..head_dim];
            values.iter_mut().zip(part).for_each(|(value, part)| *value += factor * part);
        }
        let inverse = 1.0 / sum;
        values.iter_mut().for_each(|value| *value *= inverse);
    }
}

#[inline(always)]
fn exp_one<L: Lanes>(x: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    L::store(exp::<L>(L::splat(x)), &mut lanes);
    lanes[0]
}
