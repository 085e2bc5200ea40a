//! Interfaces of the router that are no ports: VLANs of the other ports, and tunnels.

use super::*;

const LAN_2: usize = 2;
const TRUNK: usize = 3;

/// The router's Ethernet address among guests.
const GUESTS: [u8; 6] = [2, 0, 0, 0, 0, 0x20];

const VLANS: &str = "[[port]]\nnumber = 1\nname = \"lan1\"\nopen = \"null\"\ntag = 10\n\
    [[port]]\nnumber = 2\nname = \"wan\"\nopen = \"null\"\nmac = \"02:00:00:00:00:02\"\n\
    addresses = [\"198.51.100.1/24\", \"2001:db8:2::1/64\"]\n\
    [[port]]\nnumber = 3\nname = \"lan2\"\nopen = \"null\"\ntag = 10\n\
    [[port]]\nnumber = 4\nname = \"trunk\"\nopen = \"null\"\n\
    [router]\n\
    [[router.interface]]\nnumber = 100\nname = \"office\"\nvlan = 10\nmac = \"02:00:00:00:00:01\"\n\
    addresses = [\"192.0.2.1/24\", \"2001:db8:1::1/64\"]\n\
    [[router.interface]]\nnumber = 101\nname = \"guests\"\nvlan = 20\nmac = \"02:00:00:00:00:20\"\n\
    addresses = [\"10.20.0.1/24\"]\n";

const VLAN_FIREWALL: &str = "[firewall]\ninside = [\"office\", \"guests\"]\noutside = [\"wan\"]\n\
    allow = [\"outgoing\", \"in udp 5000\"]\n";

/// A frame with a tag.
fn tagged(vid: u8, frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, vid], &frame[12..]].concat()
}

/// A UDP datagram between stations.
fn datagram(macs: [[u8; 6]; 2], from: &str, to: &str, payload: usize) -> Vec<u8> {
    let (builder, mut frame) = (PacketBuilder::ethernet2(macs[0], macs[1]), Vec::new());
    let builder = builder.ipv4(v4(from), v4(to), 64);
    builder.udp(4000, 5000).write(&mut frame, &vec![7; payload]).unwrap();
    frame
}

/// A question of a guest for the router.
fn guest_asks() -> Vec<u8> {
    tagged(20, &arp(LAN, 1, ("10.20.0.9", HOST[WAN]), "10.20.0.1"))
}

fn ports(sent: &[(usize, Vec<u8>)]) -> Vec<usize> {
    sent.iter().map(|(port, _)| *port).collect()
}

/// A router whose hosts at lan1, among the guests at the trunk and on the wan are known.
fn known(text: &str) -> World {
    let mut world = World::quiet(text);
    world.receive(LAN, &arp(LAN, 1, ("192.0.2.5", HOST[LAN]), "192.0.2.1"));
    world.receive(TRUNK, &guest_asks());
    world.resolve("198.51.100.7");
    world
}

#[test]
fn a_vlan_asks_the_router_and_is_switched() {
    let mut world = World::quiet(VLANS);
    let question = arp(LAN, 1, ("192.0.2.5", HOST[LAN]), "192.0.2.1");
    let mut sent = world.answers(LAN, &question);
    sent.sort();
    assert_eq!(ports(&sent), [LAN, LAN_2, TRUNK]);
    // The answer, without a tag.
    assert_eq!(sent[0].1[..14], [&HOST[LAN][..], &OWN[LAN], &[8, 6]].concat());
    assert_eq!(sent[1].1, question);
    assert_eq!(sent[2].1, tagged(10, &question));
    // Another VLAN's address is not answered for.
    let wrong = world.answers(LAN, &arp(LAN, 1, ("192.0.2.5", HOST[LAN]), "10.20.0.1"));
    assert_eq!(ports(&wrong), [LAN_2, TRUNK]);
    // Tagged questions get tagged answers; no other port has shown guests.
    let (port, answer) = world.answer(TRUNK, &guest_asks());
    assert_eq!(
        (port, &answer[..18]),
        (TRUNK, &[&HOST[WAN][..], &GUESTS, &[0x81, 0, 0, 20, 8, 6]].concat()[..])
    );
    // A priority tag is none.
    let priority = tagged(0, &question);
    assert!(
        world.answers(LAN, &priority).iter().any(|(port, frame)| *port == LAN && frame[..6] == HOST[LAN])
    );
    // Frames between hosts are switched, from and to ports that have shown their addresses.
    let to_host = datagram([HOST[WAN], HOST[LAN]], "192.0.2.6", "192.0.2.5", 8);
    assert_eq!(world.answers(LAN_2, &to_host), [(LAN, to_host.clone())]);
    assert_eq!(world.answers(WAN, &to_host), [], "the wan is no part of it");
}

