//! Frames for groups in the action `normal`, where multicast is snooped: they leave through the ports that want them.

use std::sync::Arc;

use flowlane::packet::key::FlowKey;
use flowlane::rule::action::PortNo;

use super::bond::Exit;
use super::egress::{Egress, NS, Packet};
use super::{Ports, Worker};
use crate::packet::Frame;
use crate::port::PortError;
use crate::ruleset::PortFlags;
use crate::state::multicast::{self, Snooping};
use crate::state::vlan::InVlan;

impl Ports {
    /// Returns where a frame in a VLAN leaves for the port at index `at` of those that it goes to: nowhere, if that is the port at
    /// `from`, one that has had it, or one that mirrors copy to.
    pub(super) fn group_exit(
        &self,
        ports: &[PortNo],
        at: usize,
        from: Option<usize>,
        (frame, vid): (&[u8], u16),
    ) -> Option<Exit> {
        let place = self.place(ports[at])?;
        let slot = &self.slots()[place];
        if self.is_one_port(from, place) || slot.flags.has_any(PortFlags::MIRROR_OUTPUT) {
            return None;
        }
        // A bond may have been learned by several of its members.
        let is_same = |port: &PortNo| self.is_one_port(self.place(*port), place);
        let has_had_it = slot.bond.is_some() && ports[..at].iter().any(is_same);
        if has_had_it { None } else { self.exit(place, frame, vid) }
    }
}

impl Egress {
    /// Learns listeners and routers from a frame in a VLAN whose source is learned at port `number`, and returns the ports that it goes
    /// to; `None`: all, as it is for none of the groups that are snooped.
    pub(super) fn group_ports(
        &mut self,
        packet: &Packet<'_>,
        from: Option<usize>,
        number: PortNo,
        vid: u16,
    ) -> Option<Vec<PortNo>> {
        let multicast = self.ports.multicast()?;
        let frame = multicast::read(packet.frame.bytes(), packet.frame.offload.is_none())?;
        let now_s = (packet.now_ns / NS) as u32;
        // Nothing is learned of packets that have come in at no port: those of the router, and of controllers that name none.
        if from.is_some() {
            multicast.learn(&frame, vid, number, now_s);
        }
        let mut ports = std::mem::take(&mut self.group_ports);
        if multicast.ports_for(&frame, vid, now_s, &mut ports) {
            return Some(ports);
        }
        self.group_ports = ports;
        None
    }

    /// Sends a frame in a VLAN through those of some ports that carry it, but not the one at index `from`.
    pub(super) fn send_to_group(
        &mut self,
        ports: Vec<PortNo>,
        (frame, key): (&Frame, &FlowKey),
        from: Option<usize>,
        in_vlan: &InVlan,
    ) -> Result<(), PortError> {
        let mut written = None;
        let sent = (0..ports.len()).try_for_each(|at| {
            let exit = self.ports.group_exit(&ports, at, from, (frame.bytes(), in_vlan.vid));
            let Some(exit) = exit else { return Ok(()) };
            match self.ports.slots()[exit.place].vlan().send(in_vlan) {
                Some(retag) => self.leave(&exit, frame, key, retag, &mut written),
                None => Ok(()),
            }
        });
        self.group_ports = ports;
        sent
    }
}

impl Worker {
    /// Snoops multicast with this table, which other workers share; `None`: packets for groups go to all ports.
    pub fn set_multicast(&mut self, multicast: Option<Arc<Snooping>>) {
        self.egress.ports.set_multicast(multicast);
    }
}
