//! `flowlane sim what-if` on the command line, with small runs.

use std::fs;
use std::path::Path;

use crate::support::{flowlane, run};
use serde_json::Value;
use tempfile::tempdir;

/// Writes rules and a trace for them.
fn generate(at: &Path, rules: usize, packets: usize) {
    run(at, &format!("generate rules --profile acl --count {rules} --seed 5 --output r.rules"), 0);
    let trace = format!(
        "generate trace --rules r.rules --count {packets} --locality zipf:1.1 --miss 0.1 --seed 5 --output t.trace"
    );
    run(at, &trace, 0);
}

const QUICK: &str = "sim what-if --rules r.rules --trace t.trace --quick --host zen3";

#[test]
fn rules_and_a_trace_give_tables_a_page_and_csv() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    generate(at, 80, 400);
    run(
        at,
        "generate pcap --rules r.rules --count 400 --locality zipf:1.1 --miss 0.1 --seed 5 --output t.pcap",
        0,
    );
    let mut pcap = fs::read(at.join("t.pcap")).unwrap();
    // The first frame, behind two headers of 24 and 16 bytes: IPv4 of no version.
    pcap[24 + 16 + 14] = 0x05;
    fs::write(at.join("t.pcap"), pcap).unwrap();
    let what_if = "sim what-if --rules r.rules --trace t.pcap --quick --rate 0.5 --csv w.csv --report w.html";
    let (text, stderr) = run(at, what_if, 0);
    assert!(stderr.contains("t.pcap: 1 of 400 packets are malformed"), "{stderr}");
    for part in [
        "80 under",
        "tuple search",
        "measured",
        "simulated",
        "HALO, non-blocking",
        "an engine beside L2",
        "a TCAM",
        "ratio",
        "Were that ideal",
        "as it is",
        "changes a second",
        "this machine",
        "Latency under load",
        "0.500",
        "core nJ",
        "an assumption, not a model",
        "a GPU",
        "the numbers say little",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // If simulated and measured software differ too much, the report says so first and gives no speedups.
    let csv = fs::read_to_string(at.join("w.csv")).unwrap();
    let doubted = text.starts_with("No speedups over software are given");
    assert_eq!((text.contains("no ratio, for"), csv.contains("\nno ratio,")), (doubted, doubted), "{text}");
    let page = fs::read_to_string(at.join("w.html")).unwrap();
    assert_eq!(page.contains("No speedups over software are given"), doubted);
    assert!(
        page.matches("<svg ").count() >= 8
            && page.contains("id=\"tornado\"")
            && page.contains("base_cpi_milli")
    );
    assert!(!page.contains("src=") && !page.contains("<link") && !page.contains("@import"));
    assert!(
        csv.contains("\napproach,kind,cycles") && csv.contains("\nby-rules,") && csv.contains(",measured,")
    );
}

#[test]
fn software_is_measured_and_simulated_at_every_scale() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    generate(at, 50, 200);
    let (one, _) = run(at, &format!("{QUICK} --json --threads 1"), 0);
    // The recordings are kept, where the system allows them.
    let kept = format!("{QUICK} --corpus kept --csv w.csv");
    let kept = flowlane().current_dir(at).args(kept.split_whitespace()).output().unwrap();
    if kept.status.success() {
        let (table, _) = run(at, "sim replay kept", 0);
        assert!(table.contains("tree-batches.trace") && table.contains("kept/machine.toml"), "{table}");
    } else {
        let error = String::from_utf8_lossy(&kept.stderr);
        assert!(error.contains("refuses to trace"), "{error}");
    }
    let report: Value = serde_json::from_str(&one).unwrap();
    for m in report["measured"]["base"].as_array().unwrap() {
        assert!(m["ns"][1].as_f64().unwrap() > 0.0, "{m}");
    }
    // Software is reported in cycles of the core, not in ticks.
    let cycle_ns = report["measured"]["cycle_ns"].as_f64().unwrap();
    let base = report["measured"]["base"].as_array().unwrap();
    for trust in report["trust"].as_array().unwrap() {
        let of = |m: &&Value| m["name"] == trust["method"];
        let ns = base.iter().find(of).unwrap()["ns"][1].as_f64().unwrap();
        let reported = trust["measured_cycles"].as_f64().unwrap();
        assert!(
            (reported * cycle_ns / ns - 1.0).abs() < 1e-9 && (0.1..2.0).contains(&cycle_ns),
            "{reported} {ns} {cycle_ns}"
        );
    }
    // Every method is measured at every scale, and recorded where the system allows it.
    assert!(base.len() >= 7 && report["measured"]["sizes"].as_array().unwrap().len() >= 3);
    let recorded = report["trust"].as_array().unwrap().len();
    let refused = report["measured"]["not_recorded"].is_string();
    // Devices execute no instructions of this CPU.
    let software = base.iter().filter(|m| !m["name"].as_str().unwrap().starts_with("GPU")).count();
    assert!(refused && recorded == 0 || recorded == software, "{recorded} of {software}");
    let calls: Vec<u64> =
        base[0]["calls"].as_array().unwrap().iter().map(|c| c["packets"].as_u64().unwrap()).collect();
    assert_eq!(calls, [1, 4, 16, 32]);
}

