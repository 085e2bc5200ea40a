//! Sessions and transfers through a router that translates, while another switch takes its place, or it is killed and starts again.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::super::Switch;
use super::super::interfaces::wait_until;
use super::super::router::{Hosts, hosts, spawn, start};
use super::{PYTHON, Running, has, running, sections};

/// The longest time without bytes: half of it is TCP's, which waits twice as long before each next attempt. A busy machine adds some.
const PAUSE_MAX: Duration = Duration::from_millis(2500);

/// The time between two numbers of iperf3.
const STEP: Duration = Duration::from_millis(100);

/// A session from inside to outside.
struct Session {
    ends: [Running; 2],
    folder: std::path::PathBuf,
}

impl Session {
    fn start(hosts: &Hosts, folder: &Path) -> Self {
        let script = folder.join("session.py");
        fs::write(&script, include_str!("session.py")).unwrap();
        let script = script.to_str().unwrap();
        let server = running(hosts, 1, PYTHON, &[script, "serve"]);
        wait_until("the server listens", || hosts.on(1, "ss -Hltn").contains(":7022 "));
        let file = |name| folder.join(name).to_str().unwrap().to_owned();
        let talk = [script, "talk", "203.0.113.7", &file("stop"), &file("result")];
        let session = Self { ends: [running(hosts, 0, PYTHON, &talk), server], folder: folder.to_owned() };
        session.wait_for_lines(5);
        session
    }

    /// Returns the lines that have been answered, and the longest time that one took.
    fn answered(&self) -> (u64, Duration) {
        let text = fs::read_to_string(self.folder.join("result")).unwrap_or_default();
        let mut numbers = text.split(' ').map(|word| word.parse().unwrap_or(0));
        let mut number = || numbers.next().unwrap_or(0);
        (number(), Duration::from_millis(number()))
    }

    fn wait_for_lines(&self, more: u64) {
        let before = self.answered().0;
        wait_until("lines are answered", || self.answered().0 >= before + more);
    }

    /// Ends the session; returns the longest time that a line took.
    fn end(mut self) -> Duration {
        self.wait_for_lines(5);
        fs::write(self.folder.join("stop"), "").unwrap();
        assert!(self.ends[0].0.wait().unwrap().success(), "the session has not been reset");
        self.answered().1
    }
}

/// The report of a transfer by iperf3.
struct Transfer {
    bytes: f64,
    /// The longest time without bytes.
    pause: Duration,
    resets: usize,
}

/// Transfers through the router for some seconds, with what `meanwhile` does.
fn transfer(hosts: &Hosts, seconds: u32, meanwhile: impl FnOnce()) -> Transfer {
    let _server = running(hosts, 1, "iperf3", &["-s"]);
    wait_until("iperf3 listens", || hosts.on(1, "ss -Hltn").contains(":5201 "));
    let mut client = Command::new("ip");
    let seconds = seconds.to_string();
    // The receiver counts, in steps; no faster than a small machine can.
    client.args([
        "netns",
        "exec",
        &hosts.names[0],
        "iperf3",
        "-c",
        "203.0.113.7",
        "-R",
        "-P",
        "2",
        "-b",
        "40M",
    ]);
    client.args(["-t", &seconds, "-i", "0.1", "-J"]);
    let client = client.stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1000));
    meanwhile();
    let output = client.wait_with_output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = report["error"].as_str();
    let steps = report["intervals"].as_array().map_or(&[][..], Vec::as_slice);
    let (mut longest, mut now, mut bytes) = (0, 0, 0.0);
    for step in steps {
        let came = step["sum"]["bytes"].as_f64().unwrap();
        now = if came == 0.0 { now + 1 } else { 0 };
        (longest, bytes) = (longest.max(now), bytes + came);
    }
    let all_ended = output.status.success() && error.is_none();
    Transfer { bytes, pause: STEP * longest, resets: usize::from(!all_ended) }
}

/// A router that keeps its state, with a session and transfers through it.
fn with_router(test: char, seconds: u32, change: impl FnOnce(&Path, &mut Switch)) {
    let Some(hosts) = hosts(test) else { return };
    if !has(&["iperf3", PYTHON]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let config = sections("\"outgoing\"", "[state]\nfile = \"state\"\n");
    let mut switch = start(folder.path(), &hosts, None, &config);
    hosts.expect(0, "ping -c 1 -W 5 203.0.113.7", "1 received");
    let session = Session::start(&hosts, folder.path());
    let done = transfer(&hosts, seconds, || change(folder.path(), &mut switch));
    let answer = session.end();
    println!(
        "{:.0} MB, the longest pause was {} to {} ms; the slowest line of a session took {} ms",
        done.bytes / 1e6,
        done.pause.as_millis(),
        (done.pause + 2 * STEP).as_millis(),
        answer.as_millis()
    );
    assert!(done.resets == 0 && done.bytes > 1e6, "{} transfers have ended early", done.resets);
    assert!(done.pause < PAUSE_MAX && answer < PAUSE_MAX, "{:?}, {answer:?}", done.pause);
    switch.stop();
}

#[test]
fn transfers_go_on_when_a_switch_takes_the_place_of_another() {
    with_router('i', 5, |folder, switch| {
        for _ in 0..2 {
            let next = spawn(folder, None, &["--take-over"]);
            let ended = switch.0.take().unwrap().wait_with_output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            *switch = next;
            std::thread::sleep(Duration::from_millis(500));
        }
    });
}

#[test]
fn transfers_go_on_after_a_kill() {
    with_router('j', 5, |folder, switch| {
        let state = folder.join("state");
        // Three transfers, and the session, with two ends each.
        wait_until("the connections are saved", || fs::metadata(&state).is_ok_and(|file| file.len() > 500));
        switch.kill();
        *switch = spawn(folder, None, &[]);
    });
}
