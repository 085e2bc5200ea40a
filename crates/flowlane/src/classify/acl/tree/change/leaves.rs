//! Leaves that change: rules come into blocks and leave them, and leaves that are full are parted or get another block.

use std::collections::BTreeSet;

use super::super::Tree;
use super::super::leaf::{Block, EMPTY, MORE, NONE, RANKS, RULES, goes_on, rank, set};
use super::super::range_filter::{HIGH, RangeFilter, TESTS_MAX};
use super::walk::{Run, first_from};
use crate::classify::acl::tree::build::ternary::Ternary;

/// A rule in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    value: u32,
    mask: u32,
    pub(super) rank: u32,
    /// The ends that range filters test.
    ends: [[u32; 2]; TESTS_MAX],
}

/// Which blocks have leaves.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    /// Blocks up to here are a leaf's, or free.
    pub(super) end: usize,
    /// Free rows of blocks by their length.
    free: Vec<BTreeSet<u32>>,
}

impl Blocks {
    fn take(&mut self, count: usize) -> Option<u32> {
        let longer = self.free.iter().enumerate().skip(count);
        let (blocks, _) = longer.into_iter().find(|(_, rows)| !rows.is_empty())?;
        let first = self.free[blocks].pop_first()?;
        self.give(first + count as u32, blocks - count);
        Some(first)
    }

    /// Takes the block behind a row, so that it gets longer where it is.
    fn lengthen(&mut self, first: u32, count: usize) -> bool {
        self.free.get_mut(1).is_some_and(|single| single.remove(&(first + count as u32)))
    }

    pub(super) fn size_bytes(&self) -> usize {
        // About: nodes of a set are half full.
        self.free.iter().map(|rows| 2 * rows.len() * size_of::<u32>()).sum()
    }

    pub(super) fn give(&mut self, first: u32, count: usize) {
        if count > 0 {
            self.free.resize_with(self.free.len().max(count + 1), BTreeSet::new);
            self.free[count].insert(first);
        }
    }
}

/// Returns the rules of a block: the first place that is empty.
#[inline]
fn len(block: &Block) -> usize {
    block[RANKS..RANKS + RULES].iter().position(|rank| *rank == NONE).unwrap_or(RULES)
}

/// Returns the place of a rank in a block: of the first that is not better.
#[inline]
fn place(block: &Block, rank: u32) -> usize {
    block[RANKS..RANKS + RULES].iter().filter(|other| **other < rank).count()
}

/// Returns the number of blocks of a leaf.
pub(super) fn count(blocks: &[Block], first: u32) -> usize {
    1 + blocks[first as usize..].iter().take_while(|block| goes_on(block).is_some()).count()
}

impl<const W: usize> Tree<W> {
    /// Makes the item of a rule for the leaves below a node.
    pub(super) fn item(&self, node: u32, rule: &Ternary<W>, rank: u32) -> Item {
        let sign = &self.nodes[node as usize].sign;
        let (value, mask) = (self.gather(sign, &rule.value), self.gather(sign, &rule.mask));
        let record = self.records.record(rank);
        let mut ends = [[0; 2]; TESTS_MAX];
        for (ends, filter) in ends.iter_mut().zip(&self.range_filters) {
            *ends = [record.low[filter.word], record.high[filter.word]];
        }
        Item { value, mask, rank, ends }
    }

    fn read(&self, block: usize, i: usize) -> Item {
        let of = &self.blocks[block];
        let mut ends = [[0; 2]; TESTS_MAX];
        for (ends, filter) in ends.iter_mut().zip(&self.range_filters) {
            *ends = [filter.ends[block][i], filter.ends[block][HIGH + i]];
        }
        Item { value: of[i], mask: of[RANKS / 2 + i], rank: of[RANKS + i], ends }
    }

    fn write(&mut self, block: usize, i: usize, item: &Item) {
        set(&mut self.blocks[block], i, item.value, item.mask, item.rank);
        for (filter, ends) in self.range_filters.iter_mut().zip(item.ends) {
            [filter.ends[block][i], filter.ends[block][HIGH + i]] = ends;
        }
    }

