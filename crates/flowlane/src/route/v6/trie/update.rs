//! Painting routes over entries, and the groups that long routes need.

use super::Sized;
use super::entry::{self, GROUP};
use super::{FIRST_BITS, HopSize, Levels, Trie, entry_bytes, hop_max, with_levels};
use crate::route::cell::Cell;
use crate::route::v6::pool::{Block, Pool};
use crate::route::{BuildError, Prefix, Rib};

/// Groups that the routes need: one for each block at the end of a level with longer routes in it.
pub(super) fn groups_needed(rib: &Rib<u128>) -> usize {
    let mut blocks: [Option<u128>; 16] = [None; 16];
    let mut needed = 0;
    for (prefix, _) in rib.walk(Prefix::ALL) {
        let depths = (FIRST_BITS..prefix.len()).step_by(8);
        for (depth, last) in depths.zip(&mut blocks) {
            let block = Some(prefix.first() >> (128 - depth));
            needed += usize::from(*last != block);
            *last = block;
        }
    }
    needed
}

/// The place of an entry: in the first level, or in a group.
#[derive(Clone, Copy)]
enum Place {
    First(usize),
    Group(usize, usize),
}

/// Where the next eight bits of `address` behind `depth` lead in a group.
fn number(address: u128, depth: u8) -> usize {
    (address >> (120 - depth)) as usize & 0xff
}

impl<E: Cell> Levels<E> {
    fn at(&self, place: Place) -> &E {
        match place {
            Place::First(number) => &self.first[number],
            Place::Group(group, number) => &self.groups[group][number],
        }
    }

    /// Paints the addresses from `first` to `last`, in all groups that are there.
    fn paint(&self, first: u128, last: u128, next_hop: u64) {
        let shift = 128 - FIRST_BITS;
        let (from, to) = ((first >> shift) as usize, (last >> shift) as usize);
        let filled = entry::of_hop(next_hop);
        for (number, place) in self.first[from..=to].iter().enumerate() {
            // Most of what a short prefix covers.
            if entry::group(place.get()).is_none() {
                place.set(filled);
                continue;
            }
            let number = (from + number) as u128;
            let block = (number << shift, number << shift | u128::MAX >> FIRST_BITS);
            let clipped = (first.max(block.0), last.min(block.1));
            self.paint_entry(place, FIRST_BITS, clipped, next_hop);
        }
    }

    fn paint_entry(&self, place: &E, depth: u8, (first, last): (u128, u128), next_hop: u64) {
        let Some(group) = entry::group(place.get()) else { return place.set(entry::of_hop(next_hop)) };
        let base = first & !(u128::MAX >> depth);
        for i in number(first, depth)..=number(last, depth) {
            let low = base | (i as u128) << (120 - depth);
            let high = low | u128::MAX.unbounded_shr(u32::from(depth) + 8);
            let clipped = (first.max(low), last.min(high));
            self.paint_entry(&self.groups[group][i], depth + 8, clipped, next_hop);
        }
    }

    /// Makes the groups that `prefix` needs; the table's answers stay as they are. Where the pool has too few,
    /// returns how many more are needed, and does nothing.
    fn deepen(&self, pool: &mut Pool, prefix: Prefix<u128>) -> Result<(), usize> {
        let (mut place, mut depth) =
            (Place::First((prefix.first() >> (128 - FIRST_BITS)) as usize), FIRST_BITS);
        while depth < prefix.len() {
            let Some(group) = entry::group(self.at(place).get()) else { break };
            (place, depth) = (Place::Group(group, number(prefix.first(), depth)), depth + 8);
        }
        let missing = usize::from(prefix.len().saturating_sub(depth).div_ceil(8));
        let filling = self.at(place).get();
        let chain: Vec<Block> = (0..missing).map_while(|_| pool.take(0)).collect();
        if chain.len() < missing {
            let short = missing - chain.len();
            chain.into_iter().for_each(|block| pool.give_back(block));
            return Err(short);
        }
        // The innermost group first, so that each is whole when it can be found.
        let mut below = None;
        for (i, block) in chain.iter().enumerate().rev() {
            let group = &self.groups[block.start as usize];
            group.iter().for_each(|place| place.set(filling));
            if let Some(below) = below {
                group[number(prefix.first(), depth + 8 * i as u8)].set(entry::of_group(below));
            }
            below = Some(block.start);
        }
        if let Some(below) = below {
            self.at(place).set(entry::of_group(below));
        }
        Ok(())
    }

