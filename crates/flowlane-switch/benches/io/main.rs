//! Interfaces of the system: two network namespaces, joined by the kernel's bridge, by the switch with packet sockets and with
//! AF_XDP, and by Open vSwitch's userspace datapath with both where it is installed, in turn.
//!
//! `cargo bench -p flowlane-switch --bench io -- [rounds=N] [seconds=N] [workers=N] [only=tcp] [NAME …]`, as root: 64-byte UDP packets a
//! second, one, four and eight TCP streams, round trips of UDP packets 2 ms apart, and the share of a core that the idle switch uses.
//! By default 3 rounds of 3 seconds each, with one worker; only datapaths whose names contain a NAME, if any is given. Skipped if
//! namespaces cannot be created. `only=` measures that alone: `udp`, `tcp`, `ping` or `idle`. Open vSwitch completes checksums only with TSO; otherwise the ends do (`ethtool -K eth0 tx off`).

mod ends;
mod ovs;

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowlane_switch::datapath::{Mailbox, Until};
use flowlane_switch::mgmt::setup::Setup;

use ends::{Role, run_role};

/// The namespaces, and their addresses.
const NAMES: [&str; 2] = ["flowlane-io-a", "flowlane-io-b"];
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 213, 0, 1), Ipv4Addr::new(10, 213, 0, 2)];
/// The outer ends of their links.
const OUTSIDE: [&str; 2] = ["flio-a", "flio-b"];
const BRIDGE: &str = "flio-br";
/// Numbers of TCP connections at once.
const STREAMS: [usize; 3] = [1, 4, 8];

/// The results of a round.
#[derive(Default)]
struct Measured {
    sent: f64,
    received: f64,
    /// For each number of [`STREAMS`].
    tcp_gbit: [f64; STREAMS.len()],
    /// Round-trip times in microseconds: median and 99th percentile.
    median: f64,
    tail: f64,
    /// Percent of a core used while idle; `None` for Open vSwitch and the kernel (not attributable).
    idle: Option<f64>,
}

/// Runs `ip`; returns whether it succeeded.
fn ip(arguments: &str) -> bool {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    done.is_ok_and(|done| done.status.success())
}

/// Two namespaces with a link each, deleted on drop.
struct Namespaces;

impl Namespaces {
    fn new() -> Option<Self> {
        drop(Self);
        let made = Self;
        for ((name, outside), address) in NAMES.iter().zip(OUTSIDE).zip(ADDRESSES) {
            let steps = [
                format!("netns add {name}"),
                format!("link add {outside} type veth peer name eth0 netns {name}"),
                format!("-n {name} address add {address}/24 dev eth0"),
                format!("-n {name} link set eth0 up"),
                format!("link set {outside} up"),
                // A run's losses must not slow down the connections of the next one.
                format!("netns exec {name} sysctl -qw net.ipv4.tcp_no_metrics_save=1"),
            ];
            if !steps.iter().all(|step| ip(step)) {
                return None;
            }
        }
        Some(made)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        ip(&format!("link delete {BRIDGE}"));
        NAMES.iter().for_each(|name| _ = ip(&format!("netns delete {name}")));
        OUTSIDE.iter().for_each(|outside| _ = ip(&format!("link delete {outside}")));
    }
}

/// Runs an end in its namespace, as another process of this program.
fn end(namespace: usize, role: &Role) -> std::process::Child {
    let this = std::env::current_exe().expect("a running program has a path");
    let mut command = Command::new("ip");
    command.args(["netns", "exec", NAMES[namespace]]).arg(this).args(role.arguments());
    command.stdout(std::process::Stdio::piped()).spawn().expect("`ip` is there")
}

fn told(child: std::process::Child) -> Vec<f64> {
    let output = child.wait_with_output().expect("it was started");
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// Which measurements are made: all of them, or one.
fn is_measured(what: &str) -> bool {
    let only = std::env::args().find_map(|argument| Some(argument.strip_prefix("only=")?.to_owned()));
    only.is_none_or(|only| only == what)
}

/// Measures the datapath between the namespaces.
fn measure(seconds: u64) -> Measured {
    let to = ADDRESSES[1];
    let both = |what: &str, inner: Role, outer: Role| {
        if !is_measured(what) {
            return (Vec::new(), Vec::new());
        }
        let inner = end(1, &inner);
        std::thread::sleep(Duration::from_millis(300));
        let outer = told(end(0, &outer));
        (told(inner), outer)
    };
    let (echoed, trips) = both("ping", Role::Echo(seconds), Role::Ping(to, seconds));
    drop(echoed);
    let (received, sent) = both("udp", Role::UdpReceive(seconds + 1), Role::UdpSend(to, seconds));
    let tcp = STREAMS.map(|streams| {
        let (came, _) =
            both("tcp", Role::TcpReceive(seconds + 1, streams), Role::TcpSend(to, seconds, streams));
        came
    });
    let first = |numbers: &[f64]| numbers.first().copied().unwrap_or(f64::NAN);
    let rate = |numbers: &[f64]| first(numbers) / seconds as f64;
    Measured {
        sent: rate(&sent),
        received: rate(&received),
        tcp_gbit: tcp.map(|came| rate(&came) * 8e-9),
        median: first(&trips),
        tail: trips.get(1).copied().unwrap_or(f64::NAN),
        idle: None,
    }
}

/// Returns the CPU time of the workers' threads.
fn used(mail: &[Mailbox]) -> Duration {
    let read = |_: &mut _| std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let texts = mail.iter().map(|mail| mail.call(read).expect("it runs"));
    let nanoseconds = texts.filter_map(|text| text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()));
    Duration::from_nanos(nanoseconds.sum())
}

