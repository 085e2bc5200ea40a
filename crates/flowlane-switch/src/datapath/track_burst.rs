//! Connection tracking of a burst: lanes whose next step looks their connection up are taken to their connections together.

use flowlane::packet::batch::{LANES_MAX, LaneMask};

use super::egress::NS_PER_MS;
use super::execute::{Cursor, Cursors, count, summary};
use super::lookup::Lookup;
use super::track::{request, show, zone};
use super::worker::Worker;
use crate::packet::Burst;
use crate::packet::recirculate::{enter, take_along};
use crate::ruleset::{LaneStep, SideEffects, Step, StepSummary, Track};
use crate::state::conntrack::{Connections, Hashed, Seen, Tuple, ct_state, rewrite, seen};

/// Words that a step takes along: which, and their values and masks.
type Carry = [(u8, u32, u32)];

/// Returns how a lane's next step looks its connection up, if that is all that its steps do, and the words that it takes along.
fn only_track<'a>(lookup: &'a Lookup, cursor: &Cursor) -> Option<(&'a Track, &'a Carry)> {
    let steps = match *cursor {
        Cursor::Path(path) => lookup.paths.steps_without_marks(path),
        Cursor::Rule(table, rule, _) => lookup.pipeline.ruleset().table(table)?.steps(rule),
        _ => return None,
    };
    steps.steps().iter().find_map(|step| match step {
        Step::Lane { step, .. } => match &**step {
            LaneStep::Track { track, carry } => Some((&**track, &**carry)),
            _ => None,
        },
        _ => None,
    })
}

/// The packets of lanes that wait for their connections: what connection tracking sees of them, if that is valid.
///
/// A lane whose turn does not come in one round keeps its place here, so that each packet is read and hashed once.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    lanes: LaneMask,
    seen: Vec<Option<(Seen, Hashed)>>,
}

impl Prepared {
    /// Forgets the lanes of the previous burst.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.lanes = LaneMask(0);
    }

    /// Forgets a lane.
    #[inline]
    pub(super) fn remove(&mut self, lane: usize) {
        self.lanes.remove(lane);
    }
}

/// The next step of a lane, as far as those behind it are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// It looks its connection up.
    Tracks,
    /// It leaves.
    Ends,
    Other,
}

/// Returns the next step of a lane.
#[inline]
fn next(worker: &Worker, burst: &Burst, lane: usize, cursor: &Cursor) -> Next {
    match summary(&worker.lookup, cursor).map(|summary| (summary, summary.seen())) {
        Some((StepSummary::Track, _))
            if matches!(cursor, Cursor::Path(_) | Cursor::Rule(..))
                && !worker.calls.hold_state(lane)
                && !worker.calls.is_translated(lane)
                && burst.headers[lane].fragment == 0 =>
        {
            Next::Tracks
        }
        Some((_, SideEffects::Terminal)) if !worker.calls.are_open(lane) => Next::Ends,
        _ => Next::Other,
    }
}

/// Takes the first lanes, whose next step looks their connection up, to their connections together. Returns them: they are to be
/// looked up again.
///
/// Lanes behind one that has more to do before wait for that, and so do those behind a packet of a connection that is not
/// established: it may be kept in the next table; and those behind one of a control connection, which may announce theirs there.
/// So connections meet their packets in order. Lanes of other zones wait: a packet of a connection that is established in its zone may
/// still begin one in theirs. Where rules keep connections only with the ends that their packets came with, others
/// need not wait for that: those of other ends.
pub(super) fn track_lanes(
    worker: &mut Worker,
    burst: &mut Burst,
    lanes: LaneMask,
    cursors: &Cursors,
) -> LaneMask {
    let is_first = |lane: &usize| next(worker, burst, *lane, &cursors[*lane]) != Next::Ends;
    let Some(first) = lanes.lanes().find(is_first) else { return LaneMask(0) };
    if next(worker, burst, first, &cursors[first]) != Next::Tracks || worker.takes_no_path() {
        return LaneMask(0);
    }
    let connections = worker.egress.connections.clone();
    let mut prepared = std::mem::take(&mut worker.calls.prepared);
    let ruleset = worker.lookup.pipeline.ruleset();
    let order_matters = ruleset.changes_connections();
    // In a full table, a connection that is kept takes the place of another.
    let are_apart = ruleset.keeps_ends() && connections.has_room(LANES_MAX);
    let (mut done, mut met, mut zone) = (LaneMask(0), Met::default(), None);
    for lane in lanes.lanes().skip_while(|lane| *lane < first) {
        match next(worker, burst, lane, &cursors[lane]) {
            Next::Tracks => {}
            Next::Ends => continue,
            Next::Other => break,
        }
        if prepared.lanes.0 >> lane & 1 == 0 {
            let behind = LaneMask(lanes.0 & u64::MAX << lane);
            prepare(worker, burst, behind, cursors, &connections, &mut prepared);
        }
        let seen = prepared.seen[lane].as_ref();
        let bits = seen.map(|seen| Bits::of(seen, order_matters.then_some(&*connections)));
        let is_other = |(seen, _): &(Seen, Hashed)| *zone.get_or_insert(seen.tuple.zone) != seen.tuple.zone;
        if bits.is_some_and(|bits| met.has(bits)) || seen.is_some_and(is_other) {
            break;
        }
        let (is_established, is_followed) =
            track_one(worker, burst, lane, (&cursors[lane], seen), &connections);
        prepared.remove(lane);
        done.0 |= 1 << lane;
        if is_followed || !is_established && !are_apart {
            break;
        }
        if let Some(bits) = bits.filter(|_| order_matters || !is_established) {
            met.add(bits);
        }
    }
    worker.calls.prepared = prepared;
    done
}

