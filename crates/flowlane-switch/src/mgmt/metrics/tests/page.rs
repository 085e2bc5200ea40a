//! The page: its head, its events and its traces.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

use super::super::service::FOLLOWERS_MAX;
use super::{CONFIG, exchange, get, with_switch};
use crate::mgmt::rpc::ControlServer;

/// Follows the counters; returns a reader behind the head.
fn follow(address: SocketAddr, headers: &str) -> Result<BufReader<TcpStream>, String> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
    let (mut reader, mut line) = (BufReader::new(stream), String::new());
    reader.read_line(&mut line).unwrap();
    let status = line.clone();
    while line != "\r\n" {
        line.clear();
        reader.read_line(&mut line).unwrap();
    }
    if status.starts_with("HTTP/1.1 200 ") { Ok(reader) } else { Err(status) }
}

fn event(reader: &mut BufReader<TcpStream>) -> Value {
    let mut lines = [String::new(), String::new()];
    lines.iter_mut().for_each(|line| _ = reader.read_line(line).unwrap());
    assert_eq!(lines[1], "\n");
    serde_json::from_str(lines[0].strip_prefix("data: ").unwrap()).unwrap()
}

fn check_events(address: SocketAddr, served: &ControlServer) {
    let mut reader = follow(address, "").unwrap();
    let (first, second) = (event(&mut reader), event(&mut reader));
    assert!(first["seconds"].as_f64() < second["seconds"].as_f64(), "they are of two moments");
    let shown = serde_json::to_value(served.show().unwrap()).unwrap();
    for key in ["ports", "drops", "malformed", "tunnels_refused", "caches", "macs", "meters", "mirrors"] {
        assert_eq!(second[key], shown[key], "{key}");
    }
    // Those with most packets are first.
    let rules = |of: &Value| {
        let mut rules = of["tables"][0]["rules"].as_array().unwrap().clone();
        rules.sort_by_key(|rule| std::cmp::Reverse(rule["packets"].as_u64()));
        rules
    };
    assert_eq!(second["tables"][0]["rules"].as_array().unwrap(), &rules(&shown));
    assert_eq!(second["rules"]["0"]["rules"], 3);
    assert!(second["connections"]["by_zone"]["9"].as_u64() > Some(0), "{second}");
    assert!(second["workers"][0]["busy_s"].as_f64() > Some(0.0));
}

#[test]
fn events_are_the_numbers_of_the_report() {
    with_switch(CONFIG, None, check_events);
}

#[test]
fn pages_beyond_the_limit_are_refused_until_one_is_closed() {
    with_switch(CONFIG, None, |address, _| {
        let mut open: Vec<_> = (0..FOLLOWERS_MAX).map(|_| follow(address, "").unwrap()).collect();
        assert!(follow(address, "").unwrap_err().starts_with("HTTP/1.1 503 "));
        open.pop();
        let begun = std::time::Instant::now();
        while follow(address, "").is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the place of a closed page is free");
            std::thread::sleep(Duration::from_millis(100));
        }
    });
}

#[test]
fn the_page_has_a_strict_policy_and_nothing_from_elsewhere() {
    with_switch(CONFIG, Some("0123456789abcdef"), |address, _| {
        let response = exchange(address, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let (head, page) = response.split_once("\r\n\r\n").unwrap();
        let policy = head.lines().find_map(|line| line.strip_prefix("Content-Security-Policy: ")).unwrap();
        let nonce = policy.split_once("script-src 'nonce-").unwrap().1.split('\'').next().unwrap();
        assert!(nonce.len() == 32 && policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.matches(&format!(" nonce=\"{nonce}\">")).count(), 2, "the style and the script");
        let lower = page.to_lowercase();
        assert!(!lower.contains("http://") && !lower.contains("https://") && !lower.contains("src="));
        let handlers = lower.split(['<', ' ']).filter(|word| word.starts_with("on") && word.contains("=\""));
        assert_eq!(handlers.count(), 0);
        for sink in ["innerhtml", "outerhtml", "insertadjacenthtml", "document.write", "eval(", " style=\""] {
            assert!(!lower.contains(sink), "{sink}");
        }
        let again = exchange(address, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        assert!(!again.contains(nonce), "a nonce is used once");
        // The page is for all, and its counters for those with the token.
        assert!(follow(address, "").unwrap_err().starts_with("HTTP/1.1 401 "));
        assert!(follow(address, "Authorization: Bearer 0123456789abcdef\r\n").is_ok());
        assert_eq!(get(address, "POST /trace", "Content-Length: 0\r\n").0, 401);
    });
}

/// Sends a trace; returns the status and the body.
fn trace(address: SocketAddr, kind: &str, body: &str) -> (u16, String) {
    let request = format!(
        "POST /trace HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let response = exchange(address, &request);
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

#[test]
fn a_trace_is_that_of_the_switch_and_changes_nothing() {
    with_switch(CONFIG, None, |address, served| {
        let before = served.show().unwrap();
        let (status, body) =
            trace(address, "application/json; charset=utf-8", r#"{"flow":"in_port=1,udp,tp_dst=53"}"#);
        assert_eq!(status, 200, "{body}");
        let own = served.trace(None, "", "in_port=1,udp,tp_dst=53", &[]).unwrap();
        assert_eq!(body, serde_json::to_string(&own).unwrap());
        assert!(body.contains("priority 2, udp"), "{body}");
        for (kind, text, status, part) in [
            ("text/plain", "{}", 415, "application/json"),
            ("application/json", "{", 400, "EOF"),
            ("application/json", r#"{"flow":"tcp,tp_dest=1"}"#, 400, "did you mean `tp_dst`"),
            ("application/json", r#"{"flows":"tcp"}"#, 400, "unknown field"),
            ("application/json", r#"{"flow":"in_port=77"}"#, 400, "port"),
        ] {
            let (got, body) = trace(address, kind, text);
            assert_eq!(got, status, "{text}: {body}");
            assert!(body.contains(part), "{text}: {body}");
        }
        let after = served.show().unwrap();
        assert_eq!(before.report.ports[1].counters, after.report.ports[1].counters);
        let statuses: Vec<u16> = (0..20).map(|_| trace(address, "application/json", "{").0).collect();
        assert!(statuses.contains(&429), "{statuses:?}");
    });
}
