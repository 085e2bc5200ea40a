//! The entries: for every slot of every bucket a place with key and value, beside the buckets, so that the
//! slot alone says where the key is; and the times of last use.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::bucket::SLOTS;
use super::sync::{AtomicU32, AtomicU64, Memory};
use crate::memory::{LINE_BYTES, prefetch_at};

/// Words of a line.
const LINE: usize = LINE_BYTES / 4;

/// Entries of keys of this many words that a line holds whole; 0 where one is longer.
const fn in_line(words: usize) -> usize {
    LINE / (words + 1)
}

/// Words from an entry to the next where it is longer than a line: whole fractions of a line.
const LONG: usize = 20;

/// Words of the entries of a bucket: whole lines.
const fn stride(words: usize) -> usize {
    match in_line(words) {
        0 => SLOTS * LONG,
        in_line => SLOTS.div_ceil(in_line) * LINE,
    }
}

/// Where the entry of each slot begins.
const fn places(words: usize) -> [u32; SLOTS] {
    let mut places = [0; SLOTS];
    let mut slot = 0;
    while slot < SLOTS {
        places[slot] = match in_line(words) {
            0 => slot * LONG,
            in_line => slot / in_line * LINE + slot % in_line * (words + 1),
        } as u32;
        slot += 1;
    }
    places
}

/// The first slot whose entry is in the same line as that of a slot.
const fn first_slots(words: usize) -> [u8; SLOTS] {
    let mut first = [0; SLOTS];
    let mut slot = 0;
    while slot < SLOTS {
        first[slot] = match in_line(words) {
            0 => slot,
            in_line => slot / in_line * in_line,
        } as u8;
        slot += 1;
    }
    first
}

/// All entries of a table.
#[derive(Debug)]
pub(super) struct Entries<const W: usize> {
    words: Memory<AtomicU32>,
    used: Memory<AtomicU64>,
}

impl<const W: usize> Entries<W> {
    pub(super) fn zeroed(buckets: usize) -> Self {
        Self {
            words: Memory::zeroed(buckets * EntriesView::<W>::STRIDE),
            used: Memory::zeroed(buckets * SLOTS),
        }
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.words.size_bytes() + self.used.size_bytes()
    }

    #[inline(always)]
    pub(super) fn view(&self) -> EntriesView<'_, W> {
        EntriesView { words: &self.words, used: &self.used }
    }

    /// When the key in a slot was last used or written, in the caller's unit.
    pub(super) fn used(&self, at: u32, slot: usize) -> u64 {
        self.used[id(at, slot) as usize].load(Relaxed)
    }

    /// Takes the time of use along to another slot.
    pub(super) fn copy_used(&self, from: u32, to: u32) {
        self.used[to as usize].store(self.used[from as usize].load(Relaxed), Relaxed);
    }
}

/// Returns the number of a slot, under which the writer's metadata and the times of use have its key.
#[inline(always)]
pub(super) fn id(at: u32, slot: usize) -> u32 {
    at * SLOTS as u32 + slot as u32
}

/// Access to entries.
#[derive(Clone, Copy)]
pub(super) struct EntriesView<'a, const W: usize> {
    words: &'a [AtomicU32],
    used: &'a [AtomicU64],
}

/// Where an entry begins.
pub(super) type EntryAt = usize;

impl<'a, const W: usize> EntriesView<'a, W> {
    /// Words from the first entry of a bucket to that of the next.
    pub(super) const STRIDE: usize = stride(W);
    /// Where the entry of each slot begins, in words from the first of its bucket.
    pub(super) const PLACES: [u32; SLOTS] = places(W);
    /// Of each slot the first one in the same line.
    const FIRST_SLOTS: [u8; SLOTS] = first_slots(W);
    /// True if an entry has words in a second line.
    const LONG: bool = in_line(W) == 0;

