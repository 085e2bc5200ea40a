//! Instrumentation of lookups: the loads, stores, ALU operations and branches of the scalar kernel.
//!
//! The simulator of near-cache accelerators runs the real tables, not models of them. Their scalar lookups are
//! generic over a [`Probe`]; the normal path has [`NoProbe`], whose methods are empty and vanish
//! (`crates/flowlane/check-probe.sh` checks that). Places are parts of a table and offsets into them,
//! never addresses, so that what a probe sees is the same in every process.

/// A part of a table's memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// The key that is looked up: the caller's.
    Key,
    /// The locations of the other parts: sizes, seeds, geometry.
    Header,
    /// Buckets of signatures, or slots of hashes.
    Buckets,
    /// Keys with their values.
    Entries,
    /// Values that are not beside their keys.
    Values,
    /// Chains of what shares an entry.
    Links,
}

/// The dependency of an address on earlier loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dependency {
    /// It is: the load may begin at once.
    Free,
    /// It is computed from the results of the loads or operations before.
    Chained,
}

/// Listens to a lookup. `table` counts the tables of a search through several; 0 where there is one.
pub trait Probe {
    /// `bytes` at `offset` of a part are read.
    fn load(&mut self, table: u32, part: Part, offset: usize, bytes: usize, dependency: Dependency);

    /// `bytes` at `offset` of a part are written.
    fn store(&mut self, table: u32, part: Part, offset: usize, bytes: usize);

    /// Reports instructions that access no memory; each but the first waits for others.
    fn alu(&mut self, instructions: u32);

    /// Reports a branch, named by its place in the code, that depends on the last load.
    fn branch(&mut self, id: u32, taken: bool);
}

/// Ignores all events.
#[derive(Clone, Copy, Debug)]
pub struct NoProbe;

const _: () = assert!(size_of::<NoProbe>() == 0);

impl Probe for NoProbe {
    #[inline(always)]
    fn load(&mut self, _: u32, _: Part, _: usize, _: usize, _: Dependency) {}

    #[inline(always)]
    fn store(&mut self, _: u32, _: Part, _: usize, _: usize) {}

    #[inline(always)]
    fn alu(&mut self, _: u32) {}

    #[inline(always)]
    fn branch(&mut self, _: u32, _: bool) {}
}
