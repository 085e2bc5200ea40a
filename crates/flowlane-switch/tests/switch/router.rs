//! The router: what hosts on its networks see of it. Frames are built and read by `etherparse`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{
    Icmpv4Type, Icmpv6Type, NetHeaders, PacketBuilder, PacketHeaders, TransportHeader, icmpv4, icmpv6,
};
use flowlane_switch::datapath::Worker;
use flowlane_switch::mgmt::setup::Setup;
use flowlane_switch::port::{MemoryHandle, MemoryPort};
use tempfile::TempDir;

mod forwards;
mod fragments;
mod hostile;
mod interfaces;

const LAN: usize = 0;
const WAN: usize = 1;

/// The router's Ethernet addresses, and those of hosts.
const OWN: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const HOST: [[u8; 6]; 2] = [[2, 9, 0, 0, 0, 1], [2, 9, 0, 0, 0, 2]];
const ALL: [u8; 6] = [0xff; 6];

const PORTS: &str = "[[port]]\nnumber = 1\nname = \"lan\"\nopen = \"null\"\nmac = \"02:00:00:00:00:01\"\n\
    addresses = [\"192.0.2.1/24\", \"2001:db8:1::1/64\"]\n\
    [[port]]\nnumber = 2\nname = \"wan\"\nopen = \"null\"\nmac = \"02:00:00:00:00:02\"\nmtu = 1400\n\
    addresses = [\"198.51.100.1/24\", \"2001:db8:2::1/64\"]\n";

const ROUTES: &str = "[router]\nroutes = [\"203.0.113.0/24 via 198.51.100.254\", \"2001:db8:3::/48 via fe80::9 dev wan\",\
    \"prohibit 10.0.0.0/8\", \"blackhole 10.1.0.0/16\"]\n";

/// A router, its ports' other ends, and the time.
struct World {
    _folder: TempDir,
    worker: Worker,
    ports: Vec<MemoryHandle>,
    now_ns: u64,
}

const MS: u64 = 1_000_000;

