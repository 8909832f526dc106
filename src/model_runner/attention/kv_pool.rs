//! Keys and values of all sequences, in pages of 16 tokens.

use std::io;

use half::f16;
use memmap2::{Advice, MmapMut};

use super::super::kernels::{LANES, Lanes};
use super::super::{PAGE_SIZE, PageId};
use crate::io_struct::KvCacheDtype;

/// What a layer keeps for each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvShape {
    /// Heads that have keys and values.
    pub kv_heads: usize,
    /// Query heads that share one of them.
    pub queries_per_head: usize,
    /// Floats of a head, a multiple of 16.
    pub head_dim: usize,
    /// How they are held.
    pub dtype: KvCacheDtype,
}

/// Neighbouring pages that lie together: what is read page after page is then one stretch of memory for 1,024 tokens, which
/// the processor sees coming. Asking for scattered pages reaches less than half of the bandwidth, however early it is done.
pub const EXTENT_PAGES: usize = 64;

/// One layer's part of the pool: extent after extent of [`EXTENT_PAGES`] pages, in each head after head, of each head the
/// keys of all its pages and then their values. Sequences do best to have neighbouring pages.
///
/// In half precision the keys are transposed, `[head_dim][16 tokens]`, so that sixteen scores come out of one register,
/// and the values lie by row, `[16 tokens][head_dim]`. As bytes both are ordered for dot products of four bytes a lane:
/// keys `[head_dim / 4][16 tokens][4]`, values `[4][head_dim][4 tokens]`, each a number from -127 to 127 plus 128; behind
/// the keys of all pages of an extent, and behind their values, for each token what one step is worth, as `f32`.
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
        let extents = pages.div_ceil(EXTENT_PAGES);
        let memory = MmapMut::map_anon((extents * shape.extent_bytes()).max(1))?;
        // Only a hint: kernels without huge pages refuse it.
        let _ = memory.advise(Advice::HugePage);
        Ok(Self { shape, memory })
    }

    /// What it keeps for each token.
    #[must_use]
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// All extents, to be written.
    pub fn extents_mut(&mut self) -> ExtentsMut<'_> {
        ExtentsMut { shape: self.shape, rest: &mut self.memory, next: 0 }
    }

    /// Keys of a page at one head.
    #[inline(always)]
    #[must_use]
    pub fn keys(&self, head: usize, page: PageId) -> &[u8] {
        self.numbers(head, page, KEYS)
    }

    /// Values of a page at one head.
    #[inline(always)]
    #[must_use]
    pub fn values(&self, head: usize, page: PageId) -> &[u8] {
        self.numbers(head, page, VALUES)
    }

    /// What one step of each key of a page is worth, if they are bytes.
    #[inline(always)]
    #[must_use]
    pub fn key_steps(&self, head: usize, page: PageId) -> &[f32; PAGE_SIZE] {
        self.steps(head, page, KEYS)
    }

    /// The same of its values.
    #[inline(always)]
    #[must_use]
    pub fn value_steps(&self, head: usize, page: PageId) -> &[f32; PAGE_SIZE] {
        self.steps(head, page, VALUES)
    }

    #[inline(always)]
    fn numbers(&self, head: usize, page: PageId, part: usize) -> &[u8] {
        let len = self.shape.number_bytes();
        &self.part(head, page, part)[page.0 as usize % EXTENT_PAGES * len..][..len]
    }

    #[inline(always)]
    fn steps(&self, head: usize, page: PageId, part: usize) -> &[f32; PAGE_SIZE] {
        let steps = &self.part(head, page, part)[EXTENT_PAGES * self.shape.number_bytes()..];
        &bytemuck::cast_slice(steps).as_chunks().0[page.0 as usize % EXTENT_PAGES]
    }

    /// Keys or values of all pages of an extent at one head.
    #[inline(always)]
    fn part(&self, head: usize, page: PageId, part: usize) -> &[u8] {
        let len = self.shape.part_bytes();
        &self.memory[((extent_of(page) * self.shape.kv_heads + head) * 2 + part) * len..][..len]
    }
}

/// The first part of a head, and the second one.
const KEYS: usize = 0;
const VALUES: usize = 1;

/// Which extent a page lies in.
#[must_use]
pub fn extent_of(page: PageId) -> usize {
    page.0 as usize / EXTENT_PAGES
}

/// `page` lies right behind `before` in memory.
#[inline(always)]
#[must_use]
pub fn is_behind(before: PageId, page: PageId) -> bool {
    page.0 == before.0 + 1 && !(page.0 as usize).is_multiple_of(EXTENT_PAGES)
}

/// The extents of a layer that have not been handed out.
pub struct ExtentsMut<'a> {
    shape: KvShape,
    rest: &'a mut [u8],
    /// The extent with which the rest begins.
    next: usize,
}

impl<'a> ExtentsMut<'a> {
    /// The heads of an extent, so that each can be written by a thread of its own. Extents are to be taken in ascending
    /// order.
    pub fn take(&mut self, extent: usize) -> impl Iterator<Item = HeadMut<'a>> + Send + use<'a> {
        assert!(extent >= self.next, "extents are taken in ascending order");
        let (len, shape) = (self.shape.extent_bytes(), self.shape);
        let (_, rest) = std::mem::take(&mut self.rest).split_at_mut((extent - self.next) * len);
        let (taken, rest) = rest.split_at_mut(len);
        (self.rest, self.next) = (rest, extent + 1);
        taken.chunks_exact_mut(len / shape.kv_heads).map(move |bytes| {
            let (keys, values) = bytes.split_at_mut(bytes.len() / 2);
            HeadMut { shape, keys, values }
        })
    }
}

