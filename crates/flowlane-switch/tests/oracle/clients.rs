//! Every subcommand of `ovs-ofctl` against this switch and against Open vSwitch: what it prints and how it exits is
//! compared line by line.
//!
//! The commands are in `clients.txt`. A line has the versions of OpenFlow, a colon, and the arguments, with `BR` for the
//! switch; lines with `<` in front are what the command reads as `-`. Arguments with spaces have `'` around them. `begin` starts
//! a command in the background, by which `send` sends a message, and which `end` ends: its output is compared then. Each version
//! begins with a new switch.
//! A line with `?` names the difference that a command shows, in which versions if not in all: [`differences`] lists them, with the
//! reasons. A command that no longer shows its difference fails.

mod agent;
mod differences;
mod text;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use flowlane_openflow::Version;

use super::ovs::{Control, Ovs, OvsPrograms};
use agent::with_agent;
use differences::DIFFERENCES;

/// How long messages that nothing has asked for may take.
const UNASKED: Duration = Duration::from_millis(150);

/// Commands that give both switches the same settings; those of [`Ovs`], which already has them, may fail.
const SETUP: [&str; 2] = [
    "set-frags BR nx-match",
    "add-tlv-map BR '{class=0xffff,type=0,len=4}->tun_metadata0,{class=0xffff,type=1,len=16}->tun_metadata6'",
];

/// A line of the script.
struct Step {
    line: usize,
    versions: Vec<Version>,
    command: String,
    input: String,
    /// The known difference that the command shows, and the versions in which it does.
    known: Option<(Vec<Version>, String)>,
}

/// The versions that a text names.
fn versions(text: &str) -> Vec<Version> {
    let is_named = |version: &Version| text == "all" || text.contains(number(*version));
    Version::ALL.into_iter().filter(is_named).collect()
}

fn script() -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (line, text) in (1..).zip(include_str!("clients.txt").lines()) {
        if let Some(input) = text.strip_prefix('<') {
            let step = steps.last_mut().expect("a command is before its input");
            writeln!(step.input, "{}", input.trim()).expect("text takes text");
        } else if let Some(known) = text.strip_prefix("? ") {
            let step = steps.last_mut().expect("a command is before its difference");
            let (of, name) = known.split_once(' ').unwrap_or(("all", known));
            step.known = Some((versions(of), name.to_owned()));
        } else if !text.is_empty() && !text.starts_with('#') {
            let (of, command) = text.split_once(": ").unwrap_or_else(|| panic!("line {line}: no version"));
            let (versions, command, input) = (versions(of), command.to_owned(), String::new());
            steps.push(Step { line, versions, command, input, known: None });
        }
    }
    steps
}

fn number(version: Version) -> &'static str {
    match version {
        Version::OpenFlow10 => "10",
        Version::OpenFlow13 => "13",
        Version::OpenFlow14 => "14",
        Version::OpenFlow15 => "15",
    }
}

/// The arguments of a command.
fn arguments(command: &str, switch: &str) -> Vec<String> {
    let mut out = Vec::new();
    // Every second part is within quotes.
    for (place, part) in command.split('\'').enumerate() {
        match place % 2 {
            0 => out.extend(part.split_whitespace().map(|word| word.replace("BR", switch))),
            _ => out.push(part.to_owned()),
        }
    }
    out
}

/// A switch, and a folder for what programs in the background write.
struct Target<'a> {
    programs: &'a OvsPrograms,
    switch: String,
    folder: &'a Path,
}

