//! Figure 9: lookups in one table, by its size and load.

use std::rc::Rc;

use super::calibrate::{HALO_COMPUTE, HALO_DATA, SOFTWARE_DATA};
use super::envelope::Envelope;
use super::{Calibration, Row, SLOT_BYTES, Stated, label, relative};
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

/// The number of approaches of the paper, which come first.
const PAPER_APPROACHES: usize = 5;

/// Loads in percent: 25 to 90 (6.1).
const LOADS: [u64; 4] = [25, 50, 75, 90];

/// Simulates all approaches at one size, by load.
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
            // Approaches that the paper does not have are simulated at one load only.
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
    // Large sizes take longest and start first.
    let sizes: Vec<u32> = (3..=most).rev().collect();
    let done = |n: usize| watch(n as f64 / sizes.len() as f64);
    let work = |n: usize| size(machine, effort, 1 << sizes[n]);
    let results = parallel::run(effort.threads, sizes.len(), &done, &work);
    let mut results: Vec<Vec<Vec<RunResult>>> = results.into_iter().collect::<Result<_, _>>()?;
    results.reverse();
    let sizes: Vec<u32> = (3..=most).collect();
    // Tables that fit the shared cache easily.
    let fits = |size: u32| 2 * (SLOT_BYTES << size) <= machine.llc.bytes();
    let all = |keep: &dyn Fn(u32) -> bool, of: usize| -> Vec<f64> {
        let kept = sizes.iter().zip(&results).filter(|(size, _)| keep(**size));
        kept.flat_map(|(_, loads)| loads.iter().map(|r| times(r, of))).collect()
    };
    let in_llc = all(&fits, 1);
    let inside =
        Row::predicted("Figure 9", "blocking, table in LLC, times faster", Stated::UpTo { value: 3.3 })
            .between(least(&in_llc), largest(&in_llc))
            .over(envelope.single);
    let beyond = all(&|size| SLOT_BYTES << size > machine.llc.bytes(), 1);
    let (what, stated) =
        ("blocking, table larger than LLC, times faster, mean", Stated::Exact { value: 2.1 });
    let beyond = match beyond.is_empty() {
        true => Row::not_attempted("Figure 9", what, stated).note("not with --quick"),
        false => {
            Row::predicted("Figure 9", what, stated).is(beyond.iter().sum::<f64>() / beyond.len() as f64)
        }
    };
    let inside = match Calibration::concerns(machine) {
        true => inside.calibrated(format!(
            "3.3 is 1 / ({HALO_COMPUTE} + {HALO_DATA}), two targets of the calibration in Figure 10; other sizes have little to add"
        )),
        false => inside,
    };
    let small: Vec<f64> = results[0].iter().map(|r| times(r, 1)).collect();
    let slower: Vec<usize> = (0..sizes.len()).filter(|n| times(&results[*n][3], 1) < 1.0).collect();
    let most = slower.last().map(|n| 1u64 << sizes[*n]);
    let non_blocking = non_blocking(machine, &results).over(envelope.slower_percent);
    Ok((vec![inside, beyond, non_blocking, few(1 << sizes[0], &small, most)], charts(&sizes, &results)))
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

/// 6.1: "slightly worse (less than 5.3%)".
fn non_blocking(machine: &MachineConfig, results: &[Vec<Vec<RunResult>>]) -> Row {
    let slower: Vec<f64> =
        results.iter().flatten().map(|r| 100.0 * (times(r, 1) / times(r, 2) - 1.0)).collect();
    let stated = Stated::Range { low: 0.0, high: 5.3 };
    let row = Row::predicted("6.1", "non-blocking slower than blocking (%)", stated)
        .between(least(&slower), largest(&slower))
        .note("negative: it is faster, which the text does not say");
    match machine.accelerator.in_flight_queries {
        1 => row.assumption(
            "in_flight_queries = 1, chosen because with more at once non-blocking lookups of one table are several times as fast",
        ),
        _ => row,
    }
}

/// 6.1: "extremely small (e.g., less than 10)": software is faster there. `times` are HALO's speedups at the least
/// size, `slots`, by load; `slower` is the largest size at which HALO is slower, if any.
fn few(slots: u64, times: &[f64], slower: Option<u64>) -> Row {
    let what = format!("blocking, fewer than 10 entries ({slots} slots), times faster");
    let note = match slower {
        Some(most) => format!("software is faster up to {most} slots"),
        None => format!(
            "HALO is faster at every size looked at: there is no crossing, and {slots} slots are only where the sizes begin. The \
             paper's two statements contradict each other in this model: by Figure 10 computing and lock alone take {:.0} % of \
             software's time with the table in LLC, and HALO as a whole {:.0} %, so that software would be slower with data that \
             cost nothing",
            100.0 * (1.0 - SOFTWARE_DATA),
            100.0 * (HALO_COMPUTE + HALO_DATA)
        ),
    };
    Row::predicted("6.1", what, Stated::Below { value: 1.0 }).between(least(times), largest(times)).note(note)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::Status;

    #[test]
    fn a_win_at_every_size_is_not_a_crossing() {
        let never = few(8, &[1.5, 1.7], None);
        assert_eq!((never.simulated, never.status), (Some([1.5, 1.7]), Status::Predicted));
        assert!(never.error.is_some_and(|error| error > 0.6), "{never:?}");
        assert!(never.note.contains("no crossing") && never.note.contains("contradict"), "{}", never.note);
        let crossing = few(8, &[0.7, 0.9], Some(32));
        assert_eq!(crossing.error, Some(0.0));
        assert!(crossing.note.contains("up to 32 slots") && !crossing.note.contains("contradict"));
    }
}
