//! Tests of `flowlane switch` and of commands without tests of their own.

use std::fs;
use std::path::Path;

use crate::support::{examples, run};
use tempfile::tempdir;

/// Copies the examples, so that their output does not land in the repository.
fn copy_examples(to: &Path) {
    for entry in fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

#[test]
fn the_quickstart_example_forwards_its_capture() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    copy_examples(at);
    let (table, _) = run(at, "switch run quickstart.toml", 0);
    for part in ["lan", "servers", "firewall", "megaflow", "cycles/packet", "meter 1: dropped"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let (json, _) = run(at, "switch run quickstart.toml --json", 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["ports"][0]["rx_packets"], 40_000);
    let sent = |port: usize| json["ports"][port]["tx_packets"].as_u64().unwrap();
    let rules = json["tables"][0]["rules"].as_array().unwrap();
    let matched: u64 = rules.iter().map(|r| r["packets"].as_u64().unwrap()).sum();
    assert_eq!(matched + json["tables"][0]["missed_packets"].as_u64().unwrap(), 40_000);
    let (_, message) = run(at, "switch run quickstart.toml --validate-simd", 0);
    assert!(message.contains("every variant agreed on 40"), "{message}");
    // The counters agree with the captures.
    fs::write(at.join("all.flows"), "actions=drop\n").unwrap();
    for (port, file) in [(1, "servers.pcap"), (2, "internet.pcap")] {
        let (csv, _) = run(at, &format!("classify --rules all.flows --trace out/{file}"), 0);
        assert_eq!(csv.lines().count() as u64 - 1, sent(port));
    }
    // Results do not depend on the caches.
    let config = fs::read_to_string(at.join("quickstart.toml")).unwrap();
    fs::write(at.join("plain.toml"), format!("[cache]\nmegaflows_max = 0\n{config}")).unwrap();
    let before = fs::read(at.join("out/servers.pcap")).unwrap();
    let (plain, _) = run(at, "switch run plain.toml --json", 0);
    let plain: serde_json::Value = serde_json::from_str(&plain).unwrap();
    assert_eq!(plain["ports"], json["ports"]);
    assert_eq!(plain["tables"][1]["rules"], json["tables"][1]["rules"]);
    assert!(fs::read(at.join("out/servers.pcap")).unwrap() == before);
}

#[test]
fn the_gateway_example_tunnels_to_headquarters() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    copy_examples(at);
    assert!(run(at, "switch check gateway.toml", 0).0.contains("2 tables, 6 rules, 4 routes: valid"));
    let (json, _) = run(at, "switch run gateway.toml --json", 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let sent = |port: usize| json["ports"][port]["tx_packets"].as_u64().unwrap();
    let hops = json["route_tables"][0]["next_hops"].as_array().unwrap();
    let through = |name: &str| hops.iter().find(|h| h["name"] == name).unwrap()["packets"].as_u64().unwrap();
    assert!(sent(1) > 0 && sent(2) > 0 && sent(3) > 0, "{json}");
    assert_eq!(json["tunnels"][0]["sent_packets"].as_u64().unwrap(), sent(3));
    // Packets whose TTL expires are counted for their next hop, but not sent.
    assert!(through("192.0.2.7") >= sent(3) && through("192.0.2.2") >= sent(1));
    let (table, _) = run(at, "switch run gateway.toml --validate-simd", 0);
    for part in ["routes (4 routes, ", "192.0.2.7", "no route", "headquarters"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let (json, _) = run(at, "switch run headquarters.toml --json", 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["ports"][1]["tx_packets"].as_u64().unwrap(), sent(3));
    assert_eq!(json["tunnels"][0]["received_packets"].as_u64().unwrap(), sent(3));
}

#[test]
fn the_firewall_example_passes_connections_and_drops_what_belongs_to_none() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    copy_examples(at);
    let (rules, _) = run(at, "switch check --explain firewall.toml", 0);
    assert!(rules.starts_with("# firewall.toml: 2 ports, 2 tables, 31 rules, 0 routes: valid\n"), "{rules}");
    assert!(
        rules.contains("# outgoing\ntable=1,priority=100,ip,in_port=1,ct_state=+new+trk actions="),
        "{rules}"
    );
    let (_, refused) = run(at, "switch check --explain quickstart.toml", 2);
    assert!(refused.contains("there is no section [firewall] or [router]"), "{refused}");
    let (json, _) = run(at, "switch run firewall.toml --json", 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let packets = |port: usize, counter: &str| json["ports"][port][counter].as_u64().unwrap();
    assert_eq!((packets(0, "rx_packets"), packets(1, "tx_packets")), (12, 12));
    // Two handshakes, a reply to nothing, an error about nothing and a datagram are dropped.
    assert_eq!((packets(1, "rx_packets"), packets(0, "tx_packets")), (15, 10));
}

#[test]
fn the_router_example_forwards_translates_and_answers() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    copy_examples(at);
    let (rules, _) = run(at, "switch check --explain router.toml", 0);
    assert!(rules.starts_with("# router.toml: 2 ports, 8 tables, 55 rules, 22 routes: valid\n"), "{rules}");
    assert!(rules.contains("# Packets for the router at lan, and those for all.\n"), "{rules}");
    let (json, _) = run(at, "switch run router.toml --json", 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let packets = |port: usize, counter: &str| json["ports"][port][counter].as_u64().unwrap();
    assert_eq!((packets(0, "rx_packets"), packets(1, "rx_packets")), (14, 10));
    // Inside: three announcements, ARP, a ping, two errors, two questions for neighbours, five packets from outside, and two of a
    // connection from inside that is forwarded back.
    assert_eq!(packets(0, "tx_packets"), 16);
    // Outside: three announcements, two questions, a ping, and six packets from inside.
    assert_eq!(packets(1, "tx_packets"), 12);
    let sent = fs::read(at.join("out/wan.pcap")).unwrap();
    let holds = |part: &[u8]| sent.windows(part.len()).any(|window| window == part);
    assert!(
        holds(&[198, 51, 100, 2, 203, 0, 113, 80]) && !holds(&[192, 168, 1, 5]) && !holds(&[192, 168, 1, 80]),
        "only the router's address leaves"
    );
    let sent = fs::read(at.join("out/lan.pcap")).unwrap();
    let holds = |part: &[u8]| sent.windows(part.len()).any(|window| window == part);
    assert!(holds(&[203, 0, 113, 7, 192, 168, 1, 80]), "connections from outside are forwarded");
    assert!(
        holds(&[192, 168, 1, 1, 192, 168, 1, 80]) && holds(&[198, 51, 100, 2, 192, 168, 1, 5]),
        "and those from inside"
    );
}

#[test]
fn the_nat_gateway_example_translates_filters_and_lists_assets() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    copy_examples(at);
    assert!(run(at, "switch check nat-gateway.toml", 0).0.contains("6 tables"));
    let json_of = |config: &str| -> serde_json::Value {
        let (json, _) = run(at, &format!("switch run {config} --json"), 0);
        serde_json::from_str(&json).unwrap()
    };
    let json = json_of("nat-gateway.toml");
    let function = |kind: &str| {
        let functions = json["stateful_stages"].as_array().unwrap();
        functions.iter().find(|f| f["kind"] == kind).unwrap().clone()
    };
    let verdict = |function: &serde_json::Value, name: &str| {
        let verdicts = function["verdicts"].as_array().unwrap();
        verdicts.iter().find(|v| v["verdict"] == name).unwrap()["packets"].as_u64().unwrap()
    };
    let event = |function: &serde_json::Value, name: &str| {
        let events = function["events"].as_array().unwrap();
        events.iter().find(|e| e["reason"] == name).map_or(0, |e| e["packets"].as_u64().unwrap())
    };
    let (filter, assets, nat) = (function("filter"), function("assets"), function("nat"));
    assert!(verdict(&filter, "hit") > 0 && verdict(&filter, "miss") > 0, "{filter}");
    assert_eq!(filter["filter_entries"][0]["key"], "nw_dst=198.51.100.53");
    assert_eq!(
        filter["filter_entries"].as_array().unwrap().len(),
        filter["entries"].as_u64().unwrap() as usize
    );
    assert!(assets["assets"].as_array().unwrap().iter().any(|a| a["mac"] == "02:00:00:00:00:12"), "{assets}");
    // A packet may show a new host, a new service, or both.
    let (hosts, services) = (event(&assets, "new hosts"), event(&assets, "new services"));
    assert!((hosts..=hosts + services).contains(&verdict(&assets, "new")), "{assets}");
    assert!(verdict(&nat, "outbound") > 0 && event(&nat, "sessions made") > 0, "{nat}");
    let sent = |port: usize| json["ports"][port]["tx_packets"].as_u64().unwrap();
    assert!(sent(1) > 0);
    // No inside address leaves untranslated.
    fs::write(at.join("inside.flows"), "ip,nw_src=192.168.0.0/16,actions=drop\n").unwrap();
    let (csv, _) = run(at, "classify --rules inside.flows --trace out/wan.pcap", 0);
    assert_eq!(csv.lines().count() as u64 - 1, sent(1));
    assert!(csv.lines().skip(1).all(|line| line.ends_with(",,,")), "{csv}");
    // With a seed, runs are reproducible, and scalar lookups give the same results.
    let config = fs::read_to_string(at.join("nat-gateway.toml")).unwrap();
    let mut runs = Vec::new();
    for lookups in ["batch", "scalar", "batch"] {
        let one = |text: String, table: &str| {
            text.replace(&format!("[[{table}]]"), &format!("[[{table}]]\nlookups = \"{lookups}\""))
        };
        let seeded = format!("[switch]\nseed = 7\n{config}");
        let text = one(one(one(seeded, "filter_table"), "asset_table"), "nat_table");
        fs::write(at.join("seeded.toml"), text).unwrap();
        let json = json_of("seeded.toml");
        let stages: Vec<_> =
            json["stateful_stages"].as_array().unwrap().iter().map(|f| f["verdicts"].clone()).collect();
        runs.push((stages, fs::read(at.join("out/wan.pcap")).unwrap()));
    }
    assert!(runs[0] == runs[1] && runs[0] == runs[2]);
    let (table, _) = run(at, "switch run nat-gateway.toml", 0);
    for part in [
        "filter 10 blocklist",
        "assets 20 who-is-there",
        "nat 30 nat",
        "new hosts",
        "last seen",
        "sessions made",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

/// Returns the part of a report that does not depend on the assignment of packets to workers.
fn counted(report: &serde_json::Value) -> serde_json::Value {
    let mut counted =
        serde_json::json!([report["ports"], report["drops"], report["malformed"], report["counters"]]);
    for table in report["tables"].as_array().unwrap() {
        let rules = table["rules"].as_array().unwrap().iter().map(|rule| rule["packets"].clone());
        counted
            .as_array_mut()
            .unwrap()
            .push(serde_json::json!([table["missed_packets"], rules.collect::<Vec<_>>()]));
    }
    counted
}

#[test]
fn results_do_not_depend_on_the_number_of_workers() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    copy_examples(at);
    for name in ["quickstart", "nat-gateway"] {
        // A meter's result depends on the order of packets.
        let config = fs::read_to_string(at.join(format!("{name}.toml"))).unwrap().replace("meter:1, ", "");
        let mut before = None;
        for workers in [1, 2, 4] {
            let setting = format!("[switch]\nworkers = {workers}\n");
            let config = match config.contains("[switch]\n") {
                true => config.replace("[switch]\n", &setting),
                false => format!("{setting}{config}"),
            };
            fs::write(at.join("several.toml"), config).unwrap();
            let (json, _) = run(at, "switch run several.toml --json", 0);
            let report: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(
                *before.get_or_insert_with(|| counted(&report)),
                counted(&report),
                "{name}, {workers} workers"
            );
        }
    }
    let (_, err) = run(at, "switch check quickstart.toml", 0);
    assert!(err.is_empty(), "{err}");
    fs::write(at.join("many.toml"), "[switch]\nworkers = 65\n[[table]]\nnumber = 0\n").unwrap();
    assert!(run(at, "switch check many.toml", 2).1.contains("65 workers"));
}

#[test]
fn runs_end_after_packets_or_duration() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let config = "[[port]]\nnumber = 1\nopen = \"gen:mix\"\n[[port]]\nnumber = 2\nopen = \"null\"\n[[table]]\nnumber = 0\nrules = [\"actions=output:2\"]\n";
    fs::write(at.join("c.toml"), config).unwrap();
    let (json, _) = run(at, "switch run c.toml --packets 10000 --json", 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let received = json["ports"][0]["rx_packets"].as_u64().unwrap();
    assert!((10_000..10_100).contains(&received));
    assert_eq!(json["ports"][1]["tx_packets"].as_u64(), Some(received));
    run(at, "switch run c.toml --duration 0.2", 0);
    assert!(run(at, "switch run c.toml --duration 1e99", 2).1.contains("--duration"));
    assert!(run(at, "switch run c.toml --duration=-1", 2).1.contains("--duration"));
}

#[test]
fn excessive_sizes_are_rejected_by_check_and_run() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let rest = "[[port]]\nnumber = 1\nopen = \"null\"\n[[table]]\nnumber = 0\n";
    let sizes = [
        (format!("[cache]\nexact_entries = 99999999999\n{rest}"), "take up to 16777216"),
        (format!("[cache]\nsignature_entries = 999999999\n{rest}"), "take up to 268435456"),
        (format!("[cache]\nmegaflows_max = 1000000000\n{rest}"), "take up to 33554432 (2 GiB"),
        (format!("[cache]\nmasks_max = 1000000000\n{rest}"), "take up to 65536"),
        (format!("[macs]\nentries_max = 9000000000000000000\n{rest}"), "take up to 16777216 (512 MiB)"),
        (format!("{rest}rules_max = 9000000000000000000\n"), "take up to 1073741824"),
    ];
    for (config, part) in sizes {
        fs::write(at.join("c.toml"), &config).unwrap();
        for command in ["switch check c.toml", "switch run c.toml --packets 1"] {
            let (_, err) = run(at, command, 2);
            assert!(err.contains(part), "{config}\n{err}");
        }
    }
}

/// Configuration errors after a port and table 0: position, underlined text, and a part of the message. (Tests of every kind
/// are in `flowlane-switch`.)
const ERRORS: [(&str, &str, &str, &str); 13] = [
    ("[[port]]\nnumber = 2\nopne = \"null\"", "c.toml:8:1", "opne", "did you mean `open`?"),
    ("[[port]]\nopen = \"null\"\nnumber = 1", "c.toml:8:10", "1", "two ports have the number 1"),
    ("[[port]]\nnumber = 2\nopen = \"pcpa:x\"", "c.toml:8:8", "\"pcpa:x\"", "did you mean `pcap`?"),
    ("[switch]\nburst = 65", "c.toml:7:9", "65", "take 1 to 64"),
    ("[switch]\nvariant = \"avx\"", "c.toml:7:11", "\"avx\"", "expected one of `scalar`"),
    ("[cache]\ndesign = \"majority\"", "c.toml:7:1", "design", "unknown field `design`"),
    ("rules = [\"tpc,actions=drop\"]", "c.toml:6:11", "tpc", "did you mean `tcp`?"),
    ("rules = [\"actions=output:7\"]", "c.toml:6:19", "output:7", "there is no port 7"),
    ("rules_file = \"none.flows\"", "c.toml:6:14", "\"none.flows\"", "cannot be read"),
    ("[[meter]]\nnumber = 1", "c.toml:6:1", "[[meter]]", "either rate_kbps or rate_pps"),
    ("[[route_table]]\nnumber = 9\nroutes = [\"10.0.0.0/33 1\"]", "c.toml:8:21", "33", "prefix is 0 to 32"),
    (
        "[[filter_table]]\nnumber = 5\nkey = [\"nw_scr\"]",
        "c.toml:8:8",
        "\"nw_scr\"",
        "did you mean `nw_src`?",
    ),
    ("[[asset_table]]\nnumber = 5\nknown = \"output:9\"", "c.toml:8:10", "output:9", "there is no port 9"),
];

#[test]
fn configuration_errors_name_the_place_and_the_fix() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let right = "[[port]]\nnumber = 1\nopen = \"null\"\n[[table]]\nnumber = 0\n";
    for (mistake, place, underlined, message) in ERRORS {
        fs::write(at.join("c.toml"), format!("{right}{mistake}\n")).unwrap();
        let (_, err) = run(at, "switch check c.toml", 2);
        assert!(err.contains(place) && err.contains(message), "{mistake}\n{err}");
        assert_eq!(marked(&err).1, underlined, "{err}");
    }
    fs::write(at.join("c.toml"), format!("{right}not toml")).unwrap();
    assert!(run(at, "switch check c.toml", 2).1.contains("c.toml:6:"));
    fs::write(at.join("c.toml"), right).unwrap();
    assert!(run(at, "switch check c.toml", 0).0.contains("valid"));
}

