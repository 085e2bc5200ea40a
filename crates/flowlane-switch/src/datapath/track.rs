//! Connection tracking: the step of a lane that looks its packet's connection up.
//!
//! As in Open vSwitch, the packet that goes on in the action's table is a copy; only the copy sees the connection. Where nothing follows
//! the action, the packet itself goes on there.

use std::sync::Arc;

use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::fields::word;
use flowlane::packet::key::FlowKey;
use flowlane::packet::{Field, FieldClass, Headers, WordSet};
use flowlane::rule::Action;
use flowlane::rule::action::{PortNo, Zone};

use super::calls::{Calls, PausedCalls};
use super::egress::NS_PER_MS;
use super::execute::{Cursor, StepResult};
use super::lane_steps::{copy_to_table, finish_alone, parse_lane};
use super::validate::RunError;
use super::walk::ROUNDS_MAX;
use super::worker::{Worker, finish};
use crate::packet::recirculate::{rounds, set_rounds};
use crate::packet::{Burst, Frame};
use crate::ruleset::{Return, Track};
use crate::state::conntrack::fragments::{Taken, piece, seen_whole};
use crate::state::conntrack::{
    Application, Connections, Request, Rewrite, Seen, Tracked, rewrite, seen, with_addresses,
};
use crate::state::mirror::MirrorSet;

/// A fragment that waits for the others of its datagram.
#[derive(Debug)]
pub(super) struct HeldFragment {
    /// Its place in the steps, and its open calls.
    calls: PausedCalls,
    waits_at: WaitsAt,
    frame: Frame,
    headers: Headers,
    key: FlowKey,
    /// Its key before it was translated.
    came_as: Option<FlowKey>,
    /// The place of the port that it came in through.
    port: usize,
    source: Option<PortNo>,
    /// The mirrors that have a copy of it.
    mirrored: MirrorSet,
}

/// Where a fragment waits.
#[derive(Clone, Debug)]
pub(super) enum WaitsAt {
    Track(Arc<Track>),
    /// A stateful stage.
    Stage(u8),
}

impl HeldFragment {
    /// A lane's packet, which ends here and goes on later.
    pub(super) fn new(
        worker: &mut Worker,
        burst: &Burst,
        lane: usize,
        (waits_at, here): (WaitsAt, Return),
    ) -> Self {
        let mut frame = Frame::default();
        frame.copy_from(&burst.frames[lane]);
        let (headers, key) = (burst.headers[lane], burst.keys[lane].clone());
        let (port, source, mirrored) = (burst.port, burst.source(lane), worker.egress.mirroring.done());
        let calls = worker.calls.pause(lane, here);
        Self { calls, waits_at, frame, headers, key, came_as: None, port, source, mirrored }
    }

    /// Gives a lane back that does not wait.
    pub(super) fn take_back(self, worker: &mut Worker, lane: usize) {
        worker.calls.take_back(lane, self.calls);
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.frame.bytes()
    }

    /// Returns its connection before it waited.
    pub(super) fn tracked(&self) -> Tracked {
        self.calls.tracked()
    }
}

/// Takes a lane's packet to its connection; the lane then goes on in the action's table, or at `here`.
pub(super) fn track_lane(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    track: &Arc<Track>,
    (here, moved): (Return, bool),
) -> Result<StepResult, RunError> {
    worker.calls.prepared.remove(lane);
    let request = request(track, &burst.keys[lane], false);
    let was_translated = worker.calls.is_translated(lane);
    let may_differ = was_translated || request.nat.is_some();
    let keeps_key = may_differ && !goes_itself(worker, lane, track, &here);
    let mut came_as = keeps_key.then(|| burst.keys[lane].clone());
    if was_translated {
        worker.calls.forget_translation(lane);
        if !parse_lane(worker, burst, lane) {
            return Ok(StepResult::End);
        }
    }
    let (headers, key) = (&mut burst.headers[lane], &mut burst.keys[lane]);
    let now_ms = burst.times_ns[lane] / NS_PER_MS;
    let packet = (&mut burst.frames[lane], headers, key);
    if packet.1.fragment != 0 && !Connections::knows(worker.calls.tracked(lane), &request) {
        let Some(whole) = *worker.calls.datagram(lane) else {
            came_as.take_if(|_| !was_translated);
            return track_fragment(worker, burst, lane, track, (here, moved, came_as));
        };
        let seen = whole.map(|seen| with_addresses(seen, packet.2));
        let tracked = worker.calls.tracked(lane);
        let by = worker.egress.connections.track(seen.as_ref(), &request, tracked, now_ms);
        if let Some(by) = &by {
            rewrite(packet.0, packet.1, packet.2, by);
        }
        *worker.calls.datagram(lane) = Some(translated(seen, by.as_ref()));
        came_as.take_if(|_| !was_translated && by.is_none());
    } else {
        let tracked = worker.calls.tracked(lane);
        let is_translated = track_packet(&worker.egress.connections, &request, packet, tracked, now_ms);
        came_as.take_if(|_| !was_translated && !is_translated);
    }
    go_on(worker, burst, lane, track, (here, moved, came_as))
}

