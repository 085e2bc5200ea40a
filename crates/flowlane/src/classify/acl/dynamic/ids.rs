//! The index from rule numbers to records: an array for small rule numbers, a hash table for others.
//!
//! Rule numbers that are counted up, as most are, take four bytes each in the array, which stays in nearer caches than a
//! hash table of eight bytes a cell, and need no search.

use super::{copied, resized};
use crate::hash::multilinear::Multilinear;
use crate::memory::{Memory, prefetch};

/// The highest load of the hash table, in percent.
const LOAD_MAX_PERCENT: usize = 60;

/// Most elements of the array for each rule of the table: no more bytes than cells would take.
const PLACES_MAX: usize = 4;

/// Least elements of the array.
const PLACES_MIN: usize = 64;

/// Rule numbers and their records, whose numbers are not 0.
#[derive(Debug)]
pub(super) struct Ids {
    /// The record by rule number; 0: none.
    array: Memory<u32>,
    /// Cells for rule numbers beyond the array: rule number in the upper half, record in the lower; 0: free.
    cells: Memory<u64>,
    multiplier: u64,
    len: usize,
    in_cells: usize,
}

impl Clone for Ids {
    fn clone(&self) -> Self {
        Self { array: copied(&self.array), cells: copied(&self.cells), ..*self }
    }
}

impl Ids {
    /// Creates an index with room for these rule numbers, and an eighth more.
    pub(super) fn with_room(handles: impl Iterator<Item = u32> + Clone, seed: u64) -> Self {
        let hash = Multilinear::new(seed);
        // Mixed, since a seed of few bits would put rule numbers in rows.
        let multiplier = u64::from(hash.multiplier(0)) << 32 | u64::from(hash.multiplier(1)) | 1;
        let [places, cells] = Self::room_for(handles);
        let (array, cells) = (Memory::zeroed(places), Memory::zeroed(cells));
        Self { array, cells, multiplier, len: 0, in_cells: 0 }
    }

    /// Returns the elements and cells that these rule numbers need.
    fn room_for(handles: impl Iterator<Item = u32> + Clone) -> [usize; 2] {
        let all = handles.clone().count();
        let end = (all + all / 8) * PLACES_MAX;
        let small = handles.clone().filter(|id| (*id as usize) < end);
        let places = small.clone().max().map_or(0, |id| id as usize + 1);
        [(places + places / 8).max(PLACES_MIN), cells_for((all - small.count()) * 9 / 8)]
    }

    /// Returns the bytes that these rule numbers need.
    pub(super) fn bytes_for(handles: impl Iterator<Item = u32> + Clone) -> usize {
        let [places, cells] = Self::room_for(handles);
        places * size_of::<u32>() + cells * size_of::<u64>()
    }

    pub(super) fn bytes(&self) -> usize {
        self.array.size_bytes() + self.cells.size_bytes()
    }

    /// Returns the elements and cells after an insertion of this rule number.
    #[inline]
    fn room_with(&self, id: u32) -> [usize; 2] {
        let (id, places, cells) = (id as usize, self.array.len(), self.cells.len());
        if id < places {
            [places, cells]
        } else if id < (self.len + 1) * PLACES_MAX {
            [(id + 1).max(places + places / 2), cells]
        } else {
            [places, if cells_for(self.in_cells + 1) <= cells { cells } else { 2 * cells }]
        }
    }

    /// Returns the bytes that an insertion of this rule number adds.
    pub(super) fn growth_bytes(&self, id: u32) -> usize {
        let [places, cells] = self.room_with(id);
        (places - self.array.len()) * size_of::<u32>() + (cells - self.cells.len()) * size_of::<u64>()
    }

    #[inline]
    fn home(&self, id: u32) -> usize {
        // Multiply-shift hashing (Dietzfelbinger and others 1997), by a secret number.
        (u64::from(id).wrapping_mul(self.multiplier) >> 32) as usize & (self.cells.len() - 1)
    }

    /// Prefetches the home of a rule number.
    #[inline]
    pub(super) fn prefetch(&self, id: u32) {
        if (id as usize) < self.array.len() {
            prefetch(&self.array, id as usize);
        } else {
            prefetch(&self.cells, self.home(id));
        }
    }

