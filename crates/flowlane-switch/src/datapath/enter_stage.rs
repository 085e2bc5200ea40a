//! Stateful stages of a burst's lanes: the workers that own the lanes' state, and the stages' verdicts.

use flowlane::packet::batch::LaneMask;

use super::egress::NS_PER_MS;
use super::execute::{Cursor, Cursors};
use super::handoff::ResumePoint;
use super::track::{HeldFragment, WaitsAt, go_on_alone};
use super::validate::RunError;
use super::worker::Worker;
use crate::packet::Burst;
use crate::ruleset::{Return, StepSummary};
use crate::stage::{AnyStage, Nat, StageCall, StageTable};
use crate::state::conntrack::Tuple;
use crate::state::conntrack::fragments::{Taken, piece_of_any_length, seen_whole};

/// Returns whether another worker may own the state of packets at a stage.
fn may_be_owned_elsewhere(worker: &Worker, burst: &Burst, table: u8) -> bool {
    // The worker that handed them over has checked.
    let is_sharded = |stage: &StageTable| stage.is_sharded();
    worker.links.is_some()
        && !burst.is_handed_over
        && worker.lookup.pipeline.stage(table).is_some_and(is_sharded)
}

/// Hands over the lanes whose state in a stage other workers own. Returns those lanes and the dropped ones.
fn hand_over(worker: &mut Worker, burst: &mut Burst, table: u8, lanes: LaneMask) -> LaneMask {
    let (Some(links), Some(stage)) = (&mut worker.links, worker.lookup.pipeline.stage_mut(table)) else {
        return LaneMask(0);
    };
    let owners = stage.owners(burst, lanes);
    for lane in owners.elsewhere.lanes() {
        // Call stacks cannot be handed over.
        if worker.calls.are_open(lane) {
            worker.calls.clear(lane);
            worker.egress.drops.call_depth += 1;
            continue;
        }
        let state = worker.calls.take_state(lane);
        links.hand(owners.worker[lane].into(), burst, lane, ResumePoint::Stage(table), state);
        worker.handed += 1;
    }
    owners.elsewhere
}

/// Returns the first of the lanes that have reached stages whose packet is a fragment at a translation: it is processed alone, when
/// those in front have ended.
#[inline]
pub(super) fn first_fragment(
    worker: &Worker,
    burst: &Burst,
    reached: LaneMask,
    cursors: &Cursors,
) -> Option<usize> {
    let is_fragment = |lane: &usize| burst.headers[*lane].fragment != 0;
    reached.lanes().filter(is_fragment).find(|&lane| translation(worker, &cursors[lane]).is_some())
}

/// Returns the translation that a lane has reached, and its number.
fn translation<'a>(worker: &'a Worker, cursor: &Cursor) -> Option<(u8, &'a Nat)> {
    let &Cursor::Stage(table) = cursor else { return None };
    Some((table, worker.lookup.pipeline.stage(table)?.as_nat()?))
}

