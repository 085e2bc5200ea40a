//! Address translation: many hosts behind a few outside addresses (NAPT44).
//!
//! A *session* joins an inside address and port to an outside address and port, of one protocol: TCP, UDP, or ICMP, whose
//! identifiers serve as ports. All packets from the inside address and port leave by the outside one, wherever they go
//! (endpoint-independent mapping, RFC 4787 REQ-1), and any host may send to the outside one (endpoint-independent
//! filtering, REQ-8); rules or a packet filter in front can be stricter. Two cuckoo tables lead to a session, one from each
//! side.
//!
//! The addresses give a packet's direction: to an address of the pool it is *inbound*, from an inside network *outbound*;
//! from inside to the pool it is a *hairpin* (REQ-9), and both of its ends are translated. Other packets are not touched,
//! nor are those to groups and to 255.255.255.255. Rules in front must filter by port: an inside source on an outside
//! port is a forgery, and packets from one inside address to another, broadcasts of their networks included, do not
//! belong in this table.
//!
//! | packet | result |
//! |---|---|
//! | UDP outbound; TCP SYN outbound; ICMP echo or timestamp request outbound | a session is opened unless there is one |
//! | other TCP outbound without session | refused |
//! | any packet inbound without session | refused |
//! | ICMP error about a session's packet, either way | the quoted packet is translated, too; the session's idle time continues (RFC 5508 REQ-3 to 6) |
//! | first fragment | translated, and recorded for the later ones |
//! | later fragment | translated like the first; refused if that has not come (RFC 4787 REQ-14 asks to keep it) |
//! | ICMP from inside to the pool | refused: a query has no session that answers it, and errors have no hairpin |
//! | other protocols | refused |
//!
//! An idle session expires: UDP after 300 s (RFC 4787 REQ-5), TCP after 7440 s once both ends have sent SYN and the inside
//! end has acknowledged the other's, and after 240 s before that, after FIN from both ends and after an RST that no
//! segment from inside has followed (RFC 5382 REQ-5, RFC 7857 §2), ICMP after 60 s (RFC 5508 REQ-2), by default. A session
//! may carry several TCP connections; its state combines all their segments, and a closed one opens again with the next
//! SYN. If the table, a host's quota or the ports of its address are exhausted, new sessions are refused and counted;
//! live sessions are never evicted.
//!
//! Since any host may send to a session, *only packets from inside refresh it*: RFC 4787 REQ-6 requires that, allows the
//! other direction, too, and names its danger, that an outside host can keep a session, and with it a port, for ever. A
//! stream that is never answered from inside ends after its idle time. For the same reason a SYN from outside opens
//! nothing: a session gets the long idle time only once the inside end has agreed, and a segment from outside that closes
//! it restarts its idle time once.
//!
//! First fragments are recorded until their datagrams are complete, for 15 s at most. A source that has as many incomplete ones as
//! `fragments_max` leaves free, 512 of 1024 if it is alone, gets no more: its next first fragments are refused and counted. Else one
//! host's fragments would fill the memory of receivers, to which all hosts are one source. Sources that have few, 16 of 1024, may
//! always have another; in a full table one of the source that has most, among the next few that are compared, is forgotten for
//! it, and counted: its later fragments are refused. RFC 4787 REQ-14 asks to let fragments through, and for a limit.
//!
//! **No host takes all sessions.** By default an inside address gets a new session only if as many are free as it has, and as
//! many ports (a dynamic threshold: Choudhury and Hahne, *Dynamic queue length thresholds for shared-memory packet switches*,
//! 1998). So one host alone gets half, each of n greedy hosts one of n + 1 parts, and the last part is left for others.
//! `sessions_per_host_max` sets a fixed limit instead.

pub mod config;
pub mod decide;
mod explain;
mod fragments;
mod lookup;
mod owner;
mod packet;
pub mod ports;
mod rewrite;
mod saved;
mod session;

pub use config::{Forward, IdleTimes, NatConfig, NatCounters, NatError, Refusal};
pub use decide::NatDecision;
pub use saved::SavedSession;
pub use session::Session;

use std::collections::{HashMap, HashSet};

use flowlane::cuckoo::CuckooWriter;
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::parse::ip_proto;

