//! Address translation: many hosts behind a few outside addresses (NAPT of IPv4 and of IPv6).
//!
//! A *session* joins an inside address and port to an outside address and port, of one protocol: TCP, UDP, or ICMP, whose
//! identifiers serve as ports. Sessions are connections of a zone of their own ([`session`]): in the table that `ct` uses, found, drawn,
//! rewritten, listed and saved by the same code. By default they are endpoint-independent; rules or a packet filter in front can be
//! stricter.
//!
//! The addresses give a packet's direction: to an address of the pool it is *inbound*, from an inside network *outbound*;
//! from inside to the pool it is a *hairpin* (RFC 4787 REQ-9), and both of its ends are translated. Other packets are not touched,
//! nor are those to groups, to 255.255.255.255 and to neighbours (ND). Rules in front must filter by port: an inside source on an
//! outside port is a forgery, and packets from one inside address to another, broadcasts of their networks included, do not
//! belong in this table.
//!
//! | packet | result |
//! |---|---|
//! | UDP outbound; TCP SYN outbound; ICMP echo or timestamp request outbound | a session is opened unless there is one |
//! | other TCP outbound without session | refused |
//! | any packet inbound without session | refused |
//! | ICMP error about a session's packet, either way | the quoted packet is translated, too; the session's idle time continues (RFC 5508 REQ-3 to 6) |
//! | fragment | waits until all of its datagram have come, in any order (RFC 4787 REQ-14); then each is translated |
//! | ICMP from inside to the pool | refused: a query has no session that answers it, and errors have no hairpin |
//! | other protocols | refused |
//!
//! An idle session expires: UDP after 300 s (RFC 4787 REQ-5), TCP after 7440 s once both ends have sent SYN and the inside
//! end has acknowledged the other's, and after 240 s before that, after FIN from both ends and after an RST that no
//! segment from inside has followed (RFC 5382 REQ-5, RFC 7857 §2), ICMP after 60 s (RFC 5508 REQ-2), by default. A session
//! may carry several TCP connections; its state combines all their segments, and a closed one opens again with the next
//! SYN. If there is no room, or a host's quota or the ports of its address are exhausted, new sessions are refused and counted;
//! live sessions are never evicted.
//!
//! [`session`]: crate::state::conntrack::session

pub mod config;
pub mod decide;
mod explain;
mod lookup;

pub use config::{Forward, Mapping, NatConfig, NatCounters, NatError, Refusal};
pub use decide::NatDecision;

use std::net::SocketAddr;

use flowlane::packet::batch::{LANES_MAX, LaneMask};

use super::gathered::Lookups;
use super::shard::{Owner, Shard};
use super::{Explanation, REFUSED, StageCall, StagePacket, StatefulStage, Verdicts};
use crate::packet::Burst;
use crate::state::conntrack::session::{FoundSession, NotOpened, Pool};
use crate::state::conntrack::{End, Listed, Rewrite, SavedConnection, State, Tuple, Wanted, rewrite};
use decide::{Source, rewrite_of};
use lookup::{Direction, NatLookup, Packet};

/// The names of the verdicts, by number.
const VERDICTS: [&str; 4] = ["outbound", "inbound", "hairpin", "other"];

const OUTBOUND: u32 = 0;
const INBOUND: u32 = 1;
const HAIRPIN: u32 = 2;
const OTHER: u32 = 3;

/// Times that a packet is decided again because another worker changes its session at the same time.
const ATTEMPTS_MAX: usize = 16;

/// Nanoseconds in the unit of connections' times.
const NS_PER_MS: u64 = 1_000_000;

/// A session, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    pub proto: u8,
    pub inside: SocketAddr,
    pub outside: SocketAddr,
    /// Packets outbound and inbound.
    pub packets: [u64; 2],
}

impl Session {
    fn of(original: &Tuple, reply: &Tuple, state: &State) -> Self {
        let packets = if let State::Session(session) = state { session.packets() } else { [0; 2] };
        let end = |end: End| SocketAddr::new(original.ip(end), end.port);
        let (inside, outside) = (end(original.source), end(reply.destination));
        Self { proto: original.proto, inside, outside, packets }
    }
}

/// Address translation.
#[derive(Debug)]
pub struct Nat {
    config: NatConfig,
    pool: Pool,
    /// By lane; empty while the stage processes a burst.
    lookups: Vec<NatLookup>,
    counters: NatCounters,
    /// The tuple that the last packet has been given.
    translated: Option<Tuple>,
}

