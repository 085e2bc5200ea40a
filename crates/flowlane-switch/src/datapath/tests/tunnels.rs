//! Into a tunnel and out of it at the other end.

use std::net::IpAddr;

use flowlane::packet::tunnel::Inner;
use flowlane::rule::{Format, ReadOptions, flow_syntax, read};
use flowlane::tunnel::{Encapsulation, Endpoint, MappedOption, OptionMap, Policy, Refused, TunnelKind};

use super::*;
use crate::packet::edit::tests::reference::{self, Body, Ip, Packet, Stored};
use crate::tunnel::{TunnelSpec, Tunnels};

const INNERS: [Inner; 3] = [Inner::Ethernet, Inner::Ip(0x0800), Inner::Ip(0x86dd)];

/// Tunnel `number` of a node at `local` to one at `remote`.
fn spec(number: u32, kind: TunnelKind, inner: Inner, local: IpAddr, remote: IpAddr) -> TunnelSpec {
    let endpoint = Endpoint { kind, id: 500 + number, vrf: 3, source: Some(remote), destination: local };
    let mut encapsulation = Encapsulation::new(kind, 500 + number, local, remote);
    encapsulation.inner = inner;
    TunnelSpec {
        number,
        name: String::new(),
        endpoint: Some(endpoint),
        encapsulation: Some(encapsulation),
        in_port: Some(100 + number),
    }
}

