//! Connections as they outlive the process: saved as bytes, and restored.
//!
//! | bytes | what |
//! |---:|---|
//! | 40, 40 | the tuples of both directions, as a table has them |
//! | 8, 8 | when the connection began, and when its time is over, in milliseconds of the workers' clock |
//! | 4, 16 | mark and label |
//! | 1 | ends that are translated: 1 the source, 2 the destination |
//! | 1 | kind of state: 0 TCP, 1 ICMP, 2 others, 3 a session of a `[[nat_table]]` |
//! | 24, 1, 1, 17 | the state: of TCP 12 bytes for each end; whether an ICMP request has been answered; the exchange; events and packets |
//! | 1, … | its part in an application's protocol, see `alg/saved.rs` |
//!
//! Bytes may come from a file that was changed. So each value is checked, and a connection that does not fit is not restored; its
//! time is over after the longest timeout at the latest.

use std::sync::atomic::Ordering;

use super::alg::Alg;
use super::entry::{Live, Translated};
use super::protocol::{Exchange, State};
use super::session::{NEVER_MS, Session};
use super::table::NotAdded;
use super::tcp::Tcp;
use super::timeouts::Timeout;
use super::tuple::{Tuple, WORDS};
use super::{Connections, Memories};
use crate::state::bytes::Bytes;
use flowlane::packet::parse::ip_proto;

/// A connection with all that its packets depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SavedConnection {
    /// Of the original direction, and of replies.
    pub tuples: [Tuple; 2],
    pub begun_ms: u64,
    pub expires_ms: u64,
    pub mark: u32,
    pub label: u128,
    pub translated: Translated,
    pub state: State,
    /// Its part in an application's protocol.
    pub alg: Option<Box<Alg>>,
}

/// Why a connection was not restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotRestored {
    /// Its time is over.
    Expired,
    /// There is no room, in the table or for its zone.
    Full,
    /// Another connection has one of its tuples.
    Known,
    /// There is no control connection.
    NoControl,
    /// It is a session and there is no table for it, or the other way round.
    NoSession,
}

impl SavedConnection {
    /// Appends the connection.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.tuples.iter().for_each(|tuple| put_tuple(tuple, out));
        out.extend(self.begun_ms.to_le_bytes());
        out.extend(self.expires_ms.to_le_bytes());
        out.extend(self.mark.to_le_bytes());
        out.extend(self.label.to_le_bytes());
        out.push(u8::from(self.translated.source) | u8::from(self.translated.destination) << 1);
        match &self.state {
            State::Tcp(tcp) => {
                out.push(0);
                tcp.save(out);
            }
            State::Icmp { answered } => out.extend([1, u8::from(*answered)]),
            State::Other(exchange) => out.extend([2, *exchange as u8]),
            State::Session(session) => {
                out.push(3);
                session.write(out);
            }
        }
        Alg::write(self.alg.as_deref(), out);
    }

    /// Reads what [`write`](Self::write) has written; `None` if the bytes are no connection.
    pub fn read(bytes: &mut Bytes<'_>) -> Option<Self> {
        let tuples = [take_tuple(bytes)?, take_tuple(bytes)?];
        let (begun_ms, expires_ms) = (bytes.u64()?, bytes.u64()?);
        let (mark, label) = (bytes.u32()?, bytes.u128()?);
        let translated = match bytes.u8()? {
            ends @ 0..4 => Translated { source: ends & 1 != 0, destination: ends & 2 != 0 },
            _ => return None,
        };
        let state = match bytes.u8()? {
            0 => State::Tcp(Tcp::restore(bytes)?),
            1 => State::Icmp { answered: bytes.bool()? },
            2 => State::Other(
                *[Exchange::First, Exchange::Multiple, Exchange::Both].get(usize::from(bytes.u8()?))?,
            ),
            3 => State::Session(Session::read(bytes)?),
            _ => return None,
        };
        let alg = Alg::read(bytes, &tuples[0])?;
        let saved = Self { tuples, begun_ms, expires_ms, mark, label, translated, state, alg };
        saved.is_sound().then_some(saved)
    }

    /// Returns whether the parts fit each other. Packets of a protocol go to a state of that protocol.
    fn is_sound(&self) -> bool {
        let [original, reply] = self.tuples;
        let fits = match self.state {
            State::Tcp(_) => original.proto == ip_proto::TCP,
            State::Icmp { .. } => original.is_icmp(),
            State::Session(_) => {
                original.is_icmp() || matches!(original.proto, ip_proto::TCP | ip_proto::UDP)
            }
            State::Other(_) => original.proto != ip_proto::TCP && !original.is_icmp(),
        };
        fits && original.is_alike(&reply)
    }
}

