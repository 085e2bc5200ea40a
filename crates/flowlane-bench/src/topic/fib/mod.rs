//! Forwarding tables: lookups by size of the next hop and by traffic, of every engine and variant; building and
//! updates. With the feature `peers-dpdk`, DPDK's `rte_fib` and `rte_fib6` are measured as well.

mod kinds;
mod sweep;
mod writer;

use std::cell::RefCell;
use std::hint::black_box;

use flowlane::generate::{
    Internet, Locality, RouteConfig, generate_addresses, generate_routes, generate_updates,
};
use flowlane::isa::Variant;
use flowlane::route::engine::{AnyFib, Engine, Family};
use flowlane::route::{Fib, FibConfig, HopSize, Prefix, Rib};

use sweep::Sweep;

use super::Context;
use crate::figure::Figure;
use crate::measure::{Contender, Measured, Meter};
use crate::options::BenchError;
#[cfg(feature = "peers-dpdk")]
use crate::peers::{dpdk, dpdk_fib};

/// The addresses of a pass. They are read from memory, where a switch has them in the nearest cache: more would evict
/// the tables.
const ADDRESS_BYTES: usize = 4 << 20;
/// Untimed passes before the timed one, for a table that has the caches to itself.
const WARM_PASSES: usize = 8;
/// The addresses by which `auto` chooses an engine for traffic.
const RECENT: usize = 1 << 16;
/// Addresses of a batch.
const BATCH: usize = 64;
/// The number of distinct next hops, which fits the smallest size of any engine.
const NEXT_HOPS: u64 = 100;
/// Kinds of traffic: name, locality over the routes, and the share of arbitrary addresses.
const TRAFFIC: [(&str, Locality, f64); 4] = [
    ("uniform over routes", Locality::Uniform, 0.0),
    ("Zipf 1.0 over routes", Locality::Zipf(1.0), 0.0),
    ("Pareto bursts, 5 % misses", Locality::Pareto { a: 1.0, b: 0.1 }, 0.05),
    ("anywhere", Locality::Uniform, 1.0),
];
/// The size of next hops, where it is not varied.
const HOP_SIZE: HopSize = HopSize::B4;
const SEED: u64 = 0x5eed;

/// An address family to measure.
#[cfg(not(feature = "peers-dpdk"))]
trait Kind: Family + Internet {}
/// An address family to measure, in DPDK's tables as well.
#[cfg(feature = "peers-dpdk")]
trait Kind: Family + Internet + dpdk_fib::Peer {}

impl Kind for u32 {}
impl Kind for u128 {}

/// The workload, scaled to the available time.
struct Work<A: Kind> {
    routes: Vec<(Prefix<A>, u64)>,
    rib: Rib<A>,
    /// Addresses of a pass.
    addresses: usize,
    /// Changes of a pass.
    updates: usize,
    /// The source of the routes.
    from: String,
}

impl<A: Kind> Work<A> {
    /// Takes the given routes, or generates some.
    fn of(context: &Context<'_>, given: Option<&[(Prefix<A>, u64)]>, count: usize) -> Self {
        let quick = context.quick();
        let config =
            RouteConfig { count: if quick { 2000 } else { count }, next_hops: NEXT_HOPS, seed: SEED };
        let name = context.options.routes.as_ref().map(|table| table.name.as_str());
        let (routes, from) = match given.filter(|routes| !routes.is_empty()) {
            // Maps next hops to numbers of the smallest size and keeps neighbours distinct.
            Some(routes) => {
                let fit = |(prefix, hop): &(Prefix<A>, u64)| (*prefix, 1 + hop % NEXT_HOPS);
                (routes.iter().map(fit).collect(), format!("of {}", name.unwrap_or("a file")))
            }
            None => (generate_routes(&config), "generated".to_owned()),
        };
        let rib = rib_of(&routes);
        let [addresses, updates] =
            if quick { [1 << 11, 100] } else { [ADDRESS_BYTES / size_of::<A>(), 20_000] };
        Self { routes, rib, addresses, updates, from }
    }

    /// Returns the workload with other routes.
    fn with(&self, routes: Vec<(Prefix<A>, u64)>) -> Self {
        let (rib, from) = (rib_of(&routes), self.from.clone());
        Self { routes, rib, addresses: self.addresses, updates: self.updates, from }
    }

