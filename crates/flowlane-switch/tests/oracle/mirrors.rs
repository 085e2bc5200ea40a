//! Mirrors: random mirrors, VLANs of ports and rules × random frames through Flowlane and Open vSwitch. What leaves by each port must be the
//! same, byte for byte.
//!
//! The order in which a frame is flooded to ports is that of a hash table in Open vSwitch. So frames are compared in any order, and where a
//! mirror would copy the first of several different ones there are none.
//!
//! `FLOWLANE_MIRROR_CASES` says how many cases are run.

use std::collections::BTreeSet;
use std::sync::Arc;

use flowlane::rule::action::PortNo;
use flowlane_switch::datapath::MalformedPolicy;
use flowlane_switch::state::mirror::{MirrorOutput, MirrorSettings, Mirrors, PortSelection};
use flowlane_switch::state::vlan::Vlans;

use super::ovs::{Ovs, OvsPrograms, PORTS};
use super::packets::Random;
use super::rules::Rules;
use super::switch::Flowlane;

const CASES_DEFAULT: u64 = 60;

/// Frames of a case.
const FRAMES: usize = 25;

/// The VLANs that there are.
const VIDS: [u16; 3] = [0, 10, 20];

/// The settings of a mirror, as the columns of its row have them.
#[derive(Clone, Debug)]
struct Mirror {
    all: bool,
    received: Vec<u32>,
    sent: Vec<u32>,
    vlans: Vec<u16>,
    /// The number of a port, or a VLAN.
    output: Result<u32, u16>,
    snaplen: Option<u16>,
}

impl Mirror {
    fn random(r: &mut Random) -> Self {
        let ports = |r: &mut Random| (1..=PORTS as u32).filter(|_| r.one_in(3)).collect();
        let port_or_vlan = match r.one_in(3) {
            true => Err(r.pick(&[10, 20, 30])),
            false => Ok(3 + r.below(2)),
        };
        Self {
            all: r.one_in(3),
            received: ports(r),
            sent: ports(r),
            vlans: if r.one_in(3) { VIDS.into_iter().filter(|_| r.one_in(2)).collect() } else { Vec::new() },
            output: port_or_vlan,
            snaplen: r.one_in(4).then(|| r.pick(&[14, 30, 62])),
        }
    }

    /// Adds what `ovs-vsctl` takes to create the row, with a name that it has there.
    fn text(&self, name: usize) -> String {
        let mut named: BTreeSet<u32> = self.received.iter().chain(&self.sent).copied().collect();
        named.extend(self.output.ok());
        let list = |key: &str, ports: &[u32]| {
            let ports: Vec<String> = ports.iter().map(|port| format!("@p{port}")).collect();
            if ports.is_empty() { String::new() } else { format!(" {key}={}", ports.join(",")) }
        };
        let mut text = String::new();
        named.iter().for_each(|port| text += &format!("-- --id=@p{port} get port p{port} "));
        text += &format!("-- --id=@m{name} create mirror name=m{name} select_all={}", self.all);
        text += &list("select_src_port", &self.received);
        text += &list("select_dst_port", &self.sent);
        let vlans: Vec<String> = self.vlans.iter().map(u16::to_string).collect();
        if !vlans.is_empty() {
            text += &format!(" select_vlan={}", vlans.join(","));
        }
        match self.output {
            Ok(port) => text += &list("output_port", &[port]),
            Err(vlan) => text += &format!(" output_vlan={vlan}"),
        }
        if let Some(bytes) = self.snaplen {
            text += &format!(" snaplen={bytes}");
        }
        text
    }

    fn settings(&self) -> MirrorSettings {
        let selection = |ports: &[u32]| match self.all {
            true => PortSelection::All,
            false => PortSelection::Ports(ports.iter().copied().collect()),
        };
        MirrorSettings {
            name: String::new(),
            received: selection(&self.received),
            sent: selection(&self.sent),
            vlans: (!self.vlans.is_empty()).then(|| Vlans::of(self.vlans.iter().copied())),
            output: self.output.map_or_else(MirrorOutput::Vlan, |port| MirrorOutput::Port(PortNo(port))),
            members: BTreeSet::new(),
            bytes_max: self.snaplen,
        }
    }
}

/// Random mirrors without two of the same output and other VLANs or lengths: which of these copies a packet depends on the rows' order.
fn random_mirrors(r: &mut Random, actions: &str) -> Vec<Mirror> {
    let mut all: Vec<Mirror> = Vec::new();
    for _ in 0..1 + r.below(3) {
        let mut mirror = Mirror::random(r);
        if matches!(actions, "flood" | "all") {
            // Ports may get the frame in different VLANs.
            mirror.all = false;
            mirror.sent.truncate(1);
        }
        let is_same =
            |other: &Mirror| other.output == mirror.output || other.output.is_err() && mirror.output.is_err();
        if !all.iter().any(is_same) {
            all.push(mirror);
        }
    }
    // To mirrors behind that of a VLAN, Open vSwitch 3.1 shows a packet in this VLAN.
    all.sort_by_key(|mirror| mirror.output.is_err());
    // Behind a mirror of a copy, Open vSwitch copies whole packets to the other ports of a VLAN.
    if all.len() > 1 {
        all.iter_mut().filter(|mirror| mirror.output.is_err()).for_each(|mirror| mirror.snaplen = None);
    }
    all
}

