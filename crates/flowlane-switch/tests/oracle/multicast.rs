//! Multicast snooping: random settings and VLANs of ports × random messages of IGMP and MLD, and packets for groups, through Flowlane and
//! Open vSwitch. What leaves by each port must be the same, byte for byte, and so must the lists of listeners and routers be.
//!
//! Where the two differ is in `differences.rs`: frames are compared as sets, ports that are marked have no VLAN settings, and no packet is
//! sent to a group that was left.
//!
//! `FLOWLANE_MULTICAST_CASES` says how many cases are run.

pub(crate) mod differences;

use std::collections::BTreeSet;
use std::sync::Arc;

use flowlane::rule::action::PortNo;
use flowlane_switch::datapath::MalformedPolicy;
use flowlane_switch::state::multicast::{Snooping, SnoopingSettings};

use super::ovs::{Ovs, OvsPrograms, PORTS};
use super::packets::{Random, sum};
use super::rules::Rules;
use super::switch::Flowlane;

const CASES_DEFAULT: u64 = 60;

/// Frames of a case.
const FRAMES: usize = 40;

/// Groups that there are: the first two of IPv4 are those of the link.
const GROUPS: u32 = 16;

/// A group: of IPv4 or IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Group {
    is_ipv6: bool,
    last: u8,
}

impl Group {
    fn random(r: &mut Random) -> Self {
        Self { is_ipv6: r.one_in(2), last: r.below(GROUPS) as u8 }
    }

    fn address(self) -> Vec<u8> {
        match (self.is_ipv6, self.last) {
            (false, last @ 0..2) => vec![224, 0, 0, 1 + last],
            (false, last) => vec![239, 1, 1, last],
            // All nodes, and all routers.
            (true, last @ 0..2) => [&[0xff, 2][..], &[0; 13], &[1 + last]].concat(),
            (true, last) => [&[0xff, 0xe][..], &[0; 13], &[last]].concat(),
        }
    }

    fn text(self) -> String {
        match self.address()[..] {
            [a, b, c, d] => format!("{a}.{b}.{c}.{d}"),
            [a, b, .., last] => format!("{a:x}{b:02x}::{last:x}"),
            _ => unreachable!("addresses have 4 or 16 bytes"),
        }
    }
}

/// A frame, and the groups that it leaves.
struct Message {
    frame: Vec<u8>,
    left: Vec<Group>,
    /// A packet for a group.
    to: Option<Group>,
}

fn frame(is_ipv6: bool, destination: &[u8], tag: Option<u16>, station: u8, packet: &[u8]) -> Vec<u8> {
    let last = &destination[destination.len() - 4..];
    let mut frame = match is_ipv6 {
        true => [&[0x33, 0x33], last].concat(),
        false => vec![1, 0, 0x5e, last[1] & 0x7f, last[2], last[3]],
    };
    frame.extend([2, 0, 0, 0, 0, station]);
    tag.iter().for_each(|vid| frame.extend([&[0x81, 0][..], &vid.to_be_bytes()].concat()));
    frame.extend(if is_ipv6 { [0x86, 0xdd] } else { [8, 0] });
    frame.extend(packet);
    frame.resize(frame.len().max(60), 0);
    frame
}

fn ipv4(source: [u8; 4], destination: &[u8], protocol: u8, content: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x46, 0, 0, 24 + content.len() as u8, 0, 0, 0, 0, 1, protocol, 0, 0];
    packet.extend([&source[..], destination, &[0x94, 4, 0, 0]].concat());
    let checksum = !sum(&[&packet]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    [packet, content.to_vec()].concat()
}

fn ipv6(source: [u8; 16], destination: &[u8], protocol: u8, content: &[u8], has_options: bool) -> Vec<u8> {
    let options: &[u8] = if has_options { &[protocol, 0, 5, 2, 0, 0, 1, 0] } else { &[] };
    let next = if has_options { 0 } else { protocol };
    let len = (options.len() + content.len()) as u16;
    let mut packet = [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[next, 1]].concat();
    packet.extend([&source[..], destination, options, content].concat());
    packet
}