impl Nat {
    /// Address translation, whose forwards have their sessions.
    ///
    /// # Errors
    /// If forwards contradict each other or the pool, or there is no room for them.
    pub fn new(config: NatConfig) -> Result<Self, NatError> {
        config.check()?;
        let pool = Pool::new(config.pool.clone(), config.ports);
        for (n, forward) in config.forwards.iter().enumerate() {
            if !config.connections.open_permanent(forward.tuples(config.zone), &pool) {
                return Err(NatError::Full(n));
            }
        }
        let lookups = vec![NatLookup::Other; LANES_MAX];
        Ok(Self { pool, lookups, counters: NatCounters::default(), translated: None, config })
    }

    /// Decides on a lane's packet, and commits the decision. Returns the verdict.
    #[inline]
    fn translate(&mut self, lookup: &NatLookup, packets: &mut Burst, lane: usize) -> u32 {
        let packet = match lookup {
            NatLookup::Other => return OTHER,
            NatLookup::Refused(refusal) => return self.refuse(*refusal),
            NatLookup::Packet(packet) => packet,
        };
        let now_ms = packets.times_ns[lane] / NS_PER_MS;
        for _ in 0..ATTEMPTS_MAX {
            let decision = self.decide_packet(packet, now_ms);
            if let Some(verdict) = self.commit(packet, decision, packets, lane, now_ms) {
                return verdict;
            }
        }
        self.refuse(Refusal::Full)
    }

    /// Commits a decision. Returns the verdict; none if another worker has changed a session since.
    #[inline]
    fn commit(
        &mut self,
        packet: &Packet,
        decision: NatDecision,
        packets: &mut Burst,
        lane: usize,
        now_ms: u64,
    ) -> Option<u32> {
        let (verdict, ends) = match decision {
            NatDecision::Other => return Some(OTHER),
            NatDecision::Refused(refusal) => return Some(self.refuse(refusal)),
            NatDecision::Translate { verdict, source, destination } => {
                let source = match source {
                    Some(Source::New(_)) => match self.open(packet, now_ms) {
                        Ok(opened) => Some(opened),
                        Err(NotOpened::Known) => return None,
                        Err(refused) => return Some(self.refuse(refused.into())),
                    },
                    Some(Source::Session(found)) => Some(found),
                    None => None,
                };
                let are_used = [source, destination].iter().enumerate().all(|(direction, found)| {
                    found.as_ref().is_none_or(|found| self.use_session(found, packet, direction, now_ms))
                });
                if !are_used {
                    return None;
                }
                (verdict, [source, destination].map(|found| found.map(|found| found.end)))
            }
            NatDecision::Error { verdict, session } => {
                self.counters.errors += 1;
                (verdict, ends_of_error(packet, &session))
            }
        };
        self.counters.fragments += u64::from(packet.is_fragment);
        self.write(&rewrite_of(packet, ends), packets, lane);
        Some(verdict)
    }

    #[cold]
    fn open(&mut self, packet: &Packet, now_ms: u64) -> Result<FoundSession, NotOpened> {
        let opened = self.config.connections.open_session(&self.new_session(packet), now_ms);
        self.counters.created += u64::from(opened.is_ok());
        opened
    }

    #[inline]
    fn use_session(&self, found: &FoundSession, packet: &Packet, direction: usize, now_ms: u64) -> bool {
        let (of, times) = ((packet.tuple.proto, packet.flags), (&self.config.idle, now_ms));
        self.config.connections.use_session(found, of, direction, times)
    }

    /// Writes changes into a lane's frame and key.
    #[inline]
    fn write(&mut self, by: &Rewrite, packets: &mut Burst, lane: usize) {
        self.translated = Some(by.to);
        rewrite(&mut packets.frames[lane], &mut packets.headers[lane], &mut packets.keys[lane], by);
    }

    fn refuse(&mut self, refusal: Refusal) -> u32 {
        self.counters.refused[refusal as usize] += 1;
        REFUSED
    }

    /// Returns the zone of its sessions, and the number of fragmented datagrams that may wait at a time.
    pub fn fragments(&self) -> (u16, usize) {
        (self.config.zone, self.config.fragments_max)
    }

    /// Takes the tuple that the last packet has been given, if it was translated.
    pub fn take_translated(&mut self) -> Option<Tuple> {
        self.translated.take()
    }

    /// Returns the number of sessions, including forwards; none if another worker's report has it.
    pub fn len(&self) -> usize {
        if self.config.is_first { self.config.connections.len_of_zone(self.config.zone) as usize } else { 0 }
    }

