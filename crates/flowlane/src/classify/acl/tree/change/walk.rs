//! The leaves that a rule is in: those of all entries whose bits it may have.

#[cfg(target_arch = "x86_64")]
use super::super::avx2;
use super::super::leaf::NODE;
use super::super::{Tree, bits};
use crate::classify::acl::tree::build::ternary::Ternary;
use crate::isa::Backend;

/// Levels of nodes.
const LEVELS: usize = 4;

/// Neighbouring entries of a node that lead to one leaf: all that do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// The node, and where its entries begin in the table.
    pub(super) node: u32,
    pub(super) base: u32,
    /// Entries of the node, from the first to behind the last.
    pub(super) start: u32,
    pub(super) end: u32,
    /// The entry among them that the rule was found by.
    pub(super) at: u32,
    /// The leaf.
    pub(super) block: u32,
}

/// A node on the way.
#[derive(Clone, Copy, Default)]
struct Level {
    node: u32,
    /// Entries, and where they begin.
    base: u32,
    entries: u32,
    /// The rule's bits of the index, and which of them are not wild.
    value: u32,
    mask: u32,
    /// The next entry to look at.
    next: u32,
}

/// Goes through the leaves of a part that a rule is in, each once. Leaves may be changed on the way, but only the last that was shown.
pub(super) struct Walk {
    levels: [Level; LEVELS],
    depth: usize,
}

/// Returns the first index from `from` on whose bits under `mask` are those of `value`.
#[inline]
pub(super) fn first_from(from: u32, value: u32, mask: u32) -> Option<u32> {
    let differing = (from ^ value) & mask;
    if differing == 0 {
        return Some(from);
    }
    let top = differing.ilog2();
    let through = |bit: u32| (2u64 << bit) as u32;
    if value >> top & 1 == 1 {
        // Greater than `from` whatever follows.
        let below = through(top).wrapping_sub(1);
        return Some(from & !below | value & below);
    }
    // A wild bit above has to go from 0 to 1.
    let free = !from & !mask & !through(top).wrapping_sub(1);
    let bit = (free != 0).then(|| free.trailing_zeros())?;
    let below = (1 << bit) - 1;
    Some(from & !below | 1 << bit | value & below)
}

impl<const W: usize> Tree<W> {
    /// Does what [`bits::gather`] does, by the instructions of this tree's variant.
    #[inline]
    pub(super) fn gather(&self, mask: &[u32; W], words: &[u32; W]) -> u32 {
        match self.backend.get() {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(isa) => avx2::gather_by(isa, mask, words),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(isa) => avx2::gather_by(isa.into(), mask, words),
            _ => bits::gather(mask, words),
        }
    }
}

impl Walk {
    pub(super) fn new<const W: usize>(tree: &Tree<W>, part: usize, rule: &Ternary<W>) -> Self {
        let mut walk = Self { levels: [Level::default(); LEVELS], depth: 0 };
        walk.enter(tree, part as u32, rule);
        walk
    }

    fn enter<const W: usize>(&mut self, tree: &Tree<W>, node: u32, rule: &Ternary<W>) {
        let of = &tree.nodes[node as usize];
        let (value, mask) = (tree.gather(&of.cut, &rule.value), tree.gather(&of.cut, &rule.mask));
        let entries = 1 << bits::count(&of.cut);
        self.levels[self.depth] = Level { node, base: of.first, entries, value, mask, next: 0 };
        self.depth += 1;
    }

    /// Returns the next leaf.
    pub(super) fn next<const W: usize>(&mut self, tree: &Tree<W>, rule: &Ternary<W>) -> Option<Run> {
        while let Some(depth) = self.depth.checked_sub(1) {
            let level = &mut self.levels[depth];
            let at = first_from(level.next, level.value, level.mask).filter(|at| *at < level.entries);
            let Some(at) = at else {
                self.depth = depth;
                continue;
            };
            let entries = &tree.table[level.base as usize..][..level.entries as usize];
            let entry = entries[at as usize];
            if entry & NODE != 0 {
                level.next = at + 1;
                self.enter(tree, entry & !NODE, rule);
                continue;
            }
            let others = entries[at as usize..].iter().take_while(|other| **other == entry).count();
            let before = entries[..at as usize].iter().rev().take_while(|other| **other == entry).count();
            let (start, end) = (at - before as u32, at + others as u32);
            level.next = end;
            return Some(Run { node: level.node, base: level.base, start, end, at, block: entry });
        }
        None
    }

    /// Goes back to a leaf that was just shown, since it is another now.
    pub(super) fn back(&mut self, run: &Run) {
        self.levels[self.depth - 1].next = run.at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Random;

    #[test]
    fn the_first_index_is_what_counting_finds() {
        let mut random = Random::new(3);
        for _ in 0..20_000 {
            let mask = random.below(256) as u32;
            let (value, from) = (random.below(256) as u32 & mask, random.below(256) as u32);
            let counted = (from..256).find(|index| index & mask == value);
            let found = first_from(from, value, mask).filter(|index| *index < 256);
            assert_eq!(found, counted, "from {from:x}, {value:x} under {mask:x}");
        }
    }
}
