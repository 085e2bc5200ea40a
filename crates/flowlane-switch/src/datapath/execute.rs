//! Executes the steps of a burst's lanes, through all tables, as if each packet had come alone.
//!
//! Steps without side effects (edits, parsing, lookups, routes) run batched across lanes: [`run_batched`]. Steps with externally
//! visible effects (output, meters, learning) run in packet order: [`run_ordered`]. Stateful stages see a burst's packets in
//! order, too, each stage all lanes that have reached it at once: since packets only move to later tables, every lane that will
//! reach the first of the stages where lanes wait is already there. Only a packet with a visible effect *before* it moves on
//! makes the lanes behind it wait.
//!
//! So the result does not depend on how packets are grouped into bursts, and no packet overtakes another.

use flowlane::packet::batch::{LANES_MAX, LaneMask};
use flowlane::packet::key::FlowKey;
use flowlane::rule::RuleId;

use super::calls::Calls;
use super::egress::{Changed, Egress, Packet};
use super::enter_stage::{enter_fragment, enter_stage, first_fragment};
use super::lane_steps::run_lane_step;
use super::lookup::Lookup;
use super::path::PathId;
use super::stages::Stage;
use super::track_burst::track_lanes;
use super::validate::RunError;
use super::walk::{Outcome, ROUNDS_MAX, run};
use super::worker::Worker;
use crate::packet::recirculate::{entry, is_bare, rounds, set_rounds};
use crate::packet::shown::Own;
use crate::packet::{Burst, Shown};
use crate::ruleset::{Return, SideEffects, StepSummary, Steps};
use crate::stage::StageCall;

/// The position of a lane: the steps that it takes next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cursor {
    /// A path.
    Path(PathId),
    /// The table and its rule, or `None` for the steps of a table miss.
    Rule(u8, Option<RuleId>, StepSummary),
    /// A table that does not exist.
    Nowhere,
    /// The actions of a verdict: the stage, and the verdict.
    Verdict(u8, u32, StepSummary),
    /// The steps after a call that has returned.
    Resumed(StepSummary),
    /// A stateful stage that the lane waits for.
    Stage(u8),
    /// The end: its TTL has expired.
    Expired,
}

/// The cursors of a burst's lanes.
pub(super) type Cursors = [Cursor; LANES_MAX];

/// Cursors of lanes that have not been looked up.
pub(super) const DONE: Cursors = [Cursor::Expired; LANES_MAX];

/// The result of running a lane's steps.
pub(super) enum StepResult {
    /// The packet has ended.
    End,
    /// The packet's TTL has expired.
    Expired,
    /// A call has returned.
    Resumed,
    /// The packet enters a table without a cache lookup.
    Table(u8),
    /// The packet has been parsed again, for the caches.
    Again,
}

/// Lanes in flight, by their next step.
#[derive(Clone, Copy, Default)]
pub(super) struct Frontier {
    /// Those whose next step is known: it is in one of the other masks, or it ends the packet.
    known: LaneMask,
    /// Waiting for a stateful stage.
    stages: LaneMask,
    /// Before steps with a visible effect that do not end the packet.
    held: LaneMask,
}

impl Frontier {
    /// Forgets the next steps of lanes that have gone on.
    #[inline]
    fn moved(&mut self, lanes: LaneMask) {
        let others = !lanes.0;
        self.known.0 &= others;
        self.stages.0 &= others;
        self.held.0 &= others;
    }
}

/// Returns a lane's steps and the first to run. (`cursor` is a reference: copying it would stall on store forwarding.)
#[inline]
fn steps<'a>(lookup: &'a Lookup, calls: &'a Calls, lane: usize, cursor: &Cursor) -> (&'a Steps, usize) {
    let steps = match *cursor {
        Cursor::Path(path) => lookup.paths.steps_without_marks(path),
        Cursor::Rule(table, rule, _) => {
            lookup.pipeline.ruleset().table(table).expect("a lane has reached it").steps(rule)
        }
        Cursor::Nowhere => &lookup.nothing,
        Cursor::Verdict(table, verdict, _) => {
            lookup.pipeline.stage(table).expect("a lane has reached it").steps(verdict)
        }
        Cursor::Resumed(_) => {
            let here = calls.current(lane);
            return (&here.steps, here.at);
        }
        Cursor::Stage(_) | Cursor::Expired => unreachable!("these are no steps"),
    };
    (steps, 0)
}

