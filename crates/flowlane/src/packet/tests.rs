//! The parser against frames that were put together by hand or by another library.

use etherparse::PacketBuilder;

use super::fields::{
    FRAG_ANY, FRAG_LATER, Field, ND_SLL_PRESENT, ND_TLL_PRESENT, TUNNEL_GENEVE, TUNNEL_GTPU, TUNNEL_VXLAN,
};
use super::*;

const MACS: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

pub(super) fn parsed(frame: &[u8]) -> (FlowKey, Headers) {
    let mut key = FlowKey::zero();
    let headers = parse(frame, 7, &mut key);
    (key, headers)
}

#[track_caller]
pub(super) fn expect(frame: &[u8], wanted: &[(Field, u128)]) -> Headers {
    let (key, headers) = parsed(frame);
    assert_eq!(headers.malformed, None);
    for &(field, value) in wanted {
        assert_eq!(key.get(field), value, "{}", field.info().name);
    }
    headers
}

fn ethernet(eth_type: u16, body: &[u8]) -> Vec<u8> {
    [&MACS[..], &eth_type.to_be_bytes(), body].concat()
}

fn ipv4_udp() -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([192, 0, 2, 1], [198, 51, 100, 7], 63)
        .udp(1234, 53);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[0; 18]).unwrap();
    frame
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = vec![0x6a, 0xb1, 0x23, 0x45, 0, 0, next, 61];
    body[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    body.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    body.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    body.extend(payload);
    ethernet(0x86dd, &body)
}

const UDP: [u8; 8] = [0x12, 0x34, 0x00, 0x35, 0, 8, 0, 0];