impl World {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("switch.toml");
        std::fs::write(&file, text).unwrap();
        let setup = Setup::read(&file).unwrap_or_else(|error| panic!("{error}\n{text}"));
        setup.check().unwrap();
        let mut worker = setup.open(7).unwrap();
        let handle = |slot: &mut flowlane_switch::datapath::PortSlot| {
            let (port, handle) = MemoryPort::new();
            slot.port = Box::new(port);
            handle
        };
        let ports = worker.egress.ports.slots_mut().iter_mut().map(handle).collect();
        Self { _folder: folder, worker, ports, now_ns: 1_000 * MS }
    }

    /// A router whose announcements have been taken.
    fn quiet(text: &str) -> Self {
        let mut world = Self::new(text);
        world.receive(LAN, &arp(LAN, 1, ("192.0.2.77", HOST[0]), "192.0.2.1"));
        world.take();
        world
    }

    fn receive(&mut self, port: usize, frame: &[u8]) {
        self.now_ns += MS;
        self.worker.inject_at(port, [(self.now_ns, frame)]).unwrap();
    }

    /// Takes what has been sent: (port, frame).
    fn take(&mut self) -> Vec<(usize, Vec<u8>)> {
        let of = |(n, port): (usize, &MemoryHandle)| {
            port.take_sent().into_iter().map(move |frame| (n, frame)).collect::<Vec<_>>()
        };
        self.ports.iter().enumerate().flat_map(of).collect()
    }

    /// The frames that are sent because of another.
    fn answers(&mut self, port: usize, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
        self.receive(port, frame);
        self.take()
    }

    /// The only frame that is sent because of another, and its port.
    #[track_caller]
    fn answer(&mut self, port: usize, frame: &[u8]) -> (usize, Vec<u8>) {
        let mut sent = self.answers(port, frame);
        assert_eq!(sent.len(), 1, "{sent:02x?}");
        sent.remove(0)
    }

    /// Makes a host on the wan known.
    fn resolve(&mut self, address: &str) {
        match ip(address) {
            IpAddr::V4(_) => self.receive(WAN, &arp(WAN, 1, (address, HOST[WAN]), "198.51.100.1")),
            IpAddr::V6(own) => self.receive(WAN, &solicitation(WAN, own, "2001:db8:2::1")),
        }
        self.take();
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn v4(text: &str) -> [u8; 4] {
    text.parse::<Ipv4Addr>().unwrap().octets()
}

fn v6(text: &str) -> [u8; 16] {
    text.parse::<Ipv6Addr>().unwrap().octets()
}

fn arp(port: usize, operation: u16, from: (&str, [u8; 6]), target: &str) -> Vec<u8> {
    let packet = etherparse::ArpPacket::new(
        etherparse::ArpHardwareId::ETHERNET,
        etherparse::EtherType::IPV4,
        etherparse::ArpOperation(operation),
        &from.1,
        &v4(from.0),
        &[0; 6],
        &v4(target),
    );
    let destination = if operation == 1 { ALL } else { OWN[port] };
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(from.1, destination).arp(packet.unwrap()).write(&mut frame).unwrap();
    frame
}

/// A frame from a host to the router, with a UDP datagram.
fn udp(port: usize, from: &str, to: &str, ttl: u8, payload: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2(HOST[port], OWN[port]);
    let builder = match ip(from) {
        IpAddr::V4(_) => builder.ipv4(v4(from), v4(to), ttl),
        IpAddr::V6(_) => builder.ipv6(v6(from), v6(to), ttl),
    };
    let mut frame = Vec::new();
    builder.udp(4000, 5000).write(&mut frame, &vec![7; payload]).unwrap();
    frame
}

fn ping(port: usize, from: &str, to: &str) -> Vec<u8> {
    let (builder, mut frame) = (PacketBuilder::ethernet2(HOST[port], OWN[port]), Vec::new());
    match ip(from) {
        IpAddr::V4(_) => {
            builder.ipv4(v4(from), v4(to), 9).icmpv4_echo_request(5, 6).write(&mut frame, b"ping")
        }
        IpAddr::V6(_) => {
            builder.ipv6(v6(from), v6(to), 9).icmpv6_echo_request(5, 6).write(&mut frame, b"ping")
        }
    }
    .unwrap();
    frame
}

/// A neighbour solicitation with the host's Ethernet address.
fn solicitation(port: usize, from: Ipv6Addr, target: &str) -> Vec<u8> {
    let mut message = [&[0; 4][..], &v6(target), &[1, 1], &HOST[port]].concat();
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(HOST[port], OWN[port]).ipv6(from.octets(), v6(target), 255);
    let kind = Icmpv6Type::Unknown { type_u8: 135, code_u8: 0, bytes5to8: [0; 4] };
    builder.icmpv6(kind).write(&mut frame, &message.split_off(4)).unwrap();
    frame
}

fn advertisement(port: usize, from: &str, to: &str) -> Vec<u8> {
    let message = [&v6(from)[..], &[2, 1], &HOST[port]].concat();
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(HOST[port], OWN[port]).ipv6(v6(from), v6(to), 255);
    let kind = Icmpv6Type::Unknown { type_u8: 136, code_u8: 0, bytes5to8: [0x60, 0, 0, 0] };
    builder.icmpv6(kind).write(&mut frame, &message).unwrap();
    frame
}

/// Source and destination of a frame's IP packet, its TTL, and whether all checksums are right.
#[track_caller]
fn addresses(frame: &[u8]) -> (IpAddr, IpAddr, u8) {
    let packet = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let payload = packet.payload.slice();
    match packet.net.unwrap() {
        NetHeaders::Ipv4(header, _) => {
            assert_eq!(header.header_checksum, header.calc_header_checksum());
            match packet.transport {
                Some(TransportHeader::Icmpv4(icmp)) => {
                    assert_eq!(icmp.checksum, icmp.icmp_type.calc_checksum(payload))
                }
                Some(TransportHeader::Udp(udp))
                    if header.fragment_offset.value() == 0 && !header.more_fragments =>
                {
                    assert_eq!(udp.checksum, udp.calc_checksum_ipv4(&header, payload).unwrap());
                }
                _ => {}
            }
            (header.source.into(), header.destination.into(), header.time_to_live)
        }
        NetHeaders::Ipv6(header, _) => {
            if let Some(TransportHeader::Icmpv6(icmp)) = packet.transport {
                let right = icmp.icmp_type.calc_checksum(header.source, header.destination, payload).unwrap();
                assert_eq!(icmp.checksum, right);
            }
            (header.source.into(), header.destination.into(), header.hop_limit)
        }
        NetHeaders::Arp(_) => panic!("not IP"),
    }
}

fn icmp4(frame: &[u8]) -> (Icmpv4Type, Vec<u8>) {
    let packet = PacketHeaders::from_ethernet_slice(frame).unwrap();
    match packet.transport {
        Some(TransportHeader::Icmpv4(icmp)) => (icmp.icmp_type, packet.payload.slice().to_vec()),
        other => panic!("{other:?}"),
    }
}

fn icmp6(frame: &[u8]) -> (Icmpv6Type, Vec<u8>) {
    let packet = PacketHeaders::from_ethernet_slice(frame).unwrap();
    match packet.transport {
        Some(TransportHeader::Icmpv6(icmp)) => (icmp.icmp_type, packet.payload.slice().to_vec()),
        other => panic!("{other:?}"),
    }
}

fn plain() -> String {
    format!("{PORTS}{ROUTES}")
}

#[test]
fn a_router_announces_itself_first() {
    let mut world = World::new(&plain());
    let sent = world.answers(LAN, &udp(LAN, "192.0.2.5", "192.0.2.255", 64, 8));
    let kinds: Vec<(usize, u16)> =
        sent.iter().map(|(port, frame)| (*port, u16::from_be_bytes([frame[12], frame[13]]))).collect();
    // An address of IPv4, one of IPv6 and the link-local one for each port.
    let each = |port| [(port, 0x806), (port, 0x86dd), (port, 0x86dd)];
    assert_eq!(kinds, [each(LAN), each(WAN)].concat());
    assert_eq!(sent[0].1[..6], ALL);
}

#[test]
fn arp_for_own_addresses_is_answered() {
    let mut world = World::quiet(&plain());
    let (port, reply) = world.answer(LAN, &arp(LAN, 1, ("192.0.2.5", HOST[LAN]), "192.0.2.1"));
    assert_eq!((port, &reply[..12]), (LAN, &[HOST[LAN], OWN[LAN]].concat()[..]));
    // RFC 826: the fields in their order.
    let mut expected = vec![8, 6, 0, 1, 8, 0, 6, 4, 0, 2];
    expected.extend([&OWN[LAN][..], &v4("192.0.2.1"), &HOST[LAN], &v4("192.0.2.5")].concat());
    assert_eq!(reply[12..42], expected);
    // Not those of other ports or of neighbours.
    for target in ["198.51.100.1", "192.0.2.9", "192.0.2.255"] {
        assert_eq!(world.answers(LAN, &arp(LAN, 1, ("192.0.2.5", HOST[LAN]), target)), []);
    }
    // A probe finds that the address is in use (RFC 5227).
    world.answer(LAN, &arp(LAN, 1, ("0.0.0.0", HOST[LAN]), "192.0.2.1"));
}

#[test]
fn neighbour_solicitations_are_answered() {
    let mut world = World::quiet(&plain());
    let (port, reply) =
        world.answer(LAN, &solicitation(LAN, "2001:db8:1::5".parse().unwrap(), "2001:db8:1::1"));
    assert_eq!((port, &reply[..6]), (LAN, &HOST[LAN][..]));
    assert_eq!(addresses(&reply), (ip("2001:db8:1::1"), ip("2001:db8:1::5"), 255));
    let (kind, payload) = icmp6(&reply);
    let Icmpv6Type::NeighborAdvertisement(flags) = kind else { panic!("{kind:?}") };
    assert!(flags.router && flags.solicited && flags.r#override);
    assert_eq!(payload, [&v6("2001:db8:1::1")[..], &[2, 1], &OWN[LAN]].concat());
    // A router has forwarded this one.
    let mut forwarded = solicitation(LAN, "2001:db8:1::5".parse().unwrap(), "2001:db8:1::1");
    forwarded[21] = 254;
    assert_eq!(world.answers(LAN, &forwarded), []);
    let mut damaged = solicitation(LAN, "2001:db8:1::5".parse().unwrap(), "2001:db8:1::1");
    damaged[70] ^= 1;
    assert_eq!(world.answers(LAN, &damaged), []);
}

#[test]
fn own_addresses_answer_pings_and_refuse_other_protocols() {
    let mut world = World::quiet(&plain());
    // From either port, to the addresses of both.
    for own in ["192.0.2.1", "198.51.100.1"] {
        let (port, reply) = world.answer(LAN, &ping(LAN, "192.0.2.5", own));
        assert_eq!((port, addresses(&reply)), (LAN, (ip(own), ip("192.0.2.5"), 64)));
        let (kind, payload) = icmp4(&reply);
        assert_eq!(kind, Icmpv4Type::EchoReply(etherparse::IcmpEchoHeader { id: 5, seq: 6 }));
        assert_eq!(payload, b"ping");
    }
    let (_, reply) = world.answer(LAN, &ping(LAN, "2001:db8:1::5", "2001:db8:1::1"));
    assert_eq!(addresses(&reply), (ip("2001:db8:1::1"), ip("2001:db8:1::5"), 64));
    assert_eq!(icmp6(&reply).0, Icmpv6Type::EchoReply(etherparse::IcmpEchoHeader { id: 5, seq: 6 }));
    let (_, refused) = world.answer(LAN, &udp(LAN, "192.0.2.5", "192.0.2.1", 1, 8));
    assert_eq!(icmp4(&refused).0, Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::Port));
    let (_, refused) = world.answer(LAN, &udp(LAN, "2001:db8:1::5", "2001:db8:1::1", 1, 8));
    assert_eq!(icmp6(&refused).0, Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::Port));
    // No answer to a broadcast, a damaged ping, or a source that is no host.
    assert_eq!(world.answers(LAN, &ping(LAN, "192.0.2.5", "192.0.2.255")), []);
    assert_eq!(world.answers(LAN, &ping(LAN, "224.0.0.1", "192.0.2.1")), []);
    let mut damaged = ping(LAN, "192.0.2.5", "192.0.2.1");
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(world.answers(LAN, &damaged), []);
}