fn by_switch(folder: &Path, seconds: u64, ports: &str, workers: u64) -> Measured {
    let config = folder.join("io.toml");
    let port = |number, name| format!("[[port]]\nnumber = {number}\nopen = \"{ports}:{name}\"\n");
    let table = "[[table]]\nnumber = 0\nrules = [\"actions=normal\"]\n";
    let switch = format!("[switch]\nworkers = {workers}\n");
    let text = [switch, port(1, OUTSIDE[0]), port(2, OUTSIDE[1]), table.to_owned()].concat();
    std::fs::write(&config, text).expect("the folder is there");
    let setup = Setup::read(&config).and_then(|setup| setup.open_controlled(5));
    let (mut switch, control) = setup.expect("interfaces are there");
    let (stop, mail) = (AtomicBool::new(false), control.mailboxes());
    std::thread::scope(|scope| {
        scope.spawn(|| switch.run(Until::default(), &stop, |_| {}).expect("no port fails"));
        let measured = measure(seconds);
        let idle = is_measured("idle").then(|| {
            std::thread::sleep(Duration::from_millis(500));
            let before = used(mail);
            std::thread::sleep(Duration::from_secs(2));
            (used(mail) - before).as_secs_f64() / 2.0 * 100.0
        });
        stop.store(true, Ordering::Relaxed);
        Measured { idle, ..measured }
    })
}

/// Measures Open vSwitch with ports of a kind; `None` if it cannot run with them.
fn by_ovs(seconds: u64, ports: ovs::Ports) -> Option<Measured> {
    let ends = |checksums: &str| {
        let set = |name: &str| ip(&format!("netns exec {name} ethtool -K eth0 tx {checksums}"));
        NAMES.iter().all(|name| set(name))
    };
    let finishes = ports == ovs::Ports::Whole;
    if !finishes && !ends("off") {
        println!("skipped: Open vSwitch without checksums needs ethtool");
        return None;
    }
    let measured = ovs::Ovs::start(ports, &OUTSIDE).map(|_running| measure(seconds));
    if !finishes {
        ends("on");
    }
    measured
}

fn by_bridge(seconds: u64) -> Measured {
    let joined = ip(&format!("link add {BRIDGE} type bridge"))
        && OUTSIDE.iter().all(|outside| ip(&format!("link set {outside} master {BRIDGE}")))
        && ip(&format!("link set {BRIDGE} up"));
    if !joined {
        return Measured { sent: f64::NAN, ..Measured::default() };
    }
    let measured = measure(seconds);
    ip(&format!("link delete {BRIDGE}"));
    measured
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let Some(role) = Role::read(&arguments) {
        return run_role(role);
    }
    let number = |name: &str| arguments.iter().find_map(|a| a.strip_prefix(name)?.parse::<u64>().ok());
    let (rounds, seconds) = (number("rounds=").unwrap_or(3), number("seconds=").unwrap_or(3));
    let workers = number("workers=").unwrap_or(1);
    let names: Vec<&String> = arguments.iter().filter(|a| !a.contains('=')).collect();
    let Some(_namespaces) = Namespaces::new() else {
        return println!("skipped: network namespaces need root and iproute2");
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    println!(
        "                        UDP received (sent), thousand/s   TCP of 1, 4, 8, Gbit/s   round trip 50 %, 99 %, µs   idle, % of a core"
    );
    for round in 0..rounds {
        let told = |name: &str, m: &Measured| {
            let idle = m.idle.map_or("–".to_owned(), |idle| format!("{idle:.1}"));
            let (received, sent) = (m.received / 1e3, m.sent / 1e3);
            println!(
                "round {round}  {name:<20} {received:>12.0} ({sent:.0}) {:>18.1} {:>5.1} {:>5.1} {:>16.0} {:>8.0} {idle:>20}",
                m.tcp_gbit[0], m.tcp_gbit[1], m.tcp_gbit[2], m.median, m.tail
            );
        };
        let wanted = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part.as_str()));
        if wanted("kernel's bridge") {
            told("kernel's bridge", &by_bridge(seconds));
        }
        for ports in ["afpacket", "afxdp"] {
            let name = format!("switch, {ports}");
            if wanted(&name) {
                told(&name, &by_switch(folder.path(), seconds, ports, workers));
            }
        }
        for (name, ports) in ovs::Ports::ALL {
            if wanted(name)
                && let Some(measured) = by_ovs(seconds, ports)
            {
                told(name, &measured);
            }
        }
    }
}
