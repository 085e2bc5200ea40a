//! Tunnels whose path takes shorter packets than their senders know: the senders hear of it.

use super::Host;
use crate::namespaces::{sh, skipped};
use crate::support::wait_until;

/// A tunnel whose other end is the kernel's, where that has such tunnels.
struct Case {
    kind: &'static str,
    /// Its options, and the kernel's end.
    options: &'static str,
    link: &'static str,
    /// Bytes of outer headers and the inner Ethernet header.
    overhead: u32,
}

/// The MTU of the path, in bytes.
const PATH: u32 = 1400;

const CASES: [Case; 6] = [
    Case {
        kind: "vxlan",
        options: "remote_ip=192.0.2.2 options:key=7",
        link: "vxlan id 7 remote 192.0.2.1 local 192.0.2.2 dstport 4789",
        overhead: 50,
    },
    Case {
        kind: "vxlan",
        options: "remote_ip=192.0.2.2 options:key=7 options:csum=true options:dst_port=4790",
        link: "vxlan id 7 remote 192.0.2.1 local 192.0.2.2 dstport 4790",
        overhead: 50,
    },
    Case {
        kind: "vxlan",
        options: "remote_ip=fd00::2 options:key=7",
        link: "vxlan id 7 remote fd00::1 local fd00::2 dstport 4789 udp6zerocsumtx udp6zerocsumrx",
        overhead: 70,
    },
    Case {
        kind: "geneve",
        options: "remote_ip=192.0.2.2 options:key=7 options:csum=true",
        link: "geneve id 7 remote 192.0.2.1",
        overhead: 50,
    },
    Case {
        kind: "gre",
        options: "remote_ip=192.0.2.2 options:key=7",
        link: "gretap key 7 remote 192.0.2.1 local 192.0.2.2",
        overhead: 42,
    },
    Case {
        kind: "ip6gre",
        options: "remote_ip=fd00::2 options:csum=true",
        link: "ip6gretap csum remote fd00::1 local fd00::2",
        overhead: 62,
    },
];

#[test]
fn senders_hear_of_paths_that_take_shorter_packets() {
    let Some(host) = Host::start("fvm") else { return };
    let (inside, peer) = (&host.namespace, format!("{}p", host.namespace));
    assert!(sh(&format!(
        "ip netns add {peer} && ip link add u0 netns {inside} type veth peer name u0 netns {peer} \
         && ip -n {inside} addr add 192.0.2.1/24 dev u0 && ip -n {peer} addr add 192.0.2.2/24 dev u0 \
         && ip -n {inside} addr add fd00::1/64 dev u0 nodad && ip -n {peer} addr add fd00::2/64 dev u0 nodad \
         && ip -n {inside} link set u0 mtu 9000 up && ip -n {peer} link set u0 mtu 9000 up"
    )));
    host.vsctl("add-br b0").unwrap();
    for (n, Case { kind, options, link, overhead }) in CASES.iter().enumerate() {
        let has_end = sh(&format!("ip -n {peer} link add x0 type {link}"));
        host.vsctl(&format!("add-port b0 t0 -- set Interface t0 type={kind} options:{options}")).unwrap();
        let addresses = |namespace: &str, device: &str, host: u8| {
            sh(&format!(
                "ip -n {namespace} addr add 10.{n}.0.{host}/24 dev {device} \
                 && ip -n {namespace} addr add 2001:db8:{n}::{host}/64 dev {device} nodad \
                 && ip -n {namespace} link set {device} mtu 8000 up"
            ))
        };
        let ping =
            |to: &str, size: u32| sh(&format!("ip netns exec {inside} ping -c 1 -W 1 -M do -s {size} {to}"));
        let (v4, v6) = (format!("10.{n}.0.2"), format!("2001:db8:{n}::2"));
        assert!(addresses(inside, "b0", 1));
        if has_end {
            assert!(addresses(&peer, "x0", 2));
            wait_until("the kernel's end answers", || ping(&v4, 4000) && ping(&v6, 4000));
        } else {
            skipped(&format!("the kernel has no {kind}: no packet comes out of the tunnel"));
            let known =
                |to: &str| format!("ip -n {inside} neigh replace {to} lladdr 02:00:00:00:00:02 dev b0");
            assert!(sh(&known(&v4)) && sh(&known(&v6)));
        }
        // The path gets shorter.
        for (end, own) in [("192.0.2.2", "192.0.2.1"), ("fd00::2", "fd00::1")] {
            assert!(sh(&format!("ip -n {inside} route replace {end} dev u0 src {own} mtu {PATH}")));
        }
        for to in [&v4, &v6] {
            assert!(!ping(to, 4000), "{kind}: too long for the path");
            let mtu = PATH - overhead;
            let knows = format!("ip -n {inside} route get {to} | grep -w 'mtu {mtu}'");
            wait_until("the sender has heard of it", || !ping(to, 4000) && sh(&knows));
            let headers = if to.contains(':') { 48 } else { 28 };
            assert!(!has_end || ping(to, mtu - headers), "{kind}: as long as the path takes");
        }
        for end in ["192.0.2.2", "fd00::2"] {
            assert!(sh(&format!("ip -n {inside} route del {end} dev u0")));
        }
        host.vsctl("del-port b0 t0").unwrap();
        assert!(!has_end || sh(&format!("ip -n {peer} link del x0")));
        assert!(sh(&format!("ip -n {inside} addr flush dev b0")));
    }
    sh(&format!("ip netns del {peer}"));
}
