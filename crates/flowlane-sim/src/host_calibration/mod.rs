//! Calibration of a simulated machine on this host: latencies of caches and memory as numbers of a [`MachineConfig`],
//! and measured software lookups next to simulated ones.
//!
//! Measurements run in rounds with a short pass of each, so that disturbances affect all of them. The reported value
//! is the 10th percentile of the passes.

mod chase;
mod fit;
pub mod lookups;
mod pace;
mod transfer;

pub use fit::{Fit, fit};
pub use pace::{Disturbed, Pace};

use flowlane::named_enum;
use serde::Serialize;
use strum::{IntoStaticStr, VariantArray};

use self::chase::{Branches, Chain};
use self::lookups::{Case, LookupMethod};
use crate::config::MachineConfig;
use crate::machine::SimError;

/// Rounds of a measurement.
const ROUNDS: usize = 200;
/// Rounds of a quick measurement.
const QUICK_ROUNDS: usize = 3;

/// Loads of a chain in a round.
const LOADS: usize = 4096;

/// The shape of a cache, as the system reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct CacheShape {
    /// The size.
    pub kib: u64,
    /// The associativity.
    pub ways: u64,
}

/// Returns the data caches that the system reports, from the first level.
pub fn caches() -> Vec<CacheShape> {
    let read = |index: u32, what: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
        std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    };
    let mut found = Vec::new();
    for index in 0..8 {
        let Some(kind) = read(index, "type") else { break };
        let kib = read(index, "size").and_then(|size| size.trim_end_matches('K').parse().ok());
        let ways = read(index, "ways_of_associativity").and_then(|ways| ways.parse().ok());
        if let (true, Some(kib), Some(ways)) = (kind != "Instruction", kib, ways) {
            found.push(CacheShape { kib, ways });
        }
    }
    found
}

/// Measured latencies.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Latencies {
    /// The length of a cycle.
    pub cycle_ns: f64,
    /// The cost of a mispredicted branch.
    pub mispredict_ns: f64,
    /// The latency of a load by the size of the chain in KiB.
    pub chain_ns: Vec<(u64, f64)>,
    /// The time of a load in the largest chain with many loads in parallel.
    pub many_ns: f64,
    /// The latency of a load of a line that another core has written; `None` with a single core.
    pub dirty_line_ns: Option<f64>,
}

/// A measured lookup method, with tables of a size.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Lookup {
    pub method: LookupMethod,
    /// The intended location of the tables.
    pub level: MemoryLevel,
    /// The bytes that lookups read.
    pub bytes: u64,
    /// The time of a lookup.
    pub ns: f64,
}

/// The cache level that tables fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryLevel {
    /// The first-level cache, on which computing is calibrated.
    L1,
    /// The second cache.
    L2,
    /// The last-level cache.
    #[strum(to_string = "LLC")]
    Llc,
    #[strum(to_string = "memory")]
    Memory,
}

impl MemoryLevel {
    pub const ALL: [Self; 4] = named_enum::all();

    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the size of tables for this level on a host with these caches. The last cache may be smaller for this
    /// process.
    fn bytes(self, caches: &[CacheShape], quick: bool) -> u64 {
        let kib = |n: usize, default: u64| caches.get(n).map_or(default, |cache| cache.kib);
        let (l1, l2, llc) = (kib(0, 32), kib(1, 1024), kib(2, 16 << 10));
        match self {
            // Keys that go by share the cache with the table.
            Self::L1 => l1 << 8,
            Self::L2 => l2 << 8,
            // Halfway, in octaves.
            Self::Llc => ((l2 * llc) as f64).sqrt() as u64 * 1024,
            Self::Memory if quick => 16 << 20,
            // Four times the last cache, within limits.
            Self::Memory => (llc << 12).clamp(128 << 20, 1 << 30),
        }
    }
}

/// The measurements of a host.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// The caches that the system reports.
    pub caches: Vec<CacheShape>,
    pub latencies: Latencies,
    pub lookups: Vec<Lookup>,
    /// The share of memory on huge pages; `None` if the system does not report it.
    pub huge: Option<f64>,
    /// Disturbance by other processes.
    pub disturbed: Disturbed,
}

/// The tables whose lookups were measured.
pub struct Cases(Vec<(MemoryLevel, Case)>);

