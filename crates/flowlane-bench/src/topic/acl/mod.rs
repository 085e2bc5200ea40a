//! Access lists: engines and variants by rule set and traffic; building; changes. With the feature `peers-dpdk`,
//! DPDK's `rte_acl` is measured as well.
//!
//! Rule sets are generated unless files are given.

mod churn;
pub(super) mod matrix;
mod set;
mod writer;

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use flowlane::classify::acl::{
    Brute, BruteKernel, DynamicConfig, Engine, Entry, Layout, MatchId, TreeConfig,
};
use flowlane::generate::{Locality, Profile};
use flowlane::packet::FlowKey;

use self::set::Set;
pub(super) use self::set::check;

use super::Context;
use crate::figure::Figure;
use crate::measure::{Contender, Measured, Meter};
use crate::options::BenchError;
#[cfg(feature = "peers-dpdk")]
use crate::peers::{
    dpdk,
    rte_acl::{self, Algorithm, RteAcl},
};

/// Keys of a call, as for `rte_acl`.
const BATCH: usize = 256;
/// Numbers of rules for brute force.
const FEW: [usize; 6] = [4, 8, 16, 32, 64, 128];
/// The most rules for `rte_acl`, which takes gigabytes with more.
#[cfg(feature = "peers-dpdk")]
const PEER_RULES_MAX: usize = 10_000;

/// The most rules of a repeated build; larger sets take seconds and are built once.
const BUILT_OFTEN_MAX: usize = 10_000;

/// Kinds of traffic: name, locality, share of misses.
const TRAFFIC: [(&str, Locality, f64); 4] = [
    ("uniform", Locality::Uniform, 0.0),
    ("Zipf 1.1", Locality::Zipf(1.1), 0.0),
    ("Pareto bursts", Locality::Pareto { a: 1.0, b: 1.0 }, 0.0),
    ("5 % misses", Locality::Uniform, 0.05),
];

fn packets_per_pass(context: &Context<'_>) -> usize {
    if context.quick() { 1 << 11 } else { 1 << 17 }
}

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    let sizes = set::sizes(context);
    let built_often = sizes.iter().filter(|rules| **rules <= BUILT_OFTEN_MAX).count();
    let few = if context.options.rules.is_empty() { FEW.len() } else { 0 };
    let some = set::some_sets_count(context);
    sizes.len() * (TRAFFIC.len() + 1)
        + built_often
        + some
        + few
        + churn::comparisons(context)
        + writer::comparisons(context)
}

fn look_up(engine: &dyn Engine<4>, keys: &[[u32; 4]]) {
    let mut verdicts = [MatchId::NONE; BATCH];
    for keys in keys.chunks(BATCH) {
        engine.lookup_batch(black_box(keys), &mut verdicts[..keys.len()]);
        black_box(&verdicts);
    }
}

fn keys(packets: &[FlowKey]) -> Vec<[u32; 4]> {
    let layout = Layout::ipv4_five_tuple();
    packets.iter().map(|key| layout.flow_key(key)).collect()
}

fn add(figure: &mut Figure, place: usize, measured: &[Measured]) {
    measured.iter().for_each(|m| figure.add(&m.name, place, m));
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Result<Vec<Figure>, BenchError> {
    #[cfg(feature = "peers-dpdk")]
    dpdk::start()?;
    let sets: Vec<Set> = set::sets(context).collect();
    let names = || sets.iter().map(|set| set.name.clone());
    let mut traffic: Vec<Figure> = TRAFFIC
        .iter()
        .enumerate()
        .map(|(i, (name, ..))| {
            let about = format!("Lookups in batches of {BATCH}, {name} traffic, by rule set.");
            Figure::new(format!("acl-traffic-{i}"), format!("Access lists: {name}"), about)
                .over("rules", names())
                .bars()
        })
        .collect();
    let often = |set: &&Set| set.rules.len() <= BUILT_OFTEN_MAX;
    let mut building = Figure::new(
        "acl-build",
        "Access lists: building",
        "All rules at once, on one thread where no number is named.",
    )
    .over("rules", sets.iter().filter(often).map(|set| set.name.clone()))
    .cycles("rule")
    .bars();
    let mut changes = Figure::new(
        "acl-changes",
        "Access lists: changes",
        "Tables of an engine: a tenth of the rules removed and inserted again, one by one.",
    )
    .over("rules", names())
    .millions_of("changes")
    .bars();
    let mut built_often = 0;
    for (place, set) in sets.iter().enumerate() {
        meter.say(&format!("building {}", set.name));
        let sizes = by_traffic(meter, context, set, &mut traffic, place);
        building.about.push_str(&format!(" {}: {sizes}.", set.name));
        if set.rules.len() <= BUILT_OFTEN_MAX {
            build(meter, set, &mut building, built_often);
            built_often += 1;
        }
        change(meter, set, &mut changes, place);
    }
    for figure in traffic.iter_mut().chain([&mut building]) {
        let names = figure.series.iter().map(|s| s.name.clone());
        let (peers, ours): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with("rte_acl"));
        for peer in peers {
            ours.iter().for_each(|ours| figure.gain(ours, &peer, None));
        }
        #[cfg(feature = "peers-dpdk")]
        figure.about.push_str(dpdk::conditions());
    }
    let variants = by_variant(meter, context);
    // The range in which brute force wins does not depend on the given rules.
    let brute = context.options.rules.is_empty().then(|| by_kernel(meter, context));
    let churn = churn::after_changes(meter, context);
    let with_writer = writer::with_concurrent_writer(meter, context);
    let others = [building, changes, variants].into_iter().chain(brute).chain([churn, with_writer]);
    Ok(traffic.into_iter().chain(others).collect())
}

