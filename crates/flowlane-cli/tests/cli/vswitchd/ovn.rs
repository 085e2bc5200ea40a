//! OVN on one chassis: `ovn-controller` drives the daemon's bridge as it drives Open vSwitch's. Requires OVN's programs (Debian's
//! `ovn-central` and `ovn-host`; `FLOWLANE_OVN_ROOT` names a folder that they are unpacked into), curl and Python; else skipped.

use std::path::PathBuf;
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

/// A chassis with OVN's databases and daemons beside it.
struct Chassis {
    host: Host,
    root: PathBuf,
    processes: Vec<Process>,
    /// The namespaces of virtual machines.
    machines: Vec<String>,
}

impl Chassis {
    fn start() -> Option<Self> {
        let root = programs()?;
        if !sh("command -v curl && command -v python3 && command -v ping") {
            skipped("needs curl, python3 and ping");
            return None;
        }
        let host = Host::start("fvo")?;
        let mut chassis = Self { host, root, processes: Vec::new(), machines: Vec::new() };
        for name in ["nb", "sb"] {
            let (database, socket) =
                (chassis.file(&format!("{name}.db")), chassis.file(&format!("{name}.sock")));
            let schema = chassis.root.join(format!("usr/share/ovn/ovn-{name}.ovsschema"));
            let arguments = ["create", &database, schema.to_str().unwrap()];
            chassis.host.programs.run("ovsdb-tool", chassis.host.at(), &arguments, "").unwrap();
            let mut server = chassis.host.programs.command("ovsdb-server", chassis.host.at());
            server.args([&database, &format!("--remote=punix:{socket}"), "--unixctl=none", "-vconsole:off"]);
            chassis.run(server);
            wait_until("the server listens", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        }
        chassis.nbctl("init");
        let remote = chassis.socket("sb");
        let settings = format!(
            "set Open_vSwitch . external_ids:system-id=here external_ids:ovn-remote={remote} \
             external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip=127.0.0.1"
        );
        chassis.host.vsctl(&settings).unwrap();
        let mut northd = chassis.command("ovn-northd");
        northd.args([format!("--ovnnb-db={}", chassis.socket("nb")), format!("--ovnsb-db={remote}")]);
        chassis.run(northd);
        let mut controller = Command::new("ip");
        controller.args(["netns", "exec", &chassis.host.namespace]);
        controller.arg(chassis.root.join("usr/bin/ovn-controller"));
        controller.arg(format!("unix:{}", chassis.host.socket().display()));
        chassis.surround(&mut controller);
        chassis.run(controller);
        wait_until("the integration bridge", || chassis.host.vsctl("br-exists br-int").is_ok());
        Some(chassis)
    }

    fn file(&self, name: &str) -> String {
        self.host.at().join(name).display().to_string()
    }

    fn socket(&self, database: &str) -> String {
        format!("unix:{}", self.file(&format!("{database}.sock")))
    }

    fn surround(&self, command: &mut Command) {
        for variable in ["OVS_RUNDIR", "OVN_RUNDIR", "OVN_LOGDIR", "OVN_DBDIR"] {
            command.env(variable, self.host.at());
        }
        flowlane::testing::find_libraries(command, &self.root);
        command.env("OVN_NB_DB", self.socket("nb")).env("OVN_SB_DB", self.socket("sb"));
        command.arg("-vconsole:off");
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.root.join("usr/bin").join(program));
        self.surround(&mut command);
        command
    }

    fn run(&mut self, mut command: Command) {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.processes.push(Process(command.spawn().unwrap()));
    }

