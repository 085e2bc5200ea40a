//! `flowlane switch routes`.

use flowlane_switch::mgmt::rpc::{RouteChangeReport, RoutesReport};
use flowlane_switch::mgmt::setup::RouteReport;
use serde_json::{Value, json};

use super::client::{Call, print_reply, table_number};
use crate::arguments::{RunningSwitch, SwitchVerb};
use crate::failure::Failure;
use crate::output::{self, count};

/// Lists, adds and removes routes.
pub(super) fn run(verb: &SwitchVerb) -> Result<(), Failure> {
    let SwitchVerb::Routes { running, address, table, add, delete, limit } = verb else {
        unreachable!("another command")
    };
    let table = table.as_deref().map(|table| table_number(running, table)).transpose()?;
    if add.is_empty() && delete.is_empty() {
        return list(running, &json!({ "table": table, "address": address, "limit": limit }));
    }
    change(running, &json!({ "table": table, "add": add.join("\n"), "delete": delete }))
}

fn list(running: &RunningSwitch, wanted: &Value) -> Result<(), Failure> {
    let reply = Call::of(running).make("routes", wanted.clone())?;
    let has_address = !wanted["address"].is_null();
    print_reply(running, &reply, |report: RoutesReport| match report.routes.is_empty() && has_address {
        true => "there is no route\n".to_owned(),
        false => listed(&report),
    })
}

fn change(running: &RunningSwitch, change: &Value) -> Result<(), Failure> {
    let reply = Call::of(running).make("change_routes", change.clone())?;
    print_reply(running, &reply, |RouteChangeReport { added, removed }| {
        format!("{} routes added, {} removed\n", count(added as u64), count(removed as u64))
    })
}

fn listed(report: &RoutesReport) -> String {
    let row =
        |route: &RouteReport| vec![route.prefix.clone(), route.next_hop.clone(), route.origin.to_string()];
    let rows: Vec<Vec<String>> = report.routes.iter().map(row).collect();
    output::table("", &["prefix", "next hop", "from"], &rows)
        + &format!(
            "{} of {} routes of table {}\n",
            count(rows.len() as u64),
            count(report.total as u64),
            report.table
        )
}
