//! `flowlane vswitchd` in the place of `ovs-vswitchd`, driven by `ovs-vsctl`, `ovs-ofctl` and `ovs-appctl`. Requires root, since bridges
//! have interfaces of their own, and Open vSwitch's programs; else skipped.
#![cfg(target_os = "linux")]

mod bfd;
mod bonds;
mod controllers;
mod database;
mod memory;
mod multicast;
mod ovn;
mod ovs_ctl;
mod path_mtu;
mod qos;
mod readme;
mod restarts;
mod scripts;
mod spanning_tree;
mod supervised;
mod unsupported;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flowlane::testing::OvsPrograms;

use crate::namespaces::{sh, skipped};
use crate::support::wait_until;

/// A process that is killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A database with its server and the daemon, in a network namespace of their own.
struct Host {
    programs: OvsPrograms,
    folder: tempfile::TempDir,
    namespace: String,
    /// Further options of the server.
    server_options: Vec<String>,
    server: Option<Process>,
    daemon: Option<Process>,
}

impl Host {
    fn start(name: &str) -> Option<Self> {
        let mut host = Self::without_daemon(name)?;
        host.start_daemon();
        Some(host)
    }

    fn without_daemon(name: &str) -> Option<Self> {
        let programs = OvsPrograms::find()?;
        let namespace = format!("{name}{}", std::process::id() % 100_000);
        let exists = Path::new("/run/netns").join(&namespace).exists();
        assert!(!exists, "two tests have hosts of the name {name}");
        if !sh(&format!("test $(id -u) = 0 && ip netns add {namespace}")) {
            skipped("needs root, and network namespaces");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (database, schema) = (folder.path().join("conf.db"), programs.schema());
        let arguments = ["create", database.to_str().unwrap(), schema.to_str().unwrap()];
        programs.run("ovsdb-tool", folder.path(), &arguments, "").unwrap();
        let mut host =
            Self { programs, folder, namespace, server_options: Vec::new(), server: None, daemon: None };
        host.start_server();
        host.vsctl("--no-wait init").unwrap();
        Some(host)
    }

    fn at(&self) -> &Path {
        self.folder.path()
    }

    fn socket(&self) -> PathBuf {
        self.at().join("db.sock")
    }

    fn start_server(&mut self) {
        drop(self.server.take());
        _ = std::fs::remove_file(self.socket());
        let mut server = Command::new("ip");
        server.args(["netns", "exec", &self.namespace]).arg(self.programs.path("ovsdb-server"));
        self.programs.surround(&mut server, self.at());
        server
            .args(&self.server_options)
            .arg(self.at().join("conf.db"))
            .arg(format!("--remote=punix:{}", self.socket().display()));
        server.args(["--unixctl=none", "-vconsole:off"]).stdout(Stdio::null()).stderr(Stdio::null());
        self.server = Some(Process(server.spawn().unwrap()));
        wait_until("the server listens", || UnixStream::connect(self.socket()).is_ok());
    }

    fn start_daemon(&mut self) {
        self.start_daemon_with(&[]);
    }

    /// Starts the daemon with further arguments.
    fn start_daemon_with(&mut self, arguments: &[&str]) {
        let mut daemon = Command::new("ip");
        daemon.args(["netns", "exec", &self.namespace]).arg(assert_cmd::cargo::cargo_bin!("flowlane"));
        daemon
            .args(["vswitchd", "--pidfile"])
            .args(arguments)
            .env("OVS_RUNDIR", self.at())
            .env("FLOWLANE_TUNE", "/dev/null");
        self.daemon = Some(Process(daemon.stdout(Stdio::null()).spawn().unwrap()));
        wait_until("the daemon runs", || self.at().join("ovs-vswitchd.pid").exists());
    }

    /// Starts Open vSwitch's own daemon with its datapath in user space.
    fn start_open_vswitch(&mut self) {
        self.start_open_vswitch_with(&[]);
    }

    /// Starts Open vSwitch's daemon with further options.
    fn start_open_vswitch_with(&mut self, options: &[&str]) {
        self.start_open_vswitch_at(&format!("unix:{}", self.socket().display()), options);
    }

    /// Starts Open vSwitch's daemon, which follows this database.
    fn start_open_vswitch_at(&mut self, database: &str, options: &[&str]) {
        let mut daemon = Command::new("ip");
        daemon.args(["netns", "exec", &self.namespace]).arg(self.programs.path("ovs-vswitchd"));
        self.programs.surround(&mut daemon, self.at());
        daemon.arg(database);
        daemon.args(["--disable-system", "--pidfile", "-vconsole:off"]).args(options);
        self.daemon = Some(Process(daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()));
        wait_until("the daemon runs", || self.at().join("ovs-vswitchd.pid").exists());
    }

    fn vsctl(&self, arguments: &str) -> Result<String, String> {
        let mut all = vec!["--timeout=10"];
        all.extend(arguments.split(' '));
        let (db, out) = (format!("--db=unix:{}", self.socket().display()), self.at());
        all.insert(0, &db);
        let output = self.programs.output("ovs-vsctl", out, &all, "")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.success() && said.is_empty() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(said),
        }
    }

