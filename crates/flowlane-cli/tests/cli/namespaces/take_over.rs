//! A switch that takes the place of another under traffic, and one that starts again after a crash.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::interfaces::{COUNT, Hosts, PAUSE, STOP, is_over, path, wait_until};
use super::{ADDRESS, Net, ROLE, Switch, sh, skipped};

/// The longest time without packets at a take-over.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The byte at a place of the stream.
fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Role: sends a stream until the end.
pub(super) fn send_stream() {
    let mut stream = super::connect();
    let mut sent = 0u64;
    while !is_over() {
        let piece: Vec<u8> = (sent..sent + 1000).map(byte).collect();
        stream.write_all(&piece).unwrap();
        sent += 1000;
        std::thread::sleep(Duration::from_millis(2));
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    // The receiver closes when it has all.
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, sent.to_string());
}

/// Role: receives the stream; writes the number of bytes, the longest time without any in milliseconds, and the sender's address.
pub(super) fn receive_stream() {
    let listener = TcpListener::bind(ADDRESS).unwrap();
    let (mut stream, from): (TcpStream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (mut came, mut longest, mut last) = (0u64, Duration::ZERO, Instant::now());
    let mut buffer = [0; 8192];
    loop {
        let len = match stream.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap(),
        };
        longest = longest.max(last.elapsed());
        last = Instant::now();
        for (at, got) in (came..).zip(&buffer[..len]) {
            assert_eq!(*got, byte(at), "byte {at}");
        }
        came += len as u64;
        _ = fs::write(path(COUNT), format!("{came} {} {}", longest.as_millis(), from.ip()));
        if len == 0 {
            break;
        }
    }
    stream.write_all(came.to_string().as_bytes()).unwrap();
}

/// A stream through a switch that translates.
struct Stream {
    folder: tempfile::TempDir,
    _net: Net,
    ends: [Child; 2],
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Also after a failure: the receiver may wait for a sender.
        self.ends.iter_mut().for_each(|end| {
            _ = end.kill();
            _ = end.wait();
        });
    }
}

impl Stream {
    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn switch(folder: &Path, more: &[&str]) -> Switch {
        let mut switch = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
        switch
            .args(["switch", "run", "--json", "--duration", "60", "--socket"])
            .arg(folder.join("control.sock"));
        switch.args(more).arg(folder.join("firewall.toml")).stdout(Stdio::piped()).stderr(Stdio::piped());
        Switch(Some(switch.spawn().unwrap()))
    }

    /// Starts a switch, and a stream through it.
    fn start(workers: usize) -> Option<(Self, Switch)> {
        let net = Net::new("xto", workers)?;
        let addresses = format!(
            "ip -n {a} link set e0 address 02:00:00:00:00:0a && ip -n {a} neigh replace 10.77.0.2 lladdr \
             02:00:00:00:00:0b dev e0 nud permanent && ip -n {b} link set e0 address 02:00:00:00:00:0b && ip -n {b} \
             neigh replace 10.77.0.9 lladdr 02:00:00:00:00:0a dev e0 nud permanent",
            a = net.a,
            b = net.b
        );
        assert!(sh(&addresses));
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            "[switch]\nworkers = {workers}\n[state]\nfile = \"state\"\n\
             [[port]]\nnumber = 1\nname = \"in\"\nopen = \"afpacket:{}\"\n\
             [[port]]\nnumber = 2\nname = \"out\"\nopen = \"afpacket:{}\"\n\
             [[table]]\nnumber = 0\nrules = [\"ip,actions=ct(zone=1,nat,table=1)\"]\n[[table]]\nnumber = 1\nrules = [\n\
             \"priority=9,ct_state=+est+trk,actions=normal\",\n\
             \"priority=8,ip,in_port=in,ct_state=+new+trk,tcp,tcp_flags=+syn-ack,\
             actions=ct(commit,zone=1,nat(src=10.77.0.9:20000-60000)),normal\"]\n",
            net.host_a, net.host_b
        );
        fs::write(folder.path().join("firewall.toml"), config).unwrap();
        let switch = Self::switch(folder.path(), &[]);
        wait_until("the switch runs", || folder.path().join("control.sock").exists());
        let role = |namespace: &str, role: &str| {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespace]).arg(std::env::current_exe().unwrap());
            command.args(["--exact", "namespaces::role"]).env(ROLE, role).stdout(Stdio::null());
            let [stop, count] = ["stop", "count"].map(|name| folder.path().join(name));
            command.env(STOP, stop).env(COUNT, count).spawn().unwrap()
        };
        let ends = [role(&net.b, "take stream"), role(&net.a, "stream")];
        let stream = Self { folder, _net: net, ends };
        stream.wait_for_bytes(100_000);
        Some((stream, switch))
    }

    /// Returns the bytes that have come, the longest time without any, and the address that they come from.
    fn progress(&self) -> Option<(u64, Duration, String)> {
        let text = fs::read_to_string(self.file("count")).ok()?;
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (came, longest) = (number()?, number()?);
        Some((came, Duration::from_millis(longest), words.next()?.to_owned()))
    }

    fn wait_for_bytes(&self, more: u64) {
        let before = self.progress().map_or(0, |(came, ..)| came);
        wait_until("the stream goes on", || self.progress().is_some_and(|(came, ..)| came > before + more));
    }

    /// Ends the stream; returns the longest time without bytes.
    fn end(&mut self) -> Duration {
        fs::write(self.file("stop"), "").unwrap();
        let [receiver, sender] = &mut self.ends;
        super::wait_for(sender, "the sender");
        super::wait_for(receiver, "the receiver");
        let (_, longest, from) = self.progress().unwrap();
        assert_eq!(from, "10.77.0.9");
        longest
    }
}