#[test]
fn all_variants_agree_and_a_capped_one_is_rejected() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    copy_examples(at);
    let quickstart = fs::read_to_string(at.join("quickstart.toml")).unwrap();
    fs::write(at.join("v.toml"), format!("{quickstart}\n[switch]\nvariant = \"scalar\"\n")).unwrap();
    assert!(run(at, "switch run v.toml --validate-simd", 0).1.contains("every variant agreed"));
    let table = "[[table]]\nnumber = 0\n";
    fs::write(at.join("c.toml"), format!("[switch]\nvariant = \"avx512\"\n{table}")).unwrap();
    assert!(run(at, "--max-simd 256 switch check c.toml", 3).1.contains("cannot be used"));
    // A port that cannot be opened because the environment lacks the interface.
    let port = "[[port]]\nnumber = 1\nopen = \"afpacket:nosuchif0\"\n";
    fs::write(at.join("c.toml"), format!("{port}{table}")).unwrap();
    assert!(run(at, "switch run c.toml", 3).1.contains("nosuchif0"));
}

#[test]
fn rules_max_is_enforced_by_check_and_run() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    // Each source alone is within the limit.
    fs::write(at.join("more.flows"), "udp,actions=drop\ntcp,actions=drop\n").unwrap();
    for engine in ["auto", "linear", "tuple", "acl", "brute", "tree", "dynamic"] {
        let config = format!(
            "[[port]]\nnumber = 1\nopen = \"null\"\n[[table]]\nnumber = 0\nengine = \"{engine}\"\nrules_max = 3\n\
             rules = [\"arp,actions=drop\", \"ipv6,actions=drop\"]\nrules_file = \"more.flows\"\n"
        );
        fs::write(at.join("c.toml"), &config).unwrap();
        for command in ["check", "run"] {
            let (out, err) = run(at, &format!("switch {command} c.toml"), 2);
            assert!(out.is_empty(), "{engine}, {command}: {out}");
            let said = "table 0: the table holds its limit of 3 rules; raise the limit or remove rules";
            assert!(err.contains(said) && err.contains("c.toml:7:13"), "{engine}, {command}: {err}");
        }
        fs::write(at.join("c.toml"), config.replace("rules_max = 3", "rules_max = 4")).unwrap();
        run(at, "switch check c.toml", 0);
    }
}

