//! From latencies to the numbers of a machine.
//!
//! What is measured directly is put in: clock, caches, branches, misses at once. The last cache's size and distance, and
//! memory's distance, are those with which a simulated chain takes what the real one takes: a machine that is shared may
//! have much less of the last cache than the system says. Computing is calibrated on tables in the first cache. Lookups in
//! larger tables have no part in it.

use serde::Serialize;

use super::{Cases, Latencies, Measured, Place};
use crate::config::{MachineConfig, Preset};
use crate::here::lookups::Way;
use crate::machine::SimError;
use crate::program::chase_cycles;

/// A machine that behaves as this one.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// The machine: Skylake-SP's structure, this one's numbers.
    pub machine: MachineConfig,
    /// Cycles of a load of a chain over so many KiB, measured and simulated.
    pub chains: Vec<(u64, f64, f64)>,
    /// What was not to be had, and is the preset's.
    pub kept: Vec<&'static str>,
}

/// The numbers with which the simulated machine behaves as what was measured.
///
/// # Errors
/// Where a simulated machine gets stuck.
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
    core.miss_registers = whole(farthest_ns / latencies.many_ns).clamp(4, 64) as u32;
    machine.l1.latency_cycles = whole(cycles(latencies.chain_ns[0].1));
    machine.l2.latency_cycles = whole(cycles(latencies.chain_ns[1].1)).max(machine.l1.latency_cycles + 1);
    match measured.caches.as_slice() {
        [l1, l2, ..] => {
            (machine.l1.size_kib, machine.l1.ways) = (l1.kib, l1.ways);
            (machine.l2.size_kib, machine.l2.ways) = (l2.kib, l2.ways);
        }
        _ => kept.push("sizes of L1 and L2: the system does not tell them"),
    }
    fit_shared(&mut machine, latencies, &mut kept)?;
    fit_transfer(&mut machine, latencies, &mut kept);
    fit_computing(&mut machine, measured, cases)?;
    let chains = latencies
        .chain_ns
        .iter()
        .map(|(kib, ns)| Ok((*kib, cycles(*ns), chain(&machine, *kib)?)))
        .collect::<Result<_, SimError>>()?;
    Ok(Fit { machine, chains, kept })
}

fn chain(machine: &MachineConfig, kib: u64) -> Result<f64, SimError> {
    // Warm where it fits; what does not is not there anyway.
    let fits = kib << 4 <= machine_llc_lines(machine) + (machine.l2.size_kib << 4);
    chase_cycles(machine, kib << 10, 0, fits)
}

fn machine_llc_lines(machine: &MachineConfig) -> u64 {
    u64::from(machine.llc.slices) * machine.llc.slice_kib << 4
}

/// The last cache and memory. A chain is in the last cache where its loads take less than halfway from there to memory.
fn fit_shared(
    machine: &mut MachineConfig,
    latencies: &Latencies,
    kept: &mut Vec<&'static str>,
) -> Result<(), SimError> {
    let l2 = machine.l2.size_kib;
    let cycles = |ns: f64| ns / latencies.cycle_ns;
    let beyond: Vec<(u64, f64)> =
        latencies.chain_ns.iter().filter(|(kib, _)| *kib > l2).map(|(kib, ns)| (*kib, cycles(*ns))).collect();
    let (_, farthest) = *beyond.last().expect("chains beyond the second cache");
    let nearest = beyond.iter().map(|(_, cycles)| *cycles).fold(f64::MAX, f64::min);
    // Where nothing is nearer than memory, the last cache has nothing left for us.
    let shared = nearest < 0.6 * farthest;
    let line = (nearest + farthest) / 2.0;
    let near = beyond.iter().take_while(|(_, cycles)| shared && *cycles < line).map(|(kib, _)| *kib);
    // It holds the longest that is in it, and not the next.
    let kib = near.max().map_or(l2 / 8, |kib| kib + kib / 5);
    machine.llc.slice_kib = (kib / u64::from(machine.llc.slices)).max(1);
    machine.llc.ways = machine.llc.ways.min(machine.llc.slice_kib * 16);
    if shared {
        let in_llc: Vec<f64> = beyond.iter().map(|(_, c)| *c).take_while(|c| *c < line).collect();
        let off = mean(&in_llc) - chase_cycles(machine, kib << 9, 0, true)?;
        machine.llc.data_cycles = (machine.llc.data_cycles as f64 + off).max(1.0) as u64;
    } else {
        kept.push("the way to the last cache: others leave nothing of it");
    }
    let off = farthest - chase_cycles(machine, FAR_BYTES, 0, false)?;
    let ps = machine.dram.controller_ps as f64 + off * machine.cycle_ps() as f64;
    machine.dram.controller_ps = ps.max(1.0) as u64;
    Ok(())
}

/// Bytes of which no simulated cache has anything.
const FAR_BYTES: u64 = 64 << 20;

/// The geometric mean.
fn mean(values: &[f64]) -> f64 {
    (values.iter().map(|v| v.ln()).sum::<f64>() / values.len().max(1) as f64).exp()
}

