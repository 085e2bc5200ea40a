//! The command line.

#[cfg(feature = "query")]
mod query;
mod route;
mod sim;
mod switch;
mod values;

#[cfg(feature = "query")]
pub(crate) use query::{AnswerFormat, QueryOptions};
pub(crate) use route::{
    FibShape, RouteBenchOptions, RouteLookupOptions, RouteShowOptions, RouteVerb, RoutesFormat, RoutesInput,
};

pub(crate) use sim::{SimPaperOptions, SimReportOptions, SimVerb, SimWhatIfOptions};
pub(crate) use switch::{Running, SwitchOptions, SwitchVerb};

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use flowlane::isa::Variant;
use flowlane::tune::Budget;
use flowlane_bench::Topic;

/// Packet classification and software switching on every lane of a machine.
#[derive(Debug, Parser)]
#[command(name = "flowlane", version, about, after_help = AFTER_HELP, propagate_version = true)]
pub(crate) struct Arguments {
    /// Widest SIMD registers to use, in bits: 64 (none), 128, 256 or 512.
    #[arg(long, global = true, value_name = "BITS", env = "FLOWLANE_MAX_SIMD")]
    pub(crate) max_simd: Option<String>,
    /// File of the choices that `flowlane tune` stored, instead of the user's; /dev/null for none.
    #[arg(long, global = true, value_name = "FILE", env = "FLOWLANE_TUNE")]
    pub(crate) tune: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  flowlane switch run examples/quickstart.toml
  flowlane classify --rules acl.rules --trace headers.trace --output verdicts.csv
  flowlane generate rules --profile acl --count 1000 --output acl.rules
  flowlane bench bloom --report bloom.html

Exit codes:
  0  done
  1  the check or comparison that was asked for failed
  2  bad input or usage
  3  the environment lacks something: a permission, a device, a driver";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say which rule wins for each packet of a trace or capture.
    Classify(ClassifyOptions),
    /// Ask captures in SQL, with rules and routes as functions.
    #[cfg(feature = "query")]
    Query(QueryOptions),
    /// Ask captures in SQL: not in this build, which was made without its SQL engine.
    #[cfg(not(feature = "query"))]
    Query {
        /// What a build with the engine would be asked.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        asked: Vec<std::ffi::OsString>,
    },
    /// Run a software switch, or check its configuration.
    #[command(subcommand)]
    Switch(SwitchVerb),
    /// Look routes up, show what is in a table, and measure it.
    #[command(subcommand)]
    Route(RouteVerb),
    /// Look at rule files and convert them.
    #[command(subcommand)]
    Rules(RulesVerb),
    /// Generate rules, header traces and captures, reproducibly.
    #[command(subcommand)]
    Generate(GenerateVerb),
    /// Measure which variant of each table is fastest on this machine, and keep it.
    Tune(TuneOptions),
    /// Measure the library on this machine: tables, JSON, or a page with plots.
    Bench(BenchOptions),
    /// Simulate flow classification beside the caches (HALO), on this project's own tables.
    #[command(subcommand)]
    Sim(SimVerb),
    /// Compare every engine in every variant with its definition, on random and adversarial input.
    Selftest(SelftestOptions),
    /// Describe this machine's CPU and the variants that it can run.
    Cpu(CpuOptions),
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  flowlane completions bash > /etc/bash_completion.d/flowlane")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    #[command(after_help = "Example:\n  flowlane man man1 && man -l man1/flowlane.1")]
    Man {
        /// The folder; made if it is not there.
        folder: PathBuf,
    },
}

impl Command {
    /// Whether it uses tables, and so the choices that `tune` stored.
    pub(crate) fn builds_tables(&self) -> bool {
        // `tune` and `cpu` load the choices themselves, to say where they come from.
        !matches!(
            self,
            Self::Rules(_)
                | Self::Generate(_)
                | Self::Tune(_)
                | Self::Cpu(_)
                | Self::Completions { .. }
                | Self::Man { .. }
        )
    }
}