    fn nbctl(&self, arguments: &str) {
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

    /// Waits until the chassis has what the databases say.
    fn sync(&self) {
        self.nbctl("--wait=hv sync");
    }

    /// A virtual machine with an interface of the bridge: network `10.N.0.0/24`, whose router is its host 254.
    fn machine(&mut self, network: u8, host: u8) -> String {
        let name = format!("{}m{host}", self.host.namespace);
        let (inside, mac) = (&self.host.namespace, format!("02:00:00:00:{network:02x}:{host:02x}"));
        assert!(sh(&format!(
            "ip netns add {name} && ip link add v{host} netns {inside} type veth peer name e0 netns {name} \
             && ip -n {inside} link set v{host} up && ip -n {name} link set e0 address {mac} up \
             && ip -n {name} addr add 10.{network}.0.{host}/24 dev e0 \
             && ip -n {name} route add default via 10.{network}.0.254"
        )));
        self.machines.push(name.clone());
        let address = format!("'{mac} 10.{network}.0.{host}'");
        self.nbctl(&format!("lsp-add sw{network} p{host} -- lsp-set-addresses p{host} {address}"));
        self.host
            .vsctl(&format!("add-port br-int v{host} -- set Interface v{host} external_ids:iface-id=p{host}"))
            .unwrap();
        name
    }
}

impl Drop for Chassis {
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
    let Some(mut chassis) = Chassis::start() else { return };
    for network in [1, 2] {
        chassis.nbctl(&format!("ls-add sw{network}"));
    }
    let [a, b] = [1, 2].map(|host| chassis.machine(1, host));
    let c = chassis.machine(2, 3);
    chassis.sync();
    wait_until("one logical switch", || pings(&a, "10.1.0.2"));
    assert!(!pings(&a, "10.2.0.3"));
    chassis.nbctl(
        "lr-add r -- lrp-add r r-sw1 02:00:00:00:ff:01 10.1.0.254/24 -- lrp-add r r-sw2 02:00:00:00:ff:02 10.2.0.254/24",
    );
    for network in [1, 2] {
        chassis.nbctl(&format!(
            "lsp-add sw{network} sw{network}-r -- lsp-set-type sw{network}-r router -- lsp-set-addresses sw{network}-r router \
             -- lsp-set-options sw{network}-r router-port=r-sw{network}"
        ));
    }
    chassis.sync();
    wait_until("the router answers", || pings(&a, "10.1.0.254"));
    wait_until("the router forwards", || pings(&a, "10.2.0.3") && pings(&c, "10.1.0.2"));
    // A stateful access list.
    chassis.nbctl("acl-add sw2 to-lport 1000 'outport==\"p3\" && ip4' drop");
    chassis.nbctl("acl-add sw2 to-lport 1001 'outport==\"p3\" && tcp.dst==80' allow-related");
    chassis.nbctl("acl-add sw2 from-lport 1001 'inport==\"p3\" && ip4' allow-related");
    chassis.sync();
    let mut server = Command::new("ip");
    server.args(["netns", "exec", &c, "python3", "-m", "http.server", "80"]).current_dir(chassis.host.at());
    chassis.run(server);
    wait_until("the server answers", || fetches(&a, "http://10.2.0.3/"));
    wait_until("connections from there are allowed", || pings(&c, "10.1.0.1"));
    assert!(!pings(&a, "10.2.0.3"));
    // A load balancer: destination translation.
    chassis.nbctl("lb-add lb 10.9.9.9:8080 10.2.0.3:80 tcp -- ls-lb-add sw1 lb");
    chassis.sync();
    wait_until("the load balancer", || fetches(&b, "http://10.9.9.9:8080/"));
    let flows = chassis.host.ofctl(&["-OOpenFlow15", "dump-flows", "br-int"]).lines().count();
    println!("{flows} flows");
    // The daemon comes again: OVN gives it all flows again.
    drop(chassis.host.daemon.take());
    _ = std::fs::remove_file(chassis.host.at().join("ovs-vswitchd.pid"));
    chassis.host.start_daemon();
    wait_until("the network is as it was", || fetches(&b, "http://10.9.9.9:8080/") && pings(&c, "10.1.0.1"));
    assert!(!pings(&a, "10.2.0.3"));
}
