//! The arguments of `flowlane sim`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{RulesInput, TraceInput};

const RUN_HELP: &str = "\
CONFIG is TOML; all of it may be left out. Keys of [machine] are those of `flowlane sim config PRESET`:

  preset = \"paper\"                     # or \"skylake-sp\"
  [workload]
  tables = 20                          # 1: an exact-match cache; several: a search through tuples
  entries = 1024
  [run]
  approaches = [\"software\", \"bulk\", \"halo-non-blocking\", \"near-l2\", \"tcam\"]
  [machine.accelerator]
  remote = \"mesh\"
  [sweep]                              # every combination
  \"workload.tables\" = [5, 10, 15, 20]

Examples:
  flowlane sim run examples/sim.toml
  flowlane sim run examples/sim.toml --json > result.json
  flowlane sim run examples/sim.toml --effective effective.toml --csv result.csv";

const PAPER_HELP: &str = "\
Every value that the paper states stands beside the simulated one, with its error, and with what that is worth: calibrated, \
assumption (it hangs on something that was chosen here), predicted (nothing that it follows from was chosen to meet it), \
identity, not attempted. What the text does not state in numbers is not scored. The envelope is over the choices that the \
paper leaves open.

With the preset `paper`, what the paper simulated is simulated on its gem5's machine, and what it measured on a Xeon (figures \
3, 4 and 12) on `skylake-sp`; with any other machine everything is simulated on that.

Examples:
  flowlane sim paper --report halo.html
  flowlane sim paper --quick --csv halo.csv
  flowlane sim paper --preset skylake-sp --json > halo.json
  flowlane sim paper --preset here.toml        # the machine that `sim calibrate` has made";

const WHAT_IF_HELP: &str = "\
Rules become one exact-match table for each distinct mask. Software is measured on this machine, with every engine that \
`flowlane classify` has for it, and simulated on the machine of the preset; accelerators and TCAMs are simulated. The ratio \
of the same software simulated and measured, in cycles of both cores, says how far to trust the rest: where the two are more \
than 20 % apart, or the machine was disturbed, that is said first, and no accelerator is told in times of software. Every answer is compared with that of linear \
search, or above 300 million comparisons with that of the library's tuple search.

What each way waits for is found by making each part of the machine ideal; what the accelerator hangs on by halving and \
doubling numbers and switching choices, which the report names; from when on it is better by more and fewer rules, masks, \
packets and changes a second.

--cache is for simulated tables only: nothing that is measured has such a cache, nor has the library's tuple search. With it, \
measured software stands beside for information and is not compared; the ratio of the same software is without it. It has \
seen the packets of the trace before those that are counted: the trace should have several times as many as it holds flows.

Examples:
  flowlane sim what-if --rules acl.rules --trace acl.trace --report what-if.html
  flowlane sim what-if --rules gateway.flows --trace monday.pcap --cache 8192 --preset skylake-sp
  flowlane sim what-if --rules acl.rules --trace acl.trace --preset machine.toml --json > what-if.json";

const TRACE_HELP: &str = "\
The trace is in the format of Chrome's about:tracing and of https://ui.perfetto.dev: one lookup, or a few, with \
the window, the accelerator's steps and the time that each took.

Examples:
  flowlane sim trace examples/sim.toml --approach halo-blocking > trace.json
  flowlane sim trace examples/sim.toml --approach software --lookup 100 --count 3 --output trace.json";

const CALIBRATE_HELP: &str = "\
Takes about a minute and 600 MiB. Leave the machine alone meanwhile: the report says how much it was disturbed.

Lookups in tables that fit the first cache calibrate how fast this machine computes; lookups in larger ones have no part \
in it: how near the simulation comes to them is how far it can be trusted here.

Examples:
  flowlane sim calibrate
  flowlane sim calibrate --output here.toml && flowlane sim run here.toml";

/// What to simulate.
#[derive(Debug, Subcommand)]
pub(crate) enum SimVerb {
    /// Simulate lookups as a configuration says.
    #[command(after_help = RUN_HELP)]
    Run {
        /// The configuration; /dev/null for all defaults.
        config: PathBuf,
        /// Write the effective configuration here: all numbers, that of a sweep's first run.
        #[arg(long, value_name = "FILE")]
        effective: Option<PathBuf>,
        /// Write a line for each run and approach here.
        #[arg(long, value_name = "FILE")]
        csv: Option<PathBuf>,
        /// Threads, each with a run of its own; results do not depend on it.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
        threads: Option<u16>,
        /// Print everything as JSON, with latency histograms and cycle stacks.
        #[arg(long)]
        json: bool,
    },
    /// Simulate the evaluation of the HALO paper: figures 3, 4 and 8b to 13, tables 1, 2 and 4.
    #[command(after_help = PAPER_HELP)]
    Paper(SimPaperOptions),
    /// For rules and traffic of your own: software as measured here beside simulated accelerators and a TCAM.
    #[command(after_help = WHAT_IF_HELP)]
    WhatIf(SimWhatIfOptions),
    /// Print a preset machine with the origin of every number.
    #[command(
        after_help = "Examples:\n  flowlane sim config paper\n  flowlane sim config skylake-sp > machine.toml"
    )]
    Config {
        /// Its name: paper or skylake-sp.
        #[arg(value_name = "PRESET", value_parser = ["paper", "skylake-sp"])]
        preset: String,
        /// Calibrate it anew on Figure 10's bars, and print the four numbers that answer to them.
        #[arg(long)]
        recalibrate: bool,
    },
    /// Measure this machine, make a simulated one of it, and show how near that comes to software lookups here.
    #[command(after_help = CALIBRATE_HELP)]
    Calibrate {
        /// Write the machine here: a configuration for `sim run`.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// A few rounds and small tables: to see that all works; the numbers say little.
        #[arg(long)]
        quick: bool,
        /// Print everything as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write what happens to single lookups as a trace that browsers show.
    #[command(after_help = TRACE_HELP)]
    Trace {
        /// The configuration; /dev/null for all defaults.
        config: PathBuf,
        /// The way of looking up.
        #[arg(long, default_value = "halo-blocking", value_name = "NAME")]
        approach: String,
        /// The first lookup, counted after the warm-up.
        #[arg(long, default_value_t = 0, value_name = "N")]
        lookup: u64,
        /// How many.
        #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
        count: u64,
        /// Write here instead of to standard output.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// What of the paper to simulate, and where to write it.
#[derive(Debug, Args)]
pub(crate) struct SimPaperOptions {
    /// The machine: paper, skylake-sp, or a TOML file with `preset` and `[machine]` as `flowlane sim run` reads.
    #[arg(long, default_value = "paper", value_name = "PRESET|FILE")]
    pub(crate) preset: String,
    #[command(flatten)]
    pub(crate) report: SimReportOptions,
}

/// How much to simulate, and where to write what comes out.
#[derive(Debug, Args)]
pub(crate) struct SimReportOptions {
    /// Small tables, few lookups, few sizes: to see that all works; the numbers say little.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Threads, each with simulations of its own; results do not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Names everything that is drawn: keys, packets, rules that are copied or left out.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Print everything as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write all tables and curves here as CSV.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write a page with plots, tables and all numbers of the machine.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

/// Rules, traffic, and the machine to look them up on.
#[derive(Debug, Args)]
pub(crate) struct SimWhatIfOptions {
    #[command(flatten)]
    pub(crate) rules: RulesInput,
    #[command(flatten)]
    pub(crate) trace: TraceInput,
    /// Table of the rules, where the file has several.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) table: u8,
    /// The simulated machine: paper, skylake-sp, or a TOML file with `preset` and `[machine]` as `flowlane sim run` reads.
    #[arg(long, default_value = "skylake-sp", value_name = "PRESET|FILE")]
    pub(crate) preset: String,
    /// Flows of an exact-match cache in front of the simulated tables; 0 for none.
    #[arg(long, default_value_t = 0, value_name = "FLOWS", value_parser = clap::value_parser!(u32).range(0..=1 << 22))]
    pub(crate) cache: u32,
    /// Guess energy and area of TCAMs beyond the capacities of the paper's Table 4 (1 KB to 1 MB).
    #[arg(long)]
    pub(crate) extrapolate: bool,
    #[command(flatten)]
    pub(crate) report: SimReportOptions,
}