use super::ageing::{Aged, NEVER, PACKET_BUDGET, Ticks};
use super::gathered::{Gathered, Lookups};
use super::shard::{Owner, Shard};
use super::table::{AgedTable, Found, keys};
use super::{Explanation, Half, REFUSED, StageCall, StagePacket, StatefulStage, Verdicts};
use crate::packet::Burst;
use decide::{Conditions, Source, addresses, datagram};
use fragments::{Fragments, Piece};
use lookup::{Direction, NatLookup, Packet};
use ports::Pool;
use rewrite::Rewrite;
use session::state::is_established;
use session::tcp_state;

/// The names of the verdicts, by number.
const VERDICTS: [&str; 4] = ["outbound", "inbound", "hairpin", "other"];

const OUTBOUND: u32 = 0;
const INBOUND: u32 = 1;
const HAIRPIN: u32 = 2;
const OTHER: u32 = 3;

/// The idle time of a recorded first fragment (RFC 791 allows 15 s for reassembly).
const FRAGMENT_IDLE_S: u64 = 15;

/// The translation of a datagram's first fragment.
#[derive(Clone, Copy, Debug)]
struct FirstFragment {
    verdict: u32,
    source: u32,
    destination: u32,
}

/// Address translation, with its sessions.
#[derive(Debug)]
pub struct Nat {
    config: NatConfig,
    pool: Pool,
    sessions: Aged<Session>,
    inside: CuckooWriter<2>,
    outside: CuckooWriter<2>,
    /// The number of sessions of each inside address, unless that is unlimited.
    hosts: Option<AgedTable<1, u32>>,
    fragments: Option<Fragments<FirstFragment>>,
    /// The workers that own the sessions of forwards, by outside end.
    forward_owners: HashMap<[u32; 2], usize>,
    /// The workers that process fragmented datagrams, if there are several workers.
    fragment_owners: Option<Fragments<usize>>,
    gathered: Box<[Gathered<2>; 2]>,
    lookups: Box<[NatLookup; LANES_MAX]>,
    /// Lanes whose lookups are of this burst: their owner has been determined.
    were_read: LaneMask,
    /// The number of forwards whose sessions are in this shard.
    forwards: u32,
    /// The number of sessions opened and removed: earlier lookups may be stale after one.
    changes: u64,
    counters: NatCounters,
    ticks: Ticks,
}

impl Nat {
    /// Address translation with the sessions of the forwards only.
    ///
    /// # Errors
    /// If forwards contradict each other or the pool.
    pub fn new(config: NatConfig) -> Result<Self, NatError> {
        let shard = config.shard;
        let own_max = shard.part(config.sessions_max);
        let sessions_max = own_max.saturating_add(config.forwards.len());
        let hosts = (config.sessions_per_host_max != Some(0))
            .then(|| AgedTable::new(own_max, config.seed ^ 0x9e37_79b9));
        let fragments = (config.fragments_max > 0)
            .then(|| Fragments::new(config.fragments_max, config.seed ^ 0x85eb_ca6b));
        let fragment_owners = (config.fragments_max > 0 && shard.is_part())
            .then(|| Fragments::new(config.fragments_max, config.seed ^ 0x27d4_eb2f));
        let mut nat = Self {
            pool: Pool::new(&config.pool, config.ports, config.secret, shard),
            sessions: Aged::new(sessions_max),
            inside: keys(sessions_max, config.seed),
            outside: keys(sessions_max, config.seed ^ 0x5bd1_e995),
            hosts,
            fragments,
            forward_owners: HashMap::new(),
            fragment_owners,
            gathered: Box::default(),
            lookups: Box::new([NatLookup::Other; LANES_MAX]),
            were_read: LaneMask(0),
            forwards: 0,
            changes: 0,
            counters: NatCounters::default(),
            ticks: Ticks::default(),
            config,
        };
        let mut insides = HashSet::new();
        for (i, forward) in nat.config.forwards.clone().iter().enumerate() {
            let (inside, outside) = (forward.inside, forward.outside);
            if !nat.config.is_inside(inside.0) {
                return Err(NatError::NotInside(i));
            }
            if !insides.insert((forward.proto, inside)) {
                return Err(NatError::Inside(i));
            }
            // No worker may draw its port, whichever owns the session.
            if !nat.pool.take(forward.proto, outside.0, outside.1) {
                return Err(NatError::Outside(i));
            }
            let session = Session {
                inside: inside.0,
                outside: outside.0,
                inside_port: inside.1,
                outside_port: outside.1,
                proto: forward.proto,
                state: 0,
                packets: [0; 2],
            };
            let owner = nat.owner_inside(inside.0);
            nat.forward_owners.insert(session.outside_key(), owner);
            if owner == shard.me {
                nat.enter(session, NEVER, 0).ok_or(NatError::Inside(i))?;
                nat.forwards += 1;
            }
        }
        Ok(nat)
    }

