//! State that is saved and restored, with real packets; damaged and hostile state.

mod applications;
mod damaged;
mod rules;

use etherparse::{IpNumber, NetHeaders, PacketBuilder, PacketHeaders, TransportHeader};
use flowlane::generate::Random;
use flowlane::rule::action::PortNo;

use super::*;
use crate::control::Control;
use crate::datapath::{PortSlot, Switch};
use crate::mgmt::setup::Setup;
use crate::port::{MemoryHandle, MemoryPort};
use crate::state::conntrack::Wanted;

/// Translation by `ct` (to port 53, TCP, ICMP, others) and by a stage (other UDP), and learned addresses.
const CONFIG: &str = r#"
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
rules = [
    "priority=9,udp,tp_dst=53,actions=ct(zone=7,nat,table=1)",
    "priority=9,udp,tp_src=53,actions=ct(zone=7,nat,table=1)",
    "priority=8,udp,actions=goto_table:5",
    "priority=7,ip,actions=ct(zone=7,nat,table=1)",
]
[[table]]
number = 1
rules = [
    "priority=9,ct_state=+est+trk,ct_mark=5,actions=normal",
    "priority=8,ip,in_port=1,ct_state=+new+trk,actions=ct(commit,zone=7,nat(src=198.51.100.1),exec(set_field:5->ct_mark,set_field:0x1234567890abcdef1->ct_label)),normal",
]
[[nat_table]]
number = 5
inside = ["10.0.0.0/8"]
pool = ["198.51.100.2-198.51.100.3"]
outbound = "goto_table:6"
inbound = "goto_table:6"
[[table]]
number = 6
rules = ["actions=normal"]
"#;

/// A switch whose ports are in memory.
struct Bench {
    switch: Switch,
    control: Control,
    ports: [MemoryHandle; 2],
}

impl Bench {
    fn new(config: &str) -> Self {
        let (mut switch, control) = Setup::parse(config).unwrap().open_controlled(77).unwrap();
        let ports = [0, 1].map(|port: usize| {
            let (memory, handle) = MemoryPort::new();
            switch.workers_mut()[0].egress.ports.slots_mut()[port].port = Box::new(memory);
            handle
        });
        Self { switch, control, ports }
    }

    /// Sends a frame through, and returns those that leave by each port.
    fn send(&mut self, port: usize, frame: &[u8]) -> [Vec<Vec<u8>>; 2] {
        self.switch.workers_mut()[0].inject(port, &[frame]).unwrap();
        [0, 1].map(|port: usize| self.ports[port].take_sent())
    }

    fn saved(&mut self) -> Vec<u8> {
        let mut out = Writer::new(Vec::new()).unwrap();
        save_packets_state(&mut self.switch.workers_mut(), &mut out).unwrap();
        save_rules(&self.control, &mut out).unwrap();
        out.finish().unwrap()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<Restored, StateError> {
        let reader = Reader::new(bytes)?;
        restore(reader, self.switch.workers_mut(), Some(&mut self.control)).map(|taken| taken.restored)
    }

    /// The connections as Open vSwitch lists them, with the milliseconds until they expire.
    fn connections(&self) -> Vec<(String, u64)> {
        let worker = &self.switch.workers()[0];
        let mut listed = Vec::new();
        worker.egress.connections.for_each(&Wanted::default(), worker.now_ms(), |one| {
            listed.push((one.to_string(), one.left_ms));
            true
        });
        listed.sort();
        listed
    }
}

/// Checks that two switches have the same connections, which expire at the same time.
fn check_equal(one: &Bench, other: &Bench, case: &str) {
    let (one, other) = (one.connections(), other.connections());
    assert_eq!(one.len(), other.len(), "{case}");
    for ((one, left_ms), (other, other_ms)) in one.into_iter().zip(other) {
        assert_eq!(one, other, "{case}");
        // Both clocks go on while this test runs.
        assert!(left_ms.abs_diff(other_ms) < 3000, "{case}: {one}: {left_ms} and {other_ms} ms");
    }
}

/// A conversation between an inside host and an outside one.
#[derive(Clone, Debug)]
struct Flow {
    kind: u8,
    host: u8,
    far: u8,
    port: u16,
    /// The next packet.
    step: usize,
    /// Source address and port, as they were translated.
    outside: Option<([u8; 4], u16)>,
}

/// Packets of a conversation of TCP, from its handshake to its end: outbound or not, SYN, FIN, and numbers.
const TCP: [(bool, bool, bool, u32, Option<u32>); 9] = [
    (true, true, false, 100, None),
    (false, true, false, 500, Some(101)),
    (true, false, false, 101, Some(501)),
    (true, false, false, 101, Some(501)),
    (false, false, false, 501, Some(111)),
    (true, false, true, 111, Some(511)),
    (false, false, true, 511, Some(112)),
    (true, false, false, 112, Some(512)),
    (true, true, false, 9000, None),
];

impl Flow {
    /// Returns whether the next packet comes from inside.
    fn is_outbound(&self) -> bool {
        match self.kind {
            0 => TCP[self.step % TCP.len()].0,
            _ => self.step.is_multiple_of(2),
        }
    }

