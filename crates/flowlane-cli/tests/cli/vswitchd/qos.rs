//! Queues of the kernel that rules choose: their rates on the wire, and when they go.

use std::process::Command;

use super::Host;
use crate::namespaces::{sh, skipped};
use crate::support::wait_until;

/// Sends frames of two EtherTypes to p1 as fast as their queues might take them, and prints the bytes of each that come to p2 meanwhile.
const WIRE: &str = r#"
import select, socket, time
TYPES = (0x88b5, 0x88b6)
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(("p1", 0))
into = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
into.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
into.bind(("p2", 0))
frames = [b"\xff" * 6 + b"\x02\0\0\0\0\x01" + kind.to_bytes(2, "big") + bytes(986) for kind in TYPES]
got = dict.fromkeys(TYPES, 0)
end = time.time() + 3
while time.time() < end:
    for frame in frames * 2:
        out.send(frame)
    wake = time.time() + 0.0005
    while True:
        ready, _, _ = select.select([into], [], [], max(0, wake - time.time()))
        if not ready:
            break
        frame = into.recv(2048)
        kind = int.from_bytes(frame[12:14], "big")
        if kind in got:
            got[kind] += len(frame)
print(*got.values())
"#;

/// Returns whether the kernel has the discipline `htb`; says so where a test is skipped.
pub(super) fn has_htb(name: &str) -> bool {
    let namespace = format!("{name}{}", std::process::id() % 100_000);
    let make = format!(
        "test $(id -u) = 0 && ip netns add {namespace} && ip -n {namespace} link add v0 type veth peer name v1 \
         && tc -n {namespace} qdisc add dev v0 root handle 1: htb"
    );
    let has_htb = sh(&make);
    sh(&format!("ip netns del {namespace}"));
    if !has_htb {
        skipped("needs root, network namespaces, tc and the kernel's htb");
    }
    has_htb
}

impl Host {
    /// Makes interfaces e1 and e2, whose other ends are p1 and p2.
    fn wire(&self) {
        for (a, b) in [("e1", "p1"), ("e2", "p2")] {
            assert!(self.ip(&format!("link add {a} type veth peer name {b}")));
            assert!(self.ip(&format!("link set {a} up")) && self.ip(&format!("link set {b} up")));
        }
    }

    /// Runs `tc` in the host's namespace.
    fn tc(&self, verb: &str) -> bool {
        sh(&format!("tc -n {} {verb}", self.namespace))
    }

    /// The root discipline of an interface, as `tc` shows it.
    fn discipline(&self, interface: &str) -> String {
        let mut tc = Command::new("tc");
        tc.args(["-n", &self.namespace, "qdisc", "show", "dev", interface, "root"]);
        String::from_utf8(tc.output().unwrap().stdout).unwrap()
    }
}

#[test]
fn packets_have_the_rates_of_the_queues_that_rules_choose() {
    if !has_htb("qa") {
        return;
    }
    if !sh("command -v python3") {
        return skipped("needs python3");
    }
    let Some(host) = Host::start("qr") else { return };
    host.wire();
    host.vsctl("add-br br0 -- add-port br0 e1 -- add-port br0 e2").unwrap();
    let queues = "-- --id=@q create QoS type=linux-htb other_config:max-rate=40000000 queues:1=@a queues:2=@b \
                  -- --id=@a create Queue other_config:max-rate=2000000 \
                  -- --id=@b create Queue other_config:min-rate=8000000 other_config:max-rate=8000000 \
                  -- set Port e2 qos=@q";
    host.vsctl(queues).unwrap();
    host.ofctl(&["del-flows", "br0"]);
    host.ofctl(&["add-flow", "br0", "in_port=e1,dl_type=0x88b5,actions=set_queue:1,output:e2"]);
    host.ofctl(&["add-flow", "br0", "in_port=e1,dl_type=0x88b6,actions=set_queue:2,resubmit(,1)"]);
    host.ofctl(&["add-flow", "br0", "table=1,actions=output:e2"]);
    let mut python = Command::new("ip");
    python.args(["netns", "exec", &host.namespace, "python3", "-c", WIRE]);
    let output = python.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let got: Vec<u64> = text.split_whitespace().map(|bytes| bytes.parse().unwrap()).collect();
    // One has four times the rate of the other. A machine that is slow sends less than the rates, and bursts pass at the beginning.
    let [slow, fast] = got[..] else { panic!("{text} {}", String::from_utf8_lossy(&output.stderr)) };
    assert!(slow > 0 && fast > 2 * slow, "2 and 8 Mbit/s: {slow} and {fast} bytes");
    let counted = host.ofctl(&["queue-stats", "br0", "e2", "1"]);
    let bytes =
        counted.split_once("bytes=").and_then(|(_, after)| after.split(',').next()?.parse::<u64>().ok());
    assert!(bytes.is_some_and(|bytes| bytes >= slow), "{counted}");
}

#[test]
fn a_discipline_goes_with_its_qos_its_port_and_its_bridge() {
    if !has_htb("qb") {
        return;
    }
    let Some(mut host) = Host::start("qg") else { return };
    host.wire();
    let qos = "-- --id=@q create QoS type=linux-htb other_config:max-rate=40000000 -- set Port e1 qos=@q";
    let is_htb = |host: &Host| host.discipline("e1").starts_with("qdisc htb 1: root");
    host.vsctl("add-br br0 -- add-port br0 e1 -- add-port br0 e2").unwrap();
    host.vsctl(qos).unwrap();
    assert!(is_htb(&host), "{}", host.discipline("e1"));
    host.vsctl("clear Port e1 qos").unwrap();
    assert!(!is_htb(&host));
    host.vsctl(qos).unwrap();
    host.vsctl("del-port e1").unwrap();
    assert!(!is_htb(&host));
    host.vsctl("add-port br0 e1").unwrap();
    host.vsctl(qos).unwrap();
    // An interface that comes again has it again.
    assert!(is_htb(&host) && host.ip("link del e1"));
    assert!(host.ip("link add e1 type veth peer name p1") && host.ip("link set e1 up"));
    wait_until("the new interface has the discipline", || is_htb(&host));
    // One that an administrator has removed is made again when its rates change.
    assert!(host.tc("qdisc del dev e1 root"));
    let row = host.vsctl("get Port e1 qos").unwrap();
    host.vsctl(&format!("set QoS {} other_config:max-rate=30000000", row.trim())).unwrap();
    assert!(is_htb(&host), "{}", host.discipline("e1"));
    // `linux-noop` leaves none of ours behind.
    host.vsctl("set Port e1 qos=@q -- --id=@q create QoS type=linux-noop").unwrap();
    assert!(!is_htb(&host));
    host.vsctl(qos).unwrap();
    // The next daemon keeps it, with the packets that wait in it.
    assert!(host.tc("qdisc add dev e1 parent 1:1 handle 77: pfifo limit 10"));
    // A daemon that ends leaves it, and the next one removes a discipline that the database has no more.
    host.restart();
    host.vsctl("set Bridge br0 other_config:x=y").unwrap();
    assert!(is_htb(&host) && host.tc("qdisc show dev e1 | grep -q 77:"));
    drop(host.daemon.take());
    assert!(is_htb(&host));
    host.vsctl("--no-wait clear Port e1 qos").unwrap();
    host.start_daemon();
    wait_until("the discipline goes", || !is_htb(&host));
    host.vsctl(qos).unwrap();
    assert!(is_htb(&host));
    host.vsctl("del-br br0").unwrap();
    assert!(!is_htb(&host));
}
