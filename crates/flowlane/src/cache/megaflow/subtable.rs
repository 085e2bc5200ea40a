//! A subtable: the megaflows of one mask.
//!
//! ```text
//! terms    (word, mask, multiplier) ..        what is compared, and hashed
//! filter   32-bit words, 8 bits a slot        two bits of one word a megaflow: rejects nearly all misses
//! slots    (hash, megaflow) ..                linear probing, at most 5/8 full
//! tail     words beyond those in the megaflow's line, for wide masks
//! ```
//!
//! A packet that this mask has no megaflow for costs its hash and one word of the filter. The filter is a
//! blocked Bloom filter with k = 2 and blocks of 32 bits (Putze, Sanders, Singler 2007): at 13 to 26 bits a
//! megaflow 1 to 3 % of misses pass. Removed megaflows leave their bits behind; the filter is made anew
//! when half of those that it was made for have gone.

use super::flow::{KEY_WORDS, Megaflow};
use crate::hash::multilinear::{self, Multilinear};
use crate::hash::murmur3;
use crate::memory::prefetch;
use crate::packet::key::{FlowKey, FlowMask, WORDS};

const EMPTY: u32 = u32::MAX;

/// Slots of a subtable without megaflows.
const SLOTS_MIN: usize = 8;

/// A word that is looked at, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) mask: u32,
    pub(super) multiplier: u32,
    pub(super) word: u8,
    /// Its column of the transposed batch.
    pub(super) place: u8,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    /// [`EMPTY`] where the slot is free.
    flow: u32,
}

/// How keys are hashed.
#[derive(Clone, Debug)]
pub(super) enum KeyHash {
    Multilinear(Box<Multilinear>),
    /// With this seed, as the paper has it.
    Murmur3(u32),
}