/// Appends a tuple.
pub(super) fn put_tuple(tuple: &Tuple, out: &mut Vec<u8>) {
    tuple.words().iter().for_each(|word| out.extend(word.to_le_bytes()));
}

/// Reads a tuple. An address of IPv4 has 32 bits.
pub(super) fn take_tuple(bytes: &mut Bytes<'_>) -> Option<Tuple> {
    let mut words = [0; WORDS];
    for word in &mut words {
        *word = bytes.u64()?;
    }
    let tuple = Tuple::of_words(words);
    let fits = |address: u128| tuple.is_ipv6 || address <= u32::MAX.into();
    (fits(tuple.source.address) && fits(tuple.destination.address)).then_some(tuple)
}

impl Connections {
    /// Copies the connections of `budget` entries from entry `from` on, and returns the entry to continue from, if any. Packets go on
    /// meanwhile: each connection is copied as it is between two of them.
    pub fn save(
        &self,
        from: u32,
        budget: u32,
        now_ms: u64,
        mut each: impl FnMut(&SavedConnection),
    ) -> Option<u32> {
        let Memories { table, .. } = self.memories.get()?;
        let (used, end) = (table.used(), from.saturating_add(budget));
        for number in from..end.min(used) {
            let Some(entry) = table.try_entry(number) else { continue };
            let (generation, expires_ms) = (entry.generation(), entry.expires_ms());
            let tuples = [entry.tuple(0), entry.tuple(1)];
            // Those that never end come from the configuration.
            if !generation.is_multiple_of(2) || expires_ms <= now_ms || expires_ms == NEVER_MS {
                continue;
            }
            let saved = entry.with(generation, |live| SavedConnection {
                tuples,
                begun_ms: live.begun_ms,
                expires_ms,
                mark: live.mark,
                label: live.label(),
                translated: live.translated,
                state: live.state,
                alg: live.alg.clone(),
            });
            saved.iter().for_each(&mut each);
        }
        (end < used).then_some(end)
    }

    /// Keeps a connection again.
    ///
    /// # Errors
    /// Where its time is over, there is no room, or another connection has one of its tuples.
    pub fn restore(&self, saved: &SavedConnection, now_ms: u64) -> Result<(), NotRestored> {
        if saved.expires_ms <= now_ms {
            return Err(NotRestored::Expired);
        }
        if let State::Session(_) = saved.state {
            return Err(NotRestored::NoSession);
        }
        let Memories { table, zones } = self.memories();
        let in_zone = &zones[usize::from(saved.tuples[0].zone)];
        let zone = saved.tuples[0].zone;
        if self.is_full(zone) || !self.has_room(1) {
            return Err(NotRestored::Full);
        }
        let longest = Timeout::ALL.map(|timeout| self.expiry((timeout, zone), now_ms)).into_iter().max();
        let expires_ms = saved.expires_ms.min(longest.unwrap_or(now_ms));
        let mut live = Live::new(saved.state, saved.begun_ms.min(now_ms));
        (live.mark, live.translated) = (saved.mark, saved.translated);
        live.set_label(saved.label);
        live.alg = saved.alg.clone();
        // Its segments did not wait: its numbers may be a second old.
        if let State::Tcp(tcp) = &mut live.state {
            tcp.age();
        }
        match table.add(saved.tuples, live, expires_ms) {
            Ok(_) => {
                in_zone.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(NotAdded::Full) => Err(NotRestored::Full),
            Err(NotAdded::Original | NotAdded::Reply) => Err(NotRestored::Known),
        }
    }
}
