//! The worker's ports, by number.

use std::ops::AddAssign;
#[cfg(target_os = "linux")]
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowlane::rule::action::PortNo;
use serde::{Deserialize, Serialize};

use super::Worker;
use super::arrivals::Arrivals;
use super::bfd::BfdInlet;
use super::inlet::Inlet;
use super::spanning_tree::TreeView;
use crate::packet::Spread;
use crate::port::{NullPort, Port, PortError};
use crate::ruleset::{PortFlags, PortVlans};
use crate::state::bond::BondView;
use crate::state::mirror::{Mirrors, PortMirrors};
use crate::state::multicast::Snooping;
use crate::state::policer::PortPolicers;
use crate::state::rstp::PortState;
use crate::state::vlan::{self, PortVlan};
use crate::tunnel::PortTunnel;

/// Packets and bytes of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCounters {
    /// Received packets.
    pub rx_packets: u64,
    pub rx_bytes: u64,
    /// Sent packets.
    pub tx_packets: u64,
    pub tx_bytes: u64,
    /// Packets that the port did not take, or that its settings refuse.
    pub tx_dropped: u64,
    /// Packets that came and that the system could not hand over, or that the port's settings refuse.
    pub rx_dropped: u64,
}

impl PortCounters {
    /// Does this for each of ours and theirs.
    fn each(&mut self, theirs: &Self, change: impl Fn(&mut u64, u64)) {
        change(&mut self.rx_packets, theirs.rx_packets);
        change(&mut self.rx_bytes, theirs.rx_bytes);
        change(&mut self.tx_packets, theirs.tx_packets);
        change(&mut self.tx_bytes, theirs.tx_bytes);
        change(&mut self.tx_dropped, theirs.tx_dropped);
        change(&mut self.rx_dropped, theirs.rx_dropped);
    }

    /// Returns the difference to `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.each(before, |now, before| *now = now.saturating_sub(before));
        self
    }
}

impl AddAssign for PortCounters {
    fn add_assign(&mut self, other: Self) {
        self.each(&other, |sum, other| *sum += other);
    }
}

/// A port with its number, name and counters.
pub struct PortSlot {
    /// Its number in rules.
    pub number: PortNo,
    /// Its name in rules and reports.
    pub name: String,
    /// The text that it was opened from.
    pub spec: String,
    /// Whether tunnels are terminated here: frames of tunnels are matched on the inner packet, with
    /// the tunnel fields set. Where tunnels are configured, theirs only, and validated; else all.
    pub decapsulate: bool,
    /// The routing instance that tunnels' outer packets come in through.
    pub vrf: u32,
    /// The port itself.
    pub port: Box<dyn Port>,
    /// The tunnel that it is, if it is one.
    pub tunnel: Option<Box<PortTunnel>>,
    /// Where its control packets of BFD go, if it has a session.
    pub bfd: Option<Arc<BfdInlet>>,
    /// Where its PDUs of LACP go, if it speaks LACP.
    pub lacp: Option<Arc<Inlet>>,
    /// Where its BPDUs go, if it takes part in a spanning tree.
    pub tree: Option<Arc<Inlet>>,
    /// The bond that it is a member of, if any.
    pub bond: Option<Arc<BondView>>,
    /// Whether its frames are parsed [as a capture has them](crate::packet::Frame::captured).
    pub is_capture: bool,
    /// To whom its frames go, where it does not know; by flow, where nothing is said.
    pub spread: Option<Spread>,
    /// Its settings.
    pub flags: PortFlags,
    /// Its VLAN settings, if it has any.
    pub vlan: Option<Arc<PortVlan>>,
    /// The mirrors that take its packets.
    pub(super) mirrors: PortMirrors,
    /// Its policers, if it has any.
    pub(super) policers: Option<Arc<PortPolicers>>,
    /// Its counters.
    pub counters: PortCounters,
    /// Cycles that what came in here took.
    pub cycles: u64,
    /// It has come to its end: nothing more will be received.
    pub finished: bool,
    /// Nothing more is received in this run, which ends.
    pub(super) drained: bool,
    /// When it was removed; packets that came in here may be under way, and know it by its place.
    gone: Option<Instant>,
}