fn vxlan_of(inner: &[u8]) -> Vec<u8> {
    let body = [&[8, 0, 0, 0, 0, 0x12, 0x34, 0][..], inner].concat();
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([4, 0, 0, 0, 0, 1], [4, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9)
        .udp(5555, tunnel::VXLAN_PORT)
        .write(&mut frame, &body)
        .unwrap();
    frame
}

/// Frames of every kind that the parser knows.
pub(super) fn every_kind() -> Vec<Vec<u8>> {
    let fragment = |next: u8, offset: u16| {
        let mut payload = vec![next, 0, (offset >> 8) as u8, offset as u8, 1, 2, 3, 4];
        payload.extend(UDP);
        ipv6(44, &payload)
    };
    let mut tcp = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .double_vlan(100.try_into().unwrap(), 200.try_into().unwrap())
        .ipv4([192, 0, 2, 1], [198, 51, 100, 7], 63)
        .tcp(80, 4000, 1, 512)
        .syn()
        .ack(9)
        .write(&mut tcp, b"hello")
        .unwrap();
    let arp = [0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 9, 10, 0, 0, 1, 2, 0, 0, 0, 0, 8, 10, 0, 0, 2];
    let solicitation = [
        &[135, 0, 0, 0, 0, 0, 0, 0][..],
        &[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5],
        &[1, 1, 2, 0, 0, 0, 0, 6, 2, 1, 2, 0, 0, 0, 0, 7],
    ]
    .concat();
    let hop_by_hop =
        [&[60, 0, 1, 4, 0, 0, 0, 0][..], &[132, 0, 1, 4, 0, 0, 0, 0], &[0, 5, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0]];
    vec![
        ipv4_udp(),
        tcp,
        ethernet(0x0806, &arp),
        ethernet(0x8847, &[0, 1, 0x20, 64, 0, 2, 0x41, 65, 0xff]),
        ipv6(17, &UDP),
        ipv6(58, &solicitation),
        ipv6(0, &hop_by_hop.concat()),
        fragment(17, 1),
        fragment(17, 0x101),
        [&MACS[..], &[0, 12, 0xaa, 0xaa, 3, 0, 0, 0, 0x08, 6], &arp].concat(),
        vxlan_of(&ipv4_udp()),
        ethernet(0x894f, &[&NSH[..], &ipv4_udp()].concat()),
        // With tags, and an option of type 2.
        [&MACS[..], &[0x81, 0, 0, 5, 0x89, 0x4f, 0x2f, 0xc4, 2, 1, 0, 0, 7, 5, 1, 2, 3, 4, 0, 0, 0, 0]]
            .concat(),
    ]
}

/// NSH with metadata of type 1, in front of Ethernet.
const NSH: [u8; 24] =
    [0x1f, 0xc6, 1, 3, 0x12, 0x34, 0x56, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];

#[test]
fn ipv4_udp_fills_the_five_tuple() {
    let frame = ipv4_udp();
    let wanted = [
        (Field::InPort, 7),
        (Field::EthSrc, 0x0200_0000_0001),
        (Field::EthDst, 0x0200_0000_0002),
        (Field::EthType, 0x0800),
        (Field::VlanTci, 0),
        (Field::Ipv4Src, 0xc000_0201),
        (Field::Ipv4Dst, 0xc633_6407),
        (Field::NwProto, 17),
        (Field::NwTtl, 63),
        (Field::IpFrag, 0),
        (Field::TpSrc, 1234),
        (Field::TpDst, 53),
    ];
    let headers = expect(&frame, &wanted);
    assert_eq!((headers.l3, headers.l4, headers.payload), (14, 34, 42));
    assert_eq!((headers.network, headers.transport), (Network::Ipv4, Transport::Udp));
}

#[test]
fn tags_flags_and_options_are_found() {
    let frame = &every_kind()[1];
    let headers = expect(
        frame,
        &[
            (Field::VlanVid, 100),
            (Field::VlanTci, 0x1064),
            (Field::VlanTci1, 0x10c8),
            (Field::VlanTpid, 0x88a8),
            (Field::EthType, 0x0800),
            (Field::TcpFlags, 0x12),
            (Field::TpSrc, 80),
        ],
    );
    assert_eq!((headers.vlan_tags, headers.l3, headers.payload), (2, 22, 62));
    // Four bytes of IPv4 options move what follows.
    let mut with_options = ipv4_udp();
    with_options[14] = 0x46;
    with_options.splice(34..34, [1, 1, 1, 1]);
    with_options[17] += 4;
    let headers = expect(&with_options, &[(Field::TpDst, 53)]);
    assert_eq!(headers.l4, 38);
}

#[test]
fn arp_mpls_and_snap() {
    let kinds = every_kind();
    let arp = [
        (Field::ArpOp, 2),
        (Field::ArpSpa, 0x0a00_0001),
        (Field::ArpTpa, 0x0a00_0002),
        (Field::ArpSha, 0x0200_0000_0009),
        (Field::ArpTha, 0x0200_0000_0008),
        (Field::EthType, 0x0806),
    ];
    assert_eq!(expect(&kinds[2], &arp).network, Network::Arp);
    assert_eq!(expect(&kinds[9], &arp).l3, 22);
    let headers = expect(
        &kinds[3],
        &[(Field::MplsLabel, 18), (Field::MplsBos, 0), (Field::MplsTtl, 64), (Field::MplsLse1, 0x0002_4141)],
    );
    assert_eq!((headers.mpls_labels, headers.l3), (2, 22));
    // 802.3 without SNAP.
    expect(&[&MACS[..], &[0, 3, 0x42, 0x42, 3]].concat(), &[(Field::EthType, 0x05ff)]);
}

#[test]
fn ipv6_with_extensions_fragments_and_neighbour_discovery() {
    let kinds = every_kind();
    let wanted = [
        (Field::Ipv6Src, 0x2001_0db8_0000_0000_0000_0000_0000_0001),
        (Field::Ipv6Dst, 0x2001_0db8_0000_0000_0000_0000_0000_0002),
        (Field::Ipv6Label, 0x1_2345),
        (Field::IpDscp, 0x2a),
        (Field::IpEcn, 3),
        (Field::NwTtl, 61),
        (Field::TpSrc, 0x1234),
        (Field::TpDst, 53),
    ];
    expect(&kinds[4], &wanted);
    expect(
        &kinds[5],
        &[
            (Field::IcmpType, 135),
            (Field::NdTarget, 0xfe80_0000_0000_0000_0000_0000_0000_0005),
            (Field::NdSll, 0x0200_0000_0006),
            (Field::NdTll, 0x0200_0000_0007),
        ],
    );
    let headers = expect(&kinds[6], &[(Field::NwProto, 132), (Field::TpDst, 6)]);
    assert_eq!((headers.transport, headers.l4), (Transport::Sctp, 70));
    let headers = expect(&kinds[7], &[(Field::IpFrag, FRAG_ANY.into()), (Field::TpDst, 53)]);
    assert_eq!(headers.transport, Transport::Udp);
    let headers = expect(&kinds[8], &[(Field::IpFrag, (FRAG_ANY | FRAG_LATER).into()), (Field::TpDst, 0)]);
    assert_eq!(headers.transport, Transport::None);
}

/// Open vSwitch's flows have protocol 44 for them; a first fragment, and one that is whole (RFC 6946), its payload's.
#[test]
fn later_ipv6_fragments_are_of_the_protocol_of_their_fragment_header() {
    let fragment = |next: u8, offset: u16, more: u16| {
        let [high, low] = (offset << 3 | more).to_be_bytes();
        [&[next, 0, high, low, 0, 0, 0, 1][..], &UDP].concat()
    };
    for (next, offset, more, proto, transport) in [
        (17, 0, 0, 17, Transport::Udp),
        (17, 0, 1, 17, Transport::Udp),
        (17, 1, 1, 44, Transport::None),
        (6, 1, 0, 44, Transport::None),
        // The bytes behind are not read, whatever the protocol field says of them.
        (0, 9, 0, 44, Transport::None),
        (44, 9, 1, 44, Transport::None),
    ] {
        let headers = expect(&ipv6(44, &fragment(next, offset, more)), &[(Field::NwProto, proto)]);
        assert_eq!((headers.transport, headers.l4), (transport, 62), "{next} {offset} {more}");
        // Behind hop-by-hop options.
        let payload = [&[44, 0, 1, 4, 0, 0, 0, 0][..], &fragment(next, offset, more)].concat();
        let headers = expect(&ipv6(0, &payload), &[(Field::NwProto, proto)]);
        assert_eq!((headers.transport, headers.l4), (transport, 70), "{next} {offset} {more}");
    }
}

#[test]
fn tunnels_fill_the_tunnel_fields() {
    let terminate = |frame: &[u8]| {
        let (outer, headers) = parsed(frame);
        let found = tunnel::read(frame, &headers).unwrap().unwrap();
        let mut inner = FlowKey::zero();
        if found.inner == tunnel::Inner::Ethernet {
            parse(&frame[found.inner_at..], 7, &mut inner);
        }
        found.fill(&outer, &headers, &mut inner);
        (inner, found)
    };
    let (key, found) = terminate(&vxlan_of(&ipv4_udp()));
    assert_eq!(found.kind, TUNNEL_VXLAN);
    assert_eq!(key.get(Field::TunId), 0x1234);
    assert_eq!(key.get(Field::TunSrc), 0x0a00_0001);
    assert_eq!(key.get(Field::TunTtl), 9);
    assert_eq!(key.get(Field::Ipv4Dst), 0xc633_6407);

    let to_port = |port: u16, body: &[u8]| {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([4; 6], [6; 6])
            .ipv6([1; 16], [2; 16], 5)
            .udp(1, port)
            .write(&mut frame, body)
            .unwrap();
        frame
    };
    let option = [0x01, 0x02, 0x83, 0x02, 9, 8, 7, 6, 5, 4, 3, 2];
    let geneve = [&[3, 0x40, 0x65, 0x58, 0, 0, 5, 0][..], &option, &ipv4_udp()].concat();
    let (key, found) = terminate(&to_port(tunnel::GENEVE_PORT, &geneve));
    assert_eq!(found.kind, TUNNEL_GENEVE);
    assert_eq!(key.get(Field::TunId), 5);
    assert_eq!(key.get(Field::TunIpv6Src), u128::from_be_bytes([1; 16]));
    assert_eq!(key.get(Field::TunOptionClass), 0x0102);
    assert_eq!(key.get(Field::TunOptionType), 0x83);
    assert_eq!(key.get(Field::TunOptionData), 0x0908_0706_0504_0302);

    // With an extension header: one unit of four bytes, then no more.
    let gtpu = [&[0x34, 255, 0, 30, 0, 0, 0, 77, 0, 0, 0, 0x85, 1, 0, 0, 0][..], &ipv4_udp()[14..]].concat();
    let (key, found) = terminate(&to_port(tunnel::GTPU_PORT, &gtpu));
    assert_eq!((found.kind, found.inner), (TUNNEL_GTPU, tunnel::Inner::Ip(0x0800)));
    assert_eq!(key.get(Field::TunId), 77);
    assert_eq!(key.get(Field::TunGtpuMsgType), 255);
}

#[test]
fn malformed_frames_are_told_by_their_reason() {
    let change = |at: usize, value: u8| {
        let mut frame = ipv4_udp();
        frame[at] = value;
        parsed(&frame).1.malformed
    };
    assert_eq!(change(14, 0x65), Some(Malformed::Ipv4Version));
    assert_eq!(change(14, 0x44), Some(Malformed::Ipv4HeaderLength));
    assert_eq!(change(16, 0xff), Some(Malformed::Ipv4TotalLength));
    assert_eq!(change(39, 7), Some(Malformed::UdpLength));
    assert_eq!(change(38, 0xff), Some(Malformed::UdpLength));
    assert_eq!(change(23, 6), Some(Malformed::TcpHeaderLength));
    assert_eq!(parsed(&[0; 13]).1.malformed, Some(Malformed::EthernetTruncated));
    // What came before the fault is in the key.
    let (key, headers) = parsed(&ipv4_udp()[..20]);
    assert_eq!(headers.malformed, Some(Malformed::Ipv4Truncated));
    assert_eq!((key.get(Field::EthType), headers.network), (0x0800, Network::None));
    let endless = [[0u8, 0, 1, 4, 0, 0, 0, 0]; parse::IPV6_EXTENSIONS_MAX + 1].concat();
    assert_eq!(parsed(&ipv6(0, &endless)).1.malformed, Some(Malformed::Ipv6ExtensionLimit));
}

/// The promises of [`Headers`], for any frame.
fn check_offsets(frame: &[u8]) {
    let (key, h) = parsed(frame);
    let least = match h.network {
        Network::None => 0,
        Network::Ipv4 => 20,
        Network::Ipv6 => 40,
        Network::Arp => 28,
        Network::Nsh => 8,
    };
    assert!(usize::from(h.l3) + least <= frame.len().max(least));
    let least = match h.transport {
        Transport::None => 0,
        Transport::Tcp => 20,
        Transport::Udp | Transport::UdpLite | Transport::Icmpv4 => 8,
        Transport::Sctp => 12,
        Transport::Icmpv6 | Transport::Gre => 4,
    };
    if least > 0 {
        assert!(usize::from(h.l4) + least <= frame.len());
        assert!(usize::from(h.payload) <= frame.len());
    }
    for w in 0..key::WORDS {
        assert!(key.present().contains(w) || key.word(w) == 0);
    }
    if let Ok(Some(found)) = tunnel::read(frame, &h) {
        assert!(found.inner_at <= frame.len());
    }
}

#[test]
fn every_truncation_and_many_mutations_keep_offsets_within_the_frame() {
    let mut state = 1u64;
    for frame in every_kind() {
        for len in 0..=frame.len() {
            check_offsets(&frame[..len]);
        }
        for _ in 0..20_000 {
            let mut mutated = frame.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let at = (state >> 33) as usize % mutated.len();
                mutated[at] = (state >> 25) as u8;
            }
            check_offsets(&mutated);
        }
    }
}

