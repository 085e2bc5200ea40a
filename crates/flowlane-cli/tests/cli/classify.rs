//! Tests of `flowlane classify`, `generate` and `rules`.

use std::fs;
use std::io::Read;

use crate::support::{data, run};
use tempfile::tempdir;

#[test]
fn generated_classbench_rules_agree_with_linear_search() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    for profile in ["acl", "fw", "ipc"] {
        run(at, &format!("generate rules --profile {profile} --count 300 --seed 5 --output r.rules"), 0);
        run(
            at,
            "generate trace --rules r.rules --count 2000 --locality zipf:1.1 --miss 0.1 --output t.trace",
            0,
        );
        let (_, summary) = run(at, "classify --rules r.rules --trace t.trace --check --output v.csv", 0);
        assert!(summary.contains("differences from linear"), "{summary}");
        let csv = fs::read_to_string(at.join("v.csv")).unwrap();
        let mut lines = csv.lines();
        assert_eq!(lines.next(), Some("packet,rule,priority,action"));
        assert_eq!(lines.clone().count(), 2000);
        assert!(lines.enumerate().all(|(i, l)| l.starts_with(&format!("{i},")) && l.split(',').count() == 4));
        // All engines produce the same output.
        for engine in ["linear", "tuple", "acl", "brute", "tree", "dynamic", "brute --variant scalar"] {
            run(at, &format!("classify --rules r.rules --trace t.trace --engine {engine} --output l.csv"), 0);
            assert_eq!(fs::read_to_string(at.join("l.csv")).unwrap(), csv, "{engine}");
        }
    }
}

#[test]
fn generated_rules_of_other_profiles_agree_with_linear_search() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let profiles =
        "ranges groups blocklist acl6 mixed masks nested disjoint overlap cuts chains".split_whitespace();
    for profile in profiles {
        let rules =
            format!("generate rules --profile {profile} --count 60 --duplicates 0.1 --output r.rules");
        run(at, &rules, 0);
        run(at, "generate pcap --rules r.rules --count 300 --miss 0.1 --output t.pcap", 0);
        let (_, summary) = run(at, "classify --rules r.rules --trace t.pcap --check --output v.csv", 0);
        assert!(summary.contains("differences from linear"), "{profile}: {summary}");
        run(at, "generate trace --rules r.rules --count 50 --output t.trace", 0);
        run(at, "classify --rules r.rules --trace t.trace --check --output v.csv", 0);
    }
}

#[test]
fn one_pass_classifies_by_several_lists_and_counts_hits() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    run(at, "generate rules --profile fw --count 200 --seed 5 --output a.rules", 0);
    run(at, "generate rules --profile ipc --count 150 --seed 6 --output b.rules", 0);
    run(at, "generate trace --rules a.rules --count 1500 --miss 0.1 --output t.trace", 0);
    for list in ["a", "b"] {
        let one =
            format!("classify --rules {list}.rules --trace t.trace --output {list}.csv --hits {list}.hits");
        run(at, &one, 0);
    }
    let csv = |name: &str| fs::read_to_string(at.join(name)).unwrap();
    let columns = |text: &str| -> Vec<String> {
        let behind_number = |line: &str| line.split_once(',').unwrap().1.to_owned();
        text.lines().skip(1).map(behind_number).collect()
    };
    for engine in ["auto", "tree", "dynamic", "brute"] {
        let both = format!(
            "classify --rules a.rules --also b.rules --trace t.trace --engine {engine} --check --output c.csv --hits c.hits"
        );
        run(at, &both, 0);
        let (a, b, both) = (csv("a.csv"), csv("b.csv"), csv("c.csv"));
        assert!(both.starts_with("packet,rule,priority,action,rule2,priority2,action2\n"));
        let expected: Vec<String> =
            columns(&a).iter().zip(columns(&b)).map(|(a, b)| format!("{a},{b}")).collect();
        assert_eq!(columns(&both), expected, "{engine}");
        let hits = csv("c.hits");
        let of = |list: &str, name: &str| -> Vec<String> {
            csv(name).lines().skip(1).map(|line| format!("{list},{line}")).collect()
        };
        let expected = [of("1", "a.hits"), of("2", "b.hits")].concat();
        assert_eq!(hits.lines().skip(1).collect::<Vec<_>>(), expected, "{engine}");
    }
    // Each hit of the first list is a line with a rule in its CSV.
    let won = csv("a.csv").lines().skip(1).filter(|line| !line.ends_with(",,,")).count();
    let counted = csv("a.hits");
    assert!(counted.starts_with("rule,priority,hits\n") && counted.lines().count() == 201);
    let sum: usize =
        counted.lines().skip(1).map(|l| l.rsplit(',').next().unwrap().parse::<usize>().unwrap()).sum();
    assert_eq!(sum, won);
    let (json, _) = run(at, "classify --rules a.rules --also b.rules --trace t.trace --json", 0);
    assert!(json.contains("\"also\":[{\"rule\":"), "{}", &json[..300]);
    let (_, error) = run(at, "classify --rules a.rules --also b.rules --trace t.trace --engine tuple", 2);
    assert!(error.contains("supporting engines: auto, acl"), "{error}");
}