impl PortSlot {
    /// A port of this number.
    pub fn new(number: PortNo, name: &str, spec: &str, port: Box<dyn Port>) -> Self {
        Self {
            number,
            name: name.to_owned(),
            spec: spec.to_owned(),
            spread: None,
            decapsulate: false,
            vrf: 0,
            is_capture: port.is_capture(),
            tunnel: None,
            bfd: None,
            lacp: None,
            tree: None,
            bond: None,
            port,
            flags: PortFlags::default(),
            vlan: None,
            mirrors: PortMirrors::default(),
            policers: None,
            counters: PortCounters::default(),
            cycles: 0,
            finished: false,
            drained: false,
            gone: None,
        }
    }

    /// Removes the port, whose place stays.
    fn remove(&mut self) -> Box<dyn Port> {
        (self.gone, self.finished) = (Some(Instant::now()), true);
        (self.flags, self.vlan) = (PortFlags::DOWN, None);
        self.counters = PortCounters::default();
        (self.tunnel, self.bfd, self.lacp, self.tree, self.bond) = (None, None, None, None, None);
        (self.mirrors, self.policers) = (PortMirrors::default(), None);
        std::mem::replace(&mut self.port, Box::new(NullPort))
    }

    /// Returns whether nothing more is received here.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.finished || self.drained
    }

    /// Takes the mirrors that concern the port, and notes in its flags that there are such.
    pub(super) fn take_mirrors(&mut self, mirrors: Option<&Mirrors>) {
        self.mirrors = mirrors.map(|mirrors| mirrors.of_port(self.number)).unwrap_or_default();
        self.note(PortFlags::MIRRORED, !self.mirrors.sent.is_empty());
        self.note(PortFlags::MIRROR_OUTPUT, self.mirrors.is_output);
    }

    /// Takes the port's state in the spanning tree, and notes it in its flags.
    fn take_tree(&mut self, tree: Option<&TreeView>) {
        let own = tree.and_then(|tree| tree.0.get(&self.number));
        self.tree = own.map(|(_, inlet)| inlet.clone());
        let state = own.map_or(PortState::Forwarding, |(state, _)| *state);
        self.note(PortFlags::DISCARDS, state != PortState::Forwarding);
        self.note(PortFlags::LEARNS, state == PortState::Learning);
    }

    /// Takes the port's policers, and notes in its flags that there are such.
    pub(super) fn take_policers(&mut self, policers: Option<&Arc<PortPolicers>>) {
        self.policers = policers.cloned();
        let policers = self.policers.as_deref();
        let (received, sent) =
            policers.map_or((false, false), |of| (of.received.is_some(), of.sent.is_some()));
        self.note(PortFlags::POLICES_RECEIVED, received);
        self.note(PortFlags::POLICES_SENT, sent);
    }

    /// Takes tokens for a frame that is to be sent. Returns whether it exceeds the port's limit.
    pub(super) fn polices_sent(&self, bytes: usize, now_ns: u64) -> bool {
        let policer = self.policers.as_ref().and_then(|of| of.sent.as_ref());
        policer.is_some_and(|policer| !policer.allow(bytes, now_ns))
    }

    /// Takes tokens for a received frame. Returns whether it exceeds the port's limit.
    pub(super) fn polices_received(&self, bytes: usize, now_ns: u64) -> bool {
        let policer = self.policers.as_ref().and_then(|of| of.received.as_ref());
        policer.is_some_and(|policer| !policer.allow(bytes, now_ns))
    }

    /// Sets a flag that follows from another setting.
    fn note(&mut self, flag: PortFlags, is_set: bool) {
        self.flags = self.flags.with(if is_set { flag } else { PortFlags::default() }, flag);
    }

    /// Returns the VLANs that it carries.
    pub(super) fn vlan(&self) -> &PortVlan {
        self.vlan.as_deref().unwrap_or(&vlan::TRUNK)
    }

    /// Returns whether frames may leave here, and its link is up.
    pub fn is_up(&self) -> bool {
        self.port.sends() && !self.flags.has_any(PortFlags::NOT_UP)
    }

    /// Returns whether frames may leave here, its link is up, and its other end is reached, as far as is known.
    pub fn is_live(&self) -> bool {
        self.port.sends() && !self.flags.has_any(PortFlags::NOT_LIVE)
    }

    /// Hands queued frames to the system, and counts those that it does not take.
    ///
    /// # Errors
    /// When the port has failed for good.
    pub fn flush(&mut self) -> Result<(), PortError> {
        let dropped = self.port.flush()?;
        self.counters.tx_dropped += dropped;
        self.counters.tx_packets -= dropped.min(self.counters.tx_packets);
        Ok(())
    }
}

