//! Who owns which page of the KV pool. What is in the pages is the runner's business.
//!
//! A page is in one of three places: free; in the prefix cache, where any number of sequences may hold it; or in the own
//! part of exactly one [`PageTable`]. A whole page that has been computed goes from there to the cache at once, so all
//! that ever has to be decided about a page is whether somebody holds it.

mod free_pages;

use super::radix_cache::RadixCache;
use crate::io_struct::TokenId;
use crate::model_runner::{PAGE_SIZE, PageId};
use free_pages::FreePages;

/// The pages of one sequence, in order: first those that are in the cache, then its own.
#[derive(Debug, Default)]
pub struct PageTable {
    pages: Vec<PageId>,
    /// How many of them are in the cache.
    shared: usize,
}

impl PageTable {
    /// All of them: token `p` of the sequence lives in page `p / PAGE_SIZE`.
    #[must_use]
    pub fn pages(&self) -> &[PageId] {
        &self.pages
    }

    /// Tokens of the pages that are in the cache: they are computed, whoever did it.
    #[must_use]
    pub fn shared_tokens(&self) -> usize {
        self.shared * PAGE_SIZE
    }

    fn last_shared(&self) -> Option<PageId> {
        self.pages[..self.shared].last().copied()
    }

    /// Puts `page`, which the cache has, next to the shared ones; returns the own page that it replaces.
    fn share(&mut self, page: PageId) -> Option<PageId> {
        self.shared += 1;
        match self.pages.get_mut(self.shared - 1) {
            Some(own) => Some(std::mem::replace(own, page)),
            None => {
                self.pages.push(page);
                None
            }
        }
    }
}

/// A pool of pages of [`PAGE_SIZE`] tokens.
#[derive(Debug)]
pub struct KvPool {
    free: FreePages,
    total: usize,
    /// `None`: nothing is kept.
    cache: Option<RadixCache>,
    evicted: u64,
    withheld: bool,
}

impl KvPool {
    /// A pool of `pages` free pages; with `cache`, what has been computed is kept in it as long as there is room.
    #[must_use]
    pub fn new(pages: usize, cache: Option<RadixCache>) -> Self {
        Self { free: FreePages::all(pages), total: pages, cache, evicted: 0, withheld: false }
    }

    /// Pages that hold `tokens` tokens.
    #[must_use]
    pub fn pages_for(tokens: usize) -> usize {
        tokens.div_ceil(PAGE_SIZE)
    }

    /// Shares what the cache has of `tokens` with their sequence, which holds `table`.
    pub fn share(&mut self, table: &mut PageTable, tokens: &[TokenId]) {
        let Some(cache) = &mut self.cache else { return };
        for tokens in tokens.as_chunks().0.iter().skip(table.shared) {
            let Some(page) = cache.hold(table.last_shared(), tokens) else { return };
            self.free.extend(table.share(page));
        }
    }

    /// Takes the whole pages of `computed`, the tokens of `table` that are computed, into the cache. Where another
    /// sequence was first, its page takes the place of the own one: what is in them is the same.
    pub fn keep(&mut self, table: &mut PageTable, computed: &[TokenId]) {
        let Some(cache) = &mut self.cache else { return };
        for tokens in computed.as_chunks().0.iter().skip(table.shared) {
            let parent = table.last_shared();
            match cache.hold(parent, tokens) {
                Some(page) => self.free.extend(table.share(page)),
                None => {
                    cache.insert(parent, tokens, table.pages[table.shared]);
                    table.shared += 1;
                }
            }
        }
    }

    /// Lets `table` grow until it holds `tokens` tokens, at the expense of what nobody holds. All or nothing.
    pub fn grow(&mut self, table: &mut PageTable, tokens: usize) -> bool {
        let missing = Self::pages_for(tokens).saturating_sub(table.pages.len());
        if missing > self.available_pages() {
            return false;
        }
        while self.free.len() < missing {
            let Some(page) = self.cache.as_mut().and_then(RadixCache::evict) else { return false };
            self.evicted += 1;
            self.free.give(page);
        }
        for _ in 0..missing {
            table.pages.extend(self.free.take(table.pages.last().copied()));
        }
        true
    }

