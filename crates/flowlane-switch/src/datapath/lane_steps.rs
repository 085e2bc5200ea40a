//! Steps of one packet of a burst that concern more than its bytes, executed: copies, groups, stacks.
//!
//! A copy of a packet is a burst of its own, with one lane. It goes through all tables and stages, to its end, before the packet
//! that it was made of goes on: so copies keep the order of the packets.

use std::sync::Arc;

use flowlane::packet::batch::LaneMask;
use flowlane::packet::key::FlowKey;
use flowlane::packet::{Field, FieldRef};
use flowlane::rule::Action;
use flowlane::rule::action::{Bundle, Learn, MemberChoice, PortNo};

use super::calls::Calls;
use super::classify::classify;
use super::egress::{Changed, Egress, Packet};
use super::execute::{Cursor, DONE, StepResult, open_calls, resume};
use super::hash_ports;
use super::mirroring::mirror_received;
use super::router::route_lane;
use super::track::{track_lane, untrack};
use super::validate::RunError;
use super::walk::{AfterStep, Outcome, run};
use super::worker::{Worker, finish};
use crate::packet::length::without_padding;
use crate::packet::recirculate::{enter, rounds, set_field, take_along};
use crate::packet::{Burst, Shown};
use crate::ruleset::{
    LaneStep, Learned, Return, RuleRequest, Step, Steps, ToController, compile_packet_out, ends_connection,
    output_step,
};

/// Copies of copies may be this deep: `clone` within a group within a `clone`, …
const COPIES_MAX: usize = 32;

/// Bursts for copies of packets, one for each depth, and the depth of the copy that is under way.
#[derive(Debug, Default)]
pub(super) struct Copies {
    spare: Vec<Burst>,
    depth: usize,
    /// How many of these return to the packet that they were made of: those within the last copy that goes its own way.
    bound: usize,
}

/// Takes a step of a lane that concerns more than the packet's bytes; the lane then resumes at `here`, perhaps with headers
/// that have moved. `opened` are calls that it has opened in front.
#[cold]
pub(super) fn run_lane_step(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    (step, again): (&LaneStep, bool),
    (here, mut moved): (Return, bool),
    opened: Option<Vec<Return>>,
) -> Result<StepResult, RunError> {
    if !open_calls(worker, lane, opened) {
        return Ok(StepResult::End);
    }
    if let LaneStep::Leave { carry } = step {
        // Its headers are what the rule's own steps would have made of them, and its key, too.
        take_along(carry, &mut burst.keys[lane]);
        if again {
            // The key lacks what earlier rules did: without a cached path, the packet would have been parsed before this table.
            if !parse_lane(worker, burst, lane) {
                return Ok(StepResult::End);
            }
            moved = false;
        }
        resume(worker, burst, lane, moved);
        return Ok(StepResult::Resumed);
    }
    if let LaneStep::Track { carry, .. } = step {
        take_along(carry, &mut burst.keys[lane]);
    }
    let looks = matches!(step, LaneStep::Route(_)) && worker.calls.is_translated(lane);
    if looks {
        worker.calls.forget_translation(lane);
    }
    if again || looks {
        if !parse_lane(worker, burst, lane) {
            return Ok(StepResult::End);
        }
        moved = false;
    }
    if let LaneStep::Pause(to) = step {
        pause(worker, burst, lane, to, here)?;
        return Ok(StepResult::End);
    }
    if let LaneStep::Track { track, .. } = step {
        return track_lane(worker, burst, lane, track, (here, moved));
    }
    if !worker.is_at_copy()
        && worker.calls.nothing_follows(lane, &here)
        && let Some(copied) = last_copy(worker, burst, lane, step)?
    {
        worker.calls.close(lane);
        let rounds = rounds(&burst.keys[lane]);
        worker.calls.resume_at(lane, Return::to(copied, 0, rounds), moved);
        return Ok(StepResult::Resumed);
    }
    if let LaneStep::Route(routing) = *step {
        return route_lane(worker, burst, lane, routing, (here, moved));
    }
    Ok(match lane_step(worker, burst, lane, step)? {
        AfterStep::Next => {
            worker.calls.resume_at(lane, here, moved);
            StepResult::Resumed
        }
        AfterStep::Exit | AfterStep::End => StepResult::End,
    })
}

