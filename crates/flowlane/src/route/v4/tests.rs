//! Properties of every IPv4 table: the same answers as the routes, always.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::generate::random::Random;
use crate::isa::Variant;
use crate::isa::testing::for_each_variant;
use crate::route::engine::{AnyFib, Engine, Family};
use crate::route::v4::compact::Compact;
use crate::route::v4::dir24::Dir24;
use crate::route::{BuildError, Fib, FibConfig, FibReader, HopSize, Prefix, Rib, RouteError, Routes};

/// The next hop of addresses without a route.
const DEFAULT: u64 = 99;

/// Addresses under few first bits, so that prefixes nest; and at the ends of the space.
fn address(random: &mut Random) -> u32 {
    match random.below(10) {
        0 => random.bits() as u32,
        1 => u32::MAX - random.below(600) as u32,
        2 => random.below(600) as u32,
        _ => 0x0a00_0000 | random.bits() as u32 & 0x0001_c3ff,
    }
}

fn prefix(random: &mut Random) -> Prefix<u32> {
    let len = match random.below(12) {
        // Short ones fill much of a table: few of them.
        0 if random.below(8) == 0 => random.below(8) as u8,
        0 => 8 + random.below(25) as u8,
        1 => 32,
        2 => 24,
        3 if random.below(20) == 0 => 0,
        _ => 15 + random.below(18) as u8,
    };
    Prefix::truncated(address(random), len)
}

fn expected(rib: &Rib<u32>, address: u32) -> u64 {
    rib.lookup(address).map_or(DEFAULT, |(_, next_hop)| next_hop)
}

/// Both sides of every border that `prefix` has, and whatever comes.
fn addresses_about(prefix: Prefix<u32>, random: &mut Random, len: usize) -> Vec<u32> {
    let borders =
        [prefix.first(), prefix.last(), prefix.first().wrapping_sub(1), prefix.last().wrapping_add(1)];
    let inside =
        |random: &mut Random| prefix.first() | random.bits() as u32 & !(prefix.first() ^ prefix.last());
    let mut all: Vec<u32> = borders.to_vec();
    while all.len() < len {
        let inside = inside(random);
        all.push(if prefix.contains(inside) && random.below(2) == 0 { inside } else { address(random) });
    }
    all.truncate(len);
    all
}

fn assert_same<F: Fib<u32>>(fib: &F, rib: &Rib<u32>, addresses: &[u32]) {
    let mut next_hops = vec![u64::MAX; addresses.len() + 1];
    fib.lookup_batch(addresses, &mut next_hops);
    for (lane, (address, next_hop)) in addresses.iter().zip(&next_hops).enumerate() {
        let expected = expected(rib, *address);
        assert_eq!(
            *next_hop,
            expected,
            "{}: {address:#x}, lane {lane} of {}",
            fib.variant(),
            addresses.len()
        );
        assert_eq!(fib.lookup(*address), expected, "{address:#x} alone");
    }
    assert_eq!(next_hops[addresses.len()], u64::MAX, "written behind the batch");
}

/// Next hops of every size, the largest with them.
fn next_hop(random: &mut Random, max: u64) -> u64 {
    if random.below(3) == 0 { max - random.below(5) } else { random.below(4) }
}

fn follows_its_routes<F: Fib<u32>>(config: &FibConfig, next_hop_max: u64, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let mut rib = Rib::new(1 << 12);
    for _ in 0..150 {
        rib.insert(prefix(&mut random), next_hop(&mut random, next_hop_max)).expect("there is room");
    }
    let mut fib = F::build(&rib, config).expect("there is memory");
    let mut present: Vec<Prefix<u32>> = rib.walk(Prefix::ALL).map(|(prefix, _)| prefix).collect();
    for route in present.clone() {
        assert_same(&fib, &rib, &addresses_about(route, &mut random, 20));
    }
    for step in 0..steps {
        let changed = match random.below(3) {
            0 if !present.is_empty() => present.swap_remove(random.index(present.len())),
            _ => prefix(&mut random),
        };
        if rib.remove(changed).is_none() || random.below(3) == 0 {
            rib.insert(changed, next_hop(&mut random, next_hop_max)).expect("there is room");
            present.push(changed);
        }
        fib.update(&rib, changed).expect("there is memory");
        assert_same(&fib, &rib, &addresses_about(changed, &mut random, step % 70));
    }
    assert_same(&fib, &rib, &addresses_about(Prefix::ALL, &mut random, 3000));
    for (route, _) in rib.clone().walk(Prefix::ALL) {
        rib.remove(route);
        fib.update(&rib, route).expect("there is memory");
    }
    assert_same(&fib, &rib, &addresses_about(Prefix::ALL, &mut random, 1000));
}