/// Returns a summary of a lane's next steps; `None` if it waits for a stateful stage.
#[inline]
pub(super) fn summary(lookup: &Lookup, cursor: &Cursor) -> Option<StepSummary> {
    match *cursor {
        Cursor::Path(path) => Some(lookup.paths.get(path).summary),
        Cursor::Rule(.., summary) | Cursor::Verdict(.., summary) | Cursor::Resumed(summary) => Some(summary),
        Cursor::Nowhere => Some(StepSummary::default()),
        Cursor::Expired => Some(StepSummary::Several(SideEffects::Terminal)),
        Cursor::Stage(_) => None,
    }
}

/// Returns whether a lane enters a table without a cache lookup: from a rule table, tables-first, or behind the caches.
#[inline]
fn enters(lookup: &Lookup, cursor: &Cursor, table: u8) -> bool {
    lookup.tables_first
        || matches!(cursor, Cursor::Rule(..) | Cursor::Resumed(_))
        || lookup.pipeline.is_post_cache(table)
}

/// Counts a packet that has completed a path.
#[inline]
pub(super) fn count(lookup: &mut Lookup, cursor: &Cursor, bytes: u64) {
    if let Cursor::Path(path) = *cursor {
        lookup.paths.count(path, bytes);
    }
}

/// Executes lanes from their cursors until all have ended or some must be looked up in the caches again. Removes those that ended
/// from `lanes`, and returns those to look up.
#[inline]
pub(super) fn execute(
    worker: &mut Worker,
    burst: &mut Burst,
    lanes: &mut LaneMask,
    cursors: &mut Cursors,
    frontier: &mut Frontier,
) -> Result<LaneMask, RunError> {
    forward(worker, burst, lanes, cursors)?;
    while !lanes.is_empty() {
        let again = run_batched(worker, burst, lanes, cursors, frontier)?;
        if !again.is_empty() {
            return Ok(again);
        }
        forward(worker, burst, lanes, cursors)?;
        let tracked = track_lanes(worker, burst, *lanes, cursors);
        if !tracked.is_empty() {
            frontier.moved(tracked);
            return Ok(tracked);
        }
        // Only lanes before the first held one: after its visible effect that one may reach any stage.
        let held = frontier.held.0 & lanes.0;
        let mut first_held = LaneMask(held & held.wrapping_neg());
        let mut free = LaneMask(lanes.0 & first_held.0.wrapping_sub(1));
        let reached = LaneMask(frontier.stages.0 & lanes.0);
        if !reached.is_empty() && worker.lookup.pipeline.ruleset().goes_back() {
            // Any packet may still come to any stage: they go there one by one.
            let first = lanes.0 & lanes.0.wrapping_neg();
            (first_held.0, free.0) = (first_held.0 & first, free.0 & first);
        }
        if let Some(lane) = first_fragment(worker, burst, reached, cursors) {
            let before = LaneMask(lanes.0 & ((1 << lane) - 1));
            if before.is_empty() {
                enter_fragment(worker, burst, lanes, lane, cursors)?;
                frontier.moved(LaneMask(1 << lane));
                continue;
            }
            (first_held.0, free.0) = (first_held.0 & before.0, free.0 & before.0);
        }
        let stages = LaneMask(reached.0 & free.0);
        if !stages.is_empty() {
            enter_stage(worker, burst, lanes, stages, cursors);
            frontier.moved(stages);
            continue;
        }
        for lane in LaneMask(free.0 | first_held.0).lanes() {
            frontier.moved(LaneMask(1 << lane));
            match run_ordered(worker, burst, lane, cursors)? {
                StepResult::End => lanes.remove(lane),
                StepResult::Again => return Ok(LaneMask(1 << lane)),
                _ => {}
            }
        }
    }
    Ok(LaneMask(0))
}

