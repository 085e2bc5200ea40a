//! Tests of the metrics of a running switch, over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::tempdir;

use super::Switch;
use crate::support::run;
use crate::take_over;

const CONFIG: &str = r#"
[metrics]
listen = "127.0.0.1:0"
[[port]]
number = 1
name = "in"
open = "gen:udp,rate=20000"
[[port]]
number = 2
name = "finite"
open = "gen:tcp,count=1000"
[[port]]
number = 3
name = "out"
open = "null"
[[table]]
number = 0
rules = ["priority=1,udp,actions=output:out", "priority=2,tcp,actions=drop"]
"#;

/// Asks for a path; returns the response.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// Returns the value of the sample that begins so.
fn sample(text: &str, begin: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(begin)).unwrap_or_else(|| panic!("{begin}\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn metrics_are_the_numbers_of_switch_show() {
    let mut switch = Switch::start(CONFIG, &[]);
    let mut lines = BufReader::new(switch.child.as_mut().unwrap().stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        let line = line.unwrap();
        Some(line.strip_prefix("flowlane: metrics on http://")?.strip_suffix("/metrics")?.to_owned())
    });
    let address = address.expect("it says where the metrics are");
    let port = |shown: &Value, at: usize, key: &str| shown["ports"][at][key].as_u64().unwrap();
    crate::support::wait_until("all packets of the finite port", || {
        port(&switch.json("show"), 1, "rx_packets") == 1000
    });
    let before = switch.json("show");
    let text = get(&address, "/metrics");
    let after = switch.json("show");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    let rates = sample(&text, "flowlane_port_receive_packets_total{port=\"in\",number=\"1\"}");
    // Counters are at most a quarter of a second old, of 20,000 packets a second.
    assert!(port(&before, 0, "rx_packets") <= rates + 20_000, "{rates}");
    assert!(rates <= port(&after, 0, "rx_packets"), "{rates}");
    for (name, key) in
        [("receive_packets", "rx_packets"), ("receive_bytes", "rx_bytes"), ("transmit_packets", "tx_packets")]
    {
        let metric = sample(&text, &format!("flowlane_port_{name}_total{{port=\"finite\",number=\"2\"}}"));
        assert_eq!(metric, port(&after, 1, key), "{key}");
    }
    assert_eq!(sample(&text, "flowlane_dropped_packets_total{reason=\"by_rule\"}"), 1000);
    assert_eq!(after["drops"]["by_rule"], 1000);
    assert_eq!(sample(&text, "flowlane_table_rules{table=\"0\""), 2);
    assert!(get(&address, "/").contains("<title>Flowlane switch</title>"));
    // A reload leaves the endpoint as it is, and refuses another one.
    let config = switch.at().join("switch.toml");
    std::fs::write(&config, CONFIG.replace(":0\"", ":1\"")).unwrap();
    let (_, refused) = switch.say("reload", 2);
    assert!(refused.contains("[metrics] is not as it was"), "{refused}");
    switch.say("stop", 0);
    drop(lines);
    assert!(switch.end().status.success());
    assert!(TcpStream::connect(&address).is_err(), "the endpoint ends with the switch");
}

#[test]
fn an_endpoint_for_other_machines_needs_a_token() {
    let folder = tempdir().unwrap();
    let config = folder.path().join("switch.toml");
    let open = CONFIG.replace("127.0.0.1:0", "0.0.0.0:0");
    std::fs::write(&config, &open).unwrap();
    for verb in ["switch check switch.toml", "switch run switch.toml"] {
        let (_, error) = run(folder.path(), verb, 2);
        assert!(error.contains("there is no token") && error.contains("switch.toml:3:10"), "{error}");
    }
    std::fs::write(
        &config,
        open.replace("[[port]]\nnumber = 1\n", "token_file = \"token\"\n[[port]]\nnumber = 1\n"),
    )
    .unwrap();
    let (_, error) = run(folder.path(), "switch check switch.toml", 2);
    assert!(error.contains("token: cannot be read") && error.contains("switch.toml:4:14"), "{error}");
    std::fs::write(folder.path().join("token"), "0123456789abcdef\n").unwrap();
    run(folder.path(), "switch check switch.toml", 0);
}

#[test]
fn a_switch_that_takes_the_place_of_another_takes_its_address() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    // A port that is free now.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    std::fs::write(at.join("switch.toml"), CONFIG.replace("127.0.0.1:0", &address)).unwrap();
    let old = take_over::start(at, &[]);
    take_over::wait(at);
    let started = |text: &str| text.lines().find(|line| line.starts_with("process_start")).map(str::to_owned);
    let before = started(&get(&address, "/metrics"));
    let next = take_over::start(at, &["--take-over"]);
    take_over::ended(old, 0);
    take_over::wait(at);
    let after = started(&get(&address, "/metrics"));
    assert!(before.is_some() && after.is_some() && before != after, "{before:?} {after:?}");
    run(at, "switch stop --socket control.sock", 0);
    take_over::ended(next, 0);
}

/// Renders the page where a browser is installed.
#[test]
fn a_browser_shows_the_counters() {
    let names = ["chromium", "chromium-headless-shell", "google-chrome"];
    let browser =
        names.iter().find(|name| Command::new(name).arg("--version").stdout(Stdio::null()).status().is_ok());
    let Some(browser) = browser else {
        println!("skipped: there is no {}", names.join(", "));
        return;
    };
    let mut switch = Switch::start(CONFIG, &[]);
    let mut lines = BufReader::new(switch.child.as_mut().unwrap().stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        Some(line.unwrap().strip_prefix("flowlane: metrics on ")?.strip_suffix("metrics")?.to_owned())
    });
    let profile = format!("--user-data-dir={}", switch.at().join("profile").display());
    let address = address.unwrap();
    let parts = ["1 in</td>", "by rule</td>", "tcp \u{2192} drop</td>", ">live</span>"];
    // The browser may print the page before its first event has come.
    crate::support::wait_until("the browser shows the counters", || {
        let mut shown = Command::new(browser);
        shown.args(["--headless", "--no-sandbox", "--disable-gpu", &profile, "--timeout=4000", "--dump-dom"]);
        let page = shown.arg(&address).output().unwrap().stdout;
        let page = String::from_utf8_lossy(&page);
        parts.iter().all(|part| page.contains(part))
    });
}
