//! Trials of all tables, by clocks that tests turn: what wins stays, and meanwhile answers are those of the definition.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use super::{Family, KernelSlot, SizeClass, is_usable};
use crate::bloom::{BlockedBloomFilter, BloomFilter, BloomKernel};
use crate::cache::{FlowRef, MegaflowCache, MegaflowConfig};
use crate::classify::acl::{Dynamic, DynamicConfig, Engine, MatchId, Tree, TreeConfig, WordKind, testing};
use crate::cuckoo::{CuckooConfig, CuckooWriter};
use crate::dispatch::testing::{favour, forcing, scripted};
use crate::generate::Random;
use crate::isa::Variant;
use crate::packet::{Field, FlowKey, FlowMask, LaneMask};
use crate::route::engine::{AnyFib, Family as AddressFamily};
use crate::route::{Fib, FibConfig, FibReader, HopSize, Prefix, Rib};

const KINDS: [WordKind; 4] = [WordKind::Ternary, WordKind::Range32, WordKind::Range16, WordKind::Range32];

/// Keys of all batches.
const BATCH: usize = 32;

/// Batches of each candidate in a trial.
const SAMPLES: usize = 15;

/// A table with one batch, for which the definition has answered.
struct Trying<T, A> {
    table: T,
    /// Looks the batch up.
    lookup: fn(&T) -> A,
    expected: A,
    /// How it looks up at present.
    present: fn(&T) -> String,
}

impl<T, A: PartialEq + Debug> Trying<T, A> {
    fn check(&self) {
        assert_eq!((self.lookup)(&self.table), self.expected, "by {}", (self.present)(&self.table));
    }

    fn present(&self) -> String {
        (self.present)(&self.table)
    }
}

/// Kernels of a slot that can be used here.
fn bodies(slot: KernelSlot) -> usize {
    let rows = [Family::Zen5, Family::Avx2, Family::Sse42, Family::Neon, Family::Portable];
    let texts: BTreeSet<&str> = rows.into_iter().map(|row| row.choice(slot)).collect();
    texts.into_iter().filter(|text| is_usable(slot, text) == Ok(true)).count()
}

/// Whichever candidate the clock favours wins a trial and stays.
fn each_can_win<T, A: PartialEq + Debug>(bodies: usize, make: impl Fn() -> Trying<T, A>) {
    let mut winners = BTreeSet::new();
    for place in 0..bodies {
        favour(place, bodies);
        let trying = forcing(scripted, &make);
        let built_in = trying.present();
        (0..bodies * SAMPLES - 1).for_each(|_| trying.check());
        assert_eq!(trying.present(), built_in, "the built-in one until the end");
        trying.check();
        let winner = trying.present();
        assert_eq!(place == 0, winner == built_in, "{winner} of {bodies}, the built-in one first");
        (0..20).for_each(|_| trying.check());
        assert_eq!(trying.present(), winner);
        winners.insert(winner);
    }
    assert_eq!(winners.len(), bodies, "{winners:?}");
}

/// Threads share a table while it tries, and long after.
fn threads_agree<T: Sync, A: PartialEq + Debug + Sync>(make: impl Fn() -> Trying<T, A>) {
    static READINGS: AtomicU64 = AtomicU64::new(0);
    // It means nothing, but goes on.
    let trying = forcing(|| READINGS.fetch_add(1, Relaxed), make);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| trying.check()));
        }
    });
    let winner = trying.present();
    trying.check();
    assert_eq!(trying.present(), winner);
}

type Verdicts = [MatchId; BATCH];

fn verdicts<E: Engine<4>>(engine: &E, keys: &[[u32; 4]; BATCH]) -> Verdicts {
    let mut verdicts = [MatchId::NONE; BATCH];
    engine.lookup_batch(keys, &mut verdicts);
    verdicts
}

/// An engine, its keys, and what linear search says.
fn acl<E: Engine<4>>(
    build: impl Fn(&[crate::classify::acl::Entry<4>]) -> E,
) -> Trying<(E, [[u32; 4]; BATCH]), Verdicts> {
    let (entries, keys) = testing::overlapping(&KINDS, 300, BATCH, 1);
    let keys: [[u32; 4]; BATCH] = keys.try_into().expect("as many as were asked for");
    let best = |key| crate::classify::acl::best(&entries, &KINDS, key, 0);
    let expected = keys.each_ref().map(|key| best(key).map_or(MatchId::NONE, |e| MatchId::of(e.rule)));
    Trying {
        table: (build(&entries), keys),
        lookup: |(engine, keys)| verdicts(engine, keys),
        expected,
        present: |(engine, _)| engine.variant().to_string(),
    }
}

