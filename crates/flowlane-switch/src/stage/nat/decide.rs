//! The decision on a packet: refuse it, or translate it by which sessions.

use super::Nat;
use super::config::{Mapping, Refusal};
use super::lookup::{Direction, Packet, PacketKind, typeless, with_any};
use crate::state::conntrack::session::{FoundSession, NewSession};
use crate::state::conntrack::{End, Rewrite, Translated};

/// A decision on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NatDecision {
    /// The packet is not translated.
    Other,
    /// The packet is dropped.
    Refused(Refusal),
    /// The packet's ends are translated.
    Translate {
        verdict: u32,
        /// The session of its source, unless that stays.
        source: Option<Source>,
        /// The session of its destination, unless that stays.
        destination: Option<FoundSession>,
    },
    /// An ICMP error: it and the packet that it quotes are translated.
    Error { verdict: u32, session: FoundSession },
}

/// The session of a packet's source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// An existing session.
    Session(FoundSession),
    /// A new session with a port of this outside address.
    New(u128),
}

impl Nat {
    /// Decides on a packet that is translated or refused.
    #[inline]
    pub(super) fn decide_packet(&self, packet: &Packet, now_ms: u64) -> NatDecision {
        let [source, destination] = [0, 1].map(|side| self.find(packet, side, now_ms));
        let decided = match packet.kind {
            PacketKind::Error => {
                let session = if packet.direction == Direction::Inbound { destination } else { source };
                let verdict = packet.direction.verdict();
                session.map(|session| NatDecision::Error { verdict, session }).ok_or(Refusal::ErrorAlone)
            }
            PacketKind::Initiating | PacketKind::Established => {
                self.decide_sessions(packet, [source, destination], now_ms)
            }
        };
        decided.unwrap_or_else(NatDecision::Refused)
    }

    /// Finds the session of a packet's source (0) or destination (1).
    #[inline]
    fn find(&self, packet: &Packet, side: usize, now_ms: u64) -> Option<FoundSession> {
        let connections = &self.config.connections;
        let found = connections.find_session(packet.sides[side].as_ref()?, side, now_ms);
        if found.is_some() || self.config.mapping == Mapping::EndpointIndependent {
            return found;
        }
        // Forwards are for all hosts.
        let any = connections.prepare(&with_any(packet.tuple, side));
        connections.find_session(&any, side, now_ms)
    }

    /// Decides on a packet with ports or an identifier.
    #[inline]
    fn decide_sessions(
        &self,
        packet: &Packet,
        [source, destination]: [Option<FoundSession>; 2],
        now_ms: u64,
    ) -> Result<NatDecision, Refusal> {
        if packet.sides[1].is_some() && destination.is_none() {
            return Err(Refusal::NoSession);
        }
        let source = match source {
            Some(found) => Some(Source::Session(found)),
            None if packet.sides[0].is_some() => Some(Source::New(self.decide_new(packet, now_ms)?)),
            None => None,
        };
        Ok(NatDecision::Translate { verdict: packet.direction.verdict(), source, destination })
    }

    /// Decides whether a packet's source gets a session. Returns its outside address.
    #[cold]
    fn decide_new(&self, packet: &Packet, now_ms: u64) -> Result<u128, Refusal> {
        if packet.kind != PacketKind::Initiating {
            return Err(Refusal::TcpWithoutSyn);
        }
        Ok(self.config.connections.may_open(&self.new_session(packet), now_ms)?)
    }

    /// Returns the session that a packet's source would get.
    pub(super) fn new_session(&self, packet: &Packet) -> NewSession<'_> {
        let is_for_any =
            self.config.mapping == Mapping::EndpointIndependent || packet.direction == Direction::Hairpin;
        NewSession {
            tuple: if is_for_any { with_any(packet.tuple, 0) } else { typeless(packet.tuple) },
            pool: &self.pool,
            sessions_max: self.config.zone_max(),
            per_host_max: self.config.sessions_per_host_max,
            idle: &self.config.idle,
        }
    }
}

/// Returns the changes to a packet whose ends become these.
#[inline]
pub(super) fn rewrite_of(packet: &Packet, [source, destination]: [Option<End>; 2]) -> Rewrite {
    let (from, mut to) = (packet.tuple, packet.tuple);
    if let Some(end) = source {
        (to.source.address, to.source.port) = (end.address, end.port);
    }
    if let Some(end) = destination {
        (to.destination.address, to.destination.port) = (end.address, end.port);
    }
    if from.is_icmp() {
        // Both ends have one identifier.
        let identifier = source.or(destination).map_or(from.source.port, |end| end.port);
        (to.source.port, to.destination.port) = (identifier, identifier);
    }
    let ends = Translated { source: source.is_some(), destination: destination.is_some() };
    Rewrite { ends, from, to, is_error: packet.kind == PacketKind::Error }
}