    fn about(&self) -> String {
        format!("{} routes, {}", self.routes.len(), self.from)
    }

    fn addresses(&self, locality: Locality, miss: f64) -> Vec<A> {
        generate_addresses(&self.routes, locality, miss, self.addresses, SEED)
    }

    /// Returns the table that is chosen for traffic of this kind, by other addresses than those that are measured.
    fn chosen_for(&self, locality: Locality, miss: f64) -> AnyFib<A> {
        let recent = generate_addresses(&self.routes, locality, miss, RECENT.min(self.addresses), SEED + 1);
        AnyFib::build_for(&self.rib, &FibConfig::new(HOP_SIZE), &recent).expect("the table may take a GiB")
    }

    fn build(&self, engine: Engine, variant: Variant, hop_size: HopSize) -> Option<AnyFib<A>> {
        let config = FibConfig::new(hop_size).with_variant(variant)?;
        let fib = A::build(engine, &self.rib, &config)?.ok()?;
        // An engine need not have a kernel for every variant.
        (fib.variant() == variant).then_some(fib)
    }

    /// Builds all engines with all kernels, by name.
    fn tables(&self, context: &Context<'_>, hop_size: HopSize) -> Vec<(String, AnyFib<A>)> {
        let mut tables = Vec::new();
        for engine in A::ENGINES {
            for variant in variants(context) {
                let fib = self.build(*engine, variant, hop_size);
                tables.extend(fib.map(|fib| (format!("{engine}, {variant}"), fib)));
            }
        }
        tables
    }
}

fn rib_of<A: Kind>(routes: &[(Prefix<A>, u64)]) -> Rib<A> {
    let mut rib = Rib::new(routes.len());
    routes.iter().for_each(|(prefix, hop)| _ = rib.insert(*prefix, *hop).expect("there is room"));
    rib
}

/// Returns the variants of forwarding tables.
fn variants(context: &Context<'_>) -> impl DoubleEndedIterator<Item = Variant> {
    context.options.variants().into_iter().filter(|v| *v != Variant::Sse42)
}

