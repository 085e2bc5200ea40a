//! Address translation: many hosts behind a few outside addresses (NAPT44).
//!
//! A *session* joins an inside address and port to an outside address and port, of one protocol: TCP, UDP, or ICMP, whose
//! identifiers are its ports. All packets from the inside address and port leave by the outside one, wherever they go
//! (endpoint-independent mapping, RFC 4787 REQ-1), and whoever sends to the outside one is let through
//! (endpoint-independent filtering, REQ-8): who wants less lets rules or a packet filter in front of it say so. Two cuckoo
//! tables lead to the session, one from each side.
//!
//! The addresses say which way a packet goes: to an address of the pool it goes *inbound*, from an inside network
//! *outbound*; from inside to the pool it turns round (*hairpin*, REQ-9) and is translated both ways. Others are not
//! touched, nor are those to groups and to 255.255.255.255. Rules in front say what may come from where: an inside source on
//! an outside port is a forgery, and what goes from one inside address to another, broadcasts of their networks among it, is
//! not for this table.
//!
//! | what comes | what happens |
//! |---|---|
//! | UDP outbound; TCP SYN outbound; ICMP echo or timestamp request outbound | a session is made where there is none |
//! | other TCP outbound without session | refused |
//! | anything inbound without session | refused |
//! | ICMP error about a session's packet, either way | the packet that it quotes is translated, too; the session does not grow younger (RFC 5508 REQ-3 to 6) |
//! | first fragment | translated, and remembered for those behind it |
//! | later fragment | translated as the first was; refused where that has not come (RFC 4787 REQ-14 would have it kept) |
//! | ICMP from inside to the pool | refused: a query has no session that answers it, and errors do not turn round |
//! | other protocols | refused |
//!
//! A session goes when it is idle: UDP 300 s (RFC 4787 REQ-5), TCP 7440 s once both ends have sent SYN and the inside one
//! has acknowledged the other's, and 240 s before that, after both have sent FIN and after an RST that no segment from
//! inside has followed (RFC 5382 REQ-5, RFC 7857 §2), ICMP 60 s (RFC 5508 REQ-2), by default. A session may have several TCP
//! connections; its state is that of all their segments together, and a closed one opens again with the next SYN. Where the
//! table, a host's share or the ports of its address are full, new sessions are refused and counted; nothing that lives is
//! pushed out.
//!
//! Since anyone may send to a session, *only what comes from inside keeps it*: RFC 4787 REQ-6 wants that, allows the
//! other way, too, and names its danger, that whoever is outside keeps a session, and with it a port, for ever. A stream
//! that is never answered from inside ends after its time. For the same reason one SYN from outside opens nothing: a
//! session lasts longer only once the inside end has agreed, and where a segment from outside closes one, that begins its
//! time anew once.
//!
//! First fragments are remembered for 15 s, so that `fragments_max` of them in that time, 70 a second where it is 1024,
//! take the room of all others: fragments then stop (and are counted), other packets do not. RFC 4787 REQ-14 asks for fragments
//! to be let through, and for a limit.

pub mod config;
mod explain;
mod owner;
mod packet;
pub mod ports;
mod reading;
mod session;

pub use config::{Forward, IdleTimes, NatConfig, NatCounters, NatError, Refusal};
pub use session::Session;

use std::collections::{HashMap, HashSet};

use flowlane::cuckoo::CuckooWriter;
use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::ip_proto;

use super::REFUSED;
use super::ageing::{Aged, NEVER, PACKET_BUDGET, Ticks, idle_ticks};
use super::gathered::{Gathered, Lookups};
use super::table::{AgedTable, keys};
use crate::packet::{Burst, Handover};
use packet::{End, Endpoint, Place, quoted, word16, write_address, write_end, write_quoted};
use ports::Pool;
use reading::{Packet, Reading, Way, What};
use session::state::is_established;
use session::tcp_state;

