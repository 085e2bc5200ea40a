//! Two real tables of OVN: each packet's way through them, as `ofproto/trace` and as this switch's trace have it, with the same
//! answers of connection tracking.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use flowlane::generate::packet::build_frame;
use flowlane::rule::{Format, ReadOptions, read};
use flowlane_switch::datapath::MalformedPolicy;
use flowlane_switch::state::conntrack::ct_state;

use super::ovs::{Ovs, OvsPrograms, PORTS};
use super::packets::Random;
use super::rules::Rules;
use super::switch::Flowlane;

/// Packets of each table.
const PACKETS: usize = 150;

/// Answers of connection tracking.
const STATES: [&str; 5] = ["trk,new", "trk,est", "trk,est,rpl", "trk,inv", "trk,rel,rpl"];

/// TTL of packets, and bytes of frames.
const TTL: &str = "nw_ttl=64";
const FRAME_BYTES: usize = 60;

fn table(name: &str) -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/ovs").join(name);
    let mut text = String::new();
    flate2::read::GzDecoder::new(File::open(path).ok()?).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The values that matches of some fields have.
fn values(text: &str, names: &[&str]) -> Vec<String> {
    let mut all = BTreeSet::new();
    for line in text.lines() {
        let matches = line.split(" actions=").next().unwrap_or_default();
        for part in matches.split([',', ' ']) {
            if let Some((name, value)) = part.split_once('=')
                && names.contains(&name)
                && !value.contains('/')
            {
                all.insert(value.to_owned());
            }
        }
    }
    all.into_iter().collect()
}

/// Packets like those that the rules are about.
struct Packets {
    macs: Vec<String>,
    addresses: Vec<String>,
    ports: Vec<String>,
    /// Of hosts: the port, the MAC and the IP address.
    hosts: Vec<[String; 3]>,
}

/// The value of a field in a line.
fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_once(name)?.1.split([',', ' ']).next()
}

/// The hosts: rules for a port, and rules that bind addresses to it, have one cookie.
fn hosts(text: &str) -> Vec<[String; 3]> {
    let of_port = text.lines().filter_map(|line| Some((value(line, "cookie=")?, value(line, "in_port=")?)));
    let bound = |line: &str| {
        Some((
            value(line, "cookie=")?.to_owned(),
            value(line, "dl_src=")?.to_owned(),
            value(line, "nw_src=")?.to_owned(),
        ))
    };
    let bindings: Vec<_> = text.lines().filter_map(bound).collect();
    let host = |(cookie, port): (&str, &str)| {
        let (_, mac, address) = bindings.iter().find(|(own, ..)| own == cookie)?;
        let is_there = port.parse().is_ok_and(|port: usize| port <= PORTS);
        is_there.then(|| [port.to_owned(), mac.clone(), address.clone()])
    };
    of_port.filter_map(host).collect()
}

impl Packets {
    fn of(text: &str) -> Self {
        Self {
            macs: values(text, &["dl_src", "dl_dst", "eth_src", "eth_dst"]),
            addresses: values(text, &["nw_src", "nw_dst", "arp_spa", "arp_tpa"]),
            ports: values(text, &["tp_src", "tp_dst"]),
            hosts: hosts(text),
        }
    }

