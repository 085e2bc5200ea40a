//! Copies of packets for mirrors: of each that a port receives, before the tables, and of each that a port sends, behind it.
//!
//! ```text
//! port 1 ─ parse ─ copy as received ─► port 5      normal ─► port 2 ─ copy as sent ─► VLAN 9: ports 3, 4
//! ```
//!
//! Copies are made of live packets, when they are received or sent: no path depends on mirrors, and changing these invalidates none. The
//! flags of a port say that mirrors take what it sends, in the test of flags that each frame meets anyway.
//!
//! An output gets a packet once, so the packet has a set of mirrors that are done. It is kept here, for the packet under way: a worker
//! takes the packets of a burst through the tables one by one where mirrors may take them. Copies that `clone` and groups make of a packet share its
//! set, as in Open vSwitch; a packet that waits for fragments or a controller keeps its own. Packets that wait for tables on devices or
//! are handed to other workers would begin another set: a configuration has either those or mirrors (`mgmt/setup/mirrors.rs`).

use std::ops::Range;
use std::sync::Arc;

use flowlane::packet::key::FlowKey;

use super::egress::{Egress, finished};
use super::normal::write;
use super::ports::{PortSlot, Ports};
use super::validate::RunError;
use super::worker::Worker;
use crate::packet::{Burst, Frame};
use crate::port::PortError;
use crate::ruleset::PortFlags;
use crate::state::fdb;
use crate::state::mirror::{Mirror, MirrorOutput, MirrorSet, Mirrors};
use crate::state::vlan::{InVlan, Retag};

/// The mirrors of a worker, and those that have a copy of the packet under way.
#[derive(Default)]
pub(super) struct Mirroring {
    mirrors: Option<Arc<Mirrors>>,
    /// Some mirrors take what ports send.
    take_sent: bool,
    done: MirrorSet,
    /// A copy with other headers.
    copy: Frame,
    /// The first bytes of a copy.
    part: Frame,
}

impl Mirroring {
    /// Takes other mirrors.
    pub(super) fn set(&mut self, mirrors: Option<Arc<Mirrors>>) {
        self.mirrors = mirrors.filter(|mirrors| !mirrors.is_empty());
        self.take_sent = self.mirrors().is_some_and(Mirrors::take_sent);
        self.done = MirrorSet::default();
    }

    /// The mirrors, if there are any.
    pub(super) fn mirrors(&self) -> Option<&Mirrors> {
        self.mirrors.as_deref()
    }

    /// Returns whether there are mirrors that may take packets which a port has received, then or when they are sent.
    #[inline]
    pub(super) fn may_take(&self, slot: &PortSlot) -> bool {
        self.mirrors.is_some() && (self.take_sent || !slot.mirrors.received.is_empty())
    }

    /// The mirrors that have a copy of the packet under way.
    pub(super) fn done(&self) -> MirrorSet {
        self.done
    }

    /// Goes on with a packet of which these mirrors have a copy. Returns those that have one of the packet before.
    pub(super) fn resume(&mut self, done: MirrorSet) -> MirrorSet {
        std::mem::replace(&mut self.done, done)
    }
}

impl Ports {
    /// The VLAN of a frame that passes the port at a place; none where the port does not carry it: as in Open vSwitch, no mirror takes
    /// such a frame.
    pub(super) fn in_vlan_of(&self, place: usize, frame: &[u8]) -> Option<InVlan> {
        self.slots()[place].vlan().receive(frame).ok()
    }

    /// The places of the ports that may get copies of a mirror.
    pub(super) fn places_of(&self, mirror: &Mirror, in_vlan: &InVlan, frame: &[u8]) -> Range<usize> {
        match mirror.settings.output {
            MirrorOutput::Port(port) => {
                let exit = self.place(port).and_then(|place| self.exit(place, frame, in_vlan.vid));
                exit.map_or(0..0, |exit| exit.place..exit.place + 1)
            }
            MirrorOutput::Vlan(vid) if vid == in_vlan.vid || fdb::is_reserved(frame) => 0..0,
            MirrorOutput::Vlan(_) => 0..self.len(),
        }
    }