#[test]
fn packets_are_routed_between_vlans_and_ports() {
    for firewall in ["", VLAN_FIREWALL] {
        let mut world = known(&format!("{VLANS}{firewall}"));
        for round in 0..3 {
            // To a port.
            let out = datagram([HOST[LAN], OWN[LAN]], "192.0.2.5", "198.51.100.7", 8);
            let (port, sent) = world.answer(LAN, &out);
            assert_eq!((port, addresses(&sent)), (WAN, (ip("192.0.2.5"), ip("198.51.100.7"), 63)), "{round}");
            // From a port: the router has learned which port the host is at.
            let back = datagram([HOST[WAN], OWN[WAN]], "198.51.100.7", "192.0.2.5", 8);
            let (port, sent) = world.answer(WAN, &back);
            assert_eq!((port, addresses(&sent)), (LAN, (ip("198.51.100.7"), ip("192.0.2.5"), 63)));
            assert_eq!(sent[..14], [&HOST[LAN][..], &OWN[LAN], &[8, 0]].concat());
            // From one VLAN to another.
            let guest = tagged(20, &datagram([HOST[WAN], GUESTS], "10.20.0.9", "192.0.2.5", 8));
            let (port, sent) = world.answer(TRUNK, &guest);
            assert_eq!((port, addresses(&sent)), (LAN, (ip("10.20.0.9"), ip("192.0.2.5"), 63)));
            // Through the port that it came in through.
            let stranger = [2, 9, 0, 0, 0, 9];
            let on_trunk = tagged(10, &datagram([stranger, OWN[LAN]], "192.0.2.9", "10.20.0.9", 8));
            let (port, sent) = world.answer(TRUNK, &on_trunk);
            assert_eq!(
                (port, &sent[..16]),
                (TRUNK, &[&HOST[WAN][..], &GUESTS, &[0x81, 0, 0, 20]].concat()[..])
            );
            assert_eq!(addresses(&sent), (ip("192.0.2.9"), ip("10.20.0.9"), 63));
        }
        // Errors go by the VLAN, too.
        let (port, error) =
            world.answer(TRUNK, &tagged(20, &datagram([HOST[WAN], GUESTS], "10.20.0.9", "203.0.113.1", 8)));
        assert_eq!((port, addresses(&error).0), (TRUNK, ip("10.20.0.1")));
        assert_eq!(error[12..16], [0x81, 0, 0, 20]);
    }
}

#[test]
fn a_vlan_is_asked_for_a_neighbour() {
    let mut world = known(VLANS);
    let mut asked = world.answers(WAN, &datagram([HOST[WAN], OWN[WAN]], "198.51.100.7", "192.0.2.8", 8));
    asked.sort();
    assert_eq!(ports(&asked), [LAN, LAN_2, TRUNK]);
    assert_eq!(asked[0].1[..14], [&ALL[..], &OWN[LAN], &[8, 6]].concat());
    assert_eq!(asked[2].1[12..18], [0x81, 0, 0, 10, 8, 6]);
    let host = [2, 9, 0, 0, 0, 8];
    let mut answer = arp(LAN, 2, ("192.0.2.8", host), "192.0.2.1");
    answer[..6].copy_from_slice(&OWN[LAN]);
    let (port, sent) = world.answer(LAN_2, &answer);
    assert_eq!((port, addresses(&sent).1, &sent[..6]), (LAN_2, ip("192.0.2.8"), &host[..]));
    // In IPv6.
    let v6 = solicitation(LAN, "2001:db8:1::5".parse().unwrap(), "2001:db8:1::1");
    assert_eq!(ports(&world.answers(LAN, &v6)), [LAN], "only the router's address was asked");
}