#[test]
fn verdicts_are_positions_in_the_file_and_quoted_where_needed() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("r.rules"), "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 90\t0x06/0xFF\t0x0000/0x0000\t\n@0.0.0.0/0\t1.0.0.0/8\t0 : 65535\t0 : 65535\t0x00/0x00\t0x0000/0x0000\t\n").unwrap();
    // 10.0.0.1 → 1.0.0.1 port 85 by TCP; the same by UDP; and neither.
    fs::write(at.join("t.trace"), "167772161 16777217 5 85 6 0 0\n167772161 16777217 5 85 17\n1 1 5 85 6\n")
        .unwrap();
    let (csv, _) = run(at, "classify --rules r.rules --trace t.trace", 0);
    assert_eq!(csv, "packet,rule,priority,action\n0,0,2,\n1,1,1,\n2,,,\n");
    fs::write(at.join("r.flows"), "priority=7,tcp actions=output:1,output:2\nip actions=drop\n").unwrap();
    let (csv, _) = run(at, "classify --rules r.flows --trace t.trace", 0);
    assert_eq!(csv, "packet,rule,priority,action\n0,1,32768,drop\n1,1,32768,drop\n2,1,32768,drop\n");
    fs::write(at.join("r.flows"), "priority=60000,tcp actions=output:1,output:2\nip actions=drop\n").unwrap();
    let (csv, _) = run(at, "classify --rules r.flows --trace t.trace", 0);
    assert!(csv.contains("0,0,60000,\"output:1,output:2\"\n"), "{csv}");
    let (json, _) = run(at, "classify --rules r.flows --trace t.trace --json", 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["summary"]["hits"], 3);
    assert_eq!(json["verdicts"][0]["action"], "output:1,output:2");
}

#[test]
fn decompression_bombs_are_rejected() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let pack = |name: &str, bytes: usize| {
        let file = fs::File::create(at.join(name)).unwrap();
        let mut packed = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        std::io::copy(&mut std::io::repeat(b'#').take(bytes as u64), &mut packed).unwrap();
        packed.finish().unwrap();
    };
    // Any file may expand to 64 MiB; larger ones to a hundred times their size.
    pack("most.gz", 64 << 20);
    run(at, "rules show most.gz", 0);
    pack("bomb.gz", (64 << 20) + 1);
    let (_, error) = run(at, "rules show bomb.gz", 2);
    assert!(error.contains("bomb.gz becomes larger than 67108864 bytes when decompressed"), "{error}");
    assert!(error.contains("decompress it first"), "{error}");
}

#[test]
fn captures_are_accepted_as_traces() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(
        at.join("r.flows"),
        "udp,tp_dst=53,nw_dst=10.0.0.0/8 actions=output:1\nudp6 actions=output:2\narp actions=flood\n",
    )
    .unwrap();
    for name in ["t.pcap", "t.pcapng"] {
        run(at, &format!("generate pcap --rules r.flows --count 200 --output {name}"), 0);
        let (_, err) = run(at, &format!("classify --rules r.flows --trace {name} --check --output v.csv"), 0);
        assert!(err.contains("misses"), "{err}");
        assert!(fs::read_to_string(at.join("v.csv")).unwrap().lines().skip(1).all(|l| !l.contains(",,")));
    }
}