/// Returns a lane's packet, whose headers are where its key says.
fn packet_of<'a>(calls: &Calls, burst: &'a mut Burst, lane: usize) -> Packet<'a> {
    Packet {
        source: burst.source(lane),
        frame: &mut burst.frames[lane],
        headers: &mut burst.headers[lane],
        key: &mut burst.keys[lane],
        port: burst.port,
        now_ns: burst.times_ns[lane],
        sent: burst.sent.0 >> lane & 1 == 1,
        moved: false,
        translated: calls.is_translated(lane),
        changed: Changed::Nothing,
    }
}

/// Parses a lane's packet again. Returns whether it continues: the malformed policy may drop it.
pub(super) fn parse_lane(worker: &mut Worker, burst: &mut Burst, lane: usize) -> bool {
    let mut packet = packet_of(&worker.calls, burst, lane);
    let goes_on = packet.parse_before(&mut worker.egress, 0, &[]);
    match goes_on {
        true => worker.calls.headers_are_in_place(lane),
        false => worker.calls.clear(lane),
    }
    goes_on
}

/// Takes a step of a lane, whose key is what its packet says.
///
/// # Errors
/// A port that fails for good.
fn lane_step(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    step: &LaneStep,
) -> Result<AfterStep, RunError> {
    match step {
        LaneStep::Copy(steps) => {
            if copy(worker, burst, lane, steps, false)? {
                worker.calls.exit(lane);
                return Ok(AfterStep::Exit);
            }
        }
        LaneStep::Group(group) => run_group(worker, burst, lane, *group)?,
        LaneStep::WriteActions(written) => worker.calls.write(lane, Some(written)),
        LaneStep::ClearActions => worker.calls.write(lane, None),
        LaneStep::Exit => {
            worker.calls.exit(lane);
            worker.egress.drops.by_rule += u64::from(burst.sent.0 >> lane & 1 == 0);
            return Ok(AfterStep::Exit);
        }
        LaneStep::Push(part) => worker.calls.push_value(lane, part.get(&burst.keys[lane])),
        LaneStep::PushValue(value) => worker.calls.push_value(lane, *value),
        LaneStep::Pop(part) => {
            if let Some(value) = worker.calls.pop_value(lane) {
                set(worker, burst, lane, *part, value & part.ones());
            }
        }
        LaneStep::OutputField { port, max_len, origin } => {
            let step = output_step(port.get(&burst.keys[lane]), *max_len, *origin);
            output(worker, burst, lane, step)?;
        }
        LaneStep::Multipath(multipath) => {
            let link = hash_ports::link(&burst.keys[lane], multipath);
            set(worker, burst, lane, multipath.to, u128::from(link) & multipath.to.ones());
        }
        LaneStep::Bundle(bundle) => run_bundle(worker, burst, lane, bundle)?,
        LaneStep::CheckPacketLarger { bytes, to } => {
            let len = without_padding(&burst.frames[lane], &burst.headers[lane]);
            let is_larger = len > usize::from(*bytes);
            set(worker, burst, lane, *to, is_larger.into());
        }
        LaneStep::Learn(action) => learn(worker, burst, lane, action),
        LaneStep::FinTimeout(request) => {
            if ends_connection(&burst.keys[lane]) {
                worker.egress.learning.request(request, burst.times_ns[lane]);
            }
        }
        LaneStep::Request(request) => {
            worker.egress.learning.request(request, burst.times_ns[lane]);
        }
        LaneStep::Expire => {
            worker.egress.expire(&burst.frames[lane], &burst.keys[lane], burst.times_ns[lane])?;
            burst.sent.0 |= 1 << lane;
        }
        LaneStep::Refuse => {
            worker.egress.drops.call_depth += 1;
            worker.calls.clear(lane);
            return Ok(AfterStep::End);
        }
        LaneStep::Untrack => untrack(worker, burst, lane),
        LaneStep::Pause(_) | LaneStep::Track { .. } | LaneStep::Route(_) | LaneStep::Leave { .. } => {}
    }
    Ok(AfterStep::Next)
}