#[test]
fn frames_without_a_tag_are_a_vlan() {
    let text = VLANS.replace("tag = 10\n", "").replace("vlan = 10", "vlan = 0");
    let mut world = World::quiet(&text);
    let mut sent = world.answers(LAN, &arp(LAN, 1, ("192.0.2.5", HOST[LAN]), "192.0.2.1"));
    sent.sort();
    assert_eq!(ports(&sent), [LAN, LAN_2, TRUNK]);
    world.resolve("198.51.100.7");
    let back = datagram([HOST[WAN], OWN[WAN]], "198.51.100.7", "192.0.2.5", 8);
    let (port, sent) = world.answer(WAN, &back);
    assert_eq!((port, &sent[..14]), (LAN, &[&HOST[LAN][..], &OWN[LAN], &[8, 0]].concat()[..]));
}

const TUNNEL: &str = "[[port]]\nnumber = 1\nname = \"lan\"\nopen = \"null\"\nmac = \"02:00:00:00:00:01\"\n\
    addresses = [\"192.0.2.1/24\"]\n\
    [[port]]\nnumber = 2\nname = \"wan\"\nopen = \"null\"\nmac = \"02:00:00:00:00:02\"\ndecapsulate = true\n\
    addresses = [\"198.51.100.1/24\"]\n\
    [[tunnel]]\nnumber = 5\nkind = \"vxlan\"\nid = 7\nlocal = \"198.51.100.1\"\nremote = \"203.0.113.9\"\n\
    [router]\nroutes = [\"default via 198.51.100.254\", \"10.50.0.0/16 via 10.9.0.2\"]\n\
    [[router.interface]]\nnumber = 200\nname = \"site\"\ntunnel = 5\nmac = \"02:00:00:00:00:05\"\n\
    addresses = [\"10.9.0.1/30\"]\n";

/// The router's Ethernet address in the tunnel, and that of its other end.
const SITE: [u8; 6] = [2, 0, 0, 0, 0, 5];
const FAR: [u8; 6] = [2, 9, 0, 0, 0, 5];

const TUNNEL_FIREWALL: &str = "[firewall]\ninside = [\"lan\", \"site\"]\noutside = [\"wan\"]\ntranslate = [\"wan\"]\n\
    allow = [\"outgoing\"]\n";

/// The outer headers of a packet out of the tunnel, in front of a frame.
fn out_of_tunnel(frame: &[u8]) -> Vec<u8> {
    let vxlan = [&[8, 0, 0, 0, 0, 0, 7, 0][..], frame].concat();
    let (builder, mut outer) = (PacketBuilder::ethernet2(HOST[WAN], OWN[WAN]), Vec::new());
    let builder = builder.ipv4(v4("203.0.113.9"), v4("198.51.100.1"), 60);
    builder.udp(4000, 4789).write(&mut outer, &vxlan).unwrap();
    outer
}

/// The frame in a packet for the tunnel's other end, whose outer headers are right.
#[track_caller]
fn in_tunnel((port, frame): &(usize, Vec<u8>)) -> Vec<u8> {
    assert_eq!((*port, &frame[..12]), (WAN, &[HOST[WAN], OWN[WAN]].concat()[..]));
    let packet = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let Some(NetHeaders::Ipv4(header, _)) = packet.net else { panic!("no IPv4") };
    assert_eq!((header.source, header.destination), (v4("198.51.100.1"), v4("203.0.113.9")));
    assert_eq!((header.header_checksum, header.dont_fragment), (header.calc_header_checksum(), true));
    assert_eq!(packet.transport.unwrap().udp().unwrap().destination_port, 4789);
    packet.payload.slice()[8..].to_vec()
}

/// A router at a tunnel whose neighbours are known, on both sides of the tunnel.
fn at_tunnel(text: &str) -> World {
    let mut world = World::quiet(text);
    world.receive(LAN, &arp(LAN, 1, ("192.0.2.5", HOST[LAN]), "192.0.2.1"));
    world.resolve("198.51.100.254");
    let mut answer = arp(LAN, 2, ("10.9.0.2", FAR), "10.9.0.1");
    answer[..6].copy_from_slice(&SITE);
    world.receive(WAN, &out_of_tunnel(&answer));
    // It was not asked for; a question makes it known.
    world.receive(WAN, &out_of_tunnel(&arp(LAN, 1, ("10.9.0.2", FAR), "10.9.0.1")));
    world.take();
    world
}

