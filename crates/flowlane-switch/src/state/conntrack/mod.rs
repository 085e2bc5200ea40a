//! Connection tracking: which packets belong together, and what state their connection is in.
//!
//! A packet that meets `ct` is looked up by its [`Tuple`]; the answer is in its `ct_*` fields, by which later tables decide. With
//! `commit`, an unknown connection is kept. The semantics are those of Open vSwitch's userspace datapath: zones, states, marks and
//! labels, translation, timeouts.
//!
//! ```text
//! worker ── Seen (tuple, message) + Request ─► Connections::track ─► Tracked (state, zone, mark, label, original tuple), Rewrite
//!                                                  │
//!                                    Table (chains, searched without waiting) ─► Entry (under its own lock)
//! ```
//!
//! All workers share one table. A search takes no lock; the packets of one connection take turns at its entry; a connection
//! is added under the locks of its two chains.
//!
//! **Expiry.** Each connection has a time at which it ends, which its packets move. An expired one is not found any more, and its
//! entry is freed by the [sweep](Connections::sweep): each worker now and then looks at some entries, in the order of memory. There
//! is no list of timers to be changed with each packet, and no pause.
//!
//! **When the table is full**, the sweep's hand looks for a connection that has expired, has not been answered or is closing, and a
//! new one takes its place. If there is none among the next few, the packet stays new, and is not kept.

mod alg;
mod begin;
mod changes;
mod counters;
pub mod ct_state;
mod entry;
mod events;
pub mod fragments;
mod holders;
mod nat;
mod packet;
mod protocol;
mod saved;
pub mod session;
mod sweep;
mod table;
mod tcp;
mod text;
mod timeouts;
mod tuple;
mod zones;

#[cfg(test)]
mod tests;

pub use alg::{Alg, Application, SavedExpectation};
pub use counters::Counters;
pub use entry::Translated;
pub use events::{Change, Ended, Event, Subscription};
pub(crate) use fragments::with_addresses;
pub use nat::Secret;
pub(crate) use packet::{ends, rewrite, seen};
pub use protocol::{Exchange, Message, State};
pub use saved::{NotRestored, SavedConnection};
pub use sweep::{Listed, Wanted, WantedEnds};
pub use table::Hashed;
pub use tcp::{EndState, Segment, Tcp, WINDOW_SHIFT_MAX};
pub use text::protocol_name;
pub use timeouts::Timeout;
pub use tuple::{End, Tuple};
pub use zones::{ZoneSettings, Zones};

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use flowlane::memory::Memory;
use flowlane::rule::action::Nat;

use alg::expectations::Expectations;
use changes::{live_for, set_fields, show_fields, translate};
use entry::Live;
use events::{Events, followed_parts};
use holders::Holders;
use nat::Draw;
use protocol::Progress;
use table::{Place, Table};

/// Connections that are kept at most, unless the configuration says something else: as in Open vSwitch.
pub const CONNECTIONS_DEFAULT: usize = 3_000_000;

/// Times that a packet's connection is searched again because others change it at the same time.
const ATTEMPTS_MAX: usize = 64;

use ct_state::{ESTABLISHED, INVALID, NEW, RELATED, REPLY, TRACKED, TRANSLATED};

/// A packet as connection tracking sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The ends; of an error of ICMP, those of packets that go the way of the error. The zone is 0.
    pub tuple: Tuple,
    pub message: Message,
    /// It is an error of ICMP about a packet of the connection.
    pub is_error: bool,
}

/// The request of a rule.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    pub zone: u16,
    /// An unknown connection is kept.
    pub commit: bool,
    /// A connection that began in the other direction is replaced.
    pub force: bool,
    /// Packets are translated.
    pub nat: Option<&'a Nat>,
    /// Bits of the connection's mark: value and mask.
    pub mark: Option<(u32, u32)>,
    /// Bits of its label.
    pub label: Option<(u128, u128)>,
    /// A connection that is kept is a control connection of this, and this packet is read as one of it.
    pub application: Option<Application>,
    /// Nothing is changed: the answer is what a packet would get.
    pub is_dry_run: bool,
}

/// The connection that a packet was found to be of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Known {
    place: Place,
    direction: u8,
    is_error: bool,
}