impl Worker {
    /// Adds a port while the worker runs, as [`Ports::put`].
    pub fn put_port(&mut self, place: usize, slot: PortSlot) -> Option<Box<dyn Port>> {
        self.merge.restart(place);
        self.egress.ports.put(place, slot)
    }
}

const NO_PLACE: u16 = u16::MAX;

/// The place of a port that is gone is not used again for this long, until no packet that came in there is under way any more.
const PLACE_RESTS: Duration = Duration::from_secs(1);

/// The ports of a worker.
pub struct Ports {
    slots: Vec<PortSlot>,
    /// Port number → place; [`NO_PLACE`] where there is no such port.
    places: Vec<u16>,
    /// All ports are trunks of all VLANs, none is of a bond, and all get frames for groups.
    is_plain: bool,
    /// The bonds, whose members may not be there yet.
    bonds: Arc<[Arc<BondView>]>,
    /// The states of ports in the spanning tree, some of which may not be there yet.
    tree: Option<Arc<TreeView>>,
    /// The ports that want the packets of groups; `None`: all do.
    multicast: Option<Arc<Snooping>>,
    /// Ports come and go: a run does not end with those that there are.
    stays: bool,
    /// Those where frames may have arrived.
    arrivals: Arrivals,
}

impl Default for Ports {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            places: Vec::new(),
            is_plain: true,
            bonds: Vec::new().into(),
            tree: None,
            multicast: None,
            stays: false,
            arrivals: Arrivals::default(),
        }
    }
}

impl Ports {
    /// Adds a port and returns its place.
    ///
    /// # Panics
    /// Where the number is beyond [`PortNo::MAX`] and not [`PortNo::LOCAL`], or in use; the configuration's reader refuses both.
    pub fn add(&mut self, mut slot: PortSlot) -> usize {
        assert!(slot.number <= PortNo::MAX || slot.number == PortNo::LOCAL, "port number {}", slot.number.0);
        let place = self.slots.len();
        self.set_place(slot.number, place);
        slot.bond = self.bond_of(slot.number);
        slot.take_tree(self.tree.as_deref());
        self.is_plain &= slot.vlan.is_none() && slot.bond.is_none();
        self.arrivals.forget();
        self.slots.push(slot);
        place
    }

    fn set_place(&mut self, number: PortNo, place: usize) {
        let number = number.0 as usize;
        if self.places.len() <= number {
            self.places.resize(number + 1, NO_PLACE);
        }
        assert_eq!(self.places[number], NO_PLACE, "port number {number} is in use");
        self.places[number] = place as u16;
    }

