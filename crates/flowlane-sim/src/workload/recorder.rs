//! Recorder of lookups in real tables: as operations of a core, and as the walk of an accelerator.

use flowlane::probe::{Dependency, Part, Probe};

use crate::machine::cache::{LINE_BYTES, Line};
use crate::machine::op::{Class, Kind, Op};
use crate::machine::query::Walk;
use crate::machine::space::Region;

/// The regions of a table in the simulated memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TablePlace {
    /// The table's metadata.
    pub header: Region,
    /// Buckets, or slots.
    pub buckets: Region,
    /// Keys with their values.
    pub entries: Region,
    /// Values that are stored apart from their keys.
    pub values: Region,
    /// Chains.
    pub links: Region,
}

impl TablePlace {
    /// Returns the size of the largest region that lookups read.
    pub fn largest_piece(&self) -> u64 {
        self.buckets.bytes().max(self.entries.bytes())
    }
}

/// A recorded lookup.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lookup {
    /// The operations of a core.
    pub ops: Vec<Op>,
    /// The accesses of an accelerator.
    pub walk: Walk,
}

impl Lookup {
    /// Returns the number of instructions of a core.
    pub fn instructions(&self) -> u32 {
        self.ops.iter().map(|op| op.instructions).sum()
    }
}

/// A probe that records a lookup.
#[derive(Clone, Debug)]
pub struct Recorder<'a> {
    places: &'a [TablePlace],
    key: Region,
    ops: Vec<Op>,
    lines: Vec<(Line, bool)>,
    buckets: [Line; 2],
}

impl<'a> Recorder<'a> {
    /// Creates a recorder of one lookup, with the key at `key`.
    pub fn new(places: &'a [TablePlace], key: Region) -> Self {
        Self { places, key, ops: Vec::new(), lines: Vec::new(), buckets: [0; 2] }
    }

    /// Records the offsets of the key's two buckets.
    pub fn buckets(&mut self, table: usize, offsets: [usize; 2]) {
        self.buckets = offsets.map(|offset| self.places[table].buckets.line(offset as u64));
    }

    /// Returns the recorded lookup of one table, with the answer and the expected answer.
    pub fn lookup(self, table: usize, hash: u32, answer: Option<u32>, expected: Option<u32>) -> Lookup {
        let table = self.places[table].header.line(0);
        let Self { lines, buckets, .. } = self;
        let walk = Walk { table, key: self.key.line(0), hash, lines, buckets, answer, expected };
        Lookup { ops: self.ops, walk }
    }

    fn region(&self, table: u32, part: Part) -> Region {
        let place = &self.places[table as usize];
        match part {
            Part::Key => self.key,
            Part::Header => place.header,
            Part::Buckets => place.buckets,
            Part::Entries => place.entries,
            Part::Values => place.values,
            Part::Links => place.links,
        }
    }
}

impl Probe for Recorder<'_> {
    fn load(&mut self, table: u32, part: Part, offset: usize, bytes: usize, dependency: Dependency) {
        let region = self.region(table, part);
        let (from, to) = (offset as u64, (offset + bytes.max(1) - 1) as u64);
        let chained = dependency == Dependency::Chained;
        // Reading a bucket's version again at the end is the cost of the lock apart from its loads.
        let class = match part {
            Part::Buckets if !chained && bytes == 4 => Class::Lock,
            _ => Class::Data,
        };
        let mut at = from;
        while at <= to {
            let line = region.line(at);
            let gives = chained || matches!(part, Part::Key | Part::Header);
            self.ops.push(Op { waits: chained, gives, ..Op::new(Kind::Load(line), class) });
            let bucket = part == Part::Buckets;
            let walked = bucket || matches!(part, Part::Entries | Part::Values | Part::Links);
            if walked && !self.lines.iter().any(|(l, _)| *l == line) {
                self.lines.push((line, bucket));
            }
            at = (at / LINE_BYTES + 1) * LINE_BYTES;
        }
    }

    fn store(&mut self, table: u32, part: Part, offset: usize, _: usize) {
        let line = self.region(table, part).line(offset as u64);
        self.ops.push(Op { waits: true, ..Op::new(Kind::Store(line), Class::Data) });
    }

    fn alu(&mut self, instructions: u32) {
        // Half of the work depends on the other half: hashes and comparisons are short trees, not chains.
        let chained = instructions.div_ceil(2);
        if instructions > chained {
            self.ops.push(Op::work(instructions - chained, Class::Compute));
        }
        if chained > 0 {
            self.ops.push(Op::work(chained, Class::Compute).chained(0));
        }
    }

    fn branch(&mut self, id: u32, taken: bool) {
        self.ops.push(Op { waits: true, ..Op::new(Kind::Branch { id, taken }, Class::Compute) });
    }
}
