//! Sessions: connections between an inside end and any host, by which address translation is endpoint-independent (RFC 4787).
//!
//! All packets from an inside address and port leave by one outside address and port, wherever they go (REQ-1), and any host may
//! send to that (REQ-8). So the other end of a session is a wildcard, whose address and port are 0 in its tuples:
//!
//! | tuple | source | destination |
//! |---|---|---|
//! | original | inside end | any |
//! | reply | any | outside end |
//!
//! One entry of the table serves all hosts, and is found from either side by a tuple with the other end wiped. Translation by
//! connection (`Mapping::Connection`) differs only in that nothing is wiped: then each host has a session of its own.
//!
//! *Only packets from inside refresh a session*: RFC 4787 REQ-6 requires that, allows the other direction, too, and names its danger,
//! that an outside host can keep a session, and with it a port, for ever. For the same reason a SYN from outside opens nothing: a
//! session gets the long idle time only once the inside end has agreed, and a segment from outside that closes it restarts its idle
//! time once.
//!
//! **No host takes all sessions.** By default an inside address gets a new session only if as many are free as it has, and as many
//! ports (a dynamic threshold: Choudhury and Hahne, *Dynamic queue length thresholds for shared-memory packet switches*, 1998).

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

use flowlane::packet::parse::ip_proto;

use super::entry::{Entry, Live, Translated};
use super::events::{Change, Ended, followed_parts};
use super::holders::{Held, Holders, Host, Outside};
use super::nat::{Draw, Ports};
use super::protocol::State;
use super::saved::{NotRestored, SavedConnection};
use super::table::{Hashed, NotAdded, Place};
use super::tcp::flags::{ACK, FIN, RST, SYN};
use super::tuple::{End, Tuple};
use super::{Connections, Memories};

/// Outside addresses that are tried for a session.
const ADDRESSES_TRIED: u128 = 16;

/// Free ports of an address that are tried for a session.
const PORTS_TRIED: usize = 32;

/// Entries that are looked at for sessions whose time is over, before a new one is refused.
const LOOKED_AT: u32 = 64;

/// Those that are looked at with each new session, so that the table does not fill with sessions whose time is over, even where time
/// passes with packets alone.
const SWEPT: u32 = 8;

/// The time at which a session ends that never does.
pub(super) const NEVER_MS: u64 = u64::MAX;

/// Events of TCP that a session has seen.
mod seen {
    pub(super) const SYN_OUT: u8 = 1;
    pub(super) const SYN_IN: u8 = 2;
    pub(super) const FIN_OUT: u8 = 4;
    pub(super) const FIN_IN: u8 = 8;
    pub(super) const RST: u8 = 16;
    /// The inside end has acknowledged the other's SYN.
    pub(super) const ACK_OUT: u8 = 32;
    pub(super) const OPEN: u8 = SYN_OUT | SYN_IN | ACK_OUT;
    pub(super) const FINS: u8 = FIN_OUT | FIN_IN;
    pub(super) const ALL: u8 = OPEN | FINS | RST;
}

/// The state of a session, which may carry several TCP connections: it combines all their segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Session {
    events: u8,
    /// Packets outbound and inbound: the low and the high half of each number.
    packets: [[u32; 2]; 2],
}