#[test]
fn packets_wait_for_their_neighbour_and_then_go() {
    let mut world = World::quiet(&plain());
    for (from, to, asked_for) in [
        ("192.0.2.5", "198.51.100.7", "198.51.100.7"),
        ("192.0.2.5", "203.0.113.7", "198.51.100.254"),
        ("2001:db8:1::5", "2001:db8:2::7", "2001:db8:2::7"),
        ("2001:db8:1::5", "2001:db8:3::7", "fe80::9"),
    ] {
        let (port, question) = world.answer(LAN, &udp(LAN, from, to, 64, 8));
        assert_eq!(port, WAN, "{to}");
        match ip(asked_for) {
            IpAddr::V4(_) => assert_eq!(question[38..42], v4(asked_for)),
            IpAddr::V6(_) => {
                assert_eq!(question[..3], [0x33, 0x33, 0xff]);
                assert_eq!(icmp6(&question).1[..16], v6(asked_for));
                addresses(&question);
            }
        }
        // Others wait, too, and no question is repeated so soon.
        assert_eq!(world.answers(LAN, &udp(LAN, from, to, 64, 9)), []);
        let answer = match ip(asked_for) {
            IpAddr::V4(_) => arp(WAN, 2, (asked_for, HOST[WAN]), "198.51.100.1"),
            IpAddr::V6(_) => advertisement(WAN, asked_for, "2001:db8:2::1"),
        };
        let released = world.answers(WAN, &answer);
        assert_eq!(released.len(), 2, "{to}");
        for (n, (port, frame)) in released.iter().enumerate() {
            assert_eq!((*port, &frame[..12]), (WAN, &[HOST[WAN], OWN[WAN]].concat()[..]));
            assert_eq!(addresses(frame), (ip(from), ip(to), 63));
            let sent = udp(LAN, from, to, 63, 8 + n);
            assert_eq!(frame[12..], sent[12..]);
        }
        let (port, frame) = world.answer(LAN, &udp(LAN, from, to, 2, 10));
        assert_eq!((port, addresses(&frame)), (WAN, (ip(from), ip(to), 1)));
    }
}

