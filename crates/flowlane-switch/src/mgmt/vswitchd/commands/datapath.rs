//! The commands about the datapath: `dpctl/*` and `dpif/*`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use flowlane::rule::Match;
use flowlane::rule::flow_syntax::print_actions;
use flowlane_ovsdb::Uuid;

use super::{NO_BRIDGE, find, lines};
use crate::datapath::Worker;
use crate::mgmt::report::Report;
use crate::mgmt::rpc::{ConnectionParams, RpcError};
use crate::mgmt::vswitchd::bridge::Bridge;
use crate::mgmt::vswitchd::features;
use crate::mgmt::vswitchd::figures::{lookups, report};
use crate::mgmt::vswitchd::numbers::DatapathPorts;
use crate::ruleset::{LaneStep, Step};

/// Connections that are listed of a bridge: the daemon does nothing else meanwhile.
const LISTED_MAX: usize = 100_000;
/// Megaflows that are listed of a worker, which forwards nothing meanwhile.
const FLOWS_LISTED_MAX: usize = 10_000;
/// The name of the only datapath. Each bridge has its own; clients of Open vSwitch expect one.
const NAME: &str = "netdev@ovs-netdev";

/// The arguments of a command about the datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Options {
    zone: Option<u16>,
    has_statistics: bool,
}

/// Executes a command about the datapath, if it is one.
pub(super) fn execute(
    command: &str,
    arguments: &[&str],
    bridges: &BTreeMap<Uuid, Bridge>,
    ports: &DatapathPorts,
) -> Option<Result<String, String>> {
    let with_options = |run: &dyn Fn(Options) -> Result<String, String>| options(arguments).and_then(run);
    Some(match (command, arguments) {
        ("dpif/show", _) => Ok(show_bridges(bridges, ports)),
        ("dpif/show-dp-features", [name]) => find(bridges, name, NO_BRIDGE).map(|_| lines(features::lines())),
        ("dpif/dump-dps", _) => {
            let mut names: Vec<&str> = bridges.values().map(Bridge::name).collect();
            names.sort_unstable();
            Ok(lines(names.into_iter().map(|name| format!("netdev@{name}"))))
        }
        ("dpctl/dump-dps", _) => Ok(if bridges.is_empty() { String::new() } else { format!("{NAME}\n") }),
        ("dpctl/show", _) => with_options(&|_| Ok(show(bridges, ports))),
        ("dpctl/dump-conntrack", _) => with_options(&|options| connections(bridges, options)),
        ("dpctl/flush-conntrack", _) => with_options(&|options| flush(bridges, options.zone)),
        ("dpctl/ct-stats-show", _) => with_options(&|options| count(bridges, options.zone)),
        ("dpctl/ct-get-nconns", _) => with_options(&|_| {
            let of = |bridge: &Bridge| bridge.served().tracked().map(|(connections, _)| connections.len());
            let all = bridges.values().map(of).sum::<Result<usize, _>>().map_err(text)?;
            Ok(format!("{all}\n"))
        }),
        ("dpctl/ct-get-maxconns", _) => with_options(&|_| {
            let of = |bridge: &Bridge| {
                bridge.served().tracked().map(|(connections, _)| connections.connections_max())
            };
            let all = bridges.values().map(of).sum::<Result<usize, _>>().map_err(text)?;
            Ok(format!("{all}\n"))
        }),
        ("dpctl/ct-get-limits", _) => limits(bridges, arguments),
        ("dpctl/dump-flows", _) => with_options(&|_| flows(&bridges.values().collect::<Vec<_>>())),
        ("dpif/dump-flows", arguments) => {
            let name = arguments.iter().find(|argument| !argument.starts_with('-')).copied();
            find(bridges, name.unwrap_or_default(), NO_BRIDGE).and_then(|bridge| flows(&[bridge]))
        }
        _ => return None,
    })
}

fn text(error: RpcError) -> String {
    error.message
}

/// Reads options, names of the datapath, of which there is one, and a zone.
fn options(arguments: &[&str]) -> Result<Options, String> {
    let mut options = Options::default();
    for argument in arguments {
        match (*argument, argument.strip_prefix("zone=").map(str::parse)) {
            (_, Some(Ok(zone))) => options.zone = Some(zone),
            ("-s" | "--statistics", _) => options.has_statistics = true,
            ("-m" | "--more" | "--names" | "--no-names" | NAME | "ovs-netdev", _) => {}
            _ => return Err("ovs-vswitchd: datapath not found (Invalid argument)".to_owned()),
        }
    }
    Ok(options)
}

