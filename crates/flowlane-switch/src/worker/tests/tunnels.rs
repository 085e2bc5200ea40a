//! Into a tunnel and out of it at the other end.

use std::net::IpAddr;

use flowlane::packet::tunnel::Inner;
use flowlane::tunnel::{Encapsulation, Endpoint, Policy, Refused, TunnelKind};

use super::*;
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
                    TunnelKind::Vxlan => inner == Inner::Ethernet,
                    TunnelKind::Gtpu => inner != Inner::Ethernet,
                    TunnelKind::Geneve => true,
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
    let (mut worker, sent) = worker(rules, 1, CacheConfig::default(), By::Tuple);
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
