//! VLANs of ports for `normal`: random settings × random frames through Flowlane, a model made of vswitchd.conf.db(5), and Open
//! vSwitch. What leaves by each port must be the same, byte for byte.
//!
//! The model knows frames as lists of tags. `FLOWLANE_VLAN_CASES` says how many cases are run.

use std::collections::BTreeMap;
use std::ops::Range;

use flowlane_switch::datapath::MalformedPolicy;

use super::ovs::{Ovs, OvsPrograms, PORTS, Sent};
use super::packets::Random;
use super::rules::Rules;
use super::switch::Flowlane;

const CASES_DEFAULT: u64 = 60;

/// Frames of a case.
const FRAMES: usize = 40;

/// The VLANs that there are.
const VIDS: [u16; 4] = [0, 10, 20, 4095];

/// A tag: TPID, and VID with priority.
type Tag = (u16, u16);

fn vid(tag: Tag) -> u16 {
    tag.1 & 0xfff
}

#[derive(Clone, Debug)]
struct Frame {
    destination: u8,
    source: u8,
    tags: Vec<Tag>,
}

/// The address of all stations.
const ALL: u8 = 0xff;

impl Frame {
    fn bytes(&self, tags: &[Tag]) -> Vec<u8> {
        let mac = |station: u8| if station == ALL { [0xff; 6] } else { [2, 0, 0, 0, 0, station] };
        let mut bytes = [mac(self.destination), mac(self.source)].concat();
        tags.iter().for_each(|(tpid, tci)| bytes.extend([tpid.to_be_bytes(), tci.to_be_bytes()].concat()));
        // An EtherType for experiments.
        bytes.extend([0x88, 0xb6]);
        bytes.resize(bytes.len() + 46, self.source);
        bytes
    }
}

#[derive(Clone, Default, Debug)]
struct Settings {
    mode: Option<&'static str>,
    tag: Option<u16>,
    trunks: Vec<u16>,
    cvlans: Vec<u16>,
}

impl Settings {
    fn random(r: &mut Random) -> Self {
        let vids = |r: &mut Random| VIDS.into_iter().filter(|_| r.one_in(2)).collect::<Vec<u16>>();
        let tag = Some(r.pick(&VIDS[1..]));
        match r.below(10) {
            0 => Self::default(),
            1 => Self { trunks: vids(r), ..Self::default() },
            2 => Self { mode: Some("trunk"), trunks: vids(r), ..Self::default() },
            3 => Self { tag: Some(r.pick(&VIDS)), ..Self::default() },
            4 => Self { mode: Some("access"), tag, ..Self::default() },
            5..=8 => {
                let (tag, trunks) = (r.pick(&VIDS), vids(r));
                let mode = Some(r.pick(&["native-tagged", "native-untagged"]));
                // Class `vlan-native-zero`.
                let tag = if trunks.is_empty() || trunks.contains(&0) { tag } else { tag.max(10) };
                Self { mode, tag: Some(tag), trunks, ..Self::default() }
            }
            _ => Self { mode: Some("dot1q-tunnel"), tag, cvlans: vids(r), ..Self::default() },
        }
    }

    /// As `ovs-vsctl set port` takes them.
    fn text(&self) -> String {
        let list = |key: &str, list: &[u16]| {
            let list: Vec<String> = list.iter().map(u16::to_string).collect();
            (!list.is_empty()).then(|| format!("{key}={}", list.join(",")))
        };
        let mode = self.mode.map(|mode| format!("vlan_mode={mode}"));
        let tag = self.tag.map(|tag| format!("tag={tag}"));
        let parts = [mode, tag, list("trunks", &self.trunks), list("cvlans", &self.cvlans)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }

    fn mode(&self) -> &'static str {
        self.mode.unwrap_or(if self.tag.is_some() { "access" } else { "trunk" })
    }

    fn own(&self) -> u16 {
        self.tag.unwrap_or(0)
    }

    fn trunks(&self, vid: u16) -> bool {
        let listed = self.trunks.is_empty() || self.trunks.contains(&vid);
        match self.mode().starts_with("native") {
            true => vid == self.own() || listed && vid != 0,
            false => listed,
        }
    }

    fn customer(&self, vid: u16) -> bool {
        self.cvlans.is_empty() || self.cvlans.contains(&vid)
    }

    fn is_in(&self, vlan: u16) -> bool {
        match self.mode() {
            "access" | "dot1q-tunnel" => vlan == self.own(),
            _ => self.trunks(vlan),
        }
    }

    /// The tags of a received frame within the bridge, the VLAN's first: with VID 0, too, where there is none. And the number of
    /// those that the bridge knows; the others are payload.
    fn receive(&self, tags: &[Tag]) -> Option<(Vec<Tag>, usize)> {
        let known = match self.mode() {
            "access" => 1,
            "dot1q-tunnel" => 1 + tags.len().min(2),
            _ => tags.len().clamp(1, 2),
        };
        self.tags(tags).map(|tags| (tags, known))
    }

