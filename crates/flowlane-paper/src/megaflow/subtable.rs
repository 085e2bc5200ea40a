//! The megaflows of one mask: a hash table without removal.
//!
//! ```text
//! buckets   8 tags, 8 megaflows; ..     the library's: a cache line each; a full bucket overflows into the next
//! slab      value, masked key; ..       whole cache lines for a megaflow, shared by all masks
//! ```

use flowlane::cache::bucket::{Bucket, SLOTS, entries, place};
use flowlane::memory::{LINE_BYTES, Memory, prefetch};
use flowlane::packet::key::{BitIter, FlowKey, FlowMask, WORDS};

use super::columns::{Term, hash, masked, terms};

/// The maximum average number of used slots of a bucket; above it, too many buckets fill up.
const LOAD_MAX: usize = 5;

/// Words of a cache line.
const LINE: usize = LINE_BYTES / 4;

/// The megaflows of all masks, contiguous.
#[derive(Debug)]
pub(super) struct Slab {
    words: Memory<u32>,
    /// The number of lines in use.
    lines: usize,
    /// The remaining capacity in megaflows.
    room: usize,
}

impl Slab {
    /// Reserves memory for `flows_max` megaflows of any mask; the system commits it on first access.
    pub(super) fn new(flows_max: usize) -> Self {
        let lines_max = flows_max * lines(WORDS);
        Self { words: Memory::zeroed(lines_max * LINE), lines: 0, room: flows_max }
    }

    /// Returns the words of a megaflow and everything behind them.
    #[inline(always)]
    fn flow(&self, flow: u32) -> &[u32] {
        &self.words[flow as usize * LINE..]
    }

    /// Appends a megaflow and returns its position.
    fn push(&mut self, value: u32, key: impl Iterator<Item = u32>, key_words: usize) -> u32 {
        self.room = self.room.checked_sub(1).expect("there is room for as many megaflows as were asked for");
        let flow = self.lines as u32;
        let words = &mut self.words[self.lines * LINE..];
        words.iter_mut().zip(std::iter::once(value).chain(key)).for_each(|(to, word)| *to = word);
        self.lines += lines(key_words);
        flow
    }
}

/// Returns the number of lines of a megaflow with a key of this many words.
fn lines(key_words: usize) -> usize {
    (1 + key_words).div_ceil(LINE)
}

#[derive(Debug)]
pub(super) struct Subtable {
    pub(super) mask: FlowMask,
    pub(super) terms: Vec<Term>,
    seed: u32,
    /// A power of two of buckets; a slot holds the megaflow's first line plus one.
    buckets: Memory<Bucket>,
    len: usize,
}

impl Subtable {
    pub(super) fn new(mask: &FlowMask, seed: u32) -> Self {
        Self { mask: mask.clone(), terms: terms(mask), seed, buckets: Memory::zeroed(1), len: 0 }
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &FlowKey) -> u32 {
        hash(&self.terms, self.seed, key)
    }

    /// Prefetches the home bucket of a hash.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u32) {
        prefetch(&self.buckets, self.home(hash));
    }

    /// Returns the home bucket; the lowest bit of the hash is not in the tags.
    #[inline(always)]
    fn home(&self, hash: u32) -> usize {
        (hash >> 1) as usize & (self.buckets.len() - 1)
    }

    /// Returns the value of the megaflow of `key`, whose hash is `hash`.
    #[inline(always)]
    pub(super) fn find(&self, slab: &Slab, key: &FlowKey, hash: u32) -> Option<u32> {
        self.flow(slab, key, hash).map(|flow| slab.flow(flow)[0])
    }

    /// Returns the position of the megaflow of `key`.
    #[inline(always)]
    fn flow(&self, slab: &Slab, key: &FlowKey, hash: u32) -> Option<u32> {
        let (tag, wrap) = (hash | 1, self.buckets.len() - 1);
        let mut at = self.home(hash);
        // A table is never full, so the loop ends.
        loop {
            let bucket = &self.buckets[at];
            for slot in BitIter(bucket.matching(tag).into()) {
                let flow = bucket.flows[slot % SLOTS] - 1;
                if self.matches(slab.flow(flow), key) {
                    return Some(flow);
                }
            }
            if bucket.has_room() {
                return None;
            }
            at = (at + 1) & wrap;
        }
    }

    /// Returns whether `key` matches the megaflow that begins with these words.
    #[inline(always)]
    fn matches(&self, flow: &[u32], key: &FlowKey) -> bool {
        let stored = &flow[1..=self.terms.len()];
        let both = masked(&self.terms, key).zip(stored);
        both.fold(0, |different, (word, stored)| different | (word ^ stored)) == 0
    }

    /// Inserts the megaflow of `key`, or replaces its value.
    pub(super) fn insert(&mut self, slab: &mut Slab, key: &FlowKey, value: u32) {
        let hash = self.hash(key);
        if let Some(flow) = self.flow(slab, key, hash) {
            slab.words[flow as usize * LINE] = value;
            return;
        }
        if self.len + 1 > self.buckets.len() * LOAD_MAX {
            let mut buckets = Memory::<Bucket>::zeroed(self.buckets.len() * 2);
            entries(&self.buckets).for_each(|(tag, flow)| place(&mut buckets, tag, flow));
            self.buckets = buckets;
        }
        let flow = slab.push(value, masked(&self.terms, key), self.terms.len());
        place(&mut self.buckets, hash | 1, flow + 1);
        self.len += 1;
    }
}