fn config(hop_size: HopSize) -> FibConfig {
    FibConfig::new(hop_size).with_default_next_hop(DEFAULT)
}

/// 16,384 addresses whose 64 parts get routes of their own, some of them with longer ones inside, in any order.
#[test]
fn compact_finds_in_chunks_of_any_number_of_runs() {
    for_each_variant(|variant| {
        let config = config(HopSize::B2).with_variant(variant).expect("is available");
        let mut random = Random::new(11);
        let mut rib = Rib::new(200);
        let mut fib = Compact::build(&rib, &config).expect("there is memory");
        let slot = |slot: u32| Prefix::truncated(0x0a0a_4000 | slot << 8, 24);
        let host = |slot: u32| Prefix::truncated(0x0a0a_4000 | slot << 8 | 0x7f, 32);
        let mut routes: Vec<Prefix<u32>> = (0..64).map(slot).chain((0..64).step_by(9).map(host)).collect();
        let every: Vec<u32> = (0..1 << 14).step_by(0x7f).map(|at| 0x0a0a_4000 | at).collect();
        for round in 0..4 {
            random.shuffle(&mut routes);
            for route in &routes {
                match round {
                    3 => _ = rib.remove(*route),
                    _ => _ = rib.insert(*route, random.below(1 << 16)).expect("there is room"),
                }
                fib.update(&rib, *route).expect("there is memory");
                assert_same(&fib, &rib, &every);
            }
        }
        assert_eq!(fib.next_hops(), 1);
    });
}

#[test]
fn a_table_names_the_body_that_it_has() {
    fn named<F: Fib<u32>>() {
        for_each_variant(|variant| {
            let config = config(HopSize::B1).with_variant(variant).expect("is available");
            let fib = F::build(&Rib::new(1), &config).expect("there is memory");
            let expected = if variant == Variant::Sse42 { Variant::Scalar } else { variant };
            assert_eq!(fib.variant(), expected);
        });
    }
    named::<Dir24>();
    named::<Compact>();
}

#[test]
fn every_variant_and_size_of_dir24_follows_its_routes() {
    for_each_variant(|variant| {
        for hop_size in HopSize::ALL {
            let config = config(hop_size).with_variant(variant).expect("is available");
            follows_its_routes::<Dir24>(&config, hop_size.max() >> 1, hop_size.max(), 200);
        }
    });
}

#[test]
fn every_variant_and_size_of_compact_follows_its_routes() {
    for_each_variant(|variant| {
        for (seed, hop_size) in HopSize::ALL.into_iter().cycle().take(12).enumerate() {
            let config = config(hop_size).with_variant(variant).expect("is available");
            follows_its_routes::<Compact>(&config, hop_size.max(), seed as u64, 700);
        }
    });
}

/// Next hops come and go until codes of one byte do not number them any more, while readers look up.
fn follows_more_and_more_next_hops<F: Fib<u32>>()
where
    F::Reader: 'static,
{
    let mut rib = Rib::new(2000);
    let mut fib = F::build(&rib, &config(HopSize::B4)).expect("there is memory");
    let before = fib.table_bytes();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (reader, done) = (fib.reader(), &done);
        scope.spawn(move || {
            let addresses: Vec<u32> = (0..600).map(|n| 0x0a00_0000 | n << 8).collect();
            let mut next_hops = vec![0; addresses.len()];
            while !done.load(Ordering::Relaxed) {
                reader.lookup_batch(&addresses, &mut next_hops);
                for (n, next_hop) in next_hops.iter().enumerate() {
                    let allowed = [DEFAULT, 1000 + n as u64, 5000 + n as u64];
                    assert!(allowed.contains(next_hop), "{n} got {next_hop}");
                }
            }
        });
        let _done = Done(done);
        for (base, len) in [(1000, 24), (5000, 30), (1000, 24)] {
            for n in 0..600 {
                let route = Prefix::truncated(0x0a00_0000 | n << 8, len);
                rib.insert(route, u64::from(base + n)).expect("there is room");
                fib.update(&rib, route).expect("there is memory");
                let around = n.saturating_sub(3)..n + 3;
                let addresses: Vec<u32> = around.map(|n| 0x0a00_0000 | n << 8).collect();
                assert_same(&fib, &rib, &addresses);
            }
        }
    });
    assert!(fib.table_bytes() > before, "codes have two bytes now");
    assert_same(&fib, &rib, &(0..600 * 64).map(|n| 0x0a00_0000 | n << 2).collect::<Vec<u32>>());
}

