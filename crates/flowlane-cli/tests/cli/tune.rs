//! Tests of `flowlane tune`, and of other commands that read its file.

use std::fs;
use std::path::Path;

use crate::support::{flowlane, run};
use tempfile::tempdir;

/// Measures quickly into `x.toml`, and returns its contents.
fn tuned(at: &Path) -> String {
    let (table, note) = run(at, "tune --quick --table-max 1M --output x.toml", 0);
    assert!(table.contains("bloom-memory") && table.contains("Threshold of megaflow"), "{table}");
    assert!(
        table.contains("Built-in defaults reach at least ") && table.contains("% of the best kernel's rate"),
        "{table}"
    );
    assert!(note.contains("stored in x.toml"), "{note}");
    fs::read_to_string(at.join("x.toml")).unwrap()
}

#[test]
fn the_measured_selection_is_stored_shown_and_used() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let stored = tuned(at);
    let (shown, _) = run(at, "tune --show --tune x.toml", 0);
    assert!(shown.contains("Kernel selection: x.toml, measured 2"), "{shown}");
    for line in stored.split_once("[choices]").unwrap().1.lines().filter(|l| !l.is_empty()) {
        let (slot, choice) = line.split_once(" = ").unwrap();
        let row = shown.lines().find(|l| l.starts_with(&format!("| {slot} "))).unwrap();
        assert!(row.contains(choice.trim_matches('"')) && row.contains("stored"), "{row}");
    }
    let (cpu, _) = run(at, "cpu --tune x.toml --json", 0);
    let cpu: serde_json::Value = serde_json::from_str(&cpu).unwrap();
    assert_eq!(cpu["choices"][0]["source"], "stored");
    // A stored selection has no candidates.
    assert!(
        cpu["choices"].as_array().unwrap().iter().all(|c| c["candidates"].as_array().unwrap().is_empty())
    );
    assert!(cpu["choices_from"].as_str().unwrap().starts_with("x.toml"));

    // A selection that the machine cannot run is replaced by the built-in default.
    let wide = stored.lines().map(|l| if l.starts_with("murmur3") { "murmur3 = \"avx512\"" } else { l });
    fs::write(at.join("wide.toml"), wide.collect::<Vec<_>>().join("\n")).unwrap();
    let (shown, _) = run(at, "tune --show --tune wide.toml --max-simd 64", 0);
    let row = shown.lines().find(|l| l.starts_with("| murmur3 ")).unwrap();
    assert!(row.contains("| scalar ") && row.contains("stored avx512 cannot be used here"), "{row}");

    check_that_a_foreign_file_is_ignored(at, &stored);
    check_that_a_damaged_file_is_rejected(at, &stored);
}

fn check_that_a_foreign_file_is_ignored(at: &Path, stored: &str) {
    let foreign = stored.replace("[machine]\ncpu = \"", "[machine]\ncpu = \"Other ");
    assert_ne!(foreign, stored);
    fs::write(at.join("foreign.toml"), foreign).unwrap();
    run(at, "generate rules --count 20 --output r.rules", 0);
    run(at, "generate trace --rules r.rules --count 20 --output t.trace", 0);
    let (_, note) = run(at, "classify --tune foreign.toml --rules r.rules --trace t.trace", 0);
    assert!(note.contains("foreign.toml is not used: it was measured on Other "), "{note}");
    assert!(note.contains("run `flowlane tune`"), "{note}");
    let (shown, _) = run(at, "tune --show --tune foreign.toml", 0);
    assert!(shown.contains("built in; foreign.toml is not used") && !shown.contains("| stored"), "{shown}");
    let (_, note) = run(at, "classify --tune x.toml --rules r.rules --trace t.trace", 0);
    assert!(!note.contains("is not used"), "{note}");
    // Model, microcode and caches identify a machine.
    for (key, other) in [("model", "999"), ("microcode", "\"0x0\""), ("cache_bytes", "[1, 2, 3]")] {
        let (whole, rest) = stored.split_once("[machine]").unwrap();
        let line = |line: &str| match line.split_once(" = ") {
            Some((name, _)) if name == key => format!("{key} = {other}"),
            _ => line.to_owned(),
        };
        let rest: Vec<String> = rest.lines().map(line).collect();
        fs::write(at.join("foreign.toml"), format!("{whole}[machine]{}", rest.join("\n"))).unwrap();
        let (_, note) = run(at, "classify --tune foreign.toml --rules r.rules --trace t.trace", 0);
        assert!(note.contains("is not used") && note.contains(other.trim_matches('"')), "{key}: {note}");
    }
}

