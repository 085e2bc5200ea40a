//! Each class of differences by an example: what this switch sends is what the table says, and what Open vSwitch
//! sends is still something else.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use flowlane_switch::datapath::MalformedPolicy;

use super::connections;

use super::differences::{BEING_MENDED, DIFFERENCES};
use super::multicast;
use super::ovs::{Ovs, OvsPrograms, PORTS, Sent};
use super::rules::Rules;
use super::switch::Flowlane;

/// Where this is 1 the examples' frames and the document are written instead of compared.
const WRITE_VARIABLE: &str = "FLOWLANE_OVS_WRITE";

/// The text of the document before the table.
const INTRODUCTION: &str = "\
# Where Open vSwitch differs

Random rules and random packets go through this switch and through Open vSwitch (3.1, dummy datapath), and what leaves by each
port is compared byte by byte, as are the rules' counters: `crates/flowlane-switch/tests/oracle`. These classes are left out of
the comparison; an example of each is in `crates/flowlane-switch/tests/oracle/examples.txt`, with what both send.
`FLOWLANE_OVS_CASES=2000 cargo test -p flowlane-switch --test oracle` compares some 119,000 packets, and with
`FLOWLANE_OVS_INCLUDE=CLASS` packets are of that class only. Written by `FLOWLANE_OVS_WRITE=1`; the source is
`oracle/differences.rs`.

| class | what differs | who is right, and why |
|---|---|---|
";

/// The text before the table of connection tracking.
const CONNECTIONS: &str = "
## Connection tracking

Random rules with `ct` and `nat`, and random conversations: handshakes, retransmissions, resets, numbers outside of windows, errors
of ICMP, fragments. What leaves by each port, all that later tables see of connections and the lists of connections are compared:
`crates/flowlane-switch/tests/oracle/connections.rs`, with `FLOWLANE_CT_CASES=2000` some 100,000 packets. Sessions of FTP and TFTP, with
and without translation, have a run of their own (`connections/applications.rs`, 60 packets a case). The source of this table is
`oracle/connections/differences.rs`.

| what differs | who is right, and why | in the comparison |
|---|---|---|
";

/// The text before the table of multicast snooping.
const MULTICAST: &str = "
## Multicast snooping

Random settings and VLANs of ports, and random messages of IGMP and MLD and packets for groups. What leaves by each port, and the lists of
listeners and routers are compared: `crates/flowlane-switch/tests/oracle/multicast.rs`, with `FLOWLANE_MULTICAST_CASES=600` some 24,000
frames. The source of this table is `oracle/multicast/differences.rs`.

| what differs | who is right, and why | in the comparison |
|---|---|---|
";

/// The frames that a switch sent, or its reason for refusing the rules.
type Outcome = Result<Sent, ()>;

