//! The section `[firewall]`: what passes, reloads, and the rules that `check --explain` prints.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use etherparse::{Icmpv4Type, Icmpv6Type, PacketBuilder, TcpHeader, icmpv4};
use flowlane_switch::datapath::Switch;
use flowlane_switch::mgmt::report::Report;
use flowlane_switch::mgmt::rpc::ControlServer;
use flowlane_switch::mgmt::setup::{Reload, Setup};
use tempfile::TempDir;

/// Places of ports.
const INSIDE: usize = 0;
const OUTSIDE: usize = 1;

const SYN: u8 = 2;
const ACK: u8 = 16;

const ALLOW: &str =
    "\"outgoing\", \"in tcp 22,8000-8010 from 192.0.2.0/24,2001:db8:2::/48\", \"in icmp echo\"";

fn config(allow: &str, more: &str) -> String {
    format!(
        "[[port]]\nnumber = 1\nname = \"lan\"\nopen = \"null\"\n[[port]]\nnumber = 2\nname = \"wan\"\nopen = \"null\"\n\
         [firewall]\ninside = [\"lan\"]\noutside = [\"wan\"]\nallow = [{allow}]\n{more}\n"
    )
}

/// A switch made of a configuration in a folder.
struct Firewall {
    _folder: TempDir,
    file: PathBuf,
    served: ControlServer,
    switch: Switch,
}

impl Firewall {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("switch.toml");
        std::fs::write(&file, text).unwrap();
        let setup = Setup::read(&file).unwrap_or_else(|error| panic!("{error}\n{text}"));
        setup.check().unwrap();
        let reload = Reload::of(&setup);
        let (switch, control) = setup.open_controlled(7).unwrap();
        let served = ControlServer::new(control, reload, Arc::default());
        Self { _folder: folder, file, served, switch }
    }

    fn reload(&self, text: &str) -> Result<(), String> {
        std::fs::write(&self.file, text).unwrap();
        self.served.reload(None).map(|_| ()).map_err(|error| error.message)
    }

    /// Returns whether the frame leaves through the other port.
    #[track_caller]
    fn passes(&mut self, port: usize, frame: &[u8]) -> bool {
        let worker = &mut self.switch.workers_mut()[0];
        let before = Report::of(worker).ports[1 - port].counters.tx_packets;
        worker.inject(port, &[frame]).unwrap();
        Report::of(worker).ports[1 - port].counters.tx_packets > before
    }

    /// Returns the packets of the rules that drop, of both tables.
    fn dropped(&mut self) -> u64 {
        let report = Report::of(&mut self.switch.workers_mut()[0]);
        let rules = report.tables.iter().flat_map(|table| &table.rules);
        rules.filter(|rule| rule.actions == "drop").map(|rule| rule.packets).sum()
    }
}

/// A frame from a port: the MAC addresses are those of the two routers or hosts.
fn builder(port: usize) -> etherparse::PacketBuilderStep<etherparse::Ethernet2Header> {
    let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
    PacketBuilder::ethernet2(macs[port], macs[1 - port])
}

fn tcp(port: usize, from: (&str, u16), to: (&str, u16), flags: u8, numbers: (u32, u32)) -> Vec<u8> {
    let builder = builder(port);
    let builder = match from.0.contains(':') {
        true => builder.ipv6(octets6(from.0), octets6(to.0), 64),
        false => builder.ipv4(octets(from.0), octets(to.0), 64),
    };
    let mut header = TcpHeader::new(from.1, to.1, numbers.0, 64_000);
    header.syn = flags & SYN != 0;
    header.ack = flags & ACK != 0;
    header.acknowledgment_number = numbers.1;
    let mut frame = Vec::new();
    builder.tcp_header(header).write(&mut frame, &[]).unwrap();
    frame
}

fn udp(port: usize, from: (&str, u16), to: (&str, u16)) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = builder(port).ipv4(octets(from.0), octets(to.0), 64).udp(from.1, to.1);
    builder.write(&mut frame, b"datagram").unwrap();
    frame
}

/// An error of ICMP about a frame.
fn unreachable(port: usize, from: &str, about: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let to: [u8; 4] = about[26..30].try_into().unwrap();
    let error = Icmpv4Type::DestinationUnreachable(icmpv4::DestUnreachableHeader::Port);
    builder(port).ipv4(octets(from), to, 64).icmpv4(error).write(&mut frame, &about[14..42]).unwrap();
    frame
}

fn octets(address: &str) -> [u8; 4] {
    address.parse::<std::net::Ipv4Addr>().unwrap().octets()
}