fn check_that_a_damaged_file_is_rejected(at: &Path, stored: &str) {
    fs::write(at.join("damaged.toml"), stored.replace("murmur3 = \"", "murmur3 = \"x")).unwrap();
    let (_, error) = run(at, "classify --tune damaged.toml --rules r.rules --trace t.trace", 2);
    let line = stored.lines().position(|l| l.starts_with("murmur3")).unwrap() + 1;
    assert!(error.contains(&format!("line {line}: murmur3: there is no variant `x")), "{error}");
    assert!(error.contains("run `flowlane tune`"), "{error}");
    for (good, bad, message) in [
        ("version = 1", "version = ", "line 2"),
        ("version = 1", "version = 9", "line 2: version 9 is not supported"),
        ("\nbloom-l1", "\nblom-l1", "no slot `blom-l1`"),
    ] {
        fs::write(at.join("damaged.toml"), stored.replacen(good, bad, 1)).unwrap();
        let (_, error) = run(at, "tune --show --tune damaged.toml", 2);
        assert!(error.contains(message), "{bad}: {error}");
    }
    // Truncated within a string: at half its length the file may end with a complete line, and be valid.
    let cut = stored.rfind(" = \"").unwrap() + 4;
    fs::write(at.join("damaged.toml"), &stored[..cut]).unwrap();
    assert!(run(at, "tune --show --tune damaged.toml", 2).1.contains("line "));
    let (_, error) = run(at, "tune --dry-run --table-max 513M", 2);
    assert!(error.contains("--table-max") && error.contains("1M to 512M"), "{error}");
    // Commands that build no tables do not read the file; nor does `tune` itself.
    run(at, "rules show r.rules --tune damaged.toml", 0);
    let (_, error) = run(at, "tune --show --tune none.toml", 2);
    assert!(error.contains("none.toml cannot be read"), "{error}");
    run(at, "classify --tune /dev/null --rules r.rules --trace t.trace", 0);
}

#[test]
fn the_default_file_is_in_the_users_configuration_directory() {
    let folder = tempdir().unwrap();
    let at = folder.path();
    let run = |variable: &str, arguments: &[&str]| {
        let mut command = flowlane();
        command.env_remove("XDG_CONFIG_HOME").env_remove("HOME").env_remove("FLOWLANE_TUNE");
        command.env(variable, at).args(arguments).assert().success().get_output().clone()
    };
    run("XDG_CONFIG_HOME", &["tune", "--quick", "--table-max", "1M"]);
    assert!(at.join("flowlane/tune.toml").exists());
    assert_eq!(fs::read_dir(at.join("flowlane")).unwrap().count(), 1, "nothing else is left behind");
    let shown = run("XDG_CONFIG_HOME", &["tune", "--show"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("flowlane/tune.toml, measured"));
    let shown = run("HOME", &["tune", "--show"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("Kernel selection: built in"));
    let file = at.join("flowlane/tune.toml");
    let mut command = flowlane();
    let shown = command.env("FLOWLANE_TUNE", &file).args(["tune", "--show"]).assert().success();
    assert!(String::from_utf8_lossy(&shown.get_output().stdout).contains("measured"));
    let before = fs::read(&file).unwrap();
    let measured = run("XDG_CONFIG_HOME", &["tune", "--quick", "--table-max", "1M", "--dry-run", "--json"]);
    let measured: serde_json::Value = serde_json::from_slice(&measured.stdout).unwrap();
    let slots = measured["slots"].as_array().unwrap();
    assert!(measured["stored"].is_null() && slots.len() > 10);
    let shares: Vec<f64> = slots.iter().map(|slot| slot["built_in_share"].as_f64().unwrap()).collect();
    assert!(shares.iter().all(|share| *share > 0.0 && *share <= 1.0), "{shares:?}");
    let worst = measured["worst_built_in_share"].as_f64().unwrap();
    assert!(shares.contains(&worst) && shares.iter().all(|share| *share >= worst), "{worst}: {shares:?}");
    // No filter exceeds the limit; larger size classes use filters of that size.
    let filter = |slot: &&serde_json::Value| slot["slot"].as_str().unwrap().contains("bloom");
    let sizes: Vec<u64> = slots.iter().filter(filter).map(|s| s["table_bytes"].as_u64().unwrap()).collect();
    assert!(sizes.len() == 8 && sizes.iter().max() == Some(&(1 << 20)), "{sizes:?}");
    assert_eq!(fs::read(&file).unwrap(), before);
}
