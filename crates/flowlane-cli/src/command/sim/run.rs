//! `flowlane sim run`: runs and sweeps of a configuration, repeated with several seeds.

use std::fmt::Write;
use std::rc::Rc;

use flowlane_bench::figure::Figure;
use flowlane_bench::render::Page;
use flowlane_sim::confidence::Estimate;
use flowlane_sim::config::{Approach, RunConfig, Sweep};
use flowlane_sim::machine::{MemoryAccess, TimeSeries};
use flowlane_sim::run::{RunResult, run_sweep, tables_of, with_accesses};
use serde::Serialize;

use super::{open, read, threads_of};
use crate::arguments::SimRunOptions;
use crate::failure::Failure;
use crate::output::{self, Output, SHARES};

/// The values of an approach over all seeds.
#[derive(Serialize)]
struct Estimates {
    approach: Approach,
    values: Vec<(&'static str, Estimate)>,
}

/// A run of a sweep: its values and its results.
#[derive(Serialize)]
struct Done {
    values: Vec<String>,
    effective: String,
    /// The results with the first seed, then with the others.
    results: Vec<RunResult>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    estimates: Vec<Estimates>,
}

impl Done {
    fn new(values: &[String], config: &RunConfig, results: Vec<RunResult>) -> Self {
        let (values, effective) = (values.to_vec(), config.text());
        let mut done = Self { values, effective, results, estimates: Vec::new() };
        if config.run.seeds > 1 {
            let approaches = config.run.approaches.iter().enumerate();
            done.estimates =
                approaches.map(|(n, a)| done.estimates_of(n, *a, config.run.approaches.len())).collect();
        }
        done
    }

