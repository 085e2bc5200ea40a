//! Tables and addresses for tests of both forwarding tables.

use crate::isa::Variant;
use crate::isa::testing::for_each_variant;
use crate::route::{BuildError, Fib, FibConfig, HopSize, Prefix, Rib};

/// A small generator: the same numbers everywhere.
#[derive(Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn address(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}

/// How prefixes are drawn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// Any lengths, deeply nested: addresses that differ in few bits.
    Nested,
    /// Lengths as providers announce them, in clusters.
    Clustered,
    /// Host routes of one /64.
    Hosts,
    /// Host routes anywhere.
    FarHosts,
    /// Prefixes of 65 to 128 bits in few /64.
    Long,
}

pub(super) const SHAPES: [Shape; 5] =
    [Shape::Nested, Shape::Clustered, Shape::Hosts, Shape::FarHosts, Shape::Long];

impl Shape {
    pub(super) fn prefix(self, random: &mut Random) -> Prefix<u128> {
        let base = 0x2001_0db8_0000_0000_u128 << 64;
        let (address, len) = match self {
            Self::Nested => {
                let bits = (random.address() & random.address()) & random.address();
                (bits | 0x2 << 124, random.below(129) as u8)
            }
            Self::Clustered => {
                let provider = random.below(4) << 61 | random.below(20) << 32;
                let len = [20, 28, 29, 32, 36, 40, 44, 47, 48, 48, 48, 48, 56, 64][random.below(14) as usize];
                (u128::from(provider | random.below(1 << 18) << 16) << 64, len)
            }
            Self::Hosts => (base | u128::from(random.next() >> 40), 128),
            Self::FarHosts => (random.address(), 128),
            Self::Long => {
                let host = u128::from(random.next() & random.next() & 0xffff_0000_ffff_0000);
                (base | u128::from(random.below(3)) << 64 | host, 65 + random.below(64) as u8)
            }
        };
        Prefix::truncated(address, len)
    }
}

/// A next hop of at most half of what fits this size.
pub(super) fn hop(random: &mut Random, size: HopSize) -> u64 {
    let any = if random.below(2) == 0 { random.below(5) } else { random.next() };
    any & size.max() >> 1
}

/// A table of `routes` prefixes, fewer where some are the same.
pub(super) fn rib(shape: Shape, routes: usize, size: HopSize, random: &mut Random) -> Rib<u128> {
    let mut rib = Rib::new(1 << 20);
    for _ in 0..routes {
        rib.insert(shape.prefix(random), hop(random, size)).expect("there is room");
    }
    rib
}

/// Addresses beside all boundaries, and random ones.
pub(super) fn addresses(rib: &Rib<u128>, random: &mut Random) -> Vec<u128> {
    let mut all = vec![0, u128::MAX];
    for (prefix, _) in rib.walk(Prefix::ALL) {
        let (first, last) = (prefix.first(), prefix.last());
        let inside = first | random.address() & (last - first);
        all.extend([first.wrapping_sub(1), first, inside, last, last.wrapping_add(1)]);
    }
    all.extend((0..100).map(|_| random.address()));
    // Neighbours in a batch shall not be neighbours in the table.
    for i in (1..all.len()).rev() {
        all.swap(i, random.below(i as u64 + 1) as usize);
    }
    all
}

/// Checks every address, alone and in a batch, against the routes.
pub(super) fn check(fib: &impl Fib<u128>, rib: &Rib<u128>, addresses: &[u128], default: u64) {
    let mut found = vec![u64::MAX; addresses.len()];
    fib.lookup_batch(addresses, &mut found);
    for (&address, &found) in addresses.iter().zip(&found) {
        let expected = rib.lookup(address).map_or(default, |(_, next_hop)| next_hop);
        assert_eq!(found, expected, "{} in a batch, {}", std::net::Ipv6Addr::from(address), fib.variant());
        assert_eq!(fib.lookup(address), expected, "{} alone", std::net::Ipv6Addr::from(address));
    }
}

