//! [`Effects`] on real ports, FDB, meters and the controller, and edits of real frames.

mod edits;
mod sending;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use flowlane::packet::key::FlowKey;
use flowlane::packet::{Field, parse};
use flowlane::rule::action::{Controller, EncapsulateHeader, PortNo, Sample};

pub(super) use edits::Changed;
pub use edits::Packet;

use super::apply::{Effects, PacketEdit};
use super::bond::SeenArps;
use super::faults::Faults;
use super::learning::Learning;
use super::mirroring::Mirroring;
use super::packet_ins::{PacketIn, PacketIns};
use super::pause::PauseToken;
use super::ports::Ports;
use super::router::HeldPacket;
use super::track::{HeldFragment, hide};
use crate::packet::Frame;
use crate::packet::edit;
use crate::packet::recirculate::note_type;
use crate::port::{Port, PortError};
use crate::ruleset::{Meters, Origin, PortFlags, ToController};
use crate::state::conntrack::Connections;
use crate::state::conntrack::fragments::Fragments;
use crate::state::fdb::Fdb;
use crate::state::meter::{CONTROLLER_METER, Meter, Verdict};
use crate::state::router::Router;
use crate::tunnel::{PortTunnels, Tunnels, Unsent};

/// Dropped packets, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Not sent by any action: no rule matched, or the rule drops.
    pub by_rule: u64,
    /// TTL or hop limit was 0 or 1.
    pub ttl_expired: u64,
    /// A meter's rate was exceeded.
    pub metered: u64,
    /// Output to a port that does not exist.
    pub no_port: u64,
    /// The `normal` action does not forward such a destination.
    pub reserved_address: u64,
    /// For the `normal` action, in a VLAN that the port does not carry.
    pub not_in_vlan: u64,
    /// For the `normal` action, at a member of a bond that does not let it in, or for a bond that sends through no member.
    pub not_by_member: u64,
    /// For the controller, but there is no controller port, it did not accept the packet, or a meter limits such packets.
    pub no_controller: u64,
    /// Longer than its tunnel allows.
    pub tunnel_too_long: u64,
    /// For a tunnel that does not carry such packets, or does not exist.
    pub no_tunnel: u64,
    /// Refused at a local tunnel endpoint; the tunnels count the reasons.
    pub tunnel_refused: u64,
    /// Refused by a stateful stage, which counts the reasons.
    pub stage_refused: u64,
    /// For a port or a tunnel, but without the Ethernet header that packets have there.
    pub no_ethernet: u64,
    /// Of a type that a header cannot be put around, or taken off.
    pub wrong_type: u64,
    /// Exceeded the limit of open table calls, or had to be handed over with open calls.
    pub call_depth: u64,
}

/// Ports, and the state that actions use.
pub struct Egress {
    pub ports: Ports,
    /// The port of `controller` and `sample`.
    pub controller: Option<Box<dyn Port>>,
    /// Where packets for controllers go, if they are connected by OpenFlow: instead of the port.
    pub packet_ins: Option<Arc<PacketIns>>,
    /// Packets that the controller port accepted.
    pub controller_packets: u64,
    /// Learned addresses.
    pub macs: Fdb,
    /// Senders that bonds may bring back.
    pub(super) seen_arps: SeenArps,
    /// Connections, shared by all workers.
    pub connections: Arc<Connections>,
    /// The router's part, shared, if ports have addresses.
    pub router: Option<Arc<Router<HeldPacket>>>,
    /// Fragments of datagrams that are tracked, shared, too.
    pub(super) fragments: Arc<Mutex<Fragments<HeldFragment>>>,
    /// Meters by number, shared by all workers.
    pub meters: Meters,
    /// Packets and bytes of `count` actions, by number.
    pub counts: BTreeMap<u32, (u64, u64)>,
    /// Rules that packets make.
    pub learning: Learning,
    /// Dropped packets.
    pub drops: Drops,
    /// Malformed packets.
    pub faults: Faults,
    /// Packets may have no Ethernet header: one has had none since this worker began.
    pub(super) has_bare: bool,
    /// The packet under way is a controller's.
    pub(super) in_packet_out: bool,
    /// The tunnels; `None` if none are configured.
    pub tunnels: Option<Tunnels>,
    /// Those that are ports.
    pub port_tunnels: PortTunnels,
    /// Copies of packets for mirrors.
    pub(super) mirroring: Mirroring,
    /// When the packets under way came: the time of policers of sent packets.
    pub(super) now_ns: u64,
    random: u32,
    scratch: Frame,
    /// A copy of the present frame, in a tunnel's headers.
    wrapped: Frame,
    /// A copy of the present frame, with other headers of VLANs.
    pub(super) retagged: Frame,
    /// The ports that the present frame, which is for a group, goes to.
    pub(super) group_ports: Vec<PortNo>,
}

