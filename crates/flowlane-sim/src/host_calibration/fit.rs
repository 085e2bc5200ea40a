//! Fits a machine's numbers to measured latencies.
//!
//! Directly measured numbers are adopted: clock, caches, branches, outstanding misses. The size and latency of the
//! last cache and the latency of memory are chosen so that a simulated chain takes as long as the real one; on a
//! shared machine, much less of the last cache may be available than the system reports. Computing is calibrated on
//! tables in the first-level cache. Lookups in larger tables are not used for calibration.

use std::num::NonZero;

use serde::Serialize;

use super::chase::MANY;
use super::{Cases, Latencies, Measured, MemoryLevel};
use crate::config::{MachineConfig, Preset, Walks};
use crate::host_calibration::lookups::LookupMethod;
use crate::machine::SimError;
use crate::parallel::try_map;
use crate::program::{chase_cycles, dirty_cycles, parallel_chase_cycles};
use crate::search::least;

/// A simulated machine that behaves as this host.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The machine: the structure of the nearest preset with this host's numbers.
    pub machine: MachineConfig,
    /// Cycles of a load of a chain by its size in KiB, measured and simulated.
    pub chains: Vec<(u64, f64, f64)>,
    /// Cycles of a load of a chain on pages of 4 KiB, by its size in KiB, measured and simulated.
    pub small_chains: Vec<(u64, f64, f64)>,
    /// Cycles of a load of a line that another core wrote, measured and simulated, if available.
    pub dirty_line: Option<(f64, f64)>,
    /// Numbers that could not be measured and are the preset's.
    pub kept: Vec<Kept>,
}

/// Numbers that are taken from the preset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Kept {
    /// The keys of the numbers.
    pub keys: &'static [&'static str],
    pub why: &'static str,
}

/// Fits a machine to the measurements.
///
/// # Errors
/// Returns an error if a simulated machine gets stuck.
pub fn fit(measured: &Measured, cases: &Cases) -> Result<Fit, SimError> {
    let mut machine = Preset::nearest().machine();
    // The loop around a load takes longer than the load: the latency of the first level is known.
    let around_ns =
        measured.latencies.chain_ns[0].1 - machine.l1.latency_cycles as f64 * measured.latencies.cycle_ns;
    let latencies = &measured.latencies.without(around_ns);
    let cycles = |ns: f64| ns / latencies.cycle_ns;
    let whole = |cycles: f64| (cycles.round() as u64).max(1);
    let mut kept = Vec::new();
    let core = &mut machine.core;
    core.clock_mhz = (1e3 / latencies.cycle_ns).round() as u64;
    // Behind a wrong branch, the next one waits for its load and its comparison, too.
    let resolved = (machine.l1.latency_cycles + 1) as f64;
    core.mispredict_cycles = whole(cycles(latencies.mispredict_ns) - resolved);
    if latencies.window * 3 < core.rob_entries * 2 {
        // The other thread of the core is active, or is not allowed to be asleep: each has a half.
        core.rob_entries /= 2;
        core.store_queue_entries /= 2;
    }
    match measured.caches.as_slice() {
        [l1, l2, ..] => {
            (machine.l1.size_kib, machine.l1.ways) = (l1.kib, l1.ways);
            (machine.l2.size_kib, machine.l2.ways) = (l2.kib, l2.ways);
        }
        _ => kept.push(Kept {
            keys: &["l1.size_kib", "l1.ways", "l2.size_kib", "l2.ways"],
            why: "sizes of L1 and L2: the system does not tell them",
        }),
    }
    // The first-level cache answers its share of a chain in the second one.
    let (kib, in_l2) = latencies.chain_ns[1];
    let near = (machine.l1.size_kib as f64 / kib as f64).min(0.5);
    let l1 = machine.l1.latency_cycles;
    machine.l2.latency_cycles = whole((cycles(in_l2) - near * l1 as f64) / (1.0 - near)).max(l1 + 1);
    machine.core.nested_page_kib = match latencies.apart_ns.map(cycles) {
        _ if !latencies.is_guest => 0,
        // The second translation buffer answers for all pieces of one huge page: it is on small pages of the host.
        [beside, apart] if apart - beside > 0.5 * machine.core.tlb_miss_cycles as f64 => 4,
        _ => machine.core.page_kib,
    };
    fit_shared(&mut machine, latencies, measured.caches.get(2).map(|llc| llc.kib), &mut kept)?;
    fit_registers(&mut machine, latencies)?;
    let dirty_line = fit_transfer(&mut machine, latencies, &mut kept)?;
    fit_computing(&mut machine, measured, cases, &mut kept)?;
    let chained = |machine: &MachineConfig, chains: &[(u64, f64)]| -> Result<Vec<_>, SimError> {
        let one =
            |(kib, ns): &(u64, f64)| Ok((*kib, cycles(*ns), chase_cycles(machine, *kib << 10, 0, true)?));
        chains.iter().map(one).collect()
    };
    let chains = chained(&machine, &latencies.chain_ns)?;
    let small_chains = chained(&machine.with_pieces_of(0), &latencies.small_chain_ns)?;
    Ok(Fit { machine, chains, small_chains, dirty_line, kept })
}

