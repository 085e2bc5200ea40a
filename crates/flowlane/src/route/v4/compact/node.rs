//! Chunks and long chunks: their words in the pool, read and written.
//!
//! An *entry* is what an address range leads to. All count the pool in codes, which are its 16-bit parts:
//!
//! ```text
//!  31 30 29                       0
//! ┌──┬──┬─────────────────────────┐
//! │ 0│ 0│ index of a next hop     │ where the pool has a code that is this index
//! │ 1│ 0│ place of the bits + 3   │ a chunk with bits, or a long chunk: what is before the first code
//! │ 0│ 1│ place of the codes      │ a flat chunk: a code for each slot
//! └──┴──┴─────────────────────────┘
//! ```

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;

use crate::memory::LINE_BYTES;

/// Marks an entry that leads to bits, and codes behind them.
pub(super) const BITS: u32 = 1 << 31;

/// Marks an entry that leads to a code for each slot.
pub(super) const FLAT: u32 = 1 << 30;

/// Marks of entries that lead to a block of the pool.
pub(super) const NODE: u32 = BITS | FLAT;

/// Most words of a pool: entries number four codes each.
pub(super) const POOL_WORDS_MAX: usize = 1 << (FLAT.ilog2() - CODES.ilog2());

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

/// Words of the codes of a flat chunk: two lines.
const FLAT_WORDS: usize = SLOTS / CODES;

/// Most runs of a chunk with bits: those whose codes fit one line with them.
const RUNS_MAX: usize = (LINE_BYTES / size_of::<u64>() - 1) * CODES;

/// Most words of either: 64 codes and 64 long chunks; 256 codes.
pub(super) const WORDS_MAX: usize = FLAT_WORDS + SLOTS;

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

/// The word of the pool where the block begins that an entry leads to.
#[inline(always)]
pub(super) fn place(entry: u32) -> usize {
    (entry & !NODE) as usize / CODES
}

/// The entry with this mark that leads to a block.
pub(super) fn entry_to(block: u32, mark: u32) -> u32 {
    let before = if mark == BITS { CODES as u32 - 1 } else { 0 };
    mark | (block * CODES as u32 + before)
}

/// The words of a chunk, and the mark of the entry that leads to it. A slot that leads to what the one before it
/// does has no code of its own, where there are few enough others.
pub(super) fn encode(slots: &Slots, words: &mut Words) -> u32 {
    let mut bits = 1u64;
    for slot in 1..SLOTS {
        bits |= u64::from(slots[slot] != slots[slot - 1]) << slot;
    }
    let runs = bits.count_ones() as usize;
    let (mark, first, head, mut coded) = match runs {
        0..=RUNS_MAX => (BITS, 1, 1 + runs.div_ceil(CODES), bits),
        _ => (FLAT, 0, FLAT_WORDS, !0),
    };
    words.words[..head].fill(0);
    words.words[0] = if mark == FLAT { 0 } else { bits };
    words.len = head;
    for code in 0..coded.count_ones() as usize {
        let entry = slots[coded.trailing_zeros() as usize];
        coded &= coded - 1;
        if entry & NODE == 0 {
            words.set_code(first, code, entry as u16);
        } else {
            words.set_code(first, code, CHILDREN + (words.len - head) as u16);
            words.words[words.len] = u64::from(entry);
            words.len += 1;
        }
    }
    mark
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

/// The codes of the chunk that `chunk` leads to: the word where they begin, and how many there are.
#[inline(always)]
fn codes(pool: &[AtomicU64], chunk: u32) -> (usize, u32) {
    let at = place(chunk);
    match chunk & FLAT {
        0 => (at + 1, pool[at].load(Acquire).count_ones()),
        _ => (at, SLOTS as u32),
    }
}

/// What a code stands for in the chunk that `chunk` leads to.
#[inline(always)]
pub(super) fn entry_of(pool: &[AtomicU64], chunk: u32, code: u16) -> u32 {
    let Some(child) = code.checked_sub(CHILDREN) else { return u32::from(code) };
    let (first, codes) = codes(pool, chunk);
    pool[first + (codes as usize).div_ceil(CODES) + usize::from(child)].load(Acquire) as u32
}

/// What the slots of the chunk lead to that `chunk` leads to.
pub(super) fn decode(pool: &[AtomicU64], chunk: u32) -> Slots {
    let (first, codes) = codes(pool, chunk);
    let mut entries = [0; SLOTS];
    let words = &pool[first..][..(codes as usize).div_ceil(CODES)];
    for (entries, word) in entries.as_chunks_mut::<CODES>().0.iter_mut().zip(words) {
        *entries = codes_in(word.load(Acquire)).map(u32::from);
    }
    if entries.iter().max() >= Some(&CHILDREN.into()) {
        entries = entries.map(|code| entry_of(pool, chunk, code as u16));
    }
    if chunk & FLAT != 0 {
        return entries;
    }
    let bits = pool[place(chunk)].load(Acquire);
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

/// Shows `hop` the index of a next hop for each code that is one in the chunk that `chunk` leads to, and `child` the
/// entries of its long chunks.
pub(super) fn contents(pool: &[AtomicU64], chunk: u32, mut hop: impl FnMut(u16), mut child: impl FnMut(u32)) {
    let (first, codes) = codes(pool, chunk);
    for index in 0..codes {
        let code = code(pool, first, index);
        match code.checked_sub(CHILDREN) {
            None => hop(code),
            Some(_) => child(entry_of(pool, chunk, code)),
        }
    }
}

/// The codes in a word.
pub(super) fn codes_in(word: u64) -> [u16; CODES] {
    std::array::from_fn(|index| (word >> (16 * index)) as u16)
}

/// Word number `at` of the codes 0, 1, 2 …
pub(super) fn own_codes(at: usize) -> u64 {
    (0..CODES).fold(0, |word, index| word | ((CODES * at + index) as u64) << (16 * index))
}