    fn ofctl(&self, arguments: &[&str]) -> String {
        self.programs.run("ovs-ofctl", self.at(), arguments, "").unwrap()
    }

    /// Packets that a port has sent.
    fn sent(&self, bridge: &str, port: &str) -> u64 {
        let shown = self.ofctl(&["dump-ports", bridge, port]);
        let (_, behind) = shown.split_once("tx pkts=").unwrap();
        behind.split(',').next().unwrap().parse().unwrap()
    }

    fn appctl(&self, arguments: &[&str]) -> Result<String, String> {
        let mut all = vec!["-t", "ovs-vswitchd"];
        all.extend(arguments);
        self.programs.run("ovs-appctl", self.at(), &all, "")
    }

    fn ip(&self, arguments: &str) -> bool {
        sh(&format!("ip -n {} {arguments}", self.namespace))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop((self.daemon.take(), self.server.take()));
        sh(&format!("ip netns del {}", self.namespace));
    }
}

#[test]
fn ovs_vsctl_makes_bridges_and_ports_and_ovs_ofctl_drives_them() {
    let Some(mut host) = Host::start("fv") else { return };
    host.vsctl("add-br br0").unwrap();
    assert_eq!(host.vsctl("get Interface br0 ofport").unwrap(), "65534");
    assert!(host.ip("link show br0"), "the bridge's own interface");
    assert_eq!(host.vsctl("get Bridge br0 datapath_id").unwrap().len(), 18, "16 digits in quotes");
    assert!(
        host.ip("link add e1 type veth peer name e2 && true")
            && host.ip("link set e1 up")
            && host.ip("link set e2 up")
    );
    host.vsctl("add-port br0 e1 -- add-port br0 d7 -- set Interface d7 type=dummy ofport_request=7").unwrap();
    assert_eq!(host.vsctl("get Interface d7 ofport").unwrap(), "7");
    let state = || host.vsctl("get Interface e1 ofport link_state admin_state mac_in_use error").unwrap();
    wait_until("the link is up", || state().contains("\nup\nup\n\""));
    assert!(state().starts_with("1\n") && state().ends_with("\n[]"), "{}", state());
    assert!(host.ip("link set e1 down"));
    wait_until("the link is down", || state().contains("\ndown\ndown\n\""));
    // An interface that is not there, and one of a type that is not supported.
    let missing = host.vsctl("add-port br0 nowhere").unwrap_err();
    assert!(missing.contains("nowhere") && missing.contains("Error detected"), "{missing}");
    assert_eq!(host.vsctl("get Interface nowhere ofport").unwrap(), "-1");
    assert!(host.ip("link add nowhere type veth peer name elsewhere") && host.ip("link set nowhere up"));
    wait_until("it is there", || host.vsctl("get Interface nowhere ofport error").unwrap() == "2\n[]");
    let unknown = host.vsctl("add-port br0 x -- set Interface x type=lisp").unwrap_err();
    assert!(unknown.contains("lisp"), "{unknown}");
    let mode = "add-port br0 y -- set Interface y type=afxdp options:xdp-mode=dance";
    let unknown = host.vsctl(mode).unwrap_err();
    assert!(unknown.contains("there are best-effort, native-with-zerocopy, native, generic"), "{unknown}");
    host.vsctl("del-port br0 x -- del-port br0 y -- del-port br0 nowhere").unwrap();
    // OpenFlow, by the name of the bridge.
    let shown = host.ofctl(&["show", "br0"]);
    assert!(shown.contains(" LOCAL(br0)") && shown.contains(" 1(e1)") && shown.contains(" 7(d7)"), "{shown}");
    assert!(host.ofctl(&["dump-flows", "br0"]).contains("priority=0 actions=NORMAL"));
    host.ofctl(&["add-flow", "br0", "in_port=7,actions=LOCAL"]);
    assert!(host.ofctl(&["dump-flows", "br0"]).contains("in_port=7 actions=LOCAL"));
    // Nothing is written where nothing changes.
    let bytes = || std::fs::metadata(host.at().join("conf.db")).unwrap().len();
    let before = bytes();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(bytes(), before, "the daemon writes its status again and again");
    // The server goes and comes again; the bridge stays as it is.
    host.start_server();
    host.vsctl("add-port br0 d8 tag=5 -- set Interface d8 type=dummy").unwrap();
    assert!(host.ofctl(&["dump-flows", "br0"]).contains("in_port=7 actions=LOCAL"));
    assert_eq!(host.vsctl("get Interface e1 ofport").unwrap(), "1");
    // The daemon goes and comes again: ports have the numbers that they had.
    let before = host.vsctl("get Interface d8 ofport").unwrap();
    drop(host.daemon.take());
    _ = std::fs::remove_file(host.at().join("ovs-vswitchd.pid"));
    host.start_daemon();
    host.vsctl("add-br br1 -- set-fail-mode br1 secure").unwrap();
    assert_eq!(host.vsctl("get Interface d8 ofport").unwrap(), before);
    assert_eq!(host.ofctl(&["dump-flows", "br1"]).lines().count(), 1, "a secure bridge has no rules");
    // A port that moves to another bridge in one transaction, to and fro.
    host.vsctl("del-port br0 e1 -- add-port br1 e1").unwrap();
    host.vsctl("del-port br1 e1 -- add-port br0 e1").unwrap();
    let twice = host.vsctl("add-port br1 e1-too -- set Interface e1-too type=tap -- add-br br2").err();
    assert_eq!(twice, None);
    // The rule of bridges without controllers comes and goes with the mode.
    for (mode, lines) in [("set-fail-mode br2 secure", 1), ("del-fail-mode br2", 2)] {
        host.vsctl(mode).unwrap();
        assert_eq!(host.ofctl(&["dump-flows", "br2"]).lines().count(), lines, "{mode}");
    }
    host.vsctl("del-br br2").unwrap();
    host.vsctl("del-br br0 -- del-br br1").unwrap();
    assert!(!host.ip("link show br0") && !host.at().join("br0.mgmt").exists());
}

