//! Compares what the library shows its users with `crates/flowlane/public-api.txt`, so that nothing of it changes unnoticed.
//!
//! ```sh
//! cargo run --manifest-path .ci/public-api/Cargo.toml              # exit code 1 and the lines that differ, where some do
//! cargo run --manifest-path .ci/public-api/Cargo.toml -- --accept  # the list becomes what there is
//! ```
//!
//! The list is made of rustdoc's JSON, which is not stable: the compiler of `rust-toolchain.toml` writes it because of
//! `RUSTC_BOOTSTRAP`, and the version of `public-api` is one that reads it.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

use serde_json::Value;

type Failure = Box<dyn std::error::Error>;

/// Returns whether an item is hidden from the documentation.
fn is_hidden(item: &Value) -> bool {
    let attributes = item["attrs"].as_array().into_iter().flatten();
    attributes.into_iter().any(|attribute| attribute["other"] == "#[doc(hidden)]")
}

/// Returns the file with rustdoc's description of the library.
///
/// Rustdoc leaves out the content of hidden modules, even if another module exports it. So the description has all items, and
/// items that are hidden themselves are taken out here.
fn described(root: &Path) -> Result<PathBuf, Failure> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let target = root.join("target");
    let status = Command::new(cargo)
        .args(["rustdoc", "--quiet", "--package", "flowlane", "--lib", "--target-dir"])
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json", "--document-hidden-items"])
        .env("RUSTC_BOOTSTRAP", "1")
        .current_dir(root)
        .status()?;
    if !status.success() {
        return Err("rustdoc has failed".into());
    }
    let mut all: Value =
        serde_json::from_reader(BufReader::new(File::open(target.join("doc/flowlane.json"))?))?;
    let index = all["index"].as_object_mut().ok_or("rustdoc's file has no index")?;
    index.retain(|_, item| !is_hidden(item));
    let shown = target.join("doc/flowlane-shown.json");
    fs::write(&shown, all.to_string())?;
    Ok(shown)
}

/// Returns whether a line repeats that of its trait.
fn is_said_by_trait(line: &str) -> bool {
    let methods = ["::clone(", "::cmp(", "::default(", "::eq(", "::fmt(", "::hash<", "::partial_cmp("];
    line.starts_with("pub fn") && methods.iter().any(|method| line.contains(method))
        || line.contains("StructuralPartialEq")
}

/// Returns the public items, one a line.
fn found(root: &Path) -> Result<String, Failure> {
    // Which types go to other threads a test says; that and what every type has would be most of the lines.
    let api = public_api::Builder::from_rustdoc_json(described(root)?)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()?;
    let lines = api.items().map(|item| format!("{item}\n"));
    Ok(lines.filter(|line| !is_said_by_trait(line)).collect())
}

fn run() -> Result<bool, Failure> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let list = root.join("crates/flowlane/public-api.txt");
    let found = found(&root)?;
    if env::args().any(|argument| argument == "--accept") {
        fs::write(list, found)?;
        return Ok(true);
    }
    let listed = fs::read_to_string(&list)?;
    let missing = |from: &str, of: &str, sign: char| -> Vec<String> {
        let there: Vec<&str> = of.lines().collect();
        from.lines().filter(|line| !there.contains(line)).map(|line| format!("{sign}{line}")).collect()
    };
    let lines = [missing(&listed, &found, '-'), missing(&found, &listed, '+')].concat();
    if lines.is_empty() && listed == found {
        return Ok(true);
    }
    println!("{}", lines.join("\n"));
    println!(
        "The library's public face is not that of crates/flowlane/public-api.txt. Where it is to change, say so in CHANGELOG.md, and:\n\
         cargo run --manifest-path .ci/public-api/Cargo.toml -- --accept"
    );
    Ok(false)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
