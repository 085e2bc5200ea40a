//! What cores execute: operations of one or a few instructions each, in program order.

use super::cache::Line;
use super::query::{BatchId, Queries, QueryId};

/// What an operation is for: under what its time is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Computing.
    Compute,
    /// Keeping readers from what a writer changes.
    Lock,
    /// Fetching the table's data.
    Data,
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Computes.
    Work,
    /// Reads a line.
    Load(Line),
    /// Asks for a line, and waits for nothing.
    Prefetch(Line),
    /// Writes a line.
    Store(Line),
    /// Goes one of two ways; named by its place in the code.
    Branch {
        /// Its place.
        id: u32,
        /// Which way.
        taken: bool,
    },
    /// LOOKUP_B, or a query to an engine beside the second cache.
    Lookup(QueryId),
    /// LOOKUP_NB: ends when it leaves the window, and sends its query then.
    LookupNonBlocking(QueryId),
    /// SNAPSHOT_READ of the line that a batch's results are written to, again until all are there.
    Snapshot(BatchId),
    /// A query to a device that answers after so many cycles, and takes another after `busy`.
    Device {
        /// From the query to the answer.
        latency_cycles: u64,
        /// From a query to the next.
        busy_cycles: u64,
    },
}

/// Chains of operations that wait for each other; the last is nobody's.
pub const CHAINS: usize = 65;

/// An operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op {
    /// What it does.
    pub kind: Kind,
    /// Instructions that it stands for.
    pub instructions: u32,
    /// What it is for.
    pub class: Class,
    /// The chain that it belongs to.
    pub chain: u8,
    /// It begins when what its chain did last has ended.
    pub waits: bool,
    /// What follows in its chain waits for it.
    pub gives: bool,
    /// Nothing enters the window behind it before it has ended.
    pub fences: bool,
    /// A unit of work (a packet, a batch) begins with it.
    pub begins: bool,
    /// So many lookups, and a unit of work, end with it.
    pub ends: u32,
}

impl Op {
    /// One instruction that neither waits nor is waited for.
    pub fn new(kind: Kind, class: Class) -> Self {
        let (waits, gives, fences, begins) = (false, false, false, false);
        Self { kind, instructions: 1, class, chain: 0, waits, gives, fences, begins, ends: 0 }
    }

    /// Work of so many instructions.
    pub fn work(instructions: u32, class: Class) -> Self {
        Self { instructions, ..Self::new(Kind::Work, class) }
    }

    /// The next link of a chain.
    pub fn chained(self, chain: u8) -> Self {
        Self { chain, waits: true, gives: true, ..self }
    }
}

/// A lookup's answer, or what the library says it should be, was another.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the simulated lookup number {lookup} of {table} gave {simulated:?}, the library gives {library:?}")]
pub struct Mismatch {
    /// Which lookup.
    pub lookup: u64,
    /// Of what.
    pub table: String,
    /// What came out of the walk that is simulated.
    pub simulated: Option<u32>,
    /// What the library says.
    pub library: Option<u32>,
}

/// What a thread executes, made as it goes.
pub trait Program {
    /// Appends the operations of the next unit of work; says whether there was one.
    ///
    /// # Errors
    /// Where an answer is not the library's.
    fn refill(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<bool, Mismatch>;
}
