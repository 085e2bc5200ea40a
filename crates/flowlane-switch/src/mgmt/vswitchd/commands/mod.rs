//! The commands of `ovs-appctl` (ovs-vswitchd(8), ovs-dpctl(8)), with the answers that Open vSwitch gives.

mod addresses;
mod bonds;
mod bridges;
mod datapath;

use std::collections::BTreeMap;

use flowlane_ovsdb::Uuid;

use super::bridge::Bridge;
use super::figures::{self, Figures};
use super::numbers::DatapathPorts;
use super::{DaemonLog, LogLevels};

/// The commands, with their arguments and the numbers of these.
const COMMANDS: [(&str, &str, [usize; 2]); 51] = [
    ("bfd/show", "[interface]", [0, 1]),
    ("bond/disable-member", "port member", [2, 2]),
    ("bond/enable-member", "port member", [2, 2]),
    ("bond/hash", "mac [vlan] [basis]", [1, 3]),
    ("bond/list", "", [0, 0]),
    ("bond/migrate", "port hash member", [3, 3]),
    ("bond/set-active-member", "port member", [2, 2]),
    ("bond/show", "[port]", [0, 1]),
    ("bridge/dump-flows", "[--offload-stats] bridge", [1, 2]),
    ("cfm/show", "[interface]", [0, 1]),
    ("coverage/read-counter", "COUNTER", [1, 1]),
    ("coverage/show", "", [0, 0]),
    ("dpctl/ct-get-limits", "[dp] [zone=N1[,N2]...]", [0, 2]),
    ("dpctl/ct-get-maxconns", "[dp]", [0, 1]),
    ("dpctl/ct-get-nconns", "[dp]", [0, 1]),
    ("dpctl/ct-stats-show", "[dp] [zone=N]", [0, 2]),
    ("dpctl/dump-conntrack", "[-m] [-s] [dp] [zone=N]", [0, 4]),
    ("dpctl/dump-dps", "", [0, 0]),
    ("dpctl/dump-flows", "[-m] [--names] [dp]", [0, 3]),
    ("dpctl/flush-conntrack", "[dp] [zone=N]", [0, 2]),
    ("dpctl/show", "[-s] [dp...]", [0, 2]),
    ("dpif/dump-dps", "", [0, 0]),
    ("dpif/dump-flows", "[-m] [--names | --no-names] bridge", [1, 3]),
    ("dpif/show", "", [0, 0]),
    ("dpif/show-dp-features", "bridge", [1, 1]),
    ("exit", "[--cleanup]", [0, 1]),
    ("fdb/add", "bridge port vlan mac", [4, 4]),
    ("fdb/del", "bridge vlan mac", [3, 3]),
    ("fdb/flush", "[bridge]", [0, 1]),
    ("fdb/show", "bridge", [1, 1]),
    ("fdb/stats-clear", "[bridge]", [0, 1]),
    ("fdb/stats-show", "bridge", [1, 1]),
    ("lacp/show", "[port]", [0, 1]),
    ("lacp/show-stats", "[port]", [0, 1]),
    ("list-commands", "", [0, 0]),
    ("mdb/flush", "[bridge]", [0, 1]),
    ("mdb/show", "bridge", [1, 1]),
    ("memory/show", "", [0, 0]),
    ("ofproto/list", "", [0, 0]),
    ("ofproto/trace", "bridge br_flow [OPTIONS...] [-generate|packet]", [2, 66]),
    ("qos/show", "interface", [1, 1]),
    ("qos/show-types", "interface", [1, 1]),
    ("rstp/show", "[bridge]", [0, 1]),
    ("rstp/tcn", "[bridge]", [0, 1]),
    ("stp/show", "[bridge]", [0, 1]),
    ("stp/tcn", "[bridge]", [0, 1]),
    ("version", "", [0, 0]),
    ("vlog/close", "", [0, 0]),
    ("vlog/list", "", [0, 0]),
    ("vlog/reopen", "", [0, 0]),
    ("vlog/set", "{spec | PATTERN:destination:pattern}", [0, 16]),
];

/// Former names of commands, which are not listed.
const FORMER_NAMES: [(&str, &str); 3] = [
    ("bond/disable-slave", "bond/disable-member"),
    ("bond/enable-slave", "bond/enable-member"),
    ("bond/set-active-slave", "bond/set-active-member"),
];

/// The process, as far as commands concern it.
pub(super) struct Process<'a> {
    /// It is to end.
    pub(super) is_over: bool,
    /// Nothing of the bridges is to stay.
    pub(super) is_cleanup: bool,
    pub(super) log: &'a dyn DaemonLog,
    pub(super) figures: &'a mut Figures,
    /// The ports of the datapath.
    pub(super) ports: &'a DatapathPorts,
}