    /// Returns whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the counters.
    pub fn counters(&self) -> NatCounters {
        let ended = || self.config.connections.ended_sessions(self.config.zone);
        NatCounters { aged: if self.config.is_first { ended() } else { 0 }, ..self.counters }
    }

    /// Returns the sessions whose time is not over, in no particular order.
    pub fn sessions(&self, now_ns: u64) -> Vec<Session> {
        let wanted = Wanted { zone: Some(self.config.zone), ..Wanted::default() };
        let mut sessions = Vec::new();
        self.config.connections.for_each(&wanted, now_ns / NS_PER_MS, |listed| {
            let Listed { original, reply, state, .. } = listed;
            sessions.push(Session::of(&original, &reply, &state));
            true
        });
        sessions
    }

    /// Returns the sessions of forwards, in order.
    pub fn forwards(&self) -> Vec<Session> {
        let forwards = self.config.forwards.iter().filter(|_| self.config.is_first);
        let session = |forward: &Forward| {
            let connections = &self.config.connections;
            let [original, reply] = forward.tuples(self.config.zone);
            let found = connections.find_session(&connections.prepare(&original), 0, 0)?;
            let (_, session) = connections.session(&found)?;
            Some(Session::of(&original, &reply, &State::Session(session)))
        };
        forwards.filter_map(session).collect()
    }

    /// Opens a saved session again, before packets come. Returns whether it could: if it is of this table and fits the configuration,
    /// there is room, and it has not expired.
    pub fn restore(&self, saved: &SavedConnection, now_ns: u64) -> bool {
        let NatConfig { connections, zone, mapping, idle, .. } = &self.config;
        let [original, reply] = saved.tuples;
        let is_for_any = original.destination.address == 0;
        original.zone == *zone
            && (is_for_any || *mapping == Mapping::Connection)
            && original.destination.address == reply.source.address
            && self.config.is_inside(original.is_ipv6, original.source.address)
            && self.pool.has(reply.proto, reply.is_ipv6, reply.destination)
            && connections.restore_session(saved, (self.config.zone_max(), idle), now_ns / NS_PER_MS).is_ok()
    }
}

/// Returns the end that an ICMP error gets, which is the end of the packets that go its way.
fn ends_of_error(packet: &Packet, session: &FoundSession) -> [Option<End>; 2] {
    match packet.direction {
        Direction::Inbound => [None, Some(session.end)],
        Direction::Outbound | Direction::Hairpin => [Some(session.end), None],
    }
}

impl StatefulStage for Nat {
    const KIND: &'static str = "nat";
    const VERDICTS: &'static [&'static str] = &VERDICTS;
    type Decision = NatDecision;

    fn process(&mut self, call: StageCall, packets: &mut Burst, lanes: LaneMask, verdicts: &mut Verdicts) {
        let mut lookups = std::mem::take(&mut self.lookups);
        if self.config.lookups == Lookups::Batch {
            for lane in lanes.lanes() {
                lookups[lane] = self.read(StagePacket::of_lane(packets, lane), call.datagram);
            }
            let sides = lanes.lanes().filter_map(|lane| match &lookups[lane] {
                NatLookup::Packet(packet) => Some(packet.sides.iter().flatten()),
                NatLookup::Other | NatLookup::Refused(_) => None,
            });
            self.config.connections.prefetch(sides.flatten());
        }
        for lane in lanes.lanes() {
            if self.config.lookups == Lookups::Scalar {
                lookups[lane] = self.read(StagePacket::of_lane(packets, lane), call.datagram);
            }
            verdicts[lane] = self.translate(&lookups[lane], packets, lane);
        }
        self.lookups = lookups;
    }

    fn decide(&self, call: StageCall, packet: StagePacket<'_>) -> NatDecision {
        match self.read(packet, call.datagram) {
            NatLookup::Other => NatDecision::Other,
            NatLookup::Refused(refusal) => NatDecision::Refused(refusal),
            NatLookup::Packet(lookup) => self.decide_packet(&lookup, packet.now_ns / NS_PER_MS),
        }
    }

    fn explain(&self, call: StageCall, packet: StagePacket<'_>, decision: &NatDecision) -> Explanation {
        self.explanation(call, packet, *decision)
    }

    /// Workers share all sessions.
    fn shard(&self) -> Shard {
        Shard::default()
    }

    fn decide_owner(&self, _: StagePacket<'_>) -> Owner {
        Owner::Any
    }

    /// Sessions age with the other connections.
    fn age(&mut self, _: u64) {}

    fn table_bytes(&self) -> usize {
        self.len() * self.config.connections.bytes_each()
    }
}
