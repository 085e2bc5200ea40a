//! Route lookups and their explanations against a scan of all routes.

use flowlane::generate::Random;

use flowlane::packet::Headers;

use super::*;
use crate::packet::Frame;

const CALL: StageCall = StageCall { table: 1, port: 0, datagram: None };

/// Some next hops, the first of them no group.
fn draw_hops(random: &mut Random) -> Vec<(String, HopSpec)> {
    let mut hops: Vec<(String, HopSpec)> = Vec::new();
    for position in 0..1 + random.index(6) {
        let mut plain: Vec<usize> =
            (0..position).filter(|&at| matches!(hops[at].1, HopSpec::Actions(_))).collect();
        random.shuffle(&mut plain);
        plain.truncate(3);
        let members = plain.into_iter().map(|at| (at, 1 + random.below(3) as u32)).collect();
        let is_group = position > 0 && random.chance(0.5);
        let spec = if is_group { HopSpec::Group(members) } else { HopSpec::Actions(Vec::new()) };
        hops.push((format!("hop{position}"), spec));
    }
    hops
}

/// Routes of few different addresses, each prefix once.
fn draw_routes<A: Address>(random: &mut Random, hops: usize) -> Vec<(Prefix<A>, usize)> {
    let mut routes: Vec<(Prefix<A>, usize)> = Vec::new();
    for _ in 0..random.index(20) {
        let len = [0, 1, 8, 20, 31, 32, A::BITS][random.index(7)];
        let prefix = Prefix::truncated(draw_address(random), len);
        if routes.iter().all(|(there, _)| *there != prefix) {
            routes.push((prefix, random.index(hops)));
        }
    }
    routes
}

fn draw_address<A: Address>(random: &mut Random) -> A {
    A::from_first_bits((random.bits() as u32) & 0x8100_0803, 32)
}

/// Returns the longest of all prefixes that contain an address, and its next hop's position.
fn scan<A: Address>(routes: &[(Prefix<A>, usize)], address: A) -> Option<(String, usize)> {
    let route = routes.iter().filter(|(prefix, _)| prefix.contains(address)).max_by_key(|(p, _)| p.len());
    route.map(|(prefix, position)| (prefix.to_string(), *position))
}

fn counted(table: &RouteTable) -> (u64, Vec<(u64, u64)>) {
    (table.missed, table.next_hops().iter().map(|hop| (hop.packets, hop.bytes)).collect())
}

#[test]
fn explained_routes_are_the_longest_and_agree_with_lookups() {
    // Without route, to a next hop, to a group.
    let mut happened = [0; 3];
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let hops = draw_hops(&mut random);
        let v4 = draw_routes::<u32>(&mut random, hops.len());
        let v6 = draw_routes::<u128>(&mut random, hops.len());
        let config = RouteTableConfig {
            number: 1,
            routes_max: 100,
            memory_max: 128 << 20,
            engine: FibEngine::Compact,
            seed: random.bits(),
            ..RouteTableConfig::default()
        };
        let mut table = RouteTable::new(config, hops.clone(), &v4, &v6).unwrap();
        for _ in 0..100 {
            let mut key = FlowKey::zero();
            let eth_type = [ether_type::IPV4, ether_type::IPV6, ether_type::ARP][random.index(7) % 3];
            key.set(Field::EthType, eth_type.into());
            key.set(Field::TpSrc, random.below(1000).into());
            let (v4_dst, v6_dst) = (draw_address::<u32>(&mut random), draw_address::<u128>(&mut random));
            let route = match eth_type {
                ether_type::IPV4 => {
                    key.set(Field::Ipv4Dst, v4_dst.into());
                    scan(&v4, v4_dst)
                }
                ether_type::IPV6 => {
                    key.set(Field::Ipv6Dst, v6_dst);
                    scan(&v6, v6_dst)
                }
                _ => None,
            };
            let before = counted(&table);
            let (frame, headers) = (Frame::default(), Headers::default());
            let packet = StagePacket { frame: &frame, key: &key, headers: &headers, now_ns: 0 };
            let number = table.decide(CALL, packet);
            let Explanation { verdict, why, .. } = table.explain(CALL, packet, &number);
            assert_eq!((verdict, counted(&table)), (number, before.clone()), "seed {seed}");
            let mut burst = Burst::new(1);
            burst.push(&[], &key, headers, 0);
            let mut verdicts = [u32::MAX; LANES_MAX];
            table.process(CALL, &mut burst, LaneMask::first(1), &mut verdicts);
            assert_eq!(verdicts[0], number, "seed {seed}: {why}");
            table.count(number, 64);
            assert_ne!(counted(&table), before, "seed {seed}: {why}");
            let Some((prefix, position)) = route else {
                assert!(number == 0 && why.starts_with("no route"), "seed {seed}: {why}");
                happened[0] += 1;
                continue;
            };
            let picked = number as usize - 1;
            let (name, picked_name) = (&hops[position].0, &hops[picked].0);
            match &hops[position].1 {
                HopSpec::Actions(_) | HopSpec::Router(..) => {
                    assert_eq!((picked, why), (position, format!("route {prefix} to next hop `{name}`")));
                    happened[1] += 1;
                }
                HopSpec::Group(members) => {
                    assert!(members.iter().any(|(member, _)| *member == picked), "seed {seed}: {why}");
                    let group = format!("to group `{name}`, of which the flow picks `{picked_name}`");
                    assert_eq!(why, format!("route {prefix} {group}"), "seed {seed}");
                    happened[2] += 1;
                }
            }
        }
    }
    assert!(happened.iter().all(|&n| n > 500), "{happened:?}");
}
