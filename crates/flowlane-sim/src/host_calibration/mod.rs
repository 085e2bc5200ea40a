//! Calibration of a simulated machine on this host: latencies of caches and memory as numbers of a [`MachineConfig`],
//! and measured software lookups next to simulated ones.
//!
//! Measurements run in rounds with a short pass of each, so that disturbances affect all of them. The reported value
//! is the median of the calm passes: those before and after which a loop over registers was not slowed down.

mod chase;
mod fit;
pub mod lookups;
mod pace;
mod transfer;

pub use fit::{Fit, fit};
use pace::Passes;
pub use pace::{Disturbed, Pace};

use std::sync::Arc;

use flowlane::memory::HUGE_BYTES;
use flowlane::named_enum::{self, Named, UnknownName};
use serde::Serialize;
use strum::{EnumString, IntoStaticStr, VariantArray};

use self::chase::{Branches, Chain};
use self::lookups::{Case, LookupMethod};
use crate::config::MachineConfig;
use crate::machine::SimError;
use crate::program::replay;
use crate::trace::{RecordError, Trace, recorded};

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
    /// The latency of a load on pages of 4 KiB, for sizes that are otherwise on huge pages.
    pub small_chain_ns: Vec<(u64, f64)>,
    /// The time of a load with many in parallel, in a chain of this size in KiB: mostly in the last cache, where walks are short.
    pub many_ns: (u64, f64),
    /// The instructions of the window, by independent misses, in calm passes: too small a number if the core's other thread is
    /// active.
    pub window: u32,
    /// The latency of a load in the first-level cache, of lines beside each other and of lines on as many pieces of 4 KiB of one
    /// huge page: a host below with small pages makes them as many pages.
    pub apart_ns: [f64; 2],
    /// Whether this is a virtual machine.
    pub is_guest: bool,
    /// The latency of a load of a line that another core has written; `None` with a single core.
    pub dirty_line_ns: Option<f64>,
}

impl Latencies {
    /// Returns them with a shorter time of each load of a chain.
    fn without(&self, ns: f64) -> Self {
        let less = |chains: &[(u64, f64)]| chains.iter().map(|(kib, all)| (*kib, all - ns)).collect();
        let (chain_ns, small_chain_ns) = (less(&self.chain_ns), less(&self.small_chain_ns));
        Self { chain_ns, small_chain_ns, ..self.clone() }
    }
}

/// A measured lookup method, with tables of a size.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Lookup {
    pub method: LookupMethod,
    /// Whether the tables are on small pages although they are large.
    pub small_pages: bool,
    /// The intended location of the tables.
    pub level: MemoryLevel,
    /// The bytes that lookups read.
    pub bytes: u64,
    /// The time of a lookup.
    pub ns: f64,
}

/// The cache level that tables fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, EnumString, IntoStaticStr, VariantArray)]
#[strum(ascii_case_insensitive, parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<MemoryLevel>)]
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

impl Named for MemoryLevel {
    const KIND: &'static str = "level";
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

/// Looks up keys under a recorder, in the process that it started: the tables of `measure` with warm caches.
///
/// # Errors
/// Returns an error if the method has no such tables, or if the system refuses to trace.
pub fn look_up_recorded(lookup: &Lookup, lookups: usize, quick: bool) -> Result<(), RecordError> {
    if lookup.small_pages && !huge_pages(false) {
        return Err(RecordError::Tables("the system does not take back huge pages"));
    }
    let case = Case::new(lookup.method, lookup.level, lookup.level.bytes(&caches(), quick), quick);
    let mut case = case.ok_or(RecordError::Tables("this method has no tables of this size"))?;
    case.warm_up();
    let keys = case.draw(lookups);
    recorded(|| case.pass_over(&keys)).map(|_| ())
}

/// The measurements of a host.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Measured {
    /// The caches that the system reports.
    pub caches: Vec<CacheShape>,
    pub latencies: Latencies,
    pub lookups: Vec<Lookup>,
    /// The share of memory on huge pages, without that which is on small ones on purpose; `None` if the system does not report it.
    pub huge: Option<f64>,
    /// Disturbance by other processes.
    pub disturbed: Disturbed,
}

/// The tables whose lookups were measured.
pub struct Cases(Vec<Case>);

