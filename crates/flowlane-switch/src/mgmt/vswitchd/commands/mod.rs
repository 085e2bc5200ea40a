//! The commands of `ovs-appctl` (ovs-vswitchd(8), ovs-dpctl(8)), with the answers that Open vSwitch gives.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use flowlane_ovsdb::Uuid;

use super::bridge::Bridge;
use crate::mgmt::rpc::ConnectionParams;

/// The commands, with their arguments and the numbers of these.
const COMMANDS: [(&str, &str, [usize; 2]); 16] = [
    ("bfd/show", "[interface]", [0, 1]),
    ("bridge/dump-flows", "[--offload-stats] bridge", [1, 2]),
    ("dpctl/dump-conntrack", "[-m] [-s] [dp] [zone=zone]", [0, 4]),
    ("dpctl/dump-dps", "", [0, 0]),
    ("dpctl/flush-conntrack", "[dp] [zone=zone]", [0, 2]),
    ("dpctl/show", "[-s] [dp]", [0, 2]),
    ("dpif/show", "", [0, 0]),
    ("dpif/show-dp-features", "bridge", [1, 1]),
    ("exit", "[--cleanup]", [0, 1]),
    ("fdb/flush", "[bridge]", [0, 1]),
    ("fdb/show", "bridge", [1, 1]),
    ("list-commands", "", [0, 0]),
    ("ofproto/list", "", [0, 0]),
    ("ofproto/trace", "bridge br_flow [--ct-next flags]...", [2, 66]),
    ("version", "", [0, 0]),
    ("vlog/reopen", "", [0, 0]),
];

/// Connections that are listed of a bridge: the daemon does nothing else meanwhile.
const LISTED_MAX: usize = 100_000;

/// The abilities of the datapath, by which clients choose actions.
const FEATURES: [(&str, &str); 12] = [
    ("Masked set action", "Yes"),
    ("Truncate action", "Yes"),
    ("Clone action", "Yes"),
    ("Check pkt length action", "Yes"),
    ("Max VLAN headers", "2"),
    ("Recirc", "Yes"),
    ("CT state", "Yes"),
    ("CT zone", "Yes"),
    ("CT mark", "Yes"),
    ("CT label", "Yes"),
    ("CT state NAT", "Yes"),
    ("CT orig tuple", "Yes"),
];

/// The process, as far as commands concern it.
pub(super) struct Process<'a> {
    /// It is to end.
    pub(super) is_over: bool,
    /// Nothing of the bridges is to stay.
    pub(super) is_cleanup: bool,
    /// Opens the log again.
    pub(super) reopen_log: &'a dyn Fn() -> Result<(), String>,
}

/// Executes a command.
///
/// # Errors
/// The answer where it fails, or is none.
pub(super) fn execute(
    command: &str,
    arguments: &[&str],
    bridges: &BTreeMap<Uuid, Bridge>,
    process: &mut Process<'_>,
) -> Result<String, String> {
    let known = COMMANDS.iter().find(|(name, ..)| *name == command);
    let Some((_, usage, [least, most])) = known else {
        return Err(format!("\"{command}\" is not a valid command"));
    };
    if !(*least..=*most).contains(&arguments.len()) {
        return Err(format!("\"{command}\" command takes the arguments: {usage}"));
    }
    let find =
        |name: &str, problem: String| bridges.values().find(|bridge| bridge.name() == name).ok_or(problem);
    let named = |name: &str| find(name, "no such bridge".to_owned());
    match (command, arguments) {
        ("version", _) => Ok(format!("ovs-vswitchd (Flowlane) {}\n", env!("CARGO_PKG_VERSION"))),
        ("exit", arguments) => {
            process.is_over = true;
            process.is_cleanup |= arguments.contains(&"--cleanup");
            Ok(String::new())
        }
        ("vlog/reopen", _) => (process.reopen_log)().map(|()| String::new()),
        ("list-commands", _) => {
            let mut all = vec!["The available commands are:".to_owned()];
            let line =
                |(name, usage, _): &(&str, &str, _)| format!("  {name:<23} {usage}").trim_end().to_owned();
            all.extend(COMMANDS.iter().map(line));
            Ok(lines(all))
        }
        ("ofproto/list", _) => Ok(lines(bridges.values().map(|bridge| bridge.name().to_owned()))),
        ("dpif/show", _) => Ok(bridges.values().map(Bridge::describe).collect()),
        ("dpif/show-dp-features", [name]) => {
            named(name)?;
            Ok(lines(FEATURES.iter().map(|(feature, value)| format!("{feature}: {value}"))))
        }
        // Each bridge has its own; clients of Open vSwitch expect one.
        ("dpctl/dump-dps", _) => {
            Ok(if bridges.is_empty() { String::new() } else { "netdev@ovs-netdev\n".to_owned() })
        }
        ("dpctl/show", _) => Ok(datapath(bridges)),
        ("dpctl/dump-conntrack", arguments) => connections(bridges, zone(arguments)?),
        ("dpctl/flush-conntrack", arguments) => flush(bridges, zone(arguments)?),
        ("bfd/show", interface) => sessions(bridges, interface.first().copied()),
        ("fdb/show", [name]) => addresses(named(name)?),
        ("fdb/flush", names) => {
            let wanted = names.iter().map(|name| named(name)).collect::<Result<Vec<_>, _>>()?;
            for bridge in bridges
                .values()
                .filter(|bridge| names.is_empty() || wanted.iter().any(|one| one.name() == bridge.name()))
            {
                bridge.served().flush_fdb().map_err(|error| error.message)?;
            }
            Ok("table successfully flushed\n".to_owned())
        }
        ("bridge/dump-flows", arguments) => {
            let name =
                arguments.iter().find(|argument| !argument.starts_with("--")).copied().unwrap_or_default();
            flows(named(name)?)
        }
        ("ofproto/trace", [name, flow, options @ ..]) => {
            let bridge = find(name, format!("{name}: unknown bridge"))?;
            trace(bridge, flow, &ct_next(options)?)
        }
        _ => unreachable!("each command that is known is executed"),
    }
}

fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

/// The sessions of BFD: all, or that of an interface.
fn sessions(bridges: &BTreeMap<Uuid, Bridge>, interface: Option<&str>) -> Result<String, String> {
    let Some(interface) = interface else {
        return Ok(bridges.values().map(|bridge| bridge.bfd().describe()).collect());
    };
    let mut found = bridges.values().filter_map(|bridge| bridge.bfd().describe_one(interface));
    found.next().ok_or_else(|| "no such bfd object".to_owned())
}

/// The zone that arguments ask for; options and names of datapaths, of which there is one, are skipped.
fn zone(arguments: &[&str]) -> Result<Option<u16>, String> {
    for argument in arguments {
        if let Some(zone) = argument.strip_prefix("zone=") {
            return zone
                .parse()
                .map(Some)
                .map_err(|_| format!("zone={zone}: a zone is a number from 0 to 65535"));
        }
        let is_known =
            matches!(*argument, "-m" | "-s" | "--more" | "--statistics" | "netdev@ovs-netdev" | "ovs-netdev");
        if !is_known {
            return Err(format!("{argument}: neither a datapath nor zone=ZONE"));
        }
    }
    Ok(None)
}

fn datapath(bridges: &BTreeMap<Uuid, Bridge>) -> String {
    if bridges.is_empty() {
        return String::new();
    }
    let mut out = "netdev@ovs-netdev:\n".to_owned();
    for bridge in bridges.values() {
        for (number, spec) in bridge.opened() {
            _ = writeln!(out, "  port {number}: {} ({})", spec.name, spec.type_name());
        }
    }
    out
}

fn connections(bridges: &BTreeMap<Uuid, Bridge>, zone: Option<u16>) -> Result<String, String> {
    let mut out = String::new();
    for bridge in bridges.values() {
        let wanted = ConnectionParams::of_zone(zone);
        let found = bridge.served().list_connections(&wanted, LISTED_MAX).map_err(|error| error.message)?;
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
        let wanted = ConnectionParams::of_zone(zone);
        bridge.served().flush_connections(&wanted).map_err(|error| error.message)?;
    }
    Ok(String::new())
}

fn addresses(bridge: &Bridge) -> Result<String, String> {
    let addresses = bridge.served().fdb().map_err(|error| error.message)?;
    let mut all = vec![" port  VLAN  MAC                Age".to_owned()];
    for entry in addresses {
        let port = if entry.port == 0xfffe { "LOCAL".to_owned() } else { entry.port.to_string() };
        all.push(format!("{port:>5}  {:>4}  {}  {:>3}", entry.vlan, entry.mac, entry.age_s));
    }
    Ok(lines(all))
}