impl Session {
    /// Its name in reports.
    pub(super) fn name(&self) -> &'static str {
        match self.events {
            0 => "SESSION",
            _ if self.is_established() => "ESTABLISHED",
            _ if self.is_closed() => "CLOSED",
            _ => "OPENING",
        }
    }

    /// Returns the packets outbound and inbound.
    pub fn packets(&self) -> [u64; 2] {
        self.packets.map(|[low, high]| u64::from(high) << 32 | u64::from(low))
    }

    fn is_closed(&self) -> bool {
        self.events & seen::RST != 0 || self.events & seen::FINS == seen::FINS
    }

    fn is_established(&self) -> bool {
        self.events & seen::OPEN == seen::OPEN && !self.is_closed()
    }

    /// Takes a packet, outbound (0) or inbound (1), with these flags of TCP. Returns whether the idle time begins again.
    fn update(&mut self, flags: Option<u16>, direction: usize) -> bool {
        let packets = self.packets()[direction] + 1;
        self.packets[direction] = [packets as u32, (packets >> 32) as u32];
        let was_established = self.is_established();
        if let Some(flags) = flags {
            self.events = self.after(flags, direction);
        }
        // A connection that the other end closes has the full idle time of a closed one left.
        direction == 0 || was_established && !self.is_established()
    }

    /// Returns the events after a segment with these flags.
    fn after(&self, flags: u16, direction: usize) -> u8 {
        let mut seen = self.events;
        if flags & SYN != 0 {
            if self.is_closed() {
                seen = 0;
            }
            seen |= seen::SYN_OUT << direction;
        }
        if flags & FIN != 0 {
            seen |= seen::FIN_OUT << direction;
        }
        if flags & RST != 0 {
            return seen | seen::RST;
        }
        let outbound = direction == 0;
        if outbound && flags & ACK != 0 && seen & seen::SYN_IN != 0 {
            seen |= seen::ACK_OUT;
        }
        // A forged RST does no lasting harm: the next segment from inside clears it (RFC 6146 §3.5.2.2). Segments from outside do
        // not, since they may be forged, too.
        if outbound { seen & !seen::RST } else { seen }
    }

    /// Appends the session.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(self.events);
        self.packets().iter().for_each(|packets| out.extend(packets.to_le_bytes()));
    }

    /// Reads what [`write`](Self::write) has written.
    pub(super) fn read(bytes: &mut crate::state::bytes::Bytes<'_>) -> Option<Self> {
        let events = bytes.u8()?;
        let halves = |packets: u64| [packets as u32, (packets >> 32) as u32];
        let packets = [halves(bytes.u64()?), halves(bytes.u64()?)];
        (events & !seen::ALL == 0).then_some(Self { events, packets })
    }
}

/// Idle times of sessions, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleTimes {
    /// UDP.
    pub udp: u64,
    /// TCP that is opening or closed.
    pub tcp_transitory: u64,
    /// Established TCP.
    pub tcp_established: u64,
    /// ICMP.
    pub icmp: u64,
}

impl IdleTimes {
    /// Returns when a session of a protocol ends that is used now: after its idle time at the earliest, since times are rounded down.
    fn end(&self, proto: u8, session: &Session, now_ms: u64) -> u64 {
        let idle = match proto {
            ip_proto::TCP if session.is_established() => self.tcp_established,
            ip_proto::TCP => self.tcp_transitory,
            ip_proto::UDP => self.udp,
            _ => self.icmp,
        };
        now_ms.saturating_add(idle).saturating_add(1)
    }
}

/// Addresses from one to another, both included, of one version of IP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Range {
    pub is_ipv6: bool,
    pub first: u128,
    pub last: u128,
}

impl Range {
    /// Addresses of IPv4.
    pub fn v4(first: u32, last: u32) -> Self {
        Self { is_ipv6: false, first: first.into(), last: last.into() }
    }

    /// Returns whether an address is one of them.
    #[inline]
    pub fn contains(&self, is_ipv6: bool, address: u128) -> bool {
        self.is_ipv6 == is_ipv6 && self.first <= address && address <= self.last
    }

    fn len(&self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }
}

/// The outside addresses and ports that sessions get.
#[derive(Clone, Debug)]
pub struct Pool {
    /// In order; none overlaps another.
    ranges: Vec<Range>,
    /// Both included; identifiers of ICMP are not restricted.
    ports: (u16, u16),
}