/// Every variant finds what the routes say, in tables of all shapes, with next hops of all sizes.
pub(super) fn agrees_with_the_routes<F: Fib<u128>>(sizes: &[HopSize], default: u64) {
    for_each_variant(|variant| {
        let mut random = Random(1);
        // Sizes take turns, others with each shape: a table of each shape in each size would be gigabytes to fill.
        let mut sizes = sizes.iter().copied().cycle();
        for shape in SHAPES {
            for routes in [0, 1, 7, 60, 700] {
                let size = sizes.next().expect("there are sizes");
                let mut rib = rib(shape, routes, size, &mut random);
                if routes == 7 {
                    rib.insert(Prefix::ALL, 3).expect("there is room");
                }
                let config = config(size, variant).with_default_next_hop(default);
                let fib = F::build(&rib, &config).expect("it fits");
                check(&fib, &rib, &addresses(&rib, &mut random), default);
            }
        }
    });
}

pub(super) fn config(size: HopSize, variant: Variant) -> FibConfig {
    let config = FibConfig::new(size).with_default_next_hop(7).with_memory_max(256 << 20);
    config.with_variant(variant).expect("the variant is there")
}

/// Batches of all lengths around the widths of kernels are answered in order.
pub(super) fn answers_batches_of_all_lengths<F: Fib<u128>>() {
    for_each_variant(|variant| {
        let mut random = Random(2);
        let rib = rib(Shape::Clustered, 500, HopSize::B4, &mut random);
        let fib = F::build(&rib, &config(HopSize::B4, variant)).expect("it fits");
        let all = addresses(&rib, &mut random);
        for len in 0..=140 {
            check(&fib, &rib, &all[..len], 7);
            let mut untouched = [9; 150];
            fib.lookup_batch(&all[..len], &mut untouched);
            assert!(untouched[len..].iter().all(|hop| *hop == 9));
        }
    });
}

/// After every change the table is the one that the routes say.
pub(super) fn follows_changes<F: Fib<u128>>(sizes: &[HopSize]) {
    for (shape, size) in SHAPES.into_iter().zip(sizes.iter().cycle()) {
        let mut random = Random(3);
        let mut rib = rib(shape, 300, *size, &mut random);
        let mut fib = F::build(&rib, &FibConfig::new(*size).with_default_next_hop(7)).expect("it fits");
        let mut known: Vec<_> = rib.walk(Prefix::ALL).map(|(prefix, _)| prefix).collect();
        for step in 0..600 {
            let is_old = random.below(2) == 0;
            let prefix = match known.get(random.below(known.len() as u64) as usize) {
                Some(prefix) if is_old => *prefix,
                _ if random.below(40) == 0 => Prefix::truncated(random.address(), random.below(20) as u8),
                _ => shape.prefix(&mut random),
            };
            if random.below(2) == 0 && rib.remove(prefix).is_some() {
                known.retain(|other| *other != prefix);
            } else {
                rib.insert(prefix, hop(&mut random, *size)).expect("there is room");
                known.push(prefix);
            }
            fib.update(&rib, prefix).expect("it fits");
            let (first, last) = (prefix.first(), prefix.last());
            let inside = first | random.address() & (last - first);
            let beside = [first.wrapping_sub(1), first, inside, last, last.wrapping_add(1), random.address()];
            check(&fib, &rib, &beside, 7);
            if step % 100 == 0 {
                check(&fib, &rib, &addresses(&rib, &mut random), 7);
            }
        }
        check(&fib, &rib, &addresses(&rib, &mut random), 7);
    }
}

/// Adding and deleting the same routes, again and again, takes no memory.
pub(super) fn keeps_its_size_under_churn<F: Fib<u128>>(size: HopSize, settled: impl Fn(&mut F) -> usize) {
    for shape in [Shape::Clustered, Shape::Nested, Shape::Hosts] {
        let mut random = Random(4);
        let mut rib = rib(shape, 3000, size, &mut random);
        let mut fib = F::build(&rib, &FibConfig::new(size)).expect("it fits");
        let before = settled(&mut fib);
        for _ in 0..2000 {
            let prefix = shape.prefix(&mut random);
            if prefix.len() < 20 || rib.get(prefix).is_some() {
                continue;
            }
            rib.insert(prefix, hop(&mut random, size)).expect("there is room");
            fib.update(&rib, prefix).expect("it fits");
            rib.remove(prefix);
            fib.update(&rib, prefix).expect("it fits");
        }
        assert_eq!(settled(&mut fib), before, "{shape:?}");
        check(&fib, &rib, &addresses(&rib, &mut random), 0);
    }
}

