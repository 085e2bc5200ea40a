//! Memory that the writer and its readers share.

use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64};

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::lanes::LookupBatch;
use super::scalar;
use crate::dispatch::AdaptiveDispatch;
use crate::isa::Backend;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::isa::simd::InstructionSet;
use crate::memory::{LINE_BYTES, Memory};
use crate::route::cell::Cell;

/// Blocks of addresses: all that have their first 16 bits in common.
pub(super) const BLOCKS: usize = 1 << 16;

/// Slots of a block: all that have the next eight bits in common, too.
pub(super) const SLOTS: usize = 256;

const _: () = assert!(SLOTS.is_multiple_of(LINE_BYTES), "a chunk is whole lines");

/// The code of a slot's addresses: the index of a next hop, or a long chunk.
pub(super) trait Code: Cell {
    /// The code of slots with long chunks; smaller ones are indices of next hops.
    const LONG: u32 = (u64::MAX >> (64 - 8 * Self::BYTES)) as u32;

    #[inline(always)]
    fn code(&self) -> u32 {
        self.get() as u32
    }

    /// Returns the code. Earlier stores of the writer are visible behind a fence that acquires.
    #[inline(always)]
    fn code_relaxed(&self) -> u32 {
        self.get_relaxed() as u32
    }

    /// Changes it.
    #[inline(always)]
    fn set_code(&self, code: u32) {
        self.set(code.into());
    }
}

impl Code for AtomicU8 {}
impl Code for AtomicU16 {}

/// Which chunk a block has, and the chunks.
#[derive(Debug)]
pub(super) struct Chunks<C: Code> {
    /// By the first 16 bits of an address: the place of the first of its block's codes.
    pub(super) direct: Memory<AtomicU32>,
    pub(super) codes: Memory<C>,
}

impl<C: Code> Chunks<C> {
    /// Room for this number of chunks.
    pub(super) fn zeroed(chunks: usize) -> Self {
        let direct = Memory::zeroed(if chunks == 0 { 0 } else { BLOCKS });
        Self { direct, codes: Memory::zeroed(chunks * SLOTS) }
    }

    /// Returns the place of an address's code.
    #[inline(always)]
    pub(super) fn place(&self, address: u32) -> usize {
        let first = self.direct[(address >> 16) as usize].load(Acquire);
        first as usize + (address >> 8) as usize % SLOTS
    }
}

// Alone on its lines: what the allocator puts beside it may be the writer's, and is written with each change.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Table {
    /// Codes of one byte, as long as there are few next hops; of two from then on.
    pub(super) narrow: Chunks<AtomicU8>,
    pub(super) wide: Chunks<AtomicU16>,
    pub(super) is_wide: AtomicBool,
    /// By the first 16 bits of an address: where the directory of its block's long chunks is in the pool, or 0.
    pub(super) directories: Memory<AtomicU32>,
    pub(super) pool: Memory<AtomicU64>,
    pub(super) next_hops: Memory<AtomicU64>,
    pub(super) backend: AdaptiveDispatch<Backend>,
}

impl Table {
    pub(super) fn lookup_batch(&self, addresses: &[u32], next_hops: &mut [u64]) {
        let next_hops = &mut next_hops[..addresses.len()];
        if self.is_wide.load(Acquire) {
            self.lookup_in(&self.wide, addresses, next_hops);
        } else {
            self.lookup_in(&self.narrow, addresses, next_hops);
        }
    }

    fn lookup_in<C: Code>(&self, chunks: &Chunks<C>, addresses: &[u32], next_hops: &mut [u64]) {
        self.backend.run_batch(
            || addresses.len(),
            |backend| match backend {
                #[cfg(target_arch = "x86_64")]
                Backend::Avx2(isa) => isa.run(LookupBatch { table: self, chunks, addresses, next_hops }),
                #[cfg(target_arch = "x86_64")]
                Backend::Avx512(isa) => isa.run(LookupBatch { table: self, chunks, addresses, next_hops }),
                #[cfg(target_arch = "aarch64")]
                Backend::Neon(isa) => isa.run(LookupBatch { table: self, chunks, addresses, next_hops }),
                _ => scalar::lookup_batch(self, chunks, addresses, next_hops),
            },
        );
    }
}
