//! The daemon reports to a service manager.

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Host, Process};

#[test]
fn a_daemon_is_ready_when_its_bridges_are_those_of_the_database() {
    let Some(mut host) = Host::without_daemon("fsv") else { return };
    host.vsctl("--no-wait add-br br0").unwrap();
    let path = host.at().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut daemon = Command::new("ip");
    daemon.args(["netns", "exec", &host.namespace]).arg(assert_cmd::cargo::cargo_bin!("flowlane"));
    daemon.args(["vswitchd", "--pidfile"]).env("OVS_RUNDIR", host.at()).env("FLOWLANE_TUNE", "/dev/null");
    daemon.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000").env_remove("WATCHDOG_PID");
    host.daemon = Some(Process(daemon.stdout(Stdio::null()).spawn().unwrap()));
    let wait_for = |wanted: &str| {
        let mut bytes = [0; 4096];
        loop {
            let len = socket.recv(&mut bytes).expect(wanted);
            if &bytes[..len] == wanted.as_bytes() {
                break;
            }
        }
    };
    wait_for("READY=1");
    assert!(host.ip("link show br0"));
    wait_for("STATUS=1 bridges, 1 ports, 1 rules, 1 workers");
    // The bridge's worker, its control and the daemon's own loop make progress.
    (0..3).for_each(|_| wait_for("WATCHDOG=1"));
    host.appctl(&["exit"]).unwrap();
    wait_for("STOPPING=1");
}