#[test]
fn compact_follows_more_and_more_next_hops() {
    follows_more_and_more_next_hops::<Compact>();
}

/// Ends the readers when the writer has ended, be it by a panic.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A writer changes the next hops of nested prefixes between two values each; readers must see one of them.
fn readers_see_the_old_or_the_new<F: Fib<u32>>()
where
    F::Reader: 'static,
{
    for_each_variant(|variant| {
        let config = config(HopSize::B4).with_variant(variant).expect("is available");
        let mut rib = Rib::new(1000);
        // The /8 is always there, a /20, a /26 and a /32 come and go: an address under them has one of four.
        let [outer, middle, inner, host] =
            [("10.0.0.0/8", 8), ("10.1.16.0/20", 20), ("10.1.17.64/26", 26), ("10.1.17.77/32", 32)]
                .map(|(text, _)| text.parse::<Prefix<u32>>().expect("a prefix"));
        rib.insert(outer, 8).expect("there is room");
        let mut fib = F::build(&rib, &config).expect("there is memory");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (reader, done) = (fib.reader(), &done);
                scope.spawn(move || {
                    let addresses: Vec<u32> =
                        [0x0a01_114d, 0x0a01_114e, 0x0a01_1000, 0x0a02_0000, 0x0b00_0000].repeat(13);
                    let allowed: [&[u64]; 5] =
                        [&[8, 20, 26, 32, 33], &[8, 20, 26], &[8, 20], &[8], &[DEFAULT]];
                    let mut next_hops = vec![0; addresses.len()];
                    while !done.load(Ordering::Relaxed) {
                        reader.lookup_batch(&addresses, &mut next_hops);
                        for (lane, next_hop) in next_hops.iter().enumerate() {
                            assert!(allowed[lane % 5].contains(next_hop), "lane {lane} got {next_hop}");
                        }
                        assert!(allowed[0].contains(&reader.lookup(addresses[0])));
                    }
                });
            }
            let _done = Done(&done);
            let mut random = Random::new(11);
            for _ in 0..4000 {
                let changed = [middle, inner, host][random.index(3)];
                if rib.remove(changed).is_none() || random.below(4) == 0 {
                    let other = u64::from(changed == host && random.below(2) == 0);
                    rib.insert(changed, u64::from(changed.len()) + other).expect("there is room");
                }
                fib.update(&rib, changed).expect("there is memory");
                // Elsewhere, so that freed memory is soon used for something else.
                let noise = Prefix::truncated(0xc000_0000 | random.bits() as u32 & 0x00ff_ffff, 32);
                if rib.remove(noise).is_none() {
                    rib.insert(noise, 77 + random.below(1000)).expect("there is room");
                }
                fib.update(&rib, noise).expect("there is memory");
                if rib.len() > 500 {
                    for (route, _) in rib.clone().walk("192.0.0.0/8".parse().expect("a prefix")) {
                        rib.remove(route);
                        fib.update(&rib, route).expect("there is memory");
                    }
                }
            }
        });
    });
}

#[test]
fn readers_of_dir24_see_the_old_or_the_new_next_hop() {
    readers_see_the_old_or_the_new::<Dir24>();
}

#[test]
fn readers_of_compact_see_the_old_or_the_new_next_hop() {
    readers_see_the_old_or_the_new::<Compact>();
}

