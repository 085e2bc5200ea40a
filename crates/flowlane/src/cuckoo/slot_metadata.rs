//! Metadata of slots for the writer only: the hash of a key, and which keys are away from their primary
//! bucket. A key goes by the number of its slot.
//!
//! An insertion into a primary bucket of a table that grows no more writes nothing here: what the hash is needed for follows from the
//! signature and the bucket, and a line less is fetched.

use super::bucket::Bucket;
use super::geometry::signature;
use crate::memory::{Memory, prefetch};

/// No slot, in lists.
const NONE: u32 = 0;

/// Metadata of a slot: the hash of its key, while the table may grow. Later only that of displaced keys, of which the lower half may
/// be missing.
const HASH: usize = 0;
/// The next slot plus one of the list that it is in.
const NEXT: usize = 1;

/// The writer's notes.
pub(super) struct SlotMetadata {
    /// By slot, side by side: both are wanted where a key moves. One more, of no slot: insertions that have nothing to
    /// note write there, and need no branch.
    slots: Memory<[u32; 2]>,
    /// For every bucket, and one more, the list of the keys in its filter: slot plus one. With it the filter
    /// is exact after every removal and split, where one of counters would have to forget.
    moved: Memory<u32>,
}

impl SlotMetadata {
    pub(super) fn new(buckets: usize, slots: usize) -> Self {
        Self { slots: Memory::zeroed(slots + 1), moved: Memory::zeroed(buckets + 1) }
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.slots.size_bytes() + self.moved.size_bytes()
    }

    #[inline(always)]
    pub(super) fn hash(&self, id: u32) -> u32 {
        self.slots[id as usize][HASH]
    }

    #[inline(always)]
    pub(super) fn set_hash(&mut self, id: u32, hash: u32) {
        self.slots[id as usize][HASH] = hash;
    }

    /// Asks for the note of a slot.
    #[inline(always)]
    pub(super) fn prefetch(&self, id: u32) {
        prefetch(&self.slots, id as usize);
    }

    /// Adds a key to those that are away from `primary`, which is being written, number `at`.
    pub(super) fn count_moved(&mut self, primary: &Bucket, at: u32, id: u32, hash: u32) {
        self.count_if_moved(true, primary, at, id, hash);
    }

    /// [`count_moved`](Self::count_moved) if `moved`, without a branch.
    #[inline(always)]
    pub(super) fn count_if_moved(&mut self, moved: bool, primary: &Bucket, at: u32, id: u32, hash: u32) {
        let at = if moved { at as usize } else { self.moved.len() - 1 };
        let slot = if moved { id as usize } else { self.slots.len() - 1 };
        let next = std::mem::replace(&mut self.moved[at], id + 1);
        self.slots[slot] = [hash, next];
        let bit = if moved { Bucket::filter_bit(signature(hash)) } else { 0 };
        primary.set_filter(primary.filter() | bit);
    }

    /// Takes a key from those that are away from `primary`, which is being written, number `at`.
    pub(super) fn uncount_moved(&mut self, primary: &Bucket, at: u32, id: u32) {
        let mut filter = 0;
        let mut previous = NONE;
        let mut listed = self.moved[at as usize];
        while listed != NONE {
            let next = self.slots[listed as usize - 1][NEXT];
            if listed != id + 1 {
                filter |= Bucket::filter_bit(signature(self.hash(listed - 1)));
                previous = listed;
            } else if previous == NONE {
                self.moved[at as usize] = next;
            } else {
                self.slots[previous as usize - 1][NEXT] = next;
            }
            listed = next;
        }
        primary.set_filter(filter);
    }

    /// Puts slot `other` in the place of another in the list of the keys that are away from bucket `at`.
    pub(super) fn rename_moved(&mut self, at: u32, id: u32, other: u32) {
        self.slots[other as usize][NEXT] = self.slots[id as usize][NEXT];
        let mut listed = self.moved[at as usize];
        if listed == id + 1 {
            self.moved[at as usize] = other + 1;
            return;
        }
        while listed != NONE {
            let next = &mut self.slots[listed as usize - 1][NEXT];
            if *next == id + 1 {
                *next = other + 1;
                return;
            }
            listed = *next;
        }
    }

    /// Distributes the keys that are away from bucket `at` over the primary buckets that a split gives
    /// their hashes: `primary` says which, and its number.
    pub(super) fn split<'a>(&mut self, at: u32, primary: impl Fn(u32) -> (&'a Bucket, u32)) {
        let mut listed = std::mem::replace(&mut self.moved[at as usize], NONE);
        while listed != NONE {
            let next = self.slots[listed as usize - 1][NEXT];
            let hash = self.hash(listed - 1);
            let (bucket, at) = primary(hash);
            self.count_moved(bucket, at, listed - 1, hash);
            listed = next;
        }
    }
}