/// The verdicts, by number.
pub const VERDICTS: [&str; 4] = ["outbound", "inbound", "hairpin", "other"];

const OUTBOUND: u8 = 0;
const INBOUND: u8 = 1;
const HAIRPIN: u8 = 2;
const OTHER: u8 = 3;

/// How long what the first fragment said is remembered (RFC 791 lets a datagram be put together for 15 s).
const FRAGMENT_IDLE_S: u64 = 15;

/// The same once the last fragment has come: long enough for those that it has overtaken.
const LAST_FRAGMENT_IDLE_S: u64 = 2;

/// More fragments: the bit of the word that has a fragment's offset.
const MORE_FRAGMENTS: u16 = 1 << 13;

/// What became of a datagram's first fragment.
#[derive(Clone, Copy, Debug)]
struct FirstFragment {
    verdict: u8,
    source: u32,
    destination: u32,
}

impl FirstFragment {
    /// Writes where the first went into another fragment.
    fn write(&self, packets: &mut Burst, lane: usize) {
        let (bytes, l3) = (packets.frames[lane].bytes_mut(), usize::from(packets.headers[lane].l3));
        write_address(bytes, l3, End::Source, self.source);
        write_address(bytes, l3, End::Destination, self.destination);
        let key = &mut packets.keys[lane];
        key.set_word(word::IPV4_SRC, self.source);
        key.set_word(word::IPV4_DST, self.destination);
    }
}

/// Translation, with its sessions.
#[derive(Debug)]
pub struct Nat {
    config: NatConfig,
    pool: Pool,
    sessions: Aged<Session>,
    inside: CuckooWriter<2>,
    outside: CuckooWriter<2>,
    /// Sessions of each inside address, where these are limited.
    hosts: Option<AgedTable<1, u32>>,
    fragments: Option<AgedTable<3, FirstFragment>>,
    /// The workers that have the sessions of forwards, by their outside ends.
    forward_owners: HashMap<[u32; 2], usize>,
    /// To which workers datagrams in fragments go, where there are several.
    fragment_owners: Option<AgedTable<3, usize>>,
    gathered: Box<[Gathered<2>; 2]>,
    readings: Box<[Reading; LANES_MAX]>,
    /// Lanes whose readings are of this burst: whose packets are has been asked.
    were_read: LaneMask,
    /// Forwards whose sessions are here.
    forwards: u32,
    /// Sessions that came or went.
    changes: u64,
    counters: NatCounters,
    ticks: Ticks,
}

impl Nat {
    /// Translation without sessions, but for the forwards.
    ///
    /// # Errors
    /// Where forwards contradict each other or the pool.
    pub fn new(config: NatConfig) -> Result<Self, NatError> {
        let share = config.share;
        let own_max = share.part(config.sessions_max);
        let sessions_max = own_max.saturating_add(config.forwards.len());
        let hosts =
            (config.sessions_per_host_max > 0).then(|| AgedTable::new(own_max, config.seed ^ 0x9e37_79b9));
        let fragments = (config.fragments_max > 0)
            .then(|| AgedTable::new(config.fragments_max, config.seed ^ 0x85eb_ca6b));
        let fragment_owners = (config.fragments_max > 0 && share.is_part())
            .then(|| AgedTable::new(config.fragments_max, config.seed ^ 0x27d4_eb2f));
        let mut nat = Self {
            pool: Pool::new(&config.pool, config.ports, config.secret, share),
            sessions: Aged::new(sessions_max),
            inside: keys(sessions_max, config.seed),
            outside: keys(sessions_max, config.seed ^ 0x5bd1_e995),
            hosts,
            fragments,
            forward_owners: HashMap::new(),
            fragment_owners,
            gathered: Box::default(),
            readings: Box::new([Reading::Other; LANES_MAX]),
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
            // Whoever has the session: nobody is to draw its port.
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
            if owner == share.me {
                nat.enter(session, NEVER).ok_or(NatError::Inside(i))?;
                nat.forwards += 1;
            }
        }
        Ok(nat)
    }

