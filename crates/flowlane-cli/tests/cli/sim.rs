//! `flowlane sim` on the command line, with small runs.

use std::fs;
use std::path::Path;
use std::process::Command;

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
fn statistics_over_time_are_lines_and_charts() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let config = SMALL.replace("[run]", "[run]\ninterval_cycles = 5000");
    fs::write(at.join("sim.toml"), config).unwrap();
    run(at, "sim run sim.toml --series series.csv --report run.html", 0);
    let series = fs::read_to_string(at.join("series.csv")).unwrap();
    let lookups = |approach: &str| -> f64 {
        let of = format!(",{approach},");
        let lines = series.lines().filter(|line| line.contains(&of) && line.contains(",core,0,lookups,"));
        lines.map(|line| line.rsplit(',').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    assert_eq!([lookups("software"), lookups("halo-blocking")], [250.0; 2]);
    for line in [",2.380,accelerator,15,busy,of the time,", ",2.380,memory bus,3,busy,of the time,0."] {
        assert!(series.contains(line), "{line}");
    }
    let page = fs::read_to_string(at.join("run.html")).unwrap();
    for part in ["<svg", "accelerator, busy, most", "slice, port busy, mean", "instructions", "entries = 256"]
    {
        assert!(page.contains(part), "{part}");
    }
    fs::write(at.join("sim.toml"), SMALL).unwrap();
    let (_, error) = run(at, "sim run sim.toml --series series.csv", 2);
    assert!(error.contains("run.interval_cycles"), "{error}");
}

#[test]
fn seeds_give_means_with_confidence_intervals() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let config = SMALL.replace("[run]", "[run]\nseeds = 5\nseed = 7");
    fs::write(at.join("sim.toml"), &config).unwrap();
    let (json, _) = run(at, "sim run sim.toml --json --csv runs.csv", 0);
    let done: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(done[0]["results"].as_array().unwrap().len(), 20);
    let cycles: Vec<f64> =
        (0..5).map(|n| done[0]["results"][4 * n]["cycles_per_lookup"].as_f64().unwrap()).collect();
    let mean = cycles.iter().sum::<f64>() / 5.0;
    let variance = cycles.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 4.0;
    let estimate = &done[0]["estimates"][0]["values"][0];
    assert_eq!(estimate[0], "cycles");
    assert!((estimate[1]["mean"].as_f64().unwrap() - mean).abs() < 1e-9);
    let half = 2.776 * (variance / 5.0).sqrt();
    assert!(half > 0.0 && (estimate[1]["half_width_95"].as_f64().unwrap() - half).abs() < 1e-9, "{estimate}");
    let csv = fs::read_to_string(at.join("runs.csv")).unwrap();
    assert!(csv.contains(&format!(",software,{mean:.4},{half:.4},")), "{csv}");
    let (text, _) = run(at, "sim run sim.toml --threads 1", 0);
    assert!(text.contains(&format!("{mean:.1} ±{half:.1}")), "{text}");
    // A single run with the last seed has its values.
    fs::write(at.join("sim.toml"), SMALL.replace("[run]", "[run]\nseed = 11")).unwrap();
    let last: Value = serde_json::from_str(&run(at, "sim run sim.toml --json", 0).0).unwrap();
    assert_eq!(last[0]["results"][0]["cycles_per_lookup"], done[0]["results"][16]["cycles_per_lookup"]);
}

