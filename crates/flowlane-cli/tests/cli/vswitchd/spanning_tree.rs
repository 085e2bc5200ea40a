//! A loop of two links between a bridge of Flowlane and one of Open vSwitch: spanning trees open one of them.

use std::time::{Duration, Instant};

use super::Host;
use super::bonds::{connect, crosses};
use crate::support::wait_until;

/// The protocol of both bridges: RSTP, or STP with short times.
#[derive(Clone, Copy)]
struct Protocol {
    name: &'static str,
    settings: &'static str,
    /// The roles and states of ports, as they are shown.
    root: &'static str,
    blocked: &'static str,
    designated: &'static str,
    /// Times of changes, for links that go down and come again.
    recovery: Duration,
}

const RSTP: Protocol = Protocol {
    name: "rstp",
    settings: "rstp_enable=true",
    root: "Root       Forwarding",
    blocked: "Alternate  Discarding",
    designated: "Designated Forwarding",
    recovery: Duration::from_secs(3),
};

const STP: Protocol = Protocol {
    name: "stp",
    settings: "stp_enable=true other_config:stp-forward-delay=4 other_config:stp-max-age=6 other_config:stp-hello-time=1",
    root: "root       forwarding",
    blocked: "alternate  blocking",
    designated: "designated forwarding",
    recovery: Duration::from_secs(20),
};

impl Host {
    fn tree(&self, protocol: Protocol) -> String {
        self.appctl(&[&format!("{}/show", protocol.name), "br0"]).unwrap()
    }

    fn add_tree(&self, protocol: Protocol, priority: u16) {
        let Protocol { name, settings, .. } = protocol;
        self.add_bridge(&format!(
            "set Bridge br0 {settings} other_config:{name}-priority={priority} -- add-port br0 w1 -- add-port br0 w2"
        ));
    }

    /// Returns whether the root's two ports are designated, and this bridge has one way to it.
    fn leads_to(&self, root: &Host, protocol: Protocol) -> bool {
        let (own, other) = (self.tree(protocol), root.tree(protocol));
        own.contains(protocol.root)
            && own.contains(protocol.blocked)
            && other.matches(protocol.designated).count() == 2
            && other.contains("This bridge is the root")
    }

    /// The port that leads to the root.
    fn root_port(&self, protocol: Protocol) -> String {
        let tree = self.tree(protocol);
        let row = tree.lines().find(|line| line.contains(protocol.root)).unwrap();
        row.split_whitespace().next().unwrap().to_owned()
    }
}

/// A broadcast passes each open link once.
fn has_no_storm(a: &Host, b: &Host) {
    let count = || -> u64 { [a, b].iter().map(|host| host.sent("br0", "w1") + host.sent("br0", "w2")).sum() };
    let frame = format!("ffffffffffff02000000009988b5{}", "00".repeat(46));
    for host in [a, b] {
        host.ofctl(&["packet-out", "br0", &format!("in_port=LOCAL,packet={frame},actions=normal")]);
    }
    let before = count();
    std::thread::sleep(Duration::from_millis(400));
    // BPDUs come now and then.
    assert!(count() - before < 20, "a storm");
}

/// A bridge of ours and one of Open vSwitch, which is the root, with two links between them.
fn joined(names: [&str; 2], protocol: Protocol) -> Option<[Host; 2]> {
    let [Some(mut a), Some(mut b)] = names.map(Host::without_daemon) else { return None };
    a.start_daemon();
    b.start_open_vswitch();
    connect([&a, &b]);
    a.add_tree(protocol, 0x8000);
    b.add_tree(protocol, 0x1000);
    wait_until("Open vSwitch's bridge is the root", || a.leads_to(&b, protocol));
    wait_until("frames arrive", || a.crossing(&b) == 20);
    Some([a, b])
}