/// How a rule file is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum RulesFormat {
    /// By its content.
    Auto,
    /// ClassBench filters.
    Classbench,
    /// Flows as ovs-ofctl reads them.
    Flows,
}

/// How a trace is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum TraceFormat {
    /// By its content.
    Auto,
    /// ClassBench headers, one a line.
    Classbench,
    /// A pcap file.
    Pcap,
    /// A pcapng file.
    Pcapng,
}

/// A rule file.
#[derive(Debug, Args)]
pub(crate) struct RulesInput {
    /// Rule file (may be packed by gzip or zstd): ClassBench filters or flows as ovs-ofctl reads them.
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: PathBuf,
    /// How the rule file is written.
    #[arg(long, value_enum, default_value = "auto", value_name = "FORMAT")]
    pub(crate) rules_format: RulesFormat,
    /// Match the flags column of ClassBench filters too (the published traces do not honour it).
    #[arg(long)]
    pub(crate) match_flags: bool,
}

impl RulesInput {
    /// A file in whichever format.
    pub(crate) fn of(path: &Path) -> Self {
        Self { rules: path.to_owned(), rules_format: RulesFormat::Auto, match_flags: false }
    }
}

/// A file of packets.
#[derive(Debug, Args)]
pub(crate) struct TraceInput {
    /// Packets: a ClassBench header trace, or a capture: pcap or pcapng, of any length, cut by a snap length or not (either may
    /// be packed by gzip or zstd); - is standard input.
    #[arg(long, value_name = "FILE", value_parser = values::input)]
    pub(crate) trace: PathBuf,
    /// How the trace is written.
    #[arg(long, value_enum, default_value = "auto", value_name = "FORMAT")]
    pub(crate) trace_format: TraceFormat,
    /// Port number that captured packets count as received on.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) in_port: u32,
    /// Classify captured tunnel packets by what is inside.
    #[arg(long)]
    pub(crate) decapsulate: bool,
}

/// A rule file that a command is about.
#[derive(Debug, Args)]
pub(crate) struct RulesFile {
    /// Rule file (may be packed by gzip or zstd): ClassBench filters or flows as ovs-ofctl reads them.
    #[arg(value_name = "FILE")]
    rules: PathBuf,
    /// How the rule file is written.
    #[arg(long, value_enum, default_value = "auto", value_name = "FORMAT")]
    rules_format: RulesFormat,
    /// Match the flags column of ClassBench filters too (the published traces do not honour it).
    #[arg(long)]
    match_flags: bool,
}

impl RulesFile {
    /// The same as other commands name it.
    pub(crate) fn input(&self) -> RulesInput {
        RulesInput {
            rules: self.rules.clone(),
            rules_format: self.rules_format,
            match_flags: self.match_flags,
        }
    }
}

const CLASSIFY_HELP: &str = "\
Writes CSV with the header `packet,rule,priority,action`: packet counts from 0; rule is the 0-based \
position of the winning rule in its file, empty where none matched. A summary goes to standard error.

Examples:
  flowlane classify --rules acl.rules --trace acl.trace
  flowlane classify --rules acl.rules --trace acl.trace --engine tuple --check --output /dev/null
  flowlane classify --rules fw.flows --trace site.pcapng --json
  flowlane classify --rules acl.rules --trace acl.trace --engine tree --explain 17
  flowlane classify --rules filter.flows --also qos.flows --trace capture.pcap --hits hits.csv";