#[test]
fn packets_are_routed_through_a_tunnel() {
    for firewall in ["", TUNNEL_FIREWALL] {
        let mut world = at_tunnel(&format!("{TUNNEL}{firewall}"));
        for _ in 0..3 {
            let sent = world.answer(LAN, &udp(LAN, "192.0.2.5", "10.50.1.1", 64, 8));
            let inner = in_tunnel(&sent);
            assert_eq!(inner[..12], [FAR, SITE].concat());
            assert_eq!(addresses(&inner), (ip("192.0.2.5"), ip("10.50.1.1"), 63));
            let back = datagram([FAR, SITE], "10.50.1.1", "192.0.2.5", 8);
            let (port, sent) = world.answer(WAN, &out_of_tunnel(&back));
            assert_eq!((port, addresses(&sent)), (LAN, (ip("10.50.1.1"), ip("192.0.2.5"), 63)));
        }
        // From the tunnel back into it, and its own address.
        let (back, ping) = (datagram([FAR, SITE], "10.50.1.1", "10.50.2.2", 8), {
            let (builder, mut frame) = (PacketBuilder::ethernet2(FAR, SITE), Vec::new());
            let builder = builder.ipv4(v4("10.9.0.2"), v4("10.9.0.1"), 9).icmpv4_echo_request(5, 6);
            builder.write(&mut frame, b"ping").unwrap();
            frame
        });
        let inner = in_tunnel(&world.answer(WAN, &out_of_tunnel(&back)));
        assert_eq!(addresses(&inner).1, ip("10.50.2.2"));
        let inner = in_tunnel(&world.answer(WAN, &out_of_tunnel(&ping)));
        assert_eq!(icmp4(&inner).0, Icmpv4Type::EchoReply(etherparse::IcmpEchoHeader { id: 5, seq: 6 }));
    }
}

#[test]
fn neighbours_in_a_tunnel_are_asked_for() {
    let mut world = World::quiet(TUNNEL);
    world.resolve("198.51.100.254");
    let question = in_tunnel(&world.answer(LAN, &udp(LAN, "192.0.2.5", "10.50.1.1", 64, 8)));
    assert_eq!(question[..14], [&ALL[..], &SITE, &[8, 6]].concat());
    assert_eq!(question[38..42], v4("10.9.0.2"));
    let mut answer = arp(LAN, 2, ("10.9.0.2", FAR), "10.9.0.1");
    answer[..6].copy_from_slice(&SITE);
    let inner = in_tunnel(&world.answer(WAN, &out_of_tunnel(&answer)));
    assert_eq!(addresses(&inner).1, ip("10.50.1.1"));
}

/// The length that is reported to a sender when a packet of this many bytes, which must not be cut, is too long for the tunnel.
#[track_caller]
fn reported(world: &mut World, bytes: usize) -> Option<u16> {
    let mut frame = udp(LAN, "192.0.2.5", "10.50.1.1", 64, bytes - 28);
    frame[20] = 0x40;
    frame[24..26].fill(0);
    let sum: u32 = frame[14..34].chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let sent = world.answers(LAN, &frame);
    match &sent[..] {
        [(WAN, _)] => None,
        [(LAN, error)] => match icmp4(error).0 {
            Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::FragmentationNeeded {
                next_hop_mtu,
            }) => Some(next_hop_mtu),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:02x?}"),
    }
}

/// A message of a router on the tunnel's way: the packet that it quotes was too long.
fn too_long(quoted: &[u8], mtu: u16) -> Vec<u8> {
    let (builder, mut frame) = (PacketBuilder::ethernet2(HOST[WAN], OWN[WAN]), Vec::new());
    let kind = icmpv4::DestUnreachableHeader::FragmentationNeeded { next_hop_mtu: mtu };
    let builder = builder.ipv4(v4("203.0.113.1"), v4("198.51.100.1"), 60);
    let builder = builder.icmpv4(Icmpv4Type::DestinationUnreachable(kind));
    builder.write(&mut frame, &quoted[14..14 + 28]).unwrap();
    frame
}

#[test]
fn packets_that_are_too_long_for_a_tunnels_way_are_refused() {
    for firewall in ["", TUNNEL_FIREWALL] {
        let mut world = at_tunnel(&format!("{TUNNEL}{firewall}"));
        assert_eq!([1450, 1451].map(|bytes| reported(&mut world, bytes)), [None, Some(1450)]);
        let (_, sent) = world.answer(LAN, &udp(LAN, "192.0.2.5", "10.50.1.1", 64, 8));
        assert_eq!(world.answers(WAN, &too_long(&sent, 1400)), []);
        assert_eq!(
            [1350, 1351, 1450].map(|bytes| reported(&mut world, bytes)),
            [None, Some(1350), Some(1350)]
        );
        // A longer one is not believed, nor one about packets that are not the tunnel's.
        let mut others = sent.clone();
        others[30] ^= 1;
        world.receive(WAN, &too_long(&others, 1000));
        world.receive(WAN, &too_long(&sent, 1450));
        assert_eq!(reported(&mut world, 1351), Some(1350));
        // It is tried again after ten minutes.
        world.now_ns += 601_000 * MS;
        world.resolve("198.51.100.254");
        world.receive(LAN, &arp(LAN, 1, ("192.0.2.5", HOST[LAN]), "192.0.2.1"));
        world.receive(WAN, &out_of_tunnel(&arp(LAN, 1, ("10.9.0.2", FAR), "10.9.0.1")));
        world.take();
        assert_eq!(reported(&mut world, 1450), None);
    }
}