/// Sends or drops the first packets of the burst, up to the first that needs more than that.
#[inline]
fn forward(
    worker: &mut Worker,
    burst: &Burst,
    lanes: &mut LaneMask,
    cursors: &Cursors,
) -> Result<(), RunError> {
    // A lane's connection, values and counter end with it.
    let in_calls = worker.calls.active();
    if !burst.sources.is_empty() {
        return Ok(());
    }
    for lane in lanes.lanes() {
        if in_calls.0 >> lane & 1 == 1 {
            break;
        }
        let (frame, key) = (&burst.frames[lane], &burst.keys[lane]);
        match summary(&worker.lookup, &cursors[lane]) {
            Some(StepSummary::Output(to)) => worker.egress.send_to(to, burst.port, frame, key)?,
            Some(StepSummary::Nothing) => {
                worker.egress.drops.by_rule += u64::from(burst.sent.0 >> lane & 1 == 0);
            }
            _ => break,
        }
        count(&mut worker.lookup, &cursors[lane], frame.counted.into());
        lanes.remove(lane);
    }
    Ok(())
}

/// Runs a lane's next steps, which have visible effects, in packet order.
#[inline]
fn run_ordered(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    cursors: &mut Cursors,
) -> Result<StepResult, RunError> {
    let result = match cursors[lane] {
        Cursor::Expired => StepResult::Expired,
        cursor => run_steps(worker, burst, lane, &cursor)?,
    };
    match result {
        StepResult::Expired => {
            worker.egress.expire(&burst.frames[lane], &burst.keys[lane], burst.times_ns[lane])?;
            burst.sent.0 |= 1 << lane;
            // As in Open vSwitch, the rule ends, and what has called its table goes on.
            let moved = worker.calls.has_moved(lane);
            if !worker.calls.are_open(lane) || !resume(worker, burst, lane, moved) {
                return Ok(StepResult::End);
            }
            cursors[lane] = Cursor::Resumed(worker.calls.summary(lane));
            return Ok(StepResult::Resumed);
        }
        StepResult::Resumed => cursors[lane] = Cursor::Resumed(worker.calls.summary(lane)),
        StepResult::Table(table) => enter_table(worker, burst, table, LaneMask(1 << lane), cursors),
        StepResult::Again | StepResult::End => {}
    }
    Ok(result)
}

/// Runs the steps without visible effects of all lanes together until none is left. Removes those that ended from `lanes`, notes the
/// next steps of the others, and returns those that are recirculated, which go no further here.
#[inline]
fn run_batched(
    worker: &mut Worker,
    burst: &mut Burst,
    lanes: &mut LaneMask,
    cursors: &mut Cursors,
    frontier: &mut Frontier,
) -> Result<LaneMask, RunError> {
    let mut again = LaneMask(0);
    let mut moved = LaneMask(lanes.0 & !frontier.known.0);
    while !moved.is_empty() {
        let mut silent = LaneMask(0);
        for lane in moved.lanes() {
            match summary(&worker.lookup, &cursors[lane]).map(StepSummary::seen) {
                Some(SideEffects::Terminal) if worker.calls.are_open(lane) => frontier.held.0 |= 1 << lane,
                Some(SideEffects::Terminal) => {}
                Some(SideEffects::None) => silent.0 |= 1 << lane,
                Some(SideEffects::ThenContinues) => frontier.held.0 |= 1 << lane,
                None => frontier.stages.0 |= 1 << lane,
            }
        }
        frontier.known.0 |= moved.0 & !silent.0;
        if silent.is_empty() {
            break;
        }
        let left = step_batched(worker, burst, silent, cursors, &mut again)?;
        lanes.0 &= !(silent.0 & !left.0);
        moved = LaneMask(left.0 & !again.0);
    }
    Ok(again)
}

