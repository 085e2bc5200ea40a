//! Measures every available engine on the user's rules, in turns.
//!
//! A pass looks up a window of packets after an untimed lookup of the previous window: caches and branch predictors are in
//! the state that the traffic leaves, and no packet is looked up twice in a row. Headers are in the nearest cache, as after
//! a parser. The answers of every engine are checked before anything is timed.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::time::Instant;

use flowlane::classify::acl::{AclConfig, AclEngine};
use flowlane::classify::{AclSearch, Hit, LinearSearch, RuleEngine, TupleSearch};
use flowlane::isa::Variant;
use flowlane::packet::key::FlowKey;
use flowlane_bench::machine::Machine;
use flowlane_bench::measure::{Contender, Effort, Measured as Timed, Meter, TimeStampCounter};
use flowlane_sim::config::Approach;
use flowlane_sim::host_calibration::Pace;
use flowlane_sim::what_if::{Measured, Measurement, Plan};
use flowlane_sim::workload::rules::{RuleTables, Workload, exact};

use crate::failure::Failure;
use crate::output::{self, SHARES};

/// The most rules for engines that compare all of them.
const LINEAR_RULES_MAX: usize = 1000;
const BRUTE_RULES_MAX: usize = 128;
/// Packets of a pass and of a call.
const WINDOW: usize = 1024;
const WINDOW_QUICK: usize = 128;
const BATCH: usize = 256;
/// Rules that are removed and inserted again.
const CHANGES: usize = 64;
/// Seconds for each derived workload.
const SECONDS: f64 = 0.35;
/// Samples of the core's pace before and after the measurement of a workload.
const PACES: usize = 10;

/// A table under measurement.
enum Table {
    Engine(Box<dyn RuleEngine>),
    Exact(RuleTables),
}

impl Table {
    fn look_up(&self, keys: &[FlowKey], single: bool, found: &mut [Option<u32>]) {
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
            Self::Engine(table) => {
                let mut hits: [Option<Hit>; BATCH] = [None; BATCH];
                for (keys, found) in keys.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
                    table.lookup_batch(keys, &mut hits[..keys.len()]);
                    for (found, hit) in found.iter_mut().zip(&hits) {
                        *found = hit.map(|hit| hit.rule.0);
                    }
                }
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Engine(table) => table.table_bytes(),
            Self::Exact(tables) => tables.bytes(),
        }
    }
}

/// A lookup method to measure.
struct Candidate {
    name: String,
    single: bool,
    simulated_as: Option<Approach>,
    /// The index of its table, which single and batched lookups share.
    table: usize,
}

/// Tables and the lookup methods to measure.
#[derive(Default)]
struct Field {
    tables: Vec<(Table, f64)>,
    candidates: Vec<Candidate>,
}

impl Field {
    /// Adds a table with its lookup methods, unless it cannot be built.
    fn add(&mut self, build: impl FnOnce() -> Option<Table>, ways: &[(&str, bool, Option<Approach>)]) {
        let begun = Instant::now();
        let Some(table) = build() else { return };
        self.tables.push((table, begun.elapsed().as_secs_f64() * 1e3));
        let table = self.tables.len() - 1;
        self.candidates.extend(ways.iter().map(|(name, single, simulated_as)| Candidate {
            name: (*name).to_owned(),
            single: *single,
            simulated_as: *simulated_as,
            table,
        }));
    }

    /// Builds every available engine and variant for the rules.
    fn all(workload: &Workload) -> Self {
        let mut field = Self::default();
        field.few(workload);
        field.tuple(workload);
        for variant in Variant::ALL.into_iter().filter(|variant| variant.available()) {
            let batches = format!("tree, {}, batches", variant.name());
            let single = format!("tree, {}, one by one", variant.name());
            let both = [(batches.as_str(), false, None), (single.as_str(), true, None)];
            let ways = if variant == Variant::Scalar { &both[..] } else { &both[..1] };
            field.add(|| list(workload, AclEngine::Tree, Some(variant)), ways);
        }
        field.dynamic(workload);
        for variant in Variant::ALL.into_iter().filter(|variant| variant.available()) {
            let simulated_as = match variant {
                Variant::Scalar => Some(Approach::Bulk),
                Variant::Avx512 => Some(Approach::Avx512),
                _ => None,
            };
            let name = format!("cuckoo tables, {}, batches", variant.name());
            let both = [
                (name.as_str(), false, simulated_as),
                ("cuckoo tables, one by one", true, Some(Approach::Scalar)),
            ];
            let ways = if variant == Variant::Scalar { &both[..] } else { &both[..1] };
            field.add(|| cuckoo(workload, Some(variant)), ways);
        }
        field
    }

