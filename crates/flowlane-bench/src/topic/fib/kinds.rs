//! Route tables unlike the Internet's, for effects that a single table does not show.

use flowlane::generate::Locality;
use flowlane::generate::random::Random;
use flowlane::route::engine::AnyFib;
use flowlane::route::{Fib, FibConfig, Prefix};

use super::sweep::Sweep;
use super::{BATCH, Caches, HOP_SIZE, Kind, NEXT_HOPS, SEED, Work, add, id, look_up};
use crate::figure::Figure;
use crate::measure::{Contender, Meter};
#[cfg(feature = "peers-dpdk")]
use crate::peers::dpdk_fib;
use crate::topic::Context;

/// The names of the kinds of routes.
const KINDS: [&str; 6] =
    ["as above", "1000 next hops", "a data centre", "any lengths", "all /24", "an office"];

/// The most routes of a generated kind. (DPDK's tables need a group for each eight bits of a long prefix.)
const ROUTES: usize = 20_000;

pub(super) fn count() -> usize {
    KINDS.len()
}

/// Measures each engine with its default variant, uniformly over the routes.
pub(super) fn by_kind<A: Kind>(meter: &mut Meter<'_>, context: &Context<'_>, work: &Work<A>) -> Figure {
    let about = format!(
        "Uniform over the routes, batches of {BATCH}, next hops of {HOP_SIZE} bytes, variants and `auto` as they are chosen \
         without a file of `flowlane tune`. A data centre: three of four routes longer than 24 bits (IPv6: 64) in one block. Any \
         lengths: prefixes drawn at random. All /24 (IPv6: /48): side by side, neighbours differ. An office: 16 routes and a default one.",
    );
    let mut figure = Figure::new(id::<A>("kinds"), format!("{} routes: by kind of table", A::FAMILY), about)
        .over("routes", KINDS.map(str::to_owned))
        .bars();
    let sweep = Sweep::new(context);
    for (place, kind) in KINDS.into_iter().enumerate() {
        let what = format!("{}, {kind}", A::FAMILY);
        meter.say(&format!("building: {what}"));
        let work = work.with(routes(kind, work));
        let config = FibConfig::new(HOP_SIZE);
        let mut tables: Vec<(String, AnyFib<A>)> = Vec::new();
        let auto = AnyFib::build(&work.rib, &config).expect("the table may take a GiB");
        figure.about += &format!(" {kind}: {}.", auto.engine());
        tables.push(("auto".to_owned(), auto));
        for engine in A::ENGINES {
            let fib = A::build(*engine, &work.rib, &config).and_then(Result::ok);
            tables.extend(fib.map(|fib| (engine.name().to_owned(), fib)));
        }
        let addresses = work.addresses(Locality::Uniform, 0.0);
        let caches = Caches::Own(&sweep);
        let contenders =
            tables.iter().map(|(name, fib)| caches.before(look_up(name, fib, &addresses), || ()));
        let contenders: Vec<Contender<'_>> = contenders.collect();
        #[cfg(feature = "peers-dpdk")]
        let theirs = dpdk_fib::RteFib::build(&work.routes, HOP_SIZE);
        #[cfg(feature = "peers-dpdk")]
        let wire: Vec<A::Wire> = addresses.iter().map(|a| a.wire()).collect();
        #[cfg(feature = "peers-dpdk")]
        let contenders =
            contenders.into_iter().chain(super::rte_lookups(theirs.as_ref(), &wire, caches)).collect();
        add(&mut figure, place, &meter.compare(&what, addresses.len() as u64, contenders));
    }
    figure
}

/// Returns the routes of a kind, with distinct prefixes.
fn routes<A: Kind>(kind: &str, work: &Work<A>) -> Vec<(Prefix<A>, u64)> {
    let mut random = Random::new(SEED);
    let count = ROUTES.min(work.routes.len());
    let is_v6 = A::BITS == u128::BITS as u8;
    // 10.0.0.0/8, 2001:db8::/32.
    let block = if is_v6 { A::from_words(0x2001_0db8 << 32, 0) } else { A::from_words(0, 0x0a00_0000) };
    let inside = Prefix::truncated(block, if is_v6 { 32 } else { 8 });
    let mut drawn = |first: Prefix<A>, lens: &[u8]| -> Vec<Prefix<A>> {
        let one = |random: &mut Random| {
            let any = A::from_words(random.bits(), random.bits());
            let host = first.last() & !first.first();
            Prefix::truncated(first.first() | (any & host), lens[random.index(lens.len())])
        };
        (0..count).map(|_| one(&mut random)).collect()
    };
    let all: Vec<u8> = (if is_v6 { 16 } else { 8 }..=A::BITS).collect();
    let prefixes = match kind {
        "a data centre" if is_v6 => drawn(inside, &[128, 128, 128, 112, 96, 80, 64, 56]),
        "a data centre" => drawn(inside, &[32, 32, 32, 30, 29, 27, 24, 24]),
        "any lengths" => drawn(Prefix::ALL, &all),
        "all /24" => (0..count as u64).map(|n| side_by_side(n, is_v6)).collect(),
        "an office" => {
            let mut some = drawn(inside, &[16, 24]);
            some.truncate(16);
            some.push(Prefix::ALL);
            some
        }
        "1000 next hops" => {
            return work.routes.iter().map(|(prefix, _)| (*prefix, 1 + random.below(1000))).collect();
        }
        _ => return work.routes.clone(),
    };
    let mut prefixes: Vec<Prefix<A>> = prefixes;
    prefixes.sort_unstable();
    prefixes.dedup();
    let hop = |n: usize| 1 + (n as u64 * 7) % NEXT_HOPS;
    prefixes.into_iter().enumerate().map(|(n, prefix)| (prefix, hop(n))).collect()
}

fn side_by_side<A: Kind>(n: u64, is_v6: bool) -> Prefix<A> {
    if is_v6 {
        Prefix::truncated(A::from_words(0x2001_0db8 << 32 | n << 16, 0), 48)
    } else {
        Prefix::truncated(A::from_words(0, 0x0a00_0000 | n << 8), 24)
    }
}