    /// Adds a port while the worker runs: at a place behind the others, or one whose port is gone. The port of its number goes, and is
    /// returned.
    ///
    /// # Panics
    /// Where the place has a port of another number, or is further behind.
    pub fn put(&mut self, place: usize, mut slot: PortSlot) -> Option<Box<dyn Port>> {
        let before = self.remove(slot.number);
        match self.slots.get(place) {
            Some(gone) => {
                assert!(gone.gone.is_some(), "place {place} has a port");
                self.set_place(slot.number, place);
                slot.bond = self.bond_of(slot.number);
                self.arrivals.forget();
                slot.take_tree(self.tree.as_deref());
                self.slots[place] = slot;
                self.note_plain();
            }
            None => assert_eq!(self.add(slot), place, "places follow each other"),
        }
        before
    }

    /// The place for a new port: of one that has been gone for a while, or behind all others.
    pub fn free_place(&self) -> usize {
        let has_rested = |slot: &PortSlot| slot.gone.is_some_and(|since| since.elapsed() >= PLACE_RESTS);
        self.slots.iter().position(has_rested).unwrap_or(self.slots.len())
    }

    /// Asks which ports may have frames; until then, all may.
    #[inline]
    pub(super) fn ask_for_arrivals(&mut self) {
        self.arrivals.ask(&self.slots);
    }