/// Lists the ports of each bridge, by their names.
fn show_bridges(bridges: &BTreeMap<Uuid, Bridge>, ports: &DatapathPorts) -> String {
    if bridges.is_empty() {
        return String::new();
    }
    let reports: Vec<Report> = bridges.values().filter_map(report).collect();
    let (hit, missed) = lookups(&reports);
    let mut out = format!("{NAME}: hit:{hit} missed:{missed}\n");
    let mut by_name: Vec<&Bridge> = bridges.values().collect();
    by_name.sort_by_key(|bridge| bridge.name());
    for bridge in by_name {
        _ = writeln!(out, "  {}:", bridge.name());
        let mut opened = bridge.opened();
        opened.sort_by_key(|(_, spec)| &spec.name);
        for (number, spec) in opened {
            let options: Vec<String> =
                spec.shown_options().iter().map(|(key, value)| format!("{key}={value}")).collect();
            let options =
                if options.is_empty() { String::new() } else { format!(": {}", options.join(", ")) };
            let of_datapath =
                ports.number(spec).map_or_else(|| "none".to_owned(), |number| number.to_string());
            _ = writeln!(
                out,
                "    {} {number}/{of_datapath}: ({}{options})",
                spec.name,
                spec.datapath_type()
            );
        }
    }
    out
}

/// Lists the ports of the datapath.
fn show(bridges: &BTreeMap<Uuid, Bridge>, ports: &DatapathPorts) -> String {
    if bridges.is_empty() {
        return String::new();
    }
    let reports: Vec<Report> = bridges.values().filter_map(report).collect();
    let (hit, missed) = lookups(&reports);
    let flows: usize = reports.iter().map(|report| report.caches.megaflows).sum();
    let mut out = format!("{NAME}:\n  lookups: hit:{hit} missed:{missed} lost:0\n  flows: {flows}\n");
    for (number, port) in ports.iter() {
        let kind = if port.kind.is_empty() { String::new() } else { format!(" ({})", port.kind) };
        _ = writeln!(out, "  port {number}: {}{kind}", port.name);
    }
    out
}

fn connections(bridges: &BTreeMap<Uuid, Bridge>, options: Options) -> Result<String, String> {
    let mut out = String::new();
    for bridge in bridges.values() {
        let wanted = ConnectionParams::of_zone(options.zone);
        let found = bridge.served().list_connections(&wanted, options.has_statistics, LISTED_MAX);
        let found = found.map_err(text)?;
        let is_cut = found.len() == LISTED_MAX;
        out += &lines(found);
        if is_cut {
            _ = writeln!(out, "{LISTED_MAX} connections of {} are listed: ask for a zone", bridge.name());
        }
    }
    Ok(out)
}

fn flush(bridges: &BTreeMap<Uuid, Bridge>, zone: Option<u16>) -> Result<String, String> {
    for bridge in bridges.values() {
        bridge.served().flush_connections(&ConnectionParams::of_zone(zone)).map_err(text)?;
    }
    Ok(String::new())
}

/// Counts connections by their protocols.
fn count(bridges: &BTreeMap<Uuid, Bridge>, zone: Option<u16>) -> Result<String, String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for bridge in bridges.values() {
        for (protocol, count) in bridge.served().count_connections(zone).map_err(text)? {
            *counts.entry(protocol.to_uppercase()).or_default() += count;
        }
    }
    let mut all = vec!["Connections Stats:".to_owned()];
    all.push(format!("    Total: {}", counts.values().sum::<u64>()));
    all.extend(counts.iter().map(|(protocol, count)| format!("  {protocol}: {count}")));
    Ok(lines(all))
}

/// Lists the default limit of connections in zones, and the limits of those that are asked for.
fn limits(bridges: &BTreeMap<Uuid, Bridge>, arguments: &[&str]) -> Result<String, String> {
    let mut zones: Vec<u16> = Vec::new();
    for argument in arguments.iter().filter(|argument| ![NAME, "ovs-netdev"].contains(argument)) {
        let list =
            argument.strip_prefix("zone=").ok_or("ovs-vswitchd: datapath not found (Invalid argument)")?;
        let read = list.split(',').map(str::parse).collect::<Result<Vec<u16>, _>>();
        zones.extend(read.map_err(|_| format!("invalid zone {list}"))?);
    }
    let Some(bridge) = bridges.values().next() else { return Ok(String::new()) };
    let (connections, _) = bridge.served().tracked().map_err(text)?;
    let (settings, counts) = (connections.zones(), connections.by_zone());
    let mut all = vec![format!("default limit={}", settings.of_all().connections_max.unwrap_or(0))];
    all.extend(zones.iter().map(|zone| {
        let count = counts.get(zone).copied().unwrap_or(0);
        format!("zone={zone},limit={},count={count}", settings.connections_max(*zone).unwrap_or(0))
    }));
    Ok(lines(all))
}