fn flows(bridge: &Bridge) -> Result<String, String> {
    let flows = bridge.served().flows(None, "").map_err(|error| error.message)?;
    let line = |flow: crate::mgmt::rpc::FlowReport| {
        let table = if flow.table == 0 { String::new() } else { format!("table_id={}, ", flow.table) };
        let matches = if flow.matches.is_empty() { String::new() } else { format!("{},", flow.matches) };
        format!(
            "{table}duration={}s, n_packets={}, n_bytes={}, priority={},{matches}actions={}",
            flow.age_s as u64, flow.packets, flow.bytes, flow.priority, flow.actions
        )
    };
    Ok(lines(flows.into_iter().map(line)))
}

/// The states of `--ct-next STATE` and `--ct-next=STATE`.
fn ct_next(options: &[&str]) -> Result<Vec<String>, String> {
    let (mut states, mut options) = (Vec::new(), options.iter());
    while let Some(option) = options.next() {
        let state = match option.strip_prefix("--ct-next") {
            Some("") => options.next().copied().ok_or("--ct-next needs flags, as in --ct-next=trk,est")?,
            Some(state) if state.starts_with('=') => &state[1..],
            _ => {
                return Err(format!(
                    "{option}: only --ct-next is known here; the packet is made of the flow"
                ));
            }
        };
        states.push(state.to_owned());
    }
    Ok(states)
}

/// Traces a packet that is made of a flow, in the words of Open vSwitch where it has them.
fn trace(bridge: &Bridge, flow: &str, states: &[String]) -> Result<String, String> {
    let trace = bridge.served().trace(None, "", flow, states).map_err(|error| error.message)?;
    let title = format!("bridge(\"{}\")", bridge.name());
    let mut out = format!("Flow: {flow}\n\n{title}\n{}\n", "-".repeat(title.len()));
    for step in &trace.steps {
        match &step.visit {
            Some(visit) => match &visit.rule {
                Some(rule) => {
                    let matches =
                        if rule.matches.is_empty() { String::new() } else { format!("{}, ", rule.matches) };
                    let cookie =
                        if rule.cookie == 0 { String::new() } else { format!(", cookie {:#x}", rule.cookie) };
                    _ = writeln!(out, "{:>2}. {matches}priority {}{cookie}", visit.table, rule.priority);
                    let is_dropped = rule.actions.is_empty();
                    let actions = rule.actions.iter().map(String::as_str).chain(is_dropped.then_some("drop"));
                    actions.for_each(|action| out += &format!("    {action}\n"));
                }
                None => _ = writeln!(out, "{:>2}. No match.\n    {}", visit.table, step.what),
            },
            None => {
                let why = if step.why.is_empty() { String::new() } else { format!(" ({})", step.why) };
                _ = writeln!(out, "     -> {}: {}{why}", step.place, step.what);
            }
        }
    }
    let ports: Vec<String> = trace
        .sent
        .iter()
        .map(|sent| sent.port.map_or_else(|| "userspace".to_owned(), |port| port.to_string()))
        .collect();
    let sent = if ports.is_empty() { "drop".to_owned() } else { ports.join(",") };
    _ = writeln!(out, "\nDatapath actions: {sent}");
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_open_vswitch_reads_them() {
        assert_eq!(zone(&["-m", "zone=7"]), Ok(Some(7)));
        assert_eq!(zone(&["netdev@ovs-netdev"]), Ok(None));
        assert!(zone(&["zone=x"]).is_err() && zone(&["system@other"]).is_err());
        assert_eq!(
            ct_next(&["--ct-next", "trk,est", "--ct-next=trk,new"]),
            Ok(vec!["trk,est".into(), "trk,new".into()])
        );
        assert!(ct_next(&["--ct-next"]).is_err() && ct_next(&["-generate"]).is_err());
        let none = BTreeMap::new();
        let run = |command, arguments: &[&str]| {
            execute(
                command,
                arguments,
                &none,
                &mut Process { is_over: false, is_cleanup: false, reopen_log: &|| Ok(()) },
            )
        };
        assert_eq!(run("fdb/show", &["br0"]), Err("no such bridge".to_owned()));
        assert_eq!(run("ofproto/trace", &["br0", "ip"]), Err("br0: unknown bridge".to_owned()));
        assert_eq!(run("nothing", &[]), Err("\"nothing\" is not a valid command".to_owned()));
        assert!(run("fdb/show", &[]).unwrap_err().contains("takes the arguments: bridge"));
        let all = run("list-commands", &[]).unwrap();
        let names: Vec<&str> =
            all.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
        assert!(names.is_sorted() && names.len() == COMMANDS.len());
    }
}
