//! Control connections of FTP and TFTP, and the connections that they announce, through the switch: each packet is traced before it is
//! switched, and the trace sends the same frames.

use std::net::IpAddr;

use etherparse::{TcpHeaderSlice, TcpOptionElement};
use flowlane::rule::{Format, ReadOptions, read};

use super::*;
use crate::state::conntrack::{Wanted, seen};

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// A firewall behind which clients may open control connections. Port 3 gets the packets that the tables refuse, port 4 invalid ones.
fn rules(family: &str, nat: &str) -> String {
    let v6 = if family == "ipv6" { "6" } else { "" };
    let plain = if nat.is_empty() { "" } else { ",nat" };
    let mut text = format!(
        "table=0,{family},actions=ct(zone=1,table=1{plain})\n\
         table=1,priority=9,{family},ct_state=+inv+trk,actions=output:4\n\
         table=1,priority=0,actions=output:3\n"
    );
    for (from, to) in [(1, 2), (2, 1)] {
        text += &format!(
            "table=1,priority=8,{family},in_port={from},ct_state=+new+rel+trk,ct_mark=7,\
             actions=ct(commit,zone=1{plain}),output:{to}\n\
             table=1,priority=7,{family},in_port={from},ct_state=+est+trk,actions=output:{to}\n"
        );
    }
    for (proto, port, application) in [("tcp", 21, "ftp"), ("udp", 69, "tftp")] {
        text += &format!(
            "table=1,priority=5,{proto}{v6},in_port=1,ct_state=+new-rel+trk,tp_dst={port},\
             actions=ct(commit,zone=1,alg={application}{nat},exec(set_field:7->ct_mark)),output:2\n"
        );
    }
    text
}

struct Lab {
    worker: Worker,
    sent: Sent,
    /// The addresses of the client, and of the server as the client knows it; those that each sees of the other.
    own: [IpAddr; 2],
    other: [IpAddr; 2],
}

/// A frame that has left, as far as the tests look at it.
#[derive(Debug)]
struct Left {
    port: u32,
    bytes: Vec<u8>,
    ends: [(IpAddr, u16); 2],
    sequence: u32,
    acknowledgement: u32,
    options: Vec<u8>,
    text: String,
}

impl Lab {
    /// `own` are the addresses of client and server, `other` those under which each knows the other.
    fn new(nat: &str, own: [&str; 2], other: [&str; 2], cache: CacheConfig) -> Self {
        let [own, other] = [own, other].map(|both| both.map(|text| text.parse::<IpAddr>().unwrap()));
        let family = if own[0].is_ipv6() { "ipv6" } else { "ip" };
        let mut pipeline = Pipeline::new();
        (0..2).for_each(|table| pipeline.add_table(table, "", By::Tuple.engine(), Miss::Drop));
        let options = ReadOptions::default();
        for rule in read(&rules(family, nat), "rules", Some(Format::Flows), &options).unwrap() {
            pipeline.add_rule(rule).unwrap();
        }
        let (sent, mut egress) = (Sent::default(), Egress::new(Fdb::new(1000, 300, 1), 1));
        for number in 1..=4 {
            egress.ports.add(PortSlot::new(PortNo(number), "", "", Box::new(Recorder(number, sent.clone()))));
        }
        let worker = Worker::new(Lookup::new(pipeline, cache), egress, 64, Clock::Frames);
        Self { worker, sent, own, other }
    }

    fn builder(&self, end: usize) -> etherparse::PacketBuilderStep<etherparse::IpHeaders> {
        let link = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        match (self.own[end], self.other[end]) {
            (IpAddr::V4(from), IpAddr::V4(to)) => link.ipv4(from.octets(), to.octets(), 64),
            (IpAddr::V6(from), IpAddr::V6(to)) => link.ipv6(from.octets(), to.octets(), 64),
            _ => panic!("one version of IP"),
        }
    }

