//! Neighbours: the Ethernet addresses of hosts on the networks of a router's ports.
//!
//! Lookups take no lock: a cuckoo table leads from port and address to an entry, whose Ethernet address is one atomic word. All
//! changes are made under one lock. States are those of RFC 4861, section 7.3.2, for IPv4, too; time is in seconds:
//!
//! ```text
//!             answer               30 s              used               no answer to 3 questions
//! incomplete ───────► reachable ─────────► stale ─────────► probed ───────────────────────────► gone
//!      │ no answer to 3 questions            │ unused for 600 s               ▲ answer: reachable
//!      ▼                                     ▼
//!    gone, and packets that wait end       gone
//! ```
//!
//! Packets for a neighbour that is asked for wait, a few each, and not more than [`WAITING_MAX`] in all. A scan of an empty
//! network makes incomplete entries: they may be a quarter of all, and then one of them makes room, drawn by chance, so that a scan
//! does not keep others from being resolved.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};

use flowlane::cuckoo::{CuckooConfig, CuckooReader, CuckooWriter};

use super::wire::Mac;
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// Packets that may wait for a neighbour. The oldest makes room, as in Linux.
const WAITING_OF_ONE: usize = 16;

/// Packets that may wait for neighbours in all.
pub(super) const WAITING_MAX: usize = 1024;

/// Questions without an answer until a neighbour is given up (RFC 4861, section 10).
const QUESTIONS_MAX: u32 = 3;

/// Seconds for which an answer is believed (RFC 4861, section 10).
const REACHABLE_S: u64 = 30;

/// Seconds after which an unused neighbour is forgotten.
const UNUSED_S: u64 = 600;

/// Entries that are looked at for one that makes room in a full table.
const LOOKED_AT: usize = 32;

/// A neighbour's port, by its interface, and its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    pub interface: u16,
    pub address: IpAddr,
}

impl Name {
    /// The key in the table: IPv4 as mapped addresses (RFC 4291, section 2.5.5.2).
    fn key(self) -> [u32; 5] {
        let bits = match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        [self.interface.into(), (bits >> 96) as u32, (bits >> 64) as u32, (bits >> 32) as u32, bits as u32]
    }
}

/// The state of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum State {
    /// It has been asked for, and has not answered.
    Incomplete,
    /// It has answered lately.
    Reachable,
    /// It has answered a while ago.
    Stale,
    /// It is asked whether it is still there.
    Probed,
}

/// A neighbour, for reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Listed {
    pub name: Name,
    pub mac: Option<Mac>,
    pub state: State,
    /// Seconds since that state began.
    pub since_s: u64,
    /// Packets that wait for it.
    pub waiting: usize,
}

/// The part of a neighbour that readers see.
#[derive(Debug, Default)]
struct Seen {
    /// Its Ethernet address; 0 while it is not known.
    mac: AtomicU64,
    /// A packet has used it since it was looked at last.
    is_used: AtomicBool,
}

/// The part of a neighbour that changes under the lock.
struct Entry<H> {
    name: Name,
    state: State,
    since_s: u64,
    questions: u32,
    waiting: VecDeque<H>,
}

struct Changing<H> {
    writer: CuckooWriter<5>,
    entries: Vec<Option<Entry<H>>>,
    free: Vec<u32>,
    incomplete: Vec<u32>,
    /// Packets that wait.
    waiting: usize,
    /// Where entries that may make room are looked for next.
    hand: usize,
    random: RandomState,
    drawn: u64,
}

/// A question that is due: for a neighbour, at its Ethernet address if that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Question {
    pub(super) name: Name,
    pub(super) known: Option<Mac>,
}

/// Questions and packets that are due.
pub(super) struct Due<H> {
    pub(super) questions: Vec<Question>,
    /// Packets whose neighbour has not answered.
    pub(super) given_up: Vec<(Name, H)>,
}

/// The fate of a packet whose neighbour is not known.
pub(super) enum Held<H> {
    /// It waits, and the neighbour is to be asked for.
    Ask { dropped: usize },
    /// It waits with others.
    Waits { dropped: usize },
    /// The neighbour is known by now.
    Known(H),
    /// There is no room.
    Full,
}

/// The neighbours of all ports.
pub(super) struct Neighbours<H> {
    reader: CuckooReader<5>,
    seen: Box<[Seen]>,
    changing: Mutex<Changing<H>>,
}

