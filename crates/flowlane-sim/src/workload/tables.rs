//! The library's cuckoo tables, with their regions in the simulated memory.

use flowlane::cuckoo::{CuckooConfig, CuckooWriter};
use flowlane::isa::Variant;

use crate::machine::Machine;
use crate::machine::cache::Line;
use crate::machine::space::{Region, Space};
use crate::workload::TablePlace;

/// Words of a key: 16 bytes, as for an IPv4 5-tuple.
pub const KEY_WORDS: usize = 4;

/// Lines of packets' keys, used in turn.
const KEY_LINES: u64 = 64;
/// Lines of results.
const RESULT_LINES: u64 = 16;
/// Stack lines of `rte_hash`'s other loads and stores.
const STACK_LINES: u64 = 16;

/// The configuration of tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TablesConfig {
    /// The number of tables.
    pub tables: u32,
    /// The slots of each table; the library rounds up to a power of two.
    pub entries: u64,
    /// The load in percent of `entries`.
    pub load_percent: u64,
    /// The seed of the keys.
    pub seed: u64,
}

/// The private data of a core.
#[derive(Clone, Debug)]
pub struct Own {
    /// The regions of packets' headers.
    pub keys: Vec<Region>,
    /// The lines of results.
    pub results: Vec<Line>,
    /// The lines of the stack.
    pub stack: Vec<Line>,
}

impl Own {
    /// Allocates the private data of a core, with headers that are used in turn.
    pub fn new(space: &mut Space) -> Self {
        Self::with_headers(space, KEY_LINES)
    }

    /// Allocates the private data of a core, with a number of headers.
    pub fn with_headers(space: &mut Space, headers: u64) -> Self {
        Self {
            keys: (0..headers).map(|_| space.region(64)).collect(),
            results: space.region(RESULT_LINES * 64).lines().collect(),
            stack: space.region(STACK_LINES * 64).lines().collect(),
        }
    }

    /// Returns the region of a packet's header.
    pub fn key(&self, number: u64) -> Region {
        self.keys[number as usize % self.keys.len()]
    }

    /// Inserts headers and results into the shared cache.
    pub fn warm(&self, machine: &mut Machine) {
        machine.fill_llc(self.headers().chain(self.results.iter().copied()));
    }

    /// Inserts results into the shared cache, and headers where the network interface has written them.
    pub fn arrive(&self, machine: &mut Machine) {
        machine.write_by_nic(self.headers());
        machine.fill_llc(self.results.iter().copied());
    }

    fn headers(&self) -> impl Iterator<Item = Line> {
        self.keys.iter().flat_map(Region::lines)
    }
}

/// Tables, and the private data of a core that looks keys up in them.
pub struct Tables {
    writers: Vec<CuckooWriter<KEY_WORDS>>,
    filled: Vec<u64>,
    seed: u64,
    /// The regions of each table.
    pub places: Vec<TablePlace>,
    pub own: Own,
    /// Address space for other data of a program.
    pub space: Space,
}

