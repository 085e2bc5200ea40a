use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use proptest::prelude::*;

use super::*;
use crate::packet::parse::ether_type;
use crate::packet::tunnel::erspan::{Erspan, ErspanHeader};

/// Options of random lengths, none of them critical.
fn options() -> impl Strategy<Value = Vec<u8>> {
    let option = (any::<[u8; 3]>(), 0u8..4).prop_map(|(head, words)| {
        [&[head[0], head[1], head[2] & 0x7f, words][..], &vec![0xa5; usize::from(words) * 4]].concat()
    });
    proptest::collection::vec(option, 0..4).prop_map(|options| options.concat())
}

fn tunnels() -> impl Strategy<Value = Encapsulation> {
    let kind = proptest::sample::select(TunnelKind::ALL.to_vec());
    let tos = prop_oneof![Just(Tos::Inner), (0u8..64).prop_map(Tos::Dscp)];
    (kind, any::<(u32, u32, u32, bool, bool, bool, u8)>(), tos, options()).prop_map(
        |(kind, (id, from, to, is_v6, ip_inside, checksum, ttl), tos, options)| {
            let ends = if is_v6 { (v6(from), v6(to)) } else { (v4(from & 0xffff), v4(to & 0xffff)) };
            let mut tunnel = Encapsulation::new(kind, id & kind.id_max(), ends.0, ends.1);
            (tunnel.tos, tunnel.ttl, tunnel.checksum, tunnel.mtu) = (tos, ttl, checksum, u16::MAX);
            if id & 1 == 0 {
                tunnel.sequence = Some(Sequence::default());
            }
            tunnel.erspan = match id & 2 {
                0 => Erspan::Version1 { index: id >> 12 },
                _ => Erspan::Version2 { is_egress: id & 4 != 0, hardware: (id >> 8) as u8 & 0x3f },
            };
            if kind == TunnelKind::Geneve {
                tunnel.options = options;
            }
            if matches!(kind, TunnelKind::Geneve | TunnelKind::Gre) {
                tunnel.inner = if ip_inside { Inner::Ip(ether_type::IPV4) } else { Inner::Ethernet };
            }
            tunnel
        },
    )
}

/// The outer headers are what another library reads, with the checksums that it computes.
fn check_with_etherparse(tunnel: &Encapsulation, frame: &[u8], inner: &[u8]) {
    let read = PacketHeaders::from_ethernet_slice(frame).unwrap();
    match tunnel.kind {
        TunnelKind::Gre => return check_gre(tunnel, &read, inner),
        TunnelKind::Erspan => return check_erspan(tunnel, read.payload.slice(), inner),
        TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gtpu => {}
    }
    let Some(TransportHeader::Udp(udp)) = read.transport else { panic!("no UDP: {read:?}") };
    let payload = &frame[frame.len() - usize::from(udp.length) + 8..];
    assert!(payload.ends_with(inner));
    assert!(udp.source_port >= 0xc000, "{}", udp.source_port);
    let computed = match read.net.unwrap() {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!((ip.time_to_live, ip.dont_fragment), (tunnel.ttl, true));
            udp.calc_checksum_ipv4(&ip, payload).unwrap()
        }
        NetHeaders::Ipv6(ip, _) => {
            assert_eq!(ip.hop_limit, tunnel.ttl);
            udp.calc_checksum_ipv6(&ip, payload).unwrap()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(udp.checksum, if tunnel.checksum { computed } else { 0 });
}

/// The flags of GRE say what its header has: a checksum that is right, the key, and the first sequence number.
fn check_gre(tunnel: &Encapsulation, read: &PacketHeaders<'_>, inner: &[u8]) {
    let protocol = match read.net.as_ref().unwrap() {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!((ip.time_to_live, ip.dont_fragment), (tunnel.ttl, true));
            ip.protocol
        }
        NetHeaders::Ipv6(ip, _) => ip.next_header,
        other => panic!("{other:?}"),
    };
    assert_eq!(protocol.0, 47);
    let gre = read.payload.slice();
    let protocol = if tunnel.inner == Inner::Ethernet { [0x65, 0x58] } else { [8, 0] };
    assert_eq!((gre[0] & 0x4f, gre[1], &gre[2..4]), (0, 0, &protocol[..]));
    let mut rest = &gre[4..];
    if gre[0] & 0x80 != 0 {
        assert!(tunnel.checksum);
        let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
        assert_eq!(gre.chunks(2).map(word).sum::<u64>() % 0xffff, 0, "ones' complement: all ones");
        rest = &rest[4..];
    }
    if gre[0] & 0x20 != 0 {
        assert_eq!(rest[..4], tunnel.id.to_be_bytes());
        rest = &rest[4..];
    }
    if gre[0] & 0x10 != 0 {
        assert_eq!(rest[..4], [0; 4]);
        rest = &rest[4..];
    }
    assert_eq!(rest, inner);
    let flags = [gre[0] & 0x80, gre[0] & 0x20, gre[0] & 0x10].map(|flag| flag != 0);
    assert_eq!(flags, [tunnel.checksum, tunnel.has_key, tunnel.sequence.is_some()]);
}

