//! Route tables like the Internet's, updates to them, and addresses to look up in them.
//!
//! The shares of prefix lengths are those of a full table of 2023 (901,899 IPv4 and 160,147 IPv6 prefixes), rounded.
//! As there, most prefixes lie inside shorter ones and beside one of their own length: a network that announces its
//! block in parts announces several that follow each other. They are spread somewhat wider than there (268,000 blocks
//! of 20 bits in use instead of 172,000), which favours no structure that lives on clusters.
//!
//! ```text
//! lengths by share, shortest first ─► a run of one to some adjacent prefixes of a length, at a place that is
//!                                     inside a prefix made before (half of them), or anywhere in announced space
//! ```
//!
//! Next hops are drawn for each prefix: neighbours seldom share one, so that tables that merge equal neighbours
//! gain nothing here that they might not have with the next table.

use std::collections::HashSet;

use super::locality::{Locality, Sampler};
use super::random::Random;
use crate::route::{Address, Prefix};

/// A table to be generated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouteConfig {
    /// How many routes; fewer are made where no more find room (beyond some 10 million for IPv4).
    pub count: usize,
    /// Next hops are numbers from 1 to this one; 1 at least.
    pub next_hops: u64,
    /// Another seed, another table.
    pub seed: u64,
}

/// A family whose tables can be generated.
pub trait Internet: Address {
    /// Prefix lengths and how often they occur.
    const LENGTHS: &'static [(u8, u32)];

    /// The length of the prefixes that a place anywhere is drawn among.
    const BLOCK: u8;

    /// How many in a hundred runs begin inside a prefix made before.
    const INSIDE: u64;

    /// An address somewhere in announced space.
    fn anywhere(random: &mut Random) -> Self;

    /// Random bits.
    fn random(random: &mut Random) -> Self;
}

impl Internet for u32 {
    const LENGTHS: &'static [(u8, u32)] = &[
        (8, 2),
        (9, 1),
        (10, 4),
        (11, 11),
        (12, 33),
        (13, 64),
        (14, 133),
        (15, 233),
        (16, 1496),
        (17, 913),
        (18, 1530),
        (19, 2757),
        (20, 4725),
        (21, 5627),
        (22, 12044),
        (23, 10701),
        (24, 59618),
        (25, 2),
        (27, 1),
        (28, 2),
        (29, 2),
        (32, 98),
    ];
    const BLOCK: u8 = 16;
    const INSIDE: u64 = 20;

    fn anywhere(random: &mut Random) -> Self {
        // 1.0.0.0 to 223.255.255.255 without 10 and 127, and there the half of the blocks that are in use.
        loop {
            let address = random.bits() as u32;
            let in_use = (address >> 16).wrapping_mul(0x9e37_79b1) >> 31 == 0;
            if in_use && !matches!(address >> 24, 0 | 10 | 127 | 224..) {
                return address;
            }
        }
    }

    fn random(random: &mut Random) -> Self {
        random.bits() as u32
    }
}

/// First 16 bits of announced IPv6 space, busiest first: half of the prefixes lie in the first eight.
const IPV6_BLOCKS: [u16; 32] = [
    0x2001, 0x2804, 0x2409, 0x2a02, 0x2402, 0x2408, 0x2600, 0x2401, 0x2a05, 0x2400, 0x2806, 0x2a00, 0x2800,
    0x2604, 0x240e, 0x2803, 0x2620, 0x2a01, 0x2407, 0x2607, 0x2a03, 0x2605, 0x2404, 0x2602, 0x2405, 0x2606,
    0x2a0b, 0x2406, 0x2a06, 0x2a04, 0x2a0e, 0x2c0f,
];

impl Internet for u128 {
    const LENGTHS: &'static [(u8, u32)] = &[
        (20, 10),
        (24, 19),
        (28, 121),
        (29, 2729),
        (30, 406),
        (31, 177),
        (32, 14080),
        (33, 1827),
        (34, 1625),
        (35, 651),
        (36, 3744),
        (37, 550),
        (38, 1010),
        (39, 860),
        (40, 8379),
        (41, 564),
        (42, 1437),
        (43, 625),
        (44, 8970),
        (45, 970),
        (46, 1898),
        (47, 1969),
        (48, 47136),
        (56, 27),
        (64, 115),
        (127, 26),
        (128, 4),
    ];
    const BLOCK: u8 = 32;
    const INSIDE: u64 = 75;

    fn anywhere(random: &mut Random) -> Self {
        // The lesser of two draws: the first blocks are busier.
        let [one, other] = [0; 2].map(|_| random.index(IPV6_BLOCKS.len()));
        let block = IPV6_BLOCKS[one.min(other)];
        u128::from(block) << 112 | Self::random(random) >> 16
    }

    fn random(random: &mut Random) -> Self {
        u128::from(random.bits()) << 64 | u128::from(random.bits())
    }
}

