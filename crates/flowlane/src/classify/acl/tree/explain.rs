//! Explanations: why a rule wins, and the bits that the answer depends on.
//!
//! All rules up to the winner are looked at. Nearly all of them are no candidates: their signature differs from the key's. One
//! bit that differs is enough to rule such a rule out, and mostly one that has ruled out another rule before. The others are
//! compared with the key as the lookup does it.

use super::grid::Grid;
use super::{PARTS_MAX, Tree, bits, leaf};
use crate::classify::acl::{Condition, Explanation, WordKind};

/// Returns the bits of one half or word that decide whether `key` lies within `low..=high`, both of `width` bits: the shortest
/// prefix of the key that lies wholly inside or wholly outside.
fn range_bits(low: u32, high: u32, key: u32, width: u32) -> u32 {
    let all = (u64::MAX >> (64 - width)) as u32;
    let mask_of = |len: u32| all & !(all.checked_shr(len).unwrap_or(0));
    let decides = |mask: &u32| {
        let (first, last) = (key & mask, key | all & !mask);
        let inside = low <= first && last <= high;
        inside || last < low || first > high
    };
    (0..=width).map(mask_of).find(decides).unwrap_or(all)
}

/// Returns the bits of word `w` that show whether it matches.
fn word_bits<const W: usize>(condition: &Condition<W>, kind: WordKind, w: usize, key: u32) -> u32 {
    let (low, high) = (condition.low[w], condition.high[w]);
    match kind {
        WordKind::Ternary => match (key & high) ^ low {
            0 => high,
            // Down to the first bit that differs, so that prefixes stay prefixes.
            differing => high & (u32::MAX << differing.ilog2()),
        },
        WordKind::Range32 => range_bits(low, high, key, 32),
        WordKind::Range16 => {
            let half = |shift: u32| {
                let of = |word: u32| word >> shift & 0xffff;
                let within = of(low) <= of(key) && of(key) <= of(high);
                (within, range_bits(of(low), of(high), of(key), 16) << shift)
            };
            match (half(16), half(0)) {
                ((false, reason), _) | (_, (false, reason)) => reason,
                ((_, upper), (_, lower)) => upper | lower,
            }
        }
    }
}

/// A key that is explained.
struct Key<'a, const W: usize> {
    words: &'a [u32; W],
    kinds: &'a [WordKind; W],
    /// All bits of the ternary words.
    ternary: [u32; W],
    /// The bits that show the answer so far.
    looked_at: [u32; W],
}

impl<const W: usize> Key<'_, W> {
    /// Adds the bits that show the cell of a grid.
    fn add_cell(&mut self, grid: &Grid) {
        for axis in &grid.axes {
            let value = axis.value(self.words);
            let values = axis.values(axis.class(value));
            let width = 32 - axis.field.max.leading_zeros();
            let bits = range_bits(*values.start(), (*values.end()).max(value), value, width);
            self.looked_at[axis.field.word] |= bits << axis.field.shift;
        }
    }

    /// Adds the bits that show whether the key matches; none where the bits that are there rule it out.
    #[inline]
    fn add_reason(&mut self, low: &[u32; W], high: &[u32; W]) -> bool {
        // Nearly all rules: without a branch for each word.
        let differs = |w: usize| (self.words[w] & high[w] ^ low[w]) & self.ternary[w] & self.looked_at[w];
        if (0..W).fold(0, |all, w| all | differs(w)) != 0 {
            return false;
        }
        self.add_further_reason(&Condition { low: *low, high: *high })
    }

    /// As `add_reason`, where no ternary word rules the rule out yet.
    fn add_further_reason(&mut self, condition: &Condition<W>) -> bool {
        let reason = |w: usize| word_bits(condition, self.kinds[w], w, self.words[w]);
        let mut failing =
            (0..W).filter(|&w| !condition.word_matches(self.kinds[w], w, self.words[w])).peekable();
        let Some(&first) = failing.peek() else {
            (0..W).for_each(|w| self.looked_at[w] |= reason(w));
            return true;
        };
        if failing.all(|w| reason(w) & !self.looked_at[w] != 0) {
            self.looked_at[first] |= reason(first);
        }
        false
    }
}

/// A part's leaf.
#[derive(Clone, Copy)]
struct Leaf<'a, const W: usize> {
    /// The bits of its rules' signatures.
    sign: &'a [u32; W],
    /// Its first block.
    first: usize,
    /// The key's signature.
    signature: u32,
}