/// Type II or III with the first sequence number, and the flow key has what the header says.
fn check_erspan(tunnel: &Encapsulation, erspan: &[u8], inner: &[u8]) {
    let session = tunnel.id.to_be_bytes();
    let (header, rest) = match tunnel.erspan {
        Erspan::Version1 { index } => {
            ([0x10, 0, 0x88, 0xbe, 0, 0, 0, 0, 0x10, 0], index.to_be_bytes().to_vec())
        }
        Erspan::Version2 { is_egress, hardware } => {
            let last = u32::from(hardware) << 4 | u32::from(is_egress) << 3;
            let rest = [[0; 4], last.to_be_bytes()].concat();
            ([0x10, 0, 0x22, 0xeb, 0, 0, 0, 0, 0x20, 0], rest)
        }
    };
    assert_eq!(erspan, [&header[..], &session[2..], &rest, inner].concat());
    let header = ErspanHeader::read(erspan).unwrap();
    assert_eq!((header.session, header.erspan), (tunnel.id, tunnel.erspan));
}

#[test]
fn erspan_of_version_2_has_the_time_and_limits_hold() {
    let mut tunnel = Encapsulation::new(TunnelKind::Erspan, 0x3ff, v4(2), v4(1));
    tunnel.erspan = Erspan::Version2 { is_egress: true, hardware: 0x3f };
    let mut buffer = vec![0xa5; 200];
    let packet = PerPacket { time_100us: 0x0102_0304, ..PerPacket::default() };
    let start = Encapsulator::new(&tunnel).unwrap().encapsulate_with(&mut buffer, 120, &packet).unwrap();
    assert_eq!(buffer[start + 42..start + 54], [0x20, 0, 3, 0xff, 1, 2, 3, 4, 0, 0, 3, 0xf8]);
    let wrong = |change: &dyn Fn(&mut Encapsulation)| {
        let mut tunnel = tunnel.clone();
        change(&mut tunnel);
        Encapsulator::new(&tunnel).unwrap_err()
    };
    assert_eq!(wrong(&|tunnel| tunnel.id = 0x400), EncapsulationError::Session { id: 0x400 });
    let wrong = |change: &dyn Fn(&mut Encapsulation)| assert_eq!(wrong(change), EncapsulationError::Erspan);
    wrong(&|tunnel| tunnel.sequence = None);
    wrong(&|tunnel| tunnel.erspan = Erspan::Version1 { index: 1 << 20 });
    wrong(&|tunnel| tunnel.erspan = Erspan::Version2 { is_egress: false, hardware: 64 });
}