#[test]
fn neighbours_that_do_not_answer_are_given_up() {
    let mut world = World::quiet(&plain());
    let lost = udp(LAN, "192.0.2.5", "198.51.100.7", 64, 8);
    world.answer(LAN, &lost);
    let mut questions = 0;
    let mut errors = Vec::new();
    for _ in 0..5 {
        world.now_ns += 1_000 * MS;
        // Anything makes the time known.
        for (port, frame) in world.answers(LAN, &udp(LAN, "192.0.2.5", "192.0.2.255", 64, 1)) {
            if port == WAN { questions += 1 } else { errors.push(frame) }
        }
    }
    assert_eq!(questions, 2);
    let [error] = &errors[..] else { panic!("{} errors", errors.len()) };
    assert_eq!(addresses(error), (ip("192.0.2.1"), ip("192.0.2.5"), 64));
    let (kind, about) = icmp4(error);
    assert_eq!(kind, Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::Host));
    assert_eq!(about, lost[14..]);
    // And asked for again by the next packet.
    assert_eq!(world.answer(LAN, &lost).0, WAN);
}

#[test]
fn errors_say_why_packets_are_not_forwarded() {
    let mut world = World::quiet(&plain());
    use icmpv4::DestUnreachableHeader as Why;
    for (to, ttl, expected) in [
        ("198.51.100.7", 1, Icmpv4Type::TimeExceeded(icmpv4::TimeExceededCode::TtlExceededInTransit)),
        ("198.51.100.7", 0, Icmpv4Type::TimeExceeded(icmpv4::TimeExceededCode::TtlExceededInTransit)),
        ("100.64.0.1", 64, Icmpv4Type::DestinationUnreachable(Why::Network)),
        ("10.0.0.1", 64, Icmpv4Type::DestinationUnreachable(Why::FilterProhibited)),
    ] {
        let packet = udp(LAN, "192.0.2.5", to, ttl, 8);
        let (port, error) = world.answer(LAN, &packet);
        assert_eq!((port, addresses(&error)), (LAN, (ip("192.0.2.1"), ip("192.0.2.5"), 64)));
        assert_eq!(error[..12], [HOST[LAN], OWN[LAN]].concat());
        assert_eq!(icmp4(&error), (expected, packet[14..].to_vec()), "{to}");
    }
    let (_, error) = world.answer(LAN, &udp(LAN, "2001:db8:1::5", "2001:db8:2::7", 1, 8));
    assert_eq!(addresses(&error).0, ip("2001:db8:1::1"));
    assert_eq!(icmp6(&error).0, Icmpv6Type::TimeExceeded(icmpv6::TimeExceededCode::HopLimitExceeded));
    let (_, error) = world.answer(LAN, &udp(LAN, "2001:db8:1::5", "2001:db8:9::7", 9, 8));
    assert_eq!(icmp6(&error).0, Icmpv6Type::DestinationUnreachable(icmpv6::DestUnreachableCode::NoRoute));
    // No error about a blackhole, an error, or a packet to all.
    assert_eq!(world.answers(LAN, &udp(LAN, "192.0.2.5", "10.1.0.1", 64, 8)), []);
    let mut error = Vec::new();
    let kind = Icmpv4Type::TimeExceeded(icmpv4::TimeExceededCode::TtlExceededInTransit);
    let builder = PacketBuilder::ethernet2(HOST[LAN], OWN[LAN]).ipv4(v4("192.0.2.5"), v4("100.64.0.1"), 9);
    builder.icmpv4(kind).write(&mut error, &[0; 28]).unwrap();
    assert_eq!(world.answers(LAN, &error), []);
    let mut broadcast = udp(LAN, "192.0.2.5", "100.64.0.1", 64, 8);
    broadcast[..6].fill(0xff);
    assert_eq!(world.answers(LAN, &broadcast), []);
}

