//! Changes in place: rules that come into a built tree and leave it.
//!
//! ```text
//! rule ─► places: its rank, between two others ─► walk: the leaves of its part ─► leaves: one rule more, or less, in each
//! ```
//!
//! Cuts and signatures stay as they were chosen. A leaf that is full is parted, where its entries tell its rules apart, or gets
//! another block. A tree refuses a rule that would be in too many blocks; the caller has hash tables for such rules. A tree that has
//! [outgrown](Tree::is_outgrown) its cuts is built again.
//!
//! Every leaf belongs to neighbouring entries of one node, and has the rules of all of them and no others.

mod leaves;
mod places;
#[cfg(test)]
mod tests;
mod walk;

use super::build::ternary::Ternary;
use super::leaf::Block;
use super::range_filter::Ends;
use super::{COLD_BYTES, Tree};
use crate::classify::acl::{Entry, RankKey};
use crate::rule::RuleId;
use leaves::Blocks;
use places::{Gap, NOWHERE, Places};
use walk::Walk;

/// Most blocks of the leaves that a change of a rule changes: a tenth of a millisecond.
const BLOCKS_MAX: usize = 4096;

/// Blocks that a change may touch on average. A change that touches fewer leaves the rest to later ones, up to [`CREDIT_MAX`]: a few wide
/// rules now and then are changed in place, many are not.
const BLOCKS_PER_CHANGE: usize = 64;
const CREDIT_MAX: usize = 2 * BLOCKS_MAX;

/// State of a tree that changes need and lookups do not.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    places: Places,
    /// The part of the rule in each place.
    parts: Vec<u8>,
    /// The place of each rule number.
    ranks: Vec<u32>,
    blocks: Blocks,
    /// Rules and blocks when the tree was built.
    built_rules: usize,
    built_blocks: usize,
    /// Blocks that the next change may touch.
    credit: usize,
}

impl Changes {
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.places.size_bytes()
            + self.parts.capacity()
            + self.ranks.capacity() * size_of::<u32>()
            + self.blocks.size_bytes()
    }

    fn rank(&self, rule: RuleId) -> Option<u32> {
        self.ranks.get(rule.0 as usize).copied().filter(|rank| *rank != NOWHERE)
    }

    fn set_rank(&mut self, rule: RuleId, rank: u32) {
        let at = rule.0 as usize;
        if at >= self.ranks.len() {
            self.ranks.resize(at + 1, NOWHERE);
        }
        self.ranks[at] = rank;
    }

    /// Returns whether there are more rules than the cuts are for, and leaves are long.
    fn is_full(&self) -> bool {
        self.len() > 2 * self.built_rules + 128
    }

    fn is_outgrown(&self) -> bool {
        let (rules, blocks) = (self.built_rules + 64, self.built_blocks + 64);
        self.len() > rules + rules / 2 || self.blocks.end > blocks + blocks / 2
    }
}

impl<const W: usize> Tree<W> {
    /// Returns whether the root is a grid.
    pub(in crate::classify::acl) fn has_grid(&self) -> bool {
        self.grid.is_some()
    }

    /// Returns whether [`insert`](Self::insert) and [`remove`](Self::remove) may be called.
    pub fn takes_changes(&self) -> bool {
        self.changes.is_some()
    }

    /// Prepares the tree for changes, in time linear in its size: makes room between ranks and for blocks. `key` returns the rank
    /// key of a rule number. A tree with a grid stays as it is.
    #[inline(never)]
    pub fn prepare_changes(&mut self, key: impl Fn(RuleId) -> RankKey) {
        if self.has_grid() {
            return;
        }
        let rules = self.records.len();
        let keys = (0..rules as u32).map(|rank| key(self.records.handle(rank)).0).collect();
        let mut changes = Changes {
            places: Places::dense(keys),
            parts: vec![0; rules],
            built_rules: rules,
            built_blocks: self.blocks.len(),
            credit: CREDIT_MAX,
            ..Changes::default()
        };
        changes.blocks.end = self.blocks.len();
        for part in 0..self.parts {
            self.note_part(part, part as u32, &mut changes.parts);
        }
        (0..rules as u32).for_each(|rank| changes.set_rank(self.records.handle(rank), rank));
        self.reserve_blocks(self.blocks.len() + self.blocks.len() / 8 + 16);
        // The worst rank: behind all.
        self.spread(&mut changes, RankKey(0));
        self.changes = Some(Box::new(changes));
        self.cold = super::Engine::table_bytes(self) > COLD_BYTES;
    }