/// An example.
struct Example {
    class: String,
    policy: MalformedPolicy,
    /// The VLAN settings of ports, from port 1 on.
    vlans: Vec<String>,
    rules: Rules,
    packets: Vec<Vec<u8>>,
    flowlane: Vec<String>,
    open_vswitch: Vec<String>,
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

const EXAMPLES: &str = "tests/oracle/examples.txt";
const DOCUMENT: &str = "../../docs/differences.md";

fn writes() -> bool {
    std::env::var(WRITE_VARIABLE).is_ok_and(|value| value == "1")
}

/// Returns the text above the first example, and the examples.
fn examples() -> (String, Vec<Example>) {
    let text = std::fs::read_to_string(file(EXAMPLES)).expect("examples");
    let mut blocks = text.split("\n\n");
    let head = blocks.next().expect("a head").to_owned();
    (head, blocks.map(Example::read).collect())
}

impl Example {
    fn read(block: &str) -> Self {
        let all = |name: &str| -> Vec<String> {
            let lines = block.lines().filter_map(|line| line.split_once(' '));
            lines.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).collect()
        };
        let joined = |name: &str| all(name).iter().map(|line| format!("{line}\n")).collect();
        let policy = match all("malformed")[0].as_str() {
            "forward" => MalformedPolicy::Forward,
            _ => MalformedPolicy::Drop,
        };
        let byte =
            |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("hex"), 16).expect("hex");
        Self {
            class: all("class").remove(0),
            policy,
            vlans: all("vlan").iter().map(|settings| settings.replace("none", "")).collect(),
            rules: Rules::new(joined("rule"), joined("group"), 2),
            packets: all("packet").iter().map(|hex| hex.as_bytes().chunks(2).map(byte).collect()).collect(),
            flowlane: all("flowlane"),
            open_vswitch: all("openvswitch"),
        }
    }

    fn write(&self, out: &mut String) {
        let policy = if self.policy == MalformedPolicy::Forward { "forward" } else { "drop" };
        write!(out, "\n\nclass {}\nmalformed {policy}", self.class).expect("text takes text");
        let vlans =
            self.vlans.iter().map(|settings| ("vlan", if settings.is_empty() { "none" } else { settings }));
        vlans.for_each(|(key, value)| write!(out, "\n{key} {value}").expect("text takes text"));
        let groups = self.rules.groups.lines().map(|group| ("group", group.to_owned()));
        let rules = groups.chain(self.rules.text.lines().map(|rule| ("rule", rule.to_owned())));
        let packets = self.packets.iter().map(|packet| ("packet", hex(packet)));
        let ours = self.flowlane.iter().map(|line| ("flowlane", line.clone()));
        let theirs = self.open_vswitch.iter().map(|line| ("openvswitch", line.clone()));
        for (key, value) in rules.chain(packets).chain(ours).chain(theirs) {
            write!(out, "\n{key} {value}").expect("text takes text");
        }
    }

    fn ours(&self) -> Outcome {
        let mut flowlane = Flowlane::new(&self.rules, self.policy, 1).map_err(|_| ())?;
        flowlane.set_vlans(&self.vlans);
        let packets: Vec<&[u8]> = self.packets.iter().map(Vec::as_slice).collect();
        Ok(flowlane.forward_all(1, &packets).0)
    }

    fn theirs(&self, ovs: &mut Ovs) -> Outcome {
        ovs.set_rules(&self.rules).map_err(|_| ())?;
        if self.vlans.is_empty() {
            return Ok(ovs.forward(1, &self.packets));
        }
        ovs.set_vlans(&self.vlans);
        let sent = ovs.forward(1, &self.packets);
        ovs.set_vlans(&vec![String::new(); PORTS]);
        Ok(sent)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `PORT FRAME` for each frame, or one line that says why there is none.
fn lines(outcome: &Outcome) -> Vec<String> {
    let Ok(sent) = outcome else { return vec!["refuses the rules".to_owned()] };
    let frames = (1..=PORTS).zip(sent).flat_map(|(port, frames)| frames.iter().map(move |f| (port, f)));
    let lines: Vec<String> = frames.map(|(port, frame)| format!("{port} {}", hex(frame))).collect();
    if lines.is_empty() { vec!["sends nothing".to_owned()] } else { lines }
}

#[test]
fn examples_are_handled_as_the_table_says() {
    let (head, mut examples) = examples();
    let mut ovs = OvsPrograms::find().map(|programs| Ovs::start(&programs));
    for example in &mut examples {
        let class = &example.class;
        assert!(DIFFERENCES.iter().any(|d| d.class == *class), "{class} is in the table");
        let (ours, theirs) = (lines(&example.ours()), ovs.as_mut().map(|ovs| lines(&example.theirs(ovs))));
        if writes() {
            (example.flowlane, example.open_vswitch) = (ours, theirs.expect("Open vSwitch is here"));
            continue;
        }
        assert_eq!(ours, example.flowlane, "{class}: what this switch sends");
        assert_ne!(example.flowlane, example.open_vswitch, "{class}: nothing differs any more; strike it");
        if let Some(theirs) = theirs {
            assert_eq!(theirs, example.open_vswitch, "{class}: what Open vSwitch sends");
        }
    }
    if writes() {
        let mut text = head;
        examples.iter().for_each(|example| example.write(&mut text));
        std::fs::write(file(EXAMPLES), text + "\n").expect("the sources can be written");
    }
}

#[test]
fn every_class_has_its_example() {
    // The first five are not about sent frames: see the test below, and the random rules. The others end Open vSwitch.
    const OTHERS: [&str; 8] = [
        "bytes-behind-headers",
        "fin-timeout-neighbours",
        "fin-timeout-label",
        "fin-timeout-learned",
        "learn-deleted-copy",
        "set-recirculation",
        "learn-deleted",
        "type-assertion",
    ];
    let (_, examples) = examples();
    for difference in DIFFERENCES.iter().filter(|d| !OTHERS.contains(&d.class)) {
        assert!(examples.iter().any(|e| e.class == difference.class), "{} has none", difference.class);
    }
}

#[test]
fn the_document_is_the_table() {
    let mut text = INTRODUCTION.to_owned();
    for d in DIFFERENCES {
        writeln!(text, "| {} | {} | {} |", d.class, d.differs, d.decides).expect("text takes text");
    }
    text += CONNECTIONS;
    for (differs, decides, left_out) in connections::differences::DIFFERENCES {
        writeln!(text, "| {differs} | {decides} | {left_out} |").expect("text takes text");
    }
    text += MULTICAST;
    for (differs, decides, left_out) in multicast::differences::DIFFERENCES {
        writeln!(text, "| {differs} | {decides} | {left_out} |").expect("text takes text");
    }
    if writes() {
        std::fs::write(file(DOCUMENT), &text).expect("the sources can be written");
    }
    let document = std::fs::read_to_string(file(DOCUMENT)).unwrap_or_default();
    assert!(document == text, "docs/differences.md is not as the table; write it with {WRITE_VARIABLE}=1");
}

#[test]
fn nothing_is_being_mended() {
    let all: Vec<_> = BEING_MENDED.iter().map(|(class, _)| class).collect();
    assert!(all.is_empty(), "left out for now: {all:?}");
}

/// The bytes behind a frame's addresses.
const UDP: &str = "0800 4500 0020 0007 0000 4011 66c6 0a000001 0a000002 0050 0035 000c 7c6e 666c6f77";

fn frame(behind_addresses: &str) -> Vec<u8> {
    let digits: Vec<u8> = format!("020000000002020000000001{behind_addresses}").into_bytes();
    let digits: Vec<u8> = digits.into_iter().filter(|c| *c != b' ').collect();
    digits
        .chunks(2)
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).expect("hex"), 16).expect("hex"))
        .collect()
}

