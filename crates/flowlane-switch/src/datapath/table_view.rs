//! A table of rules as it is looked up by single keys and reported: its rules with the counters of all workers.

use std::sync::Arc;

use flowlane::classify::{AsyncEngine, Hit, RuleEngine};
use flowlane::packet::key::{FlowKey, FlowMask};
use flowlane::rule::{Rule, RuleId};

use crate::ruleset::{FlowStats, Miss, SharedCounters, Table, sums};

/// A rule with its counters.
#[derive(Clone, Debug)]
pub struct RuleEntry<R = Rule> {
    pub rule: R,
    /// Packets that matched it.
    pub packets: u64,
    pub bytes: u64,
}

/// A table, with the counters of all workers.
pub struct TableView<'a> {
    /// For reports; empty where none was given.
    pub name: &'a str,
    /// The treatment of packets that match nothing.
    pub miss: Miss,
    /// Packets that matched nothing.
    pub missed: u64,
    pub(super) table: &'a Table,
    pub(super) device: Option<&'a dyn AsyncEngine>,
    /// The counters of all workers.
    pub(super) tallies: Vec<&'a Arc<SharedCounters>>,
}

impl<'a> TableView<'a> {
    /// Returns the rules with their counters, in order of insertion.
    pub fn rules(&self) -> impl Iterator<Item = (RuleId, RuleEntry<&'a Rule>)> + use<'a> {
        let rules = self.table.in_order();
        let counts = sums(self.tallies.iter().copied(), rules.iter().map(|(id, _)| *id));
        rules.into_iter().zip(counts).map(|((id, entry), count)| {
            let FlowStats { packets, bytes } = count.since(entry.base);
            (id, RuleEntry { rule: &entry.rule, packets, bytes })
        })
    }

    /// Returns the table's engine.
    ///
    /// # Panics
    /// If the table is offloaded and has no device.
    pub fn classifier(&self) -> &'a dyn RuleEngine {
        self.table.engine_or(self.device)
    }

    /// Finds the winning rule for a key, and adds the bits that the answer depends on.
    pub fn lookup_wildcards(&self, key: &FlowKey, looked_at: &mut FlowMask) -> Option<Hit> {
        self.table.lookup_wildcards(self.device, key, looked_at)
    }

    /// Returns the table's size in bytes, without the rules themselves.
    pub fn table_bytes(&self) -> usize {
        self.classifier().table_bytes() + self.table.conjunction_bytes()
    }

    /// Returns the engine, if the table is offloaded.
    pub fn deferred(&self) -> Option<&'a dyn AsyncEngine> {
        self.device
    }
}
