//! `flowlane bench guard`: this build and another one, measured in turn.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::arguments::GuardOptions;
use crate::failure::Failure;
use crate::output;
use crate::stderr::note;

/// The topics that are compared where none is named: those of tables that the library has everywhere.
const TOPICS: [&str; 9] = ["parse", "hash", "bloom", "cuckoo", "cache", "megaflow", "acl", "fib", "tunnel"];

/// The names of peers' series begin so. Both builds have the same code of them: they do not count.
const PEERS: [&str; 4] = ["rte_", "etherparse", "fastbloom", "sbbf"];

/// The share of pairs that must be slower for a series to fail.
const AGREEING: f64 = 0.75;

/// A report of `bench --json`: the parts that are compared.
#[derive(Deserialize)]
struct Report {
    topics: Vec<TopicReport>,
}

#[derive(Deserialize)]
struct TopicReport {
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Figure {
    id: String,
    places: Vec<String>,
    quantity: String,
    series: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    name: String,
    points: Vec<Option<Point>>,
}

#[derive(Deserialize)]
struct Point {
    ns: Spread,
}

#[derive(Deserialize)]
struct Spread {
    median: f64,
}

/// The nanoseconds of a run: by figure, series and place.
type Times = BTreeMap<(String, String), BTreeMap<String, f64>>;

/// A series of both builds.
#[derive(Serialize)]
struct Compared {
    figure: String,
    series: String,
    /// The median of the pairs, each the geometric mean over the places.
    ratio: f64,
    /// The smallest ratio of a place, the median of its pairs.
    worst: f64,
    worst_at: String,
    /// The ratios of all pairs, from the smallest on.
    pairs: Vec<f64>,
    fails: bool,
}

/// Runs the command.
pub(crate) fn run(options: &GuardOptions) -> Result<(), Failure> {
    if !(options.least > 0.0 && options.least.is_finite()) {
        let help = "give a ratio, such as --least 0.95";
        return Err(Failure::input_help(format!("--least {}: no build is slower", options.least), help));
    }
    let own = std::env::current_exe()
        .map_err(|e| Failure::Environment(format!("this program has no path: {e}")))?;
    let other = other_build(&options.against)?;
    let topics: Vec<&str> = match options.topics.is_empty() {
        true => TOPICS.to_vec(),
        false => options.topics.iter().map(String::as_str).collect(),
    };
    let mut compared = Vec::new();
    for topic in topics {
        let mut pairs = Vec::new();
        for pair in 0..options.pairs {
            note!("{topic}: pair {} of {}", pair + 1, options.pairs);
            let [mut first, mut second] = [&own, &other];
            let is_turned = pair % 2 == 1;
            if is_turned {
                std::mem::swap(&mut first, &mut second);
            }
            let [first, second] = [measure(first, topic, options)?, measure(second, topic, options)?];
            pairs.push(if is_turned { [second, first] } else { [first, second] });
        }
        compared.extend(compare(&pairs, options.least));
    }
    report(&compared, options)
}

/// Returns the program to compare with: the one that is named, or that of a commit, which is built.
fn other_build(against: &OsStr) -> Result<PathBuf, Failure> {
    let path = Path::new(against);
    // A name without a folder is of this folder, too.
    if let Ok(path) = path.canonicalize().as_ref()
        && path.is_file()
    {
        return Ok(path.clone());
    }
    let named = path.display();
    let commit = said("git", &["rev-parse", "--verify", "--quiet", &format!("{named}^{{commit}}")]).ok_or_else(|| {
        Failure::input_help(
            format!("--against {named}: neither a program nor a commit"),
            "name a program that was built before, or run this in a clone of Flowlane and name a commit: --against HEAD~1",
        )
    })?;
    let root = said("git", &["rev-parse", "--show-toplevel"]).ok_or_else(|| no_tool("git"))?;
    let folder = Path::new(&root).join("target/guard");
    let source = folder.join("source");
    note!("building {commit} in {}", folder.display());
    _ = Command::new("git")
        .args(["worktree", "remove", "--force"])
        .arg(&source)
        .stderr(Stdio::null())
        .status();
    done(
        Command::new("git").args(["worktree", "add", "--detach", "--quiet"]).arg(&source).arg(&commit),
        "git",
    )?;
    if cfg!(debug_assertions) {
        note!("this program is no release build: the other one will be faster");
    }
    let built = done(
        Command::new("cargo")
            .args(["build", "--release", "--locked", "--package", "flowlane-cli"])
            .current_dir(&source)
            .env("CARGO_TARGET_DIR", &folder),
        "cargo",
    );
    let removed = done(Command::new("git").args(["worktree", "remove", "--force"]).arg(&source), "git");
    built.and(removed).map(|()| folder.join("release/flowlane"))
}

/// Returns what a program prints in a line; none where it fails.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

fn done(command: &mut Command, name: &str) -> Result<(), Failure> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Environment(format!("`{name}` ended with {status}"))),
        Err(_) => Err(no_tool(name)),
    }
}

fn no_tool(name: &str) -> Failure {
    Failure::Environment(format!(
        "`{name}` cannot be run here; build the other program elsewhere, and name it"
    ))
}

