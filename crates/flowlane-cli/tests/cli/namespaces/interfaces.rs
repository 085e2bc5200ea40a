//! Interfaces that go away, come back and change while a switch runs: its port follows, and other ports lose nothing.

use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{ROLE, Switch, sh, skipped};
pub(super) use crate::support::wait_until;

/// The file whose existence ends the roles, and the one that they write their count to.
pub(super) const STOP: &str = "FLOWLANE_TEST_STOP";
pub(super) const COUNT: &str = "FLOWLANE_TEST_COUNT";

/// Pause between two datagrams in microseconds; 0 sends 1000 at once.
pub(super) const PAUSE: &str = "FLOWLANE_TEST_PAUSE";

const TO: &str = "10.78.0.3:7000";

/// Returns whether a role has to end: at the test's end, also if it has failed.
pub(super) fn is_over() -> bool {
    let stop = path(STOP);
    stop.exists() || !stop.parent().is_some_and(Path::exists)
}

pub(super) fn path(variable: &str) -> PathBuf {
    std::env::var_os(variable).expect("the test sets it").into()
}

/// Role: counts the datagrams that arrive, until some time after the end.
pub(super) fn count_datagrams() {
    let socket = UdpSocket::bind(TO).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    fs::write(path(COUNT), "0").unwrap();
    let mut came = 0u32;
    loop {
        match socket.recv(&mut [0; 64]) {
            Ok(_) => came += 1,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
                if is_over() {
                    break;
                }
            }
        }
    }
    // No folder is left after a test that failed.
    _ = fs::write(path(COUNT), came.to_string());
}

/// Role: sends datagrams until the end.
pub(super) fn send_datagrams() {
    let socket = UdpSocket::bind("10.78.0.1:0").unwrap();
    let pause = Duration::from_micros(std::env::var(PAUSE).unwrap().parse().unwrap());
    let mut sent = 0u32;
    while !is_over() && (pause > Duration::ZERO || sent < 1000) {
        sent += u32::from(socket.send_to(b"steady", TO).is_ok());
        if pause > Duration::ZERO {
            std::thread::sleep(pause);
        }
    }
    _ = fs::write(path(COUNT), sent.to_string());
}

/// A switch's namespace with the interfaces `s1` to `s3`, whose other ends are in namespaces of hosts 1 to 3. If interface 2
/// is a TAP, its host is the switch's namespace itself.
pub(super) struct Hosts {
    pub(super) name: String,
    queues: u32,
    is_tap: bool,
}

impl Hosts {
    pub(super) fn new(name: &str, queues: u32, is_tap: bool) -> Option<Self> {
        let name = format!("{name}{}", std::process::id() % 100_000);
        let hosts = Self { name, queues, is_tap };
        let made = ["s", "z", "1", "2", "3"].iter().all(|end| {
            let quiet = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && ip link set lo up";
            sh(&format!("ip netns add {0}{end} && ip netns exec {0}{end} sh -c '{quiet}'", hosts.name))
        });
        let linked = made && [1, 2, 3].iter().all(|&host| host == 2 && is_tap || hosts.link(host, ""));
        linked.then_some(hosts)
    }

    pub(super) fn ip(&self, namespace: &str, arguments: &str) -> bool {
        sh(&format!("ip -n {}{namespace} {arguments}", self.name))
    }

    /// Makes the interface of a host, with `more` in the command.
    fn link(&self, host: u32, more: &str) -> bool {
        let queues = format!("numrxqueues {0} numtxqueues {0}", self.queues);
        let peer = format!("peer name e0 netns {}{host} {queues}", self.name);
        sh(&format!("ip link add s{host} {more} netns {}s {queues} type veth {peer}", self.name))
            && self.ip(&host.to_string(), &format!("link set e0 address 02:00:00:00:00:0{host} up"))
            && self.ip("s", &format!("link set s{host} up"))
            && self.address(&host.to_string(), "e0", host)
    }

    /// Gives an interface its host's address, and the neighbours'.
    fn address(&self, namespace: &str, interface: &str, host: u32) -> bool {
        self.ip(namespace, &format!("addr replace 10.78.0.{host}/24 dev {interface}"))
            && (1..=3).filter(|&other| other != host).all(|other| {
                let neighbour = format!("10.78.0.{other} lladdr 02:00:00:00:00:0{other}");
                self.ip(namespace, &format!("neigh replace {neighbour} dev {interface} nud permanent"))
            })
    }

    /// Sets interface 2 up after it was made or moved.
    pub(super) fn set_up(&self) -> bool {
        match self.is_tap {
            true => {
                self.ip("s", "link set s2 address 02:00:00:00:00:02")
                    && self.ip("s", "link set s2 up")
                    && self.address("s", "s2", 2)
            }
            false => self.ip("s", "link set s2 up"),
        }
    }