/// Measures the engines with every kind of traffic, and reports their sizes.
fn by_traffic(
    meter: &mut Meter<'_>,
    context: &Context<'_>,
    set: &Set,
    figures: &mut [Figure],
    place: usize,
) -> String {
    let begun = Instant::now();
    let tree = set.tree(None);
    let tree_seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let dynamic = set.dynamic(DynamicConfig::new(1));
    let dynamic_seconds = begun.elapsed().as_secs_f64();
    let sizes = format!(
        "tree {} KiB in {tree_seconds:.3} s, dynamic {} KiB in {dynamic_seconds:.3} s",
        tree.table_bytes() >> 10,
        dynamic.table_bytes() >> 10
    );
    #[cfg(feature = "peers-dpdk")]
    let peer = (set.rules.len() <= PEER_RULES_MAX).then(|| RteAcl::build(&set.rules)).flatten();
    #[cfg(feature = "peers-dpdk")]
    let sizes = match &peer {
        Some(peer) => format!("{sizes}, rte_acl {} KiB", peer.bytes >> 10),
        None => sizes,
    };
    for ((name, locality, miss), figure) in TRAFFIC.iter().zip(figures) {
        let packets = set.packets(packets_per_pass(context), *locality, *miss);
        let keys = keys(&packets);
        let contenders = vec![
            Contender::new("tree", || look_up(&tree, &keys)).warm(),
            Contender::new("dynamic", || look_up(&dynamic, &keys)).warm(),
        ];
        #[cfg(feature = "peers-dpdk")]
        let records: Vec<rte_acl::Record> = packets.iter().map(rte_acl::record).collect();
        #[cfg(feature = "peers-dpdk")]
        let contenders =
            contenders.into_iter().chain(peer.iter().flat_map(|peer| classify(peer, &records))).collect();
        let what = format!("{}, {name}", set.name);
        add(figure, place, &meter.compare(&what, keys.len() as u64, contenders));
    }
    sizes
}

/// Returns every algorithm of `rte_acl` that this CPU supports.
#[cfg(feature = "peers-dpdk")]
fn classify<'a>(peer: &'a RteAcl, records: &'a [rte_acl::Record]) -> impl Iterator<Item = Contender<'a>> {
    Algorithm::ALL.into_iter().filter(|algorithm| peer.can(*algorithm)).map(move |algorithm| {
        Contender::new(algorithm.name(), move || {
            let mut results = [0; rte_acl::CALL_MAX];
            for records in records.chunks(rte_acl::CALL_MAX) {
                peer.classify(black_box(records), &mut results, algorithm);
                black_box(&results);
            }
        })
        .warm()
    })
}