    /// Builds every available engine in its default variant, for derived workloads.
    fn some(workload: &Workload) -> Self {
        let mut field = Self::default();
        field.few(workload);
        let ways = [("tree, batches", false, None), ("tree, one by one", true, None)];
        field.add(|| list(workload, AclEngine::Tree, None), &ways);
        field.dynamic(workload);
        field.tuple(workload);
        let ways = [("cuckoo tables, batches", false, None), ("cuckoo tables, one by one", true, None)];
        field.add(|| cuckoo(workload, None), &ways);
        field
    }

    /// Adds engines that compare all rules, if there are few.
    fn few(&mut self, workload: &Workload) {
        let rules = workload.rules.len();
        if rules <= LINEAR_RULES_MAX {
            let ways = [("linear search", true, None)];
            self.add(|| filled(Box::new(LinearSearch::new(rules)), workload), &ways);
        }
        if rules <= BRUTE_RULES_MAX {
            self.add(|| list(workload, AclEngine::Brute, None), &[("brute force, batches", false, None)]);
        }
    }

    fn tuple(&mut self, workload: &Workload) {
        let ways = [("tuple search", true, Some(Approach::TupleSearch))];
        self.add(|| filled(Box::new(TupleSearch::new(workload.rules.len(), 1)), workload), &ways);
    }

    fn dynamic(&mut self, workload: &Workload) {
        let ways = [("dynamic, batches", false, None), ("dynamic, one by one", true, None)];
        self.add(|| list(workload, AclEngine::Dynamic, None), &ways);
    }

