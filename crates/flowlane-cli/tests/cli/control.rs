//! Tests of inspecting and changing a running switch.
#![cfg(unix)]

mod connections;
mod metrics;
mod mirrors;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::{TempDir, tempdir};

use crate::support::run;

const CONFIG: &str = r#"
[[port]]
number = 1
name = "in"
open = "gen:udp,rate=20000"
[[port]]
number = 2
name = "out"
open = "null"
[[table]]
number = 0
rules = ["priority=1,udp,actions=output:out", "priority=2,tcp,tp_dst=22,cookie=0x16,actions=drop"]
"#;

/// A switch that runs in a directory of its own, with the control socket `control.sock`.
struct Switch {
    folder: TempDir,
    child: Option<Child>,
}

impl Switch {
    fn start(config: &str, more: &[&str]) -> Self {
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("switch.toml"), config).unwrap();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
        command.current_dir(folder.path()).args([
            "switch",
            "run",
            "switch.toml",
            "--json",
            "--duration",
            "60",
        ]);
        command.args(["--socket", "control.sock"]).args(more).env("FLOWLANE_TUNE", "/dev/null");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let switch = Self { folder, child: Some(child) };
        let begun = Instant::now();
        while UnixStream::connect(switch.at().join("control.sock")).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(10), "the switch does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        switch
    }

    fn at(&self) -> &Path {
        self.folder.path()
    }

    #[track_caller]
    fn say(&self, verb: &str, code: i32) -> (String, String) {
        run(self.at(), &format!("switch {verb} --socket control.sock"), code)
    }

    #[track_caller]
    fn json(&self, verb: &str) -> Value {
        serde_json::from_str(&self.say(&format!("{verb} --json"), 0).0).unwrap()
    }

    fn signal(&self, name: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Waits for the switch to end; returns its output.
    fn end(mut self) -> Output {
        self.child.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            _ = child.kill();
        }
    }
}