/// Adds routes, then removes and adds them in random order many times over; returns bytes before and after.
fn churn<F: Fib<u32>>(rounds: usize) -> (F, usize, usize) {
    let mut random = Random::new(23);
    let mut rib = Rib::new(1 << 12);
    for _ in 0..1500 {
        rib.insert(prefix(&mut random), random.below(300)).expect("there is room");
    }
    let routes: Vec<(Prefix<u32>, u64)> = rib.walk(Prefix::ALL).filter(|(p, _)| p.len() > 12).collect();
    let mut fib = F::build(&rib, &config(HopSize::B4)).expect("there is memory");
    let mut step = |fib: &mut F, random: &mut Random| {
        let mut away: Vec<_> = (0..100).map(|_| routes[random.index(routes.len())]).collect();
        for (route, _) in &away {
            rib.remove(*route);
            fib.update(&rib, *route).expect("there is memory");
        }
        random.shuffle(&mut away);
        for (route, next_hop) in away {
            rib.insert(route, next_hop).expect("there is room");
            fib.update(&rib, route).expect("there is memory");
        }
    };
    (0..5).for_each(|_| step(&mut fib, &mut random));
    let before = fib.table_bytes();
    (0..rounds).for_each(|_| step(&mut fib, &mut random));
    let after = fib.table_bytes();
    (fib, before, after)
}

#[test]
fn churn_leaves_the_memory_of_dir24_as_it_was() {
    let (fib, before, after) = churn::<Dir24>(100);
    assert_eq!((before, fib.groups() > 0), (after, true));
}

#[test]
fn churn_leaves_the_memory_of_compact_as_it_was() {
    let (_, before, after) = churn::<Compact>(100);
    // Blocks of different sizes fill the gaps of each other in another order: a page more, no trend.
    assert!(after <= before + 4096, "{before} bytes before, {after} after");
}

#[test]
fn a_refused_change_changes_nothing() {
    fn check<F: Fib<u32>>(memory_max: usize, apart: usize) {
        let mut random = Random::new(5);
        let config = config(HopSize::B2).with_memory_max(memory_max);
        let mut rib = Rib::new(1 << 15);
        let mut fib = F::build(&rib, &config).expect("there is memory");
        let mut refused = 0;
        for _ in 0..3000 {
            let route = Prefix::truncated(random.bits() as u32, 20 + random.below(13) as u8);
            rib.insert(route, random.below(200)).expect("there is room");
            let before = fib.table_bytes();
            if let Err(error) = fib.update(&rib, route) {
                assert_eq!(fib.table_bytes(), before, "it takes nothing");
                let BuildError::NeedsMemory { needed, max } = error else { panic!("{error}") };
                assert!(needed > max && max == memory_max, "{error}");
                assert!(error.to_string().contains(&needed.to_string()));
                rib.remove(route);
                refused += 1;
                assert_same(&fib, &rib, &addresses_about(route, &mut random, 20));
            }
        }
        assert!(refused > 100, "{refused}");
        assert!(fib.table_bytes() <= memory_max);
        for (route, _) in rib.walk(Prefix::ALL).take(300) {
            assert_same(&fib, &rib, &addresses_about(route, &mut random, 6));
        }
        let anew = F::build(&rib, &config.with_memory_max(memory_max + apart));
        assert_eq!(anew.err(), None, "it holds the memory taken");
        assert!(matches!(F::build(&rib, &config.with_memory_max(1000)), Err(BuildError::NeedsMemory { .. })));
        rib.insert(Prefix::ALL, 1 << 16).expect("there is room");
        assert!(matches!(fib.update(&rib, Prefix::ALL), Err(BuildError::HopTooLarge { .. })));
    }
    check::<Dir24>((2 << 24) + 64 * 512 + 8, 0);
    // In another order the blocks leave other gaps.
    check::<Compact>(3 << 19, 1 << 13);
}

/// Many next hops one after the other are no more than two at a time, and some that stay: many of those leave few numbers
/// of one byte to the others.
#[test]
fn next_hops_that_come_and_go_take_no_memory() {
    for stay in [0, 200] {
        let (size, mut rib) = (HopSize::B4, Rib::new(1000));
        let route: Prefix<u32> = "10.1.2.0/24".parse().expect("a prefix");
        let fresh = Compact::build(&rib, &config(size)).expect("there is memory").table_bytes();
        // Not enough for codes of two bytes.
        let config = config(size).with_memory_max(fresh + (1 << 12));
        let mut fib = Compact::build(&rib, &config).expect("there is memory");
        for n in 0..stay {
            let route = Prefix::truncated(0x0a02_0000 | n << 8, 24);
            rib.insert(route, 10_000 + u64::from(n)).expect("there is room");
            fib.update(&rib, route).expect("there is memory");
        }
        for next_hop in 100..3100 {
            rib.insert(route, next_hop).expect("there is room");
            assert_eq!(fib.update(&rib, route), Ok(()), "next hop {next_hop}");
            assert_eq!((fib.lookup(0x0a01_0201), fib.next_hops()), (next_hop, 2 + stay as usize));
        }
        assert!(fib.table_bytes() <= fresh + (1 << 12));
    }
}

