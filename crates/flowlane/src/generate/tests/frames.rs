use super::hash;
use crate::generate::{Random, build_frame, draw_key};
use crate::packet::fields::word;
use crate::packet::key::FlowKey;
use crate::packet::{Field, FieldClass};
use crate::rule::Match;
use etherparse::{EtherType, Icmpv4Slice, LinkExtSlice, NetSlice, SlicedPacket, TransportSlice};

/// The kinds of packets: name and the match of a rule for them.
fn stacks() -> Vec<(&'static str, Match)> {
    let kind = |fields: &[(Field, u128)]| {
        let mut m = Match::any();
        fields.iter().for_each(|&(field, value)| {
            m.set(field, value);
        });
        m
    };
    let (v4, v6) = ((Field::EthType, 0x0800), (Field::EthType, 0x86dd));
    let (tci, tci1) = ((Field::VlanTci, 0x7064), (Field::VlanTci1, 0x1007));
    let proto = |p| (Field::NwProto, p);
    let frag = |f| (Field::IpFrag, f);
    vec![
        ("tcp", kind(&[v4, proto(6), (Field::TcpFlags, 0x112)])),
        ("udp", kind(&[v4, proto(17), (Field::IpDscp, 46)])),
        ("sctp", kind(&[v4, proto(132)])),
        ("icmp", kind(&[v4, proto(1), (Field::IcmpType, 3), (Field::IcmpCode, 4)])),
        ("gre", kind(&[v4, proto(47)])),
        ("first fragment", kind(&[v4, proto(17), frag(1)])),
        ("later fragment", kind(&[v4, proto(6), frag(3)])),
        ("tcp6", kind(&[v6, proto(6), (Field::Ipv6Label, 0x12345), (Field::IpDscp, 11), (Field::IpEcn, 2)])),
        ("udp6", kind(&[v6, proto(17)])),
        ("sctp6", kind(&[v6, proto(132)])),
        ("echo6", kind(&[v6, proto(58), (Field::IcmpType, 128)])),
        (
            "nd",
            kind(&[
                v6,
                proto(58),
                (Field::IcmpType, 135),
                (Field::NdTarget, 9),
                (Field::NdSll, 0x0200_0000_0007),
            ]),
        ),
        ("first fragment6", kind(&[v6, proto(17), frag(1)])),
        ("later fragment6", kind(&[v6, frag(3)])),
        ("vlan", kind(&[v4, proto(17), tci])),
        ("qinq", kind(&[v6, proto(6), tci, tci1, (Field::VlanTpid, 0x88a8)])),
        ("mpls", kind(&[(Field::EthType, 0x8847), (Field::MplsBos, 0)])),
        ("arp", kind(&[(Field::EthType, 0x0806), (Field::ArpOp, 1)])),
        ("other", kind(&[(Field::EthType, 0x88cc)])),
    ]
}

fn frame(key: &FlowKey, len: usize) -> Vec<u8> {
    let mut out = vec![0xaa; 7];
    build_frame(key, len, &mut out);
    out
}

