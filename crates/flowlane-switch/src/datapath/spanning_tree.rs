//! Ports in a spanning tree: which of them discard frames, and the way of their BPDUs to the thread of the tree.
//!
//! The states of ports are flags of theirs, which `normal`, rules and floods meet in the same tests as the settings of OpenFlow, so
//! no path depends on them. Control packets go on: BPDUs, BFD and LACP. A port that learns drops what it receives, too, but its
//! sources are learned.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowlane::packet::batch::LaneMask;
use flowlane::rule::action::PortNo;

use super::Worker;
use super::egress::{Egress, NS};
use super::inlet::Inlet;
use crate::packet::Burst;
use crate::ruleset::PortFlags;
use crate::state::rstp::PortState;

/// The ports of a bridge that take part in its spanning tree; others forward.
#[derive(Clone, Debug, Default)]
pub struct TreeView(pub BTreeMap<PortNo, (PortState, Arc<Inlet>)>);

/// Drops the lanes of a port that discards, behind the inlets of control packets. A port that learns learns their sources.
#[cold]
pub(super) fn discard(worker: &mut Worker, burst: &Burst, live: LaneMask) {
    for lane in live.lanes() {
        let slot = &mut worker.egress.ports.slots_mut()[burst.port];
        slot.counters.rx_dropped += 1;
        if slot.flags.has_any(PortFlags::LEARNS) {
            worker.egress.learn_source(burst.port, burst.frames[lane].bytes(), burst.times_ns[lane]);
        }
    }
}

impl Egress {
    /// Learns the source of a frame that a port drops, since its spanning tree does not let it forward yet.
    fn learn_source(&mut self, place: usize, frame: &[u8], now_ns: u64) {
        let Some(in_vlan) = self.ports.in_vlan_of(place, frame) else { return };
        let Some(source) = frame.get(6..12) else { return };
        let mac = source.iter().fold(0, |mac, byte| mac << 8 | u64::from(*byte));
        let number = self.ports.slots()[place].number;
        self.macs.learn(mac, in_vlan.vid, number, (now_ns / NS) as u32);
    }
}

impl Worker {
    /// Lets ports take part in a spanning tree in these states; `None`: there is none.
    pub fn set_tree(&mut self, tree: Option<Arc<TreeView>>) {
        self.egress.ports.set_tree(tree);
    }
}
