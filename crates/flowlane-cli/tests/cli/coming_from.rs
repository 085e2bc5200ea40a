//! The commands in `docs/coming-from.md`: each is run, in the order of the page, with the files that it shows.
#![cfg(unix)]

use std::fs;
use std::process::{Child, Command, Stdio};

use tempfile::tempdir;

use crate::namespaces::sh;
use crate::support::wait_until;

/// Commands that end only by themselves, or take minutes.
const LEFT_OUT: [&str; 3] = ["switch run", "--follow", "flowlane bench"];

fn page() -> String {
    fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/coming-from.md")).unwrap()
}

/// The files of a page: blocks whose first line names one.
fn files(page: &str) -> Vec<(&str, &str)> {
    let blocks = page.split("\n```").skip(1).step_by(2);
    blocks
        .filter_map(|block| {
            let (_, text) = block.split_once('\n')?;
            let name = text.lines().next()?.strip_prefix("# ")?;
            Some((name, text))
        })
        .collect()
}

/// Our commands in the last columns of tables.
fn commands(page: &str) -> Vec<&str> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit_once(" | ").map(|(_, cell)| cell));
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|code| code.starts_with("flowlane "))
        .collect()
}

/// A switch that is ended when dropped.
struct Switch(Child);

impl Drop for Switch {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn commands_beside_those_of_other_programs_work() {
    let page = page();
    let folder = tempdir().unwrap();
    let at = folder.path();
    for (name, text) in files(&page) {
        fs::write(at.join(name), text).unwrap();
    }
    let binary = assert_cmd::cargo::cargo_bin!("flowlane");
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let shell = |command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(at).env("PATH", &path);
        shell.env("FLOWLANE_TUNE", "/dev/null").env("FLOWLANE_SOCKET", at.join("control.sock"));
        shell
    };
    let is_root = sh("test $(id -u) = 0 && test -e /dev/net/tun && unshare --net true");
    // TAP interfaces are of its own network namespace.
    let isolated = if is_root { "unshare --net" } else { "" };
    let run = shell(&format!("exec {isolated} flowlane switch run switch.toml"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _switch = Switch(run.unwrap());
    wait_until("the switch answers", || at.join("control.sock").exists());
    let commands = commands(&page);
    assert!(commands.len() > 40, "{} commands were found", commands.len());
    let mut tried = 0;
    for command in commands {
        if LEFT_OUT.iter().any(|part| command.contains(part)) || command.contains("tap:") && !is_root {
            println!("not tried: {command}");
            continue;
        }
        let output = shell(command).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "`{command}`:\n{}\n{}", text(&output.stdout), text(&output.stderr));
        tried += 1;
    }
    println!("{tried} commands work");
}

/// Every command names options that exist, also those that are not run.
#[test]
fn no_command_of_the_page_is_unknown() {
    for command in commands(&page()) {
        let verb: Vec<&str> =
            command.split(' ').skip(1).take_while(|word| !word.starts_with('-')).take(2).collect();
        let output =
            crate::support::flowlane().args(&verb[..1]).args(verb.get(1)).arg("--help").output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{command}");
        for option in command.split(' ').filter(|word| word.starts_with("--")) {
            assert!(help.contains(option), "{command}: `{option}` is not in the help of {verb:?}");
        }
    }
}

#[test]
fn files_and_commands_are_found_on_a_page() {
    let page = "a\n\n```toml\n# a.toml\nb = 1\n```\n\n```sh\nls\n```\n\n| a | `flowlane x`, `y`, `flowlane z --w` |\n";
    assert_eq!(files(page), [("a.toml", "# a.toml\nb = 1")]);
    assert_eq!(commands(page), ["flowlane x", "flowlane z --w"]);
}
