//! The recipes of `docs/recipes`, word for word: each is run in a network namespace of its own, and prints the lines that it shows.
//!
//! A block `toml` or `python` that begins with `# NAME` is the file of this name. Blocks `sh` are executed one after the other by
//! one shell. A block `text` shows the lines that the commands before print: each is there, in this order, perhaps with others
//! between them; `…` is for any characters, and numbers of spaces do not count. Commands without such a block must succeed.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use tempfile::tempdir;

use crate::namespaces::{sh, skipped};

/// Printed by the script before the commands of each block.
const MARK: &str = "=== block";

/// The isolation of a recipe: its own interfaces, processes, namespaces by name and sockets in `/run`.
const ISOLATED: [&str; 8] =
    ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "sh"];

/// Commands, and the lines that they are to print.
#[derive(Default, Debug, PartialEq, Eq)]
struct Step {
    commands: String,
    shown: Vec<String>,
}

/// A recipe: its files and its steps.
#[derive(Default, Debug, PartialEq, Eq)]
struct Recipe {
    files: Vec<(String, String)>,
    steps: Vec<Step>,
}

impl Recipe {
    fn of(page: &str) -> Self {
        let mut recipe = Self::default();
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            let Some(kind) = line.strip_prefix("```") else { continue };
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let text = block.iter().map(|line| format!("{line}\n")).collect();
            match kind {
                "toml" | "python" => {
                    let name =
                        block.first().and_then(|first| first.strip_prefix("# ")).expect("a file's name");
                    recipe.files.push((name.to_owned(), text));
                }
                "sh" => recipe.steps.push(Step { commands: text, shown: Vec::new() }),
                "text" => {
                    let step = recipe.steps.last_mut().expect("commands come before their output");
                    step.shown.extend(block.iter().map(|line| (*line).to_owned()));
                }
                "mermaid" => {}
                other => panic!("a block of `{other}`, which is not run"),
            }
        }
        recipe
    }

    /// The script of all steps. A command fails the recipe where its output is not shown.
    fn script(&self) -> String {
        let mut script = "exec 2>&1\nmount -t tmpfs tmpfs /run\nip link set lo up\n".to_owned();
        for (number, step) in self.steps.iter().enumerate() {
            let strict = if step.shown.is_empty() { "-e" } else { "+e" };
            script += &format!("set +x\necho '{MARK}' {number}\nset {strict}\n{}", step.commands);
        }
        script + &format!("echo '{MARK}' {}\n", self.steps.len())
    }

    /// The first line that a step shows and the output lacks.
    fn missing(&self, output: &str) -> Option<String> {
        let mut of_steps = output.split(MARK).skip(1);
        for (number, step) in self.steps.iter().enumerate() {
            let mut lines = of_steps.next().unwrap_or_default().lines();
            for shown in step.shown.iter().filter(|line| line.trim() != "…") {
                if !lines.any(|line| matches(shown, line)) {
                    return Some(format!("step {number} does not print `{shown}`"));
                }
            }
        }
        (of_steps.count() != 1).then(|| "a command failed".to_owned())
    }

    fn uses(&self, word: &str) -> bool {
        self.steps.iter().any(|step| step.commands.contains(word))
    }
}

/// Returns whether a line is the one that a recipe shows.
fn matches(shown: &str, line: &str) -> bool {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, line) = (plain(shown), plain(line));
    let mut parts = shown.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// Held while a recipe runs: those at the same time would slow each other down, and lose pings.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn run(name: &str) {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes").join(name);
    let recipe = Recipe::of(&fs::read_to_string(page).unwrap());
    if !sh(&format!(
        "test $(id -u) = 0 && command -v ip && {} -ec 'mount -t tmpfs tmpfs /run; ip netns add try'",
        ISOLATED.join(" ")
    )) {
        return skipped("needs root, iproute2, unshare, and network namespaces");
    }
    let tools = ["ping", "iperf3", "python3", "tcpdump", "awk"];
    if let Some(tool) = tools.iter().find(|tool| recipe.uses(tool) && !sh(&format!("command -v {tool}"))) {
        return skipped(&format!("{name} needs {tool}"));
    }
    let device = "unshare --net ip link add vx type vxlan id 1 dstport 4789 remote 192.0.2.1";
    if recipe.uses("type vxlan") && !sh(device) {
        return skipped(&format!("{name} needs the kernel's VXLAN"));
    }
    let folder = tempdir().unwrap();
    recipe.files.iter().for_each(|(file, text)| fs::write(folder.path().join(file), text).unwrap());
    let binary = assert_cmd::cargo::cargo_bin!("flowlane");
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = Command::new("timeout")
        .args(["--signal=KILL", "120"])
        .args(ISOLATED)
        .args(["-c", &recipe.script()])
        .current_dir(folder.path())
        .env("PATH", path)
        .env("FLOWLANE_TUNE", "/dev/null")
        .env_remove("FLOWLANE_SOCKET")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let missing = recipe.missing(&text);
    assert!(missing.is_none(), "{name}: {}\n{text}", missing.unwrap());
    assert!(recipe.steps.iter().any(|step| !step.shown.is_empty()), "{name} shows no output");
    println!("{name} works");
}

#[test]
fn a_host_is_blocked_and_another_limited() {
    run("bridge.md");
}

#[test]
fn vlans_are_apart_and_a_trunk_carries_both() {
    run("vlans.md");
}

#[test]
fn a_router_joins_two_subnets() {
    run("router.md");
}

#[test]
fn a_gateway_translates_addresses_and_forwards_a_port() {
    run("nat-gateway.md");
}

#[test]
fn a_firewall_lets_replies_in_and_strangers_only_to_the_server() {
    run("firewall.md");
}

#[test]
fn vxlan_joins_two_switches_and_the_kernel() {
    run("vxlan.md");
}

#[test]
fn a_mirror_copies_to_a_file_and_a_port() {
    run("mirror.md");
}

#[test]
fn hosts_that_send_most_come_first() {
    run("top-talkers.md");
}

#[test]
fn every_page_is_run() {
    let tests = include_str!("recipes.rs");
    for page in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes")).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        assert!(name == "README.md" || tests.contains(&format!("run(\"{name}\")")), "{name} is not run");
    }
}

#[test]
fn shown_lines_are_compared_with_those_printed() {
    for (shown, line) in [
        ("3 received", "3 received"),
        ("| a | 7 |", "|  a  |   7 |"),
        ("3 received, …", "3 received, 0% packet loss, time 2003ms"),
        ("a … c … e", "a b c d e"),
        ("…", "anything"),
    ] {
        assert!(matches(shown, line), "{shown}: {line}");
    }
    for (shown, line) in [
        ("3 received", "13 received"),
        ("3 received", "3 received,"),
        ("a … c", "a b c d"),
        ("a … c … e", "a b e"),
    ] {
        assert!(!matches(shown, line), "{shown}: {line}");
    }
    let recipe =
        Recipe::of("```toml\n# a.toml\nb = 1\n```\n```sh\necho 1; echo 2\n```\n```text\n1\n2\n```\n");
    assert_eq!(recipe.files, [("a.toml".to_owned(), "# a.toml\nb = 1\n".to_owned())]);
    let printed = |lines: &str| format!("x\n{MARK} 0\n{lines}{MARK} 1\n");
    assert_eq!(recipe.missing(&printed("0\n1\n2\n3\n")), None);
    assert!(recipe.missing(&printed("2\n1\n")).unwrap().contains("`2`"));
    assert!(recipe.missing("x\n=== block 0\n1\n2\n").unwrap().contains("failed"));
}
