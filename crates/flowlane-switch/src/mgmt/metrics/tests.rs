//! A running switch and its metrics, over sockets.

mod page;
mod parser;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use flowlane::rule::action::PortNo;
use serde_json::Value;

use super::connection::CLIENTS_MAX;
use super::service::REQUESTS_BURST;
use super::{MetricsServer, MetricsSetup, Token};
use crate::datapath::{PortSlot, Until};
use crate::mgmt::rpc::ControlServer;
use crate::mgmt::setup::{Reload, Setup};
use crate::port::MemoryPort;

const CONFIG: &str = r#"
[[port]]
number = 1
name = "in"
open = "gen:mix,count=5000,flows=50"
[[port]]
number = 2
name = "out"
open = "null"
[[meter]]
number = 7
rate_pps = 1000000
[[table]]
number = 0
name = "first"
rules = ["priority=1,actions=meter:7,output:out", "priority=2,udp,actions=drop", "priority=3,tcp,actions=ct(commit,zone=9),output:out"]
"#;

/// Runs a check beside a running switch with metrics.
fn with_switch(config: &str, token: Option<&str>, check: impl FnOnce(SocketAddr, &ControlServer)) {
    let setup = Setup::parse(config).unwrap();
    let reload = Reload::of(&setup);
    let (mut switch, control) = setup.open_controlled(1).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let served = Arc::new(ControlServer::new(control, reload, stop.clone()));
    // A port that does not end keeps the worker going.
    let (port, _frames) = MemoryPort::new();
    switch.workers_mut()[0].egress.ports.add(PortSlot::new(PortNo(3), "a\"b", "", Box::new(port)));
    let token = token.map(|token| Token::new(token).unwrap());
    let setup = MetricsSetup { address: ([127, 0, 0, 1], 0).into(), token };
    let metrics = MetricsServer::open(&setup, served.clone()).unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| switch.run(Until::default(), &stop, |_| {}));
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while served.show().map_or(0, |report| report.report.ports[0].counters.rx_packets) < 5000 {
                assert!(!running.is_finished(), "the worker runs");
            }
            check(metrics.address(), &served);
        }));
        stop.store(true, Ordering::SeqCst);
        served.end();
        running.join().unwrap().unwrap();
        checked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    drop(metrics);
}

/// Sends bytes; returns all that comes until the connection ends.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

/// Asks once; returns the status and the body.
fn get(address: SocketAddr, first: &str, headers: &str) -> (u16, String) {
    let response = exchange(
        address,
        &format!("{first} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n"),
    );
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.to_owned())
}

const OPEN: &str = "Accept: application/openmetrics-text;version=1.0.0\r\n";

/// Samples of a scrape, and the report to compare them with.
struct Compared {
    samples: parser::Samples,
    report: Value,
}

impl Compared {
    #[track_caller]
    fn sample<const N: usize>(&self, name: &str, labels: [(&str, &str); N]) -> f64 {
        let labels: BTreeMap<String, String> =
            labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let key = (name.to_owned(), labels);
        *self.samples.get(&key).unwrap_or_else(|| panic!("{key:?} is not in {:?}", self.samples))
    }

    fn ports(&self) {
        let ports = self.report["ports"].as_array().unwrap();
        assert_eq!(ports.len(), 3);
        for port in ports {
            let number = port["number"].to_string();
            let labels = [("port", port["name"].as_str().unwrap()), ("number", &*number)];
            for (name, key) in [
                ("receive_packets", "rx_packets"),
                ("receive_bytes", "rx_bytes"),
                ("receive_dropped_packets", "rx_dropped"),
                ("transmit_packets", "tx_packets"),
                ("transmit_bytes", "tx_bytes"),
                ("transmit_dropped_packets", "tx_dropped"),
            ] {
                let sample = self.sample(&format!("flowlane_port_{name}_total"), labels);
                assert_eq!(sample, number_of(&port[key]), "{key} of {port}");
            }
        }
    }