    pub(super) fn process(&mut self, packets: &mut Burst, lanes: LaneMask, verdicts: &mut [u8; LANES_MAX]) {
        if self.config.lookups == Lookups::Scalar {
            for lane in lanes.lanes() {
                let reading = self.read(packets, lane);
                let now = self.come_to(packets.times_ns[lane]);
                let mut found = [None; 2];
                if let Reading::Packet(packet) = &reading {
                    found = self.find(packet);
                }
                verdicts[lane] = self.settle(&reading, found, packets, lane, now);
            }
            return;
        }
        self.gathered.iter_mut().for_each(Gathered::clear);
        let were_read = std::mem::take(&mut self.were_read);
        for lane in lanes.lanes() {
            if were_read.0 >> lane & 1 == 0 {
                self.readings[lane] = self.read(packets, lane);
            }
            if let Reading::Packet(packet) = &self.readings[lane] {
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
        let (changes, mut places) = (self.changes, [0; 2]);
        for lane in lanes.lanes() {
            let reading = self.readings[lane];
            let now = self.come_to(packets.times_ns[lane]);
            let mut found = [None; 2];
            if let Reading::Packet(packet) = &reading {
                for (side, looks) in [packet.looks_inside(), packet.looks_outside()].into_iter().enumerate() {
                    if looks {
                        found[side] = self.gathered[side].found(places[side]);
                        places[side] += 1;
                    }
                }
                if self.changes != changes {
                    found = self.find(packet);
                }
            }
            verdicts[lane] = self.settle(&reading, found, packets, lane, now);
        }
    }

    /// The sessions of a packet's source and destination.
    #[inline]
    fn find(&self, packet: &Packet) -> [Option<u32>; 2] {
        let inside = packet.looks_inside().then(|| self.inside.lookup(&packet.inside)).flatten();
        let outside = packet.looks_outside().then(|| self.outside.lookup(&packet.outside)).flatten();
        [inside, outside]
    }

    /// Translates a lane's packet, for which these sessions were found: of its source, of its destination. Gives the
    /// verdict.
    #[inline]
    fn settle(
        &mut self,
        reading: &Reading,
        found: [Option<u32>; 2],
        packets: &mut Burst,
        lane: usize,
        now: u32,
    ) -> u8 {
        let packet = match reading {
            Reading::Other => return OTHER,
            Reading::Refused(refusal) => return self.refuse(*refusal),
            Reading::Packet(packet) => packet,
        };
        let [source, destination] = found;
        let source = source.filter(|&at| !self.removed_as_due(at, now));
        // A host may speak to itself: then both are one.
        let gone = source.is_none() && destination == found[0];
        let destination = destination.filter(|&at| !gone && !self.removed_as_due(at, now));
        let found = [source, destination];
        let settled = match packet.what {
            What::LaterFragment => self.later_fragment(packet, packets, lane, now),
            What::Error => {
                let settled = self.error(packet, found, packets, lane);
                self.counters.errors += u64::from(settled.is_ok());
                settled
            }
            What::Opens | What::Goes => self.packet(packet, found, packets, lane, now),
        };
        settled.unwrap_or_else(|refusal| self.refuse(refusal))
    }

    fn refuse(&mut self, refusal: Refusal) -> u8 {
        self.counters.refused[refusal as usize] += 1;
        REFUSED
    }

    /// A packet with ports or an identifier.
    #[inline]
    fn packet(
        &mut self,
        packet: &Packet,
        [source, destination]: [Option<u32>; 2],
        packets: &mut Burst,
        lane: usize,
        now: u32,
    ) -> Result<u8, Refusal> {
        if packet.looks_outside() && destination.is_none() {
            return Err(Refusal::NoSession);
        }
        let source = match source {
            None if packet.looks_inside() => Some(self.open(packet, now)?),
            source => source,
        };
        let before = addresses(packets, lane);
        if let Some(at) = source {
            let to = self.use_session(at, packet, 0, now).outside_end();
            write(packets, lane, packet.proto, End::Source, to);
        }
        if let Some(at) = destination {
            let to = self.use_session(at, packet, 1, now).inside_end();
            write(packets, lane, packet.proto, End::Destination, to);
        }
        // Half of what turns round has been done.
        let verdict = if packets.handover == Handover::Half { HAIRPIN } else { packet.way.verdict() };
        if packet.first_fragment {
            self.remember_fragment(before, packet, verdict, packets, lane, now);
        }
        Ok(verdict)
    }

    /// Notes a packet of a session, outbound (0) or inbound (1).
    #[inline]
    fn use_session(&mut self, at: u32, packet: &Packet, direction: usize, now: u32) -> Session {
        let session = self.sessions.get_mut(at);
        session.packets[direction] += 1;
        let before = session.state;
        if packet.proto == ip_proto::TCP {
            session.state = tcp_state(before, packet.flags, direction);
        }
        let session = *session;
        // A connection that the other end closes has the time of a closed one left, not what is over of it.
        if direction == 0 || is_established(before) && !is_established(session.state) {
            self.sessions.touch(at, now);
        }
        if before != session.state {
            self.sessions.change_idle(at, self.config.idle.of(packet.proto, session.state));
        }
        session
    }

    /// An ICMP error: the packet that it quotes is translated back, and the error goes where that came from.
    #[cold]
    fn error(
        &self,
        packet: &Packet,
        [source, destination]: [Option<u32>; 2],
        packets: &mut Burst,
        lane: usize,
    ) -> Result<u8, Refusal> {
        let headers = packets.headers[lane];
        let bytes = packets.frames[lane].bytes_mut();
        let key = &mut packets.keys[lane];
        let quoted = quoted(bytes, &headers).ok_or(Refusal::ErrorAlone)?;
        let l3 = headers.l3.into();
        if packet.way == Way::Inbound {
            let session = self.sessions.get(destination.ok_or(Refusal::ErrorAlone)?);
            // Whoever speaks of a packet must have got it.
            if key.word(word::IPV4_DST) != session.outside {
                return Err(Refusal::ErrorAlone);
            }
            write_quoted(bytes, &headers, &quoted, End::Source, session.inside_end());
            write_address(bytes, l3, End::Destination, session.inside);
            key.set_word(word::IPV4_DST, session.inside);
        } else {
            let session = self.sessions.get(source.ok_or(Refusal::ErrorAlone)?);
            write_quoted(bytes, &headers, &quoted, End::Destination, session.outside_end());
            write_address(bytes, l3, End::Source, session.outside);
            key.set_word(word::IPV4_SRC, session.outside);
        }
        Ok(packet.way.verdict())
    }

    /// Notes where a datagram's later fragments go. `before`: its addresses as it came.
    #[cold]
    fn remember_fragment(
        &mut self,
        before: [u32; 2],
        packet: &Packet,
        verdict: u8,
        packets: &Burst,
        lane: usize,
        now: u32,
    ) {
        let Some(fragments) = &mut self.fragments else { return };
        let key = &packets.keys[lane];
        let datagram = datagram(before, packet, packets, lane);
        let (source, destination) = (key.word(word::IPV4_SRC), key.word(word::IPV4_DST));
        let first = FirstFragment { verdict, source, destination };
        match fragments.find(&datagram, now) {
            Some(at) => {
                fragments.entries.get_mut(at).value = first;
                fragments.entries.touch(at, now);
                fragments.entries.change_idle(at, idle_ticks(FRAGMENT_IDLE_S));
            }
            None => {
                // Where there is no room, its later fragments are refused.
                let entered = fragments.insert(&datagram, first, idle_ticks(FRAGMENT_IDLE_S), now);
                self.counters.fragments_full += u64::from(entered.is_none());
            }
        }
    }

    /// A fragment without ports goes where its datagram's first went.
    #[cold]
    fn later_fragment(
        &mut self,
        packet: &Packet,
        packets: &mut Burst,
        lane: usize,
        now: u32,
    ) -> Result<u8, Refusal> {
        let fragments = self.fragments.as_mut().ok_or(Refusal::FragmentAlone)?;
        let datagram = datagram(addresses(packets, lane), packet, packets, lane);
        let at = fragments.find(&datagram, now).ok_or(Refusal::FragmentAlone)?;
        let first = fragments.entries.get(at).value;
        let word = word16(packets.frames[lane].bytes(), usize::from(packets.headers[lane].l3) + 6);
        if word.is_some_and(|word| word & MORE_FRAGMENTS == 0) {
            fragments.entries.change_idle(at, idle_ticks(LAST_FRAGMENT_IDLE_S));
        }
        first.write(packets, lane);
        self.counters.fragments += 1;
        Ok(first.verdict)
    }

    pub(super) fn age(&mut self, now_ns: u64) {
        self.come_to(now_ns);
    }

    /// Lets a time come: some of what is due goes. Gives the time in ticks.
    #[inline]
    fn come_to(&mut self, now_ns: u64) -> u32 {
        let now = self.ticks.at(now_ns);
        self.remove_due(now, PACKET_BUDGET);
        if let Some(fragments) = &mut self.fragments {
            fragments.age(now, PACKET_BUDGET);
        }
        now
    }

    /// Number of sessions, forwards included.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// What has happened.
    pub fn counters(&self) -> NatCounters {
        self.counters
    }

    /// The sessions, in no order.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.sessions.numbers().map(|at| self.sessions.get(at))
    }

    /// The sessions of forwards, in order.
    pub fn forwards(&self) -> impl Iterator<Item = &Session> {
        // They came first, and never go.
        (0..self.forwards).map(|at| self.sessions.get(at))
    }

    pub(super) fn table_bytes(&self) -> usize {
        let tables = [&self.inside, &self.outside].map(|t| t.table_bytes() + t.writer_bytes());
        let fragments = self.fragments.as_ref().map_or(0, AgedTable::table_bytes);
        let hosts = self.hosts.as_ref().map_or(0, AgedTable::table_bytes);
        tables[0] + tables[1] + self.sessions.table_bytes() + self.pool.table_bytes() + fragments + hosts
    }
}

/// Source and destination of a lane's packet.
#[inline]
fn addresses(packets: &Burst, lane: usize) -> [u32; 2] {
    [word::IPV4_SRC, word::IPV4_DST].map(|word| packets.keys[lane].word(word))
}

/// The key of the datagram that a lane's fragment is of: the addresses that it came with, protocol and identification.
fn datagram([source, destination]: [u32; 2], packet: &Packet, packets: &Burst, lane: usize) -> [u32; 3] {
    let id = word16(packets.frames[lane].bytes(), usize::from(packets.headers[lane].l3) + 4).unwrap_or(0);
    [source, destination, u32::from(packet.proto) << 16 | u32::from(id)]
}

/// Writes an end into a lane's frame and key.
#[inline]
fn write(packets: &mut Burst, lane: usize, proto: u8, end: End, to: Endpoint) {
    let place = Place::of(&packets.headers[lane], proto);
    write_end(packets.frames[lane].bytes_mut(), place, end, to);
    let key: &mut FlowKey = &mut packets.keys[lane];
    let (address, shift) = match end {
        End::Source => (word::IPV4_SRC, 16),
        End::Destination => (word::IPV4_DST, 0),
    };
    key.set_word(address, to.address);
    if proto != ip_proto::ICMP {
        let ports = key.word(word::PORTS) & !(0xffff << shift) | u32::from(to.port) << shift;
        key.set_word(word::PORTS, ports);
    }
}
