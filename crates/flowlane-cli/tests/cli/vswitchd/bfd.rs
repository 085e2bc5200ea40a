//! BFD between daemons: two of Flowlane through a tunnel, and one of Flowlane with one of Open vSwitch over a wire.

use std::time::{Duration, Instant};

use super::Host;
use crate::namespaces::sh;
use crate::support::wait_until;

impl Host {
    /// The value of a key of an interface's state of BFD.
    fn bfd(&self, interface: &str, key: &str) -> String {
        self.vsctl(&format!("--if-exists get Interface {interface} bfd_status:{key}")).unwrap_or_default()
    }

    fn is_up(&self, interface: &str) -> bool {
        ["state", "remote_state", "forwarding"].map(|key| self.bfd(interface, key))
            == ["up", "up", "\"true\""]
    }

    fn is_down(&self, interface: &str) -> bool {
        ["state", "forwarding"].map(|key| self.bfd(interface, key)) == ["down", "\"false\""]
    }
}

/// A wire between two hosts: `u0` at both ends, with the addresses 192.0.2.1 and 192.0.2.2.
fn connect(hosts: [&Host; 2]) {
    let [a, b] = hosts.map(|host| &host.namespace);
    assert!(sh(&format!("ip link add u0 netns {a} type veth peer name u0 netns {b}")));
    for (host, n) in hosts.into_iter().zip(1..) {
        assert!(host.ip(&format!("addr add 192.0.2.{n}/24 dev u0")) && host.ip("link set u0 up"));
    }
}

/// The names of the lines of `bfd/show`.
fn names(shown: &str) -> Vec<&str> {
    shown.lines().map(|line| line.split(':').next().unwrap()).collect()
}

#[test]
fn two_daemons_see_by_bfd_whether_a_tunnel_works() {
    let Some([a, b]) = with_a_tunnel(["fba", "fbb"]) else { return };
    let send = add_group(&a);
    let live = || a.ofctl(&["-O", "OpenFlow13", "show", "br0"]);
    // The state may be in the database before ports follow it.
    wait_until("packets take the tunnel", || send() == send());
    let before = send();
    assert!(!live().contains("state:      0"), "{}", live());
    // One direction of the wire is enough.
    let begun = Instant::now();
    assert!(
        sh(&format!("ip netns exec {} tc qdisc add dev u0 root netem loss 100%", b.namespace))
            || b.ip("link set u0 down")
    );
    wait_until("the tunnel is down", || a.is_down("t0"));
    println!("down after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert_eq!(a.bfd("t0", "diagnostic"), "\"Control Detection Time Expired\"");
    wait_until("packets go elsewhere", || send() > before);
    assert!(a.vsctl("get Interface t0 link_state").unwrap() == "up" && !live().contains("LINK_DOWN"));
    sh(&format!("ip netns exec {} tc qdisc del dev u0 root", b.namespace));
    assert!(b.ip("link set u0 up"));
    wait_until("both ends are up again", || a.is_up("t0") && b.is_up("t0"));
    assert_eq!(a.bfd("t0", "flap_count"), "\"3\"");
}

/// Two hosts with a bridge each, and between them a tunnel with sessions that are up.
fn with_a_tunnel(names: [&str; 2]) -> Option<[Host; 2]> {
    let [Some(a), Some(b)] = names.map(Host::start) else { return None };
    connect([&a, &b]);
    for (host, n) in [(&a, 2), (&b, 1)] {
        host.vsctl(&format!(
            "add-br br0 -- add-port br0 t0 -- set Interface t0 type=geneve options:remote_ip=192.0.2.{n} options:key=flow \
             bfd:enable=true bfd:min_rx=200"
        ))
        .unwrap();
    }
    // The bridge's own interface is down, too, until it is set up.
    assert!(a.ip("link set br0 up"));
    a.vsctl("set-fail-mode br0 secure -- add-port br0 d7 -- set Interface d7 type=dummy ofport_request=7")
        .unwrap();
    wait_until("both ends are up", || a.is_up("t0") && b.is_up("t0"));
    assert_eq!(a.bfd("t0", "flap_count"), "\"1\"");
    Some([a, b])
}

/// Adds a group whose first bucket is the tunnel, and whose second the dummy port; returns the number of packets that
/// have left there after another one.
fn add_group(host: &Host) -> impl Fn() -> u64 {
    let tunnel = host.vsctl("get Interface t0 ofport").unwrap();
    let group = format!(
        "group_id=1,type=ff,bucket=watch_port:{tunnel},actions=output:{tunnel},bucket=watch_port:7,actions=output:7"
    );
    host.ofctl(&["-O", "OpenFlow13", "add-group", "br0", &group]);
    let packet =
        format!("in_port=LOCAL,packet=0200000000010200000000020800{},actions=group:1", "00".repeat(46));
    move || {
        host.ofctl(&["-O", "OpenFlow13", "packet-out", "br0", &packet]);
        host.sent("br0", "d7")
    }
}