/// Runs a topic of a build.
fn measure(program: &Path, topic: &str, options: &GuardOptions) -> Result<Times, Failure> {
    let mut command = Command::new(program);
    command.args(["bench", topic, "--json"]).stderr(Stdio::piped());
    match options.quick {
        true => command.arg("--quick"),
        false => command.arg("--seconds").arg(options.seconds.to_string()),
    };
    let failed = |why: String| Failure::input(format!("{} bench {topic}: {why}", program.display()));
    let output = command.output().map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim_end().to_owned()));
    }
    let report: Report =
        serde_json::from_slice(&output.stdout).map_err(|e| failed(format!("no report: {e}")))?;
    Ok(times(report))
}

fn times(report: Report) -> Times {
    let mut times = Times::new();
    let figures = report.topics.into_iter().flat_map(|topic| topic.figures);
    for figure in figures.filter(|figure| figure.quantity != "plain") {
        let own = |series: &Series| !PEERS.iter().any(|peer| series.name.starts_with(peer));
        for series in figure.series.into_iter().filter(own) {
            let points = figure.places.iter().zip(series.points);
            let by_place = points.filter_map(|(place, point)| Some((place.clone(), point?.ns.median)));
            times.insert((figure.id.clone(), series.name), by_place.collect());
        }
    }
    times
}

/// Compares what both builds have measured; each pair is this build's times and the other's.
fn compare(pairs: &[[Times; 2]], least: f64) -> Vec<Compared> {
    let Some([own, _]) = pairs.first() else { return Vec::new() };
    let compared = own.keys().filter_map(|series| {
        let compared = compare_series(pairs, series, least);
        if compared.is_none() {
            note!("{}, {}: not compared, since the other build has no such series", series.0, series.1);
        }
        compared
    });
    compared.collect()
}

fn compare_series(pairs: &[[Times; 2]], name: &(String, String), least: f64) -> Option<Compared> {
    let mut of_pairs = Vec::new();
    let mut of_places: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for [own, other] in pairs {
        let (own, other) = (own.get(name)?, other.get(name)?);
        let ratios = own.iter().filter_map(|(place, ns)| Some((place.as_str(), other.get(place)? / ns)));
        let ratios: Vec<(&str, f64)> =
            ratios.filter(|(_, ratio)| ratio.is_finite() && *ratio > 0.0).collect();
        if ratios.is_empty() {
            continue;
        }
        of_pairs.push((ratios.iter().map(|(_, ratio)| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp());
        ratios.into_iter().for_each(|(place, ratio)| of_places.entry(place).or_default().push(ratio));
    }
    of_pairs.sort_by(f64::total_cmp);
    let by_place = of_places.into_iter().map(|(place, mut ratios)| {
        ratios.sort_by(f64::total_cmp);
        (place.to_owned(), median(&ratios))
    });
    let (worst_at, worst) = by_place.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let ratio = median(&of_pairs);
    let slower = of_pairs.iter().filter(|ratio| **ratio < 1.0).count();
    let fails = ratio < least && slower as f64 >= AGREEING * of_pairs.len() as f64;
    let (figure, series) = name.clone();
    Some(Compared { figure, series, ratio, worst, worst_at, pairs: of_pairs, fails })
}

/// Returns the middle of sorted numbers, of which there is one.
fn median(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

/// Prints a row for each figure, and one for each series that fails.
fn report(compared: &[Compared], options: &GuardOptions) -> Result<(), Failure> {
    if options.json {
        output::json(&compared)?;
    } else {
        let mut figures: BTreeMap<&str, Vec<&Compared>> = BTreeMap::new();
        compared.iter().for_each(|one| figures.entry(&one.figure).or_default().push(one));
        let rows: Vec<Vec<String>> = figures.iter().map(|(figure, all)| summary(figure, all)).collect();
        let header = ["figure", "series", "mean", "slowest", "ratio", "pairs", "worst place", "ratio"];
        output::print(&output::table("This build over the other: above 1 it is faster", &header, &rows))?;
        let failed: Vec<Vec<String>> = compared.iter().filter(|one| one.fails).map(row).collect();
        if !failed.is_empty() {
            let header = ["series", "ratio", "pairs", "worst place", "ratio"];
            output::print(&output::table(&format!("\nBelow {}", options.least), &header, &failed))?;
        }
    }
    match compared.iter().filter(|one| one.fails).count() {
        0 if compared.is_empty() => Err(Failure::input_help(
            "the builds have no series in common",
            "name topics that both have: --topic acl",
        )),
        0 => Ok(()),
        some => Err(Failure::Check(format!(
            "{some} of {} series are slower than in the other build",
            compared.len()
        ))),
    }
}

fn summary(figure: &str, all: &[&Compared]) -> Vec<String> {
    let mean = (all.iter().map(|one| one.ratio.ln()).sum::<f64>() / all.len() as f64).exp();
    let slowest = all.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio)).expect("a figure has series");
    let head = [figure.to_owned(), all.len().to_string(), format!("{mean:.2}"), slowest.series.clone()];
    head.into_iter().chain(row(slowest).into_iter().skip(1)).collect()
}

fn row(one: &Compared) -> Vec<String> {
    let span = match one.pairs[..] {
        [first, .., last] => format!("{first:.2} to {last:.2}"),
        _ => String::new(),
    };
    let (name, at) = (format!("{}: {}", one.figure, one.series), one.worst_at.clone());
    vec![name, format!("{:.2}", one.ratio), span, at, format!("{:.2}", one.worst)]
}