/// The pages of an extent at one head, to be written.
pub struct HeadMut<'a> {
    shape: KvShape,
    keys: &'a mut [u8],
    values: &'a mut [u8],
}

impl HeadMut<'_> {
    /// Writes the token at `slot` of `page`, which lies in this extent. Numbers beyond half precision stop at its largest:
    /// an infinity in the pool would turn a weight of zero into not-a-number. A number that is none becomes the largest
    /// too.
    #[inline(always)]
    pub fn write<L: Lanes>(&mut self, page: PageId, slot: usize, token: KeyValue<'_>) {
        let len = self.shape.number_bytes();
        let place = page.0 as usize % EXTENT_PAGES;
        let (all_keys, key_steps) = self.keys.split_at_mut(EXTENT_PAGES * len);
        let (all_values, value_steps) = self.values.split_at_mut(EXTENT_PAGES * len);
        let (keys, values) = (&mut all_keys[place * len..][..len], &mut all_values[place * len..][..len]);
        match self.shape.dtype {
            KvCacheDtype::F16 => {
                write_half_key::<L>(bytemuck::cast_slice_mut(keys), slot, token.key);
                write_half_value::<L>(bytemuck::cast_slice_mut(values), slot, token.value);
            }
            KvCacheDtype::Int8 => {
                let step = place * PAGE_SIZE + slot;
                let at = |i: usize| 64 * (i / 4) + 4 * slot + i % 4;
                bytemuck::cast_slice_mut(key_steps)[step] = write_bytes::<L>(token.key, keys, at);
                let at = |i: usize| slot / 4 * 4 * self.shape.head_dim + 4 * i + slot % 4;
                bytemuck::cast_slice_mut(value_steps)[step] = write_bytes::<L>(token.value, values, at);
            }
        }
    }
}

#[inline(always)]
fn write_half_key<L: Lanes>(keys: &mut [u16], slot: usize, key: &[f32]) {
    let chunks = keys.chunks_exact_mut(LANES * PAGE_SIZE).zip(key.as_chunks::<LANES>().0);
    for (keys, key) in chunks {
        for (keys, key) in keys.chunks_exact_mut(PAGE_SIZE).zip(L::narrow(finite::<L>(key))) {
            keys[slot] = key;
        }
    }
}

#[inline(always)]
fn write_half_value<L: Lanes>(values: &mut [u16], slot: usize, value: &[f32]) {
    let values = values[slot * value.len()..][..value.len()].as_chunks_mut::<LANES>().0;
    for (to, value) in values.iter_mut().zip(value.as_chunks::<LANES>().0) {
        *to = L::narrow(finite::<L>(value));
    }
}

/// Rounds to 8 bits, number `i` going to `to[at(i)]`, and returns what one step is worth.
#[inline(always)]
fn write_bytes<L: Lanes>(values: &[f32], to: &mut [u8], at: impl Fn(usize) -> usize) -> f32 {
    let values = values.as_chunks::<LANES>().0;
    let largest = values.iter().fold(L::splat(0.0), |largest, values| L::max(largest, L::abs(finite::<L>(values))));
    let largest = L::largest(largest);
    let inverse = L::splat(if largest > 0.0 { 127.0 / largest } else { 0.0 });
    for (chunk, values) in values.iter().enumerate() {
        let bytes = L::round_to_i8(L::mul(finite::<L>(values), inverse));
        for (lane, byte) in bytes.into_iter().enumerate() {
            to[at(chunk * LANES + lane)] = byte.cast_unsigned() ^ 0x80;
        }
    }
    largest / 127.0
}

impl KvShape {
    /// Bytes of the keys of a page at one head, without their steps, and as many of its values.
    fn number_bytes(self) -> usize {
        let numbers = self.head_dim * PAGE_SIZE;
        match self.dtype {
            KvCacheDtype::F16 => numbers * size_of::<u16>(),
            KvCacheDtype::Int8 => numbers,
        }
    }

    /// Bytes of the steps of either.
    fn step_bytes(self) -> usize {
        match self.dtype {
            KvCacheDtype::F16 => 0,
            KvCacheDtype::Int8 => PAGE_SIZE * size_of::<f32>(),
        }
    }

    /// Bytes of the keys, or the values, of an extent at one head.
    fn part_bytes(self) -> usize {
        EXTENT_PAGES * (self.number_bytes() + self.step_bytes())
    }

    fn extent_bytes(self) -> usize {
        2 * self.kv_heads * self.part_bytes()
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(self) -> usize {
        self.extent_bytes() / EXTENT_PAGES
    }
}

/// Within half precision, whatever the dtype.
#[inline(always)]
fn finite<L: Lanes>(values: &[f32; LANES]) -> L::Floats {
    let largest = L::splat(f16::MAX.to_f32());
    let negative = |a| L::sub(L::splat(0.0), a);
    // The smaller of a pair is the negative of the larger of the negatives.
    let below = negative(L::max(negative(L::load(values)), negative(largest)));
    L::max(below, negative(largest))
}
