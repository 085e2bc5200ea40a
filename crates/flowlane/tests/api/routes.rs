//! Routes against the longest prefix, by hand.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowlane::{ErrorKind, IpPrefix, NONE, RouteTable, RouteTableBuilder, read_routes};

use crate::random::Random;

/// An address as 128 bits, those of IPv4 in front.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn address(r: &mut Random, v4: bool) -> IpAddr {
    // Few values a byte, so that prefixes cover each other.
    let mut byte = || u128::from([0u8, 1, 255][r.below(3) as usize]);
    let number = (0..16).fold(0, |number, _| number << 8 | byte());
    if v4 { Ipv4Addr::from_bits(number as u32).into() } else { Ipv6Addr::from_bits(number).into() }
}

fn longest(routes: &BTreeMap<IpPrefix, u32>, address: IpAddr) -> Option<(IpPrefix, u32)> {
    let covers = |prefix: &IpPrefix| {
        let differing = bits(prefix.address()) ^ bits(address);
        prefix.address().is_ipv4() == address.is_ipv4() && differing.leading_zeros() >= prefix.len().into()
    };
    let covering = routes.iter().filter(|(prefix, _)| covers(prefix));
    covering.max_by_key(|(prefix, _)| prefix.len()).map(|(prefix, hop)| (*prefix, *hop))
}

fn check(table: &RouteTable, routes: &BTreeMap<IpPrefix, u32>, r: &mut Random) {
    let reader = table.reader();
    for len in [0, 1, 255, 256, 257, 300] {
        let [v4, v6] = [true, false].map(|v4| (0..len).map(|_| address(r, v4)).collect::<Vec<IpAddr>>());
        let wanted = |all: &[IpAddr]| -> Vec<u32> {
            all.iter().map(|a| longest(routes, *a).map_or(NONE, |(_, hop)| hop)).collect()
        };
        let numbers: Vec<u32> = v4.iter().map(|a| (bits(*a) >> 96) as u32).collect();
        let rows: Vec<[u8; 16]> = v6.iter().map(|a| bits(*a).to_be_bytes()).collect();
        let (mut by_table, mut by_reader) = (vec![7; len], vec![7; len]);
        table.lookup_v4(&numbers, &mut by_table);
        reader.lookup_v4(&numbers, &mut by_reader);
        assert_eq!((&by_table, &by_reader), (&wanted(&v4), &wanted(&v4)));
        table.lookup_v6(&rows, &mut by_table);
        reader.lookup_v6(&rows, &mut by_reader);
        assert_eq!((&by_table, &by_reader), (&wanted(&v6), &wanted(&v6)));
        v4.iter().chain(&v6).for_each(|a| assert_eq!(table.lookup(*a), longest(routes, *a), "{a}"));
    }
    assert_eq!(table.len(), routes.len());
    assert!(table.iter().eq(routes.iter().map(|(prefix, hop)| (*prefix, *hop))));
}

#[test]
fn longest_prefix_wins_in_both_families_after_changes() {
    for seed in 0..12 {
        let r = &mut Random::new(200 + seed);
        let prefix = |r: &mut Random| {
            let v4 = r.below(2) == 0;
            let len = r.below(if v4 { 33 } else { 129 }) as u8;
            IpPrefix::new(address(r, v4), len).unwrap()
        };
        let mut routes: BTreeMap<IpPrefix, u32> = (0..seed * 9).map(|_| (prefix(r), r.below(1000))).collect();
        let config = RouteTableBuilder::new().routes_max(4000).memory_max(256 << 20);
        let mut table = config.build(routes.iter().map(|(prefix, hop)| (*prefix, *hop))).unwrap();
        check(&table, &routes, r);
        for _ in 0..60 {
            let (prefix, hop) = (prefix(r), r.bits() % NONE);
            if r.below(3) > 0 {
                assert_eq!(table.insert(prefix, hop), Ok(routes.insert(prefix, hop)));
                assert_eq!(table.get(prefix), Some(hop));
            } else {
                let gone =
                    routes.keys().nth(r.below(1 + routes.len() as u32) as usize).copied().unwrap_or(prefix);
                assert_eq!(table.remove(gone), Ok(routes.remove(&gone)));
                assert_eq!(table.get(gone), None);
            }
        }
        check(&table, &routes, r);
    }
}

#[test]
fn routes_are_parsed_and_errors_are_reported() {
    let list = read_routes("10.0.0.0/8 5\n::/0 6\n10.0.0.0/8 7\n", "r").unwrap();
    assert_eq!((list.len(), list.next_hop(5)), (2, None));
    let table = RouteTableBuilder::new().routes_max(10).build(list.iter()).unwrap();
    assert_eq!(table.get("10.0.0.0/8".parse().unwrap()), Some(7));
    let via = read_routes("10.0.0.0/8 192.0.2.1\n10.1.0.0/16 192.0.2.1\n", "r").unwrap();
    assert!(via.iter().all(|(_, hop)| hop == 1));
    assert_eq!(via.next_hop(1).as_deref(), Some("192.0.2.1"));
    let said = |text: &str| read_routes(text, "r").unwrap_err().to_string();
    assert!(said("10.0.0.0/33 5").starts_with("r:1:"), "{}", said("10.0.0.0/33 5"));
    assert!(said("10.0.0.0/8 4294967295").contains("10.0.0.0/8: next hop 4294967295"));
    assert!(said("10.0.0.0/8 5000000000").contains("they are below 4294967295"));
    let mut table = RouteTableBuilder::new().routes_max(1).build([]).unwrap();
    let of = |text: &str| text.parse::<IpPrefix>().unwrap();
    assert_eq!(table.insert(of("10.0.0.0/8"), NONE).unwrap_err().kind(), ErrorKind::Input);
    assert_eq!(table.insert(of("10.0.0.0/8"), 1), Ok(None));
    assert_eq!(table.insert(of("11.0.0.0/8"), 1).unwrap_err().kind(), ErrorKind::Limit);
    assert_eq!(table.insert(of("::/0"), 1), Ok(None), "families have room of their own");
    assert_eq!(RouteTableBuilder::new().memory_max(1000).build([]).unwrap_err().kind(), ErrorKind::Limit);
    assert!("10.0.0.0/40".parse::<IpPrefix>().unwrap_err().to_string().starts_with("`10.0.0.0/40`: "));
    assert!(IpPrefix::new("::1".parse().unwrap(), 129).is_err());
    let within = IpPrefix::new("10.1.2.3".parse().unwrap(), 8).unwrap();
    assert_eq!((within, within.to_string().as_str()), (of("10.0.0.0/8"), "10.0.0.0/8"));
    assert!("10.1.2.3/8".parse::<IpPrefix>().is_err());
    assert_eq!(of("192.0.2.1").len(), 32);
}
