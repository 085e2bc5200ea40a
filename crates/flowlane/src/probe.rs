//! Instrumentation of lookups: the loads, ALU operations and branches of the scalar kernel of exact-match tables.
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
    /// Buckets of signatures.
    Buckets,
    /// Keys with their values.
    Entries,
}

/// The dependency of an address on earlier loads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dependency {
    /// It is: the load may begin at once.
    Free,
    /// It is computed from the results of the loads or operations before.
    Chained,
}

/// Listens to a lookup.
pub trait Probe {
    /// `bytes` at `offset` of a part are read.
    fn load(&mut self, part: Part, offset: usize, bytes: usize, dependency: Dependency);

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
    fn load(&mut self, _: Part, _: usize, _: usize, _: Dependency) {}

    #[inline(always)]
    fn alu(&mut self, _: u32) {}

    #[inline(always)]
    fn branch(&mut self, _: u32, _: bool) {}
}
