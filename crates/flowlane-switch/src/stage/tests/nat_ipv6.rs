//! Address translation of IPv6, and by connection.

use flowlane::route::Prefix;

use super::nat::{End, FAR, INSIDE, POOL, source_of, with_own_table};
use super::*;
use crate::stage::nat::Forward;
use crate::state::conntrack::fragments;
use crate::state::conntrack::session::Range;

const INSIDE_V6: u128 = 0xfd00 << 112;
const POOL_V6: u128 = 0x2001_0db8 << 96;
const FAR_V6: u128 = 0x2001_0db8_ffff << 80;

/// Translation of both versions of IP.
fn both_versions() -> NatConfig {
    let mut config = NatConfig::new(vec![Prefix::truncated(INSIDE, 8)], vec![(POOL, POOL)], 100);
    config.inside.push(Range { is_ipv6: true, first: INSIDE_V6, last: INSIDE_V6 | u128::MAX >> 8 });
    config.pool.push(Range { is_ipv6: true, first: POOL_V6, last: POOL_V6 + 1 });
    config
}

fn v6(src: u128, dst: u128, l4: L4) -> Vec<u8> {
    Desc { mac: 1, vlan: None, net: Net::V6 { src, dst, l4 }, wire: Wire::default() }.build()
}

/// Returns the source of a frame of IPv6, and its port or identifier.
fn source_of_v6(frame: &[u8]) -> (u128, u16) {
    let at = if frame[20] == 58 { 58 } else { 54 };
    let port = u16::from_be_bytes([frame[at], frame[at + 1]]);
    (u128::from_be_bytes(*frame[22..].first_chunk().unwrap()), port)
}

#[test]
fn ipv6_is_translated_with_all_checksums() {
    let mut function = bare(AnyStage::Nat(Nat::new(both_versions()).unwrap()));
    let (host, server) = (INSIDE_V6 + 5, FAR_V6 + 9);
    let mut through = |frame: Vec<u8>| process(&mut function, &[frame], 1).remove(0);
    let udp = |src, dst| L4::Udp { src, dst, checksum: true };
    let tcp = |src, dst, flags| L4::Tcp { src, dst, flags };
    let (verdict, sent) = through(v6(host, server, udp(4242, 53)));
    let (outside, port) = source_of_v6(&sent);
    let udp_port = port;
    assert!(verdict == 0 && (POOL_V6..=POOL_V6 + 1).contains(&outside) && port >= 1024 && port % 2 == 0);
    assert_eq!(sent, v6(outside, server, udp(port, 53)));
    // Another host may answer, and the next packet leaves by the same end.
    assert_eq!(through(v6(FAR_V6 + 1, outside, udp(7, port))), (1, v6(FAR_V6 + 1, host, udp(7, 4242))));
    assert_eq!(through(v6(host, FAR_V6 + 1, udp(4242, 7))), (0, v6(outside, FAR_V6 + 1, udp(port, 7))));
    let (verdict, sent) = through(v6(host, server, tcp(4242, 443, 2)));
    let (same, port) = source_of_v6(&sent);
    assert_eq!((verdict, same, sent), (0, outside, v6(outside, server, tcp(port, 443, 2))));
    assert_eq!(
        through(v6(server, outside, tcp(443, port, 0x12))),
        (1, v6(server, host, tcp(443, 4242, 0x12)))
    );
    let (verdict, sent) = through(v6(host, server, L4::Icmp { kind: 128, id: 77 }));
    let (same, id) = source_of_v6(&sent);
    assert_eq!((verdict, same, sent), (0, outside, v6(outside, server, L4::Icmp { kind: 128, id })));
    let answer = |dst, id| v6(server, dst, L4::Icmp { kind: 129, id });
    assert_eq!(through(answer(outside, id)), (1, answer(host, 77)));
    // An error about the UDP packet, from a router on its way, to whom the packet was not sent.
    let quoted = |src, port| {
        let l4 = udp(port, 53);
        let wire = Wire::default();
        Box::new(Desc { mac: 1, vlan: None, net: Net::V6 { src, dst: server, l4 }, wire })
    };
    let error = |dst, quoted| v6(FAR_V6 + 77, dst, L4::Error { kind: 3, quoted, len: 48 });
    let sent = through(error(outside, quoted(outside, udp_port)));
    assert_eq!(sent, (1, error(host, quoted(host, 4242))));
    assert_eq!(through(error(outside, quoted(outside + 9, udp_port))).0, REFUSED);
    // Not of a session; to a neighbour, and to a group.
    assert_eq!(through(v6(server, outside, udp(53, 9))).0, REFUSED);
    assert_eq!(through(v6(host, server, L4::Icmp { kind: 143, id: 0 })).0, 3);
    assert_eq!(through(v6(host, 0xff02 << 112 | 1, udp(5, 6))).0, 3);
    // Of IPv4, beside it.
    let packet =
        |src: End, dst: End| Desc::v4(src.0, dst.0, L4::Udp { src: src.1, dst: dst.1, checksum: true });
    let (verdict, sent) = through(packet((INSIDE + 1, 4242), (FAR, 53)).build());
    let outside = source_of(&sent);
    assert_eq!((verdict, sent), (0, packet(outside, (FAR, 53)).build()));
}

