//! Published rule sets, where the environment says where they are.

use std::io::Read;
use std::path::Path;

use flowlane::rule::{Format, ReadOptions, Rule, read};

/// The variable: a folder with a folder `classbench` in it.
const VARIABLE: &str = "FLOWLANE_TEST_DATA";

/// The rule sets, by name; what cannot be read is left out.
pub(crate) fn rule_sets() -> Vec<(String, Vec<Rule>)> {
    let Some(folder) = std::env::var_os(VARIABLE) else { return Vec::new() };
    let Ok(files) = std::fs::read_dir(Path::new(&folder).join("classbench")) else { return Vec::new() };
    let mut sets: Vec<_> = files.flatten().filter_map(|file| rule_set(&file.path())).collect();
    sets.sort_by(|a, b| a.0.cmp(&b.0));
    sets
}

fn rule_set(path: &Path) -> Option<(String, Vec<Rule>)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".rules.gz")?.to_owned();
    let mut text = String::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).ok()?).read_to_string(&mut text).ok()?;
    let rules = read(&text, &name, Some(Format::Classbench), &ReadOptions::default()).ok()?;
    Some((name, rules))
}