    /// Makes interface 2 again.
    fn make_again(&self, more: &str) -> bool {
        match self.is_tap {
            true => self.ip("s", &format!("tuntap add s2 mode tap {more}")) && self.set_up(),
            false => self.link(2, more),
        }
    }

    fn index(&self) -> String {
        let command = format!("ip netns exec {}s cat /sys/class/net/s2/ifindex", self.name);
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(super) fn within(&self, host: u32, role: &str, variables: &[(&str, &Path)]) -> Child {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}{host}", self.name)]);
        command.arg(std::env::current_exe().unwrap()).args(["--exact", "namespaces::role"]).env(ROLE, role);
        variables.iter().for_each(|(name, value)| _ = command.env(name, value));
        command.stdout(Stdio::null()).spawn().unwrap()
    }

    /// Starts a switch with the rules of table 0.
    pub(super) fn start(&self, kind: &str, workers: usize, rules: &str, folder: &Path) -> Switch {
        let mut config = format!("[switch]\nworkers = {workers}\n");
        for host in 1..=3 {
            // The other ports of a TAP's switch are packet sockets.
            let kind = if kind == "tap" && host != 2 { "afpacket" } else { kind };
            config += &format!("[[port]]\nnumber = {host}\nopen = \"{kind}:s{host}\"\n");
        }
        config += &format!("[[table]]\nnumber = 0\nrules = [{rules}]\n");
        fs::write(folder.join("switch.toml"), config).unwrap();
        let mut switch = Command::new("ip");
        switch.args(["netns", "exec", &format!("{}s", self.name)]);
        switch.arg(assert_cmd::cargo::cargo_bin!("flowlane")).args(["switch", "run", "--json", "--socket"]);
        switch.arg(folder.join("control.sock")).arg(folder.join("switch.toml"));
        let switch = Switch(Some(switch.stdout(Stdio::piped()).spawn().unwrap()));
        wait_until("the switch runs", || folder.join("control.sock").exists());
        switch
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        ["1", "2", "3", "z", "s"].iter().for_each(|end| _ = sh(&format!("ip netns del {}{end}", self.name)));
    }
}

fn pause_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// The events of an interface.
const EVENTS: [&str; 9] = [
    "nothing",
    "down and up",
    "down and up 20 times a second",
    "MTU",
    "renamed",
    "moved to another namespace",
    "deleted",
    "made again with the same index",
    "made again with fewer queues",
];

fn event(hosts: &mut Hosts, what: &str) -> bool {
    let set = |arguments: &str| hosts.ip("s", &format!("link set {arguments}"));
    match what {
        "down and up" => {
            let down = set("s2 down");
            pause_ms(200);
            down && set("s2 up") && hosts.set_up()
        }
        "down and up 20 times a second" => {
            let flapped = (0..20).all(|_| {
                let down = set("s2 down");
                pause_ms(20);
                let up = set("s2 up");
                pause_ms(20);
                down && up
            });
            flapped && hosts.set_up()
        }
        "MTU" => [1300, 1500].iter().all(|mtu| set(&format!("s2 mtu {mtu}"))),
        "renamed" => {
            let renamed = set("s2 down") && set("s2 name other") && set("other up");
            pause_ms(400);
            renamed && set("other down") && set("other name s2") && hosts.set_up()
        }
        "moved to another namespace" => {
            let moved = set(&format!("s2 netns {}z", hosts.name));
            pause_ms(300);
            moved && hosts.ip("z", &format!("link set s2 netns {}s", hosts.name)) && hosts.set_up()
        }
        "deleted" => {
            let deleted = hosts.ip("s", "link delete s2");
            pause_ms(300);
            deleted && hosts.make_again("")
        }
        "made again with the same index" => {
            // The index of a TAP cannot be chosen.
            let more = if hosts.is_tap { String::new() } else { format!("index {}", hosts.index()) };
            hosts.ip("s", "link delete s2") && hosts.make_again(&more)
        }
        "made again with fewer queues" => {
            hosts.queues = 1;
            hosts.ip("s", "link delete s2") && hosts.make_again("")
        }
        _ => true,
    }
}

