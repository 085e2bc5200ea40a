//! Fragments through a router that translates: paths of two lengths, in other orders, twice, overlapping, and never complete.

use super::*;

const SERVER: &str = "203.0.113.7";

/// Cuts a frame's IP packet into fragments of at most `mtu` bytes.
fn cut(frame: &[u8], mtu: usize, identification: u16) -> Vec<Vec<u8>> {
    let is_v4 = frame[12..14] == [8, 0];
    let (header, more) = if is_v4 { (34, 20) } else { (54, 48) };
    let room = (mtu - more) / 8 * 8;
    let payload = &frame[header..];
    let pieces = payload.chunks(room).enumerate().map(|(n, piece)| {
        let is_last = n * room + piece.len() == payload.len();
        let mut out = frame[..header].to_vec();
        if is_v4 {
            let len = (20 + piece.len()) as u16;
            out[16..18].copy_from_slice(&len.to_be_bytes());
            out[18..20].copy_from_slice(&identification.to_be_bytes());
            let place = (n * room / 8) as u16 | if is_last { 0 } else { 0x2000 };
            out[20..22].copy_from_slice(&place.to_be_bytes());
            let right = etherparse::Ipv4Header::from_slice(&out[14..]).unwrap().0.calc_header_checksum();
            out[24..26].copy_from_slice(&right.to_be_bytes());
        } else {
            let len = (8 + piece.len()) as u16;
            out[18..20].copy_from_slice(&len.to_be_bytes());
            let next = std::mem::replace(&mut out[20], 44);
            let place = (n * room) as u16 | u16::from(!is_last);
            out.extend([next, 0]);
            out.extend(place.to_be_bytes());
            out.extend(u32::from(identification).to_be_bytes());
        }
        out.extend(piece);
        out
    });
    pieces.collect()
}

/// The payloads of fragments, in their order.
fn together(sent: &[(usize, Vec<u8>)]) -> Vec<u8> {
    let mut pieces: Vec<(u16, &[u8])> = sent
        .iter()
        .map(|(_, frame)| match frame[12..14] == [8, 0] {
            true => (u16::from_be_bytes([frame[20], frame[21]]) << 3, &frame[34..]),
            false => (u16::from_be_bytes([frame[56], frame[57]]) & !7, &frame[62..]),
        })
        .collect();
    pieces.sort_unstable();
    pieces.into_iter().flat_map(|(_, piece)| piece.to_vec()).collect()
}

/// A router whose ports take 1,500 bytes.
fn world() -> World {
    let mut world = World::quiet(&format!("{}{FIREWALL}", plain().replace("mtu = 1400", "mtu = 1500")));
    world.resolve("198.51.100.254");
    world.resolve("2001:db8:2::7");
    world
}

/// A datagram from inside, whose identification tells it from others, in fragments.
fn datagram(is_v6: bool, mtu: usize, identification: u16) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (from, to) = if is_v6 { ("2001:db8:1::5", "2001:db8:2::7") } else { ("192.0.2.5", SERVER) };
    let whole = udp(LAN, from, to, 64, 4500);
    let fragments = cut(&whole, mtu, identification);
    (whole[if is_v6 { 54 } else { 34 }..].to_vec(), fragments)
}

#[test]
fn fragments_pass_in_any_order() {
    let mut world = world();
    let mut identification = 0;
    for (mtu, is_v6) in [(1280, false), (1280, true), (1500, false), (1500, true)] {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            identification += 1;
            let (payload, fragments) = datagram(is_v6, mtu, identification);
            assert_eq!(fragments.len(), 4);
            let (last, others) = order.split_last().unwrap();
            for n in others {
                assert_eq!(world.answers(LAN, &fragments[*n]), [], "they wait");
                // Once more: it waits already.
                assert_eq!(world.answers(LAN, &fragments[*n]), []);
            }
            let sent = world.answers(LAN, &fragments[*last]);
            assert_eq!(sent.len(), 4, "{mtu}, IPv6 {is_v6}, {order:?}");
            assert!(sent.iter().all(|(port, _)| *port == WAN));
            let own = if is_v6 { ip("2001:db8:1::5") } else { ip("198.51.100.1") };
            assert!(sent.iter().all(|(_, frame)| addresses(frame).0 == own));
            let came = together(&sent);
            // Only the checksum has changed, with the address.
            assert_eq!((&came[..6], &came[8..]), (&payload[..6], &payload[8..]));
        }
    }
}

/// RFC 5722 and RFC 8200, section 4.5: the datagram is given up, with those of its fragments that come later.
#[test]
fn overlapping_fragments_pass_never() {
    for is_v6 in [false, true] {
        let mut world = world();
        for (n, at) in [0, 1, 2].into_iter().enumerate() {
            let identification = 10 + n as u16;
            let (_, fragments) = datagram(is_v6, 1280, identification);
            let (_, others) = datagram(is_v6, 1500, identification);
            assert_eq!(world.answers(LAN, &fragments[at]), []);
            // Of the same datagram, cut at other places.
            assert_eq!(world.answers(LAN, &others[at]), []);
            for fragment in fragments.iter().chain(&fragments) {
                assert_eq!(world.answers(LAN, fragment), [], "fragment {at}, IPv6 {is_v6}");
            }
        }
        let (_, fragments) = datagram(is_v6, 1280, 99);
        let sent: usize = fragments.iter().map(|fragment| world.answers(LAN, fragment).len()).sum();
        assert_eq!(sent, 4, "others pass");
    }
}

