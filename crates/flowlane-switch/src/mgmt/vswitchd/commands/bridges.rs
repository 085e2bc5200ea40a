//! The commands about bridges: their rules, sessions, and the ways of packets.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use flowlane_ovsdb::Uuid;

use super::{NO_BRIDGE, find, lines, one_or_all};
use crate::datapath::{Trace, TraceRule};
use crate::mgmt::rpc::FlowReport;
use crate::mgmt::vswitchd::bridge::Bridge;
use crate::mgmt::vswitchd::model::InterfaceSpec;
use crate::mgmt::vswitchd::numbers::DatapathPorts;
use crate::mgmt::vswitchd::qos;

/// The priority of rules that are given none, which is not printed.
const PRIORITY_DEFAULT: u32 = 32_768;
/// States of connections that a trace finds where it is given none: enough for any way through the tables.
const STATES_DEFAULT: usize = 64;

const NOT_SNOOPED: &str = "multicast snooping is disabled";
const FLUSHED: &str = "table successfully flushed\n";

/// Executes a command about bridges, if it is one.
pub(super) fn execute(
    command: &str,
    arguments: &[&str],
    bridges: &BTreeMap<Uuid, Bridge>,
    ports: &DatapathPorts,
) -> Option<Result<String, String>> {
    Some(match (command, arguments) {
        ("ofproto/list", _) => {
            let mut names: Vec<&str> = bridges.values().map(Bridge::name).collect();
            names.sort_unstable();
            Ok(lines(names.into_iter().map(str::to_owned)))
        }
        ("bfd/show", interface) => sessions(bridges, interface.first().copied()),
        // No port speaks CFM: there is nothing to show.
        ("cfm/show", []) => Ok(String::new()),
        ("cfm/show", _) => Err("no such CFM object".to_owned()),
        ("stp/show" | "rstp/show" | "stp/tcn" | "rstp/tcn", names) => tree(bridges, command, names.first()),
        ("mdb/show", [name]) => find(bridges, name, NO_BRIDGE)
            .and_then(|bridge| bridge.describe_multicast().map(lines).ok_or_else(|| NOT_SNOOPED.to_owned())),
        ("mdb/flush", [name]) => find(bridges, name, NO_BRIDGE).and_then(|bridge| {
            let is_done = bridge.flush_multicast();
            is_done.then(|| FLUSHED.to_owned()).ok_or_else(|| NOT_SNOOPED.to_owned())
        }),
        ("mdb/flush", _) => {
            bridges.values().for_each(|bridge| _ = bridge.flush_multicast());
            Ok(FLUSHED.to_owned())
        }
        ("qos/show" | "qos/show-types", [name]) => {
            let opened = bridges
                .values()
                .flat_map(|bridge| bridge.opened().into_iter().map(move |port| (bridge, port)));
            let mut opened = opened.filter(|(_, (_, spec))| spec.name == *name);
            let answer = |(bridge, (number, spec)): (&Bridge, (u32, &InterfaceSpec))| match command {
                "qos/show" => spec.limits.show(name, number, bridge.served()),
                _ => qos::types(spec),
            };
            opened.next().map(answer).ok_or_else(|| "no such interface".to_owned())
        }
        ("bridge/dump-flows", arguments) => {
            let has_offloads = arguments.contains(&"--offload-stats");
            let name = arguments.iter().find(|argument| !argument.starts_with("--")).copied();
            find(bridges, name.unwrap_or_default(), "Unknown bridge")
                .and_then(|bridge| flows(bridge, has_offloads))
        }
        ("ofproto/trace", [name, flow, options @ ..]) => {
            find(bridges, name, &format!("{name}: unknown bridge"))
                .and_then(|bridge| trace(bridge, flow, options, ports))
        }
        _ => return None,
    })
}

