//! Interfaces that become ports of a running switch, and links that go up and down.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::interfaces::{Hosts, wait_until};
use super::{Switch, sh, skipped};

/// Asks the switch; returns the reply, or the complaint.
fn ask(folder: &Path, arguments: &str) -> Result<Value, String> {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
    command.args(["switch"]).args(arguments.split(' ')).args(["--json", "--socket"]);
    let output = command.arg(folder.join("control.sock")).output().unwrap();
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn start(hosts: &Hosts, settings: &str, rules: &str, folder: &Path) -> Switch {
    let port = |number| format!("[[port]]\nnumber = {number}\nopen = \"afpacket:s{number}\"\n");
    let config =
        format!("[switch]\n{settings}\n{}{}[[table]]\nnumber = 0\nrules = [{rules}]\n", port(1), port(2));
    fs::write(folder.join("switch.toml"), config).unwrap();
    start_again(hosts, folder)
}

/// Starts a switch with the configuration that has been written.
fn start_again(hosts: &Hosts, folder: &Path) -> Switch {
    let mut switch = Command::new("ip");
    switch.args(["netns", "exec", &format!("{}s", hosts.name)]);
    switch.arg(assert_cmd::cargo::cargo_bin!("flowlane")).args(["switch", "run", "--json", "--socket"]);
    switch.arg(folder.join("control.sock")).arg(folder.join("switch.toml"));
    let switch = Switch(Some(switch.stdout(Stdio::piped()).spawn().unwrap()));
    wait_until("the switch runs", || ask(folder, "rxq").is_ok());
    switch
}

fn hosts(name: &str) -> Option<Hosts> {
    if !sh("test $(id -u) = 0 && command -v ip && command -v ping") {
        skipped("needs root, ip and ping");
        return None;
    }
    let hosts = Hosts::new(name, 1, false);
    if hosts.is_none() {
        skipped("network namespaces cannot be made here");
    }
    hosts
}

#[test]
fn an_interface_becomes_a_port_and_ceases_to_be_one() {
    for (kind, workers) in [("afpacket", 1), ("afpacket", 2), ("afxdp", 1), ("tap", 2)] {
        let Some(hosts) = hosts(&format!("fp{}{workers}x", &kind[2..3])) else { return };
        let folder = tempfile::tempdir().unwrap();
        let settings = format!("workers = {workers}\nadds_ports = true");
        let mut switch = start(&hosts, &settings, "\"actions=normal\"", folder.path());
        let case = format!("{kind}, {workers} workers");
        if kind == "tap" {
            assert!(hosts.ip("s", "link delete s3"), "{case}");
        }
        let ping = format!("ip netns exec {}1 ping -c 1 -W 1 10.78.0.3", hosts.name);
        for round in 0..3 {
            assert!(kind == "tap" || !sh(&ping), "{case}, round {round}: no port yet");
            let added = ask(folder.path(), &format!("add-port {kind}:s3 --name third"));
            assert_eq!(added.unwrap_or_else(|error| panic!("{case}: {error}"))["number"], 3, "{case}");
            let again = ask(folder.path(), &format!("add-port {kind}:s3")).unwrap_err();
            assert!(again.contains("port 3 has"), "{case}: {again}");
            if kind != "tap" {
                wait_until(&format!("{case}, round {round}: the port is there"), || sh(&ping));
            }
            ask(folder.path(), "del-port third").unwrap();
        }
        switch.stop();
    }
}

#[test]
fn interfaces_need_capabilities_that_are_kept_on_request() {
    let Some(hosts) = hosts("fpc") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut switch = start(&hosts, "", "\"actions=normal\"", folder.path());
    let refused = ask(folder.path(), "add-port afpacket:s3").unwrap_err();
    assert!(refused.contains("cap_net_raw") && refused.contains("adds_ports"), "{refused}");
    switch.stop();
}

#[test]
fn ports_whose_link_is_down_are_not_chosen_by_groups() {
    let Some(hosts) = hosts("fpl") else { return };
    let folder = tempfile::tempdir().unwrap();
    let groups =
        "group_id=1,type=ff,bucket=watch_port:2,actions=output:2,bucket=watch_port:1,actions=output:in_port";
    let rules = format!("\"in_port=1,actions=group:1\"]\n[groups]\ngroups = [\"{groups}\"");
    let mut switch = start(&hosts, "", &rules, folder.path());
    let goes_to = || {
        let trace = ask(folder.path(), "trace --in-port 1 udp").unwrap();
        trace["sent"][0]["port"].as_u64().unwrap()
    };
    let is_down = || {
        let show = ask(folder.path(), "show").unwrap();
        show["ports"].as_array().unwrap().iter().find(|port| port["number"] == 2).unwrap()["is_down"] == true
    };
    assert_eq!((goes_to(), is_down()), (2, false));
    for (down, up) in [("link set s2 down", "link set s2 up"), ("link delete s2", "")] {
        assert!(hosts.ip("s", down));
        wait_until(&format!("{down}: the group takes another port"), || goes_to() == 1 && is_down());
        if !up.is_empty() {
            assert!(hosts.ip("s", up));
            wait_until(&format!("{up}: the group takes the port again"), || goes_to() == 2 && !is_down());
        }
    }
    switch.stop();
}

#[test]
fn a_port_has_the_queues_of_its_section_while_it_is_there() {
    let Some(hosts) = hosts("fpq") else { return };
    let tc = |interface: &str| {
        let mut tc = Command::new("tc");
        tc.args(["-n", &format!("{}s", hosts.name), "class", "show", "dev", interface]);
        String::from_utf8(tc.output().unwrap().stdout).unwrap()
    };
    if !sh(&format!("tc -n {}s qdisc add dev s3 root handle 1: htb", hosts.name)) {
        return skipped("needs tc and the kernel's htb");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut switch = start(&hosts, "", "\"actions=set_queue:1,normal\"", folder.path());
    assert_eq!(tc("s2"), "");
    let file = folder.path().join("switch.toml");
    let config = fs::read_to_string(&file).unwrap();
    let with_queue = |rate: u32| {
        let queue =
            format!("qos = {{ type = \"linux-htb\", queue = [{{ number = 1, max_rate_bps = {rate} }}] }}");
        config.replace("\"afpacket:s2\"\n", &format!("\"afpacket:s2\"\n{queue}\n"))
    };
    // It has dropped the permission at its start.
    fs::write(&file, with_queue(3_000_000)).unwrap();
    let refused = ask(folder.path(), "reload").unwrap()["problems"].to_string();
    assert!(refused.contains("CAP_NET_ADMIN") && refused.contains("restart it"), "{refused}");
    switch.stop();
    let mut switch = start_again(&hosts, folder.path());
    assert!(
        tc("s2").contains("class htb 1:2 parent 1:fffe") && tc("s2").contains("ceil 3Mbit"),
        "{}",
        tc("s2")
    );
    // Packets go through the queue, and a reload changes it.
    assert!(sh(&format!("ip netns exec {}1 ping -c 1 -W 2 10.78.0.2", hosts.name)));
    fs::write(&file, with_queue(4_000_000)).unwrap();
    let reloaded = ask(folder.path(), "reload").unwrap();
    assert_eq!(reloaded["ports"], 1, "{reloaded}");
    assert!(tc("s2").contains("ceil 4Mbit"), "{}", tc("s2"));
    // A reload that leaves it as it is leaves the packets that wait in it, too.
    let leaf = format!("tc -n {}s qdisc add dev s2 parent 1:2 handle 77: pfifo limit 10", hosts.name);
    assert!(sh(&leaf));
    fs::write(&file, with_queue(4_000_000).replace("\"afpacket:s2\"\n", "\"afpacket:s2\"\nname = \"out\"\n"))
        .unwrap();
    assert_eq!(ask(folder.path(), "reload").unwrap()["ports"], 1);
    assert!(tc("s2").contains("leaf 77:"), "{}", tc("s2"));
    // An interface that comes again has it again.
    assert!(hosts.ip("s", "link del s2") && hosts.ip("s", "link add s2 type veth peer name q2"));
    wait_until("the new interface has the queue", || tc("s2").contains("ceil 4Mbit"));
    switch.stop();
    assert_eq!(tc("s2"), "");
}

#[test]
fn queues_of_a_switch_that_was_killed_or_did_not_start_are_removed() {
    let Some(hosts) = hosts("fpr") else { return };
    let tc = |verb: &str| sh(&format!("tc -n {}s {verb}", hosts.name));
    let is_htb = |port: u32| tc(&format!("qdisc show dev s{port} root | grep -q 'htb 1:'"));
    if !tc("qdisc add dev s2 root handle 1: htb") {
        return skipped("needs tc and the kernel's htb");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut switch = start(&hosts, "", "\"actions=normal\"", folder.path());
    assert!(is_htb(2), "an administrator's own stays");
    switch.stop();
    let file = folder.path().join("switch.toml");
    let config = fs::read_to_string(&file).unwrap();
    let qos = |number| {
        let open = format!("\"afpacket:s{number}\"\n");
        config.replace(&open, &format!("{open}qos = {{ type = \"linux-htb\" }}\n"))
    };
    fs::write(&file, qos(2)).unwrap();
    start_again(&hosts, folder.path()).kill();
    assert!(is_htb(2));
    // The socket cannot be there: the start fails once the queues are.
    fs::write(&file, qos(1)).unwrap();
    let run =
        format!("ip netns exec {}s {}", hosts.name, assert_cmd::cargo::cargo_bin!("flowlane").display());
    assert!(!sh(&format!(
        "{run} switch run --duration 9 --socket {0}/switch.toml/x {0}/switch.toml",
        folder.path().display()
    )));
    assert!(!is_htb(1) && !is_htb(2));
}