    /// A flow that names all fields of a packet.
    fn next(&self, r: &mut Random) -> String {
        let one = |r: &mut Random, all: &[String]| all[r.below(all.len() as u32) as usize].clone();
        let mut in_port = format!("{}", 1 + r.below(4));
        let (mut source, mut destination) = (one(r, &self.macs), one(r, &self.macs));
        let (mut from, mut to) = (one(r, &self.addresses), one(r, &self.addresses));
        if r.below(4) > 0 {
            let [host, peer] = [0; 2].map(|_| &self.hosts[r.below(self.hosts.len() as u32) as usize]);
            [in_port, source, from] = host.clone();
            if r.below(3) > 0 {
                [_, destination, to] = peer.clone();
            }
        }
        let mut out = format!("in_port={in_port}");
        let proto = r.pick(&["tcp", "tcp", "udp", "icmp", "arp"]);
        write!(out, ",{proto},dl_src={source},dl_dst={destination}").expect("text takes text");
        match proto {
            "arp" => write!(out, ",arp_op={},arp_spa={from},arp_tpa={to}", 1 + r.below(2)),
            "icmp" => write!(out, ",nw_src={from},nw_dst={to},{TTL},icmp_type=8,icmp_code=0"),
            _ => {
                let port = if self.ports.is_empty() { "80".to_owned() } else { one(r, &self.ports) };
                write!(out, ",nw_src={from},nw_dst={to},{TTL},{proto}_src=40000,{proto}_dst={port}")
            }
        }
        .expect("text takes text");
        out
    }
}

/// The tables in `ofproto/trace`: lines that begin with a number and a dot.
fn visits(trace: &str) -> Vec<u8> {
    let number = |line: &str| line.trim_start().split_once(". ")?.0.parse().ok();
    trace.lines().filter_map(number).collect()
}

/// Rules that both take: of cycles of logical time and meters, nothing is here.
fn groups(text: &str) -> String {
    let mut numbers = BTreeSet::new();
    for rest in text.split("group:").skip(1) {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        numbers.insert(digits);
    }
    numbers.iter().fold(String::new(), |mut out, number| {
        writeln!(out, "group_id={number},type=indirect,bucket=actions=drop").expect("text takes text");
        out
    })
}

fn compare(ovs: &mut Ovs, name: &str, text: &str) {
    let rules = Rules::new(text.to_owned(), groups(text), 254);
    let flowlane = Flowlane::new(&rules, MalformedPolicy::Forward, 5).expect("all rules are accepted");
    ovs.set_rules(&rules).expect("Open vSwitch takes its rules");
    let (packets, r) = (Packets::of(text), &mut Random::new(7));
    let (mut tables, mut tracked) = (0, 0);
    for _ in 0..PACKETS {
        let flow = packets.next(r);
        let states: Vec<&str> = (0..4).map(|_| r.pick(&STATES)).collect();
        let theirs = ovs.trace(&flow, &states);
        // Open vSwitch follows long and short packets there.
        if theirs.contains("check_pkt_len(") {
            continue;
        }
        let line = format!("{flow},actions=drop");
        let rule = read(&line, "flow", Some(Format::Flows), &ReadOptions::default()).expect("a flow");
        let (in_port, mut frame) = (rule[0].matches.get(flowlane::packet::Field::InPort).0, Vec::new());
        build_frame(&rule[0].matches.key(), FRAME_BYTES, &mut frame);
        let bits = states.iter().map(|state| ct_state::read(state).expect("known names"));
        let ours = flowlane.visits(in_port as usize, &frame, bits);
        let expected = visits(&theirs);
        assert_eq!(ours, expected, "{name}: {flow} with {states:?}\n{theirs}");
        tables += ours.len();
        tracked += usize::from(theirs.contains("recirc("));
    }
    println!("{name}: {tables} tables visited by {PACKETS} packets, {tracked} of them tracked");
    assert!(tables > 5 * PACKETS && tracked > PACKETS / 10);
}

#[test]
fn packets_take_the_same_way_through_tables_of_ovn() {
    let Some(programs) = OvsPrograms::find() else { return };
    let mut ovs = Ovs::start(&programs);
    for meter in [1, 2] {
        ovs.add_meter(&format!("meter={meter},kbps,band=type=drop,rate=1000"));
    }
    ovs.map_options("{class=0x102,type=0x80,len=4}->tun_metadata0");
    for name in ["ovn-small.flows.gz", "ovn-rich.flows.gz"] {
        match table(name) {
            // `ovs-ofctl` prints a mask here, and does not read it.
            Some(text) => compare(&mut ovs, name, &text.replace("/0x3f->ip_dscp", "->ip_dscp")),
            None => println!("skipped: there is no {name}"),
        }
    }
}
