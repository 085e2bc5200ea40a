//! The same scripts of `ovs-vsctl`, `ovs-appctl` and `ovs-ofctl` on a host with our daemon and on one with Open vSwitch: every line of
//! every answer is compared.
//!
//! A script has a command in each line. A line that begins with `~` prepares something, and its output is not compared. Where the two
//! differ for a reason, the script says which, and cuts it out.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Host;
use crate::namespaces::{sh, skipped};

/// The longest time that a command of a script may take, in seconds.
const COMMAND_TIMEOUT: &str = "20";

impl Host {
    /// Runs a line of a script in the host's namespace; returns what it writes, and its exit code where that is not zero.
    fn run_line(&self, line: &str) -> Vec<String> {
        let mut command = Command::new("timeout");
        command.args([COMMAND_TIMEOUT, "ip", "netns", "exec", &self.namespace, "sh", "-c", line]);
        self.programs.surround(&mut command, self.at());
        let programs = self.programs.path("ovs-vsctl");
        let path = format!("{}:{}", programs.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let output = command.env("PATH", path).current_dir(self.at()).output().unwrap();
        let text = |prefix: &str, bytes: &[u8]| -> Vec<String> {
            let text = String::from_utf8_lossy(bytes).replace(&*self.at().to_string_lossy(), "RUNDIR");
            text.lines().map(|line| format!("{prefix}{}", masked(line))).collect()
        };
        let mut all = text("", &output.stdout);
        all.extend(text("stderr: ", &output.stderr));
        if output.status.code() != Some(0) {
            all.push(format!("exit code {:?}", output.status.code()));
        }
        all
    }
}

/// Replaces what differs between any two hosts, or runs of one: Ethernet addresses, identifiers of rows and datapaths, and times.
fn masked(line: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, ':' | '-' | '.');
    let (mut out, mut word) = (String::new(), String::new());
    for c in line.chars().chain(['\n']) {
        if is_part(c) {
            word.push(c);
            continue;
        }
        out += &masked_word(&std::mem::take(&mut word), &out);
        out.push(c);
    }
    out.truncate(out.len() - 1);
    out
}

fn masked_word(word: &str, before: &str) -> String {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if let Some(id) = word.strip_prefix("dpid:").filter(|id| id.len() == 16 && is_hex(id)) {
        return masked_id("dpid:", id);
    }
    if let Some(mac) = word.strip_prefix("addr:").filter(|mac| mac.len() == 17) {
        return format!("addr:{}", masked_word(mac, ""));
    }
    let parts: Vec<&str> = word.split(':').collect();
    let is_time = word.len() == 20 && word.ends_with('Z') && word.get(10..11) == Some("T");
    let groups: Vec<usize> = word.split('-').map(str::len).collect();
    if parts.len() == 6 && parts.iter().all(|part| part.len() == 2 && is_hex(part)) {
        // Those that a script gives are compared.
        let is_given = word.starts_with("02:00:00:00:00:");
        return if is_given { word.to_owned() } else { "MAC".to_owned() };
    }
    match groups[..] {
        [8, 4, 4, 4, 12] => "UUID".to_owned(),
        [16] if is_hex(word) => masked_id("", word),
        _ if is_time || before.ends_with("duration=") => "TIME".to_owned(),
        _ => word.to_owned(),
    }
}

/// An identifier of a datapath, unless a script has given it.
fn masked_id(prefix: &str, id: &str) -> String {
    let is_given = id.starts_with("00000000000000") || id.starts_with("00000200000000");
    if is_given { format!("{prefix}{id}") } else { format!("{prefix}ID") }
}

/// A controller that does nothing but greet the switches that connect, and answer their echo requests.
fn listen(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    let serve = |mut stream: UnixStream| -> std::io::Result<()> {
        // OpenFlow 1.3: HELLO of version 4.
        stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1])?;
        loop {
            let mut header = [0; 8];
            stream.read_exact(&mut header)?;
            let len = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let mut body = vec![0; len.saturating_sub(header.len())];
            stream.read_exact(&mut body)?;
            if header[1] == 2 {
                header[1] = 3;
                stream.write_all(&[&header[..], &body].concat())?;
            }
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
}

/// Returns whether a line changes nothing, so that it may be asked again.
fn only_asks(line: &str) -> bool {
    let is_shown = |what: &&str| line.starts_with("ovs-appctl ") && line.contains(what);
    ["sh sent", "sh learned", "sh flows", "ovs-vsctl get ", "ovs-ofctl dump-", "ovs-ofctl show "]
        .iter()
        .any(|start| line.starts_with(start))
        || ["/show", "/list", "/stats-show"].iter().any(is_shown)
}

