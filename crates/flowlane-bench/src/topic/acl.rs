//! Access lists: engines and variants by rule set and traffic; building; changes. With the feature `peers-dpdk`
//! DPDK's `rte_acl` takes part.
//!
//! Rule sets are generated; with `FLOWLANE_TEST_DATA` in the environment, those of its folder `classbench`
//! (`*.rules.gz`) take part, too.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flowlane::classify::acl::{
    Acl, AclConfig, AclEngine, Brute, BruteKernel, Dynamic, DynamicConfig, Engine, Entry, Layout, RankKey,
    SharedAcl, Tree, TreeConfig, TreeKernel, Verdict,
};
use flowlane::generate::{Locality, Profile, Random, RuleConfig, Trace, TraceConfig, generate_rules};
use flowlane::packet::{Field, FlowKey};
use flowlane::rule::{Match, Priority, Rule, RuleId};

use super::{BenchError, Context};
use crate::figure::Figure;
use crate::measure::{Body, Measured, Meter};
#[cfg(feature = "peers-dpdk")]
use crate::peers::{
    dpdk,
    rte_acl::{self, Algorithm, RteAcl},
};
use crate::published;

/// Keys of a call: what `rte_acl` is measured with.
const BATCH: usize = 256;
const PROFILES: [(Profile, &str); 3] = [(Profile::Acl, "acl"), (Profile::Fw, "fw"), (Profile::Ipc, "ipc")];
/// Rules for brute force.
const FEW: [usize; 6] = [4, 8, 16, 32, 64, 128];
/// Most rules with which `rte_acl` is built: with more it takes gigabytes.
#[cfg(feature = "peers-dpdk")]
const PEER_RULES_MAX: usize = 10_000;

/// Most rules that are built over and over; sets that take seconds are built once, and that is timed.
const BUILT_OFTEN_MAX: usize = 10_000;

/// Engines of tables that are changed while they look up, and how often that is.
const WRITTEN: [AclEngine; 2] = [AclEngine::Tree, AclEngine::Dynamic];
const CHANGES_PER_SECOND: u64 = 100_000;

/// Traffic: name, how often the same comes again, share of misses.
const TRAFFIC: [(&str, Locality, f64); 4] = [
    ("uniform", Locality::Uniform, 0.0),
    ("Zipf 1.1", Locality::Zipf(1.1), 0.0),
    ("Pareto bursts", Locality::Pareto { a: 1.0, b: 1.0 }, 0.0),
    ("5 % misses", Locality::Uniform, 0.05),
];

/// A rule set.
struct Set {
    name: String,
    rules: Vec<Rule>,
    entries: Vec<Entry<4>>,
}

impl Set {
    fn new(name: String, rules: Vec<Rule>) -> Self {
        let entry = |(i, rule): (usize, &Rule)| Entry {
            condition: Layout::ipv4_five_tuple()
                .flow_condition(&five_tuple(&rule.matches))
                .expect("a 5-tuple"),
            rank: RankKey::new(Priority::DEFAULT, i as u32),
            rule: RuleId(i as u32),
            categories: 1,
        };
        let entries = rules.iter().enumerate().map(entry).collect();
        Self { name, rules, entries }
    }

    fn generated(profile: Profile, name: &str, count: usize) -> Self {
        let rules = generate_rules(&RuleConfig::new(profile, count)).expect("a profile of 5-tuples");
        let size =
            if count >= 1_000_000 { format!("{}M", count / 1_000_000) } else { format!("{}K", count / 1000) };
        Self::new(if count < 1000 { format!("{name} {count}") } else { format!("{name} {size}") }, rules)
    }

    fn packets(&self, count: usize, locality: Locality, miss: f64) -> Vec<FlowKey> {
        let config = TraceConfig { locality, miss, miss_ipv4: true, ..TraceConfig::new(count) };
        // As many flows as there are rules come again; uniform traffic is new all the time.
        let flows = (locality != Locality::Uniform).then_some(self.rules.len().max(1000));
        let config = TraceConfig { flows, ..config };
        if let Ok(trace) = Trace::generate(&self.rules, &config) {
            return trace.keys().cloned().collect();
        }
        // A rule matches everything: what would miss is anything then.
        let trace = Trace::generate(&self.rules, &TraceConfig { miss: 0.0, ..config });
        let mut packets: Vec<FlowKey> = trace.expect("there are rules").keys().cloned().collect();
        let mut random = Random::for_purpose(1, "misses");
        for packet in &mut packets {
            if random.chance(miss) {
                for field in [Field::Ipv4Src, Field::Ipv4Dst, Field::TpSrc, Field::TpDst] {
                    packet.set(field, random.bits().into());
                }
            }
        }
        packets
    }
}