impl KeyHash {
    fn multiplier(&self, w: usize) -> u32 {
        match self {
            KeyHash::Multilinear(hash) => hash.multiplier(w),
            KeyHash::Murmur3(_) => 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Subtable {
    pub(super) mask: FlowMask,
    /// In the order of the key's words.
    pub(super) terms: Vec<Term>,
    /// Those that not every mask of the cache has: the others' sum is computed once a batch.
    pub(super) own_terms: Vec<Term>,
    /// Hits since the last ranking; halved there.
    pub(super) hits: u64,
    pub(super) filter: Filter,
    hash: KeyHash,
    slots: Vec<Slot>,
    tail: Vec<u32>,
    tail_free: Vec<u32>,
    len: usize,
    /// Megaflows removed since the filter was made.
    stale: usize,
}

/// The two bits of a hash in a word of the filter.
#[inline(always)]
fn filter_bits(hash: u32) -> u32 {
    1u32.rotate_left(hash) | 1u32.rotate_left(hash >> 5)
}

#[derive(Debug)]
pub(super) struct Filter {
    /// A power of two, at least two.
    pub(super) words: Vec<u32>,
    /// `hash >> shift` is the place of the hash's word.
    pub(super) shift: u32,
}

impl Filter {
    fn for_slots(slots: usize) -> Self {
        let words = (slots / 4).max(2);
        Self { words: vec![0; words], shift: 32 - words.ilog2() }
    }

    fn add(&mut self, hash: u32) {
        self.words[(hash >> self.shift) as usize] |= filter_bits(hash);
    }

    #[inline(always)]
    pub(super) fn may_have(&self, hash: u32) -> bool {
        let bits = filter_bits(hash);
        self.words[(hash >> self.shift) as usize] & bits == bits
    }
}

impl Subtable {
    pub(super) fn new(mask: &FlowMask, hash: KeyHash) -> Self {
        let terms: Vec<Term> = mask
            .present_words()
            .filter(|&w| mask.word(w) != 0)
            .map(|w| Term { word: w as u8, place: 0, mask: mask.word(w), multiplier: hash.multiplier(w) })
            .collect();
        Self {
            mask: mask.clone(),
            own_terms: terms.clone(),
            terms,
            hits: 0,
            filter: Filter::for_slots(SLOTS_MIN),
            hash,
            slots: vec![Slot { hash: 0, flow: EMPTY }; SLOTS_MIN],
            tail: Vec::new(),
            tail_free: Vec::new(),
            len: 0,
            stale: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The hash of `key` under the mask: the definition.
    #[inline(always)]
    pub(super) fn hash(&self, key: &FlowKey) -> u32 {
        let key = key.words();
        let masked = |t: &Term| key[usize::from(t.word) % WORDS] & t.mask;
        match &self.hash {
            KeyHash::Multilinear(_) => {
                let terms = self.terms.iter().map(|t| multilinear::term(t.multiplier, masked(t)));
                multilinear::finish(terms.fold(0, u64::wrapping_add))
            }
            KeyHash::Murmur3(seed) => {
                let hash = self.terms.iter().fold(*seed, |hash, t| murmur3::mix(hash, masked(t)));
                murmur3::finish(hash, 4 * self.terms.len() as u32)
            }
        }
    }

    /// The seed of MurmurHash3, where keys are hashed with it.
    pub(super) fn murmur3_seed(&self) -> u32 {
        if let KeyHash::Murmur3(seed) = self.hash { seed } else { 0 }
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u32) {
        prefetch(&self.slots, hash as usize & (self.slots.len() - 1));
    }

    /// The first megaflow of this hash: very likely the one, where there is one.
    #[inline(always)]
    pub(super) fn candidate(&self, hash: u32) -> Option<u32> {
        self.chain(hash).next()
    }

    /// The megaflows of this hash.
    #[inline(always)]
    fn chain(&self, hash: u32) -> impl Iterator<Item = u32> {
        let wrap = self.slots.len() - 1;
        let from = hash as usize;
        // A table is never full: the walk ends.
        (from..)
            .map(move |at| self.slots[at & wrap])
            .take_while(|slot| slot.flow != EMPTY)
            .filter(move |slot| slot.hash == hash)
            .map(|slot| slot.flow)
    }

    /// The megaflow of `key`, whose hash is `hash`.
    #[inline(always)]
    pub(super) fn find(&self, flows: &[Megaflow], key: &FlowKey, hash: u32) -> Option<u32> {
        self.chain(hash).find(|&flow| self.matches(&flows[flow as usize], key))
    }

    /// Whether `key` is the megaflow's, in the bits of the mask.
    #[inline(always)]
    pub(super) fn matches(&self, flow: &Megaflow, key: &FlowKey) -> bool {
        let key = key.words();
        let masked = |t: &Term| key[usize::from(t.word) % WORDS] & t.mask;
        let inline = self.inline_words();
        let mut different = 0;
        for (t, stored) in self.terms[..inline].iter().zip(&flow.key) {
            different |= masked(t) ^ stored;
        }
        if inline < self.terms.len() {
            let from = flow.key[KEY_WORDS - 1] as usize;
            for (t, stored) in self.terms[inline..].iter().zip(&self.tail[from..]) {
                different |= masked(t) ^ stored;
            }
        }
        different == 0
    }

    /// Words of the key that lie in the megaflow's line.
    #[inline(always)]
    fn inline_words(&self) -> usize {
        if self.terms.len() <= KEY_WORDS { self.terms.len() } else { KEY_WORDS - 1 }
    }

    /// The masked key of a megaflow.
    pub(super) fn key(&self, flow: &Megaflow) -> FlowKey {
        let mut key = FlowKey::zero();
        let inline = self.inline_words();
        let tail = if inline < self.terms.len() { flow.key[KEY_WORDS - 1] as usize } else { 0 };
        for (i, t) in self.terms.iter().enumerate() {
            let word = if i < inline { flow.key[i] } else { self.tail[tail + i - inline] };
            key.or_word(t.word.into(), word);
        }
        key
    }

    /// Adds a megaflow for `key`, which must not be there, and writes its key into its line.
    pub(super) fn insert(&mut self, key: &FlowKey, index: u32, flow: &mut Megaflow) {
        if (self.len + 1) * 8 > self.slots.len() * 5 {
            self.grow();
        }
        let inline = self.inline_words();
        let masked = |t: &Term| key.word(t.word.into()) & t.mask;
        for (stored, t) in flow.key.iter_mut().zip(&self.terms[..inline]) {
            *stored = masked(t);
        }
        if inline < self.terms.len() {
            let from = self.tail_free.pop().unwrap_or_else(|| {
                self.tail.resize(self.tail.len() + self.terms.len() - inline, 0);
                (self.tail.len() - (self.terms.len() - inline)) as u32
            });
            for (stored, t) in self.tail[from as usize..].iter_mut().zip(&self.terms[inline..]) {
                *stored = masked(t);
            }
            flow.key[KEY_WORDS - 1] = from;
        }
        let hash = self.hash(key);
        place(&mut self.slots, Slot { hash, flow: index });
        self.filter.add(hash);
        self.len += 1;
    }

    /// Removes a megaflow.
    pub(super) fn remove(&mut self, index: u32, flow: &Megaflow) {
        let wrap = self.slots.len() - 1;
        let hash = self.hash(&self.key(flow));
        let mut hole = hash as usize & wrap;
        while self.slots[hole].flow != index {
            assert!(self.slots[hole].flow != EMPTY, "megaflow {index} is not in its subtable");
            hole = (hole + 1) & wrap;
        }
        // Move back whatever would no longer be found beyond the hole (no tombstones: a table under churn
        // stays as fast as a new one).
        let mut at = hole;
        loop {
            at = (at + 1) & wrap;
            let slot = self.slots[at];
            if slot.flow == EMPTY {
                break;
            }
            let home = slot.hash as usize & wrap;
            if at.wrapping_sub(home) & wrap >= at.wrapping_sub(hole) & wrap {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole].flow = EMPTY;
        if self.inline_words() < self.terms.len() {
            self.tail_free.push(flow.key[KEY_WORDS - 1]);
        }
        self.len -= 1;
        self.stale += 1;
        if self.stale > self.len.max(SLOTS_MIN) {
            self.make_filter();
        }
    }

    /// Bytes allocated.
    pub(super) fn table_bytes(&self) -> usize {
        (self.terms.capacity() + self.own_terms.capacity()) * size_of::<Term>()
            + self.slots.capacity() * size_of::<Slot>()
            + (self.filter.words.capacity() + self.tail.capacity() + self.tail_free.capacity()) * 4
    }

    fn grow(&mut self) {
        let mut slots = vec![Slot { hash: 0, flow: EMPTY }; self.slots.len() * 2];
        for slot in self.slots.iter().filter(|s| s.flow != EMPTY) {
            place(&mut slots, *slot);
        }
        self.slots = slots;
        self.make_filter();
    }

    fn make_filter(&mut self) {
        self.filter = Filter::for_slots(self.slots.len());
        for slot in self.slots.iter().filter(|s| s.flow != EMPTY) {
            self.filter.add(slot.hash);
        }
        self.stale = 0;
    }
}

/// Puts a slot into the first free place from its home on.
fn place(slots: &mut [Slot], slot: Slot) {
    let wrap = slots.len() - 1;
    let mut at = slot.hash as usize & wrap;
    while slots[at].flow != EMPTY {
        at = (at + 1) & wrap;
    }
    slots[at] = slot;
}