    /// Returns descriptors that are readable while a port has frames: of all ports together, or one of each. None where some port has none.
    #[cfg(target_os = "linux")]
    pub(super) fn descriptors(&self) -> Option<Vec<BorrowedFd<'_>>> {
        if let Some(all) = self.arrivals.descriptor() {
            return Some(vec![all]);
        }
        let receiving = self.slots.iter().filter(|slot| !slot.is_over());
        receiving.map(|slot| slot.port.descriptor()).collect()
    }

    /// Returns whether the port at a place may have frames, and its run is not over.
    #[inline]
    pub(super) fn may_receive(&self, place: usize) -> bool {
        self.arrivals.are_at(place) && !self.slots[place].is_over()
    }

    /// Lets runs go on when no port receives any more: others may come.
    pub fn stay(&mut self) {
        self.stays = true;
    }

    /// Removes a port while the worker runs, and returns it.
    pub fn remove(&mut self, number: PortNo) -> Option<Box<dyn Port>> {
        self.stay();
        let place = self.place(number)?;
        self.places[number.0 as usize] = NO_PLACE;
        self.arrivals.forget();
        Some(self.slots[place].remove())
    }

    /// The place of a port number.
    #[inline]
    pub fn place(&self, number: PortNo) -> Option<usize> {
        self.places.get(number.0 as usize).filter(|&&p| p != NO_PLACE).map(|&p| p.into())
    }

    /// The ports.
    pub fn iter(&self) -> impl Iterator<Item = &PortSlot> {
        self.slots.iter().filter(|slot| slot.gone.is_none())
    }

    /// The ports, in the order of their numbers.
    pub fn in_order(&self) -> Vec<&PortSlot> {
        let mut all: Vec<&PortSlot> = self.iter().collect();
        all.sort_by_key(|slot| slot.number);
        all
    }

    /// The ports, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut PortSlot> {
        self.slots.iter_mut().filter(|slot| slot.gone.is_none())
    }

    /// All places: those of ports that are gone neither receive nor send.
    #[inline]
    pub fn slots(&self) -> &[PortSlot] {
        &self.slots
    }

    /// All places, to be used.
    #[inline]
    pub fn slots_mut(&mut self) -> &mut [PortSlot] {
        &mut self.slots
    }

    /// Returns whether all ports are trunks of all VLANs, none is of a bond, and all get frames for groups.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.is_plain
    }

    fn note_plain(&mut self) {
        let is_plain = |slot: &PortSlot| slot.vlan.is_none() && slot.bond.is_none();
        self.is_plain = self.multicast.is_none() && self.slots.iter().all(is_plain);
    }

    /// Gives the ports these VLAN settings.
    pub fn set_vlans(&mut self, vlans: &PortVlans) {
        for slot in self.iter_mut() {
            slot.vlan = vlans.get(&slot.number.0).cloned();
        }
        self.note_plain();
    }

    /// Makes the bonds these. Members that come later are theirs, too.
    pub fn set_bonds(&mut self, bonds: Vec<Arc<BondView>>) {
        self.bonds = bonds.into();
        let bonds = self.bonds.clone();
        for slot in self.iter_mut() {
            slot.bond = bonds.iter().find(|bond| bond.has(slot.number)).cloned();
        }
        self.note_plain();
    }

    /// Gives the ports these states in a spanning tree, also those that come later; `None`: all forward.
    pub fn set_tree(&mut self, tree: Option<Arc<TreeView>>) {
        self.tree = tree;
        let tree = self.tree.clone();
        self.iter_mut().for_each(|slot| slot.take_tree(tree.as_deref()));
    }

    /// Sends packets for groups to the ports that want them; `None`: to all.
    pub fn set_multicast(&mut self, multicast: Option<Arc<Snooping>>) {
        self.multicast = multicast;
        self.note_plain();
    }

    /// The ports that want the packets of groups, if that is known.
    pub fn multicast(&self) -> Option<&Arc<Snooping>> {
        self.multicast.as_ref()
    }

    /// The bonds.
    pub fn bonds(&self) -> &Arc<[Arc<BondView>]> {
        &self.bonds
    }

    fn bond_of(&self, port: PortNo) -> Option<Arc<BondView>> {
        self.bonds.iter().find(|bond| bond.has(port)).cloned()
    }

    /// Number of places.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether there are no places.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns whether no port receives any more, and none will come, in a run that `stops` or goes on.
    pub fn all_finished(&self, stops: bool) -> bool {
        (stops || !self.stays) && self.slots.iter().all(PortSlot::is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: u32) -> PortSlot {
        PortSlot::new(PortNo(number), &format!("p{number}"), "null", Box::new(NullPort))
    }

    fn numbers(ports: &Ports) -> Vec<u32> {
        ports.iter().map(|slot| slot.number.0).collect()
    }

    #[test]
    fn a_port_that_comes_takes_no_place_where_packets_may_be_under_way() {
        let mut ports = Ports::default();
        (1..=3).for_each(|number| _ = ports.add(slot(number)));
        assert!(!ports.all_finished(false));
        assert!(ports.remove(PortNo(2)).is_some() && ports.remove(PortNo(2)).is_none());
        assert_eq!((numbers(&ports), ports.place(PortNo(2)), ports.free_place()), (vec![1, 3], None, 3));
        let gone = &ports.slots()[1];
        assert!(gone.number == PortNo(2) && gone.is_over() && gone.flags.has_any(PortFlags::NOT_FLOODED));
        assert!(ports.put(3, slot(2)).is_none());
        assert_eq!((numbers(&ports), ports.place(PortNo(2))), (vec![1, 3, 2], Some(3)));
        // After a while the place is free.
        ports.slots[1].gone = Instant::now().checked_sub(PLACE_RESTS);
        assert_eq!(ports.free_place(), 1);
        // A port of this number goes.
        assert!(ports.put(1, slot(3)).is_some());
        assert_eq!((numbers(&ports), ports.place(PortNo(3))), (vec![1, 3, 2], Some(1)));
        assert!(ports.slots()[2].is_over());
        ports.slots[2].gone = Instant::now().checked_sub(PLACE_RESTS);
        assert!(ports.put(2, slot(PortNo::LOCAL.0)).is_none());
        assert_eq!(ports.place(PortNo::LOCAL), Some(2));
    }

    #[test]
    fn a_run_whose_ports_come_and_go_ends_when_it_is_stopped() {
        let mut ports = Ports::default();
        ports.add(slot(1));
        ports.slots[0].finished = true;
        assert!(ports.all_finished(false));
        ports.remove(PortNo(1));
        assert!(!ports.all_finished(false) && ports.all_finished(true));
    }
}