impl<const W: usize> Leaf<'_, W> {
    /// Calls `visit` with the rank of each rule, ascending, and the bits in which its signature differs from the key's: until it
    /// returns false, or there are no more.
    #[inline]
    fn visit(&self, tree: &Tree<W>, mut visit: impl FnMut(u32, u32) -> bool) {
        for block in &tree.blocks[self.first..] {
            for i in 0..leaf::RULES {
                let differing = block[leaf::MASKS + i] & self.signature ^ block[i];
                let rank = leaf::rank(block, i);
                if rank == leaf::NONE || !visit(rank, differing) {
                    return;
                }
            }
            if leaf::goes_on(block).is_none() {
                return;
            }
        }
    }

    /// Returns the number of rules in the blocks that have a rank up to `winner`: blocks are read as long as a better rule is
    /// possible.
    fn read(&self, tree: &Tree<W>, winner: u32) -> usize {
        let (mut read, mut in_block) = (0, 0);
        self.visit(tree, |rank, _| {
            if in_block == 0 && rank > winner {
                return false;
            }
            (read, in_block) = (read + 1, (in_block + 1) % leaf::RULES);
            true
        });
        read
    }
}

/// Explains the answer for `key` among the ranks that are `live`.
pub(super) fn explain<const W: usize>(
    tree: &Tree<W>,
    key: &[u32; W],
    live: impl Fn(u32) -> bool,
) -> Explanation<W> {
    let kinds = &tree.records.kinds;
    let ternary = kinds.map(|kind| if kind == WordKind::Ternary { u32::MAX } else { 0 });
    let mut key = Key { words: key, kinds, ternary, looked_at: [0; W] };
    let (mut nodes, mut winner, mut removed) = (0, leaf::NONE, leaf::NONE);
    let counts = |rank: u32| tree.records.categories(rank) & 1 == 1 && live(rank);
    let mut leaves = [Leaf { sign: &[0; W], first: 0, signature: 0 }; PARTS_MAX];
    let leaves = &mut leaves[..tree.parts];
    for (part, leaf) in leaves.iter_mut().enumerate() {
        let (node, first) = tree.descend(part, key.words, |node| {
            nodes += 1;
            key.looked_at.iter_mut().zip(&node.cut).for_each(|(bits, cut)| *bits |= cut);
        });
        tree.grid.iter().filter(|_| part == 0).for_each(|grid| key.add_cell(grid));
        *leaf = Leaf { sign: &node.sign, first, signature: bits::gather(&node.sign, key.words) };
        leaf.visit(tree, |rank, differing| {
            let matches = rank < winner && differing == 0 && tree.records.matches(rank, key.words);
            if matches && !live(rank) {
                removed = removed.min(rank);
            }
            if matches && counts(rank) {
                winner = rank;
            }
            rank < winner
        });
    }
    for leaf in &*leaves {
        let mut shown = 0u32;
        leaf.visit(tree, |rank, differing| {
            if rank < winner && differing != 0 && differing & shown == 0 && counts(rank) {
                shown |= 1 << differing.ilog2();
            }
            rank < winner
        });
        let shown = bits::scatter(leaf.sign, shown);
        key.looked_at.iter_mut().zip(shown).for_each(|(bits, shown)| *bits |= shown);
    }
    for leaf in &*leaves {
        leaf.visit(tree, |rank, differing| {
            if differing == 0 && rank <= winner && counts(rank) {
                let record = tree.records.record(rank);
                key.add_reason(record.low, record.high);
            }
            rank < winner
        });
    }
    if tree.grid.is_some() && removed != leaf::NONE {
        // Rules behind a removed one may be missing in its list: any bit may decide.
        let mut others = (removed..winner.min(tree.records.len() as u32)).filter(|rank| counts(*rank));
        let behind = others.find(|rank| tree.records.matches(*rank, key.words));
        (winner, key.looked_at) = (behind.map_or(winner, |rank| rank.min(winner)), [u32::MAX; W]);
    }
    debug_assert!(tree.nodes.iter().all(|node| bits::count(&node.sign) <= 32));
    Explanation {
        winner: tree.verdict((winner != leaf::NONE).then_some(winner)).rule(),
        runner_up: None,
        nodes,
        rules: leaves.iter().map(|leaf| leaf.read(tree, winner) as u32).sum(),
        looked_at: key.looked_at,
    }
}
