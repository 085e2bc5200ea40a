//! Looking up a batch: the definition. Subtable by subtable; lanes that are found leave.

use super::Tables;
use super::flow::FlowRef;
use crate::packet::batch::{LANES_MAX, LaneMask};
use crate::packet::key::FlowKey;

/// Fills `found` for the lanes of `left` that have a megaflow; returns the others, and the number of probes.
pub(super) fn lookup(
    tables: &mut Tables,
    keys: &[FlowKey],
    mut left: LaneMask,
    found: &mut [FlowRef],
) -> (LaneMask, u64) {
    let mut probes = 0;
    let mut hashes = [0; LANES_MAX];
    for &id in &tables.order {
        if left.is_empty() {
            break;
        }
        let subtable = &mut tables.subtables[id as usize];
        probes += left.len() as u64;
        let mut candidates = LaneMask(0);
        for lane in left.lanes() {
            hashes[lane] = subtable.hash(&keys[lane]);
            if subtable.filter.may_have(hashes[lane]) {
                subtable.prefetch(hashes[lane]);
                candidates.0 |= 1 << lane;
            }
        }
        for lane in candidates.lanes() {
            if let Some(index) = subtable.find(&tables.flows, &keys[lane], hashes[lane]) {
                found[lane] = FlowRef { index, serial: tables.flows[index as usize].serial };
                left.remove(lane);
                subtable.hits += 1;
            }
        }
    }
    (left, probes)
}