#[test]
fn a_reused_key_is_as_good_as_a_new_one() {
    let frames = every_kind();
    let mut reused = FlowKey::zero();
    for first in &frames {
        for second in &frames {
            parse(first, 1, &mut reused);
            parse(second, 7, &mut reused);
            let (new, _) = parsed(second);
            assert_eq!((&reused, reused.present()), (&new, new.present()));
        }
    }
}

/// A TCP or UDP frame with 0 to 2 tags, over IPv4 or IPv6.
fn stacked(tags: usize, v6: bool, tcp: bool, payload: usize) -> Vec<u8> {
    let mut transport = vec![0x12, 0x34, 0x56, 0x78];
    if tcp {
        transport.extend([1, 2, 3, 4, 5, 6, 7, 8, 0x5f, 0xff, 0, 9, 1, 1, 0, 0]);
    } else {
        transport.extend(((8 + payload) as u16).to_be_bytes());
        transport.extend([0xaa, 0xbb]);
    }
    transport.resize(transport.len() + payload, 0xee);
    let mut frame = if v6 {
        ipv6(if tcp { 6 } else { 17 }, &transport)
    } else {
        let mut body = vec![0x45, 0xb7, 0, 0, 9, 9, 0x40, 0, 61, if tcp { 6 } else { 17 }, 0xcc, 0xdd];
        body.extend([192, 0, 2, 1, 198, 51, 100, 7]);
        body.extend(&transport);
        let len = (body.len() as u16).to_be_bytes();
        body[2..4].copy_from_slice(&len);
        ethernet(0x0800, &body)
    };
    for tag in 0..tags {
        frame.splice(12..12, [0x81, 0, 0xe0, tag as u8]);
    }
    frame
}