#[test]
fn errors_name_the_place_and_leave_no_output() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("good.flows"), "ip actions=drop\n").unwrap();
    fs::write(at.join("bad.flows"), "ip actions=drop\nudp,tp_dst=443-80 actions=drop\n").unwrap();
    fs::write(at.join("t.trace"), "1 2 3 4 6\n").unwrap();
    fs::write(at.join("t.pcap.bz2"), "BZh91AY&SY").unwrap();
    fs::write(at.join("t.pcap.xz"), b"\xfd7zXZ\0\0\x04").unwrap();
    let packed = [("t.pcap.bz2", "bunzip2"), ("t.pcap.xz", "unxz")];
    for (trace, remedy) in packed {
        let (_, err) = run(at, &format!("classify --rules good.flows --trace {trace} --output o.csv"), 2);
        assert!(err.contains("compressed by") && err.contains(remedy), "{err}");
    }
    let cases = [
        ("classify --rules bad.flows --trace t.trace --output o.csv", "bad.flows:2:12"),
        ("classify --rules none.flows --trace t.trace --output o.csv", "none.flows cannot be read"),
        ("classify --rules good.flows --trace bad.flows --output o.csv", "bad.flows looks like flows"),
        (
            "classify --rules good.flows --trace t.trace --engine quick --output o.csv",
            "engines: auto, linear, tuple",
        ),
        (
            "classify --rules good.flows --trace t.trace --engine tuple --variant avx2 --output o.csv",
            "its variants: scalar",
        ),
        ("classify --rules good.flows --trace t.trace --table 9 --output o.csv", "no rules for table 9"),
        ("--max-simd 300 cpu", "64 (none), 128, 256 or 512"),
        ("classify --rules good.flows", "--trace"),
        ("generate rules --profile nonsense", "nonsense"),
        ("generate rules --profile cuts --masks 3", "profile cuts has no choice of masks"),
        ("generate trace --rules good.flows --locality often", "uniform, zipf:S"),
        ("rules convert good.flows --to classbench", ""),
    ];
    for (arguments, part) in &cases[..11] {
        let (out, err) = run(at, arguments, 2);
        assert!(out.is_empty() && err.contains(part), "{arguments}: {err}");
    }
    assert!(!at.join("o.csv").exists());
    fs::write(at.join("arp.flows"), "ip actions=drop\narp actions=drop\n").unwrap();
    let (out, err) = run(at, "generate trace --rules arp.flows --count 50", 2);
    assert!(out.is_empty() && err.contains("flowlane generate pcap"), "{out}{err}");
    // A rule for all of IPv4 can be expressed as a filter.
    run(at, cases[11].0, 0);
}

#[test]
fn rule_conversion_round_trips() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    run(at, "generate rules --profile fw --count 200 --output a.rules", 0);
    run(at, "rules convert a.rules --to flows --output b.flows", 0);
    run(at, "rules convert b.flows --to classbench --output c.rules", 0);
    let read = |name: &str| fs::read_to_string(at.join(name)).unwrap();
    // Flows have no ranges: a rule with some has become several.
    let is_range =
        |ports: &str| ports.split_once(" : ").is_some_and(|(low, high)| low != high && ports != "0 : 65535");
    let exact = |name: &str| {
        let text = read(name);
        let lines = text.lines().filter(|line| !line.split('\t').any(is_range));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let (before, after) = (exact("a.rules"), exact("c.rules"));
    assert!(before.len() > 20 && before.iter().all(|line| after.contains(line)), "{before:#?}");
    let (summary, _) = run(at, "rules show b.flows --list", 0);
    assert!(summary.contains("nw_dst") && summary.contains("actions="), "{summary}");
    run(at, "rules show b.flows --json", 0);
    // The rules depend on the seed only.
    run(at, "generate rules --profile fw --count 200 --output d.rules", 0);
    run(at, "generate rules --profile fw --count 200 --seed 2 --output e.rules", 0);
    assert_eq!(read("a.rules"), read("d.rules"));
    assert_ne!(read("a.rules"), read("e.rules"));
}

