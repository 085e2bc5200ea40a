//! Where the rule of a handle is: an array by handle for small ones, a hash table for others.
//!
//! Handles that are counted up, as most are, take four bytes each in the array, which stays in nearer caches than a
//! hash table of eight bytes a cell, and one reads or writes a place there without a search.

use super::{copied, resized};
use crate::hash::multilinear::Multilinear;
use crate::memory::{Memory, prefetch};

/// Cells in use, in percent, at most.
const LOAD_MAX_PERCENT: usize = 60;

/// The array has at most so many places for a handle of the table, in use or not: no more bytes than cells would take.
const PLACES_MAX: usize = 4;

/// The array has at least so many.
const PLACES_MIN: usize = 64;

/// Handles and the numbers of their records, which are not 0.
#[derive(Debug)]
pub(super) struct Ids {
    /// By handle; 0: none.
    array: Memory<u32>,
    /// Of handles that are beyond the array: handle in the upper half, number in the lower; 0: free.
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
    /// Room for these handles, and an eighth more.
    pub(super) fn with_room(handles: impl Iterator<Item = u32> + Clone, seed: u64) -> Self {
        let hash = Multilinear::new(seed);
        // Numbers with no structure, whatever the seed: a short one would put handles in rows.
        let multiplier = u64::from(hash.multiplier(0)) << 32 | u64::from(hash.multiplier(1)) | 1;
        let [places, cells] = Self::room_for(handles);
        let (array, cells) = (Memory::zeroed(places), Memory::zeroed(cells));
        Self { array, cells, multiplier, len: 0, in_cells: 0 }
    }

    /// Places and cells for these handles.
    fn room_for(handles: impl Iterator<Item = u32> + Clone) -> [usize; 2] {
        let all = handles.clone().count();
        let end = (all + all / 8) * PLACES_MAX;
        let small = handles.clone().filter(|id| (*id as usize) < end);
        let places = small.clone().max().map_or(0, |id| id as usize + 1);
        [(places + places / 8).max(PLACES_MIN), cells_for((all - small.count()) * 9 / 8)]
    }

    /// Bytes of room for these handles.
    pub(super) fn bytes_for(handles: impl Iterator<Item = u32> + Clone) -> usize {
        let [places, cells] = Self::room_for(handles);
        places * size_of::<u32>() + cells * size_of::<u64>()
    }

    pub(super) fn bytes(&self) -> usize {
        self.array.size_bytes() + self.cells.size_bytes()
    }

    /// Places and cells that there are once this handle has joined.
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

    /// Bytes that this handle takes beyond what there is.
    pub(super) fn growth_bytes(&self, id: u32) -> usize {
        let [places, cells] = self.room_with(id);
        (places - self.array.len()) * size_of::<u32>() + (cells - self.cells.len()) * size_of::<u64>()
    }

    #[inline]
    fn home(&self, id: u32) -> usize {
        // Multiply-shift hashing (Dietzfelbinger and others 1997), by a secret number.
        (u64::from(id).wrapping_mul(self.multiplier) >> 32) as usize & (self.cells.len() - 1)
    }

    /// Asks for where a handle is first looked for.
    #[inline]
    pub(super) fn prefetch(&self, id: u32) {
        if (id as usize) < self.array.len() {
            prefetch(&self.array, id as usize);
        } else {
            prefetch(&self.cells, self.home(id));
        }
    }

    /// The cell of a handle, or the free one where it would be.
    #[inline]
    fn cell(&self, id: u32) -> usize {
        let wrap = self.cells.len() - 1;
        let mut at = self.home(id);
        while self.cells[at] != 0 && (self.cells[at] >> 32) as u32 != id {
            at = (at + 1) & wrap;
        }
        at
    }

    /// The number of a handle's record.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<u32> {
        let number = match self.array.get(id as usize) {
            Some(number) => *number,
            None => self.cells[self.cell(id)] as u32,
        };
        (number != 0).then_some(number)
    }

    /// Adds a handle that is not there.
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

    /// Makes room; the array takes in what was beyond it.
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

    /// Removes a handle; gives the number that it had.
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
        // Cells behind that were looked for from here on, or before, come forward.
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
            // Small ones in rows, and those far between, up to the largest that a rule may have.
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