#[test]
fn what_is_too_long_is_cut_or_refused() {
    let mut world = World::quiet(&plain());
    world.resolve("198.51.100.7");
    world.resolve("2001:db8:2::7");
    let mut whole = udp(LAN, "192.0.2.5", "198.51.100.7", 64, 1450);
    // etherparse's packets must not be cut; the MTU of the wan is 1400.
    let (port, error) = world.answer(LAN, &whole);
    assert_eq!(port, LAN);
    let (kind, about) = icmp4(&error);
    let next_hop_mtu = 1400;
    let needed = icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu };
    assert_eq!(kind, Icmpv4Type::DestinationUnreachable(needed));
    assert_eq!((about.len(), error.len()), (576 - 28, 14 + 576));
    // One that may be.
    whole[20] = 0;
    let header = etherparse::Ipv4Header::from_slice(&whole[14..]).unwrap().0;
    whole[24..26].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
    let parts = world.answers(LAN, &whole);
    let lengths: Vec<(usize, usize)> = parts.iter().map(|(port, frame)| (*port, frame.len())).collect();
    assert_eq!(lengths, [(WAN, 14 + 20 + 1376), (WAN, 14 + 20 + 1450 + 8 - 1376)]);
    let payload: Vec<u8> = parts.iter().flat_map(|(_, frame)| frame[34..].to_vec()).collect();
    assert_eq!(payload, whole[34..]);
    assert_eq!(addresses(&parts[1].1), (ip("192.0.2.5"), ip("198.51.100.7"), 63));
    let (port, error) = world.answer(LAN, &udp(LAN, "2001:db8:1::5", "2001:db8:2::7", 64, 1450));
    assert_eq!((port, icmp6(&error).0), (LAN, Icmpv6Type::PacketTooBig { mtu: 1400 }));
    assert_eq!(error.len(), 14 + 1280);
}

