//! Which units of a table's memory are taken: a buddy allocator, and what waits until no reader can see it.
//!
//! Blocks are powers of two of units, aligned to their size. A block that is given back joins its buddy, and
//! the free block at the lowest place is taken first: blocks in use stay together at the beginning, and
//! churn leaves nothing behind.

use std::collections::VecDeque;

use crate::route::epoch::Epochs;

/// The largest block has 2¹⁵ units.
const ORDERS: usize = 16;

/// Pieces that wait before the epochs of readers are looked at, and units that do: 16 KiB.
const PATIENCE: usize = 256;
const PATIENCE_UNITS: usize = 2048;

/// A set of numbers of which the least is found at once: bits, and bits that say which words have some.
#[derive(Clone, Debug)]
struct Places {
    levels: Vec<Vec<u64>>,
}

impl Places {
    fn new(len: usize) -> Self {
        let mut levels = vec![vec![0; len.div_ceil(64).max(1)]];
        while let Some(len) = levels.last().map(Vec::len).filter(|len| *len > 1) {
            levels.push(vec![0; len.div_ceil(64)]);
        }
        Self { levels }
    }

    fn insert(&mut self, mut at: usize) {
        for level in &mut self.levels {
            level[at / 64] |= 1 << (at % 64);
            at /= 64;
        }
    }

    fn remove(&mut self, mut at: usize) {
        for level in &mut self.levels {
            level[at / 64] &= !(1 << (at % 64));
            if level[at / 64] != 0 {
                break;
            }
            at /= 64;
        }
    }

    fn contains(&self, at: usize) -> bool {
        self.levels[0].get(at / 64).is_some_and(|word| word >> (at % 64) & 1 != 0)
    }

    fn first(&self) -> Option<usize> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level[at];
            if word == 0 {
                return None;
            }
            at = 64 * at + word.trailing_zeros() as usize;
        }
        Some(at)
    }
}

/// A block of `1 << order` units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) start: u32,
    pub(super) order: u8,
}

impl Block {
    pub(super) fn units(self) -> usize {
        1 << self.order
    }
}

/// The units of a table.
#[derive(Debug)]
pub(super) struct Pool {
    /// By order: numbers of free blocks.
    free: Vec<Places>,
    units_max: usize,
    used: usize,
    /// Blocks unlinked by the change that is being made.
    unlinked: Vec<Block>,
    /// Blocks unlinked before, with their stamps.
    waiting: VecDeque<(u64, Block)>,
    waiting_units: usize,
    /// The number of waiting blocks from which on readers are checked, and that of their units.
    look_at: usize,
    look_at_units: usize,
}

impl Pool {
    /// `units_max` units, all free.
    pub(super) fn new(units_max: usize) -> Self {
        let free = (0..ORDERS).map(|order| Places::new((units_max >> order) + 1)).collect();
        let mut pool = Self {
            free,
            units_max,
            used: 0,
            unlinked: Vec::new(),
            waiting: VecDeque::new(),
            waiting_units: 0,
            look_at: PATIENCE,
            look_at_units: PATIENCE_UNITS,
        };
        let mut at = 0;
        while at < units_max {
            let fits = (units_max - at).ilog2().min(ORDERS as u32 - 1);
            let order = fits.min(at.trailing_zeros()) as usize;
            pool.free[order].insert(at >> order);
            at += 1 << order;
        }
        pool
    }

    /// Units taken, waiting ones among them.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Units in all.
    pub(super) fn units_max(&self) -> usize {
        self.units_max
    }

    /// Takes a block of `1 << order` units.
    pub(super) fn take(&mut self, order: u8) -> Option<Block> {
        let (mut from, place) =
            (order.into()..ORDERS).find_map(|order| Some((order, self.free[order].first()?)))?;
        self.free[from].remove(place);
        let start = place << from;
        while from > order.into() {
            from -= 1;
            self.free[from].insert((start >> from) + 1);
        }
        let block = Block { start: start as u32, order };
        self.used += block.units();
        Some(block)
    }

    /// Gives back a block that no reader has seen.
    pub(super) fn give_back(&mut self, block: Block) {
        self.used -= block.units();
        let (mut at, mut order) = (block.start as usize >> block.order, usize::from(block.order));
        while order + 1 < ORDERS && self.free[order].contains(at ^ 1) {
            self.free[order].remove(at ^ 1);
            at >>= 1;
            order += 1;
        }
        self.free[order].insert(at);
    }

    /// Frees a block that readers may see, once they have left.
    pub(super) fn unlink(&mut self, block: Block) {
        self.unlinked.push(block);
    }

    /// A change has ended: what it unlinked gets this stamp.
    pub(super) fn stamp(&mut self, stamp: u64) {
        self.waiting_units += self.unlinked.iter().map(|block| block.units()).sum::<usize>();
        self.waiting.extend(self.unlinked.drain(..).map(|block| (stamp, block)));
    }

    /// Returns whether so much waits that [`collect`](Self::collect) is worth its time.
    pub(super) fn is_due(&self) -> bool {
        self.waiting.len() >= self.look_at || self.waiting_units >= self.look_at_units
    }

    /// Gives back what no reader sees any more.
    pub(super) fn collect(&mut self, epochs: &Epochs) {
        let oldest = epochs.oldest();
        while let Some((_, block)) = self.waiting.pop_front_if(|(stamp, _)| *stamp < oldest) {
            self.waiting_units -= block.units();
            self.give_back(block);
        }
        self.look_at = self.waiting.len() + PATIENCE;
        self.look_at_units = self.waiting_units + PATIENCE_UNITS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_come_back_whole() {
        let mut pool = Pool::new(1000);
        let mut random = 1u32;
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random >> 16
        };
        let (mut taken, mut owner) = (Vec::new(), vec![false; 1000]);
        for _ in 0..20_000 {
            if next() % 2 == 0 {
                let Some(block) = pool.take((next() % 6) as u8) else { continue };
                let units = &mut owner[block.start as usize..][..block.units()];
                assert!(units.iter().all(|taken| !taken), "{block:?} overlaps another");
                units.fill(true);
                taken.push(block);
            } else if !taken.is_empty() {
                let block = taken.swap_remove(next() as usize % taken.len());
                owner[block.start as usize..][..block.units()].fill(false);
                pool.give_back(block);
            }
            assert_eq!(pool.used(), owner.iter().filter(|taken| **taken).count());
        }
        taken.into_iter().for_each(|block| pool.give_back(block));
        assert_eq!(pool.used(), 0);
        // 512, 256, 128, 64, 32 and 8 units: as at first.
        let orders = [9, 8, 7, 6, 5, 3];
        assert!(orders.iter().all(|order| pool.take(*order).is_some()));
        assert_eq!((pool.used(), pool.take(0)), (1000, None));
    }

    #[test]
    fn blocks_that_a_reader_may_see_are_not_reused() {
        let (epochs, mut pool) = (Epochs::default(), Pool::new(1));
        let reader = epochs.join();
        let block = pool.take(0).expect("a free unit");
        let inside = reader.enter();
        pool.unlink(block);
        pool.stamp(epochs.stamp());
        pool.collect(&epochs);
        assert_eq!(pool.take(0), None);
        drop(inside);
        pool.collect(&epochs);
        assert_eq!(pool.take(0), Some(block));
    }
}
