//! Decapsulation at a port: congestion marks, and packets that must not be decapsulated; and encapsulation.

use flowlane::tunnel::{Encapsulation, Policy, TunnelKind};
use flowlane_switch::tunnel::{TunnelSpec, Tunnels};

use super::{Ip, PLAIN, Switch, drops, ethernet, fragmented, hex, ipv4, ipv6, print, rules, udp4, v6};
use crate::against_model::worker::Options;
use crate::model::Frames;
use crate::packets::{Random, sum};

/// Switches a frame that arrives at a port that decapsulates; returns the frames sent.
fn decapsulated(text: &str, frame: &[u8]) -> Frames {
    let mut switch = Switch::new(&drops(2), Options::plain(&mut Random::new(1)));
    switch.worker.egress.ports.slots_mut()[0].decapsulate = true;
    rules(text).iter().for_each(|rule| assert!(switch.add(rule)));
    switch.run(&[(1, frame)]).unwrap().pop().unwrap()
}

/// Builds a datagram to a tunnel's port, from other addresses than the inner packet's. A checksum of 0 means none.
fn outer(tos: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let len = (8 + payload.len()) as u16;
    let udp = [&[0xc0, 0][..], &port.to_be_bytes(), &len.to_be_bytes(), &[0, 0], payload].concat();
    ethernet(0x0800, &ipv4(Ip { tos, src: 9, dst: [10, 0, 0, 8], ..PLAIN }, 17, &udp))
}

/// VXLAN (RFC 7348 §5), VNI 77.
fn vxlan(tos: u8, inner: &[u8]) -> Vec<u8> {
    outer(tos, 4789, &[&[8, 0, 0, 0, 0, 0, 77, 0][..], inner].concat())
}

/// GENEVE (RFC 8926 §3.4), VNI 77, inner Ethernet.
fn geneve(flags: u8, options: &[u8], inner: &[u8]) -> Vec<u8> {
    let head = [(options.len() / 4) as u8, flags, 0x65, 0x58, 0, 0, 77, 0];
    outer(0, 6081, &[&head[..], options, inner].concat())
}

#[test]
fn congestion_outside_is_marked_inside() {
    // RFC 6040 §4.2, figure 4: inner, outer, forwarded ECN; Not-ECT 0, ECT(1) 1, ECT(0) 2, CE 3.
    for (inside, outside, wanted) in [
        (0, 0, Some(0)),
        (0, 1, Some(0)),
        (0, 2, Some(0)),
        (0, 3, None),
        (1, 0, Some(1)),
        (1, 1, Some(1)),
        (1, 2, Some(1)),
        (1, 3, Some(3)),
        (2, 0, Some(2)),
        (2, 1, Some(1)),
        (2, 2, Some(2)),
        (2, 3, Some(3)),
        (3, 0, Some(3)),
        (3, 1, Some(3)),
        (3, 2, Some(3)),
        (3, 3, Some(3)),
    ] {
        let inner = |ecn: u8| {
            let ip = Ip { tos: 0xb8 | ecn, ..PLAIN };
            [ethernet(0x0800, &udp4(ip)), ethernet(0x86dd, &ipv6(ip, 59, &[]))]
        };
        for (i, frame) in inner(inside).into_iter().enumerate() {
            let sent = decapsulated("tun_id=77,actions=output:2", &vxlan(0x20 | outside, &frame));
            let wanted: Vec<_> = wanted.iter().map(|&ecn| (2, inner(ecn)[i].clone())).collect();
            let family = ["IPv4", "IPv6"][i];
            assert!(sent == wanted, "{family}, {inside} inside, {outside} outside:\n{}", print(&sent));
        }
    }
}

#[test]
fn the_fragments_of_a_datagram_go_into_a_tunnel_from_one_port() {
    // RFC 7348 §5: the source port is a hash of the inner packet, so that routers on the way keep flows together.
    let (near, far) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let spec = TunnelSpec {
        number: 1,
        name: String::new(),
        endpoint: None,
        encapsulation: Some(Encapsulation::new(TunnelKind::Vxlan, 77, near, far)),
        in_port: None,
    };
    let mut switch = Switch::new(&drops(1), Options::plain(&mut Random::new(1)));
    switch.worker.egress.tunnels = Some(Tunnels::new(&[spec], Policy::default(), 7).unwrap());
    rules("actions=encap:1,output:2").iter().for_each(|rule| assert!(switch.add(rule)));
    let mut ports = std::collections::BTreeSet::new();
    for flow in 0..200 {
        for pair in fragmented(flow) {
            let sent = switch.run(&[(1, &pair[0]), (1, &pair[1])]).unwrap();
            // The UDP source port, behind Ethernet and IPv4.
            let [first, later] = [0, 1].map(|i| sent[i][0].1[34..36].to_vec());
            assert_eq!(first, later, "datagram {flow}: {}", hex(&pair[0]));
            ports.insert(first);
        }
    }
    assert!(ports.len() > 300, "{} ports for 400 datagrams", ports.len());
}

#[test]
fn geneve_that_is_not_for_forwarding_is_not_taken_off() {
    let inner = ethernet(0x0800, &udp4(PLAIN));
    let text = "tun_id=77,actions=output:2";
    assert_eq!(decapsulated(text, &geneve(0, &[], &inner)), [(2, inner.clone())]);
    // An option of class 0x0102 and type 3: it may be skipped, unless it is critical (RFC 8926 §3.5).
    let option = |kind: u8| [1, 2, kind, 1, 0, 0, 0, 5];
    assert_eq!(decapsulated(text, &geneve(0, &option(3), &inner)), [(2, inner.clone())]);
    let refused = [
        ("a control packet", geneve(0x80, &[], &inner)),
        ("an unknown critical option", geneve(0x40, &option(0x83), &inner)),
        ("an unknown critical option without the header's bit", geneve(0, &option(0x83), &inner)),
    ];
    for (what, frame) in refused {
        let sent = decapsulated(text, &frame);
        assert!(sent.is_empty(), "{what}: {}\nis taken off:\n{}", hex(&frame), print(&sent));
    }
}

#[test]
fn tunnel_fields_are_those_of_the_outer_packet() {
    let inner = ethernet(0x86dd, &ipv6(PLAIN, 59, &[]));
    let text = "tun_src=10.0.0.9,tun_dst=10.0.0.8,tun_tos=32,ipv6,ipv6_src=2001:db8::1,actions=output:2";
    assert_eq!(decapsulated(text, &vxlan(0x20, &inner)), [(2, inner.clone())]);
    // The same with outer IPv6, whose UDP needs a checksum (RFC 8200 §8.1).
    let mut udp =
        [&[0xc0, 0, 0x12, 0xb5, 0, (16 + inner.len()) as u8, 0, 0, 8, 0, 0, 0, 0, 0, 77, 0][..], &inner]
            .concat();
    let lengths = [&(udp.len() as u32).to_be_bytes()[..], &[0, 0, 0, 17]].concat();
    let checksum = !sum(&[&v6(9), &v6(8), &lengths, &udp]);
    udp[6..8].copy_from_slice(&checksum.to_be_bytes());
    let frame = ethernet(0x86dd, &ipv6(Ip { src: 9, dst: [0, 0, 0, 8], ..PLAIN }, 17, &udp));
    let text = "tun_ipv6_src=2001:db8::9,tun_ipv6_dst=2001:db8::8,ipv6,ipv6_src=2001:db8::1,actions=output:2";
    assert_eq!(decapsulated(text, &frame), [(2, inner)]);
}