/// Describes the spanning trees of bridges, or of one, or lets them notice a change of the topology.
fn tree(bridges: &BTreeMap<Uuid, Bridge>, command: &str, name: Option<&&str>) -> Result<String, String> {
    let is_rapid = command.starts_with("rstp");
    let problem = if is_rapid { "No such RSTP object" } else { "no such stp object" };
    let wanted: Vec<&Bridge> = one_or_all(bridges, name).map_err(|_| problem.to_owned())?;
    if command.ends_with("tcn") {
        let is_done = wanted.iter().filter(|bridge| bridge.tree.change_topology(is_rapid)).count() > 0;
        return if is_done || name.is_none() { Ok("OK\n".to_owned()) } else { Err(problem.to_owned()) };
    }
    let described: Vec<String> =
        wanted.iter().filter_map(|bridge| bridge.tree.describe(bridge.name(), is_rapid)).collect();
    Ok(described.concat())
}

/// The sessions of BFD: all, or that of an interface.
fn sessions(bridges: &BTreeMap<Uuid, Bridge>, interface: Option<&str>) -> Result<String, String> {
    let Some(interface) = interface else {
        return Ok(bridges.values().map(|bridge| bridge.bfd().describe()).collect());
    };
    let mut found = bridges.values().filter_map(|bridge| bridge.bfd().describe_one(interface));
    found.next().ok_or_else(|| "no such bfd object".to_owned())
}

/// An action of a rule, with the names of ports that are none as Open vSwitch writes them.
fn action_of(action: &str) -> String {
    match action {
        "normal" | "flood" | "all" | "in_port" | "local" => action.to_uppercase(),
        "controller" => "CONTROLLER:65535".to_owned(),
        other => other.to_owned(),
    }
}

/// A list of actions: those outside of parentheses are separated by commas.
fn actions_of(actions: &str) -> String {
    let (mut out, mut depth, mut begin) = (Vec::new(), 0_usize, 0);
    for (at, c) in actions.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                out.push(action_of(&actions[begin..at]));
                begin = at + 1;
            }
            _ => {}
        }
    }
    out.push(action_of(&actions[begin..]));
    out.join(",")
}

fn flows(bridge: &Bridge, has_offloads: bool) -> Result<String, String> {
    let flows = bridge.served().flows(None, "").map_err(|error| error.message)?;
    let line = |flow: FlowReport| {
        let table = if flow.table == 0 { String::new() } else { format!("table_id={}, ", flow.table) };
        let offloads = if has_offloads { "n_offload_packets=0, n_offload_bytes=0, " } else { "" };
        let priority = match flow.priority {
            PRIORITY_DEFAULT => String::new(),
            priority => format!("priority={priority},"),
        };
        let matches = if flow.matches.is_empty() { String::new() } else { format!("{},", flow.matches) };
        format!(
            "{table}duration={}s, n_packets={}, n_bytes={}, {offloads}{priority}{matches}actions={}",
            flow.age_s as u64,
            flow.packets,
            flow.bytes,
            actions_of(&flow.actions)
        )
    };
    Ok(lines(flows.into_iter().map(line)))
}

/// The arguments of a trace behind the flow.
#[derive(Debug, Default, PartialEq, Eq)]
struct TraceOptions {
    /// States that connections have, one after the other.
    states: Vec<String>,
    /// A packet in hexadecimal, instead of one that is made of the flow.
    packet: String,
}

/// Reads `--ct-next STATE`, `--ct-next=STATE`, `-generate` and a packet.
fn trace_options(options: &[&str]) -> Result<TraceOptions, String> {
    let (mut read, mut options) = (TraceOptions::default(), options.iter());
    while let Some(option) = options.next() {
        match option.strip_prefix("--ct-next") {
            Some("") => {
                let state = options.next().ok_or("Missing argument for option --ct-next")?;
                read.states.push((*state).to_owned());
            }
            Some(state) if state.starts_with('=') => read.states.push(state[1..].to_owned()),
            // A packet is made of the flow in any case.
            _ if matches!(*option, "-generate" | "--generate") => {}
            _ if !option.starts_with('-') && read.packet.is_empty() => {
                // As Open vSwitch prints packets, with spaces.
                read.packet = option.split_whitespace().collect();
            }
            _ => return Err(format!("{option}: unknown option")),
        }
    }
    // Without more states, connections are new, as in Open vSwitch.
    read.states.resize(read.states.len().max(STATES_DEFAULT), "trk,new".to_owned());
    Ok(read)
}