fn octets6(address: &str) -> [u8; 16] {
    address.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

const HOST: &str = "10.0.0.5";
const SERVER: &str = "203.0.113.80";

#[test]
fn connections_from_inside_pass_both_ways_and_others_do_not() {
    let mut firewall = Firewall::new(&config(ALLOW, ""));
    for (host, server) in [(HOST, SERVER), ("2001:db8:1::5", "2001:db8:3::80")] {
        let (here, there) = ((host, 40_000), (server, 80));
        // Before the first packet, the answer belongs to nothing.
        assert!(!firewall.passes(OUTSIDE, &tcp(OUTSIDE, there, here, SYN | ACK, (900, 101))));
        assert!(firewall.passes(INSIDE, &tcp(INSIDE, here, there, SYN, (100, 0))));
        assert!(firewall.passes(OUTSIDE, &tcp(OUTSIDE, there, here, SYN | ACK, (900, 101))));
        assert!(firewall.passes(INSIDE, &tcp(INSIDE, here, there, ACK, (101, 901))));
        assert!(firewall.passes(OUTSIDE, &tcp(OUTSIDE, there, here, ACK, (901, 101))));
        // From another port, or to another.
        assert!(!firewall.passes(OUTSIDE, &tcp(OUTSIDE, (server, 81), here, ACK, (901, 101))));
        assert!(!firewall.passes(OUTSIDE, &tcp(OUTSIDE, there, (host, 40_001), SYN, (1, 0))));
    }
    assert_eq!(firewall.dropped(), 6);
}

#[test]
fn errors_about_connections_pass_and_others_do_not() {
    let mut firewall = Firewall::new(&config(ALLOW, ""));
    let datagram = udp(INSIDE, (HOST, 5000), (SERVER, 9));
    assert!(!firewall.passes(OUTSIDE, &unreachable(OUTSIDE, SERVER, &datagram)));
    assert!(firewall.passes(INSIDE, &datagram));
    assert!(firewall.passes(OUTSIDE, &unreachable(OUTSIDE, SERVER, &datagram)));
    assert!(firewall.passes(OUTSIDE, &udp(OUTSIDE, (SERVER, 9), (HOST, 5000))));
    let other = udp(INSIDE, (HOST, 5001), (SERVER, 9));
    assert!(!firewall.passes(OUTSIDE, &unreachable(OUTSIDE, SERVER, &other)));
}

#[test]
fn allowed_connections_from_outside_pass_from_their_network_only() {
    let mut firewall = Firewall::new(&config(ALLOW, ""));
    let mut syn = |from: &str, to: &str, port: u16| {
        firewall.passes(OUTSIDE, &tcp(OUTSIDE, (from, 50_000), (to, port), SYN, (1, 0)))
    };
    assert!(syn("192.0.2.7", HOST, 22) && syn("192.0.2.255", HOST, 8000) && syn("192.0.2.0", HOST, 8010));
    assert!(!syn("192.0.3.7", HOST, 22) && !syn("192.0.2.7", HOST, 23) && !syn("192.0.2.7", HOST, 8011));
    assert!(syn("2001:db8:2::7", "2001:db8:1::5", 22) && !syn("2001:db8:4::7", "2001:db8:1::5", 22));
    let reply = |to: &str, port: u16| tcp(INSIDE, (HOST, port), (to, 50_000), SYN | ACK, (1, 2));
    assert!(firewall.passes(INSIDE, &reply("192.0.2.7", 22)));
    // Pings, in both versions, and no other request.
    let mut ping = |request: Icmpv4Type| {
        let mut frame = Vec::new();
        let builder = builder(OUTSIDE).ipv4(octets(SERVER), octets(HOST), 64).icmpv4(request);
        builder.write(&mut frame, b"ping").unwrap();
        firewall.passes(OUTSIDE, &frame)
    };
    let echo = etherparse::IcmpEchoHeader { id: 1, seq: 1 };
    assert!(ping(Icmpv4Type::EchoRequest(echo)));
    assert!(!ping(Icmpv4Type::EchoReply(etherparse::IcmpEchoHeader { id: 2, seq: 1 })));
    let time = icmpv4::TimestampMessage {
        id: 3,
        seq: 1,
        originate_timestamp: 0,
        receive_timestamp: 0,
        transmit_timestamp: 0,
    };
    assert!(!ping(Icmpv4Type::TimestampRequest(time)));
}

#[test]
fn neighbours_are_found_and_other_protocols_are_dropped() {
    let mut firewall = Firewall::new(&config("", ""));
    let mut arp = vec![255; 6];
    arp.extend([2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 1]);
    arp.extend([0; 6]);
    arp.extend([10, 0, 0, 5]);
    arp.resize(60, 0);
    assert!(firewall.passes(OUTSIDE, &arp));
    let mut other = arp.clone();
    other[12..14].copy_from_slice(&[0x88, 0xcc]);
    assert!(!firewall.passes(INSIDE, &other));
    let solicitation = |ttl: u8| {
        let mut frame = Vec::new();
        let builder = builder(OUTSIDE).ipv6(octets6("fe80::1"), octets6("ff02::1:ff00:5"), ttl);
        let kind = Icmpv6Type::Unknown { type_u8: 135, code_u8: 0, bytes5to8: [0; 4] };
        builder.icmpv6(kind).write(&mut frame, &octets6("fe80::5")).unwrap();
        frame
    };
    assert!(firewall.passes(OUTSIDE, &solicitation(255)));
    assert!(!firewall.passes(OUTSIDE, &solicitation(254)), "it has come through a router");
    // Nothing is allowed, so that nothing begins; nor does DHCP.
    assert!(!firewall.passes(INSIDE, &udp(INSIDE, ("0.0.0.0", 68), ("255.255.255.255", 67))));
    assert_eq!(firewall.dropped(), 3);
    let mut firewall = Firewall::new(&config("\"dhcp\"", ""));
    assert!(firewall.passes(INSIDE, &udp(INSIDE, ("0.0.0.0", 68), ("255.255.255.255", 67))));
    assert!(firewall.passes(OUTSIDE, &udp(OUTSIDE, ("10.0.0.1", 67), ("255.255.255.255", 68))));
    assert!(!firewall.passes(OUTSIDE, &udp(OUTSIDE, ("10.0.0.1", 67), ("10.0.0.5", 69))));
}

#[test]
fn a_reload_takes_over_other_entries_and_keeps_connections() {
    let mut firewall = Firewall::new(&config(ALLOW, ""));
    let syn = |from: &str| tcp(OUTSIDE, (from, 50_000), (HOST, 22), SYN, (1, 0));
    assert!(firewall.passes(OUTSIDE, &syn("192.0.2.7")));
    assert!(firewall.passes(INSIDE, &tcp(INSIDE, (HOST, 22), ("192.0.2.7", 50_000), SYN | ACK, (9, 2))));
    firewall.reload(&config("\"in tcp 22 from 198.51.100.0/24\"", "")).unwrap();
    assert!(!firewall.passes(OUTSIDE, &syn("192.0.2.8")));
    assert!(firewall.passes(OUTSIDE, &syn("198.51.100.8")));
    let ack = tcp(OUTSIDE, ("192.0.2.7", 50_000), (HOST, 22), ACK, (2, 10));
    assert!(firewall.passes(OUTSIDE, &ack), "the connection is known");
    // Neither another mistake nor other tables.
    assert!(firewall.reload(&config("\"in tcp\", \"inn\"", "")).unwrap_err().contains("`inn`"));
    let moved = "table = 5\n[[table]]\nnumber = 0\nrules = [\"actions=goto_table:5\"]\n";
    let refused = firewall.reload(&config(ALLOW, moved)).unwrap_err();
    assert!(refused.contains("[firewall] is not as it was"), "{refused}");
    let none = config("", "").split("[firewall]").next().unwrap().to_owned()
        + "[[table]]\nnumber = 0\n[[table]]\nnumber = 1\n";
    assert!(firewall.reload(&none).unwrap_err().contains("[firewall] is not as it was"));
    assert!(firewall.passes(OUTSIDE, &syn("198.51.100.9")));
}

#[test]
fn other_tables_may_be_in_front_of_it_and_behind_it() {
    let more = "table = 3\nnext_table = 9\n\
        [[table]]\nnumber = 0\nrules = [\"priority=9,udp,tp_dst=7,actions=drop\", \"priority=1,actions=goto_table:3\"]\n\
        [[table]]\nnumber = 9\nrules = [\"in_port=lan,actions=output:wan\", \"in_port=wan,ct_state=+rpl,ip,actions=output:lan\"]\n";
    let mut firewall = Firewall::new(&config(ALLOW, more));
    assert!(!firewall.passes(INSIDE, &udp(INSIDE, (HOST, 1), (SERVER, 7))));
    assert!(firewall.passes(INSIDE, &udp(INSIDE, (HOST, 1), (SERVER, 8))));
    assert!(firewall.passes(OUTSIDE, &udp(OUTSIDE, (SERVER, 8), (HOST, 1))));
    // Allowed, but not by the table behind.
    assert!(!firewall.passes(OUTSIDE, &tcp(OUTSIDE, ("192.0.2.7", 50_000), (HOST, 22), SYN, (1, 0))));
}

#[test]
fn its_rules_are_explained_so_that_ovs_ofctl_reads_them() {
    let allow = "\"outgoing\", \"dhcp\", \"in any from 192.0.2.0/24 to 2001:db8::1,10.0.0.1\", \"out gre\", \"in esp\",\
        \"in sctp 1-6 to ::/0\", \"in icmp\", \"in udp 51820 to 198.51.100.7\"";
    let firewall = Firewall::new(&config(allow, ""));
    let rules = Setup::read(&firewall.file).unwrap().explain().unwrap().unwrap();
    for part in [
        "# in any from 192.0.2.0/24 to 2001:db8::1,10.0.0.1\n\
         table=1,priority=100,ip,in_port=2,nw_src=192.0.2.0/24,nw_dst=10.0.0.1,ct_state=+new+trk actions=ct(commit),normal\n# out gre\n",
        "# Other new connections are dropped.\ntable=1,priority=0 actions=drop\n",
    ] {
        assert!(rules.contains(part), "{rules}");
    }
    let lines = rules.lines().filter(|line| !line.starts_with('#')).count();
    let file = firewall.file.with_file_name("firewall.flows");
    std::fs::write(&file, &rules).unwrap();
    let command = Command::new("ovs-ofctl").arg("parse-flows").arg(&file).stderr(Stdio::piped()).output();
    let Ok(output) = command else { return println!("skipped: there is no ovs-ofctl") };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.matches("FLOW_MOD").count(), lines, "{text}");
}
