//! What the writer and its readers share.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use super::node::{self, CODES};
use super::pool::LARGEST_WORDS;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::choices::Choice;
use crate::isa::Body;
use crate::memory::Memory;

/// Bits of an address that the direct table is indexed by.
pub(super) const DIRECT_BITS: u32 = 18;

/// How far an address is shifted for that.
pub(super) const DIRECT_SHIFT: u32 = 32 - DIRECT_BITS;

/// Words of the direct table, which has an entry of 32 bits for each index.
pub(super) const DIRECT_WORDS: usize = 1 << (DIRECT_BITS - 1);

/// A word behind the pool, so that a lane of a gather may read four bytes where a code has two.
const PADDING: usize = 1;

// Alone on its lines: what the allocator puts beside it may be the writer's, and is written with each change.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Table {
    /// The direct table, and behind it the pool: in one piece, which large pages cover better.
    words: Memory<AtomicU64>,
    pub(super) next_hops: Memory<AtomicU64>,
    pub(super) body: Choice<Body>,
}

/// Words at the beginning of the pool with the codes 0, 1, 2 …: where an address reads on that has no chunk.
pub(super) fn words_of_own_codes(hops_max: usize) -> usize {
    hops_max.div_ceil(CODES).next_multiple_of(LARGEST_WORDS)
}

impl Table {
    /// A table with so many words in its pool, those of the next hops' own codes with them, and room for so many
    /// next hops.
    pub(super) fn zeroed(pool_words: usize, hops_max: usize, body: Choice<Body>) -> Self {
        let words = Memory::zeroed(DIRECT_WORDS + pool_words + PADDING);
        let table = Self { words, next_hops: Memory::zeroed(hops_max), body };
        for (at, word) in table.pool().iter().enumerate().take(words_of_own_codes(hops_max)) {
            word.store(node::own_codes(at), Relaxed);
        }
        table
    }

    #[inline(always)]
    pub(super) fn direct(&self) -> &[AtomicU32; 1 << DIRECT_BITS] {
        const { assert!(size_of::<[AtomicU32; 1 << DIRECT_BITS]>() == size_of::<[AtomicU64; DIRECT_WORDS]>()) };
        // SAFETY: the first DIRECT_WORDS words, which `zeroed` has allocated; nothing else reads or writes them, so
        // they are atomics of 32 bits throughout; those have no invalid values and a smaller alignment.
        unsafe { &*self.words.as_ptr().cast() }
    }

    #[inline(always)]
    pub(super) fn pool(&self) -> &[AtomicU64] {
        &self.words[DIRECT_WORDS..]
    }

    pub(super) fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [u64]) {
        let next_hops = &mut next_hops[..addresses.len()];
        self.body.batch(
            || addresses.len(),
            |body| match body {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the witness proves that the CPU has AVX2 and the instructions on bits.
                Body::Avx2(_) => unsafe { avx2::lookup_batch(self, addresses, next_hops) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL, and the instructions on bits.
                Body::Avx512(_) => unsafe { avx512::lookup_batch(self, addresses, next_hops) },
                _ => scalar::lookup_batch(self, addresses, next_hops),
            },
        );
    }
}
