//! Keys and values of all sequences, in pages of 16 tokens and in half precision.

use half::f16;

use super::super::kernels::{LANES, Lanes};
use super::super::{PAGE_SIZE, PageId};

/// What a layer keeps for each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// Heads that have keys and values.
    pub kv_heads: usize,
    /// Query heads that share one of them.
    pub queries_per_head: usize,
    /// Floats of a head, a multiple of 16.
    pub head_dim: usize,
}

/// One layer's part of the pool.
///
/// Memory is asked for at once, as zeros, and so taken from the system page by page as it is written.
#[derive(Debug)]
pub struct KvLayer {
    shape: KvShape,
    /// For each KV head its pages. A page: keys transposed, `[head_dim][16 tokens]`, so that sixteen scores come out of
    /// one register; then values by row, `[16 tokens][head_dim]`.
    heads: Vec<Vec<u16>>,
}

/// One token's key and value at one KV head.
#[derive(Debug, Clone, Copy)]
pub struct KeyValue<'a> {
    /// `head_dim` floats, rotated.
    pub key: &'a [f32],
    /// `head_dim` floats.
    pub value: &'a [f32],
}

impl KvLayer {
    /// Room for `pages` pages.
    #[must_use]
    pub fn new(shape: KvShape, pages: usize) -> Self {
        let heads = (0..shape.kv_heads).map(|_| vec![0; pages * shape.page_len()]).collect();
        Self { shape, heads }
    }

    /// What it keeps for each token.
    #[must_use]
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// The heads, each to be written by a thread of its own.
    pub fn heads_mut(&mut self) -> impl ExactSizeIterator<Item = HeadMut<'_>> + Send {
        let shape = self.shape;
        self.heads.iter_mut().map(move |pages| HeadMut { shape, pages })
    }

    /// Keys of a page at one head: for each of `head_dim` dimensions sixteen tokens.
    #[inline(always)]
    #[must_use]
    pub fn keys(&self, head: usize, page: PageId) -> &[[u16; PAGE_SIZE]] {
        self.page(head, page)[..self.shape.head_dim * PAGE_SIZE].as_chunks().0
    }

    /// Values of a page at one head: for each of sixteen tokens `head_dim` numbers.
    #[inline(always)]
    #[must_use]
    pub fn values(&self, head: usize, page: PageId) -> &[u16] {
        &self.page(head, page)[self.shape.head_dim * PAGE_SIZE..]
    }

    #[inline(always)]
    fn page(&self, head: usize, page: PageId) -> &[u16] {
        let len = self.shape.page_len();
        &self.heads[head][page.0 as usize * len..][..len]
    }
}

/// One head of a layer, to be written.
pub struct HeadMut<'a> {
    shape: KvShape,
    pages: &'a mut [u16],
}

impl HeadMut<'_> {
    /// Writes the token at `slot` of `page`.
    #[inline(always)]
    pub fn write<L: Lanes>(&mut self, page: PageId, slot: usize, token: KeyValue<'_>) {
        let (len, dim) = (self.shape.page_len(), self.shape.head_dim);
        let page = &mut self.pages[page.0 as usize * len..][..len];
        let (keys, values) = page.split_at_mut(dim * PAGE_SIZE);
        let chunks = keys.chunks_exact_mut(LANES * PAGE_SIZE).zip(token.key.as_chunks::<LANES>().0);
        for (keys, key) in chunks {
            for (keys, key) in keys.chunks_exact_mut(PAGE_SIZE).zip(to_halves::<L>(key)) {
                keys[slot] = key;
            }
        }
        let values = values[slot * dim..][..dim].as_chunks_mut::<LANES>().0;
        for (to, value) in values.iter_mut().zip(token.value.as_chunks::<LANES>().0) {
            *to = to_halves::<L>(value);
        }
    }
}

impl KvShape {
    /// Numbers in a page at one head.
    fn page_len(self) -> usize {
        2 * self.head_dim * PAGE_SIZE
    }
}

/// Too large numbers stop at the largest: an infinity in the pool would turn a weight of zero into not-a-number. A number
/// that is none becomes the largest too.
#[inline(always)]
fn to_halves<L: Lanes>(values: &[f32; LANES]) -> [u16; LANES] {
    let largest = L::splat(f16::MAX.to_f32());
    let negative = |a| L::sub(L::splat(0.0), a);
    // The smaller of a pair is the negative of the larger of the negatives.
    let below = negative(L::max(negative(L::load(values)), negative(largest)));
    L::narrow(L::max(below, negative(largest)))
}
