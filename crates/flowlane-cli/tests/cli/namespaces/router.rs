//! A router between two namespaces, whose hosts are the system's own: neighbours, pings, errors, large packets, translation.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::interfaces::wait_until;
use super::{Switch, sh, skipped};

/// Two namespaces, each with a link to the router. Removed when dropped.
pub(super) struct Hosts {
    pub(super) names: [String; 2],
    pub(super) links: [String; 2],
}

impl Hosts {
    /// `test` tells those of tests that run at the same time apart.
    fn new(test: char) -> Option<Self> {
        let id = std::process::id() % 100_000;
        let named = |kind: char| [format!("fr{test}{kind}a{id}"), format!("fr{test}{kind}b{id}")];
        let hosts = Self { names: named('n'), links: named('l') };
        let [a, b] = &hosts.names;
        let [x, y] = &hosts.links;
        sh(&format!(
            "ip netns add {a} && ip netns add {b} \
             && ip link add {x} type veth peer name e0 netns {a} && ip link add {y} type veth peer name e0 netns {b} \
             && ip link set {x} up && ip link set {y} up && ip -n {a} link set lo up && ip -n {b} link set lo up \
             && ip -n {a} addr add 192.0.2.5/24 dev e0 && ip -n {a} addr add 2001:db8:1::5/64 dev e0 nodad \
             && ip -n {b} addr add 198.51.100.2/24 dev e0 && ip -n {b} addr add 2001:db8:2::2/64 dev e0 nodad \
             && ip -n {b} addr add 203.0.113.7/32 dev lo && ip -n {a} link set e0 up && ip -n {b} link set e0 up \
             && ip -n {a} route add default via 192.0.2.1 && ip -n {a} -6 route add default via 2001:db8:1::1 \
             && ip -n {b} -6 route add default via 2001:db8:2::1"
        ))
        .then_some(hosts)
    }

    /// The output of a command on a host.
    pub(super) fn on(&self, host: usize, command: &str) -> String {
        let output = Command::new("sh")
            .args(["-c", &format!("ip netns exec {} {command}", self.names[host])])
            .output();
        let output = output.unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }

    #[track_caller]
    pub(super) fn expect(&self, host: usize, command: &str, part: &str) {
        let output = self.on(host, command);
        assert!(output.contains(part), "`{command}` without `{part}`:\n{output}");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let links = self.links.iter().map(|link| format!("ip link del {link}"));
        let names = self.names.iter().map(|name| format!("ip netns del {name}"));
        for command in links.chain(names) {
            sh(&command);
        }
    }
}

/// Hosts for a test that needs root; none where they cannot be made.
pub(super) fn hosts(test: char) -> Option<Hosts> {
    if !sh("test $(id -u) = 0 && command -v ip && command -v ping") {
        skipped("needs root, ip and ping");
        return None;
    }
    let hosts = Hosts::new(test);
    if hosts.is_none() {
        skipped("network namespaces cannot be made here");
    }
    hosts
}

