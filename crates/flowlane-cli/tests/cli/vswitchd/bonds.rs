//! Bonds between daemons over two links: two of Flowlane, and one of Flowlane with one of Open vSwitch.

use std::time::{Duration, Instant};

use super::Host;
use crate::namespaces::sh;
use crate::support::wait_until;

/// Two links between two hosts: `w1` and `w2` at both ends.
pub(super) fn connect(hosts: [&Host; 2]) {
    let [a, b] = hosts.map(|host| &host.namespace);
    for link in ["w1", "w2"] {
        assert!(sh(&format!("ip link add {link} netns {a} type veth peer name {link} netns {b}")));
        assert!(hosts.iter().all(|host| host.ip(&format!("link set {link} up"))));
    }
}

impl Host {
    /// Gives the host a bridge with a port, and keeps its interfaces silent.
    pub(super) fn add_bridge(&self, port: &str) {
        for scope in ["all", "default"] {
            let silent = format!("sysctl -qw net.ipv6.conf.{scope}.disable_ipv6=1");
            sh(&format!("ip netns exec {} {silent}", self.namespace));
        }
        self.vsctl(&format!("add-br br0 -- set Bridge br0 datapath_type=netdev -- {port}")).unwrap();
        assert!(self.ip("link set br0 up"));
    }

    /// Sends 20 frames between two stations at the bridges' own ports; returns how many arrive, with copies.
    pub(super) fn crossing(&self, to: &Host) -> u64 {
        let mac = |host: &Host| host.vsctl("get Interface br0 mac_in_use").unwrap().replace([':', '"'], "");
        let frame = format!("{}{}88b5{}", mac(to), mac(self), "00".repeat(46));
        let before = to.sent("br0", "LOCAL");
        let actions = ["normal"; 20].join(",");
        self.ofctl(&["packet-out", "br0", &format!("in_port=LOCAL,packet={frame},actions={actions}")]);
        let mut count = to.sent("br0", "LOCAL");
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(20));
            count = to.sent("br0", "LOCAL");
        }
        count - before
    }

    /// The member that the database says is the active one.
    fn active(&self) -> String {
        let mac = self.vsctl("get Port bond0 bond_active_slave").unwrap();
        let shown = |link: &str| self.vsctl(&format!("get Interface {link} mac_in_use")).unwrap();
        ["w1", "w2"].into_iter().find(|link| shown(link) == mac).unwrap_or("none").to_owned()
    }

    /// Its description, or nothing while a daemon that has just begun does not have it yet.
    fn bond(&self) -> String {
        self.appctl(&["bond/show", "bond0"]).unwrap_or_default()
    }

    fn enabled(&self) -> usize {
        self.bond().matches(": enabled").count()
    }

    /// Sends frames of many flows from the bridge's own port.
    fn send_flows(&self) {
        for port in 0..32 {
            let ethernet = "0200000000990200000000110800";
            let ip = "4500002e00000000401100000a0700630a070064";
            let udp = format!("{:04x}{port:04x}001a0000{}", 4000 + port, "00".repeat(18));
            let packet = format!("in_port=LOCAL,packet={ethernet}{ip}{udp},actions=normal");
            self.ofctl(&["packet-out", "br0", &packet]);
        }
    }
}

/// Each frame arrives once, in both directions.
pub(super) fn crosses(a: &Host, b: &Host) {
    assert_eq!([a.crossing(b), b.crossing(a), a.crossing(b)], [20; 3]);
}

