//! Real traffic: two network namespaces, joined by `flowlane switch run` with AF_PACKET ports (or a TAP port) and the
//! `normal` action, carry ping and TCP. Requires root, iproute2 and ping; else skipped.
#![cfg(target_os = "linux")]

mod clients;
mod interfaces;
mod ports;
mod router;
mod take_over;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Role of this binary when started inside a namespace.
const ROLE: &str = "FLOWLANE_TEST_ROLE";
const ADDRESS: &str = "10.77.0.2:5001";
const TRANSFER_BYTES: usize = 5 << 20;

pub(crate) fn sh(command: &str) -> bool {
    let status =
        Command::new("sh").args(["-c", command]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|s| s.success())
}

/// Says why a test is skipped; also in the file `FLOWLANE_SKIPPED`, since the output of a test that passes is not shown.
pub(crate) fn skipped(reason: &str) {
    println!("skipped: {reason}");
    if let Some(path) = std::env::var_os("FLOWLANE_SKIPPED") {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{reason}").unwrap();
    }
}

fn pattern() -> Vec<u8> {
    (0..TRANSFER_BYTES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Not a test by itself: the ends of the TCP transfer, started by the other tests inside the namespaces.
#[test]
fn role() {
    match std::env::var(ROLE).as_deref() {
        Ok("receive") => {
            let listener = TcpListener::bind(ADDRESS).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).unwrap();
            assert!(got == pattern(), "{} bytes arrived, not those that were sent", got.len());
            stream.write_all(b"intact").unwrap();
        }
        Ok("send") => {
            let mut stream = connect();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.write_all(&pattern()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, "intact");
        }
        Ok("count") => interfaces::count_datagrams(),
        Ok("datagrams") => interfaces::send_datagrams(),
        Ok("stream") => take_over::send_stream(),
        Ok("take stream") => take_over::receive_stream(),
        _ => {}
    }
}

/// Connects, retrying for 5 s until the listener, the address and the switch are ready.
fn connect() -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(ADDRESS) {
            Ok(stream) => return stream,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(5), "{ADDRESS}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Names unique to this process; dropping removes the interfaces and namespaces.
struct Net {
    a: String,
    b: String,
    host_a: String,
    host_b: String,
}

impl Net {
    /// Creates two namespaces with an address each; with `tap`, the switch creates the second one's interface.
    fn new(kind: &str, workers: usize) -> Option<Self> {
        let tap = kind == "tap";
        let id = std::process::id() % 100_000;
        let kind = &kind[1..3];
        let name = |side: char| format!("fl{kind}{workers}{side}{id}");
        let net = Self { a: name('a'), b: name('b'), host_a: name('x'), host_b: name('y') };
        let ready = sh(&format!(
            "ip netns add {a} && ip netns add {b} \
             && ip link add {x} type veth peer name e0 netns {a} \
             && ip -n {a} addr add 10.77.0.1/24 dev e0 && ip -n {a} link set e0 up && ip link set {x} up",
            a = net.a,
            b = net.b,
            x = net.host_a,
        )) && (tap
            || sh(&format!(
                "ip link add {y} type veth peer name e0 netns {b} \
                 && ip -n {b} addr add 10.77.0.2/24 dev e0 && ip -n {b} link set e0 up && ip link set {y} up",
                b = net.b,
                y = net.host_b,
            )));
        ready.then_some(net)
    }

    fn within(namespace: &str, role: &str) -> Child {
        let this = std::env::current_exe().unwrap();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(this).args(["--exact", "namespaces::role"]);
        command.env(ROLE, role).stdout(Stdio::null()).spawn().unwrap()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for command in [
            format!("ip link del {}", self.host_a),
            format!("ip link del {}", self.host_b),
            format!("ip netns del {}", self.a),
            format!("ip netns del {}", self.b),
        ] {
            sh(&command);
        }
    }
}

/// A switch that is stopped when dropped.
struct Switch(Option<Child>);

impl Switch {
    fn stop(&mut self) -> String {
        let Some(child) = self.0.take() else { return String::new() };
        sh(&format!("kill -INT {}", child.id()));
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Switch {
    fn kill(&mut self) {
        if let Some(mut child) = self.0.take() {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Checks that a second switch cannot bind the same interfaces, whatever its socket: both would forward each frame.
fn check_that_a_second_switch_is_rejected(config: &Path) {
    let mut second = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
    second.args(["switch", "run", "--duration", "1", "--socket"]).arg(config.with_file_name("other.sock"));
    let refused = second.arg(config).output().unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(3) && stderr.contains("another switch has"), "{stderr}");
}

fn wait_for(child: &mut Child, what: &str) {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{what} failed");
            return;
        }
        if begun.elapsed() > Duration::from_secs(25) {
            child.kill().unwrap();
            panic!("{what} did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Checks that every thread has dropped unneeded capabilities.
fn check_capabilities(process: u32, kind: &str, workers: usize) {
    // Numbers of capabilities(7).
    let [read, net_admin, net_raw, ipc_lock, bpf] = [2, 12, 13, 14, 39].map(|bit| 1u64 << bit);
    let may = match (kind, workers) {
        ("afxdp", _) => read | net_admin | net_raw | ipc_lock | bpf,
        (_, 1) => read,
        _ => read | net_raw,
    };
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let mut seen = 0;
    for thread in threads {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let value =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
        for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            let has = u64::from_str_radix(&value(set), 16).unwrap();
            assert_eq!(has & !may, 0, "{kind}, {workers} workers: {set}");
        }
        assert_eq!(value("NoNewPrivs:"), "1", "{kind}, {workers} workers");
        seen += 1;
    }
    assert!(seen >= workers);
}

/// Transfers bytes from one end to the other by TCP, and checks them.
fn transfer(net: &Net) {
    let mut receiver = Net::within(&net.b, "receive");
    let mut sender = Net::within(&net.a, "send");
    wait_for(&mut sender, "the sender");
    wait_for(&mut receiver, "the receiver");
}

fn carries_ping_and_tcp(kind: &str, workers: usize) {
    let tap = kind == "tap";
    let first = if tap { "afpacket" } else { kind };
    if !sh("test $(id -u) = 0 && command -v ip && command -v ping") {
        skipped("needs root, ip and ping");
        return;
    }
    let Some(net) = Net::new(kind, workers) else {
        skipped("network namespaces cannot be made here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let second = if tap { format!("tap:{}", net.host_b) } else { format!("{kind}:{}", net.host_b) };
    let config = format!(
        "[switch]\nworkers = {workers}\n[[port]]\nnumber = 1\nopen = \"{first}:{}\"\n[[port]]\nnumber = 2\nopen = \"{second}\"\n\
         [[table]]\nnumber = 0\nrules = [\"actions=normal\"]\n",
        net.host_a
    );
    let path = folder.path().join("bridge.toml");
    fs::write(&path, config).unwrap();
    let start = || {
        let mut switch = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
        switch.args(["switch", "run", "--json", "--duration", "60", "--socket"]);
        switch.arg(folder.path().join("control.sock")).arg(&path).stdout(Stdio::piped());
        switch.spawn().unwrap()
    };
    let mut switch = Switch(Some(start()));
    std::thread::sleep(Duration::from_millis(500));
    check_capabilities(switch.0.as_ref().unwrap().id(), kind, workers);
    if tap {
        // The switch keeps its end when the interface moves to another namespace.
        let moved = format!(
            "ip link set {y} netns {b} && ip -n {b} addr add 10.77.0.2/24 dev {y} && ip -n {b} link set {y} up",
            y = net.host_b,
            b = net.b
        );
        assert!(sh(&moved), "the TAP interface is there");
    }
    let ping = format!("ip netns exec {} ping -c 3 -i 0.2 -W 2 10.77.0.2", net.a);
    // The first ping may meet an interface that is still coming up.
    assert!(sh(&ping) || sh(&ping), "ping");
    transfer(&net);
    if !tap {
        check_that_a_second_switch_is_rejected(&path);
        // Killed under load and restarted, the switch forwards within a second; it takes over the stale socket.
        let load = format!("ip netns exec {} ping -f -c 100000 -w 5 10.77.0.2", net.a);
        let mut load = Command::new("sh").args(["-c", &load]).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        switch.kill();
        let begun = Instant::now();
        switch = Switch(Some(start()));
        assert!(
            sh(&format!("ip netns exec {} ping -c 1 -i 0.1 -w 1 10.77.0.2", net.a)),
            "after {:?}",
            begun.elapsed()
        );
        _ = load.kill();
        _ = load.wait();
        transfer(&net);
    }
    let report: serde_json::Value = serde_json::from_str(&switch.stop()).unwrap();
    let bytes = report["ports"][1]["tx_bytes"].as_u64().unwrap();
    assert!(bytes > TRANSFER_BYTES as u64, "{report:#}");
    assert!(report["macs"]["addresses"].as_u64() >= Some(2));
    println!("ping and {TRANSFER_BYTES} bytes of TCP were carried");
}

#[test]
fn documented_capabilities_are_sufficient_and_missing_ones_are_named() {
    if !sh("test $(id -u) = 0 && command -v ip && command -v ping && command -v setpriv") {
        skipped("needs root, ip, ping and setpriv");
        return;
    }
    let Some(net) = Net::new("user", 1) else {
        skipped("network namespaces cannot be made here");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let config = |kind: &str| {
        format!(
            "[[port]]\nnumber = 1\nopen = \"{kind}:{}\"\n[[port]]\nnumber = 2\nopen = \"{kind}:{}\"\n\
             [[table]]\nnumber = 0\nrules = [\"actions=normal\"]\n",
            net.host_a, net.host_b
        )
    };
    for kind in ["afpacket", "afxdp"] {
        fs::write(folder.path().join(format!("{kind}.toml")), config(kind)).unwrap();
    }
    fs::copy(assert_cmd::cargo::cargo_bin!("flowlane"), folder.path().join("flowlane")).unwrap();
    assert!(sh(&format!("chown -R 65534:65534 {0} && chmod 755 {0}/flowlane", folder.path().display())));
    let run = |capabilities: &str, kind: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        if !capabilities.is_empty() {
            command.args(["--inh-caps", capabilities, "--ambient-caps", capabilities]);
        }
        command.arg(folder.path().join("flowlane")).args(["switch", "run", "--json", "--duration", "60"]);
        command.args(["--socket", "control.sock", &format!("{kind}.toml")]).current_dir(folder.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for (capabilities, kind, missing) in [
        ("", "afpacket", "cap_net_raw"),
        ("", "afxdp", "cap_net_raw"),
        ("+net_raw", "afxdp", "cap_net_admin"),
        ("+net_raw,+net_admin", "afxdp", "cap_bpf"),
    ] {
        let refused = run(capabilities, kind).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).to_lowercase();
        assert_eq!(refused.status.code(), Some(3), "{kind} with `{capabilities}`: {said}");
        // Only the missing capability is named.
        let named = format!("missing: {missing} (");
        assert!(said.contains(&named), "{kind} with `{capabilities}`: {said}");
    }
    for (capabilities, kind) in [("+net_raw", "afpacket"), ("+net_raw,+net_admin,+bpf,+ipc_lock", "afxdp")] {
        let mut switch = Switch(Some(run(capabilities, kind)));
        let begun = Instant::now();
        while !folder.path().join("control.sock").exists() {
            if let Some(child) = switch.0.take_if(|child| child.try_wait().unwrap().is_some()) {
                let said = child.wait_with_output().unwrap().stderr;
                panic!("{kind} with `{capabilities}`: {}", String::from_utf8_lossy(&said));
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{kind}: no control socket");
            std::thread::sleep(Duration::from_millis(20));
        }
        check_capabilities(switch.0.as_ref().unwrap().id(), kind, 1);
        let ping = format!("ip netns exec {} ping -c 3 -i 0.2 -W 2 10.77.0.2", net.a);
        assert!(sh(&ping) || sh(&ping), "{kind}: ping");
        switch.stop();
    }
}

/// The commands of the README that change a switch while it runs, word for word.
fn readme_commands() -> String {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let (_, marked) =
        readme.split_once("<!-- Run by tests/cli/namespaces.rs, word for word. -->\n```sh\n").unwrap();
    marked.split_once("```").unwrap().0.to_owned()
}

#[test]
fn readme_commands_for_a_running_switch_work() {
    let isolated = "unshare --net --mount sh -ec 'mount -t tmpfs tmpfs /run && ip netns add try'";
    if !sh("test $(id -u) = 0 && command -v ip && command -v ping && command -v unshare") || !sh(isolated) {
        skipped("needs root, ip, ping, unshare, and network namespaces");
        return;
    }
    let binary = assert_cmd::cargo::cargo_bin!("flowlane");
    let path = format!("{}:{}", binary.parent().unwrap().display(), std::env::var("PATH").unwrap());
    // Isolates the test from other switches and from namespaces of the same names.
    let script = format!("mount -t tmpfs tmpfs /run\n{}\nwait\n", readme_commands());
    let output = Command::new("timeout")
        .args(["60", "unshare", "--net", "--mount", "sh", "-e", "-c", &script])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .env("PATH", path)
        .env("FLOWLANE_TUNE", "/dev/null")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{stderr}");
    assert!(text.contains("30 received, 0% packet loss"), "{text}");
    let rule =
        text.lines().find(|line| line.contains("icmp,icmp_type=8 \u{2192} normal")).expect("it is listed");
    let packets: u32 = rule.split('|').nth(4).unwrap().trim().parse().unwrap();
    assert!((5..=30).contains(&packets), "{rule}");
    for part in
        ["1 rules added", "sent through port 2 right", "priority 32768, (any) \u{2192} normal", "2 addresses"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("0 rules added, 0 modified, 1 deleted"), "reloaded: {text}");
    println!("the README's commands work");
}

#[test]
fn afpacket_carries_ping_and_tcp_between_namespaces() {
    carries_ping_and_tcp("afpacket", 1);
    carries_ping_and_tcp("afpacket", 2);
}

#[test]
fn tap_carries_ping_and_tcp_between_namespaces() {
    carries_ping_and_tcp("tap", 1);
    carries_ping_and_tcp("tap", 2);
}

#[test]
fn afxdp_carries_ping_and_tcp_between_namespaces() {
    carries_ping_and_tcp("afxdp", 1);
    carries_ping_and_tcp("afxdp", 2);
}