/// Every kind of frame, every truncation of it, and every byte of its headers changed: every variant gives
/// the scalar parser's key, bitmap, offsets and fault, whatever the key held before.
#[test]
fn every_variant_extracts_what_the_scalar_parser_does() {
    let mut frames = every_kind();
    let mut fast = 0;
    for tags in 0..4 {
        for (v6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            for payload in [0, 3, 18, 100] {
                frames.push(stacked(tags, v6, tcp, payload));
                // A service tag outside.
                let mut service = stacked(tags, v6, tcp, payload);
                service[12..14].copy_from_slice(if tags > 0 { &[0x88, 0xa8] } else { &[0x88, 0x47] });
                frames.push(service);
            }
        }
    }
    crate::isa::testing::for_each_variant(|variant| {
        let Some(parser) = Parser::with_variant(variant) else {
            return println!("{variant}: this CPU lacks an extension that its parser needs");
        };
        let mut keys = vec![FlowKey::zero(); 1];
        let mut check = |frame: &[u8]| {
            let mut headers = [Headers::default()];
            parser.parse_all(std::iter::once(frame), 7, &mut keys, &mut headers);
            let (key, wanted) = parsed(frame);
            assert_eq!(headers[0], wanted, "{variant}: {frame:02x?}");
            assert_eq!(keys[0], key, "{variant}: {frame:02x?}");
            assert_eq!(keys[0].present(), key.present(), "{variant}: {frame:02x?}");
            fast += usize::from(wanted.malformed.is_none());
        };
        for frame in &frames {
            (0..=frame.len()).for_each(|len| check(&frame[..len]));
            let mut changed = frame.clone();
            for at in 0..frame.len().min(90) {
                for flip in [0x01, 0x10, 0x20, 0x40, 0x80, 0xff] {
                    changed[at] = frame[at] ^ flip;
                    check(&changed);
                }
                changed[at] = frame[at];
            }
        }
    });
    assert!(fast > 1000);
}