fn build(meter: &mut Meter<'_>, set: &Set, figure: &mut Figure, place: usize) {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let parallel = TreeConfig { threads, ..TreeConfig::default() };
    let mut contenders = vec![
        Contender::new("tree", || _ = black_box(set.tree(None))),
        Contender::new("dynamic", || _ = black_box(set.dynamic(DynamicConfig::new(1)))),
    ];
    if threads > 1 {
        let name = format!("tree, {threads} threads");
        contenders.push(Contender::new(name, || _ = black_box(set.tree_by(parallel))));
    }
    #[cfg(feature = "peers-dpdk")]
    if set.rules.len() <= PEER_RULES_MAX {
        contenders.push(Contender::new("rte_acl", || _ = black_box(RteAcl::build(&set.rules))));
    }
    let what = format!("building {}", set.name);
    add(figure, place, &meter.compare(&what, set.rules.len() as u64, contenders));
}

fn change(meter: &mut Meter<'_>, set: &Set, figure: &mut Figure, place: usize) {
    let some: Vec<(usize, &Entry<4>)> = set.entries.iter().enumerate().step_by(10).collect();
    let contenders = churn::ENGINES.map(|engine| {
        // Whole tables: rules that a tree does not take go to its overlay.
        let mut table = churn::fresh(set, engine);
        let some = &some;
        Contender::new(engine.name(), move || {
            some.iter().for_each(|(_, entry)| _ = black_box(table.remove(entry.rule)));
            for &(place, entry) in some {
                let back =
                    table.insert(entry.rule, churn::priority(set, place), entry.condition, entry.categories);
                back.expect("was there a moment ago");
            }
        })
        .warm()
    });
    let what = format!("changing {}", set.name);
    let contenders = contenders.into();
    add(figure, place, &meter.compare(&what, 2 * some.len() as u64, contenders));
}

fn by_variant(meter: &mut Meter<'_>, context: &Context<'_>) -> Figure {
    let sets: Vec<Set> = set::some_sets(context, 10_000).collect();
    let about = format!("Batches of {BATCH}, uniform traffic, by engine and variant.");
    let mut figure = Figure::new("acl-variants", "Access lists: variants", about)
        .over("rules", sets.iter().map(|set| set.name.clone()))
        .bars();
    let variants = context.options.variants();
    for (place, set) in sets.iter().enumerate() {
        let keys = keys(&set.packets(packets_per_pass(context), Locality::Uniform, 0.0));
        let trees: Vec<_> = variants.iter().map(|v| (*v, set.tree(Some(*v)))).collect();
        let of = |v| set.dynamic(DynamicConfig { variant: Some(v), ..DynamicConfig::new(1) });
        let dynamics: Vec<_> = variants.iter().map(|v| (*v, of(*v))).collect();
        let keys = &keys;
        let trees = trees
            .iter()
            .map(|(v, tree)| Contender::new(format!("tree, {v}"), move || look_up(tree, keys)).warm());
        let dynamics = dynamics
            .iter()
            .map(|(v, d)| Contender::new(format!("dynamic, {v}"), move || look_up(d, keys)).warm());
        add(
            &mut figure,
            place,
            &meter.compare(&set.name, keys.len() as u64, trees.chain(dynamics).collect()),
        );
    }
    figure
}

fn by_kernel(meter: &mut Meter<'_>, context: &Context<'_>) -> Figure {
    let about = format!("Few rules, batches of {BATCH}, by kernel of brute force; the other engines beside.");
    let mut figure =
        Figure::new("acl-few", "Access lists: few rules", about).over("rules", FEW.map(|n| n.to_string()));
    let variants = context.options.variants();
    for (place, count) in FEW.into_iter().enumerate() {
        let set = Set::generated(Profile::Acl, "acl", count);
        let keys = keys(&set.packets(packets_per_pass(context), Locality::Uniform, 0.0));
        let kernels =
            BruteKernel::all().into_iter().filter(|k| k.available() && variants.contains(&k.variant));
        let kinds = *Layout::ipv4_five_tuple().kinds();
        let tables: Vec<_> =
            kernels.filter_map(|k| Brute::new(&kinds, &set.entries).with_kernel(k)).collect();
        let (tree, dynamic) = (set.tree(None), set.dynamic(DynamicConfig::new(1)));
        let keys = &keys;
        let others = [
            Contender::new("tree", || look_up(&tree, keys)).warm(),
            Contender::new("dynamic", || look_up(&dynamic, keys)).warm(),
        ];
        let tables =
            tables.iter().map(|t| Contender::new(t.kernel().to_string(), move || look_up(t, keys)).warm());
        add(&mut figure, place, &meter.compare(&set.name, keys.len() as u64, tables.chain(others).collect()));
    }
    figure
}
