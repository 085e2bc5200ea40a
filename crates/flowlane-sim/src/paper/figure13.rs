//! Figure 13: functions based on a hash table (Table 3), with software's lookups and with HALO's.
//!
//! The runs are `experiments/figure13.toml`, with our assumptions about the functions' other work.

use super::{QUICK_LOOKUPS, Row, Stated, extent, relative};
use crate::config::{Approach, MachineConfig};
use crate::machine::SimError;
use crate::report::{Chart, Effort};
use crate::run::SweptRun;

pub(super) const EXPERIMENT: &str = include_str!("../../experiments/figure13.toml");

pub(super) fn figure(machine: &MachineConfig, effort: Effort) -> Result<(Vec<Row>, Vec<Chart>), SimError> {
    let runs = effort.experiment(EXPERIMENT, machine, u64::MAX, QUICK_LOOKUPS, &|_| {})?;
    let [least, most] = extent(runs.iter().map(|run| run.times(Approach::HaloBlocking)));
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
    let place = |run: &SweptRun| {
        let w = &run.config.workload;
        format!("{} {}", run.values[0], (w.entries * w.load_percent).div_ceil(100))
    };
    let about = "Packets a second, one lookup a packet, and what the function does beside it.";
    let chart = Chart::new("figure-13", "Figure 13: network functions", about)
        .over("function and entries", runs.iter().map(place))
        .bars("times the throughput with software lookups", relative(&runs));
    Ok((rows, vec![chart]))
}
