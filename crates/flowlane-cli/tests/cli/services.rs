//! The switch and the daemon as services of the system: the service manager's protocol, its log, and files after a kill.
#![cfg(target_os = "linux")]

mod units;

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::{TempDir, tempdir};

use crate::support::wait_until;

const CONFIG: &str = r#"
[switch]
workers = 2
adds_ports = true
[[port]]
number = 1
name = "in"
open = "gen:udp,rate=1000"
[[port]]
number = 2
name = "out"
open = "null"
[[table]]
number = 0
rules = ["priority=1,udp,actions=output:out", "priority=2,tcp,actions=drop"]
"#;

/// A process that is killed when dropped, and the socket by which it reports to this test.
struct Supervised {
    folder: TempDir,
    manager: UnixDatagram,
    child: Child,
}

impl Drop for Supervised {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
    command.current_dir(folder).args(arguments.split_whitespace()).env("FLOWLANE_TUNE", "/dev/null");
    for name in ["WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM", "RUNTIME_DIRECTORY"] {
        command.env_remove(name);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

const RUN: &str = "switch run switch.toml --socket control.sock";

impl Supervised {
    /// Starts a process with a socket of this path.
    fn start(config: &str, arguments: &str, watchdog: Option<Duration>) -> Self {
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("switch.toml"), config).unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let mut command = command(folder.path(), arguments);
        command.env("NOTIFY_SOCKET", &path).env("OVS_RUNDIR", folder.path());
        watchdog.iter().for_each(|every| _ = command.env("WATCHDOG_USEC", every.as_micros().to_string()));
        let child = command.spawn().unwrap();
        Self { folder, manager, child }
    }

    fn at(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the next message within a time.
    fn next_within(&self, time: Duration) -> Option<String> {
        self.manager.set_read_timeout(Some(time)).unwrap();
        let mut bytes = [0; 4096];
        let len = self.manager.recv(&mut bytes).ok()?;
        Some(String::from_utf8(bytes[..len].to_vec()).unwrap())
    }

    /// Returns the next message that is neither a sign of life nor a status line.
    #[track_caller]
    fn next(&self) -> String {
        loop {
            let message = self.next_within(Duration::from_secs(30)).expect("a message comes");
            if message != "WATCHDOG=1" && !message.starts_with("STATUS=") {
                return message;
            }
        }
    }

    /// Waits for a message.
    #[track_caller]
    fn wait_for(&self, wanted: &str) {
        let begun = Instant::now();
        while self.next_within(Duration::from_secs(30)).as_deref() != Some(wanted) {
            assert!(begun.elapsed() < Duration::from_secs(60), "no {wanted}");
        }
    }

    fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &process]).status().unwrap().success());
    }

    fn wait_for_end(&mut self) -> Option<i32> {
        let mut ended = None;
        wait_until("it ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap().code()
    }

    #[track_caller]
    fn switch(&self, verb: &str, code: i32) {
        let status = command(self.at(), &format!("switch {verb} --socket control.sock")).status();
        assert_eq!(status.unwrap().code(), Some(code), "switch {verb}");
    }
}

#[test]
fn a_switch_is_ready_when_it_can_be_asked_and_says_how_it_goes_on() {
    let mut switch = Supervised::start(CONFIG, RUN, None);
    assert_eq!(switch.next(), "READY=1");
    // Ports are open, rules are in force, and the control socket listens.
    switch.switch("flows", 0);
    switch.wait_for("STATUS=2 ports, 2 rules, 2 workers");
    let is_reloaded = |message: String| {
        let micros = message.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
        micros.is_some_and(|micros| micros.parse::<u64>().is_ok_and(|micros| micros > 0))
    };
    let more = CONFIG.replace("rules = [", "rules = [\"priority=3,arp,actions=drop\", ");
    fs::write(switch.at().join("switch.toml"), more).unwrap();
    switch.signal("-HUP");
    assert!(is_reloaded(switch.next()));
    assert_eq!(switch.next(), "READY=1");
    switch.wait_for("STATUS=2 ports, 3 rules, 2 workers");
    switch.switch("reload", 0);
    assert!(is_reloaded(switch.next()));
    assert_eq!(switch.next(), "READY=1");
    // A reload that is rejected ends, too.
    fs::write(switch.at().join("switch.toml"), "[[table]]\nnumber = 0\nrules = [\"nonsense\"]\n").unwrap();
    switch.switch("reload", 2);
    assert!(is_reloaded(switch.next()));
    assert_eq!(switch.next(), "READY=1");
    switch.signal("-TERM");
    assert_eq!(switch.next(), "STOPPING=1");
    assert_eq!(switch.wait_for_end(), Some(0));
}

#[test]
fn signs_of_life_come_while_workers_go_on_and_stop_when_one_is_stuck() {
    const WATCHDOG: Duration = Duration::from_millis(400);
    let folder = tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // A capture that is a pipe: reading it holds the worker until packets come.
    let config = format!(
        "[[port]]\nnumber = 1\nopen = \"pcap:{}\"\n[[port]]\nnumber = 2\nopen = \"gen:udp,rate=1000\"\n\
         [[table]]\nnumber = 0\nrules = [\"actions=drop\"]\n",
        pipe.display()
    );
    let switch = Supervised::start(CONFIG, RUN, Some(WATCHDOG));
    switch.wait_for("READY=1");
    let begun = Instant::now();
    for _ in 0..5 {
        switch.wait_for("WATCHDOG=1");
    }
    let least = 4 * WATCHDOG / 2;
    assert!(begun.elapsed() >= least / 2, "five in {:?}", begun.elapsed());
    drop(switch);
    let capture = fs::read(crate::support::examples().join("quickstart.pcap")).unwrap();
    let writer = std::thread::spawn(move || {
        let mut pipe = fs::File::options().write(true).open(pipe).unwrap();
        // The header, and a part of the first packet.
        std::io::Write::write_all(&mut pipe, &capture[..30]).unwrap();
        pipe
    });
    let stuck = Supervised::start(&config, RUN, Some(WATCHDOG));
    let pipe = writer.join().unwrap();
    let mut signs = 0;
    while let Some(message) = stuck.next_within(4 * WATCHDOG) {
        signs += usize::from(message == "WATCHDOG=1");
        assert!(signs < 3, "a stuck worker gives no signs of life");
    }
    drop(pipe);
    stuck.wait_for("WATCHDOG=1");
}

