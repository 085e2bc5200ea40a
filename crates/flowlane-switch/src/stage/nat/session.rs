//! Sessions: their state, and how they are opened and removed.

use super::Nat;
use super::lookup::Packet;
use super::packet::Endpoint;
use crate::stage::ageing::{FULL_BUDGET, NEVER};
use crate::stage::flag;

/// TCP events that a session has seen.
pub(super) mod state {
    pub(in crate::stage::nat) const SYN_OUT: u8 = 1;
    pub(in crate::stage::nat) const SYN_IN: u8 = 2;
    pub(in crate::stage::nat) const FIN_OUT: u8 = 4;
    pub(in crate::stage::nat) const FIN_IN: u8 = 8;
    pub(in crate::stage::nat) const RST: u8 = 16;
    /// The inside end has acknowledged the other's SYN.
    pub(in crate::stage::nat) const ACK_OUT: u8 = 32;
    pub(in crate::stage::nat) const OPEN: u8 = SYN_OUT | SYN_IN | ACK_OUT;
    pub(in crate::stage::nat) const FINS: u8 = FIN_OUT | FIN_IN;
    pub(in crate::stage::nat) const ALL: u8 = OPEN | FINS | RST;

    pub(in crate::stage::nat) fn is_closed(state: u8) -> bool {
        state & RST != 0 || state & FINS == FINS
    }

    pub(in crate::stage::nat) fn is_established(state: u8) -> bool {
        state & OPEN == OPEN && !is_closed(state)
    }
}

/// A session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Session {
    /// Inside address.
    pub inside: u32,
    /// Outside address.
    pub outside: u32,
    /// Inside port or identifier.
    pub inside_port: u16,
    /// Outside port or identifier.
    pub outside_port: u16,
    /// Protocol.
    pub proto: u8,
    pub(super) state: u8,
    /// Packets outbound and inbound.
    pub packets: [u64; 2],
}

impl Session {
    pub(super) fn inside_key(&self) -> [u32; 2] {
        session_key(self.inside, self.proto, self.inside_port)
    }

    pub(super) fn outside_key(&self) -> [u32; 2] {
        session_key(self.outside, self.proto, self.outside_port)
    }

    pub(super) fn inside_end(&self) -> Endpoint {
        Endpoint { address: self.inside, port: self.inside_port }
    }

    pub(super) fn outside_end(&self) -> Endpoint {
        Endpoint { address: self.outside, port: self.outside_port }
    }
}

#[inline]
pub(super) fn session_key(address: u32, proto: u8, port: u16) -> [u32; 2] {
    [address, u32::from(proto) << 16 | u32::from(port)]
}

/// Returns a session's TCP state after a segment with these flags.
#[inline]
pub(super) fn tcp_state(before: u8, flags: u8, direction: usize) -> u8 {
    let mut state = before;
    if flags & flag::SYN != 0 {
        if state::is_closed(state) {
            state = 0;
        }
        state |= state::SYN_OUT << direction;
    }
    if flags & flag::FIN != 0 {
        state |= state::FIN_OUT << direction;
    }
    let outbound = direction == 0;
    if flags & flag::RST != 0 {
        return state | state::RST;
    }
    if outbound && flags & flag::ACK != 0 && state & state::SYN_IN != 0 {
        state |= state::ACK_OUT;
    }
    // A forged RST does no lasting harm: the next segment from inside clears it (RFC 6146 §3.5.2.2). Segments from outside
    // do not, since they may be forged, too.
    if outbound { state & !state::RST } else { state }
}

impl Nat {
    /// Opens the session of a packet's source with a port of the outside address with this index, for which room and a
    /// port were found. Returns none if a cuckoo table refuses the key.
    #[cold]
    pub(super) fn open(&mut self, packet: &Packet, address: u32, now: u32) -> Option<u32> {
        let ([inside, port], proto) = (packet.inside, packet.proto);
        let inside_port = port as u16;
        let (outside, outside_port) = self.pool.draw(proto, address, inside_port);
        let session =
            Session { inside, outside, inside_port, outside_port, proto, state: 0, packets: [0; 2] };
        let opened = self.keep(session, now, now);
        self.counters.created += u64::from(opened.is_some());
        opened
    }

    /// Keeps a session whose port is taken, last used at a tick, and counts it for its host. Returns none if a table is full; the
    /// port is given back then.
    pub(super) fn keep(&mut self, session: Session, used: u32, now: u32) -> Option<u32> {
        let Session { inside, outside, outside_port, proto, state, .. } = session;
        let host = match &mut self.hosts {
            Some(hosts) => match hosts.find(&[inside], now).live() {
                Some(at) => Some(Some(at)),
                None => hosts.insert(&[inside], 0, NEVER, now).map(Some),
            },
            None => Some(None),
        };
        let idle = self.config.idle.of(proto, state);
        let kept = host.and_then(|_| self.enter(session, idle, used));
        if kept.is_none() {
            self.pool.give_back(proto, outside, outside_port);
        }
        if let (Some(hosts), Some(Some(at))) = (&mut self.hosts, host) {
            let sessions = &mut hosts.entries.get_mut(at).value;
            *sessions += u32::from(kept.is_some());
            if *sessions == 0 {
                hosts.remove(at);
            }
        }
        kept
    }

    /// Removes sessions that are due if the table is full. Returns whether there is room.
    #[cold]
    pub(super) fn make_room(&mut self, now: u32) -> bool {
        if self.sessions.is_full() {
            self.remove_due(now, FULL_BUDGET);
        }
        !self.sessions.is_full()
    }

    /// Inserts a session, last used at a tick, into all tables. Returns none if one is full.
    pub(super) fn enter(&mut self, session: Session, idle: u32, used: u32) -> Option<u32> {
        let at = self.sessions.insert(session, idle, used)?;
        let (inside, outside) = (session.inside_key(), session.outside_key());
        if self.inside.insert(&inside, at).is_err() {
            self.sessions.remove(at);
            return None;
        }
        if self.outside.insert(&outside, at).is_err() {
            self.inside.remove(&inside);
            self.sessions.remove(at);
            return None;
        }
        self.changes += 1;
        Some(at)
    }

    fn remove(&mut self, at: u32) {
        let session = self.sessions.remove(at);
        self.inside.remove(&session.inside_key());
        self.outside.remove(&session.outside_key());
        self.pool.give_back(session.proto, session.outside, session.outside_port);
        if let Some(hosts) = &mut self.hosts
            && let Some(at) = hosts.keys().lookup(&[session.inside])
        {
            let sessions = &mut hosts.entries.get_mut(at).value;
            *sessions -= 1;
            if *sessions == 0 {
                hosts.remove(at);
            }
        }
        self.changes += 1;
        self.counters.aged += 1;
    }

    /// Removes a session if it has been idle for too long. Returns whether it did.
    #[inline]
    pub(super) fn removed_as_due(&mut self, at: u32, now: u32) -> bool {
        let due = self.sessions.is_due(at, now);
        if due {
            self.remove(at);
        }
        due
    }

    #[inline]
    pub(super) fn remove_due(&mut self, now: u32, mut budget: usize) {
        while let Some(at) = self.sessions.due(now, &mut budget) {
            self.remove(at);
        }
    }
}
