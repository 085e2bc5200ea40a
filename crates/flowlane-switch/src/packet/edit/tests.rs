//! Edited packets against another library's reading and against checksums computed from scratch.

use etherparse::{NetHeaders, PacketBuilder, PacketHeaders, TransportHeader};
use flowlane::packet::fields::Field;
use flowlane::packet::{FlowKey, Headers, parse};

use super::*;

pub(crate) mod fields;
mod labels;
mod packets;
pub(crate) mod reference;
mod types;

fn frame_of(bytes: &[u8]) -> (Frame, Headers, FlowKey) {
    let mut frame = Frame::default();
    frame.fill(bytes);
    let mut key = FlowKey::zero();
    let headers = parse(bytes, 1, &mut key);
    assert_eq!(headers.malformed, None, "{bytes:02x?}");
    (frame, headers, key)
}

/// Packets of every stack whose checksums are known to the other library.
fn packets() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let payload = b"an odd number of bytes!";
    let eth = || PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut keep = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        out.push(bytes);
    };
    keep(&|b| eth().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).udp(1, 2).write(b, payload).unwrap());
    keep(&|b| eth().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).tcp(1, 2, 3, 4).write(b, payload).unwrap());
    keep(&|b| {
        eth().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).icmpv4_echo_request(1, 2).write(b, payload).unwrap()
    });
    keep(&|b| eth().ipv6([1; 16], [2; 16], 9).udp(1, 2).write(b, payload).unwrap());
    keep(&|b| eth().ipv6([1; 16], [2; 16], 9).tcp(1, 2, 3, 4).write(b, payload).unwrap());
    keep(&|b| eth().ipv6([1; 16], [2; 16], 9).icmpv6_echo_request(1, 2).write(b, payload).unwrap());
    let vlan = || eth().single_vlan(5.try_into().unwrap());
    keep(&|b| vlan().ipv4([10, 0, 0, 1], [10, 0, 0, 2], 9).udp(1, 2).write(b, payload).unwrap());
    out
}

/// Every checksum of the packet, computed by the other library.
fn assert_checksums(bytes: &[u8], context: &str) {
    let packet = PacketHeaders::from_ethernet_slice(bytes).unwrap();
    let payload = packet.payload.slice();
    match (packet.net.unwrap(), packet.transport.unwrap()) {
        (NetHeaders::Ipv4(ip, _), transport) => {
            assert_eq!(ip.header_checksum, ip.calc_header_checksum(), "{context}: IPv4");
            match transport {
                TransportHeader::Udp(h) => {
                    assert_eq!(h.checksum, h.calc_checksum_ipv4(&ip, payload).unwrap(), "{context}: UDP");
                }
                TransportHeader::Tcp(h) => {
                    assert_eq!(h.checksum, h.calc_checksum_ipv4(&ip, payload).unwrap(), "{context}: TCP");
                }
                TransportHeader::Icmpv4(h) => {
                    assert_eq!(h.checksum, h.icmp_type.calc_checksum(payload), "{context}: ICMP");
                }
                other => panic!("{other:?} over IPv4"),
            }
        }
        (NetHeaders::Ipv6(ip, _), transport) => match transport {
            TransportHeader::Udp(h) => {
                assert_eq!(
                    h.checksum,
                    h.calc_checksum_ipv6(&ip, payload).unwrap(),
                    "{context}: UDP over IPv6"
                );
            }
            TransportHeader::Tcp(h) => {
                assert_eq!(
                    h.checksum,
                    h.calc_checksum_ipv6(&ip, payload).unwrap(),
                    "{context}: TCP over IPv6"
                );
            }
            TransportHeader::Icmpv6(h) => {
                let wanted = h.icmp_type.calc_checksum(ip.source, ip.destination, payload).unwrap();
                assert_eq!(h.checksum, wanted, "{context}: ICMPv6");
            }
            other => panic!("{other:?} over IPv6"),
        },
        _ => panic!("no IP"),
    }
}

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 24
}

#[test]
fn a_field_that_was_set_is_read_back_and_nothing_else_has_changed() {
    let mut state = 3;
    for bytes in packets() {
        for info in Field::all().iter().filter(|f| f.writable) {
            let (mut frame, mut headers, before) = frame_of(&bytes);
            let value = u128::from(next(&mut state)) << 80 | u128::from(next(&mut state)) << 40;
            let value = (value | u128::from(next(&mut state))) & info.ones();
            let mask = info.ones() & (u128::from(next(&mut state)) << 90 | u128::from(next(&mut state)));
            let value = value & mask;
            if !set_field(&mut frame, &mut headers, info.field, value, mask) {
                assert_eq!(frame.bytes(), bytes, "{}", info.name);
                continue;
            }
            // Changing an ICMP type may make another message of it, which this test is not about.
            if info.field != Field::IcmpType {
                assert_checksums(frame.bytes(), info.name);
            }
            let mut after = FlowKey::zero();
            assert_eq!(parse(frame.bytes(), 1, &mut after).l4, headers.l4, "{}", info.name);
            let mut wanted = before.clone();
            wanted.set_masked(info.field, value, mask);
            if matches!(info.field, Field::VlanTci | Field::VlanVid | Field::VlanPcp) {
                wanted.set_masked(Field::VlanTci, 0x1000, 0x1000);
                wanted.set(Field::VlanTpid, 0x8100);
            }
            assert_eq!(after, wanted, "{}", info.name);
        }
    }
}