/// The message of a host or router in IPv4 or IPv6, with its destination and the groups that it leaves.
fn content(r: &mut Random, is_ipv6: bool, leaves: bool) -> (Vec<u8>, Vec<u8>, Vec<Group>) {
    let group = |r: &mut Random| Group { is_ipv6, ..Group::random(r) };
    let one = group(r);
    let simple = |kind: u8| match is_ipv6 {
        true => [&[kind, 0, 0, 0, 0, 0, 0, 0][..], &one.address()].concat(),
        false => [&[kind, 10, 0, 0][..], &one.address()].concat(),
    };
    let to = |last: u8| match is_ipv6 {
        true => [&[0xff, 2][..], &[0; 13], &[last]].concat(),
        false => vec![224, 0, 0, last],
    };
    match r.below(8) {
        0 => (simple(if is_ipv6 { 130 } else { 0x11 }), to(1), vec![]),
        1 if leaves => (simple(if is_ipv6 { 132 } else { 0x17 }), to(2), vec![one]),
        // A message of another type: of routers, or for experiments.
        2 => (simple(if is_ipv6 { 200 } else { 0x1e }), one.address(), vec![]),
        3..6 => {
            let kinds: &[u8] = if is_ipv6 { &[131] } else { &[0x12, 0x16] };
            (simple(r.pick(kinds)), one.address(), vec![])
        }
        _ => {
            let (mut message, mut left) = (vec![if is_ipv6 { 143 } else { 0x22 }, 0, 0, 0, 0, 0, 0], vec![]);
            let records = 1 + r.below(3);
            message.push(records as u8);
            for _ in 0..records {
                let (one, sources) = (group(r), r.below(3) as u8);
                let kind = if leaves { 1 + r.below(6) as u8 } else { 4 };
                message.extend([kind, 0, 0, sources]);
                message.extend(one.address());
                message.resize(message.len() + one.address().len() * usize::from(sources), 9);
                left.extend(Some(one).filter(|_| sources == 0 && matches!(kind, 1 | 3)));
            }
            (message, to(22), left)
        }
    }
}

fn random_message(r: &mut Random, leaves: bool) -> Message {
    let (station, tag) = (1 + r.below(4) as u8, r.one_in(2).then(|| r.pick(&[10, 20])));
    let has_source = !r.one_in(5);
    if r.one_in(2) {
        let group = Group::random(r);
        let packet = match group.is_ipv6 {
            true => ipv6(source6(has_source), &group.address(), 253, &[station; 12], r.one_in(2)),
            false => ipv4(source4(has_source), &group.address(), 253, &[station; 12]),
        };
        let frame = frame(group.is_ipv6, &group.address(), tag, station, &packet);
        return Message { frame, left: vec![], to: Some(group) };
    }
    let is_ipv6 = r.one_in(2);
    let (mut message, destination, mut left) = content(r, is_ipv6, leaves);
    let source = source6(has_source);
    let pseudo = [&source[..], &destination, &[0, 0, 0, message.len() as u8, 0, 0, 0, 58]].concat();
    let checksum = !sum(&[if is_ipv6 { &pseudo } else { &[] }, &message]);
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    if r.one_in(8) {
        message[3] ^= 1;
        left.clear();
    }
    let packet = match is_ipv6 {
        true => ipv6(source, &destination, 58, &message, !r.one_in(4)),
        false => ipv4(source4(has_source), &destination, 2, &message),
    };
    Message { frame: frame(is_ipv6, &destination, tag, station, &packet), left, to: None }
}

fn source4(has_source: bool) -> [u8; 4] {
    if has_source { [10, 0, 0, 1] } else { [0; 4] }
}

fn source6(has_source: bool) -> [u8; 16] {
    let mut source = [0; 16];
    if has_source {
        (source[0], source[1], source[15]) = (0xfe, 0x80, 1);
    }
    source
}

/// Settings of the bridge and its ports.
#[derive(Debug)]
struct Settings {
    vlans: Vec<String>,
    floods_unregistered: bool,
    flood: BTreeSet<u32>,
    flood_reports: BTreeSet<u32>,
    /// The table has room for fewer groups than there are.
    is_small: bool,
}

impl Settings {
    fn random(r: &mut Random) -> Self {
        let vlan = |r: &mut Random| match r.below(8) {
            0 => "tag=10".to_owned(),
            1 => "trunks=0,10".to_owned(),
            2 => "tag=20 vlan_mode=native-untagged".to_owned(),
            _ => String::new(),
        };
        let vlans: Vec<String> = (0..PORTS).map(|_| vlan(r)).collect();
        let marked = |r: &mut Random| {
            let plain = (1..).zip(&vlans).filter(|(_, vlan)| vlan.is_empty());
            plain.map(|(port, _)| port).filter(|_| r.one_in(5)).collect()
        };
        let (flood, flood_reports) = (marked(r), marked(r));
        Self { floods_unregistered: r.one_in(2), flood, flood_reports, is_small: r.one_in(3), vlans }
    }