impl Process<'_> {
    fn levels(&self) -> &LogLevels {
        self.log.levels()
    }
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
    process.figures.count("unixctl_received");
    let of_former = FORMER_NAMES.iter().find(|(former, _)| *former == command);
    let present = of_former.map_or(command, |(_, present)| *present);
    let known = COMMANDS.iter().find(|(name, ..)| *name == present);
    let Some((name, _, [least, most])) = known else {
        return Err(format!(
            "\"{command}\" is not a valid command (use \"list-commands\" to see a list of valid commands)"
        ));
    };
    if arguments.len() < *least {
        return Err(format!("\"{command}\" command requires at least {least} arguments"));
    }
    if arguments.len() > *most {
        return Err(format!("\"{command}\" command takes at most {most} arguments"));
    }
    if let Some(answer) = of_process(name, arguments, bridges, process) {
        return answer;
    }
    let rest = addresses::execute(name, arguments, bridges)
        .or_else(|| bonds::execute(name, arguments, bridges))
        .or_else(|| datapath::execute(name, arguments, bridges, process.ports))
        .or_else(|| bridges::execute(name, arguments, bridges, process.ports));
    rest.expect("each command that is known is executed")
}

/// Executes the commands that concern the process.
fn of_process(
    command: &str,
    arguments: &[&str],
    bridges: &BTreeMap<Uuid, Bridge>,
    process: &mut Process<'_>,
) -> Option<Result<String, String>> {
    Some(match (command, arguments) {
        ("version", _) => Ok(format!("ovs-vswitchd (Flowlane) {}\n", env!("CARGO_PKG_VERSION"))),
        ("exit", arguments) => {
            process.is_over = true;
            process.is_cleanup |= arguments.contains(&"--cleanup");
            Ok(String::new())
        }
        ("vlog/reopen", _) => process.log.reopen().map(|()| String::new()),
        ("vlog/close", _) => {
            process.log.close();
            Ok(String::new())
        }
        ("vlog/list", _) => Ok(process.levels().list()),
        ("vlog/set", specifications) => {
            // Each that comes before a wrong one holds, as in Open vSwitch.
            specifications.iter().try_for_each(|one| process.levels().set(one)).map(|()| String::new())
        }
        ("memory/show", _) => Ok(figures::memory(bridges)),
        ("coverage/show", _) => Ok(process.figures.coverage(bridges)),
        ("coverage/read-counter", [name]) => {
            let counter = process.figures.counter(name, bridges);
            counter.map(|count| format!("{count}\n")).ok_or_else(|| "No such counter".to_owned())
        }
        ("list-commands", _) => {
            let mut all = vec!["The available commands are:".to_owned()];
            all.extend(COMMANDS.iter().map(|(name, usage, _)| format!("  {name:<23} {usage}")));
            Ok(lines(all))
        }
        _ => return None,
    })
}

fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

/// The bridge of a name.
fn find<'a>(bridges: &'a BTreeMap<Uuid, Bridge>, name: &str, problem: &str) -> Result<&'a Bridge, String> {
    bridges.values().find(|bridge| bridge.name() == name).ok_or_else(|| problem.to_owned())
}

/// The bridge of a name, or all without one.
fn one_or_all<'a>(
    bridges: &'a BTreeMap<Uuid, Bridge>,
    name: Option<&&str>,
) -> Result<Vec<&'a Bridge>, String> {
    match name {
        Some(name) => find(bridges, name, NO_BRIDGE).map(|bridge| vec![bridge]),
        None => Ok(bridges.values().collect()),
    }
}

const NO_BRIDGE: &str = "no such bridge";

#[cfg(test)]
mod tests {
    use super::*;

    struct NoLog(LogLevels);

    impl DaemonLog for NoLog {
        fn reopen(&self) -> Result<(), String> {
            Ok(())
        }

        fn close(&self) {}

        fn levels(&self) -> &LogLevels {
            &self.0
        }
    }

    #[test]
    fn commands_and_their_arguments_are_refused_as_by_open_vswitch() {
        let (none, mut figures) = (BTreeMap::new(), Figures::default());
        let (log, ports) = (NoLog(LogLevels::default()), DatapathPorts::default());
        let mut run = |command, arguments: &[&str]| {
            let mut process = Process {
                is_over: false,
                is_cleanup: false,
                log: &log,
                figures: &mut figures,
                ports: &ports,
            };
            execute(command, arguments, &none, &mut process)
        };
        for (command, arguments, problem) in [
            ("fdb/show", &["br0"][..], "no such bridge"),
            ("ofproto/trace", &["br0", "ip"], "br0: unknown bridge"),
            (
                "nothing",
                &[],
                "\"nothing\" is not a valid command (use \"list-commands\" to see a list of valid commands)",
            ),
            ("fdb/show", &[], "\"fdb/show\" command requires at least 1 arguments"),
            ("dpif/show", &["a", "b"], "\"dpif/show\" command takes at most 0 arguments"),
            ("fdb/add", &["br0", "p", "0", "x"], "no such bridge"),
            ("bond/show", &["b"], "no such bond"),
            ("vlog/set", &["what"], "no destination, level, or module \"what\""),
            ("coverage/read-counter", &["what"], "No such counter"),
        ] {
            assert_eq!(run(command, arguments), Err(problem.to_owned()), "{command}");
        }
        let all = run("list-commands", &[]).unwrap();
        let names: Vec<&str> =
            all.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
        assert!(names.is_sorted() && names.len() == COMMANDS.len());
        // Every command is executed by something.
        for (name, _, [least, _]) in COMMANDS.iter().filter(|(name, ..)| *name != "exit") {
            _ = run(name, &vec!["x"; *least]);
        }
    }
}
