//! Fits a machine's numbers to measured latencies.
//!
//! Directly measured numbers are adopted: clock, caches, branches, outstanding misses. The size and latency of the
//! last cache and the latency of memory are chosen so that a simulated chain takes as long as the real one; on a
//! shared machine, much less of the last cache may be available than the system reports. Computing is calibrated on
//! tables in the first-level cache. Lookups in larger tables are not used for calibration.

use serde::Serialize;

use super::{Cases, Latencies, Measured, MemoryLevel};
use crate::config::{MachineConfig, Preset};
use crate::host_calibration::lookups::LookupMethod;
use crate::machine::SimError;
use crate::program::{chase_cycles, dirty_cycles};
use crate::search::least;

/// A simulated machine that behaves as this host.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The machine: the structure of Skylake-SP with this host's numbers.
    pub machine: MachineConfig,
    /// Cycles of a load of a chain by its size in KiB, measured and simulated.
    pub chains: Vec<(u64, f64, f64)>,
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

/// The fewest outstanding misses. A core has registers for more (line-fill buffers of Intel's: 10 to 12). Page-table
/// walks and other tenants of the memory leave 9 on the measured host, and in some runs 5, although lookups in those
/// runs proceed as with 9.
const MISSES_LEAST: u32 = 8;

/// Fits a machine to the measurements.
///
/// # Errors
/// Returns an error if a simulated machine gets stuck.
pub fn fit(measured: &Measured, cases: &Cases) -> Result<Fit, SimError> {
    let latencies = &measured.latencies;
    let cycles = |ns: f64| ns / latencies.cycle_ns;
    let whole = |cycles: f64| (cycles.round() as u64).max(1);
    let mut machine = Preset::SkylakeSp.machine();
    let mut kept = Vec::new();
    let core = &mut machine.core;
    core.clock_mhz = (1e3 / latencies.cycle_ns).round() as u64;
    core.mispredict_cycles = whole(cycles(latencies.mispredict_ns));
    let (_, farthest_ns) = *latencies.chain_ns.last().expect("there are chains");
    let at_once = whole(farthest_ns / latencies.many_ns) as u32;
    core.miss_registers = at_once.clamp(MISSES_LEAST, 64);
    machine.l1.latency_cycles = whole(cycles(latencies.chain_ns[0].1));
    machine.l2.latency_cycles = whole(cycles(latencies.chain_ns[1].1)).max(machine.l1.latency_cycles + 1);
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
    fit_shared(&mut machine, latencies, measured.caches.get(2).map(|llc| llc.kib), &mut kept)?;
    let dirty_line = fit_transfer(&mut machine, latencies, &mut kept)?;
    fit_computing(&mut machine, measured, cases, &mut kept)?;
    let chains = latencies
        .chain_ns
        .iter()
        .map(|(kib, ns)| Ok((*kib, cycles(*ns), chase_cycles(&machine, *kib << 10, 0, true)?)))
        .collect::<Result<_, SimError>>()?;
    Ok(Fit { machine, chains, dirty_line, kept })
}