/// Returns the cases of methods with tables for these levels.
fn all_of<'a>(
    methods: &'a [LookupMethod],
    levels: &'a [MemoryLevel],
    caches: &'a [CacheShape],
    quick: bool,
) -> impl Iterator<Item = Case> + 'a {
    let each = move |method: &LookupMethod| {
        let method = *method;
        levels.iter().filter_map(move |level| Case::new(method, *level, level.bytes(caches, quick), quick))
    };
    methods.iter().flat_map(each)
}

/// Lets memory that is allocated from now on have huge pages, or none; `false` if the system cannot.
fn huge_pages(allowed: bool) -> bool {
    #[cfg(target_os = "linux")]
    return nix::sys::prctl::set_thp_disable(!allowed).is_ok();
    #[cfg(not(target_os = "linux"))]
    allowed
}

/// The extent of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// The numbers that a machine is fitted to.
    Machine,
    /// All lookup methods too, in tables of all sizes, on large and small pages.
    Lookups,
}

/// The subjects of the measurements that are made in rounds.
struct Subjects {
    branches: Branches,
    /// Chains by their size in KiB: first `large` ones, then those on small pages.
    chains: Vec<(u64, Chain)>,
    large: usize,
    /// The chain for many loads in parallel.
    many: usize,
    cases: Vec<Case>,
}

impl Subjects {
    /// Makes a pass of each in every round: the clock, branches, chains, many loads in parallel, cases. Returns them, and those of the
    /// window, which the core's other thread halves while it is awake.
    fn rounds(&mut self, rounds: usize, watch: &dyn Fn(f64)) -> (Vec<Passes>, Passes) {
        let mut passes: Vec<Passes> = vec![Passes::default(); 3 + self.chains.len() + self.cases.len()];
        let mut windows = Passes::default();
        for round in 0..rounds {
            let mut into = passes.iter_mut();
            let mut time = |pass: &mut dyn FnMut() -> f64| into.next().expect("one for each").time(pass);
            time(&mut pace::cycle_ns);
            time(&mut || self.branches.nanoseconds());
            for (_, chain) in &mut self.chains {
                // Reloads the parts that fit a cache.
                chain.read();
                chain.nanoseconds(chain.lines().min(8 * LOADS));
                time(&mut || chain.nanoseconds(LOADS));
            }
            let (_, chain) = &mut self.chains[self.many];
            chain.read();
            time(&mut || chain.cycle_nanoseconds::<{ chase::MANY }>(LOADS));
            windows.time(&mut || self.chains[self.large - 1].1.window().into());
            for case in &mut self.cases {
                case.warm_up();
                time(&mut || case.nanoseconds());
            }
            watch((round + 1) as f64 / rounds as f64);
        }
        (passes, windows)
    }
}

/// Measures this host; `watch` receives the finished share.
pub fn measure(extent: Extent, quick: bool, watch: &dyn Fn(f64)) -> (Measured, Cases) {
    let caches = caches();
    let bytes = |level: MemoryLevel| level.bytes(&caches, quick);
    let (methods, levels): (&[LookupMethod], &[MemoryLevel]) = match extent {
        Extent::Machine => (&fit::COMPUTING, &[MemoryLevel::L1]),
        Extent::Lookups => (&LookupMethod::ALL, &MemoryLevel::ALL),
    };
    let mut cases: Vec<Case> = all_of(methods, levels, &caches, quick).collect();
    let sizes = chain_sizes(&caches, bytes(MemoryLevel::Memory));
    let chain = |kib: &u64| (*kib, Chain::new((*kib as usize) << 10, 1));
    let mut chains: Vec<(u64, Chain)> = sizes.iter().map(chain).collect();
    let large = chains.len();
    let huge = huge_share(&std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default());
    if extent == Extent::Lookups && huge_pages(false) {
        let small = all_of(&[LookupMethod::Single], &[MemoryLevel::Llc, MemoryLevel::Memory], &caches, quick);
        cases.extend(small.map(Case::on_small_pages));
        chains.extend(sizes.iter().filter(|kib| **kib << 10 >= HUGE_BYTES as u64).map(chain));
    }
    // Eight times the second cache, of which the second size is a quarter.
    let many = sizes.iter().position(|kib| *kib >= 32 * sizes[1]).unwrap_or(large - 1);
    let mut subjects = Subjects { branches: Branches::new(), chains, large, many, cases };
    let begun = pace::ran_and_waited();
    let (passes, windows) = subjects.rounds(if quick { QUICK_ROUNDS } else { ROUNDS }, watch);
    let Subjects { chains, cases, .. } = subjects;
    let waited = pace::waited_since(begun);
    let step_ns = passes.iter().flat_map(|of| of.0.iter().map(|(_, step)| *step)).fold(f64::MAX, f64::min);

    // The fastest pass, since other processes can only occupy registers.
    let many_ns = passes[2 + chains.len()].0.iter().map(|(ns, _)| *ns).fold(f64::MAX, f64::min);
    let many_ns = (sizes[many], many_ns);
    let mut reported_ns = passes.iter().map(|passes| passes.calm(step_ns));
    let mut next = || reported_ns.next().expect("one for each");
    let (cycle_ns, mispredict_ns) = (next(), next());
    let disturbed = Disturbed::of(&passes, pace::ENOUGH, [step_ns, cycle_ns], waited);
    // Without the addition.
    let mut chain_ns: Vec<_> = chains.iter().map(|(kib, _)| (*kib, next() - cycle_ns)).collect();
    let small_chain_ns = chain_ns.split_off(large);
    next();
    let lookups = cases
        .iter()
        .map(|case| {
            let Case { method, level, bytes, small_pages, .. } = *case;
            Lookup { method, small_pages, level, bytes, ns: next() }
        })
        .collect();
    let dirty_line_ns = transfer::dirty_line_ns();
    huge_pages(true);
    let apart_ns = [64, 4096].map(Chain::apart_nanoseconds);
    let is_guest = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|cpus| cpus.contains(" hypervisor"));
    let latencies = Latencies {
        cycle_ns,
        mispredict_ns,
        chain_ns,
        small_chain_ns,
        many_ns,
        window: windows.calm(step_ns) as u32,
        apart_ns,
        is_guest,
        dirty_line_ns,
    };
    (Measured { caches, latencies, lookups, huge, disturbed }, Cases(cases))
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