/// Compares addresses, protocol fields and checksums with what etherparse finds.
fn check(name: &str, key: &FlowKey, frame: &[u8]) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap_or_else(|e| panic!("{name}: {e}"));
    let link =
        packet.link.as_ref().and_then(|l| l.to_header()).and_then(|h| h.ethernet2()).expect("Ethernet");
    let mac = |field| key.get(field).to_be_bytes()[10..].to_vec();
    assert_eq!((link.destination.to_vec(), link.source.to_vec()), (mac(Field::EthDst), mac(Field::EthSrc)));
    let vids: Vec<u16> = packet
        .link_exts
        .iter()
        .map(|ext| match ext {
            LinkExtSlice::Vlan(vlan) => vlan.vlan_identifier().value(),
            other => panic!("{name}: {other:?}"),
        })
        .collect();
    let tags = [key.get(Field::VlanTci), key.get(Field::VlanTci1)];
    let want: Vec<u16> = tags.iter().filter(|t| **t & 0x1000 != 0).map(|t| (t & 0xfff) as u16).collect();
    assert_eq!(vids, want, "{name}");
    match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header().to_header();
            assert_eq!(header.header_checksum, header.calc_header_checksum(), "{name}");
            assert_eq!(u128::from(u32::from_be_bytes(header.source)), key.get(Field::Ipv4Src), "{name}");
            assert_eq!(u128::from(u32::from_be_bytes(header.destination)), key.get(Field::Ipv4Dst), "{name}");
            assert_eq!(
                [header.protocol.0, header.time_to_live].map(u128::from),
                [key.get(Field::NwProto), key.get(Field::NwTtl)]
            );
            assert_eq!(u128::from(header.dscp.value()), key.get(Field::IpDscp), "{name}");
            assert_eq!(u128::from(header.ecn.value()), key.get(Field::IpEcn), "{name}");
            assert_eq!(header.is_fragmenting_payload(), key.get(Field::IpFrag) != 0, "{name}");
            assert_eq!(header.fragment_offset.value() != 0, key.get(Field::IpFrag) & 2 != 0, "{name}");
            check_transport(name, key, &packet, Some((header.source, header.destination)), None);
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header().to_header();
            assert_eq!(u128::from_be_bytes(header.source), key.get(Field::Ipv6Src), "{name}");
            assert_eq!(u128::from_be_bytes(header.destination), key.get(Field::Ipv6Dst), "{name}");
            assert_eq!(
                u128::from(header.traffic_class),
                key.get(Field::IpDscp) << 2 | key.get(Field::IpEcn),
                "{name}"
            );
            assert_eq!(u128::from(header.flow_label.value()), key.get(Field::Ipv6Label), "{name}");
            // A later fragment shows the fragment header's own number, 44.
            let later = key.get(Field::IpFrag) & 2 != 0;
            let protocol = if later { header.next_header } else { ip.payload().ip_number };
            assert_eq!(u128::from(protocol.0), key.get(Field::NwProto), "{name}");
            assert_eq!(ip.is_payload_fragmented(), key.get(Field::IpFrag) != 0, "{name}");
            check_transport(name, key, &packet, None, Some((header.source, header.destination)));
        }
        Some(NetSlice::Arp(arp)) => {
            assert_eq!(u128::from(arp.operation().0), key.get(Field::ArpOp));
            let be = |bytes: &[u8]| bytes.iter().fold(0u128, |n, &b| n << 8 | u128::from(b));
            assert_eq!(be(arp.sender_hw_addr()), key.get(Field::ArpSha));
            assert_eq!(be(arp.sender_protocol_addr()), key.get(Field::ArpSpa));
            assert_eq!(be(arp.target_protocol_addr()), key.get(Field::ArpTpa));
        }
        None => assert!(matches!(key.get(Field::EthType), 0x8847 | 0x88cc), "{name}"),
    }
}

type Pair<T> = Option<(T, T)>;

fn check_transport(name: &str, key: &FlowKey, packet: &SlicedPacket, v4: Pair<[u8; 4]>, v6: Pair<[u8; 16]>) {
    let whole = key.get(Field::IpFrag) == 0;
    let ports = |src: u16, dst: u16| {
        assert_eq!([src, dst].map(u128::from), [key.get(Field::TpSrc), key.get(Field::TpDst)], "{name}");
    };
    match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            ports(tcp.source_port(), tcp.destination_port());
            let flags = u16::from_be_bytes([tcp.slice()[12], tcp.slice()[13]]) & 0xfff;
            assert_eq!(u128::from(flags), key.get(Field::TcpFlags), "{name}");
            let want = match (v4, v6) {
                (Some((s, d)), _) => tcp.calc_checksum_ipv4(s, d).expect("length"),
                (_, Some((s, d))) => tcp.calc_checksum_ipv6(s, d).expect("length"),
                _ => unreachable!("TCP over IP"),
            };
            assert_eq!(tcp.checksum(), want, "{name}");
        }
        Some(TransportSlice::Udp(udp)) => {
            ports(udp.source_port(), udp.destination_port());
            let header = udp.to_header();
            let want = match (v4, v6) {
                (Some((s, d)), _) => header.calc_checksum_ipv4_raw(s, d, udp.payload()).expect("length"),
                (_, Some((s, d))) => header.calc_checksum_ipv6_raw(s, d, udp.payload()).expect("length"),
                _ => unreachable!("UDP over IP"),
            };
            assert_eq!(udp.checksum(), want, "{name}");
        }
        Some(TransportSlice::Icmpv4(icmp)) => check_icmp(key, icmp),
        Some(TransportSlice::Icmpv6(icmp)) => {
            let (s, d) = v6.expect("IPv6");
            assert!(icmp.is_checksum_valid(s, d), "{name}");
            assert_eq!(u128::from(icmp.type_u8()), key.get(Field::IcmpType), "{name}");
        }
        _ => assert!(!whole || matches!(key.get(Field::NwProto), 47 | 132), "{name}: {:?}", packet.transport),
    }
}