/// Returns the frames that completing a frame's checksum and segmentation offload results in.
pub(super) fn finished(frame: &Frame) -> Vec<Vec<u8>> {
    let (mut bytes, mut out) = (frame.bytes().to_vec(), Vec::new());
    // A frame that cannot be segmented does not reach ports that segment either.
    frame.offload.unwrap_or_default().finish(&mut bytes, |piece| out.push(piece.to_vec()));
    out
}

/// The place of no port.
pub(super) const NO_PLACE: usize = usize::MAX;

/// Nanoseconds in a millisecond, the unit of connections' times.
pub(super) const NS_PER_MS: u64 = 1_000_000;

/// Nanoseconds in a second.
pub(super) const NS: u64 = 1_000_000_000;

impl Egress {
    /// Makes an egress without ports; `seed` is for the random numbers of `sample`.
    pub fn new(macs: Fdb, seed: u32) -> Self {
        Self {
            ports: Ports::default(),
            controller: None,
            packet_ins: None,
            controller_packets: 0,
            macs,
            seen_arps: SeenArps::default(),
            connections: Arc::default(),
            router: None,
            fragments: Arc::default(),
            meters: Meters::default(),
            counts: BTreeMap::new(),
            learning: Learning::default(),
            drops: Drops::default(),
            faults: Faults::default(),
            has_bare: false,
            in_packet_out: false,
            tunnels: None,
            port_tunnels: PortTunnels::default(),
            mirroring: Mirroring::default(),
            now_ns: 0,
            random: seed | 1,
            scratch: Frame::default(),
            wrapped: Frame::default(),
            retagged: Frame::default(),
            group_ports: Vec::new(),
        }
    }

    /// Shares the connections, the router and the sequence numbers of tunnels of another worker.
    pub fn share_state(&mut self, other: &Self) {
        if let (Some(own), Some(other)) = (&mut self.tunnels, &other.tunnels) {
            own.share_sequences(other);
        }
        self.connections = other.connections.clone();
        self.router = other.router.clone();
        self.fragments = other.fragments.clone();
    }

    /// Sends a packet that came in through the port at index `from` through another. Of its key the fields of tunnels count.
    ///
    /// # Errors
    /// A port that fails for good.
    #[inline]
    pub fn send_to(
        &mut self,
        to: PortNo,
        from: usize,
        frame: &Frame,
        key: &FlowKey,
    ) -> Result<(), PortError> {
        match self.ports.place(to) {
            Some(place) if place == from => Ok(()),
            Some(place) => self.send(place, frame, key),
            None => {
                self.drops.no_port += 1;
                Ok(())
            }
        }
    }

    /// Counts a packet whose TTL has expired, and sends it to the controller.
    ///
    /// # Errors
    /// A port that fails for good.
    pub fn expire(&mut self, frame: &Frame, key: &FlowKey, now_ns: u64) -> Result<(), PortError> {
        self.drops.ttl_expired += 1;
        if !self.admits_to_controller(None, frame.packet().len(), now_ns) {
            return Ok(());
        }
        if self.packet_ins.is_some() {
            // The reason of OpenFlow: its TTL is invalid.
            let action = Controller { reason: 2, ..Controller::default() };
            let to = Arc::new(ToController { action, origin: Origin::none(0) });
            self.queue_packet_in(frame, key, &to, None);
            return Ok(());
        }
        self.send_to_controller(frame, u16::MAX)
    }

    /// Returns the place of the port that a packet came in through, or that an action says it did; `None` if there is no such port.
    #[inline]
    pub(super) fn place_of(&self, packet: &Packet<'_>) -> Option<usize> {
        match packet.source {
            None => Some(packet.port),
            Some(number) => self.ports.place(number),
        }
    }

