//! Tests of outputs that take nothing: closed pipes, full disks, closed standard error, paths of every kind.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::pipe;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::tempdir;

use crate::support::run;

const CONFIG: &str =
    "[[port]]\nnumber = 1\nopen = \"null\"\n[[table]]\nnumber = 0\nrules = [\"actions=drop\"]\n";

/// Commands that write to standard output.
const COMMANDS: [&str; 24] = [
    "--help",
    "--version",
    "switch --help",
    "help route",
    "switch check c.toml",
    "switch run c.toml --duration 0.1",
    "switch run c.toml --duration 0.1 --json",
    "switch schema",
    "rules show r.flows",
    "rules show r.flows --json",
    "rules convert r.flows --to flows",
    "rules convert r.flows --to flows --output -",
    "classify --rules r.flows --trace t.pcap",
    "classify --rules r.flows --trace t.pcap --json",
    "route show --routes routes",
    "route lookup --routes routes 10.0.0.1",
    "route bench --routes routes --json",
    "generate rules --profile acl --count 10",
    "completions bash",
    "cpu",
    "cpu --json",
    "tune --show",
    "sim config paper",
    "selftest --seconds 0 --size 8",
];

fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
    command.current_dir(folder).args(arguments.split_whitespace()).env("FLOWLANE_TUNE", "/dev/null");
    command
}

fn inputs(folder: &Path) {
    fs::write(folder.join("c.toml"), CONFIG).unwrap();
    fs::write(folder.join("r.flows"), "priority=1,ip,actions=drop\n").unwrap();
    fs::write(folder.join("routes"), "10.0.0.0/8 1\n").unwrap();
    run(folder, "generate pcap --rules r.flows --count 100 --output t.pcap", 0);
}

/// A pipe without a reader.
fn closed() -> Stdio {
    pipe().unwrap().1.into()
}

fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

#[track_caller]
fn check(arguments: &str, output: &Output, codes: &[i32], says: &str) {
    let message = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(code.is_some_and(|code| codes.contains(&code)), "{arguments}: {code:?}\n{message}");
    assert!(message.contains(says) && !message.contains("panicked"), "{arguments}: {message}");
}

#[test]
fn every_command_reports_a_full_disk_and_is_quiet_about_a_closed_pipe() {
    let folder = tempdir().unwrap();
    inputs(folder.path());
    for arguments in COMMANDS {
        let to = |out: Stdio| command(folder.path(), arguments).stdout(out).output().unwrap();
        check(arguments, &to(full()), &[3], "standard output cannot be written: No space left");
        let quiet = to(closed());
        check(arguments, &quiet, &[0], "");
        assert!(!String::from_utf8_lossy(&quiet.stderr).contains("cannot be written"), "{arguments}");
    }
}

#[test]
fn every_command_goes_on_without_standard_error() {
    let folder = tempdir().unwrap();
    inputs(folder.path());
    let faulty =
        ["switch check none.toml", "rules show", "dance", "classify --rules r.flows --trace none.pcap"];
    for (arguments, code) in COMMANDS.map(|command| (command, 0)).into_iter().chain(faulty.map(|f| (f, 2))) {
        for stderr in [closed, full] {
            let output = command(folder.path(), arguments).stderr(stderr()).output().unwrap();
            check(arguments, &output, &[code], "");
        }
        // Neither is there.
        let output = command(folder.path(), arguments).stdout(full()).stderr(closed()).output().unwrap();
        check(arguments, &output, &[if code == 0 { 3 } else { code }], "");
    }
}

#[test]
fn an_output_file_that_cannot_be_written_is_named() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    inputs(at);
    fs::create_dir(at.join("folder")).unwrap();
    for arguments in [
        "rules convert r.flows --to flows --output",
        "generate rules --profile acl --count 10 --output",
        "generate pcap --rules r.flows --count 10 --output",
        "classify --rules r.flows --trace t.pcap --output",
        "classify --rules r.flows --trace t.pcap --output v.csv --hits",
        "route lookup --routes routes 10.0.0.1 --output",
    ] {
        for (path, code) in [("/dev/full", 3), ("folder", 2), ("none/file", 2), ("r.flows/file", 2)] {
            let (_, message) = run(at, &format!("{arguments} {path}"), code);
            assert!(message.contains(&format!("{path} cannot be written")), "{arguments} {path}: {message}");
        }
    }
    let (_, message) = run(at, "man /dev/null/folder", 2);
    assert!(message.contains("cannot be written"), "{message}");
}