/// How many in a hundred runs go on after each prefix.
const RUN: u64 = 45;

/// A table: each prefix once, in a random order.
pub fn generate_routes<A: Internet>(config: &RouteConfig) -> Vec<(Prefix<A>, u64)> {
    let random = &mut Random::for_purpose(config.seed, "routes");
    let total: u64 = A::LENGTHS.iter().map(|(_, share)| u64::from(*share)).sum();
    let mut made: Vec<Prefix<A>> = Vec::with_capacity(config.count);
    let mut seen: HashSet<Prefix<A>> = HashSet::with_capacity(config.count);
    let mut owed = 0;
    for &(len, share) in A::LENGTHS {
        owed += config.count as u64 * u64::from(share);
        // The last length takes what rounding has left.
        let until =
            if len == A::LENGTHS[A::LENGTHS.len() - 1].0 { config.count as u64 } else { owed / total };
        let shorter = made.len();
        let mut tries = 16 * (until as usize - shorter.min(until as usize)) + 64;
        while (made.len() as u64) < until && tries > 0 {
            let mut next = Some(place(random, &made[..shorter], len));
            while let Some(prefix) = next.filter(|_| (made.len() as u64) < until && tries > 0) {
                tries -= 1;
                if seen.insert(prefix) {
                    made.push(prefix);
                }
                let after = prefix.last().next().filter(|_| random.below(100) < RUN);
                next = after.map(|address| Prefix::truncated(address, len));
            }
        }
    }
    random.shuffle(&mut made);
    made.into_iter().map(|prefix| (prefix, 1 + random.below(config.next_hops.max(1)))).collect()
}

/// Where a run of prefixes of this length begins.
fn place<A: Internet>(random: &mut Random, shorter: &[Prefix<A>], len: u8) -> Prefix<A> {
    let outer = match random.below(100) < A::INSIDE && !shorter.is_empty() {
        true => shorter[random.index(shorter.len())],
        false => Prefix::truncated(A::anywhere(random), A::BLOCK.min(len)),
    };
    // Parts are numbered from the lowest: of the bits behind the outer prefix, mostly the last few vary.
    let bits = A::random(random) & !A::mask(outer.len());
    let vary =
        if random.chance(0.5) { bits & !A::mask(len.saturating_sub(5).max(outer.len())) } else { bits };
    Prefix::truncated(outer.first() | vary, len)
}

/// Changes to a table, in order: prefix and next hop, or none where the route is withdrawn.
///
/// Three in four are announcements, as in real traces: of routes with another next hop, and of routes that were
/// withdrawn before.
pub fn generate_updates<A: Address>(
    routes: &[(Prefix<A>, u64)],
    next_hops: u64,
    count: usize,
    seed: u64,
) -> Vec<(Prefix<A>, Option<u64>)> {
    if routes.is_empty() {
        return Vec::new();
    }
    let random = &mut Random::for_purpose(seed, "route updates");
    let mut is_there = vec![true; routes.len()];
    let mut gone: Vec<usize> = Vec::new();
    let mut one = || {
        let hop = 1 + random.below(next_hops.max(1));
        let route = random.index(routes.len());
        // A route that is not there is one of those that are gone.
        if !is_there[route] || (!gone.is_empty() && random.below(4) == 0) {
            let back = gone.swap_remove(random.index(gone.len()));
            is_there[back] = true;
            return (routes[back].0, Some(hop));
        }
        if random.below(3) != 0 {
            return (routes[route].0, Some(hop));
        }
        is_there[route] = false;
        gone.push(route);
        (routes[route].0, None)
    };
    (0..count).map(|_| one()).collect()
}

