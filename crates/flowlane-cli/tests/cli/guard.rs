//! `flowlane bench guard`: a build that is compared with itself, and with programs that are no faster builds of Flowlane.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::tempdir;

use crate::support::run;

const PROGRAM: &str = env!("CARGO_BIN_EXE_flowlane");

/// A program that answers as `flowlane bench NAME --json` does, with these nanoseconds in place of ours.
fn build_that_takes(folder: &Path, times: &str) -> PathBuf {
    let program = folder.join("other");
    let script =
        format!("#!/bin/sh\n{PROGRAM} \"$@\" | sed 's/\"median\": [0-9.e-]*/\"median\": {times}/'\n");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[test]
fn a_slower_build_fails_and_a_faster_one_does_not() {
    let folder = tempdir().unwrap();
    // This build takes longer than a femtosecond, and less than a second.
    let faster = build_that_takes(folder.path(), "0.000001");
    let command = |program: &Path| {
        format!("bench guard --against {} --topic tunnel --quick --pairs 3", program.display())
    };
    let (table, log) = run(folder.path(), &command(&faster), 1);
    assert!(table.contains("Below 0.95") && table.contains("figure-12"), "{table}");
    assert!(log.contains("series are slower than in the other build"), "{log}");
    let slower = build_that_takes(folder.path(), "1e9");
    let (json, _) = run(folder.path(), &format!("{} --json", command(&slower)), 0);
    let all: Vec<Value> = serde_json::from_str(&json).unwrap();
    assert!(!all.is_empty());
    for one in &all {
        assert_eq!(
            (one["fails"].as_bool(), one["pairs"].as_array().unwrap().len()),
            (Some(false), 3),
            "{one}"
        );
        assert!(one["worst"].as_f64() > Some(1.0) && one["ratio"].as_f64() > Some(1.0), "{one}");
    }
}

#[test]
fn what_is_no_build_is_named() {
    let folder = tempdir().unwrap();
    let (_, log) = run(folder.path(), "bench guard --against nothing", 2);
    assert!(log.contains("--against nothing: neither a program nor a commit"), "{log}");
    let other = folder.path().join("other");
    fs::write(&other, "#!/bin/sh\necho no\n").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755)).unwrap();
    let (_, log) = run(folder.path(), "bench guard --against other --topic tunnel --quick", 2);
    assert!(log.contains("bench tunnel: no report"), "{log}");
    let (_, log) = run(folder.path(), "bench guard --against other --least 0", 2);
    assert!(log.contains("--least 0: no build is slower"), "{log}");
    let (_, log) = run(folder.path(), "bench", 2);
    assert!(log.contains("<NAME>"), "{log}");
}
