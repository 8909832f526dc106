//! The pages that nobody has, and which of them a sequence gets next.

use std::collections::BTreeSet;

use crate::model_runner::PageId;

/// Pages that are kept together for one sequence as long as there is room: 256 tokens.
const STRETCH: u32 = 16;

/// A set of pages. Attention reads neighbouring pages faster than scattered ones, so a sequence grows into the page behind
/// its last one, and begins where there is room behind; otherwise low pages come first, so that a quiet server touches
/// little memory.
#[derive(Debug)]
pub struct FreePages {
    pages: BTreeSet<PageId>,
    /// The stretches of which every page is free, by their first page.
    stretches: BTreeSet<PageId>,
}

impl FreePages {
    /// The pages below `count`.
    pub fn all(count: usize) -> Self {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let firsts = (0..count / STRETCH).map(|stretch| PageId(stretch * STRETCH));
        Self { pages: (0..count).map(PageId).collect(), stretches: firsts.collect() }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Takes `page` back.
    pub fn give(&mut self, page: PageId) {
        self.pages.insert(page);
        let first = first_of_stretch(page);
        if self.pages.range(first..PageId(first.0 + STRETCH)).count() == STRETCH as usize {
            self.stretches.insert(first);
        }
    }

    /// A page for a sequence whose last one is `last`; `None` if there is none.
    pub fn take(&mut self, last: Option<PageId>) -> Option<PageId> {
        let behind = last.map(|last| PageId(last.0 + 1)).filter(|page| self.pages.contains(page));
        let page = behind.or_else(|| self.stretches.first().copied()).or_else(|| self.pages.first().copied())?;
        self.pages.remove(&page);
        self.stretches.remove(&first_of_stretch(page));
        Some(page)
    }

    /// All of them.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &PageId> {
        self.pages.iter()
    }
}

impl Extend<PageId> for FreePages {
    fn extend<T: IntoIterator<Item = PageId>>(&mut self, pages: T) {
        pages.into_iter().for_each(|page| self.give(page));
    }
}

fn first_of_stretch(page: PageId) -> PageId {
    PageId(page.0 - page.0 % STRETCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(free: &mut FreePages, last: Option<u32>) -> Option<u32> {
        free.take(last.map(PageId)).map(|page| page.0)
    }

    #[test]
    fn sequences_that_grow_in_turn_have_neighbouring_pages() {
        let mut free = FreePages::all(64);
        let mut last = [None; 3];
        let mut taken = [const { Vec::new() }; 3];
        for _ in 0..16 {
            for (last, taken) in last.iter_mut().zip(&mut taken) {
                *last = take(&mut free, *last);
                taken.extend(*last);
            }
        }
        for (sequence, taken) in (0..).zip(taken) {
            assert_eq!(taken, (16 * sequence..16 * (sequence + 1)).collect::<Vec<_>>());
        }
        assert_eq!(take(&mut free, last[0]), Some(48), "the page behind is taken, a stretch is free");
        assert_eq!(take(&mut free, last[1]), Some(49), "no stretch is free, a page is");
    }

    #[test]
    fn every_page_is_handed_out_once_and_low_ones_first() {
        let mut free = FreePages::all(37);
        assert_eq!([(); 37].map(|()| take(&mut free, None)).iter().flatten().collect::<BTreeSet<_>>().len(), 37);
        assert_eq!((free.len(), take(&mut free, Some(3)), take(&mut free, None)), (0, None, None));
        for page in (0..37).rev().map(PageId) {
            free.give(page);
        }
        assert_eq!((free.len(), take(&mut free, None)), (37, Some(0)));
        assert_eq!(take(&mut free, Some(36)), Some(16), "there is no page behind the last");
    }
}