    fn drops(&self) {
        let mut dropped = self.report["drops"].as_object().unwrap().clone();
        assert!(dropped.remove("not_learned").is_some() && number_of(&dropped["by_rule"]) > 0.0);
        for (reason, packets) in &dropped {
            assert_eq!(
                self.sample("flowlane_dropped_packets_total", [("reason", reason)]),
                number_of(packets),
                "{reason}"
            );
        }
    }

    fn caches(&self) {
        let caches = &self.report["caches"];
        for (cache, key) in
            [("exact-match", "exact"), ("signature-match", "signature"), ("megaflow", "megaflow")]
        {
            let of = |field: &str| number_of(&caches[format!("{key}_{field}")]);
            let sample = |field: &str| self.sample(&format!("flowlane_cache_{field}"), [("cache", cache)]);
            assert_eq!(sample("hits_total"), of("hits"));
            assert_eq!(sample("misses_total"), of("lookups") - of("hits"));
            assert_eq!(sample("memory_bytes"), of("bytes"));
        }
        assert_eq!(self.sample("flowlane_megaflows", []), number_of(&caches["megaflows"]));
    }

    fn tables(&self) {
        let (labels, table) = ([("table", "0"), ("name", "first")], &self.report["tables"][0]);
        let rules = table["rules"].as_array().unwrap();
        assert_eq!(self.sample("flowlane_table_rules", labels), rules.len() as f64);
        let matched: f64 = rules.iter().map(|rule| number_of(&rule["packets"])).sum();
        assert!(matched > 4000.0);
        assert_eq!(self.sample("flowlane_table_matched_packets_total", labels), matched);
        assert_eq!(
            self.sample("flowlane_table_missed_packets_total", labels),
            number_of(&table["missed_packets"])
        );
    }

