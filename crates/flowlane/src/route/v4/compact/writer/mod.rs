//! The one handle that changes a table.
//!
//! A change is *staged* first: new chunks are written where no reader looks, and what will be stored is noted. If there
//! is no memory for it, that is all given back. Then it is *committed*, by stores that readers see one by one.

#[cfg(test)]
mod audit;
mod commit;
mod room;
mod stage;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::hops::{Hops, NEXT_HOPS_MAX};
use super::pool::{Blocks, LARGEST_WORDS};
use super::table::{BLOCKS, Chunks, Code, SLOTS, Table};
use crate::isa::Variant;
use crate::memory::{Memory, prefetch};
use crate::route::epoch::Epochs;
use crate::route::{BuildError, FibConfig, HopSize, Prefix, Rib};
use room::Room;
use stage::Staged;

/// Most words of the pool that a route takes: a long chunk and a directory of its own, old and new ones.
const WORDS_OF_ROUTE_MAX: usize = 32;

/// Spare chunks, words and next hops, for those that wait until no reader can see them.
const CHUNKS_SPARE: usize = 1 << 10;
const WORDS_SPARE: usize = 1 << 13;
const HOPS_SPARE: usize = 64;

/// Pieces, or next hops, taken out before the writer asks which of them are free.
const RETIRED_AT_ONCE: usize = 64;

/// Most next hops while codes have one byte.
const NARROW_HOPS_MAX: usize = 255;

/// The target of a slot's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    /// A next hop, by its index.
    Hop(u16),
    /// The long chunk there.
    Long(u32),
}

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) table: Arc<Table>,
    pub(super) epochs: Epochs,
    hop_size: HopSize,
    default_next_hop: u64,
    hops: Hops,
    room: Room,
    /// Of the update under way.
    staged: Staged,
}

impl Writer {
    pub(super) fn build(rib: &Rib<u32>, config: &FibConfig) -> Result<Self, BuildError> {
        // Old and new ones beside each other while readers may see both.
        let hops_max = NEXT_HOPS_MAX.min(2 * rib.routes_max() + HOPS_SPARE);
        let fixed_bytes = 2 * BLOCKS * size_of::<u32>() + hops_max * size_of::<u64>();
        let (needed, max) = (fixed_bytes + SLOTS + LARGEST_WORDS * size_of::<u64>(), config.memory_max);
        if needed > max {
            return Err(BuildError::NeedsMemory { needed, max });
        }
        let chunks_of_routes = (2 * rib.routes_max()).min(BLOCKS) + CHUNKS_SPARE;
        let chunks_max = chunks_of_routes.min((max - fixed_bytes) / SLOTS);
        let words_of_routes = rib.routes_max() * WORDS_OF_ROUTE_MAX + WORDS_SPARE;
        let words_max = words_of_routes.min((max - fixed_bytes) / size_of::<u64>()).min(u32::MAX as usize);
        let table = Table {
            narrow: Chunks::zeroed(chunks_max),
            wide: Chunks::zeroed(if hops_max > NARROW_HOPS_MAX { chunks_max } else { 0 }),
            is_wide: AtomicBool::new(false),
            directories: Memory::zeroed(BLOCKS),
            pool: Memory::zeroed(words_max),
            next_hops: Memory::zeroed(hops_max),
            backend: config.choice_of(&[Variant::Avx512, Variant::Avx2, Variant::Neon]),
        };
        let mut writer = Self {
            table: Arc::new(table),
            epochs: Epochs::default(),
            hop_size: config.hop_size,
            default_next_hop: config.default_next_hop,
            hops: Hops::new(hops_max),
            room: Room::new(max, fixed_bytes, chunks_max, Blocks::new(words_max, 1)),
            staged: Staged::default(),
        };
        // The zeros that the table begins with are a chunk of the default next hop, which all blocks have.
        writer.check_next_hop(config.default_next_hop)?;
        writer.index_of(config.default_next_hop)?;
        writer.hops.name(0, (BLOCKS * SLOTS) as u32);
        match writer.update(rib, Prefix::ALL) {
            Err(BuildError::TooManyNextHops { max, .. }) => {
                let mut all: Vec<u64> = rib.walk(Prefix::ALL).map(|(_, next_hop)| next_hop).collect();
                all.push(config.default_next_hop);
                all.sort_unstable();
                all.dedup();
                Err(BuildError::TooManyNextHops { needed: all.len(), max })
            }
            built => built.map(|()| writer),
        }
    }

