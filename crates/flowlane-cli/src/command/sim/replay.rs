//! `flowlane sim replay`: recorded instructions on a simulated machine.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowlane_sim::program::{Replayed, replay};
use flowlane_sim::trace::{Trace, TraceError};
use serde_json::json;

use crate::failure::Failure;
use crate::input;
use crate::output::{self, Output};

/// The files of a folder of `--corpus` apart from traces.
const MEASURED: &str = "measured.csv";
const MACHINE: &str = "machine.toml";
/// The first line of the former.
pub(super) const MEASURED_HEAD: &str = "trace,measured_cycles\n";

/// Writes the measured cycles (lines of a name and cycles after the first one) and the machine of a folder's traces.
pub(super) fn write_list(folder: &Path, measured: &str, machine: &str) -> Result<(), Failure> {
    for (name, text) in [(MEASURED, measured), (MACHINE, machine)] {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|e| Failure::written(&path, &e))?;
    }
    Ok(())
}

/// A trace, with its measured cycles if known.
struct Wanted {
    path: PathBuf,
    measured: Option<f64>,
}

pub(super) fn run(paths: &[PathBuf], preset: Option<&str>, json: bool) -> Result<(), Failure> {
    let folder = paths.iter().find(|path| path.join(MACHINE).is_file());
    let of_folder = folder.map(|folder| folder.join(MACHINE).display().to_string());
    let preset = preset.map(str::to_owned).or(of_folder).unwrap_or_else(|| "skylake-sp".to_owned());
    let (name, machine) = super::machine_of("--preset", &preset)?;
    let mut done = Vec::new();
    for path in paths {
        for wanted in wanted(path)? {
            let replayed = replay(&Arc::new(read(&wanted.path)?), &machine, 1)?;
            done.push((wanted, replayed));
        }
    }
    if json {
        let one = |(wanted, r): &(Wanted, Replayed)| {
            json!({
                "trace": wanted.path, "measured_cycles": wanted.measured, "cycles": r.cycles, "cycle_ps": r.cycle_ps,
                "stats": r.stats,
            })
        };
        return output::json(&done.iter().map(one).collect::<Vec<_>>());
    }
    let rows: Vec<Vec<String>> = done.iter().map(|(wanted, replayed)| row(wanted, replayed)).collect();
    let head = [
        "trace",
        "measured",
        "simulated",
        "off by",
        "instr.",
        "mispred.",
        "blocked",
        "L1",
        "L2",
        "LLC",
        "memory",
        "waits most for",
    ];
    let mut out = Output::create(None)?;
    out.text(&output::table(
        &format!("each lookup, on {name}; cycles, instructions and loads"),
        &head,
        &rows,
    ))?;
    out.finish()
}

/// Returns the traces of a path: its own, or those that a folder lists.
fn wanted(path: &Path) -> Result<Vec<Wanted>, Failure> {
    if !path.is_dir() {
        return Ok(vec![Wanted { path: path.to_owned(), measured: None }]);
    }
    let list = path.join(MEASURED);
    let text = input::read_text(&list)?;
    let line = |(n, line): (usize, &str)| {
        let (name, cycles) = line.split_once(',').unzip();
        let (Some(name), Some(measured)) = (name, cycles.and_then(|cycles| cycles.parse().ok())) else {
            let place = format!("{}: line {}", list.display(), n + 1);
            return Err(Failure::input_help(format!("{place}: `{line}`"), "write `NAME.trace,CYCLES`"));
        };
        Ok(Wanted { path: path.join(name), measured: Some(measured) })
    };
    text.lines().enumerate().skip(1).map(line).collect()
}

fn row(wanted: &Wanted, r: &Replayed) -> Vec<String> {
    let each = |n: u64| n as f64 / r.stats.lookups.max(1) as f64;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "\u{2013}".to_owned());
    let mut row = vec![wanted.path.file_name().unwrap_or_default().to_string_lossy().into_owned()];
    row.push(or_none(wanted.measured.map(|cycles| format!("{cycles:.1}"))));
    row.push(format!("{:.1}", r.cycles));
    row.push(or_none(wanted.measured.map(|cycles| format!("{:+.0} %", 100.0 * (r.cycles / cycles - 1.0)))));
    row.push(format!("{:.0}", each(r.stats.instructions)));
    row.push(format!("{:.2}", each(r.stats.mispredicted)));
    row.push(format!("{:.2}", each(r.stats.blocked_loads)));
    row.extend(r.stats.loads.map(|n| format!("{:.2}", each(n))));
    let parts = r.stats.stack.parts();
    let all: u64 = parts.iter().map(|(_, ps)| ps).sum();
    let most = parts.into_iter().max_by_key(|(_, ps)| *ps);
    let share = |ps: u64| 100.0 * ps as f64 / all.max(1) as f64;
    row.push(or_none(most.map(|(part, ps)| format!("{part}, {:.0} %", share(ps)))));
    row
}

fn read(path: &Path) -> Result<Trace, Failure> {
    let input: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        _ => Box::new(File::open(path).map_err(|e| Failure::file(path, "read", &e))?),
    };
    Trace::read(&mut BufReader::new(input)).map_err(|e| {
        let message = format!("{}: {e}", path.display());
        match e {
            TraceError::Line { help, .. } => Failure::input_help(message, help),
            _ => Failure::input(message),
        }
    })
}