fn interface_comes_and_goes(kind: &str, workers: usize, queues: u32) {
    if !sh("test $(id -u) = 0 && command -v ip && command -v ping") {
        skipped("needs root, ip and ping");
        return;
    }
    let of = format!("fi{}{workers}{queues}x", &kind[2..3]);
    let Some(mut hosts) = Hosts::new(&of, queues, kind == "tap") else {
        skipped("network namespaces cannot be made here");
        return;
    };
    let case = format!("{kind}, {workers} workers, {queues} queues");
    let folder = tempfile::tempdir().unwrap();
    let [stop, sent, came] = ["stop", "sent", "came"].map(|name| folder.path().join(name));
    let mut switch = hosts.start(kind, workers, "\"actions=normal\"", folder.path());
    assert!(hosts.set_up(), "{case}");
    let mut receiver = hosts.within(3, "count", &[(STOP, &stop), (COUNT, &came)]);
    wait_until("the receiver runs", || came.exists());
    let pause = Path::new("5000");
    let mut sender = hosts.within(1, "datagrams", &[(STOP, &stop), (COUNT, &sent), (PAUSE, pause)]);
    let socket = folder.path().join("control.sock");
    for what in EVENTS {
        assert!(event(&mut hosts, what), "{case}: {what}: cannot be done");
        let ping = format!("ip netns exec {}1 ping -c 1 -W 1 10.78.0.2", hosts.name);
        wait_until(&format!("{case}: {what}: the port is there again"), || sh(&ping));
        if kind != "tap" {
            // A switch gets frames for any address.
            let promiscuity = format!("ip -n {}s -d link show s2 | grep -q 'promiscuity [1-9]'", hosts.name);
            assert!(sh(&promiscuity), "{case}: {what}: not promiscuous");
        }
        let begun = Instant::now();
        let mut show = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
        let shown = show.args(["switch", "show", "--json", "--socket"]).arg(&socket).output().unwrap();
        assert!(shown.status.success(), "{case}: {what}: {}", String::from_utf8_lossy(&shown.stderr));
        assert!(begun.elapsed() < Duration::from_secs(1), "{case}: {what}: {:?}", begun.elapsed());
    }
    fs::write(&stop, "").unwrap();
    super::wait_for(&mut sender, "the sender");
    super::wait_for(&mut receiver, "the receiver");
    let count = |file| fs::read_to_string(file).unwrap().parse::<u32>().unwrap();
    let (sent, came) = (count(&sent), count(&came));
    switch.stop();
    assert_eq!(came, sent, "{case}: the other ports lost datagrams");
    println!("{case}: {} events, {sent} datagrams through other ports", EVENTS.len());
}

#[test]
fn afpacket_follows_its_interface_and_other_ports_lose_nothing() {
    interface_comes_and_goes("afpacket", 1, 1);
    interface_comes_and_goes("afpacket", 2, 1);
}

#[test]
fn tap_follows_its_interface_and_other_ports_lose_nothing() {
    interface_comes_and_goes("tap", 1, 1);
    interface_comes_and_goes("tap", 2, 1);
}

#[test]
fn afxdp_follows_its_interface_and_other_ports_lose_nothing() {
    for (workers, queues) in [(1, 1), (1, 2), (2, 1), (2, 3)] {
        interface_comes_and_goes("afxdp", workers, queues);
    }
}

#[test]
fn what_had_arrived_at_the_end_is_forwarded_and_counted() {
    if !sh("test $(id -u) = 0 && command -v ip") {
        skipped("needs root and ip");
        return;
    }
    for (kind, workers) in [("afpacket", 1), ("afpacket", 2), ("afxdp", 1), ("afxdp", 2)] {
        let Some(hosts) = Hosts::new(&format!("fe{}{workers}x", &kind[2..3]), 1, false) else {
            skipped("network namespaces cannot be made here");
            return;
        };
        let folder = tempfile::tempdir().unwrap();
        let [stop, sent, came] = ["stop", "sent", "came"].map(|name| folder.path().join(name));
        let rules = "\"in_port=1,actions=output:3\", \"in_port=3,actions=output:1\"";
        let mut switch = hosts.start(kind, workers, rules, folder.path());
        let mut receiver = hosts.within(3, "count", &[(STOP, &stop), (COUNT, &came)]);
        wait_until("the receiver runs", || came.exists());
        let process = switch.0.as_ref().unwrap().id();
        assert!(sh(&format!("kill -STOP {process}")));
        let mut sender =
            hosts.within(1, "datagrams", &[(STOP, &stop), (COUNT, &sent), (PAUSE, Path::new("0"))]);
        super::wait_for(&mut sender, "the sender");
        assert!(sh(&format!("kill -TERM {process} && kill -CONT {process}")));
        let output = switch.0.take().unwrap().wait_with_output().unwrap();
        let case = format!("{kind}, {workers} workers");
        assert!(output.status.success(), "{case}: {}", String::from_utf8_lossy(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        fs::write(&stop, "").unwrap();
        super::wait_for(&mut receiver, "the receiver");
        let count = |file| fs::read_to_string(file).unwrap().parse::<u64>().unwrap();
        let port = |n: usize, counter: &str| report["ports"][n][counter].as_u64().unwrap();
        let arrived = port(0, "rx_packets") + port(0, "rx_dropped");
        assert_eq!(arrived, count(&sent), "{case}: {report:#}");
        assert_eq!(port(2, "tx_packets"), port(0, "rx_packets"), "{case}: {report:#}");
        // The receiver has a buffer of its own, so it may lose some.
        assert!(count(&came) > 0 && count(&came) <= port(2, "tx_packets"));
    }
}