/// A packet's connection, as later tables see it: the `ct_*` fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tracked {
    /// [Bits](ct_state).
    pub state: u32,
    pub zone: u16,
    pub mark: u32,
    pub label: u128,
    /// The tuple of the first direction of the connection, or of its control connection.
    pub original: Option<Tuple>,
    known: Option<Known>,
    /// The connection, if it is a control connection that has not yet seen the packet's text.
    followed: Option<Known>,
    /// The connection, if it has a control connection.
    announced: Option<Place>,
}

impl Tracked {
    /// Forgets the connection.
    pub(crate) fn clear(&mut self) {
        let Self { state, zone, mark, label, original, known, followed, announced } = self;
        (*state, *zone, *mark, *label) = (0, 0, 0, 0);
        (*original, *known, *followed, *announced) = (None, None, None, None);
    }

    /// Forgets where the connection is: the next request looks for it.
    pub(crate) fn forget_place(&mut self) {
        self.known = None;
    }
}

/// How a packet's ends are rewritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rewrite {
    /// The ends that change.
    pub ends: Translated,
    /// The tuple that the packet has, and that it gets. Of an error of ICMP, those of packets that go its way.
    pub from: Tuple,
    pub to: Tuple,
    /// The packet is such an error.
    pub is_error: bool,
}

/// Limits of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at most.
    pub connections: usize,
    /// Those of each zone that has no limit of its own; none: no limit.
    pub per_zone: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: CONNECTIONS_DEFAULT, per_zone: None }
    }
}

/// The memory, which is allocated with the first packet that is tracked.
#[derive(Debug)]
struct Memories {
    table: Table,
    /// Connections by zone.
    zones: Memory<AtomicU32>,
}

/// The entry that the sweep looks at next.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Hand(AtomicU32);

/// The sessions.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Sessions {
    number: AtomicU32,
    /// The sessions and ports of each address.
    holders: Mutex<Holders>,
}

/// The connections. The parts that packets change are on cache lines of their own: all workers read the others.
#[derive(Debug)]
pub struct Connections {
    memories: OnceLock<Memories>,
    limits: Limits,
    zones: Zones,
    events: Events,
    sessions_max: usize,
    pub counters: Counters,
    expectations: Expectations,
    hand: Hand,
    sessions: Sessions,
    /// Bytes of the shortest packet that may be a fragment but for the last, of IPv4 and of IPv6.
    pub shortest_fragments: [u16; 2],
    /// The seed of the table's hash.
    seed: u64,
    secret: Secret,
}

impl Default for Connections {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Draw for Connections {
    fn draw(&self, tuple: &Tuple, by_address: bool, number: u32) -> u32 {
        match by_address {
            // The same after a restart.
            true => Secret::seeded(0).hash(tuple.source.address) as u32,
            false => self.secret.hash((tuple, number)) as u32,
        }
    }
}

/// Sets the bits of a mask.
fn set_bits(to: u128, (value, mask): (u128, u128)) -> u128 {
    to & !mask | value & mask
}

impl Connections {
    /// No connections.
    pub fn new(limits: Limits) -> Self {
        Self::with_sessions(limits, 0, Secret::random())
    }

    /// No connections, with room of their own for up to `sessions_max` sessions. Addresses and ports are drawn by a secret.
    pub fn with_sessions(limits: Limits, sessions_max: usize, secret: Secret) -> Self {
        Self {
            memories: OnceLock::new(),
            limits,
            zones: Zones::new(limits),
            events: Events::default(),
            sessions_max,
            counters: Counters::default(),
            expectations: Expectations::default(),
            hand: Hand::default(),
            sessions: Sessions::default(),
            shortest_fragments: fragments::SHORTEST,
            seed: RandomState::new().hash_one(0u8),
            secret,
        }
    }

    fn memories(&self) -> &Memories {
        self.memories.get_or_init(|| Memories {
            table: Table::new(self.limits.connections.saturating_add(self.sessions_max), self.seed),
            zones: Memory::zeroed(1 << 16),
        })
    }

    /// Commits memory before packets need it, from now on, on a thread that runs where the caller may: so no worker waits for the
    /// system. Without this, the first packet that is tracked allocates it.
    pub fn commit_ahead(&self) {
        self.table().commit_ahead();
    }