impl<H> Neighbours<H> {
    /// A table for up to `most`; `seed` keys the hash.
    pub(super) fn new(most: usize, seed: u32) -> Self {
        let writer = CuckooWriter::new(&CuckooConfig::new(most, seed));
        let changing = Changing {
            writer,
            entries: (0..most).map(|_| None).collect(),
            free: (0..most as u32).rev().collect(),
            incomplete: Vec::new(),
            waiting: 0,
            hand: 0,
            random: RandomState::new(),
            drawn: 0,
        };
        Self {
            reader: changing.writer.reader(),
            seen: (0..most).map(|_| Seen::default()).collect(),
            changing: Mutex::new(changing),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Changing<H>> {
        // Each change leaves the table whole.
        self.changing.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the Ethernet address of a neighbour, if it is known. Takes no lock: a neighbour that is being replaced by another
    /// in these moments may get a packet of that one.
    #[inline]
    pub(super) fn mac(&self, name: Name) -> Option<Mac> {
        let seen = &self.seen[self.reader.lookup(&name.key())? as usize];
        let mac = mac_of(seen.mac.load(Ordering::Relaxed))?;
        if !seen.is_used.load(Ordering::Relaxed) {
            seen.is_used.store(true, Ordering::Relaxed);
        }
        Some(mac)
    }

    /// Returns the Ethernet address of a neighbour without counting that as a use.
    pub(super) fn peek(&self, name: Name) -> Option<Mac> {
        let at = self.reader.lookup(&name.key())?;
        mac_of(self.seen[at as usize].mac.load(Ordering::Relaxed))
    }

    /// Lets a packet wait for a neighbour.
    pub(super) fn hold(&self, name: Name, packet: H, now_s: u64) -> Held<H> {
        let mut changing = self.lock();
        let (at, is_new) = match changing.find(name) {
            Some(at) if self.seen[at].mac.load(Ordering::Relaxed) != 0 => return Held::Known(packet),
            Some(at) => (at, false),
            None => match self.add(&mut changing, name, State::Incomplete, now_s) {
                Some(at) => (at, true),
                None => return Held::Full,
            },
        };
        if changing.waiting == WAITING_MAX {
            return Held::Full;
        }
        let entry = changing.entry(at);
        let mut dropped = 0;
        if entry.waiting.len() == WAITING_OF_ONE {
            entry.waiting.pop_front();
            dropped = 1;
        }
        entry.waiting.push_back(packet);
        changing.waiting += 1 - dropped;
        if is_new {
            changing.entry(at).questions = 1;
            return Held::Ask { dropped };
        }
        Held::Waits { dropped }
    }

    /// Records a neighbour's Ethernet address. Returns the packets that have waited for it. A neighbour that has not been asked for is
    /// added only if `adds`.
    pub(super) fn learn(
        &self,
        name: Name,
        mac: Option<Mac>,
        (is_solicited, overrides, adds): (bool, bool, bool),
        now_s: u64,
    ) -> VecDeque<H> {
        let none = VecDeque::new();
        let mut changing = self.lock();
        let Some(at) = changing.find(name) else {
            if let Some(mac) = mac.filter(|_| adds)
                && let Some(at) = self.add(&mut changing, name, State::Stale, now_s)
            {
                self.seen[at].mac.store(bits_of(mac), Ordering::Relaxed);
            }
            return none;
        };
        let before = mac_of(self.seen[at].mac.load(Ordering::Relaxed));
        let Some(mac) = mac.or(before) else { return none };
        let is_other = before.is_some_and(|before| before != mac);
        // RFC 4861, section 7.2.5: without the flag, another address only makes the known one doubtful.
        if is_other && !overrides {
            let entry = changing.entry(at);
            if entry.state == State::Reachable {
                (entry.state, entry.since_s) = (State::Stale, now_s);
            }
            return none;
        }
        let state = match (is_solicited, before.is_none() || is_other) {
            (true, _) => State::Reachable,
            (false, true) => State::Stale,
            (false, false) => return none,
        };
        changing.is_complete(at);
        let entry = changing.entry(at);
        (entry.state, entry.since_s, entry.questions) = (state, now_s, 0);
        let waiting = std::mem::take(&mut entry.waiting);
        changing.waiting -= waiting.len();
        self.seen[at].mac.store(bits_of(mac), Ordering::Relaxed);
        waiting
    }

    /// Looks at all neighbours, once a second.
    pub(super) fn tick(&self, now_s: u64) -> Due<H> {
        let mut changing = self.lock();
        let mut due = Due { questions: Vec::new(), given_up: Vec::new() };
        for at in 0..changing.entries.len() {
            let Some(entry) = &mut changing.entries[at] else { continue };
            let age = now_s.saturating_sub(entry.since_s);
            let known = mac_of(self.seen[at].mac.load(Ordering::Relaxed));
            match entry.state {
                State::Incomplete | State::Probed if entry.questions == QUESTIONS_MAX => {
                    // The last question has its second, too.
                    let name = entry.name;
                    let gone = self.remove(&mut changing, at);
                    due.given_up.extend(gone.into_iter().map(|packet| (name, packet)));
                }
                State::Incomplete | State::Probed => {
                    entry.questions += 1;
                    due.questions.push(Question { name: entry.name, known });
                }
                State::Reachable if age >= REACHABLE_S => {
                    (entry.state, entry.since_s) = (State::Stale, now_s);
                    self.seen[at].is_used.store(false, Ordering::Relaxed);
                }
                State::Stale if self.seen[at].is_used.swap(false, Ordering::Relaxed) => {
                    (entry.state, entry.since_s, entry.questions) = (State::Probed, now_s, 1);
                    due.questions.push(Question { name: entry.name, known });
                }
                State::Stale if age >= UNUSED_S => {
                    self.remove(&mut changing, at);
                }
                State::Reachable | State::Stale => {}
            }
        }
        due
    }

    /// Returns all neighbours.
    pub(super) fn list(&self, now_s: u64) -> Vec<Listed> {
        let changing = self.lock();
        let listed = |(at, entry): (usize, &Option<Entry<H>>)| {
            let entry = entry.as_ref()?;
            Some(Listed {
                name: entry.name,
                mac: mac_of(self.seen[at].mac.load(Ordering::Relaxed)),
                state: entry.state,
                since_s: now_s.saturating_sub(entry.since_s),
                waiting: entry.waiting.len(),
            })
        };
        changing.entries.iter().enumerate().filter_map(listed).collect()
    }

    /// Forgets neighbours, except those that packets wait for. Returns their number.
    pub(super) fn flush(&self, mut is_gone: impl FnMut(Name) -> bool) -> usize {
        let mut changing = self.lock();
        let mut flushed = 0;
        for at in 0..changing.entries.len() {
            let entry = changing.entries[at].as_ref();
            if entry.is_some_and(|entry| entry.state != State::Incomplete && is_gone(entry.name)) {
                self.remove(&mut changing, at);
                flushed += 1;
            }
        }
        flushed
    }

    /// Adds a neighbour; none where there is no room.
    fn add(&self, changing: &mut Changing<H>, name: Name, state: State, now_s: u64) -> Option<usize> {
        let is_incomplete = state == State::Incomplete;
        if is_incomplete && changing.incomplete.len() >= changing.entries.len().div_ceil(4) {
            let at = changing.draw();
            self.remove(changing, at);
        } else if changing.free.is_empty() {
            let at = changing.unused(|at| !self.seen[at].is_used.load(Ordering::Relaxed))?;
            self.remove(changing, at);
        }
        let at = changing.free.pop()?;
        if changing.writer.insert(&name.key(), at).is_err() {
            changing.free.push(at);
            return None;
        }
        changing.incomplete.extend(is_incomplete.then_some(at));
        let (questions, waiting) = (0, VecDeque::new());
        changing.entries[at as usize] = Some(Entry { name, state, since_s: now_s, questions, waiting });
        Some(at as usize)
    }

    /// Removes a neighbour. Returns the packets that have waited for it.
    fn remove(&self, changing: &mut Changing<H>, at: usize) -> VecDeque<H> {
        let Some(entry) = changing.entries[at].take() else { return VecDeque::new() };
        changing.writer.remove(&entry.name.key());
        self.seen[at].mac.store(0, Ordering::Relaxed);
        self.seen[at].is_used.store(false, Ordering::Relaxed);
        changing.free.push(at as u32);
        changing.is_complete(at);
        changing.waiting -= entry.waiting.len();
        entry.waiting
    }
}

impl<H> Changing<H> {
    fn find(&self, name: Name) -> Option<usize> {
        self.writer.lookup(&name.key()).map(|at| at as usize)
    }

    fn entry(&mut self, at: usize) -> &mut Entry<H> {
        self.entries[at].as_mut().expect("the table leads to entries that are there")
    }

    /// Takes an entry off the list of incomplete ones, if it is there.
    fn is_complete(&mut self, at: usize) {
        if let Some(position) = self.incomplete.iter().position(|other| *other as usize == at) {
            self.incomplete.swap_remove(position);
        }
    }

    /// Draws an incomplete entry.
    fn draw(&mut self) -> usize {
        self.drawn += 1;
        let random = self.random.hash_one(self.drawn) as usize;
        self.incomplete[random % self.incomplete.len()] as usize
    }

    /// Looks at some entries for one that may make room.
    fn unused(&mut self, is_unused: impl Fn(usize) -> bool) -> Option<usize> {
        let most = self.entries.len();
        let first = self.hand;
        self.hand = (first + LOOKED_AT) % most;
        (0..LOOKED_AT).map(|n| (first + n) % most).find(|at| match &self.entries[*at] {
            Some(Entry { state: State::Stale, .. }) => is_unused(*at),
            Some(Entry { state: State::Incomplete, .. }) => true,
            _ => false,
        })
    }
}

/// An Ethernet address as a number that is not 0.
fn bits_of(mac: Mac) -> u64 {
    mac.iter().fold(1, |bits, byte| bits << 8 | u64::from(*byte))
}

fn mac_of(bits: u64) -> Option<Mac> {
    let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
    (bits != 0).then_some([a, b, c, d, e, f])
}