fn tree(variant: Option<Variant>) -> Trying<(Tree<4>, [[u32; 4]; BATCH]), Verdicts> {
    acl(|entries| {
        let config = TreeConfig { variant, ..TreeConfig::default() };
        Tree::build(&KINDS, entries, &config).expect("there is memory")
    })
}

fn dynamic(variant: Option<Variant>) -> Trying<(Dynamic<4>, [[u32; 4]; BATCH]), Verdicts> {
    acl(|entries| {
        let config = DynamicConfig { variant, ..DynamicConfig::new(1) };
        Dynamic::build(&KINDS, entries, config).expect("there is memory")
    })
}

/// Every second key is there.
fn cuckoo(config: CuckooConfig) -> Trying<CuckooWriter<2>, (u64, [u32; BATCH])> {
    let mut table = CuckooWriter::new(&config);
    (0..500).for_each(|n| assert_eq!(table.insert(&[2 * n, 7], n), Ok(None)));
    let lookup = |table: &CuckooWriter<2>| {
        let keys: [[u32; 2]; BATCH] = std::array::from_fn(|n| [n as u32, 7]);
        let mut values = [0; BATCH];
        (table.lookup_batch(&keys, &mut values), values)
    };
    let expected = std::array::from_fn(|n| if n % 2 == 0 { n as u32 / 2 } else { 0 });
    Trying { table, lookup, expected: (0x5555_5555, expected), present: |table| table.variant().to_string() }
}

/// Every third key is in; others may be.
fn bloom(kernel: Option<BloomKernel>) -> Trying<BloomFilter, (usize, [u32; BATCH])> {
    let mut table = BloomFilter::with_bits(1 << 10, 3).expect("a size that there is");
    if let Some(kernel) = kernel {
        table.set_kernel(kernel).expect("is available");
    }
    (0..BATCH as u32).step_by(3).for_each(|key| table.insert(key));
    let lookup = |table: &BloomFilter| {
        let keys: [u32; BATCH] = std::array::from_fn(|n| n as u32);
        let (mut out, mut payloads) = ([0; BATCH], [0; BATCH]);
        let len = table.survivors(&keys, &keys, &mut out, &mut payloads);
        out[len..].fill(0);
        (len, out)
    };
    let passing: Vec<u32> = (0..BATCH as u32).filter(|key| table.contains(*key)).collect();
    let mut expected = [0; BATCH];
    expected[..passing.len()].copy_from_slice(&passing);
    Trying { table, lookup, expected: (passing.len(), expected), present: |table| table.kernel().to_string() }
}

fn blocked() -> Trying<BlockedBloomFilter, [u64; 1]> {
    let table = BlockedBloomFilter::with_bits(1 << 10).expect("a size that there is");
    (0..BATCH as u32).step_by(3).for_each(|key| table.insert(key));
    let lookup = |table: &BlockedBloomFilter| {
        let keys: [u32; BATCH] = std::array::from_fn(|n| n as u32);
        let mut hits = [0];
        table.contains_batch(&keys, &mut hits);
        hits
    };
    let bit = |key: u32| u64::from(table.contains(key)) << key;
    let expected = [(0..BATCH as u32).map(bit).sum()];
    Trying { table, lookup, expected, present: |table| table.kernel().to_string() }
}

type Readers<A> = (AnyFib<A>, [A; BATCH]);

/// Routes to the halves of networks, and addresses in them and beside them.
fn routes<A: AddressFamily + Debug>() -> Trying<Readers<A>, [u64; BATCH]> {
    let mut random = Random::for_purpose(1, "trials: routes");
    let addresses: [A; BATCH] = std::array::from_fn(|_| A::from_words(random.bits(), random.bits()));
    let mut rib = Rib::new(100);
    for (n, address) in addresses.iter().enumerate().step_by(2) {
        let prefix = Prefix::truncated(*address, 8 + n as u8 % 16);
        rib.insert(prefix, 1 + n as u64).expect("there is room");
    }
    // The contest of engines would end the trial.
    let config = FibConfig::new(HopSize::B4).without_measuring();
    let table: AnyFib<A> = Fib::build(&rib, &config).expect("there is memory");
    let expected = addresses.map(|address| table.lookup(address));
    let lookup = |(table, addresses): &Readers<A>| {
        let mut next_hops = [0; BATCH];
        table.reader().lookup_batch(addresses, &mut next_hops);
        next_hops
    };
    Trying { table: (table, addresses), lookup, expected, present: |(table, _)| table.variant().to_string() }
}

