//! A switch that takes the place of another, with ports that need no permission: rules, the control socket, and what goes wrong.
#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::run;

const CONFIG: &str = "[[port]]\nnumber = 1\nname = \"in\"\nopen = \"gen:udp,rate=20000\"\n\
    [[port]]\nnumber = 2\nname = \"out\"\nopen = \"null\"\n[state]\nfile = \"state\"\n\
    [[table]]\nnumber = 0\nrules = [\"priority=1,udp,actions=ct(commit,zone=3),output:out\", \"priority=2,tcp,actions=drop\"]\n";

pub(crate) fn start(folder: &Path, more: &[&str]) -> Child {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
    command.current_dir(folder).args(["switch", "run", "switch.toml", "--json", "--duration", "60"]);
    command.args(["--socket", "control.sock"]).args(more).env("FLOWLANE_TUNE", "/dev/null");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a switch answers, whose workers run.
pub(crate) fn wait(folder: &Path) {
    let begun = Instant::now();
    let answers = || {
        let mut asked = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
        let asked = asked.current_dir(folder).args(["switch", "rxq", "--socket", "control.sock"]);
        asked.output().is_ok_and(|answer| answer.status.success())
    };
    while !answers() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the switch does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("switch.toml"), CONFIG).unwrap();
    folder
}

pub(crate) fn json(folder: &Path, verb: &str) -> Value {
    serde_json::from_str(&run(folder, &format!("switch {verb} --socket control.sock --json"), 0).0).unwrap()
}

fn rules(folder: &Path) -> Vec<(String, String)> {
    let flows = json(folder, "flows");
    let text = |flow: &Value, key: &str| flow[key].as_str().unwrap().to_owned();
    flows.as_array().unwrap().iter().map(|flow| (text(flow, "matches"), text(flow, "actions"))).collect()
}

#[track_caller]
pub(crate) fn ended(child: Child, code: i32) -> (Value, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(code), "{said}");
    (serde_json::from_slice(&stdout).unwrap_or_default(), said)
}

#[test]
fn rules_and_connections_are_those_of_the_switch_that_ran() {
    let folder = folder();
    let at = folder.path();
    let old = start(at, &[]);
    wait(at);
    run(
        at,
        "switch add-flow priority=9,cookie=0x7,hard_timeout=300,tcp,tp_dst=80,actions=output:2 --socket control.sock",
        0,
    );
    run(at, "switch del-flow --strict priority=2,tcp --socket control.sock", 0);
    let before = rules(at);
    // The new configuration has another rule, which a reload takes.
    let new_config = CONFIG.replace("priority=2,tcp,actions=drop", "priority=2,icmp,actions=drop");
    fs::write(at.join("switch.toml"), new_config).unwrap();
    let next = start(at, &["--take-over"]);
    let (report, said) = ended(old, 0);
    assert!(said.contains("another process has taken the place of this switch"), "{said}");
    assert!(report["ports"][1]["tx_packets"].as_u64() > Some(0), "{report:#}");
    wait(at);
    assert_eq!(rules(at), before);
    let flows = json(at, "flows tcp");
    assert_eq!((&flows[0]["cookie"], &flows[0]["hard_timeout_s"]), (&7.into(), &300.into()), "{flows:#}");
    assert!(flows[0]["age_s"].as_f64().unwrap() > 0.0);
    let connections = json(at, "connections");
    assert!(connections["total"].as_u64() > Some(10), "{connections:#}");
    let (reloaded, _) = run(at, "switch reload --socket control.sock", 0);
    assert!(reloaded.contains("1 rules added, 0 modified, 1 deleted"), "{reloaded}");
    run(at, "switch stop --socket control.sock", 0);
    let (_, said) = ended(next, 0);
    let parts =
        ["taken over from process", "connections", "2 rules, groups and meters", "packets waited for"];
    for part in parts {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!at.join("control.sock").exists() && !at.join("control.sock.new").exists());
}

