//! Services that `ovn-controller` itself gives: packets go to it and come back changed, by `controller(pause)` and `NXT_RESUME`, or
//! as packet-outs. Each is asked of a chassis with Open vSwitch too: the answers are the same, byte for byte.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::super::Host;
use super::Network;
use super::wire::{Arrived, Ends, Mac, Packet, Segment, Wire, ethernet};
use crate::support::wait_until;

const QUIET: Duration = Duration::from_millis(100);
const BROADCAST: Mac = [0xff; 6];
const ROUTER: Mac = [2, 0, 0, 0, 0xff, 1];
const SYN: Segment = Segment { seq: 1000, ack: 0, flags: 2 };

const fn mac(host: u8) -> Mac {
    [2, 0, 0, 0, 0, host]
}

/// Two logical switches with a router between them; ports 1 and 2 at the first, 3, 4 and 5 (whose addresses are unknown) at the second.
fn build(network: &Network) {
    network.nbctl("ls-add sw1 -- ls-add sw2");
    network.nbctl(
        "lr-add r -- lrp-add r r-sw1 02:00:00:00:ff:01 10.1.0.254/24 fd01::fe/64 -- lrp-add r r-sw2 02:00:00:00:ff:02 10.2.0.254/24",
    );
    network.nbctl("set Logical_Router_Port r-sw1 ipv6_ra_configs:address_mode=dhcpv6_stateful");
    network.join_router(&[1, 2]);
    for host in [1, 2] {
        network.nbctl(&format!(
            "lsp-add sw1 p{host} -- lsp-set-addresses p{host} '02:00:00:00:00:0{host} 10.1.0.{host} fd01::{host}' \
             -- lsp-set-port-security p{host} '02:00:00:00:00:0{host} 10.1.0.{host} fd01::{host}'"
        ));
    }
    for host in [3, 4, 5] {
        network.nbctl(&format!("lsp-add sw2 p{host} -- lsp-set-addresses p{host} unknown"));
    }
    network.nbctl(
        "--id=@d create DHCP_Options cidr=10.1.0.0/24 options:server_id=10.1.0.254 'options:server_mac=\"02:00:00:00:ff:01\"' \
         options:lease_time=3600 options:router=10.1.0.254 -- set Logical_Switch_Port p1 dhcpv4_options=@d",
    );
    network.nbctl(
        "--id=@d create DHCP_Options 'cidr=\"fd01::/64\"' 'options:server_id=\"02:00:00:00:ff:01\"' -- set Logical_Switch_Port p1 dhcpv6_options=@d",
    );
    network.nbctl(
        "--id=@n create DNS 'records={\"db.example\"=\"10.1.0.77 fd01::77\"}' -- add Logical_Switch sw1 dns_records @n",
    );
    network.nbctl("acl-add sw1 to-lport 1002 'outport==\"p2\" && (tcp.dst==81 || udp.dst==81)' reject");
}

/// The test's view of one chassis.
struct Asked {
    wire: Wire,
    daemon: &'static str,
    /// The frames that were answers.
    answers: Vec<Arrived>,
}

impl Asked {
    /// Sends a frame until one arrives that is an answer; returns the fields that `read` takes from it.
    #[track_caller]
    fn ask<T>(
        &mut self,
        what: &str,
        port: &str,
        frame: &[u8],
        mut read: impl FnMut(&Arrived) -> Option<T>,
    ) -> T {
        let begun = Instant::now();
        loop {
            self.wire.send(port, frame);
            let arrived = self.wire.receive(QUIET);
            if let Some((one, found)) = arrived.iter().find_map(|one| Some((one, read(one)?))) {
                self.answers.push(one.clone());
                return found;
            }
            let daemon = self.daemon;
            assert!(begun.elapsed() < Duration::from_secs(10), "{daemon}: {what}: {arrived:02x?}");
        }
    }

    /// Sends a frame once; returns the ports where it arrives as it is.
    fn reaches(&mut self, port: &str, frame: &[u8]) -> Vec<String> {
        self.wire.send(port, frame);
        let mut ports: Vec<String> = self
            .wire
            .receive(3 * QUIET)
            .into_iter()
            .filter(|one| one.frame == frame)
            .map(|one| one.port)
            .collect();
        ports.sort();
        ports
    }
}

/// The value of an option of DHCP, whose options begin behind 240 bytes.
fn dhcp_option(message: &[u8], wanted: u8) -> Option<Vec<u8>> {
    let mut rest = message.get(240..)?;
    while let [code, len, behind @ ..] = rest {
        let (value, next) = behind.split_at_checked(usize::from(*len))?;
        if *code == wanted {
            return Some(value.to_vec());
        }
        rest = next;
    }
    None
}