fn check_icmp(key: &FlowKey, icmp: &Icmpv4Slice) {
    assert_eq!(
        [icmp.type_u8(), icmp.code_u8()].map(u128::from),
        [key.get(Field::IcmpType), key.get(Field::IcmpCode)]
    );
    let sum = icmp
        .slice()
        .chunks(2)
        .map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0)))
        .sum::<u32>();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
}

#[test]
fn frames_are_valid_at_every_length() {
    let mut random = Random::new(11);
    for (name, m) in stacks() {
        for len in (0..200).chain([1514, 9014, 65_535, 1 << 20]) {
            let key = draw_key(&m, &mut random);
            let frame = frame(&key, len);
            check(&format!("{name} of {len} bytes"), &key, &frame);
            assert!(
                frame.len() == len || !(130..=65_535).contains(&len),
                "{name}: {} for {len}",
                frame.len()
            );
        }
    }
}

#[test]
fn frames_never_change() {
    let mut random = Random::new(12);
    let frames = stacks().into_iter().flat_map(|(_, m)| frame(&draw_key(&m, &mut random), 100));
    assert_eq!(hash(frames.map(u64::from)), 500103166637223596);
}

#[test]
fn neighbour_solicitations_end_with_their_options() {
    let (_, m) = stacks().into_iter().find(|s| s.0 == "nd").expect("in the list");
    let frame = frame(&draw_key(&m, &mut Random::new(1)), 200);
    let packet = SlicedPacket::from_ethernet(&frame).expect("valid");
    let Some(NetSlice::Ipv6(ip)) = packet.net else { panic!("IPv6") };
    let nd = ip.payload().payload;
    assert_eq!((nd.len(), &nd[24..]), (32, &[1u8, 1, 2, 0, 0, 0, 0, 7][..]));
}

#[test]
fn labels_go_down_to_the_bottom_of_the_stack() {
    let (_, m) = stacks().into_iter().find(|s| s.0 == "mpls").expect("in the list");
    let key = draw_key(&m, &mut Random::new(1));
    let frame = frame(&key, 60);
    let entry = |i: usize| u32::from_be_bytes(frame[14 + 4 * i..18 + 4 * i].try_into().expect("four bytes"));
    assert_eq!((entry(0) & 0x100, entry(1) & 0x100, entry(2)), (0, 0x100, 0));
    assert_eq!(entry(0), key.word(word::MPLS));
    assert_eq!(u16::from_be_bytes([frame[12], frame[13]]), EtherType(0x8847).0);
}

#[test]
fn sctp_has_its_checksum() {
    let (_, m) = stacks().into_iter().find(|s| s.0 == "sctp").expect("in the list");
    let mut frame = frame(&draw_key(&m, &mut Random::new(2)), 80);
    let stored: [u8; 4] = frame[42..46].try_into().expect("four bytes");
    frame[42..46].fill(0);
    let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    assert_eq!(u32::from_le_bytes(stored), crate::generate::checksum::crc32c(&frame[34..end]));
    assert_eq!(&frame[46..50], &[0x84, 0, 0, 32]);
}

/// The generator is the parser's inverse: what a key is built into is parsed as that key.
#[test]
fn the_parser_reads_back_the_key_that_a_frame_was_built_from() {
    let mut random = Random::new(11);
    let mut frame = Vec::new();
    for (name, matches) in stacks() {
        for _ in 0..200 {
            let key = draw_key(&matches, &mut random);
            build_frame(&key, 60, &mut frame);
            let mut parsed = FlowKey::zero();
            let headers = crate::packet::parse(&frame, 0, &mut parsed);
            assert_eq!(headers.malformed, None, "{name}: {frame:02x?}");
            assert!(matches.matches(&parsed), "{name}: {matches} does not match {parsed:?}");
            for info in Field::all() {
                let in_frame = info.class == FieldClass::Header;
                if in_frame && key.get(info.field) != 0 {
                    assert_eq!(parsed.get(info.field), key.get(info.field), "{name}: {}", info.name);
                }
            }
        }
    }
}
