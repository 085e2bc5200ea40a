//! `flowlane sim` on the command line, with small runs.

use std::fs;

use crate::support::run;
use serde_json::Value;
use tempfile::tempdir;

const SMALL: &str = "\
[workload]\nentries = 256\n[run]\nlookups = 200\nwarm_up_lookups = 50\n\
approaches = [\"software\", \"halo-blocking\", \"halo-non-blocking\", \"tcam\"]\n";

#[test]
fn a_sweep_gives_every_run_with_its_effective_configuration() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("sim.toml"), format!("{SMALL}[sweep]\n\"workload.tables\" = [1, 3]\n")).unwrap();
    let (json, _) = run(at, "sim run sim.toml --json --effective all.toml --csv runs.csv", 0);
    let runs: Value = serde_json::from_str(&json).unwrap();
    let runs = runs.as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[1]["values"][0], "workload.tables = 3");
    for run in runs {
        assert_eq!(run["results"].as_array().unwrap().len(), 4);
        assert!(run["results"][1]["cycles_per_lookup"].as_f64().unwrap() > 10.0);
    }
    assert_eq!(fs::read_to_string(at.join("runs.csv")).unwrap().lines().count(), 9);
    // The effective configuration reproduces the result.
    let (again, _) = run(at, "sim run all.toml --json --threads 1", 0);
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again[0]["results"], runs[0]["results"]);
    let (text, _) = run(at, "sim run sim.toml", 0);
    assert!(text.contains("halo-non-blocking") && text.contains("configuration"), "{text}");
}

#[test]
fn presets_print_with_origins_and_read_as_machines() {
    let folder = tempdir().unwrap();
    for preset in ["paper", "skylake-sp"] {
        let (text, _) = run(folder.path(), &format!("sim config {preset}"), 0);
        assert!(text.contains("[accelerator]") && text.contains("# [P]") && text.contains("# [O]"), "{text}");
    }
}

#[test]
fn the_experiment_of_a_figure_gives_its_row() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let (text, _) = run(at, "sim config figure13", 0);
    let one = text.replace("[1332, 13332, 133332]", "[132]").replace("[132, 1332, 13332]", "[132]");
    assert_eq!(one.matches("[132]").count(), 3, "{one}");
    fs::write(at.join("figure13.toml"), one).unwrap();
    let (text, _) = run(at, "sim run figure13.toml", 0);
    assert!(
        ["NAT (", "asset detection (", "packet filter ("].iter().all(|name| text.contains(name)),
        "{text}"
    );
    let (json, _) = run(at, "sim paper --quick --figure 13 --json", 0);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["rows"].as_array().unwrap().len(), 1);
    assert_eq!(report["charts"][0]["places"][0], "NAT 999");
    let (_, error) = run(at, "sim paper --figure 14", 2);
    assert!(error.contains("sensitivity"), "{error}");
}

#[test]
fn a_trace_has_the_steps_of_its_query() {
    let folder = tempdir().unwrap();
    fs::write(folder.path().join("sim.toml"), format!("\u{feff}{SMALL}")).unwrap();
    let (json, _) = run(folder.path(), "sim trace sim.toml --approach halo-blocking --lookup 5", 0);
    let trace: Value = serde_json::from_str(&json).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for step in ["Metadata", "Key", "Hash", "Access(0)", "Compare(0)", "Commit"] {
        assert!(events.iter().any(|e| e["name"] == step), "{step}: {events:?}");
    }
    let (_, error) = run(folder.path(), "sim trace sim.toml --approach halo", 2);
    assert!(error.contains("halo-blocking"), "{error}");
    let (_, error) = run(folder.path(), "sim trace sim.toml --lookup 200", 2);
    assert!(error.contains("run.lookups"), "{error}");
}

#[test]
fn the_evaluation_is_a_table_a_page_and_csv() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let (text, _) = run(at, "sim paper --quick --csv halo.csv --report halo.html", 0);
    for part in [
        "Figure 9",
        "Figure 10",
        "Figure 11",
        "Figure 12a",
        "Figure 13",
        "Table 4",
        "calibrated",
        "predicted",
        "assumption",
        "machines: paper (",
        "skylake-sp (",
        "there is no crossing",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = fs::read_to_string(at.join("halo.html")).unwrap();
    assert!(page.matches("<svg ").count() >= 10 && page.contains("base_cpi_milli"));
    assert!(!page.contains("src=") && !page.contains("<link") && !page.contains("@import"));
    assert!(fs::read_to_string(at.join("halo.csv")).unwrap().contains("figure-11,"));
}

#[test]
fn the_evaluation_accepts_a_machine_from_a_file() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    // One core, a small shared cache, uncalibrated numbers.
    let machine = "preset = \"skylake-sp\"\n[machine.core]\ncores = 1\nbase_cpi_milli = 500\n[machine.llc]\nslice_kib = 44\n\
                   [machine.software]\nlock_instructions = 50\n[machine.accelerator]\nfixed_cycles = 7\nslice_cycles = 9\n";
    fs::write(at.join("here.toml"), machine).unwrap();
    let (json, _) = run(at, "sim paper --quick --preset here.toml --json", 0);
    let report: Value = serde_json::from_str(&json).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["status"] != "calibrated"));
    // One machine for everything.
    assert!(rows.iter().all(|row| row["machine"] == "here.toml" || row["machine"] == ""));
    let figure = |row: &&Value| row["place"] == "Figure 9" && !row["simulated"].is_null();
    assert_eq!(rows.iter().filter(figure).count(), 2);
    let charts = report["charts"].as_array().unwrap();
    assert!(charts.iter().all(|chart| chart["id"] != "sensitivity-lock"));
    let (_, error) = run(at, "sim paper --quick --preset there.toml", 2);
    assert!(error.contains("there.toml") && error.contains("skylake-sp"), "{error}");
}

#[test]
fn a_calibrated_machine_is_written_and_read_back() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let (json, _) = run(at, "sim calibrate --quick --json --output here.toml", 0);
    let report: Value = serde_json::from_str(&json).unwrap();
    let lookups = report["lookups"].as_array().unwrap();
    assert_eq!(lookups.len(), 16);
    for lookup in lookups {
        let cycles = |name: &str| lookup[name].as_f64().unwrap();
        assert!(cycles("measured_cycles") > 1.0 && cycles("simulated_cycles") > 1.0, "{lookup}");
    }
    let written = fs::read_to_string(at.join("here.toml")).unwrap();
    assert!(written.contains("\nclock_mhz = "), "{written}");
    let small = "\n[workload]\nentries = 256\n[run]\nlookups = 200\nwarm_up_lookups = 50\napproaches = [\"scalar\"]\n";
    fs::write(at.join("here.toml"), written + small).unwrap();
    let (json, _) = run(at, "sim run here.toml --json", 0);
    let runs: Value = serde_json::from_str(&json).unwrap();
    assert!(runs[0]["results"][0]["cycles_per_lookup"].as_f64().unwrap() > 1.0);
}

#[test]
fn errors_name_the_correct_value() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("sim.toml"), "[machine.accelerator]\nremot = \"mesh\"\n").unwrap();
    let (_, error) = run(at, "sim run sim.toml", 2);
    assert!(error.contains("sim.toml") && error.contains("`remote`"), "{error}");
    fs::write(at.join("sim.toml"), b"# \xe9\n").unwrap();
    let (_, error) = run(at, "sim run sim.toml", 2);
    assert!(error.contains("byte 0xe9 at line 1, column 3 is not UTF-8"), "{error}");
    let (_, error) = run(at, "sim run missing.toml", 2);
    assert!(error.contains("missing.toml"), "{error}");
}
