//! Who owns which page of the KV pool. What is in the pages is the runner's business.

use crate::model_runner::{PAGE_SIZE, PageId};

/// A pool of pages of [`PAGE_SIZE`] tokens.
#[derive(Debug)]
pub struct KvPool {
    free: Vec<PageId>,
    total: usize,
    withheld: bool,
}

impl KvPool {
    /// A pool of `pages` free pages.
    #[must_use]
    pub fn new(pages: usize) -> Self {
        let ids = (0..).map(PageId).take(pages);
        let mut free: Vec<PageId> = ids.collect();
        free.reverse(); // low pages first, so that a quiet server touches little memory
        Self { free, total: pages, withheld: false }
    }

    /// Pages that hold `tokens` tokens.
    #[must_use]
    pub fn pages_for(tokens: usize) -> usize {
        tokens.div_ceil(PAGE_SIZE)
    }

    /// Lets `pages` grow until it holds `tokens` tokens. All or nothing.
    pub fn grow(&mut self, pages: &mut Vec<PageId>, tokens: usize) -> bool {
        let missing = Self::pages_for(tokens).saturating_sub(pages.len());
        if missing > self.free_pages() {
            return false;
        }
        pages.extend(self.free.drain(self.free.len() - missing..).rev());
        true
    }

    /// Hands out nothing as long as this is so: a drill.
    pub fn withhold(&mut self, withheld: bool) {
        self.withheld = withheld;
    }

    /// Takes `pages` back.
    pub fn release(&mut self, pages: &mut Vec<PageId>) {
        self.free.extend(pages.drain(..).rev());
    }

    /// Pages that can be had.
    #[must_use]
    pub fn free_pages(&self) -> usize {
        if self.withheld { 0 } else { self.free.len() }
    }

    /// Tokens of the pages that somebody owns.
    #[must_use]
    pub fn used_tokens(&self) -> usize {
        (self.total - self.free.len()) * PAGE_SIZE
    }

    /// Tokens of all pages.
    #[must_use]
    pub fn total_tokens(&self) -> usize {
        self.total * PAGE_SIZE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_all_or_nothing_and_come_back() {
        let mut pool = KvPool::new(4);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        assert!(pool.grow(&mut a, 17));
        assert_eq!(a, [PageId(0), PageId(1)]);
        assert!(pool.grow(&mut a, 32), "two pages hold 32 tokens already");
        assert!(!pool.grow(&mut b, 48), "three pages are asked for, two are free");
        assert!(b.is_empty());
        assert!(pool.grow(&mut b, 32));
        assert_eq!((pool.free_pages(), pool.used_tokens()), (0, 64));
        pool.release(&mut a);
        pool.release(&mut b);
        assert_eq!((pool.free_pages(), pool.used_tokens()), (4, 0));
    }
}