    fn others(&self) {
        let passed = self.sample("flowlane_meter_packets_total", [("meter", "7"), ("result", "passed")]);
        assert!(passed > 0.0);
        assert_eq!(passed, number_of(&self.report["meters"][0]["passed_packets"]));
        let connections = self.sample("flowlane_connections", []);
        assert!(connections > 0.0);
        assert_eq!(self.sample("flowlane_zone_connections", [("zone", "9")]), connections);
        let of_worker =
            |name: &str| self.sample(&format!("flowlane_worker_{name}_seconds_total"), [("worker", "0")]);
        let (run, busy) = (of_worker("run"), of_worker("busy"));
        assert!(0.0 < busy && busy <= run && run < 600.0, "{busy} of {run}");
        assert!(self.sample("flowlane_packet_latency_seconds_count", []) > 0.0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - self.sample("process_start_time_seconds", []);
        assert!((0.0..600.0).contains(&age), "{age}");
    }
}

fn number_of(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn samples_are_the_counters_of_the_report() {
    with_switch(CONFIG, None, |address, served| {
        let (status, text) = get(address, "GET /metrics", OPEN);
        assert_eq!(status, 200, "{text}");
        let report = serde_json::to_value(served.show().unwrap()).unwrap();
        let compared = Compared { samples: parser::read(&text), report };
        compared.ports();
        compared.drops();
        compared.caches();
        compared.tables();
        compared.others();
    });
}

#[test]
fn plain_text_is_for_clients_that_do_not_ask_for_openmetrics() {
    with_switch(CONFIG, None, |address, _| {
        let (_, plain) = get(address, "GET /metrics", "");
        let (_, open) = get(address, "GET /metrics", OPEN);
        assert!(plain.contains("# TYPE flowlane_port_receive_packets_total counter\n"), "{plain}");
        let samples = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(samples(&plain), samples(&open));
    });
}

#[test]
fn requests_that_are_wrong_have_their_status_and_the_switch_goes_on() {
    with_switch(CONFIG, None, |address, served| {
        for (first, headers, status) in [
            ("GET /nothing", "", 404),
            ("POST /", "Content-Length: 0\r\n", 405),
            ("POST /events", "Content-Length: 0\r\n", 405),
            ("GET /trace", "", 405),
            ("POST /metrics", "Content-Length: 0\r\n", 405),
            ("DELETE /metrics", "", 405),
            ("GET metrics", "", 400),
            ("GET /metrics", "Transfer-Encoding: chunked\r\n", 501),
        ] {
            let (got, body) = get(address, first, headers);
            assert_eq!(got, status, "{first} {headers} {body}");
            assert!(body.ends_with('\n') && body.len() > 5, "{body}");
        }
        // The name of another site, which leads to this machine.
        let named = exchange(address, "GET /metrics HTTP/1.1\r\nHost: evil.example:9464\r\n\r\n");
        assert!(named.starts_with("HTTP/1.1 403 "), "{named}");
        for host in ["localhost:9464", "[::1]:9464", "127.0.0.1"] {
            let named = exchange(
                address,
                &format!("HEAD /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
            );
            assert!(named.starts_with("HTTP/1.1 200 ") && named.ends_with("\r\n\r\n"), "{named}");
        }
        assert!(served.show().is_ok());
    });
}

#[test]
fn a_token_must_be_sent_where_there_is_one() {
    with_switch(CONFIG, Some("0123456789abcdef"), |address, _| {
        let without = exchange(address, "GET /metrics HTTP/1.0\r\n\r\n");
        assert!(
            without.starts_with("HTTP/1.1 401 ") && without.contains("\r\nWWW-Authenticate: Bearer\r\n"),
            "{without}"
        );
        assert!(!without.contains("0123456789"));
        assert_eq!(get(address, "GET /metrics", "Authorization: Bearer 0123456789abcdeg\r\n").0, 401);
        let with = "GET /metrics HTTP/1.1\r\nHost: switch.example\r\nAuthorization: Bearer 0123456789abcdef\r\nConnection: close\r\n\r\n";
        assert!(exchange(address, with).starts_with("HTTP/1.1 200 "));
    });
}

#[test]
fn a_connection_takes_many_requests_and_a_new_one_the_place_of_the_idle() {
    with_switch(CONFIG, None, |address, _| {
        let mut kept = TcpStream::connect(address).unwrap();
        let mut read = vec![0; 1 << 16];
        for _ in 0..3 {
            kept.write_all(b"HEAD /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
            let len = kept.read(&mut read).unwrap();
            assert!(read[..len].starts_with(b"HTTP/1.1 200 OK\r\n"));
        }
        // The one that has been idle for longest is closed.
        let _idle: Vec<TcpStream> = (0..CLIENTS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert_eq!(get(address, "GET /metrics", "").0, 200);
        kept.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(kept.read(&mut read).unwrap(), 0);
    });
}

#[test]
fn too_many_requests_are_refused_and_counters_read_a_few_times() {
    with_switch(CONFIG, None, |address, served| {
        let begun = Instant::now();
        let statuses: Vec<u16> =
            (0..3 * REQUESTS_BURST).map(|_| get(address, "HEAD /metrics", "").0).collect();
        let count = |status: u16| statuses.iter().filter(|one| **one == status).count();
        let allowed = f64::from(REQUESTS_BURST) + begun.elapsed().as_secs_f64() * 50.0;
        assert_eq!(count(200) + count(429), statuses.len());
        assert!(
            count(200) >= REQUESTS_BURST as usize && count(200) as f64 <= allowed + 1.0,
            "{}",
            count(200)
        );
        assert!(served.show().is_ok());
    });
}

#[test]
fn a_switch_that_has_stopped_is_unavailable() {
    let setup = Setup::parse(CONFIG).unwrap();
    let reload = Reload::of(&setup);
    let (_switch, control) = setup.open_controlled(1).unwrap();
    let served = Arc::new(ControlServer::new(control, reload, Arc::default()));
    let setup = MetricsSetup { address: ([127, 0, 0, 1], 0).into(), token: None };
    let metrics = MetricsServer::open(&setup, served.clone()).unwrap();
    let (status, body) = get(metrics.address(), "GET /metrics", "");
    assert_eq!((status, body.as_str()), (503, "the switch does not run\n"));
    let again = MetricsServer::open(&MetricsSetup { address: metrics.address(), token: None }, served);
    let error = again.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.starts_with(&format!("no metrics on {}: ", metrics.address())), "{error}");
    let address = metrics.address();
    drop(metrics);
    assert!(TcpStream::connect(address).is_err());
}