/// Runs a script on both hosts, and compares the answers of each line. On a busy machine one may be late: a line that only asks is
/// repeated before its answers count as different.
fn compare(name: &str, script: &str) {
    let (Some(mut ours), Some(mut theirs)) =
        (Host::without_daemon(&format!("sf{name}")), Host::without_daemon(&format!("so{name}")))
    else {
        return;
    };
    ours.start_daemon();
    theirs.start_open_vswitch_with(&["--enable-dummy"]);
    for host in [&ours, &theirs] {
        // Interfaces that say something of their own are counted at other times.
        sh(&format!("ip netns exec {} sysctl -qw net.ipv6.conf.all.disable_ipv6=1", host.namespace));
        sh(&format!("ip netns exec {} sysctl -qw net.ipv6.conf.default.disable_ipv6=1", host.namespace));
    }
    for host in [&ours, &theirs] {
        std::fs::write(host.at().join("wire.py"), include_str!("scripts/wire.py")).unwrap();
    }
    // Threads that end with the test's process.
    [&ours, &theirs].into_iter().for_each(|host| listen(&host.at().join("controller.sock")));
    let (mut compared, mut different) = (0, String::new());
    for line in script.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let prepares = line.strip_prefix("~ ");
        let answers = || [&ours, &theirs].map(|host| host.run_line(prepares.unwrap_or(line)));
        let [mut mine, mut other] = answers();
        if prepares.is_some() {
            continue;
        }
        for _ in 0..10 {
            if mine == other || !only_asks(line) {
                break;
            }
            std::thread::sleep(Duration::from_millis(300));
            [mine, other] = answers();
        }
        compared += other.len();
        if mine != other {
            different += &format!("\n$ {line}\n");
            other.iter().filter(|one| !mine.contains(one)).for_each(|one| different += &format!("-{one}\n"));
            mine.iter().filter(|one| !other.contains(one)).for_each(|one| different += &format!("+{one}\n"));
            let (mut a, mut b) = (mine.clone(), other.clone());
            a.sort();
            b.sort();
            if a == b {
                different += &format!("other order: {mine:?} instead of {other:?}\n");
            }
        }
    }
    println!("{name}: {compared} lines are compared");
    assert!(compared > 40, "{name}: {compared} lines");
    assert!(different.is_empty(), "Open vSwitch's lines (-) and ours (+):{different}");
}

#[test]
fn scripts_of_bridges_and_ports_have_open_vswitchs_answers() {
    compare("b", include_str!("scripts/bridges.sh"));
}

#[test]
fn scripts_of_bonds_have_open_vswitchs_answers() {
    compare("o", include_str!("scripts/bonds.sh"));
}

#[test]
fn scripts_of_controllers_have_open_vswitchs_answers() {
    compare("c", include_str!("scripts/controllers.sh"));
}

#[test]
fn scripts_of_rules_and_connections_have_open_vswitchs_answers() {
    compare("r", include_str!("scripts/rules.sh"));
}

#[test]
fn scripts_of_groups_have_open_vswitchs_answers() {
    compare("p", include_str!("scripts/groups.sh"));
}

#[test]
fn scripts_of_addresses_and_the_daemon_have_open_vswitchs_answers() {
    compare("d", include_str!("scripts/daemon.sh"));
}

#[test]
fn scripts_of_mirrors_and_limits_have_open_vswitchs_answers() {
    compare("m", include_str!("scripts/mirrors.sh"));
}

#[test]
fn scripts_of_the_kernels_queues_have_open_vswitchs_answers() {
    if !super::qos::has_htb("sq") {
        return;
    }
    compare("q", include_str!("scripts/qos.sh"));
}

#[test]
fn scripts_of_multicast_snooping_have_open_vswitchs_answers() {
    compare("g", include_str!("scripts/multicast.sh"));
}

#[test]
fn scripts_of_protected_ports_and_flooded_vlans_have_open_vswitchs_answers() {
    compare("i", include_str!("scripts/isolation.sh"));
}

#[test]
fn scripts_of_tunnels_have_open_vswitchs_answers() {
    if !sh("command -v python3") {
        return skipped("needs python3");
    }
    compare("t", include_str!("scripts/tunnels.sh"));
}

#[test]
fn scripts_of_spanning_trees_have_open_vswitchs_answers() {
    compare("s", include_str!("scripts/spanning_tree.sh"));
}

#[test]
fn values_that_differ_between_hosts_are_masked() {
    for (line, expected) in [
        (" 1(e1): addr:12:f2:1c:05:a4:f7", " 1(e1): addr:MAC"),
        ("mac_in_use : \"02:00:00:00:00:42\"", "mac_in_use : \"02:00:00:00:00:42\""),
        ("03dea0dc-e5a2-4953-a63b-7f9f827f1ab5", "UUID"),
        ("(xid=0x2): dpid:000012f21c05a4f7", "(xid=0x2): dpid:ID"),
        ("datapath_id: \"0000000000000042\"", "datapath_id: \"0000000000000042\""),
        ("duration=3.14s, n_packets=0", "duration=TIME, n_packets=0"),
        ("2026-11-29T15:27:43Z|00002|vsctl|WARN|", "TIME|00002|vsctl|WARN|"),
        ("  port 1: br0 (tap)", "  port 1: br0 (tap)"),
    ] {
        assert_eq!(masked(line), expected);
    }
}