/// A machine asks for an address by DHCPv4: an offer of the address that the logical port has, then a lease of it.
fn leases_by_dhcpv4(asked: &mut Asked) {
    let ends = Ends::new([mac(1), BROADCAST], ["0.0.0.0", "255.255.255.255"]);
    let message = |options: &[u8]| {
        let mut message = vec![0; 236];
        message[..8].copy_from_slice(&[1, 1, 6, 0, 0xca, 0xfe, 0, 1]);
        message[28..34].copy_from_slice(&mac(1));
        message.extend([0x63, 0x82, 0x53, 0x63]);
        message.extend(options);
        ends.udp([68, 67], &message)
    };
    let mut answer = |what: &str, options: &[u8]| {
        asked.ask(what, "p1", &message(options), |one| {
            let packet = Packet::read(&one.frame).filter(|packet| packet.ports() == Some([67, 68]))?;
            (one.port == "p1").then(|| (packet.ends, packet.payload[8..].to_vec()))
        })
    };
    let (ends, offer) = answer("an offer", &[53, 1, 1, 255]);
    assert_eq!((ends.macs, ends.ips[0]), ([ROUTER, mac(1)], IpAddr::from([10, 1, 0, 254])));
    assert_eq!((&offer[4..8], &offer[16..20]), (&[0xca, 0xfe, 0, 1][..], &[10, 1, 0, 1][..]));
    assert_eq!(dhcp_option(&offer, 53).unwrap(), [2], "an offer");
    let (_, lease) = answer("a lease", &[53, 1, 3, 50, 4, 10, 1, 0, 1, 54, 4, 10, 1, 0, 254, 255]);
    assert_eq!(&lease[16..20], [10, 1, 0, 1]);
    let options = [
        (53, vec![5]),
        (1, vec![255, 255, 255, 0]),
        (3, vec![10, 1, 0, 254]),
        (51, 3600_u32.to_be_bytes().to_vec()),
    ];
    for (code, value) in options {
        assert_eq!(dhcp_option(&lease, code).unwrap(), value, "option {code}");
    }
    // Another machine's address is refused.
    let (_, refusal) = answer("a refusal", &[53, 1, 3, 50, 4, 10, 1, 0, 2, 54, 4, 10, 1, 0, 254, 255]);
    assert_eq!(dhcp_option(&refusal, 53).unwrap(), [6]);
}

