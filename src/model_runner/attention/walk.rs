//! The order in which a segment's keys and values are read, so that they can be asked for before.

use super::super::PageId;
use super::super::kernels::prefetch::prefetch;
use super::KvLayer;
use super::kv_pool::is_behind;
use crate::io_struct::KvCacheDtype;

/// How far ahead of their use scattered keys and values are asked for, in pages; neighbours are foreseen by the processor,
/// which is hindered by being asked. They are read in a fraction of the time that memory takes, bytes in a smaller one.
const fn pages_ahead(dtype: KvCacheDtype) -> usize {
    match dtype {
        KvCacheDtype::F16 => 4,
        KvCacheDtype::Int8 => 16,
    }
}

/// Pages of one sequence at one head: their keys are read one after the other, then their values.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) kv: &'a KvLayer,
    pub(super) head: usize,
    pub(super) ids: &'a [PageId],
}

impl<'a> Walk<'a> {
    #[inline(always)]
    fn ahead(self) -> usize {
        pages_ahead(self.kv.shape().dtype)
    }

    /// Asks for the first keys.
    #[inline(always)]
    pub(super) fn begin(self) {
        (0..self.ahead()).for_each(|place| self.ask_for_keys(place));
    }

    /// Asks for what is read so many pages after the keys of the page at `place`: other keys or, beyond the last ones,
    /// values.
    #[inline(always)]
    pub(super) fn ask_behind_keys(self, place: usize) {
        let place = place + self.ahead();
        match place.checked_sub(self.ids.len()) {
            None => self.ask_for_keys(place),
            Some(place) => self.ask_for_values(place),
        }
    }

    /// Asks for the values so many pages after those of the page at `place`.
    #[inline(always)]
    pub(super) fn ask_behind_values(self, place: usize) {
        self.ask_for_values(place + self.ahead());
    }

    #[inline(always)]
    fn ask_for_keys(self, place: usize) {
        if let Some(id) = jumps(self.ids, place) {
            prefetch(self.kv.keys(self.head, id));
        }
    }

    #[inline(always)]
    fn ask_for_values(self, place: usize) {
        if let Some(id) = jumps(self.ids, place) {
            prefetch(self.kv.values(self.head, id));
        }
    }
}

/// The page at `place`, unless it lies behind the one before.
#[inline(always)]
fn jumps(ids: &[PageId], place: usize) -> Option<PageId> {
    let id = *ids.get(place)?;
    let before = place.checked_sub(1).map(|before| ids[before]);
    before.is_none_or(|before| !is_behind(before, id)).then_some(id)
}

/// The widths into which `count` queries are cut: of the sizes for which there is a kernel, the largest first.
pub(super) fn bundle(count: usize, sizes: &[usize]) -> usize {
    sizes.iter().copied().find(|width| *width <= count).unwrap_or(1)
}
