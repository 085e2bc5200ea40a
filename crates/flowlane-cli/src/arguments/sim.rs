//! Arguments of `flowlane sim`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{RulesInput, TraceInput};

const RUN_HELP: &str = "\
CONFIG is TOML, and every key is optional. Keys of [machine] are those of `flowlane sim config PRESET`:

  preset = \"paper\"                     # or \"skylake-sp\"
  [workload]
  tables = 20                          # 1: an exact-match cache; more: tuple space search
  entries = 1024
  [run]
  approaches = [\"software\", \"bulk\", \"halo-non-blocking\", \"near-l2\", \"tcam\"]
  [machine.accelerator]
  remote = \"mesh\"
  [sweep]                              # runs every combination; several: [[sweep]]
  \"workload.tables\" = [5, 10, 15, 20]

Examples:
  flowlane sim run examples/sim.toml
  flowlane sim run examples/sim.toml --json > result.json
  flowlane sim run examples/sim.toml --effective effective.toml --csv result.csv
  flowlane sim run sim.toml --series series.csv --report report.html   # with `run.interval_cycles = 10000`
  flowlane sim run sim.toml --misses misses.trace                      # for Ramulator 2

With `run.seeds = N`, every run is repeated with N seeds: means, with half of the 95 % confidence interval.";

const PAPER_HELP: &str = "\
Lists every value that the paper states next to the simulated one, with its error and its worth: calibrated, assumption (it \
depends on a choice of ours), predicted (it follows from no number chosen to meet it), identity, not attempted. Statements \
without numbers are not scored. The envelope covers all choices that the paper leaves open.

With the preset `paper`, the paper's simulations run on its gem5 machine, and its measurements on a Xeon (figures 3, 4 and 12) \
on `skylake-sp`. With any other machine, everything runs on that one.

Examples:
  flowlane sim paper --report halo.html
  flowlane sim paper --quick --csv halo.csv
  flowlane sim paper --figure 9 --figure 13
  flowlane sim paper --preset skylake-sp --json > halo.json
  flowlane sim paper --preset here.toml        # a machine from `sim calibrate`";

const WHAT_IF_HELP: &str = "\
Software is measured on this machine, with every suitable engine of `flowlane classify`: one core, several, and calls with few \
packets, which give latencies under load. Accelerators and TCAMs are simulated, on a machine that is fitted to this one unless \
--preset names another; rules become one exact-match table for each distinct mask. The software is recorded, too, and simulated in \
the same way: how far that is from its measurement is the range given for everything that is only simulated. On another machine, \
measured times are carried over by simulating the recording on both. Every answer is compared with linear search, or above 300 \
million comparisons with the library's tuple search.

No speedups over software are given if the simulation is off by more than a factor of two, if the system refuses to record \
(ptrace), or if the machine was disturbed; the report says so first. A report takes two to four minutes, most of them recording.

The bottleneck of each approach is found by making each part of the machine ideal. The sensitivity of the accelerator is found \
by halving and doubling numbers and by switching choices. Break-evens are found by the number of rules, masks, packets a second \
and changes a second.

--cache applies to simulated tables only; measured software has no such cache and is then listed without a comparison. The cache has seen the packets of the trace that precede the counted ones: the trace should have \
several times as many packets as the cache has flows.

Examples:
  flowlane sim what-if --rules acl.rules --trace acl.trace --report what-if.html
  flowlane sim what-if --rules gateway.flows --trace monday.pcap --rate 14.88 --arrival nic
  flowlane sim calibrate --output here.toml
  flowlane sim what-if --rules acl.rules --trace acl.trace --host here.toml --preset skylake-sp --json > what-if.json";

const TRACE_HELP: &str = "\
Writes one or a few lookups in the format of Chrome's about:tracing and of https://ui.perfetto.dev, with the window, the \
accelerator's steps and their times.

Examples:
  flowlane sim trace examples/sim.toml --approach halo-blocking > trace.json
  flowlane sim trace examples/sim.toml --approach software --lookup 100 --count 3 --output trace.json";

const CALIBRATE_HELP: &str = "\
Takes about four minutes and a gigabyte. Passes beside which another process used the core are left out; leave the machine idle \
all the same, since others also use the last cache and memory. The report says if too few passes were calm.

Lookups of every method are recorded and replayed, and nothing is fitted to them: their errors show how far to trust the \
simulation. Where the system refuses to record, tables are simulated by their loads, and the smallest calibrate computing.

Examples:
  flowlane sim calibrate
  flowlane sim calibrate --output here.toml && flowlane sim run here.toml
  flowlane sim calibrate --corpus zen3/ && flowlane sim replay zen3/";

const RECORD_HELP: &str = "\
Executes lookups step by step, which takes some microseconds for each instruction, and writes their instructions, registers, \
addresses and branches. The recorded process builds its tables and warms the caches at full speed before.

Examples:
  flowlane sim record single --level L2 --output single.trace
  flowlane sim record tree-batches --level LLC --lookups 4096 --output tree.trace";

const REPLAY_HELP: &str = "\
Caches begin with as much of the accessed arrays as they hold; a quarter of the trace warms up further and is not counted.

Traces of addresses are text. Each line has an access in one of these forms; # begins a comment:
  0x7f00, 0x7f00 R, R 0x7f00, LD 0x7f00, 0 7f00   a read (Ramulator, Ramulator 2, Dinero)
  0x7f00 W, W 0x7f00, ST 0x7f00, 1 7f00           a write
  L 7f00,8; S 7f00,8; M 7f00,8                    a read, a write, or both, of 8 bytes (Lackey)
  I 7f00,3; 2 7f00                                the fetch of an instruction (Lackey, Dinero)
They have no dependencies, so that all accesses overlap: the cycles are a lower bound.

Examples:
  flowlane sim replay single.trace --preset here.toml
  flowlane sim replay corpus/                      # and the errors, if the folder has measurements
  xz -dc 600.perlbench_s-210B.champsimtrace.xz | head -c 640000000 | flowlane sim replay -
  valgrind --tool=lackey --trace-mem=yes --log-file=ls.trace ls && flowlane sim replay ls.trace";

/// The verb of `flowlane sim`.
#[derive(Debug, Subcommand)]
pub(crate) enum SimVerb {
    /// Simulate lookups with a configuration.
    #[command(after_help = RUN_HELP)]
    Run(SimRunOptions),
    /// Simulate the evaluation of the HALO paper: figures 3, 4 and 8b to 13, tables 1, 2 and 4.
    #[command(after_help = PAPER_HELP)]
    Paper(SimPaperOptions),
    /// Compare software measured on this machine with simulated accelerators and a TCAM, on your rules and traffic.
    #[command(after_help = WHAT_IF_HELP)]
    WhatIf(SimWhatIfOptions),
    /// Print a preset machine with the origin of every number, or the experiment of a figure for `flowlane sim run`.
    #[command(
        after_help = "Examples:\n  flowlane sim config paper\n  flowlane sim config skylake-sp > machine.toml\n  \
                      flowlane sim config figure9 > figure9.toml && flowlane sim run figure9.toml"
    )]
    Config {
        /// The machine: paper, skylake-sp, zen3, zen4 or sapphire-rapids; or the experiment of a figure.
        #[arg(value_name = "NAME", value_parser = ["paper", "skylake-sp", "zen3", "zen4", "sapphire-rapids", "figure9", "figure11", "figure11-choices", "figure13"])]
        preset: String,
        /// Repeat the calibration on Figure 10's bars and print the four calibrated numbers.
        #[arg(long)]
        recalibrate: bool,
    },
    /// Fit a simulated machine to this one, and compare simulated with measured software lookups.
    #[command(after_help = CALIBRATE_HELP)]
    Calibrate {
        /// Write the machine to this file: a configuration for `sim run`.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write the recorded lookups, their measured cycles and the machine to this folder, for `sim replay`.
        #[arg(long, value_name = "FOLDER")]
        corpus: Option<PathBuf>,
        /// Use few rounds and small tables, to check that everything works; the numbers are meaningless.
        #[arg(long)]
        quick: bool,
        /// Print everything as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Record the instructions of this machine's lookups, for `sim replay`.
    #[command(after_help = RECORD_HELP)]
    Record(SimRecordOptions),
    /// Simulate recorded instructions (of `sim record`, or ChampSim's traces), or a trace of addresses.
    #[command(after_help = REPLAY_HELP)]
    Replay {
        /// Recorded instructions, addresses, or a folder of `sim calibrate --corpus`; - for standard input.
        #[arg(required = true, value_name = "FILE|FOLDER")]
        traces: Vec<PathBuf>,
        /// Machine: a preset, or a TOML file with `preset` and `[machine]` as for `flowlane sim run`. Without it that of the
        /// folder, or skylake-sp.
        #[arg(long, value_name = "PRESET|FILE")]
        preset: Option<String>,
        /// Print everything as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write the steps of single lookups as a trace for browsers.
    #[command(after_help = TRACE_HELP)]
    Trace {
        /// Configuration file; /dev/null for all defaults.
        config: PathBuf,
        /// The lookup approach.
        #[arg(long, default_value = "halo-blocking", value_name = "NAME")]
        approach: String,
        /// Index of the first lookup, counted after the warm-up.
        #[arg(long, default_value_t = 0, value_name = "N")]
        lookup: u64,
        /// The number of lookups.
        #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
        count: u64,
        /// Write to this file instead of standard output.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// The options of `flowlane sim run`.
#[derive(Debug, Args)]
pub(crate) struct SimRunOptions {
    /// Configuration file; /dev/null for all defaults.
    pub(crate) config: PathBuf,
    /// Write the effective configuration, with all numbers, to this file; for a sweep, that of the first run.
    #[arg(long, value_name = "FILE")]
    pub(crate) effective: Option<PathBuf>,
    /// Write a line for each run and approach to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write statistics over time (`run.interval_cycles`) to this file: a line for each component and interval.
    #[arg(long, value_name = "FILE")]
    pub(crate) series: Option<PathBuf>,
    /// Write an HTML page with the tables, and charts of statistics over time.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Write the accesses to memory to this file, as Ramulator 2's `LoadStoreTrace` reads them; of one run with one
    /// approach.
    #[arg(long, value_name = "FILE")]
    pub(crate) misses: Option<PathBuf>,
    /// Threads, each for one run; results do not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Print everything as JSON, with latency histograms and cycle stacks.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The options of `flowlane sim record`.
#[derive(Debug, Args)]
pub(crate) struct SimRecordOptions {
    /// The lookup method: single, bulk, bulk-vectors, tuple-space, tuple-search, tree, tree-batches, dynamic, dynamic-batches.
    pub(crate) method: String,
    /// The level whose size the tables have: L1, L2, LLC or memory.
    #[arg(long, default_value = "L2", value_name = "LEVEL")]
    pub(crate) level: String,
    /// Put the tables on pages of 4 KiB.
    #[arg(long)]
    pub(crate) small_pages: bool,
    /// The number of lookups.
    #[arg(long, default_value_t = 512, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) lookups: u32,
    /// Write to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Use small tables.
    #[arg(long)]
    pub(crate) quick: bool,
    /// The process that is recorded.
    #[arg(long, hide = true)]
    pub(crate) recorded: bool,
}

/// The options of `flowlane sim paper`.
#[derive(Debug, Args)]
pub(crate) struct SimPaperOptions {
    /// Machine: paper, skylake-sp, zen3, zen4, sapphire-rapids, or a TOML file with `preset` and `[machine]` as for `flowlane sim run`.
    #[arg(long, default_value = "paper", value_name = "PRESET|FILE")]
    pub(crate) preset: String,
    /// Simulate this figure only (several: repeat it): a number, `tables`, or `sensitivity` for the charts that explain misses.
    #[arg(long, value_name = "N", value_parser = flowlane_sim::paper::PARTS)]
    pub(crate) figure: Vec<String>,
    #[command(flatten)]
    pub(crate) report: SimReportOptions,
}

/// The extent of a simulation, and its outputs.
#[derive(Debug, Args)]
pub(crate) struct SimReportOptions {
    /// Use small tables, few lookups and few sizes, to check that everything works; the numbers are meaningless.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Threads, each for one simulation at a time; results do not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Seed of all random choices: keys, packets, rules that are copied or left out.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Print everything as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write all tables and curves as CSV to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Write an HTML page with plots, tables and all numbers of the machine to this file.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

/// The options of `flowlane sim what-if`.
#[derive(Debug, Args)]
pub(crate) struct SimWhatIfOptions {
    #[command(flatten)]
    pub(crate) rules: RulesInput,
    #[command(flatten)]
    pub(crate) trace: TraceInput,
    /// The table of the rules, if the file has several.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) table: u8,
    /// Simulated machine: paper, skylake-sp, zen3, zen4, sapphire-rapids, or a TOML file with `preset` and `[machine]` as for `flowlane sim run`;
    /// without it, this one.
    #[arg(long, value_name = "PRESET|FILE")]
    pub(crate) preset: Option<String>,
    /// This machine, as `flowlane sim calibrate --output` wrote it (or a preset), instead of measuring it again.
    #[arg(long, value_name = "FILE|PRESET")]
    pub(crate) host: Option<String>,
    /// Write the recorded software, its measured cycles and this machine to this folder, for `sim replay`.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) corpus: Option<PathBuf>,
    /// Offered rate at which latencies are looked at, too, in millions of packets a second.
    #[arg(long, value_name = "M/s", value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// Headers of packets: parsed (in a near cache) or nic (as the network interface has written them: in the shared cache or in
    /// memory, as the machine's `[nic]` says).
    #[arg(long, default_value = "parsed", value_name = "ARRIVAL")]
    pub(crate) arrival: String,
    /// Flows in an exact-match cache in front of the simulated tables; 0 for none.
    #[arg(long, default_value_t = 0, value_name = "FLOWS", value_parser = clap::value_parser!(u32).range(0..=1 << 22))]
    pub(crate) cache: u32,
    /// Extrapolate energy and area of TCAMs beyond the capacities of the paper's Table 4 (1 KB to 1 MB).
    #[arg(long)]
    pub(crate) extrapolate: bool,
    /// Look up this many packets by this method, under a recorder: how `what-if` calls itself.
    #[arg(long, hide = true, num_args = 2, value_names = ["METHOD", "PACKETS"])]
    pub(crate) recorded: Option<Vec<String>>,
    #[command(flatten)]
    pub(crate) report: SimReportOptions,
}

/// Reads a rate above zero.
fn rate(text: &str) -> Result<f64, String> {
    let rate: Option<f64> = text.parse().ok().filter(|rate| (1e-6..=1e6).contains(rate));
    rate.ok_or_else(|| "give a number from 0.000001 to 1000000".to_owned())
}