/// Addresses to look up: each inside a route that `locality` picks, except the share `miss`, which lies anywhere.
pub fn generate_addresses<A: Internet>(
    routes: &[(Prefix<A>, u64)],
    locality: Locality,
    miss: f64,
    count: usize,
    seed: u64,
) -> Vec<A> {
    let random = &mut Random::for_purpose(seed, "addresses");
    let mut sampler = Sampler::new(locality, routes.len() as u32);
    let mut one = || {
        if routes.is_empty() || random.chance(miss) {
            return A::random(random);
        }
        let (prefix, _) = routes[sampler.draw(random) as usize];
        prefix.first() | (A::random(random) & !A::mask(prefix.len()))
    };
    (0..count).map(|_| one()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table<A: Internet>(count: usize) -> Vec<(Prefix<A>, u64)> {
        generate_routes(&RouteConfig { count, next_hops: 200, seed: 7 })
    }

    /// The shares in a hundred of prefixes inside others, of those with a neighbour, and of one length.
    fn shares<A: Internet>(routes: &[(Prefix<A>, u64)], len: u8) -> [usize; 3] {
        let all: HashSet<Prefix<A>> = routes.iter().map(|(prefix, _)| *prefix).collect();
        assert_eq!(all.len(), routes.len());
        let inside = |p: &Prefix<A>| (0..p.len()).any(|l| all.contains(&Prefix::truncated(p.first(), l)));
        let beside = |p: &Prefix<A>| {
            let near = [p.first().previous(), p.last().next()];
            near.into_iter().flatten().any(|a| all.contains(&Prefix::truncated(a, p.len())))
        };
        let share = |is: &dyn Fn(&Prefix<A>) -> bool| 100 * all.iter().filter(|p| is(p)).count() / all.len();
        [share(&inside), share(&beside), share(&|p| p.len() == len)]
    }

    #[test]
    fn tables_are_like_the_internets() {
        let v4 = table::<u32>(50_000);
        assert_eq!(v4.len(), 50_000);
        // A full table has 51, 79, 60 and 57, 66, 47.
        let [inside, beside, len_24] = shares(&v4, 24);
        assert!((20..=80).contains(&inside) && (60..=80).contains(&beside), "{inside} {beside}");
        assert_eq!(len_24, 59);
        let v6 = table::<u128>(20_000);
        let [inside, beside, len_48] = shares(&v6, 48);
        assert!((20..=80).contains(&inside) && (60..=80).contains(&beside), "{inside} {beside}");
        assert_eq!(len_48, 47);
        assert!(v4.iter().all(|(_, next_hop)| (1..=200).contains(next_hop)));
    }

    #[test]
    fn sequences_are_stable() {
        let print = |n: u64, text: String| {
            text.bytes().fold(n, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
        };
        let v4 = table::<u32>(1000);
        let text = format!(
            "{v4:?} {:?} {:?} {:?}",
            table::<u128>(1000),
            generate_updates(&v4, 9, 100, 1),
            generate_addresses(&v4, Locality::Zipf(1.0), 0.05, 100, 1)
        );
        assert_eq!(format!("{:016x}", print(0xcbf2_9ce4_8422_2325, text)), "69283df7d08a1241");
    }

    #[test]
    fn small_and_overfull_tables_are_made_as_far_as_there_is_room() {
        for count in [0, 1, 2, 17] {
            assert_eq!(table::<u32>(count).len(), count);
            assert_eq!(table::<u128>(count).len(), count);
        }
        assert!(generate_updates::<u32>(&[], 9, 10, 1).is_empty());
        assert_eq!(generate_addresses::<u32>(&[], Locality::Uniform, 0.0, 10, 1).len(), 10);
    }

    #[test]
    fn only_routes_that_are_there_are_withdrawn() {
        let routes = table::<u32>(50);
        let mut there: HashSet<Prefix<u32>> = routes.iter().map(|(prefix, _)| *prefix).collect();
        let updates = generate_updates(&routes, 9, 10_000, 3);
        let withdrawn = updates.iter().filter(|(_, next_hop)| next_hop.is_none()).count();
        assert!((1000..4000).contains(&withdrawn), "{withdrawn}");
        for (prefix, next_hop) in updates {
            match next_hop {
                Some(_) => _ = there.insert(prefix),
                None => assert!(there.remove(&prefix)),
            }
        }
    }

    #[test]
    fn addresses_lie_inside_routes_but_for_the_misses() {
        let routes = table::<u128>(500);
        let inside = |a: &u128| routes.iter().any(|(prefix, _)| prefix.contains(*a));
        let hits = generate_addresses(&routes, Locality::Zipf(1.0), 0.0, 2000, 1);
        assert!(hits.iter().all(inside));
        let some = generate_addresses(&routes, Locality::Uniform, 0.25, 4000, 1);
        let missed = some.iter().filter(|a| !inside(a)).count();
        assert!((850..1150).contains(&missed), "{missed}");
    }
}
