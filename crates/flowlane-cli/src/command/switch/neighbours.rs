//! `flowlane switch neighbours`.

use flowlane_switch::mgmt::rpc::{InterfaceReport, NeighbourReport, RouterReport};
use serde_json::Value;

use super::client::{Call, print_reply};
use crate::arguments::RunningSwitch;
use crate::failure::Failure;
use crate::output::{self, count};

/// Lists or forgets neighbours.
pub(super) fn run(running: &RunningSwitch, wanted: &Value, flush: bool) -> Result<(), Failure> {
    if flush {
        let reply = Call::of(running).make("flush_neighbours", wanted.clone())?;
        return print_reply(running, &reply, |gone: u64| format!("{} neighbours forgotten\n", count(gone)));
    }
    let reply = Call::of(running).make("neighbours", wanted.clone())?;
    print_reply(running, &reply, |report: RouterReport| listed(&report))
}

fn listed(report: &RouterReport) -> String {
    let port = |port: &InterfaceReport| {
        vec![port.port.clone(), port.mac.clone(), port.mtu.to_string(), port.addresses.join(", ")]
    };
    let neighbour = |neighbour: &NeighbourReport| {
        vec![
            neighbour.port.clone(),
            neighbour.address.to_string(),
            neighbour.mac.clone().unwrap_or_default(),
            neighbour.state.clone(),
            format!("{} s", count(neighbour.since_s)),
            if neighbour.waiting == 0 { String::new() } else { count(neighbour.waiting as u64) },
        ]
    };
    let ports: Vec<Vec<String>> = report.ports.iter().map(port).collect();
    let neighbours: Vec<Vec<String>> = report.neighbours.iter().map(neighbour).collect();
    let counters = serde_json::to_value(report.counters).unwrap_or_default();
    let counters = counters.as_object().into_iter().flatten().filter(|(_, value)| **value != 0);
    let counted: Vec<Vec<String>> = counters
        .map(|(name, value)| vec![name.replace('_', " "), count(value.as_u64().unwrap_or(0))])
        .collect();
    output::table("", &["port", "Ethernet address", "MTU", "addresses"], &ports)
        + &output::table(
            "",
            &["port", "neighbour", "Ethernet address", "state", "since", "waiting"],
            &neighbours,
        )
        + &output::table("", &["counter", "packets"], &counted)
}