/// Reads the packets of the first of these lanes, which look their connections up, and asks for the memory of those.
fn prepare(
    worker: &Worker,
    burst: &mut Burst,
    lanes: LaneMask,
    cursors: &Cursors,
    connections: &Connections,
    prepared: &mut Prepared,
) {
    let mut read = LaneMask(0);
    prepared.seen.resize_with(LANES_MAX, || None);
    for lane in lanes.lanes() {
        match next(worker, burst, lane, &cursors[lane]) {
            Next::Tracks => {}
            Next::Ends => continue,
            Next::Other => break,
        }
        let Some((track, carry)) = only_track(&worker.lookup, &cursors[lane]) else {
            unreachable!("its steps look the connection up")
        };
        let key = &mut burst.keys[lane];
        take_along(carry, key);
        let zone = zone(track, key);
        prepared.seen[lane] = seen(burst.frames[lane].bytes(), &burst.headers[lane], key).map(|mut seen| {
            seen.tuple.zone = zone;
            connections.prefetch_answer(&seen);
            (seen, connections.prepare(&seen.tuple))
        });
        read.0 |= 1 << lane;
    }
    prepared.lanes.0 |= read.0;
    connections.prefetch(read.lanes().filter_map(|lane| Some(&prepared.seen[lane].as_ref()?.1)));
}

/// A packet's connection and its ends, as numbers: packets of which both differ are of different connections, and in other zones, too.
#[derive(Clone, Copy)]
struct Bits {
    place: Option<u32>,
    ends: usize,
}

impl Bits {
    /// `connections` are looked at where the connection's place counts.
    fn of((seen, hashed): &(Seen, Hashed), connections: Option<&Connections>) -> Self {
        let Tuple { source, destination, .. } = seen.tuple;
        let addresses = source.address ^ destination.address;
        let ends = (addresses >> 64 ^ addresses) as u64 ^ u64::from(source.port ^ destination.port) << 32;
        // Knuth's multiplier: what differs in any bit differs in the upper ones, mostly.
        let ends = (ends.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize;
        Self { place: connections.and_then(|connections| connections.place(hashed)), ends }
    }
}

/// The connections and ends of packets in front.
#[derive(Default)]
struct Met {
    places: u64,
    ends: [u64; 8],
}

impl Met {
    fn add(&mut self, bits: Bits) {
        self.places |= bits.place.map_or(0, |place| 1 << (place % 64));
        self.ends[bits.ends / 64] |= 1 << (bits.ends % 64);
    }

    /// Returns whether one may be of that connection, or have those ends.
    fn has(&self, bits: Bits) -> bool {
        let same_place = bits.place.is_some_and(|place| self.places >> (place % 64) & 1 == 1);
        same_place || self.ends[bits.ends / 64] >> (bits.ends % 64) & 1 == 1
    }
}

/// Takes a lane to its connection, and makes its key that of a packet which enters the action's table. Returns whether its connection is
/// established, and whether it may announce others.
fn track_one(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    (cursor, seen): (&Cursor, Option<&(Seen, Hashed)>),
    connections: &Connections,
) -> (bool, bool) {
    let Worker { lookup, calls, .. } = worker;
    let key = &mut burst.keys[lane];
    let (tracked, mut is_followed) = (calls.tracked(lane), false);
    if let Some((track, _)) = only_track(lookup, cursor) {
        let request = request(track, key, false);
        let now_ms = burst.times_ns[lane] / NS_PER_MS;
        let by = connections.track_prepared(seen, &request, tracked, now_ms);
        let (frame, headers) = (&mut burst.frames[lane], &mut burst.headers[lane]);
        if let Some(by) = &by {
            rewrite(frame, headers, key, by);
        }
        is_followed = connections.follow(&request, (frame, headers), tracked, (by.is_some(), now_ms));
        show(key, tracked);
        enter(key, track.action.table.unwrap_or(0));
    }
    let is_established = tracked.state & ct_state::ESTABLISHED != 0;
    count(lookup, cursor, burst.frames[lane].counted.into());
    (is_established, is_followed)
}
