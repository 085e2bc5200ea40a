//! The routes against a sorted map scanned from end to end.

use std::collections::BTreeMap;

use super::*;
use crate::generate::random::Random;

type Map<A> = BTreeMap<Prefix<A>, u64>;

fn scan<A: Address>(map: &Map<A>, prefix: Prefix<A>, len_max: u8) -> Option<(Prefix<A>, u64)> {
    let covering = map.iter().filter(|(route, _)| route.covers(prefix) && route.len() <= len_max);
    covering.max_by_key(|(route, _)| route.len()).map(|(route, next_hop)| (*route, *next_hop))
}

/// Addresses of few different bits, so that prefixes nest and collide; some at both ends of the space.
fn address<A: Address>(random: &mut Random) -> A {
    let top = A::from_first_bits(random.below(4) as u32 * 0x4000_0300, 32);
    let low = A::MAX & !A::mask(A::BITS - 8);
    let tail = A::from_first_bits(random.bits() as u32 & 0x0003_0f0f, 32);
    match random.below(8) {
        0 => A::MAX,
        1 => A::ZERO,
        2 => top | low,
        _ => top | tail,
    }
}

fn prefix<A: Address>(random: &mut Random) -> Prefix<A> {
    let len = match random.below(4) {
        0 => random.below(u64::from(A::BITS) + 1) as u8,
        1 => A::BITS - random.below(3) as u8,
        _ => 8 + random.below(25) as u8,
    };
    Prefix::truncated(address(random), len)
}

fn assert_same<A: Address>(rib: &Rib<A>, map: &Map<A>, random: &mut Random) {
    assert_eq!(rib.len(), map.len());
    for _ in 0..4 {
        let (prefix, address) = (prefix::<A>(random), address::<A>(random));
        assert_eq!(rib.get(prefix), map.get(&prefix).copied(), "{prefix}");
        let host = Prefix::truncated(address, A::BITS);
        assert_eq!(rib.lookup(address), scan(map, host, A::BITS), "{host}");
        let covering = prefix.len().checked_sub(1).and_then(|len_max| scan(map, prefix, len_max));
        assert_eq!(rib.covering(prefix), covering, "{prefix}");
        let below = map.iter().filter(|(route, _)| prefix.covers(**route)).map(|(r, n)| (*r, *n));
        assert!(rib.walk(prefix).eq(below), "below {prefix}");
        let (outer, inside) = rib.inside(prefix);
        assert_eq!(outer, scan(map, prefix, prefix.len()).map(|found| found.1), "{prefix}");
        let below = map.iter().filter(|(route, _)| prefix.covers(**route) && **route != prefix);
        assert!(inside.eq(below.map(|(r, n)| (*r, *n))), "inside {prefix}");
        assert_spans(rib, prefix, random);
    }
}

fn assert_spans<A: Address>(rib: &Rib<A>, prefix: Prefix<A>, random: &mut Random) {
    let mut spans = Vec::new();
    rib.spans(prefix, |first, last, next_hop| spans.push((first, last, next_hop)));
    assert_eq!(spans.first().map(|s| s.0), Some(prefix.first()), "{prefix}");
    assert_eq!(spans.last().map(|s| s.1), Some(prefix.last()), "{prefix}");
    for pair in spans.windows(2) {
        assert_eq!(pair[0].1.next(), Some(pair[1].0), "{prefix} is not tiled");
        assert_ne!(pair[0].2, pair[1].2, "neighbours in {prefix}");
    }
    for (first, last, next_hop) in spans {
        let inside = first | (address::<A>(random) & !A::mask(prefix.len()));
        for address in [first, last, inside].into_iter().filter(|a| (first..=last).contains(a)) {
            assert_eq!(rib.lookup(address).map(|found| found.1), next_hop, "{:?}", address.to_ip());
        }
    }
}

fn agrees_with_a_map<A: Address>(routes_max: usize, seed: u64) {
    let mut random = Random::new(seed);
    let (mut rib, mut map) = (Rib::<A>::new(routes_max), Map::new());
    for step in 0..1500 {
        let prefix = prefix(&mut random);
        let next_hop = random.below(5);
        if random.below(3) > (step / 500) % 2 {
            let full = map.len() == routes_max && !map.contains_key(&prefix);
            let expected =
                if full { Err(RibError::Full { routes_max }) } else { Ok(map.insert(prefix, next_hop)) };
            assert_eq!(rib.insert(prefix, next_hop), expected, "{prefix}");
        } else {
            assert_eq!(rib.remove(prefix), map.remove(&prefix), "{prefix}");
        }
        if step % 4 == 0 {
            assert_same(&rib, &map, &mut random);
        }
    }
    for prefix in map.keys().copied().collect::<Vec<_>>() {
        assert_eq!(rib.remove(prefix), map.remove(&prefix));
    }
    assert_same(&rib, &map, &mut random);
}

#[test]
fn tables_of_all_sizes_agree_with_a_linear_scan() {
    for (seed, routes_max) in [1, 2, 40, 300, 5000, 1 << 16].into_iter().enumerate() {
        agrees_with_a_map::<u32>(routes_max, seed as u64);
        agrees_with_a_map::<u128>(routes_max, seed as u64);
    }
}

#[test]
fn churn_leaves_the_memory_as_it_was() {
    let mut random = Random::new(7);
    let mut rib = Rib::<u32>::new(4096);
    let prefixes: Vec<_> = (0..3000).map(|_| Prefix::truncated(random.bits() as u32, 24)).collect();
    let fill = |rib: &mut Rib<u32>| {
        for prefix in &prefixes {
            rib.insert(*prefix, 1).expect("there is room");
        }
    };
    fill(&mut rib);
    let bytes = rib.table_bytes();
    for _ in 0..20 {
        let mut order = prefixes.clone();
        random.shuffle(&mut order);
        for prefix in order {
            rib.remove(prefix);
        }
        assert!(rib.is_empty());
        fill(&mut rib);
    }
    // Leaves part elsewhere when routes come in another order: a few more, no trend.
    assert!(rib.table_bytes() <= bytes * 9 / 8, "{bytes} bytes before, {} after", rib.table_bytes());
}
