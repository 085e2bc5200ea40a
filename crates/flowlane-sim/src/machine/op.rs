//! Operations that cores execute: one or a few instructions each, in program order.

use std::ops::Range;

use super::cache::Line;
use super::query::{BatchId, Queries, QueryId};
use crate::config::Work;

/// The purpose of an operation, to which its time is attributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Computing.
    Compute,
    /// Synchronisation with writers.
    Lock,
    /// Reading the table.
    Data,
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Computes.
    Work,
    /// Reads a line.
    Load(Line),
    /// Requests a line without waiting.
    Prefetch(Line),
    /// Writes a line.
    Store(Line),
    /// A conditional branch.
    Branch {
        /// Its address, as an identifier.
        id: u32,
        /// Whether it is taken.
        taken: bool,
    },
    /// LOOKUP_B, or a query to an engine next to the second-level cache.
    Lookup(QueryId),
    /// LOOKUP_NB: finishes when it retires, and sends its query then.
    LookupNonBlocking(QueryId),
    /// SNAPSHOT_READ of the line of a batch's results, repeated until all are present.
    Snapshot(BatchId),
    /// A query to a device with a fixed latency.
    Device {
        /// The time from the query to the answer.
        latency_cycles: u64,
        /// The time between two queries.
        busy_cycles: u64,
    },
}

/// The number of registers' names. 0 is none; the upper half has the chains of recorded lookups.
pub const REGISTERS: usize = 256;

/// The names of general registers, and of vector registers.
pub(crate) const GENERAL: Range<u8> = 1..17;
pub(crate) const VECTORS: Range<u8> = 20..60;

/// The first register's name of the chains.
pub(crate) const CHAINS: u8 = 128;

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// The kind.
    pub kind: Kind,
    /// The number of instructions, each with a place in the window.
    pub instructions: u32,
    /// The micro-operations of one instruction that computes.
    pub count: u8,
    /// The kind of work, which needs a port.
    pub work: Work,
    /// Whether it is on vectors of 512 bits.
    pub wide: bool,
    /// Cycles from its issue to its result; for loads, in addition to those of the cache.
    pub latency: u8,
    /// Registers that it waits for, and those that it writes; 0 for none.
    pub reads: [u8; 6],
    pub writes: [u8; 3],
    /// The number of operations back to one that it waits for; 0 for none.
    pub after: u32,
    /// Whether it waits until that one, a store, has retired and is in the cache.
    pub after_retired: bool,
    /// The purpose.
    pub class: Class,
    /// The dependency chain.
    pub chain: u8,
    /// Whether it waits for the previous operation of its chain.
    pub waits: bool,
    /// Whether later operations of its chain wait for it.
    pub gives: bool,
    /// Whether no later operation enters the window before it has finished.
    pub fences: bool,
    /// Whether it begins a unit of work (a packet, a batch).
    pub begins: bool,
    /// The number of lookups that end with it, together with a unit of work.
    pub ends: u32,
}

impl Op {
    /// Creates one independent instruction.
    pub fn new(kind: Kind, class: Class) -> Self {
        let work = match kind {
            Kind::Work | Kind::LookupNonBlocking(_) => Work::Alu,
            Kind::Branch { .. } => Work::Branch,
            Kind::Store(_) => Work::Store,
            _ => Work::Load,
        };
        let latency = u8::from(matches!(work, Work::Alu | Work::Branch));
        let (waits, gives, fences, begins) = (false, false, false, false);
        let (reads, writes, after) = ([0; 6], [0; 3], 0);
        Self {
            kind,
            instructions: 1,
            count: 1,
            work,
            wide: false,
            latency,
            reads,
            writes,
            after,
            after_retired: false,
            class,
            fences,
            begins,
            ends: 0,
            chain: 0,
            waits,
            gives,
        }
    }

    /// Creates a number of computing instructions.
    pub fn work(instructions: u32, class: Class) -> Self {
        Self { instructions, ..Self::new(Kind::Work, class) }
    }

    /// Returns the entries of the scheduler that it takes until it has begun.
    pub(super) fn in_scheduler(&self) -> u32 {
        if self.work == Work::None { 0 } else { self.instructions.max(self.count.into()) }
    }

    /// Returns the registers that it waits for, and those that it writes.
    pub(super) fn registers(&self) -> ([u8; 6], [u8; 3]) {
        let (mut reads, mut writes) = (self.reads, self.writes);
        if self.waits {
            reads[5] = CHAINS + self.chain;
        }
        if self.gives {
            writes[2] = CHAINS + self.chain;
        }
        (reads, writes)
    }

    /// Returns the numbers of general and of vector registers that its results take: none if it only renames, as moves do.
    pub(super) fn results(&self) -> [u32; 2] {
        if self.work == Work::None {
            return [0; 2];
        }
        let of = |names: Range<u8>| self.writes.iter().filter(|name| names.contains(name)).count() as u32;
        [of(GENERAL), of(VECTORS)]
    }

    /// Appends the operation to a dependency chain.
    pub fn chained(self, chain: u8) -> Self {
        Self { chain, waits: true, gives: true, ..self }
    }
}

/// A difference between the simulated answer and the library's.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the simulated lookup number {lookup} of {table} gave {simulated:?}, the library gives {library:?}")]
pub struct Mismatch {
    /// The number of the lookup.
    pub lookup: u64,
    /// The table.
    pub table: String,
    /// The answer of the simulated walk.
    pub simulated: Option<u32>,
    /// The answer of the library.
    pub library: Option<u32>,
}

/// The instruction stream of a thread, generated on demand.
pub trait Program {
    /// Appends the operations of the next unit of work, and returns whether there was one.
    ///
    /// # Errors
    /// Returns an error if an answer differs from the library's.
    fn refill(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<bool, Mismatch>;
}