/// IPv4 of this protocol with more fragments to come.
fn first_fragment(proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = vec![0x45, 0, 0, 20 + payload.len() as u8, 0, 1, 0x20, 0, 64, proto, 0, 0];
    body.extend([192, 0, 2, 1, 198, 51, 100, 7]);
    body.extend(payload);
    ethernet(0x0800, &body)
}

/// IPv6 with a fragment header before this protocol and more fragments to come.
fn first_fragment_v6(proto: u8, payload: &[u8]) -> Vec<u8> {
    ipv6(44, &[&[proto, 0, 0, 1, 0, 0, 0, 9][..], payload].concat())
}

#[test]
fn first_fragments_need_not_have_the_whole_transport_header() {
    let tcp = [0x12, 0x34, 0, 22, 0, 0, 0, 1, 0, 0, 0, 0, 0xf0, 0x02, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1];
    let ports = [(Field::TpSrc, 0x1234), (Field::TpDst, 22)];
    type FirstFragment = fn(u8, &[u8]) -> Vec<u8>;
    for make in [first_fragment as FirstFragment, first_fragment_v6] {
        let fragment = (Field::IpFrag, FRAG_ANY.into());
        // TCP options go on in the next fragment; with 20 bytes and more the header counts as found.
        for len in 0..=tcp.len() {
            let frame = make(6, &tcp[..len]);
            let headers = expect(&frame, &[fragment, (Field::NwProto, 6)]);
            expect(&frame, if len >= 4 { &ports } else { &[(Field::TpSrc, 0), (Field::TpDst, 0)] });
            expect(&frame, &[(Field::TcpFlags, if len >= 14 { 2 } else { 0 })]);
            let found = if len >= 20 { Transport::Tcp } else { Transport::None };
            let malformed = if len >= 20 { 0 } else { Layer::Transport as u128 };
            expect(&frame, &[(Field::Malformed, malformed)]);
            assert_eq!(headers.transport, found, "{len}");
            assert!(len < 20 || usize::from(headers.payload) == frame.len(), "{len}");
            check_offsets(&frame);
        }
        let udp = [0x12, 0x34, 0, 22, 5, 0xdc, 0, 0];
        for (proto, bytes) in [(17, &udp[..]), (132, &tcp[..12])] {
            for len in 4..bytes.len() {
                expect(&make(proto, &bytes[..len]), &ports);
            }
            let headers = expect(&make(proto, bytes), &ports);
            assert_ne!(headers.transport, Transport::None);
        }
        for len in 0..tcp.len() {
            // A data offset below 20 bytes is wrong in any fragment.
            let mut wrong = tcp;
            wrong[12] = 0x40;
            let (key, headers) = parsed(&make(6, &wrong[..len]));
            assert_eq!(headers.malformed, (len >= 20).then_some(Malformed::TcpHeaderLength), "{len}");
            assert!(len < 13 || key.get(Field::TpDst) == 0);
        }
    }
    for len in 2..8 {
        let kind = [(Field::IcmpType, 8), (Field::IcmpCode, 3)];
        expect(&first_fragment(1, &[8, 3, 0, 0, 0, 0, 0, 0][..len]), &kind);
    }
    expect(&first_fragment_v6(58, &[128, 3, 0]), &[(Field::IcmpType, 128), (Field::IcmpCode, 3)]);
    // In a whole packet it is a fault.
    let mut whole = first_fragment(6, &tcp[..8]);
    whole[20] = 0;
    assert_eq!(parsed(&whole).1.malformed, Some(Malformed::TcpTruncated));
    // Beyond the packet, as far as it was captured, nothing is known.
    let frame = first_fragment(6, &tcp);
    let headers = parse_captured(Captured::new(&frame[..50], frame.len()), 1, &mut FlowKey::zero());
    assert_eq!(headers.malformed, Some(Malformed::NotCaptured));
}