#[test]
fn routes_must_lead_back_to_the_source() {
    let mut world = World::quiet(&plain());
    world.resolve("198.51.100.7");
    let there = "198.51.100.7";
    assert_eq!(world.answers(LAN, &udp(LAN, "192.0.2.5", there, 64, 8)).len(), 1);
    for forged in ["198.51.100.9", "203.0.113.1", "100.64.0.1", "127.0.0.1", "224.0.0.1"] {
        assert_eq!(world.answers(LAN, &udp(LAN, forged, there, 64, 8)), [], "{forged}");
    }
    assert_eq!(world.worker.egress.router.as_ref().unwrap().counters().reverse_path, 5);
    let mut loose = World::quiet(&plain().replace("[router]", "[router]\nreverse_path = \"loose\""));
    loose.resolve(there);
    assert_eq!(loose.answers(LAN, &udp(LAN, "203.0.113.1", there, 64, 8)).len(), 1);
    assert_eq!(loose.answers(LAN, &udp(LAN, "100.64.0.1", there, 64, 8)), []);
}

#[test]
fn frames_for_other_stations_are_not_routed() {
    let mut world = World::quiet(&plain());
    world.resolve("198.51.100.7");
    let mut frame = udp(LAN, "192.0.2.5", "198.51.100.7", 64, 8);
    frame[5] = 9;
    assert_eq!(world.answers(LAN, &frame), []);
    // Nor are those that came to all stations of a link, or from an address of the link alone.
    frame[..6].fill(0xff);
    assert_eq!(world.answers(LAN, &frame), []);
    world.resolve("2001:db8:2::7");
    assert_eq!(world.answers(LAN, &udp(LAN, "2001:db8:1::5", "2001:db8:2::7", 64, 8)).len(), 1);
    assert_eq!(world.answers(LAN, &udp(LAN, "fe80::5", "2001:db8:2::7", 64, 8)), []);
    assert_eq!(world.answers(LAN, &udp(LAN, "2001:db8:1::5", "fe80::9", 64, 8)), []);
}

/// Neighbours are learned from what they say of themselves, within their network, and never for the router's own addresses.
#[test]
fn nobody_takes_the_place_of_others() {
    let mut world = World::quiet(&plain());
    let other = [2, 9, 9, 9, 9, 9];
    // Another address of a known neighbour is believed (it has moved); for an address elsewhere or the router's own it is not.
    world.receive(WAN, &arp(WAN, 2, ("192.0.2.5", other), "198.51.100.1"));
    world.receive(WAN, &arp(WAN, 2, ("198.51.100.1", other), "198.51.100.1"));
    world.take();
    let (port, question) = world.answer(WAN, &udp(WAN, "198.51.100.7", "192.0.2.5", 64, 8));
    assert_eq!((port, &question[38..42]), (LAN, &v4("192.0.2.5")[..]));
    assert_eq!(world.worker.egress.router.as_ref().unwrap().counters().conflicts, 1);
    // An answer without a question makes no neighbour.
    world.receive(WAN, &arp(WAN, 2, ("198.51.100.8", other), "198.51.100.1"));
    let (_, question) = world.answer(LAN, &udp(LAN, "192.0.2.5", "198.51.100.8", 64, 8));
    assert_eq!(question[12..14], [8, 6]);
}

/// A scan of a network makes few packets wait, and others are still resolved.
#[test]
fn scans_are_bounded() {
    let mut world = World::quiet(&plain().replace("[router]", "[router]\nneighbours_max = 64"));
    for n in 2..250 {
        world.receive(LAN, &udp(LAN, "192.0.2.5", &format!("198.51.100.{n}"), 64, 8));
    }
    let asked = world.take().len();
    assert_eq!(asked, 248);
    let router = world.worker.egress.router.clone().unwrap();
    assert_eq!(router.neighbours(world.now_ns).len(), 16 + 1);
    world.receive(LAN, &udp(LAN, "192.0.2.5", "198.51.100.251", 64, 8));
    world.take();
    let released = world.answers(WAN, &arp(WAN, 2, ("198.51.100.251", HOST[WAN]), "198.51.100.1"));
    assert_eq!(released.len(), 1);
}

