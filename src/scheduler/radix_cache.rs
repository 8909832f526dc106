//! What has been computed, by the tokens that led to it: a tree whose edges are whole pages of tokens.

use std::collections::{BTreeSet, HashMap};

use crate::io_struct::TokenId;
use crate::model_runner::{PAGE_SIZE, PageId};

/// The tokens of one page.
pub type PageTokens = [TokenId; PAGE_SIZE];

/// A tree of pages. A path from the root spells the beginning of a sequence; its pages hold the keys and values of it.
///
/// A node is its page. Who holds a page holds all pages above it, so a page that nobody holds has only such pages below
/// it, and the whole of them can be given up, leaf by leaf.
#[derive(Debug, Default)]
pub struct RadixCache {
    nodes: HashMap<PageId, Node>,
    edges: HashMap<Edge, PageId>,
    /// Leaves that nobody holds, the longest unused first.
    idle_leaves: BTreeSet<(Tick, PageId)>,
    idle_pages: usize,
    now: Tick,
}

/// Counts the times when pages were let go: a clock for "longest unused", and nothing else.
type Tick = u64;

/// The way down to a node: all tokens above it are in its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Edge {
    /// `None`: the root.
    parent: Option<PageId>,
    tokens: PageTokens,
}

#[derive(Debug)]
struct Node {
    edge: Edge,
    children: usize,
    holders: usize,
    last_used: Tick,
}

impl RadixCache {
    /// The page that follows `parent` with `tokens`, if there is one; its caller holds it from now on. `parent` is held
    /// by the same.
    pub fn hold(&mut self, parent: Option<PageId>, tokens: &PageTokens) -> Option<PageId> {
        let page = *self.edges.get(&Edge { parent, tokens: *tokens })?;
        let node = self.nodes.get_mut(&page)?;
        node.holders += 1;
        if node.holders == 1 {
            self.idle_pages -= 1;
            self.idle_leaves.remove(&(node.last_used, page));
        }
        Some(page)
    }

    /// Takes in `page`, which holds `tokens` after `parent`; its caller goes on holding it. `parent` is held by the same,
    /// and has no such child yet.
    pub fn insert(&mut self, parent: Option<PageId>, tokens: &PageTokens, page: PageId) {
        let edge = Edge { parent, tokens: *tokens };
        self.edges.insert(edge, page);
        self.nodes.insert(page, Node { edge, children: 0, holders: 1, last_used: 0 });
        if let Some(parent) = parent.and_then(|parent| self.nodes.get_mut(&parent)) {
            parent.children += 1;
        }
    }

    /// One holder lets go of a path from the root.
    pub fn let_go(&mut self, path: &[PageId]) {
        self.now += 1;
        for page in path {
            let Some(node) = self.nodes.get_mut(page) else { continue };
            node.holders -= 1;
            if node.holders == 0 {
                node.last_used = self.now;
                self.idle_pages += 1;
                if node.children == 0 {
                    self.idle_leaves.insert((node.last_used, *page));
                }
            }
        }
    }

    /// Gives up the leaf that has been unused for longest.
    pub fn evict(&mut self) -> Option<PageId> {
        let (_, page) = self.idle_leaves.pop_first()?;
        let node = self.nodes.remove(&page)?;
        self.edges.remove(&node.edge);
        self.idle_pages -= 1;
        if let Some(above) = node.edge.parent
            && let Some(parent) = self.nodes.get_mut(&above)
        {
            parent.children -= 1;
            if parent.children == 0 && parent.holders == 0 {
                self.idle_leaves.insert((parent.last_used, above));
            }
        }
        Some(page)
    }

    /// The pages that spell the beginning of `tokens`, from the root, as far as there are any.
    pub fn path<'a>(&'a self, tokens: &'a [TokenId]) -> impl Iterator<Item = PageId> + 'a {
        let mut parent = None;
        tokens.as_chunks::<PAGE_SIZE>().0.iter().map_while(move |tokens| {
            parent = Some(*self.edges.get(&Edge { parent, tokens: *tokens })?);
            parent
        })
    }