#[derive(Debug, Args)]
#[command(after_help = CLASSIFY_HELP)]
pub(crate) struct ClassifyOptions {
    #[command(flatten)]
    pub(crate) rules: RulesInput,
    #[command(flatten)]
    pub(crate) trace: TraceInput,
    /// Engine: auto (the fastest for these rules and packets, as measured), linear, tuple, acl (an access list with
    /// the engine that suits its size), brute, tree or dynamic; on a CUDA device gpu (the fastest there), gpu-linear,
    /// gpu-tuple, gpu-bloom, gpu-vector, gpu-filtered or gpu-pruned; on all cores of the CPU through OpenCL opencl-linear,
    /// opencl-tuple or opencl-bloom.
    #[arg(long, default_value = "auto", value_name = "NAME")]
    pub(crate) engine: String,
    /// The CUDA device, or the OpenCL device, counted from 0.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) device: usize,
    /// Packets that a CUDA or OpenCL device looks up at a time.
    #[arg(long, default_value_t = 8192, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) batch: u32,
    /// Variant of the engine: scalar, sse42, avx2 or avx512; linear and tuple have scalar only.
    #[arg(long, value_name = "NAME")]
    pub(crate) variant: Option<String>,
    /// Most bytes that the engines of access lists, or a table on a device, may take.
    #[arg(long, default_value = "4G", value_name = "BYTES", value_parser = values::bytes)]
    pub(crate) memory_max: usize,
    /// Say how the answer for this packet (counted from 0) comes about, instead of classifying: which rule wins,
    /// which comes next, how much is read, and on which bits it depends.
    #[arg(long, value_name = "PACKET", conflicts_with = "check")]
    pub(crate) explain: Option<u64>,
    /// Table of the rules to classify with, where the file has several.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) table: u8,
    /// Another rule file, for another question: each packet gets a verdict by each file, all in one pass, in columns of
    /// their own; may be given up to 15 times. With engines of access lists.
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    pub(crate) also: Vec<PathBuf>,
    /// Threads that parse, look up and write; as many as there are cores where it is left out, and one where a device
    /// looks up. Verdicts come in the packets' order all the same.
    #[arg(long, value_name = "N", value_parser = values::threads)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Write how often each rule won here, as CSV.
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    pub(crate) hits: Option<PathBuf>,
    /// Compare every verdict with linear search; exit with 1 at a difference.
    #[arg(long)]
    pub(crate) check: bool,
    /// Write verdicts here instead of to standard output: CSV, or columns where it is called .parquet or .arrow (in builds
    /// with `query`).
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write verdicts and summary as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RulesVerb {
    /// Say what is in a rule file: fields, masks, ranges.
    #[command(
        after_help = "Examples:\n  flowlane rules show acl.rules\n  flowlane rules show fw.flows --list"
    )]
    Show {
        #[command(flatten)]
        rules: RulesFile,
        /// List the rules, too.
        #[arg(long)]
        list: bool,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write a rule file in another format.
    #[command(after_help = "Example:\n  flowlane rules convert acl.rules --to flows --output acl.flows")]
    Convert {
        #[command(flatten)]
        rules: RulesFile,
        /// The format to write: classbench or flows.
        #[arg(long, value_enum)]
        to: RulesFormat,
        /// Write here instead of to standard output.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

const GENERATE_RULES_HELP: &str = "\
Examples:
  flowlane generate rules --profile fw --count 10000 --seed 7 --output fw.rules
  flowlane generate rules --profile openflow --count 4096 --masks 64 --format flows
  flowlane generate rules --profile nested --count 10000 --duplicates 0.05
  flowlane generate rules --seed-file acl1_seed --count 1000

Profiles like published rule sets:
  acl        access list: long prefixes on both sides, exact destination ports
  fw         firewall: one side wild in most rules, source ports and ranges too
  ipc        IP chains: a mixture
  openflow   the 12 fields of OpenFlow 1.0
Profiles of other networks:
  ranges     firewall of long lists: few pairs of prefixes, many port ranges
  groups     security groups of a cloud: few address blocks times many ports
  blocklist  hosts to be dropped: source addresses and nothing else
  acl6       access list of IPv6
  mixed      access list of IPv4 and IPv6
Profiles that are hard for some engines:
  masks      all lengths of both prefixes, equally often: hundreds of masks
  nested     prefixes of all lengths, nested in one another on both sides
  disjoint   no two rules match a common packet
  overlap    nearly everything is wild: nearly all rules overlap
  cuts       every cut copies rules: long prefixes on one side, any on the other
  chains     the same addresses and protocol, and nothing but port ranges differ";

#[derive(Debug, Subcommand)]
pub(crate) enum GenerateVerb {
    /// A rule set with a realistic structure.
    #[command(after_help = GENERATE_RULES_HELP)]
    Rules {
        /// Structure: acl, fw, ipc, openflow, ranges, groups, blocklist, acl6, mixed, masks, nested, disjoint,
        /// overlap, cuts or chains.
        #[arg(long, default_value = "acl", value_name = "NAME", conflicts_with = "seed_file")]
        profile: String,
        /// Structure from a ClassBench parameter file.
        #[arg(long, value_name = "FILE")]
        seed_file: Option<PathBuf>,
        /// Number of rules.
        #[arg(long, default_value_t = 1000, value_name = "N")]
        count: usize,
        /// Number of distinct masks; the profile's own number where left out. For acl, fw, ipc and openflow.
        #[arg(long, value_name = "N", conflicts_with = "seed_file")]
        masks: Option<usize>,
        /// Share of rules placed inside or around others, 0 to 1. For acl, fw, ipc and openflow.
        #[arg(long, value_name = "SHARE", conflicts_with = "seed_file")]
        overlap: Option<f64>,
        /// Share of rules that repeat the match of an earlier one and so never win, 0 to 1.
        #[arg(long, default_value_t = 0.0, value_name = "SHARE", conflicts_with = "seed_file")]
        duplicates: f64,
        /// With --seed-file: how far prefix lengths may stray, 0 to 64.
        #[arg(long, default_value_t = 0, value_name = "N", requires = "seed_file")]
        smoothness: u32,
        /// With --seed-file: -1 to 1, larger for shorter prefixes.
        #[arg(
            long,
            default_value_t = 0.0,
            value_name = "X",
            requires = "seed_file",
            allow_negative_numbers = true
        )]
        address_scope: f64,
        /// With --seed-file: -1 to 1, larger for wider port classes.
        #[arg(
            long,
            default_value_t = 0.0,
            value_name = "X",
            requires = "seed_file",
            allow_negative_numbers = true
        )]
        port_scope: f64,
        /// Another seed, another rule set.
        #[arg(long, default_value_t = 1, value_name = "N")]
        seed: u64,
        /// How to write it; auto: classbench for 5-tuple rules, else flows.
        #[arg(long, value_enum, default_value = "auto", value_name = "FORMAT")]
        format: RulesFormat,
        /// Write here instead of to standard output.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// A ClassBench header trace for a 5-tuple rule set.
    #[command(
        after_help = "Example:\n  flowlane generate trace --rules acl.rules --count 100000 --locality zipf:1.1"
    )]
    Trace {
        #[command(flatten)]
        rules: RulesInput,
        #[command(flatten)]
        trace: TraceShape,
        /// Write here instead of to standard output.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// A capture of packets for a rule set.
    #[command(
        after_help = "Example:\n  flowlane generate pcap --rules fw.flows --count 10000 --output fw.pcap"
    )]
    Pcap {
        #[command(flatten)]
        rules: RulesInput,
        #[command(flatten)]
        trace: TraceShape,
        /// Bytes of each frame, without the checksum; longer where the headers need it.
        #[arg(long, default_value_t = 60, value_name = "BYTES")]
        size: usize,
        /// The capture: .pcapng for that format, else pcap.
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
}