#[test]
fn bytes_behind_a_label_that_was_pushed_are_counted_without_it() {
    let text = "cookie=1,ip,actions=push_mpls:0x8847,goto_table:1\ntable=1,cookie=2,actions=output:2\n";
    let rules = Rules::new(text.to_owned(), String::new(), 2);
    let udp = frame(UDP);
    // Whichever way it goes.
    for seed in 0..3 {
        let mut flowlane = Flowlane::new(&rules, MalformedPolicy::Drop, seed).expect("sound rules");
        flowlane.forward(1, &udp);
        let bytes: Vec<u64> = flowlane.counters().iter().map(|(_, counters)| counters.bytes).collect();
        assert_eq!(bytes, [udp.len() as u64; 2]);
    }
}

#[test]
fn a_ttl_that_expires_twice_ends_the_counting() {
    let text = "cookie=1,ip,actions=resubmit(,1),dec_ttl,goto_table:2\n\
                table=1,cookie=2,ip,actions=dec_ttl\ntable=2,cookie=3,actions=output:2\n";
    let rules = Rules::new(text.to_owned(), String::new(), 3);
    let udp = frame(&UDP.replace("4011 66c6", "0111 a5c6"));
    for seed in 0..6 {
        let mut flowlane = Flowlane::new(&rules, MalformedPolicy::Drop, seed).expect("sound rules");
        for _ in 0..4 {
            assert!(flowlane.forward(1, &udp).0.iter().all(Vec::is_empty));
        }
        let packets: Vec<u64> = flowlane.counters().iter().map(|(_, counters)| counters.packets).collect();
        assert_eq!(packets, [4, 4, 0], "seed {seed}");
    }
}

#[test]
fn copies_behind_a_pushed_tag_see_it_whichever_way_a_packet_takes() {
    let text = "cookie=1,actions=push_vlan:0x8100,goto_table:1\n\
                table=1,cookie=2,actions=clone(set_field:2->pkt_mark),goto_table:2\n\
                table=2,cookie=3,vlan_tci=0x1000/0x1000,actions=output:2\n";
    let rules = Rules::new(text.to_owned(), String::new(), 3);
    let udp = frame(UDP);
    for seed in 0..6 {
        let mut flowlane = Flowlane::new(&rules, MalformedPolicy::Drop, seed).expect("sound rules");
        for _ in 0..4 {
            let sent = flowlane.forward(1, &udp).0;
            assert_eq!(sent[1].len(), 1, "seed {seed}");
        }
    }
}
