//! Listeners of groups outlive the daemon.

use super::Host;
use crate::support::wait_until;

/// A report of IGMPv2: a host listens to 239.1.1.1.
const REPORT: &str = "01005e010101020000000001080046c000200000000001022a150a000001ef010101940400001600f9fcef0101010000000000000000000000000000";
/// A query of a router.
const QUERY: &str = "01005e000001020000000003080046c000200000000001023a160a000001e0000001940400001100eeff000000000000000000000000000000000000";

#[test]
fn listeners_stay_when_the_daemon_comes_again_or_another_takes_its_place() {
    let Some(mut host) = Host::start("mc") else { return };
    host.vsctl("add-br br0 -- set Bridge br0 mcast_snooping_enable=true").unwrap();
    for port in ["d1", "d2", "d3"] {
        host.vsctl(&format!("add-port br0 {port} -- set Interface {port} type=dummy")).unwrap();
    }
    let send = |host: &Host, port: &str, packet: &str| {
        host.ofctl(&["packet-out", "br0", &format!("in_port={port},packet={packet},actions=normal")]);
    };
    send(&host, "d1", REPORT);
    send(&host, "d2", QUERY);
    // Without the ages.
    let listed = |host: &Host| {
        let shown = host.appctl(&["mdb/show", "br0"]).unwrap();
        let rows = shown.lines().skip(1).map(|row| row.rsplit_once(' ').unwrap().0.trim().to_owned());
        rows.collect::<Vec<_>>()
    };
    wait_until("listener and router are known", || {
        listed(&host) == ["1     0  239.1.1.1", "2     0  querier"]
    });
    for take_over in [false, true] {
        if take_over {
            host.take_over();
        } else {
            host.restart();
        }
        assert_eq!(listed(&host), ["1     0  239.1.1.1", "2     0  querier"], "{take_over}");
    }
    // A report goes to the router only.
    let before = ["d1", "d2"].map(|port| host.sent("br0", port));
    send(&host, "d3", REPORT);
    wait_until("the router gets the report", || host.sent("br0", "d2") > before[1]);
    assert_eq!(host.sent("br0", "d1"), before[0]);
    host.vsctl("set Bridge br0 mcast_snooping_enable=false").unwrap();
    let said = host.appctl(&["mdb/show", "br0"]).unwrap_err();
    assert!(said.contains("multicast snooping is disabled"), "{said}");
}
