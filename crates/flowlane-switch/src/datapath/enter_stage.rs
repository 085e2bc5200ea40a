//! Stateful stages of a burst's lanes: the workers that own the lanes' state, and the stages' verdicts.

use flowlane::packet::batch::LaneMask;

use super::execute::{Cursor, Cursors};
use super::handoff::ResumePoint;
use super::worker::Worker;
use crate::packet::{Burst, Handover};
use crate::ruleset::StepSummary;
use crate::stage::{StageCall, StageTable};

/// Returns whether another worker may own the state of packets at a stage.
fn may_be_owned_elsewhere(worker: &Worker, burst: &Burst, table: u8) -> bool {
    // The worker that handed them over has checked; a stage whose work two workers share is checked by both.
    let stage = worker.lookup.pipeline.stage(table);
    worker.links.is_some() && (burst.handover == Handover::No || stage.is_some_and(StageTable::has_halves))
}

/// Hands over the lanes whose state in a stage other workers own. Returns those lanes and the dropped ones.
fn hand_over(worker: &mut Worker, burst: &mut Burst, table: u8, lanes: LaneMask) -> LaneMask {
    let (Some(links), Some(stage)) = (&mut worker.links, worker.lookup.pipeline.stage_mut(table)) else {
        return LaneMask(0);
    };
    let owners = stage.owners(burst, lanes);
    for lane in owners.elsewhere.lanes() {
        if owners.rejected.0 >> lane & 1 == 1 {
            worker.egress.drops.stage_refused += 1;
            stage.packets += 1;
            continue;
        }
        // Call stacks cannot be handed over.
        if worker.calls.are_open(lane) {
            worker.calls.clear(lane);
            worker.egress.drops.call_depth += 1;
            continue;
        }
        let is_half = owners.split.0 >> lane & 1 == 1;
        let resume_point = if is_half { ResumePoint::SplitStage(table) } else { ResumePoint::Stage(table) };
        let state = worker.calls.take_state(lane);
        links.hand(owners.worker[lane].into(), burst, lane, resume_point, state);
        worker.handed += 1;
    }
    owners.elsewhere
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
    let timer = worker.stages.start();
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
    let are_stages = worker.lookup.pipeline.ordered_stages();
    let stage = worker.lookup.pipeline.stage_mut(table).expect("a path leads to tables that are there");
    let verdicts = stage.process(StageCall::of(table, burst), burst, these);
    burst.handover = Handover::No;
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