    /// Moves the rules `from..end` of a block by one place, up or down.
    fn shift(&mut self, block: usize, from: usize, end: usize, up: bool) {
        let to = if up { from + 1 } else { from - 1 };
        let rows = &mut self.blocks[block];
        (0..3).for_each(|row| rows.copy_within(16 * row + from..16 * row + end, 16 * row + to));
        for RangeFilter { ends, .. } in &mut self.range_filters {
            let ends = &mut ends[block];
            (0..2).for_each(|row| ends.copy_within(HIGH * row + from..HIGH * row + end, HIGH * row + to));
        }
    }

    /// Empties a place of a block.
    fn clear(&mut self, block: usize, i: usize) {
        let rows = &mut self.blocks[block];
        (0..3).for_each(|row| rows[16 * row + i] = EMPTY[16 * row + i]);
    }

    /// Says in a block which rank the next begins with.
    fn note_next(&mut self, block: usize) {
        self.blocks[block][RANKS + RULES] = MORE | rank(&self.blocks[block + 1], 0);
    }

    /// Adds a rule to a leaf; returns whether there was room.
    pub(super) fn add_to_leaf(&mut self, first: u32, item: Item) -> bool {
        let first = first as usize;
        let last = first + count(&self.blocks, first as u32) - 1;
        if len(&self.blocks[last]) == RULES {
            return false;
        }
        let mut item = item;
        for block in first..last {
            let at = place(&self.blocks[block], item.rank);
            if at < RULES {
                let carried = self.read(block, RULES - 1);
                self.shift(block, at, RULES - 1, true);
                self.write(block, at, &item);
                item = carried;
            }
        }
        let (at, end) = (place(&self.blocks[last], item.rank), len(&self.blocks[last]));
        self.shift(last, at, end, true);
        self.write(last, at, &item);
        (first..last).for_each(|block| self.note_next(block));
        true
    }

    /// Takes a rule out of a leaf; returns the block that became empty.
    pub(super) fn take_from_leaf(&mut self, first: u32, rank: u32) -> Option<u32> {
        let first = first as usize;
        let last = first + count(&self.blocks, first as u32) - 1;
        let block = (first..=last).find(|block| self.blocks[*block][RANKS..RANKS + RULES].contains(&rank))?;
        let (at, rules) = (place(&self.blocks[block], rank), len(&self.blocks[last]));
        self.shift(block, at + 1, len(&self.blocks[block]), false);
        for block in block..last {
            let next = self.read(block + 1, 0);
            self.write(block, RULES - 1, &next);
            self.shift(block + 1, 1, len(&self.blocks[block + 1]), false);
        }
        self.clear(last, rules - 1);
        let is_empty = last > first && rules == 1;
        let end = if is_empty { last - 1 } else { last };
        (first..end).for_each(|block| self.note_next(block));
        if is_empty {
            self.blocks[end][RANKS + RULES] = NONE;
        }
        is_empty.then_some(last as u32)
    }

    /// Gives a rule of a leaf another rank, which is as good among those of the leaf.
    pub(super) fn rename_in_leaf(&mut self, first: u32, from: u32, to: u32) {
        let mut at = first as usize;
        loop {
            let block = &mut self.blocks[at];
            if let Some(i) = block[RANKS..RANKS + RULES].iter().position(|rank| *rank == from) {
                block[RANKS + i] = to;
                if i == 0 && at > first as usize {
                    self.note_next(at - 1);
                }
                return;
            }
            if goes_on(block).is_none() {
                return;
            }
            at += 1;
        }
    }

    /// Returns the rules of a leaf.
    fn items(&self, first: u32) -> Vec<Item> {
        let blocks = first as usize..first as usize + count(&self.blocks, first);
        blocks
            .flat_map(|block| (0..len(&self.blocks[block])).map(move |i| (block, i)))
            .map(|(block, i)| self.read(block, i))
            .collect()
    }

