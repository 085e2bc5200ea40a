//! Mirrors of a bridge: copies of the packets that pass some of its ports, for a port or a VLAN (vswitchd.conf.db(5), table Mirror).
//!
//! A packet is copied as it is received where a mirror takes what its port receives, and as it is sent where one takes what that port
//! sends. Each output gets one copy of a packet, of the first of its mirrors that takes it, however many do and however often: mirrors
//! with an output in common are done together.
//!
//! ```text
//! mirror 0: all ports, to port 5        received at 1 ─► copy to 5; 0 and 2 are done
//! mirror 1: what 2 sends, to VLAN 9     sent by 2     ─► copies to the ports of VLAN 9; 1 is done
//! mirror 2: what 2 sends, to port 5     sent by 3     ─► nothing
//! ```
//!
//! Everything here says which mirrors take a packet. The copies are made by the datapath.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flowlane::rule::action::PortNo;

use super::vlan::Vlans;

/// The most mirrors of a bridge.
pub const MIRRORS_MAX: usize = 32;

/// A set of mirrors: a bit for each, by its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MirrorSet(u32);

impl MirrorSet {
    /// Returns whether there is none.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn one(place: usize) -> Self {
        Self(1 << place)
    }

    fn has(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }

    /// Adds the mirrors of another set.
    pub fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Returns these without the mirrors of another set.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn places(self) -> impl Iterator<Item = usize> {
        (0..MIRRORS_MAX).filter(move |place| self.has(*place))
    }
}

/// The ports whose packets a mirror takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortSelection {
    /// Every port.
    All,
    /// The ports with these numbers.
    Ports(BTreeSet<u32>),
}

impl PortSelection {
    fn has(&self, port: PortNo) -> bool {
        match self {
            Self::All => true,
            Self::Ports(ports) => ports.contains(&port.0),
        }
    }
}

/// The destination of a mirror's copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MirrorOutput {
    /// A port, which takes nothing else.
    Port(PortNo),
    /// The ports that carry a VLAN, in which copies are sent. Packets of that VLAN are not copied.
    Vlan(u16),
}

/// The settings of a mirror.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MirrorSettings {
    /// Its name.
    pub name: String,
    /// The ports whose received packets are taken.
    pub received: PortSelection,
    /// The ports whose sent packets are taken.
    pub sent: PortSelection,
    /// The VLANs whose packets are taken; none: all.
    pub vlans: Option<Vlans>,
    /// The destination of copies.
    pub output: MirrorOutput,
    /// Where that is a bond: its other members, which take nothing else, either.
    pub members: BTreeSet<u32>,
    /// The bytes of a packet that are copied; none: all.
    pub bytes_max: Option<u16>,
}

