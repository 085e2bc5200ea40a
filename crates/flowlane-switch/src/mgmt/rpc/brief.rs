//! The counters of a switch at a bounded cost: without long lists of rules, whatever the number of rules.

use std::collections::BTreeMap;
use std::time::Duration;

use flowlane::rule::flow_syntax::print_actions;
use serde::Serialize;

use super::RpcError;
use super::server::{ControlServer, SwitchReport};
use crate::control::FlowStatistics;
use crate::mgmt::report::{Report, RuleReport, WorkerReport};

/// The counters of rules are read where there are at most this number of rules: a millisecond's work.
const RULES_READ_MAX: usize = 10_000;
/// Maximum number of rules of each table that are listed, those with most packets first.
const RULES_LISTED: usize = 10;

/// The counters of a switch, and of its workers.
#[derive(Clone, Debug)]
pub(crate) struct Brief {
    /// With few rules of each table.
    pub(crate) report: SwitchReport,
    pub(crate) workers: Vec<WorkerReport>,
    /// By table.
    pub(crate) rules: BTreeMap<u8, RuleCounts>,
    pub(crate) connections: ConnectionCounts,
}

/// The rules of a table together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct RuleCounts {
    pub(crate) rules: usize,
    /// The packets that they have matched; none where there are more rules than are read.
    pub(crate) matched_packets: Option<u64>,
}

/// The tracked connections together.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct ConnectionCounts {
    pub(crate) total: u64,
    pub(crate) limit: u64,
    pub(crate) expected: u64,
    pub(crate) by_zone: BTreeMap<u16, u32>,
}

impl ControlServer {
    /// Returns the time since the switch started.
    pub(crate) fn uptime(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Returns the counters of the switch, each worker's all of one moment.
    ///
    /// # Errors
    /// Where the switch does not run.
    pub(crate) fn brief(&self) -> Result<Brief, RpcError> {
        let (mut reports, mut workers) = (Vec::new(), Vec::new());
        for place in 0..self.workers_count() {
            let both = move |worker: &mut _| (Report::brief(worker), WorkerReport::of(place, worker));
            let (report, worker) = self.call_worker(place, both)?;
            reports.push(report);
            workers.push(worker);
        }
        let mut report = Report::sum(reports).expect("there is a worker");
        let rules = self.count_rules(&mut report);
        let (connections, _) = self.tracked()?;
        let connections = ConnectionCounts {
            total: connections.len() as u64,
            limit: connections.connections_max() as u64,
            expected: connections.expected_connections() as u64,
            by_zone: connections.by_zone(),
        };
        let (seconds, controllers) = (self.uptime().as_secs_f64(), self.controllers().report());
        let report = SwitchReport { report, seconds, controllers };
        Ok(Brief { report, workers, rules, connections })
    }

    /// Counts the rules of each table, and adds those with most packets to a report.
    fn count_rules(&self, report: &mut Report) -> BTreeMap<u8, RuleCounts> {
        let control = self.control();
        let ruleset = control.ruleset();
        let tables = ruleset.tables().map(|(number, table)| (number, table.len()));
        let mut counts: BTreeMap<u8, RuleCounts> =
            tables.map(|(number, rules)| (number, RuleCounts { rules, matched_packets: None })).collect();
        if counts.values().map(|table| table.rules).sum::<usize>() > RULES_READ_MAX {
            return counts;
        }
        let mut flows = control.statistics(|_, _| true);
        drop(control);
        counts.values_mut().for_each(|table| table.matched_packets = Some(0));
        for flow in &flows {
            let matched = counts.get_mut(&flow.rule.table).and_then(|table| table.matched_packets.as_mut());
            matched.into_iter().for_each(|packets| *packets += flow.count.packets);
        }
        // Stable: rules of equal counters stay in their order.
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.count.packets));
        for flow in flows {
            let table = report.tables.iter_mut().find(|table| table.number == flow.rule.table);
            if let Some(table) = table.filter(|table| table.rules.len() < RULES_LISTED) {
                table.rules.push(rule_report(&flow));
            }
        }
        counts
    }
}

fn rule_report(flow: &FlowStatistics) -> RuleReport {
    RuleReport {
        priority: flow.rule.priority.0,
        matches: flow.rule.matches.to_string(),
        actions: print_actions(&flow.rule.actions),
        packets: flow.count.packets,
        bytes: flow.count.bytes,
    }
}
