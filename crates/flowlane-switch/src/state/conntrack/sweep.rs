//! Expiry, eviction, removal and listing: all that goes through the entries in the order of memory.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use super::Connections;
use super::alg::Application;
use super::entry::{Live, Translated};
use super::events::Ended;
use super::protocol::State;
use super::session::NEVER_MS;
use super::table::Place;
use super::tuple::Tuple;

/// Entries that are looked at for one that can make room.
const LOOKED_AT: u32 = 32;

/// A connection, for reports.
#[derive(Clone, Debug)]
pub struct Listed {
    pub original: Tuple,
    pub reply: Tuple,
    pub state: State,
    pub mark: u32,
    pub label: u128,
    pub translated: Translated,
    /// The application whose control connection it is.
    pub application: Option<Application>,
    /// Milliseconds since it began.
    pub age_ms: u64,
    /// Milliseconds until its time is over.
    pub left_ms: u64,
}

/// The ends that one direction of a connection must have; `None` is any value.
#[derive(Clone, Copy, Debug, Default)]
pub struct WantedEnds {
    pub source: Option<IpAddr>,
    pub destination: Option<IpAddr>,
    pub source_port: Option<u16>,
    pub destination_port: Option<u16>,
    /// The identifier of ICMP.
    pub icmp_id: Option<u16>,
    /// The type of ICMP messages.
    pub icmp_type: Option<u8>,
}

impl WantedEnds {
    fn is(&self, tuple: &Tuple) -> bool {
        let (source, destination) = (tuple.source, tuple.destination);
        let is_icmp = tuple.is_icmp();
        self.source.is_none_or(|address| tuple.ip(source) == address)
            && self.destination.is_none_or(|address| tuple.ip(destination) == address)
            && self.source_port.is_none_or(|port| !is_icmp && source.port == port)
            && self.destination_port.is_none_or(|port| !is_icmp && destination.port == port)
            && self.icmp_id.is_none_or(|id| is_icmp && source.port == id)
            && self.icmp_type.is_none_or(|kind| is_icmp && source.icmp_type == kind)
    }
}

/// The connections that are wanted; each part that is given must agree.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub zone: Option<u16>,
    pub proto: Option<u8>,
    /// The address of an end, of either direction.
    pub address: Option<IpAddr>,
    /// The port of an end, of either direction.
    pub port: Option<u16>,
    /// Value and mask of the mark.
    pub mark: Option<(u32, u32)>,
    pub label: Option<(u128, u128)>,
    /// The ends of the original direction, and of replies.
    pub ends: [WantedEnds; 2],
}

impl Listed {
    /// A connection at a time; `expires_ms` is the end of its own.
    pub(super) fn of([original, reply]: [Tuple; 2], live: &Live, (now_ms, expires_ms): (u64, u64)) -> Self {
        Self {
            original,
            reply,
            state: live.state,
            mark: live.mark,
            label: live.label(),
            translated: live.translated,
            application: live.application(),
            age_ms: now_ms.saturating_sub(live.begun_ms),
            left_ms: expires_ms.saturating_sub(now_ms),
        }
    }
}

impl Wanted {
    pub(super) fn is(&self, listed: &Listed) -> bool {
        let tuples = [&listed.original, &listed.reply];
        let ends = || tuples.iter().flat_map(|tuple| [tuple.source, tuple.destination]);
        let original = tuples[0];
        self.zone.is_none_or(|zone| zone == original.zone)
            && self.proto.is_none_or(|proto| proto == original.proto)
            && self.address.is_none_or(|address| ends().any(|end| original.ip(end) == address))
            && self.port.is_none_or(|port| !original.is_icmp() && ends().any(|end| end.port == port))
            && self.mark.is_none_or(|(value, mask)| listed.mark & mask == value & mask)
            && self.label.is_none_or(|(value, mask)| listed.label & mask == value & mask)
            && self.ends.iter().zip(tuples).all(|(ends, tuple)| ends.is(tuple))
    }
}

