//! Finds where the lanes of a burst go on: caches first, or straight to the rule tables.

use flowlane::packet::batch::{LANES_MAX, LaneMask};

use super::execute::{Cursor, Cursors, enter_tables};
use super::offload;
use super::path::PathId;
use super::validate::RunError;
use super::worker::Worker;
use crate::packet::Burst;

/// Sets the cursors of lanes; returns the lanes that go on at once. Packets that have to wait for a table are parked.
///
/// # Errors
/// A difference between variants, where they are compared.
#[inline]
pub(super) fn classify(
    worker: &mut Worker,
    burst: &mut Burst,
    mut lanes: LaneMask,
    cursors: &mut Cursors,
) -> Result<LaneMask, RunError> {
    if lanes.is_empty() {
        return Ok(lanes);
    }
    let mut paths = [PathId(0); LANES_MAX];
    let left = worker.lookup.resolve(burst, lanes, &mut paths, &mut worker.stages);
    if let Some(difference) = worker.lookup.difference.take() {
        return Err(difference.into());
    }
    let mut known = LaneMask(lanes.0 & !left.0);
    if worker.lookup.pipeline.defers() {
        known = offload::park_all(worker, burst, lanes, left, &mut paths);
        lanes = known;
    }
    for lane in known.lanes() {
        cursors[lane] = Cursor::Path(paths[lane]);
    }
    if lanes != known {
        enter_tables(worker, burst, left, cursors);
    }
    Ok(lanes)
}
