//! Routes that FRRouting changes in the system reach the router: its daemons `zebra` and `staticd` in the router's namespace.
//!
//! Debian's package need not be installed: `FLOWLANE_FRR_ROOT` names a folder that it is unpacked in, with `libyang2`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::super::interfaces::wait_until;
use super::super::router::{Hosts, Namespace, control, hosts, start};
use super::super::{sh, skipped};

/// The port of `staticd` for commands.
const STATICD: u16 = 2616;

/// The daemons, ended when dropped.
struct Frr {
    folder: PathBuf,
    namespace: String,
}

impl Frr {
    /// Starts the daemons in a namespace; none where they are not there.
    fn start(namespace: &str, at: &Path) -> Option<Self> {
        let root = std::env::var("FLOWLANE_FRR_ROOT").unwrap_or_default();
        if !Path::new(&format!("{root}/usr/lib/frr/staticd")).exists()
            || !sh("command -v unshare && command -v bash")
        {
            skipped("there is no FRRouting (apt-get install frr, or FLOWLANE_FRR_ROOT)");
            return None;
        }
        let frr = Self { folder: at.join("frr"), namespace: namespace.to_owned() };
        let folder = frr.folder.display();
        fs::create_dir(&frr.folder).unwrap();
        // The daemons want a group with their user in it, whatever the system's groups are.
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let others = groups.lines().filter(|line| !line.starts_with("frrvty:"));
        let groups: String = others.chain(["frrvty:x:9999:root"]).map(|line| format!("{line}\n")).collect();
        fs::write(frr.folder.join("group"), groups).unwrap();
        for (name, port) in [("zebra", 2601), ("staticd", STATICD)] {
            fs::write(frr.folder.join(format!("{name}.conf")), "line vty\n no login\n").unwrap();
            let started = sh(&format!(
                "ip netns exec {namespace} unshare --mount sh -c 'mount --bind {folder}/group /etc/group && \
                 LD_LIBRARY_PATH=$(echo {root}/usr/lib/*-linux-gnu):$(echo {root}/usr/lib/*-linux-gnu/frr) \
                 exec {root}/usr/lib/frr/{name} -d -u root -g root -f {folder}/{name}.conf -i {folder}/{name}.pid \
                 -z {folder}/zserv.api --vty_socket {folder} -A 127.0.0.1 -P {port}'"
            ));
            assert!(started, "{name}");
        }
        wait_until("staticd takes commands", || sh(&frr.command("exit")));
        Some(frr)
    }

    fn command(&self, lines: &str) -> String {
        format!(
            "ip netns exec {} timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{STATICD} && \
             printf \"enable\\nconfigure terminal\\n{lines}\\nend\\nexit\\n\" >&3 && cat <&3'",
            self.namespace
        )
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        for name in ["staticd", "zebra"] {
            sh(&format!("kill $(cat {}/{name}.pid)", self.folder.display()));
        }
    }
}

/// Waits until the switch has a route; returns the milliseconds since then that the system has had it.
fn until_followed(folder: &Path, middle: &str, part: &str) -> u128 {
    let has_system = || {
        let shown = std::process::Command::new("ip").args(["-n", middle, "route"]).output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        match shown.lines().find(|line| line.starts_with("203.0.113.0/24")) {
            Some(line) => part.split(' ').next().is_some_and(|via| line.contains(via)),
            None => part == "there is no route",
        }
    };
    wait_until("the system has the route", has_system);
    let begun = Instant::now();
    wait_until("the switch has the route", || control(folder, "routes 203.0.113.7").contains(part));
    begun.elapsed().as_millis()
}

fn addresses(hosts: &Hosts, middle: &str) -> bool {
    let [x, y] = &hosts.links;
    sh(&format!(
        "ip netns add {middle} && ip link set {x} netns {middle} && ip link set {y} netns {middle} && ip -n {middle} link set lo up \
         && ip -n {middle} addr add 192.0.2.1/24 dev {x} && ip -n {middle} addr add 198.51.100.1/24 dev {y} \
         && ip -n {middle} link set {x} up && ip -n {middle} link set {y} up && ip -n {b} route add default via 198.51.100.1",
        b = hosts.names[1]
    ))
}

#[test]
fn routes_of_frrouting_are_followed() {
    let Some(hosts) = hosts('k') else { return };
    let folder = tempfile::tempdir().unwrap();
    let middle = Namespace(format!("frk{}", std::process::id() % 100_000));
    assert!(addresses(&hosts, &middle.0));
    let Some(frr) = Frr::start(&middle.0, folder.path()) else { return };
    let mut switch = start(folder.path(), &hosts, Some(&middle.0), "[router]\nkernel_table = \"main\"\n");
    hosts.expect(0, "ping -c 1 -W 5 198.51.100.2", "1 received");
    let there = "ping -c 1 -W 5 203.0.113.7";
    let mut longest = 0;
    for round in 0..3 {
        for (lines, part) in [
            ("ip route 203.0.113.0/24 198.51.100.2", "198.51.100.2 dev wan | kernel"),
            (
                "no ip route 203.0.113.0/24 198.51.100.2\\nip route 203.0.113.0/24 198.51.100.9",
                "198.51.100.9 dev wan | kernel",
            ),
            ("no ip route 203.0.113.0/24 198.51.100.9", "there is no route"),
        ] {
            assert!(sh(&frr.command(lines)), "{lines}");
            longest = longest.max(until_followed(folder.path(), &middle.0, part));
            match part {
                "there is no route" => hosts.expect(0, there, "Destination Net Unreachable"),
                _ if part.starts_with("198.51.100.2 ") => hosts.expect(0, there, "1 received"),
                _ => {}
            }
        }
        if round == 0 {
            println!("the first three changes took up to {longest} ms, with a process that asks for each");
        }
    }
    println!("nine changes by FRRouting took up to {longest} ms, with a process that asks for each");
    // 100 ms are wanted; a busy machine takes longer to start the processes that ask.
    assert!(longest < Duration::from_secs(2).as_millis(), "{longest} ms");
    switch.stop();
}