#[test]
fn user_flows_captures_and_machines_are_read() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let flows = "udp,tp_dst=53,nw_dst=10.0.0.0/8 actions=output:1\nudp6,tp_src=1000-2000 actions=output:2\n\
                 table=1,ip actions=drop\narp actions=flood\n";
    fs::write(at.join("r.flows"), flows).unwrap();
    run(at, "generate pcap --rules r.flows --count 100 --output t.pcap", 0);
    fs::write(at.join("m.toml"), "preset = \"paper\"\n[machine.accelerator]\nin_flight_queries = 10\n")
        .unwrap();
    let command = "sim what-if --rules r.flows --trace t.pcap --quick --preset m.toml --host m.toml --cache 64 --extrapolate --json";
    let report: Value = serde_json::from_str(&run(at, command, 0).0).unwrap();
    assert_eq!(report["facts"]["rules"], 3);
    assert_eq!(report["machine"]["accelerator"]["in_flight_queries"], 10);
    let lines = report["lines"].as_array().unwrap();
    let tcam = lines.iter().find(|line| line["outcome"]["approach"] == "tcam").unwrap();
    assert!(tcam["energy"]["query_nj"].as_f64().unwrap() > 0.0);
    // Without extrapolation, the reason is given.
    let (text, _) = run(at, &command.replace("--extrapolate --json", "--arrival nic"), 0);
    assert!(text.contains("outside of Table 4"), "{text}");
    // The machine of the paper has no DDIO.
    assert!(text.contains("as the network interface has written them, 0 % of them"), "{text}");
    // Simulated approaches have the cache, and measured software is not compared with them.
    for part in ["64 flows", "packets that it knows", "simulated, flow cache", "not compared"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn unwritable_outputs_are_reported() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    generate(at, 10, 20);
    for option in ["--csv", "--report"] {
        let (out, error) = run(at, &format!("{QUICK} {option} none/o"), 2);
        assert!(out.is_empty() && error.contains("none/o cannot be written"), "{error}");
    }
    let (_, error) = run(at, "sim calibrate --quick --output none/o.toml", 2);
    assert!(error.contains("none/o.toml cannot be written"), "{error}");
}

#[test]
fn bad_input_says_what_where_and_how_and_writes_nothing() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    generate(at, 10, 20);
    fs::write(at.join("bad.flows"), "ip actions=drop\nudp,tp_dst=443-80 actions=drop\n").unwrap();
    fs::write(at.join("empty.trace"), "").unwrap();
    fs::write(at.join("bad.toml"), "[machine.core]\nwidht = 4\n").unwrap();
    for (arguments, part) in [
        ("sim what-if --rules none.rules --trace t.trace", "none.rules cannot be read"),
        ("sim what-if --rules bad.flows --trace t.trace", "bad.flows:2:12"),
        ("sim what-if --rules r.rules --trace empty.trace", "there are no packets"),
        ("sim what-if --rules r.rules --trace t.trace --table 9", "no rules for table 9"),
        (
            "sim what-if --rules r.rules --trace t.trace --preset zen",
            "paper, skylake-sp, zen3, zen4 and sapphire-rapids",
        ),
        ("sim what-if --rules r.rules --trace t.trace --preset bad.toml", "did you mean `width`?"),
        ("sim what-if --rules r.rules --trace t.trace --host none.toml", "--host none.toml: no such file"),
        ("sim what-if --rules r.rules --trace t.trace --arrival wire", "wire"),
        ("sim what-if --rules r.rules --trace t.trace --rate 0", "from 0.000001 to 1000000"),
        ("sim what-if --rules r.rules --trace t.trace --cache many", "many"),
        ("sim what-if --rules r.rules", "--trace"),
    ] {
        let (out, err) = run(at, &format!("{arguments} --quick --csv o.csv --report o.html"), 2);
        assert!(out.is_empty() && err.contains(part), "{arguments}: {err}");
    }
    assert!(!at.join("o.csv").exists() && !at.join("o.html").exists());
}
