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
    /// Buckets of signatures.
    pub buckets: Region,
    /// Keys with their values.
    pub entries: Region,
    /// Chains of rules that share an entry.
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
    place: &'a TablePlace,
    key: Region,
    ops: Vec<Op>,
    lines: Vec<(Line, bool)>,
    buckets: [Line; 2],
}

impl<'a> Recorder<'a> {
    /// Creates a recorder of one lookup, with the key at `key`.
    pub fn new(place: &'a TablePlace, key: Region) -> Self {
        Self { place, key, ops: Vec::new(), lines: Vec::new(), buckets: [0; 2] }
    }

    /// Records the offsets of the key's two buckets.
    pub fn buckets(&mut self, offsets: [usize; 2]) {
        self.buckets = offsets.map(|offset| self.place.buckets.line(offset as u64));
    }

    /// Returns the recorded lookup, with the answer and the expected answer.
    pub fn lookup(self, hash: u32, answer: Option<u32>, expected: Option<u32>) -> Lookup {
        let table = self.place.header.line(0);
        let Self { lines, buckets, .. } = self;
        let walk = Walk { table, key: self.key.line(0), hash, lines, buckets, answer, expected };
        Lookup { ops: self.ops, walk }
    }

    fn region(&self, part: Part) -> Region {
        match part {
            Part::Key => self.key,
            Part::Header => self.place.header,
            Part::Buckets => self.place.buckets,
            Part::Entries => self.place.entries,
        }
    }
}

impl Probe for Recorder<'_> {
    fn load(&mut self, part: Part, offset: usize, bytes: usize, dependency: Dependency) {
        let region = self.region(part);
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
            let walked = bucket || part == Part::Entries;
            if walked && !self.lines.iter().any(|(l, _)| *l == line) {
                self.lines.push((line, bucket));
            }
            at = (at / LINE_BYTES + 1) * LINE_BYTES;
        }
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
