//! The first packet of a connection, which is kept if that is asked for.

use std::sync::atomic::Ordering;

use super::alg::Alg;
use super::alg::expectations::Expectation;
use super::changes::{set_fields, translate};
use super::ct_state::{INVALID, NEW, RELATED, TRACKED};
use super::entry::{Live, Translated};
use super::events::Change;
use super::protocol::{Exchange, Message, State, may_begin};
use super::table::{NotAdded, Place};
use super::tuple::Tuple;
use super::{Connections, Known, Request, Rewrite, Seen, Tracked, nat};

/// The first packet of a connection.
struct First<'a> {
    tuple: &'a Tuple,
    message: &'a Message,
    /// The connection was expected.
    expected: Option<Expectation>,
}

impl First<'_> {
    /// Returns the connection as it begins.
    fn live(&self, request: &Request<'_>, state: State, now_ms: u64) -> Live {
        let mut live = Live::new(state, now_ms);
        live.alg = Alg::of_new(self.tuple, request.application, self.expected.as_ref());
        if let Some(nat) = request.nat {
            live.translated = nat::translated(nat);
        }
        if let Some(expected) = &self.expected {
            live.mark = expected.mark;
            live.set_label(expected.label);
            live.translated = request.nat.map_or(Translated::default(), |_| expected.translated);
        }
        live
    }
}

impl Connections {
    /// Returns how the first packet of a connection would be translated, and shows it the fields that the connection would get.
    fn preview(
        &self,
        first: &First<'_>,
        request: &Request<'_>,
        tracked: &mut Tracked,
        now_ms: u64,
    ) -> Option<Rewrite> {
        let goes = if self.has_room(1) { None } else { Some(self.weakest(now_ms)?) };
        let (tuple, memories) = (first.tuple, self.memories());
        if self.is_full(request.zone) {
            return None;
        }
        let find = |tuple: &Tuple| memories.table.find(&memories.table.hashed(tuple)).map(|(place, _)| place);
        // A connection with this tuple would have been removed before.
        let replaced = find(tuple);
        let is_free = |reply: &Tuple| find(reply).is_none_or(|place| [replaced, goes].contains(&Some(place)));
        let range = request.nat.and_then(|nat| Some((nat, nat.range.as_ref()?)));
        let reply = match (&first.expected, range) {
            (Some(expected), _) if request.nat.is_some() => Some(expected.reply(tuple)).filter(is_free)?,
            (_, Some((nat, range))) => nat::replies(nat, range, tuple, self).find(is_free)?,
            (_, None) => Some(tuple.reversed()).filter(is_free)?,
        };
        let mut live = first.live(request, State::Other(Exchange::First), 0);
        let known = Known { place: Place::default(), direction: 0, is_error: false };
        let rewrite = translate(&live, [*tuple, reply], (request, &known), tracked);
        set_fields(&mut live, request, tracked);
        rewrite
    }

    /// Takes a packet of an unknown connection, which is kept if that is asked for.
    pub(super) fn begin(
        &self,
        seen: &Seen,
        request: &Request<'_>,
        tracked: &mut Tracked,
        now_ms: u64,
    ) -> Option<Option<Rewrite>> {
        let Seen { tuple, message, .. } = seen;
        let is_sound = may_begin(message, tuple.source.icmp_type, tuple.is_ipv6);
        let expected = self.expected(tuple, now_ms);
        let related = if expected.is_some() { RELATED } else { 0 };
        let state = if is_sound { NEW | related } else { INVALID };
        *tracked = Tracked {
            state: state | TRACKED,
            zone: request.zone,
            original: Some(*tuple),
            ..Tracked::default()
        };
        if let Some(expected) = &expected {
            tracked.original = Some(expected.control_tuple);
            (tracked.mark, tracked.label) = (expected.mark, expected.label);
        }
        if !is_sound || !request.commit {
            return Some(None);
        }
        if request.is_dry_run {
            return Some(self.preview(&First { tuple, message, expected }, request, tracked, now_ms));
        }
        self.keep(&First { tuple, message, expected }, request, tracked, now_ms)
    }

    /// Keeps the connection of its first packet.
    fn keep(
        &self,
        first: &First<'_>,
        request: &Request<'_>,
        tracked: &mut Tracked,
        now_ms: u64,
    ) -> Option<Option<Rewrite>> {
        let memories = self.memories();
        let in_zone = &memories.zones[usize::from(request.zone)];
        if self.is_full(request.zone) {
            self.counters.refused_zone.fetch_add(1, Ordering::Relaxed);
            return Some(None);
        }
        self.make_room(now_ms);
        if !self.has_room(1) {
            self.counters.refused_full.fetch_add(1, Ordering::Relaxed);
            return Some(None);
        }
        match self.add(first, request, now_ms) {
            Ok((place, reply)) => {
                in_zone.fetch_add(1, Ordering::Relaxed);
                self.counters.added.fetch_add(1, Ordering::Relaxed);
                let entry = memories.table.entry(place.entry);
                let tuples = [*first.tuple, reply];
                let known = Known { place, direction: 0, is_error: false };
                let (is_followed, mut kept) = (self.events.are_wanted(), None);
                let rewrite = entry.with(place.generation, |live| {
                    let rewrite = translate(live, tuples, (request, &known), tracked);
                    set_fields(live, request, tracked);
                    tracked.announced = live.control_tuple().map(|_| place);
                    tracked.followed = live.application().map(|_| known);
                    kept = is_followed.then(|| entry.listed(live, now_ms));
                    rewrite
                });
                kept.iter().for_each(|listed| self.events.push(Change::New, listed));
                // As in Open vSwitch, another `ct` then looks for the connection again.
                tracked.known = request.nat.is_none().then_some(known);
                Some(rewrite.flatten())
            }
            // Another worker has just added the connection, or one whose replies look the same.
            Err(NotAdded::Original) => None,
            Err(NotAdded::Reply) => {
                let counters = &self.counters;
                let is_translated =
                    request.nat.is_some_and(|nat| nat.range.is_some() || first.expected.is_some());
                let refused = if is_translated { &counters.refused_nat } else { &counters.refused_ambiguous };
                refused.fetch_add(1, Ordering::Relaxed);
                Some(None)
            }
            Err(NotAdded::Full) => {
                self.counters.refused_full.fetch_add(1, Ordering::Relaxed);
                Some(None)
            }
        }
    }

    /// Adds a connection. Returns its place and its reply tuple, which is translated if that is asked for.
    fn add(&self, first: &First<'_>, request: &Request<'_>, now_ms: u64) -> Result<(Place, Tuple), NotAdded> {
        let table = self.table();
        let (state, timeout) = State::begin(first.message);
        let (tuple, live) = (first.tuple, first.live(request, state, now_ms));
        let expires_ms = self.expiry((timeout, request.zone), now_ms);
        let add =
            |reply: Tuple, live| table.add([*tuple, reply], live, expires_ms).map(|place| (place, reply));
        if let (Some(expected), Some(_)) = (&first.expected, request.nat) {
            return add(expected.reply(tuple), live);
        }
        let Some((nat, range)) = request.nat.and_then(|nat| Some((nat, nat.range.as_ref()?))) else {
            return add(tuple.reversed(), live);
        };
        let mut tried = nat::replies(nat, range, tuple, self).map(|reply| {
            // Most of those that are in use are found without a lock.
            match table.find(&table.hashed(&reply)) {
                Some(_) => Err(NotAdded::Reply),
                None => add(reply, live.clone()),
            }
        });
        tried.find(|added| *added != Err(NotAdded::Reply)).unwrap_or(Err(NotAdded::Reply))
    }
}