impl Pool {
    /// A pool of these addresses and ports.
    pub fn new(mut ranges: Vec<Range>, ports: (u16, u16)) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<Range> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.is_ipv6 == range.is_ipv6 && range.first <= last.last => {
                    last.last = last.last.max(range.last);
                }
                _ => joined.push(range),
            }
        }
        Self { ranges: joined, ports }
    }

    /// Returns whether an address is in the pool.
    #[inline]
    pub fn contains(&self, is_ipv6: bool, address: u128) -> bool {
        self.ranges.iter().any(|range| range.contains(is_ipv6, address))
    }

    /// Returns the ports of a protocol.
    fn ports(&self, proto: u8) -> (u16, u16) {
        if matches!(proto, ip_proto::ICMP | ip_proto::ICMPV6) { (0, u16::MAX) } else { self.ports }
    }

    /// Returns whether sessions may get an outside end.
    pub fn has(&self, proto: u8, is_ipv6: bool, outside: End) -> bool {
        let (low, high) = self.ports(proto);
        self.contains(is_ipv6, outside.address) && (low..=high).contains(&outside.port)
    }

    /// Returns the addresses that are tried for a session. Those of one inside address are always the same, while they have ports
    /// (*paired*, RFC 4787 REQ-2).
    fn tried(&self, original: &Tuple, draw: &impl Draw) -> impl Iterator<Item = u128> {
        let ranges = || self.ranges.iter().filter(|range| range.is_ipv6 == original.is_ipv6);
        let count = ranges().fold(0u128, |count, range| count.saturating_add(range.len()));
        let begin = u128::from(draw.draw(original, true, 0));
        (0..count.min(ADDRESSES_TRIED)).filter_map(move |step| {
            let mut place = (begin + step) % count;
            ranges().find_map(|range| {
                let at = range.first.saturating_add(place);
                let is_here = place < range.len();
                place = place.saturating_sub(range.len());
                is_here.then_some(at)
            })
        })
    }

    /// Returns the ports for a session, those that are tried first in front: from one on that cannot be guessed (RFC 6056). A port of
    /// UDP is even if the inside port is, while there are such (RFC 4787 REQ-4). With each, the number by which its ports are drawn.
    fn ports_for(&self, original: &Tuple, draw: &impl Draw) -> impl Iterator<Item = (Ports, u32)> {
        let (range, is_udp) = (self.ports(original.proto), original.proto == ip_proto::UDP);
        let inside = original.source.port;
        let alike = if is_udp { Ports::even_or_odd(range, inside) } else { Some(Ports::all(range)) };
        let others = if is_udp { Ports::even_or_odd(range, !inside) } else { None };
        let begin = |ports: Option<Ports>, number| {
            ports.map(|ports| (ports.from(draw.draw(original, false, number)), number))
        };
        [begin(alike, 0), begin(others, 16)].into_iter().flatten()
    }
}

/// A session to be opened.
#[derive(Clone, Copy, Debug)]
pub struct NewSession<'a> {
    /// The original tuple, with its zone.
    pub tuple: Tuple,
    pub pool: &'a Pool,
    /// Sessions of the zone at most.
    pub sessions_max: u32,
    /// Those of an inside address at most; 0 for no limit. Without it, one that has as many as are free gets no more.
    pub per_host_max: Option<u32>,
    pub idle: &'a IdleTimes,
}

/// The reason for which a session is not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotOpened {
    /// There is no room.
    Full,
    /// The inside address has its share.
    HostFull,
    /// The outside addresses have no free port.
    NoPort,
    /// Another worker has just opened it.
    Known,
}

/// A session that a packet was found to be of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundSession {
    place: Place,
    /// The end that the packet's is translated to: of a packet from inside the outside one.
    pub end: End,
}

impl Connections {
    pub(super) fn holders(&self) -> MutexGuard<'_, Holders> {
        // The holder of the lock only counts, and does not panic.
        self.sessions.holders.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Finds the session of a prepared tuple that is of this direction.
    #[inline]
    pub fn find_session(&self, tuple: &Hashed, direction: usize, now_ms: u64) -> Option<FoundSession> {
        let (place, _) = self.find(tuple, now_ms).filter(|(_, found)| *found == direction)?;
        let other = self.table().entry(place.entry).tuple(1 - direction);
        let end = if direction == 0 { other.destination } else { other.source };
        Some(FoundSession { place, end })
    }

    /// Takes a packet of a session, outbound (0) or inbound (1), with the flags of TCP. Returns whether the session is still there.
    #[inline]
    pub fn use_session(
        &self,
        found: &FoundSession,
        (proto, flags): (u8, Option<u16>),
        direction: usize,
        (idle, now_ms): (&IdleTimes, u64),
    ) -> bool {
        let entry = self.table().entry(found.place.entry);
        let is_followed = self.events.are_wanted();
        let used = entry.with(found.place.generation, |live| {
            let former = is_followed.then(|| followed_parts(live));
            let State::Session(session) = &mut live.state else { return None };
            if session.update(flags, direction) && entry.expires_ms() != NEVER_MS {
                entry.set_expiry(idle.end(proto, session, now_ms));
            }
            let is_changed = former.is_some_and(|former| former != followed_parts(live));
            is_changed.then(|| entry.listed(live, now_ms))
        });
        used.iter().flatten().for_each(|listed| self.events.push(Change::Updated, listed));
        used.is_some()
    }

    /// Returns whether a session never ends, and its state.
    pub fn session(&self, found: &FoundSession) -> Option<(bool, Session)> {
        let entry = self.table().entry(found.place.entry);
        let state = entry.with(found.place.generation, |live| live.state)?;
        let State::Session(session) = state else { return None };
        Some((entry.expires_ms() == NEVER_MS, session))
    }

