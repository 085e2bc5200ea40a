//! Arguments of `flowlane bench`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use flowlane_bench::Topic;

use super::variant_names;

const BENCH_HELP: &str = "\
Implementations take turns within one run. Tables show medians and the largest distance of a quartile from the \
median. Figures 5 to 9 are those of a paper (Leveraging SIMD Parallelism for Accelerating Network Applications, \
APNet 2020); the ratios that its text states are shown next to the measured ones. Where standard error is not a \
terminal, each comparison is written there as soon as it is measured.

Examples:
  flowlane bench bloom --report bloom.html
  flowlane bench bloom --kernel staged --kernel expandload/u4 --seconds 20
  flowlane bench megaflow --variant avx2 --variant avx512 --json > megaflow.json
  flowlane bench acl --rules edge.rules --rules core.rules.gz --seconds 60
  flowlane bench fib --routes table.txt.gz --report fib.html
  flowlane bench all --quick
  flowlane bench guard --against v1.2.0

Built with --features peers, `bloom` and `parse` measure other crates in the same run; with --features \
peers-dpdk, `cuckoo` measures DPDK's rte_hash, `acl` its rte_acl, and `fib` its rte_fib and rte_fib6. With \
--seconds 120 or more, `acl` also measures sets of a million rules.";

#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct BenchOptions {
    #[command(subcommand)]
    pub(crate) verb: Option<BenchVerb>,
    /// The topic to measure.
    #[arg(value_name = "NAME", value_parser = bench_names(), required = true)]
    pub(crate) name: Option<String>,
    /// Measure only this variant; may be repeated.
    #[arg(long = "variant", value_name = "NAME", value_parser = variant_names())]
    pub(crate) variants: Vec<String>,
    /// Measure only Bloom kernels with this part in their names, and the baselines of ratios; may be repeated.
    #[arg(long = "kernel", value_name = "PART")]
    pub(crate) kernels: Vec<String>,
    /// With `fib`: measure these routes (in any format that `flowlane route` reads) instead of generated ones.
    #[arg(long, value_name = "FILE")]
    pub(crate) routes: Option<PathBuf>,
    /// With `acl` and `acl-matrix`: measure the IPv4 5-tuple rules of this file (in any format that `flowlane classify` reads)
    /// instead of generated ones; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Vec<PathBuf>,
    /// Use small workloads and few rounds, to check that everything works; the figures are meaningless.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure for about this long in total, without the construction of workloads; at least a few rounds.
    #[arg(long, value_name = "S", conflicts_with = "rounds", allow_negative_numbers = true)]
    pub(crate) seconds: Option<f64>,
    /// The exact number of rounds of each comparison.
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,
    /// Print the results as JSON, with machine, date and command.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write an HTML page with plots, tables, machine and command to this file.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchVerb {
    /// Compare this build with another one, in turn, and fail where it is slower.
    Guard(GuardOptions),
}

const GUARD_HELP: &str = "\
The two builds run the same topics in turn, each first in every other pair, so that a machine that becomes slower slows both. A \
series is the geometric mean of its places; its ratio is the other build's time over this one's, above 1 if this build is faster. \
The median of the pairs counts. A series fails if it is below the limit and the pairs agree: at least three in four are below 1. \
Let nothing else run.

Exit codes: 0 if no series fails, 1 if one does.

Examples:
  flowlane bench guard --against target/before/flowlane
  flowlane bench guard --against HEAD~5 --topic acl --topic fib --pairs 9
  flowlane bench guard --against v1.2.0 --seconds 60 --json > guard.json";

#[derive(Debug, Args)]
#[command(after_help = GUARD_HELP)]
pub(crate) struct GuardOptions {
    /// The other build: a program, or a commit of the repository in this directory, which is built in release mode.
    #[arg(long, value_name = "PROGRAM|COMMIT")]
    pub(crate) against: std::ffi::OsString,
    /// Compare this topic; may be repeated [default: those of the library's tables].
    #[arg(long = "topic", value_name = "NAME", value_parser = bench_names())]
    pub(crate) topics: Vec<String>,
    /// Times that each build runs.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pairs: u32,
    /// Seconds of each run of a topic.
    #[arg(long, default_value_t = 10, value_name = "S", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: u32,
    /// The ratio below which a series fails.
    #[arg(long, default_value_t = 0.95, value_name = "RATIO")]
    pub(crate) least: f64,
    /// Use small workloads, to check that everything works; the figures are meaningless.
    #[arg(long, conflicts_with = "seconds")]
    pub(crate) quick: bool,
    /// Print all ratios as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Names of the topics, and `all`.
fn bench_names() -> PossibleValuesParser {
    PossibleValuesParser::new(Topic::ALL.map(Topic::name).into_iter().chain(["all"]))
}
