//! Attention over the paged KV pool: each token looks at everything before it in its own sequence.
//!
//! Work is shared by groups of up to [`GROUP_ROWS`] neighbouring tokens of one sequence, one KV head and one segment of
//! the sequence, so that a key is read once for all queries that look at it, and a long context is read by all threads.
//! Whatever the group, a query meets the same keys in the same order, in the same segments, counted from the start of the
//! sequence: its result depends on nothing else.

pub mod kv_pool;
mod walk;
mod halves;
mod int8;
mod segments;

use kv_pool::EXTENT_PAGES;
pub use kv_pool::{KvLayer, KvShape};

use super::kernels::{LANES, Lanes, Team};
use super::{PAGE_SIZE, PageId};
use segments::{Output, Running, Segment, at_desk, merge};

/// Tokens of one sequence that share the reading of the keys.
pub const GROUP_ROWS: usize = 8;

/// Pages of a sequence that one thread reads at a time: 1,024 tokens, first all keys, then all values, since the processor
/// sees long stretches coming. Shorter ones would cost more in putting the results together than they win.
const SEGMENT_PAGES: usize = EXTENT_PAGES;

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

impl<'a> Group<'a> {
    /// Pages that its tokens look at.
    fn used_pages(&self) -> &'a [PageId] {
        &self.pages[..(self.start + self.rows).div_ceil(PAGE_SIZE)]
    }

    /// Segments that are to be put together; 0 if there is only one.
    fn parts(&self) -> usize {
        match self.used_pages().len().div_ceil(SEGMENT_PAGES) {
            1 => 0,
            segments => segments,
        }
    }
}

/// Output of [`attend`]: for each KV head, row after row, the values of its query heads.
#[derive(Debug, Default)]
pub struct Attended {
    rows: usize,
    /// Floats of one row at one KV head.
    width: usize,
    values: Vec<f32>,
    /// For each KV head and group of several segments, segment after segment: the same, not yet put together.
    parts: Vec<f32>,
    /// For each query of these.
    running: Vec<Running>,
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
pub fn attend<'g, L: Lanes>(
    team: &Team,
    kv: &KvLayer,
    groups: impl Iterator<Item = Group<'g>> + Clone + Send,
    query: impl Fn(usize, usize, &mut [f32]) + Sync,
    out: &mut Attended,
) {
    let shape = kv.shape();
    let rows = groups.clone().map(|group| group.rows).sum::<usize>();
    let width = shape.queries_per_head * shape.head_dim;
    let parts = shape.kv_heads * groups.clone().map(|group| group.rows * group.parts()).sum::<usize>();
    (out.rows, out.width) = (rows, width);
    out.values.resize(rows * width * shape.kv_heads, 0.0);
    out.parts.resize(parts * width, 0.0);
    out.running.resize(parts * shape.queries_per_head, Running::NOTHING);
    let keys: usize = groups.clone().map(|group| group.rows * (group.start + group.rows)).sum();
    let cost = keys * width * shape.kv_heads / LANES;
    team.for_each(cost, segments(shape, groups.clone(), out), |segment| {
        at_desk(|desk| {
            L::vectorise(
                #[inline(always)]
                || segment.attend::<L>(kv, desk, &query),
            );
        });
    });
    team.for_each(parts * width / LANES, parts_of_groups(shape, groups, out), |(values, parts, running)| {
        L::vectorise(
            #[inline(always)]
            || merge::<L>(shape.head_dim, values, parts, running),
        );
    });
}

/// All groups at all heads.
fn at_all_heads<'a>(
    shape: KvShape,
    groups: impl Iterator<Item = Group<'a>> + Clone + Send,
) -> impl Iterator<Item = (usize, Group<'a>)> + Send {
    (0..shape.kv_heads).flat_map(move |head| groups.clone().map(move |group| (head, group)))
}

/// All segments of all groups at all heads.
fn segments<'o, 'g: 'o>(
    shape: KvShape,
    groups: impl Iterator<Item = Group<'g>> + Clone + Send,
    out: &'o mut Attended,
) -> impl Iterator<Item = Segment<'o>> + Send {
    let (mut values, mut parts, mut running) =
        (out.values.as_mut_slice(), out.parts.as_mut_slice(), out.running.as_mut_slice());
    let all = at_all_heads(shape, groups).flat_map(|(head, group)| {
        let segments = group.used_pages().chunks(SEGMENT_PAGES).enumerate();
        segments.map(move |(index, pages)| (head, group, index, pages))
    });
    all.map(move |(head, group, index, pages)| {
        let queries = group.rows * shape.queries_per_head;
        let len = queries * shape.head_dim;
        let whole = if index == 0 { values.split_off_mut(..len) } else { None };
        let out = match whole {
            Some(values) if group.parts() == 0 => Output::Whole(values),
            _ => Output::Part {
                values: parts.split_off_mut(..len).expect("as long as all parts"),
                running: running.split_off_mut(..queries).expect("as long as all parts"),
            },
        };
        Segment { head, group, start: index * SEGMENT_PAGES * PAGE_SIZE, pages, out }
    })
}

/// The groups with more than one segment at all heads: where their results go, and the parts of these.
fn parts_of_groups<'o, 'g: 'o>(
    shape: KvShape,
    groups: impl Iterator<Item = Group<'g>> + Clone + Send,
    out: &'o mut Attended,
) -> impl Iterator<Item = (&'o mut [f32], &'o [f32], &'o [Running])> + Send {
    let (mut values, mut parts, mut running) =
        (out.values.as_mut_slice(), out.parts.as_slice(), out.running.as_slice());
    at_all_heads(shape, groups).filter_map(move |(_, group)| {
        let queries = group.rows * shape.queries_per_head;
        let len = queries * shape.head_dim;
        let values = values.split_off_mut(..len).expect("as long as all groups");
        let parts = parts.split_off(..len * group.parts()).expect("as long as all parts");
        let running = running.split_off(..queries * group.parts()).expect("as long as all parts");
        (group.parts() > 0).then_some((values, parts, running))
    })
}

#[cfg(test)]
mod tests;