/// Memory that a refused large change would have taken is available to small ones of another kind.
#[test]
fn a_refused_change_leaves_its_memory_to_others() {
    for len in [24, 32] {
        leaves_its_memory(len);
    }
}

fn leaves_its_memory(len: u8) {
    let host: Prefix<u32> = "192.0.2.1/32".parse().expect("a prefix");
    let mut rib = Rib::new(4096);
    let fresh = Compact::build(&rib, &config(HopSize::B4)).expect("there is memory").table_bytes();
    let config = config(HopSize::B4).with_memory_max(fresh + 100_000);
    let mut fib = Compact::build(&rib, &config).expect("there is memory");
    let many: Vec<Prefix<u32>> = (0..1000).map(|n| Prefix::truncated(n << 16, len)).collect();
    many.iter().for_each(|route| _ = rib.insert(*route, 7).expect("there is room"));
    assert!(matches!(fib.update(&rib, Prefix::ALL), Err(BuildError::NeedsMemory { .. })));
    assert_eq!(fib.table_bytes(), fresh);
    many.iter().for_each(|route| _ = rib.remove(*route));
    rib.insert(host, 8).expect("there is room");
    assert_eq!(fib.update(&rib, host), Ok(()));
    assert_same(&fib, &rib, &[0xc000_0201, 0xc000_0200, 0, 1 << 16]);
}

/// Codes would have had two bytes by the time that the change was refused.
#[test]
fn a_refused_change_leaves_codes_of_one_byte() {
    let mut rib = Rib::new(4096);
    let mut fib = Compact::build(&rib, &config(HopSize::B2)).expect("there is memory");
    let fresh = fib.table_bytes();
    let routes: Vec<Prefix<u32>> = (0..400).map(|n| Prefix::truncated(n << 12, 24)).collect();
    for (n, route) in (0..).zip(&routes) {
        rib.insert(*route, 1000 + n).expect("there is room");
    }
    let last = Prefix::truncated(0xff00_0000, 8);
    rib.insert(last, 70_000).expect("there is room");
    assert!(matches!(fib.update(&rib, Prefix::ALL), Err(BuildError::HopTooLarge { .. })));
    assert_eq!((fib.table_bytes(), fib.next_hops()), (fresh, 1));
    rib.insert(last, 5).expect("there is room");
    // One after the other up to all that codes of one byte number, and beyond.
    for route in routes.iter().chain([&last]) {
        assert_eq!(fib.update(&rib, *route), Ok(()));
        assert_same(&fib, &rib, &[route.first(), route.last()]);
    }
    assert_eq!(fib.next_hops(), 402);
    assert_same(&fib, &rib, &(0..1600).map(|n| n << 10).collect::<Vec<u32>>());
}

#[test]
fn routes_and_their_table_change_together() {
    let p = |text: &str| text.parse::<Prefix<u32>>().expect("a prefix");
    let mut routes = Routes::<u32, AnyFib<u32>>::new(3, &config(HopSize::B2)).expect("there is memory");
    assert_eq!(routes.fib().engine(), Engine::Compact);
    let reader = routes.fib().reader();
    assert_eq!(reader.lookup(0x0a00_0001), DEFAULT);
    assert_eq!(routes.add(p("10.0.0.0/8"), 7), Ok(()));
    assert_eq!(routes.add(p("10.0.0.0/8"), 8), Err(RouteError::Exists { next_hop: 7 }));
    assert_eq!((reader.lookup(0x0a00_0001), routes.get(p("10.0.0.0/8"))), (7, Some(7)));
    assert_eq!(routes.replace(p("10.0.0.0/8"), 8), Ok(Some(7)));
    assert_eq!(routes.replace(p("10.0.0.0/30"), 9), Ok(None));
    assert_eq!((reader.lookup(0x0a00_0001), reader.lookup(0x0a00_0004)), (9, 8));
    assert!(matches!(routes.replace(p("10.0.0.0/30"), 1 << 16), Err(RouteError::Fib(_))));
    assert!(matches!(routes.add(p("11.0.0.0/8"), 1 << 16), Err(RouteError::Fib(_))));
    assert_eq!((routes.len(), routes.get(p("10.0.0.0/30"))), (2, Some(9)));
    assert_eq!(routes.lookup(0x0a00_0001), Some((p("10.0.0.0/30"), 9)));
    assert_eq!(routes.add(p("12.0.0.0/8"), 1), Ok(()));
    assert!(matches!(routes.add(p("13.0.0.0/8"), 1), Err(RouteError::Rib(_))));
    assert_eq!(routes.delete(p("10.0.0.0/30")), Ok(9));
    assert_eq!(routes.delete(p("10.0.0.0/30")), Err(RouteError::Missing));
    assert_eq!(reader.lookup(0x0a00_0001), 8);
    assert_eq!(routes.walk(Prefix::ALL).count(), 2);
}