#[test]
fn the_kernel_selection_is_written_in_place_where_the_path_is_no_file() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    assert!(Command::new("mkfifo").arg(at.join("pipe")).status().unwrap().success());
    let path = at.join("pipe");
    let reading = std::thread::spawn({
        let path = path.clone();
        move || fs::read_to_string(path).unwrap()
    });
    run(at, "tune --quick --tune pipe", 0);
    assert!(reading.join().unwrap().contains("flowlane tune"));
    assert!(path.symlink_metadata().unwrap().file_type().is_fifo());
}

#[test]
fn a_switch_leaves_what_lies_at_the_path_of_its_socket() {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    let folder = tempdir().unwrap();
    let at = folder.path();
    inputs(at);
    fs::write(at.join("file"), "precious").unwrap();
    fs::create_dir(at.join("folder")).unwrap();
    std::os::unix::fs::symlink("file", at.join("link")).unwrap();
    std::os::unix::fs::symlink("none", at.join("dangling")).unwrap();
    std::os::unix::fs::symlink("/dev/null", at.join("device")).unwrap();
    assert!(Command::new("mkfifo").arg(at.join("pipe")).status().unwrap().success());
    let _stream = UnixListener::bind(at.join("stream")).unwrap();
    let _datagram = UnixDatagram::bind(at.join("datagram")).unwrap();
    for name in ["file", "folder", "link", "dangling", "device", "pipe", "stream", "datagram"] {
        let before = at.join(name).symlink_metadata().unwrap().file_type();
        let (_, message) = run(at, &format!("switch run c.toml --duration 1 --socket {name}"), 2);
        assert!(message.contains(&format!("{name} is ")) && message.contains("--socket"), "{message}");
        assert_eq!(at.join(name).symlink_metadata().unwrap().file_type(), before, "{name}");
    }
    assert_eq!(fs::read(at.join("file")).unwrap(), b"precious");
    for path in ["file/socket", "/proc/none/socket", &"long/".repeat(40)] {
        let (_, message) = run(at, &format!("switch run c.toml --duration 1 --socket {path}"), 3);
        assert!(message.contains("no control socket on"), "{message}");
    }
}

#[test]
fn a_capture_is_not_written_over_a_file_that_the_switch_reads() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    inputs(at);
    let config = |open: &str| {
        format!("[[port]]\nnumber = 1\nopen = \"{open}\"\n[[table]]\nnumber = 0\nrules_file = \"r.flows\"\n")
    };
    for open in ["pcap-out:o.toml", "pcap-out:r.flows", "pcap:t.pcap,out=./r.flows"] {
        let text = config(open);
        fs::write(at.join("o.toml"), &text).unwrap();
        let (_, message) = run(at, "switch run o.toml --duration 0.1", 2);
        assert!(message.contains("is a file that the switch reads"), "{message}");
        assert_eq!(fs::read_to_string(at.join("o.toml")).unwrap(), text);
        assert_eq!(fs::read_to_string(at.join("r.flows")).unwrap(), "priority=1,ip,actions=drop\n");
    }
    fs::write(at.join("o.toml"), config("pcap-out:later.flows")).unwrap();
    fs::write(at.join("later.flows"), "@0.1s add ip,actions=drop\n").unwrap();
    let (_, message) = run(at, "switch run o.toml --duration 0.1 --changes later.flows", 2);
    assert!(message.contains("is a file that the switch reads"), "{message}");
    assert_eq!(fs::read_to_string(at.join("later.flows")).unwrap(), "@0.1s add ip,actions=drop\n");
}