#[test]
fn patch_ports_join_bridges_and_a_loop_of_them_ends() {
    let Some(host) = Host::start("fvp") else { return };
    let without_peer =
        host.vsctl("add-br ba -- add-br bb -- add-port ba pa -- set Interface pa type=patch").unwrap_err();
    assert!(without_peer.contains("requires valid 'peer' argument"), "{without_peer}");
    host.vsctl(
        "set Interface pa options:peer=pb -- add-port bb pb -- set Interface pb type=patch options:peer=pa",
    )
    .unwrap();
    let machines = ["a", "b"].map(|side| format!("{}{side}", host.namespace));
    for (n, (machine, side)) in (1..).zip(machines.iter().zip(["a", "b"])) {
        assert!(sh(&format!(
            "ip netns add {machine} && ip link add host{side} netns {} type veth peer name e0 netns {machine} \
             && ip -n {machine} addr add 10.3.0.{n}/24 dev e0 && ip -n {machine} link set e0 up",
            host.namespace
        )));
        assert!(host.ip(&format!("link set host{side} up")));
        host.vsctl(&format!("add-port b{side} host{side}")).unwrap();
    }
    let ping = format!("ip netns exec {} ping -c 1 -W 1 10.3.0.2", machines[0]);
    wait_until("the other bridge's host answers", || sh(&ping));
    // A second pair makes a loop: frames that are flooded end after 64 ports.
    host.vsctl("add-port ba pa2 -- set Interface pa2 type=patch options:peer=pb2").unwrap();
    host.vsctl("add-port bb pb2 -- set Interface pb2 type=patch options:peer=pa2").unwrap();
    sh(&format!("ip netns exec {} ping -c 1 -W 1 10.3.0.77", machines[0]));
    let counts = || host.ofctl(&["dump-ports", "ba", "pa"]);
    wait_until("the loop is quiet", || {
        let before = counts();
        std::thread::sleep(Duration::from_millis(300));
        counts() == before
    });
    machines.iter().for_each(|machine| _ = sh(&format!("ip netns del {machine}")));
}

