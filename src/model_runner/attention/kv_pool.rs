//! Keys and values of all sequences, in pages of 16 tokens and in half precision.

use std::io;

use half::f16;
use memmap2::{Advice, MmapMut};

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

/// One layer's part of the pool: page after page, in each head after head. A head: keys transposed, `[head_dim][16 tokens]`,
/// so that sixteen scores come out of one register; then values by row, `[16 tokens][head_dim]`.
#[derive(Debug)]
pub struct KvLayer {
    shape: KvShape,
    /// Taken from the system as it is written. In huge pages where the system has them: a long context is read from one
    /// end to the other at each step, and would miss the translation cache at every page.
    memory: MmapMut,
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
    ///
    /// # Errors
    /// The system refuses so much memory.
    pub fn new(shape: KvShape, pages: usize) -> io::Result<Self> {
        let memory = MmapMut::map_anon((pages * shape.page_len() * size_of::<u16>()).max(1))?;
        // Only a hint: kernels without huge pages refuse it.
        let _ = memory.advise(Advice::HugePage);
        Ok(Self { shape, memory })
    }

    /// What it keeps for each token.
    #[must_use]
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// All pages, to be written.
    pub fn pages_mut(&mut self) -> PagesMut<'_> {
        let memory = bytemuck::cast_slice_mut(&mut self.memory[..]);
        PagesMut { shape: self.shape, rest: memory, next: 0 }
    }

    /// Keys of a page at one head: for each of `head_dim` dimensions sixteen tokens.
    #[inline(always)]
    #[must_use]
    pub fn keys(&self, head: usize, page: PageId) -> &[[u16; PAGE_SIZE]] {
        self.head(head, page)[..self.shape.head_dim * PAGE_SIZE].as_chunks().0
    }

    /// Values of a page at one head: for each of sixteen tokens `head_dim` numbers.
    #[inline(always)]
    #[must_use]
    pub fn values(&self, head: usize, page: PageId) -> &[u16] {
        &self.head(head, page)[self.shape.head_dim * PAGE_SIZE..]
    }

    #[inline(always)]
    fn head(&self, head: usize, page: PageId) -> &[u16] {
        let len = self.shape.head_len();
        let memory: &[u16] = bytemuck::cast_slice(&self.memory);
        &memory[(page.0 as usize * self.shape.kv_heads + head) * len..][..len]
    }
}

/// The pages of a layer that have not been handed out.
pub struct PagesMut<'a> {
    shape: KvShape,
    rest: &'a mut [u16],
    /// The page with which the rest begins.
    next: usize,
}

impl<'a> PagesMut<'a> {
    /// A page, so that each can be written by a thread of its own. They are to be taken in ascending order.
    pub fn take(&mut self, page: PageId) -> PageMut<'a> {
        let (len, page) = (self.shape.page_len(), page.0 as usize);
        assert!(page >= self.next, "pages are taken in ascending order");
        let rest = std::mem::take(&mut self.rest);
        let (_, rest) = rest.split_at_mut((page - self.next) * len);
        let (taken, rest) = rest.split_at_mut(len);
        (self.rest, self.next) = (rest, page + 1);
        PageMut { shape: self.shape, heads: taken }
    }
}

/// One page of a layer, to be written.
pub struct PageMut<'a> {
    shape: KvShape,
    heads: &'a mut [u16],
}

impl PageMut<'_> {
    /// Writes the token at `slot`, for one head.
    #[inline(always)]
    pub fn write<L: Lanes>(&mut self, head: usize, slot: usize, token: KeyValue<'_>) {
        let (len, dim) = (self.shape.head_len(), self.shape.head_dim);
        let (keys, values) = self.heads[head * len..][..len].split_at_mut(dim * PAGE_SIZE);
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
    fn head_len(self) -> usize {
        2 * self.head_dim * PAGE_SIZE
    }

    /// Numbers in a page.
    fn page_len(self) -> usize {
        self.kv_heads * self.head_len()
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