    /// Returns the sessions of a packet's source and destination.
    #[inline]
    fn find(&self, packet: &Packet) -> [Option<u32>; 2] {
        let inside = packet.looks_inside().then(|| self.inside.lookup(&packet.inside)).flatten();
        let outside = packet.looks_outside().then(|| self.outside.lookup(&packet.outside)).flatten();
        [inside, outside]
    }

    /// Removes sessions that a lookup returned and that have expired. Returns the live ones.
    #[inline]
    fn remove_expired(&mut self, [source, destination]: [Option<u32>; 2], now: u32) -> [Option<u32>; 2] {
        let live = source.filter(|&at| !self.removed_as_due(at, now));
        // A host may send to itself: then both are one session.
        let removed = live.is_none() && destination == source;
        [live, destination.filter(|&at| !removed && !self.removed_as_due(at, now))]
    }

    /// Decides on a lane's packet, for which these sessions were found, and commits the decision. Returns the verdict.
    #[inline]
    fn translate(
        &mut self,
        half: Half,
        lookup: &NatLookup,
        found: [Option<u32>; 2],
        packets: &mut Burst,
        lane: usize,
        now: u32,
    ) -> u32 {
        let packet = match lookup {
            NatLookup::Other => return OTHER,
            NatLookup::Refused(refusal) => return self.refuse(*refusal),
            NatLookup::Packet(packet) => packet,
        };
        let sessions = self.remove_expired(found, now);
        let conditions = Conditions { half, sessions, departing: &[], fragments_departing: &[], now };
        let mut decision = self.decide_packet(packet, StagePacket::of_lane(packets, lane), conditions);
        if matches!(decision, NatDecision::Refused(Refusal::Full)) {
            decision = self.decide_when_full(packet, StagePacket::of_lane(packets, lane), conditions);
        }
        match decision {
            NatDecision::Other => OTHER,
            NatDecision::Refused(refusal) => self.refuse(refusal),
            NatDecision::Translate { verdict, source, destination } => {
                let source = match source {
                    Some(Source::New(address)) => match self.open(packet, address, now) {
                        Some(at) => Some(at),
                        None => return self.refuse(Refusal::Full),
                    },
                    Some(Source::Session(at)) => Some(at),
                    None => None,
                };
                let before = addresses(&packets.keys[lane]);
                self.commit_ends(packet, [source, destination], packets, lane, now);
                if packet.is_fragment && half != Half::Source {
                    self.record_fragment(before, packet, verdict, packets, lane, now);
                }
                verdict
            }
            NatDecision::Error { verdict, session } => {
                let inbound = packet.direction == Direction::Inbound;
                let rewrite = Rewrite::Error { inbound, session: *self.sessions.get(session) };
                apply(rewrite, packets, lane);
                self.counters.errors += 1;
                verdict
            }
            NatDecision::LaterFragment { verdict, first } => {
                self.commit_later_fragment(first, packets, lane);
                verdict
            }
        }
    }

    /// Makes room, and decides on the packet again.
    #[cold]
    fn decide_when_full(
        &mut self,
        packet: &Packet,
        seen: StagePacket<'_>,
        conditions: Conditions<'_>,
    ) -> NatDecision {
        match self.make_room(conditions.now) {
            true => self.decide_packet(packet, seen, conditions),
            false => NatDecision::Refused(Refusal::Full),
        }
    }

    fn refuse(&mut self, refusal: Refusal) -> u32 {
        self.counters.refused[refusal as usize] += 1;
        REFUSED
    }