/// Starts a router between the hosts' links, in a namespace if that is given.
pub(super) fn start(folder: &Path, hosts: &Hosts, namespace: Option<&str>, more: &str) -> Switch {
    let [x, y] = &hosts.links;
    let config = format!(
        "[[port]]\nnumber = 1\nname = \"lan\"\nopen = \"afpacket:{x}\"\naddresses = [\"192.0.2.1/24\", \"2001:db8:1::1/64\"]\n\
         [[port]]\nnumber = 2\nname = \"wan\"\nopen = \"afpacket:{y}\"\naddresses = [\"198.51.100.1/24\", \"2001:db8:2::1/64\"]\n{more}"
    );
    fs::write(folder.join("router.toml"), config).unwrap();
    let switch = spawn(folder, namespace, &[]);
    for _ in 0..100 {
        if folder.join("control.sock").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    switch
}

/// Starts a switch with the configuration that has been written.
pub(super) fn spawn(folder: &Path, namespace: Option<&str>, options: &[&str]) -> Switch {
    let flowlane = assert_cmd::cargo::cargo_bin!("flowlane");
    let mut switch = match namespace {
        Some(namespace) => {
            let mut within = Command::new("ip");
            within.args(["netns", "exec", namespace]).arg(flowlane);
            within
        }
        None => Command::new(flowlane),
    };
    switch.args(["switch", "run", "--json", "--duration", "60", "--socket"]).arg(folder.join("control.sock"));
    switch.args(options).arg(folder.join("router.toml")).stdout(Stdio::piped());
    Switch(Some(switch.spawn().unwrap()))
}

pub(super) fn control(folder: &Path, command: &str) -> String {
    let mut words = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
    words.arg("switch").args(command.split_whitespace()).arg("--socket").arg(folder.join("control.sock"));
    String::from_utf8(words.output().unwrap().stdout).unwrap()
}

fn add_routes(folder: &Path, routes: &[&str]) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
    command.args(["switch", "routes"]);
    routes.iter().for_each(|route| _ = command.args(["--add", route]));
    let output = command.arg("--socket").arg(folder.join("control.sock")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_systems_hosts_find_a_router() {
    let Some(hosts) = hosts('a') else { return };
    let folder = tempfile::tempdir().unwrap();
    let firewall = "[router]\nroutes = [\"203.0.113.0/24 via 198.51.100.2\"]\n\
        [firewall]\ninside = [\"lan\"]\noutside = [\"wan\"]\nallow = [\"outgoing\", \"in icmp echo\"]\ntranslate = [\"wan\"]\n";
    let mut switch = start(folder.path(), &hosts, None, firewall);
    hosts.expect(0, "ping -c 1 -W 2 192.0.2.1", " 0% packet loss");
    hosts.expect(0, "ping -c 1 -W 2 2001:db8:1::1", " 0% packet loss");
    // The host outside has no route back: it sees the router's address.
    hosts.expect(0, "ping -c 2 -i 0.2 -W 2 203.0.113.7", "2 received");
    hosts.expect(0, "ping -c 2 -i 0.2 -W 2 2001:db8:2::2", "ttl=63");
    hosts.expect(0, "ping -c 1 -W 2 -s 4000 203.0.113.7", "1 received");
    hosts.expect(0, "ping -c 1 -W 2 -t 1 203.0.113.7", "From 192.0.2.1 icmp_seq=1 Time to live exceeded");
    hosts.expect(0, "ping -c 1 -W 2 10.1.1.1", "Destination Net Unreachable");
    hosts.expect(0, "ping -c 1 -W 5 198.51.100.77", "Destination Host Unreachable");
    hosts.expect(1, "ping -c 1 -W 2 198.51.100.1", "1 received");
    hosts.expect(1, "ping -c 1 -W 1 2001:db8:1::5", "1 received");
    let listed = control(folder.path(), "neighbours");
    for part in ["192.0.2.5", "198.51.100.2", "2001:db8:1::5", "reachable", "echo replies"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    assert!(control(folder.path(), "neighbours --port wan --flush").contains("neighbours forgotten"));
    hosts.expect(0, "ping -c 1 -W 2 203.0.113.7", "1 received");
    switch.stop();
}

/// A namespace, removed when dropped.
pub(super) struct Namespace(pub(super) String);

impl Drop for Namespace {
    fn drop(&mut self) {
        sh(&format!("ip netns del {}", self.0));
    }
}

#[test]
fn routes_of_the_system_and_of_the_socket_are_followed() {
    let Some(hosts) = hosts('b') else { return };
    let folder = tempfile::tempdir().unwrap();
    let middle = Namespace(format!("frm{}", std::process::id() % 100_000));
    let (m, [x, y]) = (&middle.0, &hosts.links);
    // The system has the router's addresses, as a routing daemon needs them.
    assert!(sh(&format!(
        "ip netns add {m} && ip link set {x} netns {m} && ip link set {y} netns {m} && ip -n {m} link set lo up \
         && ip -n {m} addr add 192.0.2.1/24 dev {x} && ip -n {m} addr add 198.51.100.1/24 dev {y} \
         && ip -n {m} link set {x} up && ip -n {m} link set {y} up && ip -n {b} route add default via 198.51.100.1",
        b = hosts.names[1]
    )));
    let mut switch = start(folder.path(), &hosts, Some(m), "[router]\nkernel_table = \"main\"\n");
    // The system answers for its addresses, and the router does not.
    let answers = hosts.on(0, "ping -c 2 -i 0.2 -W 2 192.0.2.1");
    assert!(answers.contains("2 received") && !answers.contains("DUP"), "{answers}");
    hosts.expect(0, "ping -c 2 -i 0.2 -W 2 198.51.100.2", "2 received");
    let there = "ping -c 1 -W 2 203.0.113.7";
    hosts.expect(0, there, "Destination Net Unreachable");
    let change = |command: &str, part: &str| {
        assert!(sh(&format!("ip -n {m} {command}")), "{command}");
        let begun = Instant::now();
        // Some milliseconds, and more where others use the machine.
        while !control(folder.path(), "routes 203.0.113.7").contains(part) {
            assert!(begun.elapsed() < Duration::from_secs(5), "no `{part}` after `{command}`");
        }
        println!("`ip {command}` is in force after {} ms", begun.elapsed().as_millis());
    };
    change("route add 203.0.113.0/24 via 198.51.100.2", "198.51.100.2 dev wan | kernel");
    hosts.expect(0, there, "1 received");
    change("route change 203.0.113.0/24 via 198.51.100.9", "198.51.100.9 dev wan | kernel");
    change("route del 203.0.113.0/24", "there is no route");
    hosts.expect(0, there, "Destination Net Unreachable");
    // The socket's go before the system's.
    change("route add 203.0.113.0/24 via 198.51.100.9", "198.51.100.9");
    add_routes(folder.path(), &["203.0.113.7 via 198.51.100.2", "203.0.113.0/24 via 198.51.100.2"]);
    hosts.expect(0, there, "1 received");
    assert!(
        control(folder.path(), "routes --delete 203.0.113.7/32 --delete 203.0.113.0/24")
            .contains("2 removed")
    );
    assert!(control(folder.path(), "routes 203.0.113.7").contains("198.51.100.9 dev wan"));
    // A link that goes down takes its routes with it, of which the system says nothing.
    change(&format!("link set {y} down"), "there is no route");
    switch.stop();
}

#[test]
fn a_router_is_taken_over() {
    let Some(hosts) = hosts('c') else { return };
    let folder = tempfile::tempdir().unwrap();
    assert!(sh(&format!("ip -n {} route add default via 198.51.100.1", hosts.names[1])));
    let mut switch = start(folder.path(), &hosts, None, "[router]\n");
    add_routes(folder.path(), &["203.0.113.0/24 via 198.51.100.2"]);
    hosts.expect(0, "ping -c 1 -W 2 203.0.113.7", "1 received");
    let mut pings = Command::new("ip");
    pings.args([
        "netns",
        "exec",
        &hosts.names[0],
        "ping",
        "-i",
        "0.05",
        "-c",
        "100",
        "-W",
        "1",
        "2001:db8:2::2",
    ]);
    let pings = pings.stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    // A host that has heard of another Ethernet address of the router, for longer than the system keeps to one.
    let wrong = "02:00:00:00:00:99";
    assert!(sh(&format!(
        "ip -n {} neigh replace 198.51.100.1 lladdr {wrong} dev e0 nud reachable",
        hosts.names[1]
    )));
    std::thread::sleep(Duration::from_millis(1100));
    let next = spawn(folder.path(), None, &["--take-over"]);
    let ended = switch.0.take().unwrap().wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    let mut switch = next;
    let pings = String::from_utf8(pings.wait_with_output().unwrap().stdout).unwrap();
    let received = pings.split(" received").next().and_then(|text| text.rsplit(' ').next());
    println!("{received:?} of 100 pings");
    assert!(received.and_then(|text| text.parse().ok()) > Some(80), "{pings}");
    let heard = hosts.on(1, "ip neigh show 198.51.100.1");
    assert!(
        heard.contains("lladdr") && !heard.contains(wrong),
        "the router has not announced itself: {heard}"
    );
    let listed = control(folder.path(), "routes 203.0.113.7");
    assert!(listed.contains("198.51.100.2 dev wan") && listed.contains("socket"), "{listed}");
    hosts.expect(0, "ping -c 1 -W 2 203.0.113.7", "1 received");
    switch.stop();
}

/// The configuration of a site: hosts at a port that is switched, and a tunnel to the other site.
fn site(lan: &str, wan: &str, [address, own, other, inside, via]: [&str; 5]) -> String {
    format!(
        "[[port]]\nnumber = 1\nname = \"lan\"\nopen = \"afpacket:{lan}\"\n\
         [[port]]\nnumber = 2\nname = \"wan\"\nopen = \"afpacket:{wan}\"\naddresses = [\"{own}/24\"]\ndecapsulate = true\n\
         [[tunnel]]\nnumber = 1\nkind = \"vxlan\"\nid = 42\nlocal = \"{own}\"\nremote = \"{other}\"\n\
         [router]\nroutes = [\"default via {via}\"]\n\
         [[router.interface]]\nnumber = 10\nname = \"office\"\nvlan = 0\naddresses = [\"{address}\"]\n\
         [[router.interface]]\nnumber = 30\nname = \"branch\"\ntunnel = 1\naddresses = [\"{inside}\"]\n\
         [firewall]\ninside = [\"office\"]\noutside = [\"branch\", \"wan\"]\nallow = [\"outgoing\", \"in icmp echo\"]\n\
         [connections]\nfragment_min = 64\n"
    )
}

#[test]
fn two_sites_reach_each_other_through_a_tunnel() {
    let Some(hosts) = hosts('v') else { return };
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let between = ["va", "vb"].map(|side| format!("fr{side}{}", std::process::id() % 100_000));
    let ([x, y], [v, w]) = (&hosts.links, &between);
    assert!(sh(&format!(
        "ip link add {v} type veth peer name {w} && ip link set {v} up && ip link set {w} up \
         && ip -n {b} route add default via 198.51.100.1",
        b = hosts.names[1]
    )));
    let configs = [
        site(x, v, ["192.0.2.1/24", "203.0.113.1", "203.0.113.2", "10.9.0.1/30", "10.9.0.2"]),
        site(y, w, ["198.51.100.1/24", "203.0.113.2", "203.0.113.1", "10.9.0.2/30", "10.9.0.1"]),
    ];
    let mut switches = Vec::new();
    for (folder, config) in folders.iter().zip(configs) {
        fs::write(folder.path().join("router.toml"), config).unwrap();
        switches.push(spawn(folder.path(), None, &[]));
        wait_until("the switch runs", || folder.path().join("control.sock").exists());
    }
    hosts.expect(0, "ping -c 1 -W 2 192.0.2.1", " 0% packet loss");
    hosts.expect(0, "ping -c 2 -i 0.2 -W 2 198.51.100.2", "2 received");
    hosts.expect(1, "ping -c 2 -i 0.2 -W 2 192.0.2.5", "ttl=62");
    hosts.expect(1, "ping -c 1 -W 2 10.9.0.1", "1 received");
    hosts.expect(0, "ping -c 1 -W 2 -t 2 198.51.100.2", "From 10.9.0.2 icmp_seq=1 Time to live exceeded");
    hosts.expect(0, "ping -c 1 -W 2 -s 4000 198.51.100.2", "1 received");
    hosts.expect(0, "ping -c 1 -W 2 -M do -s 1423 198.51.100.2", "mtu = 1450");
    hosts.expect(0, "ping -c 1 -W 2 -M do -s 1422 198.51.100.2", "1 received");
    let listed = control(folders[0].path(), "neighbours");
    for part in ["192.0.2.5", "10.9.0.2", "203.0.113.2", "office", "branch"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    switches.iter_mut().for_each(|switch| _ = switch.stop());
    sh(&format!("ip link del {v}"));
}
