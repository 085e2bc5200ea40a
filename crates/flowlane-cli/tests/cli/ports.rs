//! Ports that are added to a running switch and removed from it, with devices that need no permission.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::support::{run, wait_until};
use crate::take_over::{ended, json, start, wait};

const CONFIG: &str = "[switch]\nworkers = 2\n\
    [[port]]\nnumber = 1\nname = \"in\"\nopen = \"gen:udp,rate=20000\"\n\
    [[port]]\nnumber = 2\nname = \"out\"\nopen = \"null\"\n\
    [[table]]\nnumber = 0\nrules = [\"udp,actions=output:out\"]\n";

#[track_caller]
fn switch(folder: &Path, arguments: &str, code: i32) -> (String, String) {
    run(folder, &format!("switch {arguments} --socket control.sock"), code)
}

fn ports(folder: &Path) -> Vec<(u64, String, String)> {
    let show = json(folder, "show");
    let text = |port: &Value, key: &str| port[key].as_str().unwrap().to_owned();
    let port = |port: &Value| (port["number"].as_u64().unwrap(), text(port, "name"), text(port, "open"));
    show["ports"].as_array().unwrap().iter().map(port).collect()
}

fn numbers(folder: &Path) -> Vec<u64> {
    ports(folder).into_iter().map(|(number, ..)| number).collect()
}

/// Waits until a port has sent packets.
fn wait_for_packets(folder: &Path, name: &str) {
    let sent = || {
        let show = json(folder, "show");
        let port = show["ports"].as_array().unwrap().iter().find(|port| port["name"] == name).cloned();
        port.unwrap()["tx_packets"].as_u64().unwrap()
    };
    wait_until(&format!("{name} sends"), || sent() > 0);
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("switch.toml"), CONFIG).unwrap();
    folder
}

/// Packets of a capture, by its size: those of the generator have one length.
fn capture_bytes(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |data| data.len())
}

#[test]
fn a_port_comes_and_goes_while_others_go_on() {
    let folder = folder();
    let at = folder.path();
    let running = start(at, &[]);
    wait(at);
    let (said, _) = switch(at, "add-port pcap-out:tap.pcap --name mirror --tag 7", 0);
    assert_eq!(said, "port 3 mirror (pcap-out:tap.pcap) added\n");
    switch(at, "add-flow priority=40000,udp,actions=output:out,output:mirror", 0);
    wait_for_packets(at, "mirror");
    let show = json(at, "show");
    assert_eq!(show["ports"][2]["vlan"], "access 7", "{show:#}");
    // A rule names it.
    let (_, said) = switch(at, "del-port mirror", 2);
    assert!(
        said.contains("port 3 is named by rule `table=0,priority=40000,udp actions=output:2,output:3`"),
        "{said}"
    );
    switch(at, "del-flow --strict priority=40000,udp", 0);
    let (said, _) = switch(at, "del-port 3", 0);
    assert_eq!(said, "port 3 mirror (pcap-out:tap.pcap) removed\n");
    assert_eq!(numbers(at), [1, 2]);
    let written = capture_bytes(&at.join("tap.pcap"));
    assert!(written > 100, "{written} bytes: it was closed as a capture is");
    // No rule may name it any more.
    let (_, said) = switch(at, "add-flow udp,actions=output:3", 2);
    assert!(said.contains("there is no port 3"), "{said}");
    // Its number, and in time its place, are used again.
    for round in 0..4 {
        switch(at, &format!("add-port pcap-out:{round}.pcap --number 3"), 0);
        switch(at, "add-flow priority=40000,udp,actions=output:port3,output:out", 0);
        wait_for_packets(at, "port3");
        switch(at, "del-flow --strict priority=40000,udp", 0);
        switch(at, "del-port port3", 0);
        std::thread::sleep(Duration::from_millis(400));
    }
    // What a port receives is switched, too.
    switch(at, "add-port gen:tcp,rate=20000 --number 77 --name more", 0);
    switch(at, "add-port pcap-out:tcp.pcap --name sink", 0);
    switch(at, "add-flow in_port=77,tcp,actions=output:sink", 0);
    wait_for_packets(at, "sink");
    switch(at, "stop", 0);
    let (report, said) = ended(running, 0);
    assert_eq!(report["ports"].as_array().unwrap().len(), 4, "{said}");
    assert!(report["ports"][1]["tx_packets"].as_u64() > Some(0), "the others went on");
}

