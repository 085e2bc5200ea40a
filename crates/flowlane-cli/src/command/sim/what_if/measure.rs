//! Measures every available engine on the user's rules, in turns.
//!
//! A pass looks up a window of packets after an untimed lookup of the previous window: caches and branch predictors are in
//! the state that the traffic leaves, and no packet is looked up twice in a row. Headers are in the nearest cache, as after
//! a parser, or where the network interface has written them. The answers of every engine are checked before anything is timed.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use flowlane_bench::machine::Machine;
use flowlane_bench::measure::{Clock, Contender, Effort, Measured as Timed, Meter, TimeStampCounter};
use flowlane_sim::config::MachineConfig;
use flowlane_sim::host_calibration::Pace;
use flowlane_sim::what_if::{Call, Measured, Measurement, Plan};
use flowlane_sim::workload::rules::{Workload, exact};

use super::field::{Candidate, EXACT, Field, Headers, Table};
use super::recorded;
use crate::failure::Failure;
use crate::output::{self, SHARES};

/// Packets of a pass.
const WINDOW: usize = 1024;
const WINDOW_QUICK: usize = 128;
/// Rules that are removed and inserted again.
const CHANGES: usize = 64;
/// Seconds for each derived workload.
const SECONDS: f64 = 0.35;
/// Samples of the core's pace before and after the measurement of a workload.
const PACES: usize = 10;
/// Packets of calls that are timed on their own, the number of such calls, and the quantiles that are kept.
const CALLS: [usize; 4] = [1, 4, 16, 32];
const CALLS_TIMED: usize = 2000;
const QUANTILES: usize = 50;
/// The time for which several threads look up.
const THREADS_FOR: Duration = Duration::from_millis(100);

/// Numbers of threads, each with millions of packets a second.
type Threads = Vec<(u32, f64)>;

/// The inputs of a measurement.
#[derive(Clone, Copy)]
struct Traffic<'a> {
    workload: &'a Workload,
    headers: Option<&'a Headers>,
    quick: bool,
}

impl Field {
    fn time(&self, Traffic { workload, headers, .. }: Traffic<'_>, meter: &mut Meter<'_>) -> Vec<Timed> {
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
                        table.look_up(&next.borrow(), headers, candidate.single, &mut answers.borrow_mut());
                    }
                }
            };
            let run = move || {
                table.look_up(black_box(&near.borrow()), headers, candidate.single, &mut found.borrow_mut());
                black_box(&found);
            };
            Contender::new(&candidate.name, run).after(before)
        });
        meter.compare(&workload.name, window as u64, contenders.collect())
    }

    /// Measures all methods.
    fn measure(
        mut self,
        traffic: Traffic<'_>,
        meter: &mut Meter<'_>,
        pace: &mut Pace,
    ) -> Result<Vec<Measurement>, Failure> {
        let workload = traffic.workload;
        self.check(workload)?;
        (0..PACES).for_each(|_| pace.take());
        let timed = self.time(traffic, meter);
        (0..PACES).for_each(|_| pace.take());
        let bytes: Vec<usize> = self.tables.iter().map(|(table, _)| table.bytes()).collect();
        let exact = exact_change(workload);
        let changes: Vec<Option<f64>> =
            self.tables.iter_mut().map(|(table, _)| change(table, workload, exact)).collect();
        let all = self.candidates.into_iter().zip(timed).map(|(candidate, timed)| Measurement {
            name: candidate.name,
            single: candidate.single,
            ns: [timed.ns.lower_quartile, timed.ns.median, timed.ns.upper_quartile],
            build_ms: self.tables[candidate.table].1,
            bytes: bytes[candidate.table],
            update_us: changes[candidate.table],
            calls: Vec::new(),
            threads: Vec::new(),
            recording: None,
        });
        Ok(all.collect())
    }

    /// Times calls with few packets, and several threads.
    fn under_load(&self, traffic: Traffic<'_>, clock: &TimeStampCounter) -> Vec<(Vec<Call>, Threads)> {
        let one = |candidate: &Candidate| {
            let table = &self.tables[candidate.table].0;
            // A trace may have fewer packets than the largest call.
            let mut packets = CALLS.map(|packets| packets.min(traffic.workload.packets.len())).to_vec();
            packets.dedup();
            let call = |packets| call(table, candidate.single, traffic, clock, packets);
            (packets.into_iter().map(call).collect(), threads(table, candidate.single, traffic))
        };
        self.candidates.iter().map(one).collect()
    }
}

/// Times calls with a number of packets, one after the other through the trace.
fn call(
    table: &Table,
    single: bool,
    Traffic { workload, headers, quick }: Traffic<'_>,
    clock: &TimeStampCounter,
    packets: usize,
) -> Call {
    let calls = if quick { QUANTILES } else { CALLS_TIMED };
    let mut found = vec![None; packets];
    let mut near = workload.packets[..packets].to_vec();
    let mut time = |from: Option<usize>| {
        if let Some(from) = from {
            near.clone_from_slice(&workload.packets[from..from + packets]);
        }
        let begun = clock.ticks();
        if from.is_some() {
            table.look_up(black_box(&near), headers, single, &mut found);
            black_box(&found);
        }
        clock.nanoseconds(clock.ticks().saturating_sub(begun) as f64)
    };
    // The clock itself takes some of the time of a call.
    let own = (0..100).map(|_| time(None)).fold(f64::MAX, f64::min);
    let most = workload.packets.len() - packets + 1;
    let mut ns: Vec<f64> = (0..calls).map(|n| (time(Some(n * packets % most)) - own).max(0.1)).collect();
    ns.sort_by(f64::total_cmp);
    Call {
        packets: packets as u32,
        ns: ns.into_iter().skip(calls / QUANTILES / 2).step_by(calls / QUANTILES).collect(),
    }
}

