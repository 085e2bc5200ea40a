//! Cuckoo tables as the library makes them, with their places in the simulated memory.

use flowlane::cuckoo::{CuckooConfig, CuckooWriter};
use flowlane::isa::Variant;

use crate::machine::Machine;
use crate::machine::cache::Line;
use crate::machine::space::{Region, Space};
use crate::workload::TablePlace;

/// Words of a key: 16 bytes, as an IPv4 5-tuple takes.
pub const KEY_WORDS: usize = 4;

/// Lines of keys that packets' keys are in, one after the other.
pub(super) const KEY_LINES: u64 = 64;
/// Lines that results are written to.
pub(super) const RESULT_LINES: u64 = 16;
/// Lines of the stack that `rte_hash`'s other loads and stores are of.
pub(super) const STACK_LINES: u64 = 16;

/// Which tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TablesConfig {
    /// How many.
    pub tables: u32,
    /// Slots of each; the library rounds up to a power of two that it promises to fill.
    pub entries: u64,
    /// Keys in each, of a hundred of `entries`.
    pub load_percent: u64,
    /// Names the keys.
    pub seed: u64,
}

pub struct Tables {
    writers: Vec<CuckooWriter<KEY_WORDS>>,
    filled: Vec<u64>,
    seed: u64,
    /// Where each table is.
    pub places: Vec<TablePlace>,
    /// Where keys are.
    pub keys: Vec<Region>,
    /// Where results go.
    pub results: Vec<Line>,
    /// What the stack's lines are.
    pub stack: Vec<Line>,
    /// Room for what else a program reads.
    pub space: Space,
}

fn mix(seed: u64, table: u64, number: u64) -> u64 {
    let mut z = seed ^ table.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The key of a number in a table.
pub(super) fn key_of(seed: u64, table: usize, number: u64) -> [u32; KEY_WORDS] {
    let (a, b) = (mix(seed, table as u64, number), mix(!seed, table as u64, number));
    // The number itself, so that keys differ.
    [a as u32, (a >> 32) as u32, b as u32, number as u32]
}

impl Tables {
    /// Makes tables and fills them.
    pub fn new(config: &TablesConfig) -> Self {
        let mut tables = Self::empty(config);
        tables.fill(config.entries * config.load_percent / 100);
        tables
    }

    /// The same, beside what a space has.
    pub fn in_space(config: &TablesConfig, space: &mut Space) -> Self {
        let mut tables = Self::made(config, None, space);
        tables.fill(config.entries * config.load_percent / 100);
        tables
    }

    /// Tables without keys.
    pub fn empty(config: &TablesConfig) -> Self {
        Self::made(config, None, &mut Space::default())
    }

    /// The same, whose batches are looked up by the portable body: to be timed beside what is simulated of it.
    pub fn portable(config: &TablesConfig) -> Self {
        let mut tables = Self::made(config, Some(Variant::Scalar), &mut Space::default());
        tables.fill(config.entries * config.load_percent / 100);
        tables
    }

    fn made(config: &TablesConfig, variant: Option<Variant>, space: &mut Space) -> Self {
        let keys = (0..KEY_LINES).map(|_| space.region(64)).collect();
        let results = space.region(RESULT_LINES * 64).lines().collect();
        let stack = space.region(STACK_LINES * 64).lines().collect();
        // The most that a table of so many slots promises to hold.
        let most = (config.entries * 95 / 100).max(1) as usize;
        let writers: Vec<CuckooWriter<KEY_WORDS>> = (0..config.tables)
            .map(|n| {
                let own = CuckooConfig::new(most, mix(config.seed, n.into(), 1) as u32);
                let chosen = variant.and_then(|variant| own.with_variant(variant));
                CuckooWriter::new(&chosen.unwrap_or(own))
            })
            .collect();
        let places = writers.iter().map(|writer| place(space, writer)).collect();
        let filled = vec![0; writers.len()];
        Self { writers, filled, seed: config.seed, places, keys, results, stack, space: space.clone() }
    }

    /// Adds keys until each table has so many, or is as full as it promises to be.
    pub fn fill(&mut self, keys: u64) {
        for (table, (writer, filled)) in self.writers.iter_mut().zip(&mut self.filled).enumerate() {
            while *filled < keys.min(writer.entries_max() as u64) {
                let inserted = writer.insert(&key_of(self.seed, table, *filled), *filled as u32);
                assert!(inserted.is_ok(), "a table promises to take its most entries: {inserted:?}");
                *filled += 1;
            }
        }
    }

    /// How many tables.
    pub fn len(&self) -> usize {
        self.writers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }

    /// Keys in a table.
    pub fn filled(&self, table: usize) -> u64 {
        self.filled[table]
    }

    pub fn table(&self, table: usize) -> &CuckooWriter<KEY_WORDS> {
        &self.writers[table]
    }

    /// The key of a number in a table.
    pub fn key(&self, table: usize, number: u64) -> [u32; KEY_WORDS] {
        key_of(self.seed, table, number)
    }

    /// The seed of the keys.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Puts all tables, and what is beside them, into the shared cache, as after they were filled: what was put in
    /// first goes first where they are larger.
    pub fn warm(&self, machine: &mut Machine) {
        let lines = |place: &TablePlace| {
            place.buckets.lines().chain(place.entries.lines()).chain(place.header.lines())
        };
        // Of what is put in long before the end, four times as much as it holds, nothing is left.
        let all = self.bytes() / 64;
        let gone = all.saturating_sub(4 * machine.llc_lines());
        machine.fill_llc(self.places.iter().flat_map(lines).skip(gone as usize));
        machine.fill_llc(self.keys.iter().flat_map(Region::lines).chain(self.results.iter().copied()));
    }

    /// The same without the tables' buckets and entries: they are in memory.
    pub fn warm_headers(&self, machine: &mut Machine) {
        machine.fill_llc(self.places.iter().flat_map(|place| place.header.lines()));
        machine.fill_llc(self.keys.iter().flat_map(Region::lines).chain(self.results.iter().copied()));
    }

    /// Bytes of the largest piece of memory that a table has.
    pub fn largest_piece(&self) -> u64 {
        self.places.iter().map(TablePlace::largest_piece).max().unwrap_or(0)
    }

    /// Bytes of buckets and entries.
    pub fn bytes(&self) -> u64 {
        self.places.iter().map(|place| place.buckets.bytes() + place.entries.bytes()).sum()
    }
}

/// Where a table is to be.
pub(super) fn place<const W: usize>(space: &mut Space, writer: &CuckooWriter<W>) -> TablePlace {
    // Half a line a bucket of eight slots; times of use, 8 bytes a slot, are not kept here, and not read.
    let slots = writer.slots() as u64;
    let buckets = slots * 4;
    let entries = writer.table_bytes() as u64 - buckets - slots * 8;
    TablePlace {
        header: space.region(64),
        buckets: space.region(buckets),
        entries: space.region(entries),
        values: space.region(64),
        links: space.region(64),
    }
}

/// One table of so many slots.
pub fn tables_for(entries: u64, load_percent: u64, seed: u64) -> Tables {
    Tables::new(&TablesConfig { tables: 1, entries, load_percent, seed })
}