#[test]
fn a_running_switch_is_inspected_and_changed() {
    let switch = Switch::start(CONFIG, &[]);
    let (message, _) = switch.say("add-flow priority=9,udp,nw_dst=0.0.0.0/0,actions=output:out", 0);
    assert!(message.starts_with("1 rules added, 0 modified, 0 deleted; in force after"), "{message}");
    std::thread::sleep(Duration::from_millis(200));
    let flows = switch.json("flows udp");
    let packets = |flow: &Value| flow["packets"].as_u64().unwrap();
    assert_eq!(flows.as_array().unwrap().len(), 2);
    assert!(packets(&flows[1]) > 100, "{flows}");
    assert!(switch.say("flows --table 0", 0).0.contains("3 rules"));
    let other = switch.json("mod-flow --strict priority=9,udp,actions=drop");
    assert_eq!((&other["added"], &other["modified"]), (&0.into(), &1.into()));
    let gone = switch.json("del-flow --strict priority=9,udp");
    assert_eq!((&gone["removed"], &gone["gone"][0]["reason"]), (&1.into(), &"deleted".into()));
    assert!(gone["gone"][0]["packets"].as_u64() >= flows[1]["packets"].as_u64(), "{gone}");
    let (shown, _) = switch.say("show", 0);
    for part in ["1 in", "udp \u{2192} output:2", "cycles/packet", "megaflow"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(switch.json("show")["ports"][0]["rx_packets"].as_u64() > Some(100));
    assert_eq!(switch.json("fdb"), Value::Array(Vec::new()));
    let (traced, _) = switch.say("trace in_port=in,tcp,tp_dst=22", 0);
    for part in ["port 1 in", "priority 2, tcp,tp_dst=22 \u{2192} drop", "cookie 0x16", "nothing is sent"] {
        assert!(traced.contains(part), "{part}: {traced}");
    }
    let sent = switch.json("trace in_port=1,udp,tp_dst=53");
    assert_eq!((&sent["sent"][0]["port"], &sent["sent"][0]["port_name"]), (&2.into(), &"out".into()));
    let frame = sent["sent"][0]["frame"].as_str().unwrap();
    assert_eq!(switch.json(&format!("trace --in-port 1 {frame}"))["sent"], sent["sent"]);
    switch.say("stop", 0);
    let output = switch.end();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rules = report["tables"][0]["rules"].as_array().unwrap();
    let counted: u64 = rules.iter().map(|rule| rule["packets"].as_u64().unwrap()).sum();
    let received = report["ports"][0]["rx_packets"].as_u64().unwrap();
    assert_eq!(
        counted + gone["gone"][0]["packets"].as_u64().unwrap(),
        received,
        "no packet is lost by a change"
    );
}

#[test]
fn a_bundle_with_an_error_is_rejected_with_its_position() {
    let switch = Switch::start(CONFIG, &[]);
    let before = switch.json("flows")[0]["matches"].clone();
    let changes = "add udp,tp_dst=1,actions=drop\n\ndelete tcp\nadd udp,tp_dts=4,actions=drop\nmodify udp,actions=outptu:2\n";
    fs::write(switch.at().join("bad.flows"), changes).unwrap();
    let (_, message) = switch.say("bundle bad.flows", 2);
    for part in
        ["bad.flows:4:9: `tp_dts`", "did you mean `tp_dst`", "did you mean `output`", "nothing was changed"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    fs::write(switch.at().join("port.flows"), "add udp,tp_dst=1,actions=drop\nadd arp,actions=output:9\n")
        .unwrap();
    let (_, message) = switch.say("bundle port.flows", 2);
    assert!(message.contains("port.flows:2:1: there is no port 9; those that there are: 1, 2"), "{message}");
    assert!(switch.say("add-flow table=7,actions=drop", 2).1.contains("there is no table 7"));
    assert!(switch.say("add-flow actions=goto_table:9", 2).1.contains("goto_table:9"));
    // Positions refer to the text as typed.
    for (asked, message) in [("trace in_port=1,tpc", "tpc"), ("flows tpc", "tpc")] {
        let wrong = switch.say(asked, 2).1;
        assert!(wrong.contains(message) && wrong.contains("flow:1:") && !wrong.contains("delete"), "{wrong}");
    }
    assert!(
        switch.say("trace in_port=1,tpc", 2).1.contains("flow:1:11"),
        "{}",
        switch.say("trace in_port=1,tpc", 2).1
    );
    assert!(switch.say("trace --in-port 9 00ff", 2).1.contains("there is no port 9; there are 1 in, 2 out"));
    let flows = switch.json("flows");
    assert_eq!((flows.as_array().unwrap().len(), &flows[0]["matches"]), (2, &before));
    fs::write(
        switch.at().join("good.flows"),
        "\u{feff}delete tcp\nadd arp,actions=drop\nadd icmp,actions=drop\n",
    )
    .unwrap();
    let done = switch.json("bundle good.flows");
    assert_eq!((&done["added"], &done["removed"]), (&2.into(), &1.into()));
    // A range of ICMP types is several matches: 3, 4-7, 8-11 and 12.
    assert_eq!(switch.json("add-flow icmp,icmp_type=3-12,actions=output:out")["added"], 4);
    assert_eq!(switch.json("flows icmp,icmp_type=3-12").as_array().unwrap().len(), 4);
    assert_eq!(switch.json("flows icmp,icmp_type=4-12").as_array().unwrap().len(), 3);
    let (traced, _) = switch.say("trace in_port=1,icmp,icmp_type=3-12", 0);
    assert!(traced.contains("icmp_type=3\n"), "{traced}");
}

#[test]
fn a_reload_changes_meters_with_the_rules_that_name_them() {
    let meter = |number: u32, rate: u64| format!("[[meter]]\nnumber = {number}\nrate_pps = {rate}\n");
    let metered =
        |number: u32| CONFIG.replace("actions=output:out", &format!("actions=meter:{number},output:out"));
    let switch = Switch::start(&(metered(1) + &meter(1, 100)), &[]);
    let file = switch.at().join("switch.toml");
    let reload = |text: String, code| {
        fs::write(&file, text).unwrap();
        switch.say("reload", code)
    };
    let meters = || switch.json("show")["meters"].clone();
    let dropped = |of: &Value| of[0]["dropped_packets"].as_u64().unwrap();
    crate::support::wait_until("the meter drops", || dropped(&meters()) > 100);
    let same = dropped(&meters());
    assert!(!reload(metered(1) + &meter(1, 100), 0).0.contains("meter"));
    assert!(dropped(&meters()) >= same, "a meter that stays keeps its counters");
    let (said, _) = reload(metered(1) + &meter(1, 1_000_000), 0);
    assert!(said.contains("1 meters changed"), "{said}");
    let before = dropped(&meters());
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(dropped(&meters()), before, "the rate is larger than that of packets");
    // Another meter in its place; the rule names the new one.
    let (said, _) = reload(metered(2) + &meter(2, 10), 0);
    assert!(said.contains("2 meters changed"), "{said}");
    crate::support::wait_until("the new meter drops", || dropped(&meters()) > 100);
    assert_eq!(meters()[0]["number"], 2);
    // Of a reload that is refused nothing stays.
    let (_, said) = reload(metered(3) + &meter(2, 10) + &meter(3, 10) + "[macs]\nageing_s = 7\n", 2);
    assert!(said.contains("[macs] is not as it was"), "{said}");
    assert_eq!((meters().as_array().unwrap().len(), &meters()[0]["number"]), (1, &2.into()));
}

#[test]
fn reload_applies_the_rules_of_the_configuration() {
    let switch = Switch::start(CONFIG, &[]);
    switch.say("add-flow arp,actions=drop", 0);
    let file = switch.at().join("switch.toml");
    let write = |text: String| fs::write(&file, text).unwrap();
    write(CONFIG.replace("tp_dst=22", "tp_dst=23"));
    let done = switch.json("reload");
    assert_eq!((&done["added"], &done["modified"], &done["removed"]), (&1.into(), &0.into(), &2.into()));
    let flows = switch.json("flows");
    assert!(flows[0]["packets"].as_u64() > Some(0), "what stays keeps its counters: {flows}");
    // Changes outside of rules, groups and ports are rejected.
    write(CONFIG.to_owned() + "[macs]\nageing_s = 7\n");
    assert!(switch.say("reload", 2).1.contains("[macs] is not as it was"));
    write(CONFIG.replace("output:out", "output:nowhere"));
    assert!(switch.say("reload", 2).1.contains("nowhere"));
    assert_eq!(switch.json("flows").as_array().unwrap().len(), 2);
    write(CONFIG.to_owned());
    switch.signal("-HUP");
    let begun = Instant::now();
    while !switch.say("flows", 0).0.contains("tp_dst=22") {
        assert!(begun.elapsed() < Duration::from_secs(10), "SIGHUP reloads");
    }
    switch.signal("-TERM");
    let output = switch.end();
    assert!(
        output.status.success()
            && String::from_utf8_lossy(&output.stderr).contains("reloaded: 1 rules added")
    );
}

#[test]
fn timed_changes_are_replayed() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("switch.toml"), CONFIG).unwrap();
    let steps =
        "\u{feff}@0.1 add priority=5,udp,actions=drop\n@0.3 delete_strict priority=5,udp\n@9 delete\n";
    fs::write(at.join("changes.flows"), steps).unwrap();
    let (json, _) = run(at, "switch run switch.toml --duration 0.5 --changes changes.flows --json", 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    let changes = &json["changes"];
    assert_eq!(
        (&changes["flow_mods"], &changes["removed"], &changes["not_due"]),
        (&2.into(), &1.into(), &1.into())
    );
    let (received, sent) = (&json["ports"][0]["rx_packets"], &json["ports"][1]["tx_packets"]);
    let share = sent.as_f64().unwrap() / received.as_f64().unwrap();
    assert!((0.3..0.9).contains(&share), "about two fifths were dropped: {share}");
    fs::write(at.join("changes.flows"), "@0 add upd,actions=drop\n").unwrap();
    let (_, message) = run(at, "switch run switch.toml --duration 0.5 --changes changes.flows", 2);
    assert!(message.contains("changes.flows:1:8"), "{message}");
    fs::write(at.join("changes.flows"), "@0 add udp,actions=output:8\n").unwrap();
    let (_, message) = run(at, "switch run switch.toml --duration 0.3 --changes changes.flows", 1);
    assert!(message.contains("changes.flows:1: there is no port 8"), "{message}");
}

#[test]
fn the_control_socket_speaks_json_rpc_and_is_exclusive() {
    let switch = Switch::start(CONFIG, &[]);
    let path = switch.at().join("control.sock");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = BufReader::new(UnixStream::connect(&path).unwrap());
    let mut ask = |line: &str| -> Value {
        stream.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    };
    let version = ask(r#"{"jsonrpc":"2.0","method":"version","id":1}"#);
    assert_eq!((&version["id"], &version["result"]["protocol"]), (&1.into(), &1.into()));
    assert_eq!(ask("nonsense")["error"]["code"], -32700);
    assert_eq!(ask(r#"{"jsonrpc":"2.0","method":"dance","id":2}"#)["error"]["code"], -32601);
    assert_eq!(
        ask(r#"{"jsonrpc":"2.0","method":"flows","params":{"tabel":1},"id":2}"#)["error"]["code"],
        -32602
    );
    let refused = ask(
        r#"{"jsonrpc":"2.0","method":"change","params":{"text":"add upd,actions=drop","file":"x"},"id":2}"#,
    );
    assert_eq!(refused["error"]["data"]["lines"][0]["column"], 5, "{refused}");
    // A second switch needs another socket; a stale socket of a killed switch does not block.
    let taken = "switch run switch.toml --duration 1 --socket control.sock";
    assert!(run(switch.at(), taken, 2).1.contains("control.sock is the socket of a program that runs"));
    switch.signal("-KILL");
    let Switch { folder, .. } = &switch;
    std::thread::sleep(Duration::from_millis(100));
    assert!(path.exists());
    run(folder.path(), "switch run switch.toml --duration 0.1 --socket control.sock", 0);
    assert!(!path.exists());
    let (_, message) = run(folder.path(), "switch show --socket control.sock", 3);
    assert!(message.contains("no switch answers on control.sock"), "{message}");
}

#[test]
fn statistics_are_shown_by_worker_stage_and_queue() {
    let switch = Switch::start(&format!("[switch]\nworkers = 2\n{CONFIG}"), &[]);
    std::thread::sleep(Duration::from_millis(300));
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number: {value}"));
    let workers = switch.json("rxq");
    let workers = workers.as_array().unwrap();
    assert_eq!(workers.len(), 2);
    for (place, worker) in workers.iter().enumerate() {
        assert_eq!(number(&worker["worker"]), place as u64);
        let queues = worker["queues"].as_array().unwrap();
        assert_eq!((&queues[0]["name"], &queues[1]["name"]), (&"in".into(), &"out".into()));
        let received = number(&queues[0]["rx_packets"]);
        assert!(received > 100, "each worker has its share: {worker}");
        assert_eq!(number(&queues[1]["tx_packets"]), received, "{worker}");
        assert!((1..number(&worker["cycles"])).contains(&number(&queues[0]["cycles"])), "{worker}");
        let measured =
            worker["latency_ns"].as_array().unwrap().iter().map(|step| number(&step[1])).sum::<u64>();
        assert!((1..received).contains(&measured), "{measured} of {received}");
        let stages = worker["stages"].as_array().unwrap();
        let parsed = stages.iter().find(|stage| stage["stage"] == "parse").unwrap();
        assert_eq!(number(&parsed["packets"]), received);
    }
    let (stages, _) = switch.say("stages", 0);
    for part in ["worker 0", "worker 1", "parse", "transmit", "| idle", "receive to send, µs"] {
        assert!(stages.contains(part), "{part}: {stages}");
    }
    let most =
        stages.lines().rev().find(|line| line.starts_with("| ")).and_then(|line| line.split('|').nth(5));
    assert!(most.and_then(|most| most.trim().parse::<f64>().ok()) > Some(0.0), "{stages}");
    let (queues, _) = switch.say("rxq", 0);
    assert_eq!(queues.matches("| 1 in").count(), 2, "{queues}");
    let (live, _) = switch.say("top --interval 0.1 --count 2", 0);
    assert_eq!(live.matches("packets/s").count(), 2, "where it is no terminal, view follows view: {live}");
    let live = switch.json("top --interval 0.2 --count 1");
    let of_all = number(&switch.json("show")["ports"][0]["rx_packets"]);
    let of_view: u64 = live["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| number(&worker["queues"][0]["rx_packets"]))
        .sum();
    assert!((1..of_all).contains(&of_view), "a view is of its time alone: {of_view} of {of_all}");
    assert!(switch.say("top --interval 0", 2).1.contains("--interval"));
}

/// Runs the binary as another user; `None` where that is not possible.
fn as_user(folder: &Path, user: u32, arguments: &str) -> Option<Command> {
    if !fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
        || Command::new("setpriv").arg("--version").output().is_err()
    {
        return None;
    }
    let binary = folder.join("flowlane");
    if !binary.exists() {
        fs::copy(assert_cmd::cargo::cargo_bin!("flowlane"), &binary).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
    command
        .arg(binary)
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .env("FLOWLANE_TUNE", "/dev/null");
    command.env_remove("XDG_RUNTIME_DIR").env_remove("SUDO_UID").env("HOME", "/nonexistent");
    Some(command)
}

#[test]
fn neither_a_switch_nor_its_client_trusts_another_user() {
    use std::os::unix::fs::{PermissionsExt, chown};

    const OWNER: u32 = 61_001;
    const OTHER: u32 = 61_002;
    let base = tempdir().unwrap();
    let at = base.path();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mode(at, 0o755);
    fs::write(at.join("switch.toml"), CONFIG).unwrap();
    let run_at = |socket: &str| format!("switch run switch.toml --duration 20 --socket {socket}");
    let Some(mut refused) = as_user(at, OWNER, &run_at("open/control.sock")) else {
        return println!("skipped: needs root and setpriv");
    };
    // Another user made the folder, or all may write in it.
    for (owner, of_folder) in [(OTHER, 0o777), (OTHER, 0o755), (OWNER, 0o777), (OWNER, 0o770)] {
        let folder = at.join("open");
        _ = fs::create_dir(&folder);
        chown(&folder, Some(owner), Some(OTHER)).unwrap();
        mode(&folder, of_folder);
        let output = refused.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{owner} {of_folder:o}: {message}");
        assert!(message.contains("no control socket on open/control.sock"), "{message}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }
    // A client of another user's program, however open its socket is.
    let folder = at.join("other");
    fs::create_dir(&folder).unwrap();
    chown(&folder, Some(OTHER), Some(OTHER)).unwrap();
    let mut running = as_user(at, OTHER, &run_at("other/control.sock")).unwrap();
    let mut running = running.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let socket = folder.join("control.sock");
    let begun = Instant::now();
    while UnixStream::connect(&socket).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the switch does not answer");
        std::thread::sleep(Duration::from_millis(5));
    }
    mode(&socket, 0o777);
    for user in [OWNER, 0] {
        let mut client = as_user(at, user, "switch show --socket other/control.sock").unwrap();
        let output = client.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{user}: {message}");
        assert!(message.contains("runs as user 61002"), "{message}");
    }
    let mut own = as_user(at, OTHER, "switch show --socket other/control.sock").unwrap();
    assert!(own.output().unwrap().status.success());
    running.kill().unwrap();
    running.wait().unwrap();
}

#[test]
fn a_switch_ends_when_its_socket_or_the_folder_has_gone() {
    for folder_too in [false, true] {
        let mut switch = Switch::start(CONFIG, &[]);
        let path = switch.at().join("control.sock");
        fs::remove_file(&path).unwrap();
        if folder_too {
            fs::remove_dir_all(switch.at()).unwrap();
        } else {
            // What has taken its place stays.
            fs::write(&path, "precious").unwrap();
        }
        switch.signal("-TERM");
        let begun = Instant::now();
        let output = switch.child.take().unwrap().wait_with_output().unwrap();
        assert!(output.status.success() && begun.elapsed() < Duration::from_secs(10));
        assert!(folder_too || fs::read(&path).unwrap() == b"precious");
    }
}

#[test]
fn silent_connections_and_large_requests_do_not_lock_others_out() {
    let switch = Switch::start(CONFIG, &[]);
    let path = switch.at().join("control.sock");
    let silent: Vec<UnixStream> = (0..300).filter_map(|_| UnixStream::connect(&path).ok()).collect();
    assert!(silent.len() > 200);
    switch.say("show", 0);
    // Values of 640 MB.
    let line = |text: &str| {
        let mut stream = BufReader::new(UnixStream::connect(&path).unwrap());
        // The switch may answer and disconnect before it has all.
        _ = stream.get_mut().write_all(text.as_bytes());
        let mut answer = String::new();
        _ = stream.read_line(&mut answer);
        answer
    };
    assert!(line(&format!("[{}[]]\n", "[],".repeat(10_000_000))).contains("-32600"));
    assert!(line(&"x".repeat((64 << 20) + 2)).contains("at most 64 MiB"));
    let status = fs::read_to_string(format!("/proc/{}/status", switch.child.as_ref().unwrap().id()));
    if let Some(most) = status.unwrap_or_default().lines().find_map(|line| line.strip_prefix("VmHWM:")) {
        let kib: u64 = most.split_whitespace().next().unwrap().parse().unwrap();
        assert!(kib < 400_000, "{kib} KiB");
    }
    let flows = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"change","params":{{"text":"{}"}}}}"#,
        "\\n".repeat(1 << 21)
    );
    assert!(line(&(flows + "\n")).contains("at most 1048576 lines"));
    // Each line of 46 bytes is 196 flow-mods.
    let ranges = "delete icmp,icmp_type=1-254,icmp_code=1-254\\n".repeat(5400);
    let flows = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"change","params":{{"text":"{ranges}"}}}}"#);
    assert!(line(&(flows + "\n")).contains("more than 1048576 changes"));
    switch.say("show", 0);
    switch.signal("-TERM");
    assert!(switch.end().status.success());
}
