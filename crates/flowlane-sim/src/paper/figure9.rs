//! Figure 9: lookups of one table, by its size and how full it is.

use std::rc::Rc;

use super::envelope::Envelope;
use super::{Row, SLOT_BYTES, Stated, Status, label, relative};
use crate::config::{Approach, MachineConfig};
use crate::machine::SimError;
use crate::parallel;
use crate::report::{Chart, Effort, Series};
use crate::run::{RunResult, run};
use crate::workload::{Tables, TablesConfig};

const APPROACHES: [Approach; 9] = [
    Approach::Software,
    Approach::HaloBlocking,
    Approach::HaloNonBlocking,
    Approach::Tcam,
    Approach::SramTcam,
    Approach::Scalar,
    Approach::Bulk,
    Approach::Avx512,
    Approach::NearL2,
];

/// Those of the paper, which come first.
const PAPER_APPROACHES: usize = 5;

/// Keys of a hundred slots: 25 to 90 (6.1).
const LOADS: [u64; 4] = [25, 50, 75, 90];

/// All approaches at one size, by how full the table is.
fn size(machine: &MachineConfig, effort: Effort, entries: u64) -> Result<Vec<Vec<RunResult>>, SimError> {
    let mut config = effort.run(machine);
    config.workload.entries = entries;
    let mut tables =
        Rc::new(Tables::empty(&TablesConfig { tables: 1, entries, load_percent: 0, seed: effort.seed }));
    LOADS
        .iter()
        .map(|load| {
            config.workload.load_percent = *load;
            let keys = (entries * load).div_ceil(100);
            Rc::get_mut(&mut tables).expect("runs have ended").fill(keys);
            // Those that the paper has not, at one load.
            let count = if *load == 75 { APPROACHES.len() } else { PAPER_APPROACHES };
            APPROACHES[..count].iter().map(|approach| run(&config, *approach, &tables)).collect()
        })
        .collect()
}

pub(super) fn figure(
    machine: &MachineConfig,
    effort: Effort,
    envelope: &Envelope,
    watch: &(dyn Fn(f64) + Sync),
) -> Result<(Vec<Row>, Vec<Chart>), SimError> {
    let most = if effort.quick { 16 } else { 24 };
    // Large ones first: they take longest.
    let sizes: Vec<u32> = (3..=most).rev().collect();
    let done = |n: usize| watch(n as f64 / sizes.len() as f64);
    let work = |n: usize| size(machine, effort, 1 << sizes[n]);
    let results = parallel::run(effort.threads, sizes.len(), &done, &work);
    let mut results: Vec<Vec<Vec<RunResult>>> = results.into_iter().collect::<Result<_, _>>()?;
    results.reverse();
    let sizes: Vec<u32> = (3..=most).collect();
    // Tables that the shared cache holds with room to spare.
    let fits = |size: u32| 2 * (SLOT_BYTES << size) <= machine.llc.bytes();
    let all = |keep: &dyn Fn(u32) -> bool, of: usize| -> Vec<f64> {
        let kept = sizes.iter().zip(&results).filter(|(size, _)| keep(**size));
        kept.flat_map(|(_, loads)| loads.iter().map(|r| times(r, of))).collect()
    };
    let in_llc = all(&fits, 1);
    let mut rows = vec![
        Row::new(
            "Figure 9",
            "blocking, table in LLC, times faster",
            Stated::UpTo { value: 3.3 },
            Status::Predicted,
        )
        .between(least(&in_llc), largest(&in_llc))
        .over(envelope.single)
        .note("at the size of the calibration it is calibrated; the other sizes follow"),
    ];
    let beyond = all(&|size| SLOT_BYTES << size > machine.llc.bytes(), 1);
    let stated = Stated::Exact { value: 2.1 };
    let row = Row::new(
        "Figure 9",
        "blocking, table larger than LLC, times faster, mean",
        stated,
        Status::Predicted,
    );
    rows.push(match beyond.is_empty() {
        true => Row { status: Status::NotAttempted, ..row }.note("not with --quick"),
        false => row.is(beyond.iter().sum::<f64>() / beyond.len() as f64),
    });
    rows.extend(section_6_1(&sizes, &results, envelope));
    Ok((rows, charts(&sizes, &results)))
}

fn times(size: &[RunResult], of: usize) -> f64 {
    size[0].cycles_per_lookup / size[of].cycles_per_lookup
}

fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MIN, f64::max)
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::MAX, f64::min)
}

/// What the text says beside the figure: of non-blocking lookups, and of small tables.
fn section_6_1(sizes: &[u32], results: &[Vec<Vec<RunResult>>], envelope: &Envelope) -> [Row; 2] {
    let slower: Vec<f64> = sizes
        .iter()
        .zip(results)
        .filter(|(size, _)| **size >= 10)
        .flat_map(|(_, loads)| loads.iter().map(|r| 100.0 * (times(r, 1) / times(r, 2) - 1.0)))
        .collect();
    let stated = Stated::Below { value: 5.3 };
    let non_blocking = Row::new("6.1", "non-blocking slower than blocking (%)", stated, Status::Predicted)
        .between(least(&slower), largest(&slower))
        .over(envelope.slower_percent)
        .note("negative: it is faster");
    let first_win = sizes.iter().zip(results).find(|(_, loads)| times(&loads[3], 1) > 1.0);
    let entries = first_win.map_or(f64::NAN, |(size, _)| (1u64 << size) as f64);
    let stated = Stated::Exact { value: 10.0 };
    let small = Row::new("6.1", "software is faster below about so many entries", stated, Status::Predicted)
        .is(entries)
        .note("the smallest power of two, 8 or more, at which HALO is faster");
    [non_blocking, small]
}

fn charts(sizes: &[u32], results: &[Vec<Vec<RunResult>>]) -> Vec<Chart> {
    let places: Vec<String> = sizes.iter().map(|size| format!("2^{size}")).collect();
    let chart = |load: usize| {
        let of_load: Vec<Vec<RunResult>> = results.iter().map(|loads| loads[load].clone()).collect();
        Chart {
            id: ["figure-9-25", "figure-9-50", "figure-9-75", "figure-9-90"][load],
            title: format!("Figure 9: one table, {} % full", LOADS[load]),
            about:
                "Lookups of random keys that are there, one table; warm, as far as the shared cache holds it."
                    .into(),
            axis: "slots",
            places: places.clone(),
            unit: "times the throughput of software",
            lines: true,
            series: relative(&of_load),
        }
    };
    let mut charts: Vec<Chart> = (0..LOADS.len()).map(chart).collect();
    let cycles = |n: usize| Series {
        name: label(APPROACHES[n]).to_owned(),
        values: results.iter().map(|loads| Some(loads[2][n].cycles_per_lookup)).collect(),
    };
    charts.push(Chart {
        id: "figure-9-cycles",
        title: "Figure 9 in cycles: one table, 75 % full".into(),
        about: "The same, not over software.".into(),
        axis: "slots",
        places,
        unit: "cycles a lookup",
        lines: true,
        series: (0..APPROACHES.len()).map(cycles).collect(),
    });
    charts
}