    /// Whether nobody holds `page`.
    #[must_use]
    pub fn is_idle(&self, page: PageId) -> bool {
        self.nodes.get(&page).is_some_and(|node| node.holders == 0)
    }

    /// Pages that nobody holds: all of them can be evicted.
    #[must_use]
    pub fn idle_pages(&self) -> usize {
        self.idle_pages
    }

    /// All pages, each with the number of its holders.
    #[cfg(test)]
    pub fn pages(&self) -> impl Iterator<Item = (PageId, usize)> + '_ {
        self.nodes.iter().map(|(page, node)| (*page, node.holders))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(token: u32) -> PageTokens {
        [TokenId(token); PAGE_SIZE]
    }

    /// Inserts a path of pages, each with one token of its own, and lets it go.
    fn grow(cache: &mut RadixCache, path: &[(u32, u32)]) {
        let mut held = Vec::new();
        for (token, page) in path {
            let parent = held.last().copied();
            let known = cache.hold(parent, &page_of(*token));
            held.push(known.unwrap_or_else(|| {
                cache.insert(parent, &page_of(*token), PageId(*page));
                PageId(*page)
            }));
        }
        cache.let_go(&held);
    }

    fn found(cache: &RadixCache, path: &[u32]) -> Vec<u32> {
        let tokens: Vec<_> = path.iter().flat_map(|token| page_of(*token)).collect();
        cache.path(&tokens).map(|page| page.0).collect()
    }

    #[test]
    fn a_path_is_found_as_far_as_it_goes() {
        let mut cache = RadixCache::default();
        grow(&mut cache, &[(1, 10), (2, 20), (3, 30)]);
        grow(&mut cache, &[(1, 99), (2, 99), (4, 40)]);
        grow(&mut cache, &[(2, 50)]);
        assert_eq!(found(&cache, &[1, 2, 3]), [10, 20, 30]);
        assert_eq!(found(&cache, &[1, 2, 4, 5]), [10, 20, 40]);
        assert_eq!(found(&cache, &[2, 2]), [50], "the same tokens elsewhere are another page");
        assert_eq!(found(&cache, &[3]), [0; 0]);
        assert_eq!(cache.path(&[TokenId(1); PAGE_SIZE - 1]).count(), 0, "part of a page is none");
        assert_eq!(cache.idle_pages(), 5);
    }

    #[test]
    fn leaves_go_first_and_the_longest_unused_before_all() {
        let mut cache = RadixCache::default();
        grow(&mut cache, &[(1, 10), (2, 20)]);
        grow(&mut cache, &[(5, 50)]);
        grow(&mut cache, &[(1, 10), (3, 30)]); // the first page is used again
        let order: Vec<_> = std::iter::from_fn(|| cache.evict()).map(|page| page.0).collect();
        assert_eq!(order, [20, 50, 30, 10]);
        assert_eq!((cache.idle_pages(), cache.nodes.len(), cache.edges.len()), (0, 0, 0));
    }

    #[test]
    fn what_is_held_stays() {
        let mut cache = RadixCache::default();
        grow(&mut cache, &[(1, 10), (2, 20), (3, 30)]);
        let first = cache.hold(None, &page_of(1));
        let second = cache.hold(first, &page_of(2));
        assert_eq!((first, second), (Some(PageId(10)), Some(PageId(20))));
        assert_eq!((cache.evict(), cache.evict()), (Some(PageId(30)), None));
        assert!(!cache.is_idle(PageId(20)));
        cache.let_go(&[PageId(10), PageId(20)]);
        assert!(cache.is_idle(PageId(20)) && !cache.is_idle(PageId(30)));
        assert_eq!((cache.evict(), cache.evict()), (Some(PageId(20)), Some(PageId(10))));
    }
}
