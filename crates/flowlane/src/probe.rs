//! What a lookup does, told to whoever asks: loads, stores, work and branches, as the scalar body does them.
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
    /// What says where the others are: sizes, seeds, geometry.
    Header,
    /// Buckets of signatures, or slots of hashes.
    Buckets,
    /// Keys with their values.
    Entries,
    /// Values that do not stand beside their keys.
    Values,
    /// Chains of what shares an entry.
    Links,
}

/// Whether a place is known before what was read last has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dependency {
    /// It is: the load may begin at once.
    Free,
    /// It is computed from what was read or computed before.
    Chained,
}

/// Listens to a lookup. `table` counts the tables of a search through several; 0 where there is one.
pub trait Probe {
    /// `bytes` at `offset` of a part are read.
    fn load(&mut self, table: u32, part: Part, offset: usize, bytes: usize, dependency: Dependency);

    /// `bytes` at `offset` of a part are written.
    fn store(&mut self, table: u32, part: Part, offset: usize, bytes: usize);

    /// So many instructions that read and write no memory, each but the first of them waiting for others.
    fn alu(&mut self, instructions: u32);

    /// A branch, named by its place in the code, that depends on what was read last.
    fn branch(&mut self, id: u32, taken: bool);
}

/// Nobody listens.
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
