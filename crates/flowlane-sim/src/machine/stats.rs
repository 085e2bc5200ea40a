//! Statistics.

use serde::Serialize;

use crate::event::Ps;

/// A cycle stack: a thread's time in picoseconds, by the reason for which the oldest instruction of the window
/// waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Stack {
    /// Computing, branches and stores.
    pub compute_ps: Ps,
    /// Synchronisation with writers.
    pub lock_ps: Ps,
    /// Data in the first-level cache.
    pub l1_ps: Ps,
    /// Data in the second-level cache.
    pub l2_ps: Ps,
    /// Data in the shared cache or in another core's cache.
    pub llc_ps: Ps,
    /// Data in memory.
    pub memory_ps: Ps,
    /// An accelerator or another device.
    pub device_ps: Ps,
}

impl Stack {
    /// Returns the time spent on data.
    pub fn data_ps(&self) -> Ps {
        self.l1_ps + self.l2_ps + self.llc_ps + self.memory_ps
    }

    pub fn total_ps(&self) -> Ps {
        self.compute_ps + self.lock_ps + self.data_ps() + self.device_ps
    }

    /// Returns names and times.
    pub fn parts(&self) -> [(&'static str, Ps); 7] {
        [
            ("compute", self.compute_ps),
            ("lock", self.lock_ps),
            ("L1", self.l1_ps),
            ("L2", self.l2_ps),
            ("LLC", self.llc_ps),
            ("memory", self.memory_ps),
            ("device", self.device_ps),
        ]
    }
}

/// The statistics of a thread after its warm-up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ThreadStats {
    /// Finished lookups.
    pub lookups: u64,
    /// Finished units of work (packets, batches).
    pub units: u64,
    /// Retired instructions.
    pub instructions: u64,
    /// The beginning of the first counted unit.
    pub from_ps: Ps,
    /// The end of the last counted unit.
    pub to_ps: Ps,
    /// The cycle stack.
    pub stack: Stack,
    /// Table loads by the location of their line: L1, L2, shared cache, memory.
    pub loads: [u64; 4],
    /// Branches.
    pub branches: u64,
    /// Mispredicted branches.
    pub mispredicted: u64,
    /// Loads of which a store on its way to retirement had only a part, so that they waited for that.
    pub blocked_loads: u64,
    /// Latencies of units of work, from window entry to end, in picoseconds.
    pub latency: Histogram,
    /// The time that queries of this thread spent fetching data.
    pub query_data_ps: Ps,
    /// SNAPSHOT_READs that found results missing.
    pub snapshot_retries: u64,
}

impl ThreadStats {
    pub fn cycles_per_lookup(&self, cycle_ps: Ps) -> f64 {
        (self.to_ps - self.from_ps) as f64 / cycle_ps as f64 / self.lookups.max(1) as f64
    }

    /// Returns the cycles of a unit of work.
    pub fn cycles_per_unit(&self, cycle_ps: Ps) -> f64 {
        (self.to_ps - self.from_ps) as f64 / cycle_ps as f64 / self.units.max(1) as f64
    }
}

/// Counters of the shared parts, including the warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counters {
    /// Requests that hit the shared cache.
    pub llc_hits: u64,
    /// Requests that missed the shared cache; those of them that waited for a miss register, and those whose line was on
    /// its way already.
    pub llc_misses: u64,
    pub miss_waits: u64,
    pub miss_joins: u64,
    /// Lines taken from, or shared with, another core's caches.
    pub snoops: u64,
    /// Writes that met a locked line and were retried.
    pub snoop_misses: u64,
    /// Metadata found in an accelerator.
    pub metadata_hits: u64,
    /// Metadata fetched by an accelerator.
    pub metadata_misses: u64,
    /// Metadata of accelerators invalidated by a write.
    pub metadata_invalidated: u64,
    /// Queries that waited in the distributor for a busy accelerator.
    pub distributor_waits: u64,
    /// Page-table walks of cores, and the entries that they read.
    pub page_walks: u64,
    pub walk_loads: u64,
    /// Page-table walks of accelerators.
    pub tlb_misses: u64,
    /// Locks taken.
    pub locked: u64,
    /// Locks released.
    pub unlocked: u64,
    /// Flits times hops.
    pub link_flits: u64,
    /// The time that messages waited for links.
    pub link_waited_ps: Ps,
    /// Memory accesses to an open row.
    pub row_hits: u64,
    /// Memory accesses to a closed bank.
    pub row_opens: u64,
    /// Memory accesses that closed another row first.
    pub row_conflicts: u64,
    pub events: u64,
}

/// A logarithmic histogram with eight steps an octave.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum: u64,
    most: u64,
}

fn step_of(value: u64) -> usize {
    if value < 16 {
        return value as usize;
    }
    let octave = value.ilog2();
    ((octave - 3) * 8 + (value >> (octave - 3)) as u32) as usize
}

/// Returns the least number of a step.
fn least_of(step: usize) -> u64 {
    if step < 16 {
        return step as u64;
    }
    let (octave, eighth) = (step as u32 / 8 + 2, step as u64 % 8);
    (8 + eighth) << (octave - 3)
}

impl Histogram {
    /// Adds a number.
    pub fn note(&mut self, value: u64) {
        let step = step_of(value);
        if self.counts.len() <= step {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.total += 1;
        self.sum += value;
        self.most = self.most.max(value);
    }

    /// Returns the number of additions.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Returns the number that this many of a thousand do not exceed, to an eighth of an octave.
    pub fn permille(&self, permille: u64) -> u64 {
        let wanted = (self.total * permille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (step, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return (least_of(step + 1) - 1).min(self.most);
            }
        }
        self.most
    }
}

/// A timed step of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// The lookup or query.
    pub number: u64,
    /// The part of the machine.
    pub track: String,
    /// The step.
    pub name: String,
    /// The beginning.
    pub from_ps: Ps,
    /// The end.
    pub to_ps: Ps,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_a_histogram_are_in_order_and_hold_their_numbers() {
        for value in (0..5000).chain([u64::MAX / 3, 1 << 40]) {
            let step = step_of(value);
            assert!(least_of(step) <= value && value < least_of(step + 1), "{value} in {step}");
        }
    }

    #[test]
    fn quantiles_are_near_and_never_below() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|n| histogram.note(n));
        assert_eq!((histogram.count(), histogram.most, histogram.sum), (1000, 1000, 500_500));
        for permille in [10, 500, 990] {
            let quantile = histogram.permille(permille);
            assert!((permille..=permille * 9 / 8 + 1).contains(&quantile), "{permille}: {quantile}");
        }
        assert_eq!(histogram.permille(1000), 1000);
        assert_eq!(histogram.counts.iter().sum::<u64>(), 1000);
    }
}