    /// Returns the settings of the port that a packet came in through, or that an action says it did.
    fn flags_of(&self, packet: &Packet<'_>) -> PortFlags {
        self.place_of(packet).map_or(PortFlags::default(), |place| self.ports.slots()[place].flags)
    }

    /// Returns whether packets may leave through a port.
    pub fn is_live(&self, port: PortNo) -> bool {
        self.ports.place(port).is_some_and(|place| self.ports.slots()[place].is_live())
    }

    #[inline]
    pub(super) fn send(&mut self, place: usize, frame: &Frame, key: &FlowKey) -> Result<(), PortError> {
        if frame.is_bare() {
            self.drops.no_ethernet += 1;
            return Ok(());
        }
        if self.ports.slots()[place].flags.has_any(PortFlags::SENDS_WITH_CARE) {
            return self.send_with_care(place, frame, frame, key);
        }
        self.transmit(place, frame, key)
    }

    /// Sends a frame through a port, whatever its flags.
    #[inline]
    pub(super) fn transmit(&mut self, place: usize, frame: &Frame, key: &FlowKey) -> Result<(), PortError> {
        let slot = &mut self.ports.slots_mut()[place];
        if frame.offload.is_some() && !slot.port.carries_offloads() {
            return self.send_finished(place, frame, key);
        }
        if slot.tunnel.is_some() {
            return self.send_into_tunnel(place, frame, key);
        }
        if slot.port.send(frame)? {
            slot.counters.tx_packets += 1;
            slot.counters.tx_bytes += frame.len() as u64;
        } else {
            slot.counters.tx_dropped += 1;
        }
        Ok(())
    }

    /// Sends a frame through every port but the one at index `from` and those with any of some flags.
    pub(super) fn send_to_others(
        &mut self,
        frame: &Frame,
        key: &FlowKey,
        from: usize,
        without: PortFlags,
    ) -> Result<(), PortError> {
        for place in 0..self.ports.len() {
            let slot = &self.ports.slots()[place];
            if place != from && !slot.flags.has_any(without) && slot.port.sends() {
                self.send(place, frame, key)?;
            }
        }
        Ok(())
    }

    /// Queues a packet for controllers, which may resume it if it has a token. They get all of it, whatever length the action
    /// asks for: no switch shortens a packet that it has not buffered (OpenFlow 1.3.5, 7.4.1).
    pub(super) fn queue_packet_in(
        &mut self,
        frame: &Frame,
        key: &FlowKey,
        to: &Arc<ToController>,
        paused: Option<PauseToken>,
    ) {
        let Some(packet_ins) = &self.packet_ins else { return };
        let (bytes, mut key) = (frame.packet().to_vec(), key.clone());
        key.set(Field::PacketType, 0);
        note_type(frame, &mut key);
        let total_len = bytes.len();
        let of_packet_out = if self.in_packet_out { to.of_packet_out() } else { None };
        let to = of_packet_out.map_or_else(|| to.clone(), Arc::new);
        let taken = packet_ins.push(PacketIn { to, bytes, total_len, key, paused });
        self.controller_packets += u64::from(taken);
        self.drops.no_controller += u64::from(!taken);
    }

    /// The meter of packets for controllers: the one that an action names; if it names none, or that does not exist, the one of all.
    pub(super) fn controller_meter(&self, named: Option<u32>) -> Option<&Arc<Meter>> {
        named.and_then(|number| self.meters.get(number)).or_else(|| self.meters.get(CONTROLLER_METER))
    }

    /// Takes tokens from the meter of packets for controllers.
    pub(super) fn admits_to_controller(&mut self, meter: Option<u32>, bytes: usize, now_ns: u64) -> bool {
        let passes = self.controller_meter(meter).is_none_or(|meter| meter.allow(bytes, now_ns));
        self.drops.no_controller += u64::from(!passes);
        passes
    }

    pub(super) fn send_to_controller(&mut self, frame: &Frame, max_len: u16) -> Result<(), PortError> {
        let Some(port) = &mut self.controller else {
            self.drops.no_controller += 1;
            return Ok(());
        };
        if frame.is_bare() {
            self.drops.no_ethernet += 1;
            return Ok(());
        }
        if frame.offload.is_some() {
            return self.send_finished_to_controller(frame, max_len);
        }
        let whole = max_len == u16::MAX || frame.len() <= usize::from(max_len);
        let taken = if whole {
            port.send(frame)?
        } else {
            self.scratch.fill(&frame.bytes()[..max_len.into()]);
            self.scratch.time_ns = frame.time_ns;
            port.send(&self.scratch)?
        };
        if taken {
            self.controller_packets += 1;
        } else {
            self.drops.no_controller += 1;
        }
        Ok(())
    }

