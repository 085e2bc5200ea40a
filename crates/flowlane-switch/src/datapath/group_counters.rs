//! Packets and bytes of groups and their buckets, as a worker counts them.

use std::collections::BTreeMap;

use crate::ruleset::{CompiledGroup, FlowStats};

/// Counters of groups, by number.
#[derive(Clone, Debug, Default)]
pub struct GroupCounters(BTreeMap<u32, GroupCount>);

/// The counters of a group.
#[derive(Clone, Debug, Default)]
pub struct GroupCount {
    pub all: FlowStats,
    /// By the buckets' numbers.
    pub buckets: BTreeMap<u32, FlowStats>,
}

impl GroupCounters {
    /// Counts a packet of a group, which goes to the buckets at these places.
    pub(super) fn count(&mut self, id: u32, chosen: &[usize], group: &CompiledGroup, bytes: u64) {
        let counts = self.0.entry(id).or_default();
        counts.all += FlowStats { packets: 1, bytes };
        for &at in chosen {
            *counts.buckets.entry(group.group.buckets[at].id).or_default() += FlowStats { packets: 1, bytes };
        }
    }

    /// The counters of a group; of one that no packet has met, zeros.
    pub fn get(&self, id: u32) -> GroupCount {
        self.0.get(&id).cloned().unwrap_or_default()
    }

    /// Adds those of another worker.
    pub fn add(&mut self, other: &Self) {
        for (id, theirs) in &other.0 {
            let ours = self.0.entry(*id).or_default();
            ours.all += theirs.all;
            for (bucket, stats) in &theirs.buckets {
                *ours.buckets.entry(*bucket).or_default() += *stats;
            }
        }
    }

    /// Forgets a group's counters.
    pub fn forget(&mut self, id: u32) {
        self.0.remove(&id);
    }
}