#[test]
fn the_socket_may_have_a_name_of_the_abstract_namespace() {
    let name = format!("flowlane-test-{}", std::process::id());
    let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("switch.toml"), CONFIG).unwrap();
    let mut command = command(folder.path(), RUN);
    let mut child = command.env("NOTIFY_SOCKET", format!("@{name}")).spawn().unwrap();
    let mut bytes = [0; 64];
    let len = manager.recv(&mut bytes);
    _ = child.kill();
    _ = child.wait();
    assert_eq!(&bytes[..len.unwrap()], b"READY=1");
}

#[test]
fn lines_for_the_journal_have_a_severity() {
    let folder = tempdir().unwrap();
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let stream = format!("{}:{}", log.metadata().unwrap().st_dev(), log.metadata().unwrap().st_ino());
    let lines = |stream: &str, arguments: &str| {
        let log = fs::File::create(folder.path().join("log")).unwrap();
        _ = command(folder.path(), arguments).env("JOURNAL_STREAM", stream).stderr(log).status().unwrap();
        fs::read_to_string(folder.path().join("log")).unwrap()
    };
    fs::write(folder.path().join("switch.toml"), CONFIG).unwrap();
    let run = format!("{RUN} --duration 0.2");
    let text = lines(&stream, &run);
    assert!(text.starts_with("<6>flowlane: control socket"), "{text}");
    fs::write(folder.path().join("switch.toml"), "[[table]]\nnumber = 0\nrules = [\"nonsense\"]\n").unwrap();
    let text = lines(&stream, &run);
    assert!(text.lines().count() > 2 && text.lines().all(|line| line.starts_with("<3>")), "{text}");
    // Standard error is another file than the journal's.
    assert!(!lines("1:2", &run).contains("<3>"));
}

#[test]
fn messages_that_repeat_are_limited() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("switch.toml"), CONFIG).unwrap();
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let child = command(folder.path(), RUN).stderr(log).spawn().unwrap();
    let manager = UnixDatagram::unbound().unwrap();
    let mut switch = Supervised { folder, manager, child };
    let text = || fs::read_to_string(switch.at().join("log")).unwrap();
    wait_until("it runs", || text().contains("control socket"));
    let failures = || text().matches("reload failed").count();
    fs::write(switch.at().join("switch.toml"), "[[table]]\nnumber = 0\nrules = [\"nonsense\"]\n").unwrap();
    for failure in 1..=10 {
        switch.signal("-HUP");
        wait_until("it is reported", || failures() >= failure);
    }
    for _ in 0..3 {
        switch.signal("-HUP");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(failures(), 10);
    switch.signal("-TERM");
    assert_eq!(switch.wait_for_end(), Some(0));
    let text = fs::read_to_string(switch.at().join("log")).unwrap();
    assert!(text.contains("more in ") && text.contains(" s like: flowlane: reload failed"), "{text}");
}

#[test]
fn the_next_switch_takes_over_the_files_of_one_that_was_killed() {
    let mut killed = Supervised::start(CONFIG, RUN, None);
    killed.wait_for("READY=1");
    killed.signal("-KILL");
    assert_eq!(killed.wait_for_end(), None);
    let socket = killed.at().join("control.sock");
    assert!(socket.exists() && UnixStream::connect(&socket).is_err(), "it is left, and dead");
    let mut command = command(killed.at(), RUN);
    killed.child = command.env("NOTIFY_SOCKET", killed.at().join("notify")).spawn().unwrap();
    killed.wait_for("READY=1");
    killed.switch("flows", 0);
    killed.signal("-TERM");
    assert_eq!(killed.wait_for_end(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn the_next_daemon_takes_over_the_files_of_one_that_was_killed() {
    const DAEMON: &str = "vswitchd --pidfile --unixctl=daemon.ctl";
    let mut killed = Supervised::start("", DAEMON, Some(Duration::from_millis(200)));
    let pid_file = killed.at().join("ovs-vswitchd.pid");
    let has_pid_file =
        |child: &Child| fs::read_to_string(&pid_file).is_ok_and(|text| text.trim() == child.id().to_string());
    wait_until("it runs", || has_pid_file(&killed.child));
    // Without its database it is not ready, but alive.
    killed.wait_for("STATUS=waiting for the database");
    killed.wait_for("WATCHDOG=1");
    killed.signal("-KILL");
    assert_eq!(killed.wait_for_end(), None);
    let socket = killed.at().join("daemon.ctl");
    assert!(pid_file.exists() && socket.exists());
    let mut command = command(killed.at(), DAEMON);
    killed.child = command
        .env("NOTIFY_SOCKET", killed.at().join("notify"))
        .env("OVS_RUNDIR", killed.at())
        .spawn()
        .unwrap();
    wait_until("the next one runs", || has_pid_file(&killed.child));
    wait_until("it answers", || UnixStream::connect(&socket).is_ok());
    killed.signal("-TERM");
    assert_eq!(killed.next(), "STOPPING=1");
    assert_eq!(killed.wait_for_end(), Some(0));
    assert!(!pid_file.exists() && !socket.exists());
}