#[test]
fn ovs_appctl_asks_the_daemon_and_ends_it() {
    let Some(mut host) = Host::start("fva") else { return };
    host.vsctl("add-br br0").unwrap();
    assert!(host.appctl(&["version"]).unwrap().contains("Flowlane"));
    assert_eq!(host.appctl(&["ofproto/list"]).unwrap(), "br0\n");
    assert!(host.appctl(&["list-commands"]).unwrap().contains("fdb/show"));
    assert!(host.appctl(&["dpif/show"]).unwrap().contains("br0 65534/1: (tap)"));
    assert!(host.appctl(&["fdb/show", "br0"]).unwrap().contains("VLAN"));
    for (arguments, problem) in [
        (&["fdb/show", "br9"][..], "no such bridge"),
        (&["fdb/show"], "requires at least 1 arguments"),
        (&["dance"], "\"dance\" is not a valid command"),
        (&["ofproto/trace", "br9", "ip"], "br9: unknown bridge"),
        (&["ofproto/trace", "br0", "in_port=9"], "there is no port 9"),
        (&["dpctl/dump-conntrack", "zone=x"], "datapath not found"),
    ] {
        let said = host.appctl(arguments).unwrap_err();
        assert!(said.contains(problem), "{said}");
    }
    asks_for_rules_connections_and_counters(&host);
    host.appctl(&["exit"]).unwrap();
    let mut daemon = host.daemon.take().unwrap();
    wait_until("the daemon ends", || daemon.0.try_wait().unwrap().is_some());
    assert!(!host.at().join("ovs-vswitchd.pid").exists() && !host.at().join("br0.mgmt").exists());
}