#[test]
fn the_fastest_kernel_of_an_access_list_is_kept() {
    each_can_win(bodies(KernelSlot::AclTree), || tree(None));
    each_can_win(bodies(KernelSlot::AclDynamic), || dynamic(None));
}

#[test]
fn the_fastest_kernel_of_a_filter_is_kept() {
    each_can_win(bodies(KernelSlot::Bloom(SizeClass::L1)), || bloom(None));
    each_can_win(bodies(KernelSlot::BlockedBloom(SizeClass::L1)), blocked);
}

#[test]
fn the_fastest_kernel_of_a_cuckoo_table_is_kept() {
    each_can_win(bodies(KernelSlot::Cuckoo(SizeClass::L1)), || cuckoo(CuckooConfig::new(1000, 1)));
}

/// Of the compact tables' kernels the scalar one does not take part.
#[test]
fn the_fastest_kernel_of_routes_is_kept() {
    let wide = |slot| (bodies(slot) - 1).max(1);
    each_can_win(wide(KernelSlot::Routes4), routes::<u32>);
    each_can_win(wide(KernelSlot::Routes6), routes::<u128>);
}

#[test]
fn threads_that_share_a_table_get_right_answers_while_it_tries() {
    threads_agree(|| tree(None));
    threads_agree(|| dynamic(None));
    threads_agree(|| cuckoo(CuckooConfig::new(1000, 1)));
    threads_agree(|| bloom(None));
    threads_agree(blocked);
    threads_agree(routes::<u32>);
    threads_agree(routes::<u128>);
}

#[test]
fn megaflows_are_found_while_the_cache_tries_and_an_empty_cache_tells_nothing() {
    let bodies = bodies(KernelSlot::Megaflow);
    favour(bodies - 1, bodies);
    let config = MegaflowConfig { flows_max: 100, ..MegaflowConfig::default() };
    let mut cache = forcing(scripted, || MegaflowCache::new(config));
    let built_in = cache.variant();
    let key = |n: usize| {
        let mut key = FlowKey::zero();
        key.set(Field::Ipv4Dst, n as u128);
        key
    };
    let keys: [FlowKey; BATCH] = std::array::from_fn(key);
    let live = LaneMask((1 << BATCH) - 1);
    let mut found = [FlowRef::NONE; BATCH];
    (0..bodies * SAMPLES).for_each(|_| assert_eq!(cache.lookup_batch(&keys, live, &mut found), live));
    let mut mask = FlowMask::zero();
    mask.set(Field::Ipv4Dst, u32::MAX.into());
    for n in (0..BATCH).step_by(2) {
        cache.insert(&key(n), &mask, n as u32, 1, 0).expect("there is room");
    }
    for batch in 0..bodies * SAMPLES {
        assert_eq!(cache.variant(), built_in, "batch {batch}");
        assert_eq!(cache.lookup_batch(&keys, live, &mut found), LaneMask(0xaaaa_aaaa));
        for n in (0..BATCH).step_by(2) {
            assert_eq!(cache.get(found[n]).map(|flow| flow.value), Some(n as u32));
        }
    }
    assert_eq!(cache.variant() == built_in, bodies == 1, "the last of {bodies} has won");
}

/// The clock is not read where the caller has named a kernel.
#[test]
fn explicit_choices_have_no_trial() {
    let never = || -> u64 { panic!("the clock was read") };
    forcing(never, || {
        for variant in Variant::ALL.into_iter().filter(|variant| variant.available()) {
            let cuckoo = cuckoo(CuckooConfig::new(1000, 1).with_variant(variant).expect("is available"));
            let (tree, dynamic) = (tree(Some(variant)), dynamic(Some(variant)));
            for _ in 0..100 {
                cuckoo.check();
                tree.check();
                dynamic.check();
            }
            assert_eq!([cuckoo.present(), tree.present(), dynamic.present()], [variant.name(); 3]);
        }
        for kernel in BloomKernel::all() {
            let named = bloom(Some(kernel));
            (0..100).for_each(|_| named.check());
            assert_eq!(named.table.kernel(), kernel);
        }
    });
}