    #[cold]
    fn send_finished_to_controller(&mut self, frame: &Frame, max_len: u16) -> Result<(), PortError> {
        let mut piece = Frame::default();
        finished(frame).iter().try_for_each(|bytes| {
            piece.fill(bytes);
            piece.time_ns = frame.time_ns;
            self.send_to_controller(&piece, max_len)
        })
    }

    /// Flushes the queues of all ports to the system.
    ///
    /// # Errors
    /// The first port that fails for good.
    pub fn flush(&mut self) -> Result<(), PortError> {
        for slot in self.ports.slots_mut() {
            slot.flush()?;
        }
        if let Some(port) = &mut self.controller {
            self.drops.no_controller += port.flush()?;
        }
        Ok(())
    }

    /// Closes all ports.
    ///
    /// # Errors
    /// The first port that failed to send everything; the others are closed all the same.
    pub fn close(&mut self) -> Result<(), PortError> {
        let mut result = Ok(());
        for slot in self.ports.slots_mut() {
            // Closed first, so that the flush counts frames that closing could not send.
            result = result.and(slot.port.close()).and(slot.flush());
        }
        if let Some(port) = &mut self.controller {
            result = result.and(port.close());
            self.drops.no_controller += port.flush().unwrap_or(0);
        }
        result
    }

    /// Ages learned addresses and listeners of groups, and checks the port that only sends.
    pub fn maintain(&mut self, now_ns: u64) {
        self.macs.sweep((now_ns / NS) as u32, 4096);
        if let Some(multicast) = self.ports.multicast() {
            multicast.sweep((now_ns / NS) as u32);
        }
        self.connections.sweep(now_ns / NS_PER_MS, 256);
        if let Some(port) = &mut self.controller {
            port.check();
        }
    }

    /// Returns the name of a port, for reports.
    pub fn port_name(&self, number: PortNo) -> Option<&str> {
        self.ports.place(number).map(|place| self.ports.slots()[place].name.as_str())
    }
}