    fn ours(&self) -> SnoopingSettings {
        let ports = |ports: &BTreeSet<u32>| ports.iter().copied().map(PortNo).collect();
        SnoopingSettings {
            groups_max: if self.is_small { 10 } else { 2048 },
            floods_unregistered: self.floods_unregistered,
            flood_ports: ports(&self.flood),
            report_ports: ports(&self.flood_reports),
            ..SnoopingSettings::default()
        }
    }

    /// The settings, as `ovs-vsctl` takes them.
    fn theirs(&self) -> String {
        let key = "other_config:mcast-snooping-";
        let mut text = format!(
            "set bridge br0 mcast_snooping_enable=true {key}disable-flood-unregistered={} {key}table-size={}",
            !self.floods_unregistered,
            if self.is_small { 10 } else { 2048 },
        );
        for port in 1..=PORTS as u32 {
            text += &format!(
                " -- set port p{port} {key}flood={} {key}flood-reports={}",
                self.flood.contains(&port),
                self.flood_reports.contains(&port)
            );
        }
        text
    }
}

/// Listeners and routers: a group or `querier`, a VLAN, and a port.
type Listed = BTreeSet<(String, u16, u32)>;

fn ours(snooping: &Snooping) -> Listed {
    let group = |group: std::net::Ipv6Addr| {
        group.to_ipv4_mapped().map_or_else(|| group.to_string(), |group| group.to_string())
    };
    let listeners = snooping.list(0).into_iter().map(|one| (group(one.group), one.vid, one.port.0));
    let routers = snooping.list_routers(0).into_iter().map(|one| ("querier".to_owned(), one.vid, one.port.0));
    listeners.chain(routers).collect()
}

fn theirs(ovs: &mut Ovs) -> Listed {
    let shown = ovs.listeners();
    let row = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [port, vlan, group, _age] = columns[..] else { panic!("{line:?}") };
        (group.to_owned(), vlan.parse().expect("a VLAN"), port.parse().expect("a port"))
    };
    shown.lines().skip(1).map(row).collect()
}

#[test]
fn open_vswitch_sends_packets_for_groups_to_the_same_ports() {
    let Some(programs) = OvsPrograms::find() else { return };
    let mut ovs = Ovs::start(&programs);
    let rules = Rules::new("table=0,actions=normal\n".to_owned(), String::new(), 1);
    ovs.set_rules(&rules).expect("the rules are accepted");
    let cases = std::env::var("FLOWLANE_MULTICAST_CASES").ok().and_then(|text| text.parse().ok());
    let (mut compared, mut sent, mut listed) = (0, 0, 0);
    for seed in 0..cases.unwrap_or(CASES_DEFAULT) {
        let r = &mut Random::new(1 << 41 | seed);
        let settings = Settings::random(r);
        let mut flowlane =
            Flowlane::new(&rules, MalformedPolicy::Drop, seed).expect("the rules are accepted");
        flowlane.set_vlans(&settings.vlans);
        let snooping = Arc::new(Snooping::new(settings.ours()));
        flowlane.set_multicast(Some(&snooping));
        ovs.set_vlans(&settings.vlans);
        ovs.set_snooping(&settings.theirs());
        // Groups that were left, of any VLAN.
        let mut left: BTreeSet<Group> = BTreeSet::new();
        for step in 0..FRAMES {
            let message = random_message(r, !settings.is_small);
            let from = 1 + r.below(PORTS as u32) as usize;
            if message.to.is_some_and(|group| left.contains(&group)) {
                continue;
            }
            left.extend(&message.left);
            let place = format!(
                "case {seed}, step {step}: {:02x?} to {:?} from port {from}, {settings:?}, {:?}",
                message.frame,
                message.to.map(Group::text),
                ours(&snooping)
            );
            ovs.forget_megaflows();
            let mut theirs = ovs.forward(from, &[&message.frame]);
            let (mut ours, _) = flowlane.forward(from, &message.frame);
            // What the frame has taught does not concern it.
            let mut traced = flowlane.traced(from, &message.frame);
            ours.iter_mut().chain(&mut traced).for_each(|sent| sent.sort());
            theirs.iter_mut().for_each(|sent| {
                sent.sort();
                sent.dedup();
            });
            assert_eq!(ours, theirs, "{place}");
            assert_eq!(traced, ours, "{place}");
            let (own, others) = (self::ours(&snooping), self::theirs(&mut ovs));
            assert_eq!(own, others, "{place}");
            compared += 1;
            sent += ours.iter().map(Vec::len).sum::<usize>();
            listed = listed.max(own.len());
        }
    }
    println!(
        "{compared} frames, sent {sent} times, and lists of up to {listed} rows compared with Open vSwitch"
    );
}