#[test]
fn an_active_backup_bond_goes_on_when_a_link_goes_down() {
    let [Some(a), Some(b)] = ["boa", "bob"].map(Host::start) else { return };
    connect([&a, &b]);
    for host in [&a, &b] {
        host.add_bridge("add-bond br0 bond0 w1 w2 -- set Port bond0 other_config:bond-primary=w1");
    }
    for host in [&a, &b] {
        wait_until("both members are enabled", || host.enabled() == 2 && host.active() == "w1");
        assert_eq!(host.vsctl("get Interface w1 error -- get Interface w2 error").unwrap(), "[]\n[]");
        let listed = host.appctl(&["bond/list"]).unwrap();
        assert!(listed.contains("bond0\tactive-backup\t0\tw1, w2"), "{listed}");
    }
    wait_until("frames arrive", || a.crossing(&b) == 20);
    crosses(&a, &b);
    // No frame goes around: the backups are silent.
    let sent = || [a.sent("br0", "w2"), b.sent("br0", "w2")];
    assert_eq!(sent(), [0, 0]);
    assert!(a.ip("link set w1 down"));
    let begun = Instant::now();
    wait_until("the backup takes over", || a.crossing(&b) == 20);
    println!("answers {:?} after the link has gone down", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(3));
    crosses(&a, &b);
    wait_until("the database says so", || a.active() == "w2" && b.active() == "w2");
    wait_until("the member is disabled", || a.bond().contains("member w1: disabled\n  may_enable: false"));
    // The primary comes again.
    assert!(a.ip("link set w1 up"));
    wait_until("the primary is active", || a.active() == "w1" && b.active() == "w1");
    wait_until("frames arrive", || a.crossing(&b) == 20);
    crosses(&a, &b);
    for link in ["w1", "w2"] {
        assert!(b.ip(&format!("link set {link} down")));
    }
    wait_until("no member is left", || a.active() == "none");
    assert_eq!(a.vsctl("get Port bond0 bond_active_slave").unwrap(), "\"00:00:00:00:00:00\"");
    assert_eq!(a.crossing(&b), 0);
}

/// A rule that names a member sends through it, and a balanced bond uses both.
#[test]
fn a_balanced_bond_uses_both_links() {
    let [Some(mut a), Some(b)] = ["boc", "bod"].map(Host::start) else { return };
    connect([&a, &b]);
    for host in [&a, &b] {
        host.add_bridge("add-bond br0 bond0 w1 w2 -- set Port bond0 bond_mode=balance-slb");
    }
    wait_until("both members are enabled", || a.enabled() == 2 && b.enabled() == 2);
    wait_until("frames arrive", || a.crossing(&b) == 20);
    crosses(&a, &b);
    let counts = |host: &Host| ["w1", "w2"].map(|link| host.sent("br0", link));
    let before = counts(&a);
    for source in 0..16 {
        let frame = format!("0200000000990200000000{source:02x}88b5{}", "00".repeat(46));
        a.ofctl(&["packet-out", "br0", &format!("in_port=LOCAL,packet={frame},actions=normal")]);
    }
    wait_until("both links are used", || (0..2).all(|link| counts(&a)[link] > before[link] + 2));
    let before = counts(&a);
    let number = a.vsctl("get Interface w2 ofport").unwrap();
    let packet = format!(
        "in_port=LOCAL,packet=0200000000990200000000aa88b5{},actions=output:{number}",
        "00".repeat(46)
    );
    a.ofctl(&["packet-out", "br0", &packet]);
    wait_until("the member sends", || counts(&a)[1] > before[1]);
    // A daemon that comes again, and one that takes its place, have the bond, and the active member of the database.
    a.appctl(&["bond/set-active-member", "bond0", "w2"]).unwrap();
    wait_until("the database says so", || a.active() == "w2");
    for take_over in [false, true] {
        if take_over {
            a.take_over()
        } else {
            a.restart()
        }
        wait_until("both members are enabled", || a.enabled() == 2);
        wait_until("frames arrive", || a.crossing(&b) == 20);
        crosses(&a, &b);
        wait_until("the member is active again", || a.bond().contains("member w2: enabled\n  active member"));
    }
    // A member that is not there, and comes.
    a.vsctl("-- --id=@w3 create Interface name=w3 -- add Port bond0 interfaces @w3").unwrap();
    let error = || a.vsctl("get Interface w3 error").unwrap();
    wait_until("the interface has an error", || error().contains("No such device"));
    std::thread::sleep(Duration::from_millis(1500));
    crosses(&a, &b);
    let made = format!("link add w3 netns {} type veth peer name w3 netns {}", a.namespace, b.namespace);
    assert!(sh(&format!("ip {made}")) && a.ip("link set w3 up") && b.ip("link set w3 up"));
    wait_until("three members are enabled", || a.enabled() == 3);
    b.vsctl("-- --id=@w3 create Interface name=w3 -- add Port bond0 interfaces @w3").unwrap();
    wait_until("three members are enabled", || b.enabled() == 3);
    wait_until("frames arrive", || a.crossing(&b) == 20);
    crosses(&a, &b);
}