/// Returns whether a lane's packet itself goes on in the table of a `ct`, and no copy: nothing follows the action. A copy does not go on
/// itself: its action set and `exit` are not those of the packet that it was made of.
fn goes_itself(worker: &Worker, lane: usize, track: &Track, here: &Return) -> bool {
    track.entering.is_some() && !worker.is_at_copy() && worker.calls.nothing_follows(lane, here)
}

/// Gives a lane the key that its packet had before it was translated, if it was. As in Open vSwitch, the steps that follow a `ct` see the
/// ends that the packet came with: what these do does not depend on the connection. The table of the `ct` sees others.
fn show_former(worker: &mut Worker, burst: &mut Burst, lane: usize, came_as: Option<FlowKey>) {
    if let Some(key) = came_as {
        burst.keys[lane] = key;
        worker.calls.note_translated(lane);
    }
}

/// Returns a datagram whose fragments are translated.
pub(super) fn translated(seen: Option<Seen>, by: Option<&Rewrite>) -> Option<Seen> {
    seen.map(|seen| Seen { tuple: by.map_or(seen.tuple, |by| by.to), ..seen })
}

/// Lets a lane go on whose connection is known, and with the key that its packet came with, if it is translated and goes on behind the
/// action.
fn go_on(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    track: &Track,
    (here, moved, came_as): (Return, bool, Option<FlowKey>),
) -> Result<StepResult, RunError> {
    let Some(entering) = &track.entering else {
        show_former(worker, burst, lane, came_as);
        hide(&mut burst.keys[lane]);
        worker.calls.resume_at(lane, here, moved);
        return Ok(StepResult::Resumed);
    };
    let key = &mut burst.keys[lane];
    show(key, worker.calls.tracked(lane));
    let before = rounds(key);
    if track.back {
        if before == ROUNDS_MAX {
            worker.egress.drops.call_depth += 1;
            worker.calls.clear(lane);
            return Ok(StepResult::End);
        }
        set_rounds(key, before + 1);
    }
    if goes_itself(worker, lane, track, &here) {
        worker.calls.close(lane);
        worker.calls.resume_at(lane, Return::to(entering.clone(), 0, rounds(key)), moved);
        return Ok(StepResult::Resumed);
    }
    // As in Open vSwitch, mirrors that take the copy there may take the packet, too.
    let mirrored = worker.egress.mirroring.done();
    copy_to_table(worker, burst, lane, (track.action.table.unwrap_or(0), entering))?;
    worker.egress.mirroring.resume(mirrored);
    show_former(worker, burst, lane, came_as);
    let key = &mut burst.keys[lane];
    set_rounds(key, before);
    hide(key);
    worker.calls.resume_at(lane, here, moved);
    Ok(StepResult::Resumed)
}

/// Lets a fragment wait for the others of its datagram. When all have come, they go on, each by itself.
fn track_fragment(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    track: &Arc<Track>,
    (here, moved, came_as): (Return, bool, Option<FlowKey>),
) -> Result<StepResult, RunError> {
    let (headers, key) = (burst.headers[lane], &burst.keys[lane]);
    let (now_ms, request) = (burst.times_ns[lane] / NS_PER_MS, request(track, key, false));
    let (connections, fragments) = (worker.egress.connections.clone(), worker.egress.fragments.clone());
    let mut taken = None;
    if let Some((datagram, piece)) =
        piece(burst.frames[lane].bytes(), &headers, key, request.zone, connections.shortest_fragments)
    {
        let mut held = HeldFragment::new(worker, burst, lane, (WaitsAt::Track(track.clone()), here.clone()));
        held.came_as.clone_from(&came_as);
        let mut fragments = fragments.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        taken = Some((datagram, fragments.take(datagram, piece, held, (now_ms, usize::MAX))));
    }
    match taken {
        Some((_, Taken::Waits)) => {
            burst.sent.0 |= 1 << lane;
            Ok(StepResult::End)
        }
        Some((datagram, Taken::All(pieces))) => {
            burst.sent.0 |= 1 << lane;
            let seen =
                seen_whole(pieces.iter().map(|waiting| (waiting.piece, waiting.held.bytes())), &datagram);
            let mut tracked = pieces.first().map_or_else(Tracked::default, |first| first.held.tracked());
            let by = connections.track(seen.as_ref(), &request, &mut tracked, now_ms);
            for piece in pieces {
                go_on_alone(worker, piece.held, (&tracked, seen), by.as_ref())?;
            }
            Ok(StepResult::End)
        }
        refused => {
            if let Some((_, Taken::Refused(held))) = refused {
                held.take_back(worker, lane);
            }
            connections.track(None, &request, worker.calls.tracked(lane), now_ms);
            go_on(worker, burst, lane, track, (here, moved, came_as))
        }
    }
}