/// Asks for the rule that a lane's packet makes, and sets the bit that says whether its limit allows the rule.
fn learn(worker: &mut Worker, burst: &mut Burst, lane: usize, learn: &Learn) {
    let request = Arc::new(RuleRequest::Learn(Learned::of(learn, &burst.keys[lane])));
    let is_learned = worker.egress.learning.request(&request, burst.times_ns[lane]);
    if let Some(to) = learn.result {
        set(worker, burst, lane, to, is_learned.into());
    }
}

/// Sends a lane's packet to controllers, one of which may resume it at `here`, and ends it.
fn pause(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    to: &Arc<ToController>,
    here: Return,
) -> Result<(), RunError> {
    burst.sent.0 |= 1 << lane;
    let (frame, now_ns, action) = (&burst.frames[lane], burst.times_ns[lane], &to.action);
    let packet_ins = worker.egress.packet_ins.as_ref();
    // A flood of packets that no controller gets must not take the place of those that wait for one.
    if packet_ins.is_some_and(|packet_ins| !packet_ins.has_room()) {
        worker.egress.drops.no_controller += 1;
        worker.calls.clear(lane);
        return Ok(());
    }
    if !worker.egress.admits_to_controller(action.meter, frame.packet().len(), now_ns) {
        worker.calls.clear(lane);
        return Ok(());
    }
    match worker.pause(lane, here, &burst.keys[lane]) {
        Some(token) => worker.egress.queue_packet_in(frame, &burst.keys[lane], to, Some(token)),
        // A controller behind a port resumes nothing.
        None => worker.egress.send_to_controller(frame, action.max_len)?,
    }
    Ok(())
}

/// Sends a lane's packet to a member of a bundle, or sets a field to the member.
fn run_bundle(worker: &mut Worker, burst: &mut Burst, lane: usize, bundle: &Bundle) -> Result<(), RunError> {
    let member = worker.egress.bundle_member(&burst.keys[lane], bundle);
    match (bundle.to, member) {
        // Open vSwitch: OFPP_NONE where no member is live.
        (Some(to), member) => {
            let number = member.map_or(0xffff, |port| port.0);
            set(worker, burst, lane, to, u128::from(number) & to.ones());
        }
        (None, Some(port)) => output(worker, burst, lane, Some(Step::Do(Action::Output(port))))?,
        (None, None) => {}
    }
    Ok(())
}

/// Sets a field, or some of its bits, of a lane's packet.
fn set(worker: &mut Worker, burst: &mut Burst, lane: usize, to: FieldRef, value: u128) {
    worker.calls.note_change(lane, Changed::by(to.field()));
    let (frame, headers) = (&mut burst.frames[lane], &mut burst.headers[lane]);
    set_field(frame, headers, &mut burst.keys[lane], to.field(), to.place(value), to.mask());
    if to.field() == Field::InPort {
        burst.sources.insert(lane, PortNo(burst.keys[lane].get(Field::InPort) as u32));
    }
}

/// Sends a lane's packet somewhere, by a step that is an output.
fn output(worker: &mut Worker, burst: &mut Burst, lane: usize, step: Option<Step>) -> Result<(), RunError> {
    let mut packet = packet_of(&worker.calls, burst, lane);
    let ended = run(step.as_slice(), 0, &mut packet, &mut worker.egress)?;
    debug_assert!(matches!(ended, Outcome::Done), "an output does not drop");
    burst.sent.0 |= u64::from(packet.sent) << lane;
    Ok(())
}

