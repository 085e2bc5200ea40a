//! The definition: looks up one key after the other.

use super::leaf::{NODE, NONE};
use super::range_filter::{self, RangeFilter};
use super::{Node, Tree, bits, leaf};
use crate::classify::acl::MatchId;
use crate::classify::acl::engine::Tombstones;

impl<const W: usize> Tree<W> {
    /// Finds the last node for `key` in a part, and the leaf's first block; calls `visit` for each node on the way.
    pub(super) fn descend(
        &self,
        part: usize,
        key: &[u32; W],
        mut visit: impl FnMut(&Node<W>),
    ) -> (&Node<W>, usize) {
        let mut node = &self.nodes[part];
        let mut grid = self.grid.as_ref().filter(|_| part == 0);
        loop {
            visit(node);
            // Only the entries of the first root are found by a grid.
            let index = grid.take().map_or_else(|| bits::gather(&node.cut, key), |grid| grid.index(key));
            let entry = self.table[node.first as usize + index as usize];
            if entry & NODE == 0 {
                return (node, entry as usize);
            }
            node = &self.nodes[(entry & !NODE) as usize];
        }
    }

    /// Returns the ranks of all candidates for `key` in a part, ascending.
    pub(super) fn candidates<'a>(
        &'a self,
        part: usize,
        key: &'a [u32; W],
    ) -> impl Iterator<Item = u32> + use<'a, W> {
        let (node, first) = self.descend(part, key, |_| ());
        let signature = bits::gather(&node.sign, key);
        let mut next = Some(first);
        let blocks = std::iter::from_fn(move || {
            let at = next?;
            next = next.filter(|_| leaf::goes_on(&self.blocks[at]).is_some()).map(|n| n + 1);
            Some(at)
        });
        blocks.flat_map(move |at| {
            let block = &self.blocks[at];
            let candidates = leaf::candidates(block, signature) & self.passing(at, key);
            (0..leaf::RULES).filter(move |i| candidates >> i & 1 == 1).map(|i| leaf::rank(block, i))
        })
    }

    /// Returns one bit for each rule of a block that passes all range filters.
    pub(super) fn passing(&self, at: usize, key: &[u32; W]) -> u32 {
        let passing = |test: &RangeFilter| range_filter::passing(&test.ends[at], test.ranges, key[test.word]);
        self.range_filters.iter().map(passing).fold(u32::MAX, |all, own| all & own)
    }

    /// Finds the best rank that matches `key` in a category.
    pub(super) fn best(&self, key: &[u32; W], category: usize) -> Option<u32> {
        self.best_live(key, category, None)
    }

    /// Finds the best rank among live rules that matches `key` in a category.
    #[inline(always)]
    pub(super) fn best_live(
        &self,
        key: &[u32; W],
        category: usize,
        dead: Option<Tombstones<'_>>,
    ) -> Option<u32> {
        let mut removed = NONE;
        let best = (0..self.parts).fold(None, |best, part| {
            let better = self.candidates(part, key).take_while(|rank| *rank < best.unwrap_or(NONE));
            let mut counts = better.filter(|rank| self.records.categories(*rank) >> category & 1 == 1);
            let mut live = |rank: &u32| {
                let matches = self.records.matches(*rank, key);
                let is_removed = matches && self.is_tombstone(*rank, dead);
                removed = if is_removed { removed.min(*rank) } else { removed };
                matches && !is_removed
            };
            counts.find(|rank| live(rank)).or(best)
        });
        self.behind(removed, best.unwrap_or(NONE), key, category, dead).or(best)
    }

    /// Finds the best live rank between that of a removed rule which matched and the best that is known, where the lists of rules may end
    /// with the first: in a grid.
    #[inline(always)]
    pub(super) fn behind(
        &self,
        removed: u32,
        best: u32,
        key: &[u32; W],
        category: usize,
        dead: Option<Tombstones<'_>>,
    ) -> Option<u32> {
        if removed >= best || self.grid.is_none() {
            return None;
        }
        self.first_live(removed + 1..best.min(self.records.len() as u32), key, category, dead)
    }

    /// Compares one rule after the other.
    #[cold]
    #[inline(never)]
    fn first_live(
        &self,
        ranks: std::ops::Range<u32>,
        key: &[u32; W],
        category: usize,
        dead: Option<Tombstones<'_>>,
    ) -> Option<u32> {
        let counts = |rank: &u32| self.records.categories(*rank) >> category & 1 == 1;
        let mut ranks = ranks.filter(counts);
        ranks.find(|rank| self.records.matches(*rank, key) && !self.is_tombstone(*rank, dead))
    }

    #[inline(always)]
    pub(super) fn is_tombstone(&self, rank: u32, dead: Option<Tombstones<'_>>) -> bool {
        dead.is_some_and(|dead| dead.has(self.records.handle(rank)))
    }

    #[inline(always)]
    pub(super) fn verdict(&self, rank: Option<u32>) -> MatchId {
        rank.map_or(MatchId::NONE, |rank| self.records.verdict(rank))
    }
}

pub(super) fn lookup_batch<const W: usize>(
    tree: &Tree<W>,
    keys: &[[u32; W]],
    verdicts: &mut [MatchId],
    dead: Option<Tombstones<'_>>,
) {
    for (key, verdict) in keys.iter().zip(verdicts) {
        *verdict = tree.verdict(tree.best_live(key, 0, dead));
    }
}

pub(super) fn lookup_categories<const W: usize>(
    tree: &Tree<W>,
    keys: &[[u32; W]],
    categories: usize,
    verdicts: &mut [MatchId],
) {
    for (key, verdicts) in keys.iter().zip(verdicts.chunks_exact_mut(categories)) {
        for (category, verdict) in verdicts.iter_mut().enumerate() {
            *verdict = tree.verdict(tree.best(key, category));
        }
    }
}