fn loops_are_opened(names: [&str; 2], protocol: Protocol) {
    let Some([a, b]) = joined(names, protocol) else { return };
    crosses(&a, &b);
    has_no_storm(&a, &b);
    // The link that is used goes down, and comes again.
    let link = a.root_port(protocol);
    assert!(b.ip(&format!("link set {link} down")));
    let begun = Instant::now();
    wait_until("the other link takes over", || a.crossing(&b) == 20);
    println!("{}: the other link takes over after {:?}", protocol.name, begun.elapsed());
    assert!(begun.elapsed() < protocol.recovery);
    crosses(&a, &b);
    assert!(b.ip(&format!("link set {link} up")));
    wait_until("one link is blocked again", || a.leads_to(&b, protocol));
    has_no_storm(&a, &b);
    wait_until("frames arrive", || a.crossing(&b) == 20);
    // The other bridge becomes the root.
    a.vsctl(&format!("set Bridge br0 other_config:{}-priority=0", protocol.name)).unwrap();
    wait_until("Flowlane's bridge is the root", || b.leads_to(&a, protocol));
    has_no_storm(&a, &b);
    wait_until("frames arrive", || a.crossing(&b) == 20);
    crosses(&a, &b);
    let link = b.root_port(protocol);
    assert!(a.ip(&format!("link set {link} down")));
    let begun = Instant::now();
    wait_until("the other link takes over", || a.crossing(&b) == 20);
    assert!(begun.elapsed() < protocol.recovery);
    // Without trees, ports forward again.
    for host in [&a, &b] {
        host.vsctl(&format!("set Bridge br0 {}_enable=false", protocol.name)).unwrap();
    }
    wait_until("frames arrive", || a.crossing(&b) == 20);
}

/// The names of the counters of a port, and those that have counted something.
fn counters(host: &Host, column: &str) -> (Vec<String>, usize) {
    let shown = host.vsctl(&format!("get Port w1 {column}")).unwrap();
    let pairs = shown.trim_matches(['{', '}']).split(", ").filter_map(|pair| pair.split_once('='));
    let pairs: Vec<_> = pairs.filter(|(name, _)| name.contains("stp_")).collect();
    let counted = pairs.iter().filter(|(_, value)| *value != "0").count();
    (pairs.iter().map(|(name, _)| (*name).to_owned()).collect(), counted)
}

/// The ports of a bridge go on as they were when the daemon ends and another comes, and when one takes the place of another.
fn trees_outlive_daemons(names: [&str; 2], protocol: Protocol, column: &str) {
    let Some([mut a, b]) = joined(names, protocol) else { return };
    wait_until("counters", || counters(&a, column).1 > 0 && counters(&b, column).1 > 0);
    assert_eq!(counters(&a, column).0, counters(&b, column).0);
    let root_port = a.root_port(protocol);
    for takes_over in [true, false] {
        match takes_over {
            true => a.take_over(),
            false => a.restart(),
        }
        wait_until("the bridge is there", || a.appctl(&[&format!("{}/show", protocol.name), "br0"]).is_ok());
        assert!(a.leads_to(&b, protocol), "{}\n{}", a.tree(protocol), b.tree(protocol));
        assert_eq!(a.root_port(protocol), root_port);
        assert_eq!(a.crossing(&b), 20);
        has_no_storm(&a, &b);
    }
}

#[test]
fn trees_of_rstp_outlive_daemons() {
    trees_outlive_daemons(["rta", "rtb"], RSTP, "rstp_statistics");
}

#[test]
fn trees_of_stp_outlive_daemons() {
    let settings = "stp_enable=true other_config:stp-forward-delay=4 other_config:stp-max-age=6";
    trees_outlive_daemons(["tta", "ttb"], Protocol { settings, ..STP }, "statistics");
}

#[test]
fn rstp_opens_loops_with_open_vswitch() {
    loops_are_opened(["rsa", "rsb"], RSTP);
}

#[test]
fn stp_opens_loops_with_open_vswitch() {
    loops_are_opened(["sta", "stb"], STP);
}
