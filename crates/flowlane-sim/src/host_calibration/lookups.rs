//! Software lookups on this host, with the tables and methods that are also simulated.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use flowlane::classify::acl::{AclConfig, AclEngine};
use flowlane::classify::{AclSearch, Hit, RuleEngine, TupleSearch};
use flowlane::cuckoo::BATCH_MAX;
use flowlane::dispatch::CALLS_MAX;
use flowlane::generate::{Profile, Random, RuleConfig, Trace, TraceConfig, generate_rules};
use flowlane::named_enum::{self, Named, UnknownName};
use flowlane::packet::key::FlowKey;
use flowlane::rule::{Priority, RuleId};
use serde::Serialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

use super::MemoryLevel;
use crate::config::{Approach, MachineConfig, Preset, RunConfig};
use crate::machine::SimError;
use crate::run::run;
use crate::workload::rules::in_order;
use crate::workload::{KEY_WORDS, Tables, TablesConfig};

/// A lookup method that is timed and simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<LookupMethod>)]
#[serde(rename_all = "kebab-case")]
pub enum LookupMethod {
    /// One key at a time, in one table.
    Single,
    /// Batches with prefetches, in one table.
    Bulk,
    /// Batches with prefetches and the vectors selected for this host, in one table.
    BulkVectors,
    /// One packet at a time, table by table until one has the key.
    TupleSpace,
    /// The library's tuple search, one packet at a time.
    TupleSearch,
    /// The tree of an access list, one packet at a time.
    Tree,
    /// The tree of an access list, in batches.
    TreeBatches,
    /// The access list that takes changes, one packet at a time.
    Dynamic,
    /// The access list that takes changes, in batches.
    DynamicBatches,
}

impl Named for LookupMethod {
    const KIND: &'static str = "lookup method";
}

impl LookupMethod {
    pub const ALL: [Self; 9] = named_enum::all();

    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the approach that simulates recorded loads; `None` for methods of rules.
    fn approach(self) -> Option<Approach> {
        match self {
            Self::Bulk => Some(Approach::Bulk),
            Self::BulkVectors => Some(Approach::Avx512),
            Self::Single | Self::TupleSpace => Some(Approach::Scalar),
            _ => None,
        }
    }