    /// Notes the part of all rules below a node.
    fn note_part(&self, part: usize, node: u32, parts: &mut [u8]) {
        let of = &self.nodes[node as usize];
        let entries = 1usize << super::bits::count(&of.cut);
        let mut before = None;
        for entry in &self.table[of.first as usize..][..entries] {
            if before.replace(*entry) == Some(*entry) {
                continue;
            }
            if entry & super::leaf::NODE != 0 {
                self.note_part(part, entry & !super::leaf::NODE, parts);
                continue;
            }
            for block in &self.blocks[*entry as usize..][..leaves::count(&self.blocks, *entry)] {
                for rank in &block[super::leaf::RANKS..][..super::leaf::RULES] {
                    parts.get_mut(*rank as usize).into_iter().for_each(|of| *of = part as u8);
                }
            }
        }
    }

    /// Returns the bytes that preparation for changes adds, and the first changes.
    pub(in crate::classify::acl) fn bytes_of_changes(&self) -> usize {
        let blocks = self.blocks.len() * (size_of::<Block>() + self.range_filters.len() * size_of::<Ends>());
        self.records.size_bytes() + blocks / 8 + 4096 + self.records.len() * 2 * (size_of::<u64>() + 1 + 4)
    }

    /// Returns whether the tree would grow by at most `room` bytes where a rule of this rank comes into `touched` blocks.
    fn fits(&self, rank: RankKey, touched: usize, room: usize) -> bool {
        let changes = self.changes.as_ref().expect("the tree takes changes");
        let each = size_of::<Block>() + self.range_filters.len() * size_of::<Ends>();
        // About: a leaf has room, is parted once or twice, or gets a block more.
        let end = changes.blocks.end + 4 * touched + 8;
        let blocks = if end > self.blocks.len() { (end + end / 8 - self.blocks.len()) * each } else { 0 };
        let spread = changes.places.gap(rank).is_none();
        let records = if spread { self.records.size_bytes() + changes.places.size_bytes() } else { 0 };
        blocks + records <= room
    }

    /// Adds a rule, unless the tree does not suit it or would grow by more than `room` bytes: the tree is as before then.
    ///
    /// # Panics
    /// Where the tree [takes no changes](Self::takes_changes).
    #[inline(never)]
    pub fn insert(&mut self, entry: &Entry<W>, room: usize) -> bool {
        if self.changes.as_ref().is_some_and(|changes| changes.is_full()) {
            return false;
        }
        let rule = Ternary::of(&self.records.kinds, &entry.condition);
        let credit = self.next_credit();
        let Some((part, blocks)) = self.part_for(&rule, credit) else { return false };
        if !self.fits(entry.rank, blocks, room) {
            return false;
        }
        self.spend(blocks);
        let mut changes = self.changes.take().expect("the tree takes changes");
        let gap = changes.places.gap(entry.rank).unwrap_or_else(|| {
            self.spread(&mut changes, entry.rank);
            changes.places.gap(entry.rank).expect("there is room for one more after a spread")
        });
        self.close_gap(&mut changes, gap);
        changes.places.take(gap, entry.rank);
        changes.parts[gap.place as usize] = part as u8;
        changes.set_rank(entry.rule, gap.place);
        self.records.set(gap.place, entry);
        let mut walk = Walk::new(self, part, &rule);
        while let Some(run) = walk.next(self, &rule) {
            let item = self.item(run.node, &rule, gap.place);
            if !self.add_to_leaf(run.block, item) {
                self.make_room(&mut changes.blocks, &run);
                walk.back(&run);
            }
        }
        self.changes = Some(changes);
        true
    }

    /// Takes a rule out, unless that takes too long: the tree is as before then.
    ///
    /// # Panics
    /// Where the tree [takes no changes](Self::takes_changes).
    #[inline(never)]
    pub fn remove(&mut self, rule: RuleId) -> bool {
        let known = self.changes.as_ref().expect("the tree takes changes").rank(rule);
        let Some(rank) = known else { return false };
        let ternary = Ternary::of(&self.records.kinds, &self.records.condition(rank));
        let part = self.part(rank);
        // Few wild bits are few leaves.
        let may_be_many = ternary.wild(&self.nodes[part].cut) > 8 || self.nodes.len() > self.parts;
        if may_be_many {
            let credit = self.next_credit().min(BLOCKS_MAX);
            let Some(blocks) = self.blocks_of(part, &ternary, credit) else { return false };
            self.spend(blocks);
        }
        let mut changes = self.changes.take().expect("it was there");
        let mut walk = Walk::new(self, part, &ternary);
        while let Some(run) = walk.next(self, &ternary) {
            if let Some(empty) = self.take_from_leaf(run.block, rank) {
                changes.blocks.give(empty, 1);
            }
        }
        self.records.clear(rank);
        changes.places.free(rank);
        changes.set_rank(rule, NOWHERE);
        self.changes = Some(changes);
        true
    }