/// What another core's cache takes to answer.
fn fit_transfer(machine: &mut MachineConfig, latencies: &Latencies, kept: &mut Vec<&'static str>) {
    let Some(ns) = latencies.dirty_line_ns else {
        return kept.push("the way from core to core: there is one core");
    };
    let cycles = ns / latencies.cycle_ns;
    if cycles < 2.0 * machine.l2.latency_cycles as f64 {
        return kept.push("the way from core to core: the two that were measured share their caches");
    }
    // To the slice, to the other core, back: three ways of the mean distance.
    let hops = f64::from(machine.mesh.columns + machine.mesh.rows) / 3.0;
    let way = 3.0 * hops * machine.mesh.hop_cycles as f64;
    let before = machine.l2.latency_cycles as f64 + machine.llc.tag_cycles as f64 + way;
    machine.snoop.private_cycles = (cycles - before).max(1.0) as u64;
}

/// Cycles of an instruction, by single lookups in tables in the first cache; then the instructions of a batch's lookup.
fn fit_computing(machine: &mut MachineConfig, measured: &Measured, cases: &Cases) -> Result<(), SimError> {
    let of = |wanted: Way| {
        let all = cases.0.iter().zip(&measured.lookups);
        let mut found = all.filter(|((place, case), _)| *place == Place::L1 && case.way == wanted);
        let ((_, case), lookup) = found.next().expect("every way was measured");
        (case, lookup.ns / measured.latencies.cycle_ns)
    };
    let (single, cycles) = of(Way::Single);
    let mut trial = machine.clone();
    machine.core.base_cpi_milli = bisect(100, 2000, &mut |cpi| {
        trial.core.base_cpi_milli = cpi;
        Ok(single.simulate(&trial)? < cycles)
    })?;
    let (bulk, cycles) = of(Way::Bulk);
    let mut trial = machine.clone();
    let instructions = bisect(20, 2000, &mut |instructions| {
        trial.software.bulk_instructions = instructions as u32;
        Ok(bulk.simulate(&trial)? < cycles)
    })?;
    machine.software.bulk_instructions = instructions as u32;
    Ok(())
}

impl Fit {
    /// A configuration that `sim run` reads: this machine's numbers over the preset's.
    pub fn text(&self, of: &str) -> String {
        let m = &self.machine;
        let mut out = format!(
            "# {of}, as `flowlane sim calibrate` found it. What is not named here is that of Skylake-SP.\n\
             # [M] measured, [C] so that tables in the first cache take what they take here.\n\
             preset = \"{}\"\n",
            Preset::SkylakeSp
        );
        let mut section = |name: &str, rows: &[(&str, u64, &str)]| {
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
        section("software", &[("bulk_instructions", m.software.bulk_instructions.into(), "C")]);
        out
    }
}

/// The least number for which something is not too little any more.
fn bisect(
    mut low: u64,
    mut high: u64,
    too_little: &mut dyn FnMut(u64) -> Result<bool, SimError>,
) -> Result<u64, SimError> {
    while low < high {
        let middle = (low + high) / 2;
        if too_little(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The latencies of a simulated machine, as if they had been measured.
    fn latencies_of(machine: &MachineConfig) -> Latencies {
        let cycle_ns = machine.cycle_ps() as f64 / 1e3;
        let l2 = machine.l2.size_kib;
        let sizes = [machine.l1.size_kib / 2, l2 / 4, 2 * l2, 4 * l2, 8 * l2, 64 * l2, 256 * l2];
        let near = |kib: u64| kib <= 8 * l2;
        let chain = |kib: u64| chase_cycles(machine, kib << 10, 0, near(kib)).unwrap() * cycle_ns;
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
        fit_shared(&mut found, &latencies, &mut kept).unwrap();
        assert_eq!(kept, [""; 0]);
        for (kib, ns) in &latencies.chain_ns[2..] {
            let near = *kib <= 8 * known.l2.size_kib;
            let simulated = chase_cycles(&found, kib << 10, 0, near).unwrap();
            let measured = ns / latencies.cycle_ns;
            assert!((simulated / measured - 1.0).abs() < 0.05, "{kib} KiB: {simulated} for {measured}");
        }
    }

    #[test]
    fn a_last_cache_that_others_fill_is_said_to_be_gone() {
        let mut latencies = latencies_of(&Preset::SkylakeSp.machine());
        for (_, ns) in &mut latencies.chain_ns[2..] {
            *ns = 110.0;
        }
        let (mut found, mut kept) = (Preset::SkylakeSp.machine(), Vec::new());
        fit_shared(&mut found, &latencies, &mut kept).unwrap();
        assert_eq!(kept.len(), 1);
        assert!(machine_llc_lines(&found) * 64 < found.l2.size_kib << 10);
    }

    #[test]
    fn bisection_ends_at_the_least_that_is_enough() {
        for wanted in [0, 1, 7, 99, 100] {
            assert_eq!(bisect(0, 100, &mut |n| Ok(n < wanted)), Ok(wanted));
        }
        assert_eq!(bisect(0, 100, &mut |_| Ok(true)), Ok(100));
    }
}
