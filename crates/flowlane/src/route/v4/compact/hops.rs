//! Which next hops the table knows: each once, by index, with a count of the slots and runs that name it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Release;

use crate::route::hop_hash::ByNextHop;

/// Most different next hops: the largest code of two bytes says that there is a long chunk.
pub const NEXT_HOPS_MAX: usize = u16::MAX as usize;

#[derive(Debug)]
pub(super) struct Hops {
    max: usize,
    index: HashMap<u64, u16, ByNextHop>,
    /// For each index: the next hop, and how many places name it.
    counted: Vec<(u64, u32)>,
    free: Vec<u16>,
    /// No longer named, oldest first, with the stamps of their last readers.
    retired: VecDeque<(u64, u16)>,
    /// Lost their last place in the update under way, or have not got their first.
    unnamed: Vec<u16>,
}

impl Hops {
    /// Creates an empty list with room for this number of next hops.
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            index: HashMap::default(),
            counted: Vec::new(),
            free: Vec::new(),
            retired: VecDeque::new(),
            unnamed: Vec::new(),
        }
    }

    /// How many there may be.
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// Returns the index of a next hop; a new one has no place yet. None: there are `max`.
    pub(super) fn index_of(&mut self, next_hop: u64, max: usize, shared: &[AtomicU64]) -> Option<u16> {
        if let Some(index) = self.index.get(&next_hop) {
            return Some(*index);
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.counted.len() < max => {
                self.counted.push((0, 0));
                self.counted.len() as u16 - 1
            }
            None => return None,
        };
        self.counted[usize::from(index)] = (next_hop, 0);
        shared[usize::from(index)].store(next_hop, Release);
        self.index.insert(next_hop, index);
        self.unnamed.push(index);
        Some(index)
    }

    /// Adds uses of a next hop.
    pub(super) fn name(&mut self, index: u16, places: u32) {
        self.counted[usize::from(index)].1 += places;
    }

    /// Removes uses of a next hop.
    pub(super) fn unname(&mut self, index: u16, places: u32) {
        let count = &mut self.counted[usize::from(index)].1;
        *count -= places;
        if *count == 0 {
            self.unnamed.push(index);
        }
    }

    /// Ends an update: next hops without a place are forgotten. `stamp` is that of what has left the table.
    pub(super) fn settle(&mut self, stamp: impl FnOnce() -> u64) {
        if self.unnamed.is_empty() {
            return;
        }
        let stamp = stamp();
        for index in std::mem::take(&mut self.unnamed) {
            let (next_hop, count) = self.counted[usize::from(index)];
            // Once only, though it may have lost its last place more than once.
            if count == 0 && self.index.get(&next_hop) == Some(&index) {
                self.index.remove(&next_hop);
                self.retired.push_back((stamp, index));
            }
        }
    }

    /// Uses again what no reader can name any more.
    pub(super) fn reclaim(&mut self, oldest: u64) {
        while let Some((_, index)) = self.retired.pop_front_if(|(stamp, _)| *stamp < oldest) {
            self.free.push(index);
        }
    }

    /// How many would become free if readers went on.
    pub(super) fn waiting(&self) -> usize {
        self.retired.len()
    }

    /// Forgets those from this index on, which have no place yet and never had one.
    pub(super) fn forget_from(&mut self, index: usize) {
        for (next_hop, _) in self.counted.drain(index.min(self.counted.len())..) {
            self.index.remove(&next_hop);
        }
        self.unnamed.retain(|unnamed| usize::from(*unnamed) < index);
    }

    /// How many places name each that is named.
    #[cfg(test)]
    pub(super) fn counts(&self) -> HashMap<u16, u32> {
        let counts = (0..).zip(self.counted.iter().map(|(_, count)| *count));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the bytes for this account itself.
    pub(super) fn own_bytes(&self) -> usize {
        self.counted.capacity() * size_of::<(u64, u32)>()
            + self.index.capacity() * (size_of::<(u64, u16)>() + 1)
    }
}