#[test]
fn sessions_of_bfd_change_end_and_begin_with_the_column() {
    let Some([a, b]) = with_a_tunnel(["fbc", "fbd"]) else { return };
    let send = add_group(&a);
    a.vsctl("set Interface t0 bfd:mult=5 bfd:cpath_down=true").unwrap();
    wait_until("the other end hears so", || b.bfd("t0", "forwarding") == "\"false\"");
    assert_eq!(b.bfd("t0", "remote_diagnostic"), "\"Concatenated Path Down\"");
    a.vsctl("clear Interface t0 bfd").unwrap();
    wait_until("the other end hears that, too", || b.is_down("t0"));
    assert_eq!(b.bfd("t0", "remote_state"), "admin_down");
    wait_until("there is no session", || a.vsctl("get Interface t0 bfd_status").unwrap() == "{}");
    assert!(a.appctl(&["bfd/show", "t0"]).unwrap_err().contains("no such bfd object"));
    wait_until("the port is live without a session", || send() == send());
    a.vsctl("set Interface t0 bfd:enable=true -- set Interface t0 options:ttl=9").unwrap();
    wait_until("another session", || a.is_up("t0") && b.is_up("t0"));
    a.vsctl("del-port br0 t0").unwrap();
    wait_until("the port is gone", || b.is_down("t0"));
}

/// The other end does not notice that a daemon comes again, or that another takes its place, within the detection time.
#[test]
fn sessions_of_bfd_outlive_their_daemon() {
    let Some([mut a, b]) = with_a_tunnel(["fbe", "fbf"]) else { return };
    for host in [&a, &b] {
        host.vsctl("set Interface t0 bfd:min_rx=1000 bfd:min_tx=1000").unwrap();
    }
    let has_intervals = |host: &Host| {
        let shown = host.appctl(&["bfd/show", "t0"]).unwrap();
        ["TX", "RX"].iter().all(|of| shown.contains(&format!("  {of} Interval: Approx 1000ms")))
    };
    wait_until("the new intervals", || has_intervals(&a) && has_intervals(&b));
    let flaps = b.bfd("t0", "flap_count");
    let goes_on = |a: &Host, when: &str| {
        wait_until(when, || a.is_up("t0"));
        assert!(b.is_up("t0"), "{when}");
        // A packet that says otherwise would have come by now.
        std::thread::sleep(Duration::from_millis(1500));
        assert!(a.is_up("t0") && b.is_up("t0"), "{when}");
        assert_eq!(b.bfd("t0", "flap_count"), flaps, "{when}");
    };
    a.restart();
    goes_on(&a, "after a restart");
    a.take_over();
    goes_on(&a, "after a take-over");
    // A session that ends for good says so to the other end.
    a.vsctl("del-port br0 t0").unwrap();
    wait_until("the session is over", || b.is_down("t0"));
}

#[test]
fn bfd_comes_up_with_open_vswitch() {
    let (Some(a), Some(mut b)) = (Host::start("fbo"), Host::without_daemon("fbr")) else { return };
    b.start_open_vswitch();
    connect([&a, &b]);
    a.vsctl("add-br br0 -- add-port br0 u0 -- set Interface u0 bfd:enable=true").unwrap();
    b.vsctl(
        "add-br br0 -- set Bridge br0 datapath_type=netdev -- add-port br0 u0 -- set Interface u0 bfd:enable=true bfd:min_rx=200",
    )
    .unwrap();
    wait_until("both ends are up", || a.is_up("u0") && b.is_up("u0"));
    let shown = [&a, &b].map(|host| host.appctl(&["bfd/show", "u0"]).unwrap());
    assert_eq!(names(&shown[0]), names(&shown[1]), "{shown:?}");
    for (lines, own) in shown.iter().zip([1000, 200]) {
        assert!(lines.contains(&format!("  Local Minimum RX Interval: {own}ms\n")), "{lines}");
        assert!(
            lines.contains("  Local Session State: up\n") && lines.contains("  Remote Session State: up\n")
        );
    }
    // What one end calls local is the other's remote, of the state and in the end of the intervals.
    let of = |host: &Host, name: &str| {
        let shown = host.appctl(&["bfd/show", "u0"]).unwrap();
        let line = shown.lines().find(|line| line.starts_with(&format!("  {name}: "))).unwrap();
        line.split_once(": ").unwrap().1.to_owned()
    };
    for what in ["Minimum TX Interval", "Minimum RX Interval", "Discriminator", "Diagnostic"] {
        for (local, remote) in [(&a, &b), (&b, &a)] {
            let pair = || [of(local, &format!("Local {what}")), of(remote, &format!("Remote {what}"))];
            wait_until(what, || pair()[0] == pair()[1]);
        }
    }
    // Intervals change while the sessions are up.
    a.vsctl("set Interface u0 bfd:min_rx=150 bfd:min_tx=300").unwrap();
    wait_until("the new intervals", || {
        of(&b, "TX Interval") == "Approx 150ms" && of(&a, "TX Interval") == "Approx 300ms"
    });
    b.vsctl("set Interface u0 bfd:min_tx=400").unwrap();
    wait_until("the other's new interval", || {
        of(&a, "RX Interval") == "Approx 400ms" && of(&a, "Local Flags") == "none"
    });
    std::thread::sleep(Duration::from_secs(3));
    assert!(a.is_up("u0") && b.is_up("u0"));
    assert_eq!([&a, &b].map(|host| host.bfd("u0", "flap_count")), ["\"1\"", "\"1\""]);
    // Either end goes.
    drop(b.daemon.take());
    wait_until("the other end is gone", || a.is_down("u0"));
    _ = std::fs::remove_file(b.at().join("ovs-vswitchd.pid"));
    b.start_open_vswitch();
    wait_until("it is there again", || a.is_up("u0") && b.is_up("u0"));
    a.vsctl("set Interface u0 bfd:enable=false").unwrap();
    wait_until("Open vSwitch hears the end of the session", || b.is_down("u0"));
    assert_eq!(b.bfd("u0", "diagnostic"), "\"Neighbor Signaled Session Down\"");
}