/// The port that a flow says its packet came in through, by number or name.
fn in_port(bridge: &Bridge, flow: &str) -> Option<u32> {
    let port = flow.split(',').find_map(|part| part.trim().strip_prefix("in_port="))?;
    let port = port.trim_matches('"');
    let opened = bridge.opened();
    let by_name = opened.iter().find(|(_, spec)| spec.name == port).map(|(number, _)| *number);
    by_name.or_else(|| port.parse().ok())
}

/// Traces a packet, in the words of Open vSwitch where it has them.
fn trace(bridge: &Bridge, flow: &str, options: &[&str], ports: &DatapathPorts) -> Result<String, String> {
    let TraceOptions { states, packet } = trace_options(options)?;
    let port = if packet.is_empty() { None } else { in_port(bridge, flow) };
    let flow = if packet.is_empty() { flow } else { "" };
    let trace = bridge.served().trace(port, &packet, flow, &states).map_err(|error| error.message)?;
    let title = format!("bridge(\"{}\")", bridge.name());
    let mut out = format!("Flow: {}\n\n{title}\n{}\n", flow_of(&trace, flow), "-".repeat(title.len()));
    for step in trace.steps.iter().skip(1) {
        match &step.visit {
            Some(visit) => match &visit.rule {
                Some(rule) => describe_rule(&mut out, visit.table, rule),
                None => _ = writeln!(out, "{:>2}. No match.\n    drop", visit.table),
            },
            None => {
                let why = if step.why.is_empty() { String::new() } else { format!(" ({})", step.why) };
                _ = writeln!(out, "     -> {}: {}{why}", step.place, step.what);
            }
        }
    }
    let sent = datapath_actions(bridge, &trace, ports);
    _ = writeln!(out, "\nDatapath actions: {sent}");
    Ok(out)
}

/// The packet's fields, which are the reason of a trace's first step.
fn flow_of<'a>(trace: &'a Trace, flow: &'a str) -> &'a str {
    trace.steps.first().map_or(flow, |step| &step.why)
}

fn describe_rule(out: &mut String, table: u8, rule: &TraceRule) {
    let matches = if rule.matches.is_empty() { String::new() } else { format!("{}, ", rule.matches) };
    let cookie = if rule.cookie == 0 { String::new() } else { format!(", cookie {:#x}", rule.cookie) };
    _ = writeln!(out, "{table:>2}. {matches}priority {}{cookie}", rule.priority);
    let is_dropped = rule.actions.is_empty();
    let actions = rule.actions.iter().map(String::as_str).chain(is_dropped.then_some("drop"));
    actions.for_each(|action| *out += &format!("    {}\n", action_of(action)));
}

/// The ports that the packets of a trace leave through, by their numbers in the datapath; patch ports have names only.
fn datapath_actions(bridge: &Bridge, trace: &Trace, ports: &DatapathPorts) -> String {
    let opened = bridge.opened();
    let name = |number: u32| {
        let (_, spec) = opened.iter().find(|(opened, _)| *opened == number)?;
        Some(ports.number(spec).map_or_else(|| spec.name.clone(), |number| number.to_string()))
    };
    let sent: Vec<String> = trace
        .sent
        .iter()
        .map(|sent| sent.port.and_then(name).unwrap_or_else(|| "userspace".to_owned()))
        .collect();
    if sent.is_empty() { "drop".to_owned() } else { sent.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_traces_are_read_as_open_vswitch_reads_them() {
        let read = trace_options(&["--ct-next", "trk,est", "--ct-next=trk,inv", "-generate"]).unwrap();
        assert_eq!(read.states[..3], ["trk,est", "trk,inv", "trk,new"]);
        assert_eq!((read.states.len(), &*read.packet), (STATES_DEFAULT, ""));
        assert_eq!(trace_options(&["0200 0000"]).unwrap().packet, "02000000");
        for wrong in [&["--ct-next"][..], &["-l7"], &["00", "01"]] {
            assert!(trace_options(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn actions_have_the_names_of_open_vswitch() {
        assert_eq!(actions_of("normal"), "NORMAL");
        let actions = "mod_vlan_vid:5,output:3,clone(normal,in_port),controller";
        assert_eq!(actions_of(actions), "mod_vlan_vid:5,output:3,clone(normal,in_port),CONTROLLER:65535");
    }
}