#[test]
fn published_rule_sets_agree_with_linear_search() {
    let Some(sets) = data("classbench") else { return };
    let folder = tempdir().unwrap();
    let mut count = 0;
    for entry in fs::read_dir(&sets).unwrap() {
        let rules = entry.unwrap().path();
        let name = rules.file_name().unwrap().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(".rules.gz") else { continue };
        let (rules, trace) = (rules.display(), folder.path().join("t.trace"));
        // `auto`, which builds and measures all engines, is tested with small sets only.
        let large = stem.ends_with("10k");
        let (headers, engine) = if large { (500, " --engine tree") } else { (1000, "") };
        let generate = format!(
            "generate trace --rules {rules} --count {headers} --miss 0.05 --output {}",
            trace.display()
        );
        // A set with a catch-all rule has no misses.
        let generated = crate::support::flowlane().args(generate.split(' ')).output().unwrap();
        if !generated.status.success() {
            run(folder.path(), &generate.replace("--miss 0.05", ""), 0);
        }
        // Generated and published headers in one trace, so that each engine is built once.
        if let Ok(published) = fs::File::open(sets.join(format!("{stem}.trace.gz"))) {
            let mut file = fs::OpenOptions::new().append(true).open(&trace).unwrap();
            std::io::copy(&mut flate2::read::MultiGzDecoder::new(published), &mut file).unwrap();
        }
        for options in [engine, " --engine acl --match-flags"] {
            let ask = format!("classify --rules {rules} --trace t.trace --check --output v.csv{options}");
            run(folder.path(), &ask, 0);
        }
        count += 1;
    }
    println!("{count} sets");
    assert!(count > 0);
}

#[test]
fn an_explanation_names_the_winner_the_next_and_the_bits() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(
        at.join("r.flows"),
        "priority=7,tcp actions=drop\npriority=9,tcp,nw_dst=1.0.0.0/8 actions=drop\n",
    )
    .unwrap();
    fs::write(at.join("t.trace"), "167772161 16777217 5 85 6 0 0\n").unwrap();
    for engine in ["auto", "linear", "tuple", "brute", "tree", "dynamic"] {
        let (text, _) =
            run(at, &format!("classify --rules r.flows --trace t.trace --engine {engine} --explain 0"), 0);
        assert!(text.contains("rule 1, priority 9") && text.contains("rule 0, priority 7"), "{text}");
        let (json, _) = run(
            at,
            &format!("classify --rules r.flows --trace t.trace --engine {engine} --explain 0 --json"),
            0,
        );
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((json["rule"].as_u64(), json["next_rule"].as_u64()), (Some(1), Some(0)));
        let fields = json["depends_on"].as_array().unwrap();
        assert!(fields.iter().any(|f| f["field"] == "dl_type"), "{engine}: {json}");
    }
    let (_, err) = run(at, "classify --rules r.flows --trace t.trace --explain 7", 2);
    assert!(err.contains("packet 7 does not exist"), "{err}");
}

#[test]
fn memory_limit_of_an_access_list_is_enforced() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    run(at, "generate rules --profile fw --count 500 --output r.rules", 0);
    fs::write(at.join("t.trace"), "1 2 3 4 6\n").unwrap();
    let (_, err) = run(
        at,
        "classify --rules r.rules --trace t.trace --engine tree --memory-max 10000 --output o.csv",
        2,
    );
    assert!(err.contains("raise the memory limit"), "{err}");
}

#[test]
fn the_selftest_finds_no_difference() {
    let folder = tempdir().unwrap();
    let (json, _) = run(folder.path(), "selftest --seconds 0 --size 40 --json", 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(
        json["parts"].as_array().unwrap().iter().all(|part| part["compared"].as_u64() > Some(100)),
        "{json}"
    );
    let (text, _) = run(folder.path(), "selftest --seconds 0 --seed 9 --size 40 --part acl", 0);
    assert!(text.contains("answers compared"), "{text}");
}

#[cfg(not(feature = "query"))]
#[test]
fn builds_without_the_sql_engine_say_so() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("fw.flows"), "tcp,actions=drop\n").unwrap();
    run(folder.path(), "generate pcap --rules fw.flows --count 5 --output t.pcap", 0);
    let (_, err) = run(folder.path(), "classify --rules fw.flows --trace t.pcap --output v.parquet", 3);
    assert!(err.contains("build it with `--features query`"), "{err}");
    assert!(!folder.path().join("v.parquet").exists());
    let (_, err) = run(folder.path(), "query --format csv SELECT 1", 3);
    assert!(err.contains("built without the SQL engine"), "{err}");
}