#[test]
fn options_of_neighbour_discovery_are_present_though_they_are_zero() {
    let options = |options: &[u8]| {
        let mut message = vec![0; 24];
        message[0] = 135;
        message[4..8].copy_from_slice(&[0xa0, 0, 0, 7]);
        message.extend(options);
        ipv6(58, &message)
    };
    let (source, target) = ([1, 1, 0, 0, 0, 0, 0, 0], [2, 1, 0, 0, 0, 0, 0, 0]);
    let nonce = [14, 1, 0, 0, 0, 0, 0, 0];
    let both = ND_SLL_PRESENT | ND_TLL_PRESENT;
    let cases = [
        (vec![], 0, 0),
        (source.to_vec(), ND_SLL_PRESENT, 1),
        (target.to_vec(), ND_TLL_PRESENT, 2),
        ([source, target].concat(), both, 1),
        ([target, source].concat(), both, 2),
        ([nonce, target, source].concat(), both, 2),
        (nonce.to_vec(), 0, 0),
    ];
    for (bytes, present, first) in cases {
        let frame = options(&bytes);
        let wanted = [
            (Field::NdOptions, present.into()),
            (Field::NdOptionsType, first),
            (Field::NdReserved, 0xa000_0007),
            (Field::NdSll, 0),
            (Field::ArpOp, 0),
        ];
        expect(&frame, &wanted);
        // The frame that is made from its key has them, too.
        let (key, mut made) = (parsed(&frame).0, Vec::new());
        crate::generate::build_frame(&key, 0, &mut made);
        expect(&made, &wanted);
    }
    assert!(Field::by_name("nd_options").is_none());
}