/// Fits the last cache and memory to the loads of chains without their translations, whose time depends on the last cache in turn.
fn fit_shared(
    machine: &mut MachineConfig,
    latencies: &Latencies,
    llc_kib: Option<u64>,
    kept: &mut Vec<Kept>,
) -> Result<(), SimError> {
    const ROUNDS: usize = 3;
    let preset = machine.clone();
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    for round in 0..ROUNDS {
        let plain = translated(machine);
        let chain_ns = try_map(threads, &latencies.chain_ns, |(kib, ns)| {
            let cycles = |machine: &MachineConfig| chase_cycles(machine, *kib << 10, 0, true);
            let of_walks = cycles(machine)? - cycles(&plain)?;
            Ok::<_, SimError>((*kib, (ns - of_walks * latencies.cycle_ns).max(latencies.cycle_ns)))
        })?;
        let mut fitted = translated(&preset);
        let mut kept_of_this = Vec::new();
        let latencies = Latencies { chain_ns, ..latencies.clone() };
        fit_translated(&mut fitted, &latencies, llc_kib, &mut kept_of_this)?;
        (machine.llc, machine.dram) = (fitted.llc, fitted.dram);
        if round + 1 == ROUNDS {
            kept.extend(kept_of_this);
        }
    }
    Ok(())
}

/// Returns a machine that knows all pages.
fn translated(machine: &MachineConfig) -> MachineConfig {
    let mut plain = machine.clone();
    (plain.core.walks, plain.core.tlb_miss_cycles) = (Walks::Free, 0);
    plain
}

/// Fits the last cache and memory: the size and latency with which random loads in regions of all sizes beyond the
/// second-level cache take as long as measured. A cache answers the share of loads that it holds.
fn fit_translated(
    machine: &mut MachineConfig,
    latencies: &Latencies,
    llc_kib: Option<u64>,
    kept: &mut Vec<Kept>,
) -> Result<(), SimError> {
    let l2 = (machine.l2.size_kib as f64, machine.l2.latency_cycles as f64);
    let chains = latencies.chain_ns.iter().map(|(kib, ns)| (*kib as f64, ns / latencies.cycle_ns));
    let beyond: Vec<(f64, f64)> = chains.filter(|(kib, _)| *kib > l2.0).collect();
    // Starts from the preset's own size and latency.
    let near = machine.clone();
    // The region is six times the second-level cache, which answers a sixth of the loads.
    let mixed = chase_cycles(&near, (6 * near.l2.size_kib) << 10, 0, true)?;
    let nearest = (mixed - l2.1 / 6.0) * 6.0 / 5.0;
    // The shared cache holds the rest of regions that are a little larger than the second-level cache.
    let small = beyond.iter().filter(|(kib, _)| *kib <= 4.0 * l2.0);
    let mut rests: Vec<f64> =
        small.map(|(kib, cycles)| (cycles - l2.0 / kib * l2.1) / (1.0 - l2.0 / kib)).collect();
    rests.sort_by(f64::total_cmp);
    let shared = rests.get(rests.len() / 2).copied().unwrap_or(nearest);
    let most = llc_kib.map_or(32.0 * l2.0, |kib| kib as f64);
    let sizes = (0..).map(|n| most * 0.5f64.powf(f64::from(n) / 8.0)).take_while(|kib| *kib > l2.0 / 16.0);
    // Loads that take as long as those from memory are from there.
    let gone = beyond.last().is_some_and(|(_, farthest)| shared > 0.8 * farthest);
    let trials = sizes.filter(|kib| !gone || *kib < l2.0 / 8.0);
    // Larger regions may be answered by slices that are farther away, as far as the system has several dies.
    let trials =
        trials.flat_map(|kib| (0..8).map(move |n| (kib, shared.max(nearest) * (1.0 + 0.04 * f64::from(n)))));
    let error = |llc: (f64, f64)| -> f64 {
        let memory = memory_cycles(&beyond, l2, llc);
        beyond.iter().map(|(kib, cycles)| (load_cycles(*kib, l2, llc, memory) / cycles).ln().powi(2)).sum()
    };
    let best = trials.min_by(|a, b| error(*a).total_cmp(&error(*b))).expect("there are sizes");
    if best.0 < l2.0 / 8.0 {
        let why = "the latency of the last cache: others leave nothing of it";
        kept.push(Kept { keys: &["llc.data_cycles"], why });
    } else {
        machine.llc.data_cycles += (best.1 - nearest).round() as u64;
    }
    machine.llc.slice_kib = ((best.0 / f64::from(machine.llc.slices)) as u64).max(1);
    machine.llc.ways = machine.llc.ways.min(machine.llc.slice_kib * 16);
    let off = memory_cycles(&beyond, l2, best) - chase_cycles(machine, FAR_BYTES, 0, false)?;
    let ps = machine.dram.controller_ps as f64 + off * machine.cycle_ps() as f64;
    machine.dram.controller_ps = ps.max(1.0) as u64;
    Ok(())
}