/// The basis of the simulation of a lookup method.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimulatedBy {
    /// Its instructions, as recorded on this host.
    Instructions,
    /// Its loads, as a probe sees them, and numbers of instructions that were calibrated.
    Loads,
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
    /// The basis of the simulation.
    pub by: SimulatedBy,
}

impl Compared {
    /// Returns the relative error of the simulation.
    pub fn error(&self) -> f64 {
        self.simulated_cycles / self.measured_cycles - 1.0
    }
}

impl Lookup {
    /// Returns the number of lookups to record: about as many instructions of every method.
    pub fn recorded(&self) -> u32 {
        use LookupMethod::{
            Bulk, BulkVectors, Dynamic, DynamicBatches, Single, Tree, TreeBatches, TupleSearch, TupleSpace,
        };
        match self.method {
            Single => 400,
            Bulk | BulkVectors => 768,
            TupleSpace => 128,
            TupleSearch | Dynamic => 48,
            Tree => 192,
            // Whole calls.
            TreeBatches | DynamicBatches => 512,
        }
    }

    /// Returns a name for files.
    pub fn name(&self) -> String {
        let pages = if self.small_pages { "-small-pages" } else { "" };
        format!("{}-{}{pages}", self.method.name(), self.level.name())
    }
}

impl Cases {
    /// Simulates all measured lookups: by their recorded instructions where `record` has some, else by their loads, else not
    /// at all.
    ///
    /// # Errors
    /// Returns an error if the machine gets stuck.
    pub fn compare(
        &self,
        measured: &Measured,
        machine: &MachineConfig,
        record: &mut dyn FnMut(&Lookup) -> Option<Arc<Trace>>,
    ) -> Result<Vec<Compared>, SimError> {
        let mut all = Vec::new();
        for (case, lookup) in self.0.iter().zip(&measured.lookups) {
            let (by, simulated) = match record(lookup) {
                Some(trace) => (SimulatedBy::Instructions, Some(replay(&trace, machine, 1)?.cycles)),
                None => (SimulatedBy::Loads, case.simulate(machine)?),
            };
            let measured_cycles = lookup.ns / measured.latencies.cycle_ns;
            let one =
                |simulated_cycles| Compared { measured: *lookup, measured_cycles, simulated_cycles, by };
            all.extend(simulated.map(one));
        }
        Ok(all)
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
        let (measured, cases) = measure(Extent::Lookups, true, &|_| {});
        assert!(measured.lookups.len() > 4 * MemoryLevel::ALL.len());
        assert!(measured.lookups.iter().all(|lookup| lookup.ns > 0.0));
        let fit = fit(&measured, &cases).unwrap();
        fit.machine.check().unwrap();
        let read = crate::config::RunConfig::parse(&fit.text("A machine")).unwrap();
        assert_eq!(read.machine, fit.machine);
    }
}