/// Creates a directory with `fw.flows` and a capture `t.pcap` of 100 packets for it.
fn rules_and_capture() -> tempfile::TempDir {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("fw.flows"), "tcp,actions=drop\nudp,actions=output:1\n").unwrap();
    run(folder.path(), "generate pcap --rules fw.flows --count 100 --output t.pcap", 0);
    folder
}

#[test]
fn inputs_are_not_overwritten() {
    let folder = rules_and_capture();
    let at = folder.path();
    let before = fs::read(at.join("t.pcap")).unwrap();
    fs::hard_link(at.join("t.pcap"), at.join("other.pcap")).unwrap();
    for output in ["--output t.pcap", "--output ./other.pcap", "--hits t.pcap"] {
        let (_, err) = run(at, &format!("classify --rules fw.flows --trace t.pcap {output}"), 2);
        assert!(err.contains("is an input of this command"), "{err}");
    }
    run(at, "classify --rules fw.flows --trace t.pcap --hits fw.flows", 2);
    for ports in [["pcap:t.pcap", "pcap-out:other.pcap"], ["null", "pcap:t.pcap,out=./t.pcap"]] {
        let port =
            |(number, open): (usize, &&str)| format!("[[port]]\nnumber = {number}\nopen = \"{open}\"\n");
        let config: String = ports.iter().enumerate().map(|(i, open)| port((i + 1, open))).collect();
        fs::write(at.join("s.toml"), config + "[[table]]\nnumber = 0\nrules = [\"actions=drop\"]\n").unwrap();
        for verb in ["check", "run"] {
            let (_, err) = run(at, &format!("switch {verb} s.toml"), 2);
            assert!(err.contains("is read by a port, and would be lost"), "{err}");
        }
    }
    assert_eq!(fs::read(at.join("t.pcap")).unwrap(), before);
    let (_, err) = run(at, "classify --rules fw.flows --trace t.pcap --output v.csv.gz", 2);
    assert!(err.contains("output is not compressed") && !at.join("v.csv.gz").exists(), "{err}");
    run(at, "generate pcap --rules fw.flows --count 100 --output t.pcap.gz", 2);
}

#[test]
fn a_dash_is_standard_input_and_output() {
    let folder = rules_and_capture();
    let at = folder.path();
    let (wanted, _) = run(at, "classify --rules fw.flows --trace t.pcap", 0);
    let mut piped = crate::support::flowlane();
    let piped = piped.current_dir(at).args("classify --rules fw.flows --trace - --output -".split(' '));
    let found = piped.write_stdin(fs::read(at.join("t.pcap")).unwrap()).output().unwrap();
    assert_eq!(String::from_utf8(found.stdout).unwrap(), wanted);
    assert!(!at.join("-").exists());
    let (_, err) = run(at, "classify --rules fw.flows --trace t.pcap --threads 100000", 2);
    assert!(err.contains("expected 1 to 1024 threads"), "{err}");
    run(at, "classify --rules fw.flows --trace t.pcap --memory-max 1GiB --output /dev/null", 0);
}

#[test]
fn the_latest_of_equal_flows_decides_as_in_a_switch() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("r.flows"), "priority=5,udp,actions=drop\npriority=5,udp,actions=output:2 # instead\n")
        .unwrap();
    run(at, "generate pcap --rules r.flows --count 1 --output t.pcap", 0);
    for engine in ["linear", "tuple", "acl"] {
        let (out, _) = run(at, &format!("classify --rules r.flows --trace t.pcap --engine {engine}"), 0);
        assert_eq!(out.lines().nth(1), Some("0,0,5,output:2"), "{engine}");
    }
    let (out, _) = run(at, "rules show r.flows --list", 0);
    assert!(out.contains("output:2") && !out.contains("drop"), "{out}");
}

