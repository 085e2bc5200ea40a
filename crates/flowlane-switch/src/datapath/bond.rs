//! Bonds in the actions `normal` and `flood`: the members that let frames in, and those that frames leave through.
//!
//! A bond is found by any of its members: the one at a place knows it, and the number of an address in the FDB is that of the first
//! member. Nothing of this is part of a path: members change between two packets.

use std::sync::Arc;

use flowlane::packet::key::FlowKey;
use flowlane::rule::action::PortNo;

use super::egress::{Egress, NO_PLACE, NS, Packet};
use super::{Ports, Worker};
use crate::packet::Frame;
use crate::port::PortError;
use crate::ruleset::PortFlags;
use crate::state::bond::{Admission, BondView, is_gratuitous_arp};
use crate::state::vlan::{self, InVlan};

/// A gratuitous ARP that comes back through a bond within this time says nothing of where its sender is.
const ARP_LOCK_S: u32 = 5;
/// Addresses whose gratuitous ARPs are remembered.
const ARPS_MAX: usize = 1024;
/// Addresses that are announced through a bond after a change.
const ANNOUNCED_MAX: usize = 8192;

/// The senders of gratuitous ARPs at ports that are no bonds: their frames may come back through a bond.
#[derive(Debug, Default)]
pub(super) struct SeenArps(Vec<(u64, u16, u32)>);

impl SeenArps {
    fn note(&mut self, mac: u64, vid: u16, now_s: u32) {
        self.0.retain(|(one, of, at_s)| now_s < at_s + ARP_LOCK_S && (*one, *of) != (mac, vid));
        if self.0.len() < ARPS_MAX {
            self.0.push((mac, vid, now_s));
        }
    }

    fn has(&self, mac: u64, vid: u16, now_s: u32) -> bool {
        self.0.iter().any(|(one, of, at_s)| (*one, *of) == (mac, vid) && now_s < at_s + ARP_LOCK_S)
    }
}

/// Where a frame leaves: a place, and the bond with the bucket that counts it.
pub(super) struct Exit {
    pub(super) place: usize,
    counted: Option<(Arc<BondView>, Option<u8>)>,
}

fn source_of(frame: &[u8]) -> u64 {
    let bytes = frame.get(6..12).unwrap_or(&[0; 6]);
    bytes.iter().fold(0, |mac, &byte| mac << 8 | u64::from(byte))
}

impl Ports {
    /// Returns the bond of the port at a place.
    pub(super) fn bond_at(&self, place: Option<usize>) -> Option<&Arc<BondView>> {
        self.slots().get(place?)?.bond.as_ref()
    }

    /// Returns whether two places are of one port: of one bond, or the same.
    pub(super) fn is_one_port(&self, one: Option<usize>, other: usize) -> bool {
        let is_one_bond =
            |bond: &Arc<BondView>| self.slots()[other].bond.as_ref().is_some_and(|of| Arc::ptr_eq(of, bond));
        one == Some(other) || self.bond_at(one).is_some_and(is_one_bond)
    }

    /// Returns where a frame in a VLAN leaves for the port at a place, which may be a member of a bond.
    pub(super) fn exit(&self, place: usize, frame: &[u8], vid: u16) -> Option<Exit> {
        match self.bond_at(Some(place)) {
            None => Some(Exit { place, counted: None }),
            Some(bond) => self.exit_of(bond, frame, vid),
        }
    }

    /// Returns where a frame in a VLAN leaves through a bond.
    pub(super) fn exit_of(&self, bond: &Arc<BondView>, frame: &[u8], vid: u16) -> Option<Exit> {
        let (port, bucket) = bond.member_for(frame, vid)?;
        Some(Exit { place: self.place(port)?, counted: Some((bond.clone(), bucket)) })
    }

    /// The number of places and bonds where flooded frames may leave, by their numbers for [`flood_exit`](Self::flood_exit).
    pub(super) fn flood_targets(&self) -> usize {
        self.len() + self.bonds().len()
    }

    /// Returns where a flooded frame in a VLAN leaves for the next port that is no member, or the next bond; none for the port at
    /// `from`, its bond, and ports that have one of some flags.
    pub(super) fn flood_exit(
        &self,
        target: usize,
        from: usize,
        frame: &[u8],
        vid: u16,
        without: PortFlags,
    ) -> Option<Exit> {
        let exit = match self.slots().get(target) {
            Some(slot) if target == from || slot.bond.is_some() => return None,
            Some(_) => Exit { place: target, counted: None },
            None => {
                let bond = self.bonds().get(target - self.len())?;
                let is_own = self.bond_at(Some(from)).is_some_and(|own| Arc::ptr_eq(own, bond));
                self.exit_of(bond, frame, vid).filter(|_| !is_own)?
            }
        };
        let slot = &self.slots()[exit.place];
        (slot.port.sends() && !slot.flags.has_any(without)).then_some(exit)
    }
}

impl Exit {
    /// Counts a frame that leaves here.
    pub(super) fn count(&self, bytes: usize) {
        if let Some((bond, bucket)) = &self.counted {
            bond.count(*bucket, bytes);
        }
    }
}

