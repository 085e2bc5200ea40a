//! The `normal` action on live frames: a learning switch, with the VLANs of ports, their bonds and multicast snooping if there are any.

use flowlane::packet::key::FlowKey;

use super::Packet;
use super::bond::Exit;
use super::egress::{Egress, NO_PLACE, NS, finished};
use super::router::NO_PORT;
use crate::packet::Frame;
use crate::port::PortError;
use crate::ruleset::PortFlags;
use crate::state::fdb::NormalDecision;
use crate::state::vlan::{self, InVlan, Retag};

impl Egress {
    /// Switches a frame where all ports are trunks of all VLANs, and none is of a bond: no frame is changed.
    #[inline]
    pub(super) fn switch_frame(&mut self, packet: &Packet<'_>) -> Result<(), PortError> {
        if packet.frame.is_bare() {
            self.drops.no_ethernet += 1;
            return Ok(());
        }
        let number = packet.source.unwrap_or_else(|| self.ports.slots()[packet.port].number);
        let now_s = (packet.now_ns / NS) as u32;
        let decision = match number {
            // The router's own address is not learned: it is at no port.
            NO_PORT => self.macs.decide(None, packet.frame.bytes(), number, now_s),
            _ => self.macs.switch(packet.frame.bytes(), number, now_s),
        };
        match decision {
            NormalDecision::To(port) => match self.ports.place(port) {
                Some(place) if Some(place) != self.place_of(packet) => {
                    self.send(place, packet.frame, packet.key)
                }
                _ => Ok(()),
            },
            NormalDecision::Flood => {
                let from = self.place_of(packet).unwrap_or(NO_PLACE);
                self.send_to_others(packet.frame, packet.key, from, PortFlags::NOT_SWITCHED)
            }
            NormalDecision::Drop => {
                self.drops.reserved_address += 1;
                Ok(())
            }
        }
    }

    /// Switches a frame in the VLAN that it is in.
    #[cold]
    pub(super) fn switch_in_vlan(&mut self, packet: &Packet<'_>) -> Result<(), PortError> {
        let from = self.place_of(packet);
        let (frame, key) = (&*packet.frame, &*packet.key);
        if frame.is_bare() {
            self.drops.no_ethernet += 1;
            return Ok(());
        }
        let settings = from.map_or(&vlan::TRUNK, |place| self.ports.slots()[place].vlan());
        let Ok(in_vlan) = settings.receive(frame.bytes()) else {
            self.drops.not_in_vlan += 1;
            return Ok(());
        };
        let number = packet.source.unwrap_or_else(|| self.ports.slots()[packet.port].number);
        let Some(number) = self.admit(packet, number, in_vlan.vid) else { return Ok(()) };
        let now_s = (packet.now_ns / NS) as u32;
        let decision = match number {
            NO_PORT => self.macs.decide(Some(in_vlan.vid), frame.bytes(), number, now_s),
            _ => self.macs.switch_in(in_vlan.vid, frame.bytes(), number, now_s),
        };
        let exit = match decision {
            NormalDecision::To(port) => match self.ports.place(port) {
                Some(place) if !self.ports.is_one_port(from, place) => {
                    self.ports.exit(place, frame.bytes(), in_vlan.vid)
                }
                _ => return Ok(()),
            },
            NormalDecision::Flood => {
                return match self.group_ports(packet, from, number, in_vlan.vid) {
                    Some(ports) => self.send_to_group(ports, (frame, key), from, &in_vlan),
                    None => self.flood_in_vlan(frame, key, from.unwrap_or(NO_PLACE), &in_vlan),
                };
            }
            NormalDecision::Drop => {
                self.drops.reserved_address += 1;
                return Ok(());
            }
        };
        let Some(exit) = exit else {
            self.drops.not_by_member += 1;
            return Ok(());
        };
        // A port that has just left the VLAN gets nothing, though addresses may not have been removed yet.
        let settings = self.ports.slots()[exit.place].vlan();
        match settings.send(&in_vlan) {
            None if settings.is_protected_from(&in_vlan) => Ok(()),
            Some(retag) => self.leave(&exit, frame, key, retag, &mut None),
            None => self.flood_in_vlan(frame, key, from.unwrap_or(NO_PLACE), &in_vlan),
        }
    }

    /// Sends a frame through every port that carries it but the one at index `from`, and those that are left out of floods.
    fn flood_in_vlan(
        &mut self,
        frame: &Frame,
        key: &FlowKey,
        from: usize,
        in_vlan: &InVlan,
    ) -> Result<(), PortError> {
        let mut written = None;
        for target in 0..self.ports.flood_targets() {
            let exit =
                self.ports.flood_exit(target, from, frame.bytes(), in_vlan.vid, PortFlags::NOT_SWITCHED);
            let Some(exit) = exit else { continue };
            if let Some(retag) = self.ports.slots()[exit.place].vlan().send(in_vlan) {
                self.leave(&exit, frame, key, retag, &mut written)?;
            }
        }
        Ok(())
    }

    /// Sends a frame through a port, or a member of a bond, which counts it.
    pub(super) fn leave(
        &mut self,
        exit: &Exit,
        frame: &Frame,
        key: &FlowKey,
        retag: Option<Retag>,
        written: &mut Option<Retag>,
    ) -> Result<(), PortError> {
        exit.count(frame.len());
        self.send_retagged(exit.place, frame, key, retag, written)
    }

    /// Sends a frame with a change of its headers, made in a copy. `written` is the change that the copy has already.
    pub(super) fn send_retagged(
        &mut self,
        place: usize,
        frame: &Frame,
        key: &FlowKey,
        retag: Option<Retag>,
        written: &mut Option<Retag>,
    ) -> Result<(), PortError> {
        let Some(change) = retag else { return self.send(place, frame, key) };
        let mut copy = std::mem::take(&mut self.retagged);
        let sent = if frame.offload.is_some() {
            // The places that are to be completed are those of the frame as received.
            *written = None;
            finished(frame).iter().try_for_each(|piece| {
                write(change, piece, frame, &mut copy);
                self.send(place, &copy, key)
            })
        } else {
            if *written != retag {
                write(change, frame.bytes(), frame, &mut copy);
                *written = retag;
            }
            self.send(place, &copy, key)
        };
        self.retagged = copy;
        sent
    }
}

/// Makes `copy` a frame of these bytes with changed headers, which came when `frame` did.
pub(super) fn write(change: Retag, bytes: &[u8], frame: &Frame, copy: &mut Frame) {
    change.write(bytes, copy.space(change.sent_len(bytes.len())));
    copy.continue_as(frame);
}
