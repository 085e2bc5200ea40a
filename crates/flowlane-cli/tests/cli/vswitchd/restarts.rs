//! Daemons that end and come again, and daemons that take the place of others: connections stay. Requires Python, too.

use std::fs;
use std::process::{Command, Stdio};

use super::ovn::Network;
use super::{Host, Process};
use crate::namespaces::{sh, skipped};
use crate::support::wait_until;

/// Sends a line each 5 ms to the client that connects.
const SERVER: &str = "import socket, time
s = socket.create_server(('0.0.0.0', 7))
c, _ = s.accept()
while True: c.sendall(b'x'); time.sleep(0.005)";
/// Writes the time of each receipt, in seconds, to a file.
const CLIENT: &str = "import socket, sys, time
c = socket.create_connection((sys.argv[2], 7), 10)
f = open(sys.argv[1], 'w')
while c.recv(99): print(time.time(), file=f, flush=True)";
/// Connections from the first port get another address: without its connection, no packet finds its way back.
const RULES: &str = "table=0,priority=2,arp,actions=normal
table=0,priority=1,tcp,actions=ct(table=1,nat)
table=1,ct_state=+new+trk,tcp,tcp_flags=+syn-ack,in_port=va,actions=ct(commit,nat(src=10.0.0.9)),output:vb
table=1,ct_state=+est+trk,tcp,in_port=va,actions=output:vb
table=1,ct_state=+est+trk,tcp,in_port=vb,actions=output:va
";

impl Host {
    /// Adds a port to a bridge, with a machine behind it.
    fn machine(&self, bridge: &str, name: &str, address: &str) -> String {
        let (inside, machine) = (&self.namespace, format!("{}{name}", self.namespace));
        assert!(sh(&format!(
            "ip netns add {machine} && ip link add v{name} netns {inside} type veth peer name e0 netns {machine} \
             && ip -n {inside} link set v{name} up && ip -n {machine} link set e0 up && ip -n {machine} addr add {address}/24 dev e0"
        )));
        self.vsctl(&format!("add-port {bridge} v{name}")).unwrap();
        machine
    }

    /// Starts a daemon in the place of the one that runs, which ends.
    pub(super) fn take_over(&mut self) {
        let mut next = Command::new("ip");
        next.args(["netns", "exec", &self.namespace]).arg(assert_cmd::cargo::cargo_bin!("flowlane"));
        next.args(["vswitchd", "--pidfile", "--take-over"]).env("OVS_RUNDIR", self.at());
        next.env("FLOWLANE_TUNE", "/dev/null").stdout(Stdio::null());
        let next = Process(next.spawn().unwrap());
        let pid = next.0.id().to_string();
        let mut before = self.daemon.replace(next).unwrap();
        wait_until("the daemon ends", || before.0.try_wait().unwrap().is_some_and(|code| code.success()));
        let file = self.at().join("ovs-vswitchd.pid");
        wait_until("the next one is ready", || {
            fs::read_to_string(&file).is_ok_and(|text| text.trim() == pid)
        });
    }

    /// The files of state that are there.
    fn left(&self) -> Vec<String> {
        let names =
            fs::read_dir(self.at()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".state") || name.ends_with(".sessions")).collect()
    }

    /// Ends the daemon as `ovs-ctl` does, and starts it again.
    pub(super) fn restart(&mut self) {
        self.appctl(&["exit"]).unwrap();
        let mut before = self.daemon.take().unwrap();
        wait_until("the daemon ends", || before.0.try_wait().unwrap().is_some_and(|code| code.success()));
        self.start_daemon();
    }
}

/// Programs in two machines, which end with this.
struct Traffic {
    machines: [String; 2],
    received: std::path::PathBuf,
    /// The number of lines when it was looked at last.
    mark: usize,
    _programs: Vec<Process>,
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.machines.iter().for_each(|name| _ = sh(&format!("ip netns del {name}")));
    }
}