    /// Checks the answers of every method.
    fn check(&self, workload: &Workload) -> Result<(), Failure> {
        let mut found = vec![None; workload.packets.len()];
        for candidate in &self.candidates {
            self.tables[candidate.table].0.look_up(&workload.packets, candidate.single, &mut found);
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

    fn time(&self, workload: &Workload, meter: &mut Meter<'_>) -> Vec<Timed> {
        let most = if meter.quick() { WINDOW_QUICK } else { WINDOW };
        let window = most.min(workload.packets.len());
        let windows = (workload.packets.len() / window).max(1);
        let at = Cell::new(0usize);
        let contenders = self.candidates.iter().map(|candidate| {
            let near = RefCell::new(workload.packets[..window].to_vec());
            let found = RefCell::new(vec![None; window]);
            let table = &self.tables[candidate.table].0;
            let (near, found) = (std::rc::Rc::new(near), std::rc::Rc::new(found));
            let (next, answers) = (near.clone(), found.clone());
            let at = &at;
            let before = move || {
                at.set(at.get() + 1);
                for number in [at.get() - 1, at.get()] {
                    let from = number % windows * window;
                    next.borrow_mut().clone_from_slice(&workload.packets[from..from + window]);
                    if number != at.get() {
                        table.look_up(&next.borrow(), candidate.single, &mut answers.borrow_mut());
                    }
                }
            };
            let run = move || {
                table.look_up(black_box(&near.borrow()), candidate.single, &mut found.borrow_mut());
                black_box(&found);
            };
            Contender::new(&candidate.name, run).after(before)
        });
        meter.compare(&workload.name, window as u64, contenders.collect())
    }

    /// Measures all methods.
    fn measure(
        mut self,
        workload: &Workload,
        meter: &mut Meter<'_>,
        pace: &mut Pace,
    ) -> Result<Vec<Measurement>, Failure> {
        self.check(workload)?;
        (0..PACES).for_each(|_| pace.take());
        let timed = self.time(workload, meter);
        (0..PACES).for_each(|_| pace.take());
        let bytes: Vec<usize> = self.tables.iter().map(|(table, _)| table.bytes()).collect();
        let exact = exact_change(workload);
        let changes: Vec<Option<f64>> =
            self.tables.iter_mut().map(|(table, _)| change(table, workload, exact)).collect();
        let all = self.candidates.into_iter().zip(timed).map(|(candidate, timed)| {
            let three = |s: flowlane_bench::measure::Spread| [s.lower_quartile, s.median, s.upper_quartile];
            Measurement {
                name: candidate.name,
                single: candidate.single,
                ns: three(timed.ns),
                build_ms: self.tables[candidate.table].1,
                bytes: bytes[candidate.table],
                update_us: changes[candidate.table],
                simulated_as: candidate.simulated_as,
            }
        });
        Ok(all.collect())
    }
}

fn filled(mut table: Box<dyn RuleEngine>, workload: &Workload) -> Option<Table> {
    for (id, priority, rule) in workload.numbered() {
        table.insert(id, priority, rule).ok()?;
    }
    Some(Table::Engine(table))
}

/// Builds an access list, or returns `None` if it would take too much memory.
fn list(workload: &Workload, engine: AclEngine, variant: Option<Variant>) -> Option<Table> {
    let threads = std::thread::available_parallelism().map_or(1, Into::into);
    let config =
        AclConfig { engine, variant, rules_max: workload.rules.len(), threads, ..AclConfig::default() };
    AclSearch::build(config, workload.numbered()).ok().map(|table| Table::Engine(Box::new(table)))
}

fn cuckoo(workload: &Workload, variant: Option<Variant>) -> Option<Table> {
    RuleTables::with_variant(&workload.rules, 1, variant).ok().map(Table::Exact)
}

/// Measures the microseconds to remove and insert a rule; `None` for tables without single changes. For exact-match tables
/// it is the time of a key, which also applies to accelerators.
fn change(table: &mut Table, workload: &Workload, exact: Option<f64>) -> Option<f64> {
    let Table::Engine(table) = table else { return exact };
    let step = (workload.rules.len() / CHANGES).max(1);
    let some: Vec<_> = workload.numbered().step_by(step).collect();
    let begun = Instant::now();
    for (id, priority, rule) in &some {
        table.remove(*id);
        table.insert(*id, *priority, rule).ok()?;
    }
    Some(begun.elapsed().as_secs_f64() * 1e6 / some.len() as f64)
}

/// Measures the microseconds to change a key of an exact-match table with as many keys as the largest mask has rules.
fn exact_change(workload: &Workload) -> Option<f64> {
    let keys = workload.tables.sizes().into_iter().max()?;
    let mut table = exact(4, keys, 1, None);
    let key = |n: usize| [n as u32, (n as u32).wrapping_mul(0x9e37_79b9), 7, 9];
    (0..keys).for_each(|n| table.insert(&key(n), n as u32));
    let step = (keys / CHANGES).max(1);
    let some: Vec<usize> = (0..keys).step_by(step).collect();
    let begun = Instant::now();
    for n in &some {
        table.remove(&key(*n));
        table.insert(&key(*n), *n as u32);
    }
    Some(begun.elapsed().as_secs_f64() * 1e6 / some.len() as f64)
}

/// Measures the user's rules, then the derived workloads of the plan.
pub(super) fn measure(plan: &Plan, quick: bool) -> Result<Measured, Failure> {
    let clock = TimeStampCounter::new();
    let bar = output::progress_share();
    let mut watch = |what: &str, share: f64| {
        bar.set_message(format!("measuring, {what}"));
        bar.set_position((share * SHARES as f64) as u64);
    };
    let mut meter = Meter::new(&clock, Effort { quick, ..Effort::default() }, &mut watch);
    meter.announce(1);
    let mut pace = Pace::default();
    let base = Field::all(&plan.base).measure(&plan.base, &mut meter, &mut pace)?;
    let others = plan.sizes.len() + plan.masks.len();
    let seconds = (!quick).then_some(SECONDS * others as f64);
    let mut meter = Meter::new(&clock, Effort { quick, seconds, rounds: None }, &mut watch);
    meter.announce(others);
    let mut all = |axis: &[(f64, std::sync::Arc<Workload>)]| -> Result<Vec<Vec<Measurement>>, Failure> {
        axis.iter()
            .map(|(_, workload)| Field::some(workload).measure(workload, &mut meter, &mut pace))
            .collect()
    };
    let (sizes, masks) = (all(&plan.sizes)?, all(&plan.masks)?);
    bar.finish_and_clear();
    let (cycle_ns, disturbed) = (pace.cycle_ns(), pace.disturbed());
    // The tables of the measured software: a change costs software and accelerators the same.
    let exact = base.iter().find(|m| m.simulated_as == Some(Approach::Scalar));
    let exact_update_us = exact.and_then(|m| m.update_us);
    Ok(Measured { cpu: Machine::here().cpu, cycle_ns, disturbed, base, sizes, masks, exact_update_us })
}
