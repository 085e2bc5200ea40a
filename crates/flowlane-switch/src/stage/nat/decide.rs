//! The decision on a packet: refuse it, or translate it by which sessions. Nothing here changes a table.

use flowlane::packet::FlowKey;
use flowlane::packet::fields::word;

use super::config::Refusal;
use super::lookup::{Direction, Packet, PacketKind};
use super::packet::word16;
use super::{HAIRPIN, Nat};
use crate::stage::{Half, StagePacket};

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
        destination: Option<u32>,
    },
    /// An ICMP error: it and the packet that it quotes are translated.
    Error { verdict: u32, session: u32 },
    /// A fragment without ports: it is translated like the first of its datagram, which has this entry.
    LaterFragment { verdict: u32, first: u32 },
}

/// The session of a packet's source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// An existing session.
    Session(u32),
    /// A new session with a port of this outside address, by its index in the pool.
    New(u32),
}

/// The conditions under which a packet is decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conditions<'a> {
    /// The part of the translation that is done here.
    pub(super) half: Half,
    /// The live sessions of its source and of its destination.
    pub(super) sessions: [Option<u32>; 2],
    /// Sessions that ageing removes before the packet is processed. Empty once they are gone: live packets age the
    /// table before they are decided, a dry run must not.
    pub(super) departing: &'a [u32],
    /// As `departing`, of fragmented datagrams.
    pub(super) fragments_departing: &'a [u32],
    pub(super) now: u32,
}

impl Nat {
    /// Decides on a packet that is translated or refused.
    #[inline]
    pub(super) fn decide_packet(
        &self,
        packet: &Packet,
        seen: StagePacket<'_>,
        conditions: Conditions<'_>,
    ) -> NatDecision {
        let decided = match packet.kind {
            PacketKind::LaterFragment => self.decide_later_fragment(packet, seen, conditions.now),
            PacketKind::Error => self.decide_error(packet, seen, conditions.sessions),
            PacketKind::Initiating | PacketKind::Established => {
                self.decide_sessions(packet, seen, conditions)
            }
        };
        decided.unwrap_or_else(NatDecision::Refused)
    }

    /// Decides on a packet with ports or an identifier.
    #[inline]
    fn decide_sessions(
        &self,
        packet: &Packet,
        seen: StagePacket<'_>,
        conditions: Conditions<'_>,
    ) -> Result<NatDecision, Refusal> {
        let Conditions { half, sessions: [source, destination], departing, .. } = conditions;
        if half != Half::Source && packet.looks_outside() && destination.is_none() {
            return Err(Refusal::NoSession);
        }
        let source = match source {
            Some(at) => Some(Source::Session(at)),
            None if packet.looks_inside() => Some(Source::New(self.decide_new(packet, departing)?)),
            None => None,
        };
        if packet.is_fragment && half != Half::Source {
            self.decide_first_fragment(packet, seen, conditions)?;
        }
        let verdict = if half == Half::Destination { HAIRPIN } else { packet.direction.verdict() };
        Ok(NatDecision::Translate { verdict, source, destination })
    }

    /// Decides whether a packet's source gets a session. Returns the index of its outside address.
    #[cold]
    fn decide_new(&self, packet: &Packet, departing: &[u32]) -> Result<u32, Refusal> {
        if packet.kind != PacketKind::Initiating {
            return Err(Refusal::TcpWithoutSyn);
        }
        if self.sessions.free() + departing.len() == 0 {
            return Err(Refusal::Full);
        }
        let [inside, _] = packet.inside;
        let departing = departing.iter().map(|&at| self.sessions.get(at));
        let mut held = 0;
        if let Some(hosts) = &self.hosts {
            match hosts.keys().lookup(&[inside]) {
                Some(at) => {
                    let leave = departing.clone().filter(|session| session.inside == inside).count();
                    held = hosts.entries.get(at).value as usize - leave;
                }
                None if hosts.entries.is_full() && departing.len() == 0 => return Err(Refusal::Full),
                None => {}
            }
        }
        let returned = |outside| departing.clone().any(|s| (s.proto, s.outside) == (packet.proto, outside));
        let address = self.pool.choose(packet.proto, inside, returned).ok_or(Refusal::NoPort)?;
        let may_have = match self.config.sessions_per_host_max {
            Some(0) => usize::MAX,
            Some(most) => most as usize,
            None => {
                let ports = self.pool.free(packet.proto, inside);
                let returned = departing.clone().filter(|session| session.proto == packet.proto).count();
                (self.sessions.free() + departing.len()).min(ports + returned)
            }
        };
        if held >= may_have { Err(Refusal::HostFull) } else { Ok(address) }
    }

    /// Decides on an ICMP error: it needs the session of the packet that it quotes.
    #[cold]
    fn decide_error(
        &self,
        packet: &Packet,
        seen: StagePacket<'_>,
        [source, destination]: [Option<u32>; 2],
    ) -> Result<NatDecision, Refusal> {
        let inbound = packet.direction == Direction::Inbound;
        let session = if inbound { destination } else { source }.ok_or(Refusal::ErrorAlone)?;
        // An error about a packet must be sent to the address that the packet came from.
        if inbound && seen.key.word(word::IPV4_DST) != self.sessions.get(session).outside {
            return Err(Refusal::ErrorAlone);
        }
        Ok(NatDecision::Error { verdict: packet.direction.verdict(), session })
    }

    /// Refuses a first fragment whose source has its share of incomplete datagrams.
    #[cold]
    fn decide_first_fragment(
        &self,
        packet: &Packet,
        seen: StagePacket<'_>,
        conditions: Conditions<'_>,
    ) -> Result<(), Refusal> {
        let fragments = self.fragments.as_ref().ok_or(Refusal::FragmentAlone)?;
        let datagram = datagram(addresses(seen.key), packet, seen);
        let may = fragments.may_record(&datagram, conditions.fragments_departing, conditions.now);
        if may { Ok(()) } else { Err(Refusal::SourceIncomplete) }
    }

    /// Decides on a fragment without ports: it needs the entry of its datagram's first fragment.
    #[cold]
    fn decide_later_fragment(
        &self,
        packet: &Packet,
        seen: StagePacket<'_>,
        now: u32,
    ) -> Result<NatDecision, Refusal> {
        let fragments = self.fragments.as_ref().ok_or(Refusal::FragmentAlone)?;
        let found = fragments.find(&datagram(addresses(seen.key), packet, seen), now);
        let first = found.ok_or(Refusal::FragmentAlone)?;
        Ok(NatDecision::LaterFragment { verdict: fragments.get(first).verdict, first })
    }
}

/// Returns source and destination of a packet.
#[inline]
pub(super) fn addresses(key: &FlowKey) -> [u32; 2] {
    [word::IPV4_SRC, word::IPV4_DST].map(|word| key.word(word))
}

/// Returns the key of a fragment's datagram: its addresses before translation, protocol and identification.
pub(super) fn datagram([source, destination]: [u32; 2], packet: &Packet, seen: StagePacket<'_>) -> [u32; 3] {
    let id = word16(seen.frame.bytes(), usize::from(seen.headers.l3) + 4).unwrap_or(0);
    [source, destination, u32::from(packet.proto) << 16 | u32::from(id)]
}