/// Processes a fragment at a translation. Unless all of its datagram are known to be there, it waits for the others; when the last
/// comes, they go on, each by itself. Removes it from `lanes` if it waits or is refused.
#[cold]
pub(super) fn enter_fragment(
    worker: &mut Worker,
    burst: &mut Burst,
    lanes: &mut LaneMask,
    lane: usize,
    cursors: &mut Cursors,
) -> Result<(), RunError> {
    let Some((table, nat)) = translation(worker, &cursors[lane]) else { unreachable!("it has reached one") };
    let ((zone, datagrams_max), bytes) = (nat.fragments(), burst.frames[lane].bytes());
    let piece = match *worker.calls.datagram(lane) {
        None => piece_of_any_length(bytes, &burst.headers[lane], &burst.keys[lane], zone),
        Some(_) => None,
    };
    if let Some((datagram, piece)) = piece {
        let now_ms = burst.times_ns[lane] / NS_PER_MS;
        let held = HeldFragment::new(worker, burst, lane, (WaitsAt::Stage(table), Return::default()));
        let fragments = worker.egress.fragments.clone();
        let taken = {
            let mut fragments = fragments.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            fragments.take(datagram, piece, held, (now_ms, datagrams_max))
        };
        let pieces = match taken {
            Taken::Refused(held) => {
                held.take_back(worker, lane);
                enter(worker, burst, lanes, (table, LaneMask(1 << lane)), cursors);
                return Ok(());
            }
            Taken::Waits => Vec::new(),
            Taken::All(pieces) => pieces,
        };
        burst.sent.0 |= 1 << lane;
        lanes.remove(lane);
        let seen = seen_whole(pieces.iter().map(|waiting| (waiting.piece, waiting.held.bytes())), &datagram);
        for piece in pieces {
            let tracked = piece.held.tracked();
            go_on_alone(worker, piece.held, (&tracked, seen), None)?;
        }
        return Ok(());
    }
    enter(worker, burst, lanes, (table, LaneMask(1 << lane)), cursors);
    Ok(())
}

/// Processes, of the lanes that have reached stages, those at the first stage. Removes from `lanes` those that the stage refuses
/// or that are handed over.
pub(super) fn enter_stage(
    worker: &mut Worker,
    burst: &mut Burst,
    lanes: &mut LaneMask,
    reached: LaneMask,
    cursors: &mut Cursors,
) {
    let table_of = |lane: usize| match cursors[lane] {
        Cursor::Stage(table) => table,
        _ => unreachable!("it has reached a stage"),
    };
    let table = reached.lanes().map(table_of).min().expect("some have reached one");
    let these = reached.lanes().filter(|&lane| table_of(lane) == table);
    let mut these = these.fold(LaneMask(0), |these, lane| LaneMask(these.0 | 1 << lane));
    if may_be_owned_elsewhere(worker, burst, table) {
        let handed = hand_over(worker, burst, table, these);
        (lanes.0, these.0) = (lanes.0 & !handed.0, these.0 & !handed.0);
    }
    enter(worker, burst, lanes, (table, these), cursors);
}

/// Processes lanes at a stage. Removes those that it refuses.
fn enter(
    worker: &mut Worker,
    burst: &mut Burst,
    lanes: &mut LaneMask,
    (table, these): (u8, LaneMask),
    cursors: &mut Cursors,
) {
    let timer = worker.stages.start();
    let are_stages = worker.lookup.pipeline.ordered_stages();
    let stage = worker.lookup.pipeline.stage_mut(table).expect("a path leads to tables that are there");
    let mut call = StageCall::of(table, burst);
    let is_fragment = |lane: &usize| burst.headers[*lane].fragment != 0;
    let fragment = these.lanes().next().filter(is_fragment).filter(|_| stage.as_nat().is_some());
    if let Some(lane) = fragment {
        call.datagram = *worker.calls.datagram(lane);
    }
    let verdicts = stage.process(call, burst, these);
    if let (Some(lane), AnyStage::Nat(nat)) = (fragment, &mut stage.stage)
        && let (Some(tuple), Some(Some(seen))) = (nat.take_translated(), worker.calls.datagram(lane))
    {
        seen.tuple = Tuple { zone: seen.tuple.zone, ..tuple };
    }
    burst.is_handed_over = false;
    stage.cycles += worker.stages.start().since(timer);
    for lane in these.lanes() {
        let bytes = burst.frames[lane].len() as u64;
        let Some(steps) = stage.count(verdicts[lane], bytes) else {
            worker.egress.drops.stage_refused += 1;
            worker.calls.clear(lane);
            lanes.remove(lane);
            continue;
        };
        cursors[lane] = match steps.summary() {
            StepSummary::Enter(next) if are_stages.has(next) => Cursor::Stage(next),
            summary => Cursor::Verdict(table, verdicts[lane], summary),
        };
    }
}
