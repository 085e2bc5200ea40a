//! OVN: `ovn-controller` drives the daemon's bridges as it drives Open vSwitch's, on one chassis and on several. Requires OVN's programs (Debian's
//! `ovn-central` and `ovn-host`; `FLOWLANE_OVN_ROOT` names a folder that they are unpacked into), curl and Python; else skipped.

mod generated;
mod services;
mod wire;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Host, Process};
use crate::namespaces::{sh, skipped};
use crate::support::wait_until;

/// The programs of OVN.
fn programs() -> Option<PathBuf> {
    let root = std::env::var_os("FLOWLANE_OVN_ROOT").map_or_else(|| PathBuf::from("/"), PathBuf::from);
    let wanted = ["ovn-northd", "ovn-controller", "ovn-nbctl", "ovn-sbctl"];
    let missing = wanted.iter().find(|name| !root.join("usr/bin").join(name).exists());
    if missing.is_none() && root.join("usr/share/ovn/ovn-nb.ovsschema").exists() {
        return Some(root);
    }
    assert!(std::env::var_os("FLOWLANE_REQUIRE_OVN").is_none(), "OVN is not in {}", root.display());
    skipped("there is no OVN (apt-get install ovn-central ovn-host)");
    None
}

/// OVN's databases with their daemon, the chassis, and the virtual machines.
pub(super) struct Network {
    root: PathBuf,
    folder: tempfile::TempDir,
    pub(super) chassis: Vec<Host>,
    processes: Vec<Process>,
    /// The namespaces of virtual machines, and of others outside.
    machines: Vec<String>,
}