/// Every kind over both IP versions, with everything inside that it carries.
fn specs(at_home: bool) -> Vec<TunnelSpec> {
    let ends = |v6: bool| -> (IpAddr, IpAddr) {
        if v6 {
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        } else {
            ([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
        }
    };
    let mut out = Vec::new();
    for v6 in [false, true] {
        for kind in TunnelKind::ALL {
            for inner in INNERS {
                let carried = match kind {
                    TunnelKind::Vxlan | TunnelKind::Erspan => inner == Inner::Ethernet,
                    TunnelKind::Gtpu => inner != Inner::Ethernet,
                    TunnelKind::Geneve | TunnelKind::Gre => true,
                };
                let (near, far) = if at_home { ends(v6) } else { (ends(v6).1, ends(v6).0) };
                if carried {
                    out.push(spec(out.len() as u32, kind, inner, near, far));
                }
            }
        }
    }
    out
}

/// A worker at one end: with these rules, terminating at its first port.
fn end(rules: &[Rule], at_home: bool) -> (Worker, Sent) {
    end_with(rules, 1, at_home, CacheConfig::default())
}

fn end_with(rules: &[Rule], tables: u8, at_home: bool, cache: CacheConfig) -> (Worker, Sent) {
    let (mut worker, sent) = worker(rules, tables, cache, By::Tuple);
    worker.egress.tunnels = Some(Tunnels::new(&specs(at_home), Policy::default(), 7).unwrap());
    let slot = &mut worker.egress.ports.slots_mut()[0];
    (slot.decapsulate, slot.vrf) = (true, 3);
    (worker, sent)
}

fn rule(matches: Match, actions: Vec<Action>) -> Rule {
    Rule::new(matches, actions)
}

fn ip_type(bytes: &[u8]) -> u128 {
    let mut key = FlowKey::zero();
    let headers = parse(bytes, 1, &mut key);
    let is_ip = matches!(headers.network, flowlane::packet::Network::Ipv4 | flowlane::packet::Network::Ipv6);
    if is_ip { key.get(Field::EthType) } else { 0 }
}

#[test]
fn what_goes_into_a_tunnel_comes_out_at_the_other_end() {
    let mut r = Random(1);
    for tunnel in specs(true) {
        let number = tunnel.number;
        let inner = tunnel.encapsulation.as_ref().unwrap().inner;
        let into = vec![
            Action::Encapsulate(number),
            set(Field::EthDst, 0x0200_0000_0042),
            Action::Output(PortNo(2)),
        ];
        let (mut near, near_sent) = end(&[rule(Match::any(), into)], true);
        let mut from_tunnel = Match::any();
        from_tunnel.set(Field::InPort, (100 + number).into()).set(Field::TunId, (500 + number).into());
        let (mut far, far_sent) = end(&[rule(from_tunnel, vec![Action::Output(PortNo(4))])], false);
        for _ in 0..200 {
            let bytes = packet(&mut r);
            near.inject(3, &[&bytes]).unwrap();
            let carried = match inner {
                Inner::Ethernet => true,
                Inner::Ip(kind) => ip_type(&bytes) == u128::from(kind),
            };
            let outer = near_sent.lock().unwrap().pop();
            assert_eq!(outer.is_some(), carried, "{tunnel:?} {bytes:02x?}");
            let Some((2, outer)) = outer else { continue };
            assert_eq!(outer[..6], [2, 0, 0, 0, 0, 0x42]);
            far.inject(0, &[&outer]).unwrap();
            let (port, inside) = far_sent.lock().unwrap().pop().expect("it is this tunnel's");
            assert_eq!(port, 4);
            if inner == Inner::Ethernet {
                assert_eq!(inside, bytes);
            } else {
                let l3 = usize::from(parse(&bytes, 1, &mut FlowKey::zero()).l3);
                assert_eq!(inside[14..], bytes[l3..]);
            }
        }
        let (near, far) = (near.egress.tunnels.unwrap(), far.egress.tunnels.unwrap());
        let place = number as usize;
        assert!(near.tunnels()[place].sent_packets > 0);
        assert_eq!(near.tunnels()[place].sent_packets, far.tunnels()[place].received_packets);
        assert_eq!(far.refused().map(|(_, n)| n).sum::<u64>(), 0);
    }
}

#[test]
fn strangers_packets_to_this_node_are_refused_and_others_tunnels_go_on() {
    let into = rule(Match::any(), vec![Action::Encapsulate(0), Action::Output(PortNo(2))]);
    let (mut near, near_sent) = end(&[into], true);
    near.inject(3, &[&packet(&mut Random(5))]).unwrap();
    let (_, outer) = near_sent.lock().unwrap().pop().unwrap();
    let (mut far, far_sent) = end(&[rule(Match::any(), vec![Action::Output(PortNo(4))])], false);
    // Changes a byte, and the IPv4 header's checksum with it.
    let changed = |at: usize| {
        let mut frame = Frame::default();
        frame.fill(&outer);
        let field = if at < 30 { Field::Ipv4Src } else { Field::Ipv4Dst };
        let mut headers = parse(&outer, 1, &mut FlowKey::zero());
        edit::set_field(&mut frame, &mut headers, field, 0x0909_0909, 0xffff_ffff);
        frame.bytes().to_vec()
    };
    let mut wrong_checksum = outer.clone();
    wrong_checksum[24] ^= 1;
    far.inject(0, &[&changed(26), &wrong_checksum]).unwrap();
    assert_eq!(far_sent.lock().unwrap().len(), 0);
    assert_eq!(far.egress.drops.tunnel_refused, 2);
    // To another node: none of ours, whatever is in it.
    let transit = changed(30);
    far.inject(0, &[&transit]).unwrap();
    assert_eq!(far_sent.lock().unwrap().pop(), Some((4, transit)));
    // A port that does not terminate does not look.
    far.inject(1, &[&outer]).unwrap();
    assert_eq!(far_sent.lock().unwrap().pop(), Some((4, outer)));
    let refused: Vec<_> =
        far.egress.tunnels.as_ref().unwrap().refused().filter(|(_, packets)| *packets > 0).collect();
    assert_eq!(refused, [(Refused::Ipv4Checksum, 1), (Refused::UnknownEndpoint, 1)]);
}

#[test]
fn packets_too_long_for_a_tunnel_are_dropped_and_counted() {
    let into = rule(
        Match::any(),
        vec![Action::Output(PortNo(3)), Action::Encapsulate(0), Action::Output(PortNo(2))],
    );
    let (mut near, sent) = end(&[into], true);
    let frame = |len: usize| {
        let mut bytes = Vec::new();
        let ip = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([1; 4], [2; 4], 9);
        ip.udp(1, 53).write(&mut bytes, &vec![0; len]).unwrap();
        bytes
    };
    near.inject(3, &[&frame(1522), &frame(1523)]).unwrap();
    let ports: Vec<u32> = sent.lock().unwrap().iter().map(|(port, _)| *port).collect();
    assert_eq!(ports, [3, 2, 3]);
    assert_eq!(near.egress.drops.tunnel_too_long, 1);
}

/// Returns a tunnel's frame from a node, of `specs` or not, over IPv4 or IPv6, to this UDP port, with this type of service.
fn outer(v6: bool, port: u16, tos: u8, body: &[u8]) -> Vec<u8> {
    let len = (8 + body.len()) as u16;
    let datagram = [&[0xc0, 0][..], &port.to_be_bytes(), &len.to_be_bytes(), &[0, 0], body].concat();
    let address = |last: u8| -> [u8; 16] {
        let v6_address = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        if v6 { v6_address } else { [192, 0, 2, last, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] }
    };
    let ip = Ip {
        v6,
        tos,
        ttl: 9,
        flow: 0,
        src: address(1),
        dst: address(2),
        last: None,
        options: Vec::new(),
        extensions: Vec::new(),
        fragment: None,
        header_checksum: Stored::Right,
        proto: 17,
        part: (0, datagram.len()),
        datagram,
        checksum: Stored::Right,
        nd: None,
    };
    let eth_type = if v6 { 0x86dd } else { 0x0800 };
    let packet = Packet {
        macs: [6; 12],
        tags: Vec::new(),
        snap: false,
        labels: Vec::new(),
        eth_type,
        body: Body::Ip(ip),
        padding: Vec::new(),
    };
    packet.build()
}

/// Where tunnels are configured, and where none is; also where malformed frames go on.
fn ends() -> Vec<(&'static str, Worker, Sent)> {
    let all = [rule(Match::any(), vec![Action::Output(PortNo(4))])];
    let mut out = Vec::new();
    for (name, configured) in [("configured", true), ("anyone's", false)] {
        for policy in [MalformedPolicy::Drop, MalformedPolicy::Forward] {
            let (mut far, sent) = end(&all, false);
            if !configured {
                far.egress.tunnels = None;
            }
            far.egress.faults.policy = policy;
            out.push((name, far, sent));
        }
    }
    out
}

fn refused(worker: &Worker) -> Vec<(Refused, u64)> {
    let tunnels = worker.egress.tunnels.iter().flat_map(Tunnels::refused);
    tunnels.filter(|(_, packets)| *packets > 0).collect()
}

#[test]
fn congestion_in_a_tunnel_is_marked_inside_or_the_packet_is_dropped() {
    // RFC 6040 §4.2: by inner and outer, 0, ECT(1), ECT(0), CE; 9 is to drop.
    const WANTED: [[u8; 4]; 4] = [[0, 0, 0, 9], [1, 1, 1, 3], [2, 1, 2, 3], [3, 3, 3, 3]];
    let mut r = reference::Random(4);
    for (name, mut far, sent) in ends() {
        let mut dropped = 0;
        for round in 0..600 {
            let (v6, ecn) = (r.one_in(2), r.below(4));
            let mut inner = Packet::random(&mut r);
            let header = [8, 0, 0, 0, 0, 1, if v6 { 254 } else { 244 }, 0];
            let body = [&header[..], &inner.build()].concat();
            far.inject(0, &[&outer(v6, 4789, 0xb8 | ecn as u8, &body)]).unwrap();
            // Packets other than IP stay as they are.
            let wanted = inner.ip().map(|ip| WANTED[usize::from(ip.tos & 3)][ecn]);
            let found = sent.lock().unwrap().pop().map(|(_, bytes)| bytes);
            if wanted == Some(9) {
                dropped += 1;
                assert_eq!(found, None, "{name} {round}");
                continue;
            }
            if let Some(ecn) = wanted {
                inner.set(Field::IpEcn, ecn.into(), 3);
            }
            assert_eq!(found, Some(inner.build()), "{name} {round}: {inner:?}");
        }
        assert!(dropped > 10, "{dropped}");
        assert_eq!(refused(&far), [(Refused::EcnNotCapable, dropped)], "{name}");
        assert_eq!(far.egress.drops.tunnel_refused, dropped);
    }
}

#[test]
fn rules_see_the_congestion_that_was_marked() {
    let mut marked = Match::any();
    marked.set(Field::EthType, 0x0800).set(Field::IpEcn, 3);
    let (mut far, sent) = end(&[rule(marked, vec![Action::Output(PortNo(4))])], false);
    let inner =
        [&[2; 12][..], &[8, 0], &[0x45, 1, 0, 20, 0, 0, 0, 0, 9, 99, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]].concat();
    far.inject(0, &[&outer(false, 4789, 3, &[&[8, 0, 0, 0, 0, 1, 244, 0][..], &inner].concat())]).unwrap();
    assert_eq!(sent.lock().unwrap().len(), 1);
}

#[test]
fn geneve_control_and_unknown_critical_options_come_out_of_no_tunnel() {
    let inner = [&[2; 12][..], &[0x88, 0xb5], &[7; 50]].concat();
    let geneve = |flags: u8, protocol: [u8; 2], options: &[u8]| {
        let header = [(options.len() / 4) as u8, flags, protocol[0], protocol[1], 0, 1, 245, 0];
        outer(false, 6081, 0, &[&header[..], options, &inner].concat())
    };
    let ethernet = [0x65, 0x58];
    let (critical, other) = ([1, 2, 0x83, 1, 9, 9, 9, 9], [1, 2, 3, 0]);
    for (name, mut far, sent) in ends() {
        let refusals = [
            geneve(0x80, ethernet, &[]),
            // What control is in need not be Ethernet or IP.
            geneve(0x80, [0, 0], &[]),
            geneve(0x40, ethernet, &critical),
            geneve(0x40, ethernet, &[&other[..], &critical].concat()),
        ];
        far.inject(0, &refusals.each_ref().map(|bytes| &bytes[..])).unwrap();
        assert_eq!(sent.lock().unwrap().len(), 0, "{name}");
        let wanted = [(Refused::GeneveCriticalOption, 2), (Refused::GeneveControl, 2)];
        assert_eq!(refused(&far), wanted, "{name}");
        assert_eq!(far.egress.faults.found.iter().sum::<u64>(), 0, "{name}");
        // Others need not be understood.
        far.inject(0, &[&geneve(0, ethernet, &other), &geneve(0, ethernet, &[])]).unwrap();
        let sent = std::mem::take(&mut *sent.lock().unwrap());
        assert_eq!(sent, [(4, inner.clone()), (4, inner.clone())], "{name}");
    }
    // Where this one is understood, it is.
    let (mut far, sent) = end(&[rule(Match::any(), vec![Action::Output(PortNo(4))])], false);
    let policy = Policy { geneve_options: vec![(0x0102, 0x83)], ..Policy::default() };
    far.egress.tunnels = Some(Tunnels::of_anyone(policy));
    far.inject(0, &[&geneve(0x40, ethernet, &critical)]).unwrap();
    assert_eq!(sent.lock().unwrap().pop(), Some((4, inner)));
}

/// The options of packets are in the fields that the map gives them, and mapped options are understood.
#[test]
fn geneve_options_have_the_fields_of_the_map() {
    let inner = [&[2; 12][..], &[0x88, 0xb5], &[7; 50]].concat();
    let geneve = |options: &[u8]| {
        let header = [(options.len() / 4) as u8, 0x40, 0x65, 0x58, 0, 1, 245, 0];
        outer(false, 6081, 0, &[&header[..], options, &inner].concat())
    };
    let option = |value: u8| [1, 2, 0x83, 1, 0, 0, 0, value];
    let mut map = OptionMap::default();
    map.add(3, MappedOption { class: 0x0102, kind: 0x83, bytes: 4 }).unwrap();
    let text =
        "priority=2,tun_metadata3=7 actions=2\npriority=1,tun_metadata3 actions=3\npriority=0 actions=4";
    let rules = flow_syntax::read(text, "rules", &ReadOptions::default()).unwrap();
    for of_anyone in [false, true] {
        let (mut far, sent) = end(&rules, false);
        if of_anyone {
            far.egress.tunnels = Some(Tunnels::of_anyone(Policy::default()));
        }
        let inject = |far: &mut Worker, options: &[u8]| {
            far.inject(0, &[&geneve(options)]).unwrap();
            sent.lock().unwrap().pop().map(|(port, bytes)| (port, bytes == inner))
        };
        assert_eq!(inject(&mut far, &option(7)), None, "no map has it");
        far.egress.tunnels.as_mut().unwrap().set_option_fields(map.clone());
        for (options, port) in [(&option(7)[..], 2), (&option(0), 3), (&[1, 2, 3, 0], 4), (&[], 4)] {
            assert_eq!(inject(&mut far, options), Some((port, true)), "{options:?}");
        }
        assert_eq!(inject(&mut far, &[1, 2, 0x83, 0]), None, "it is shorter than the field");
        assert_eq!(
            inject(&mut far, &[&option(0)[..], &option(7)].concat()),
            Some((2, true)),
            "the last counts"
        );
        let wanted = [(Refused::GeneveOptionLength, 1), (Refused::GeneveCriticalOption, 1)];
        assert_eq!(refused(&far), wanted);
        far.egress.tunnels.as_mut().unwrap().set_option_fields(OptionMap::default());
        assert_eq!(inject(&mut far, &[]), Some((4, true)));
    }
}

/// The options that rules write are in the packets that leave, by cached paths and by tables; so are those that a packet came with. A
/// tunnel within the tunnel gets no options of the packet inside.
#[test]
fn packets_leave_with_the_options_that_rules_give_them() {
    let text = "table=0,priority=9,tcp actions=set_field:0x11->tun_metadata3,resubmit(,1)\n\
        table=0,priority=8,udp actions=move:NXM_OF_UDP_DST[]->tun_metadata3[0..15],set_field:9->tun_metadata5,\
        delete_field:tun_metadata5,resubmit(,1)\n\
        table=0,priority=7,ip actions=resubmit(,1)\n\
        table=1 actions=encap:1,encap:1,output:2\n";
    let near_rules = flow_syntax::read(text, "rules", &ReadOptions::default()).unwrap();
    let text = "table=0,in_port=101 actions=output:3\n";
    let far_rules = flow_syntax::read(text, "rules", &ReadOptions::default()).unwrap();
    let mut map = OptionMap::default();
    map.add(3, MappedOption { class: 0x0102, kind: 0x83, bytes: 4 }).unwrap();
    map.add(5, MappedOption { class: 0x0102, kind: 4, bytes: 4 }).unwrap();
    let of = |protocol: u8, port: u16| {
        let packet = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        let mut bytes = Vec::new();
        match protocol {
            6 => packet.tcp(1, port, 1, 1).write(&mut bytes, &[7; 8]),
            17 => packet.udp(1, port).write(&mut bytes, &[7; 8]),
            _ => packet.icmpv4_echo_request(1, port).write(&mut bytes, &[7; 8]),
        }
        .unwrap();
        bytes
    };
    for caches in [true, false] {
        let cache = || if caches { CacheConfig::default() } else { no_caches() };
        let (mut near, near_sent) = end_with(&near_rules, 2, true, cache());
        let (mut far, far_sent) = end_with(&far_rules, 1, false, cache());
        for worker in [&mut near, &mut far] {
            worker.egress.tunnels.as_mut().unwrap().set_option_fields(map.clone());
        }
        for round in 0..3 {
            for (bytes, option) in [
                (of(6, 80), Some([0, 0, 0, 0x11])),
                (of(17, 53), Some([0, 0, 0, 53])),
                (of(17, 67), Some([0, 0, 0, 67])),
                (of(1, 9), None),
            ] {
                near.inject(3, &[&bytes]).unwrap();
                let (port, outer) = near_sent.lock().unwrap().pop().expect("it is sent");
                assert_eq!((port, outer[42] & 0x3f), (2, 0), "the tunnel around the tunnel has none");
                far.inject(0, &[&outer]).unwrap();
                let (_, inside) = far_sent.lock().unwrap().pop().expect("it is this tunnel's");
                let words = usize::from(inside[42] & 0x3f);
                let wanted = option.map(|value| [&[1, 2, 0x83, 1][..], &value].concat());
                assert_eq!((words != 0).then(|| inside[50..58].to_vec()), wanted, "round {round}, {caches}");
                assert!(inside.ends_with(&bytes), "round {round}, {caches}");
                assert_eq!(inside[43] & 0x40 != 0, option.is_some(), "it is critical");
            }
        }
    }
}

/// Such a packet goes on to its next segment, and its checksum is not over this destination.
#[test]
fn a_packet_with_segments_left_ends_in_no_tunnel() {
    let inner = [&[2; 12][..], &[0x88, 0xb5], &[7; 50]].concat();
    let body = [&[8, 0, 0, 0, 0, 1, 254, 0][..], &inner].concat();
    for (name, mut far, sent) in ends() {
        for left in [0, 1] {
            let mut bytes = outer(true, 4789, 0, &body);
            let len = (bytes.len() - 54 + 8) as u16;
            bytes.splice(54..54, [17, 0, 99, left, 0, 0, 0, 0]);
            bytes[18..20].copy_from_slice(&len.to_be_bytes());
            bytes[20] = 43;
            far.inject(0, &[&bytes]).unwrap();
            let wanted = if left == 0 { inner.clone() } else { bytes };
            assert_eq!(sent.lock().unwrap().pop(), Some((4, wanted)), "{name}, {left} left");
        }
    }
}

/// The outer packet is of no connection, whatever that of the inner one was: for the next table, and for the next `ct` of the zone.
#[test]
fn the_outer_packet_has_no_connection() {
    let rules = "table=0,ip,actions=ct(commit,zone=1,exec(set_field:7->ct_mark),table=1)\n\
                 table=1,ct_state=+trk,ip,actions=encap:0,output:1,goto_table:2\n\
                 table=2,priority=2,ct_state=+trk,actions=output:3\n\
                 table=2,priority=1,ct_mark=7,actions=output:3\n\
                 table=2,priority=0,ip,actions=ct(zone=1,table=3)\n\
                 table=3,priority=2,ct_mark=0,ct_state=+new+trk,ip,nw_dst=192.0.2.2,actions=output:2\n\
                 table=3,priority=1,actions=output:4\n";
    let bytes = udp(&[7; 8]);
    for cache in [no_caches(), CacheConfig { adaptive: false, ..CacheConfig::default() }] {
        let rules = read(rules, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap();
        let (mut worker, sent) = worker(&rules, 4, cache, By::Tuple);
        worker.egress.tunnels = Some(Tunnels::new(&specs(true), Policy::default(), 7).unwrap());
        for _ in 0..3 {
            let Ok(Tracing::Ended(trace)) = worker.trace(PortNo(4), &bytes) else {
                panic!("there is one worker")
            };
            worker.inject(3, &[&bytes]).unwrap();
            let ports: Vec<u32> = sent.lock().unwrap().drain(..).map(|(port, _)| port).collect();
            assert_eq!(ports, [1, 2]);
            assert_eq!(trace.sent.iter().filter_map(|sent| sent.port).collect::<Vec<_>>(), ports);
        }
    }
}

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let eth = PacketBuilder::ethernet2([2; 6], [4; 6]);
    eth.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).udp(1, 2).write(&mut bytes, payload).unwrap();
    bytes
}