/// Takes a fragment on from where it has waited, to its end.
pub(super) fn go_on_alone(
    worker: &mut Worker,
    held: HeldFragment,
    (tracked, seen): (&Tracked, Option<Seen>),
    by: Option<&Rewrite>,
) -> Result<(), RunError> {
    let mut burst = Burst::new(1);
    burst.clear_for(held.port, 1);
    burst.frames.next_frame().expect("there is room").copy_from(&held.frame);
    burst.keys[0].clone_from(&held.key);
    (burst.headers[0], burst.times_ns[0]) = (held.headers, held.frame.time_ns);
    burst.sources.extend(held.source.map(|source| (0, source)));
    let outer = std::mem::replace(&mut worker.calls, Calls::of_paused(&held.calls));
    // Another worker may have received it, and the current packet may be a controller's.
    worker.egress.has_bare |= held.frame.is_bare();
    let in_packet_out = std::mem::take(&mut worker.egress.in_packet_out);
    let mirrored = worker.egress.mirroring.resume(held.mirrored);
    *worker.calls.tracked(0) = *tracked;
    *worker.calls.datagram(0) = Some(translated(seen, by));
    let here = worker.calls.current(0).clone();
    if let Some(by) = by {
        rewrite(&mut burst.frames[0], &mut burst.headers[0], &mut burst.keys[0], by);
    }
    let ended = match &held.waits_at {
        WaitsAt::Track(track) => {
            let is_translated = by.is_some() && !goes_itself(worker, 0, track, &here);
            let came_as = held.came_as.or_else(|| is_translated.then_some(held.key));
            match go_on(worker, &mut burst, 0, track, (here, false, came_as)) {
                Ok(StepResult::Resumed) => finish_alone(worker, &mut burst),
                ended => ended.map(|_| ()),
            }
        }
        WaitsAt::Stage(table) => {
            burst.sent = LaneMask(1);
            finish(worker, &mut burst, &mut LaneMask(1), &mut [Cursor::Stage(*table); LANES_MAX])
        }
    };
    worker.calls = outer;
    worker.egress.in_packet_out = in_packet_out;
    worker.egress.mirroring.resume(mirrored);
    ended
}

/// Forgets the connection of a lane's packet.
pub(super) fn untrack(worker: &mut Worker, burst: &mut Burst, lane: usize) {
    *worker.calls.tracked(lane) = Tracked::default();
    hide(&mut burst.keys[lane]);
}

/// Returns the zone of a packet with this key.
pub(super) fn zone(track: &Track, key: &FlowKey) -> u16 {
    match track.action.zone {
        Zone::Number(zone) => zone,
        Zone::Field(part) => part.get(key) as u16,
    }
}

/// Returns what a rule asks connection tracking for, for a packet with this key.
pub(super) fn request<'a>(track: &'a Track, key: &FlowKey, is_dry_run: bool) -> Request<'a> {
    let action = &track.action;
    let (mark, label) = fields(&action.exec, key);
    let (commit, force) = (action.commit, action.force);
    let (nat, application) = (action.nat(), Application::of_port(action.alg));
    Request { zone: zone(track, key), commit, force, nat, mark, label, application, is_dry_run }
}

/// Takes a packet to its connection, and translates it. `tracked` is what earlier actions have found. Returns whether it is translated.
pub(super) fn track_packet(
    connections: &Connections,
    request: &Request<'_>,
    (frame, headers, key): (&mut Frame, &mut Headers, &mut FlowKey),
    tracked: &mut Tracked,
    now_ms: u64,
) -> bool {
    let seen = match Connections::knows(tracked, request) {
        true => None,
        false => seen(frame.bytes(), headers, key),
    };
    let by = connections.track(seen.as_ref(), request, tracked, now_ms);
    if let Some(by) = &by {
        rewrite(frame, headers, key, by);
    }
    connections.follow(request, (frame, headers), tracked, (by.is_some(), now_ms));
    by.is_some()
}