impl Traffic {
    /// A connection of the first machine with an address, on which the second machine sends lines.
    fn start(host: &Host, machines: [String; 2], address: &str) -> Self {
        let received = host.at().join("received");
        let run = |machine: &str, program: &str| {
            let mut python = Command::new("ip");
            python.args(["netns", "exec", machine, "python3", "-c", program]).arg(&received).arg(address);
            Process(python.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        };
        let server = run(&machines[1], SERVER);
        let listens = format!("ip netns exec {} ss -ltnH | grep -q :7", machines[1]);
        wait_until("the server listens", || sh(&listens));
        let programs = vec![server, run(&machines[0], CLIENT)];
        let mut traffic = Self { machines, received, mark: 0, _programs: programs };
        traffic.goes_on("begin");
        traffic
    }

    fn times(&self) -> Vec<f64> {
        let text = fs::read_to_string(&self.received).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Waits until more has come; returns the longest pause since this was called last, in seconds.
    fn goes_on(&mut self, when: &str) -> f64 {
        let now = self.times().len();
        wait_until(&format!("lines of the connection: {when}"), || self.times().len() > now + 20);
        let times = self.times();
        let since = &times[self.mark..];
        self.mark = times.len() - 1;
        since.windows(2).map(|two| two[1] - two[0]).fold(0.0, f64::max)
    }
}

fn with_connection(name: &str) -> Option<(Host, Traffic)> {
    if !sh("command -v python3 && command -v ss") {
        skipped("needs python3 and ss");
        return None;
    }
    let host = Host::start(name)?;
    host.vsctl("add-br br0 -- set-fail-mode br0 secure").unwrap();
    let machines = [host.machine("br0", "a", "10.0.0.1"), host.machine("br0", "b", "10.0.0.2")];
    add_rules(&host);
    let mac = format!("$(ip netns exec {} cat /sys/class/net/e0/address)", machines[0]);
    assert!(sh(&format!("ip -n {} neigh add 10.0.0.9 dev e0 lladdr {mac}", machines[1])));
    let traffic = Traffic::start(&host, machines, "10.0.0.2");
    Some((host, traffic))
}

fn add_rules(host: &Host) {
    let file = host.at().join("rules");
    fs::write(&file, RULES).unwrap();
    host.ofctl(&["add-flows", "br0", file.to_str().unwrap()]);
}

#[test]
fn connections_outlive_a_restart() {
    let Some((mut host, mut traffic)) = with_connection("fvr") else { return };
    host.vsctl("add-port br0 vi -- set Interface vi type=internal -- add-br br1").unwrap();
    assert!(host.ip("addr add 10.9.0.1/24 dev vi"));
    host.restart();
    assert!(sh(&format!("ip -n {} addr show vi | grep -q 10.9.0.1", host.namespace)), "it has its address");
    let known = host.appctl(&["dpctl/dump-conntrack"]).unwrap();
    assert!(known.contains("10.0.0.9"), "{known}");
    assert_eq!(host.left(), Vec::<String>::new(), "it is true once");
    assert_eq!(
        host.ofctl(&["--no-stats", "dump-flows", "br0"]).lines().count(),
        RULES.lines().count(),
        "rules stay, too"
    );
    println!("longest pause with a restart: {:.3} s", traffic.goes_on("after a restart"));
    // Interfaces that are not asked for any more do not stay, and nothing does where the operator says so.
    host.appctl(&["exit"]).unwrap();
    host.vsctl("--no-wait del-br br1").unwrap();
    wait_until("the daemon ends", || host.daemon.as_mut().unwrap().0.try_wait().unwrap().is_some());
    assert!(host.ip("link show br1") && host.left().len() == 4, "{:?}", host.left());
    let foreign = host.at().join("other.program.state");
    fs::write(&foreign, "of another program").unwrap();
    host.start_daemon();
    wait_until("it is removed", || !host.ip("link show br1") && host.left().len() == 1);
    fs::remove_file(foreign).unwrap();
    assert!(host.ip("link show vi"));
    host.appctl(&["exit", "--cleanup"]).unwrap();
    wait_until("the daemon ends", || host.daemon.as_mut().unwrap().0.try_wait().unwrap().is_some());
    assert!(host.left().is_empty() && !host.ip("link show vi"));
    let row = host.vsctl("get Bridge br0 _uuid").unwrap();
    fs::write(host.at().join(format!("br0.{row}.state")), "damaged").unwrap();
    host.start_daemon();
    assert_eq!(host.appctl(&["dpctl/dump-conntrack"]).unwrap(), "");
}

#[test]
fn a_daemon_takes_the_place_of_another() {
    let Some((mut host, mut traffic)) = with_connection("fvu") else { return };
    host.vsctl("add-port br0 vi -- set Interface vi type=internal -- add-br br1").unwrap();
    assert!(host.ip("addr add 10.9.0.1/24 dev vi"));
    let rules = || host.ofctl(&["--no-stats", "dump-flows", "br0"]);
    let (before, ports) = (rules(), host.vsctl("get Interface va ofport").unwrap());
    let lines = |text: &str| text.lines().count();
    assert!(lines(&before) >= 5, "{before}");
    // Ports and rules are the database's and controllers', not those of clients of the control socket.
    let socket = host.at().join("br0.control").display().to_string();
    let refused = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"))
        .args(["switch", "stop", "--socket", &socket])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("ovs-vsctl"), "{refused:?}");
    // One bridge cannot be asked: it comes when the daemon has ended.
    fs::remove_file(host.at().join("br1.control")).unwrap();
    host.take_over();
    println!("longest pause with a take-over: {:.3} s", traffic.goes_on("after a take-over"));
    assert_eq!(host.ofctl(&["--no-stats", "dump-flows", "br0"]), before);
    assert_eq!(host.vsctl("get Interface va ofport").unwrap(), ports);
    assert_eq!(host.vsctl("get Interface vi error").unwrap(), "[]");
    assert!(sh(&format!("ip -n {} addr show vi | grep -q 10.9.0.1", host.namespace)), "it has its address");
    let mut bridges: Vec<String> =
        host.appctl(&["ofproto/list"]).unwrap().lines().map(str::to_owned).collect();
    bridges.sort();
    assert_eq!(bridges, ["br0", "br1"]);
    assert!(host.ofctl(&["show", "br1"]).contains("LOCAL"));
    // The database goes on to be followed.
    host.vsctl("del-br br1 -- del-port br0 vi").unwrap();
    assert_eq!(host.appctl(&["ofproto/list"]).unwrap(), "br0\n");
    assert!(!host.ip("link show vi"), "its interface ends with it");
    host.take_over();
    traffic.goes_on("after another take-over");
}

/// A connection through OVN's load balancer, router and access lists. `ovn-controller` gives the daemon its rules again.
#[test]
fn connections_of_ovn_outlive_a_restart_and_a_take_over() {
    let Some(mut network) = Network::start("fvq", 1) else { return };
    network.nbctl("ls-add sw1 -- ls-add sw2");
    let machines = [network.machine(0, 1, 1), network.machine(0, 2, 2)];
    network.add_router();
    network.nbctl(
        "acl-add sw2 to-lport 1001 'outport == \"p2\" && tcp.dst == 7' allow-related \
         -- acl-add sw2 to-lport 1000 'outport == \"p2\" && ip' drop -- acl-add sw1 to-lport 1000 'outport == \"p1\" && ip' drop",
    );
    network.nbctl("acl-add sw1 from-lport 1000 'ip' allow-related -- lb-add lb 10.9.9.9:7 10.2.0.2:7 tcp -- ls-lb-add sw1 lb");
    network.sync();
    let mut traffic = Traffic::start(&network.chassis[0], machines, "10.9.9.9");
    let flows = |host: &Host| host.ofctl(&["--no-stats", "dump-flows", "br-int"]).lines().count();
    let before = flows(&network.chassis[0]);
    assert!(before > 500, "{before}");
    network.chassis[0].restart();
    println!("longest pause with a restart: {:.3} s", traffic.goes_on("after a restart"));
    wait_until("all rules are there", || flows(&network.chassis[0]) == before);
    network.chassis[0].take_over();
    println!("longest pause with a take-over: {:.3} s", traffic.goes_on("after a take-over"));
    network.sync();
    wait_until("all rules are there", || flows(&network.chassis[0]) == before);
    traffic.goes_on("with rules that have come again");
}