    /// Makes the next packet.
    fn frame(&self) -> Vec<u8> {
        let inside = ([10, 0, 0, self.host], self.port);
        let far_port = [80, 53, 5353, 0, 0][usize::from(self.kind)];
        let far = ([192, 0, 2, self.far], far_port);
        let is_outbound = self.is_outbound();
        let [mac_a, mac_b] = [[2, 0, 0, 0, 0, self.host], [2, 0, 0, 0, 1, self.far]];
        let (eth, from, to) = match is_outbound {
            true => (PacketBuilder::ethernet2(mac_a, mac_b), inside, far),
            false => (PacketBuilder::ethernet2(mac_b, mac_a), far, self.outside.unwrap_or(inside)),
        };
        let ip = eth.ipv4(from.0, to.0, 64);
        let mut frame = Vec::new();
        match self.kind {
            0 => {
                let (_, is_syn, is_fin, sequence, acknowledged) = TCP[self.step % TCP.len()];
                let mut tcp = ip.tcp(from.1, to.1, sequence, 4000);
                tcp = if is_syn { tcp.syn() } else { tcp };
                tcp = if is_fin { tcp.fin() } else { tcp };
                if let Some(number) = acknowledged {
                    tcp = tcp.ack(number);
                }
                let payload: &[u8] = if matches!(self.step % TCP.len(), 3 | 4) { b"ten bytes." } else { b"" };
                tcp.write(&mut frame, payload).unwrap();
            }
            1 | 2 => ip.udp(from.1, to.1).write(&mut frame, b"datagram").unwrap(),
            3 if is_outbound => ip.icmpv4_echo_request(self.port, 1).write(&mut frame, b"echo").unwrap(),
            3 => ip.icmpv4_echo_reply(to.1, 1).write(&mut frame, b"echo").unwrap(),
            _ => ip.write(&mut frame, IpNumber(47), b"payload").unwrap(),
        }
        frame
    }

    /// Sends the next packet through a switch, and learns from it how the conversation is translated.
    fn go_on(&mut self, bench: &mut Bench) -> [Vec<Vec<u8>>; 2] {
        let sent = bench.send(usize::from(!self.is_outbound()), &self.frame());
        if let (true, Some(frame)) = (self.is_outbound(), sent[1].first()) {
            self.outside = Some(source(frame));
        }
        self.step += 1;
        sent
    }
}

/// The source address of a packet, and its port or identifier.
fn source(frame: &[u8]) -> ([u8; 4], u16) {
    let packet = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let Some(NetHeaders::Ipv4(ip, _)) = packet.net else { panic!("IPv4 is expected") };
    let port = match packet.transport {
        Some(TransportHeader::Udp(udp)) => udp.source_port,
        Some(TransportHeader::Tcp(tcp)) => tcp.source_port,
        Some(TransportHeader::Icmpv4(_)) => u16::from_be_bytes([frame[38], frame[39]]),
        _ => 0,
    };
    (ip.source, port)
}

/// Conversations of every kind, each at another point.
fn flows(random: &mut Random, count: usize) -> Vec<Flow> {
    let flow = |n: usize| Flow {
        kind: (n % 5) as u8,
        host: 1 + random.below(3) as u8,
        far: 1 + (n / 5 % 2) as u8,
        port: 1000 + n as u16,
        step: 0,
        outside: None,
    };
    (0..count).map(flow).collect()
}

#[test]
fn conversations_go_on_as_before() {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let mut bench = Bench::new(CONFIG);
        let mut flows = flows(&mut random, 60);
        for flow in &mut flows {
            (0..1 + random.below(8)).for_each(|_| _ = flow.go_on(&mut bench));
        }
        let saved = bench.saved();
        let mut other = Bench::new(CONFIG);
        let restored = other.restore(&saved).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert!(restored.connections >= 20 && restored.sessions == 12, "seed {seed}: {restored:?}");
        assert!(restored.addresses >= 4, "seed {seed}: {restored:?}");
        check_equal(&other, &bench, &format!("seed {seed}"));
        let mut left = 0;
        for flow in &mut flows {
            for _ in 0..8 {
                let mut again = flow.clone();
                let sent = flow.go_on(&mut bench);
                assert_eq!(again.go_on(&mut other), sent, "seed {seed}: {again:?}");
                left += sent.iter().map(Vec::len).sum::<usize>();
            }
        }
        assert!(left > 200, "seed {seed}: {left} packets left");
        // Their time is of the clock, which has gone on.
        check_equal(&other, &bench, &format!("seed {seed}"));
    }
}

