//! The library's tuple search over the user's rules and packets: the measured software, simulated.

use std::collections::BTreeSet;
use std::sync::Arc;

use flowlane::classify::{RuleEngine, TupleSearch};
use flowlane::packet::key::FlowKey;
use flowlane::probe::{Dependency, Part, Probe};

use crate::machine::Machine;
use crate::machine::cache::Line;
use crate::machine::op::{Kind, Program};
use crate::machine::space::{Region, Space};
use crate::program::TupleSearchProgram;
use crate::workload::rules::Workload;
use crate::workload::{Recorder, TablePlace};

/// The number of packets with distinct header addresses.
const KEYS: usize = 16;

/// The library's tuple search with the addresses of its tables.
pub(super) struct Library {
    search: TupleSearch,
    places: Vec<TablePlace>,
    keys: Vec<Region>,
}

/// The bytes of each part of each table that lookups have reached.
#[derive(Default)]
struct Extent(Vec<[usize; 6]>);

impl Probe for Extent {
    fn load(&mut self, table: u32, part: Part, offset: usize, bytes: usize, _: Dependency) {
        let table = table as usize;
        if self.0.len() <= table {
            self.0.resize(table + 1, [0; 6]);
        }
        let most = &mut self.0[table][part as usize];
        *most = (*most).max(offset + bytes);
    }

    fn store(&mut self, table: u32, part: Part, offset: usize, bytes: usize) {
        self.load(table, part, offset, bytes, Dependency::Free);
    }

    fn alu(&mut self, _: u32) {}

    fn branch(&mut self, _: u32, _: bool) {}
}

impl Library {
    /// Builds the search for these packets; regions are as large as their lookups reach.
    pub(super) fn new(workload: &Workload, packets: &[FlowKey], seed: u64) -> Self {
        let mut search = TupleSearch::new(workload.rules.len(), seed as u32);
        for (id, priority, rule) in workload.numbered() {
            search.insert(id, priority, rule).expect("its number is new, and there is room");
        }
        let mut extent = Extent::default();
        for key in packets {
            search.lookup_probed(key, &mut extent);
        }
        extent.0.resize(search.subtables(), [0; 6]);
        let mut space = Space::default();
        let places = extent.0.iter().map(|bytes| place(&mut space, bytes)).collect();
        let keys = (0..KEYS).map(|_| space.region(size_of::<FlowKey>() as u64)).collect();
        Self { search, places, keys }
    }

    /// Inserts the lines that lookups of these packets read into the shared cache.
    pub(super) fn warm(&self, packets: &[FlowKey], machine: &mut Machine) {
        let mut lines: BTreeSet<Line> = BTreeSet::new();
        for key in packets {
            let mut recorder = Recorder::new(&self.places, self.keys[0]);
            self.search.lookup_probed(key, &mut recorder);
            lines.extend(recorder.lookup(0, 0, None, None).ops.iter().filter_map(|op| match op.kind {
                Kind::Load(line) => Some(line),
                _ => None,
            }));
        }
        machine.fill_llc(lines.into_iter());
    }

    /// Returns a program that searches for `count` packets of the workload.
    pub(super) fn program(self, workload: Arc<Workload>, count: u64) -> Box<dyn Program> {
        let Self { search, places, keys } = self;
        let packets = (0..count as usize).map(move |n| {
            let at = n % workload.packets.len();
            (workload.packets[at].clone(), workload.expected[at])
        });
        Box::new(TupleSearchProgram { search, places, keys, packets, number: 0 })
    }
}

fn place(space: &mut Space, bytes: &[usize; 6]) -> TablePlace {
    let mut region = |part: Part| space.region((bytes[part as usize] as u64).max(64));
    TablePlace {
        header: region(Part::Header),
        buckets: region(Part::Buckets),
        entries: region(Part::Entries),
        values: region(Part::Values),
        links: region(Part::Links),
    }
}