/// The daemon in the background, as `ovs-ctl` starts one: when the command returns, the bridges are there.
#[test]
fn a_detached_daemon_is_ready_and_has_a_log() {
    let Some(mut host) = Host::start("fvd") else { return };
    host.vsctl("add-br br0").unwrap();
    drop(host.daemon.take());
    _ = std::fs::remove_file(host.at().join("ovs-vswitchd.pid"));
    let run = |arguments: &[&str]| {
        let mut daemon = Command::new("ip");
        daemon.args(["netns", "exec", &host.namespace]).arg(assert_cmd::cargo::cargo_bin!("flowlane"));
        daemon.args(["vswitchd", "--pidfile", "--log-file", "--detach"]).args(arguments);
        daemon
            .env("OVS_RUNDIR", host.at())
            .env("OVS_LOGDIR", host.at().join("log"))
            .env("FLOWLANE_TUNE", "/dev/null");
        daemon.output().unwrap()
    };
    let wrong = run(&["127.0.0.1:1"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("no address of a database"));
    let detached = run(&[]);
    assert!(detached.status.success(), "{}", String::from_utf8_lossy(&detached.stderr));
    assert!(host.at().join("br0.mgmt").exists() && host.ip("link show br0"));
    let pid = std::fs::read_to_string(host.at().join("ovs-vswitchd.pid")).unwrap();
    let runs = || Path::new(&format!("/proc/{}", pid.trim())).exists();
    let (log, old) = (host.at().join("log/ovs-vswitchd.log"), host.at().join("log/old"));
    assert!(
        std::fs::read_to_string(&log)
            .unwrap()
            .contains("|vswitchd|INFO|the bridges are those of the database\n")
    );
    for reopen in [true, false] {
        std::fs::rename(&log, &old).unwrap();
        match reopen {
            true => _ = host.appctl(&["vlog/reopen"]).unwrap(),
            false => assert!(sh(&format!("kill -HUP {pid}"))),
        }
        wait_until("the log is opened again", || log.exists());
    }
    host.appctl(&["exit"]).unwrap();
    wait_until("the daemon ends", || !runs());
    assert!(std::fs::read_to_string(&log).unwrap().contains("|INFO|the daemon ends\n"));
}

fn asks_for_rules_connections_and_counters(host: &Host) {
    host.vsctl(
        "add-port br0 d1 -- set Interface d1 type=dummy -- add-port br0 t2 -- set Interface t2 type=geneve \
         options:remote_ip=192.0.2.9 options:key=flow options:dst_port=46991",
    )
    .unwrap();
    // A trace of a packet that came out of a tunnel.
    let rule = "in_port=2,tun_id=5,ip,priority=7,cookie=9,actions=ct(commit,zone=5),resubmit(,3)";
    host.ofctl(&["add-flow", "br0", rule]);
    host.ofctl(&["add-flow", "br0", "table=3,tcp,tp_dst=80,actions=output:1"]);
    let flows = host.appctl(&["bridge/dump-flows", "br0"]).unwrap();
    let row = "n_bytes=0, tcp,tp_dst=80,actions=output:1";
    assert!(flows.contains("table_id=3, duration=") && flows.contains(row), "{flows}");
    let flow = "in_port=2,tun_id=5,tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst=80";
    let trace = host.appctl(&["ofproto/trace", "br0", flow]).unwrap();
    assert!(
        trace.starts_with("Flow: tcp,") && trace.contains("\n\nbridge(\"br0\")\n-------------\n"),
        "{trace}"
    );
    let rows = [
        "\n 0. ip,in_port=2,tun_id=0x5, priority 7, cookie 0x9\n    ct(commit,zone=5)\n    resubmit(,3)\n",
        "\n 3. tcp,tp_dst=80, priority 32768\n    output:1\n",
        "\nDatapath actions: 2\n",
    ];
    assert!(rows.iter().all(|row| trace.contains(row)), "{trace}");
    assert_eq!(host.appctl(&["dpctl/dump-dps"]).unwrap(), "netdev@ovs-netdev\n");
    let shown = host.appctl(&["dpctl/show"]).unwrap();
    assert!(shown.contains("port 3: genev_sys_46991 (geneve: dst_port=46991, packet_type=ptap)"), "{shown}");
    host.vsctl("-- --id=@d create Datapath external_ids:a=b -- set Open_vSwitch . datapaths:netdev=@d")
        .unwrap();
    let uuid = host.vsctl("get Open_vSwitch . datapaths:netdev").unwrap();
    let moves_ports = || host.vsctl(&format!("get Datapath {uuid} capabilities:ct_zero_snat"));
    wait_until("capabilities", || moves_ports().is_ok_and(|value| value == "\"true\""));
    assert!(host.appctl(&["dpif/show-dp-features", "br0"]).unwrap().contains("\nCT zone: Yes\n"));
    let packet = "in_port=1 packet=02000000000102000000000208004500002400000000401166c7\
        0a0000010a000002000100020010000000000000000000000000000000 actions=ct(commit,zone=7),normal";
    host.ofctl(&["packet-out", "br0", packet]);
    let tracked = |zone: &str| host.appctl(&["dpctl/dump-conntrack", zone]).unwrap();
    wait_until("a connection", || tracked("zone=7").starts_with("udp,orig=(src=10.0.0.1"));
    assert_eq!(tracked("zone=8"), "");
    host.appctl(&["dpctl/flush-conntrack", "zone=7"]).unwrap();
    assert_eq!(tracked("-m"), "");
    assert_eq!(host.appctl(&["fdb/flush"]).unwrap(), "table successfully flushed\n");
    // Counters reach the database within seconds; an interface that is down takes no packets.
    assert!(host.ip("link set br0 up"));
    let again = packet.replace("zone=7", "zone=9");
    host.ofctl(&["packet-out", "br0", &again]);
    let sent = || host.vsctl("get Interface br0 statistics:tx_packets");
    wait_until("counters", || {
        sent().is_ok_and(|packets| packets.parse().is_ok_and(|packets: u64| packets > 0))
    });
}

/// Tunnels of the kernel are the other ends.
#[test]
fn tunnels_end_at_the_kernels() {
    let Some(host) = Host::start("fvk") else { return };
    let peer = format!("{}p", host.namespace);
    let inside = &host.namespace;
    let made = sh(&format!(
        "ip netns add {peer} && ip link add u0 netns {inside} type veth peer name u0 netns {peer} \
         && ip -n {inside} addr add 192.0.2.1/24 dev u0 && ip -n {peer} addr add 192.0.2.2/24 dev u0 \
         && ip -n {inside} addr add fd00::1/64 dev u0 nodad && ip -n {peer} addr add fd00::2/64 dev u0 nodad \
         && ip -n {inside} link set u0 mtu 9000 up && ip -n {peer} link set u0 mtu 9000 up"
    ));
    assert!(made);
    if !sh(&format!("ip -n {peer} link add x0 type vxlan id 7 remote 192.0.2.1 local 192.0.2.2 dstport 4789"))
    {
        sh(&format!("ip netns del {peer}"));
        return skipped("the kernel has no VXLAN");
    }
    host.vsctl("add-br b0 -- add-br b1").unwrap();
    for (n, remote, local, port, options) in
        [(0, "192.0.2", ".", 4789, "options:csum=true"), (1, "fd00", "::", 4790, "options:dst_port=4790")]
    {
        let udp6 = "udp6zerocsumtx udp6zerocsumrx";
        if n == 1 {
            assert!(sh(&format!(
                "ip -n {peer} link add x1 type vxlan id 8 remote fd00::1 local fd00::2 dstport {port} {udp6}"
            )));
        }
        let vni = 7 + n;
        host.vsctl(&format!(
            "add-port b{n} t{n} -- set Interface t{n} type=vxlan options:remote_ip={remote}{local}2 options:key={vni} {options}"
        ))
        .unwrap();
        assert_eq!(host.vsctl(&format!("get Interface t{n} ofport")).unwrap(), "1");
        for (namespace, device, host) in [(inside, format!("b{n}"), 1), (&peer, format!("x{n}"), 2)] {
            assert!(sh(&format!(
                "ip -n {namespace} addr add 10.{n}.0.{host}/24 dev {device} && ip -n {namespace} link set {device} mtu 8900 up"
            )));
        }
        let ping = |namespace: &str, options: &str, to: u8| {
            sh(&format!("ip netns exec {namespace} ping -c 1 -W 1 {options} 10.{n}.0.{to}"))
        };
        wait_until("the kernel's end answers", || ping(inside, "", 2));
        for size in [1, 100, 1400, 8000] {
            assert!(
                ping(inside, &format!("-M do -s {size}"), 2) && ping(&peer, &format!("-M do -s {size}"), 1)
            );
        }
    }
    // The same ends a second time, a UDP port that another program has, and an option that is not supported.
    for (options, problem) in [
        ("options:remote_ip=192.0.2.2 options:key=7", "another port has the same other end"),
        ("options:remote_ip=192.0.2.2 options:dst_port=4791", "UDP port 4791 is in use"),
        ("options:remote_ip=192.0.2.2 options:exts=gbp", "options:exts=gbp is not supported"),
        ("options:key=7", "vxlan type requires valid 'remote_ip' argument"),
    ] {
        assert!(sh(&format!(
            "ip -n {inside} link show k0 || ip -n {inside} link add k0 type vxlan id 7 dstport 4791 remote 192.0.2.2 && ip -n {inside} link set k0 up"
        )));
        let refused =
            host.vsctl(&format!("add-port b0 t9 -- set Interface t9 type=vxlan {options}")).unwrap_err();
        assert!(refused.contains(problem), "{refused}");
        host.vsctl("del-port b0 t9").unwrap();
    }
    let shown = host.appctl(&["dpif/show"]).unwrap();
    assert!(shown.contains(": (vxlan: csum=true, key=7, remote_ip=192.0.2.2)"), "{shown}");
    sh(&format!("ip netns del {peer}"));
}
