//! Figure 11: tuple space search, by the number of tuples.

use std::rc::Rc;

use super::envelope::Envelope;
use super::{Row, Stated, relative};
use crate::config::MatchingTable;
use crate::config::{Approach, MachineConfig};
use crate::machine::SimError;
use crate::parallel;
use crate::report::{Chart, Effort};
use crate::run::{RunResult, run, tables_of};

/// Numbers of tuples (5.2).
pub(super) const TUPLES: [u32; 4] = [5, 10, 15, 20];
/// Slots of each tuple's table (5.2).
pub(super) const ENTRIES: u64 = 1024;

const APPROACHES: [Approach; 8] = [
    Approach::Software,
    Approach::HaloBlocking,
    Approach::HaloNonBlocking,
    Approach::Tcam,
    Approach::SramTcam,
    Approach::Bulk,
    Approach::Avx512,
    Approach::NearL2,
];

fn tuples(
    machine: &MachineConfig,
    effort: Effort,
    tables: u32,
    matching: MatchingTable,
) -> Result<Vec<RunResult>, SimError> {
    let mut config = effort.run(machine);
    (config.workload.tables, config.workload.entries, config.workload.matching) = (tables, ENTRIES, matching);
    // 10,000 lookups of tables, several for each packet.
    config.run.warm_up_lookups = (config.run.warm_up_lookups / u64::from(tables)).max(20);
    config.run.lookups = (config.run.lookups / 4).max(50);
    let shared = Rc::new(tables_of(&config));
    APPROACHES.iter().map(|approach| run(&config, *approach, &shared)).collect()
}

pub(super) fn figure(
    machine: &MachineConfig,
    effort: Effort,
    envelope: &Envelope,
) -> Result<(Vec<Row>, Vec<Chart>), SimError> {
    let jobs: Vec<(MatchingTable, u32)> = [MatchingTable::Last, MatchingTable::Uniform]
        .iter()
        .flat_map(|m| TUPLES.map(|tuples| (*m, tuples)))
        .collect();
    let work = |n: usize| tuples(machine, effort, jobs[n].1, jobs[n].0);
    let results = parallel::run(effort.threads, jobs.len(), &|_| {}, &work);
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (last, uniform) = results.split_at(TUPLES.len());
    let times =
        |results: &[RunResult], of: usize| results[0].cycles_per_lookup / results[of].cycles_per_lookup;
    let rows = vec![
        Row::predicted("Figure 11", "non-blocking, times faster", Stated::UpTo { value: 23.4 })
            .between(times(&last[0], 2), times(&last[3], 2))
            .over(envelope.tuples)
            .note(format!(
                "software asks all tuples; where it ends with the first hit, at random: {:.1} at 20 tuples. No packet's queries \
                 are sent before the results of the one before it are read; with one packet ahead it is near the paper's \
                 (chart sensitivity-ahead)",
                times(&uniform[3], 2),
            )),
        Row::predicted(
            "6.2",
            "blocking: times faster at 20 tuples, over those at 5",
            Stated::Words { text: "the performance improvement of Halo is limited" },
        )
        .is(times(&last[3], 1) / times(&last[0], 1)),
    ];
    let chart = |id, title: &str, results: &[Vec<RunResult>]| Chart {
        id,
        title: title.into(),
        about: "Packets a second; every packet has a key in one tuple of 1024 slots, 75 % full.".into(),
        axis: "tuples",
        places: TUPLES.iter().map(u32::to_string).collect(),
        unit: "times the throughput of software",
        lines: true,
        series: relative(results),
    };
    let charts = vec![
        chart("figure-11", "Figure 11: tuple space search, all tuples asked", last),
        chart("figure-11-uniform", "Figure 11, where software ends with the first hit, at random", uniform),
    ];
    Ok((rows, charts))
}
