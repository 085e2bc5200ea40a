//! Sending a frame where that is more than handing it to its port: limits, mirrors, tunnels, offloads.

use flowlane::packet::key::FlowKey;

use super::{Egress, finished};
use crate::packet::Frame;
use crate::port::PortError;
use crate::ruleset::PortFlags;
use crate::tunnel::Unsent;

impl Egress {
    /// Sends a frame, or a part of it, through a port that refuses, polices or mirrors what it sends. Mirrors take the whole frame.
    #[cold]
    pub(super) fn send_with_care(
        &mut self,
        place: usize,
        part: &Frame,
        whole: &Frame,
        key: &FlowKey,
    ) -> Result<(), PortError> {
        let slot = &mut self.ports.slots_mut()[place];
        if slot.flags.refuses_sent(whole.bytes()) {
            slot.counters.tx_dropped += 1;
            return Ok(());
        }
        match slot.flags.has_any(PortFlags::POLICES_SENT) {
            true => self.send_policed(place, part, key)?,
            false => self.transmit(place, part, key)?,
        }
        self.mirror_sent(place, whole, key)
    }

    /// Sends a part of a frame through a port.
    pub(in crate::datapath) fn send_part(
        &mut self,
        place: usize,
        part: &Frame,
        whole: &Frame,
        key: &FlowKey,
    ) -> Result<(), PortError> {
        match self.ports.slots()[place].flags.has_any(PortFlags::SENDS_WITH_CARE) {
            true => self.send_with_care(place, part, whole, key),
            false => self.transmit(place, part, key),
        }
    }

    /// Sends a frame through a port that is a tunnel, in its headers. The port counts the frame without them.
    pub(super) fn send_into_tunnel(
        &mut self,
        place: usize,
        frame: &Frame,
        key: &FlowKey,
    ) -> Result<(), PortError> {
        let slot = &mut self.ports.slots_mut()[place];
        let Some(tunnel) = &mut slot.tunnel else { return Ok(()) };
        let wrapped = tunnel.wrap(frame, key, &self.port_tunnels.policy, &mut self.wrapped);
        if wrapped.is_ok() && slot.port.send(&self.wrapped)? {
            slot.counters.tx_packets += 1;
            slot.counters.tx_bytes += frame.len() as u64;
            return Ok(());
        }
        slot.counters.tx_dropped += 1;
        match wrapped {
            Err(Unsent::TooLong) => self.drops.tunnel_too_long += 1,
            Err(Unsent::NotIp | Unsent::NoTunnel) => self.drops.no_tunnel += 1,
            Ok(()) => {}
        }
        Ok(())
    }

    /// Sends a frame if there are tokens for it; of one that is to be cut, each piece.
    fn send_policed(&mut self, place: usize, frame: &Frame, key: &FlowKey) -> Result<(), PortError> {
        if frame.offload.is_some() {
            return self.in_pieces(frame, |egress, piece| egress.send_policed(place, piece, key));
        }
        let slot = &mut self.ports.slots_mut()[place];
        if slot.polices_sent(frame.len(), self.now_ns) {
            slot.counters.tx_dropped += 1;
            return Ok(());
        }
        self.transmit(place, frame, key)
    }

    /// Completes a frame's offloads in software, and sends the resulting frames.
    #[cold]
    pub(super) fn send_finished(
        &mut self,
        place: usize,
        frame: &Frame,
        key: &FlowKey,
    ) -> Result<(), PortError> {
        self.in_pieces(frame, |egress, piece| egress.transmit(place, piece, key))
    }

    /// Completes a frame's offloads in software, and does this with the resulting frames.
    fn in_pieces(
        &mut self,
        frame: &Frame,
        mut send: impl FnMut(&mut Self, &Frame) -> Result<(), PortError>,
    ) -> Result<(), PortError> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let sent = finished(frame).iter().try_for_each(|piece| {
            scratch.fill(piece);
            scratch.continue_as(frame);
            send(self, &scratch)
        });
        self.scratch = scratch;
        sent
    }
}
