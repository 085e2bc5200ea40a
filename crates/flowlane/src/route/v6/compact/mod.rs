#![doc = include_str!("README.md")]

mod batch;
mod build;
mod layout;
mod update;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
mod trie;

#[cfg(test)]
mod tests;

pub use trie::Trie;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

use batch::LookupBatch;
use build::{Builder, Counts, Form, Made, Route};
use layout::{LINE_UNITS, LINES_MAX, Line, Word};

use super::hops::{self, Hops};
use super::pool::Pool;
use crate::dispatch::AdaptiveDispatch;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::isa::simd::InstructionSet;
use crate::isa::simd::Kernel;
use crate::isa::{Backend, Variant};
use crate::memory::Memory;
use crate::route::epoch::{Epochs, Participant};
use crate::route::{BuildError, Fib, FibConfig, FibReader, HopSize, Prefix, Rib};

/// Bits of an address that the root decides.
const ROOT_BITS: u8 = layout::WINDOW_START;

/// Most lines that a route takes: tables one below the other through four windows, old and new ones.
const LINES_OF_ROUTE_MAX: usize = 64;

/// The pool's unit: an eighth of a line.
const UNIT_BYTES: usize = size_of::<Line>() / LINE_UNITS;

/// Spare lines and next hops, for those that wait until no reader can see them.
const SPARE: usize = 1 << 10;

/// The table, shared with readers.
// Alone on its lines: what the allocator puts beside it may be the writer's, and is written with each change.
#[derive(Debug)]
#[repr(align(128))]
struct Table {
    root: Memory<AtomicU32>,
    lines: Memory<Line>,
    /// Next hops too large for a word.
    list: Memory<AtomicU64>,
    backend: AdaptiveDispatch<Backend>,
    epochs: Epochs,
}

/// A table in three slices, for kernels.
#[derive(Clone, Copy)]
struct View<'a> {
    root: &'a [AtomicU32],
    lines: &'a [Line],
    list: &'a [AtomicU64],
}

impl View<'_> {
    #[inline(always)]
    fn root_of(&self, address: u128) -> Word {
        Word(self.root[(address >> (128 - ROOT_BITS)) as usize].load(Acquire))
    }
}

impl Table {
    fn view(&self) -> View<'_> {
        View { root: &self.root, lines: &self.lines, list: &self.list }
    }

    fn lookup(&self, address: u128) -> u64 {
        let view = self.view();
        let word = scalar::follow(view, view.root_of(address), address, 0);
        hops::resolve(view.list, word.0)
    }

    fn lookup_batch(&self, addresses: &[u128], next_hops: &mut [u64]) {
        let next_hops = &mut next_hops[..addresses.len()];
        self.backend.run_batch(
            || addresses.len(),
            |backend| match backend {
                #[cfg(target_arch = "x86_64")]
                Backend::Avx2(isa) => isa.run(LookupBatch { view: self.view(), addresses, next_hops }),
                #[cfg(target_arch = "x86_64")]
                Backend::Avx512(isa) => avx512::lookup(isa, self.view(), addresses, next_hops),
                #[cfg(target_arch = "aarch64")]
                Backend::Neon(isa) => isa.run(LookupBatch { view: self.view(), addresses, next_hops }),
                _ => LookupBatch { view: self.view(), addresses, next_hops }.run(scalar::Portable),
            },
        );
    }
}

/// The writer's handle.
#[derive(Debug)]
pub struct Compact {
    form: Form,
    table: Arc<Table>,
    pool: Pool,
    hops: Hops,
    /// By the first line of a table: its routes.
    table_routes: Memory<Counts>,
    made: Made,
    /// The routes of the block that is being built.
    routes: Vec<Route>,
    changes: Vec<update::Change>,
    /// Routes in all, at the last change.
    len: usize,
    config: FibConfig,
}

/// A handle by which a thread looks addresses up.
#[derive(Clone, Debug)]
pub struct CompactReader {
    table: Arc<Table>,
    participant: Participant,
}

impl Fib<u128> for Compact {
    type Reader = CompactReader;

