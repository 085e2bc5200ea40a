//! Control connections of FTP and TFTP, and the connections that they announce, in a switch that is restored.

use etherparse::PacketBuilderStep;

use super::super::record::Record;
use super::damaged::{header, made_up, state};
use super::*;
use crate::state::bytes::Bytes;
use crate::state::conntrack::{Alg, End, SavedConnection, SavedExpectation, Tuple};

/// Clients behind a firewall that translates. Packets of connections that were announced get another MAC address, and a packet that the tables refuse does not leave.
const FIREWALL: &str = r#"
[switch]
clock = "wall"
[[port]]
number = 1
open = "null"
[[port]]
number = 2
open = "null"
[[table]]
number = 0
rules = ["ip,actions=ct(zone=1,nat,table=1)"]
[[table]]
number = 1
rules = [
    "priority=8,ip,in_port=1,ct_state=+new+rel+trk,ct_mark=7,actions=ct(commit,zone=1,nat),output:2",
    "priority=8,ip,in_port=2,ct_state=+new+rel+trk,ct_mark=7,actions=ct(commit,zone=1,nat),output:1",
    "priority=8,ip,in_port=1,ct_state=+est+rel+trk,actions=set_field:02:00:00:00:00:99->eth_dst,output:2",
    "priority=8,ip,in_port=2,ct_state=+est+rel+trk,actions=set_field:02:00:00:00:00:99->eth_dst,output:1",
    "priority=7,ip,in_port=1,ct_state=+est-inv+trk,actions=output:2",
    "priority=7,ip,in_port=2,ct_state=+est-inv+trk,actions=output:1",
    "priority=5,tcp,in_port=1,ct_state=+new-rel+trk,tp_dst=21,actions=ct(commit,zone=1,alg=ftp,nat(src=198.51.100.100),exec(set_field:7->ct_mark)),output:2",
    "priority=5,udp,in_port=1,ct_state=+new-rel+trk,tp_dst=69,actions=ct(commit,zone=1,alg=tftp,nat(src=198.51.100.100:5000-5999),exec(set_field:7->ct_mark)),output:2",
]
"#;

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [192, 0, 2, 1];
const TRANSLATED: [u8; 4] = [198, 51, 100, 100];