impl Egress {
    /// Returns the member of a bundle that a packet with this key gets.
    pub(super) fn bundle_member(&self, key: &FlowKey, bundle: &Bundle) -> Option<PortNo> {
        let mut live = bundle.members.iter().copied().filter(|port| self.is_live(*port));
        match bundle.algorithm {
            MemberChoice::ActiveBackup => live.next(),
            MemberChoice::Hrw => {
                let hash = hash_ports::hash(key, bundle.hash, bundle.basis.into());
                hash_ports::highest(hash, live.map(|port| port.0)).map(PortNo)
            }
        }
    }
}

/// Returns the steps of a lane's last copy, which its packet itself takes, since nothing follows: those of a `clone`, or of the last
/// bucket that a group chooses. The copies for the buckets before have ended then.
fn last_copy(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    step: &LaneStep,
) -> Result<Option<Steps>, RunError> {
    let copied = match step {
        LaneStep::Copy(steps) => Some(steps.clone()),
        LaneStep::Group(group) => {
            let mut buckets = choose_buckets(worker, burst, lane, *group);
            let last = buckets.pop().unwrap_or_default();
            for bucket in &buckets {
                copy(worker, burst, lane, bucket, true)?;
            }
            Some(last)
        }
        _ => None,
    };
    if copied.is_some() && !worker.calls.call(lane, Shown::default()) {
        worker.egress.drops.call_depth += 1;
        return Ok(Some(Steps::default()));
    }
    Ok(copied)
}

/// Lets a group decide about a lane's packet, counts it there, and returns the steps of the buckets that it chooses.
fn choose_buckets(worker: &mut Worker, burst: &Burst, lane: usize, id: u32) -> Vec<Steps> {
    let groups = worker.lookup.pipeline.ruleset().groups();
    let Some(group) = groups.get(id).cloned() else { return Vec::new() };
    let is_live = |port| worker.egress.is_live(port);
    let chosen = groups.chosen(&group.group, &burst.keys[lane], &is_live);
    let bytes = burst.frames[lane].packet().len() as u64;
    worker.groups.count(id, &chosen, &group, bytes);
    chosen.into_iter().map(|at| group.steps[at].clone()).collect()
}

/// Takes copies of a lane's packet through the buckets that a group chooses.
fn run_group(worker: &mut Worker, burst: &mut Burst, lane: usize, id: u32) -> Result<(), RunError> {
    for bucket in choose_buckets(worker, burst, lane, id) {
        copy(worker, burst, lane, &bucket, true)?;
    }
    Ok(())
}

/// Takes the only packet of a burst through steps, and whatever follows there, to its end.
pub(super) fn run_alone(worker: &mut Worker, burst: &mut Burst, steps: Steps) -> Result<(), RunError> {
    worker.calls = Calls::alone(Return::to(steps, 0, 0));
    finish_alone(worker, burst)
}

/// Takes the only packet of a burst on from the place in its calls, to its end.
pub(super) fn finish_alone(worker: &mut Worker, burst: &mut Burst) -> Result<(), RunError> {
    burst.sent = LaneMask(1);
    let mut cursors = DONE;
    cursors[0] = Cursor::Resumed(worker.calls.summary(0));
    finish(worker, burst, &mut LaneMask(1), &mut cursors)
}

/// Takes a copy of a lane's packet through steps, and whatever follows there, to its end. Returns whether it has met an `exit` that
/// is the lane's, too: in Open vSwitch that of a clone is, and that of a bucket is not.
pub(super) fn copy(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    steps: &Steps,
    is_bucket: bool,
) -> Result<bool, RunError> {
    let here = Return::to(steps.clone(), 0, rounds(&burst.keys[lane]));
    with_copy(worker, burst, lane, (here, is_bucket), |worker, copy| {
        worker.copies.bound += 1;
        let mut cursors = DONE;
        cursors[0] = Cursor::Resumed(worker.calls.summary(0));
        let ended = finish(worker, copy, &mut LaneMask(1), &mut cursors);
        worker.copies.bound -= 1;
        ended
    })
}

