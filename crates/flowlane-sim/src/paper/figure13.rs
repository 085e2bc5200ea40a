//! Figure 13: functions based on a hash table (Table 3), with software's lookups and with HALO's.
//!
//! The paper does not describe their other work; [`FUNCTIONS`] has our assumptions.

use std::rc::Rc;

use super::{Row, Stated, label};
use crate::config::{Approach, MachineConfig};
use crate::machine::SimError;
use crate::parallel;
use crate::report::{Chart, Effort, Series};
use crate::run::{run, tables_of};

struct Function {
    name: &'static str,
    entries: [u64; 3],
    tables: u32,
    /// Instructions in addition to the lookup: rewriting addresses, ports and checksums; recording an asset's time;
    /// only the verdict.
    instructions: u32,
    lines: u32,
}

const FUNCTIONS: [Function; 3] = [
    Function { name: "NAT", entries: [1_000, 10_000, 100_000], tables: 1, instructions: 40, lines: 1 },
    Function {
        name: "asset detection",
        entries: [1_000, 10_000, 100_000],
        tables: 1,
        instructions: 30,
        lines: 1,
    },
    Function { name: "packet filter", entries: [100, 1_000, 10_000], tables: 1, instructions: 20, lines: 1 },
];

const APPROACHES: [Approach; 5] =
    [Approach::Software, Approach::HaloBlocking, Approach::HaloNonBlocking, Approach::Bulk, Approach::Avx512];

pub(super) fn figure(machine: &MachineConfig, effort: Effort) -> Result<(Vec<Row>, Vec<Chart>), SimError> {
    let jobs: Vec<(&Function, u64)> =
        FUNCTIONS.iter().flat_map(|function| function.entries.map(|entries| (function, entries))).collect();
    let work = |n: usize| -> Result<Vec<f64>, SimError> {
        let (function, entries) = jobs[n];
        let mut config = effort.run(machine);
        let w = &mut config.workload;
        (w.tables, w.entries, w.load_percent) = (function.tables, entries * 4 / 3, 75);
        (w.beside_instructions, w.beside_lines) = (function.instructions, function.lines);
        let tables = Rc::new(tables_of(&config));
        APPROACHES.iter().map(|a| run(&config, *a, &tables).map(|r| r.cycles_per_lookup)).collect()
    };
    let results = parallel::run(effort.threads, jobs.len(), &|_| {}, &work);
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let times: Vec<f64> = results.iter().map(|r| r[0] / r[1]).collect();
    let (least, most) = times.iter().fold((f64::MAX, f64::MIN), |(l, h), t| (l.min(*t), h.max(*t)));
    let rows = vec![
        Row::predicted(
            "Figure 13",
            "functions with blocking lookups, times faster",
            Stated::Range { low: 2.3, high: 2.7 },
        )
        .between(least, most)
        .assumption(
            "20 to 40 instructions beside a lookup: the text does not say what these functions do, and 2.3 to 2.7 of 3.3 needs \
             lookups to be 81 to 90 % of them",
        ),
    ];
    let series = |n: usize| Series {
        name: label(APPROACHES[n]).to_owned(),
        values: results.iter().map(|r| Some(r[0] / r[n])).collect(),
    };
    let chart = Chart {
        id: "figure-13",
        title: "Figure 13: network functions".into(),
        about: "Packets a second, one lookup a packet, and what the function does beside it.".into(),
        axis: "function and entries",
        places: jobs.iter().map(|(function, entries)| format!("{} {entries}", function.name)).collect(),
        unit: "times the throughput with software lookups",
        lines: false,
        series: (0..APPROACHES.len()).map(series).collect(),
    };
    Ok((rows, vec![chart]))
}