    fn build(rib: &Rib<u128>, config: &FibConfig) -> Result<Self, BuildError> {
        Self::build_as(Form::Nodes, rib, config)
    }

    fn update(&mut self, rib: &Rib<u128>, changed: Prefix<u128>) -> Result<(), BuildError> {
        self.repaint(rib, changed)
    }

    fn reader(&self) -> CompactReader {
        CompactReader { table: Arc::clone(&self.table), participant: self.table.epochs.join() }
    }

    fn lookup(&self, address: u128) -> u64 {
        self.table.lookup(address)
    }

    fn lookup_batch(&self, addresses: &[u128], next_hops: &mut [u64]) {
        self.table.lookup_batch(addresses, next_hops);
    }

    fn table_bytes(&self) -> usize {
        let root_and_lines = self.table.root.size_bytes() + self.pool.used() * UNIT_BYTES;
        root_and_lines + self.hops.len() * size_of::<u64>()
    }

    fn variant(&self) -> Variant {
        self.table.backend.get().variant()
    }
}

impl FibReader<u128> for CompactReader {
    fn lookup(&self, address: u128) -> u64 {
        let _inside = self.participant.enter();
        self.table.lookup(address)
    }

    fn lookup_batch(&self, addresses: &[u128], next_hops: &mut [u64]) {
        let _inside = self.participant.enter();
        self.table.lookup_batch(addresses, next_hops);
    }
}

impl Compact {
    /// Returns a table of this form.
    fn build_as(form: Form, rib: &Rib<u128>, config: &FibConfig) -> Result<Self, BuildError> {
        let root_bytes = size_of::<u32>() << ROOT_BITS;
        let max = config.memory_max;
        let Some(rest) = max.checked_sub(root_bytes) else {
            return Err(BuildError::NeedsMemory { needed: root_bytes, max });
        };
        // An eighth for listed next hops, of which there may be one a route.
        let listed = if config.hop_size > HopSize::B1 {
            (rest / 64).min(2 * rib.routes_max() + SPARE).min(1 << 29)
        } else {
            0
        };
        // The pool has two bits a unit, and a few.
        let line_bytes = size_of::<Line>() + size_of::<Counts>() + 3;
        let of_routes = rib.routes_max() * LINES_OF_ROUTE_MAX + SPARE;
        let lines = ((rest - 8 * listed) / line_bytes).min(of_routes).min(LINES_MAX);
        let table = Table {
            root: Memory::zeroed(1 << ROOT_BITS),
            lines: Memory::zeroed(lines),
            list: Memory::zeroed(listed),
            backend: config.choice_of(&[Variant::Avx512, Variant::Avx2, Variant::Neon]),
            epochs: Epochs::default(),
        };
        let mut own = Self {
            form,
            table: Arc::new(table),
            pool: Pool::new(lines * LINE_UNITS),
            hops: Hops::default(),
            table_routes: Memory::zeroed(lines),
            made: Made::default(),
            routes: Vec::new(),
            changes: Vec::new(),
            len: 0,
            config: *config,
        };
        own.update(rib, Prefix::ALL)?;
        Ok(own)
    }

    /// Returns the next change's builder.
    fn builder(&mut self) -> Builder<'_> {
        Builder {
            form: self.form,
            lines: &self.table.lines,
            list: &self.table.list,
            pool: &mut self.pool,
            hops: &mut self.hops,
            table_routes: &mut self.table_routes,
            made: &mut self.made,
        }
    }

    /// Returns the word at a place.
    fn word(&self, place: update::Place) -> &AtomicU32 {
        match place {
            update::Place::Root(slot) => &self.table.root[slot],
            update::Place::Table(word) => &self.table.lines.as_flattened()[word],
        }
    }

    fn load(&self, place: update::Place) -> Word {
        Word(self.word(place).load(Relaxed))
    }

    /// Roots that `prefix` covers, or is in.
    fn roots(&self, prefix: Prefix<u128>) -> Range<usize> {
        let root = |address: u128| (address >> (128 - ROOT_BITS)) as usize;
        root(prefix.first())..root(prefix.last()) + 1
    }
}