    fn tags(&self, tags: &[Tag]) -> Option<Vec<Tag>> {
        let first = tags.first().copied().unwrap_or((0x8100, 0));
        let rest = tags.get(1..).unwrap_or_default();
        let own = (first.0, first.1 & 0xf000 | self.own());
        match self.mode() {
            "access" if tags.len() > 2 || tags.iter().any(|tag| vid(*tag) != 0) => None,
            "access" => Some(vec![own]),
            "dot1q-tunnel" if !self.customer(vid(first)) => None,
            "dot1q-tunnel" => Some([&[(0x88a8, self.own())], tags].concat()),
            "trunk" if !self.trunks(vid(first)) => None,
            "trunk" => Some([&[first], rest].concat()),
            _ if vid(first) == 0 => Some([&[own], rest].concat()),
            _ => self.trunks(vid(first)).then(|| [&[first], rest].concat()),
        }
    }

    /// The tags that a frame is sent with.
    fn send(&self, (tags, known): (&[Tag], usize)) -> Option<Vec<Tag>> {
        let (vlan, inner) = (vid(tags[0]), tags.get(1).map_or(0, |tag| vid(*tag)));
        let without = || tags[1..].to_vec();
        let on_trunk = || match tags {
            [(_, 0)] | [(_, 0x1000)] => Vec::new(),
            tags => tags.to_vec(),
        };
        match self.mode() {
            _ if !self.is_in(vlan) => None,
            // A frame in a tunnel may be tagged for priority, and then for a VLAN.
            "access" => (tags.len() <= known && tags[1..].iter().all(|tag| vid(*tag) == 0)).then(Vec::new),
            "dot1q-tunnel" => self.customer(inner).then(without),
            "native-untagged" if vlan == self.own() => Some(without()),
            _ => Some(on_trunk()),
        }
    }
}

/// The model of a bridge.
struct Model {
    ports: Vec<Settings>,
    /// Ports by VLAN and station.
    learned: BTreeMap<(u16, u8), usize>,
}

impl Model {
    fn forward(&mut self, from: usize, frame: &Frame) -> Sent {
        let mut sent = Sent::default();
        let Some((tags, known_tags)) = self.ports[from].receive(&frame.tags) else { return sent };
        let tags = (&tags[..], known_tags);
        let vlan = vid(tags.0[0]);
        self.learned.insert((vlan, frame.source), from);
        let known = self.learned.get(&(vlan, frame.destination)).copied();
        if known == Some(from) {
            return sent;
        }
        let reached = known.filter(|to| self.ports[*to].send(tags).is_some());
        for (to, settings) in self.ports.iter().enumerate().filter(|(to, _)| *to != from) {
            if let Some(tags) = settings.send(tags).filter(|_| reached.is_none_or(|only| only == to)) {
                sent[to].push(frame.bytes(&tags));
            }
        }
        sent
    }

    fn set(&mut self, ports: Vec<Settings>) {
        self.ports = ports;
        self.learned.retain(|(vlan, _), port| self.ports[*port].is_in(*vlan));
    }

    fn addresses(&self) -> Vec<(u16, u64, u32)> {
        let all = self.learned.iter();
        all.map(|((vlan, station), port)| (*vlan, 0x0200_0000_0000 | u64::from(*station), *port as u32 + 1))
            .collect()
    }
}

fn random_tag(r: &mut Random, has_dei: bool) -> Tag {
    let dei = if has_dei && r.one_in(4) { 0x1000 } else { 0 };
    let priority = if r.one_in(2) { 0xa000 } else { 0 };
    (r.pick(&[0x8100, 0x8100, 0x88a8]), r.pick(&VIDS) | priority | dei)
}

fn random_frame(r: &mut Random, tags: Range<u32>, has_dei: bool) -> Frame {
    let count = tags.start + r.below(tags.end - tags.start);
    Frame {
        destination: r.pick(&[1, 2, 3, ALL]),
        source: r.pick(&[1, 2, 3]),
        tags: (0..count).map(|_| random_tag(r, has_dei)).collect(),
    }
}

/// Returns whether Open vSwitch treats a frame's inner tag as Flowlane does (class `vlan-inner-tag`).
fn is_compared(frame: &Frame, settings: &Settings) -> bool {
    let is_nothing = |tag: &Tag| tag.1 & 0xefff == 0;
    match &frame.tags[..] {
        [] => true,
        [only] => settings.mode() != "dot1q-tunnel" || !is_nothing(only),
        [outer, inner, ..] => {
            let is_kept = !is_nothing(outer) && !is_nothing(inner) && settings.mode() != "dot1q-tunnel";
            let is_refused = vid(*outer) != 0 || vid(*inner) == 0;
            is_kept && frame.destination == ALL && (settings.mode() != "access" || is_refused)
        }
    }
}