#[test]
fn long_sequences_of_edits_keep_checksums_and_offsets_right() {
    let mut state = 11;
    for round in 0..3000 {
        for bytes in packets() {
            let (mut frame, mut headers, _) = frame_of(&bytes);
            let mut tags = usize::from(headers.vlan_tags);
            for _ in 0..8 {
                match next(&mut state) % 8 {
                    0 if tags < 2 => {
                        assert!(push_vlan(&mut frame, &mut headers, 0x88a8));
                        tags += 1;
                    }
                    1 if tags > 0 => {
                        assert!(pop_vlan(&mut frame, &mut headers));
                        tags -= 1;
                    }
                    2 => _ = dec_ttl(&mut frame, &headers),
                    _ => {
                        let fields =
                            [Field::Ipv4Src, Field::Ipv6Dst, Field::IpDscp, Field::TpDst, Field::IpEcn];
                        let field = fields[next(&mut state) as usize % 5];
                        let value = u128::from(next(&mut state)) << 88 | u128::from(next(&mut state));
                        let ones = field.info().ones();
                        set_field(&mut frame, &mut headers, field, value & ones, ones);
                    }
                }
            }
            assert_checksums(frame.bytes(), &format!("round {round}"));
            let mut key = FlowKey::zero();
            let parsed = parse(frame.bytes(), 1, &mut key);
            assert_eq!(parsed, headers, "round {round}");
        }
    }
}

#[test]
fn labels_are_pushed_and_popped_as_openflow_has_it() {
    let bytes = &packets()[0];
    let (mut frame, mut headers, _) = frame_of(bytes);
    assert!(push_mpls(&mut frame, &mut headers, 0x8847));
    assert_eq!(frame.bytes()[12..18], [0x88, 0x47, 0, 0, 1, 9]);
    assert!(set_field(&mut frame, &mut headers, Field::MplsLabel, 0xabcde, 0xfffff));
    assert!(set_field(&mut frame, &mut headers, Field::MplsTc, 5, 7));
    assert_eq!(dec_mpls_ttl(&mut frame, &headers), Ttl::Decremented);
    assert!(push_mpls(&mut frame, &mut headers, 0x8848));
    assert_eq!(frame.bytes()[12..22], [0x88, 0x48, 0xab, 0xcd, 0xea, 8, 0xab, 0xcd, 0xeb, 8]);
    let mut key = FlowKey::zero();
    assert_eq!(parse(frame.bytes(), 1, &mut key), headers);
    assert!(pop_mpls(&mut frame, &mut headers, 0x8847));
    assert!(pop_mpls(&mut frame, &mut headers, 0x0800));
    assert!(!pop_mpls(&mut frame, &mut headers, 0x0800));
    assert_eq!(frame.bytes(), bytes);
}

#[test]
fn ttl_one_expires_and_the_packet_is_as_it_was() {
    let bytes = &packets()[1];
    let (mut frame, headers, _) = frame_of(bytes);
    for _ in 0..8 {
        assert_eq!(dec_ttl(&mut frame, &headers), Ttl::Decremented);
    }
    let before = frame.bytes().to_vec();
    assert_eq!(dec_ttl(&mut frame, &headers), Ttl::Expired);
    assert_eq!(frame.bytes(), before);
    assert_checksums(frame.bytes(), "ttl 1");
}

#[test]
fn udp_without_checksum_stays_without() {
    let mut bytes = packets().swap_remove(0);
    bytes[40..42].fill(0);
    let (mut frame, mut headers, _) = frame_of(&bytes);
    assert!(set_field(&mut frame, &mut headers, Field::TpDst, 99, 0xffff));
    assert_eq!(frame.bytes()[40..42], [0, 0]);
}

#[test]
fn sctp_gets_a_new_crc_that_is_as_wrong_as_the_old_one() {
    for damage in [0, 0x10] {
        sctp_crc_follows(damage);
    }
}

fn sctp_crc_follows(damage: u32) {
    let mut sctp = [0, 5, 0, 6, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4];
    let sum = flowlane::hash::crc32c::checksum(&sctp) ^ damage;
    sctp[8..12].copy_from_slice(&sum.to_le_bytes());
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([1; 4], [2; 4], 9)
        .write(&mut bytes, 132.into(), &sctp)
        .unwrap();
    let (mut frame, mut headers, _) = frame_of(&bytes);
    assert!(set_field(&mut frame, &mut headers, Field::TpSrc, 7, 0xffff));
    let mut wanted = sctp;
    wanted[1] = 7;
    wanted[8..12].fill(0);
    let sum = flowlane::hash::crc32c::checksum(&wanted) ^ damage;
    assert_eq!(frame.bytes()[42..46], sum.to_le_bytes());
}

#[test]
fn garbage_with_any_offsets_makes_no_edit_panic() {
    let mut state = 17;
    for _ in 0..100_000 {
        let len = next(&mut state) as usize % 80;
        let bytes: Vec<u8> = (0..len).map(|_| next(&mut state) as u8).collect();
        let mut frame = Frame::default();
        frame.fill(&bytes);
        let mut key = FlowKey::zero();
        let mut headers = parse(&bytes, 1, &mut key);
        let fields = Field::all();
        for _ in 0..4 {
            match next(&mut state) % 8 {
                0 => _ = push_vlan(&mut frame, &mut headers, 0x8100),
                1 => _ = pop_vlan(&mut frame, &mut headers),
                2 => _ = push_mpls(&mut frame, &mut headers, 0x8847),
                3 => _ = pop_mpls(&mut frame, &mut headers, 0x0800),
                4 => _ = dec_ttl(&mut frame, &headers),
                5 => _ = dec_mpls_ttl(&mut frame, &headers),
                _ => {
                    let field = fields[next(&mut state) as usize % fields.len()].field;
                    set_field(&mut frame, &mut headers, field, next(&mut state).into(), u128::MAX);
                }
            }
        }
    }
}