/// Returns the source line shown in an error message, and the marked part of it.
fn marked(err: &str) -> (String, String) {
    let lines: Vec<&str> = err.lines().collect();
    let carets =
        lines.iter().position(|l| l.contains('^')).unwrap_or_else(|| panic!("nothing is marked: {err}"));
    let places = lines[carets].chars().enumerate().filter(|(_, c)| *c == '^').map(|(i, _)| i);
    let shown: Vec<char> = lines[carets - 1].chars().collect();
    (lines[carets - 1].to_owned(), places.filter_map(|i| shown.get(i)).collect())
}

#[test]
fn errors_are_marked_after_multibyte_characters_and_at_end_of_file() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let config = "[[port]]\nnumber = 1\nname = \"Zürich→Genève\"\nopen = \"null\"\n\
                  [[table]]\nnumber = 0\nrules_file = \"last.flows\"\n";
    fs::write(at.join("c.toml"), config).unwrap();
    for (rules, place, part) in [
        // No newline after the last line.
        ("arp,actions=drop\nudp,tp_dst=443-80,actions=drop", "last.flows:2:12", "443-80"),
        ("arp,actions=drop\nudp,actions=output:7x", "last.flows:2:", "7x"),
        ("# à\nin_port=Zürich→Genève,udp,tp_dst=443-80,actions=drop\n", "last.flows:2:34", "443-80"),
        ("in_port=Zürich→Genève,actions=drop\nin_port=Zürich,actions=drop", "last.flows:2:9", "Zürich"),
    ] {
        fs::write(at.join("last.flows"), rules).unwrap();
        let (_, err) = run(at, "switch check c.toml", 2);
        let (line, found) = marked(&err);
        assert!(err.contains(place) && found == part, "`{found}` of `{line}` is marked in {rules}\n{err}");
    }
    // An incomplete rule is marked at its end.
    fs::write(at.join("last.flows"), "arp,actions=drop\nudp,tp_dst=80").unwrap();
    let (_, err) = run(at, "switch check c.toml", 2);
    assert!(err.contains("last.flows:2:") && marked(&err).0.contains("udp,tp_dst=80"), "{err}");
    // Multibyte characters in the configuration itself.
    fs::write(at.join("c.toml"), "[[port]]\nnumber = 1\nname = \"Zürich→\"\nopne = \"null\"").unwrap();
    let (_, err) = run(at, "switch check c.toml", 2);
    assert!(err.contains("c.toml:4:1") && marked(&err).1 == "opne", "{err}");
}