/// A change that does not fit is refused, and changes nothing; with it undone, others are made.
pub(super) fn refuses_what_does_not_fit<F: Fib<u128>>(memory_max: usize) {
    let size = HopSize::B4;
    let mut random = Random(5);
    let mut rib = Rib::new(1 << 20);
    let config = FibConfig::new(size).with_memory_max(memory_max);
    let mut fib = F::build(&rib, &config).expect("an empty table fits");
    let mut refused = 0;
    for step in 0..40_000 {
        let prefix = Shape::FarHosts.prefix(&mut random);
        rib.insert(prefix, random.below(1 << 31)).expect("there is room");
        match fib.update(&rib, prefix) {
            Ok(()) => {}
            Err(BuildError::NeedsMemory { needed, max }) => {
                assert!(needed > max, "{needed} bytes of {max}");
                rib.remove(prefix);
                refused += 1;
                if refused % 100 == 1 {
                    check(&fib, &rib, &addresses(&rib, &mut random)[..500], 0);
                }
            }
            Err(error) => panic!("{error}"),
        }
        if refused == 300 {
            println!("full after {step} routes");
            break;
        }
    }
    assert_eq!(refused, 300, "the budget was never reached");
    assert!(F::build(&rib, &config.with_memory_max(1 << 10)).is_err());
    let all: Vec<_> = rib.walk(Prefix::ALL).map(|(prefix, _)| prefix).collect();
    for prefix in &all {
        rib.remove(*prefix);
        fib.update(&rib, *prefix).expect("less takes no memory");
    }
    check(&fib, &rib, &addresses(&rib, &mut random), 0);
}

/// Readers beside a writer see, for every address, a next hop that its routes had at some time.
pub(super) fn readers_see_old_or_new<F: Fib<u128>>()
where
    F::Reader: Send,
{
    use crate::route::FibReader;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let mut random = Random(6);
    // A next hop says which /40 it is for: an address below another would be seen.
    let of =
        |prefix: Prefix<u128>, turn: u64| (prefix.first() >> 88) as u64 & 0xff_ffff | (turn & 0x3f) << 24;
    let mut rib = Rib::new(1 << 16);
    let base = 0x2001_0db8_u128 << 96;
    let stable: Vec<_> = (0..200u128).map(|i| Prefix::truncated(base | i << 88, 40)).collect();
    for prefix in &stable {
        rib.insert(*prefix, of(*prefix, 0)).expect("there is room");
    }
    let mut fib = F::build(&rib, &FibConfig::new(HopSize::B4)).expect("it fits");
    /// Readers end with the writer, however it ends.
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _done = Done(&done);
        for seed in 0..2 {
            let (reader, done, stable) = (fib.reader(), &done, &stable);
            scope.spawn(move || {
                let mut random = Random(100 + seed);
                let mut found = [0; 80];
                while !done.load(Relaxed) {
                    let inside: Vec<u128> = (0..80)
                        .map(|_| stable[random.below(200) as usize].first() | random.address() >> 40)
                        .collect();
                    reader.lookup_batch(&inside, &mut found);
                    for (address, found) in inside.iter().zip(found) {
                        assert_eq!(found & 0xff_ffff, (address >> 88) as u64 & 0xff_ffff);
                    }
                }
            });
        }
        for turn in 0..4000 {
            let inside = stable[random.below(200) as usize];
            let len = [48, 56, 64, 100, 128][random.below(5) as usize];
            let prefix = Prefix::truncated(inside.first() | random.address() >> 40 & !0xff_ffff, len);
            rib.insert(prefix, of(prefix, turn)).expect("there is room");
            fib.update(&rib, prefix).expect("it fits");
            if turn % 5 != 0 {
                rib.remove(prefix);
                fib.update(&rib, prefix).expect("it fits");
            }
        }
    });
}