    /// Takes out the outermost group on the way to `prefix` that no route needs any more.
    fn flatten(&self, pool: &mut Pool, rib: &Rib<u128>, prefix: Prefix<u128>, default: u64) {
        let (mut place, mut depth) =
            (Place::First((prefix.first() >> (128 - FIRST_BITS)) as usize), FIRST_BITS);
        while depth < prefix.len() {
            let Some(group) = entry::group(self.at(place).get()) else { return };
            let block = Prefix::truncated(prefix.first(), depth);
            if !rib.walk(block).any(|(route, _)| route.len() > depth) {
                let covering = rib.get(block).or_else(|| Some(rib.covering(block)?.1));
                self.at(place).set(entry::of_hop(covering.unwrap_or(default)));
                return self.unlink(pool, group);
            }
            (place, depth) = (Place::Group(group, number(prefix.first(), depth)), depth + 8);
        }
    }

    fn unlink(&self, pool: &mut Pool, group: usize) {
        let below = self.groups[group].iter().filter_map(|place| entry::group(place.get()));
        below.for_each(|group| self.unlink(pool, group));
        pool.unlink(Block { start: group as u32, order: 0 });
    }
}

impl Trie {
    /// Paints all routes into an empty table.
    pub(super) fn fill(&mut self, rib: &Rib<u128>) -> Result<(), BuildError> {
        let default = self.fitting(self.config.default_next_hop)?;
        if default != 0 {
            with_levels!(self.table, levels => levels.paint(0, u128::MAX, default));
        }
        // Shorter routes come before those inside them.
        for (prefix, next_hop) in rib.walk(Prefix::ALL) {
            let next_hop = self.fitting(next_hop)?;
            self.deepen(prefix)?;
            with_levels!(self.table, levels => levels.paint(prefix.first(), prefix.last(), next_hop));
        }
        Ok(())
    }

    /// Repairs what `changed` covers.
    pub(super) fn repaint(&mut self, rib: &Rib<u128>, changed: Prefix<u128>) -> Result<(), BuildError> {
        let default = self.config.default_next_hop;
        match rib.get(changed) {
            Some(next_hop) => {
                self.fitting(next_hop)?;
                self.deepen(changed)?;
            }
            None => {
                with_levels!(self.table, levels => levels.flatten(&mut self.pool, rib, changed, default));
                self.pool.stamp(self.table.epochs.stamp());
            }
        }
        with_levels!(self.table, levels => {
            rib.spans(changed, |first, last, next_hop| {
                // A span that does not end blocks of the table is in one that has no routes of its own.
                levels.paint(first, last, next_hop.unwrap_or(default));
            });
        });
        if self.pool.is_due() {
            self.pool.collect(&self.table.epochs);
        }
        Ok(())
    }

    fn deepen(&mut self, prefix: Prefix<u128>) -> Result<(), BuildError> {
        let deepened = with_levels!(self.table, levels => levels.deepen(&mut self.pool, prefix));
        deepened.map_err(|missing| {
            let groups = self.pool.used() + missing;
            let needed = self.first_bytes + groups * entry_bytes(self.config.hop_size) * GROUP;
            if needed <= self.config.memory_max {
                let (max, hop_size) = (self.pool.units_max(), self.config.hop_size);
                return BuildError::TooManyGroups { needed: groups, max, hop_size };
            }
            BuildError::NeedsMemory { needed, max: self.config.memory_max }
        })
    }

    fn fitting(&self, next_hop: u64) -> Result<u64, BuildError> {
        let (hop_size, max): (HopSize, u64) = (self.config.hop_size, hop_max(self.config.hop_size));
        if next_hop > max {
            return Err(BuildError::HopTooLarge { next_hop, max, hop_size });
        }
        Ok(next_hop)
    }
}