pub(super) fn comparisons(_: &Context<'_>) -> usize {
    let writers: usize = <u32 as Family>::ENGINES.len() + <u128 as Family>::ENGINES.len();
    2 * (HopSize::ALL.len() + 2 * TRAFFIC.len() + kinds::count() + 2) + writers
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Result<Vec<Figure>, BenchError> {
    #[cfg(feature = "peers-dpdk")]
    dpdk::start()?;
    let given = context.options.routes.as_deref().map(|table| &table.routes);
    meter.say("IPv4 routes");
    // About as many routes as the Internet has.
    let v4 = Work::<u32>::of(context, given.map(|routes| &*routes.v4), 900_000);
    let mut figures = family(meter, context, &v4);
    drop(v4);
    meter.say("IPv6 routes");
    let v6 = Work::<u128>::of(context, given.map(|routes| &*routes.v6), 160_000);
    figures.extend(family(meter, context, &v6));
    Ok(figures)
}

fn family<A: Kind>(meter: &mut Meter<'_>, context: &Context<'_>, work: &Work<A>) -> Vec<Figure> {
    let mut sizes = by_hop_size(meter, context, work);
    let [mut alone, mut swept] = by_traffic(meter, context, work);
    let mut kinds = kinds::by_kind(meter, context, work);
    let mut changes = changes(meter, context, work);
    let mut figures = Vec::new();
    if A::BITS == u128::BITS as u8 {
        figures.push(figure_8(&sizes));
    }
    for figure in [&mut sizes, &mut alone, &mut swept, &mut kinds, &mut changes] {
        against_rte_fib(figure);
    }
    figures.extend([
        sizes,
        alone,
        swept,
        kinds,
        changes,
        writer::with_concurrent_writer(meter, context, work),
    ]);
    figures
}

fn add(figure: &mut Figure, place: usize, measured: &[Measured]) {
    measured.iter().for_each(|m| figure.add(&m.name, place, m));
}

fn id<A: Kind>(what: &str) -> String {
    format!("fib-{}-{what}", A::FAMILY.to_lowercase())
}

fn look_up<'a, A: Kind>(name: &str, fib: &'a AnyFib<A>, addresses: &'a [A]) -> Contender<'a> {
    let mut next_hops = [0; BATCH];
    Contender::new(name, move || {
        for batch in addresses.chunks(BATCH) {
            fib.lookup_batch(black_box(batch), &mut next_hops);
            black_box(&next_hops);
        }
    })
}

/// The state of the caches before a pass.
#[derive(Clone, Copy)]
enum Caches<'a> {
    /// The table's own contents, as in a program that does little else. All contenders begin with swept caches, since
    /// those of a peer share one table.
    Own(&'a Sweep),
    /// No contents of the table, as if other work came between batches.
    Swept(&'a Sweep),
}

impl<'a> Caches<'a> {
    fn before(self, kernel: Contender<'a>, mut prepare: impl FnMut() + 'a) -> Contender<'a> {
        let (sweep, passes) = match self {
            Self::Own(sweep) => (sweep, WARM_PASSES),
            Self::Swept(sweep) => (sweep, 0),
        };
        kernel.warm_by(passes).after(move || {
            prepare();
            sweep.run();
        })
    }
}

fn by_hop_size<A: Kind>(meter: &mut Meter<'_>, context: &Context<'_>, work: &Work<A>) -> Figure {
    let mut figure = Figure::new(
        id::<A>("hop-size"),
        format!("{} routes: by size of the next hop", A::FAMILY),
        String::new(),
    )
    .over("bytes of a next hop", HopSize::ALL.map(|size| size.to_string()))
    .bars();
    let addresses = work.addresses(Locality::Uniform, 0.0);
    let sweep = Sweep::new(context);
    let caches = Caches::Own(&sweep);
    let mut memory = String::new();
    for (place, hop_size) in HopSize::ALL.into_iter().enumerate() {
        let what = format!("{}, next hops of {hop_size} bytes", A::FAMILY);
        meter.say(&format!("building: {what}"));
        let tables = work.tables(context, hop_size);
        for engine in A::ENGINES {
            if let Some((_, fib)) = tables.iter().find(|(_, fib)| fib.engine() == *engine) {
                let mib = fib.table_bytes() as f64 / (1 << 20) as f64;
                memory += &format!(" {engine}, {hop_size}: {mib:.1} MiB.");
            }
        }
        let contenders =
            tables.iter().map(|(name, fib)| caches.before(look_up(name, fib, &addresses), || ()));
        let contenders: Vec<Contender<'_>> = contenders.collect();
        #[cfg(feature = "peers-dpdk")]
        let theirs = dpdk_fib::RteFib::build(&work.routes, hop_size);
        #[cfg(feature = "peers-dpdk")]
        let wire: Vec<A::Wire> = addresses.iter().map(|a| a.wire()).collect();
        #[cfg(feature = "peers-dpdk")]
        let contenders = contenders.into_iter().chain(rte_lookups(theirs.as_ref(), &wire, caches)).collect();
        add(&mut figure, place, &meter.compare(&what, addresses.len() as u64, contenders));
    }
    figure.about = format!(
        "{}; batches of {BATCH} addresses, uniform over the routes; {NEXT_HOPS} different next hops. Memory:{memory}",
        work.about()
    );
    figure
}

/// Derives Intel's figure, cycles of IPv6 lookups, from the measurements of all engines.
fn figure_8(sizes: &Figure) -> Figure {
    let about = "Scalar and AVX-512 kernels for IPv6, as in Figure 8 of Intel's white paper on AVX-512 in packet \
                 processing (2021), which states a gain of more than 35 % for the trie of rte_fib6.";
    let mut figure = Figure::new("fib-figure-8", "IPv6: scalar and AVX-512", about)
        .over(&sizes.axis, sizes.places.clone())
        .cycles("lookup")
        .bars();
    let is_shown = |name: &str| name.starts_with("compact, ") || name.starts_with("rte_fib6, ");
    figure.series = sizes.series.iter().filter(|s| is_shown(&s.name)).cloned().collect();
    figure.gain("compact, avx512", "compact, scalar", Some(1.35));
    if figure.series.iter().any(|s| s.name == "rte_fib6, avx512") {
        figure.gain("rte_fib6, avx512", "rte_fib6, scalar", Some(1.35));
    }
    figure
}

/// Measures each table with the caches to itself, and with swept caches.
fn by_traffic<A: Kind>(meter: &mut Meter<'_>, context: &Context<'_>, work: &Work<A>) -> [Figure; 2] {
    let about = format!(
        "{}; batches of {BATCH} addresses, next hops of {HOP_SIZE} bytes. Anywhere: any address, whether there is a \
         route or not.",
        work.about()
    );
    let sweep = Sweep::new(context);
    let kinds = [
        (Caches::Own(&sweep), "traffic", "by traffic", "Each has looked the same addresses up before."),
        (
            Caches::Swept(&sweep),
            "swept",
            "by traffic, out of swept caches",
            "Other memory is read before each pass, more than the caches hold.",
        ),
    ];
    let mut figures = kinds.map(|(_, kind, title, state)| {
        Figure::new(id::<A>(kind), format!("{} routes: {title}", A::FAMILY), format!("{about} {state}"))
            .over("addresses", TRAFFIC.map(|(name, ..)| name.to_owned()))
            .bars()
    });
    let tables = work.tables(context, HOP_SIZE);
    #[cfg(feature = "peers-dpdk")]
    let theirs = dpdk_fib::RteFib::build(&work.routes, HOP_SIZE);
    for (place, (name, locality, miss)) in TRAFFIC.into_iter().enumerate() {
        let addresses = work.addresses(locality, miss);
        #[cfg(feature = "peers-dpdk")]
        let wire: Vec<A::Wire> = addresses.iter().map(|a| a.wire()).collect();
        let auto = work.chosen_for(locality, miss);
        figures
            .iter_mut()
            .for_each(|figure| figure.about += &format!(" {name}: `auto` is {}.", auto.engine()));
        let tables =
            || std::iter::once(("auto", &auto)).chain(tables.iter().map(|(name, fib)| (&**name, fib)));
        for (figure, (caches, kind, ..)) in figures.iter_mut().zip(kinds) {
            let contenders = tables().map(|(name, fib)| caches.before(look_up(name, fib, &addresses), || ()));
            let contenders: Vec<Contender<'_>> = contenders.collect();
            #[cfg(feature = "peers-dpdk")]
            let contenders =
                contenders.into_iter().chain(rte_lookups(theirs.as_ref(), &wire, caches)).collect();
            let what = format!("{}, {name}, {kind}", A::FAMILY);
            add(figure, place, &meter.compare(&what, addresses.len() as u64, contenders));
        }
    }
    figures
}

/// Returns contenders for DPDK's lookup functions; each is selected before its passes.
#[cfg(feature = "peers-dpdk")]
fn rte_lookups<'a, A: Kind>(
    table: Option<&'a dpdk_fib::RteFib<A>>,
    addresses: &'a [A::Wire],
    caches: Caches<'a>,
) -> impl Iterator<Item = Contender<'a>> {
    table.into_iter().flat_map(move |table| {
        let here = A::LOOKUPS.iter().enumerate().filter(|(which, _)| table.select(*which));
        here.map(move |(which, name)| {
            let mut next_hops = [0; BATCH];
            let pass = move || {
                for batch in addresses.chunks(BATCH) {
                    table.lookup_bulk(black_box(batch), &mut next_hops);
                    black_box(&next_hops);
                }
            };
            caches.before(Contender::new(*name, pass), move || {
                assert!(table.select(which), "it could be selected before");
            })
        })
    })
}

