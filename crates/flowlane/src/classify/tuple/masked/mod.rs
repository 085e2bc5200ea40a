//! A hash table over the masked words of flow keys: a subtable of tuple search.
//!
//! ```text
//! mask    words [25: 0000ffff] [41: ffffffff] [38: 0000ffff]     in the order of the stages
//! slots   (hash, entry) (hash, entry) ..                         linear probing, at most half full
//! keys    entry 0: 3 words | entry 1: 3 words | ..               compared only where the hash agrees
//! values  entry 0 | entry 1 | ..
//! ```
//!
//! A miss, the common case where a packet is looked up under many masks, touches the words of the key and
//! one or two adjacent slots. The hash is MurmurHash3 x86-32 over the masked words, with a secret seed, so
//! that no sender can make keys collide on purpose.
//!
//! **Stages.** The words are hashed in the order metadata, L2, L3, L4 (*The Design and Implementation of
//! Open vSwitch*, NSDI 2015, §5.3), so that the hash after a stage is a prefix of the computation: see
//! [`MaskedTable::stage_hashes`].
//!
//! Cost: 8 bytes a slot, two to four slots an entry; 4 bytes a mask word and 4 of value an entry.

#[cfg(test)]
mod tests;

use crate::hash::murmur3;
use crate::packet::WordSet;
use crate::packet::fields::{FieldClass, word};
use crate::packet::key::{FlowKey, FlowMask, WORDS};

/// Number of stages: metadata, L2, L3, L4.
pub(super) const STAGES: usize = 4;

const EMPTY: u32 = u32::MAX;

/// A word that is compared, and its mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MaskWord {
    word: u8,
    mask: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    /// [`EMPTY`] where the slot is free.
    entry: u32,
}

/// The hash table. Every key in it is compared in the same bits.
#[derive(Clone, Debug)]
pub(super) struct MaskedTable {
    words: Vec<MaskWord>,
    /// `words[..stage_ends[s]]` belong to the stages 0 to `s`.
    stage_ends: [u8; STAGES],
    seed: u32,
    slots: Vec<Slot>,
    keys: Vec<u32>,
    values: Vec<u32>,
    free: Vec<u32>,
    len: usize,
}

/// Returns the stage of a word of the key.
pub(super) fn stage_of(w: usize) -> usize {
    match w {
        _ if !WordSet::of_class(FieldClass::Header).contains(w) => 0,
        word::PORTS | word::FLAGS | word::ND_RESERVED.. => 3,
        word::IPV6_SRC.. => 2,
        _ => 1,
    }
}

/// Returns whether packets differ much in a word: one of headers, but for types, protocols and flags.
fn has_many_values(w: usize) -> bool {
    let few = [word::VLAN_ETH_TYPE, word::VLAN_INNER, word::NW_PROTO, word::FLAGS, word::ARP_OP];
    WordSet::of_class(FieldClass::Header).contains(w) && !few.contains(&w)
}

