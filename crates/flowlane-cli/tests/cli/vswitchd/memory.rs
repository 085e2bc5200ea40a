//! The memory of a daemon with many ports, and after many rules.

use std::fmt::Write as _;
use std::fs;

use super::Host;
use crate::support::wait_until;

impl Host {
    /// The memory of the daemon that is the process's own, in MiB.
    fn memory(&self) -> u64 {
        let pid = fs::read_to_string(self.at().join("ovs-vswitchd.pid")).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", pid.trim())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }
}

/// As many as containers of a node: buffers for the longest frames are the worker's, not each port's.
#[test]
fn ports_cost_little_memory() {
    const PORTS: usize = 100;
    let Some(host) = Host::start("mem") else { return };
    host.vsctl("add-br br0").unwrap();
    let (mut links, mut ports) = (String::new(), String::new());
    for n in 0..PORTS {
        writeln!(links, "link add p{n} type veth peer name q{n}\nlink set p{n} up\nlink set q{n} up")
            .unwrap();
        write!(ports, " -- add-port br0 p{n}").unwrap();
    }
    fs::write(host.at().join("links"), links).unwrap();
    assert!(host.ip(&format!("-batch {}", host.at().join("links").display())));
    let before = host.memory();
    host.vsctl(ports.trim_start_matches(" -- ")).unwrap();
    // Each kernel interface sends for IPv6, and each gets what the others send.
    let last = format!("p{}", PORTS - 1);
    wait_until("frames through all ports", || host.sent("br0", &last) > 50);
    let after = host.memory();
    println!("{before} MiB without ports, {after} with {PORTS}");
    assert!(after - before < 32, "{before} to {after} MiB");
}

/// Memory of rules that are gone, of messages and of former copies of tables is given back to the system. Without that it stays as it was:
/// the allocator keeps it.
#[test]
fn memory_of_changes_is_given_back() {
    const RULES: usize = 20_000;
    let Some(host) = Host::start("fvy") else { return };
    host.vsctl("add-br br0 -- set-fail-mode br0 secure").unwrap();
    let rule = |n: usize| format!("priority=7,ip,nw_dst=10.1.{}.{},actions=drop\n", n / 256, n % 256);
    let file = host.at().join("rules");
    fs::write(&file, (0..RULES).map(rule).collect::<String>()).unwrap();
    let before = host.memory();
    host.ofctl(&["--bundle", "add-flows", "br0", file.to_str().unwrap()]);
    host.ofctl(&["del-flows", "br0"]);
    let mut most = host.memory();
    wait_until("memory is given back", || {
        let now = host.memory();
        most = most.max(now);
        now * 4 < most * 3
    });
    println!("{before} MiB without rules, {most} with {RULES}, {} after them", host.memory());
}