/// Measures building, and changes of single routes.
fn changes<A: Kind>(meter: &mut Meter<'_>, context: &Context<'_>, work: &Work<A>) -> Figure {
    let about = format!(
        "{}, next hops of {HOP_SIZE} bytes. Building: from the routes in order, by route. Changes: withdrawals, \
         announcements and new next hops, one at a time, of the routes and of the table.",
        work.about()
    );
    let title = format!("{} routes: building and changes", A::FAMILY);
    let mut figure = Figure::new(id::<A>("changes"), title, about)
        .over("", ["building", "change"].map(str::to_owned))
        .cycles("route")
        .bars();
    let variant = variants(context).last().expect("there is always the scalar one");
    let contenders = A::ENGINES.iter().map(|engine| {
        Contender::new(engine.name(), move || _ = black_box(work.build(*engine, variant, HOP_SIZE)))
    });
    let contenders = contenders.collect();
    add(&mut figure, 0, &meter.compare("building", work.routes.len() as u64, contenders));
    let updates = generate_updates(&work.routes, NEXT_HOPS, work.updates, SEED);
    let tables =
        A::ENGINES.iter().filter_map(|engine| Some((engine, work.build(*engine, variant, HOP_SIZE)?)));
    let tables = tables.map(|(engine, fib)| (*engine, RefCell::new((work.rib.clone(), fib))));
    let tables: Vec<_> = tables.collect();
    let (updates, routes) = (&updates, &work.routes);
    let contenders = tables.iter().map(|(engine, table)| {
        Contender::new(engine.name(), move || {
            let (rib, fib) = &mut *table.borrow_mut();
            updates.iter().for_each(|(prefix, hop)| change(rib, fib, *prefix, *hop));
        })
        .after(move || {
            // Restores the routes that the previous pass withdrew.
            let (rib, fib) = &mut *table.borrow_mut();
            let gone = routes.iter().filter(|(prefix, _)| rib.get(*prefix).is_none());
            let gone: Vec<(Prefix<A>, u64)> = gone.copied().collect();
            gone.into_iter().for_each(|(prefix, hop)| change(rib, fib, prefix, Some(hop)));
        })
    });
    let contenders: Vec<Contender<'_>> = contenders.collect();
    #[cfg(feature = "peers-dpdk")]
    let theirs = dpdk_fib::RteFib::build(routes, HOP_SIZE).map(RefCell::new);
    #[cfg(feature = "peers-dpdk")]
    let contenders = contenders
        .into_iter()
        .chain(theirs.as_ref().map(|table| rte_changes(table, routes, updates)))
        .collect();
    add(&mut figure, 1, &meter.compare("changes", updates.len() as u64, contenders));
    figure
}

