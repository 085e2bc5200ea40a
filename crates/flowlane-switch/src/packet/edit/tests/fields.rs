//! Fields of packets of every class, set, against packets built from scratch.

use flowlane::packet::fields::{Field, FieldClass};
use flowlane::packet::{FlowKey, Malformed, parse};

use super::frame_of;
use super::reference::{Body, Ip, Packet, Random, Stored, ones};
use crate::packet::Frame;
use crate::packet::edit::{Ttl, dec_ttl, has, set_field};

/// Fields that lie in headers and can be set.
pub(crate) fn writable() -> Vec<Field> {
    let fields = Field::all().iter().filter(|f| f.writable && f.class == FieldClass::Header);
    fields.map(|f| f.field).collect()
}

/// A value and a mask of the field.
pub(crate) fn change(r: &mut Random, field: Field) -> (u128, u128) {
    let wide =
        |r: &mut Random| u128::from(r.next()) << 90 | u128::from(r.next()) << 45 | u128::from(r.next());
    let ones = field.info().ones();
    let mask = if r.one_in(3) { wide(r) & ones } else { ones };
    let value = match r.below(4) {
        0 => 0,
        1 => ones,
        _ => wide(r),
    };
    // What a TCI without the bit that says 'tag' should do is another question.
    if field == Field::VlanTci { (value & 0xffff | 0x1000, mask | 0x1000) } else { (value & mask, mask) }
}

/// Packets of one class: set fields are the only difference.
fn check(r: &mut Random, packet: &mut Packet, fields: &[Field]) {
    let bytes = packet.build();
    let (mut frame, mut headers, key) = frame_of(&bytes);
    let kinds = [Field::IcmpType, Field::IcmpCode, Field::NdOptionsType];
    for i in 0..1 + r.below(3) {
        let field = r.pick(fields);
        let (value, mask) = change(r, field);
        let wanted = packet.set(field, value, mask);
        let context = format!("{field:?} {value:x}/{mask:x} of {packet:02x?}");
        assert_eq!(set_field(&mut frame, &mut headers, field, value, mask), wanted, "{context}");
        assert_eq!(frame.bytes(), packet.build(), "{context}");
        if i == 0 {
            assert_eq!(has(field, |asked, bits| key.get(asked) & bits), wanted, "{context}");
        }
        // Behind it the message, or its option, may be another.
        if kinds.contains(&field) {
            return;
        }
    }
    if packet.labels.is_empty() {
        let wanted = match packet.ip().map(|ip| ip.ttl) {
            None => Ttl::None,
            Some(0 | 1) => Ttl::Expired,
            Some(ttl) => {
                packet.set(Field::NwTtl, (ttl - 1).into(), 0xff);
                Ttl::Decremented
            }
        };
        assert_eq!(dec_ttl(&mut frame, &headers), wanted);
        assert_eq!(frame.bytes(), packet.build(), "dec_ttl: {packet:02x?}");
    }
}

#[test]
fn a_field_that_was_set_is_as_in_a_packet_put_together_anew() {
    let (mut r, fields) = (Random(3), writable());
    for _ in 0..40_000 {
        let mut packet = Packet::random(&mut r);
        check(&mut r, &mut packet, &fields);
    }
}

const ADDRESSES: [Field; 4] = [Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv6Src, Field::Ipv6Dst];

/// IP packets that `make` has changed, of which it keeps some.
fn ip_packets(r: &mut Random, count: usize, make: impl Fn(&mut Ip, &mut Random) -> bool) -> Vec<Packet> {
    let mut kept = Vec::new();
    while kept.len() < count {
        let mut packet = Packet::random(r);
        if let Body::Ip(ip) = &mut packet.body
            && make(ip, r)
        {
            kept.push(packet);
        }
    }
    kept
}

#[test]
fn a_destination_on_the_way_is_not_in_the_transport_checksum() {
    let mut r = Random(41);
    for kind in [0, 2, 3, 4, 77] {
        for left in [0, 1] {
            let make = |ip: &mut Ip, r: &mut Random| {
                (ip.extensions, ip.last) = (Vec::new(), None);
                ip.push_routing(kind, left, r);
                ip.v6
                    && matches!(ip.proto, 6 | 17 | 58 | 136)
                    && ip.checksum == Stored::Right
                    && !ip.is_later()
            };
            for mut packet in ip_packets(&mut r, 50, make) {
                let (mut frame, mut headers, _) = frame_of(&packet.build());
                assert_eq!(headers.segments_left, left > 0);
                for field in [Field::Ipv6Dst, Field::Ipv6Src] {
                    assert!(set_field(&mut frame, &mut headers, field, 77, u128::MAX));
                    assert!(packet.set(field, 77, u128::MAX));
                    assert_eq!(frame.bytes(), packet.build(), "type {kind}, {left} left: {field:?}");
                }
                // The receiver, at the last address, sees the sum that the sender made.
                let ip = packet.ip().expect("IP");
                let (at, _) = ip.checksum_at().expect("has one");
                let sum = &frame.bytes()[usize::from(headers.l4) + at..][..2];
                assert_eq!(sum, &ip.summed()[at..at + 2]);
            }
        }
    }
}

