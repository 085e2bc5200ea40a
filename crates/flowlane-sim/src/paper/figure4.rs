//! Figure 4: the cache levels that loads of a lookup reach, with cuckoo hashing and with a single hash function.
//!
//! The table of one hash function is a cuckoo table that is as full as such a table can be. With a fifth of its slots
//! used, nearly every key is in its first bucket, the only one that a single hash function has.

use std::rc::Rc;

use flowlane::generate::Random;

use super::{Row, Stated};
use crate::config::{Approach, MachineConfig};
use crate::machine::SimError;
use crate::parallel::try_map;
use crate::report::{Chart, Effort, Series, number};
use crate::run::{RunResult, run};
use crate::workload::tables_for;

/// Slots of a bucket ("8-way set associative", 3.3).
const WAYS: u8 = 8;
/// Buckets of the reported table of one hash function: the size for 100,000 flows, from which on it misses.
const BUCKETS: usize = 1 << 16;
/// The load of cuckoo tables in percent (3.3).
const CUCKOO: u64 = 95;
const SINGLE: u64 = 20;

/// Returns the percentage of slots in use when the first key finds its only bucket full.
fn single_hash_use(buckets: usize, random: &mut Random) -> f64 {
    let mut taken = vec![0u8; buckets];
    let mut keys = 0u64;
    loop {
        let bucket = &mut taken[random.index(buckets)];
        if *bucket == WAYS {
            return 100.0 * keys as f64 / (buckets as f64 * f64::from(WAYS));
        }
        *bucket += 1;
        keys += 1;
    }
}

/// Simulates software's lookups of a number of flows in tables with a given load.
fn lookups(machine: &MachineConfig, effort: Effort, flows: u64, percent: u64) -> Result<RunResult, SimError> {
    let mut config = effort.run(machine);
    (config.workload.entries, config.workload.load_percent) = (flows * 100 / percent, percent);
    let tables = tables_for(config.workload.entries, percent, effort.seed);
    run(&config, Approach::Software, &Rc::new(tables))
}

/// Returns, of a thousand loads of all kinds, those that miss the second-level cache, and those that miss the shared
/// cache.
fn misses(machine: &MachineConfig, result: &RunResult) -> [f64; 2] {
    let loads = result.instructions_per_lookup * f64::from(machine.software.loads_permille) / 1000.0;
    let all = loads * result.thread.lookups as f64 / 1000.0;
    let [_, _, llc, memory] = result.thread.loads.map(|n| n as f64);
    [(llc + memory) / all, memory / all]
}

/// Returns the maximum load of a table of one hash function.
fn slots_in_use(seed: u64) -> Row {
    let mut random = Random::for_purpose(seed, "figure 4");
    let tables = 9;
    let mut in_use = |buckets: usize| {
        (0..tables).map(|_| single_hash_use(buckets, &mut random)).sum::<f64>() / f64::from(tables)
    };
    let [in_use, fewer, more] = [BUCKETS, BUCKETS / 10, BUCKETS * 10].map(&mut in_use);
    let (what, stated) = ("one hash function: slots in use (%)", Stated::Exact { value: SINGLE as f64 });
    Row::predicted("Figure 4", what, stated)
        .is(in_use)
        .assumption(format!(
            "{BUCKETS} buckets: those of 100,000 flows at the {SINGLE} % that are to come out; with a tenth or ten times as many \
             it is {} and {} %",
            number(fewer),
            number(more)
        ))
        .note("when the first key finds its bucket of eight full")
}

/// Returns the share of second-level misses that hit the shared cache.
fn hits(machine: &MachineConfig, flows: u64, [beyond_l2, beyond_llc]: [f64; 2]) -> Row {
    let hit = 100.0 * (1.0 - beyond_llc / beyond_l2.max(f64::MIN_POSITIVE));
    let what = "cuckoo hashing, most flows: loads beyond L2 that hit LLC (%)";
    Row::predicted("Figure 4", what, Stated::Words { text: "most of the load instructions" })
        .is(hit)
        .note(format!(
            "the text has it of four million flows, whose table has 112 MiB: with keys that come as often as each other {} MiB \
             cannot hold most of it (chart figure-4); here with {flows}",
            machine.llc.bytes() >> 20
        ))
}

pub(super) fn figure(machine: &MachineConfig, effort: Effort) -> Result<(Vec<Row>, Vec<Chart>), SimError> {
    let flows: &[u64] =
        if effort.quick { &[1000, 10_000] } else { &[1000, 10_000, 100_000, 1_000_000, 4_000_000] };
    // The table for four million flows at a fifth of the load exceeds the simulating host's memory.
    let single_flows = &flows[..flows.len().min(4)];
    let jobs: Vec<(u64, u64)> =
        flows.iter().map(|f| (*f, CUCKOO)).chain(single_flows.iter().map(|f| (*f, SINGLE))).collect();
    let results = try_map(effort.threads, &jobs, |(flows, percent)| {
        lookups(machine, effort, *flows, *percent).map(|result| misses(machine, &result))
    })?;
    let (cuckoo, single) = results.split_at(flows.len());
    let most = flows.len() - 1;
    let rows = vec![slots_in_use(effort.seed), hits(machine, flows[most], cuckoo[most])];
    let series = |name: &str, results: &[[f64; 2]], of: usize| Series {
        name: name.into(),
        values: (0..flows.len()).map(|n| results.get(n).map(|r| r[of])).collect(),
    };
    let about = format!(
        "Software's lookups, tables {CUCKOO} % full with cuckoo hashing, {SINGLE} % with one hash function."
    );
    let series = vec![
        series("cuckoo hashing, L2", cuckoo, 0),
        series("one hash function, L2", single, 0),
        series("cuckoo hashing, LLC", cuckoo, 1),
        series("one hash function, LLC", single, 1),
    ];
    let chart = Chart::new("figure-4", "Figure 4: loads that miss", about)
        .over("flows", flows)
        .curves("misses of a thousand loads", series);
    Ok((rows, vec![chart]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_hash_function_fills_less_the_more_buckets_there_are() {
        let mut random = Random::new(4);
        let mut mean = |buckets| (0..20).map(|_| single_hash_use(buckets, &mut random)).sum::<f64>() / 20.0;
        // A single bucket is full before it overflows.
        assert_eq!(mean(1), 100.0);
        assert!(mean(64) > 1.2 * mean(4096) && mean(4096) > 1.2 * mean(1 << 18));
    }
}
