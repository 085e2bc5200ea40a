//! Benchmark matrix over fifteen rule-set families, to avoid overfitting to ClassBench. Ratios are reported as the
//! geometric mean and at their worst.

use std::time::Instant;

use flowlane::classify::acl::{AclConfig, AclEngine, AclSearch, DynamicConfig, Engine};
use flowlane::classify::{Hit, HitCounts, RuleEngine, TupleSearch};
use flowlane::generate::{Locality, Profile, RuleConfig, RuleSetError, Trace, TraceConfig, generate_rules};
use flowlane::packet::FlowKey;
use flowlane::rule::{Rule, RuleId};

use super::set::{self, Set};
use super::{BATCH, add, keys, look_up};
use crate::figure::Figure;
use crate::measure::{Contender, Meter};
use crate::options::BenchError;
#[cfg(feature = "peers-dpdk")]
use crate::peers::{
    dpdk,
    rte_acl::{self, Algorithm, RteAcl},
};
use crate::topic::Context;

/// Families of IPv4 5-tuples.
const NARROW: [Profile; 12] = [
    Profile::Acl,
    Profile::Fw,
    Profile::Ipc,
    Profile::Ranges,
    Profile::Groups,
    Profile::Blocklist,
    Profile::Masks,
    Profile::Nested,
    Profile::Disjoint,
    Profile::Overlap,
    Profile::Cuts,
    Profile::Chains,
];
/// Families with other fields.
const WIDE: [Profile; 3] = [Profile::Acl6, Profile::Mixed, Profile::OpenFlow];

const COUNTS: [usize; 2] = [1000, 10_000];
const LONG_COUNTS: [usize; 3] = [1000, 10_000, 100_000];
const QUICK_COUNTS: [usize; 1] = [100];
/// With at least this duration, larger sets are measured as well.
const LONG_SECONDS: f64 = 300.0;
/// The most rules for `rte_acl` and tuple search; with some families, more take minutes.
const PEERS_MAX: usize = 10_000;

const PACKETS: usize = 1 << 15;
/// Sets with slower lookups use fewer packets.
const SLOW_NS: f64 = 2_000.0;
const SLOW_PACKETS: usize = 1 << 11;