fn mix(seed: u64, table: u64, number: u64) -> u64 {
    let mut z = seed ^ table.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Returns key `number` of a table.
pub(super) fn key_of(seed: u64, table: usize, number: u64) -> [u32; KEY_WORDS] {
    let (a, b) = (mix(seed, table as u64, number), mix(!seed, table as u64, number));
    // Contains the number itself, so that keys differ.
    [a as u32, (a >> 32) as u32, b as u32, number as u32]
}

impl Tables {
    /// Builds and fills tables.
    pub fn new(config: &TablesConfig) -> Self {
        Self::full(config, None, &mut Space::default())
    }

    /// Builds and fills tables in an existing address space.
    pub fn in_space(config: &TablesConfig, space: &mut Space) -> Self {
        Self::full(config, None, space)
    }

    /// Builds tables without keys.
    pub fn empty(config: &TablesConfig) -> Self {
        Self::made(config, None, &mut Space::default())
    }

    /// Builds and fills tables whose batches use the portable kernel, to be timed next to its simulation.
    pub fn portable(config: &TablesConfig) -> Self {
        Self::full(config, Some(Variant::Scalar), &mut Space::default())
    }

    fn full(config: &TablesConfig, variant: Option<Variant>, space: &mut Space) -> Self {
        let mut tables = Self::made(config, variant, space);
        tables.fill(config.entries * config.load_percent / 100);
        tables
    }

    fn made(config: &TablesConfig, variant: Option<Variant>, space: &mut Space) -> Self {
        let own = Own::new(space);
        // The capacity that a table of this many slots guarantees.
        let most = (config.entries * 95 / 100).max(1) as usize;
        let writers: Vec<CuckooWriter<KEY_WORDS>> = (0..config.tables)
            .map(|n| {
                let config = CuckooConfig::new(most, mix(config.seed, n.into(), 1) as u32);
                let chosen = variant.and_then(|variant| config.with_variant(variant));
                CuckooWriter::new(&chosen.unwrap_or(config))
            })
            .collect();
        let places = writers.iter().map(|writer| place(space, writer)).collect();
        let filled = vec![0; writers.len()];
        Self { writers, filled, seed: config.seed, places, own, space: space.clone() }
    }

    /// Adds keys until each table has `keys` of them or is full.
    pub fn fill(&mut self, keys: u64) {
        for (table, (writer, filled)) in self.writers.iter_mut().zip(&mut self.filled).enumerate() {
            while *filled < keys.min(writer.entries_max() as u64) {
                let inserted = writer.insert(&key_of(self.seed, table, *filled), *filled as u32);
                assert!(inserted.is_ok(), "a table promises to take its most entries: {inserted:?}");
                *filled += 1;
            }
        }
    }

    /// Returns the number of tables.
    pub fn len(&self) -> usize {
        self.writers.len()
    }

    /// Returns whether there are no tables.
    pub fn is_empty(&self) -> bool {
        self.writers.is_empty()
    }

    /// Returns the number of keys in a table.
    pub fn filled(&self, table: usize) -> u64 {
        self.filled[table]
    }

    pub fn table(&self, table: usize) -> &CuckooWriter<KEY_WORDS> {
        &self.writers[table]
    }

    /// Returns key `number` of a table.
    pub fn key(&self, table: usize, number: u64) -> [u32; KEY_WORDS] {
        key_of(self.seed, table, number)
    }

    /// Returns the seed of the keys.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Inserts all tables and their private data into the shared cache, in the order in which they were filled;
    /// tables larger than the cache lose the first lines.
    pub fn warm(&self, machine: &mut Machine) {
        let lines = |place: &TablePlace| {
            place.buckets.lines().chain(place.entries.lines()).chain(place.header.lines())
        };
        // Lines inserted more than four times the capacity before the end are evicted again.
        let all = self.bytes() / 64;
        let gone = all.saturating_sub(4 * machine.llc_lines());
        machine.fill_llc(self.places.iter().flat_map(lines).skip(gone as usize));
        self.own.warm(machine);
    }

    /// Inserts everything except the tables' buckets and entries, which stay in memory.
    pub fn warm_headers(&self, machine: &mut Machine) {
        machine.fill_llc(self.places.iter().flat_map(|place| place.header.lines()));
        self.own.warm(machine);
    }

    /// Returns the size of the largest region of a table.
    pub fn largest_piece(&self) -> u64 {
        self.places.iter().map(TablePlace::largest_piece).max().unwrap_or(0)
    }

    /// Returns the size of buckets and entries.
    pub fn bytes(&self) -> u64 {
        self.places.iter().map(|place| place.buckets.bytes() + place.entries.bytes()).sum()
    }
}

/// Allocates the regions of a table.
pub(super) fn place<const W: usize>(space: &mut Space, writer: &CuckooWriter<W>) -> TablePlace {
    // Half a line for a bucket of eight slots. Times of use, 8 bytes a slot, are neither kept nor read here.
    let slots = writer.slots() as u64;
    let buckets = slots * 4;
    let entries = writer.table_bytes() as u64 - buckets - slots * 8;
    TablePlace {
        header: space.region(64),
        buckets: space.region(buckets),
        entries: space.region(entries),
        links: space.region(64),
    }
}

/// Builds one table with `entries` slots.
pub fn tables_for(entries: u64, load_percent: u64, seed: u64) -> Tables {
    Tables::new(&TablesConfig { tables: 1, entries, load_percent, seed })
}