    /// Returns the number of connections of a zone.
    pub fn len_of_zone(&self, zone: u16) -> u32 {
        self.memories.get().map_or(0, |memories| memories.zones[usize::from(zone)].load(Ordering::Relaxed))
    }

    /// Returns the bytes that a connection takes.
    pub fn bytes_each(&self) -> usize {
        size_of::<Entry>() + 2 * size_of::<u32>()
    }

    /// Returns how many sessions of a zone have ended.
    pub fn ended_sessions(&self, zone: u16) -> u64 {
        self.holders().ended(zone)
    }

    /// Decides whether a session may be opened; changes nothing that packets depend on. Returns the outside address that it would get.
    ///
    /// # Errors
    /// If there is no room, or the inside address has its share.
    pub fn may_open(&self, new: &NewSession<'_>, now_ms: u64) -> Result<u128, NotOpened> {
        // Among those that are counted may be some whose time is over.
        self.sweep_ahead(now_ms, SWEPT);
        let decided = self.room(&self.holders(), new);
        decided.or_else(|_| {
            self.sweep_ahead(now_ms, LOOKED_AT);
            self.room(&self.holders(), new)
        })
    }

    fn room(&self, holders: &Holders, new: &NewSession<'_>) -> Result<u128, NotOpened> {
        let free_sessions = new.sessions_max.saturating_sub(self.len_of_zone(new.tuple.zone));
        if free_sessions == 0 {
            return Err(NotOpened::Full);
        }
        let (mut free_ports, mut chosen) = (0, None);
        for address in new.pool.tried(&new.tuple, self) {
            let free = self.free_ports(holders, new, address);
            free_ports += free;
            chosen = chosen.or((free > 0).then_some(address));
        }
        let chosen = chosen.ok_or(NotOpened::NoPort)?;
        let may_have = match new.per_host_max {
            Some(0) => u32::MAX,
            Some(most) => most,
            None => free_sessions.min(free_ports),
        };
        let held = holders.sessions(Host::of(&new.tuple));
        if held >= may_have { Err(NotOpened::HostFull) } else { Ok(chosen) }
    }

    /// Returns the number of an outside address's free ports.
    fn free_ports(&self, holders: &Holders, new: &NewSession<'_>, address: u128) -> u32 {
        let (low, high) = new.pool.ports(new.tuple.proto);
        let used = holders.ports(Outside::of(&new.tuple, address));
        (u32::from(high) - u32::from(low) + 1).saturating_sub(used)
    }

    /// Opens a session. Returns it as one found from inside.
    ///
    /// # Errors
    /// If there is no room, the inside address has its share, or no port is free.
    #[cold]
    pub fn open_session(&self, new: &NewSession<'_>, now_ms: u64) -> Result<FoundSession, NotOpened> {
        if let Err(refused) = self.may_open(new, now_ms) {
            self.hand.0.fetch_add(LOOKED_AT, Ordering::Relaxed);
            return Err(refused);
        }
        self.sweep(now_ms, SWEPT);
        // Others open none meanwhile, so that limits are exact.
        let mut holders = self.holders();
        self.room(&holders, new)?;
        for address in new.pool.tried(&new.tuple, self) {
            if self.free_ports(&holders, new, address) == 0 {
                continue;
            }
            let mut reply = new.tuple.reversed();
            reply.destination.address = address;
            for (ports, number) in new.pool.ports_for(&new.tuple, self) {
                for port in self.tried_ports(&holders, new.tuple, address, (ports, number)) {
                    reply.destination.port = port;
                    if reply.is_icmp() {
                        reply.source.port = port;
                    }
                    match self.add_session(&mut holders, new, reply, now_ms) {
                        Err(NotAdded::Reply) => {}
                        Err(NotAdded::Original) => return Err(NotOpened::Known),
                        Err(NotAdded::Full) => return Err(NotOpened::Full),
                        Ok(place) => return Ok(FoundSession { place, end: reply.destination }),
                    }
                }
            }
        }
        self.counters.refused_nat.fetch_add(1, Ordering::Relaxed);
        Err(NotOpened::NoPort)
    }