fn can_run() -> bool {
    sh("test $(id -u) = 0 && command -v ip && command -v ping")
}

#[test]
fn a_translated_stream_goes_on_when_a_switch_takes_the_place_of_another() {
    if !can_run() {
        skipped("needs root and ip");
        return;
    }
    for workers in [1, 2] {
        let Some((mut stream, mut switch)) = Stream::start(workers) else {
            skipped("network namespaces cannot be made here");
            return;
        };
        for _ in 0..2 {
            let next = Stream::switch(stream.folder.path(), &["--take-over"]);
            let ended = switch.0.take().unwrap().wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr);
            assert!(ended.status.success() && said.contains("has taken the place of this switch"), "{said}");
            let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
            assert!(report["ports"][0]["rx_packets"].as_u64() > Some(0), "{report:#}");
            switch = next;
            stream.wait_for_bytes(100_000);
        }
        // One that cannot open its ports: the switch goes on.
        let bad = stream.folder.path().join("firewall.toml");
        let config = fs::read_to_string(&bad).unwrap();
        fs::write(&bad, config.replace("name = \"out\"\nopen = \"afpacket:", "open = \"afpacket:no"))
            .unwrap();
        let config = config.replace("in_port=in", "in_port=1");
        let wrong = Stream::switch(stream.folder.path(), &["--take-over"]).0.take().unwrap();
        let refused = wrong.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(3) && said.contains("there is no interface"), "{said}");
        fs::write(&bad, config).unwrap();
        stream.wait_for_bytes(100_000);
        let longest = stream.end();
        println!("{workers} workers: the longest time without bytes was {longest:?}");
        assert!(longest < PAUSE_MAX, "{workers} workers: {longest:?}");
        let child = switch.0.take().unwrap();
        assert!(sh(&format!("kill -INT {}", child.id())));
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && said.contains("this switch goes on"), "{said}");
    }
}

#[test]
fn a_translated_stream_goes_on_after_a_crash() {
    if !can_run() {
        skipped("needs root and ip");
        return;
    }
    let Some((mut stream, mut switch)) = Stream::start(3) else {
        skipped("network namespaces cannot be made here");
        return;
    };
    let is_saved = || fs::metadata(stream.file("state")).is_ok_and(|file| file.len() > 200);
    wait_until("the connection is saved", is_saved);
    switch.kill();
    switch = Stream::switch(stream.folder.path(), &[]);
    stream.wait_for_bytes(100_000);
    let longest = stream.end();
    println!("the longest time without bytes was {longest:?}");
    let child = switch.0.take().unwrap();
    assert!(sh(&format!("kill -INT {}", child.id())));
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    // An attempt to connect before the receiver listened may be another one.
    assert!(said.contains("restored: ") && !said.contains("restored: 0"), "{said}");
}