/// A machine asks by DHCPv6, and for a router.
fn advertises_by_ipv6(asked: &mut Asked) {
    let ends = Ends::new([mac(1), [0x33, 0x33, 0, 1, 0, 2]], ["fe80::ff:fe00:1", "ff02::1:2"]);
    let identity = [&[0, 1, 0, 10, 0, 3, 0, 1], &mac(1)[..]].concat();
    let solicit =
        [&[1, 0xab, 0xcd, 0xef], &identity[..], &[0, 3, 0, 12, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
    let advertised = asked.ask("an advertisement by DHCPv6", "p1", &ends.udp([546, 547], &solicit), |one| {
        let packet = Packet::read(&one.frame).filter(|packet| packet.ports() == Some([547, 546]))?;
        Some(packet.payload[8..].to_vec())
    });
    assert_eq!(advertised[..4], [2, 0xab, 0xcd, 0xef]);
    let address = [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert!(advertised.windows(16).any(|bytes| bytes == address), "{advertised:02x?}");
    let ends = Ends::new([mac(1), [0x33, 0x33, 0, 0, 0, 2]], ["fe80::ff:fe00:1", "ff02::2"]);
    let advertised = asked.ask("a router's advertisement", "p1", &ends.icmp(255, 133, 0, &[0; 4]), |one| {
        let packet = Packet::read(&one.frame)?;
        (packet.protocol == 58 && packet.payload[0] == 134).then(|| packet.payload.to_vec())
    });
    assert!(advertised.windows(8).any(|bytes| bytes == [0xfd, 1, 0, 0, 0, 0, 0, 0]), "{advertised:02x?}");
    assert_eq!(advertised[5] & 0x80, 0x80, "addresses are had by DHCPv6");
}

/// A machine asks for names that OVN has, in both families, and for one that it has not.
fn resolves_names(asked: &mut Asked) {
    let ends = Ends::new([mac(1), mac(2)], ["10.1.0.1", "10.1.0.2"]);
    let question = |name: &[u8], kind: u8| {
        [&[0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], name, &[0, 0, kind, 0, 1]].concat()
    };
    let known = b"\x02db\x07example";
    let fd01 = [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77];
    for (kind, address) in [(1, &[10, 1, 0, 77][..]), (28, &fd01[..])] {
        let answer =
            asked.ask("a name's address", "p1", &ends.udp([4000, 53], &question(known, kind)), |one| {
                let packet = Packet::read(&one.frame).filter(|packet| packet.ports() == Some([53, 4000]))?;
                assert_eq!(packet.ends.macs, [mac(2), mac(1)]);
                Some(packet.payload[8..].to_vec())
            });
        assert_eq!((&answer[..2], answer[2] & 0x80, &answer[6..8]), (&[0x12, 0x34][..], 0x80, &[0, 1][..]));
        assert!(answer.ends_with(address), "{answer:02x?}");
    }
    let unknown = ends.udp([4001, 53], &question(b"\x02no\x07example", 1));
    assert_eq!(asked.reaches("p1", &unknown), ["p2"], "it goes on to the server that it was sent to");
}

/// Questions for addresses of logical ports and routers.
fn answers_for_neighbours(asked: &mut Asked) {
    for (target, owner) in [("10.1.0.2", mac(2)), ("10.1.0.254", ROUTER)] {
        let question = Ends::new([mac(1), BROADCAST], ["10.1.0.1", target]).arp(1, [0; 6]);
        let expected = Ends::new([owner, mac(1)], [target, "10.1.0.1"]).arp(2, mac(1));
        asked.ask("an answer by ARP", "p1", &question, |one| {
            (one.port == "p1" && one.frame == expected).then_some(())
        });
    }
    let ends = Ends::new([mac(1), [0x33, 0x33, 0xff, 0, 0, 2]], ["fd01::1", "ff02::1:ff00:2"]);
    let target = [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    let body = [&[0; 4], &target[..], &[1, 1], &mac(1)].concat();
    let answer = asked.ask("a neighbour's advertisement", "p1", &ends.icmp(255, 135, 0, &body), |one| {
        let packet = Packet::read(&one.frame)?;
        (packet.protocol == 58 && packet.payload[0] == 136).then(|| packet.payload.to_vec())
    });
    assert_eq!((&answer[8..24], &answer[24..32]), (&target[..], &[&[2, 1], &mac(2)[..]].concat()[..]));
}

/// Packets that access lists reject, and those that a router cannot forward, are answered to the sender.
fn rejects(asked: &mut Asked) {
    let ends = Ends::new([mac(1), mac(2)], ["10.1.0.1", "10.1.0.2"]);
    let reset = asked.ask("a reset", "p1", &ends.tcp([5000, 81], SYN, &[]), |one| {
        let packet = Packet::read(&one.frame)?;
        (packet.protocol == 6 && packet.ports() == Some([81, 5000])).then(|| packet.payload.to_vec())
    });
    assert_eq!(
        (&reset[8..12], reset[13]),
        (&1001_u32.to_be_bytes()[..], 0x14),
        "a reset that acknowledges the request"
    );
    let icmp = |one: &Arrived| {
        let packet = Packet::read(&one.frame)?;
        (one.port == "p1" && packet.protocol == 1)
            .then(|| (packet.ends.ips, packet.payload[..2].to_vec(), packet.payload[8..].to_vec()))
    };
    let refused = ends.udp([5000, 81], b"refused");
    let (_, kind, quoted) = asked.ask("a port that is unreachable", "p1", &refused, icmp);
    assert_eq!(kind, [3, 3]);
    assert!(refused[14..].starts_with(&quoted[..28]), "{quoted:02x?}");
    let ends = Ends::new([mac(1), ROUTER], ["10.1.0.1", "10.2.0.9"]);
    let mut data = vec![0, 80, 0, 80, 0, 12, 0, 0];
    data.extend(b"last");
    let (ips, kind, _) = asked.ask("a time limit that is exceeded", "p1", &ends.packet(1, 17, &data), icmp);
    assert_eq!((ips[0], kind), (IpAddr::from([10, 1, 0, 254]), vec![11, 0]));
}

/// A router asks for the address of a machine that OVN does not know, and keeps the packet until the answer comes.
fn resolves_unknown_neighbours(asked: &mut Asked) {
    let packet = Ends::new([mac(1), ROUTER], ["10.1.0.1", "10.2.0.9"]).udp([6000, 7000], b"kept");
    let router = [2, 0, 0, 0, 0xff, 2];
    let question = Ends::new([router, BROADCAST], ["10.2.0.254", "10.2.0.9"]);
    asked.ask("the router's question", "p1", &packet, |one| {
        let is_question = one.port == "p3"
            && one.frame[..22] == question.arp(1, [0; 6])[..22]
            && one.frame[38..] == [10, 2, 0, 9];
        is_question.then_some(())
    });
    let answer = Ends::new([mac(9), router], ["10.2.0.9", "10.2.0.254"]).arp(2, router);
    let arrived = asked.ask("the packet that was kept", "p3", &answer, |one| {
        let packet = Packet::read(&one.frame)?;
        // It is flooded to all ports with unknown addresses, until OVN has learned where this one is.
        (one.port == "p3" && packet.protocol == 17)
            .then(|| (packet.ends.macs, packet.ttl, packet.payload[8..].to_vec()))
    });
    assert_eq!(arrived, ([router, mac(9)], 63, b"kept".to_vec()), "where the answer came from");
}

/// Addresses of ports that have unknown ones are learned; those of ports with port security are not taken.
fn learns_addresses(asked: &mut Asked) {
    let ends = Ends::new([mac(0x31), mac(0x44)], ["10.2.0.31", "10.2.0.44"]);
    assert_eq!(asked.reaches("p3", &ends.udp([1, 2], b"to all")), ["p4", "p5"]);
    let back = Ends::new([mac(0x44), mac(0x31)], ["10.2.0.44", "10.2.0.31"]);
    let begun = Instant::now();
    while asked.reaches("p4", &back.udp([2, 1], b"to one")) != ["p3"] {
        assert!(begun.elapsed() < Duration::from_secs(10), "{}: the address is not learned", asked.daemon);
    }
    assert_eq!(asked.reaches("p3", &ends.udp([1, 2], b"to one")), ["p4"]);
    for (macs, source, reached) in [
        ([mac(1), mac(2)], "10.1.0.1", &["p2"][..]),
        ([mac(7), mac(2)], "10.1.0.1", &[]),
        ([mac(1), mac(2)], "10.1.0.7", &[]),
    ] {
        let frame = Ends::new(macs, [source, "10.1.0.2"]).udp([3, 4], b"mine");
        assert_eq!(asked.reaches("p1", &frame), reached, "{}: {macs:02x?} {source}", asked.daemon);
    }
    let forged = ethernet(
        [mac(1), mac(2)],
        0x806,
        &[&Ends::new([mac(7), BROADCAST], ["10.1.0.1", "10.1.0.2"]).arp(1, [0; 6])[14..]],
    );
    assert!(asked.reaches("p1", &forged).is_empty(), "{}: an answer for another's address", asked.daemon);
}

/// Puts Open vSwitch, in user space, in the place of the only chassis' daemon.
pub(super) fn replace_daemon(host: &mut Host) {
    drop(host.daemon.take());
    _ = std::fs::remove_file(host.at().join("ovs-vswitchd.pid"));
    host.vsctl("--no-wait set Open_vSwitch . external_ids:ovn-bridge-datapath-type=netdev").unwrap();
    host.start_open_vswitch();
    wait_until("the bridge is in user space", || {
        host.vsctl("get Bridge br-int datapath_type").is_ok_and(|kind| kind == "netdev")
    });
}

#[test]
fn ovn_answers_for_addresses_names_and_what_it_rejects() {
    let mut expected = None;
    for daemon in ["Open vSwitch", "Flowlane"] {
        let Some(mut network) = Network::start(if daemon == "Flowlane" { "fvs" } else { "fvr" }, 1) else {
            return;
        };
        if daemon == "Open vSwitch" {
            replace_daemon(&mut network.chassis[0]);
        }
        build(&network);
        let ports: Vec<String> = (1..=5).map(|n| format!("p{n}")).collect();
        let wire = Wire::plug(&network.chassis[0], &ports);
        network.sync();
        let mut asked = Asked { wire, daemon, answers: Vec::new() };
        leases_by_dhcpv4(&mut asked);
        advertises_by_ipv6(&mut asked);
        resolves_names(&mut asked);
        answers_for_neighbours(&mut asked);
        rejects(&mut asked);
        resolves_unknown_neighbours(&mut asked);
        learns_addresses(&mut asked);
        for (one, other) in expected.get_or_insert(asked.answers.clone()).iter().zip(&asked.answers) {
            assert_eq!(one, other, "{one:02x?} of Open vSwitch, {other:02x?} of Flowlane");
        }
    }
}
