//! The envelope: key values over all combinations of the choices that the paper leaves open.

use super::distinct::cycles;
use super::extent;
use super::figure11::{ENTRIES, TUPLES};
use crate::config::{
    Approach, Blocking, Buckets, Dispatch, KeyPlace, MachineConfig, MatchingTable, Remote, RunConfig,
    Translation,
};
use crate::machine::SimError;
use crate::report::{Chart, Effort, Series};

/// A least and a largest value.
type Extent = [f64; 2];

/// The least and largest of the key values.
#[derive(Clone, Debug, Default)]
pub(super) struct Envelope {
    /// Speedup of blocking over software, with one table in the shared cache.
    pub(super) single: Option<Extent>,
    /// Slowdown of non-blocking against blocking there, in percent.
    pub(super) slower_percent: Option<Extent>,
    /// Speedup of non-blocking over software, with the most tuples.
    pub(super) tuples: Option<Extent>,
    pub(super) charts: Vec<Chart>,
}

/// Locations of keys, and packets ahead.
const KEYS_AND_AHEAD: [(KeyPlace, u32); 4] =
    [(KeyPlace::Llc, 0), (KeyPlace::Core, 0), (KeyPlace::Llc, 3), (KeyPlace::Core, 3)];

/// The maps from queries to accelerators.
const MAPS: [(&str, Dispatch, u64); 6] = [
    ("table, the map of lines", Dispatch::Table, 0),
    ("table, seed 1", Dispatch::Table, 1),
    ("table, seed 2", Dispatch::Table, 2),
    ("table, seed 3", Dispatch::Table, 3),
    ("balanced", Dispatch::Balanced, 0),
    ("bucket", Dispatch::Bucket, 0),
];

/// Returns all combinations of the choices that concern a workload. Not among them are the end of the lock, which has
/// no effect without a writer, the owner of the LLC's miss registers, which has none with tables in LLC, and
/// `packets_at_once`, which Figure 11's hypotheses vary.
fn choices(base: &RunConfig, quick: bool) -> Vec<RunConfig> {
    let several = base.workload.tables > 1;
    let scoreboard = base.machine.accelerator.scoreboard_queries;
    let in_flight: Vec<u32> = if quick { vec![1, scoreboard] } else { (1..=scoreboard).collect() };
    let translations = [Translation::Ideal, Translation::Tlb, Translation::Core];
    let translations = &translations[..if quick { 1 } else { 3 }];
    let buckets: &[Buckets] =
        if several { &[Buckets::Together] } else { &[Buckets::Together, Buckets::InTurn] };
    // The order of one table's queries matters, and not which accelerator has them.
    let maps = MAPS.iter().filter(|(_, _, seed)| *seed == 0 || several && !quick);
    let mut out = vec![base.clone()];
    let mut vary = |set: &dyn Fn(&RunConfig) -> Vec<RunConfig>| out = out.iter().flat_map(set).collect();
    vary(&|run| {
        with(run, maps.clone(), |run, (_, dispatch, seed)| {
            let a = &mut run.machine.accelerator;
            (a.dispatch, a.dispatch_seed) = (*dispatch, *seed);
        })
    });
    vary(&|run| with(run, &in_flight, |run, n| run.machine.accelerator.in_flight_queries = *n));
    vary(&|run| with(run, &[Remote::Ideal, Remote::Mesh], |run, r| run.machine.accelerator.remote = *r));
    vary(&|run| with(run, translations, |run, t| run.machine.accelerator.translation = *t));
    vary(&|run| with(run, buckets, |run, b| run.machine.accelerator.buckets = *b));
    vary(&|run| {
        with(run, &[Blocking::Serialise, Blocking::LoadLike], |run, b| {
            run.machine.accelerator.blocking = *b;
        })
    });
    vary(&|run| {
        with(run, &KEYS_AND_AHEAD, |run, (key, ahead)| {
            (run.machine.accelerator.key, run.machine.accelerator.packets_ahead) = (*key, *ahead);
        })
    });
    out
}

/// Returns a run with each of the values.
fn with<'a, T: 'a>(
    run: &RunConfig,
    values: impl IntoIterator<Item = &'a T>,
    set: impl Fn(&mut RunConfig, &T),
) -> Vec<RunConfig> {
    let one = |value: &T| {
        let mut run = run.clone();
        set(&mut run, value);
        run
    };
    values.into_iter().map(one).collect()
}

pub(super) fn envelope(machine: &MachineConfig, effort: Effort) -> Result<Envelope, SimError> {
    let mut config = effort.run(machine);
    (config.run.lookups, config.run.warm_up_lookups) = (400, 200);
    config.workload.entries = 1 << 16;
    let all = [Approach::Software, Approach::HaloBlocking, Approach::HaloNonBlocking];
    let runs = choices(&config, effort.quick);
    let single = cycles(machine, &runs, &all, effort)?;
    let slower: Vec<f64> = single.iter().map(|c| 100.0 * (c[2] / c[1] - 1.0)).collect();
    let charts = vec![by_in_flight(
        "envelope-single",
        "One table in LLC, non-blocking against blocking, by queries in flight",
        "% slower",
        &runs,
        &slower,
    )];
    (config.workload.tables, config.workload.entries) = (TUPLES[3], ENTRIES);
    config.workload.matching = MatchingTable::Last;
    (config.run.lookups, config.run.warm_up_lookups) = (60, 40);
    let runs = choices(&config, effort.quick);
    let both = [Approach::Software, Approach::HaloNonBlocking];
    let tuples: Vec<f64> = cycles(machine, &runs, &both, effort)?.iter().map(|c| c[0] / c[1]).collect();
    let mut envelope = Envelope {
        single: Some(extent(single.iter().map(|c| c[0] / c[1]))),
        slower_percent: Some(extent(slower.iter().copied())),
        tuples: Some(extent(tuples.iter().copied())),
        charts,
    };
    let title = "20 tuples, non-blocking, by queries in flight";
    let unit = "times the throughput of software";
    envelope.charts.push(by_in_flight("envelope-tuples", title, unit, &runs, &tuples));
    Ok(envelope)
}

/// Charts the extent of values by `in_flight_queries`, for each map from queries to accelerators.
fn by_in_flight(
    id: &'static str,
    title: &str,
    unit: &'static str,
    runs: &[RunConfig],
    values: &[f64],
) -> Chart {
    let mut places: Vec<u32> = runs.iter().map(|run| run.machine.accelerator.in_flight_queries).collect();
    places.sort_unstable();
    places.dedup();
    let mut series = Vec::new();
    for (name, dispatch, seed) in MAPS {
        let is = |run: &RunConfig, in_flight: u32| {
            let a = &run.machine.accelerator;
            (a.dispatch, a.dispatch_seed, a.in_flight_queries) == (dispatch, seed, in_flight)
        };
        let of =
            |place: &u32| extent(runs.iter().zip(values).filter(|(r, _)| is(r, *place)).map(|(_, v)| *v));
        let extents: Vec<Extent> = places.iter().map(of).collect();
        if extents[0][0] <= extents[0][1] {
            for (end, side) in ["least", "most"].into_iter().enumerate() {
                let values = extents.iter().map(|e| Some(e[end])).collect();
                series.push(Series { name: format!("{name}, {side}"), values });
            }
        }
    }
    let title = format!("The envelope: {title}");
    let about = "Least and most over the other choices that the paper leaves open.";
    Chart::new(id, title, about).over("in_flight_queries", places).curves(unit, series)
}