/// Datagrams of hosts 1 to 3 through a bridge whose switch is taken over: the pause is short, and the interfaces stay.
fn bridge_is_taken_over(kind: &str, workers: usize) {
    if !can_run() {
        skipped("needs root, ip and ping");
        return;
    }
    let Some(hosts) = Hosts::new(&format!("ft{}{workers}x", &kind[2..3]), 1, kind == "tap") else {
        skipped("network namespaces cannot be made here");
        return;
    };
    let case = format!("{kind}, {workers} workers");
    let folder = tempfile::tempdir().unwrap();
    let [stop, sent, came] = ["stop", "sent", "came"].map(|name| folder.path().join(name));
    let mut switch = hosts.start(kind, workers, "\"actions=normal\"", folder.path());
    assert!(hosts.set_up(), "{case}");
    let mut receiver = hosts.within(3, "count", &[(STOP, &stop), (COUNT, &came)]);
    wait_until("the receiver runs", || came.exists());
    let pause = Path::new("2000");
    let mut sender = hosts.within(1, "datagrams", &[(STOP, &stop), (COUNT, &sent), (PAUSE, pause)]);
    let ping = format!("ip netns exec {}1 ping -c 1 -W 1 10.78.0.2", hosts.name);
    wait_until("host 2 answers", || sh(&ping));
    let run = |config: &Path| {
        let mut next = Command::new("ip");
        next.args(["netns", "exec", &format!("{}s", hosts.name)])
            .arg(assert_cmd::cargo::cargo_bin!("flowlane"));
        next.args(["switch", "run", "--json", "--take-over", "--socket"])
            .arg(folder.path().join("control.sock"));
        next.arg(config).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for round in 0..2 {
        // One that fails when the other switch has stopped.
        let config = fs::read_to_string(folder.path().join("switch.toml")).unwrap();
        let wrong = folder.path().join("wrong.toml");
        fs::write(
            &wrong,
            config.replace("afpacket:s3", "afpacket:s9").replace(&format!("{kind}:s3"), "afpacket:s9"),
        )
        .unwrap();
        let refused = run(&wrong).wait_with_output().unwrap();
        assert_eq!(refused.status.code(), Some(3), "{case}: {}", String::from_utf8_lossy(&refused.stderr));
        wait_until(&format!("{case}, round {round}: host 2 answers the switch that goes on"), || sh(&ping));
        let next = run(&folder.path().join("switch.toml"));
        let ended = switch.0.take().unwrap().wait_with_output().unwrap();
        assert!(ended.status.success(), "{case}: {}", String::from_utf8_lossy(&ended.stderr));
        switch = Switch(Some(next));
        wait_until(&format!("{case}, round {round}: host 2 answers the next switch"), || sh(&ping));
    }
    fs::write(&stop, "").unwrap();
    super::wait_for(&mut sender, "the sender");
    super::wait_for(&mut receiver, "the receiver");
    let count = |file| fs::read_to_string(file).unwrap().parse::<u32>().unwrap();
    let (sent, came) = (count(&sent), count(&came));
    // Four pauses, with a datagram each 2 ms at most.
    assert!(sent - came < 4 * 500, "{case}: {came} of {sent} datagrams");
    println!("{case}: {came} of {sent} datagrams");
    let child = switch.0.take().unwrap();
    assert!(sh(&format!("kill -INT {}", child.id())));
    assert!(child.wait_with_output().unwrap().status.success(), "{case}");
}

#[test]
fn a_bridge_of_packet_sockets_is_taken_over() {
    bridge_is_taken_over("afpacket", 1);
    bridge_is_taken_over("afpacket", 2);
}

#[test]
fn a_bridge_with_a_tap_is_taken_over() {
    bridge_is_taken_over("tap", 1);
    bridge_is_taken_over("tap", 2);
}

#[test]
fn a_bridge_of_af_xdp_sockets_is_taken_over() {
    bridge_is_taken_over("afxdp", 1);
    bridge_is_taken_over("afxdp", 2);
}