    /// Sends a frame of an end through the trace and the switch. Returns the only one that leaves.
    fn pass(&mut self, end: usize, bytes: &[u8]) -> Left {
        let traced = match self.worker.trace(PortNo(end as u32 + 1), bytes).unwrap() {
            Tracing::Ended(trace) => trace.sent.into_iter().map(|sent| (sent.port.unwrap(), sent.frame)),
            Tracing::On { .. } => panic!("there is one worker"),
        };
        let traced: Vec<(u32, String)> = traced.collect();
        self.worker.inject(end, &[bytes]).unwrap();
        let mut sent = std::mem::take(&mut *self.sent.lock().unwrap());
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let sent_hex: Vec<_> = sent.iter().map(|(port, frame)| (*port, hex(frame))).collect();
        assert_eq!(traced, sent_hex, "the trace sends the same");
        assert_eq!(sent.len(), 1, "{sent:?}");
        let (port, bytes) = sent.remove(0);
        Left::of(port, bytes)
    }

    fn tcp(&mut self, end: usize, ports: (u16, u16), numbers: (u32, u32), text: &str) -> Left {
        let frame = self.segment(end, ports, numbers, &[], text);
        self.pass(end, &frame)
    }

    fn segment(
        &self,
        end: usize,
        (from, to): (u16, u16),
        (sequence, acknowledgement): (u32, u32),
        options: &[TcpOptionElement],
        text: &str,
    ) -> Vec<u8> {
        let mut builder = self.builder(end).tcp(from, to, sequence, 8192).options(options).unwrap();
        // A segment that acknowledges nothing begins a connection; one that has no text and a number of 1 answers it.
        builder = if acknowledgement == 0 { builder.syn() } else { builder.ack(acknowledgement) };
        if sequence == ISN[1] && text.is_empty() {
            builder = builder.syn();
        }
        let mut out = Vec::new();
        builder.write(&mut out, text.as_bytes()).unwrap();
        out
    }

    /// Opens a control connection, which has the numbers `ISN + 1` then.
    fn open(&mut self) {
        self.tcp(CLIENT, (1000, 21), (ISN[0], 0), "");
        let left = self.tcp(SERVER, (21, 1000), (ISN[1], ISN[0] + 1), "");
        assert_eq!(left.port, 1);
        self.tcp(CLIENT, (1000, 21), (ISN[0] + 1, ISN[1] + 1), "");
    }

    /// Sends a text on the control connection. The numbers count from the first ones of both ends.
    fn control(&mut self, end: usize, [client, server]: [u32; 2], text: &str) -> Left {
        let [client, server] = [ISN[0].wrapping_add(client), ISN[1].wrapping_add(server)];
        match end {
            CLIENT => self.tcp(end, (1000, 21), (client, server), text),
            _ => self.tcp(end, (21, 1000), (server, client), text),
        }
    }
}

/// The first sequence numbers of both ends.
const ISN: [u32; 2] = [u32::MAX - 10, 5000];

impl Left {
    fn of(port: u32, bytes: Vec<u8>) -> Self {
        let mut frame = Frame::default();
        frame.fill(&bytes);
        let mut key = FlowKey::zero();
        let headers = parse(frame.bytes(), 1, &mut key);
        let seen = seen(frame.bytes(), &headers, &key).expect("all checksums are right");
        let tuple = seen.tuple;
        let end = edit::packet_end(&bytes, &headers).unwrap();
        let data = &bytes[usize::from(headers.l4)..end];
        let ends = [tuple.source, tuple.destination].map(|end| (tuple.ip(end), end.port));
        let empty = (0, 0, vec![], 8);
        let (sequence, acknowledgement, options, header) =
            TcpHeaderSlice::from_slice(data).ok().filter(|_| tuple.proto == 6).map_or(empty, |tcp| {
                (
                    tcp.sequence_number(),
                    tcp.acknowledgment_number(),
                    tcp.options().to_vec(),
                    tcp.slice().len(),
                )
            });
        let text = String::from_utf8_lossy(&data[header..]).into_owned();
        Self { port, ends, sequence, acknowledgement, options, text, bytes }
    }
}

const CACHES: [fn() -> CacheConfig; 2] = [no_caches, CacheConfig::default];