#[test]
fn fragments_that_are_never_complete_are_bounded() {
    let mut world = world();
    for n in 0..3000 {
        let (_, fragments) = datagram(n % 2 == 1, 1280, n);
        world.receive(LAN, &fragments[usize::from(n) % 3]);
    }
    // There is no room for more.
    let (_, fragments) = datagram(false, 1280, 4000);
    fragments.iter().for_each(|fragment| world.receive(LAN, fragment));
    assert_eq!(world.take(), []);
    // Whole packets pass meanwhile, and fragments as soon as the time of the others is over.
    assert_eq!(world.answers(LAN, &udp(LAN, "192.0.2.5", SERVER, 64, 8)).len(), 1);
    world.now_ns += 16_000 * MS;
    world.resolve("198.51.100.254");
    let (_, fragments) = datagram(false, 1280, 5000);
    let sent: usize = fragments.iter().map(|fragment| world.answers(LAN, fragment).len()).sum();
    assert_eq!(sent, 4);
}

#[test]
fn fragments_from_outside_pass_where_their_datagram_may() {
    // Without translation, so that a host inside is reached; a ping, and ports of a range.
    let firewall = "[firewall]\ninside = [\"lan\"]\noutside = [\"wan\"]\n\
        allow = [\"outgoing\", \"in icmp echo\", \"in udp 4998-5001\"]\n";
    let mut world = World::quiet(&format!("{}{firewall}", plain().replace("mtu = 1400", "mtu = 1500")));
    for (from, to) in [("198.51.100.254", "192.0.2.5"), ("2001:db8:2::7", "2001:db8:1::5")] {
        world.resolve(from);
        match ip(to) {
            IpAddr::V4(_) => world.receive(LAN, &arp(LAN, 1, (to, HOST[LAN]), "192.0.2.1")),
            IpAddr::V6(own) => world.receive(LAN, &solicitation(LAN, own, "2001:db8:1::1")),
        }
        world.take();
        let (is_v4, ends) = (ip(from).is_ipv4(), PacketBuilder::ethernet2(HOST[WAN], OWN[WAN]));
        let mut of_icmp = Vec::new();
        let sent = match is_v4 {
            true => ends.ipv4(v4(from), v4(to), 9).icmpv4_echo_request(5, 6).write(&mut of_icmp, &[1; 3000]),
            false => ends.ipv6(v6(from), v6(to), 9).icmpv6_echo_request(5, 6).write(&mut of_icmp, &[1; 3000]),
        };
        sent.unwrap();
        let datagram = udp(WAN, from, to, 64, 3000);
        let mut refused = datagram.clone();
        let ports = if is_v4 { 34 } else { 54 };
        // The destination's port, and the checksum's opposite change.
        refused[ports + 2..ports + 4].copy_from_slice(&5002u16.to_be_bytes());
        let sum = u16::from_be_bytes([refused[ports + 6], refused[ports + 7]]);
        refused[ports + 6..ports + 8].copy_from_slice(&(sum - 2).to_be_bytes());
        for (n, (frame, passes)) in
            [(&of_icmp, true), (&datagram, true), (&refused, false)].into_iter().enumerate()
        {
            for again in 0..2u16 {
                let pieces = cut(frame, 1280, 100 + 2 * n as u16 + again);
                let (last, others) = pieces.split_last().unwrap();
                others.iter().for_each(|piece| assert_eq!(world.answers(WAN, piece), []));
                let sent = world.answers(WAN, last);
                assert_eq!(sent.len(), if passes { pieces.len() } else { 0 }, "{n}: {sent:02x?}");
                assert!(sent.iter().all(|(port, _)| *port == LAN));
            }
        }
    }
}

#[test]
fn fragments_of_forwarded_connections_reach_their_host() {
    let text = plain().replace("mtu = 1400", "mtu = 1500");
    let mut world = World::quiet(&format!("{text}{FIREWALL}forward = [\"wan udp 5000 to 192.0.2.80\"]\n"));
    world.resolve("198.51.100.254");
    world.receive(LAN, &arp(LAN, 1, ("192.0.2.80", HOST[LAN]), "192.0.2.1"));
    world.take();
    for again in 0..2 {
        let pieces = cut(&udp(WAN, "203.0.113.7", "198.51.100.1", 64, 3000), 1280, 7 + again);
        let (last, others) = pieces.split_last().unwrap();
        others.iter().for_each(|piece| assert_eq!(world.answers(WAN, piece), []));
        let sent = world.answers(WAN, last);
        assert_eq!(sent.len(), pieces.len());
        for (port, frame) in &sent {
            assert_eq!((*port, addresses(frame).1), (LAN, ip("192.0.2.80")));
        }
    }
}