    /// Uses the sessions of a packet's ends and writes their other sides into it.
    #[inline]
    fn commit_ends(
        &mut self,
        packet: &Packet,
        [source, destination]: [Option<u32>; 2],
        packets: &mut Burst,
        lane: usize,
        now: u32,
    ) {
        let source = source.map(|at| self.use_session(at, packet, 0, now).outside_end());
        let destination = destination.map(|at| self.use_session(at, packet, 1, now).inside_end());
        apply(Rewrite::Ends { proto: packet.proto, source, destination }, packets, lane);
    }

    /// Counts a packet of a session, outbound (0) or inbound (1), and follows its TCP state.
    #[inline]
    fn use_session(&mut self, at: u32, packet: &Packet, direction: usize, now: u32) -> Session {
        let session = self.sessions.get_mut(at);
        session.packets[direction] += 1;
        let before = session.state;
        if packet.proto == ip_proto::TCP {
            session.state = tcp_state(before, packet.flags, direction);
        }
        let session = *session;
        // A connection that the other end closes has the full idle time of a closed one left.
        if direction == 0 || is_established(before) && !is_established(session.state) {
            self.sessions.touch(at, now);
        }
        if before != session.state {
            self.sessions.change_idle(at, self.config.idle.of(packet.proto, session.state));
        }
        session
    }

    /// Records the translation of a first fragment for the later ones of its datagram, whose addresses it had `before`.
    #[cold]
    fn record_fragment(
        &mut self,
        before: [u32; 2],
        packet: &Packet,
        verdict: u32,
        packets: &Burst,
        lane: usize,
        now: u32,
    ) {
        let Some(fragments) = &mut self.fragments else { return };
        let seen = StagePacket::of_lane(packets, lane);
        let [source, destination] = addresses(seen.key);
        let first = FirstFragment { verdict, source, destination };
        let datagram = datagram(before, packet, seen);
        self.counters.fragments_full += fragments.record(&datagram, Piece::of(seen), first, now);
    }

    /// Translates a later fragment like the first of its datagram.
    #[cold]
    fn commit_later_fragment(&mut self, first: u32, packets: &mut Burst, lane: usize) {
        let rewrite = self.rewrite_of_fragment(first);
        let piece = Piece::of(StagePacket::of_lane(packets, lane));
        self.fragments.iter_mut().for_each(|fragments| fragments.add(first, piece));
        apply(rewrite, packets, lane);
        self.counters.fragments += 1;
    }

    /// Returns the changes to the later fragments of a datagram.
    fn rewrite_of_fragment(&self, first: u32) -> Rewrite {
        let fragments = self.fragments.as_ref().expect("the first fragment is recorded");
        let FirstFragment { source, destination, .. } = fragments.get(first);
        Rewrite::Addresses { source, destination }
    }

    /// Removes sessions and fragments that are due at a packet's time. Returns the time in ticks.
    #[inline]
    fn age_at(&mut self, now_ns: u64) -> u32 {
        let now = self.ticks.at(now_ns);
        self.remove_due(now, PACKET_BUDGET);
        if let Some(fragments) = &mut self.fragments {
            fragments.age(now);
        }
        now
    }

    /// Returns the number of sessions, including forwards.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Returns whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Returns the counters.
    pub fn counters(&self) -> NatCounters {
        self.counters
    }

    /// Returns the sessions, in no particular order.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.numbers().map(|at| self.sessions.get(at))
    }

    /// Returns the sessions of forwards, in order.
    pub fn forwards(&self) -> impl Iterator<Item = &Session> {
        // They were the first, and never expire.
        (0..self.forwards).map(|at| self.sessions.get(at))
    }
}

/// Writes changes into a lane's frame and key.
#[inline]
fn apply(rewrite: Rewrite, packets: &mut Burst, lane: usize) {
    rewrite.apply(packets.frames[lane].bytes_mut(), &packets.headers[lane], &mut packets.keys[lane]);
}