/// The match without what the layout has not: that it is IPv4.
fn five_tuple(matches: &Match) -> Match {
    let mut out = Match::any();
    for field in [Field::Ipv4Src, Field::Ipv4Dst, Field::NwProto, Field::TpSrc, Field::TpDst] {
        let (value, mask) = matches.get(field);
        out.set_masked(field, value, mask);
    }
    for (field, range) in [(Field::TpSrc, matches.tp_src_range()), (Field::TpDst, matches.tp_dst_range())] {
        range.map(|r| out.set_range(field, r.low(), r.high()));
    }
    out
}

fn sizes(context: &Context<'_>) -> &'static [usize] {
    const ALL: [usize; 4] = [1000, 10_000, 100_000, 1_000_000];
    match () {
        () if context.quick() => &[200],
        // A million rules take minutes to build: for those who ask for minutes.
        () if context.options.effort.seconds.is_some_and(|s| s >= 120.0) => &ALL,
        () => &ALL[..3],
    }
}

fn packets_per_pass(context: &Context<'_>) -> usize {
    if context.quick() { 1 << 11 } else { 1 << 17 }
}

fn sets(context: &Context<'_>) -> Vec<Set> {
    let generated = PROFILES.into_iter().flat_map(|(profile, name)| {
        sizes(context).iter().map(move |count| Set::generated(profile, name, *count))
    });
    let published = if context.quick() { Vec::new() } else { published::rule_sets() };
    generated.chain(published.into_iter().map(|(name, rules)| Set::new(name, rules))).collect()
}

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    let sets = sets(context);
    let built_often = sets.iter().filter(|set| set.rules.len() <= BUILT_OFTEN_MAX).count();
    sets.len() * (TRAFFIC.len() + 1) + built_often + PROFILES.len() + FEW.len() + WRITTEN.len()
}

fn tree(set: &Set, kernel: Option<TreeKernel>) -> Tree<4> {
    let config = TreeConfig { kernel, ..TreeConfig::default() };
    Tree::build(Layout::ipv4_five_tuple().kinds(), &set.entries, &config)
        .expect("1 GiB is enough for a million rules")
}

fn dynamic(set: &Set, config: DynamicConfig) -> Dynamic<4> {
    Dynamic::build(Layout::ipv4_five_tuple().kinds(), &set.entries, config).expect("there is no limit")
}

fn look_up(engine: &dyn Engine<4>, keys: &[[u32; 4]]) {
    let mut verdicts = [Verdict::NONE; BATCH];
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
    let sets = sets(context);
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
    let mut building =
        Figure::new("acl-build", "Access lists: building", "All rules at once, on one thread.")
            .over("rules", sets.iter().filter(often).map(|set| set.name.clone()))
            .millions_of("rules")
            .bars();
    let mut changes = Figure::new(
        "acl-changes",
        "Access lists: changes",
        "The dynamic engine: a tenth of the rules removed and inserted again, one by one.",
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
        let peers = figure.series.iter().map(|s| s.name.clone()).filter(|name| name.starts_with("rte_acl"));
        for peer in peers.collect::<Vec<_>>() {
            ["tree", "dynamic"].iter().for_each(|ours| figure.gain(ours, &peer, None));
        }
        #[cfg(feature = "peers-dpdk")]
        figure.about.push_str(dpdk::conditions());
    }
    let variants = by_variant(meter, context);
    let brute = by_kernel(meter, context);
    let beside = beside_a_writer(meter, context);
    Ok(traffic.into_iter().chain([building, changes, variants, brute, beside]).collect())
}