    /// Takes everything back: the own pages are free, the others have one holder less.
    pub fn release(&mut self, table: &mut PageTable) {
        let PageTable { pages, shared } = std::mem::take(table);
        let (shared, own) = pages.split_at(shared);
        self.free.extend(own.iter().copied());
        if let Some(cache) = &mut self.cache {
            cache.let_go(shared);
        }
    }

    /// Forgets what nobody holds. Returns how many tokens that were.
    pub fn flush(&mut self) -> usize {
        let before = self.free.len();
        self.free.extend(self.cache.iter_mut().flat_map(|cache| std::iter::from_fn(|| cache.evict())));
        (self.free.len() - before) * PAGE_SIZE
    }

    /// Hands out nothing as long as this is so: a drill.
    pub fn withhold(&mut self, withheld: bool) {
        self.withheld = withheld;
    }

    /// Tokens of `tokens` that are in the cache.
    #[must_use]
    pub fn cached_tokens(&self, tokens: &[TokenId]) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.path(tokens).count()) * PAGE_SIZE
    }

    /// Pages that are missing before a sequence whose beginning is `tokens` can have `pages` pages.
    #[must_use]
    pub fn lacking_pages(&self, tokens: &[TokenId], pages: usize) -> usize {
        let (mut cached, mut idle) = (0, 0);
        if let Some(cache) = &self.cache {
            for page in cache.path(tokens) {
                cached += 1;
                idle += usize::from(cache.is_idle(page)); // held by it, they make room for nobody
            }
        }
        pages.saturating_sub(cached).saturating_sub(self.available_pages().saturating_sub(idle))
    }

    /// Pages that can be had.
    fn available_pages(&self) -> usize {
        if self.withheld { 0 } else { self.free.len() + self.evictable_pages() }
    }

    fn evictable_pages(&self) -> usize {
        self.cache.as_ref().map_or(0, RadixCache::idle_pages)
    }

    /// Tokens of the pages that a sequence holds.
    #[must_use]
    pub fn used_tokens(&self) -> usize {
        (self.total - self.free.len() - self.evictable_pages()) * PAGE_SIZE
    }

    /// Tokens of the pages in the cache that no sequence holds.
    #[must_use]
    pub fn evictable_tokens(&self) -> usize {
        self.evictable_pages() * PAGE_SIZE
    }

    /// Tokens that were dropped from the cache to make room, in all.
    #[must_use]
    pub fn evicted_tokens(&self) -> u64 {
        self.evicted * PAGE_SIZE as u64
    }

    /// Tokens of all pages.
    #[must_use]
    pub fn total_tokens(&self) -> usize {
        self.total * PAGE_SIZE
    }

    /// Panics unless each page is in one place, `tables` being all that there are.
    #[cfg(test)]
    pub fn audit<'a>(&self, tables: impl Iterator<Item = &'a PageTable>) {
        let mut places = vec![0; self.total];
        let mut holders = std::collections::HashMap::new();
        self.free.iter().for_each(|page| places[page.0 as usize] += 1);
        for table in tables {
            let (shared, own) = table.pages.split_at(table.shared);
            own.iter().for_each(|page| places[page.0 as usize] += 1);
            shared.iter().for_each(|page| *holders.entry(*page).or_insert(0) += 1);
        }
        let mut idle = 0;
        for (page, held) in self.cache.iter().flat_map(RadixCache::pages) {
            places[page.0 as usize] += 1;
            assert_eq!(holders.remove(&page).unwrap_or(0), held, "holders of {page:?}");
            idle += usize::from(held == 0);
        }
        assert!(places.iter().all(|places| *places == 1), "places of each page: {places:?}");
        assert!(holders.is_empty(), "held, and not in the cache: {holders:?}");
        assert_eq!(idle, self.evictable_pages(), "pages that nobody holds");
    }
}

#[cfg(test)]
mod tests;