fn counts(context: &Context<'_>) -> &'static [usize] {
    match context.options.effort.seconds {
        _ if context.quick() => &QUICK_COUNTS,
        Some(seconds) if seconds >= LONG_SECONDS => &LONG_COUNTS,
        _ => &COUNTS,
    }
}

fn given(context: &Context<'_>) -> bool {
    !context.options.rules.is_empty()
}

pub(crate) fn comparisons(context: &Context<'_>) -> usize {
    match given(context) {
        true => context.options.rules.len(),
        false => (NARROW.len() + WIDE.len()) * counts(context).len(),
    }
}

fn names(profiles: &[Profile], counts: &[usize]) -> Vec<String> {
    let name = |profile: &Profile, count: &usize| format!("{profile} {}", set::size(*count));
    counts.iter().flat_map(|count| profiles.iter().map(move |profile| name(profile, count))).collect()
}

fn rules(profile: Profile, count: usize) -> Result<Vec<Rule>, RuleSetError> {
    generate_rules(&RuleConfig::new(profile, count))
}

pub(crate) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Result<Vec<Figure>, BenchError> {
    #[cfg(feature = "peers-dpdk")]
    dpdk::start()?;
    let counts = counts(context);
    if given(context) {
        let sets: Vec<Set> = context.options.rules.iter().map(|set| Set::given(set)).collect();
        let names = sets.iter().map(|set| set.name.clone()).collect();
        return Ok(narrow(meter, names, sets.into_iter()));
    }
    let sets =
        counts.iter().flat_map(|count| NARROW.map(|profile| Set::generated(profile, profile.name(), *count)));
    let mut figures = narrow(meter, names(&NARROW, counts), sets);
    figures.push(wide(meter, counts));
    Ok(figures)
}

/// Measures the engines on sets of IPv4 5-tuples.
fn narrow(meter: &mut Meter<'_>, names: Vec<String>, sets: impl Iterator<Item = Set>) -> Vec<Figure> {
    let about = format!(
        "Batches of {BATCH}, uniform traffic, each engine's own choice of variant. `auto` is what the table takes by itself, \
         without a clock."
    );
    let figure = |id: &str, title: &str, about: &str| {
        Figure::new(id, title, about).over("rules", names.iter().cloned()).bars().tall()
    };
    let mut lookups = figure("acl-matrix-lookups", "Access lists of all kinds", &about);
    let mut building = Vec::new();
    let mut sizes = Vec::new();
    for (place, set) in sets.enumerate() {
        meter.say(&format!("building {}", set.name));
        let built = Built::of(&set);
        building.push(built.seconds);
        sizes.push(built.bytes);
        let keys = keys(&set.packets(built.packets(&set), Locality::Uniform, 0.0));
        #[cfg(feature = "peers-dpdk")]
        let records: Vec<rte_acl::Record> =
            set.packets(keys.len(), Locality::Uniform, 0.0).iter().map(rte_acl::record).collect();
        let contenders = vec![
            Contender::new("tree", || look_up(&built.tree, &keys)).warm(),
            Contender::new("dynamic", || look_up(&built.dynamic, &keys)).warm(),
            Contender::new("auto", || look_up(built.auto(), &keys)).warm(),
        ];
        #[cfg(feature = "peers-dpdk")]
        let contenders = contenders
            .into_iter()
            .chain(built.peer.iter().flat_map(|peer| best_of_rte_acl(peer, &records)))
            .collect();
        add(&mut lookups, place, &meter.compare(&set.name, keys.len() as u64, contenders));
    }
    for series in ["tree", "dynamic", "auto"] {
        lookups.gain(series, "rte_acl", None);
    }
    lookups.gain("auto", "tree", None);
    lookups.gain("auto", "dynamic", None);
    #[cfg(feature = "peers-dpdk")]
    lookups.about.push_str(dpdk::conditions());
    let about = "Built once, on one thread. `rte_acl` where it could be built.";
    let column = |of: &[[Option<f64>; 3]], i: usize| of.iter().map(|row| row[i]).collect::<Vec<_>>();
    let drawn = |id: &str, title: &str, unit: &str, of: &[[Option<f64>; 3]]| {
        let figure = figure(id, title, about).plain(unit);
        let engines = ["tree", "dynamic", "rte_acl"].into_iter().enumerate();
        let engines = engines.filter(|(i, _)| of.iter().any(|row| row[*i].is_some()));
        engines.fold(figure, |figure, (i, name)| figure.curve(name, &column(of, i)))
    };
    let building = drawn("acl-matrix-build", "Building", "milliseconds", &building);
    let sizes = drawn("acl-matrix-bytes", "Memory", "KiB", &sizes);
    vec![lookups, building, sizes]
}

/// The engines built from a set.
struct Built {
    tree: flowlane::classify::acl::Tree<4>,
    dynamic: flowlane::classify::acl::Dynamic<4>,
    auto_is_dynamic: bool,
    #[cfg(feature = "peers-dpdk")]
    peer: Option<RteAcl>,
    /// Milliseconds and KiB: tree, dynamic, `rte_acl`.
    seconds: [Option<f64>; 3],
    bytes: [Option<f64>; 3],
}

impl Built {
    fn of(set: &Set) -> Self {
        let timed = |begun: Instant| Some(begun.elapsed().as_secs_f64() * 1e3);
        let kib = |bytes: usize| Some(bytes as f64 / 1024.0);
        let begun = Instant::now();
        let tree = set.tree(None);
        let tree_ms = timed(begun);
        let begun = Instant::now();
        let dynamic = set.dynamic(DynamicConfig::new(1));
        let dynamic_ms = timed(begun);
        #[cfg(feature = "peers-dpdk")]
        let begun = Instant::now();
        #[cfg(feature = "peers-dpdk")]
        let peer = (set.rules.len() <= PEERS_MAX).then(|| RteAcl::build(&set.rules)).flatten();
        #[cfg(feature = "peers-dpdk")]
        let (peer_ms, peer_kib) = match &peer {
            Some(peer) => (timed(begun), kib(peer.bytes as usize)),
            None => (None, None),
        };
        #[cfg(not(feature = "peers-dpdk"))]
        let (peer_ms, peer_kib) = (None, None);
        let auto_is_dynamic = set.automatic() == "dynamic";
        let bytes = [kib(tree.table_bytes()), kib(dynamic.table_bytes()), peer_kib];
        Self {
            tree,
            dynamic,
            auto_is_dynamic,
            #[cfg(feature = "peers-dpdk")]
            peer,
            seconds: [tree_ms, dynamic_ms, peer_ms],
            bytes,
        }
    }

    /// Returns the engine that `auto` selects.
    fn auto(&self) -> &dyn Engine<4> {
        match self.auto_is_dynamic {
            true => &self.dynamic,
            false => &self.tree,
        }
    }

    /// Returns the number of packets of a pass, which is smaller for slow sets.
    fn packets(&self, set: &Set) -> usize {
        let keys = keys(&set.packets(BATCH, Locality::Uniform, 0.0));
        let slowest = |engine: &dyn Engine<4>| {
            let begun = Instant::now();
            look_up(engine, &keys);
            begun.elapsed().as_nanos() as f64 / keys.len().max(1) as f64
        };
        let ns = slowest(&self.tree).max(slowest(&self.dynamic));
        if ns > SLOW_NS { SLOW_PACKETS } else { PACKETS }
    }
}

/// Returns the widest, and thus fastest, algorithm of `rte_acl` on this CPU.
#[cfg(feature = "peers-dpdk")]
fn best_of_rte_acl<'a>(peer: &'a RteAcl, records: &'a [rte_acl::Record]) -> Option<Contender<'a>> {
    let algorithm = Algorithm::ALL.into_iter().rfind(|algorithm| peer.can(*algorithm))?;
    let run = move || {
        let mut results = [0; rte_acl::CALL_MAX];
        for records in records.chunks(rte_acl::CALL_MAX) {
            peer.classify(std::hint::black_box(records), &mut results, algorithm);
            std::hint::black_box(&results);
        }
    };
    Some(Contender::new("rte_acl", run).warm())
}

/// Measures classifiers of flow keys on sets with other fields, next to tuple search.
fn wide(meter: &mut Meter<'_>, counts: &[usize]) -> Figure {
    let about = format!(
        "Lookups of flow keys, and so with the key's words taken out and the rule's priority found, in batches of {BATCH}; \
         `tuple` is tuple-space search, as Open vSwitch does it; `counted`: with how often each rule won."
    );
    let mut figure = Figure::new("acl-matrix-wide", "Access lists over other fields", about)
        .over("rules", names(&WIDE, counts))
        .bars()
        .tall();
    let sets = counts.iter().flat_map(|count| WIDE.map(|profile| (profile, *count)));
    for (place, (profile, count)) in sets.enumerate() {
        let rules = rules(profile, count).expect("a profile has rules of every number");
        meter.say(&format!("building {profile} {count}"));
        let search = |engine| {
            let listed = rules.iter().enumerate();
            let listed = listed.map(|(i, r)| (RuleId(i as u32), r.priority, &r.matches));
            let config = AclConfig::default().with_engine(engine);
            AclSearch::build(config, listed).expect("1 GiB is enough")
        };
        let engines = [AclEngine::Tree, AclEngine::Dynamic, AclEngine::Auto];
        let built = engines.map(|engine| (engine, search(engine)));
        let trace = Trace::generate(&rules, &TraceConfig::new(PACKETS)).expect("there are rules");
        let packets: Vec<FlowKey> = trace.keys().cloned().collect();
        let mut tuple = TupleSearch::new(PEERS_MAX, 1);
        for (i, rule) in rules.iter().enumerate().take(PEERS_MAX) {
            tuple.insert(RuleId(i as u32), rule.priority, &rule.matches).expect("there is no limit");
        }
        let packets = &packets;
        let own = built.iter().map(|(engine, search)| {
            Contender::new(engine.name(), move || look_up_keys(search, packets)).warm()
        });
        let tuple =
            (count <= PEERS_MAX).then(|| Contender::new("tuple", || look_up_keys(&tuple, packets)).warm());
        let mut counts = HitCounts::new(rules.len());
        let auto = &built[2].1;
        let counted = Contender::new("auto, counted", || count_hits(auto, packets, &mut counts)).warm();
        let contenders = own.chain([counted]).chain(tuple).collect();
        add(&mut figure, place, &meter.compare(&format!("{profile} {count}"), PACKETS as u64, contenders));
    }
    for series in ["tree", "dynamic", "auto"] {
        figure.gain(series, "tuple", None);
    }
    figure.gain("auto, counted", "auto", None);
    figure
}

/// Looks up packets and counts hits by rule.
fn count_hits(classifier: &dyn RuleEngine, packets: &[FlowKey], counts: &mut HitCounts) {
    let mut hits: [Option<Hit>; BATCH] = [None; BATCH];
    for keys in packets.chunks(BATCH) {
        let hits = &mut hits[..keys.len()];
        classifier.lookup_batch(std::hint::black_box(keys), hits);
        counts.count(hits);
    }
    std::hint::black_box(counts);
}

fn look_up_keys(classifier: &dyn RuleEngine, packets: &[FlowKey]) {
    let mut hits: [Option<Hit>; BATCH] = [None; BATCH];
    for keys in packets.chunks(BATCH) {
        classifier.lookup_batch(std::hint::black_box(keys), &mut hits[..keys.len()]);
        std::hint::black_box(&hits);
    }
}