#[test]
fn sessions_of_a_connection_are_for_one_peer() {
    let mapping = crate::stage::nat::Mapping::Connection;
    let forward = Forward::v4(17, (POOL, 53), (INSIDE + 9, 5353));
    let config = NatConfig::new(vec![Prefix::truncated(INSIDE, 8)], vec![(POOL, POOL)], 100);
    let config = NatConfig { mapping, forwards: vec![forward], ..config };
    for lookups in [Lookups::Batch, Lookups::Scalar] {
        let config = NatConfig { lookups, ..with_own_table(&config, 3) };
        let mut function = bare(AnyStage::Nat(Nat::new(config).unwrap()));
        let udp = |src: End, dst: End| {
            Desc::v4(src.0, dst.0, L4::Udp { src: src.1, dst: dst.1, checksum: true }).build()
        };
        let mut through = |frame: Vec<u8>| process(&mut function, &[frame], 1).remove(0);
        let (host, server, other) = ((INSIDE + 1, 4000), (FAR, 53), (FAR + 1, 53));
        let outside = source_of(&through(udp(host, server)).1);
        assert_eq!(through(udp(server, outside)), (1, udp(server, host)));
        assert_eq!(through(udp(other, outside)).0, REFUSED);
        // Another session of the same end.
        let second = source_of(&through(udp(host, other)).1);
        assert_eq!(through(udp(other, second)), (1, udp(other, host)));
        // The forward is for all.
        assert_eq!(through(udp(other, (POOL, 53))), (1, udp(other, (INSIDE + 9, 5353))));
        assert_eq!(through(udp((INSIDE + 9, 5353), other)), (0, udp((POOL, 53), other)));
        let AnyStage::Nat(nat) = &function.stage else { unreachable!() };
        assert_eq!(nat.len(), 3);
    }
}

/// Cuts a packet of IPv6 into two fragments.
fn cut(whole: &[u8]) -> [Vec<u8>; 2] {
    let (header, payload) = whole.split_at(54);
    let (first, last) = payload.split_at(8);
    [(first, 0u16, 1u16), (last, 8, 0)].map(|(part, place, more)| {
        let mut frame = header.to_vec();
        frame[18..20].copy_from_slice(&(8 + part.len() as u16).to_be_bytes());
        frame[20] = 44;
        frame.extend([whole[20], 0]);
        frame.extend((place | more).to_be_bytes());
        frame.extend([0, 0, 0, 9]);
        frame.extend(part);
        frame
    })
}

#[test]
fn fragments_of_ipv6_are_translated_as_their_datagram() {
    let mut function = bare(AnyStage::Nat(Nat::new(both_versions()).unwrap()));
    let udp = |src, dst| L4::Udp { src, dst, checksum: true };
    let (host, server) = (INSIDE_V6 + 5, FAR_V6 + 9);
    let whole = process(&mut function, &[v6(host, server, udp(4242, 53))], 1).remove(0).1;
    let parts = cut(&v6(host, server, udp(4242, 53)));
    let parsed = parts.each_ref().map(|frame| {
        let mut key = FlowKey::zero();
        let headers = parse(frame, 1, &mut key);
        (key, headers)
    });
    let pieces = [0, 1].map(|at| {
        let (key, headers) = &parsed[at];
        fragments::piece_of_any_length(&parts[at], headers, key, 0).unwrap()
    });
    let held = [0, 1].map(|at| (pieces[at].1, &parts[at][..]));
    let seen = fragments::seen_whole(held, &pieces[0].0);
    let alone = |function: &mut StageTable, at: usize, datagram| {
        let mut burst = Burst::new(1);
        burst.push(&parts[at], &parsed[at].0, parsed[at].1, 1);
        let call = StageCall { datagram, ..StageCall::of(1, &burst) };
        let verdict = function.process(call, &mut burst, LaneMask::first(1))[0];
        (verdict, burst.frames[0].bytes().to_vec())
    };
    // In front of the stage they have met; one that has not is refused, and one of an unsound datagram, too.
    let translated = [0, 1].map(|at| alone(&mut function, at, Some(seen)));
    assert_eq!(translated, cut(&whole).map(|frame| (0, frame)));
    assert_eq!([None, Some(None)].map(|datagram| alone(&mut function, 0, datagram).0), [REFUSED; 2]);
}