    /// Returns the slot that a new key takes if it is free, else one of the next. It follows from the key, so that the entry can be asked for
    /// before it is known which slots are free.
    #[inline(always)]
    pub(super) fn first_slot(signature: u16) -> usize {
        let first = const { Self::FIRST_SLOTS };
        first[usize::from(signature >> 13) % SLOTS].into()
    }

    /// Returns the entry of a slot.
    #[inline(always)]
    pub(super) fn at(self, bucket: u32, slot: usize) -> EntryAt {
        bucket as usize * Self::STRIDE + const { Self::PLACES }[slot % SLOTS] as usize
    }

    /// Returns the words of an entry: those of the key, then the value.
    #[inline(always)]
    pub(super) fn words(self, entry: EntryAt) -> &'a [AtomicU32] {
        &self.words[entry..][..W + 1]
    }

    /// Returns the words of an entry, as [`words`](Self::words) does.
    ///
    /// # Safety
    /// The entry is one of a bucket of the table.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(super) unsafe fn words_unchecked(self, entry: EntryAt) -> &'a [AtomicU32] {
        // SAFETY: there are entries for each bucket.
        unsafe { self.words.get_unchecked(entry..entry + W + 1) }
    }

    /// Asks for the lines of an entry.
    #[inline(always)]
    pub(super) fn prefetch(self, entry: EntryAt) {
        prefetch_at(self.address(entry));
        self.prefetch_rest(entry);
    }

    /// Asks for the second line of an entry that has one.
    #[inline(always)]
    pub(super) fn prefetch_rest(self, entry: EntryAt) {
        if Self::LONG {
            prefetch_at(self.address(entry + W));
        }
    }

    /// Where an entry begins, for prefetching only.
    #[inline(always)]
    pub(super) fn address(self, entry: EntryAt) -> *const u8 {
        self.words.as_ptr().wrapping_add(entry).cast()
    }

    /// Returns the words from an entry's first on, `LEN` of them, which must all be in its bucket's lines.
    #[inline(always)]
    pub(super) fn row<const LEN: usize>(self, entry: EntryAt) -> &'a [AtomicU32; LEN] {
        self.words[entry..].first_chunk().expect("an entry is followed by the rest of its line")
    }

    #[inline(always)]
    pub(super) fn key_is(self, entry: EntryAt, key: &[u32; W]) -> bool {
        let words = self.words(entry).iter().zip(key);
        words.fold(0, |different, (word, wanted)| different | (word.load(Relaxed) ^ wanted)) == 0
    }

    #[inline(always)]
    pub(super) fn key(self, entry: EntryAt) -> [u32; W] {
        let words = self.words(entry);
        std::array::from_fn(|w| words[w].load(Relaxed))
    }

    #[inline(always)]
    pub(super) fn value(self, entry: EntryAt) -> u32 {
        self.words(entry)[W].load(Relaxed)
    }

    /// Notes a use of the key in a slot. Readers may do so: should the slot meanwhile belong to another
    /// key, that key counts as used; should the key move, the use may be forgotten.
    #[inline(always)]
    pub(super) fn set_used(self, id: u32, now: u64) {
        let used = &self.used[id as usize];
        // A line that many readers hold is written only where the time is another.
        if used.load(Relaxed) != now {
            used.store(now, Relaxed);
        }
    }

    /// Replaces the value: one word, so that readers see the one or the other.
    pub(super) fn set_value(self, entry: EntryAt, value: u32) {
        // Data that the value refers to is visible to readers with an acquire fence behind the read, which all have.
        self.words(entry)[W].store(value, Release);
    }

    /// Fills the entry of a slot whose bucket is being written.
    #[inline(always)]
    pub(super) fn write(self, entry: EntryAt, key: &[u32; W], value: u32) {
        let words = self.words(entry);
        for (word, new) in words.iter().zip(key) {
            word.store(*new, Relaxed);
        }
        words[W].store(value, Relaxed);
    }
}