#[test]
fn a_shorter_link_shortens_what_enters_a_tunnel() {
    // The tunnel is said to carry more than its link does.
    let text =
        TUNNEL.replace("id = 7", "id = 7\nmtu = 1600").replace("decapsulate", "mtu = 1300\ndecapsulate");
    let mut world = at_tunnel(&text);
    assert_eq!(world.answers(LAN, &udp(LAN, "192.0.2.5", "10.50.1.1", 64, 1300)), [], "lost");
    assert_eq!([1250, 1251].map(|bytes| reported(&mut world, bytes)), [None, Some(1250)]);
}

#[test]
fn a_tunnel_that_is_routed_into_itself_sends_nothing() {
    let text = TUNNEL.replace("\"default via 198.51.100.254\"", "\"203.0.113.0/24 via 10.9.0.2\"");
    for firewall in ["", TUNNEL_FIREWALL] {
        let mut world = at_tunnel(&format!("{text}{firewall}"));
        for _ in 0..3 {
            assert_eq!(world.answers(LAN, &udp(LAN, "192.0.2.5", "10.50.1.1", 64, 8)), []);
        }
        // Its neighbour is not asked for without end, either.
        world.worker.egress.router.as_ref().unwrap().flush(|_| true);
        assert_eq!(world.answers(LAN, &udp(LAN, "192.0.2.5", "10.50.1.1", 64, 8)), []);
        world.now_ns += 5_000 * MS;
        assert_eq!(ports(&world.answers(LAN, &ping(LAN, "192.0.2.5", "192.0.2.1"))), [LAN]);
    }
}