#[test]
fn udp_lite_checksums_follow_addresses_and_are_never_zero() {
    let mut r = Random(8);
    let make = |ip: &mut Ip, _: &mut Random| ip.proto == 136;
    let mut fragments = 0;
    for mut packet in ip_packets(&mut r, 2000, make) {
        fragments += usize::from(packet.ip().is_some_and(Ip::is_fragment));
        check(&mut r, &mut packet, &ADDRESSES);
    }
    assert!(fragments > 300);
    // The checksum would become 0.
    let make = |ip: &mut Ip, _: &mut Random| !ip.v6 && ip.proto == 136 && !ip.is_fragment();
    let mut packet = ip_packets(&mut r, 1, make).remove(0);
    let Body::Ip(ip) = &mut packet.body else { unreachable!("IP packets") };
    ip.checksum = Stored::Right;
    ip.datagram[4..6].fill(0);
    ip.src = [0; 16];
    let without = ip.summed();
    let (mut frame, mut headers, key) = frame_of(&packet.build());
    assert_eq!((key.get(Field::TpSrc), key.get(Field::TpDst)), (0, 0));
    let checksum = u16::from_be_bytes([without[6], without[7]]);
    assert!(set_field(&mut frame, &mut headers, Field::Ipv4Src, checksum.into(), 0xffff_ffff));
    let l4 = usize::from(headers.l4);
    assert_eq!(frame.bytes()[l4 + 6..l4 + 8], [0xff, 0xff]);
    let datagram = &frame.bytes()[l4..l4 + without.len()];
    let pseudo = ones(&packet.ip().expect("IP").dst[..4], ones(&[0, 136], checksum));
    assert_eq!(ones(datagram, ones(&(datagram.len() as u16).to_be_bytes(), pseudo)), 0xffff);
    // One that is cut off is no reason to drop anything.
    let cut = l4 + 7;
    let mut short = packet.build()[..cut].to_vec();
    let l3 = usize::from(headers.l3);
    short[l3 + 2..l3 + 4].copy_from_slice(&((cut - l3) as u16).to_be_bytes());
    assert_eq!(parse(&short, 1, &mut FlowKey::zero()).malformed, None);
}

/// A solicitation without options; the bytes behind the packet look like one.
#[test]
fn options_behind_the_packet_are_padding() {
    let mut r = Random(6);
    let make = |ip: &mut Ip, _: &mut Random| ip.nd.is_some_and(|nd| nd[0].is_none()) && !ip.is_fragment();
    for mut packet in ip_packets(&mut r, 20, make) {
        packet.padding = vec![1, 1, 2, 0, 0, 0, 0, 9];
        let bytes = packet.build();
        let (mut frame, mut headers, _) = frame_of(&bytes);
        assert!(!set_field(&mut frame, &mut headers, Field::NdSll, 0x0200_0000_0005, (1 << 48) - 1));
        assert_eq!(frame.bytes(), bytes);
    }
}

#[test]
fn an_option_of_zeros_is_set() {
    let mut r = Random(7);
    for (place, field) in [(0, Field::NdSll), (1, Field::NdTll)] {
        let make = |ip: &mut Ip, _: &mut Random| {
            let Some(at) = ip.nd.and_then(|nd| nd[place]) else { return false };
            ip.datagram[at..at + 6].fill(0);
            !ip.is_fragment()
        };
        for packet in ip_packets(&mut r, 20, make) {
            let (mut frame, mut headers, key) = frame_of(&packet.build());
            assert!(has(field, |asked, bits| key.get(asked) & bits));
            assert!(set_field(&mut frame, &mut headers, field, 0x0200_0000_0005, (1 << 48) - 1));
            let mut after = FlowKey::zero();
            parse(frame.bytes(), 1, &mut after);
            assert_eq!(after.get(field), 0x0200_0000_0005);
        }
    }
}

/// Packets as they are sent, and packets that were cut or of which bytes were changed.
pub(crate) fn sound_or_broken(r: &mut Random) -> Vec<u8> {
    let mut bytes = Packet::random(r).build();
    match r.below(4) {
        0 => return bytes,
        1 => bytes.truncate(r.below(bytes.len() + 1)),
        _ => {}
    }
    for _ in 0..r.below(4) {
        if !bytes.is_empty() {
            let at = r.below(bytes.len().min(110));
            bytes[at] =
                if r.one_in(2) { bytes[at] ^ 1 << r.below(8) } else { r.pick(&[0, 1, 6, 17, 58, 135, 255]) };
        }
    }
    bytes
}

#[test]
fn the_key_tells_which_fields_a_packet_has_sound_or_broken() {
    let (mut r, fields) = (Random(29), writable());
    let mut malformed = [0; Malformed::ALL.len()];
    for _ in 0..60_000 {
        let bytes = sound_or_broken(&mut r);
        let (mut frame, mut key) = (Frame::default(), FlowKey::zero());
        frame.fill(&bytes);
        let mut headers = parse(&bytes, 1, &mut key);
        if let Some(reason) = headers.malformed {
            malformed[reason as usize] += 1;
        }
        let field = r.pick(&fields);
        let (value, mask) = change(&mut r, field);
        let said = has(field, |asked, bits| key.get(asked) & bits);
        let done = set_field(&mut frame, &mut headers, field, value, mask);
        assert_eq!(said, done, "{field:?} of {:?}: {bytes:02x?}", headers.malformed);
        assert!(done || frame.bytes() == bytes, "{field:?}: {bytes:02x?}");
    }
    // Of every reason but tunnels', which the parser does not give.
    let seen = malformed.iter().filter(|n| **n > 0).count();
    assert!(seen >= 19, "{malformed:?}");
}