fn change<A: Kind>(rib: &mut Rib<A>, fib: &mut AnyFib<A>, prefix: Prefix<A>, next_hop: Option<u64>) {
    match next_hop {
        Some(next_hop) => _ = rib.insert(prefix, next_hop).expect("it was there once"),
        None => _ = rib.remove(prefix),
    }
    fib.update(rib, prefix).expect("the table may take a GiB");
}

/// Returns contenders for changes of DPDK's table, which keeps routes of its own.
#[cfg(feature = "peers-dpdk")]
fn rte_changes<'a, A: Kind>(
    table: &'a RefCell<dpdk_fib::RteFib<A>>,
    routes: &'a [(Prefix<A>, u64)],
    updates: &'a [(Prefix<A>, Option<u64>)],
) -> Contender<'a> {
    let name = if A::BITS == u32::BITS as u8 { "rte_fib" } else { "rte_fib6" };
    Contender::new(name, move || {
        let mut table = table.borrow_mut();
        updates.iter().for_each(|(prefix, hop)| _ = black_box(table.change(*prefix, *hop)));
    })
    .after(move || {
        let mut table = table.borrow_mut();
        routes.iter().for_each(|(prefix, hop)| _ = table.change(*prefix, Some(*hop)));
    })
}

/// Adds ratios of the fastest kernel of each engine to the fastest of DPDK's functions, if measured.
fn against_rte_fib(figure: &mut Figure) {
    let names: Vec<String> = figure.series.iter().map(|s| s.name.clone()).collect();
    let is_peer = |name: &str| name.starts_with("rte_fib");
    figure.paint(|name| is_peer(name).then_some((names.iter().position(|n| n == name)?, true)));
    #[cfg(feature = "peers-dpdk")]
    figure.about.push_str(dpdk::conditions());
    // Over all positions where both were measured.
    let faster = |figure: &Figure, a: &str, b: &str| {
        let ns = |name: &str, place| figure.ns(name, place);
        let ratios = (0..figure.places.len()).filter_map(|place| Some(ns(b, place)? / ns(a, place)?));
        ratios.map(f64::ln).sum::<f64>() > 0.0
    };
    let best = |figure: &Figure, of: &dyn Fn(&str) -> bool| {
        let these = names.iter().filter(|name| of(name));
        these.reduce(|best, name| if faster(figure, name, best) { name } else { best }).cloned()
    };
    let Some(peer) = best(figure, &is_peer) else { return };
    for ours in Engine::ALL.map(Engine::name).into_iter().chain(["auto"]) {
        if let Some(ours) = best(figure, &|name| name.starts_with(ours)) {
            figure.gain(&ours, &peer, None);
        }
    }
}