#[test]
fn more_next_hops_than_compact_numbers_are_refused_or_go_to_dir24() {
    let mut rib = Rib::new(1 << 17);
    for n in 0..70_000 {
        rib.insert(Prefix::truncated(n << 8, 24), n.into()).expect("there is room");
    }
    let error =
        u32::build(Engine::Compact, &rib, &config(HopSize::B4)).expect("IPv4 has it").expect_err("too many");
    assert!(error.to_string().contains("70000 different next hops"), "{error}");
    let fib = AnyFib::<u32>::build(&rib, &config(HopSize::B4)).expect("there is memory");
    assert_eq!(fib.engine(), Engine::Dir24);
    assert_eq!((fib.lookup(69_999 << 8), fib.lookup(u32::MAX)), (69_999, DEFAULT));
}

#[test]
fn routes_beyond_24_bits_call_for_dir24_where_there_is_memory() {
    let mut rib = Rib::new(1000);
    let put = |rib: &mut Rib<u32>, n: u32, len| {
        rib.insert(Prefix::truncated(0x0a00_0000 | n << 8, len), n.into()).expect("there is room");
    };
    (0..300).for_each(|n| put(&mut rib, n, 24));
    (300..400).for_each(|n| put(&mut rib, n, 30));
    let ample = config(HopSize::B2);
    let engine = |rib: &Rib<u32>, config| AnyFib::build(rib, config).expect("there is memory").engine();
    assert_eq!(engine(&rib, &ample), Engine::Compact, "a quarter is not more");
    put(&mut rib, 400, 32);
    assert_eq!(engine(&rib, &ample), Engine::Dir24);
    assert_eq!(engine(&rib, &ample.with_memory_max(4 << 20)), Engine::Compact);
}

#[test]
fn dir24_takes_memory_where_routes_are() {
    let mut rib = Rib::new(1000);
    rib.insert(Prefix::ALL, 3).expect("there is room");
    rib.insert("10.0.0.0/16".parse().expect("a prefix"), 4).expect("there is room");
    rib.insert("10.0.7.8/32".parse().expect("a prefix"), 5).expect("there is room");
    for size in HopSize::ALL {
        let mut fib = Dir24::build(&rib, &config(size)).expect("there is memory");
        assert!(fib.table_bytes() < 3 << 20, "{}", fib.table_bytes());
        let addresses = [0x0a00_0708, 0x0a00_0709, 0x0b00_0000, 0, u32::MAX];
        assert_same(&fib, &rib, &addresses);
        // The default route changes, and goes.
        let before = rib.clone();
        rib.insert(Prefix::ALL, 6).expect("there is room");
        fib.update(&rib, Prefix::ALL).expect("there is memory");
        assert_same(&fib, &rib, &addresses);
        rib.remove(Prefix::ALL);
        fib.update(&rib, Prefix::ALL).expect("there is memory");
        assert_same(&fib, &rib, &addresses);
        rib = before;
    }
}

#[test]
fn one_byte_of_next_hop_numbers_no_more_than_128_groups_of_dir24() {
    let mut rib = Rib::new(1 << 12);
    let mut fib = Dir24::build(&rib, &config(HopSize::B1)).expect("there is memory");
    for n in 0..130 {
        let host = Prefix::truncated(n << 8, 32);
        rib.insert(host, 5).expect("there is room");
        match fib.update(&rib, host) {
            Ok(()) => assert!(n < 128),
            Err(error) => assert_eq!((n >= 128, error.to_string().contains("128")), (true, true), "{error}"),
        }
    }
    assert!((0..128).all(|n| fib.lookup(n << 8) == 5 && fib.lookup(n << 8 | 1) == DEFAULT));
}