/// Measures the engines with every traffic; says how large they are.
fn by_traffic(
    meter: &mut Meter<'_>,
    context: &Context<'_>,
    set: &Set,
    figures: &mut [Figure],
    place: usize,
) -> String {
    let begun = Instant::now();
    let tree = tree(set, None);
    let tree_seconds = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    let dynamic = dynamic(set, DynamicConfig::new(1));
    let dynamic_seconds = begun.elapsed().as_secs_f64();
    let mut sizes = format!(
        "tree {} KiB in {tree_seconds:.3} s, dynamic {} KiB in {dynamic_seconds:.3} s",
        tree.table_bytes() >> 10,
        dynamic.table_bytes() >> 10
    );
    #[cfg(feature = "peers-dpdk")]
    let peer = (set.rules.len() <= PEER_RULES_MAX).then(|| RteAcl::build(&set.rules)).flatten();
    #[cfg(feature = "peers-dpdk")]
    if let Some(peer) = &peer {
        sizes.push_str(&format!(", rte_acl {} KiB", peer.bytes >> 10));
    }
    for ((name, locality, miss), figure) in TRAFFIC.iter().zip(figures) {
        let packets = set.packets(packets_per_pass(context), *locality, *miss);
        let keys = keys(&packets);
        let bodies = vec![
            Body::new("tree", || look_up(&tree, &keys)).warm(),
            Body::new("dynamic", || look_up(&dynamic, &keys)).warm(),
        ];
        #[cfg(feature = "peers-dpdk")]
        let records: Vec<rte_acl::Record> = packets.iter().map(rte_acl::record).collect();
        #[cfg(feature = "peers-dpdk")]
        let bodies =
            bodies.into_iter().chain(peer.iter().flat_map(|peer| classify(peer, &records))).collect();
        let what = format!("{}, {name}", set.name);
        add(figure, place, &meter.compare(&what, keys.len() as u64, bodies));
    }
    sizes.shrink_to_fit();
    sizes
}

