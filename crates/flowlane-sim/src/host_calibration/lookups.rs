//! Software lookups on this host, with the tables and methods that are also simulated.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use flowlane::cuckoo::BATCH_MAX;
use flowlane::generate::Random;
use flowlane::named_enum;
use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use crate::config::{Approach, MachineConfig, Preset, RunConfig};
use crate::machine::SimError;
use crate::run::run;
use crate::workload::{KEY_WORDS, Tables, TablesConfig};

/// A lookup method that is timed and simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "kebab-case")]
pub enum LookupMethod {
    /// One key at a time, in one table.
    Single,
    /// Batches with prefetches, in one table.
    Bulk,
    /// Batches with prefetches and the vectors selected for this host, in one table.
    #[strum(to_string = "bulk, vectors")]
    Vectors,
    /// One packet at a time, table by table until one has the key.
    #[strum(to_string = "tuple space")]
    Tuples,
}

impl LookupMethod {
    pub const ALL: [Self; 4] = named_enum::all();

    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the simulated approach.
    fn approach(self) -> Approach {
        match self {
            Self::Bulk => Approach::Bulk,
            Self::Vectors => Approach::Avx512,
            Self::Single | Self::Tuples => Approach::Scalar,
        }
    }

    fn tables(self) -> u32 {
        if self == Self::Tuples { TUPLES } else { 1 }
    }
}

/// The number of tables of the tuple space.
const TUPLES: u32 = 8;

/// The load of the tables.
const LOAD_PERCENT: u64 = 75;

/// Bytes of a bucket and its entries for each slot.
const SLOT_BYTES: u64 = 28;

/// Lookups of a pass; the keys fit the first-level cache next to a table.
const PASS: usize = 2048;

/// The most passes before a counted one.
const WARM_PASSES_MAX: u64 = 32;

/// The seed of keys and packets.
const SEED: u64 = 9;

/// A method with tables of a size.
pub struct Case {
    pub method: LookupMethod,
    /// The bytes that lookups read.
    pub bytes: u64,
    tables: Rc<Tables>,
    config: RunConfig,
    random: Random,
}

impl Case {
    /// Builds tables of about this size.
    pub fn new(method: LookupMethod, bytes: u64) -> Self {
        let slots = (bytes / SLOT_BYTES / u64::from(method.tables())).max(8);
        // The library rounds up.
        let entries = if slots.is_power_of_two() { slots } else { slots.next_power_of_two() / 2 };
        let shape = TablesConfig { tables: method.tables(), entries, load_percent: LOAD_PERCENT, seed: SEED };
        let tables = match method {
            LookupMethod::Vectors => Tables::new(&shape),
            _ => Tables::portable(&shape),
        };
        let tables = Rc::new(tables);
        let mut config = RunConfig::on(Preset::SkylakeSp);
        (config.workload.tables, config.workload.entries) = (shape.tables, entries);
        (config.workload.load_percent, config.run.seed) = (LOAD_PERCENT, SEED);
        let random = Random::for_purpose(SEED, "lookups of this machine");
        let bytes = tables.bytes();
        Self { method, bytes, tables, config, random }
    }

    /// Returns the nanoseconds of a lookup, over a pass of present keys. Untimed passes with other keys precede it,
    /// until the caches hold as much of the tables as they can.
    ///
    /// # Panics
    /// Panics if a key is not found.
    pub fn nanoseconds(&mut self) -> f64 {
        // Twice as many lookups as lines. Tables much larger than the second-level cache are not cached anyway.
        let warm = (2 * self.bytes / 64 / PASS as u64).clamp(1, WARM_PASSES_MAX);
        for _ in 0..warm {
            let keys = self.draw(PASS);
            self.pass_over(&keys);
        }
        let keys = self.draw(PASS);
        let begun = Instant::now();
        let found = self.pass_over(&keys);
        let took = begun.elapsed().as_secs_f64() * 1e9 / PASS as f64;
        assert_eq!(found, PASS, "every key is in a table");
        took
    }

    /// Draws keys that are in the tables.
    pub fn draw(&mut self, count: usize) -> Vec<[u32; KEY_WORDS]> {
        let (tables, random) = (&self.tables, &mut self.random);
        let mut key = || {
            let table = random.index(tables.len());
            tables.key(table, random.below(tables.filled(table)))
        };
        (0..count).map(|_| key()).collect()
    }

    /// Looks up keys and returns the number of hits.
    pub fn pass_over(&self, keys: &[[u32; KEY_WORDS]]) -> usize {
        let table = self.tables.table(0);
        match self.method {
            LookupMethod::Single => keys.iter().filter(|key| black_box(table.lookup(key)).is_some()).count(),
            LookupMethod::Bulk | LookupMethod::Vectors => {
                let mut values = [0; BATCH_MAX];
                let batches = keys.chunks(crate::workload::BATCH);
                batches.map(|keys| table.lookup_batch(keys, &mut values).count_ones() as usize).sum()
            }
            LookupMethod::Tuples => keys.iter().filter(|key| self.search(key).is_some()).count(),
        }
    }

    fn search(&self, key: &[u32; KEY_WORDS]) -> Option<u32> {
        (0..self.tables.len()).find_map(|n| black_box(self.tables.table(n).lookup(key)))
    }

    /// Returns the simulated cycles of a lookup.
    ///
    /// # Errors
    /// Returns an error if the machine gets stuck.
    pub fn simulate(&self, machine: &MachineConfig) -> Result<f64, SimError> {
        let mut config = self.config.clone();
        config.machine = machine.clone();
        // Warms up until the second-level cache is filled.
        let lines = self.bytes.min(machine.l2.size_kib << 10) / 64;
        (config.run.warm_up_lookups, config.run.lookups) = ((lines * 2).clamp(2000, 60_000), 4000);
        Ok(run(&config, self.method.approach(), &self.tables)?.cycles_per_lookup)
    }
}