#[test]
fn pppoe_sessions_are_transparent_where_asked_for() {
    let plain = ipv4_udp();
    let session = |ppp: &[u8], tags: &[u8]| {
        let mut frame = [&plain[..12], tags, &[0x88, 0x64, 0x11, 0, 0, 7, 0, 0], ppp, &plain[14..]].concat();
        let at = 12 + tags.len() + 6;
        let len = (frame.len() - at - 2) as u16;
        frame[at..at + 2].copy_from_slice(&len.to_be_bytes());
        frame
    };
    let look = |frame: &[u8], captured: usize| {
        let (mut key, frame) = (FlowKey::zero(), Captured::new(&frame[..captured], frame.len()));
        let headers = parse_captured(frame.with_pppoe(), 7, &mut key);
        (key, headers)
    };
    let tag = [0x81, 0, 0, 5];
    let tagged = [&plain[..12], &tag, &plain[12..]].concat();
    for (ppp, tags, like) in [
        (&[0, 0x21][..], &[][..], &plain),
        (&[0x21], &[], &plain),
        (&[0, 0x21], &tag, &tagged),
        (&[0x21], &tag, &tagged),
    ] {
        let frame = session(ppp, tags);
        let (key, headers) = look(&frame, frame.len());
        assert!(key == parsed(like).0 && headers.malformed.is_none());
        assert_eq!(usize::from(headers.l3), 14 + tags.len() + 6 + ppp.len());
        expect(&frame, &[(Field::EthType, 0x8864), (Field::Ipv4Src, 0)]);
        // Truncated captures say nothing that the whole frame does not.
        for captured in 0..frame.len() {
            let (cut, headers) = look(&frame, captured);
            for info in Field::all().iter().filter(|info| info.field != Field::Malformed) {
                let value = cut.get(info.field);
                assert!(value == 0 || value == key.get(info.field), "{captured}: {}", info.name);
            }
            assert!(headers.malformed.is_none() || headers.malformed == Some(Malformed::NotCaptured));
        }
    }
    // Other protocols than IP and MPLS, and other messages, keep their EtherType.
    for frame in [
        session(&[0xc0, 0x21], &[]),
        ethernet(0x8864, &[0x11, 0xa7, 0, 7, 0, 2, 0, 0x21]),
        ethernet(0x8864, &[0x11]),
    ] {
        let (key, headers) = look(&frame, frame.len());
        assert_eq!((key.get(Field::EthType), headers.network), (0x8864, Network::None));
    }
}
