//! A group of addresses in two stages, none of which has a branch that depends on an address.
//!
//! First all entries of the direct table are read, and from each entry is computed where its address reads further:
//! in a chunk, or, where it leads to none, in the index's own code. Then each reads there. Nothing waits for the end of a
//! group, and the CPU begins the next one meanwhile: so short batches cost as little an address as long ones.

use std::arch::x86_64::_bzhi_u64;
use std::sync::atomic::Ordering::Acquire;

use super::node::{BITS, CHILDREN, CODES, FLAT, NODE};
use super::scalar;
use super::table::Table;
use crate::memory::prefetch;
use crate::route::gather::code_at;

/// Addresses of a group.
pub(super) const GROUP: usize = 64;

/// What is left of a batch goes in groups of so many, the last one filled up.
pub(super) const LAST: usize = 16;

/// Where the addresses of a group read further.
pub(super) struct Places<const N: usize> {
    /// The code, if no bit of the word that it is in counts.
    pub(super) codes: [u32; N],
    /// How many of that word's bits do: none where it is not one of bits.
    pub(super) bits: [u32; N],
}

impl<const N: usize> Places<N> {
    pub(super) const NONE: Self = Self { codes: [0; N], bits: [0; N] };

    /// Notes where addresses read further, from number `first` on, that have these entries.
    #[inline(always)]
    pub(super) fn set<const LANES: usize>(
        &mut self,
        first: usize,
        entries: [u32; LANES],
        addresses: &[u32; LANES],
    ) {
        // All bits of a lane that has the mark.
        let marked =
            |entry: u32, mark: u32| ((entry << mark.leading_zeros()).cast_signed() >> 31).cast_unsigned();
        let (codes, bits) = (&mut self.codes[first..][..LANES], &mut self.bits[first..][..LANES]);
        for (((entry, address), code), bits) in entries.iter().zip(addresses).zip(codes).zip(bits) {
            let slot = address >> 8 & 63;
            *code = (entry & !NODE) + (slot & marked(*entry, FLAT));
            *bits = (slot + 1) & marked(*entry, BITS);
        }
    }

    /// Finds the next hops of addresses that were noted.
    #[target_feature(enable = "bmi2,popcnt")]
    #[inline]
    pub(super) fn resolve(&self, table: &Table, addresses: &[u32], next_hops: &mut [u64]) {
        let pool = table.pool();
        for &code in &self.codes {
            prefetch(pool, code as usize / CODES);
        }
        let places = self.codes.iter().zip(&self.bits);
        for (((&code, &bits), &address), next_hop) in places.zip(addresses).zip(next_hops) {
            // SAFETY: the writer has written what an entry leads to before the entry; that is in the pool.
            let word = unsafe { pool.get_unchecked(code as usize / CODES) }.load(Acquire);
            let rank = _bzhi_u64(word, bits).count_ones();
            // SAFETY: as above; a chunk has a code for each of its bits.
            let code = unsafe { code_at(pool.as_ptr().cast(), code + rank) };
            *next_hop = if code < CHILDREN.into() {
                // SAFETY: other codes are indices of next hops, for which the table has room.
                unsafe { table.next_hops.get_unchecked(code as usize) }.load(Acquire)
            } else {
                in_long_chunk(table, address)
            };
        }
    }
}

/// Long chunks are rare in routes of the Internet: one at a time.
#[cold]
#[inline(never)]
fn in_long_chunk(table: &Table, address: u32) -> u64 {
    scalar::lookup(table, address)
}