fn rules() -> Rules {
    Rules::new("table=0,actions=normal\n".to_owned(), String::new(), 1)
}

fn texts(ports: &[Settings]) -> Vec<String> {
    ports.iter().map(Settings::text).collect()
}

fn random_ports(r: &mut Random) -> Vec<Settings> {
    // With settings at one port at least.
    let mut ports: Vec<Settings> = (0..PORTS).map(|_| Settings::random(r)).collect();
    if texts(&ports).iter().all(String::is_empty) {
        ports[0].tag = Some(10);
    }
    ports
}

/// Compares Flowlane with the model; settings change while addresses are learned.
#[test]
fn a_model_sends_the_same_frames_with_vlans() {
    let (mut compared, mut sent) = (0, 0);
    for seed in 0..300 {
        let r = &mut Random::new(seed);
        let mut model = Model { ports: random_ports(r), learned: BTreeMap::new() };
        let mut flowlane =
            Flowlane::new(&rules(), MalformedPolicy::Drop, seed).expect("the rule is accepted");
        flowlane.set_vlans(&texts(&model.ports));
        let mut frames_since = 0;
        for step in 0..60 {
            if r.one_in(15) {
                model.set(random_ports(r));
                frames_since = 0;
                flowlane.set_vlans(&texts(&model.ports));
                assert_eq!(flowlane.addresses(), model.addresses(), "seed {seed}, step {step}");
            }
            let (from, frame) = (r.below(PORTS as u32) as usize, random_frame(r, 0..4, true));
            let modelled = model.forward(from, &frame);
            let bytes = frame.bytes(&frame.tags);
            // Each of two workers has the newest settings when it has taken a frame.
            let traced = flowlane.traced(from + 1, &bytes);
            let (ours, _) = flowlane.forward(from + 1, &bytes);
            let ports = texts(&model.ports);
            assert_eq!(
                ours,
                modelled,
                "seed {seed}, step {step}: {frame:x?} from port {} of {ports:?}",
                from + 1
            );
            if frames_since >= 2 {
                assert_eq!(traced, ours, "seed {seed}, step {step}: the trace of {frame:x?}");
            }
            frames_since += 1;
            compared += 1;
            sent += ours.iter().map(Vec::len).sum::<usize>();
        }
    }
    println!("{compared} frames, sent {sent} times, compared with the model");
    assert!(sent > compared / 2);
}

#[test]
fn open_vswitch_sends_the_same_frames_with_vlans() {
    let Some(programs) = OvsPrograms::find() else { return };
    let mut ovs = Ovs::start(&programs);
    ovs.set_rules(&rules()).expect("the rule is accepted");
    let cases = std::env::var("FLOWLANE_VLAN_CASES").ok().and_then(|text| text.parse().ok());
    let (mut compared, mut sent) = (0, 0);
    for seed in 0..cases.unwrap_or(CASES_DEFAULT) {
        let r = &mut Random::new(1 << 32 | seed);
        let ports = random_ports(r);
        let settings = texts(&ports);
        let mut flowlane =
            Flowlane::new(&rules(), MalformedPolicy::Drop, seed).expect("the rule is accepted");
        flowlane.set_vlans(&settings);
        ovs.set_vlans(&settings);
        for _ in 0..FRAMES {
            let (from, mut frame) = (r.below(PORTS as u32) as usize, random_frame(r, 0..3, false));
            // Open vSwitch asks for inner tags and customer VLANs only where it floods (class `vlan-inner-tag`).
            let from_tunnel = ports[from].mode() == "dot1q-tunnel" && !frame.tags.is_empty();
            if from_tunnel || ports.iter().any(|port| !port.cvlans.is_empty()) {
                frame.destination = ALL;
            }
            if !is_compared(&frame, &ports[from]) {
                continue;
            }
            let bytes = frame.bytes(&frame.tags);
            // Its megaflows hold for frames of other priorities and inner tags, too.
            ovs.forget_megaflows();
            let theirs = ovs.forward(from + 1, &[&bytes]);
            let (ours, _) = flowlane.forward(from + 1, &bytes);
            assert_eq!(ours, theirs, "case {seed}: {frame:x?} from port {} of {settings:?}", from + 1);
            compared += 1;
            sent += ours.iter().map(Vec::len).sum::<usize>();
        }
    }
    ovs.set_vlans(&vec![String::new(); PORTS]);
    println!("{compared} frames, sent {sent} times, compared with Open vSwitch");
}