#[test]
fn active_ftp_passes_translation_of_the_client() {
    let v4 = (["10.0.0.1", "192.0.2.1"], ["192.0.2.1", "198.51.100.100"], "198.51.100.100");
    let v6 = (["2001:db8::1", "2001:db8::9"], ["2001:db8::9", "2001:db8:ffff::100"], "2001:db8:ffff::100");
    for (own, other, translated) in [v4, v6] {
        for cache in CACHES {
            let lab = &mut Lab::new(&format!(",nat(src={translated})"), own, other, cache());
            let message = |address: &str, port: u16| match address.contains(':') {
                true => format!("EPRT |2|{address}|{port}|\r\n"),
                false => {
                    format!("PORT {},{},{}\r\n", address.replace('.', ","), port >> 8, port & 0xff)
                }
            };
            lab.open();
            let first = message(own[0], 1025);
            let (len, grows) = (first.len() as u32, (translated.len() - own[0].len()) as u32);
            let [client, server] = ISN.map(|isn| isn.wrapping_add(1));
            let left = lab.control(CLIENT, [1, 1], &first);
            assert_eq!((left.port, left.text.as_str()), (2, message(translated, 1025).as_str()));
            assert_eq!((left.sequence, left.ends[0].0), (client, other[1].parse().unwrap()));
            // Sent again, it is what it was; what follows has other numbers, and so have its acknowledgements.
            assert_eq!(lab.control(CLIENT, [1, 1], &first).bytes, left.bytes);
            let next = lab.control(CLIENT, [1 + len, 1], "RETR a\r\n");
            assert_eq!(next.sequence, client.wrapping_add(len + grows));
            let both = 1 + len + 8;
            let answer = lab.control(SERVER, [both + grows, 1], "200 ok\r\n");
            assert_eq!((answer.port, answer.acknowledgement), (1, client.wrapping_add(len + 8)));
            assert_eq!(answer.sequence, server);
            // Of an acknowledgement from before the text, nothing is taken.
            assert_eq!(lab.control(SERVER, [1, 9], "").acknowledgement, client);
            let second = message(own[0], 1026);
            let left = lab.control(CLIENT, [both, 9], &second);
            assert_eq!(
                (left.sequence, left.text),
                (client.wrapping_add(both - 1 + grows), message(translated, 1026))
            );
            assert_eq!(lab.control(CLIENT, [both, 9], &second).bytes, left.bytes, "sent again");
            let third = lab.control(CLIENT, [both + len, 9], "NOOP\r\n");
            assert_eq!(third.sequence, client.wrapping_add(both - 1 + len + 2 * grows));
            let range =
                |n: u32| (client.wrapping_add(both - 1 + len + n), client.wrapping_add(both + 5 + len + n));
            let sack = |range| [TcpOptionElement::SelectiveAcknowledgement(range, [None; 3])];
            let numbers = (ISN[1] + 9, client.wrapping_add(both - 1 + grows));
            let frame = lab.segment(SERVER, (21, 1000), numbers, &sack(range(2 * grows)), "");
            let left = lab.pass(SERVER, &frame);
            assert_eq!(left.acknowledgement, client.wrapping_add(both - 1));
            let expected = lab.segment(SERVER, (21, 1000), numbers, &sack(range(0)), "");
            assert_eq!(left.options, Left::of(0, expected).options);
            // The server connects to what it has read.
            let data = lab.tcp(SERVER, (20, 1025), (9000, 0), "");
            assert_eq!((data.port, data.ends[1]), (1, (own[0].parse().unwrap(), 1025)));
            let data = lab.tcp(CLIENT, (1025, 20), (ISN[1], 9001), "");
            assert_eq!((data.port, data.ends[0].0), (2, translated.parse().unwrap()));
            assert_eq!(lab.tcp(SERVER, (20, 1027), (9000, 0), "").port, 3, "no one has named it");
        }
    }
}