impl StatefulStage for Nat {
    const KIND: &'static str = "nat";
    const VERDICTS: &'static [&'static str] = &VERDICTS;
    type Decision = NatDecision;

    fn process(&mut self, call: StageCall, packets: &mut Burst, lanes: LaneMask, verdicts: &mut Verdicts) {
        if self.config.lookups == Lookups::Scalar {
            for lane in lanes.lanes() {
                let lookup = self.read(StagePacket::of_lane(packets, lane));
                let now = self.age_at(packets.times_ns[lane]);
                let mut found = [None; 2];
                if let NatLookup::Packet(packet) = &lookup {
                    found = self.find(packet);
                }
                verdicts[lane] = self.translate(call.half, &lookup, found, packets, lane, now);
            }
            return;
        }
        self.gathered.iter_mut().for_each(Gathered::clear);
        let were_read = std::mem::take(&mut self.were_read);
        for lane in lanes.lanes() {
            if were_read.0 >> lane & 1 == 0 {
                self.lookups[lane] = self.read(StagePacket::of_lane(packets, lane));
            }
            if let NatLookup::Packet(packet) = &self.lookups[lane] {
                if packet.looks_inside() {
                    self.gathered[0].push(lane, packet.inside);
                }
                if packet.looks_outside() {
                    self.gathered[1].push(lane, packet.outside);
                }
            }
        }
        self.gathered[0].look_up(&self.inside);
        self.gathered[1].look_up(&self.outside);
        self.gathered.iter().flat_map(Gathered::values).for_each(|at| self.sessions.prefetch(at));
        let (changes, mut next) = (self.changes, [0; 2]);
        for lane in lanes.lanes() {
            let lookup = self.lookups[lane];
            let now = self.age_at(packets.times_ns[lane]);
            let mut found = [None; 2];
            if let NatLookup::Packet(packet) = &lookup {
                for (side, looks) in [packet.looks_inside(), packet.looks_outside()].into_iter().enumerate() {
                    if looks {
                        found[side] = self.gathered[side].found(next[side]);
                        next[side] += 1;
                    }
                }
                if self.changes != changes {
                    found = self.find(packet);
                }
            }
            verdicts[lane] = self.translate(call.half, &lookup, found, packets, lane, now);
        }
    }

    fn decide(&self, call: StageCall, packet: StagePacket<'_>) -> NatDecision {
        let lookup = match self.read(packet) {
            NatLookup::Other => return NatDecision::Other,
            NatLookup::Refused(refusal) => return NatDecision::Refused(refusal),
            NatLookup::Packet(lookup) => lookup,
        };
        let now = self.ticks.peek(packet.now_ns);
        let found = self.find(&lookup).map(|found| Found::of(&self.sessions, found, now));
        let expired: Vec<u32> = found.iter().filter_map(|found| found.expired()).collect();
        let departing = &self.sessions.preview_expiry(&expired, now)[..];
        let sessions = found.map(Found::live);
        let fragments_departing = &self.fragments.as_ref().map_or(Vec::new(), |f| f.departing(now))[..];
        let half = call.half;
        self.decide_packet(
            &lookup,
            packet,
            Conditions { half, sessions, departing, fragments_departing, now },
        )
    }

    fn explain(&self, call: StageCall, packet: StagePacket<'_>, decision: &NatDecision) -> Explanation {
        self.explanation(call, packet, *decision)
    }

    fn shard(&self) -> Shard {
        self.config.shard
    }

    fn decide_owner(&self, packet: StagePacket<'_>) -> Owner {
        if !self.config.shard.is_part() {
            return Owner::Any;
        }
        match self.read(packet) {
            NatLookup::Packet(lookup) => self.owner_of(&lookup, packet),
            NatLookup::Other | NatLookup::Refused(_) => Owner::Any,
        }
    }

    #[inline]
    fn owner(&mut self, packets: &mut Burst, lane: usize) -> Owner {
        self.owner_of_lane(packets, lane)
    }

    #[inline]
    fn has_halves(&self) -> bool {
        self.config.hairpin
    }

    fn age(&mut self, now_ns: u64) {
        self.age_at(now_ns);
    }

    fn table_bytes(&self) -> usize {
        let tables = [&self.inside, &self.outside].map(|t| t.table_bytes() + t.writer_bytes());
        let fragments = self.fragments.as_ref().map_or(0, Fragments::table_bytes);
        let hosts = self.hosts.as_ref().map_or(0, AgedTable::table_bytes);
        tables[0] + tables[1] + self.sessions.table_bytes() + self.pool.table_bytes() + fragments + hosts
    }
}
