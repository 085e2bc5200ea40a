//! `flowlane tune`: measures which kernel of each table is fastest on this machine, and stores the selection.

use std::path::Path;
use std::time::{Duration, Instant};

use flowlane::tune::{Budget, Contest, KernelSlot, Outcome, Tuning, Verdict, in_use, measure};
use serde::Serialize;

use crate::arguments::TuneOptions;
use crate::failure::Failure;
use crate::output::{self, Output, bytes};
use crate::stderr::note;
use crate::tuning::{self, Origin, Stored};

/// Measuring time in seconds, without building tables.
const SECONDS: f64 = 6.0;
const QUICK_SECONDS: f64 = 0.3;

/// Number of fastest candidates listed beside the built-in default.
const SHOWN: usize = 2;

/// Runs the command. `named` is the file given by `--tune` or `FLOWLANE_TUNE`.
pub(crate) fn run(options: &TuneOptions, named: Option<&Path>) -> Result<(), Failure> {
    if options.show {
        return show(&tuning::load(named)?, options.json);
    }
    let path = options.output.clone().or_else(|| tuning::path(named)).filter(|_| !options.dry_run);
    if path.is_none() && !options.dry_run {
        let message = "cannot store the selection: neither HOME nor XDG_CONFIG_HOME is set";
        return Err(Failure::input_help(message, "give a file with --output, or use --dry-run"));
    }
    let seconds = if options.quick { QUICK_SECONDS } else { SECONDS };
    let begun = Instant::now();
    let tuning = hold(seconds, options.table_max);
    let taken = begun.elapsed();
    if let Some(path) = &path {
        Stored::new(&tuning.choices()).write(path)?;
    }
    if options.json {
        return output::json(&document(&tuning, taken, path.as_deref()));
    }
    let mut out = Output::create(None)?;
    out.text(&text(&tuning))?;
    out.finish()?;
    match path {
        Some(path) => note!("measured in {:.1} s; stored in {}", taken.as_secs_f64(), path.display()),
        None => note!("measured in {:.1} s; not stored", taken.as_secs_f64()),
    }
    Ok(())
}

/// Measures with a progress bar on standard error.
fn hold(seconds: f64, table_bytes_max: u64) -> Tuning {
    let clock = quanta::Clock::new();
    // The tick rate is needed for the budget only.
    let (begun, first) = (Instant::now(), clock.raw());
    std::thread::sleep(Duration::from_millis(20));
    let ticks_per_second = (clock.raw() - first) as f64 / begun.elapsed().as_secs_f64();
    let bar = output::progress(KernelSlot::all().count() as u64, "measuring");
    let budget = Budget { ticks: (seconds * ticks_per_second) as u64, table_bytes_max };
    let tuning = measure(&mut || clock.raw(), budget, &mut |_, done, _| bar.set_position(done as u64));
    bar.finish_and_clear();
    tuning
}