    /// Returns whether rules are half as many again as when the tree was built, or leaves as much longer: build it again.
    pub fn is_outgrown(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| changes.is_outgrown())
    }

    /// Notes that rules have other rank keys, in the same order.
    pub(in crate::classify::acl) fn rename_keys(&mut self, key: impl Fn(RuleId) -> RankKey) {
        if let Some(changes) = &mut self.changes {
            changes.places.rename(|place| key(self.records.handle(place)));
        }
    }

    fn part(&self, rank: u32) -> usize {
        self.changes.as_ref().map_or(0, |changes| changes.parts[rank as usize].into())
    }

    /// Returns the part in which a rule is in fewest blocks, and their number; `None` where they are too many in each.
    fn part_for(&self, rule: &Ternary<W>, credit: usize) -> Option<(usize, usize)> {
        let wild = |part: usize| rule.wild(&self.nodes[part].cut);
        let likely = (0..self.parts).min_by_key(|part| wild(*part))?;
        let others = (0..self.parts).filter(|part| *part != likely);
        let (mut blocks_max, mut best) = (credit.min(BLOCKS_MAX), None);
        for part in std::iter::once(likely).chain(others) {
            if let Some(blocks) = self.blocks_of(part, rule, blocks_max) {
                (blocks_max, best) = (blocks, Some((part, blocks)));
            }
        }
        best
    }

    /// Returns the blocks that a change may touch.
    fn next_credit(&mut self) -> usize {
        let changes = self.changes.as_mut().expect("the tree takes changes");
        changes.credit = CREDIT_MAX.min(changes.credit + BLOCKS_PER_CHANGE);
        changes.credit
    }

    /// Notes that a change touches blocks.
    fn spend(&mut self, blocks: usize) {
        self.changes.iter_mut().for_each(|changes| changes.credit = changes.credit.saturating_sub(blocks));
    }

    /// Returns the blocks of the leaves that a rule is in, or would be, where they are fewer than `max`.
    fn blocks_of(&self, part: usize, rule: &Ternary<W>, max: usize) -> Option<usize> {
        let mut walk = Walk::new(self, part, rule);
        let mut blocks = 0;
        while let Some(run) = walk.next(self, rule) {
            blocks += leaves::count(&self.blocks, run.block);
            if blocks >= max {
                return None;
            }
        }
        Some(blocks)
    }

    /// Moves the rules between a rule's place and the free one by a place.
    fn close_gap(&mut self, changes: &mut Changes, gap: Gap) {
        let mut moved = |tree: &mut Self, from: u32, to: u32| {
            let rule = Ternary::of(&tree.records.kinds, &tree.records.condition(from));
            let part = changes.parts[from as usize];
            let mut walk = Walk::new(tree, part.into(), &rule);
            while let Some(run) = walk.next(tree, &rule) {
                tree.rename_in_leaf(run.block, from, to);
            }
            changes.set_rank(tree.records.handle(from), to);
            changes.parts[to as usize] = part;
            tree.records.move_one(from, to);
        };
        if gap.free > gap.place {
            (gap.place..gap.free).rev().for_each(|from| moved(self, from, from + 1));
        } else {
            (gap.free + 1..=gap.place).for_each(|from| moved(self, from, from - 1));
        }
    }

    /// Spreads the rules out, with room for one of this rank.
    fn spread(&mut self, changes: &mut Changes, key: RankKey) {
        let to = changes.places.spread(key);
        let capacity = changes.places.capacity();
        self.rename_all(changes.blocks.end, &to);
        self.records = self.records.moved(&to, capacity);
        let mut parts = vec![0; capacity];
        for (part, to) in changes.parts.iter().zip(&to).filter(|(_, to)| **to != NOWHERE) {
            parts[*to as usize] = *part;
        }
        changes.parts = parts;
        for rank in changes.ranks.iter_mut().filter(|rank| **rank != NOWHERE) {
            *rank = to[*rank as usize];
        }
    }
}