/// The tunnel over IPv6, by GENEVE; the headers in front of inner packets are 20 bytes longer.
#[test]
fn a_tunnel_over_ipv6_carries_ipv6() {
    let text = TUNNEL
        .replace("kind = \"vxlan\"", "kind = \"geneve\"")
        .replace(
            "local = \"198.51.100.1\"\nremote = \"203.0.113.9\"",
            "local = \"2001:db8:2::1\"\nremote = \"2001:db8:9::9\"",
        )
        .replace("addresses = [\"198.51.100.1/24\"]", "addresses = [\"2001:db8:2::1/64\"]")
        .replace("addresses = [\"192.0.2.1/24\"]", "addresses = [\"192.0.2.1/24\", \"2001:db8:1::1/64\"]")
        .replace("addresses = [\"10.9.0.1/30\"]", "addresses = [\"10.9.0.1/30\", \"2001:db8:5::1/64\"]")
        .replace(
            "\"default via 198.51.100.254\"",
            "\"::/0 via fe80::254 dev wan\", \"2001:db8:50::/48 via 2001:db8:5::2\"",
        );
    let mut world = World::quiet(&text);
    // The announcements of its addresses in the tunnel have waited for this.
    assert_eq!(world.answers(WAN, &advertisement(WAN, "fe80::254", "2001:db8:2::1")).len(), 3);
    let asked = world.answers(LAN, &udp(LAN, "2001:db8:1::5", "2001:db8:50::7", 64, 8));
    let outer = |frame: &[u8]| (addresses(frame), frame[54 + 8 + 8..].to_vec());
    let ((source, destination, _), question) = outer(&asked[0].1);
    assert_eq!((source, destination), (ip("2001:db8:2::1"), ip("2001:db8:9::9")));
    assert_eq!(icmp6(&question).1[..16], v6("2001:db8:5::2"));
    // Its answer, as the other end's router sends it.
    let message = [&v6("2001:db8:5::2")[..], &[2, 1], &FAR].concat();
    let (builder, mut inner) = (PacketBuilder::ethernet2(FAR, SITE), Vec::new());
    let builder = builder.ipv6(v6("2001:db8:5::2"), v6("2001:db8:5::1"), 255);
    let kind = Icmpv6Type::Unknown { type_u8: 136, code_u8: 0, bytes5to8: [0x60, 0, 0, 0] };
    builder.icmpv6(kind).write(&mut inner, &message).unwrap();
    let geneve = [&[0, 0, 0x65, 0x58, 0, 0, 7, 0][..], &inner].concat();
    let (builder, mut frame) = (PacketBuilder::ethernet2(HOST[WAN], OWN[WAN]), Vec::new());
    let builder = builder.ipv6(v6("2001:db8:9::9"), v6("2001:db8:2::1"), 60);
    builder.udp(4000, 6081).write(&mut frame, &geneve).unwrap();
    let sent = world.answers(WAN, &frame);
    let (_, inner) = outer(&sent[0].1);
    assert_eq!(addresses(&inner), (ip("2001:db8:1::5"), ip("2001:db8:50::7"), 63));
    // 1,500 less 70: a packet too big, with that length.
    let (port, refused) = world.answer(LAN, &udp(LAN, "2001:db8:1::5", "2001:db8:50::7", 64, 1431 - 48));
    assert_eq!((port, icmp6(&refused).0), (LAN, Icmpv6Type::PacketTooBig { mtu: 1430 }));
    // A router on the way has less room: by 100 bytes, then by more than a tunnel of IPv6 believes.
    for (mtu, told) in [(1400u32, 1330), (1280, 1280)] {
        let mut message = mtu.to_be_bytes().to_vec();
        message.extend_from_slice(&sent[0].1[14..]);
        let (builder, mut narrow) = (PacketBuilder::ethernet2(HOST[WAN], OWN[WAN]), Vec::new());
        let builder = builder.ipv6(v6("2001:db8:7::7"), v6("2001:db8:2::1"), 60);
        builder.icmpv6(Icmpv6Type::PacketTooBig { mtu }).write(&mut narrow, &message[4..]).unwrap();
        assert_eq!(world.answers(WAN, &narrow), []);
        let (_, refused) = world.answer(LAN, &udp(LAN, "2001:db8:1::5", "2001:db8:50::7", 64, 1431 - 48));
        assert_eq!(icmp6(&refused).0, Icmpv6Type::PacketTooBig { mtu: told });
    }
}

#[test]
fn each_tunnel_has_the_mtu_of_ports_by_itself() {
    let second = "[[tunnel]]\nnumber = 6\nkind = \"vxlan\"\nid = 8\nlocal = \"198.51.100.1\"\nremote = \"203.0.113.10\"\n[router]";
    let interface =
        "[[router.interface]]\nnumber = 201\nname = \"other\"\ntunnel = 6\naddresses = [\"10.9.1.1/30\"]\n";
    let world = World::new(&format!("{}{interface}", TUNNEL.replace("[router]", second)));
    let mtus: Vec<u16> = world
        .worker
        .egress
        .router
        .as_ref()
        .unwrap()
        .interfaces()
        .iter()
        .map(|interface| interface.mtu)
        .collect();
    assert_eq!(mtus, [1500, 1500, 1450, 1450]);
}

/// A trace follows a packet to the frame that leaves.
#[test]
fn traces_follow_packets_into_vlans_and_tunnels() {
    use flowlane::rule::action::PortNo;
    let world = known(VLANS);
    let trace = |port, frame: &[u8]| format!("{:#?}", world.worker.trace(PortNo(port), frame).unwrap());
    let to_host = datagram([HOST[WAN], OWN[WAN]], "198.51.100.7", "192.0.2.5", 8);
    let text = trace(2, &to_host);
    assert!(text.contains("leaves by office"), "{text}");
    let text = trace(4, &tagged(10, &datagram([FAR, OWN[LAN]], "192.0.2.9", "10.20.0.9", 8)));
    assert!(text.contains("leaves by guests"), "{text}");
    for firewall in ["", TUNNEL_FIREWALL] {
        let world = at_tunnel(&format!("{TUNNEL}{firewall}"));
        let text = format!(
            "{:#?}",
            world.worker.trace(PortNo(1), &udp(LAN, "192.0.2.5", "10.50.1.1", 64, 8)).unwrap()
        );
        // The packet, and the tunnel's around it.
        assert!(text.contains("leaves by site") && text.contains("leaves by wan"), "{text}");
    }
}