/// Measures the millions of packets a second of several threads that look up in one table.
fn threads(table: &Table, single: bool, traffic: Traffic<'_>) -> Threads {
    let Traffic { workload, headers, quick } = traffic;
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    let (Table::Engine(_) | Table::Exact(_)) = table else { return Vec::new() };
    let counts = std::iter::successors(Some(2), |n| Some(n * 2)).take_while(|n| *n <= most.min(16));
    let window = WINDOW.min(workload.packets.len());
    let time = if quick { THREADS_FOR / 20 } else { THREADS_FOR };
    let rate = |count: usize| {
        let barrier = Barrier::new(count);
        let one = |number: usize| {
            let windows = workload.packets.len() / window;
            let mut found = vec![None; window];
            let mut near = workload.packets[..window].to_vec();
            table.look_up(&near, headers, single, &mut found);
            barrier.wait();
            let (begun, mut done) = (Instant::now(), 0);
            while begun.elapsed() < time {
                let from = (number * windows / count + done) % windows * window;
                near.clone_from_slice(&workload.packets[from..from + window]);
                table.look_up(black_box(&near), headers, single, &mut found);
                black_box(&found);
                done += 1;
            }
            (done * window) as f64 / begun.elapsed().as_secs_f64() / 1e6
        };
        std::thread::scope(|scope| {
            let one = &one;
            let all: Vec<_> = (0..count).map(|n| scope.spawn(move || one(n))).collect();
            all.into_iter().map(|thread| thread.join().expect("a lookup does not panic")).sum()
        })
    };
    counts.map(|count| (count as u32, rate(count))).collect()
}

/// Measures the microseconds to remove and insert a rule; `None` for tables without single changes. For exact-match tables
/// it is the time of a key, which also applies to accelerators.
fn change(table: &mut Table, workload: &Workload, exact: Option<f64>) -> Option<f64> {
    let table = match table {
        Table::Engine(table) => table,
        Table::Exact(_) => return exact,
        Table::Device(_) => return None,
    };
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
    let mut table = exact(4, keys, 1);
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

/// Measures the user's rules, then the derived workloads of the plan. The host's machine is that which was fitted to it.
pub(super) fn measure(
    plan: &Plan,
    host: MachineConfig,
    headers: Option<&Headers>,
    quick: bool,
) -> Result<Measured, Failure> {
    let clock = TimeStampCounter::new();
    let bar = output::progress_share();
    let mut watch = |what: &str, share: f64| {
        bar.set_message(format!("measuring, {what}"));
        bar.set_position((share * SHARES as f64) as u64);
    };
    let mut meter = Meter::new(&clock, Effort { quick, ..Effort::default() }, &mut watch);
    meter.announce(1);
    let mut pace = Pace::default();
    let mut field = Field::all(&plan.base);
    let no_gpu = field.gpu(&plan.base).err().map(|failure| format!("not measured: {}", failure.message()));
    let traffic = Traffic { workload: &plan.base, headers, quick };
    let under_load = field.under_load(traffic, &clock);
    let mut base = field.measure(traffic, &mut meter, &mut pace)?;
    for (m, (calls, threads)) in base.iter_mut().zip(under_load) {
        (m.calls, m.threads) = (calls, threads);
    }
    let others = plan.sizes.len() + plan.masks.len();
    let seconds = (!quick).then_some(SECONDS * others as f64);
    let mut meter = Meter::new(&clock, Effort { quick, seconds, rounds: None }, &mut watch);
    meter.announce(others);
    let mut all = |axis: &[(f64, std::sync::Arc<Workload>)]| -> Result<Vec<Vec<Measurement>>, Failure> {
        axis.iter()
            .map(|(_, workload)| {
                Field::all(workload).measure(Traffic { workload, ..traffic }, &mut meter, &mut pace)
            })
            .collect()
    };
    let (sizes, masks) = (all(&plan.sizes)?, all(&plan.masks)?);
    let (cycle_ns, disturbed) = (pace.cycle_ns(), pace.disturbed());
    let cycle = cycle_ns.unwrap_or(1e3 / host.core.clock_mhz as f64);
    let not_recorded = recorded::record_all(&mut base, cycle, quick, &bar).err().map(|e| e.to_string());
    bar.finish_and_clear();
    // The tables of the measured software: a change costs software and accelerators the same.
    let exact_update_us = base.iter().find(|m| m.name == EXACT).and_then(|m| m.update_us);
    let (cpu, host) = (Machine::here().cpu, Some(host));
    Ok(Measured { cpu, host, cycle_ns, disturbed, base, sizes, masks, exact_update_us, not_recorded, no_gpu })
}