impl MaskedTable {
    /// Creates an empty table for keys compared in the bits of `mask`.
    pub(super) fn new(mask: &FlowMask, seed: u32) -> Self {
        let mut words: Vec<MaskWord> = mask
            .present_words()
            .filter(|&w| mask.word(w) != 0)
            .map(|w| MaskWord { word: w as u8, mask: mask.word(w) })
            .collect();
        words.sort_by_key(|w| (stage_of(w.word.into()), w.word));
        let ends = |s| words.iter().filter(|w| stage_of(w.word.into()) <= s).count() as u8;
        let stage_ends = [ends(0), ends(1), ends(2), ends(3)];
        let slots = vec![Slot { hash: 0, entry: EMPTY }; 4];
        Self { words, stage_ends, seed, slots, keys: vec![], values: vec![], free: vec![], len: 0 }
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no keys.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the bits of the stages 0 to `stage` to another mask.
    pub(super) fn add_mask_to_stage(&self, stage: usize, mask: &mut FlowMask) {
        for w in &self.words[..self.stage_ends[stage].into()] {
            mask.or_word(w.word.into(), w.mask);
        }
    }

    /// Returns how many bits of addresses and ports of the stages 0 to `stage` another mask lacks.
    pub(super) fn new_bits_to_stage(&self, stage: usize, mask: &FlowMask) -> u32 {
        let words = &self.words[..self.stage_ends[stage].into()];
        let new = |w: &MaskWord| (w.mask & !mask.word(w.word.into())).count_ones();
        words.iter().filter(|w| has_many_values(w.word.into())).map(new).sum()
    }

    /// Adds the mask to another.
    pub(super) fn add_mask(&self, mask: &mut FlowMask) {
        self.words.iter().for_each(|w| mask.or_word(w.word.into(), w.mask));
    }

    /// Returns the hash of `key` under the mask.
    #[inline(always)]
    pub(super) fn hash(&self, key: &FlowKey) -> u32 {
        let key = key.words();
        let mut hash = self.seed;
        for w in &self.words {
            hash = murmur3::mix(hash, key[usize::from(w.word) % WORDS] & w.mask);
        }
        murmur3::finish(hash, 4 * self.words.len() as u32)
    }

    /// Returns the hashes of `key` after each stage that adds words, except the last such stage: (stage, hash).
    /// Two keys that agree in the stages 0 to s have equal hashes there.
    pub(super) fn stage_hashes(&self, key: &FlowKey) -> impl Iterator<Item = (usize, u32)> {
        let (mut hash, mut from) = (self.seed, 0);
        (0..STAGES).filter_map(move |stage| {
            let end = usize::from(self.stage_ends[stage]);
            if end == from || end == self.words.len() {
                return None;
            }
            for w in &self.words[from..end] {
                hash = murmur3::mix(hash, key.word(w.word.into()) & w.mask);
            }
            from = end;
            Some((stage, hash))
        })
    }

    /// Finds the entry of `key`, whose hash is `hash`.
    #[inline(always)]
    pub(super) fn find(&self, key: &FlowKey, hash: u32) -> Option<u32> {
        let wrap = self.slots.len() - 1;
        let mut at = hash as usize & wrap;
        loop {
            let slot = self.slots[at & wrap];
            if slot.entry == EMPTY {
                return None;
            }
            if slot.hash == hash && self.entry_matches(slot.entry, key) {
                return Some(slot.entry);
            }
            at += 1;
        }
    }

    #[inline(always)]
    fn entry_matches(&self, entry: u32, key: &FlowKey) -> bool {
        let from = entry as usize * self.words.len();
        let key = key.words();
        let stored = &self.keys[from..from + self.words.len()];
        let mut different = 0;
        for (w, stored) in self.words.iter().zip(stored) {
            different |= (key[usize::from(w.word) % WORDS] & w.mask) ^ stored;
        }
        different == 0
    }

    /// Returns the value of an entry.
    #[inline(always)]
    pub(super) fn value(&self, entry: u32) -> u32 {
        self.values[entry as usize]
    }

    /// Returns the value of an entry, for changes.
    pub(super) fn value_mut(&mut self, entry: u32) -> &mut u32 {
        &mut self.values[entry as usize]
    }

    /// Returns the masked key of an entry.
    pub(super) fn key(&self, entry: u32) -> FlowKey {
        let mut key = FlowKey::zero();
        let from = entry as usize * self.words.len();
        for (i, w) in self.words.iter().enumerate() {
            key.or_word(w.word.into(), self.keys[from + i]);
        }
        key
    }

    /// Adds `key`, which must not be there (see [`find`](Self::find)), with `value`. Returns its entry,
    /// which stays the same until the key is removed.
    pub(super) fn insert(&mut self, key: &FlowKey, value: u32) -> u32 {
        if (self.len + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let entry = self.free.pop().unwrap_or(self.values.len() as u32);
        if entry as usize == self.values.len() {
            self.keys.extend(self.words.iter().map(|w| key.word(w.word.into()) & w.mask));
            self.values.push(value);
        } else {
            let from = entry as usize * self.words.len();
            for (i, w) in self.words.iter().enumerate() {
                self.keys[from + i] = key.word(w.word.into()) & w.mask;
            }
            self.values[entry as usize] = value;
        }
        let hash = self.hash(key);
        place(&mut self.slots, Slot { hash, entry });
        self.len += 1;
        entry
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, entry: u32) {
        let wrap = self.slots.len() - 1;
        let hash = self.hash(&self.key(entry));
        let mut hole = hash as usize & wrap;
        while self.slots[hole].entry != entry {
            assert!(self.slots[hole].entry != EMPTY, "entry {entry} is not in the table");
            hole = (hole + 1) & wrap;
        }
        // Move back the entries that a search would no longer find beyond the hole (no tombstones: a table under
        // churn stays as fast as a new one).
        let mut at = hole;
        loop {
            at = (at + 1) & wrap;
            let slot = self.slots[at];
            if slot.entry == EMPTY {
                break;
            }
            let home = slot.hash as usize & wrap;
            if at.wrapping_sub(home) & wrap >= at.wrapping_sub(hole) & wrap {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole].entry = EMPTY;
        self.free.push(entry);
        self.len -= 1;
    }

    /// Returns every entry, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(|s| s.entry).filter(|&e| e != EMPTY)
    }

    /// Returns the bytes allocated.
    pub(super) fn table_bytes(&self) -> usize {
        self.words.capacity() * size_of::<MaskWord>()
            + self.slots.capacity() * size_of::<Slot>()
            + (self.keys.capacity() + self.values.capacity() + self.free.capacity()) * 4
    }

    fn grow(&mut self) {
        let mut slots = vec![Slot { hash: 0, entry: EMPTY }; self.slots.len() * 2];
        for slot in self.slots.iter().filter(|s| s.entry != EMPTY) {
            place(&mut slots, *slot);
        }
        self.slots = slots;
    }
}

/// Puts a slot into the first free place from its home on.
fn place(slots: &mut [Slot], slot: Slot) {
    let wrap = slots.len() - 1;
    let mut at = slot.hash as usize & wrap;
    while slots[at].entry != EMPTY {
        at = (at + 1) & wrap;
    }
    slots[at] = slot;
}