/// Fits the last cache and memory: the size and latency with which random loads in regions of all sizes beyond the
/// second-level cache take as long as measured. A cache answers the share of loads that it holds.
fn fit_shared(
    machine: &mut MachineConfig,
    latencies: &Latencies,
    llc_kib: Option<u64>,
    kept: &mut Vec<Kept>,
) -> Result<(), SimError> {
    let l2 = (machine.l2.size_kib as f64, machine.l2.latency_cycles as f64);
    let chains = latencies.chain_ns.iter().map(|(kib, ns)| (*kib as f64, ns / latencies.cycle_ns));
    let beyond: Vec<(f64, f64)> = chains.filter(|(kib, _)| *kib > l2.0).collect();
    // Starts from Skylake-SP's own size and latency.
    let own = Preset::SkylakeSp.machine();
    let mut near = machine.clone();
    (near.llc.slice_kib, near.llc.ways) = (own.llc.slice_kib, own.llc.ways);
    // The region is six times the second-level cache, which answers a sixth of the loads.
    let mixed = chase_cycles(&near, (6 * near.l2.size_kib) << 10, 0, true)?;
    let nearest = (mixed - l2.1 / 6.0) * 6.0 / 5.0;
    let most = llc_kib.map_or(32.0 * l2.0, |kib| kib as f64);
    let sizes = (0..).map(|n| most * 0.5f64.powf(f64::from(n) / 8.0)).take_while(|kib| *kib > l2.0 / 16.0);
    let trials = sizes.flat_map(|kib| (0..40).map(move |n| (kib, nearest + 2.0 * f64::from(n))));
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
fn fit_computing(
    machine: &mut MachineConfig,
    measured: &Measured,
    cases: &Cases,
    kept: &mut Vec<Kept>,
) -> Result<(), SimError> {
    let of = |wanted: LookupMethod| {
        let all = cases.0.iter().zip(&measured.lookups);
        let mut found = all.filter(|((level, case), _)| *level == MemoryLevel::L1 && case.method == wanted);
        let ((_, case), lookup) = found.next().expect("every method was measured");
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
        Ok(single.simulate(&trial)? >= cycles)
    })?;
    machine.core.base_cpi_milli = found;
    at_an_end(
        found,
        [low, high],
        "computing: no base CPI gives what single lookups take; the nearest is taken",
    );
    for method in [LookupMethod::Bulk, LookupMethod::Vectors] {
        let (case, cycles) = of(method);
        let (mut trial, [low, high]) = (machine.clone(), [12, 2000]);
        let found = least(low, high, |instructions| {
            *instructions_of(&mut trial, method) = instructions as u32;
            Ok(case.simulate(&trial)? >= cycles)
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
        LookupMethod::Vectors => &mut machine.software.vector_instructions,
        _ => &mut machine.software.bulk_instructions,
    }
}

impl Fit {
    /// Returns a configuration for `sim run`: this host's numbers over the preset's.
    pub fn text(&self, of: &str) -> String {
        let m = &self.machine;
        let mut out = format!(
            "# {of}, fitted by `flowlane sim calibrate`. All other numbers are Skylake-SP's.\n\
             # [M] measured, [C] calibrated on lookups in tables in the first-level cache.\n\
             preset = \"{}\"\n",
            Preset::SkylakeSp
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
                ("mispredict_cycles", m.core.mispredict_cycles, "M"),
                ("base_cpi_milli", m.core.base_cpi_milli, "C"),
            ],
        );
        for (name, cache) in [("l1", &m.l1), ("l2", &m.l2)] {
            section(
                name,
                &[
                    ("size_kib", cache.size_kib, "M"),
                    ("ways", cache.ways, "M"),
                    ("latency_cycles", cache.latency_cycles, "M"),
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
        let many_ns = chain_ns[6].1 / 9.0;
        Latencies { cycle_ns, mispredict_ns: 17.0 * cycle_ns, chain_ns, many_ns, dirty_line_ns: None }
    }

    #[test]
    fn a_machine_is_found_by_its_latencies() {
        let mut known = Preset::SkylakeSp.machine();
        (known.llc.data_cycles, known.dram.controller_ps, known.core.clock_mhz) = (41, 60_000, 3000);
        let latencies = latencies_of(&known);
        let mut found = Preset::SkylakeSp.machine();
        found.core.clock_mhz = 3000;
        let mut kept = Vec::new();
        fit_shared(&mut found, &latencies, None, &mut kept).unwrap();
        assert_eq!(kept, []);
        let found_cycles = found.llc.data_cycles as i64;
        assert!((found_cycles - 41).abs() <= 3, "{found_cycles}");
        for (kib, ns) in &latencies.chain_ns[2..] {
            let simulated = chase_cycles(&found, kib << 10, 0, true).unwrap();
            let measured = ns / latencies.cycle_ns;
            assert!((simulated / measured - 1.0).abs() < 0.1, "{kib} KiB: {simulated} for {measured}");
        }
    }

    #[test]
    fn unmeasured_numbers_are_not_written() {
        let (machine, why) = (Preset::SkylakeSp.machine(), "");
        let fit = |keys| Fit {
            machine: machine.clone(),
            chains: Vec::new(),
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
        assert_eq!(kept.len(), 1);
        assert_eq!(found.llc.data_cycles, Preset::SkylakeSp.machine().llc.data_cycles);
        assert!(u64::from(found.llc.slices) * found.llc.slice_kib < found.l2.size_kib / 4);
    }
}
