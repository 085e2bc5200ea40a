//! `flowlane switch zones`.

use std::collections::BTreeMap;

use flowlane_switch::mgmt::rpc::{ZoneReport, ZonesReport};
use flowlane_switch::state::conntrack::Timeout;
use serde_json::{Value, json};

use super::client::{Call, print_reply};
use crate::arguments::SwitchVerb;
use crate::failure::Failure;
use crate::output::{self, count};

/// Lists zones of connections, or changes their settings.
pub(super) fn run(verb: &SwitchVerb) -> Result<(), Failure> {
    let SwitchVerb::Zones { running, zone, all, connections_max, timeout, remove } = verb else {
        unreachable!("another command")
    };
    if connections_max.is_none() && timeout.is_empty() && !remove {
        let reply = Call::of(running).make("zones", json!({ "zone": zone }))?;
        return print_reply(running, &reply, |report: ZonesReport| listed(&report));
    }
    if zone.is_none() && !all {
        let help = "give --zone N, or --all for zones without settings of their own";
        return Err(Failure::input_help("the zone is missing".to_owned(), help));
    }
    let timeouts = timeout.iter().map(|text| seconds(text)).collect::<Result<BTreeMap<_, _>, _>>()?;
    let change =
        json!({ "zone": zone, "connections_max": connections_max, "timeouts": timeouts, "remove": remove });
    let reply: Value = Call::of(running).make("change_zone", change)?;
    print_reply(running, &reply, |(): ()| "settings changed\n".to_owned())
}

/// Reads a timeout: its name and seconds.
fn seconds(text: &str) -> Result<(&str, u32), Failure> {
    let names = Timeout::ALL.map(Timeout::name);
    let read = text.split_once('=').and_then(|(name, seconds)| Some((name, seconds.parse().ok()?)));
    read.filter(|(name, _)| names.contains(name)).ok_or_else(|| {
        let help = format!("write NAME=SECONDS; there are {}", names.join(", "));
        Failure::input_help(format!("`{text}` is no timeout"), help)
    })
}

fn listed(report: &ZonesReport) -> String {
    let limit = |limit: Option<u32>| limit.map_or(String::new(), |limit| count(limit.into()));
    let timeouts = |timeouts: &BTreeMap<Timeout, u32>| -> String {
        let each = timeouts.iter().map(|(timeout, seconds)| format!("{}={seconds}", timeout.name()));
        each.collect::<Vec<_>>().join(" ")
    };
    let row = |zone: &ZoneReport| {
        let number = zone.zone.to_string();
        vec![number, count(zone.connections), limit(zone.connections_max), timeouts(&zone.timeouts)]
    };
    let total = count(report.zones.iter().map(|zone| zone.connections).sum());
    let mut rows: Vec<Vec<String>> = report.zones.iter().map(row).collect();
    rows.push(vec![
        "others".to_owned(),
        String::new(),
        limit(report.connections_max),
        timeouts(&report.timeouts),
    ]);
    output::table("", &["zone", "connections", "at most", "timeouts in seconds"], &rows)
        + &format!("{} zones, {total} connections\n", count(report.zones.len() as u64))
}