/// Fits the outstanding misses of a core: as few as give the time of a load where many are under way, or nearly the shortest time
/// that any number gives.
fn fit_registers(machine: &mut MachineConfig, latencies: &Latencies) -> Result<(), SimError> {
    let (kib, ns) = latencies.many_ns;
    let trial = machine.clone();
    let with = |registers: u64| {
        let mut trial = trial.clone();
        trial.core.miss_registers = registers as u32;
        parallel_chase_cycles(&trial, kib << 10, MANY as u8)
    };
    let cycles = (ns / latencies.cycle_ns).max(1.02 * with(MANY as u64)?);
    machine.core.miss_registers = least(4, MANY as u64, |registers| Ok(with(registers)? <= cycles))? as u32;
    Ok(())
}

/// Returns the shares of random loads in a region that the second and the last cache answer; they hold different
/// lines.
fn shares(kib: f64, l2: (f64, f64), llc: (f64, f64)) -> (f64, f64) {
    let near = (l2.0 / kib).min(1.0);
    (near, (llc.0 / kib).min(1.0 - near))
}

/// Returns the cycles of a random load in a region; caches are given by size in KiB and cycles.
fn load_cycles(kib: f64, l2: (f64, f64), llc: (f64, f64), memory: f64) -> f64 {
    let (near, shared) = shares(kib, l2, llc);
    near * l2.1 + shared * llc.1 + (1.0 - near - shared) * memory
}

/// Returns the cycles of a load from memory, by the longest chain.
fn memory_cycles(beyond: &[(f64, f64)], l2: (f64, f64), llc: (f64, f64)) -> f64 {
    let (kib, cycles) = *beyond.last().expect("chains beyond the second cache");
    let (near, shared) = shares(kib, l2, llc);
    let far = 1.0 - near - shared;
    if far < 0.1 { cycles } else { (cycles - near * l2.1 - shared * llc.1) / far }
}

/// A region of which no simulated cache holds a significant share.
const FAR_BYTES: u64 = 256 << 20;

/// Fits the response time of another core's cache, and returns the measured and simulated cycles of a load of a line
/// that it wrote.
fn fit_transfer(
    machine: &mut MachineConfig,
    latencies: &Latencies,
    kept: &mut Vec<Kept>,
) -> Result<Option<(f64, f64)>, SimError> {
    let keys = &["snoop.private_cycles"];
    let Some(ns) = latencies.dirty_line_ns else {
        kept.push(Kept { keys, why: "the latency between cores: there is one core" });
        return Ok(None);
    };
    let cycles = ns / latencies.cycle_ns;
    if cycles < 2.0 * machine.l2.latency_cycles as f64 {
        let why = "the latency between cores: the two measured cores share their caches";
        kept.push(Kept { keys, why });
        return Ok(None);
    }
    machine.snoop.private_cycles = 0;
    let base = dirty_cycles(machine)?;
    machine.snoop.private_cycles = (cycles - base).round().max(1.0) as u64;
    Ok(Some((cycles, dirty_cycles(machine)?)))
}