#[test]
fn schema_cpu_completions_man_and_help_work() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let (schema, _) = run(at, "switch schema", 0);
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    assert!(schema["properties"]["port"].is_object());
    let (cpu, _) = run(at, "--max-simd 128 cpu --json", 0);
    let cpu: serde_json::Value = serde_json::from_str(&cpu).unwrap();
    assert_eq!(cpu["max_simd_bits"], 128);
    assert!(
        cpu["variants"]
            .as_array()
            .unwrap()
            .iter()
            .all(|v| v["width_bits"].as_u64() <= Some(128) || v["available"] == false)
    );
    assert!(run(at, "completions bash", 0).0.contains("_flowlane"));
    run(at, "man pages", 0);
    assert!(fs::read_to_string(at.join("pages/flowlane.1")).unwrap().contains("flowlane"));
    assert!(run(at, "switch run --help", 0).0.contains("Examples:"));
}

#[test]
fn rules_learn_into_their_own_table_and_earlier_ones() {
    let folder = tempdir().unwrap();
    let config = |table: u8| {
        format!(
            "[[port]]\nnumber = 1\nopen = \"gen:udp\"\n[[table]]\nnumber = 0\nrules = [\"actions=resubmit(,5)\"]\n\
             [[table]]\nnumber = 5\nrules = [\"ip,actions=learn(table={table},priority=9,eth_type=0x800,NXM_OF_IP_SRC[])\"]\n"
        )
    };
    for (table, code) in [(5, 0), (0, 0), (6, 2)] {
        fs::write(folder.path().join("s.toml"), config(table)).unwrap();
        let (_, error) = run(folder.path(), "switch run s.toml --packets 100", code);
        assert!(code == 0 || error.contains("there is no table 6"), "{error}");
    }
}
