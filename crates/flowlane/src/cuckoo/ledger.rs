//! What only the writer needs to know: the hash of every entry, which entries are free, and which keys are
//! away from their primary bucket.

use super::bucket::{Bucket, moved_bit};
use super::geometry::signature;
use crate::memory::Memory;

/// No entry, in lists.
const NONE: u32 = 0;

/// Hash of an entry, and the next entry plus one of the list that it is in.
type Note = [u32; 2];

/// The writer's notes.
pub(super) struct Ledger {
    notes: Memory<Note>,
    /// For every bucket the list of the keys that its filter stands for: entry plus one. With it the filter
    /// is exact after every removal and split, where one of counters would have to forget.
    moved: Memory<u32>,
    /// Entries from here on were never used.
    fresh: u32,
    /// The list of the other free entries: entry plus one.
    free: u32,
}

impl Ledger {
    pub(super) fn new(buckets: usize, entries: usize) -> Self {
        Self { notes: Memory::zeroed(entries), moved: Memory::zeroed(buckets), fresh: 0, free: NONE }
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.notes.size_bytes() + self.moved.size_bytes()
    }

    pub(super) fn hash(&self, entry: u32) -> u32 {
        self.notes[entry as usize][0]
    }

    /// A free entry, for a key of this hash.
    pub(super) fn take_entry(&mut self, hash: u32) -> Option<u32> {
        let entry = if self.free != NONE {
            let entry = self.free - 1;
            self.free = self.notes[entry as usize][1];
            entry
        } else if (self.fresh as usize) < self.notes.len() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            return None;
        };
        self.notes[entry as usize] = [hash, NONE];
        Some(entry)
    }

    pub(super) fn free_entry(&mut self, entry: u32) {
        self.notes[entry as usize][1] = self.free;
        self.free = entry + 1;
    }

    /// Makes all entries free, to be taken in the order of their places: for an empty table.
    pub(super) fn free_all(&mut self) {
        self.fresh = 0;
        self.free = NONE;
    }

    /// Adds an entry to those that are away from `primary`, which is being written, number `at`.
    pub(super) fn count_moved(&mut self, primary: &Bucket, at: u32, entry: u32) {
        let [hash, next] = &mut self.notes[entry as usize];
        *next = std::mem::replace(&mut self.moved[at as usize], entry + 1);
        primary.set_moved(primary.moved() | moved_bit(signature(*hash)));
    }

    /// Takes an entry from those that are away from `primary`, which is being written, number `at`.
    pub(super) fn uncount_moved(&mut self, primary: &Bucket, at: u32, entry: u32) {
        let mut filter = 0;
        let mut previous = NONE;
        let mut listed = self.moved[at as usize];
        while listed != NONE {
            let [hash, next] = self.notes[listed as usize - 1];
            if listed != entry + 1 {
                filter |= moved_bit(signature(hash));
                previous = listed;
            } else if previous == NONE {
                self.moved[at as usize] = next;
            } else {
                self.notes[previous as usize - 1][1] = next;
            }
            listed = next;
        }
        primary.set_moved(filter);
    }

    /// Distributes the entries that are away from bucket `at` over the primary buckets that a split gives
    /// their hashes: `primary` says which, and its number.
    pub(super) fn split<'a>(&mut self, at: u32, primary: impl Fn(u32) -> (&'a Bucket, u32)) {
        let mut listed = std::mem::replace(&mut self.moved[at as usize], NONE);
        while listed != NONE {
            let [hash, next] = self.notes[listed as usize - 1];
            let (bucket, at) = primary(hash);
            self.count_moved(bucket, at, listed - 1);
            listed = next;
        }
    }
}