impl Connections {
    /// Looks at some entries and removes the connections whose time is over. Workers share the work.
    pub fn sweep(&self, now_ms: u64, budget: u32) {
        let Some(memories) = self.memories.get() else { return };
        let used = memories.table.used();
        let budget = budget.min(used);
        let from = self.hand.0.fetch_add(budget, Ordering::Relaxed);
        if used > 0 && from % used + budget >= used {
            // Once a round.
            self.expectations.sweep(now_ms);
        }
        self.sweep_from(from, now_ms, budget);
    }

    /// Removes connections whose time is over among those that the next [`sweep`](Self::sweep) will look at.
    pub(super) fn sweep_ahead(&self, now_ms: u64, budget: u32) {
        self.sweep_from(self.hand.0.load(Ordering::Relaxed), now_ms, budget);
    }

    fn sweep_from(&self, from: u32, now_ms: u64, budget: u32) {
        let Some(memories) = self.memories.get() else { return };
        let used = memories.table.used();
        for number in (0..budget.min(used)).map(|step| from.wrapping_add(step) % used) {
            let Some(entry) = memories.table.try_entry(number) else { continue };
            let generation = entry.generation();
            if generation.is_multiple_of(2)
                && entry.expires_ms() <= now_ms
                && self.remove(Place { entry: number, generation }, Ended::Expired, now_ms)
            {
                self.counters.expired.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Makes room for a connection in a full table, if there is one that may go.
    pub(super) fn make_room(&self, now_ms: u64) {
        if self.has_room(1) {
            return;
        }
        let from = self.hand.0.fetch_add(LOOKED_AT, Ordering::Relaxed);
        for (place, is_over) in self.weak_from(from, now_ms) {
            let why = if is_over { Ended::Expired } else { Ended::Evicted };
            if self.remove(place, why, now_ms) {
                let counter = if is_over { &self.counters.expired } else { &self.counters.evicted };
                counter.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Returns the connection that would go for a new one.
    pub(super) fn weakest(&self, now_ms: u64) -> Option<Place> {
        self.weak_from(self.hand.0.load(Ordering::Relaxed), now_ms).next().map(|(place, _)| place)
    }

    /// Returns the connections that may go for a new one, and whether their time is over, among the few that the hand is at.
    fn weak_from(&self, from: u32, now_ms: u64) -> impl Iterator<Item = (Place, bool)> {
        let table = self.table();
        let used = table.used().max(1);
        (0..LOOKED_AT).map(move |step| from.wrapping_add(step) % used).filter_map(move |number| {
            let entry = table.try_entry(number)?;
            let generation = entry.generation();
            let is_over = entry.expires_ms() <= now_ms;
            let may_go = is_over || entry.peek(|live| live.state.is_weak()).unwrap_or(false);
            (generation.is_multiple_of(2) && may_go).then_some((Place { entry: number, generation }, is_over))
        })
    }

    /// Calls `each` with every wanted connection, until it returns false.
    pub fn for_each(&self, wanted: &Wanted, now_ms: u64, mut each: impl FnMut(Listed) -> bool) {
        let Some(memories) = self.memories.get() else { return };
        for number in 0..memories.table.used() {
            let Some(entry) = memories.table.try_entry(number) else { continue };
            let (generation, expires_ms) = (entry.generation(), entry.expires_ms());
            if !generation.is_multiple_of(2) || expires_ms <= now_ms {
                continue;
            }
            let listed = entry.with(generation, |live| entry.listed(live, now_ms));
            if let Some(listed) = listed.filter(|listed| wanted.is(listed))
                && !each(listed)
            {
                return;
            }
        }
    }

    /// Removes the wanted connections. Returns their number.
    pub fn flush(&self, wanted: &Wanted, now_ms: u64) -> usize {
        let Some(memories) = self.memories.get() else { return 0 };
        let remove = |number: &u32| {
            let Some(entry) = memories.table.try_entry(*number) else { return false };
            let generation = entry.generation();
            // Those that never end are the configuration's.
            generation.is_multiple_of(2)
                && entry.expires_ms() != NEVER_MS
                && entry.with(generation, |live| wanted.is(&entry.listed(live, now_ms))) == Some(true)
                && self.remove(Place { entry: *number, generation }, Ended::Flushed, now_ms)
        };
        (0..memories.table.used()).filter(remove).count()
    }
}