fn text(tuning: &Tuning) -> String {
    let rows: Vec<Vec<String>> = tuning
        .outcomes
        .iter()
        .map(|outcome| {
            vec![
                outcome.slot.to_string(),
                outcome.table_bytes.map_or(String::new(), bytes),
                outcome.choice.clone(),
                why(outcome),
                percent(outcome.built_in_share()),
                measured(&outcome.contests[0]),
            ]
        })
        .collect();
    let header = [
        "table",
        "size",
        "kernel",
        "reason",
        "built-in of best",
        "cycles per key or packet: built-in, fastest others",
    ];
    let mut text = output::text_table("", &header, &rows);
    let duels = tuning.outcomes.iter().filter(|outcome| outcome.contests.len() > 1);
    for outcome in duels {
        let rows: Vec<Vec<String>> = outcome.contests[1..]
            .iter()
            .map(|contest| {
                let cycles = |at: usize| format!("{:.1}", contest.candidates[at].ticks);
                vec![contest.name.clone(), cycles(0), cycles(1), contest.winner().choice.clone()]
            })
            .collect();
        let title = format!("\nThreshold of {}, in cycles per packet:", outcome.slot);
        text += &output::table(&title, &["", "scalar", "vector", "kernel"], &rows);
    }
    if let Some(worst) = tuning.worst() {
        let share = percent(worst.built_in_share());
        text += &format!(
            "\nBuilt-in defaults reach at least {share} of the best kernel's rate (lowest: {}).\n",
            worst.slot
        );
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

/// Explains the selection.
fn why(outcome: &Outcome) -> String {
    match outcome.contests[0].verdict {
        Verdict::Faster { ratio } => {
            format!("{:.0}% fewer cycles than {}", 100.0 * (1.0 - ratio), outcome.built_in)
        }
        _ if outcome.choice != outcome.built_in => "built-in, different threshold".to_owned(),
        Verdict::Alone => "built-in, only candidate".to_owned(),
        _ => "built-in, none faster".to_owned(),
    }
}

/// Lists the built-in default and the fastest other candidates.
fn measured(contest: &Contest) -> String {
    let mut order: Vec<usize> = (0..contest.candidates.len()).filter(|at| *at != contest.default).collect();
    order.sort_by(|a, b| contest.candidates[*a].ticks.total_cmp(&contest.candidates[*b].ticks));
    let name = |at: usize| {
        let candidate = &contest.candidates[at];
        format!("{} {:.1}", candidate.choice, candidate.ticks)
    };
    let mut names = vec![name(contest.default)];
    names.extend(order.iter().take(SHOWN).map(|at| name(*at)));
    match order.len().saturating_sub(SHOWN) {
        0 => names.join("; "),
        more => format!("{}; {more} more", names.join("; ")),
    }
}

#[derive(Serialize)]
struct Document {
    seconds: f64,
    stored: Option<String>,
    slots: Vec<SlotDocument>,
    /// Minimum of the slots' `built_in_share`.
    worst_built_in_share: Option<f64>,
}

#[derive(Serialize)]
struct SlotDocument {
    slot: String,
    table_bytes: Option<u64>,
    choice: String,
    built_in: String,
    /// Rate of the built-in default as a share of the best one's.
    built_in_share: f64,
    why: String,
    contests: Vec<ContestDocument>,
}

#[derive(Serialize)]
struct ContestDocument {
    name: String,
    choice: String,
    candidates: Vec<CandidateDocument>,
}

#[derive(Serialize)]
struct CandidateDocument {
    choice: String,
    cycles: f64,
    cycles_quartiles: [f64; 2],
    rounds: usize,
}

fn document(tuning: &Tuning, taken: Duration, path: Option<&Path>) -> Document {
    let contest = |contest: &Contest| ContestDocument {
        name: contest.name.clone(),
        choice: contest.winner().choice.clone(),
        candidates: contest
            .candidates
            .iter()
            .map(|c| CandidateDocument {
                choice: c.choice.clone(),
                cycles: c.ticks,
                cycles_quartiles: c.quartiles,
                rounds: c.rounds,
            })
            .collect(),
    };
    let slot = |outcome: &Outcome| SlotDocument {
        slot: outcome.slot.to_string(),
        table_bytes: outcome.table_bytes,
        choice: outcome.choice.clone(),
        built_in: outcome.built_in.clone(),
        built_in_share: outcome.built_in_share(),
        why: why(outcome),
        contests: outcome.contests.iter().map(contest).collect(),
    };
    Document {
        seconds: taken.as_secs_f64(),
        stored: path.map(|p| p.display().to_string()),
        slots: tuning.outcomes.iter().map(slot).collect(),
        worst_built_in_share: tuning.worst().map(Outcome::built_in_share),
    }
}

/// A kernel in use, and the origin of its selection.
#[derive(Serialize)]
pub(crate) struct InUse {
    pub(crate) slot: String,
    pub(crate) choice: String,
    pub(crate) source: String,
    /// Stored selection that is not usable on this machine.
    pub(crate) refused: Option<String>,
    /// Candidates that each table measures in its first batches.
    pub(crate) candidates: Vec<String>,
    /// Source, rejected selection and candidates, as text.
    #[serde(skip)]
    origin: String,
}

/// Returns the kernel that every table uses in this run.
pub(crate) fn choices_in_use() -> Vec<InUse> {
    let of = |slot: KernelSlot| {
        let decision = in_use(slot);
        InUse {
            slot: slot.to_string(),
            origin: decision.origin(),
            choice: decision.choice,
            source: decision.source.to_string(),
            refused: decision.refused,
            candidates: decision.candidates,
        }
    };
    KernelSlot::all().map(of).collect()
}

/// Formats the kernels in use as a table.
pub(crate) fn choices_text(choices: &[InUse], origin: &Origin) -> String {
    let row = |c: &InUse| vec![c.slot.clone(), c.choice.clone(), c.origin.clone()];
    let rows: Vec<Vec<String>> = choices.iter().map(row).collect();
    output::text_table(
        &format!("\nKernel selection: {}", origin.text()),
        &["table", "kernel", "origin"],
        &rows,
    )
}

#[derive(Serialize)]
struct ShowDocument {
    from: String,
    choices: Vec<InUse>,
}

fn show(origin: &Origin, json: bool) -> Result<(), Failure> {
    let choices = choices_in_use();
    if json {
        return output::json(&ShowDocument { from: origin.text(), choices });
    }
    let mut out = Output::create(None)?;
    out.text(&choices_text(&choices, origin))?;
    out.finish()
}