/// Takes a copy of a lane's packet to the table of a `ct`, and to its end. It goes its own way, by the caches: nothing that it meets
/// concerns the lane's packet, unless it has an action set, a table on a device may let it wait, or a controller has sent it.
pub(super) fn copy_to_table(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    (table, entering): (u8, &Steps),
) -> Result<(), RunError> {
    if worker.calls.copy_holds_state(lane) || worker.lookup.pipeline.defers() || worker.egress.in_packet_out {
        return copy(worker, burst, lane, entering, false).map(|_| ());
    }
    with_copy(worker, burst, lane, (Return::default(), false), |worker, copy| {
        enter(&mut copy.keys[0], table);
        let bound = std::mem::take(&mut worker.copies.bound);
        let mut cursors = DONE;
        let ended = classify(worker, copy, LaneMask(1), &mut cursors)
            .and_then(|mut lanes| finish(worker, copy, &mut lanes, &mut cursors));
        worker.copies.bound = bound;
        ended
    })
    .map(|_| ())
}

/// Makes a copy of a lane's packet that goes on at `here`, perhaps in a bucket, and takes it to its end. Returns whether it has met an
/// `exit` that is the lane's, too.
fn with_copy(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    (here, is_bucket): (Return, bool),
    take: impl FnOnce(&mut Worker, &mut Burst) -> Result<(), RunError>,
) -> Result<bool, RunError> {
    if worker.copies.depth == COPIES_MAX || !worker.calls.call(lane, Shown::default()) {
        worker.egress.drops.call_depth += 1;
        return Ok(false);
    }
    let mut copy = worker.copies.spare.pop().unwrap_or_else(|| Burst::new(1));
    copy.copy_lane(burst, lane);
    // Its fate is not counted: the packet that it was made of is.
    copy.sent = LaneMask(1);
    burst.sent.0 |= 1 << lane;
    let calls = worker.calls.of_copy(lane, here, is_bucket);
    let outer = std::mem::replace(&mut worker.calls, calls);
    worker.copies.depth += 1;
    let ended = take(worker, &mut copy);
    worker.copies.depth -= 1;
    let mut inner = std::mem::replace(&mut worker.calls, outer);
    worker.copies.spare.push(copy);
    ended?;
    Ok(worker.calls.take_over(lane, &mut inner))
}

impl Worker {
    /// Returns whether the packet under way is a copy of another one, which may wait for it.
    #[inline]
    pub(super) fn is_at_copy(&self) -> bool {
        self.copies.bound > 0 || self.calls.leave_set()
    }

    /// Returns whether the packet under way takes no cached path: none knows that `exit` and the action set of a copy concern the packet
    /// that it was made of, or that a packet is a controller's.
    #[inline]
    pub(super) fn takes_no_path(&self) -> bool {
        self.is_at_copy() || self.egress.in_packet_out
    }

    /// Executes actions on a packet that a controller sends, as if it had come in through a port, which need not exist.
    /// Where that port refuses what it receives, the packet is dropped, as in Open vSwitch.
    ///
    /// # Errors
    /// A port that fails for good while sending.
    pub fn packet_out(&mut self, in_port: PortNo, bytes: &[u8], actions: &[Action]) -> Result<(), RunError> {
        let ports = &self.egress.ports;
        if ports.place(in_port).is_some_and(|place| ports.slots()[place].flags.refuses(bytes)) {
            return Ok(());
        }
        let steps = compile_packet_out(actions);
        let mut burst = self.burst_of_controller(in_port, bytes, 0);
        self.follow();
        mirror_received(self, &burst, 0)?;
        self.egress.in_packet_out = true;
        let ended = run_alone(self, &mut burst, steps);
        self.egress.in_packet_out = false;
        ended?;
        Ok(self.egress.flush()?)
    }
}
