//! A route table after the tables of rules, and after it a table of rules again.

use std::net::IpAddr;

use flowlane::route::Prefix;
use flowlane::route::read::AnyPrefix;

use super::*;
use crate::stage::route::{FibEngine, HopSpec, RouteMiss, RouteTable, RouteTableConfig};

/// Returns the actions of next hop `position` in table `number`. The members of the group, number 2, have the same, so that it
/// does not matter which of them a flow picks.
fn hop(position: usize, number: u8) -> Vec<Action> {
    match position {
        0 => vec![Action::dec_ttl(), Action::Output(PortNo(2))],
        1 => vec![Action::PushVlan(0x8100), set(Field::VlanVid, 9), Action::Output(PortNo(3))],
        3 | 4 => vec![set(Field::EthDst, 0x0200_0000_0077), Action::Output(PortNo(4))],
        5 => vec![set(Field::Ipv4Dst, 0x0a01_0001), Action::Goto(number + 1)],
        _ => vec![],
    }
}

const ROUTES: [(&str, u8, usize); 8] = [
    ("10.1.0.0", 24, 0),
    ("10.1.0.1", 32, 1),
    ("10.1.0.2", 31, 2),
    ("10.1.0.2", 32, 5),
    ("10.0.0.0", 8, 6),
    ("303::", 16, 1),
    ("303:303::", 32, 5),
    ("2020::", 16, 2),
];

/// Adds table `number` with the routes, and table `number` + 1 with rules.
pub(super) fn add(pipeline: &mut Pipeline, number: u8) {
    let spec = |position| match position {
        2 => HopSpec::Group(vec![(3, 1), (4, 2)]),
        _ => HopSpec::Actions(hop(position, number)),
    };
    let hops = (0..7).map(|position| (position.to_string(), spec(position))).collect();
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for (address, len, position) in ROUTES {
        match AnyPrefix::truncated(address.parse().unwrap(), len) {
            AnyPrefix::V4(prefix) => v4.push((prefix, position)),
            AnyPrefix::V6(prefix) => v6.push((prefix, position)),
        }
    }
    pipeline.add_table(number + 1, "", Box::new(LinearSearch::new(10)), Miss::Drop);
    let config = RouteTableConfig {
        number,
        miss: if number.is_multiple_of(2) { RouteMiss::Controller } else { RouteMiss::Drop },
        routes_max: 10,
        memory_max: 128 << 20,
        ..RouteTableConfig::default()
    };
    pipeline.add_routes(number, RouteTable::new(config, hops, &v4, &v6).unwrap());
    let mut reg0 = Match::any();
    reg0.set(Field::Reg0, 2);
    for (matches, priority, port) in [(reg0, 2, 1), (Match::any(), 1, 3)] {
        let actions = vec![Action::Output(PortNo(port))];
        let rule = Rule { table: number + 1, priority: Priority(priority), cookie: 0, matches, actions };
        pipeline.add_rule(rule).unwrap();
    }
}

/// Returns the actions of the longest prefix that matches a packet with this key in table `number`.
pub(super) fn actions(key: &FlowKey, number: u8) -> Vec<Action> {
    let ip: Option<IpAddr> = match key.get(Field::EthType) {
        0x0800 => Some(IpAddr::V4((key.get(Field::Ipv4Dst) as u32).into())),
        0x86dd => Some(IpAddr::V6(key.get(Field::Ipv6Dst).into())),
        _ => None,
    };
    let covers = |(address, len, _): &&(&str, u8, usize)| match (
        AnyPrefix::truncated(address.parse().unwrap(), *len),
        ip,
    ) {
        (AnyPrefix::V4(prefix), Some(IpAddr::V4(ip))) => prefix.contains(ip.into()),
        (AnyPrefix::V6(prefix), Some(IpAddr::V6(ip))) => prefix.contains(ip.into()),
        _ => false,
    };
    match ROUTES.iter().filter(covers).max_by_key(|r| r.1) {
        Some(&(_, _, 2)) => hop(3, number),
        Some(&(_, _, position)) => hop(position, number),
        None if number.is_multiple_of(2) => vec![Action::controller(u16::MAX)],
        None => vec![],
    }
}

#[test]
fn the_flows_of_a_group_are_shared_by_weight_and_each_stays_with_its_member() {
    [FibEngine::Auto, FibEngine::Compact, FibEngine::Direct].into_iter().for_each(share_flows);
}

fn share_flows(engine: FibEngine) {
    let hops = vec![
        ("a".to_owned(), HopSpec::Actions(vec![Action::Output(PortNo(2))])),
        ("b".to_owned(), HopSpec::Actions(vec![Action::Output(PortNo(3))])),
        ("both".to_owned(), HopSpec::Group(vec![(0, 1), (1, 3)])),
    ];
    let mut pipeline = Pipeline::new();
    let config = RouteTableConfig {
        routes_max: 1,
        memory_max: 128 << 20,
        engine,
        seed: 7,
        ..RouteTableConfig::default()
    };
    let everything = [(Prefix::truncated(0, 0), 2)];
    pipeline.add_routes(0, RouteTable::new(config, hops, &everything, &[]).unwrap());
    let (mut worker, sent) = worker(&[], 1, CacheConfig::default(), By::Linear);
    worker.lookup = Lookup::new(pipeline, CacheConfig::default());
    let frame = |flow: u16| {
        let mut bytes = Vec::new();
        let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [192, 0, 2, 1], 9);
        ip.udp(1000 + flow, 53).write(&mut bytes, &flow.to_be_bytes()).unwrap();
        bytes
    };
    let mut places = BTreeMap::new();
    for round in 0..3 {
        for flow in 0..400u16 {
            worker.inject(0, &[&frame(flow)]).unwrap();
            let (port, _) = sent.lock().unwrap().pop().unwrap();
            assert_eq!(*places.entry(flow).or_insert(port), port, "round {round}");
        }
    }
    let heavier = places.values().filter(|&&port| port == 3).count();
    assert!((240..360).contains(&heavier), "{heavier} of 400 flows on the member of weight 3 of 4");
    let (_, table) = worker.lookup.pipeline.route_tables().next().unwrap();
    assert_eq!(table.next_hops().iter().map(|h| h.packets).sum::<u64>(), 1200);
    // One megaflow has done it all.
    assert_eq!(worker.lookup.megaflows.len(), 1);
}