const FIREWALL: &str = "[firewall]\ninside = [\"lan\"]\noutside = [\"wan\"]\nallow = [\"outgoing\", \"in icmp echo\"]\n\
    translate = [\"wan\"]\n";

#[test]
fn connections_are_translated_where_they_leave() {
    let mut world = World::quiet(&format!("{}{FIREWALL}", plain()));
    world.resolve("198.51.100.254");
    let (inside, server) = ("192.0.2.5", "203.0.113.7");
    for _ in 0..3 {
        let (port, out) = world.answer(LAN, &udp(LAN, inside, server, 64, 8));
        assert_eq!((port, addresses(&out)), (WAN, (ip("198.51.100.1"), ip(server), 63)));
        let packet = PacketHeaders::from_ethernet_slice(&out).unwrap();
        let source_port = packet.transport.unwrap().udp().unwrap().source_port;
        let mut reply = Vec::new();
        let builder = PacketBuilder::ethernet2(HOST[WAN], OWN[WAN]).ipv4(v4(server), v4("198.51.100.1"), 50);
        builder.udp(5000, source_port).write(&mut reply, b"reply").unwrap();
        // The host is asked for first.
        let mut sent = world.answers(WAN, &reply);
        if sent[0].1[12..14] == [8, 6] {
            sent = world.answers(LAN, &arp(LAN, 2, (inside, HOST[LAN]), "192.0.2.1"));
        }
        let [(port, back)] = &sent[..] else { panic!("{} frames", sent.len()) };
        assert_eq!((*port, addresses(back)), (LAN, (ip(server), ip(inside), 49)));
    }
    // Its sender sees the addresses that it knows in an error.
    let packet = udp(LAN, inside, server, 1, 8);
    let (port, error) = world.answer(LAN, &packet);
    assert_eq!((port, icmp4(&error).1), (LAN, packet[14..].to_vec()));
    // Strangers do not get in, and may ping the router.
    assert_eq!(world.answers(WAN, &udp(WAN, server, inside, 64, 8)), []);
    assert_eq!(world.answers(WAN, &udp(WAN, server, "198.51.100.1", 64, 8)), []);
    assert_eq!(world.answers(WAN, &ping(WAN, server, "198.51.100.1")).len(), 1);
    // IPv6 is not translated.
    world.receive(LAN, &udp(LAN, "2001:db8:1::5", "2001:db8:2::7", 64, 8));
    let sent = world.answers(WAN, &advertisement(WAN, "2001:db8:2::7", "2001:db8:2::1"));
    assert_eq!(addresses(&sent.last().unwrap().1), (ip("2001:db8:1::5"), ip("2001:db8:2::7"), 63));
}

/// A burst and its packets one by one give the same frames.
#[test]
fn bursts_do_not_matter() {
    let frames: Vec<Vec<u8>> = (0..40)
        .map(|n| match n % 8 {
            0 => arp(LAN, 1, ("192.0.2.5", HOST[LAN]), "192.0.2.1"),
            1 => ping(LAN, "192.0.2.5", "198.51.100.1"),
            2 => udp(LAN, "192.0.2.5", "203.0.113.7", 1, n),
            3 => udp(LAN, "192.0.2.5", "192.0.2.6", 64, n),
            4 if n > 20 => arp(LAN, 2, ("192.0.2.6", HOST[LAN]), "192.0.2.1"),
            _ => udp(LAN, "192.0.2.5", &format!("203.0.113.{n}"), 64, n),
        })
        .collect();
    for text in [plain(), format!("{}{FIREWALL}", plain())] {
        let [one, all] = [1, 64].map(|burst| {
            let mut world = World::quiet(&format!("[switch]\nseed = 1\nburst = {burst}\n{text}"));
            world.resolve("198.51.100.254");
            let times = (1..).map(|n| world.now_ns + n * 30 * MS);
            let timed: Vec<(u64, &[u8])> = times.zip(frames.iter().map(Vec::as_slice)).collect();
            world.worker.inject_at(LAN, timed).unwrap();
            world.take()
        });
        assert!(one.len() > 30);
        assert_eq!(one, all);
    }
}
