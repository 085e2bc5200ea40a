//! Tests of small limits of the process: the command runs, or names the limit with exit code 3; it neither panics nor hangs.
#![cfg(target_os = "linux")]

use std::fs;
use std::process::Command;

use tempfile::tempdir;

const CONFIG: &str = r#"
[switch]
workers = 2
[[port]]
number = 1
open = "gen:udp,rate=1000"
[[port]]
number = 2
open = "null"
[[table]]
number = 0
rules = ["actions=output:2"]
"#;

#[test]
fn small_limits_are_named_and_no_command_hangs_or_panics() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("c.toml"), CONFIG).unwrap();
    let flowlane = assert_cmd::cargo::cargo_bin!("flowlane");
    let limits = [
        ("-n", [4, 8, 9, 10, 11, 12, 14, 20].as_slice()),
        ("-v", &[80_000, 150_000, 400_000]),
        ("-s", &[64, 256, 1024]),
    ];
    let mut named = 0;
    for (option, values) in limits {
        for value in values {
            let command = format!(
                "ulimit {option} {value}; exec timeout 20 {} switch run c.toml --duration 0.2 --socket c.sock",
                flowlane.display()
            );
            let output =
                Command::new("bash").args(["-c", &command]).current_dir(folder.path()).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => {}
                Some(3) => {
                    assert!(message.contains(&format!("`ulimit {option}`")), "{option} {value}: {message}");
                    named += 1;
                }
                other => panic!("{option} {value}: {other:?} {message}"),
            }
            assert!(!folder.path().join("c.sock").exists(), "{option} {value}");
        }
    }
    assert!(named >= 4, "{named}");
}

/// Memory that ports take, for rings and AF_XDP, is counted with that of the switch.
#[test]
fn small_limits_of_memory_end_no_switch_with_ports_by_a_signal() {
    let folder = tempdir().unwrap();
    let flowlane = assert_cmd::cargo::cargo_bin!("flowlane");
    let run = |command: &str| {
        Command::new("unshare").args(["-n", "bash", "-c", command]).current_dir(folder.path()).output()
    };
    const PORTS: &str = "ip link add v1 type veth peer name v2 && ip link set v1 up && ip link set v2 up";
    if !run(PORTS).is_ok_and(|output| output.status.success()) {
        println!("skipped: a network namespace, which needs root, unshare and ip");
        return;
    }
    for kind in ["afpacket", "afxdp"] {
        let port = |n: u8, interface: &str| {
            format!("[[port]]\nnumber = {n}\nname = \"{interface}\"\nopen = \"{kind}:{interface}\"\n")
        };
        let rules = "[[table]]\nnumber = 0\nrules = [\"in_port=1,actions=output:2\", \"in_port=2,actions=output:1\"]\n";
        fs::write(folder.path().join("c.toml"), [&port(1, "v1"), &port(2, "v2"), rules].concat()).unwrap();
        for kib in (50_000..=90_000).step_by(2_500) {
            let command = format!(
                "{PORTS}; ulimit -v {kib}; exec timeout 20 {} switch run c.toml --duration 0.01 --socket c.sock",
                flowlane.display()
            );
            let output = run(&command).unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(
                matches!(output.status.code(), Some(0 | 3)),
                "{kind}, {kib}: {:?} {message}",
                output.status
            );
        }
    }
}

#[test]
fn an_interface_is_not_missing_because_the_descriptors_are() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("c.toml"), CONFIG.replace("gen:udp,rate=1000", "afpacket:lo")).unwrap();
    let flowlane = assert_cmd::cargo::cargo_bin!("flowlane");
    let said = |files: u32| {
        let command = format!(
            "ulimit -n {files}; exec timeout 20 {} switch run c.toml --duration 0.1 --socket c.sock",
            flowlane.display()
        );
        let output = Command::new("bash").args(["-c", &command]).current_dir(folder.path()).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let messages: Vec<String> = (4..=8).map(said).collect();
    assert!(messages.iter().all(|message| !message.contains("no interface")), "{messages:?}");
    let at_port = |message: &&String| {
        message.contains("afpacket:lo`: cannot be opened") && message.contains("`ulimit -n`")
    };
    assert!(messages.iter().any(|message| at_port(&message)), "{messages:?}");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_of_writing() {
    let folder = tempdir().unwrap();
    let flowlane = assert_cmd::cargo::cargo_bin!("flowlane");
    let command = format!("ulimit -f 1; exec {} completions bash > out", flowlane.display());
    let output = Command::new("bash").args(["-c", &command]).current_dir(folder.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(message.contains("File too large") && message.contains("`ulimit -f`"), "{message}");
}
