//! Every available engine for the user's rules.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use flowlane::classify::acl::{AclConfig, AclEngine};
use flowlane::classify::auto::LINEAR_RULES_MAX;
use flowlane::classify::{AclSearch, Hit, LinearSearch, RuleEngine, TupleSearch};
use flowlane::dispatch::CALLS_MAX;
use flowlane::packet::key::FlowKey;
use flowlane_gpu::{Changes, Device, GpuConfig, GpuSearch, Rebuild, SessionConfig};
use flowlane_sim::workload::rules::{RuleTables, Workload};

use crate::failure::Failure;

/// The most rules for the engine that compares all of them with vectors.
const BRUTE_RULES_MAX: usize = 128;
/// Packets of a call.
const BATCH: usize = 256;
/// Packets of a call to a device, and those from which it chooses its method.
const DEVICE_BATCH: usize = 1024;
const SAMPLE: usize = 4096;

/// The method whose tables accelerators read, too.
pub(super) const EXACT: &str = "cuckoo tables, one by one";

/// A table under measurement.
pub(super) enum Table {
    Engine(Box<dyn RuleEngine + Sync>),
    /// An engine that one thread uses at a time.
    Device(Mutex<Box<dyn RuleEngine>>),
    Exact(RuleTables),
}

impl Table {
    /// Looks up packets, whose headers the network interface has written, if there are any.
    pub(super) fn look_up(
        &self,
        keys: &[FlowKey],
        headers: Option<&Headers>,
        single: bool,
        found: &mut [Option<u32>],
    ) {
        let Some(headers) = headers else { return self.look_up_parsed(keys, single, found) };
        let call = match self {
            _ if single => 1,
            Self::Device(_) => DEVICE_BATCH,
            _ => BATCH,
        };
        for (keys, found) in keys.chunks(call).zip(found.chunks_mut(call)) {
            // The lookup begins when all its headers are there; none of them changes it.
            let from = headers.read(keys.len());
            self.look_up_parsed(&keys[from..], single, &mut found[from..]);
        }
    }

    fn look_up_parsed(&self, keys: &[FlowKey], single: bool, found: &mut [Option<u32>]) {
        match self {
            Self::Exact(tables) if single => {
                for (key, found) in keys.iter().zip(found) {
                    *found = black_box(tables.lookup(key));
                }
            }
            Self::Exact(tables) => {
                for (keys, found) in keys.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
                    tables.lookup_batch(keys, found);
                }
            }
            Self::Engine(table) if single => {
                for (key, found) in keys.iter().zip(found) {
                    *found = black_box(table.lookup(key)).map(|hit| hit.rule.0);
                }
            }
            Self::Engine(table) => batches::<BATCH>(&**table, keys, found),
            Self::Device(table) => batches::<DEVICE_BATCH>(&**lock(table), keys, found),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Engine(table) => table.table_bytes(),
            Self::Device(table) => lock(table).table_bytes(),
            Self::Exact(tables) => tables.bytes(),
        }
    }
}

fn lock(table: &Mutex<Box<dyn RuleEngine>>) -> MutexGuard<'_, Box<dyn RuleEngine>> {
    table.lock().expect("a lookup does not panic")
}

fn batches<const N: usize>(table: &dyn RuleEngine, keys: &[FlowKey], found: &mut [Option<u32>]) {
    let mut hits: [Option<Hit>; N] = [None; N];
    for (keys, found) in keys.chunks(N).zip(found.chunks_mut(N)) {
        table.lookup_batch(keys, &mut hits[..keys.len()]);
        for (found, hit) in found.iter_mut().zip(&hits) {
            *found = hit.map(|hit| hit.rule.0);
        }
    }
}

/// A line of a packet.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Header([u64; 8]);

/// Headers that the network interface has written: each is read long after the previous time, when caches have lost it.
pub(super) struct Headers {
    lines: Vec<Header>,
    next: AtomicUsize,
}

/// An odd factor, so that no prefetcher foresees the order.
const ORDER: usize = 0x9e37_79b1;

impl Headers {
    /// Allocates lines, of which twice as many as a cache of these bytes has are read before any of them again.
    pub(super) fn beyond(cache_bytes: u64) -> Self {
        let lines = (2 * cache_bytes / 64).next_power_of_two() as usize;
        Self { lines: vec![Header([0; 8]); lines], next: AtomicUsize::new(0) }
    }

    /// Reads the next headers, and returns their sum, which is zero.
    fn read(&self, count: usize) -> usize {
        let from = self.next.fetch_add(count, Relaxed);
        let line = |n: usize| &self.lines[n.wrapping_mul(ORDER) % self.lines.len()];
        (from..from + count).map(|n| black_box(line(n)).0[0] as usize).sum()
    }
}

/// A lookup method to measure.
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) single: bool,
    /// The index of its table, which single and batched lookups share.
    pub(super) table: usize,
}

