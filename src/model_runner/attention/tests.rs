//! Attention against a plain reference, and the same bits in any batch.

use std::ops::Range;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::kernels::Portable;
use super::super::kernels::lanes::with_every_backend;
use super::kv_pool::KeyValue;
use super::*;

/// One sequence in scattered pages of a pool full of infinities, and the same numbers in plain vectors.
struct Sequence {
    kv: KvLayer,
    pages: Vec<PageId>,
    /// For each position and head.
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    queries: Vec<Vec<f32>>,
}

/// Rounded to half precision, as the pool does.
fn vectors(random: &mut StdRng, count: usize, dim: usize) -> Vec<Vec<f32>> {
    let value = |random: &mut StdRng| half::f16::from_f32(random.random_range(-1.5..1.5)).to_f32();
    (0..count).map(|_| (0..dim).map(|_| value(random)).collect()).collect()
}

impl Sequence {
    fn new(shape: KvShape, len: usize) -> Self {
        let mut random = StdRng::seed_from_u64(9);
        let pages = len.div_ceil(PAGE_SIZE);
        let keys = vectors(&mut random, len * shape.kv_heads, shape.head_dim);
        let values = vectors(&mut random, len * shape.kv_heads, shape.head_dim);
        let queries = vectors(&mut random, len * shape.kv_heads * shape.queries_per_head, shape.head_dim);
        let pages: Vec<_> = (0..pages).map(|page| PageId(((page * 7 + 3) % (pages * 7)) as u32)).collect();
        let mut kv = KvLayer::new(shape, pages.len() * 7).expect("little memory");
        let garbage = vec![f32::NAN; shape.head_dim];
        let mut writers = kv.pages_mut();
        for id in (0..pages.len() as u32 * 7).map(PageId) {
            let mut page = writers.take(id);
            let first = pages.iter().position(|page| *page == id).map(|index| index * PAGE_SIZE);
            for (slot, head) in (0..PAGE_SIZE).flat_map(|slot| (0..shape.kv_heads).map(move |head| (slot, head))) {
                let position = first.map(|first| first + slot).filter(|position| *position < len);
                let at = position.map(|position| position * shape.kv_heads + head);
                let (key, value) = at.map_or((&garbage, &garbage), |at| (&keys[at], &values[at]));
                page.write::<Portable>(head, slot, KeyValue { key, value });
            }
        }
        Self { kv, pages, keys, values, queries }
    }

    /// Attends for these positions, in groups of at most `rows`.
    fn attend<L: Lanes>(&self, Range { start, end }: Range<usize>, rows: usize, threads: usize) -> Attended {
        let heads = self.kv.shape().kv_heads * self.kv.shape().queries_per_head;
        let groups: Vec<_> = (start..end)
            .step_by(rows)
            .map(|at| Group { first_row: at - start, rows: rows.min(end - at), start: at, pages: &self.pages })
            .collect();
        let mut out = Attended::default();
        let query =
            |row: usize, head: usize, to: &mut [f32]| to.copy_from_slice(&self.queries[(start + row) * heads + head]);
        attend::<L>(&Team::new(threads), &self.kv, &groups, query, &mut out);
        out
    }

    /// Softmax of the scores of one query over all positions up to its own, times the values; in double precision.
    fn exact(&self, position: usize, head: usize) -> Vec<f64> {
        let shape = self.kv.shape();
        let query = &self.queries[position * shape.kv_heads * shape.queries_per_head + head];
        let at = |key: usize| key * shape.kv_heads + head / shape.queries_per_head;
        let score = |key: usize| -> f64 {
            query.iter().zip(&self.keys[at(key)]).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let weights: Vec<f64> = (0..=position).map(|key| score(key).exp()).collect();
        let total: f64 = weights.iter().sum();
        let mut out = vec![0.0; shape.head_dim];
        for (key, weight) in weights.iter().enumerate() {
            out.iter_mut().zip(&self.values[at(key)]).for_each(|(out, v)| *out += weight / total * f64::from(*v));
        }
        out
    }
}

const SHAPES: [KvShape; 4] = [
    KvShape { kv_heads: 3, queries_per_head: 3, head_dim: 64 },
    KvShape { kv_heads: 2, queries_per_head: 4, head_dim: 128 },
    KvShape { kv_heads: 1, queries_per_head: 1, head_dim: 80 },
    KvShape { kv_heads: 1, queries_per_head: 5, head_dim: 16 },
];

/// Long enough for several segments and blocks of pages, and no whole number of them.
const LEN: usize = (SEGMENT_PAGES + 2 * BLOCK_PAGES) * PAGE_SIZE + 21;

/// A group around here has rows in two segments.
const BORDER: usize = SEGMENT_PAGES * PAGE_SIZE;

#[test]
fn attention_is_softmax_times_values() {
    for shape in SHAPES {
        let sequence = Sequence::new(shape, LEN);
        let out = sequence.attend::<Portable>(0..LEN, GROUP_ROWS, 2);
        for position in (0..LEN).step_by(13).chain([LEN - 1]) {
            for head in 0..shape.kv_heads * shape.queries_per_head {
                let exact = sequence.exact(position, head);
                let got = (0..shape.head_dim).step_by(LANES);
                let got = got.flat_map(|column| *out.columns(position, head * shape.head_dim + column));
                for (got, exact) in got.zip(exact) {
                    assert!(
                        (f64::from(got) - exact).abs() < 1e-5,
                        "{shape:?}, position {position}: {got}, not {exact}"
                    );
                }
            }
        }
    }
}

fn a_query_alone_is_a_query_in_a_group<L: Lanes>() {
    for shape in SHAPES {
        let sequence = Sequence::new(shape, LEN);
        for range in [BORDER - 23..BORDER + 20, LEN - 41..LEN] {
            let expected = sequence.attend::<Portable>(range.clone(), 1, 1);
            for rows in [1, 2, 3, 5, GROUP_ROWS] {
                let got = sequence.attend::<L>(range.clone(), rows, 2);
                let bits = |out: &Attended| out.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&got), bits(&expected), "{shape:?}, groups of {rows} in {range:?}");
            }
        }
    }
}

#[test]
fn a_query_depends_on_nothing_else() {
    with_every_backend!(a_query_alone_is_a_query_in_a_group);
}

#[test]
fn numbers_beyond_half_precision_stop_at_the_largest() {
    let shape = SHAPES[0];
    let mut kv = KvLayer::new(shape, 1).expect("little memory");
    let large = vec![1e9; shape.head_dim];
    kv.pages_mut().take(PageId(0)).write::<Portable>(0, 0, KeyValue { key: &large, value: &large });
    assert!(kv.keys(0, PageId(0)).iter().all(|tokens| tokens[0] == half::f16::MAX.to_bits()));
}
