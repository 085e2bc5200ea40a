//! Packets that go back through the port that they came in through, and connections that are forwarded to hosts inside.

use super::*;

const SERVER: &str = "192.0.2.80";
const OUTSIDE: &str = "203.0.113.7";

fn forwarding(entries: &str) -> String {
    format!("{}{FIREWALL}forward = [{entries}]\n", plain())
}

/// A frame from a host to the router, with a UDP datagram between ports.
fn datagram(port: usize, from: (&str, u16), to: (&str, u16)) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(HOST[port], OWN[port]).ipv4(v4(from.0), v4(to.0), 64);
    builder.udp(from.1, to.1).write(&mut frame, b"datagram").unwrap();
    frame
}

/// Where a frame with a UDP datagram is from and for.
#[track_caller]
fn ends(frame: &[u8]) -> ((IpAddr, u16), (IpAddr, u16)) {
    let (source, destination, _) = addresses(frame);
    let packet = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let udp = packet.transport.unwrap().udp().unwrap();
    ((source, udp.source_port), (destination, udp.destination_port))
}

/// A router whose neighbours are known.
fn known(text: &str) -> World {
    let mut world = World::quiet(text);
    for host in [SERVER, "192.0.2.5", "192.0.2.9"] {
        world.receive(LAN, &arp(LAN, 1, (host, HOST[LAN]), "192.0.2.1"));
    }
    world.resolve("198.51.100.254");
    world
}

#[test]
fn a_packet_may_leave_through_the_port_that_it_came_in_through() {
    let route = "routes = [\"10.0.0.0/8 via 192.0.2.9\", ";
    for firewall in ["", FIREWALL] {
        let mut world = known(&format!(
            "{}{firewall}",
            plain().replace("routes = [", route).replace("\"prohibit 10.0.0.0/8\", ", "")
        ));
        for _ in 0..3 {
            let (port, sent) = world.answer(LAN, &udp(LAN, "192.0.2.5", "10.2.3.4", 64, 8));
            assert_eq!((port, addresses(&sent)), (LAN, (ip("192.0.2.5"), ip("10.2.3.4"), 63)));
        }
        // The first one waits for its neighbour.
        world.worker.egress.router.as_ref().unwrap().flush(|_| true);
        let asked = world.answers(LAN, &udp(LAN, "192.0.2.5", "10.2.3.4", 64, 8));
        assert_eq!(asked[0].1[12..14], [8, 6]);
        let (port, sent) = world.answer(LAN, &arp(LAN, 2, ("192.0.2.9", HOST[LAN]), "192.0.2.1"));
        assert_eq!((port, addresses(&sent).1), (LAN, ip("10.2.3.4")));
    }
}

#[test]
fn connections_to_a_forwarded_port_go_to_a_host_inside() {
    let mut world = known(&forwarding(
        "\"wan udp 5000 to 192.0.2.80\", \"wan udp 53,6000-6010 from 203.0.113.0/25 to 192.0.2.80\", \"wan udp 8022 to 192.0.2.9:22\"",
    ));
    for (asked, host, given) in
        [(5000, SERVER, 5000), (53, SERVER, 53), (6003, SERVER, 6003), (8022, "192.0.2.9", 22)]
    {
        for _ in 0..2 {
            // Once more before there is a reply.
            for _ in 0..2 {
                let (port, sent) =
                    world.answer(WAN, &datagram(WAN, (OUTSIDE, 4000), ("198.51.100.1", asked)));
                assert_eq!((port, ends(&sent)), (LAN, ((ip(OUTSIDE), 4000), (ip(host), given))));
            }
            let (port, sent) = world.answer(LAN, &datagram(LAN, (host, given), (OUTSIDE, 4000)));
            assert_eq!((port, ends(&sent)), (WAN, ((ip("198.51.100.1"), asked), (ip(OUTSIDE), 4000))));
        }
    }
    // Other ports, other hosts than the entry is for, and the host's own address.
    for (from, to) in [
        (OUTSIDE, ("198.51.100.1", 5001)),
        ("203.0.113.200", ("198.51.100.1", 53)),
        (OUTSIDE, (SERVER, 5000)),
    ] {
        assert_eq!(world.answers(WAN, &datagram(WAN, (from, 4000), to)), []);
    }
    // An error of the host about a packet is one about what the other end has sent.
    let asked = datagram(WAN, (OUTSIDE, 4001), ("198.51.100.1", 5000));
    let (_, sent) = world.answer(WAN, &asked);
    let mut refused = Vec::new();
    let kind = Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::Port);
    let builder = PacketBuilder::ethernet2(HOST[LAN], OWN[LAN]).ipv4(v4(SERVER), v4(OUTSIDE), 64);
    builder.icmpv4(kind).write(&mut refused, &sent[14..42]).unwrap();
    let (port, told) = world.answer(LAN, &refused);
    assert_eq!((port, addresses(&told).0), (WAN, ip("198.51.100.1")));
    assert_eq!(icmp4(&told).1[16..24], asked[30..38]);
    // And so is the router's own.
    let mut short = datagram(WAN, (OUTSIDE, 4002), ("198.51.100.1", 5000));
    short[22] = 1;
    let header = etherparse::Ipv4Header::from_slice(&short[14..]).unwrap().0;
    short[24..26].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
    let (port, told) = world.answer(WAN, &short);
    let (kind, about) = icmp4(&told);
    assert_eq!((port, kind), (WAN, Icmpv4Type::TimeExceeded(icmpv4::TimeExceededCode::TtlExceededInTransit)));
    assert_eq!(about[16..24], short[30..38]);
}