    /// The change of a frame's headers for the copy of a mirror through the port at a place; `None`, if the port gets no copy.
    pub(super) fn copy_at(
        &self,
        place: usize,
        mirror: &Mirror,
        in_vlan: &InVlan,
        frame: &[u8],
    ) -> Option<Option<Retag>> {
        let slot = &self.slots()[place];
        // A bond sends one copy.
        if slot.bond.is_some() && self.exit(place, frame, in_vlan.vid).is_none_or(|exit| exit.place != place)
        {
            return None;
        }
        match mirror.settings.output {
            _ if !slot.port.sends() => None,
            MirrorOutput::Port(_) => Some(slot.vlan().send_copy(in_vlan)),
            MirrorOutput::Vlan(vid) => {
                let moved = in_vlan.moved_to(vid);
                let is_sent =
                    !slot.flags.has_any(PortFlags::MIRROR_OUTPUT) && slot.vlan().carries_copy(&moved);
                is_sent.then(|| slot.vlan().send_copy(&moved))
            }
        }
    }
}

/// Begins the way of a lane's packet, of which no mirror has a copy yet, with the copies of the packet as received.
#[cold]
pub(super) fn mirror_received(worker: &mut Worker, burst: &Burst, lane: usize) -> Result<(), RunError> {
    let egress = &mut worker.egress;
    egress.mirroring.resume(MirrorSet::default());
    // A controller may say that a packet came in through a port that does not exist.
    if burst.source(lane).is_none() {
        let mirrors = egress.ports.slots()[burst.port].mirrors.received;
        egress.mirror(mirrors, burst.port, &burst.frames[lane], &burst.keys[lane])?;
    }
    Ok(())
}

impl Egress {
    /// The mirrors, if there are any.
    pub fn mirrors(&self) -> Option<&Mirrors> {
        self.mirroring.mirrors()
    }

    /// Copies a frame that the port at a place sends to the mirrors that take it.
    pub(super) fn mirror_sent(
        &mut self,
        place: usize,
        frame: &Frame,
        key: &FlowKey,
    ) -> Result<(), PortError> {
        self.mirror(self.ports.slots()[place].mirrors.sent, place, frame, key)
    }

    /// Copies a frame that passes the port at a place to those of some mirrors that take it and have no copy of its packet.
    fn mirror(
        &mut self,
        mirrors: MirrorSet,
        place: usize,
        frame: &Frame,
        key: &FlowKey,
    ) -> Result<(), PortError> {
        if mirrors.without(self.mirroring.done).is_empty() || frame.is_bare() {
            return Ok(());
        }
        let all = self.mirroring.mirrors.clone();
        let in_vlan = self.ports.in_vlan_of(place, frame.bytes());
        let (Some(all), Some(in_vlan)) = (all, in_vlan) else { return Ok(()) };
        // A copy that is sent may be mirrored, too.
        while let Some(mirror) = all.take(mirrors, in_vlan.vid, &mut self.mirroring.done) {
            mirror.counters.count(frame.counted.into());
            for to in self.ports.places_of(mirror, &in_vlan, frame.bytes()) {
                if let Some(retag) = self.ports.copy_at(to, mirror, &in_vlan, frame.bytes()) {
                    self.send_copy(to, frame, key, (retag, mirror.settings.bytes_max))?;
                }
            }
        }
        Ok(())
    }

    /// Sends a copy of a frame with a change of its headers, and no more than some bytes of it. Mirrors of the copy take all of it.
    fn send_copy(
        &mut self,
        place: usize,
        frame: &Frame,
        key: &FlowKey,
        (retag, bytes_max): (Option<Retag>, Option<u16>),
    ) -> Result<(), PortError> {
        let bytes_max = bytes_max.map_or(usize::MAX, usize::from);
        if retag.is_none() && frame.len() <= bytes_max {
            return self.send(place, frame, key);
        }
        let Mirroring { copy, part, .. } = &mut self.mirroring;
        let (mut copy, mut part) = (std::mem::take(copy), std::mem::take(part));
        let mut send_one = |egress: &mut Self, bytes: &[u8]| {
            write(retag.unwrap_or_default(), bytes, frame, &mut copy);
            if copy.len() <= bytes_max {
                return egress.send(place, &copy, key);
            }
            part.fill(&copy.bytes()[..bytes_max]);
            part.continue_as(frame);
            egress.send_part(place, &part, &copy, key)
        };
        let sent = match frame.offload {
            // The places that are to be completed are those of the frame as it is.
            Some(_) => finished(frame).iter().try_for_each(|piece| send_one(self, piece)),
            None => send_one(self, frame.bytes()),
        };
        (self.mirroring.copy, self.mirroring.part) = (copy, part);
        sent
    }
}