#[test]
fn passive_ftp_passes_translation_of_the_server() {
    let v4 = (["10.0.0.1", "10.9.9.9"], ["203.0.113.200", "10.0.0.1"]);
    let v6 = (["2001:db8::1", "2001:db8::9"], ["2001:db8:ffff::100", "2001:db8::1"]);
    for (own, other) in [v4, v6] {
        for cache in CACHES {
            let lab = &mut Lab::new(&format!(",nat(dst={})", own[1]), own, other, cache());
            lab.open();
            let (text, expected) = match lab.own[0].is_ipv6() {
                false => (
                    "227 Entering Passive Mode (10,9,9,9,4,2).\r\n",
                    "227 Entering Passive Mode (203,0,113,200,4,2).\r\n",
                ),
                true => (
                    "229 Entering Extended Passive Mode (|||1026|)\r\n",
                    "229 Entering Extended Passive Mode (|||1026|)\r\n",
                ),
            };
            let grows = (expected.len() - text.len()) as u32;
            let left = lab.control(SERVER, [1, 1], text);
            assert_eq!((left.port, left.text.as_str()), (1, expected));
            let next = 1 + text.len() as u32;
            let left = lab.control(CLIENT, [1, next + grows], "RETR a\r\n");
            assert_eq!((left.port, left.acknowledgement), (2, ISN[1] + next));
            assert_eq!(lab.control(SERVER, [9, next], "150\r\n").sequence, ISN[1] + next + grows);
            // The client connects to what it has read.
            let data = lab.tcp(CLIENT, (2000, 1026), (9000, 0), "");
            assert_eq!((data.port, data.ends[1]), (2, (own[1].parse().unwrap(), 1026)));
            let data = lab.tcp(SERVER, (1026, 2000), (ISN[1], 9001), "");
            assert_eq!((data.port, data.ends[0]), (1, (other[0].parse().unwrap(), 1026)));
            assert_eq!(lab.tcp(CLIENT, (2000, 1027), (9000, 0), "").port, 3, "no one has named it");
        }
    }
}

#[test]
fn without_translation_texts_stay_as_they_are() {
    let (own, other) = (["10.0.0.1", "192.0.2.1"], ["192.0.2.1", "10.0.0.1"]);
    for cache in CACHES {
        let lab = &mut Lab::new("", own, other, cache());
        lab.open();
        let text = "EPRT |1|10.0.0.1|1025|\r\n";
        assert_eq!(lab.control(CLIENT, [1, 1], text).text, text);
        assert_eq!(lab.tcp(SERVER, (20, 1025), (9000, 0), "").port, 1);
        // Data that looks like a message is not read.
        assert_eq!(lab.tcp(CLIENT, (1025, 20), (ISN[1], 9001), "").port, 2);
        let numbers = (9001, ISN[1] + 1);
        assert_eq!(lab.tcp(SERVER, (20, 1025), numbers, "227 (192,0,2,1,4,9)\r\n").port, 1);
        assert_eq!(lab.tcp(CLIENT, (2000, 1033), (9000, 0), "").port, 3);
    }
}

#[test]
fn what_is_not_sound_announces_nothing() {
    let (own, other) = (["10.0.0.1", "192.0.2.1"], ["192.0.2.1", "198.51.100.1"]);
    for cache in CACHES {
        let lab = &mut Lab::new(",nat(src=198.51.100.1)", own, other, cache());
        lab.open();
        for text in
            ["PORT 10,0,0,2,4,1\r\n", "PORT 10,0,0", "PORT 10,0,0,1,4,1", "EPRT |1|192.0.2.1|1025|\r\n"]
        {
            let left = lab.control(CLIENT, [1, 1], text);
            assert_eq!((left.port, left.text.as_str()), (4, text), "of another host, or cut off");
        }
        // Outside of the window.
        let numbers = (ISN[0].wrapping_add(900_000), ISN[1] + 1);
        assert_eq!(lab.tcp(CLIENT, (1000, 21), numbers, "PORT 10,0,0,1,4,1\r\n").port, 4);
        // Not of the end that sends such messages.
        assert_eq!(lab.control(SERVER, [1, 1], "PORT 10,0,0,1,4,1\r\n").port, 1);
        assert_eq!(lab.tcp(SERVER, (20, 1025), (9000, 0), "").port, 3);
    }
}

#[test]
fn expectations_end_with_the_control_connection() {
    let (own, other) = (["10.0.0.1", "192.0.2.1"], ["192.0.2.1", "10.0.0.1"]);
    let lab = &mut Lab::new("", own, other, CacheConfig::default());
    lab.open();
    assert_eq!(lab.control(CLIENT, [1, 1], "PORT 10,0,0,1,4,1\r\n").port, 2);
    assert_eq!(lab.tcp(SERVER, (20, 1025), (9000, 0), "").port, 1);
    assert_eq!(lab.tcp(SERVER, (30, 1025), (9000, 0), "").port, 1, "from any port");
    let control = Wanted { port: Some(21), ..Wanted::default() };
    assert_eq!(lab.worker.egress.connections.flush(&control, 0), 1);
    assert_eq!(lab.tcp(SERVER, (40, 1025), (9000, 0), "").port, 3);
}