    fn tables(self) -> u32 {
        if self == Self::TupleSpace { TUPLES } else { 1 }
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

/// Packets of rules' traces, several passes.
const PACKETS: usize = 16 * PASS;

/// The passes before a counted one, at least and at most. The fewest are more calls than an engine takes to select its kernel
/// ([`flowlane::dispatch::CALLS_MAX`]).
const WARM_PASSES_MIN: u64 = (CALLS_MAX * BATCH / PASS + 1) as u64;
const WARM_PASSES_MAX: u64 = 32;

/// Packets of a call.
const BATCH: usize = 256;

/// The seed of keys and packets.
const SEED: u64 = 9;

/// Tables with the source of their keys.
enum Table {
    Exact(Rc<Tables>, Random),
    Rules { engine: Box<dyn RuleEngine>, batches: bool, packets: Vec<FlowKey>, next: usize },
}

/// Keys of a pass.
pub enum Keys {
    Exact(Vec<[u32; KEY_WORDS]>),
    Packets(Vec<FlowKey>),
}

/// A method with tables of a size.
pub struct Case {
    pub method: LookupMethod,
    pub level: MemoryLevel,
    /// Whether its tables are on small pages although they are large.
    pub small_pages: bool,
    /// The bytes that lookups read.
    pub bytes: u64,
    table: Table,
}

/// Returns the rules of an access list whose engines are about as large as a level; `None` where that is too large.
fn rules_of(level: MemoryLevel, quick: bool) -> Option<usize> {
    match level {
        MemoryLevel::L2 | MemoryLevel::Llc if quick => Some(200),
        MemoryLevel::L1 => Some(50),
        MemoryLevel::L2 => Some(1000),
        MemoryLevel::Llc => Some(10_000),
        MemoryLevel::Memory => None,
    }
}

impl Case {
    /// Builds tables of about this size, or few rules if `quick`; `None` if the method has none.
    pub fn new(method: LookupMethod, level: MemoryLevel, bytes: u64, quick: bool) -> Option<Self> {
        if method.approach().is_none() {
            return Self::of_rules(method, level, quick);
        }
        let slots = (bytes / SLOT_BYTES / u64::from(method.tables())).max(8);
        // The library rounds up.
        let entries = if slots.is_power_of_two() { slots } else { slots.next_power_of_two() / 2 };
        let shape = TablesConfig { tables: method.tables(), entries, load_percent: LOAD_PERCENT, seed: SEED };
        let tables = match method {
            LookupMethod::BulkVectors => Tables::new(&shape),
            _ => Tables::portable(&shape),
        };
        let bytes = tables.bytes();
        let random = Random::for_purpose(SEED, "lookups of this machine");
        Some(Self { method, level, small_pages: false, bytes, table: Table::Exact(Rc::new(tables), random) })
    }

    /// Marks a case whose tables were built without huge pages.
    pub fn on_small_pages(self) -> Self {
        Self { small_pages: true, ..self }
    }

    fn of_rules(method: LookupMethod, level: MemoryLevel, quick: bool) -> Option<Self> {
        let config = RuleConfig { seed: SEED, ..RuleConfig::new(Profile::Acl, rules_of(level, quick)?) };
        let rules = generate_rules(&config).expect("the profile has as many rules");
        let trace = Trace::generate(&rules, &TraceConfig { seed: SEED, ..TraceConfig::new(PACKETS) });
        let packets = trace.expect("there are rules to hit").keys().cloned().collect();
        let matches = in_order(&rules);
        let last = matches.len() as u32;
        let numbered = (0..).zip(&matches).map(|(n, rule)| (RuleId(n), Priority(last - n), rule));
        let list = |engine| {
            let config = AclConfig { engine, rules_max: matches.len(), ..AclConfig::default() };
            AclSearch::build(config, numbered.clone()).expect("a small access list")
        };
        let engine: Box<dyn RuleEngine> = match method {
            LookupMethod::Tree | LookupMethod::TreeBatches => Box::new(list(AclEngine::Tree)),
            LookupMethod::Dynamic | LookupMethod::DynamicBatches => Box::new(list(AclEngine::Dynamic)),
            _ => {
                let mut tuple = TupleSearch::new(matches.len(), SEED as u32);
                for (id, priority, rule) in numbered.clone() {
                    tuple.insert(id, priority, rule).expect("its number is new, and there is room");
                }
                Box::new(tuple)
            }
        };
        let batches = matches!(method, LookupMethod::TreeBatches | LookupMethod::DynamicBatches);
        let bytes = engine.table_bytes() as u64;
        Some(Self {
            method,
            level,
            small_pages: false,
            bytes,
            table: Table::Rules { engine, batches, packets, next: 0 },
        })
    }

    /// Returns the nanoseconds of a lookup, over a pass of present keys.
    ///
    /// # Panics
    /// Panics if a key is not found.
    pub fn nanoseconds(&mut self) -> f64 {
        let keys = self.draw(PASS);
        let begun = Instant::now();
        let found = self.pass_over(&keys);
        let took = begun.elapsed().as_secs_f64() * 1e9 / PASS as f64;
        assert_eq!(found, PASS, "every key is in a table");
        took
    }

    /// Makes untimed passes, until the caches hold as much of the tables as they can.
    pub fn warm_up(&mut self) {
        // Twice as many lookups as lines. Tables much larger than the second-level cache are not cached anyway.
        let warm = (2 * self.bytes / 64 / PASS as u64).clamp(WARM_PASSES_MIN, WARM_PASSES_MAX);
        for _ in 0..warm {
            let keys = self.draw(PASS);
            self.pass_over(&keys);
        }
    }

    /// Draws keys that are in the tables.
    pub fn draw(&mut self, count: usize) -> Keys {
        match &mut self.table {
            Table::Exact(tables, random) => {
                let mut key = || {
                    let table = random.index(tables.len());
                    tables.key(table, random.below(tables.filled(table)))
                };
                Keys::Exact((0..count).map(|_| key()).collect())
            }
            Table::Rules { packets, next, .. } => {
                let from = *next % packets.len();
                *next = from + count;
                Keys::Packets(packets.iter().cycle().skip(from).take(count).cloned().collect())
            }
        }
    }

    /// Looks up keys and returns the number of hits.
    ///
    /// # Panics
    /// Panics if the keys are those of another kind of tables.
    pub fn pass_over(&self, keys: &Keys) -> usize {
        match (&self.table, keys) {
            (Table::Exact(tables, _), Keys::Exact(keys)) => exact(tables, self.method, keys),
            (Table::Rules { engine, batches: false, .. }, Keys::Packets(keys)) => {
                keys.iter().filter(|key| black_box(engine.lookup(key)).is_some()).count()
            }
            (Table::Rules { engine, .. }, Keys::Packets(keys)) => {
                let mut hits: [Option<Hit>; BATCH] = [None; BATCH];
                let found = keys.chunks(BATCH).map(|keys| {
                    engine.lookup_batch(keys, &mut hits[..keys.len()]);
                    hits[..keys.len()].iter().flatten().count()
                });
                found.sum()
            }
            _ => unreachable!("a case draws its own kind of keys"),
        }
    }

    /// Returns the simulated cycles of a lookup, by what a probe records of it; `None` for rules.
    ///
    /// # Errors
    /// Returns an error if the machine gets stuck.
    pub fn simulate(&self, machine: &MachineConfig) -> Result<Option<f64>, SimError> {
        let (Table::Exact(tables, _), Some(approach)) = (&self.table, self.method.approach()) else {
            return Ok(None);
        };
        let mut config = RunConfig::on(Preset::SkylakeSp);
        config.workload.tables = tables.len() as u32;
        config.machine = machine.clone();
        config.run.seed = SEED;
        // Warms up until the second-level cache is filled.
        let lines = self.bytes.min(machine.l2.size_kib << 10) / 64;
        (config.run.warm_up_lookups, config.run.lookups) = ((lines * 2).clamp(2000, 60_000), 4000);
        Ok(Some(run(&config, approach, tables)?.cycles_per_lookup))
    }
}

fn exact(tables: &Tables, method: LookupMethod, keys: &[[u32; KEY_WORDS]]) -> usize {
    let table = tables.table(0);
    let search =
        |key: &[u32; KEY_WORDS]| (0..tables.len()).find_map(|n| black_box(tables.table(n).lookup(key)));
    match method {
        LookupMethod::Single => keys.iter().filter(|key| black_box(table.lookup(key)).is_some()).count(),
        LookupMethod::Bulk | LookupMethod::BulkVectors => {
            let mut values = [0; BATCH_MAX];
            let batches = keys.chunks(crate::workload::BATCH);
            batches.map(|keys| table.lookup_batch(keys, &mut values).count_ones() as usize).sum()
        }
        _ => keys.iter().filter(|key| search(key).is_some()).count(),
    }
}
