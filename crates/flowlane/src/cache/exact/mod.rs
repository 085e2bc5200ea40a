//! Exact-match cache: from a packet's whole key to its megaflow, in one probe of two places.
//!
//! Each entry is two cache lines: a packed key of up to [`KEY_WORDS_MAX`] words (IPv4 without tunnel has
//! 11, IPv6 17) and a reference to a megaflow. A reference outlives its megaflow harmlessly: it carries
//! the serial number under which the megaflow was made ([`MegaflowCache::is_live`]).
//!
//! A working set larger than the cache makes it thrash, so not every packet is inserted: one in
//! `insert_inverse` is (Open vSwitch's `emc-insert-inv-prob`, 100 by default).
//!
//! [`MegaflowCache::is_live`]: super::MegaflowCache::is_live

use super::FlowRef;
use crate::hash::murmur3;
use crate::packet::Miniflow;
use crate::packet::key::{BitIter, FlowKey};

/// Keys with more words are not cached.
pub const KEY_WORDS_MAX: usize = 27;

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Entry {
    key: Miniflow<KEY_WORDS_MAX>,
    flow: FlowRef,
}

const _: () = assert!(size_of::<Entry>() == 128);

/// The cache.
#[derive(Debug)]
pub struct ExactMatchCache {
    entries: Vec<Entry>,
    seed: u32,
    insert_inverse: u32,
    random: u32,
}

impl ExactMatchCache {
    /// A cache of `entries` (rounded up to a power of two, at least 2), of which one in `insert_inverse`
    /// offered is inserted. `seed` keys the hash.
    pub fn new(entries: usize, insert_inverse: u32, seed: u32) -> Self {
        let entries = entries.max(2).next_power_of_two();
        let empty = Entry { key: Miniflow::EMPTY, flow: FlowRef::NONE };
        Self { entries: vec![empty; entries], seed, insert_inverse: insert_inverse.max(1), random: seed | 1 }
    }

    /// The hash of `key` for [`lookup`](Self::lookup) and [`offer`](Self::offer).
    #[inline]
    pub fn hash(&self, key: &FlowKey) -> u32 {
        let mut hash = self.seed;
        for w in BitIter(key.present()) {
            hash = murmur3::mix(hash, key.word(w));
        }
        murmur3::finish(hash, 4 * key.present().count_ones())
    }

    /// The two places of a hash: its low bits, and its high bits.
    #[inline]
    fn places(&self, hash: u32) -> [usize; 2] {
        let wrap = self.entries.len() - 1;
        [hash as usize & wrap, (hash.rotate_left(16) ^ 1) as usize & wrap]
    }

    /// The megaflow of `key`.
    #[inline]
    pub fn lookup(&self, key: &FlowKey, hash: u32) -> Option<FlowRef> {
        self.places(hash)
            .into_iter()
            .map(|at| &self.entries[at])
            .find(|e| e.flow != FlowRef::NONE && e.key.is(key))
            .map(|e| e.flow)
    }

    /// Inserts `key` with its megaflow, or not: one in `insert_inverse` is. Says whether it was.
    #[inline]
    pub fn offer(&mut self, key: &FlowKey, hash: u32, flow: FlowRef) -> bool {
        // Xorshift32 (Marsaglia 2003): which packets get in must not follow the traffic's own period.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        if !self.random.is_multiple_of(self.insert_inverse) {
            return false;
        }
        let Some(packed) = Miniflow::pack(key) else { return false };
        let [first, second] = self.places(hash);
        let same = |at: usize| self.entries[at].flow == FlowRef::NONE || self.entries[at].key.is(key);
        let at = match (same(first), same(second)) {
            (true, _) => first,
            (_, true) => second,
            _ if self.random & 0x100 == 0 => first,
            _ => second,
        };
        self.entries[at] = Entry { key: packed, flow };
        true
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.iter_mut().for_each(|e| e.flow = FlowRef::NONE);
    }

    /// Bytes allocated.
    pub fn table_bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>()
    }
}