/// What a generated trace is like.
#[derive(Debug, Args)]
pub(crate) struct TraceShape {
    /// Number of packets.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub(crate) count: usize,
    /// Number of distinct headers; where left out, a new one for every packet or burst.
    #[arg(long, value_name = "N")]
    pub(crate) flows: Option<usize>,
    /// How often the same header comes again: uniform, zipf:S or pareto:A,B.
    #[arg(long, default_value = "uniform", value_name = "LOCALITY")]
    pub(crate) locality: String,
    /// Share of headers that match no rule, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub(crate) miss: f64,
    /// Another seed, another trace.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
}

const BENCH_HELP: &str = "\
Implementations take turns within one run. Tables show medians and the largest distance of a quartile from the \
median. Figures 5 to 9 are those of a paper (Leveraging SIMD Parallelism for Accelerating Network Applications, \
APNet 2020); the ratios that its text states are shown next to the measured ones.

Examples:
  flowlane bench bloom --report bloom.html
  flowlane bench bloom --kernel staged --kernel expandload/u4 --seconds 20
  flowlane bench megaflow --variant avx2 --variant avx512 --json > megaflow.json
  flowlane bench acl --rules edge.rules --rules core.rules.gz --seconds 60
  flowlane bench fib --routes table.txt.gz --report fib.html
  flowlane bench all --quick