#[test]
fn hosts_inside_reach_a_forwarded_port_at_the_outside_address() {
    let mut world = known(&forwarding("\"wan udp 8022 to 192.0.2.80:22\""));
    for client in [4000, 4001] {
        for _ in 0..3 {
            let asked = datagram(LAN, ("192.0.2.5", client), ("198.51.100.1", 8022));
            let (port, sent) = world.answer(LAN, &asked);
            // Once more before there is a reply.
            assert_eq!(world.answer(LAN, &asked), (port, sent.clone()));
            let (from, to) = ends(&sent);
            // The host answers the router, or its answer would not be translated.
            assert_eq!((port, from.0, to), (LAN, ip("192.0.2.1"), (ip(SERVER), 22)));
            let (port, sent) = world.answer(LAN, &datagram(LAN, (SERVER, 22), ("192.0.2.1", from.1)));
            assert_eq!((port, ends(&sent)), (LAN, ((ip("198.51.100.1"), 8022), (ip("192.0.2.5"), client))));
        }
    }
    // The host itself, at its own outside address.
    let (_, sent) = world.answer(LAN, &datagram(LAN, (SERVER, 4000), ("198.51.100.1", 8022)));
    assert_eq!((ends(&sent).0.0, ends(&sent).1), (ip("192.0.2.1"), (ip(SERVER), 22)));
    // All else goes on.
    for own in ["192.0.2.1", "198.51.100.1"] {
        let (_, reply) = world.answer(LAN, &ping(LAN, "192.0.2.5", own));
        assert_eq!(addresses(&reply).0, ip(own));
    }
    let (port, sent) = world.answer(LAN, &datagram(LAN, ("192.0.2.5", 4000), (OUTSIDE, 8022)));
    assert_eq!((port, ends(&sent).0.0), (WAN, ip("198.51.100.1")));
    assert_eq!(world.worker.egress.connections.len(), 2 * 3 + 1);
}

#[test]
fn forwards_are_explained() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("switch.toml");
    std::fs::write(
        &file,
        forwarding("\"wan tcp 8022 from 203.0.113.0/24 to 192.0.2.80:22\", \"wan ftp to 192.0.2.9\""),
    )
    .unwrap();
    let rules = Setup::read(&file).unwrap().explain().unwrap().unwrap();
    for part in [
        "# wan tcp 8022 from 203.0.113.0/24 to 192.0.2.80:22\n\
         table=2,priority=200,tcp,in_port=2,tp_dst=8022,nw_src=203.0.113.0/24,nw_dst=198.51.100.1,ct_state=+new+trk \
         actions=ct(commit,table=1,nat(dst=192.0.2.80:22))\n",
        "tp_dst=21,nw_dst=198.51.100.1,ct_state=+new+trk actions=ct(commit,table=1,alg=ftp,nat(dst=192.0.2.9))\n",
        "# Connections that have been announced are forwarded.\n",
    ] {
        assert!(rules.contains(part), "{part}: {rules}");
    }
}