#[test]
fn what_is_wrong_with_a_new_port_is_said_and_changes_nothing() {
    let folder = folder();
    let at = folder.path();
    let running = start(at, &[]);
    wait(at);
    for (arguments, problem) in [
        ("null --number 2", "there is a port 2 already"),
        ("null --number 0", "port number 0 is out of range"),
        ("null --number 70000", "port number 70000 is out of range"),
        ("null --name out", "port 2 is called `out`"),
        ("null --tag 5000", "5000 is no VLAN"),
        ("null --vlan-mode sideways", "unknown variant `sideways`"),
        ("pcap:missing.pcap", "missing.pcap"),
        ("pcap-out:switch.toml", "is a file that the switch reads"),
        ("bottle:7", "bottle"),
        ("afpacket:no-such-interface", "no-such-interface"),
    ] {
        let output = crate::support::flowlane()
            .current_dir(at)
            .args(["switch", "add-port", "--socket", "control.sock"])
            .args(arguments.split(' '))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments}: {said}");
        assert!(said.contains(problem), "{arguments}: {said}");
    }
    let (_, said) = switch(at, "del-port absent", 2);
    assert!(said.contains("there is no port `absent`"), "{said}");
    assert_eq!(fs::read_to_string(at.join("switch.toml")).unwrap(), CONFIG);
    assert_eq!(numbers(at), [1, 2]);
    switch(at, "stop", 0);
    ended(running, 0);
}

#[test]
fn a_reload_opens_and_closes_ports_with_the_rules_that_name_them() {
    let folder = folder();
    let at = folder.path();
    let running = start(at, &[]);
    wait(at);
    switch(at, "add-port pcap-out:own.pcap --number 9 --name own --tag 4", 0);
    let reload = |text: &str, code| {
        fs::write(at.join("switch.toml"), text).unwrap();
        switch(at, "reload", code)
    };
    let more =
        |name: &str, open: &str| format!("[[port]]\nnumber = 5\nname = \"{name}\"\nopen = \"{open}\"\n");
    let rules = |rules: &str| CONFIG.replace("udp,actions=output:out", rules);
    let with = rules("udp,actions=output:more,output:out") + &more("more", "pcap-out:a.pcap");
    let (said, _) = reload(&with, 0);
    assert!(said.contains("0 rules added, 1 modified") && said.contains("1 ports changed"), "{said}");
    wait_for_packets(at, "more");
    // A reload that is refused opens nothing, or closes it again.
    for (wrong, problem) in [
        (with.replace("output:out\"", "output:nowhere\""), "nowhere"),
        (with.clone() + &more("sixth", "pcap:missing.pcap").replace("= 5", "= 6"), "missing.pcap"),
        (with.clone() + &more("own", "null").replace("= 5", "= 6"), "port 9 is called `own`"),
        (with.replace("number = 1\n", "number = 1\naddresses = [\"192.0.2.1/24\"]\n"), "router"),
    ] {
        let (_, said) = reload(&wrong, 2);
        assert!(said.contains(problem), "{said}");
        assert_eq!(numbers(at), [1, 2, 5, 9]);
    }
    // Another device in its place, and another name.
    let (said, _) = reload(&with.replace("a.pcap", "b.pcap").replace("more", "other"), 0);
    assert!(said.contains("1 ports changed"), "{said}");
    assert!(capture_bytes(&at.join("a.pcap")) > 100);
    wait_for_packets(at, "other");
    let (said, _) = reload(&with.replace("a.pcap", "b.pcap").replace("more", "third"), 0);
    assert!(said.contains("1 ports changed"), "{said}");
    assert_eq!(ports(at)[2].1, "third");
    // The client's port stays as it is; the other goes.
    let (said, _) = reload(CONFIG, 0);
    assert!(said.contains("1 ports changed"), "{said}");
    assert_eq!(numbers(at), [1, 2, 9]);
    assert_eq!(json(at, "show")["ports"][2]["vlan"], "access 4");
    // A configuration may have it, and loses it then.
    let own = "[[port]]\nnumber = 9\nname = \"own\"\nopen = \"pcap-out:own.pcap\"\ntag = 4\n";
    reload(&(CONFIG.to_owned() + own), 0);
    assert_eq!(numbers(at), [1, 2, 9]);
    reload(CONFIG, 0);
    assert_eq!(numbers(at), [1, 2]);
    switch(at, "stop", 0);
    ended(running, 0);
}

#[test]
fn a_switch_that_takes_over_has_the_ports_of_clients() {
    let folder = folder();
    let at = folder.path();
    let old = start(at, &[]);
    wait(at);
    switch(at, "add-port null --number 9 --name own", 0);
    switch(at, "add-flow priority=40000,udp,actions=output:own", 0);
    wait_for_packets(at, "own");
    let next = start(at, &["--take-over"]);
    ended(old, 0);
    wait(at);
    assert_eq!(numbers(at), [1, 2, 9]);
    wait_for_packets(at, "own");
    switch(at, "del-flow --strict priority=40000,udp", 0);
    switch(at, "del-port own", 0);
    switch(at, "stop", 0);
    ended(next, 0);
}