    /// Finds the cell of a rule number, or the free cell where it would be.
    #[inline]
    fn cell(&self, id: u32) -> usize {
        let wrap = self.cells.len() - 1;
        let mut at = self.home(id);
        while self.cells[at] != 0 && (self.cells[at] >> 32) as u32 != id {
            at = (at + 1) & wrap;
        }
        at
    }

    /// Returns the record of a rule number.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<u32> {
        let number = match self.array.get(id as usize) {
            Some(number) => *number,
            None => self.cells[self.cell(id)] as u32,
        };
        (number != 0).then_some(number)
    }

    /// Adds a rule number that must not be in the index.
    pub(super) fn insert(&mut self, id: u32, number: u32) {
        if self.growth_bytes(id) > 0 {
            self.grow(self.room_with(id));
        }
        self.len += 1;
        if let Some(place) = self.array.get_mut(id as usize) {
            *place = number;
            return;
        }
        self.in_cells += 1;
        let at = self.cell(id);
        self.cells[at] = u64::from(id) << 32 | u64::from(number);
    }

    /// Grows; the array takes over the cells that are within it now.
    fn grow(&mut self, [places, cells]: [usize; 2]) {
        self.array = resized(&self.array, places);
        let old = std::mem::replace(&mut self.cells, Memory::zeroed(cells));
        self.in_cells = 0;
        for cell in old.iter().filter(|c| **c != 0) {
            let id = (cell >> 32) as u32;
            if let Some(place) = self.array.get_mut(id as usize) {
                *place = *cell as u32;
                continue;
            }
            self.in_cells += 1;
            let at = self.cell(id);
            self.cells[at] = *cell;
        }
    }

    /// Removes a rule number and returns its record.
    #[inline]
    pub(super) fn remove(&mut self, id: u32) -> Option<u32> {
        let number = match self.array.get_mut(id as usize) {
            Some(place) => std::mem::take(place),
            None => self.remove_cell(id),
        };
        self.len -= usize::from(number != 0);
        (number != 0).then_some(number)
    }

    fn remove_cell(&mut self, id: u32) -> u32 {
        let wrap = self.cells.len() - 1;
        let mut free = self.cell(id);
        let number = self.cells[free] as u32;
        if number == 0 {
            return 0;
        }
        self.cells[free] = 0;
        self.in_cells -= 1;
        // Move forward the cells whose home is here or before.
        let mut at = free;
        loop {
            at = (at + 1) & wrap;
            let cell = self.cells[at];
            if cell == 0 {
                return number;
            }
            let home = self.home((cell >> 32) as u32);
            if at.wrapping_sub(home) & wrap >= at.wrapping_sub(free) & wrap {
                self.cells[free] = cell;
                self.cells[at] = 0;
                free = at;
            }
        }
    }
}

fn cells_for(handles: usize) -> usize {
    (handles * 100 / LOAD_MAX_PERCENT + 1).next_power_of_two().max(16)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::generate::Random;

    #[test]
    fn handles_are_found_until_they_are_removed() {
        let mut random = Random::new(1);
        let mut ids = Ids::with_room([3, 700_000, 5].into_iter(), random.bits());
        let mut expected = HashMap::new();
        for _ in 0..20_000 {
            // Small consecutive rule numbers, and sparse ones up to the largest.
            let mut draw = || match random.below(700) as u32 {
                row @ 0..350 => row,
                far => u32::MAX - 1 - far * 5_000_011 % 3_000_000_000,
            };
            let (id, other) = (draw(), draw());
            if random.chance(0.5) {
                assert_eq!(ids.remove(id), expected.remove(&id));
            } else if ids.find(id).is_none() {
                let number = random.bits() as u32 | 1;
                let bytes = ids.bytes() + ids.growth_bytes(id);
                ids.insert(id, number);
                assert!(ids.bytes() <= bytes + 128, "{} of {bytes} bytes", ids.bytes());
                assert_eq!(expected.insert(id, number), None);
            }
            assert_eq!(ids.find(other), expected.get(&other).copied());
        }
        assert_eq!(ids.len, expected.len());
        assert!(ids.in_cells > 0 && ids.in_cells < ids.len);
    }
}