impl Target<'_> {
    /// Runs a command, and returns what it prints and how it exits.
    fn run(&self, version: Version, step: &Step) -> String {
        match step.command.split_once(' ') {
            Some(("begin", command)) => self.begin(version, command),
            Some(("send", message)) => self.send(message),
            _ if step.command == "end" => self.end(),
            _ => self.ofctl(version, &step.command, &step.input),
        }
    }

    fn ofctl(&self, version: Version, command: &str, input: &str) -> String {
        let offered = format!("-OOpenFlow{}", number(version));
        let arguments = arguments(command, &self.switch);
        let options = [offered.as_str(), "--timeout=20"];
        let all: Vec<&str> = options.into_iter().chain(arguments.iter().map(String::as_str)).collect();
        let output = self.programs.output("ovs-ofctl", self.folder, &all, input).expect("it runs");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        format!("{}{}exit {:?}\n", text(&output.stdout), text(&output.stderr), output.status.code())
    }

    /// Starts a command in the background, which writes to a file.
    fn begin(&self, version: Version, command: &str) -> String {
        let at = |name: &str| self.folder.join(name).display().to_string();
        let mut run = self.programs.command("ovs-ofctl", self.folder);
        run.arg(format!("-OOpenFlow{}", number(version))).args(["--detach", "--no-chdir"]);
        run.args([format!("--pidfile={}", at("pid")), format!("--unixctl={}", at("control"))]);
        run.args(arguments(command, &self.switch));
        let file = File::create(self.folder.join("output")).expect("the folder takes files");
        let status = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).status().expect("it runs");
        format!("exit {:?}\n", status.code())
    }

    /// Sends a message, in hexadecimal digits, by the command in the background, whose output then has the answer.
    fn send(&self, message: &str) -> String {
        let mut control = Control::connect(&self.folder.join("control"));
        control.call("ofctl/send", &[message.to_owned()]).expect("the program sends it");
        control.call("ofctl/barrier", &[]).expect("the switch answers")
    }

    fn end(&self) -> String {
        // What the switch sends unasked may come after the reply to a barrier.
        std::thread::sleep(UNASKED);
        let output = || std::fs::read_to_string(self.folder.join("output")).expect("it is text");
        let socket = self.folder.join("control");
        if !socket.exists() {
            // It has ended by itself, and says why.
            return output();
        }
        let mut control = Control::connect(&socket);
        control.call("ofctl/barrier", &[]).expect("the switch answers");
        let output = output();
        control.call("exit", &[]).expect("the program ends");
        // The next one is refused while this one has its file.
        let (begun, file) = (Instant::now(), self.folder.join("pid"));
        while file.exists() && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
        output
    }
}

/// Runs the steps of a version against a new switch, and returns what each prints.
fn outputs(target: &Target<'_>, version: Version, steps: &[&Step]) -> Vec<String> {
    SETUP.into_iter().for_each(|command| _ = target.ofctl(version, command, ""));
    steps.iter().map(|step| text::normal(&step.command, &target.switch, &target.run(version, step))).collect()
}

/// Returns the lines that a step prints of one switch only, if there are any.
fn difference(version: Version, step: &Step, outputs: [&str; 2]) -> Option<String> {
    let [flowlane, ovs] = outputs;
    (flowlane != ovs).then(|| {
        let Step { line, command, .. } = step;
        let mut out = format!("line {line}, {}: {command}\n", version.name());
        for (name, one, other) in [("flowlane", flowlane, ovs), ("openvswitch", ovs, flowlane)] {
            let only = one.lines().filter(|line| !other.lines().any(|other| other == *line));
            only.for_each(|line| writeln!(out, "  {name}: {line}").expect("text takes text"));
        }
        out
    })
}

#[test]
fn ovs_ofctl_prints_the_same_of_both_switches() {
    let Some(programs) = OvsPrograms::find() else { return };
    let script = script();
    let (mut compared, mut known, mut wrong) = (0, BTreeSet::new(), Vec::new());
    for version in Version::ALL {
        let steps: Vec<&Step> = script.iter().filter(|step| step.versions.contains(&version)).collect();
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
        let target = |socket: &Path, folder: usize| Target {
            programs: &programs,
            switch: format!("unix:{}", socket.display()),
            folder: folders[folder].path(),
        };
        let (ours, theirs) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| {
                let ovs = Ovs::start(&programs);
                outputs(&target(&ovs.socket(), 1), version, &steps)
            });
            let ours = with_agent(|socket| outputs(&target(socket, 0), version, &steps));
            (ours, theirs.join().expect("Open vSwitch answers"))
        });
        compared += steps.len();
        for (step, (ours, theirs)) in steps.iter().zip(ours.iter().zip(&theirs)) {
            let named = step.known.as_ref().filter(|(versions, _)| versions.contains(&version));
            match (named, difference(version, step, [ours, theirs])) {
                (Some((_, name)), Some(_)) => _ = known.insert(name.clone()),
                (None, Some(text)) => wrong.push(text),
                (Some((_, name)), None) => {
                    wrong.push(format!("line {}, {}: {name} is no difference\n", step.line, version.name()));
                }
                (None, None) => {}
            }
        }
    }
    println!("{compared} commands compared");
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.concat());
    let listed: BTreeSet<String> = DIFFERENCES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(known, listed, "the differences that the commands show are those that are listed");
}