/// A packet of the client or the server, with the ports from and to.
#[derive(Clone, Copy, Debug)]
enum Packet {
    /// Sequence number, acknowledgement if any, text. One without both begins a connection.
    Tcp(bool, (u16, u16), u32, Option<u32>, &'static str),
    /// The answer to a segment that begins a connection.
    Accept(bool, (u16, u16), u32, u32),
    Udp(bool, (u16, u16), &'static str),
}

use Packet::{Accept, Tcp, Udp};

const FROM_CLIENT: bool = true;
const FROM_SERVER: bool = false;

/// Until an active and a passive data connection and an answer of TFTP are expected. The text with the client's address grows by 6.
const BEGIN: [Packet; 8] = [
    Tcp(FROM_CLIENT, (1000, 21), 100, None, ""),
    Accept(FROM_SERVER, (21, 1000), 500, 101),
    Tcp(FROM_CLIENT, (1000, 21), 101, Some(501), ""),
    Tcp(FROM_CLIENT, (1000, 21), 101, Some(501), "PORT 10,0,0,1,4,1\r\n"),
    Tcp(FROM_SERVER, (21, 1000), 501, Some(126), "200 ok\r\n"),
    Tcp(FROM_CLIENT, (1000, 21), 120, Some(509), "PASV\r\n"),
    Tcp(FROM_SERVER, (21, 1000), 509, Some(132), "227 Passive (192,0,2,1,4,2).\r\n"),
    Udp(FROM_CLIENT, (3000, 69), "\0\x01file\0octet\0"),
];

/// The packets behind, with the numbers of frames that leave.
const REST: [(Packet, usize); 17] = [
    // Sent again: it is what it was.
    (Tcp(FROM_CLIENT, (1000, 21), 101, Some(501), "PORT 10,0,0,1,4,1\r\n"), 1),
    (Tcp(FROM_SERVER, (21, 1000), 509, Some(126), ""), 1),
    (Tcp(FROM_CLIENT, (1000, 21), 120, Some(509), "PASV\r\n"), 1),
    (Tcp(FROM_CLIENT, (1000, 21), 126, Some(539), "RETR a\r\n"), 1),
    (Tcp(FROM_SERVER, (21, 1000), 539, Some(140), "150 ok\r\n"), 1),
    // The connections that were announced.
    (Tcp(FROM_CLIENT, (2000, 1026), 9000, None, ""), 1),
    (Accept(FROM_SERVER, (1026, 2000), 7000, 9001), 1),
    (Tcp(FROM_SERVER, (20, 1025), 9000, None, ""), 1),
    (Accept(FROM_CLIENT, (1025, 20), 7000, 9001), 1),
    (Udp(FROM_SERVER, (4000, 3000), "\0\x03\0\x01data"), 1),
    (Udp(FROM_CLIENT, (3000, 4000), "\0\x04\0\x01"), 1),
    // No one has announced these.
    (Tcp(FROM_SERVER, (20, 1027), 9000, None, ""), 0),
    (Tcp(FROM_CLIENT, (2000, 1027), 9000, None, ""), 0),
    // The next text grows, too.
    (Tcp(FROM_CLIENT, (1000, 21), 134, Some(547), "PORT 10,0,0,1,4,4\r\n"), 1),
    (Tcp(FROM_CLIENT, (1000, 21), 134, Some(547), "PORT 10,0,0,1,4,4\r\n"), 1),
    (Tcp(FROM_SERVER, (21, 1000), 547, Some(165), "200 ok\r\n"), 1),
    (Tcp(FROM_SERVER, (20, 1028), 9000, None, ""), 1),
];

impl Packet {
    fn is_clients(&self) -> bool {
        match *self {
            Tcp(is_clients, ..) | Accept(is_clients, ..) | Udp(is_clients, ..) => is_clients,
        }
    }

    fn builder(&self) -> PacketBuilderStep<etherparse::IpHeaders> {
        let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        match self.is_clients() {
            true => link.ipv4(CLIENT, SERVER, 64),
            false => link.ipv4(SERVER, TRANSLATED, 64),
        }
    }

    /// Sends the packet. The server answers TFTP at the port that it sees, which is `tftp`.
    fn send(&self, bench: &mut Bench, tftp: u16) -> [Vec<Vec<u8>>; 2] {
        let mut frame = Vec::new();
        match *self {
            Tcp(_, (from, to), sequence, acknowledged, text) => {
                let tcp = self.builder().tcp(from, to, sequence, 4000);
                let tcp = match acknowledged {
                    Some(number) => tcp.ack(number),
                    None => tcp.syn(),
                };
                tcp.write(&mut frame, text.as_bytes()).unwrap();
            }
            Accept(_, (from, to), sequence, acknowledged) => {
                let tcp = self.builder().tcp(from, to, sequence, 4000).syn().ack(acknowledged);
                tcp.write(&mut frame, b"").unwrap();
            }
            Udp(is_clients, (from, to), text) => {
                let to = if is_clients { to } else { tftp };
                self.builder().udp(from, to).write(&mut frame, text.as_bytes()).unwrap();
            }
        }
        bench.send(usize::from(!self.is_clients()), &frame)
    }
}

/// A switch in which connections are expected, and the port of TFTP that the server sees.
fn begun() -> (Bench, u16) {
    let (mut bench, mut tftp) = (Bench::new(FIREWALL), 0);
    for packet in BEGIN {
        let sent = packet.send(&mut bench, 0);
        assert_eq!(sent[usize::from(packet.is_clients())].len(), 1, "{packet:?}");
        if let Udp(..) = packet {
            tftp = source(&sent[1][0]).1;
        }
    }
    (bench, tftp)
}

fn expected(bench: &Bench) -> usize {
    bench.switch.workers()[0].egress.connections.expected_connections()
}

#[test]
fn announced_connections_begin_in_a_restored_switch() {
    let (mut bench, tftp) = begun();
    let (mut once, mut often) = (Bench::new(FIREWALL), Bench::new(FIREWALL));
    let restored = once.restore(&bench.saved()).unwrap();
    assert_eq!((restored.connections, restored.left_out), (5, 0), "two connections, three expected ones");
    assert_eq!((expected(&bench), expected(&once)), (3, 3));
    often.restore(&bench.saved()).unwrap();
    for (packet, count) in REST {
        let sent = packet.send(&mut bench, tftp);
        assert_eq!(sent[usize::from(packet.is_clients())].len(), count, "{packet:?}");
        assert_eq!(packet.send(&mut once, tftp), sent, "{packet:?}");
        // A switch whose place is taken before each packet.
        assert_eq!(packet.send(&mut often, tftp), sent, "{packet:?}");
        let next = often.saved();
        often = Bench::new(FIREWALL);
        assert_eq!(often.restore(&next).unwrap().left_out, 0);
    }
    check_equal(&once, &bench, "restored once");
    check_equal(&often, &bench, "restored often");
    // Without the control connection nothing is expected, as before.
    let control = Wanted { port: Some(21), ..Wanted::default() };
    for bench in [&mut bench, &mut once, &mut often] {
        assert_eq!(bench.switch.workers()[0].egress.connections.flush(&control, 0), 1);
        let sent = Tcp(FROM_SERVER, (22, 1028), 9000, None, "").send(bench, tftp);
        assert!(sent.iter().all(Vec::is_empty));
    }
}

/// All that is written about applications is read as it was, or refused.
#[test]
fn parts_of_other_kinds_are_refused() {
    let (bench, _) = begun();
    let worker = &bench.switch.workers()[0];
    let connections = worker.egress.connections.clone();
    let mut kept = Vec::new();
    connections.save(0, u32::MAX, worker.now_ms(), |saved| kept.push(saved.clone()));
    let (mut read, mut refused) = (0, 0);
    for saved in kept {
        let mut bytes = Vec::new();
        saved.write(&mut bytes);
        let control = matches!(saved.alg.as_deref(), Some(Alg::Control(_)));
        assert!(control);
        // The kind, the application, the skews, eight ends and the next one.
        let begin = bytes.len() - (2 + 24 + 24 + 1);
        for at in begin..bytes.len() {
            for value in 0..=255 {
                let mut changed = bytes.clone();
                changed[at] = value;
                let mut rest = Bytes(&changed);
                let Some(other) = SavedConnection::read(&mut rest) else {
                    refused += 1;
                    continue;
                };
                let mut again = Vec::new();
                other.write(&mut again);
                assert_eq!(again, changed[..changed.len() - rest.0.len()], "byte {at} is {value}");
                read += 1;
            }
            assert!(SavedConnection::read(&mut Bytes(&bytes[..at])).is_none(), "cut off at {at}");
        }
        // Of a protocol that has no such application.
        let mut other = bytes.clone();
        other[begin + 1] ^= 1;
        assert!(SavedConnection::read(&mut Bytes(&other)).is_none());
        let wrong = Alg::Announced(Tuple { zone: 2, ..saved.tuples[0] });
        let wrong = SavedConnection { alg: Some(Box::new(wrong)), ..saved };
        bytes.clear();
        wrong.write(&mut bytes);
        assert!(SavedConnection::read(&mut Bytes(&bytes)).is_none(), "a control connection of another zone");
    }
    assert!(read > 10_000 && refused > 4000, "{read} read, {refused} refused");
}

#[test]
fn made_up_expectations_do_no_harm() {
    let (mut bench, tftp) = begun();
    let saved = bench.saved();
    let mut kept = 0;
    for case in 0..300 {
        let mut bench = Bench::new(FIREWALL);
        let Ok(restored) = bench.restore(&made_up(&saved, case)) else { continue };
        kept += restored.connections;
        REST.iter().for_each(|(packet, _)| _ = packet.send(&mut bench, tftp));
    }
    assert!(kept > 100, "{kept}");
}

#[test]
fn an_expectation_needs_its_control_connection() {
    let now = collect::unix_ms();
    let end =
        |address: [u8; 4], port| End { address: u32::from_be_bytes(address).into(), port, icmp_type: 0 };
    let (source, destination) = (end(CLIENT, 1000), end(SERVER, 21));
    let control = Tuple { source, destination, zone: 1, proto: 6, is_ipv6: false };
    let expectation = |port: u16, expires_ms| {
        let (mark, label, reply_port) = (7, 0, port);
        Record::Expectation(SavedExpectation {
            control,
            direction: 0,
            port,
            reply_port,
            mark,
            label,
            expires_ms,
        })
    };
    // A clock that is at 10 s.
    let ten = header(10, now);
    let mut other = Bench::new(FIREWALL);
    let restored = other.restore(&state(&[ten.clone(), expectation(1025, 60_000)])).unwrap();
    assert_eq!((restored.connections, restored.left_out, expected(&other)), (0, 1, 0));
    let (bench, _) = begun();
    let worker = &bench.switch.workers()[0];
    let mut records = vec![ten];
    worker.egress.connections.save(0, u32::MAX, worker.now_ms(), |saved| {
        let expires_ms = 100_000;
        records.push(Record::Connection(SavedConnection { expires_ms, ..saved.clone() }));
    });
    let connections = records.len() as u64 - 1;
    // One whose time is over, one that no time allows, one twice, and more than there is room for.
    records.extend([expectation(1, 9000), expectation(2, u64::MAX), expectation(2, u64::MAX)]);
    records.extend((0..20_000).map(|n| expectation(3 + n, 60_000)));
    let restored = other.restore(&state(&records)).unwrap();
    assert_eq!((restored.connections, restored.left_out), (connections + 20_002, 1));
    assert!(expected(&other) <= 16_384, "{}", expected(&other));
    let connections = other.switch.workers()[0].egress.connections.clone();
    let (saved, _) = connections.save_expectations(0, 16_384, 10_000);
    assert!(saved.iter().all(|one| one.expires_ms < 10_000 + 400_000));
}