    fn table(&self) -> &Table {
        &self.memories().table
    }

    /// Returns the limit of connections.
    pub fn connections_max(&self) -> usize {
        self.limits.connections
    }

    /// The settings of zones.
    pub fn zones(&self) -> &Zones {
        &self.zones
    }

    /// Returns the numbers of connections of zones that have any.
    pub fn by_zone(&self) -> BTreeMap<u16, u32> {
        let zones = self.memories.get().map(|memories| &*memories.zones).unwrap_or_default();
        let counts = (0..=u16::MAX).zip(zones).map(|(zone, count)| (zone, count.load(Ordering::Relaxed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns whether a zone has as many connections as it may have.
    fn is_full(&self, zone: u16) -> bool {
        let in_zone = || self.memories().zones[usize::from(zone)].load(Ordering::Relaxed);
        self.zones.connections_max(zone).is_some_and(|limit| in_zone() >= limit)
    }

    /// Returns the number of connections.
    pub fn len(&self) -> usize {
        self.memories.get().map_or(0, |memories| memories.table.len())
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether there is room for some more, beside that of sessions, without another having to go.
    pub fn has_room(&self, more: usize) -> bool {
        let sessions = self.sessions.number.load(Ordering::Relaxed) as usize;
        self.table().len().saturating_sub(sessions) + more <= self.limits.connections
    }

    fn expiry(&self, (timeout, zone): (Timeout, u16), now_ms: u64) -> u64 {
        now_ms + u64::from(self.zones.seconds(timeout, zone)) * 1000
    }

    /// Finds a connection whose time is not over. One whose time is over is removed.
    fn find(&self, tuple: &Hashed, now_ms: u64) -> Option<(Place, usize)> {
        let table = self.table();
        let found = table.find(tuple)?;
        if table.entry(found.0.entry).expires_ms() > now_ms {
            return Some(found);
        }
        // A dry run does that, too: no packet meets another state than without it.
        if self.remove(found.0, Ended::Expired, now_ms) {
            self.counters.expired.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    /// Removes a connection. Returns whether it was there.
    fn remove(&self, place: Place, why: Ended, now_ms: u64) -> bool {
        let Some((tuples, live)) = self.take_out(place, why, now_ms) else { return false };
        if let State::Session(_) = live.state {
            self.holders().end(&tuples);
        }
        true
    }

    /// Removes a connection, which those that hold it still count. Returns it, with its tuples, if it was there.
    fn take_out(&self, place: Place, why: Ended, now_ms: u64) -> Option<([Tuple; 2], Live)> {
        let memories = self.memories.get()?;
        let (tuples, live) = memories.table.remove(place)?;
        if let State::Session(_) = live.state {
            self.sessions.number.fetch_sub(1, Ordering::Relaxed);
        }
        memories.zones[usize::from(tuples[0].zone)].fetch_sub(1, Ordering::Relaxed);
        if self.events.are_wanted() {
            let why = if why == Ended::Expired && live.state.is_over() { Ended::Closed } else { why };
            self.events.push(Change::Ended(why), &Listed::of(tuples, &live, (now_ms, now_ms)));
        }
        Some((tuples, live))
    }

    /// Returns whether an earlier `ct` has found a packet's connection in a zone: nothing of the packet is looked at then.
    pub fn knows(tracked: &Tracked, request: &Request<'_>) -> bool {
        tracked.known.is_some() && tracked.zone == request.zone && !request.force
    }

    /// Takes a packet to its connection: `tracked` is what earlier `ct` actions have found. A packet without `seen` is invalid.
    /// Returns how it is to be rewritten.
    pub fn track(
        &self,
        seen: Option<&Seen>,
        request: &Request<'_>,
        tracked: &mut Tracked,
        now_ms: u64,
    ) -> Option<Rewrite> {
        let seen = seen.map(|seen| {
            let tuple = Tuple { zone: request.zone, ..seen.tuple };
            (Seen { tuple, ..*seen }, self.prepare(&tuple))
        });
        self.track_prepared(seen.as_ref(), request, tracked, now_ms)
    }

    /// Makes a tuple, with its zone, ready to be looked up.
    pub fn prepare(&self, tuple: &Tuple) -> Hashed {
        self.table().hashed(tuple)
    }

    /// Asks for the memory that looking tuples up begins with.
    pub fn prefetch<'a>(&self, tuples: impl Iterator<Item = &'a Hashed> + Clone) {
        let table = self.table();
        tuples.clone().for_each(|tuple| table.prefetch(tuple));
        tuples.for_each(|tuple| table.prefetch_entry(tuple));
    }

    /// Asks for the first link of the chain that the answers to a packet are in, where it may begin a connection.
    pub fn prefetch_answer(&self, seen: &Seen) {
        let begins = match &seen.message {
            Message::Tcp(segment) => segment.is_syn(),
            Message::Icmp | Message::Other => false,
        };
        if begins {
            let table = self.table();
            table.prefetch(&table.hashed(&seen.tuple.reversed()));
        }
    }

    /// Returns the place of a tuple's connection: packets of both its directions have the same.
    pub fn place(&self, tuple: &Hashed) -> Option<u32> {
        self.table().find(tuple).map(|(place, _)| place.entry)
    }

    /// Takes a packet to its connection, as [`track`](Self::track) does; its tuple has the zone, and is prepared.
    pub fn track_prepared(
        &self,
        seen: Option<&(Seen, Hashed)>,
        request: &Request<'_>,
        tracked: &mut Tracked,
        now_ms: u64,
    ) -> Option<Rewrite> {
        tracked.followed = None;
        if let Some(rewrite) = self.track_again(request, tracked, now_ms) {
            return rewrite;
        }
        let Some(seen) = seen else {
            let known = tracked.known;
            *tracked = Tracked { state: INVALID | TRACKED, zone: request.zone, known, ..Tracked::default() };
            return None;
        };
        if tracked.zone != request.zone {
            tracked.state = 0;
        }
        (0..ATTEMPTS_MAX).find_map(|_| self.attempt(seen, request, tracked, now_ms)).unwrap_or_else(|| {
            // Others change the connection with each attempt.
            tracked.state = NEW | TRACKED;
            None
        })
    }

    /// Takes a packet to the connection that an earlier `ct` in the zone has found, whose state it has changed there.
    fn track_again(
        &self,
        request: &Request<'_>,
        tracked: &mut Tracked,
        now_ms: u64,
    ) -> Option<Option<Rewrite>> {
        let known = tracked.known.filter(|_| Self::knows(tracked, request))?;
        let entry = self.memories.get()?.table.entry(known.place.entry);
        let tuples = [entry.tuple(0), entry.tuple(1)];
        // A connection that has been removed since is still the packet's.
        let may_change = request.mark.is_some() || request.label.is_some();
        let is_followed = may_change && self.events.are_wanted() && !request.is_dry_run;
        let mut changed = None;
        let rewrite = entry.with(known.place.generation, |live| {
            let live = &mut live_for(request, live);
            let former = is_followed.then(|| followed_parts(live));
            let rewrite = translate(live, tuples, (request, &known), tracked);
            set_fields(live, request, tracked);
            // Its text is still to be translated, or to be read because this action says so.
            let is_read = rewrite.is_some() || request.application.is_some();
            tracked.followed = live.application().and(is_read.then_some(known));
            let is_changed = former.is_some_and(|former| former != followed_parts(live));
            changed = is_changed.then(|| entry.listed(live, now_ms));
            rewrite
        });
        changed.iter().for_each(|listed| self.events.push(Change::Updated, listed));
        if rewrite.is_none() {
            show_fields(request, tracked);
        }
        let rewrite = rewrite.flatten();
        if request.nat.is_some() {
            tracked.known = None;
        }
        Some(rewrite)
    }

    /// Looks the packet up and adds its connection, if that is asked for. Returns nothing where another worker has changed the
    /// connection meanwhile.
    fn attempt(
        &self,
        (seen, hashed): &(Seen, Hashed),
        request: &Request<'_>,
        tracked: &mut Tracked,
        now_ms: u64,
    ) -> Option<Option<Rewrite>> {
        // A packet that an earlier `ct` of the zone has translated is of that connection, though another may have its ends now.
        let found =
            if tracked.state & TRANSLATED != 0 { self.find_translated(seen, tracked, now_ms) } else { None };
        if let Some((place, direction)) = found.or_else(|| self.find(hashed, now_ms)) {
            if direction == 0 || !request.force {
                return self.go_on(seen, request, tracked, (place, direction), now_ms);
            }
            if !request.is_dry_run {
                self.remove(place, Ended::Replaced, now_ms);
            }
        }
        if seen.is_error {
            *tracked = Tracked {
                state: INVALID | TRACKED,
                zone: request.zone,
                original: Some(seen.tuple),
                ..Tracked::default()
            };
            return Some(None);
        }
        self.begin(seen, request, tracked, now_ms)
    }

    /// Finds the connection of a packet that it has translated.
    fn find_translated(&self, seen: &Seen, tracked: &Tracked, now_ms: u64) -> Option<(Place, usize)> {
        let (place, original) = match tracked.announced {
            Some(place) => {
                let original = self.table().entry(place.entry).tuple(0);
                (place, self.is_there(place, now_ms).then_some(original)?)
            }
            None => {
                let original = Tuple { zone: tracked.zone, ..tracked.original? };
                (self.find(&self.prepare(&original), now_ms)?.0, original)
            }
        };
        Some((place, usize::from(seen.tuple == original.reversed())))
    }

    /// Takes a packet to its connection.
    fn go_on(
        &self,
        seen: &Seen,
        request: &Request<'_>,
        tracked: &mut Tracked,
        (place, direction): (Place, usize),
        now_ms: u64,
    ) -> Option<Option<Rewrite>> {
        let entry = self.table().entry(place.entry);
        let known = Known { place, direction: direction as u8, is_error: seen.is_error };
        // The reply tuple is needed where packets are translated.
        let reply = if request.nat.is_some() { entry.tuple(1) } else { Tuple::default() };
        let tuples = [entry.tuple(0), reply];
        let is_followed = self.events.are_wanted() && !request.is_dry_run;
        let result = entry.with(place.generation, |live| {
            let live = &mut live_for(request, live);
            let former = is_followed.then(|| followed_parts(live));
            let progress = match seen.is_error {
                true => None,
                false => {
                    let message = live.unskewed(&seen.message, direction, tracked);
                    let (progress, timeout) = live.state.update(&message, direction);
                    if let Some(timeout) = timeout.filter(|_| !request.is_dry_run) {
                        entry.set_expiry(self.expiry((timeout, request.zone), now_ms));
                    }
                    Some(progress)
                }
            };
            let reply = if direction == 1 { REPLY } else { 0 };
            let control = live.control_tuple();
            tracked.state |= if control.is_some() { RELATED } else { 0 };
            match progress {
                None => tracked.state |= RELATED | reply,
                Some(Progress::Established) => tracked.state = tracked.state & !NEW | ESTABLISHED | reply,
                Some(Progress::New) => tracked.state |= NEW,
                Some(Progress::Invalid) => tracked.state = INVALID,
                Some(Progress::Restarts) => return None,
            }
            let rewrite = translate(live, tuples, (request, &known), tracked);
            tracked.original = Some(control.unwrap_or(tuples[0]));
            tracked.announced = control.map(|_| place);
            tracked.followed = live.application().and((!seen.is_error).then_some(known));
            set_fields(live, request, tracked);
            let changed = former.filter(|former| *former != followed_parts(live));
            Some((rewrite, changed.map(|_| entry.listed(live, now_ms))))
        });
        match result? {
            Some((rewrite, changed)) => {
                changed.iter().for_each(|listed| self.events.push(Change::Updated, listed));
                (tracked.state, tracked.zone) = (tracked.state | TRACKED, request.zone);
                // As in Open vSwitch, another `ct` looks for the connection again where this one may translate.
                let is_kept = request.nat.is_none() || direction == 1 && rewrite.is_some();
                tracked.known = is_kept.then_some(known);
                Some(rewrite)
            }
            None => {
                if !request.is_dry_run {
                    self.remove(place, Ended::Closed, now_ms);
                }
                self.begin(seen, request, tracked, now_ms)
            }
        }
    }
}