/// Runs the next steps of lanes, which have no visible effects; returns the lanes that have not ended, and adds those that are
/// recirculated to `again`.
fn step_batched(
    worker: &mut Worker,
    burst: &mut Burst,
    lanes: LaneMask,
    cursors: &mut Cursors,
    again: &mut LaneMask,
) -> Result<LaneMask, RunError> {
    let (mut left, mut entering) = (lanes, LaneMask(0));
    let mut tables = [0; LANES_MAX];
    for lane in lanes.lanes() {
        let result = match summary(&worker.lookup, &cursors[lane]) {
            Some(StepSummary::Enter(table))
                if enters(&worker.lookup, &cursors[lane], table) && !worker.calls.is_translated(lane) =>
            {
                count(&mut worker.lookup, &cursors[lane], burst.frames[lane].counted.into());
                StepResult::Table(table)
            }
            _ => run_steps(worker, burst, lane, &cursors[lane])?,
        };
        match result {
            StepResult::End => left.remove(lane),
            StepResult::Expired => cursors[lane] = Cursor::Expired,
            StepResult::Resumed => cursors[lane] = Cursor::Resumed(worker.calls.summary(lane)),
            StepResult::Again => again.0 |= 1 << lane,
            StepResult::Table(table) => {
                entering.0 |= 1 << lane;
                tables[lane] = table;
            }
        }
    }
    enter_all(worker, burst, &tables, entering, cursors);
    Ok(left)
}

/// Runs a packet along steps to their end or to a table. Adds the calls that it opens, of which most packets have none.
#[inline]
fn run_to_table<'a>(
    steps: &'a Steps,
    mut from: usize,
    packet: &mut Packet<'_>,
    egress: &mut Egress,
    opened: &mut Option<Vec<Return>>,
) -> Result<Outcome<'a>, RunError> {
    loop {
        // The only call for packets in bursts, so that it is inlined here.
        let outcome = run(steps.steps(), from, packet, egress)?;
        match outcome {
            Outcome::Push { call, resume } => {
                opened.get_or_insert_default().push(call.clone());
                from = resume;
            }
            // A call in the last place is a jump.
            Outcome::Call { resume, .. } if resume < steps.steps().len() => {
                opened.get_or_insert_default().push(Return::to(steps.clone(), resume, rounds(packet.key)));
                return Ok(outcome);
            }
            _ => return Ok(outcome),
        }
    }
}

/// Ends a lane whose steps have stopped. A lane whose TTL has expired may go on behind a call.
#[inline]
fn stopped(
    worker: &mut Worker,
    lane: usize,
    (cursor, at, bytes): (&Cursor, usize, u64),
    expired: bool,
    moved: bool,
) -> StepResult {
    if let Cursor::Path(path) = *cursor {
        worker.lookup.credit_until(path, at, bytes);
    }
    if expired {
        worker.calls.note_moved(lane, moved);
        return StepResult::Expired;
    }
    worker.calls.clear(lane);
    StepResult::End
}

/// Counts a round of a packet that goes back. Returns whether it may.
#[cold]
fn goes_round(key: &mut FlowKey) -> bool {
    let rounds = rounds(key);
    set_rounds(key, (rounds + 1).min(ROUNDS_MAX));
    rounds < ROUNDS_MAX
}

/// Ends a lane before a table that it does not reach.
#[cold]
fn dropped(worker: &mut Worker, lane: usize, cursor: &Cursor, bytes: u64) -> StepResult {
    count(&mut worker.lookup, cursor, bytes);
    worker.calls.clear(lane);
    StepResult::End
}

/// Opens calls of a lane. Returns whether it goes on: with too many, it is dropped and counted.
#[inline]
pub(super) fn open_calls(worker: &mut Worker, lane: usize, opened: Option<Vec<Return>>) -> bool {
    let fits = opened.is_none_or(|opened| worker.calls.open(lane, opened));
    worker.egress.drops.call_depth += u64::from(!fits);
    fits
}

/// Resumes a lane behind the innermost call. Returns whether there is one.
#[cold]
pub(super) fn resume(worker: &mut Worker, burst: &mut Burst, lane: usize, moved: bool) -> bool {
    let resumes = worker.calls.resume(lane, moved);
    if resumes {
        set_rounds(&mut burst.keys[lane], worker.calls.current(lane).rounds);
    }
    resumes
}