/// Lists the megaflows of bridges.
fn flows(bridges: &[&Bridge]) -> Result<String, String> {
    let mut out = String::new();
    for bridge in bridges {
        let of_workers = bridge.served().call_workers(megaflows).map_err(text)?;
        out += &lines(of_workers.into_iter().flatten());
    }
    Ok(out)
}

/// The megaflows of a worker, in the form of Open vSwitch's, with matches and actions in the syntax of rule files.
fn megaflows(worker: &mut Worker) -> Vec<String> {
    let lookup = &worker.lookup;
    let line = |flow| {
        let (key, mask) = lookup.megaflows.matching(flow)?;
        let megaflow = lookup.megaflows.get(flow)?;
        let mut matches = Match::any();
        for info in flowlane::packet::Field::all() {
            let bits = mask.get(info.field);
            if bits != 0 {
                matches.set_masked(info.field, key.get(info.field), bits);
            }
        }
        let path = crate::datapath::PathId(megaflow.value);
        let actions: Vec<String> = lookup.paths.steps(path).iter().filter_map(action).collect();
        let actions = if actions.is_empty() { "drop".to_owned() } else { actions.join(",") };
        let used = match megaflow.packets {
            0 => "never".to_owned(),
            _ => format!("{:.3}s", worker.unused_s(megaflow.used)),
        };
        Some(format!(
            "recirc_id(0),{matches}, packets:{}, bytes:{}, used:{used}, actions:{actions}",
            megaflow.packets, megaflow.bytes
        ))
    };
    lookup.megaflows.flows().filter_map(line).take(FLOWS_LISTED_MAX).collect()
}

/// A step of a path, as an action; none for marks.
fn action(step: &Step) -> Option<String> {
    match step {
        Step::Do(action) => Some(print_actions(std::slice::from_ref(action))),
        Step::Controller { .. } => Some("userspace".to_owned()),
        Step::Enter { table, .. } | Step::Recirculate { table, .. } => Some(format!("recirc({table:#x})")),
        Step::Call { table, .. } => Some(format!("resubmit(,{table})")),
        Step::Lane { step, .. } => Some(lane_action(step)),
        Step::Matched { .. } | Step::Parse | Step::Push(_) => None,
    }
}

/// A step that concerns more than the packet's bytes, by the name of its action.
fn lane_action(step: &LaneStep) -> String {
    match step {
        LaneStep::Copy(steps) => {
            let actions: Vec<String> = steps.steps().iter().filter_map(action).collect();
            format!("clone({})", actions.join(","))
        }
        LaneStep::Group(group) => format!("group:{group}"),
        LaneStep::Track { .. } => "ct".to_owned(),
        LaneStep::Untrack => "ct_clear".to_owned(),
        LaneStep::Learn(_) => "learn".to_owned(),
        LaneStep::Pause(_) | LaneStep::Expire => "userspace".to_owned(),
        LaneStep::CheckPacketLarger { bytes, .. } => format!("check_pkt_len(size={bytes})"),
        LaneStep::Refuse | LaneStep::Exit => "drop".to_owned(),
        LaneStep::WriteActions(actions) => format!("write_actions({})", print_actions(actions)),
        LaneStep::ClearActions => "clear_actions".to_owned(),
        LaneStep::Push(_) | LaneStep::PushValue(_) => "push".to_owned(),
        LaneStep::Pop(_) => "pop".to_owned(),
        LaneStep::OutputField { .. } => "output(field)".to_owned(),
        LaneStep::Multipath(_) => "multipath".to_owned(),
        LaneStep::Bundle(_) => "bundle".to_owned(),
        LaneStep::FinTimeout(_) => "fin_timeout".to_owned(),
        LaneStep::Request(_) => "learn".to_owned(),
        LaneStep::Route(_) => "route".to_owned(),
        LaneStep::Leave { .. } => "recirc(rule)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_open_vswitch_reads_them() {
        let zone = |zone| Options { zone: Some(zone), ..Options::default() };
        assert_eq!(options(&["-m", "zone=7"]), Ok(zone(7)));
        assert_eq!(options(&["netdev@ovs-netdev"]), Ok(Options::default()));
        assert_eq!(options(&["-s"]), Ok(Options { zone: None, has_statistics: true }));
        for wrong in ["zone=x", "zone=65536", "system@other"] {
            assert_eq!(
                options(&[wrong]),
                Err("ovs-vswitchd: datapath not found (Invalid argument)".to_owned())
            );
        }
    }
}