#[test]
fn sequence_numbers_go_on_in_all_copies_of_a_tunnel_and_checksums_follow() {
    let mut tunnel = Encapsulation::new(TunnelKind::Gre, 7, v4(2), v4(1));
    (tunnel.sequence, tunnel.checksum) = (Some(Sequence::default()), true);
    let apart = Encapsulation { sequence: Some(Sequence::default()), ..tunnel.clone() };
    let mut ends = [tunnel.clone(), tunnel, apart].map(|tunnel| Encapsulator::new(&tunnel).unwrap());
    let (first, third) = ends.split_at_mut(2);
    third[0].share_sequence(&first[0]);
    for number in 0..6u32 {
        let mut buffer = vec![0xa5; 200];
        let start = ends[number as usize % 3].encapsulate(&mut buffer, 120, 1).unwrap();
        let gre = &buffer[start + 34..];
        assert_eq!((gre[0], &gre[12..16]), (0xb0, &number.to_be_bytes()[..]));
        let word = |pair: &[u8]| u64::from(u16::from_be_bytes([pair[0], pair[1]]));
        assert_eq!(gre.chunks(2).map(word).sum::<u64>() % 0xffff, 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]

    #[test]
    fn encapsulation_then_decapsulation_is_identity(
        tunnel in tunnels(), len in 0usize..2000, seed: u64, hash: u32, vrf in 0u32..=VRF_MAX,
    ) {
        let inner = inner_for(&tunnel, len, &mut Random::new(seed));
        let encapsulator = Encapsulator::new(&tunnel).unwrap();
        let at = encapsulator.header_bytes() + 5;
        let mut buffer = [&vec![0xee; at], &inner[..]].concat();
        prop_assert_eq!(encapsulator.encapsulate(&mut buffer, at, hash), Ok(5));
        let frame = buffer.split_off(5);
        prop_assert_eq!(&buffer, &[0xee; 5]);
        check_with_etherparse(&tunnel, &frame, &inner);
        let mut table = EndpointTable::new(&EndpointConfig::default());
        table.insert(&endpoint_of(&tunnel, vrf), EndpointId(77)).unwrap();
        let policy = Policy { ipv6_zero_checksum: true, ..Policy::default() };
        for mut node in nodes(&table, &policy) {
            let found = terminate(&mut node, std::slice::from_ref(&frame), vrf).remove(0);
            let wanted = Ok((EndpointId(77), tunnel.id, tunnel.kind, inner.clone()));
            prop_assert_eq!(found, Some(wanted), "{}", node.variant());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]

    /// Options of a packet are where those of its tunnel would be, whatever part is the tunnel's own.
    #[test]
    fn options_of_packets_are_like_those_of_tunnels(
        tunnel in tunnels(), own in options(), critical: bool, len in 0usize..2000, seed: u64, hash: u32,
    ) {
        let own = if critical { [&own[..], &[1, 2, 0x83, 0]].concat() } else { own };
        let inner = inner_for(&tunnel, len, &mut Random::new(seed));
        let put = |tunnel: &Encapsulation, own: &[u8]| {
            let mut buffer = [&[0xee; 700], &inner[..]].concat();
            let start = Encapsulator::new(tunnel).unwrap().encapsulate_with(
                &mut buffer,
                700,
                &PerPacket { flow_hash: hash, options: own, ..PerPacket::default() },
            )?;
            Ok(buffer.split_off(start))
        };
        let found = put(&tunnel, &own);
        if tunnel.kind == TunnelKind::Geneve {
            let whole = Encapsulation { options: [&tunnel.options[..], &own].concat(), ..tunnel.clone() };
            prop_assert_eq!(&found, &put(&whole, &[]));
            check_with_etherparse(&tunnel, &found.unwrap(), &inner);
        } else if !own.is_empty() {
            prop_assert_eq!(found, Err(Oversize::Options));
        }
    }
}

#[test]
fn the_type_of_service_follows_the_policy() {
    let mut tunnel = Encapsulation::new(TunnelKind::Vxlan, 7, v4(2), v4(1));
    // Inside: DSCP 46, ECN 3 (IPv4, and IPv6 behind two tags).
    let mut ipv4 = inner_frame(60, &mut Random::new(1));
    ipv4[15] = 46 << 2 | 3;
    let mut ipv6 = vec![0; 80];
    ipv6[12..22].copy_from_slice(&[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x86, 0xdd]);
    ipv6[22..24].copy_from_slice(&[0x6b, 0xb0]);
    for (inner, tos) in [(&ipv4, 46 << 2 | 3), (&ipv6, 46 << 2 | 3), (&vec![0; 60], 0)] {
        tunnel.tos = Tos::Inner;
        assert_eq!(encapsulated(&tunnel, inner)[15], tos);
        tunnel.tos = Tos::Dscp(10);
        assert_eq!(encapsulated(&tunnel, inner)[15], 10 << 2 | tos & 3);
    }
}

#[test]
fn packets_that_do_not_fit_are_refused_without_a_write() {
    let tunnel = Encapsulation::new(TunnelKind::Vxlan, 7, v4(2), v4(1));
    let encapsulator = Encapsulator::new(&tunnel).unwrap();
    let mut buffer = vec![0; 4000];
    let longest = 1600 - 36;
    assert_eq!(encapsulator.encapsulate(&mut buffer[..50 + longest], 50, 1), Ok(0));
    buffer.fill(0);
    assert_eq!(encapsulator.encapsulate(&mut buffer[..51 + longest], 50, 1), Err(Oversize::Mtu));
    assert_eq!(encapsulator.encapsulate(&mut buffer[..100], 49, 1), Err(Oversize::Headroom));
    assert_eq!(encapsulator.encapsulate(&mut buffer[..100], 101, 1), Err(Oversize::Headroom));
    let options = [&[0, 0, 0, 31][..], &[0; 124]].concat();
    let geneve = Encapsulation { options: options.clone(), kind: TunnelKind::Geneve, ..tunnel };
    let geneve = Encapsulator::new(&geneve).unwrap();
    // 128 and 128 are more than 252.
    let packet = PerPacket { flow_hash: 1, options: &options, ..PerPacket::default() };
    assert_eq!(geneve.encapsulate_with(&mut buffer[..600], 500, &packet), Err(Oversize::Options));
    assert!(buffer.iter().all(|byte| *byte == 0));
}

#[test]
fn the_longest_packet_fits_and_one_byte_more_does_not() {
    for ends in [(v4(2), v4(1)), (v6(2), v6(1))] {
        let mut tunnel = Encapsulation::new(TunnelKind::Vxlan, 7, ends.0, ends.1);
        (tunnel.mtu, tunnel.checksum) = (u16::MAX, true);
        let encapsulator = Encapsulator::new(&tunnel).unwrap();
        let at = encapsulator.header_bytes();
        let longest = 65_535 - (at - 14);
        let mut buffer = vec![0xff; at + longest + 1];
        assert_eq!(encapsulator.encapsulate(&mut buffer, at, 1), Err(Oversize::Mtu));
        buffer.pop();
        assert_eq!(encapsulator.encapsulate(&mut buffer, at, 1), Ok(0));
        check_with_etherparse(&tunnel, &buffer, &vec![0xff; longest]);
    }
}

#[test]
fn errors_of_tunnels_are_distinguished() {
    let good = Encapsulation::new(TunnelKind::Vxlan, 7, v4(2), v4(1));
    let refused = |tunnel: Encapsulation| Encapsulator::new(&tunnel).unwrap_err();
    let mixed = refused(Encapsulation { source: v6(1), ..good.clone() });
    assert!(matches!(mixed, EncapsulationError::Families { .. }));
    assert_eq!(
        refused(Encapsulation { id: 1 << 24, ..good.clone() }),
        EncapsulationError::Vni { id: 1 << 24 }
    );
    assert_eq!(
        refused(Encapsulation { tos: Tos::Dscp(64), ..good.clone() }),
        EncapsulationError::Dscp { dscp: 64 }
    );
    let inner = refused(Encapsulation { inner: Inner::Ip(0x0800), ..good.clone() });
    assert!(inner.to_string().contains("VXLAN and ERSPAN carry Ethernet"), "{inner}");
    let options = refused(Encapsulation { options: vec![0; 4], ..good.clone() });
    assert!(options.to_string().contains("only GENEVE has options"), "{options}");
    for wrong in [vec![0, 0, 0, 1], vec![0; 3], vec![0; 256]] {
        let tunnel = Encapsulation { kind: TunnelKind::Geneve, options: wrong, ..good.clone() };
        assert!(matches!(refused(tunnel), EncapsulationError::Options { .. }));
    }
    assert_eq!(refused(Encapsulation { mtu: 36, ..good }), EncapsulationError::Mtu { mtu: 36, headers: 36 });
}

#[test]
fn critical_options_are_announced_and_flows_spread_over_ports() {
    let mut tunnel = Encapsulation::new(TunnelKind::Geneve, 7, v4(2), v4(1));
    tunnel.options = vec![0, 1, 2, 1, 9, 9, 9, 9, 0, 1, 0x82, 0];
    let frame = encapsulated(&tunnel, &[0; 60]);
    assert_eq!(frame[42..44], [3, 0x40]);
    let encapsulator = Encapsulator::new(&tunnel).unwrap();
    let at = encapsulator.header_bytes();
    let mut buffer = vec![0; at + 60];
    let mut random = Random::new(4);
    let ports: std::collections::HashSet<[u8; 2]> = (0..1000)
        .map(|_| {
            encapsulator.encapsulate(&mut buffer, at, random.bits() as u32).unwrap();
            [buffer[34], buffer[35]]
        })
        .collect();
    assert!(ports.len() > 950, "{}", ports.len());
}