#[test]
fn misses_are_a_trace_for_ramulator() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let small = SMALL.replace("entries = 256", "entries = 4096\nwarm = false");
    fs::write(at.join("sim.toml"), &small).unwrap();
    let (_, error) = run(at, "sim run sim.toml --misses out.trace", 2);
    assert!(error.contains("run.approaches"), "{error}");
    let one = small.replace("\"halo-blocking\", \"halo-non-blocking\", \"tcam\"", "");
    fs::write(at.join("sim.toml"), format!("{one}[machine.llc]\nslice_kib = 1\nways = 4\n")).unwrap();
    let (json, _) = run(at, "sim run sim.toml --json --misses out.trace", 0);
    let done: Value = serde_json::from_str(&json).unwrap();
    let counters = &done[0]["results"][0]["counters"];
    let trace = fs::read_to_string(at.join("out.trace")).unwrap();
    let (reads, writes): (Vec<&str>, Vec<&str>) = trace.lines().partition(|line| line.starts_with("LD 0x"));
    let count = |name: &str| counters[name].as_u64().unwrap();
    assert_eq!(reads.len() as u64, count("llc_misses") - count("miss_joins"));
    assert!(reads.len() > 100 && writes.iter().all(|line| line.starts_with("ST 0x")), "{writes:?}");
    for line in trace.lines() {
        let address = u64::from_str_radix(&line[5..], 16).unwrap();
        assert_eq!(address % 64, 0, "{line}");
    }
    // The simulator reads its own trace back.
    let (json, _) = run(at, "sim replay out.trace --json", 0);
    let replayed: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(replayed[0]["trace"], "out.trace");
    let instructions = replayed[0]["stats"]["instructions"].as_u64().unwrap();
    let lines = trace.lines().count() as u64;
    assert!((lines * 3 / 4..=lines).contains(&instructions), "{instructions} of {lines}");
    fs::write(at.join("out.trace"), "LD 0x40\nLD 40\n").unwrap();
    let (_, error) = run(at, "sim replay out.trace", 2);
    assert!(
        error.contains("out.trace: line 2, column 4: `40`") && error.contains("write `LD 0x7f00`"),
        "{error}"
    );
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
    // Methods of tables in four sizes and on small pages; where the system lets instructions be recorded, those of rules, too.
    let recorded = lookups.iter().any(|lookup| lookup["by"] == "instructions");
    assert!(lookups.len() >= if recorded { 31 } else { 16 }, "{}", lookups.len());
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
fn recorded_lookups_are_replayed_as_they_were_simulated() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let Some(_) = record(at, "sim record bulk --level l1 --quick --lookups 64 --output bulk.trace") else {
        return;
    };
    let (table, _) = run(at, "sim replay bulk.trace --preset zen3", 0);
    assert!(table.contains("bulk.trace") && table.contains("zen3"), "{table}");
    let (json, _) = run(at, "sim replay bulk.trace --preset zen3 --json", 0);
    let replayed: Value = serde_json::from_str(&json).unwrap();
    let stats = &replayed[0]["stats"];
    let each = stats["instructions"].as_f64().unwrap() / stats["lookups"].as_f64().unwrap();
    assert!((50.0..5000.0).contains(&each), "{each} instructions a lookup");
    assert_eq!(run(at, "sim replay bulk.trace --preset zen3 --json", 0).0, json, "the same bytes twice");
    fs::create_dir(at.join("corpus")).unwrap();
    fs::copy(at.join("bulk.trace"), at.join("corpus/bulk.trace")).unwrap();
    fs::write(at.join("corpus/measured.csv"), "trace,measured_cycles\nbulk.trace,60\n").unwrap();
    fs::write(at.join("corpus/machine.toml"), "preset = \"zen3\"\n").unwrap();
    let (table, _) = run(at, "sim replay corpus", 0);
    assert!(table.contains("60.0") && table.contains(" %"), "{table}");
    fs::write(at.join("corpus/measured.csv"), "trace,measured_cycles\nbulk.trace\n").unwrap();
    let (_, error) = run(at, "sim replay corpus", 2);
    assert!(error.contains("measured.csv: line 2") && error.contains("CYCLES"), "{error}");
    fs::write(at.join("short.trace"), &fs::read(at.join("bulk.trace")).unwrap()[..999]).unwrap();
    let (_, error) = run(at, "sim replay short.trace", 2);
    assert!(error.contains("short.trace: not a trace: it ends early"), "{error}");
    let (_, error) = run(at, "sim record bulk --level l9 --output x.trace", 2);
    assert!(error.contains("l9") && error.contains("LLC"), "{error}");
}

/// Records, unless the system refuses.
fn record(at: &Path, command: &str) -> Option<()> {
    let out = Command::new(env!("CARGO_BIN_EXE_flowlane"))
        .args(command.split(' '))
        .current_dir(at)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&out.stderr);
    if out.status.code() == Some(3) {
        println!("skipped: recorded instructions, since {error}");
        return None;
    }
    assert!(out.status.success(), "{error}");
    Some(())
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