    pub(super) fn update(&mut self, rib: &Rib<u32>, changed: Prefix<u32>) -> Result<(), BuildError> {
        if self.room.waiting().max(self.hops.waiting()) >= RETIRED_AT_ONCE {
            self.reclaim();
        }
        self.ask_ahead(changed.first());
        self.room.begin();
        let staged = self.stage(rib, changed);
        if staged.is_ok() {
            self.commit();
        } else {
            self.room.give_back();
            if !self.is_wide() {
                self.hops.forget_from(NARROW_HOPS_MAX);
            }
        }
        self.staged.clear();
        let epochs = &self.epochs;
        self.hops.settle(|| epochs.stamp());
        staged
    }

    /// Asks for what will be read of the table, which comes while the routes are asked.
    fn ask_ahead(&self, address: u32) {
        if self.is_wide() {
            prefetch(&self.table.wide.codes, self.table.wide.place(address));
        } else {
            prefetch(&self.table.narrow.codes, self.table.narrow.place(address));
        }
    }

    /// Returns the bytes of what lookups read.
    pub(super) fn table_bytes(&self) -> usize {
        self.room.table_bytes()
    }

    /// Returns the bytes of the writer's accounts.
    pub(super) fn writer_bytes(&self) -> usize {
        self.room.own_bytes() + self.hops.own_bytes() + self.staged.own_bytes()
    }

    /// How many different next hops there are.
    pub(super) fn next_hops(&self) -> usize {
        self.hops.len()
    }

    fn check_next_hop(&self, next_hop: u64) -> Result<(), BuildError> {
        let (max, hop_size) = (self.hop_size.max(), self.hop_size);
        if next_hop > max { Err(BuildError::HopTooLarge { next_hop, max, hop_size }) } else { Ok(()) }
    }

    /// Takes back what no reader can see any more.
    fn reclaim(&mut self) {
        let oldest = self.epochs.oldest();
        self.room.reclaim(oldest);
        self.hops.reclaim(oldest);
    }

    fn is_wide(&self) -> bool {
        self.room.is_wide
    }

    /// Returns the place of the first code of the block.
    fn first_place(&self, block: u32) -> u32 {
        let direct = if self.is_wide() { &self.table.wide.direct } else { &self.table.narrow.direct };
        direct[block as usize].load(Relaxed)
    }

    /// Returns the index of a next hop at a place; none: a long chunk.
    fn hop_at(&self, place: u32) -> Option<u16> {
        fn of<C: Code>(chunks: &Chunks<C>, place: u32) -> Option<u16> {
            let code = chunks.codes[place as usize].code();
            (code != C::LONG).then_some(code as u16)
        }
        if self.is_wide() { of(&self.table.wide, place) } else { of(&self.table.narrow, place) }
    }

    /// Writes an entry to `len` places from `place` on.
    fn set(&self, place: u32, len: u32, entry: Entry) {
        fn set<C: Code>(chunks: &Chunks<C>, place: u32, len: u32, entry: Entry) {
            let code = match entry {
                Entry::Hop(hop) => hop.into(),
                Entry::Long(_) => C::LONG,
            };
            chunks.codes[place as usize..][..len as usize].iter().for_each(|place| place.set_code(code));
        }
        if self.is_wide() {
            set(&self.table.wide, place, len, entry);
        } else {
            set(&self.table.narrow, place, len, entry);
        }
    }
}