#[test]
fn a_dump_of_open_vswitch_is_read_and_its_named_ports_are_numbered() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let dump = "NXST_FLOW reply (xid=0x4):\n cookie=0x0, duration=8.5s, table=0, n_packets=3, n_bytes=180, idle_timeout=60, \
                send_flow_rem reset_counts priority=5,tcp,in_port=\"eth0\" actions=output:br-1\n";
    fs::write(at.join("dump"), dump).unwrap();
    let (out, err) = run(at, "rules show dump --list", 0);
    assert!(out.contains("priority=5,tcp,in_port=65279 actions=output:65278"), "{out}");
    assert!(err.contains("\"eth0\" is 65279, \"br-1\" is 65278"), "{err}");
    let (_, err) = run(at, "rules show --rules-format flows dump", 0);
    assert!(err.contains("numbers here"), "{err}");
    // A name has one number in all files of a command.
    let other = dump.replace("eth0", "br-2").replace("output:br-1", "output:br-1,output:eth0");
    fs::write(at.join("other"), other).unwrap();
    fs::write(at.join("t.trace"), "167772161\t167772162\t1\t1\t6\t0\t0\n").unwrap();
    let (_, err) = run(at, "classify --rules dump --also other --trace t.trace --json", 0);
    assert!(err.contains("\"br-2\" is 65277, \"br-1\" is 65278, \"eth0\" is 65279"), "{err}");
    let many: String = (0..0xff00).map(|n| format!("n_packets=0 actions=output:p{n}\n")).collect();
    fs::write(at.join("many"), many).unwrap();
    let (_, err) = run(at, "rules show many", 2);
    assert!(err.contains("`p65279`: the rules name more than 65279 ports"), "{err}");
    // Names that nothing numbers.
    fs::write(at.join("named"), "in_port=eth0 actions=drop\n").unwrap();
    let (_, err) = run(at, "rules show named", 2);
    assert!(err.contains("`ovs-ofctl --no-names dump-flows` prints numbers"), "{err}");
}

#[test]
fn rules_that_become_too_many_flows_are_refused() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let rule = "ip,word43=0x0/0x101,tp_src=1-65534,tp_dst=1-65534 actions=drop";
    fs::write(at.join("r.flows"), format!("udp actions=drop\n{rule}\n")).unwrap();
    let (_, err) = run(at, "rules convert r.flows --to flows", 2);
    assert!(err.contains("the rule at position 1") && err.contains("more than 10000000 flows"), "{err}");
}

#[test]
fn errors_are_marked_where_the_mistake_is() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("r.flows"), "\u{feff}tcp\r\n priority=1 actions=drop\n").unwrap();
    let (_, err) = run(at, "rules show r.flows", 2);
    assert!(err.contains("r.flows:1:4") && !err.contains("\n2 |"), "{err}");
    fs::write(at.join("s.toml"), "[[port]]\nnumber = 1\nopen = \"eth1\"\n[[table]]\nnumber = 0\n").unwrap();
    let (_, err) = run(at, "rules show s.toml", 2);
    assert!(
        err.matches("without `actions=`").count() <= 2 && err.contains("looks like the configuration"),
        "{err}"
    );
    let (_, err) = run(at, "switch check s.toml", 2);
    assert!(err.contains("s.toml:3") && err.contains("did you mean `afpacket:eth1`"), "{err}");
    fs::write(at.join("latin1.toml"), b"# \xe9\n").unwrap();
    let (_, err) = run(at, "switch check latin1.toml", 2);
    assert!(err.contains("latin1.toml") && err.contains("0xe9 at line 1, column 3 is not UTF-8"), "{err}");
    fs::write(at.join("w.flows"), b"\xff\xfet\0c\0p\0").unwrap();
    let (_, err) = run(at, "rules show w.flows", 2);
    assert!(err.contains("is text in UTF-16") && err.contains("iconv"), "{err}");
}

#[test]
fn converted_rules_have_no_ranges() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("r.rules"), "@192.0.2.0/24\t0.0.0.0/0\t0 : 65535\t100 : 200\t0x00/0x00\n").unwrap();
    run(at, "rules convert r.rules --to flows --output out.flows", 0);
    let text = fs::read_to_string(at.join("out.flows")).unwrap();
    assert!(text.lines().count() > 3 && !text.contains("-200") && !text.contains("ip,"), "{text}");
    run(at, "generate pcap --rules r.rules --count 300 --miss 0.3 --output t.pcap", 0);
    let verdicts = |rules: &str| {
        let (out, _) = run(at, &format!("classify --rules {rules} --trace t.pcap"), 0);
        out.lines().skip(1).map(|line| line.split(',').nth(1) == Some("")).collect::<Vec<_>>()
    };
    assert_eq!(verdicts("r.rules"), verdicts("out.flows"));
}