#[test]
fn state_of_another_clock_or_other_ports_is_refused() {
    let saved = Bench::new(CONFIG).saved();
    let refused = Bench::new(&CONFIG.replace("wall", "frames")).restore(&saved).unwrap_err();
    assert!(refused.to_string().contains("the clock of frames"), "{refused}");
    let mut reader = Reader::new(&saved[..]).unwrap();
    let header = restore::read_header(&mut reader).unwrap();
    let other = Bench::new(&CONFIG.replacen("open = \"null\"", "open = \"gen:udp\"", 1));
    let refused = restore::check_shape(&header, &other.switch.workers()[0]).unwrap_err();
    assert!(refused.to_string().contains("port 1: gen:udp; port 2: null; table 5: nat"), "{refused}");
    restore::check_shape(&header, &Bench::new(CONFIG).switch.workers()[0]).unwrap();
}

#[test]
fn a_file_is_whole_at_any_time_and_only_for_its_user() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let file = StateFile { file: folder.path().join("state"), every: std::time::Duration::from_secs(1) };
    assert!(file.read().unwrap().is_none(), "there is none yet");
    let mut bench = Bench::new(CONFIG);
    for flow in &mut flows(&mut Random::new(1), 60) {
        (0..4).for_each(|_| _ = flow.go_on(&mut bench));
    }
    file.write(&mut bench.switch.workers_mut(), &|| false).unwrap();
    let before = std::fs::read(&file.file).unwrap();
    // A copy that is given up leaves the former state.
    assert!(file.write(&mut bench.switch.workers_mut(), &|| true).is_err());
    assert_eq!(std::fs::read(&file.file).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    file.write(&mut bench.switch.workers_mut(), &|| false).unwrap();
    assert_eq!(std::fs::metadata(&file.file).unwrap().permissions().mode() & 0o777, 0o600);
    let mut other = Bench::new(CONFIG);
    let saved = file.read().unwrap().unwrap();
    assert_eq!(saved.header().seed, 77);
    let restored = saved.restore(other.switch.workers_mut(), None).unwrap().0;
    assert!(restored.connections > 20 && restored.sessions == 12 && restored.rules == 0, "{restored:?}");
    check_equal(&other, &bench, "from a file");
    // In a folder that others may write, any of them could put a file there.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = file.read().err().unwrap().to_string();
    assert!(refused.contains("others may write"), "{refused}");
    assert!(file.write(&mut bench.switch.workers_mut(), &|| false).is_err());
}

/// A bridge has its ports after its state: learned addresses wait for theirs.
#[test]
fn addresses_wait_for_their_ports() {
    let folder = tempfile::tempdir().unwrap();
    let file = StateFile { file: folder.path().join("state"), every: std::time::Duration::MAX };
    let mut bench = Bench::new(CONFIG);
    for flow in &mut flows(&mut Random::new(1), 60) {
        _ = flow.go_on(&mut bench);
    }
    bench.switch.workers_mut()[0].egress.macs.add_static(0x0200_0000_00aa, 0, PortNo(1));
    file.write_with_rules(&mut bench.switch.workers_mut(), &bench.control).unwrap();
    // Rules come back where they are expected only.
    let mut other = Bench::new(CONFIG);
    let refused = file.read().unwrap().unwrap().restore(other.switch.workers_mut(), None).unwrap_err();
    assert!(refused.to_string().contains("does not belong there"), "{refused}");
    let mut other = Bench::new(CONFIG);
    let gone = other.switch.workers_mut()[0].egress.ports.remove(PortNo(1)).unwrap();
    let saved = file.read().unwrap().unwrap();
    let (restored, waiting) = saved.restore(other.switch.workers_mut(), Some(&mut other.control)).unwrap();
    assert!(restored.rules > 0, "{restored:?}");
    let known = |bench: &Bench| bench.switch.workers()[0].egress.macs.entries_from(0, 1 << 20).0.len();
    let (before, all) = (known(&other), known(&bench));
    assert!(before < all, "{before} of {all}");
    let worker = &mut other.switch.workers_mut()[0];
    worker.put_port(0, PortSlot::new(PortNo(1), "1", "null", gone));
    assert_eq!(waiting.restore(worker), (all - before) as u64);
    assert!(worker.egress.macs.remove_static(0x0200_0000_00aa, 0), "it is static still");
    assert!(bench.switch.workers_mut()[0].egress.macs.remove_static(0x0200_0000_00aa, 0));
    assert_eq!(known(&other), known(&bench));
}
