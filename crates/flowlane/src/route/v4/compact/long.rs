//! Next hops inside slots whose addresses differ, in words of the pool: long chunks, and a directory of them for each
//! block that has some.
//!
//! Both begin with a bit for each of 256 places, and the number of bits before each word, so that the rank of a place is
//! one population count. The pool begins with zeros: an empty directory.
//!
//! ```text
//! long chunk: 256 addresses   ┌────────┬────────┬────────┬────────┬──────────────┬────┬────┬─
//!                             │ 64 bits, four times: a run begins │ ranks, 4×16  │ 16 │ 16 │ …  codes of the runs
//!                             └────────┴────────┴────────┴────────┴──────────────┴────┴────┴─
//! directory: 256 slots        ┌────────┬────────┬────────┬────────┬──────────────┬────────┬─
//!                             │ 64 bits, four times: slot is long │ ranks, 4×16  │   32   │ …  places of long chunks
//!                             └────────┴────────┴────────┴────────┴──────────────┴────────┴─
//! ```

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;

/// Slots of a block, and addresses of a slot.
pub(super) const PLACES: usize = 256;

/// Words in front of codes and places.
const HEAD: usize = 5;

/// Codes in a word, and places of long chunks in one.
const CODES: usize = 4;
const CHUNKS: usize = 2;

/// Most words of either.
const WORDS_MAX: usize = HEAD + PLACES / CHUNKS;

/// The next hops of a slot's addresses, by index.
pub(super) type Hosts = [u16; PLACES];

/// Where the long chunks of a block's slots are; 0: the slot has none.
pub(super) type Directory = [u32; PLACES];

/// A long chunk or a directory in the making.
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

    /// Sets bits where `value` has something, and puts the values behind them, `in_word` of them in a word.
    fn fill(&mut self, in_word: usize, value: impl Fn(usize) -> Option<u32>) {
        self.words.fill(0);
        let (mut count, width) = (0, 64 / in_word);
        for place in 0..PLACES {
            if place % 64 == 0 {
                self.words[4] |= (count as u64) << (16 * (place / 64));
            }
            if let Some(value) = value(place) {
                self.words[place / 64] |= 1 << (place % 64);
                self.words[HEAD + count / in_word] |= u64::from(value) << (width * (count % in_word));
                count += 1;
            }
        }
        self.len = HEAD + count.div_ceil(in_word);
    }

    /// Becomes the long chunk of these next hops.
    pub(super) fn set_hosts(&mut self, hosts: &Hosts) {
        self.fill(CODES, |host| (host == 0 || hosts[host - 1] != hosts[host]).then_some(hosts[host].into()));
    }

    /// Becomes a directory.
    pub(super) fn set_directory(&mut self, directory: &Directory) {
        self.fill(CHUNKS, |slot| Some(directory[slot]).filter(|place| *place != 0));
    }
}

/// How many bits are set up to `place` in the head at `at`, and whether its own is.
#[inline(always)]
fn rank(pool: &[AtomicU64], at: usize, place: usize) -> (usize, bool) {
    let before = (pool[at + 4].load(Acquire) >> (16 * (place / 64))) as u16;
    let bits = pool[at + place / 64].load(Acquire) << (63 - place % 64);
    (usize::from(before) + bits.count_ones() as usize, bits >> 63 != 0)
}

#[inline(always)]
fn value(pool: &[AtomicU64], at: usize, index: usize, in_word: usize) -> u32 {
    let width = 64 / in_word;
    let word = pool[at + HEAD + index / in_word].load(Acquire) >> (width * (index % in_word));
    (word & ((1 << width) - 1)) as u32
}

/// Returns the next hop's index of an address of the long chunk at `at`, by its last eight bits.
#[inline(always)]
pub(super) fn hop(pool: &[AtomicU64], at: u32, host: u32) -> u32 {
    let (rank, _) = rank(pool, at as usize, host as usize);
    // The first address begins a run.
    value(pool, at as usize, rank - 1, CODES)
}

/// Returns the long chunk of a slot in the directory at `at`; none where it is not there.
#[inline(always)]
pub(super) fn chunk(pool: &[AtomicU64], at: u32, slot: u32) -> Option<u32> {
    match rank(pool, at as usize, slot as usize) {
        (rank, true) => Some(value(pool, at as usize, rank - 1, CHUNKS)),
        _ => None,
    }
}

/// Shows `show` each place whose bit is set in the head at `at`, and what it has.
fn each(pool: &[AtomicU64], at: u32, in_word: usize, mut show: impl FnMut(usize, u32)) {
    let mut count = 0;
    for word in 0..PLACES / 64 {
        let mut bits = pool[at as usize + word].load(Acquire);
        while bits != 0 {
            show(64 * word + bits.trailing_zeros() as usize, value(pool, at as usize, count, in_word));
            bits &= bits - 1;
            count += 1;
        }
    }
}

/// Returns the next hops in the long chunk at `at`.
pub(super) fn hosts(pool: &[AtomicU64], at: u32) -> Hosts {
    let mut hosts = [0; PLACES];
    // To the end each: the next run begins later.
    each(pool, at, CODES, |host, hop| hosts[host..].fill(hop as u16));
    hosts
}

/// Shows `hop` the index of a next hop for each run of the long chunk at `at`.
pub(super) fn each_hop(pool: &[AtomicU64], at: u32, mut hop: impl FnMut(u16)) {
    each(pool, at, CODES, |_, index| hop(index as u16));
}

/// Returns the directory at `at`.
pub(super) fn directory(pool: &[AtomicU64], at: u32) -> Directory {
    let mut directory = [0; PLACES];
    each(pool, at, CHUNKS, |slot, place| directory[slot] = place);
    directory
}