impl Effects<Packet<'_>> for Egress {
    type Error = PortError;

    #[inline]
    fn output(&mut self, packet: &mut Packet<'_>, to: PortNo) -> Result<(), PortError> {
        packet.sent = true;
        let from = self.place_of(packet).unwrap_or(NO_PLACE);
        self.send_to(to, from, packet.frame, packet.key)
    }

    fn in_port(&mut self, packet: &mut Packet<'_>) -> Result<(), PortError> {
        packet.sent = true;
        match self.place_of(packet) {
            Some(place) => self.send(place, packet.frame, packet.key),
            None => Ok(()),
        }
    }

    fn flood(&mut self, packet: &mut Packet<'_>) -> Result<(), PortError> {
        packet.sent = true;
        if !self.ports.bonds().is_empty() {
            return self.flood_with_bonds(packet);
        }
        let from = self.place_of(packet).unwrap_or(NO_PLACE);
        self.send_to_others(packet.frame, packet.key, from, PortFlags::NOT_FLOODED)
    }

    fn normal(&mut self, packet: &mut Packet<'_>) -> Result<(), PortError> {
        packet.sent = true;
        match self.ports.is_plain() {
            true => self.switch_frame(packet),
            false => self.switch_in_vlan(packet),
        }
    }

    fn all(&mut self, packet: &mut Packet<'_>) -> Result<(), PortError> {
        packet.sent = true;
        let from = self.place_of(packet).unwrap_or(NO_PLACE);
        self.send_to_others(packet.frame, packet.key, from, PortFlags::REFUSES_SENT)
    }

    fn enqueue(&mut self, packet: &mut Packet<'_>, to: PortNo, queue: u32) -> Result<(), PortError> {
        let before = packet.frame.queue;
        packet.set_queue(Some(queue));
        let sent = match to {
            PortNo::IN_PORT => self.in_port(packet),
            other => self.output(packet, other),
        };
        packet.frame.queue = before;
        sent
    }

    fn output_truncated(
        &mut self,
        packet: &mut Packet<'_>,
        to: PortNo,
        max_len: u32,
    ) -> Result<(), PortError> {
        packet.sent = true;
        let place = match to {
            PortNo::IN_PORT => self.place_of(packet),
            other => self.ports.place(other).filter(|place| Some(*place) != self.place_of(packet)),
        };
        if place.is_none() && self.ports.place(to).is_none() {
            self.drops.no_port += 1;
        }
        let Some(place) = place else { return Ok(()) };
        if packet.frame.len() <= max_len as usize || packet.frame.is_bare() {
            return self.send(place, packet.frame, packet.key);
        }
        let mut first = std::mem::take(&mut self.scratch);
        first.fill(&packet.frame.bytes()[..max_len as usize]);
        first.continue_as(packet.frame);
        let sent = self.send_part(place, &first, packet.frame, packet.key);
        self.scratch = first;
        sent
    }

    fn controller(&mut self, packet: &mut Packet<'_>, to: &Arc<ToController>) -> Result<(), PortError> {
        if to.is_miss() && self.flags_of(packet).has_any(PortFlags::NO_PACKET_IN) {
            return Ok(());
        }
        packet.sent = true;
        if !self.admits_to_controller(to.action.meter, packet.frame.packet().len(), packet.now_ns) {
            return Ok(());
        }
        if self.packet_ins.is_some() {
            self.queue_packet_in(packet.frame, packet.key, to, None);
            return Ok(());
        }
        self.send_to_controller(packet.frame, to.action.max_len)
    }

    fn sample(&mut self, packet: &mut Packet<'_>, sample: &Sample) -> Result<(), PortError> {
        let probability = sample.probability;
        // Xorshift32 (Marsaglia 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        if (self.random >> 16) as u16 <= probability && probability > 0 {
            self.send_to_controller(packet.frame, u16::MAX)?;
        }
        Ok(())
    }

    fn meter(&mut self, packet: &mut Packet<'_>, number: u32) -> bool {
        let meter = self.meters.get(number);
        let verdict = meter.map(|meter| meter.take(packet.frame.packet().len(), packet.now_ns));
        if let Some(Verdict::Remarked(levels)) = verdict {
            packet.remark(levels);
        }
        let passes = verdict != Some(Verdict::Dropped);
        self.drops.metered += u64::from(!passes);
        passes
    }

    fn count(&mut self, packet: &mut Packet<'_>, number: u32) {
        let counter = self.counts.entry(number).or_default();
        *counter = (counter.0 + 1, counter.1 + packet.frame.packet().len() as u64);
    }

    fn encapsulate(&mut self, packet: &mut Packet<'_>, tunnel: u32) -> bool {
        if packet.frame.is_bare() {
            self.drops.no_ethernet += 1;
            return false;
        }
        let tunnels = self.tunnels.as_mut();
        let sent = tunnels.map_or(Err(Unsent::NoTunnel), |tunnels| {
            tunnels.encapsulate(tunnel, packet.frame, packet.headers, packet.key)
        });
        match sent {
            Ok(()) => {
                hide(packet.key);
                packet.key.set(Field::TunMetadataPresent, 0);
                (packet.changed, packet.translated) = (Changed::Packet, false);
                return true;
            }
            Err(Unsent::TooLong) => self.drops.tunnel_too_long += 1,
            Err(Unsent::NotIp | Unsent::NoTunnel) => self.drops.no_tunnel += 1,
        }
        false
    }

    fn encapsulate_header(&mut self, packet: &mut Packet<'_>, header: &EncapsulateHeader) -> bool {
        packet.type_changes();
        self.has_bare = true;
        let is_done = edit::encapsulate(packet.frame, packet.headers, header);
        self.drops.wrong_type += u64::from(!is_done);
        is_done
    }

    fn decapsulate(&mut self, packet: &mut Packet<'_>, to: Option<(u16, u16)>) -> bool {
        packet.type_changes();
        self.has_bare = true;
        let is_done = edit::decapsulate(packet.frame, packet.headers, to);
        self.drops.wrong_type += u64::from(!is_done);
        is_done
    }

    fn reparse(&mut self, packet: &mut Packet<'_>) -> bool {
        if !std::mem::take(&mut packet.moved) {
            return true;
        }
        let was = packet.headers.malformed.is_some();
        *packet.headers = parse(packet.frame.bytes(), 0, &mut FlowKey::zero());
        self.faults.admit(packet.headers, was)
    }
}
