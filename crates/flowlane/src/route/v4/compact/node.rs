//! Chunks and long chunks: their words in the pool, read and written.
//!
//! An *entry* is what an address range leads to: the index of a next hop, or [`NODE`] and a place in the pool.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;

/// Marks an entry that leads to a place in the pool.
pub(super) const NODE: u32 = 1 << 31;

/// Codes from here on number the long chunks of a chunk; smaller ones are indices of next hops.
pub(super) const CHILDREN: u16 = u16::MAX - (SLOTS as u16 - 1);

/// Slots of a chunk, each for 256 addresses.
pub(super) const SLOTS: usize = 64;

/// Slots of a long chunk, each for one address.
pub(super) const LONG: usize = 256;

/// Words of a long chunk in front of its codes: four of bits and one of ranks.
pub(super) const LONG_HEAD: usize = 5;

/// Codes in a word.
pub(super) const CODES: usize = 4;

/// Most words of either: 64 codes and 64 long chunks; 256 codes.
pub(super) const WORDS_MAX: usize = 1 + SLOTS / CODES + SLOTS;

/// What the slots of a chunk lead to.
pub(super) type Slots = [u32; SLOTS];

/// The next hops of a long chunk's addresses.
pub(super) type Hosts = [u16; LONG];

/// A chunk in the making.
#[derive(Debug)]
pub(super) struct Words {
    words: [u64; WORDS_MAX],
    len: usize,
}

impl Words {
    pub(super) const EMPTY: Self = Self { words: [0; WORDS_MAX], len: 0 };

    pub(super) fn as_slice(&self) -> &[u64] {
        &self.words[..self.len]
    }

    fn set_code(&mut self, head: usize, index: usize, code: u16) {
        self.words[head + index / CODES] |= u64::from(code) << (16 * (index % CODES));
    }
}

/// The code number `index` behind `head` words.
#[inline(always)]
pub(super) fn code(pool: &[AtomicU64], head: usize, index: u32) -> u16 {
    let word = pool[head + (index as usize >> 2)].load(Acquire);
    (word >> (16 * (index & 3))) as u16
}

/// The words of a chunk. A slot that leads to what the one before it does has no code of its own.
pub(super) fn encode(slots: &Slots, words: &mut Words) {
    let mut bits = 1u64;
    for slot in 1..SLOTS {
        bits |= u64::from(slots[slot] != slots[slot - 1]) << slot;
    }
    let head = 1 + (bits.count_ones() as usize).div_ceil(CODES);
    words.words[..head].fill(0);
    words.words[0] = bits;
    words.len = head;
    for code in 0..bits.count_ones() as usize {
        let entry = slots[bits.trailing_zeros() as usize];
        bits &= bits - 1;
        if entry & NODE == 0 {
            words.set_code(1, code, entry as u16);
        } else {
            words.set_code(1, code, CHILDREN + (words.len - head) as u16);
            words.words[words.len] = u64::from(entry);
            words.len += 1;
        }
    }
}

/// The codes in the words of a chunk without long chunks.
pub(super) fn codes_of(words: &[u64]) -> impl Iterator<Item = u16> + '_ {
    let codes = words[0].count_ones() as usize;
    (0..codes).map(|index| (words[1 + index / CODES] >> (16 * (index % CODES))) as u16)
}

/// The words of a long chunk.
pub(super) fn encode_long(hosts: &Hosts, words: &mut Words) {
    words.words.fill(0);
    let mut codes = 0;
    for (host, &hop) in hosts.iter().enumerate() {
        if host % 64 == 0 {
            words.words[4] |= (codes as u64) << (16 * (host / 64));
        }
        if host == 0 || hosts[host - 1] != hop {
            words.words[host / 64] |= 1 << (host % 64);
            words.set_code(LONG_HEAD, codes, hop);
            codes += 1;
        }
    }
    words.len = LONG_HEAD + codes.div_ceil(CODES);
}

/// How many words the chunk at `at` has in front of its long chunks' places.
pub(super) fn head(pool: &[AtomicU64], at: usize) -> usize {
    1 + (pool[at].load(Acquire).count_ones() as usize).div_ceil(CODES)
}

/// The entry of a code in the chunk at `at`.
fn entry_of(pool: &[AtomicU64], at: usize, code: u16) -> u32 {
    match code.checked_sub(CHILDREN) {
        None => u32::from(code),
        Some(child) => pool[at + head(pool, at) + child as usize].load(Acquire) as u32,
    }
}

/// What the slots of the chunk at `at` lead to.
pub(super) fn decode(pool: &[AtomicU64], at: usize) -> Slots {
    let bits = pool[at].load(Acquire);
    let mut entries = [0; SLOTS];
    for (index, entry) in entries.iter_mut().enumerate().take(bits.count_ones() as usize) {
        *entry = entry_of(pool, at, code(pool, at + 1, index as u32));
    }
    let mut codes = 0usize;
    std::array::from_fn(|slot| {
        codes += (bits >> slot & 1) as usize;
        entries[codes.wrapping_sub(1) % SLOTS]
    })
}

/// The next hops in the long chunk at `at`.
pub(super) fn decode_long(pool: &[AtomicU64], at: usize) -> Hosts {
    let (mut hosts, mut codes, mut hop) = ([0; LONG], 0, 0);
    for (host, place) in hosts.iter_mut().enumerate() {
        if pool[at + host / 64].load(Acquire) >> (host % 64) & 1 != 0 {
            hop = code(pool, at + LONG_HEAD, codes);
            codes += 1;
        }
        *place = hop;
    }
    hosts
}

/// Shows `hop` the index of a next hop for each code of the long chunk at `at`.
pub(super) fn hops_of_long(pool: &[AtomicU64], at: usize, mut hop: impl FnMut(u16)) {
    let codes: u32 = (0..4).map(|word| pool[at + word].load(Acquire).count_ones()).sum();
    (0..codes).for_each(|index| hop(code(pool, at + LONG_HEAD, index)));
}

/// Shows `hop` the index of a next hop for each code of the chunk at `at` that is one, and `child` the places of
/// its long chunks.
pub(super) fn contents(pool: &[AtomicU64], at: usize, mut hop: impl FnMut(u16), mut child: impl FnMut(u32)) {
    let codes = pool[at].load(Acquire).count_ones();
    for index in 0..codes {
        let code = code(pool, at + 1, index);
        match code.checked_sub(CHILDREN) {
            None => hop(code),
            Some(_) => child(entry_of(pool, at, code) & !NODE),
        }
    }
}