/// Fits the cycles of an instruction by single lookups in tables in the first-level cache, and then the instructions
/// of a batched lookup.
/// The methods on which computing is calibrated, in L1.
pub(super) const COMPUTING: [LookupMethod; 3] =
    [LookupMethod::Single, LookupMethod::Bulk, LookupMethod::BulkVectors];

fn fit_computing(
    machine: &mut MachineConfig,
    measured: &Measured,
    cases: &Cases,
    kept: &mut Vec<Kept>,
) -> Result<(), SimError> {
    let of = |wanted: LookupMethod| {
        let all = cases.0.iter().zip(&measured.lookups);
        let mut found = all.filter(|(case, _)| case.level == MemoryLevel::L1 && case.method == wanted);
        let (case, lookup) = found.next().expect("every method was measured");
        (case, lookup.ns / measured.latencies.cycle_ns)
    };
    let mut at_an_end = |found: u64, ends: [u64; 2], why| {
        if ends.contains(&found) {
            kept.push(Kept { keys: &[], why });
        }
    };
    let (single, cycles) = of(LookupMethod::Single);
    let (mut trial, [low, high]) = (machine.clone(), [100, 2000]);
    let found = least(low, high, |cpi| {
        trial.core.base_cpi_milli = cpi;
        Ok(single.simulate(&trial)?.is_some_and(|found| found >= cycles))
    })?;
    machine.core.base_cpi_milli = found;
    at_an_end(
        found,
        [low, high],
        "computing: no base CPI gives what single lookups take; the nearest is taken",
    );
    for method in [LookupMethod::Bulk, LookupMethod::BulkVectors] {
        let (case, cycles) = of(method);
        let (mut trial, [low, high]) = (machine.clone(), [12, 2000]);
        let found = least(low, high, |instructions| {
            *instructions_of(&mut trial, method) = instructions as u32;
            Ok(case.simulate(&trial)?.is_some_and(|found| found >= cycles))
        })?;
        *instructions_of(machine, method) = found as u32;
        at_an_end(
            found,
            [low, high],
            "computing: no number of instructions gives what batches take; the nearest is taken",
        );
    }
    Ok(())
}

fn instructions_of(machine: &mut MachineConfig, method: LookupMethod) -> &mut u32 {
    match method {
        LookupMethod::BulkVectors => &mut machine.software.vector_instructions,
        _ => &mut machine.software.bulk_instructions,
    }
}

