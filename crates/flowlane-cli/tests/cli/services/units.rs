//! The unit files of the package.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::command;

fn packaging() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd")
}

const UNITS: [&str; 2] = ["flowlane-switch.service", "flowlane-vswitchd.service"];

/// The values of a key of a unit file, in order.
fn values(unit: &str, key: &str) -> Vec<String> {
    let text = fs::read_to_string(packaging().join(unit)).unwrap();
    let with_key = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    with_key.map(str::to_owned).collect()
}

#[test]
fn units_are_accepted_by_systemd() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        return println!("skipped: systemd-analyze is not installed (apt-get install systemd)");
    }
    for unit in UNITS {
        // The program need not be installed: this one's path is in its place.
        let folder = tempfile::tempdir().unwrap();
        let text = fs::read_to_string(packaging().join(unit)).unwrap();
        let program = assert_cmd::cargo::cargo_bin!("flowlane");
        let text = text.replace("/usr/bin/flowlane", program.to_str().unwrap());
        // The daemon's database is another package's, and may be missing here.
        let text = text.replace("Requires=ovsdb-server.service\n", "");
        let path = folder.path().join(unit);
        fs::write(&path, text).unwrap();
        let analyzed =
            Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output().unwrap();
        // Units of the machine may have mistakes of their own.
        let complaints = String::from_utf8_lossy(&analyzed.stderr);
        let own: Vec<&str> = complaints.lines().filter(|line| line.contains("flowlane")).collect();
        assert!(own.is_empty(), "{own:#?}");
    }
}

/// The commands of units are commands of this program, with files of the package.
#[test]
fn commands_of_units_are_understood() {
    let folder = tempfile::tempdir().unwrap();
    for unit in UNITS {
        let commands = [values(unit, "ExecStart"), values(unit, "ExecReload")].concat();
        for line in commands.iter().filter_map(|line| line.strip_prefix("/usr/bin/flowlane ")) {
            let output = command(folder.path(), &format!("{line} --help")).output().unwrap();
            assert!(output.status.success(), "{line}: {output:?}");
        }
        assert_eq!(values(unit, "Type"), ["notify"]);
        assert_eq!(values(unit, "NoNewPrivileges"), ["yes"]);
    }
    assert_eq!(values(UNITS[0], "User"), ["flowlane"]);
    // Ambient capabilities beyond the bounding set would be lost without a word.
    assert_eq!(values(UNITS[0], "AmbientCapabilities"), values(UNITS[0], "CapabilityBoundingSet"));
    assert!(fs::read_to_string(packaging().join("sysusers.conf")).unwrap().contains("\nu flowlane "));
}

#[test]
fn the_configuration_of_the_package_is_valid_and_needs_no_root() {
    let file = packaging().join("flowlane.toml");
    let checked = command(&packaging(), "switch check").arg(&file).status().unwrap();
    assert!(checked.success());
    // Its state lies elsewhere here.
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("/var/lib/flowlane", folder.path().to_str().unwrap());
    fs::write(folder.path().join("switch.toml"), &text).unwrap();
    let run = command(folder.path(), "switch run switch.toml --duration 0.2 --socket control.sock").status();
    assert_eq!(run.unwrap().code(), Some(0));
    // The ports in comments are keys that the program knows: their interfaces are missing, if anything.
    let all: String =
        text.lines().map(|line| line.strip_prefix("# ").unwrap_or(line).to_owned() + "\n").collect();
    let ports = all.find("[[port]]").unwrap();
    let table = &all[ports..];
    fs::write(folder.path().join("ports.toml"), table).unwrap();
    let checked = command(folder.path(), "switch check ports.toml").status().unwrap();
    assert!(checked.success(), "{table}");
}