/// Settings of ports with VLANs.
fn random_vlans(r: &mut Random) -> Vec<String> {
    let settings = |r: &mut Random| match r.below(6) {
        0 => "tag=10".to_owned(),
        1 => "tag=20".to_owned(),
        2 => "trunks=0,10".to_owned(),
        3 => "tag=20 vlan_mode=native-untagged".to_owned(),
        4 => "tag=10 vlan_mode=native-tagged trunks=20".to_owned(),
        _ => String::new(),
    };
    (0..PORTS).map(|_| settings(r)).collect()
}

/// Actions of tables 0 and 1, by which a packet has one tag at most. `STRIP` is for packets with a tag only.
const ACTIONS: [[&str; 2]; 9] = [
    ["normal", "drop"],
    ["flood", "drop"],
    ["all", "drop"],
    ["drop", "drop"],
    ["in_port,output:2", "drop"],
    ["output:2,STRIP,output:1,push_vlan:0x8100,set_field:4116->vlan_vid,output:3,output:4", "drop"],
    ["clone(STRIP,push_vlan:0x8100,set_field:4106->vlan_vid,output:2),output:3,normal", "drop"],
    ["output:2,resubmit(,1),output:1", "STRIP,push_vlan:0x8100,set_field:4116->vlan_vid,output:3,output:4"],
    ["STRIP,group:1,output:3", "drop"],
];

const GROUPS: &str = "group_id=1,type=all,bucket=actions=push_vlan:0x8100,set_field:4106->vlan_vid,output:1,bucket=actions=output:2";

/// The rules with these actions.
fn rules(actions: &[&str; 2]) -> Rules {
    let of_table = |(table, actions): (usize, &&str)| {
        let [tagged, untagged] = [actions.replace("STRIP", "strip_vlan"), actions.replace("STRIP,", "")];
        format!(
            "table={table},priority=9,vlan_tci=0x1000/0x1000,actions={tagged}\n\
             table={table},priority=8,vlan_tci=0,actions={untagged}\n"
        )
    };
    Rules::new(actions.iter().enumerate().map(of_table).collect(), GROUPS.to_owned(), 2)
}

fn random_frame(r: &mut Random, (is_switched, has_priority): (bool, bool)) -> Vec<u8> {
    let station = |r: &mut Random| [2, 0, 0, 0, 0, 1 + r.below(3) as u8];
    let to = match r.below(8) {
        // Flowlane's `normal` learns the source of such a frame, before it drops it.
        0 if !is_switched => [1, 0x80, 0xc2, 0, 0, 2],
        1 | 2 => [0xff; 6],
        _ => station(r),
    };
    let mut frame = [to, station(r)].concat();
    if r.one_in(2) {
        let priority = if has_priority { r.pick(&[0, 0xa000]) } else { 0 };
        let tci = r.pick(&VIDS[1..]) | priority;
        frame.extend([&[0x81, 0][..], &tci.to_be_bytes()].concat());
    }
    frame.extend([0x88, 0xb6]);
    frame.resize(frame.len() + 46, r.below(200) as u8);
    frame
}

#[test]
fn open_vswitch_sends_the_same_copies() {
    let Some(programs) = OvsPrograms::find() else { return };
    let mut ovs = Ovs::start(&programs);
    let cases = std::env::var("FLOWLANE_MIRROR_CASES").ok().and_then(|text| text.parse().ok());
    let (mut compared, mut sent) = (0, 0);
    for seed in 0..cases.unwrap_or(CASES_DEFAULT) {
        let r = &mut Random::new(1 << 40 | seed);
        let actions = r.pick(&ACTIONS);
        let (mirrors, vlans) = (random_mirrors(r, actions[0]), random_vlans(r));
        let rules = rules(&actions);
        let mut flowlane =
            Flowlane::new(&rules, MalformedPolicy::Drop, seed).expect("the rules are accepted");
        flowlane.set_vlans(&vlans);
        let set = mirrors.iter().map(|mirror| (mirror.settings(), Arc::default()));
        flowlane.set_mirrors(Mirrors::new(set));
        ovs.set_rules(&rules).expect("the rules are accepted");
        ovs.set_vlans(&vlans);
        ovs.set_mirrors(mirrors.iter().enumerate().map(|(name, mirror)| mirror.text(name)));
        // Access ports get no priority, trunks do: the first of several copies decides what others are made of it.
        let is_switched = actions[0].contains("normal");
        let has_priority = mirrors.len() == 1 && !is_switched;
        for _ in 0..FRAMES {
            let (from, frame) = (1 + r.below(PORTS as u32), random_frame(r, (is_switched, has_priority)));
            // Open vSwitch drops what such a port receives, also the marker behind a frame.
            if mirrors.iter().any(|mirror| mirror.output == Ok(from)) {
                continue;
            }
            ovs.forget_megaflows();
            let mut theirs = ovs.forward(from as usize, &[&frame]);
            // Markers are mirrored, too; no station has their source address.
            theirs.iter_mut().for_each(|sent| sent.retain(|frame| frame[6..12] != [0xff; 6]));
            let (mut ours, _) = flowlane.forward(from as usize, &frame);
            ours.iter_mut().chain(&mut theirs).for_each(|sent| sent.sort());
            let place =
                format!("case {seed}: {frame:02x?} from port {from}, {actions:?}, {vlans:?}, {mirrors:#?}");
            assert_eq!(ours, theirs, "{place}");
            compared += 1;
            sent += ours.iter().map(Vec::len).sum::<usize>();
        }
    }
    ovs.set_mirrors([]);
    ovs.set_vlans(&vec![String::new(); PORTS]);
    println!("{compared} frames, sent {sent} times, compared with Open vSwitch");
}