/// Every algorithm of `rte_acl` that this CPU has.
#[cfg(feature = "peers-dpdk")]
fn classify<'a>(peer: &'a RteAcl, records: &'a [rte_acl::Record]) -> impl Iterator<Item = Body<'a>> {
    Algorithm::ALL.into_iter().filter(|algorithm| peer.can(*algorithm)).map(move |algorithm| {
        Body::new(algorithm.name(), move || {
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
    let bodies = vec![
        Body::new("tree", || _ = black_box(tree(set, None))),
        Body::new("dynamic", || _ = black_box(dynamic(set, DynamicConfig::new(1)))),
    ];
    #[cfg(feature = "peers-dpdk")]
    let peer = Body::new("rte_acl", || _ = black_box(RteAcl::build(&set.rules)));
    #[cfg(feature = "peers-dpdk")]
    let bodies = bodies.into_iter().chain((set.rules.len() <= PEER_RULES_MAX).then_some(peer)).collect();
    let what = format!("building {}", set.name);
    add(figure, place, &meter.compare(&what, set.rules.len() as u64, bodies));
}

fn change(meter: &mut Meter<'_>, set: &Set, figure: &mut Figure, place: usize) {
    let table = RefCell::new(dynamic(set, DynamicConfig::new(1)));
    let some: Vec<&Entry<4>> = set.entries.iter().step_by(10).collect();
    let body = Body::new("dynamic", || {
        let mut table = table.borrow_mut();
        some.iter().for_each(|entry| _ = black_box(table.remove(entry.rule)));
        some.iter().for_each(|entry| table.insert(**entry).expect("was there a moment ago"));
    })
    .warm();
    let what = format!("changing {}", set.name);
    add(figure, place, &meter.compare(&what, 2 * some.len() as u64, vec![body]));
}

fn by_variant(meter: &mut Meter<'_>, context: &Context<'_>) -> Figure {
    let count = if context.quick() { 200 } else { 10_000 };
    let sets = PROFILES.map(|(profile, name)| Set::generated(profile, name, count));
    let about = format!("Batches of {BATCH}, uniform traffic, by engine and variant.");
    let mut figure = Figure::new("acl-variants", "Access lists: variants", about)
        .over("rules", sets.iter().map(|set| set.name.clone()))
        .bars();
    let variants = context.options.variants();
    for (place, set) in sets.iter().enumerate() {
        let keys = keys(&set.packets(packets_per_pass(context), Locality::Uniform, 0.0));
        let kernels =
            TreeKernel::ALL.into_iter().filter(|k| k.available() && variants.contains(&k.variant()));
        let trees: Vec<_> = kernels.map(|k| (k, tree(set, Some(k)))).collect();
        let of = |v| dynamic(set, DynamicConfig { variant: Some(v), ..DynamicConfig::new(1) });
        let dynamics: Vec<_> = variants.iter().map(|v| (*v, of(*v))).collect();
        let keys = &keys;
        let trees =
            trees.iter().map(|(k, tree)| Body::new(format!("tree, {k}"), move || look_up(tree, keys)).warm());
        let dynamics =
            dynamics.iter().map(|(v, d)| Body::new(format!("dynamic, {v}"), move || look_up(d, keys)).warm());
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
        let (tree, dynamic) = (tree(&set, None), dynamic(&set, DynamicConfig::new(1)));
        let keys = &keys;
        let others = [
            Body::new("tree", || look_up(&tree, keys)).warm(),
            Body::new("dynamic", || look_up(&dynamic, keys)).warm(),
        ];
        let tables =
            tables.iter().map(|t| Body::new(t.kernel().to_string(), move || look_up(t, keys)).warm());
        add(&mut figure, place, &meter.compare(&set.name, keys.len() as u64, tables.chain(others).collect()));
    }
    figure
}

/// One reader, quiet and beside a writer.
fn beside_a_writer(meter: &mut Meter<'_>, context: &Context<'_>) -> Figure {
    let about = format!(
        "A reader's batches of {BATCH}: quiet, and beside a thread that removes a tenth of the rules and inserts them again, \
         at {CHANGES_PER_SECOND} changes a second, each visible at once. Says little where there is one core."
    );
    let mut figure = Figure::new("acl-writer", "Access lists: beside a writer", about)
        .over("engine", WRITTEN.map(|engine| engine.to_string()))
        .bars();
    let set = Set::generated(Profile::Acl, "acl", if context.quick() { 200 } else { 10_000 });
    let keys = keys(&set.packets(packets_per_pass(context), Locality::Uniform, 0.0));
    for (place, engine) in WRITTEN.into_iter().enumerate() {
        let rules = set.entries.iter().map(|e| (e.rule, e.rank.priority(), e.condition, e.categories));
        let config = AclConfig::default().with_engine(engine);
        let acl = Acl::build(Layout::ipv4_five_tuple(), config, rules).expect("1 GiB is enough");
        let mut shared = SharedAcl::new(acl);
        let reader = RefCell::new(shared.reader());
        let look_up = || {
            let (mut reader, mut verdicts) = (reader.borrow_mut(), [Verdict::NONE; BATCH]);
            for keys in keys.chunks(BATCH) {
                reader.lookup_batch(black_box(keys), &mut verdicts[..keys.len()]);
                black_box(&verdicts);
            }
        };
        let (busy, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        let set_busy = |value: bool| {
            let busy = &busy;
            move || {
                busy.store(value, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(1));
            }
        };
        let measured = thread::scope(|scope| {
            scope.spawn(|| keep_changing(&mut shared, &set.entries, &busy, &stop));
            let bodies = vec![
                Body::new("quiet", look_up).warm().after(set_busy(false)),
                Body::new("beside a writer", look_up).warm().after(set_busy(true)),
            ];
            let measured = meter.compare(&format!("{engine} beside a writer"), keys.len() as u64, bodies);
            stop.store(true, Ordering::Relaxed);
            measured
        });
        add(&mut figure, place, &measured);
    }
    figure.gain("beside a writer", "quiet", None);
    figure
}

/// While `busy`, removes and inserts rules; until told to stop.
fn keep_changing(shared: &mut SharedAcl<4>, entries: &[Entry<4>], busy: &AtomicBool, stop: &AtomicBool) {
    /// Changes between two looks at the clock.
    const STEP: u64 = 20;
    let mut rules = entries.iter().step_by(10).cycle();
    while !stop.load(Ordering::Relaxed) {
        if !busy.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_micros(100));
            continue;
        }
        let start = Instant::now();
        for entry in rules.by_ref().take(STEP as usize / 2) {
            shared.remove(entry.rule);
            let inserted =
                shared.insert(entry.rule, entry.rank.priority(), entry.condition, entry.categories);
            inserted.expect("was there a moment ago");
        }
        while start.elapsed() < Duration::from_micros(STEP * 1_000_000 / CHANGES_PER_SECOND) {
            std::hint::spin_loop();
        }
    }
}