    /// Returns the ports that are tried for a session: free ones, where a port is of one session. They are free but for connections that
    /// rules keep in the zone.
    fn tried_ports(
        &self,
        holders: &Holders,
        tuple: Tuple,
        address: u128,
        (ports, number): (Ports, u32),
    ) -> Box<dyn Iterator<Item = u16> + '_> {
        if tuple.destination.address == 0 {
            let free: Vec<u16> =
                holders.free(Outside::of(&tuple, address), ports).take(PORTS_TRIED).collect();
            return Box::new(free.into_iter());
        }
        Box::new(ports.tried(move |round| self.draw(&tuple, false, number + round)))
    }

    /// Adds a session with a reply tuple, unless that is another's.
    fn add_session(
        &self,
        holders: &mut Holders,
        new: &NewSession<'_>,
        reply: Tuple,
        now_ms: u64,
    ) -> Result<Place, NotAdded> {
        let table = self.table();
        if let Some((place, _)) = table.find(&table.hashed(&reply)) {
            if table.entry(place.entry).expires_ms() > now_ms {
                return Err(NotAdded::Reply);
            }
            match self.take_out(place, Ended::Expired, now_ms) {
                Some((tuples, Live { state: State::Session(_), .. })) => holders.end(&tuples),
                Some(_) => {}
                None => return Err(NotAdded::Reply),
            }
            self.counters.expired.fetch_add(1, Ordering::Relaxed);
        }
        let expires_ms = new.idle.end(new.tuple.proto, &Session::default(), now_ms);
        let tuples = [new.tuple, reply];
        self.enter(holders, (tuples, Session::default()), Held::of(&tuples), (now_ms, expires_ms))
    }

    /// Adds a session, and counts it.
    fn enter(
        &self,
        holders: &mut Holders,
        (tuples, session): ([Tuple; 2], Session),
        held: Held,
        (begun_ms, expires_ms): (u64, u64),
    ) -> Result<Place, NotAdded> {
        let Memories { table, zones } = self.memories();
        let mut live = Live::new(State::Session(session), begun_ms);
        live.translated = Translated { source: true, destination: false };
        let place = table.add(tuples, live, expires_ms)?;
        zones[usize::from(tuples[0].zone)].fetch_add(1, Ordering::Relaxed);
        self.sessions.number.fetch_add(1, Ordering::Relaxed);
        self.counters.added.fetch_add(1, Ordering::Relaxed);
        holders.add(held);
        if self.events.are_wanted() {
            let entry = table.entry(place.entry);
            let listed = entry.with(place.generation, |live| entry.listed(live, begun_ms));
            listed.iter().for_each(|listed| self.events.push(Change::New, listed));
        }
        Ok(place)
    }

    /// Opens a session that never ends, with its tuples, unless it is there. It counts for no inside address; its port counts where it
    /// is one that sessions may get.
    pub fn open_permanent(&self, tuples: [Tuple; 2], pool: &Pool) -> bool {
        let [original, reply] = tuples;
        let is_drawn = pool.has(reply.proto, reply.is_ipv6, reply.destination);
        let held = Held { host: None, port: Held::of(&tuples).port.filter(|_| is_drawn) };
        let entered =
            self.enter(&mut self.holders(), (tuples, Session::default()), held, (0, NEVER_MS)).is_ok();
        entered || {
            let found = self.table().find(&self.prepare(&original));
            found.is_some_and(|(place, _)| self.table().entry(place.entry).tuple(1) == reply)
        }
    }

    /// Opens a saved session again, of which the caller knows that it could have been opened here.
    ///
    /// # Errors
    /// Where its time is over, there is no room, or another one has one of its tuples.
    pub fn restore_session(
        &self,
        saved: &SavedConnection,
        (sessions_max, idle): (u32, &IdleTimes),
        now_ms: u64,
    ) -> Result<(), NotRestored> {
        let State::Session(session) = saved.state else { return Err(NotRestored::NoSession) };
        let [original, _] = saved.tuples;
        let expires_ms = saved.expires_ms.min(idle.end(original.proto, &session, now_ms));
        if expires_ms <= now_ms {
            return Err(NotRestored::Expired);
        }
        let mut holders = self.holders();
        if self.len_of_zone(original.zone) >= sessions_max {
            return Err(NotRestored::Full);
        }
        let begun_ms = saved.begun_ms.min(now_ms);
        let held = Held::of(&saved.tuples);
        match self.enter(&mut holders, (saved.tuples, session), held, (begun_ms, expires_ms)) {
            Ok(_) => Ok(()),
            Err(NotAdded::Full) => Err(NotRestored::Full),
            Err(NotAdded::Original | NotAdded::Reply) => Err(NotRestored::Known),
        }
    }
}
