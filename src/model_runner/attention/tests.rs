//! Attention against a plain reference, and the same bits in any batch.

use std::ops::Range;

use half::f16;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::kernels::Portable;
use super::super::kernels::lanes::with_every_backend;
use super::kv_pool::{EXTENT_PAGES, KeyValue, extent_of};
use super::*;
use crate::io_struct::KvCacheDtype;

/// One sequence in scattered pages of a pool full of infinities, and the same numbers in plain vectors.
struct Sequence {
    kv: KvLayer,
    pages: Vec<PageId>,
    /// For each position and head.
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
    queries: Vec<Vec<f32>>,
}

/// Rounded as the pool does.
fn vectors(random: &mut StdRng, count: usize, shape: KvShape) -> Vec<Vec<f32>> {
    let vector = |_| {
        let values: Vec<f32> = (0..shape.head_dim).map(|_| random.random_range(-1.5..1.5)).collect();
        let step = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs())) / 127.0;
        let round = |value: &f32| match shape.dtype {
            KvCacheDtype::F16 => f16::from_f32(*value).to_f32(),
            KvCacheDtype::Int8 => (value / step).round() * step,
        };
        values.iter().map(round).collect()
    };
    (0..count).map(vector).collect()
}

impl Sequence {
    fn new(shape: KvShape, len: usize) -> Self {
        let mut random = StdRng::seed_from_u64(9);
        let pages = len.div_ceil(PAGE_SIZE);
        let keys = vectors(&mut random, len * shape.kv_heads, shape);
        let values = vectors(&mut random, len * shape.kv_heads, shape);
        let queries = vectors(&mut random, len * shape.kv_heads * shape.queries_per_head, shape);
        let pages: Vec<_> = (0..pages).map(|page| PageId(((page * 7 + 3) % (pages * 7)) as u32)).collect();
        let mut kv = KvLayer::new(shape, pages.len() * 7).expect("little memory");
        let garbage = vec![f32::NAN; shape.head_dim];
        let mut extents = kv.extents_mut();
        let mut heads = Vec::new();
        for id in (0..pages.len() as u32 * 7).map(PageId) {
            if (id.0 as usize).is_multiple_of(EXTENT_PAGES) {
                heads = extents.take(extent_of(id)).collect();
            }
            let first = pages.iter().position(|page| *page == id).map(|index| index * PAGE_SIZE);
            for (slot, head) in (0..PAGE_SIZE).flat_map(|slot| (0..shape.kv_heads).map(move |head| (slot, head))) {
                let position = first.map(|first| first + slot).filter(|position| *position < len);
                let at = position.map(|position| position * shape.kv_heads + head);
                let (key, value) = at.map_or((&garbage, &garbage), |at| (&keys[at], &values[at]));
                heads[head].write::<Portable>(id, slot, KeyValue { key, value });
            }
        }
        Self { kv, pages, keys, values, queries }
    }

    /// Attends for these positions, in groups of at most `rows`.
    fn attend<L: Lanes>(&self, Range { start, end }: Range<usize>, rows: usize, threads: usize) -> Attended {
        let heads = self.kv.shape().kv_heads * self.kv.shape().queries_per_head;
        let groups = (start..end).step_by(rows);
        let groups =
            groups.map(|at| Group { first_row: at - start, rows: rows.min(end - at), start: at, pages: &self.pages });
        let mut out = Attended::default();
        let query =
            |row: usize, head: usize, to: &mut [f32]| to.copy_from_slice(&self.queries[(start + row) * heads + head]);
        attend::<L>(&Team::new(threads), &self.kv, groups, query, &mut out);
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

const SHAPES: [KvShape; 8] = [
    shape([3, 3, 64], KvCacheDtype::F16),
    shape([2, 4, 128], KvCacheDtype::F16),
    shape([1, 1, 80], KvCacheDtype::F16),
    shape([1, 5, 16], KvCacheDtype::F16),
    shape([3, 3, 64], KvCacheDtype::Int8),
    shape([2, 4, 128], KvCacheDtype::Int8),
    shape([1, 1, 80], KvCacheDtype::Int8),
    shape([1, 5, 16], KvCacheDtype::Int8),
];

const fn shape([kv_heads, queries_per_head, head_dim]: [usize; 3], dtype: KvCacheDtype) -> KvShape {
    KvShape { kv_heads, queries_per_head, head_dim, dtype }
}

/// What the arithmetic may be off by: in half precision sums of floats, with bytes weights of 14 bits.
fn tolerance(dtype: KvCacheDtype) -> f64 {
    match dtype {
        KvCacheDtype::F16 => 1e-5,
        KvCacheDtype::Int8 => 5e-4,
    }
}

/// Long enough for several segments, and no whole number of them.
const LEN: usize = (SEGMENT_PAGES + 8) * PAGE_SIZE + 21;

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
                        (f64::from(got) - exact).abs() < tolerance(shape.dtype),
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
    for shape in SHAPES {
        let mut kv = KvLayer::new(shape, 1).expect("little memory");
        let key = vec![1e9; shape.head_dim];
        let value = vec![f32::NEG_INFINITY; shape.head_dim];
        let mut head = kv.extents_mut().take(0).next().expect("a head");
        head.write::<Portable>(PageId(0), 0, KeyValue { key: &key, value: &value });
        let group = Group { first_row: 0, rows: 1, start: 0, pages: &[PageId(0)] };
        let mut out = Attended::default();
        attend::<Portable>(&Team::new(1), &kv, [group].into_iter(), |_, _, to| to.fill(1.0), &mut out);
        let largest = -f16::MAX.to_f32();
        assert!(out.columns(0, 0).iter().all(|value| (value / largest - 1.0).abs() < 1e-5), "{:?}", out.columns(0, 0));
    }
}
