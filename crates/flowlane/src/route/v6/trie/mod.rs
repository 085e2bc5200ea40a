#![doc = include_str!("README.md")]

mod entry;
mod scalar;
mod update;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use entry::GROUP;

use crate::route::cell::Cell;

use super::pool::Pool;
use crate::isa::{Backend, Variant};
use crate::memory::Memory;
use crate::route::epoch::{Epochs, Participant};
use crate::route::{BuildError, Fib, FibConfig, FibReader, HopSize, Prefix, Rib};

/// Bits that the first level decides.
const FIRST_BITS: u8 = 24;

/// Most groups that a route takes, old and new ones: one for every eight bits behind the first level.
const GROUPS_OF_ROUTE_MAX: usize = 2 * 13;

/// Groups besides, for those that wait until no reader can see them.
const SPARE: usize = 1 << 10;

/// The levels of a table, with entries of one size.
#[derive(Debug)]
struct Levels<E: Cell> {
    /// An entry for each value of the first 24 bits.
    first: Memory<E>,
    /// Groups of 256 entries, for the next eight bits each; one more than are used, so that a vector may
    /// read beyond an entry.
    groups: Memory<[E; GROUP]>,
}

/// The levels, by the size of entries.
#[derive(Debug)]
enum Sized {
    B2(Levels<AtomicU16>),
    B4(Levels<AtomicU32>),
    B8(Levels<AtomicU64>),
}

/// Evaluates an expression with the levels, whatever the size of entries.
macro_rules! with_levels {
    ($table:expr, $levels:ident => $value:expr) => {
        match &$table.levels {
            Sized::B2($levels) => $value,
            Sized::B4($levels) => $value,
            Sized::B8($levels) => $value,
        }
    };
}
use with_levels;

/// What readers see.
// Alone on its lines: what the allocator puts beside it may be the writer's, and is written with each change.
#[derive(Debug)]
#[repr(align(128))]
struct Table {
    levels: Sized,
    body: Backend,
    /// Whether the scalar body asks for entries ahead.
    prefetch: bool,
    epochs: Epochs,
}

impl Table {
    fn lookup(&self, address: u128) -> u64 {
        with_levels!(self, levels => scalar::lookup(levels, address))
    }

    fn lookup_batch(&self, addresses: &[u128], next_hops: &mut [u64]) {
        let next_hops = &mut next_hops[..addresses.len()];
        match self.body {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(isa) => {
                with_levels!(self, levels => avx2::lookup(isa, levels, addresses, next_hops))
            }
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(isa) => {
                with_levels!(self, levels => avx512::lookup(isa, levels, addresses, next_hops))
            }
            _ if self.prefetch => {
                with_levels!(self, levels => scalar::lookup_batch(levels, addresses, next_hops))
            }
            _ => {
                for (address, next_hop) in addresses.iter().zip(next_hops) {
                    *next_hop = self.lookup(*address);
                }
            }
        }
    }
}

/// The writer's handle.
#[derive(Debug)]
pub struct Trie {
    table: Arc<Table>,
    pool: Pool,
    /// Bytes of the first level.
    first_bytes: usize,
    config: FibConfig,
}

/// A handle by which a thread looks addresses up.
#[derive(Clone, Debug)]
pub struct TrieReader {
    table: Arc<Table>,
    participant: Participant,
}

/// Bytes of an entry for next hops of this size.
fn entry_bytes(size: HopSize) -> usize {
    size.bytes().max(2)
}

/// The largest next hop: one bit of an entry says whether it is one.
fn hop_max(size: HopSize) -> u64 {
    if size == HopSize::B1 { size.max() } else { size.max() >> 1 }
}

fn levels<E: Cell>(groups: usize) -> Levels<E> {
    Levels { first: Memory::zeroed((1 << FIRST_BITS) + 1), groups: Memory::zeroed(groups + 1) }
}

impl Fib<u128> for Trie {
    type Reader = TrieReader;

    fn build(rib: &Rib<u128>, config: &FibConfig) -> Result<Self, BuildError> {
        let entry = entry_bytes(config.hop_size);
        let (first_bytes, group_bytes) = (entry << FIRST_BITS, entry * GROUP);
        let max = config.memory_max;
        let wanted = update::groups_needed(rib);
        let needed = first_bytes + wanted * group_bytes;
        let numbered = (hop_max(config.hop_size).max(0x7fff) as usize).min(1 << 22);
        let of_routes = rib.routes_max() * GROUPS_OF_ROUTE_MAX + SPARE;
        let groups = (max.saturating_sub(first_bytes) / group_bytes).min(of_routes).min(numbered);
        if needed > max {
            return Err(BuildError::NeedsMemory { needed, max });
        }
        if wanted > numbered {
            return Err(BuildError::TooManyGroups {
                needed: wanted,
                max: numbered,
                hop_size: config.hop_size,
            });
        }
        let levels = match entry {
            2 => Sized::B2(levels(groups)),
            4 => Sized::B4(levels(groups)),
            _ => Sized::B8(levels(groups)),
        };
        // Vector bodies ask for nothing ahead. With next hops of 8 bytes, beside DPDK's tables (Zen 5): scalar with
        // prefetch 62 cycles an address, AVX2 98, AVX-512 119; with 4 bytes 50, 179, 53, and fewer where addresses repeat.
        let order: &[Variant] = match config.hop_size.bytes() {
            8 => &[],
            _ => &[Variant::Avx512],
        };
        let body = config.body.unwrap_or_else(|| Backend::first_of(order));
        let table = Arc::new(Table { levels, body, prefetch: config.prefetch, epochs: Epochs::default() });
        let mut own = Self { table, pool: Pool::new(groups), first_bytes, config: *config };
        own.fill(rib)?;
        Ok(own)
    }

    fn update(&mut self, rib: &Rib<u128>, changed: Prefix<u128>) -> Result<(), BuildError> {
        self.repaint(rib, changed)
    }

    fn reader(&self) -> TrieReader {
        TrieReader { table: Arc::clone(&self.table), participant: self.table.epochs.join() }
    }

    fn lookup(&self, address: u128) -> u64 {
        self.table.lookup(address)
    }

    fn lookup_batch(&self, addresses: &[u128], next_hops: &mut [u64]) {
        self.table.lookup_batch(addresses, next_hops);
    }

    fn table_bytes(&self) -> usize {
        self.first_bytes + self.pool.used() * entry_bytes(self.config.hop_size) * GROUP
    }

    fn variant(&self) -> Variant {
        match self.table.body.variant() {
            Variant::Sse42 => Variant::Scalar,
            variant => variant,
        }
    }
}

impl FibReader<u128> for TrieReader {
    fn lookup(&self, address: u128) -> u64 {
        let _inside = self.participant.enter();
        self.table.lookup(address)
    }

    fn lookup_batch(&self, addresses: &[u128], next_hops: &mut [u64]) {
        let _inside = self.participant.enter();
        self.table.lookup_batch(addresses, next_hops);
    }
}