/// Measures this host; `watch` receives the finished share.
pub fn measure(quick: bool, watch: &dyn Fn(f64)) -> (Measured, Cases) {
    let caches = caches();
    let bytes = |level: MemoryLevel| level.bytes(&caches, quick);
    let cases = LookupMethod::ALL
        .into_iter()
        .flat_map(|method| MemoryLevel::ALL.map(|level| (level, Case::new(method, bytes(level)))));
    let mut cases: Vec<(MemoryLevel, Case)> = cases.collect();
    let mut chains: Vec<(u64, Chain)> = chain_sizes(&caches, bytes(MemoryLevel::Memory))
        .into_iter()
        .map(|kib| (kib, Chain::new((kib as usize) << 10, 1)))
        .collect();
    let branches = Branches::new();
    let rounds = if quick { QUICK_ROUNDS } else { ROUNDS };
    let mut passes: Vec<Vec<f64>> = vec![Vec::new(); 3 + chains.len() + cases.len()];
    let (mut steps, begun) = (Vec::new(), pace::ran_and_waited());
    for round in 0..rounds {
        let mut into = passes.iter_mut();
        let mut note = |ns: f64| into.next().expect("one for each").push(ns);
        steps.push(pace::step_ns());
        note(pace::cycle_ns());
        note(branches.nanoseconds());
        for (_, chain) in &mut chains {
            // Reloads the parts that fit a cache.
            chain.read();
            chain.nanoseconds(chain.lines().min(8 * LOADS));
            note(chain.nanoseconds(LOADS));
        }
        let (_, last) = chains.last_mut().expect("there are some");
        note(last.cycle_nanoseconds::<{ chase::MANY }>(LOADS));
        for (_, case) in &mut cases {
            note(case.nanoseconds());
        }
        watch((round + 1) as f64 / rounds as f64);
    }
    let waited = pace::waited_since(begun);
    passes.iter_mut().for_each(|passes| passes.sort_by(f64::total_cmp));
    let steps: Vec<f64> = steps.into_iter().map(|ns| ns / reported(&passes[0])).collect();
    // The first case is pure computing, so that variation is due to other processes.
    let disturbed = Disturbed::of(&passes[3 + chains.len()], &steps, waited);
    // The fastest pass, since other processes can only occupy registers.
    let many_ns = passes[2 + chains.len()][0];
    let mut reported_ns = passes.into_iter().map(|passes| reported(&passes));
    let mut next = || reported_ns.next().expect("one for each");
    let (cycle_ns, mispredict_ns) = (next(), next());
    // Without the addition.
    let chain_ns = chains.iter().map(|(kib, _)| (*kib, next() - cycle_ns)).collect();
    next();
    let lookups = cases
        .iter()
        .map(|(level, case)| Lookup { method: case.method, level: *level, bytes: case.bytes, ns: next() })
        .collect();
    let huge = huge_share(&std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default());
    let dirty_line_ns = transfer::dirty_line_ns();
    let latencies = Latencies { cycle_ns, mispredict_ns, chain_ns, many_ns, dirty_line_ns };
    (Measured { caches, latencies, lookups, huge, disturbed }, Cases(cases))
}

/// Returns the reported percentile of sorted passes.
fn reported(passes: &[f64]) -> f64 {
    passes[passes.len() * pace::REPORTED_PERMILLE / 1000]
}

/// Returns the share of a process's memory that is on huge pages, from Linux's `smaps_rollup`.
fn huge_share(rollup: &str) -> Option<f64> {
    let kib = |name: &str| -> Option<f64> {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().trim_end_matches("kB").trim().parse().ok()
    };
    let all = kib("Anonymous:").filter(|all| *all > 0.0)?;
    Some(kib("AnonHugePages:")? / all)
}

/// Returns the sizes of the chains in KiB: in the first and second cache, and beyond in steps of half an octave.
fn chain_sizes(caches: &[CacheShape], most: u64) -> Vec<u64> {
    let l1 = caches.first().map_or(32, |cache| cache.kib);
    let l2 = caches.get(1).map_or(1024, |cache| cache.kib);
    let mut sizes = vec![l1 / 2, l2 / 4];
    let mut kib = l2;
    while 2 * kib <= most >> 10 {
        sizes.extend([kib + kib / 2, 2 * kib]);
        kib *= 2;
    }
    // Far beyond the caches, the step is an octave.
    sizes.retain(|kib| *kib <= 16 * l2 || (*kib / l2).is_power_of_two());
    sizes
}

/// A measured lookup method next to its simulation.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Compared {
    /// The measurement.
    pub measured: Lookup,
    /// The measured cycles of a lookup.
    pub measured_cycles: f64,
    /// The simulated cycles of a lookup.
    pub simulated_cycles: f64,
}

impl Compared {
    /// Returns the relative error of the simulation.
    pub fn error(&self) -> f64 {
        self.simulated_cycles / self.measured_cycles - 1.0
    }
}

impl Cases {
    /// Simulates all measured lookups.
    ///
    /// # Errors
    /// Returns an error if the machine gets stuck.
    pub fn compare(&self, measured: &Measured, machine: &MachineConfig) -> Result<Vec<Compared>, SimError> {
        let pairs = self.0.iter().zip(&measured.lookups);
        pairs
            .map(|((_, case), lookup)| {
                let simulated_cycles = case.simulate(machine)?;
                let measured_cycles = lookup.ns / measured.latencies.cycle_ns;
                Ok(Compared { measured: *lookup, measured_cycles, simulated_cycles })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_huge_pages_is_read_off_what_linux_says() {
        let rollup =
            "5500-7fff ---p [rollup]\nRss:  9000 kB\nAnonymous:      8000 kB\nAnonHugePages:  6000 kB\n";
        assert_eq!(huge_share(rollup), Some(0.75));
        assert_eq!(huge_share("Anonymous: 0 kB\nAnonHugePages: 0 kB\n"), None);
        assert_eq!(huge_share(""), None);
    }

    #[test]
    fn a_calibrated_machine_reads_back() {
        let (measured, cases) = measure(true, &|_| {});
        assert_eq!(measured.lookups.len(), LookupMethod::ALL.len() * MemoryLevel::ALL.len());
        assert!(measured.lookups.iter().all(|lookup| lookup.ns > 0.0));
        let fit = fit(&measured, &cases).unwrap();
        fit.machine.check().unwrap();
        let read = crate::config::RunConfig::parse(&fit.text("A machine")).unwrap();
        assert_eq!(read.machine, fit.machine);
    }
}
