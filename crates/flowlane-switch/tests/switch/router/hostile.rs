//! What a router must not forward or answer, and what must not hinder it.

use super::*;

/// Groups of next hops have numbers of their own, which are none of ARP's verdict.
#[test]
fn arp_is_answered_whatever_groups_there_are() {
    let group = |n: u32| format!("10.{n}.0.0/16 nexthop via 198.51.100.7 nexthop via 198.51.100.{}", 8 + n);
    for groups in 0..5 {
        let routes: Vec<String> = (0..groups).map(|n| format!("\"{}\"", group(n))).collect();
        let mut world = World::quiet(&format!("{PORTS}[router]\nroutes = [{}]\n", routes.join(", ")));
        let asked = arp(LAN, 1, ("192.0.2.5", HOST[LAN]), "192.0.2.1");
        assert_eq!(world.answers(LAN, &asked).len(), 1, "{groups} groups");
    }
}

const DEFAULT: &str = "[router]\nreverse_path = \"off\"\nroutes = [\"0.0.0.0/0 via 198.51.100.254\", \"::/0 via 2001:db8:2::9\"]\n";

/// Frames whose IP header is malformed, and those cut off anywhere, are dropped.
#[test]
fn malformed_packets_go_nowhere() {
    let mut world = World::quiet(&format!("{PORTS}{DEFAULT}"));
    world.resolve("198.51.100.254");
    world.resolve("2001:db8:2::9");
    for (from, to) in [("192.0.2.5", "203.0.113.7"), ("2001:db8:1::5", "2001:db8:3::7")] {
        let whole = udp(LAN, from, to, 64, 8);
        assert_eq!(world.answers(LAN, &whole).len(), 1);
        for len in 0..whole.len() {
            assert_eq!(world.answers(LAN, &whole[..len]), [], "{len} bytes to {to}");
        }
        for first in [0x00, 0x15, 0x44, 0x55, 0x70, 0xff] {
            let mut malformed = whole.clone();
            malformed[14] = first;
            assert_eq!(world.answers(LAN, &malformed), [], "{first:x} to {to}");
        }
    }
    // RFC 1812, section 5.2.2: the checksum of the header is checked.
    let mut damaged = udp(LAN, "192.0.2.5", "203.0.113.7", 64, 8);
    damaged[24] ^= 1;
    assert_eq!(world.answers(LAN, &damaged), []);
    damaged[22] = 1;
    assert_eq!(world.answers(LAN, &damaged), [], "no error about it");
}

/// Addresses that are of no host, or of a link alone, never leave a link as sources, even if no route is looked up for them.
#[test]
fn sources_that_are_no_hosts_are_not_forwarded() {
    let mut world = World::quiet(&format!("{PORTS}{DEFAULT}"));
    world.resolve("198.51.100.254");
    world.resolve("2001:db8:2::9");
    for source in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1"] {
        assert_eq!(world.answers(LAN, &udp(LAN, source, "203.0.113.7", 64, 8)), [], "{source}");
        assert_eq!(world.answers(LAN, &udp(LAN, source, "203.0.113.7", 1, 8)), [], "{source}");
    }
    for source in ["::", "::1", "ff02::1", "fe80::5"] {
        assert_eq!(world.answers(LAN, &udp(LAN, source, "2001:db8:3::7", 64, 8)), [], "{source}");
    }
    // Nor by default, where routes to sources are looked up.
    let mut strict = World::quiet(&plain());
    strict.resolve("198.51.100.254");
    strict.resolve("2001:db8:2::9");
    for (source, to) in [("0.0.0.0", "198.51.100.254"), ("::", "2001:db8:2::9")] {
        assert_eq!(strict.answers(LAN, &udp(LAN, source, to, 64, 8)), [], "{source}");
    }
}

/// Times at the end of the clock's range are no reason to panic.
#[test]
fn any_time_is_a_time() {
    for now_ns in [0, u64::MAX - 10 * MS] {
        let mut world = World::new(&plain());
        world.now_ns = now_ns;
        world.receive(LAN, &arp(LAN, 1, ("192.0.2.77", HOST[0]), "192.0.2.1"));
        world.now_ns = 0;
        world.receive(LAN, &ping(LAN, "192.0.2.77", "192.0.2.1"));
        assert!(world.take().len() > 2);
    }
}

/// Stations do not answer, or get answers, as groups (RFC 1122, section 3.2.2).
#[test]
fn frames_from_groups_of_stations_are_not_answered() {
    let mut world = World::quiet(&plain());
    for frame in [
        ping(LAN, "192.0.2.5", "192.0.2.1"),
        udp(LAN, "192.0.2.5", "192.0.2.1", 64, 8),
        udp(LAN, "192.0.2.5", "198.51.100.7", 1, 8),
        arp(LAN, 1, ("0.0.0.0", HOST[LAN]), "192.0.2.1"),
    ] {
        let mut forged = frame.clone();
        forged[6..12].copy_from_slice(&ALL);
        assert_eq!(world.answers(LAN, &forged), []);
        forged[6..12].copy_from_slice(&OWN[LAN]);
        assert_eq!(world.answers(LAN, &forged), []);
    }
}

/// The errors about a packet that is translated back show what its sender has sent.
#[test]
fn errors_about_replies_show_the_outside_address() {
    let mut world = World::quiet(&format!("{}{FIREWALL}", plain()));
    world.resolve("198.51.100.254");
    let (inside, server) = ("192.0.2.5", "203.0.113.7");
    let (_, out) = world.answer(LAN, &udp(LAN, inside, server, 64, 8));
    let packet = PacketHeaders::from_ethernet_slice(&out).unwrap();
    let source_port = packet.transport.unwrap().udp().unwrap().source_port;
    let mut reply = Vec::new();
    let builder = PacketBuilder::ethernet2(HOST[WAN], OWN[WAN]).ipv4(v4(server), v4("198.51.100.1"), 1);
    builder.udp(5000, source_port).write(&mut reply, b"reply").unwrap();
    let (port, told) = world.answer(WAN, &reply);
    assert_eq!((port, icmp4(&told).1), (WAN, reply[14..].to_vec()));
}