#[test]
fn a_switch_goes_on_if_the_other_process_does_not() {
    let folder = folder();
    let at = folder.path();
    let old = start(at, &[]);
    wait(at);
    let received = || json(at, "show")["ports"][0]["rx_packets"].as_u64().unwrap();
    let goes_on = |what: &str| {
        let (begun, before) = (
            Instant::now(),
            loop {
                let shown = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"))
                    .current_dir(at)
                    .args(["switch", "show", "--json", "--socket", "control.sock"])
                    .output()
                    .unwrap();
                if shown.status.success() {
                    break serde_json::from_slice::<Value>(&shown.stdout).unwrap()["ports"][0]["rx_packets"]
                        .as_u64()
                        .unwrap();
                }
                std::thread::sleep(Duration::from_millis(10));
            },
        );
        while received() <= before {
            assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
        }
    };
    // A configuration that is wrong, or a port that cannot be opened: the other switch is not even asked to stop, or goes on.
    fs::write(at.join("wrong.toml"), CONFIG.replace("actions=drop", "actions=output:9")).unwrap();
    run(at, "switch run wrong.toml --take-over --socket control.sock", 2);
    goes_on("after a wrong configuration");
    fs::write(at.join("taken.pcap"), "").unwrap();
    fs::write(at.join("wrong.toml"), CONFIG.replace("open = \"null\"", "open = \"pcap-out:taken.pcap\""))
        .unwrap();
    let (_, said) = run(at, "switch run wrong.toml --take-over --socket control.sock", 2);
    assert!(said.contains("the switch that runs may write it"), "{said}");
    fs::write(at.join("wrong.toml"), CONFIG.replace("open = \"null\"", "open = \"pcap:none.pcap\"")).unwrap();
    run(at, "switch run wrong.toml --take-over --socket control.sock", 2);
    goes_on("after a port that cannot be opened");
    // One that ends in the middle, and one that reads all and confirms with other words.
    for end in [None, Some(&b"something\n"[..])] {
        let mut stream = UnixStream::connect(at.join("control.sock")).unwrap();
        stream.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"take_over\"}\n").unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        assert!(reader.fill_buf().unwrap().starts_with(b"FLOWLANE"));
        if let Some(words) = end {
            stream.write_all(words).unwrap();
            _ = reader.read_to_end(&mut Vec::new());
        }
        drop((stream, reader));
        goes_on("after a process that has not confirmed");
    }
    run(at, "switch stop --socket control.sock", 0);
    let (_, said) = ended(old, 0);
    assert_eq!(said.matches("this switch goes on").count(), 3, "{said}");
}

#[test]
fn without_a_switch_to_take_over_one_starts_as_usual() {
    let folder = folder();
    let switch = start(folder.path(), &["--take-over"]);
    wait(folder.path());
    run(folder.path(), "switch stop --socket control.sock", 0);
    let (_, said) = ended(switch, 0);
    assert!(said.contains("there is none to take over"), "{said}");
}

#[test]
fn a_switch_with_a_file_of_changes_is_not_taken_over() {
    let folder = folder();
    let at = folder.path();
    fs::write(at.join("changes.flows"), "@50 delete udp\n").unwrap();
    let switch = start(at, &["--changes", "changes.flows"]);
    wait(at);
    let (_, said) = run(at, "switch run switch.toml --take-over --socket control.sock", 3);
    assert!(said.contains("--changes"), "{said}");
    run(at, "switch stop --socket control.sock", 0);
    ended(switch, 0);
}

#[test]
fn state_of_a_file_is_used_if_it_is_whole_and_of_these_ports() {
    let folder = folder();
    let at = folder.path();
    let start_and_stop = || {
        let switch = start(at, &[]);
        wait(at);
        let begun = Instant::now();
        while json(at, "connections --count")["total"].as_u64() < Some(10) {
            assert!(begun.elapsed() < Duration::from_secs(10), "no connections");
        }
        run(at, "switch stop --socket control.sock", 0);
        ended(switch, 0).1
    };
    let said = start_and_stop();
    assert!(!said.contains("restored") && !said.contains("warning"), "{said}");
    let said = start_and_stop();
    assert!(said.contains("restored: ") && !said.contains("restored: 0 connections"), "{said}");
    // Cut off, changed, of something else, of other ports.
    let whole = fs::read(at.join("state")).unwrap();
    let mut changed = whole.clone();
    changed[300] ^= 4;
    for (bytes, problem) in [
        (&whole[..whole.len() - 9], "is cut off"),
        (&changed[..], "block 0, which begins at byte 12, has been changed"),
        (&b"[[port]]"[..], "it is no saved state of Flowlane"),
    ] {
        fs::write(at.join("state"), bytes).unwrap();
        let said = start_and_stop();
        assert!(said.contains("warning: the saved state is not used") && said.contains(problem), "{said}");
    }
    let other = CONFIG.replace("open = \"null\"", "open = \"null\"\n[[port]]\nnumber = 3\nopen = \"null\"");
    fs::write(at.join("switch.toml"), other).unwrap();
    let said = start_and_stop();
    assert!(said.contains("warning: the saved state is not used") && said.contains("port 3: null"), "{said}");
    // The interval is checked.
    fs::write(at.join("switch.toml"), CONFIG.replace("file = \"state\"", "file = \"state\"\nevery_s = 0"))
        .unwrap();
    let (_, said) = run(at, "switch check switch.toml", 2);
    assert!(said.contains("from 1 to 86400"), "{said}");
}