impl Fit {
    /// Returns a configuration for `sim run`: this host's numbers over the preset's.
    pub fn text(&self, of: &str) -> String {
        let m = &self.machine;
        let mut out = format!(
            "# {of}, fitted by `flowlane sim calibrate`. All other numbers are the preset's.\n\
             # [M] measured, [P] of the preset, [C] calibrated on lookups in tables in the first-level cache.\n\
             preset = \"{}\"\n",
            Preset::nearest()
        );
        let mut section = |name: &str, rows: &[(&str, u64, &str)]| {
            let is_kept = |key: &str| {
                self.kept.iter().flat_map(|kept| kept.keys).any(|kept| *kept == format!("{name}.{key}"))
            };
            let rows: Vec<_> = rows.iter().filter(|(key, ..)| !is_kept(key)).collect();
            if rows.is_empty() {
                return;
            }
            out += &format!("\n[machine.{name}]\n");
            for (key, value, origin) in rows {
                out += &format!("{:<30}# [{origin}]\n", format!("{key} = {value}"));
            }
        };
        section(
            "core",
            &[
                ("clock_mhz", m.core.clock_mhz, "M"),
                ("miss_registers", m.core.miss_registers.into(), "M"),
                ("rob_entries", m.core.rob_entries.into(), "M"),
                ("store_queue_entries", m.core.store_queue_entries.into(), "M"),
                ("mispredict_cycles", m.core.mispredict_cycles, "M"),
                ("nested_page_kib", m.core.nested_page_kib, "M"),
                ("base_cpi_milli", m.core.base_cpi_milli, "C"),
            ],
        );
        for (name, cache) in [("l1", &m.l1), ("l2", &m.l2)] {
            section(
                name,
                &[
                    ("size_kib", cache.size_kib, "M"),
                    ("ways", cache.ways, "M"),
                    ("latency_cycles", cache.latency_cycles, if name == "l1" { "P" } else { "M" }),
                ],
            );
        }
        section(
            "llc",
            &[
                ("slice_kib", m.llc.slice_kib, "M"),
                ("ways", m.llc.ways, "M"),
                ("data_cycles", m.llc.data_cycles, "M"),
            ],
        );
        section("snoop", &[("private_cycles", m.snoop.private_cycles, "M")]);
        section("dram", &[("controller_ps", m.dram.controller_ps, "M")]);
        section(
            "software",
            &[
                ("bulk_instructions", m.software.bulk_instructions.into(), "C"),
                ("vector_instructions", m.software.vector_instructions.into(), "C"),
            ],
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the latencies of a simulated machine in the form of measurements.
    fn latencies_of(machine: &MachineConfig) -> Latencies {
        let cycle_ns = machine.cycle_ps() as f64 / 1e3;
        let l2 = machine.l2.size_kib;
        let sizes = [machine.l1.size_kib / 2, l2 / 4, 2 * l2, 4 * l2, 8 * l2, 64 * l2, 256 * l2];
        let chain = |kib: u64| chase_cycles(machine, kib << 10, 0, true).unwrap() * cycle_ns;
        let chain_ns: Vec<(u64, f64)> = sizes.map(|kib| (kib, chain(kib))).to_vec();
        let many_ns = (sizes[6], chain_ns[6].1 / 9.0);
        Latencies {
            cycle_ns,
            mispredict_ns: 17.0 * cycle_ns,
            chain_ns,
            small_chain_ns: Vec::new(),
            many_ns,
            window: 224,
            apart_ns: [0.0; 2],
            is_guest: false,
            dirty_line_ns: None,
        }
    }

    #[test]
    fn a_machine_is_found_by_its_latencies() {
        // As a machine of its own, and as a virtual one on small pages of the host, where walks are a part of the latencies.
        for nested_page_kib in [0, 4] {
            let mut known = Preset::SkylakeSp.machine();
            (known.llc.data_cycles, known.dram.controller_ps, known.core.clock_mhz) = (41, 60_000, 3000);
            known.core.nested_page_kib = nested_page_kib;
            let latencies = latencies_of(&known);
            let mut found = Preset::SkylakeSp.machine();
            (found.core.clock_mhz, found.core.nested_page_kib) = (3000, nested_page_kib);
            let mut kept = Vec::new();
            fit_shared(&mut found, &latencies, None, &mut kept).unwrap();
            assert_eq!(kept, []);
            let found_cycles = found.llc.data_cycles as i64;
            assert!((found_cycles - 41).abs() <= 3, "{nested_page_kib}: {found_cycles}");
            for (kib, ns) in &latencies.chain_ns[2..] {
                let simulated = chase_cycles(&found, kib << 10, 0, true).unwrap();
                let measured = ns / latencies.cycle_ns;
                let off = (simulated / measured - 1.0).abs();
                assert!(off < 0.1, "{nested_page_kib}: {kib} KiB: {simulated} for {measured}");
            }
        }
    }

    #[test]
    fn unmeasured_numbers_are_not_written() {
        let (machine, why) = (Preset::SkylakeSp.machine(), "");
        let fit = |keys| Fit {
            machine: machine.clone(),
            chains: Vec::new(),
            small_chains: Vec::new(),
            dirty_line: None,
            kept: vec![Kept { keys, why }],
        };
        let written = |keys| toml::from_str::<toml::Table>(&fit(keys).text("A machine")).unwrap();
        let all = written(&[]);
        assert!(all["machine"]["l2"].get("ways").is_some() && all["machine"].get("snoop").is_some());
        // An equal name in another section stays, and an empty section is removed.
        let some = written(&["l2.ways", "snoop.private_cycles"]);
        assert!(some["machine"]["l2"].get("ways").is_none() && some["machine"]["l1"].get("ways").is_some());
        assert!(some["machine"].get("snoop").is_none());
    }

    #[test]
    fn a_last_cache_filled_by_other_tenants_is_reported() {
        let mut latencies = latencies_of(&Preset::SkylakeSp.machine());
        for (_, ns) in &mut latencies.chain_ns[2..] {
            *ns = 110.0;
        }
        let (mut found, mut kept) = (Preset::SkylakeSp.machine(), Vec::new());
        fit_shared(&mut found, &latencies, None, &mut kept).unwrap();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(found.llc.data_cycles, Preset::SkylakeSp.machine().llc.data_cycles);
        assert!(u64::from(found.llc.slices) * found.llc.slice_kib < found.l2.size_kib / 4);
    }
}