/// Ends a lane at the end of its steps, or resumes it behind a call.
#[inline]
fn done(worker: &mut Worker, burst: &mut Burst, lane: usize, cursor: &Cursor, moved: bool) -> StepResult {
    count(&mut worker.lookup, cursor, burst.frames[lane].counted.into());
    if worker.calls.are_open(lane) && resume(worker, burst, lane, moved) {
        return StepResult::Resumed;
    }
    worker.egress.drops.by_rule += u64::from(burst.sent.0 >> lane & 1 == 0);
    StepResult::End
}

/// Runs a lane's steps.
#[inline]
fn run_steps(
    worker: &mut Worker,
    burst: &mut Burst,
    lane: usize,
    cursor: &Cursor,
) -> Result<StepResult, RunError> {
    let (steps, from) = steps(&worker.lookup, &worker.calls, lane, cursor);
    let mut packet = Packet {
        source: burst.source(lane),
        frame: &mut burst.frames[lane],
        headers: &mut burst.headers[lane],
        key: &mut burst.keys[lane],
        port: burst.port,
        now_ns: burst.times_ns[lane],
        sent: burst.sent.0 >> lane & 1 == 1,
        moved: worker.calls.has_moved(lane),
        translated: worker.calls.is_translated(lane),
        changed: Changed::Nothing,
    };
    let bytes = packet.frame.counted.into();
    // An option: dropping an empty list would cost a call.
    let mut opened = None;
    let outcome = run_to_table(steps, from, &mut packet, &mut worker.egress, &mut opened)?;
    burst.sent.0 |= u64::from(packet.sent) << lane;
    if let Some(source) = packet.source {
        burst.sources.insert(lane, source);
    }
    let (table, carry, parses) = match outcome {
        Outcome::Stopped { at } | Outcome::Expired { at } => {
            let (expired, moved) = (matches!(outcome, Outcome::Expired { .. }), packet.moved);
            worker.calls.note_change(lane, packet.changed);
            return Ok(stopped(worker, lane, (cursor, at, bytes), expired, moved));
        }
        Outcome::Done => {
            let moved = packet.moved;
            worker.calls.note_change(lane, packet.changed);
            return Ok(done(worker, burst, lane, cursor, moved));
        }
        Outcome::Call { table, shown, back, again, .. } => {
            if !worker.calls.call(lane, shown) || back && !goes_round(packet.key) {
                worker.egress.drops.call_depth += 1;
                return Ok(dropped(worker, lane, cursor, bytes));
            }
            (table, &[][..], again || !enters(&worker.lookup, cursor, table))
        }
        Outcome::Lane { step, again, resume } => {
            let here = (Return::to(steps.clone(), resume, rounds(packet.key)), packet.moved);
            let step = step.clone();
            worker.calls.note_change(lane, packet.changed);
            count(&mut worker.lookup, cursor, bytes);
            return run_lane_step(worker, burst, lane, (&step, again), here, opened);
        }
        Outcome::Enter { table, carry } => (table, carry, !enters(&worker.lookup, cursor, table)),
        Outcome::Again { table, carry } => (table, carry, true),
        Outcome::Push { .. } => unreachable!("taken above"),
    };
    let is_behind = worker.lookup.pipeline.is_post_cache(table);
    let Some(parses) = packet.enter(&mut worker.egress, (table, is_behind), carry, parses) else {
        return Ok(dropped(worker, lane, cursor, bytes));
    };
    worker.calls.headers_are_in_place(lane);
    worker.calls.note_change(lane, packet.changed);
    count(&mut worker.lookup, cursor, bytes);
    if !open_calls(worker, lane, opened) {
        return Ok(StepResult::End);
    }
    // A cached path does not contain what a caller does next with metadata: packets inside calls use the tables.
    let caches = parses && !worker.calls.hold_state(lane) && !worker.takes_no_path();
    Ok(if caches { StepResult::Again } else { StepResult::Table(table) })
}

/// Enters the tables with the lanes that missed all caches.
pub(super) fn enter_tables(worker: &mut Worker, burst: &mut Burst, lanes: LaneMask, cursors: &mut Cursors) {
    let mut tables = [0; LANES_MAX];
    lanes.lanes().for_each(|lane| tables[lane] = entry(&burst.keys[lane]));
    enter_all(worker, burst, &tables, lanes, cursors);
}