impl Network {
    /// Starts OVN with as many chassis, which reach each other at 192.0.2.1, 192.0.2.2 and so on.
    pub(super) fn start(name: &str, chassis: u8) -> Option<Self> {
        let root = programs()?;
        if !sh("command -v curl && command -v python3 && command -v ping") {
            skipped("needs curl, python3 and ping");
            return None;
        }
        let hosts: Option<Vec<Host>> = (1..=chassis).map(|n| Host::start(&format!("{name}{n}x"))).collect();
        let (folder, processes, machines) = (tempfile::tempdir().unwrap(), Vec::new(), Vec::new());
        let mut network = Self { root, folder, chassis: hosts?, processes, machines };
        for name in ["nb", "sb"] {
            let (database, socket) =
                (network.file(&format!("{name}.db")), network.file(&format!("{name}.sock")));
            let schema = network.root.join(format!("usr/share/ovn/ovn-{name}.ovsschema"));
            let (programs, at) = (&network.chassis[0].programs, network.folder.path());
            programs.run("ovsdb-tool", at, &["create", &database, schema.to_str().unwrap()], "").unwrap();
            let mut server = programs.command("ovsdb-server", at);
            server.args([&database, &format!("--remote=punix:{socket}"), "--unixctl=none", "-vconsole:off"]);
            network.run(server);
            wait_until("the server listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        }
        network.nbctl("init");
        let remote = network.socket("sb");
        let mut northd = network.command("ovn-northd");
        northd.args([format!("--ovnnb-db={}", network.socket("nb")), format!("--ovnsb-db={remote}")]);
        network.run(northd);
        if chassis > 1 {
            network.connect_chassis();
        }
        for place in 0..network.chassis.len() {
            let (host, n) = (&network.chassis[place], place + 1);
            host.vsctl(&format!(
                "set Open_vSwitch . external_ids:system-id=c{n} external_ids:ovn-remote={remote} \
                 external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip=192.0.2.{n} \
                 external_ids:ovn-bridge-mappings=outside:br-ex"
            ))
            .unwrap();
            let mut controller = Command::new("ip");
            controller.args(["netns", "exec", &host.namespace]);
            controller.arg(network.root.join("usr/bin/ovn-controller"));
            controller.arg(format!("unix:{}", host.socket().display()));
            network.surround(&mut controller, host.at());
            network.run(controller);
            let host = &network.chassis[place];
            wait_until("the integration bridge", || host.vsctl("br-exists br-int").is_ok());
        }
        Some(network)
    }

    /// A wire between all chassis, whose tunnels are 58 bytes longer than their packets.
    fn connect_chassis(&mut self) {
        let wire = format!("{}w", self.chassis[0].namespace);
        assert!(sh(&format!(
            "ip netns add {wire} && ip -n {wire} link add b0 type bridge && ip -n {wire} link set b0 up"
        )));
        for (host, n) in self.chassis.iter().zip(1..) {
            let inside = &host.namespace;
            assert!(sh(&format!(
                "ip link add u0 netns {inside} type veth peer name u{n} netns {wire} && ip -n {inside} link set u0 mtu 1600 up \
                 && ip -n {inside} addr add 192.0.2.{n}/24 dev u0 && ip -n {wire} link set u{n} mtu 1600 master b0 up"
            )));
        }
        self.machines.push(wire);
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn socket(&self, database: &str) -> String {
        format!("unix:{}", self.file(&format!("{database}.sock")))
    }

    fn surround(&self, command: &mut Command, at: &Path) {
        for variable in ["OVS_RUNDIR", "OVN_RUNDIR", "OVN_LOGDIR", "OVN_DBDIR"] {
            command.env(variable, at);
        }
        flowlane::testing::find_libraries(command, &self.root);
        command.env("OVN_NB_DB", self.socket("nb")).env("OVN_SB_DB", self.socket("sb"));
        command.arg("-vconsole:off");
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.root.join("usr/bin").join(program));
        self.surround(&mut command, self.folder.path());
        command
    }

    fn run(&mut self, mut command: Command) {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.processes.push(Process(command.spawn().unwrap()));
    }

    pub(super) fn nbctl(&self, arguments: &str) {
        // Words in quotes are one.
        let words = arguments.split('\'').enumerate().flat_map(|(n, part)| match n % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![part.to_owned()],
        });
        let output = self.command("ovn-nbctl").arg("--timeout=20").args(words).output().unwrap();
        assert!(
            output.status.success(),
            "ovn-nbctl {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Waits until all chassis have what the databases say.
    pub(super) fn sync(&self) {
        self.nbctl("--wait=hv sync");
    }

    /// A virtual machine at a chassis (by place), with an interface of its bridge: network `10.N.0.0/24`, whose router is its
    /// host 254.
    pub(super) fn machine(&mut self, place: usize, network: u8, host: u8) -> String {
        let chassis = &self.chassis[place];
        let name = format!("{}m{host}", self.chassis[0].namespace);
        let (inside, mac) = (&chassis.namespace, format!("02:00:00:00:{network:02x}:{host:02x}"));
        assert!(sh(&format!(
            "ip netns add {name} && ip link add v{host} netns {inside} type veth peer name e0 netns {name} \
             && ip -n {inside} link set v{host} mtu 1542 up && ip -n {name} link set e0 address {mac} mtu 1542 up \
             && ip -n {name} addr add 10.{network}.0.{host}/24 dev e0 \
             && ip -n {name} route add default via 10.{network}.0.254"
        )));
        chassis
            .vsctl(&format!("add-port br-int v{host} -- set Interface v{host} external_ids:iface-id=p{host}"))
            .unwrap();
        self.machines.push(name.clone());
        let address = format!("'{mac} 10.{network}.0.{host}'");
        self.nbctl(&format!("lsp-add sw{network} p{host} -- lsp-set-addresses p{host} {address}"));
        name
    }

    /// A router between the first two networks.
    pub(super) fn add_router(&self) {
        self.nbctl(
            "lr-add r -- lrp-add r r-sw1 02:00:00:00:ff:01 10.1.0.254/24 -- lrp-add r r-sw2 02:00:00:00:ff:02 10.2.0.254/24",
        );
        self.join_router(&[1, 2]);
    }

    /// Adds the ports of logical switches for a router's.
    fn join_router(&self, networks: &[u8]) {
        for network in networks {
            self.nbctl(&format!(
                "lsp-add sw{network} sw{network}-r -- lsp-set-type sw{network}-r router -- lsp-set-addresses sw{network}-r router \
                 -- lsp-set-options sw{network}-r router-port=r-sw{network}"
            ));
        }
    }

    /// Serves the files of a folder at a machine's port 80.
    fn serve(&mut self, machine: &str) {
        let mut server = Command::new("ip");
        server.args(["netns", "exec", machine, "python3", "-m", "http.server", "80"]);
        server.current_dir(self.folder.path());
        self.run(server);
    }

    /// The daemon of a chassis ends, and comes again.
    fn restart_daemon(&mut self, place: usize) {
        let host = &mut self.chassis[place];
        drop(host.daemon.take());
        _ = std::fs::remove_file(host.at().join("ovs-vswitchd.pid"));
        host.start_daemon();
    }
}

impl Network {
    /// Puts Open vSwitch, in user space, in the place of a chassis' daemon. There the bridge of the wire has the chassis' address.
    fn start_open_vswitch(&mut self, place: usize) {
        let host = &mut self.chassis[place];
        drop(host.daemon.take());
        _ = std::fs::remove_file(host.at().join("ovs-vswitchd.pid"));
        let address = format!("192.0.2.{}/24", place + 1);
        assert!(host.ip("addr flush dev u0"));
        host.vsctl("--no-wait set Open_vSwitch . external_ids:ovn-bridge-datapath-type=netdev").unwrap();
        host.start_open_vswitch();
        host.vsctl("add-br br-wire -- set Bridge br-wire datapath_type=netdev -- add-port br-wire u0")
            .unwrap();
        assert!(
            host.ip(&format!("addr add {address} dev br-wire")) && host.ip("link set br-wire mtu 1600 up")
        );
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.processes.clear();
        self.machines.iter().for_each(|name| _ = sh(&format!("ip netns del {name}")));
    }
}

fn pings(from: &str, to: &str) -> bool {
    sh(&format!("ip netns exec {from} ping -c 1 -W 1 {to}"))
}

fn fetches(from: &str, url: &str) -> bool {
    sh(&format!("ip netns exec {from} curl -s -f -m 2 -o /dev/null {url}"))
}

#[test]
fn logical_switches_routers_access_lists_and_load_balancers_of_ovn_work() {
    let Some(mut network) = Network::start("fvo", 1) else { return };
    for n in [1, 2] {
        network.nbctl(&format!("ls-add sw{n}"));
    }
    let [a, b] = [1, 2].map(|host| network.machine(0, 1, host));
    let c = network.machine(0, 2, 3);
    network.sync();
    wait_until("one logical switch", || pings(&a, "10.1.0.2"));
    assert!(!pings(&a, "10.2.0.3"));
    network.add_router();
    network.sync();
    wait_until("the router answers", || pings(&a, "10.1.0.254"));
    wait_until("the router forwards", || pings(&a, "10.2.0.3") && pings(&c, "10.1.0.2"));
    // A stateful access list.
    network.nbctl("acl-add sw2 to-lport 1000 'outport==\"p3\" && ip4' drop");
    network.nbctl("acl-add sw2 to-lport 1001 'outport==\"p3\" && tcp.dst==80' allow-related");
    network.nbctl("acl-add sw2 from-lport 1001 'inport==\"p3\" && ip4' allow-related");
    network.sync();
    network.serve(&c);
    wait_until("the server answers", || fetches(&a, "http://10.2.0.3/"));
    wait_until("connections from there are allowed", || pings(&c, "10.1.0.1"));
    assert!(!pings(&a, "10.2.0.3"));
    // A load balancer: destination translation.
    network.nbctl("lb-add lb 10.9.9.9:8080 10.2.0.3:80 tcp -- ls-lb-add sw1 lb");
    network.sync();
    wait_until("the load balancer", || fetches(&b, "http://10.9.9.9:8080/"));
    // The daemon comes again: OVN gives it all flows again.
    network.restart_daemon(0);
    wait_until("the network is as it was", || fetches(&b, "http://10.9.9.9:8080/") && pings(&c, "10.1.0.1"));
    assert!(!pings(&a, "10.2.0.3"));
}

/// The script of the documentation.
#[test]
fn the_example_starts_a_network_in_which_all_reach_each_other() {
    let (Some(root), Some(_)) = (programs(), flowlane::testing::OvsPrograms::find()) else { return };
    if !sh("test $(id -u) = 0 && ip netns add c1 && ip netns del c1") {
        return skipped("needs root, network namespaces, and none called c1");
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |verb: &str| {
        let mut script = Command::new("bash");
        script.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/ovn.sh")).arg(verb);
        script
            .env("FLOWLANE", assert_cmd::cargo::cargo_bin!("flowlane"))
            .env("OVN_AT", folder.path().join("ovn"));
        let root = if root == Path::new("/") { String::new() } else { root.display().to_string() };
        script.env("OVN_ROOT", root);
        script.env("OVS_ROOT", std::env::var_os("FLOWLANE_OVS_ROOT").unwrap_or_default());
        let output = script.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (is_up, _) = run("up");
    let mut said = String::new();
    wait_until("all reach each other", || {
        let (all, answers) = run("ping");
        said = answers;
        !is_up || all
    });
    let (is_down, _) = run("down");
    assert!(is_up && is_down && !folder.path().join("ovn").exists());
    assert_eq!(said.lines().count(), 16);
}

/// Packets between chassis go through tunnels, which OVN asks for, one for each other chassis; those to and from outside go through the
/// one that is the router's gateway.
#[test]
fn two_chassis_of_ovn_are_one_network() {
    let Some(mut network) = Network::start("fvt", 2) else { return };
    for n in [1, 2] {
        network.nbctl(&format!("ls-add sw{n}"));
    }
    let (a, b) = (network.machine(0, 1, 1), network.machine(1, 1, 2));
    let c = network.machine(1, 2, 3);
    network.sync();
    wait_until("a tunnel", || pings(&a, "10.1.0.2"));
    let shown = network.chassis[0].vsctl("get Interface ovn-c2-0 type ofport link_state error").unwrap();
    assert!(shown.starts_with("geneve\n") && shown.ends_with("\nup\n[]"), "{shown}");
    network.add_router();
    network.sync();
    wait_until("the router forwards", || pings(&a, "10.2.0.3") && pings(&c, "10.1.0.1"));
    assert!(
        sh(&format!("ip netns exec {a} ping -c 2 -W 1 -M do -s 1514 10.1.0.2")),
        "the longest packets fit"
    );
    // A load balancer, and more than a few packets.
    network.serve(&c);
    std::fs::write(network.folder.path().join("file"), vec![7; 3_000_000]).unwrap();
    network.nbctl("lb-add lb 10.9.9.9:8080 10.2.0.3:80 tcp -- ls-lb-add sw1 lb");
    network.sync();
    wait_until("the load balancer", || fetches(&a, "http://10.9.9.9:8080/"));
    let fetched =
        format!("ip netns exec {a} curl -s -f -m 20 http://10.9.9.9:8080/file | wc -c | grep -x 3000000");
    assert!(sh(&fetched));
    // Outside: the router has its gateway at the first chassis; translation of all addresses, and one address of a machine at the
    // second.
    let outside = format!("{}o", network.chassis[0].namespace);
    let inside = &network.chassis[0].namespace;
    assert!(sh(&format!(
        "ip netns add {outside} && ip link add x0 netns {inside} type veth peer name e0 netns {outside} \
         && ip -n {inside} link set x0 up && ip -n {outside} addr add 172.16.0.9/24 dev e0 && ip -n {outside} link set e0 up"
    )));
    network.machines.push(outside.clone());
    network.chassis[0].vsctl("add-br br-ex -- add-port br-ex x0").unwrap();
    network.nbctl(
        "ls-add ext -- lsp-add ext ext-net -- lsp-set-type ext-net localnet -- lsp-set-addresses ext-net unknown \
         -- lsp-set-options ext-net network_name=outside -- lrp-add r r-ext 02:00:00:00:ff:03 172.16.0.1/24 \
         -- lsp-add ext ext-r -- lsp-set-type ext-r router -- lsp-set-addresses ext-r router \
         -- lsp-set-options ext-r router-port=r-ext -- lrp-set-gateway-chassis r-ext c1 10",
    );
    network
        .nbctl("lr-nat-add r snat 172.16.0.1 10.1.0.0/24 -- lr-nat-add r dnat_and_snat 172.16.0.50 10.1.0.2");
    network.sync();
    wait_until("packets outside", || pings(&a, "172.16.0.9"));
    wait_until("packets outside through the other chassis", || pings(&b, "172.16.0.9"));
    wait_until("packets from outside", || pings(&outside, "172.16.0.50"));
    // Each daemon comes again, and connections are as they were.
    for place in [1, 0] {
        network.restart_daemon(place);
        wait_until("the network is as it was", || pings(&a, "10.2.0.3") && pings(&outside, "172.16.0.50"));
        assert!(sh(&fetched));
    }
}

/// One chassis has Open vSwitch: packets that it puts into tunnels come out here, and the other way round. The network stays as it is when
/// Flowlane takes its place.
#[test]
fn a_chassis_with_open_vswitch_is_in_the_same_network() {
    let Some(mut network) = Network::start("fvm", 2) else { return };
    for host in &network.chassis {
        // Open vSwitch in user space takes no packet whose checksum is left to a card, as veth's are.
        host.vsctl("set Open_vSwitch . external_ids:ovn-encap-csum=false").unwrap();
    }
    network.start_open_vswitch(1);
    for n in [1, 2] {
        network.nbctl(&format!("ls-add sw{n}"));
    }
    let (a, b) = (network.machine(0, 1, 1), network.machine(1, 1, 2));
    let c = network.machine(1, 2, 3);
    network.add_router();
    network.sync();
    let reach =
        || pings(&a, "10.1.0.2") && pings(&b, "10.1.0.1") && pings(&a, "10.2.0.3") && pings(&c, "10.1.0.1");
    wait_until("all reach each other", reach);
    let host = &mut network.chassis[1];
    host.vsctl("del-br br-wire").unwrap();
    drop(host.daemon.take());
    _ = std::fs::remove_file(host.at().join("ovs-vswitchd.pid"));
    assert!(host.ip("addr replace 192.0.2.2/24 dev u0"));
    host.start_daemon();
    wait_until("all reach each other as before", reach);
}

/// A router has its gateway at the chassis of the highest priority that the others reach, as BFD in their tunnels says.
#[test]
fn the_gateway_of_ovn_moves_to_another_chassis() {
    let Some(mut network) = Network::start("fvg", 3) else { return };
    network.nbctl("ls-add sw1");
    network.nbctl("ls-add sw2");
    let a = network.machine(2, 1, 1);
    network.add_router();
    // Outside, both gateways are at one wire.
    let outside = format!("{}o", network.chassis[0].namespace);
    assert!(sh(&format!(
        "ip netns add {outside} && ip -n {outside} link add b1 type bridge && ip -n {outside} addr add 172.16.0.9/24 dev b1 \
         && ip -n {outside} link set b1 up"
    )));
    network.machines.push(outside.clone());
    for place in [0, 1] {
        let inside = &network.chassis[place].namespace;
        assert!(sh(&format!(
            "ip link add x0 netns {inside} type veth peer name e{place} netns {outside} && ip -n {inside} link set x0 up \
             && ip -n {outside} link set e{place} master b1 up"
        )));
        network.chassis[place].vsctl("add-br br-ex -- add-port br-ex x0").unwrap();
    }
    network.nbctl(
        "ls-add ext -- lsp-add ext ext-net -- lsp-set-type ext-net localnet -- lsp-set-addresses ext-net unknown \
         -- lsp-set-options ext-net network_name=outside -- lrp-add r r-ext 02:00:00:00:ff:03 172.16.0.1/24 \
         -- lsp-add ext ext-r -- lsp-set-type ext-r router -- lsp-set-addresses ext-r router \
         -- lsp-set-options ext-r router-port=r-ext \
         -- lrp-set-gateway-chassis r-ext c1 20 -- lrp-set-gateway-chassis r-ext c2 10",
    );
    network.nbctl("lr-nat-add r snat 172.16.0.1 10.1.0.0/24");
    network.sync();
    wait_until("packets outside", || pings(&a, "172.16.0.9"));
    let is_up = |chassis: &Host, tunnel: &str| {
        chassis
            .vsctl(&format!("--if-exists get Interface {tunnel} bfd_status:state"))
            .is_ok_and(|state| state == "up")
    };
    wait_until("sessions between the chassis", || {
        let [first, second, third] = &network.chassis[..] else { return false };
        is_up(first, "ovn-c2-0")
            && is_up(second, "ovn-c1-0")
            && is_up(third, "ovn-c1-0")
            && is_up(third, "ovn-c2-0")
    });
    assert!(pings(&a, "172.16.0.9"));
    let sent = |place: usize| network.chassis[place].sent("br-ex", "x0");
    let before = sent(0);
    assert!(sh(&format!("ip netns exec {a} ping -c 5 -i 0.05 -W 1 172.16.0.9")));
    assert!(sent(0) >= before + 5, "the first chassis is the gateway");
    let before = sent(1);
    drop(network.chassis[0].daemon.take());
    let begun = std::time::Instant::now();
    wait_until("packets outside through the other chassis", || pings(&a, "172.16.0.9"));
    println!("outside again after {:?}", begun.elapsed());
    assert!(network.chassis[1].sent("br-ex", "x0") > before);
}