/// Tables and the lookup methods to measure.
#[derive(Default)]
pub(super) struct Field {
    /// The tables, each with the milliseconds in which it was built.
    pub(super) tables: Vec<(Table, f64)>,
    pub(super) candidates: Vec<Candidate>,
}

impl Field {
    /// Adds a table with its lookup methods, unless it cannot be built.
    fn add(&mut self, build: impl FnOnce() -> Option<Table>, ways: &[(&str, bool)]) {
        let begun = Instant::now();
        let Some(table) = build() else { return };
        self.tables.push((table, begun.elapsed().as_secs_f64() * 1e3));
        let table = self.tables.len() - 1;
        let way =
            |(name, single): &(&str, bool)| Candidate { name: (*name).to_owned(), single: *single, table };
        self.candidates.extend(ways.iter().map(way));
    }

    /// Builds every available engine for the rules; each has selected its kernel.
    pub(super) fn all(workload: &Workload) -> Self {
        let mut field = Self::default();
        field.few(workload);
        let ways = [("tree, batches", false), ("tree, one by one", true)];
        field.add(|| list(workload, AclEngine::Tree), &ways);
        let ways = [("dynamic, batches", false), ("dynamic, one by one", true)];
        field.add(|| list(workload, AclEngine::Dynamic), &ways);
        let tuple = || filled(TupleSearch::new(workload.rules.len(), 1), workload);
        field.add(tuple, &[("tuple search", true)]);
        let tables = || RuleTables::new(&workload.rules, 1).ok().map(Table::Exact);
        field.add(tables, &[(EXACT, true), ("cuckoo tables, batches", false)]);
        field.settle(workload);
        field
    }

    /// Adds a table on a CUDA device.
    ///
    /// # Errors
    /// Returns an error if there is no device, or if it cannot hold the rules.
    pub(super) fn gpu(&mut self, workload: &Workload) -> Result<(), Failure> {
        let session = SessionConfig { batch_max: DEVICE_BATCH, ..SessionConfig::default() };
        let list = AclConfig { rules_max: workload.rules.len(), ..AclConfig::default() };
        let changes = Changes { rebuild: Rebuild::Manual, ..Changes::default() };
        let config = GpuConfig { method: None, session, list, changes };
        let sample = &workload.packets[..workload.packets.len().min(SAMPLE)];
        let begun = Instant::now();
        let table = GpuSearch::build(Device::open(0)?, config, workload.numbered(), sample)?;
        self.tables.push((Table::Device(Mutex::new(Box::new(table))), begun.elapsed().as_secs_f64() * 1e3));
        let table = self.tables.len() - 1;
        self.candidates.push(Candidate { name: "GPU, batches".to_owned(), single: false, table });
        Ok(())
    }

    /// Adds engines that compare all rules, if there are few.
    fn few(&mut self, workload: &Workload) {
        let rules = workload.rules.len();
        if rules <= LINEAR_RULES_MAX {
            self.add(|| filled(LinearSearch::new(rules), workload), &[("linear search", true)]);
        }
        if rules <= BRUTE_RULES_MAX {
            self.add(|| list(workload, AclEngine::Brute), &[("brute force, batches", false)]);
        }
    }

    /// Looks packets up until engines have selected their kernels, which they do in their first calls.
    fn settle(&self, workload: &Workload) {
        let keys: Vec<FlowKey> = workload.packets.iter().cycle().take(BATCH).cloned().collect();
        let mut found = [None; BATCH];
        for candidate in &self.candidates {
            for _ in 0..CALLS_MAX {
                self.tables[candidate.table].0.look_up_parsed(&keys, candidate.single, &mut found);
            }
        }
    }

    /// Checks the answers of every method.
    pub(super) fn check(&self, workload: &Workload) -> Result<(), Failure> {
        let mut found = vec![None; workload.packets.len()];
        for candidate in &self.candidates {
            self.tables[candidate.table].0.look_up(&workload.packets, None, candidate.single, &mut found);
            let wrong = found.iter().zip(&workload.expected).position(|(found, right)| found != right);
            if let Some(packet) = wrong {
                return Err(Failure::Check(format!(
                    "{} (rules counted from the best): {} gives packet {packet} the rule {:?}, {} {:?}",
                    workload.name,
                    candidate.name,
                    found[packet],
                    workload.judge(),
                    workload.expected[packet]
                )));
            }
        }
        Ok(())
    }
}

fn filled(mut table: impl RuleEngine + Sync + 'static, workload: &Workload) -> Option<Table> {
    for (id, priority, rule) in workload.numbered() {
        table.insert(id, priority, rule).ok()?;
    }
    Some(Table::Engine(Box::new(table)))
}

/// Builds an access list, or returns `None` if it would take too much memory.
fn list(workload: &Workload, engine: AclEngine) -> Option<Table> {
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    let config = AclConfig { engine, rules_max: workload.rules.len(), threads, ..AclConfig::default() };
    AclSearch::build(config, workload.numbered()).ok().map(|table| Table::Engine(Box::new(table)))
}