Built with --features peers, `bloom` and `parse` measure other crates in the same run; with --features \
peers-dpdk, `cuckoo` measures DPDK's rte_hash, `acl` its rte_acl, and `fib` its rte_fib and rte_fib6. With \
--seconds 120 or more, `acl` also measures sets of a million rules.";

#[derive(Debug, Args)]
#[command(after_help = BENCH_HELP)]
pub(crate) struct BenchOptions {
    /// The topic to measure.
    #[arg(value_name = "NAME", value_parser = bench_names())]
    pub(crate) name: String,
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
    /// Print everything as JSON, with machine, date and command.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write an HTML page with plots, tables, machine and command to this file.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

/// The topics, and `all`.
fn bench_names() -> PossibleValuesParser {
    PossibleValuesParser::new(Topic::ALL.map(Topic::name).into_iter().chain(["all"]))
}

fn variant_names() -> PossibleValuesParser {
    PossibleValuesParser::new(Variant::ALL.map(Variant::name))
}

const SELFTEST_HELP: &str = "\
Every round is another rule set, made from the seed that it is named by. At the first difference it says with which \
seed, engine and input, and exits with 1: that line is all that a report needs.

Examples:
  flowlane selftest
  flowlane selftest --seconds 3600 --seed 1000000
  flowlane selftest --part acl --size 2000";

#[derive(Debug, Args)]
#[command(after_help = SELFTEST_HELP)]
pub(crate) struct SelftestOptions {
    /// About so many seconds; one round of each part at least.
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    pub(crate) seconds: f64,
    /// The first round's seed; the following ones count up.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Most rules of a set.
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub(crate) size: usize,
    /// Only this part; may be given several times.
    #[arg(long = "part", value_name = "NAME", value_parser = part_names())]
    pub(crate) parts: Vec<String>,
    /// Print what was compared as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn part_names() -> PossibleValuesParser {
    PossibleValuesParser::new(flowlane::check::PARTS.iter().map(|part| part.name))
}

#[derive(Debug, Args)]
pub(crate) struct CpuOptions {
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const TUNE_HELP: &str = "\
Takes a few seconds. Every other command takes its choices from the file that this one writes, \
$XDG_CONFIG_HOME/flowlane/tune.toml or ~/.config/flowlane/tune.toml; without it, from the table built in for the \
CPU's family. A variant that is named explicitly always wins.

Examples:
  flowlane tune
  flowlane tune --show
  flowlane tune --quick --dry-run --json";

#[derive(Debug, Args)]
#[command(after_help = TUNE_HELP)]
pub(crate) struct TuneOptions {
    /// Store the choices here.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Measure, and store nothing.
    #[arg(long, conflicts_with = "output")]
    pub(crate) dry_run: bool,
    /// Measure for about a second, in fewer rounds.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Make no filter and no cuckoo table of more MiB, where memory is short: larger sizes are then judged by smaller ones.
    /// (Tables of routes take 64 MiB in any case.)
    #[arg(long, value_name = "MIB", default_value_t = Budget::TABLE_BYTES_MAX >> 20, value_parser = clap::value_parser!(u64).range(1..=Budget::TABLE_BYTES_MAX >> 20))]
    pub(crate) table_max: u64,
    /// Measure nothing; show what is in use, and where it comes from.
    #[arg(long, conflicts_with_all = ["output", "dry_run", "quick", "table_max"])]
    pub(crate) show: bool,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