/// Value and mask of a field that an action sets.
type Bits<T> = Option<(T, T)>;

/// Returns the bits of the mark and the label that actions within `ct` set.
fn fields(exec: &[Action], key: &FlowKey) -> (Bits<u32>, Bits<u128>) {
    let (mut mark, mut label): (Bits<u128>, Bits<u128>) = (None, None);
    for action in exec {
        let (field, value, mask) = match action {
            Action::SetField { field, value, mask, .. } => (*field, *value, *mask),
            Action::Move { from, to } => (to.field(), to.place(from.get(key)), to.mask()),
            _ => continue,
        };
        let bits = if field == Field::CtMark { &mut mark } else { &mut label };
        let before = bits.unwrap_or((0, 0));
        *bits = Some((before.0 & !mask | value & mask, before.1 | mask));
    }
    (mark.map(|(value, mask)| (value as u32, mask as u32)), label)
}

/// Shows a packet's connection to later tables.
pub(super) fn show(key: &mut FlowKey, tracked: &Tracked) {
    hide(key);
    let mut zone = u32::from(tracked.zone) << 16;
    key.set_word(word::CT_STATE, tracked.state);
    if tracked.mark != 0 {
        key.set_word(word::CT_MARK, tracked.mark);
    }
    if tracked.label != 0 {
        set_wide(key, word::CT_LABEL, tracked.label);
    }
    if let Some(tuple) = &tracked.original {
        zone |= u32::from(tuple.proto) << 8;
        let (source, destination) = (tuple.source, tuple.destination);
        if tuple.is_ipv6 {
            set_wide(key, word::CT_IPV6_SRC, source.address);
            set_wide(key, word::CT_IPV6_DST, destination.address);
        } else {
            key.set_word(word::CT_IPV4_SRC, source.address as u32);
            key.set_word(word::CT_IPV4_DST, destination.address as u32);
        }
        let (first, second) = match tuple.is_icmp() {
            // The code of a request is 0.
            true => (source.icmp_type.into(), 0),
            false => (source.port, destination.port),
        };
        key.set_word(word::CT_PORTS, u32::from(first) << 16 | u32::from(second));
    }
    key.set_word(word::CT_ZONE, zone);
}

/// Sets four words, the first the highest.
fn set_wide(key: &mut FlowKey, first: usize, value: u128) {
    (0..4).for_each(|at| key.set_word(first + at, (value >> (96 - 32 * at)) as u32));
}

/// Hides a packet's connection from later tables.
pub(super) fn hide(key: &mut FlowKey) {
    const CONNECTION: WordSet = WordSet::of_class(FieldClass::Connection);
    key.present().intersection(CONNECTION).iter().for_each(|w| key.set_word(w, 0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::conntrack::{End, Tuple};

    /// The words that are written are those of the fields.
    #[test]
    fn a_connection_is_shown_in_its_fields() {
        let end = |address, port, icmp_type| End { address, port, icmp_type };
        for (is_ipv6, proto) in [(false, 6), (true, 17), (false, 1)] {
            let (source, destination) = (end(0x0102_0304, 5, 8), end(0x0506_0708, 9, 0));
            let original = Some(Tuple { source, destination, zone: 7, proto, is_ipv6 });
            let mut shown = Tracked::default();
            (shown.state, shown.zone, shown.mark) = (0x21, 7, 3);
            (shown.label, shown.original) = (1 << 100 | 5, original);
            let mut key = FlowKey::zero();
            show(&mut key, &shown);
            let (from, to) = match is_ipv6 {
                true => (Field::CtIpv6Src, Field::CtIpv6Dst),
                false => (Field::CtIpv4Src, Field::CtIpv4Dst),
            };
            let ports = if proto == 1 { (8, 0) } else { (5, 9) };
            let fields = [
                (Field::CtState, 0x21),
                (Field::CtZone, 7),
                (Field::CtMark, 3),
                (Field::CtLabel, 1 << 100 | 5),
                (Field::CtNwProto, proto.into()),
                (from, 0x0102_0304),
                (to, 0x0506_0708),
                (Field::CtTpSrc, ports.0),
                (Field::CtTpDst, ports.1),
            ];
            fields.iter().for_each(|(field, value)| assert_eq!(key.get(*field), *value, "{field:?}"));
            hide(&mut key);
            assert!(key == FlowKey::zero());
        }
    }
}