impl Egress {
    /// Returns the number under which the source of a frame is learned that came in through a port: that of its bond, if it has one.
    /// `None`: the bond does not let it in, which is counted.
    pub(super) fn admit(&mut self, packet: &Packet<'_>, port: PortNo, vid: u16) -> Option<PortNo> {
        if self.ports.bonds().is_empty() {
            return Some(port);
        }
        let (frame, now_s) = (packet.frame.bytes(), (packet.now_ns / NS) as u32);
        let place = self.place_of(packet);
        if self.ports.bond_at(place).is_none() && is_gratuitous_arp(frame) {
            self.seen_arps.note(source_of(frame), vid, now_s);
        }
        let admitted = self.admitted(place, port, frame, vid, now_s);
        self.drops.not_by_member += u64::from(admitted.is_none());
        admitted
    }

    /// Returns what [`admit`](Self::admit) does, for a frame that came in through the port at a place. Nothing changes.
    pub(super) fn admitted(
        &self,
        place: Option<usize>,
        port: PortNo,
        frame: &[u8],
        vid: u16,
        now_s: u32,
    ) -> Option<PortNo> {
        let Some(bond) = self.ports.bond_at(place) else { return Some(port) };
        let is_let_in = match bond.admission(port, frame) {
            Admission::Accept => true,
            Admission::Drop => false,
            Admission::AcceptUnlessLearnedElsewhere => {
                let source = source_of(frame);
                let learned = self.macs.lookup(source, vid, now_s);
                let has_moved = || is_gratuitous_arp(frame) && !self.seen_arps.has(source, vid, now_s);
                learned.is_none_or(|learned| bond.has(learned)) || has_moved()
            }
        };
        bond.lead().filter(|_| is_let_in)
    }

    /// Floods a frame where ports are bonds: each sends it once.
    #[cold]
    pub(super) fn flood_with_bonds(&mut self, packet: &Packet<'_>) -> Result<(), PortError> {
        let from = self.place_of(packet).unwrap_or(NO_PLACE);
        let frame = packet.frame.bytes();
        let vid = vlan::TRUNK.receive(frame).map_or(0, |in_vlan| in_vlan.vid);
        for target in 0..self.ports.flood_targets() {
            let Some(exit) = self.ports.flood_exit(target, from, frame, vid, PortFlags::NOT_FLOODED) else {
                continue;
            };
            exit.count(packet.frame.len());
            self.send(exit.place, packet.frame, packet.key)?;
        }
        Ok(())
    }

    /// Sends frames through a bond that say where learned addresses are: those of other ports are behind this switch.
    fn announce(&mut self, bond: &Arc<BondView>, now_s: u32) -> Result<(), PortError> {
        let (mut frame, key) = (Frame::default(), FlowKey::zero());
        let mut announced = 0;
        let mut from = Some(0);
        while let Some(at) = from {
            let (entries, next) = self.macs.entries_from(at, 4096);
            from = next;
            for (mac, vid, port, _) in entries {
                let is_behind = !bond.has(port) && self.macs.lookup(mac, vid, now_s).is_some();
                if !is_behind || announced == ANNOUNCED_MAX {
                    continue;
                }
                announced += 1;
                announcement(mac, vid, &mut frame);
                let Some(exit) = self.ports.exit_of(bond, frame.bytes(), vid) else { return Ok(()) };
                let Ok(in_vlan) = vlan::TRUNK.receive(frame.bytes()) else { continue };
                self.send_in_vlan(&exit, &frame, &key, &in_vlan)?;
            }
        }
        Ok(())
    }

    /// Sends a frame as the port at a place carries it, if it does.
    fn send_in_vlan(
        &mut self,
        exit: &Exit,
        frame: &Frame,
        key: &FlowKey,
        in_vlan: &InVlan,
    ) -> Result<(), PortError> {
        match self.ports.slots()[exit.place].vlan().send(in_vlan) {
            Some(retag) => self.send_retagged(exit.place, frame, key, retag, &mut None),
            None => Ok(()),
        }
    }
}

/// Makes a frame that says where an address is: a reverse ARP request (RFC 903) from it for itself, in its VLAN.
fn announcement(mac: u64, vid: u16, frame: &mut Frame) {
    let mac = &mac.to_be_bytes()[2..];
    let mut bytes = [&[0xff; 6], mac].concat();
    if vid != 0 {
        bytes.extend([0x81, 0]);
        bytes.extend(vid.to_be_bytes());
    }
    // Type 0x8035; Ethernet and IPv4, and operation 3; addresses of the sender and the target.
    bytes.extend([0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    bytes.extend([mac, &[0; 4], mac, &[0; 4]].concat());
    bytes.resize(60 + if vid == 0 { 0 } else { 4 }, 0);
    frame.fill(&bytes);
}

impl Worker {
    /// Makes the bonds of the ports these. Through those with a member of `announced`, neighbours learn again where addresses are.
    pub fn set_bonds(&mut self, bonds: Vec<Arc<BondView>>, announced: &[PortNo]) {
        self.egress.ports.set_bonds(bonds);
        let now_s = (self.now_ns() / NS) as u32;
        let bonds = self.egress.ports.bonds().clone();
        for bond in bonds.iter().filter(|bond| announced.iter().any(|port| bond.has(*port))) {
            // A port that fails for good ends the run by the next packet.
            _ = self.egress.announce(bond, now_s);
        }
    }
}
