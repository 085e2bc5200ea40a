//! The daemon as `ovs-ctl` and other scripts start it, with the options of `ovs-vswitchd`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use super::Host;
use crate::namespaces::{sh, skipped};
use crate::support::wait_until;

const SCRIPT: &str = "/usr/share/openvswitch/scripts/ovs-ctl";

/// The script, with the daemon in the place of Open vSwitch's. Ends both daemons.
struct Script<'a> {
    host: &'a Host,
    programs: PathBuf,
}

impl<'a> Script<'a> {
    fn new(host: &'a Host) -> Self {
        let programs = host.at().join("sbin");
        fs::create_dir(&programs).unwrap();
        let flowlane = assert_cmd::cargo::cargo_bin!("flowlane").display().to_string();
        let daemon = format!("#!/bin/sh\nexec {flowlane} vswitchd \"$@\"\n");
        // The daemon needs no module of the kernel.
        for (name, text) in [("ovs-vswitchd", daemon), ("modprobe", "#!/bin/sh\n".to_owned())] {
            let path = programs.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { host, programs }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut script = Command::new("ip");
        script.args(["netns", "exec", &self.host.namespace, SCRIPT]).args(arguments);
        self.host.programs.surround(&mut script, self.host.at());
        script.env("OVS_SBINDIR", &self.programs).env("FLOWLANE_TUNE", "/dev/null").output().unwrap()
    }

    fn start(&self) -> String {
        let started = self.run(&["--system-id=host-1", "--system-type=test", "--system-version=1", "start"]);
        assert!(started.status.success(), "{started:?}");
        String::from_utf8_lossy(&started.stdout).into_owned()
    }
}

impl Drop for Script<'_> {
    fn drop(&mut self) {
        self.run(&["stop"]);
    }
}

fn pid(file: &Path) -> u32 {
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// A line of a process's status.
fn status_of(pid: u32, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_matches([':', ' ', '\t']).to_owned()
}

fn lives(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn ovs_ctl_starts_watches_and_stops_the_daemon() {
    if !Path::new(SCRIPT).exists() {
        return skipped("needs ovs-ctl");
    }
    let Some(mut host) = Host::without_daemon("fvc") else { return };
    // The script starts the server, too.
    drop(host.server.take());
    fs::remove_file(host.socket()).unwrap();
    let script = Script::new(&host);
    let said = script.start();
    assert!(said.contains("Starting ovs-vswitchd"), "{said}");
    host.vsctl("add-br br0").unwrap();
    let version = host.vsctl("get Open_vSwitch . ovs_version").unwrap();
    assert_eq!(version, format!("\"{}\"", env!("CARGO_PKG_VERSION")));
    let status = script.run(&["status"]);
    assert!(status.status.success(), "{status:?}");
    let said = script.start();
    assert!(said.contains("ovs-vswitchd is already running"), "{said}");
    let levels = host.appctl(&["vlog/list"]).unwrap();
    assert!(levels.ends_with("EMER        ERR       INFO\n"), "{levels}");
    let file = host.at().join("ovs-vswitchd.pid");
    let first = pid(&file);
    assert_ne!(status_of(first, "VmLck"), "0 kB");
    let monitor: u32 = status_of(first, "PPid").parse().unwrap();
    // A crash.
    assert!(sh(&format!("kill -ABRT {first}")));
    wait_until("another daemon runs", || ![0, first].contains(&pid(&file)));
    wait_until("it has the bridge", || host.appctl(&["ofproto/list"]).is_ok_and(|list| list == "br0\n"));
    let log = fs::read_to_string(host.at().join("ovs-vswitchd.log")).unwrap();
    assert!(log.contains(&format!("the daemon (pid {first}) has ended (signal: 6")), "{log}");
    let second = pid(&file);
    let stopped = script.run(&["stop"]);
    assert!(stopped.status.success() && !lives(second), "{stopped:?}");
    wait_until("nothing watches any more", || !lives(monitor));
    assert!(!file.exists() && !script.run(&["status"]).status.success());
}

/// A daemon for the background, which is started in a folder of its own.
fn daemon(host: &Host, folder: &Path, arguments: &[&str]) -> Command {
    let mut daemon = Command::new("ip");
    daemon.args(["netns", "exec", &host.namespace]).arg(assert_cmd::cargo::cargo_bin!("flowlane"));
    daemon.args(["vswitchd", "--detach", "unix:db.sock"]).args(arguments).current_dir(folder);
    let syslog = format!("unix:{}", host.at().join("syslog").display());
    daemon.env("OVS_RUNDIR", host.at()).env("FLOWLANE_TUNE", "/dev/null").env("OVS_SYSLOG_METHOD", syslog);
    daemon
}

#[test]
fn files_are_found_as_open_vswitch_finds_them() {
    let Some(host) = Host::without_daemon("fve") else { return };
    let folder = host.at().join("work");
    fs::create_dir(&folder).unwrap();
    let syslog = UnixDatagram::bind(host.at().join("syslog")).unwrap();
    syslog.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let wrong = daemon(&host, &folder, &["-vfile:loud"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("no destination, level, or module \"loud\""));
    let options = ["--pidfile=own.pid", "--log-file=own.log", "--unixctl=own.ctl", "-vsyslog:info"];
    let started = daemon(&host, &folder, &options).output().unwrap();
    assert!(started.status.success(), "{started:?}");
    let file = host.at().join("own.pid");
    let first = pid(&file);
    let working = |pid| fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert_eq!(working(first), Path::new("/"));
    assert!(folder.join("own.log").exists());
    let mut line = [0; 500];
    let length = syslog.recv(&mut line).unwrap();
    let expected = format!("<30>ovs-vswitchd[{first}]: vswitchd|INFO|Flowlane ");
    assert!(line[..length].starts_with(expected.as_bytes()), "{}", String::from_utf8_lossy(&line));
    // Files stay where they were in the other folder.
    let appctl = |socket: &str, command: &str| {
        host.programs.run(
            "ovs-appctl",
            host.at(),
            &["-t", &host.at().join(socket).display().to_string(), command],
            "",
        )
    };
    fs::rename(folder.join("own.log"), folder.join("old.log")).unwrap();
    appctl("own.ctl", "vlog/reopen").unwrap();
    assert!(folder.join("own.log").exists());
    // Another daemon, which is asked to overwrite the file, and without that is refused.
    let refused = daemon(&host, &folder, &["--pidfile=own.pid"]).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another daemon runs"), "{refused:?}");
    let options = ["--pidfile=own.pid", "--overwrite-pidfile", "--no-chdir", "--unixctl=other.ctl"];
    let mut next = daemon(&host, &folder, &options).spawn().unwrap();
    wait_until("the file is the other's", || ![0, first].contains(&pid(&file)));
    let second = pid(&file);
    // It is ready when the first one has let go of the database's lock.
    appctl("own.ctl", "exit").unwrap();
    wait_until("the first one ends", || !lives(first));
    assert!(next.wait().unwrap().success());
    assert_eq!((pid(&file), working(second)), (second, folder.canonicalize().unwrap()));
    appctl("other.ctl", "exit").unwrap();
    wait_until("the second one ends", || !lives(second));
    assert!(!file.exists());
}

/// As with `ovs-vswitchd`, a level is joined to its option: the next word is the database.
#[test]
fn an_option_for_levels_without_one_leaves_the_database_alone() {
    for option in ["-v", "--verbose"] {
        let mut daemon = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
        let refused = daemon.args(["vswitchd", option, "nowhere:1"]).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && said.contains("nowhere:1") && said.contains("unix:PATH"),
            "{said}"
        );
    }
}
