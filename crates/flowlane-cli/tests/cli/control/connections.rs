//! Zones of connections, and following connections, of a running switch.

use super::*;

const CONFIG: &str = r#"
[connections]
per_zone_max = 100
timeouts = { tcp_established = 7200 }
[[connections.zone]]
number = 5
connections_max = 10
timeouts = { udp_first = 90, udp_multiple = 90 }
[[port]]
number = 1
open = "gen:udp,rate=20000"
[[table]]
number = 0
rules = ["udp,actions=ct(commit,zone=5)"]
"#;

/// Waits until a zone has some connections.
fn wait_for(switch: &Switch, zone: usize, connections: u64) -> Value {
    let begun = Instant::now();
    loop {
        let zones = switch.json("zones");
        let found = zones["zones"].as_array().unwrap().iter().find(|one| one["zone"] == zone);
        if let Some(found) = found.filter(|one| one["connections"].as_u64() == Some(connections)) {
            return found.clone();
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{connections} connections in {zones:#}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn zones_have_settings_that_change_while_the_switch_runs() {
    let switch = Switch::start(CONFIG, &[]);
    let five = wait_for(&switch, 5, 10);
    assert_eq!(five["connections_max"], 10);
    assert_eq!(five["timeouts"], serde_json::json!({ "udp_first": 90, "udp_multiple": 90 }));
    assert_eq!(
        switch.say("zones --zone 5 --connections-max 20 --timeout udp_first=30", 0).0,
        "settings changed\n"
    );
    let five = wait_for(&switch, 5, 20);
    assert_eq!(five["timeouts"], serde_json::json!({ "udp_first": 30, "udp_multiple": 90 }));
    let (listed, _) = switch.say("zones", 0);
    for part in
        ["20", "udp_first=30 udp_multiple=90", "others", "tcp_established=7200", "1 zones, 20 connections"]
    {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    switch.say("zones --all --timeout tcp_established=60", 0);
    assert_eq!(switch.json("zones")["timeouts"]["tcp_established"], 60);
    assert!(switch.say("zones --connections-max 9", 2).1.contains("the zone is missing"));
    assert!(switch.say("zones --zone 5 --timeout tcp_sent=9", 2).1.contains("there are tcp_syn_sent"));
    assert!(switch.say("zones --zone 5 --remove", 0).0.contains("changed"));
    assert_eq!(wait_for(&switch, 5, 100)["connections_max"], Value::Null, "as all zones");
    // A reload makes the settings those of the file.
    let config = CONFIG.replace("connections_max = 10", "connections_max = 12");
    fs::write(switch.at().join("switch.toml"), config).unwrap();
    assert!(switch.say("reload", 0).0.contains("2 zones with other settings"));
    let zones = switch.json("zones");
    assert_eq!(
        (&zones["zones"][0]["connections_max"], &zones["timeouts"]["tcp_established"]),
        (&12.into(), &7200.into())
    );
    let config = CONFIG.replace("number = 5", "number = 70000");
    fs::write(switch.at().join("switch.toml"), config).unwrap();
    assert!(switch.say("reload", 2).1.contains("70000"));
}

#[test]
fn connections_are_followed() {
    let switch = Switch::start(CONFIG, &[]);
    wait_for(&switch, 5, 10);
    let mut follower = Command::new(assert_cmd::cargo::cargo_bin!("flowlane"));
    follower.current_dir(switch.at()).args(["switch", "connections", "--socket", "control.sock"]);
    follower.args(["--follow", "--json", "--zone", "5", "--limit", "15"]).stdout(Stdio::piped());
    let mut follower = follower.spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["method"], "following");
    assert!(switch.say("connections --flush", 0).0.contains("10 connections removed"));
    let events: Vec<Value> = (0..15).map(|_| next()["params"].clone()).collect();
    assert!(lines.next().is_none() && follower.wait().unwrap().success());
    let flushed = events.iter().filter(|event| event["event"] == "destroyed").collect::<Vec<_>>();
    assert!((1..=10).contains(&flushed.len()), "{events:#?}");
    assert!(flushed.iter().all(|event| event["reason"] == "flushed"));
    let new = events.iter().find(|event| event["event"] == "new").unwrap();
    assert_eq!((&new["zone"], &new["state"], &new["proto"]), (&5.into(), &"UNREPLIED".into(), &"udp".into()));
    assert!(new["time_s"].as_f64() > Some(1.7e9) && new.get("reason").is_none());

    // Another request ends it; others are answered meanwhile.
    let mut stream = UnixStream::connect(switch.at().join("control.sock")).unwrap();
    let mut ask = |line: &str| writeln!(stream, "{line}").unwrap();
    ask(r#"{"jsonrpc":"2.0","id":1,"method":"follow_connections","params":{"zone":6}}"#);
    let mut answers = BufReader::new(UnixStream::try_clone(&stream).unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["method"], "following");
    switch.say("connections --flush", 0);
    let mut ask = |line: &str| writeln!(stream, "{line}").unwrap();
    ask(r#"{"jsonrpc":"2.0","id":2,"method":"version"}"#);
    assert_eq!(next()["result"], serde_json::json!({ "events": 0, "lost": 0 }), "of zone 6");
    assert_eq!(next()["id"], 2);
}