    fn estimates_of(&self, n: usize, approach: Approach, approaches: usize) -> Estimates {
        let of_seeds: Vec<Vec<(&'static str, f64)>> =
            self.results.chunks(approaches).map(|of_seed| values(of_seed, n)).collect();
        let estimate = |value: usize| {
            let all: Vec<f64> = of_seeds.iter().map(|values| values[value].1).collect();
            (of_seeds[0][value].0, Estimate::of(&all))
        };
        Estimates { approach, values: (0..of_seeds[0].len()).map(estimate).collect() }
    }

    fn title(&self) -> String {
        let hash = &self.results[0].config_hash;
        match self.values.is_empty() {
            true => format!("configuration {hash}"),
            false => format!("{} (configuration {hash})", self.values.join(", ")),
        }
    }

    /// Returns the table: values, or means with half of the 95 % confidence interval.
    fn rows(&self) -> Vec<Vec<String>> {
        if self.estimates.is_empty() {
            let row = |n: usize| {
                let cells = values(&self.results, n);
                let cells = cells.iter().map(|(name, v)| format!("{v:.*}", digits(name)));
                [self.results[n].approach.name().to_owned()].into_iter().chain(cells).collect()
            };
            return (0..self.results.len()).map(row).collect();
        }
        let row = |e: &Estimates| {
            let cell = |(name, e): &(&str, Estimate)| {
                let digits = digits(name);
                format!("{:.digits$} ±{:.digits$}", e.mean, e.half_width_95.unwrap_or(0.0))
            };
            [e.approach.name().to_owned()].into_iter().chain(e.values.iter().map(cell)).collect()
        };
        self.estimates.iter().map(row).collect()
    }

    fn head(&self) -> Vec<&'static str> {
        ["approach"].into_iter().chain(values(&self.results, 0).into_iter().map(|(name, _)| name)).collect()
    }
}

/// Returns the values of an approach among those with the same seed, with the speedup over the first approach.
fn values(of_seed: &[RunResult], n: usize) -> Vec<(&'static str, f64)> {
    let mut values = of_seed[n].values();
    values.insert(2, ("times", of_seed[0].cycles_per_lookup / of_seed[n].cycles_per_lookup));
    values
}

fn digits(name: &str) -> usize {
    match name {
        "cycles" => 1,
        "M/s" | "times" => 2,
        _ => 0,
    }
}

pub(super) fn run(options: &SimRunOptions) -> Result<(), Failure> {
    let runs = read(&options.config)?.runs;
    let alone = runs.len() == 1 && runs[0].1.run.approaches.len() == 1 && runs[0].1.run.seeds == 1;
    if options.misses.is_some() && !alone {
        let help = "leave one value in `run.approaches`, and no `sweep` and `run.seeds`";
        return Err(Failure::input_help("--misses: the configuration has several runs", help));
    }
    if options.series.is_some() && runs.iter().any(|(_, config)| config.run.interval_cycles == 0) {
        return Err(Failure::input_help("--series: there is no interval", "set `run.interval_cycles`"));
    }
    // Opened first, so that an unwritable path fails before the work.
    let [effective, csv, series, report, misses] =
        [&options.effective, &options.csv, &options.series, &options.report, &options.misses]
            .map(|path| open(path.as_deref()));
    let (done, accesses) = results(&runs, threads_of(options.threads), options.misses.is_some())?;
    for (out, text) in [
        (effective?, &(|| done[0].effective.clone()) as &dyn Fn() -> String),
        (csv?, &|| lines(&done)),
        (series?, &|| series_lines(&done)),
        (report?, &|| html(&done)),
        (misses?, &|| ramulator(&accesses)),
    ] {
        if let Some(mut out) = out {
            out.text(&text())?;
            out.finish()?;
        }
    }
    if options.json {
        return output::json(&done);
    }
    let mut out = Output::create(None)?;
    for run in &done {
        out.text(&output::table(&run.title(), &run.head(), &run.rows()))?;
    }
    out.finish()
}

/// Simulates all runs with all of their seeds; with `misses` the only one, with its accesses to memory.
fn results(
    runs: &[(Vec<String>, RunConfig)],
    threads: usize,
    misses: bool,
) -> Result<(Vec<Done>, Vec<MemoryAccess>), Failure> {
    if misses {
        let (values, config) = &runs[0];
        let tables = Rc::new(tables_of(config));
        let (result, accesses) = with_accesses(config, config.run.approaches[0], &tables)?;
        return Ok((vec![Done::new(values, config, vec![result])], accesses));
    }
    let of_run = |(values, config): &(Vec<String>, RunConfig)| {
        of_seeds(config).map(|config| (values.clone(), config)).collect::<Vec<_>>()
    };
    let jobs = Sweep { runs: runs.iter().flat_map(of_run).collect() };
    let bar = output::progress_share();
    bar.set_message("simulating");
    let watch = |share: f64| bar.set_position((share * SHARES as f64) as u64);
    let mut swept = run_sweep(jobs, threads, &watch)?.into_iter();
    bar.finish_and_clear();
    let done = runs.iter().map(|(values, config)| {
        let of_run = swept.by_ref().take(config.run.seeds as usize);
        Done::new(values, config, of_run.flat_map(|run| run.results).collect())
    });
    Ok((done.collect(), Vec::new()))
}

fn of_seeds(config: &RunConfig) -> impl Iterator<Item = RunConfig> {
    (0..u64::from(config.run.seeds)).map(|n| {
        let mut config = config.clone();
        (config.run.seed, config.run.seeds) = (config.run.seed.wrapping_add(n), 1);
        config
    })
}

/// Formats a CSV line for each run and approach.
fn lines(done: &[Done]) -> String {
    const NAMES: [(&str, &str); 3] = [
        ("cycles", "cycles_per_lookup"),
        ("M/s", "millions_per_second"),
        ("instr.", "instructions_per_lookup"),
    ];
    let mut out = String::from("configuration,values,approach");
    let repeated = !done[0].estimates.is_empty();
    for (_, name) in NAMES {
        let _ = write!(out, ",{name}");
        if repeated {
            let _ = write!(out, ",{name}_half_width_95");
        }
    }
    out.push('\n');
    for run in done {
        let values_of = run.values.join("; ").replace('"', "'");
        let mut line = |approach: Approach, cell: &dyn Fn(&str) -> String| {
            let cells = NAMES.map(|(name, _)| cell(name)).join(",");
            let hash = &run.results[0].config_hash;
            let _ = writeln!(out, "{hash},\"{values_of}\",{},{cells}", approach.name());
        };
        for e in &run.estimates {
            line(e.approach, &|name| {
                let (_, e) = e.values.iter().find(|(n, _)| *n == name).expect("all have these values");
                format!("{:.4},{:.4}", e.mean, e.half_width_95.unwrap_or(0.0))
            });
        }
        for r in run.results.iter().filter(|_| run.estimates.is_empty()) {
            line(r.approach, &|name| match name {
                "cycles" => format!("{:.3}", r.cycles_per_lookup),
                "M/s" => format!("{:.4}", r.millions_per_second),
                _ => format!("{:.2}", r.instructions_per_lookup),
            });
        }
    }
    out
}

/// Returns the series of all runs, with a name of each.
fn all_series(done: &[Done]) -> impl Iterator<Item = (String, &RunResult, &TimeSeries)> {
    let of_run = |run: &Done| run.values.join("; ").replace('"', "'");
    done.iter().flat_map(move |run| {
        let name = of_run(run);
        run.results.iter().filter_map(move |r| Some((name.clone(), r, r.series.as_ref()?)))
    })
}

/// Formats a CSV line for each quantity of a component in an interval.
fn series_lines(done: &[Done]) -> String {
    let mut out =
        String::from("configuration,values,approach,until_us,component,number,quantity,unit,value\n");
    for (name, r, series) in all_series(done) {
        for (n, at) in series.at_ps.iter().enumerate() {
            for q in &series.quantities {
                let at = *at as f64 / 1e6;
                let (hash, approach) = (&r.config_hash, r.approach.name());
                let _ = writeln!(
                    out,
                    "{hash},\"{name}\",{approach},{at:.3},{},{},{},{},{:.4}",
                    q.component, q.number, q.quantity, q.unit, q.values[n]
                );
            }
        }
    }
    out
}

fn html(done: &[Done]) -> String {
    let facts = [("simulator", format!("flowlane-sim {}", env!("CARGO_PKG_VERSION")))];
    let about = "Runs of a configuration. Statistics over time begin with the warm-up.";
    let mut page = Page::new("Simulated lookups", about, &facts);
    for (n, run) in done.iter().enumerate() {
        page.section(&format!("run-{n}"), &run.title(), "");
        page.table(&run.head(), &run.rows());
    }
    for (n, (name, r, series)) in all_series(done).enumerate() {
        let title = format!("{} {name}", r.approach.name());
        charts(&format!("series-{n}"), title.trim(), series).iter().for_each(|figure| page.figure(figure));
    }
    page.text("The configuration of the first run", &done[0].effective);
    page.finish()
}

/// Charts the quantities of each unit: of several components the mean and the most.
fn charts(id: &str, title: &str, series: &TimeSeries) -> Vec<Figure> {
    let mut figures: Vec<(&str, Figure)> = Vec::new();
    for first in series.quantities.iter().filter(|q| q.number == 0) {
        let kind = |q: &&flowlane_sim::machine::Quantity| {
            (q.component, q.quantity) == (first.component, first.quantity)
        };
        let same: Vec<&Vec<f64>> = series.quantities.iter().filter(kind).map(|q| &q.values).collect();
        let over = |f: &dyn Fn(&[f64]) -> f64| -> Vec<Option<f64>> {
            let column = |n: usize| same.iter().map(|values| values[n]).collect::<Vec<_>>();
            (0..series.at_ps.len()).map(|n| Some(f(&column(n)))).collect()
        };
        let place = figures.iter().position(|(unit, _)| *unit == first.unit).unwrap_or_else(|| {
            let places = series.at_ps.iter().map(|at| format!("{:.1}", *at as f64 / 1e6));
            let figure = Figure::new(format!("{id}-{}", figures.len()), title, "");
            figures.push((first.unit, figure.over("µs", places).plain(first.unit)));
            figures.len() - 1
        });
        let name = format!("{}, {}", first.component, first.quantity);
        let mean = over(&|of| of.iter().sum::<f64>() / of.len() as f64);
        let figure = std::mem::replace(&mut figures[place].1, Figure::new("", "", ""));
        figures[place].1 = match same.len() {
            1 => figure.curve(&name, &mean),
            _ => {
                let most = over(&|of| of.iter().copied().fold(0.0, f64::max));
                figure.curve(&format!("{name}, mean"), &mean).curve(&format!("{name}, most"), &most)
            }
        };
    }
    figures.into_iter().map(|(_, figure)| figure).collect()
}

/// Formats accesses to memory as Ramulator 2's `LoadStoreTrace` reads them: an address in bytes a line.
fn ramulator(accesses: &[MemoryAccess]) -> String {
    let mut out = String::new();
    for access in accesses {
        let kind = if access.write { "ST" } else { "LD" };
        let _ = writeln!(out, "{kind} {:#x}", access.line * flowlane_sim::machine::cache::LINE_BYTES);
    }
    out
}