/// Enters a table with each lane, all lanes of one table together.
#[inline]
fn enter_all(
    worker: &mut Worker,
    burst: &mut Burst,
    tables: &[u8; LANES_MAX],
    mut lanes: LaneMask,
    cursors: &mut Cursors,
) {
    while let Some(first) = lanes.lanes().next() {
        let same = lanes.lanes().filter(|&lane| tables[lane] == tables[first]);
        let these = same.fold(LaneMask(0), |these, lane| LaneMask(these.0 | 1 << lane));
        enter_table(worker, burst, tables[first], these, cursors);
        lanes.0 &= !these.0;
    }
}

/// Enters a table: finds rules or next hops, or makes lanes wait for a stage.
fn enter_table(worker: &mut Worker, burst: &mut Burst, number: u8, lanes: LaneMask, cursors: &mut Cursors) {
    // Tables behind the caches see the packet's own fields.
    let shown = take_shown(&mut worker.calls, lanes);
    let lanes = that_come(burst, &shown, lanes, cursors);
    let pipeline = &mut worker.lookup.pipeline;
    if pipeline.ordered_stages().has(number) {
        lanes.lanes().for_each(|lane| cursors[lane] = Cursor::Stage(number));
    } else if let Some(stage) = pipeline.stage_mut(number) {
        let verdicts = stage.process(StageCall::of(number, burst), burst, lanes);
        for lane in lanes.lanes() {
            let steps = stage.count(verdicts[lane], burst.frames[lane].len() as u64);
            let summary = steps.map_or_else(StepSummary::default, Steps::summary);
            cursors[lane] = Cursor::Verdict(number, verdicts[lane], summary);
        }
    } else if let Some((table, counters)) = pipeline.entered(number) {
        let timer = worker.stages.start();
        let mut hits = [None; LANES_MAX];
        let own = show(burst, &shown);
        pipeline.find(number, &burst.keys, lanes, &mut hits);
        if worker.egress.has_bare {
            let bare = lanes.lanes().filter(|&lane| is_bare(&burst.keys[lane]));
            bare.for_each(|lane| hits[lane] = table.lookup_of_type(&burst.keys[lane], None));
        }
        own.into_iter().for_each(|(lane, own)| own.restore(&mut burst.keys[lane]));
        for lane in lanes.lanes() {
            let rule = hits[lane].map(|hit| hit.rule);
            counters.count(rule, 1, burst.frames[lane].counted.into());
            cursors[lane] = Cursor::Rule(number, rule, table.summary(rule));
        }
        worker.stages.stop(Stage::Tables, lanes.len() as u64, timer);
    } else {
        lanes.lanes().for_each(|lane| cursors[lane] = Cursor::Nowhere);
    }
}

/// Returns the fields that the table sees which some lanes enter, where a `resubmit` says others than the packet's.
#[inline]
fn take_shown(calls: &mut Calls, lanes: LaneMask) -> Vec<(usize, Shown)> {
    let used = LaneMask(lanes.0 & calls.lanes_used().0);
    let shown = used.lanes().map(|lane| (lane, calls.take_shown(lane)));
    shown.filter(|(_, shown)| !shown.is_nothing()).collect()
}

/// Returns the lanes that come to a table; others go past it.
#[inline]
fn that_come(
    burst: &Burst,
    shown: &[(usize, Shown)],
    mut lanes: LaneMask,
    cursors: &mut Cursors,
) -> LaneMask {
    for (lane, shown) in shown {
        if !shown.comes(|field| burst.keys[*lane].get(field)) {
            cursors[*lane] = Cursor::Nowhere;
            lanes.remove(*lane);
        }
    }
    lanes
}

/// Writes the fields that a table sees into the keys of lanes. Returns those that they had.
#[inline]
fn show(burst: &mut Burst, shown: &[(usize, Shown)]) -> Vec<(usize, Own)> {
    shown.iter().map(|(lane, shown)| (*lane, shown.show(&mut burst.keys[*lane]))).collect()
}