    /// Writes a leaf into these blocks.
    fn write_leaf(&mut self, first: u32, items: &[Item], blocks: usize) {
        for i in 0..blocks {
            let block = first as usize + i;
            self.blocks[block] = EMPTY;
            for (place, item) in items[i * RULES..].iter().take(RULES).enumerate() {
                self.write(block, place, item);
            }
            if let Some(next) = items.get((i + 1) * RULES) {
                self.blocks[block][RANKS + RULES] = MORE | next.rank;
            }
        }
    }

    /// Returns the first of this number of blocks in a row.
    fn room(&mut self, state: &mut Blocks, blocks: usize) -> u32 {
        if let Some(first) = state.take(blocks) {
            return first;
        }
        let first = state.end;
        state.end += blocks;
        if state.end > self.blocks.len() {
            self.reserve_blocks(state.end + state.end / 8);
        }
        first as u32
    }

    /// Moves the blocks to where there is room for this number of them.
    pub(super) fn reserve_blocks(&mut self, blocks: usize) {
        self.blocks = self.blocks.resized(blocks);
        for filter in &mut self.range_filters {
            filter.ends = filter.ends.resized(blocks);
        }
    }

    /// Leads the entries of a run to another leaf.
    fn point(&mut self, run: &Run, start: u32, end: u32, block: u32) {
        let entries = run.base + start..run.base + end;
        self.table[entries.start as usize..entries.end as usize].fill(block);
    }

    /// Makes room in a leaf that is full: parts its entries, where that parts its rules, too; else adds a block.
    pub(super) fn make_room(&mut self, state: &mut Blocks, run: &Run) {
        let items = self.items(run.block);
        let blocks = items.len().div_ceil(RULES);
        if run.end - run.start > 1 {
            // At the highest bit that tells entries of the run apart: rules say more about it than about others.
            let bit = (run.start ^ (run.end - 1)).ilog2();
            let middle = (run.end - 1) >> bit << bit;
            let part = |start: u32, end: u32| -> Vec<Item> {
                let is_in = |item: &&Item| self.is_in(run, item.rank, start, end);
                items.iter().filter(is_in).copied().collect()
            };
            let (left, right) = (part(run.start, middle), part(middle, run.end));
            if left.len().min(right.len()) <= items.len() * 3 / 4 {
                let (left_blocks, right_blocks) =
                    (left.len().div_ceil(RULES).max(1), right.len().div_ceil(RULES).max(1));
                let other = self.room(state, right_blocks);
                self.write_leaf(other, &right, right_blocks);
                self.point(run, middle, run.end, other);
                self.write_leaf(run.block, &left, left_blocks);
                state.give(run.block + left_blocks as u32, blocks - left_blocks);
                return;
            }
        }
        let longer = if state.lengthen(run.block, blocks) { run.block } else { self.room(state, blocks + 1) };
        if longer != run.block {
            self.write_leaf(longer, &items, blocks);
            self.point(run, run.start, run.end, longer);
            state.give(run.block, blocks);
        }
        // The last block is empty, and begins with no rank.
        self.blocks[longer as usize + blocks] = EMPTY;
        self.blocks[longer as usize + blocks - 1][RANKS + RULES] = MORE | NONE;
    }

    /// Returns whether a rule is in one of some entries of a node.
    fn is_in(&self, run: &Run, rank: u32, start: u32, end: u32) -> bool {
        let rule = Ternary::of(&self.records.kinds, &self.records.condition(rank));
        let cut = &self.nodes[run.node as usize].cut;
        let (value, mask) = (self.gather(cut, &rule.value), self.gather(cut, &rule.mask));
        first_from(start, value, mask).is_some_and(|at| at < end)
    }

    /// Renames the ranks of all leaves.
    pub(super) fn rename_all(&mut self, blocks: usize, to: &[u32]) {
        for block in &mut self.blocks[..blocks] {
            for rank in &mut block[RANKS..RANKS + RULES] {
                *rank = to.get(*rank as usize).copied().unwrap_or(*rank);
            }
            if let Some(next) = goes_on(block) {
                block[RANKS + RULES] = MORE | to.get(next as usize).copied().unwrap_or(next);
            }
        }
    }
}