/// The packets that a mirror has taken, counted by all workers.
#[derive(Debug, Default)]
pub struct MirrorCounters {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl MirrorCounters {
    /// Counts a packet. Bytes are those of the packet as it was received, whatever is copied of it.
    pub fn count(&self, bytes: u64) {
        self.packets.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Returns the packets and bytes.
    pub fn get(&self) -> (u64, u64) {
        (self.packets.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// A mirror.
#[derive(Clone, Debug)]
pub struct Mirror {
    /// Its settings.
    pub settings: MirrorSettings,
    /// Its counters, which outlive changes of its settings.
    pub counters: Arc<MirrorCounters>,
    /// The mirrors with its output, itself among them.
    same_output: MirrorSet,
}

/// The mirrors that concern a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortMirrors {
    /// Those that take what the port receives.
    pub received: MirrorSet,
    /// Those that take what the port sends.
    pub sent: MirrorSet,
    /// The port is the output of a mirror.
    pub is_output: bool,
}

/// The mirrors of a bridge.
#[derive(Clone, Debug, Default)]
pub struct Mirrors(Vec<Mirror>);

impl Mirrors {
    /// The mirrors with these settings, each with its counters. Those beyond [`MIRRORS_MAX`] are left out.
    pub fn new(mirrors: impl IntoIterator<Item = (MirrorSettings, Arc<MirrorCounters>)>) -> Self {
        let mirrors: Vec<_> = mirrors.into_iter().take(MIRRORS_MAX).collect();
        let with_output = |output: MirrorOutput| {
            let same = mirrors.iter().map(|(settings, _)| settings.output == output);
            same.zip(0..)
                .fold(MirrorSet::default(), |set, (is_same, at)| MirrorSet(set.0 | u32::from(is_same) << at))
        };
        let sets: Vec<MirrorSet> = mirrors.iter().map(|(settings, _)| with_output(settings.output)).collect();
        let mirror = |((settings, counters), same_output)| Mirror { settings, counters, same_output };
        Self(mirrors.into_iter().zip(sets).map(mirror).collect())
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Mirror> {
        self.0.iter()
    }

    /// Returns the mirrors that concern a port.
    pub fn of_port(&self, port: PortNo) -> PortMirrors {
        let mut out = PortMirrors::default();
        for (place, Mirror { settings, .. }) in self.0.iter().enumerate() {
            if settings.received.has(port) {
                out.received.add(MirrorSet::one(place));
            }
            if settings.sent.has(port) {
                out.sent.add(MirrorSet::one(place));
            }
            out.is_output |=
                settings.output == MirrorOutput::Port(port) || settings.members.contains(&port.0);
        }
        out
    }

    /// Returns whether any takes what ports send.
    pub fn take_sent(&self) -> bool {
        self.0.iter().any(|mirror| mirror.settings.sent != PortSelection::Ports(BTreeSet::new()))
    }

    /// Returns the ports that are outputs.
    pub fn output_ports(&self) -> impl Iterator<Item = PortNo> {
        self.0.iter().filter_map(|mirror| match mirror.settings.output {
            MirrorOutput::Port(port) => Some(port),
            MirrorOutput::Vlan(_) => None,
        })
    }

    /// Returns the next of some mirrors that takes a packet of a VLAN, and notes that it and those with its output have it. `done` are
    /// the mirrors that have a copy of the packet.
    pub fn take(&self, of: MirrorSet, vid: u16, done: &mut MirrorSet) -> Option<&Mirror> {
        let takes = |mirror: &&Mirror| mirror.settings.vlans.as_ref().is_none_or(|vlans| vlans.has(vid));
        let mirror = of.without(*done).places().filter_map(|place| self.0.get(place)).find(takes)?;
        done.add(mirror.same_output);
        Some(mirror)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(numbers: &[u32]) -> PortSelection {
        PortSelection::Ports(numbers.iter().copied().collect())
    }

    fn settings(received: &[u32], sent: &[u32], output: MirrorOutput) -> MirrorSettings {
        let (received, sent) = (ports(received), ports(sent));
        let (name, members) = (String::new(), BTreeSet::new());
        MirrorSettings { name, received, sent, vlans: None, output, members, bytes_max: None }
    }

    fn mirrors(all: impl IntoIterator<Item = MirrorSettings>) -> Mirrors {
        Mirrors::new(all.into_iter().map(|one| (one, Arc::default())))
    }

    #[test]
    fn mirrors_with_an_output_in_common_take_a_packet_once() {
        let [five, nine] = [MirrorOutput::Port(PortNo(5)), MirrorOutput::Vlan(9)];
        let all = mirrors([
            MirrorSettings { received: PortSelection::All, ..settings(&[], &[], five) },
            settings(&[], &[2], nine),
            MirrorSettings { members: [6].into(), ..settings(&[], &[2, 3], five) },
        ]);
        assert!(all.of_port(PortNo(6)).is_output && !all.of_port(PortNo(7)).is_output);
        let [one, two, out] = [1, 2, 5].map(|port| all.of_port(PortNo(port)));
        assert!(!one.is_output && out.is_output && one.sent.is_empty() && all.take_sent());
        assert!(!mirrors([settings(&[1], &[], nine)]).take_sent());
        assert_eq!(all.output_ports().collect::<Vec<_>>(), [PortNo(5); 2]);
        let mut done = MirrorSet::default();
        assert_eq!(all.take(one.received, 0, &mut done).unwrap().settings.output, five);
        assert!(all.take(one.received, 0, &mut done).is_none());
        assert_eq!(all.take(two.sent, 0, &mut done).unwrap().settings.output, nine);
        assert!(all.take(two.sent, 0, &mut done).is_none());
        // Another packet, which only leaves.
        let mut done = MirrorSet::default();
        let outputs: Vec<_> =
            std::iter::from_fn(|| all.take(two.sent, 0, &mut done)).map(|one| one.settings.output).collect();
        assert_eq!(outputs, [nine, five]);
    }

    #[test]
    fn a_mirror_of_vlans_takes_packets_of_these_and_leaves_others_to_mirrors_with_its_output() {
        let of_vlan = |vids: Option<&[u16]>| MirrorSettings {
            vlans: vids.map(|vids| Vlans::of(vids.iter().copied())),
            ..settings(&[1], &[], MirrorOutput::Port(PortNo(5)))
        };
        let all = mirrors([of_vlan(Some(&[7])), of_vlan(None)]);
        let candidates = all.of_port(PortNo(1)).received;
        let taken = |vid| {
            let mirror = all.take(candidates, vid, &mut MirrorSet::default()).unwrap();
            mirror.settings.vlans.is_some()
        };
        assert_eq!([taken(7), taken(0), taken(8)], [true, false, false]);
    }

    #[test]
    fn a_bridge_has_32_mirrors_at_most() {
        let all = mirrors((0..40).map(|port| settings(&[port], &[], MirrorOutput::Vlan(port as u16))));
        assert!(!all.of_port(PortNo(31)).received.is_empty() && all.of_port(PortNo(32)).received.is_empty());
        let mut done = MirrorSet::default();
        let last = all.take(all.of_port(PortNo(31)).received, 0, &mut done).unwrap();
        last.counters.count(60);
        assert_eq!((last.settings.output, last.counters.get()), (MirrorOutput::Vlan(31), (1, 60)));
    }
}