#[test]
fn a_port_becomes_a_bond_and_a_port_again() {
    let [Some(a), Some(b)] = ["boe", "bof"].map(Host::start) else { return };
    connect([&a, &b]);
    for host in [&a, &b] {
        host.add_bridge("add-port br0 w1");
    }
    wait_until("frames arrive", || a.crossing(&b) == 20);
    for _ in 0..2 {
        for host in [&a, &b] {
            host.vsctl("-- --id=@w2 create Interface name=w2 -- add Port w1 interfaces @w2").unwrap();
            wait_until("it is a bond", || host.appctl(&["bond/list"]).unwrap().contains("w1, w2"));
            assert_eq!(host.vsctl("get Interface w1 ofport").unwrap(), "1");
        }
        wait_until("frames arrive", || a.crossing(&b) == 20);
        crosses(&a, &b);
        // The first link goes, and the port is on the second.
        assert!(a.ip("link set w1 down"));
        wait_until("frames arrive by the second link", || a.crossing(&b) == 20);
        assert!(a.ip("link set w1 up"));
        for host in [&a, &b] {
            let row = host.vsctl("get Interface w2 _uuid").unwrap();
            host.vsctl(&format!("remove Port w1 interfaces {row}")).unwrap();
            assert_eq!(host.appctl(&["bond/list"]).unwrap().lines().count(), 1);
        }
        wait_until("frames arrive without a bond", || a.crossing(&b) == 20);
        crosses(&a, &b);
    }
}

#[test]
fn lacp_is_negotiated_with_open_vswitch() {
    let [Some(mut a), Some(mut b)] = ["bog", "boh"].map(Host::without_daemon) else { return };
    a.start_daemon();
    b.start_open_vswitch();
    connect([&a, &b]);
    for (host, mode) in [(&a, "active"), (&b, "passive")] {
        let bond = format!("bond_mode=balance-tcp lacp={mode} other_config:lacp-time=fast");
        host.add_bridge(&format!("add-bond br0 bond0 w1 w2 -- set Port bond0 {bond}"));
    }
    let is_current = |host: &Host, link: &str| {
        host.vsctl(&format!("get Interface {link} lacp_current")).unwrap() == "true"
    };
    let begun = Instant::now();
    wait_until("LACP is negotiated", || {
        let agree = |host: &Host| host.bond().contains("lacp_status: negotiated") && host.enabled() == 2;
        agree(&a)
            && agree(&b)
            && ["w1", "w2"].into_iter().all(|link| is_current(&a, link) && is_current(&b, link))
    });
    println!("negotiated after {:?}", begun.elapsed());
    let state = "activity timeout aggregation synchronized collecting distributing";
    let shown = a.appctl(&["lacp/show", "bond0"]).unwrap();
    assert_eq!(shown.matches(&format!("  actor state: {state}\n")).count(), 2, "{shown}");
    wait_until("frames arrive", || a.crossing(&b) == 20);
    crosses(&a, &b);
    let counts = || ["w1", "w2"].map(|link| a.sent("br0", link));
    let before = counts();
    a.send_flows();
    wait_until("flows use both links", || (0..2).all(|link| counts()[link] > before[link] + 8));
    // A daemon that takes the place, and one that comes again, of which the other end notices nothing.
    for take_over in [true, false] {
        if take_over {
            a.take_over();
        } else {
            a.restart();
        }
        wait_until("both members are enabled", || a.enabled() == 2);
        let counters = b.appctl(&["lacp/show-stats", "bond0"]).unwrap();
        assert_eq!((counters.matches("Link Expired: 0").count(), b.enabled()), (2, 2), "{counters}");
        wait_until("frames arrive", || a.crossing(&b) == 20);
        crosses(&a, &b);
    }
    // A link goes down.
    assert!(b.ip("link set w1 down"));
    wait_until("one link is used", || a.enabled() == 1 && b.enabled() == 1);
    wait_until("frames arrive by one link", || a.crossing(&b) == 20);
    crosses(&a, &b);
    assert!(b.ip("link set w1 up"));
    wait_until("both links are used again", || a.enabled() == 2 && b.enabled() == 2);
    // A link loses all that one end sends, and is up.
    let lossy = format!("ip netns exec {} tc qdisc add dev w2 root netem loss 100%", b.namespace);
    if sh(&lossy) {
        wait_until("the link is not used", || a.enabled() == 1 && !is_current(&a, "w2"));
        wait_until("frames arrive by the other link", || a.crossing(&b) == 20);
        crosses(&a, &b);
    }
    // Without LACP at the other end, nothing passes.
    b.vsctl("set Port bond0 lacp=off bond_mode=active-backup").unwrap();
    wait_until("no neighbour speaks LACP", || {
        a.bond().contains("lacp_status: configured") && a.enabled() == 0
    });
    assert_eq!(a.crossing(&b), 0);
}