#[test]
fn an_expectation_is_swept() {
    let (own, other) = (["10.0.0.1", "192.0.2.1"], ["192.0.2.1", "10.0.0.1"]);
    let lab = &mut Lab::new("", own, other, CacheConfig::default());
    lab.open();
    lab.control(CLIENT, [1, 1], "PORT 10,0,0,1,4,1\r\n");
    let connections = lab.worker.egress.connections.clone();
    connections.sweep(299_999, 100);
    assert_eq!(connections.expected_connections(), 1);
    connections.sweep(300_000, 100);
    assert_eq!((connections.expected_connections(), connections.len()), (0, 1));
}

#[test]
fn other_applications_are_refused() {
    let text = "tcp,actions=ct(commit,alg=ftp)";
    let mut rule = read(text, "rules", Some(Format::Flows), &ReadOptions::default()).unwrap().remove(0);
    let mut pipeline = Pipeline::new();
    pipeline.add_table(0, "", By::Linear.engine(), Miss::Drop);
    pipeline.add_rule(rule.clone()).unwrap();
    let Action::ConnectionTracking(tracking) = &mut rule.actions[0] else { panic!("it is ct") };
    tracking.alg = 80;
    assert!(pipeline.add_rule(rule).unwrap_err().to_string().contains("ftp (21) and tftp (69)"));
}

/// The text grows in front of bytes that are not the packet's.
#[test]
fn padding_stays_behind_a_text_that_grows() {
    let (own, other) = (["10.0.0.1", "192.0.2.1"], ["192.0.2.1", "198.51.100.1"]);
    let lab = &mut Lab::new(",nat(src=198.51.100.1)", own, other, CacheConfig::default());
    lab.open();
    let mut frame = lab.segment(CLIENT, (1000, 21), (ISN[0] + 1, ISN[1] + 1), &[], "PORT 10,0,0,1,4,1\r\n");
    frame.extend([7, 8, 9]);
    let left = lab.pass(CLIENT, &frame);
    assert_eq!(left.text, "PORT 198,51,100,1,4,1\r\n");
    assert_eq!((left.bytes.len(), &left.bytes[left.bytes.len() - 3..]), (frame.len() + 4, &[7, 8, 9][..]));
}

#[test]
fn tftp_is_answered_from_another_port() {
    for cache in CACHES {
        // Ports are translated, too, and back.
        let (own, other) = (["10.0.0.1", "192.0.2.1"], ["192.0.2.1", "198.51.100.1"]);
        let lab = &mut Lab::new(",nat(src=198.51.100.1:7000)", own, other, cache());
        let udp = |lab: &Lab, end: usize, from: u16, to: u16, payload: &[u8]| {
            let mut out = Vec::new();
            lab.builder(end).udp(from, to).write(&mut out, payload).unwrap();
            out
        };
        let other_message = udp(lab, CLIENT, 2000, 69, &[0, 5, 0, 1]);
        assert_eq!(lab.pass(CLIENT, &other_message).port, 2);
        let answer = udp(lab, SERVER, 3333, 7000, &[0, 3, 0, 1]);
        assert_eq!(lab.pass(SERVER, &answer).port, 3, "no request");
        let request = udp(lab, CLIENT, 2000, 69, &[0, 1, b'a', 0]);
        assert_eq!(lab.pass(CLIENT, &request).ends[0].1, 7000);
        let left = lab.pass(SERVER, &answer);
        assert_eq!((left.port, left.ends[1]), (1, ("10.0.0.1".parse().unwrap(), 2000)));
        let acknowledgement = udp(lab, CLIENT, 2000, 3333, &[0, 4, 0, 1]);
        let left = lab.pass(CLIENT, &acknowledgement);
        assert_eq!((left.port, left.ends[0]), (2, ("198.51.100.1".parse().unwrap(), 7000)));
    }
}
