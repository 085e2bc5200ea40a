//! `flowlane bench` on the command line, with small workloads.

use std::fs;

use crate::support::{flowlane, run};
use serde_json::Value;
use tempfile::tempdir;

/// The figure of this name in a report.
#[track_caller]
fn figure<'a>(report: &'a Value, id: &str) -> &'a Value {
    let figures = report["topics"].as_array().unwrap().iter().flat_map(|t| t["figures"].as_array().unwrap());
    let mut names = vec![];
    for figure in figures {
        if figure["id"] == id {
            return figure;
        }
        names.push(figure["id"].as_str().unwrap());
    }
    panic!("no figure {id} among {names:?}");
}

fn series(figure: &Value) -> Vec<&str> {
    figure["series"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap()).collect()
}

#[test]
fn bloom_as_json_has_the_series_of_the_paper_s_figures_and_what_it_states() {
    let folder = tempdir().unwrap();
    let (json, log) = run(folder.path(), "bench bloom --quick --json", 0);
    assert!(log.lines().any(|line| line.contains(": scalar/u1 ") && line.ends_with(" ns")), "{log}");
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["command"], "flowlane bench bloom --quick --json");
    assert_eq!(report["options"]["effort"]["quick"], true);
    assert!(report["machine"]["cores"].as_u64().unwrap() > 0);
    assert!(report["date"].as_str().unwrap().ends_with('Z'));
    let figure_5 = figure(&report, "figure-5");
    assert!(series(figure_5).starts_with(&["scalar"]));
    assert!(series(figure_5).contains(&"chosen by the library"), "{:?}", series(figure_5));
    let point = &figure_5["series"][0]["points"][0];
    assert!(point["millions_per_second"].as_f64().unwrap() > 0.0, "{point}");
    assert!(point["cycles"]["lower_quartile"].as_f64() <= point["cycles"]["median"].as_f64());
    let stated = |id: &str| -> Vec<f64> {
        figure(&report, id)["ratios"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|r| r["stated"].as_f64())
            .collect()
    };
    assert_eq!(stated("figure-5"), [1.94]);
    assert_eq!(stated("figure-7"), [1.65, 1.25]);
    // A CPU without the instructions has only the scalar series.
    if report["machine"]["variants"].as_array().unwrap().contains(&"avx2".into()) {
        assert!(series(figure_5).contains(&"avx2-table"));
        assert_eq!(figure(&report, "figure-7")["series"][0]["points"].as_array().unwrap().len(), 4);
    }
    assert!(series(figure(&report, "bloom-answers")).contains(&"blocked, batch, scalar"));
}

#[test]
fn every_topic_measures_every_place_of_its_series_and_reports_it_on_one_page() {
    let folder = tempdir().unwrap();
    let (json, _) = run(folder.path(), "bench all --quick --rounds 1 --json --report page.html", 0);
    let report: Value = serde_json::from_str(&json).unwrap();
    let topics: Vec<&str> =
        report["topics"].as_array().unwrap().iter().map(|t| t["name"].as_str().unwrap()).collect();
    assert_eq!(
        topics,
        [
            "parse",
            "hash",
            "bloom",
            "cuckoo",
            "cache",
            "megaflow",
            "acl",
            "acl-matrix",
            "fib",
            "tunnel",
            "gpu"
        ]
    );
    let mut figures = 0;
    for figure in report["topics"].as_array().unwrap().iter().flat_map(|t| t["figures"].as_array().unwrap()) {
        figures += 1;
        let places = figure["places"].as_array().unwrap().len();
        assert!(!series(figure).is_empty(), "{}", figure["id"]);
        for series in figure["series"].as_array().unwrap() {
            assert_eq!(series["points"].as_array().unwrap().len(), places, "{}", figure["id"]);
        }
    }
    assert_eq!(figure(&report, "figure-8")["series"][0]["points"][0]["rounds"], 1);
    assert!(series(figure(&report, "figure-9")).contains(&"majority-scalar"));
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert_eq!(page.matches("<svg ").count(), figures);
    assert_eq!(page.matches("</svg>").count(), figures);
    // The page is self-contained.
    assert!(!page.contains("src=") && !page.contains("<link") && !page.contains("@import"));
    for part in
        ["prefers-color-scheme:dark", "paper: up to +94 %", "bench all --quick --rounds 1", "million lookups"]
    {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn variants_and_kernels_are_filtered_by_name() {
    let folder = tempdir().unwrap();
    let (json, _) = run(folder.path(), "bench hash --quick --rounds 1 --variant scalar --json", 0);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(series(figure(&report, "hash-murmur3")), ["one by one", "scalar"]);
    let (json, _) = run(folder.path(), "bench bloom --quick --rounds 1 --kernel scalar/u1 --json", 0);
    let report: Value = serde_json::from_str(&json).unwrap();
    // The baselines of ratios are always present.
    assert!(series(figure(&report, "figure-5")).iter().all(|s| ["scalar", "avx2-table"].contains(s)));
    let (text, _) = run(folder.path(), "bench hash --quick --rounds 1 --variant scalar", 0);
    assert!(text.contains("cycles per key") && text.contains("| one by one"), "{text}");
}

#[test]
fn access_lists_are_measured_with_given_rules() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    run(at, "generate rules --profile fw --count 30 --output edge.rules", 0);
    let acl = "bench acl --quick --rounds 1 --variant scalar";
    let (json, _) = run(at, &format!("{acl} --rules edge.rules --json"), 0);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["options"]["rules"][0], "edge.rules");
    assert_eq!(figure(&report, "acl-traffic-0")["places"][0], "edge.rules");
    fs::write(at.join("mac.flows"), "priority=1,actions=drop\ndl_dst=02:00:00:00:00:01,actions=drop\n")
        .unwrap();
    let (_, error) = run(at, &format!("{acl} --rules mac.flows"), 2);
    assert!(error.contains("rule 2 of mac.flows is no IPv4 5-tuple"), "{error}");
    fs::write(at.join("none.flows"), "# nothing\n").unwrap();
    let (_, error) = run(at, &format!("{acl} --rules none.flows"), 2);
    assert!(error.contains("none.flows"), "{error}");
}

#[test]
fn errors_name_the_correct_value() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let (_, error) = run(at, "bench blom", 2);
    assert!(error.contains("'blom'") && error.contains("'bloom'"), "{error}");
    let (_, error) = run(at, "bench bloom --kernel avx1024", 2);
    assert!(error.contains("avx1024") && error.contains("avx512-staged/u8/prefetch"), "{error}");
    let (_, error) = run(at, "bench hash --seconds -1", 2);
    assert!(error.contains("--seconds"), "{error}");
    let (_, error) = run(at, "bench hash --rounds 0", 2);
    assert!(error.contains("at least 1"), "{error}");
    let (_, error) = run(at, "bench hash --variant avx3", 2);
    assert!(error.contains("avx3") && error.contains("avx2"), "{error}");
    let (_, error) = run(at, "bench hash --quick --report missing/page.html", 2);
    assert!(error.contains("missing/page.html"), "{error}");
    // Forbidden by the width cap: an error of the environment.
    let capped =
        flowlane().args(["--max-simd", "64", "bench", "hash", "--variant", "sse42"]).output().unwrap();
    assert_eq!(capped.status.code(), Some(3));
    let error = String::from_utf8(capped.stderr).unwrap();
    assert!(error.contains("sse42"), "{error}");
}
