//! The order in which a segment's keys and values are read, so that they can be asked for before.

use super::super::PageId;
use super::super::kernels::prefetch::prefetch;
use super::KvLayer;
use crate::io_struct::KvCacheDtype;

/// How far ahead of their use keys and values are asked for, in pages. They are read in a fraction of the time that memory
/// takes, bytes in a smaller one.
const fn pages_ahead(dtype: KvCacheDtype) -> usize {
    match dtype {
        KvCacheDtype::F16 => 4,
        KvCacheDtype::Int8 => 16,
    }
}

/// Pages of one sequence at one head: their keys are read one after the other, then their values, then the keys of the
/// next ones.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) kv: &'a KvLayer,
    pub(super) head: usize,
    /// Up to [`BLOCK_PAGES`](super::BLOCK_PAGES).
    pub(super) ids: &'a [PageId],
    pub(super) next: &'a [PageId],
}

impl<'a> Walk<'a> {
    #[inline(always)]
    fn ahead(self) -> usize {
        pages_ahead(self.kv.shape().dtype)
    }

    /// Asks for the first keys.
    #[inline(always)]
    pub(super) fn begin(self) {
        self.ids.iter().take(self.ahead()).for_each(|id| prefetch(self.kv.keys(self.head, *id)));
    }

    /// What is read so many pages after the keys of the page at `place`: other keys or, beyond the last ones, values.
    #[inline(always)]
    pub(super) fn behind_keys(self, place: usize) -> &'a [u8] {
        match self.ids.get(place + self.ahead()) {
            Some(id) => self.kv.keys(self.head, *id),
            None => {
                self.ids.get(place + self.ahead() - self.ids.len()).map_or(&[], |id| self.kv.values(self.head, *id))
            }
        }
    }

    /// What is read so many pages after the values of the page at `place`: other values or, beyond the last ones, keys.
    #[inline(always)]
    pub(super) fn behind_values(self, place: usize) -> &'a [u8] {
        match self.ids.get(place + self.ahead()) {
            Some(id) => self.kv.values(self.head, *id),
            None => self.next.get(place + self.ahead() - self.ids.len()).map_or(&[], |id| self.kv.keys(self.head, *id)),
        }
    }
}

/// The widths into which `count` queries are cut: of the sizes for which there is a kernel, the largest first.
pub(super) fn bundle(count: usize, sizes: &[usize]) -> usize {
    sizes.iter().copied().find(|width| *width <= count).unwrap_or(1)
}
