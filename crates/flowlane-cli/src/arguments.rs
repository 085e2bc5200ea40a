//! Definitions of the command-line arguments.

mod bench;
#[cfg(feature = "query")]
mod query;
mod route;
mod sim;
mod switch;
mod tune;
mod values;
#[cfg(target_os = "linux")]
mod vswitchd;

pub(crate) use bench::{BenchOptions, BenchVerb, GuardOptions};
#[cfg(feature = "query")]
pub(crate) use query::QueryOptions;
pub(crate) use route::{
    FIB_VARIANTS, FibShape, RouteBenchOptions, RouteLookupOptions, RouteShowOptions, RouteVerb, RoutesFormat,
    RoutesInput,
};

pub(crate) use sim::{
    SimPaperOptions, SimRecordOptions, SimReportOptions, SimRunOptions, SimVerb, SimWhatIfOptions,
};
pub(crate) use switch::{RunningSwitch, SwitchOptions, SwitchVerb};
pub(crate) use tune::TuneOptions;
pub(crate) use values::OrAuto;
#[cfg(target_os = "linux")]
pub(crate) use vswitchd::{VswitchdOptions, with_levels};

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use flowlane::generate::{Locality, Profile};
use flowlane::isa::{MaxSimd, Variant};
use flowlane::rule::Format;

/// Packet classification and software switching with SIMD, GPUs and simulated accelerators.
#[derive(Debug, Parser)]
#[command(name = "flowlane", version, about, after_help = AFTER_HELP, propagate_version = true)]
pub(crate) struct Arguments {
    /// Widest SIMD registers to use, in bits: 64 (none), 128, 256 or 512.
    #[arg(long, global = true, value_name = "BITS", env = "FLOWLANE_MAX_SIMD")]
    pub(crate) max_simd: Option<MaxSimd>,
    /// Kernel selection file to use instead of the one that `flowlane tune` stored for this user; /dev/null for none.
    #[arg(long, global = true, value_name = "FILE", env = "FLOWLANE_TUNE")]
    pub(crate) tune: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

pub(crate) const AFTER_HELP: &str = "\
Examples:
  flowlane switch run examples/quickstart.toml
  flowlane classify --rules acl.rules --trace headers.trace --output verdicts.csv
  flowlane generate rules --profile acl --count 1000 --output acl.rules
  flowlane bench bloom --report bloom.html

Exit codes:
  0  done
  1  the requested check or comparison failed
  2  invalid input or usage
  3  a permission, device or driver is missing";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the matching rule for each packet of a trace or capture.
    Classify(ClassifyOptions),
    /// Query captures in SQL, with rule and route lookups as functions.
    #[cfg(feature = "query")]
    Query(QueryOptions),
    /// Query captures in SQL (not in this build: the feature `query` is off).
    #[cfg(not(feature = "query"))]
    Query {
        /// Arguments of a build with the SQL engine.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        asked: Vec<std::ffi::OsString>,
    },
    /// Run a software switch, check its configuration, or control a running one.
    #[command(subcommand)]
    Switch(SwitchVerb),
    /// Run bridges as an OVSDB asks for them, in the place of `ovs-vswitchd`.
    // `ovs-ctl` takes the last word of the line that names Open vSwitch.
    #[cfg(target_os = "linux")]
    #[command(long_version = concat!("(in the place of the daemon of Open vSwitch) ", env!("CARGO_PKG_VERSION")))]
    Vswitchd(VswitchdOptions),
    /// Look up routes, inspect a routing table, and benchmark it.
    #[command(subcommand)]
    Route(RouteVerb),
    /// Inspect and convert rule files.
    #[command(subcommand)]
    Rules(RulesVerb),
    /// Generate rules, header traces and captures from a seed.
    #[command(subcommand)]
    Generate(GenerateVerb),
    /// Measure which kernel of each table is fastest on this machine, and store the selection.
    Tune(TuneOptions),
    /// Benchmark the library on this machine: tables, JSON, or a page with plots.
    Bench(BenchOptions),
    /// Simulate flow classification near the caches (HALO) on this project's own tables.
    #[command(subcommand)]
    Sim(SimVerb),
    /// Check every engine and variant against the scalar reference, on random and adversarial input.
    Selftest(SelftestOptions),
    /// Print this machine's CPU, devices and usable variants.
    Cpu(CpuOptions),
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  flowlane completions bash > /etc/bash_completion.d/flowlane")]
    Completions {
        /// Shell to complete for.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory.
    ///
    /// One for each command, `flowlane.toml(5)` for configurations, and `flowlane-flows(7)` for rules.
    #[command(
        after_help = "Examples:\n  flowlane man pages && man -l pages/flowlane.toml.5\n  flowlane man docs --format markdown"
    )]
    Man {
        /// Output directory; created if missing.
        folder: PathBuf,
        /// Format of the pages.
        #[arg(long, value_enum, default_value_t = PageFormat::Man)]
        format: PageFormat,
    },
}

impl Command {
    /// Returns whether the command builds tables, and so needs the stored kernel selection.
    pub(crate) fn builds_tables(&self) -> bool {
        // `tune` and `cpu` load the selection themselves, to report its origin.
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

/// Format of the pages of the manual.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PageFormat {
    /// As `man` reads them.
    Man,
    /// Markdown: those for configurations and rules only.
    Markdown,
}

/// Format of a packet trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum TraceFormat {
    /// Detected from the content.
    Auto,
    /// ClassBench headers, one per line.
    Classbench,
    /// A pcap file.
    Pcap,
    /// A pcapng file.
    Pcapng,
}

/// Syntax of a rule file.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RulesSyntax {
    /// Format of the rule file: ClassBench filters (also lines of ClassBench-ng without actions, if named), or flows as ovs-ofctl
    /// reads them.
    #[arg(long, value_parser = values::or_auto::<Format>(), default_value = "auto", value_name = "FORMAT")]
    pub(crate) rules_format: OrAuto<Format>,
    /// Match the flags column of ClassBench filters too (published traces do not honour it).
    #[arg(long)]
    pub(crate) match_flags: bool,
}

/// A rule file.
#[derive(Debug, Args)]
pub(crate) struct RulesInput {
    /// Rule file (may be compressed by gzip or zstd): ClassBench filters, or flows as ovs-ofctl reads them.
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: PathBuf,
    #[command(flatten)]
    pub(crate) syntax: RulesSyntax,
}

impl RulesInput {
    /// A file whose format is detected.
    pub(crate) fn of(path: &Path) -> Self {
        let syntax = RulesSyntax { rules_format: OrAuto(None), match_flags: false };
        Self { rules: path.to_owned(), syntax }
    }
}

/// A file of packets.
#[derive(Debug, Args)]
pub(crate) struct TraceInput {
    /// Packets: a ClassBench header trace, or a capture (pcap, pcapng or snoop) of any size, with or without a snap length (may be
    /// compressed by gzip or zstd); - reads standard input. If records cannot be read, the exit code is 2.
    #[arg(long, value_name = "FILE", value_parser = values::input)]
    pub(crate) trace: PathBuf,
    /// Format of the trace.
    #[arg(long, value_enum, default_value = "auto", value_name = "FORMAT")]
    pub(crate) trace_format: TraceFormat,
    /// Ingress port number of captured packets.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) in_port: u32,
    /// Classify captured tunnel packets by their inner headers.
    #[arg(long)]
    pub(crate) decapsulate: bool,
}

/// The rule file that a command operates on.
#[derive(Debug, Args)]
pub(crate) struct RulesFile {
    /// Rule file (may be compressed by gzip or zstd): ClassBench filters, or flows as ovs-ofctl reads them.
    #[arg(value_name = "FILE")]
    rules: PathBuf,
    #[command(flatten)]
    syntax: RulesSyntax,
}

impl RulesFile {
    /// Converts to the form that other commands take.
    pub(crate) fn input(&self) -> RulesInput {
        RulesInput { rules: self.rules.clone(), syntax: self.syntax }
    }
}

const CLASSIFY_HELP: &str = "\
Writes CSV with the header `packet,rule,priority,action`: packet is a 0-based index; rule is the 0-based \
position of the matching rule in the list of its file's rules, which `flowlane rules show --list` prints, empty if no \
rule matched. In the list, a flow with the table, priority and match of an earlier one takes that one's place. A summary \
goes to standard error.

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
    /// Engine: auto (fastest on a sample of these packets), linear, tuple, acl (an access list; its engine depends on its
    /// size), brute, tree or dynamic; on a CUDA device gpu (fastest method), gpu-linear, gpu-tuple, gpu-bloom, gpu-vector,
    /// gpu-filtered or gpu-pruned; on all CPU cores through OpenCL opencl-linear, opencl-tuple or opencl-bloom.
    #[arg(long, default_value = "auto", value_name = "NAME")]
    pub(crate) engine: String,
    /// CUDA or OpenCL device, numbered from 0.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) device: usize,
    /// Packets per batch on a CUDA or OpenCL device.
    #[arg(long, default_value_t = 8192, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) batch: u32,
    /// Variant of the engine: scalar, sse42, avx2, avx512 or neon; linear and tuple are scalar only.
    #[arg(long, value_name = "NAME", value_parser = values::named::<Variant>())]
    pub(crate) variant: Option<Variant>,
    /// Memory limit of an access list's engines, or of a table on a device, in bytes.
    #[arg(long, default_value = "4G", value_name = "BYTES", value_parser = values::bytes)]
    pub(crate) memory_max: usize,
    /// Explain the lookup of this packet (numbered from 0) instead of classifying: the winning rule, the next best, how
    /// much is read, and the bits that the result depends on.
    #[arg(long, value_name = "PACKET", conflicts_with = "check")]
    pub(crate) explain: Option<u64>,
    /// OpenFlow table to classify with, if the file has several.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) table: u8,
    /// Further rule file, up to 15 times: each packet gets a verdict from every file in one pass, in columns of its own.
    /// Requires an access-list engine.
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    pub(crate) also: Vec<PathBuf>,
    /// Threads that parse, look up and write [default: the number of cores; 1 with a device]. Verdicts stay in packet
    /// order.
    #[arg(long, value_name = "N", value_parser = values::threads)]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Write each rule's hit count here, as CSV.
    #[arg(long, value_name = "FILE", conflicts_with = "explain")]
    pub(crate) hits: Option<PathBuf>,
    /// Compare every verdict with linear search; exit with 1 on a difference.
    #[arg(long)]
    pub(crate) check: bool,
    /// Write verdicts here instead of to standard output: CSV, or columns if the name ends in .parquet or .arrow (requires
    /// a build with `query`).
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write verdicts and summary as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
}

const RULES_CONVERT_HELP: &str = "\
With --from, the chain FORWARD, the chain of the hook forward, or the first access list becomes flows; the first rule has \
the highest priority, and the policy is the last. What flows cannot say is listed on standard error, with its line, and \
left out. Interfaces become in_port=NAME, with names as of [[port]]. States of connections become ct_state, with the list in \
table 1 behind connection tracking; on a bridge, flows for ARP and neighbour discovery \
are needed in addition (README.md).

Examples:
  flowlane rules convert acl.rules --to flows --output acl.flows
  iptables-save | flowlane rules convert /dev/stdin --from iptables --output fw.flows
  nft -j list ruleset > nft.json; flowlane rules convert nft.json --from nft --strict
  flowlane rules convert router.cfg --from cisco";

/// Another firewall.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Source {
    /// The output of iptables-save or ip6tables-save.
    Iptables,
    /// The output of nft -j list ruleset.
    Nft,
    /// Extended access lists of Cisco IOS.
    Cisco,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RulesVerb {
    /// Print a rule file's fields, masks and ranges.
    #[command(
        after_help = "Examples:\n  flowlane rules show acl.rules\n  flowlane rules show fw.flows --list"
    )]
    Show {
        #[command(flatten)]
        rules: RulesFile,
        /// List the rules as well.
        #[arg(long)]
        list: bool,
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Convert a rule file to another format.
    #[command(after_help = RULES_CONVERT_HELP)]
    Convert {
        #[command(flatten)]
        rules: RulesFile,
        /// Output format; auto: classbench for 5-tuple rules, else flows.
        #[arg(long, value_parser = values::or_auto::<Format>(), required_unless_present = "from")]
        to: Option<OrAuto<Format>>,
        /// The file is of another firewall: its rules for forwarded packets become flows.
        #[arg(long, value_enum, value_name = "FIREWALL", conflicts_with = "to")]
        from: Option<Source>,
        /// Exit with 1 if a part of the other firewall's rules was left out.
        #[arg(long, requires = "from")]
        strict: bool,
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
  acl        access list: long source and destination prefixes, exact destination ports
  fw         firewall: one address wildcarded in most rules; source ports and port ranges
  ipc        IP chains: a mixture
  openflow   the 12 fields of OpenFlow 1.0
Other kinds of network:
  ranges     long firewall: few prefix pairs, many port ranges
  groups     cloud security groups: few address blocks times many ports
  blocklist  hosts to drop: source addresses only
  acl6       IPv6 access list
  mixed      IPv4 and IPv6 access list
Adversarial for some engines:
  masks      all prefix lengths on both sides, uniformly: hundreds of masks
  nested     nested prefixes of all lengths on both sides
  disjoint   no two rules overlap
  overlap    mostly wildcards: nearly all rules overlap
  cuts       every cut duplicates rules: long prefixes on one side, any on the other
  chains     rules differ in port ranges only";

#[derive(Debug, Subcommand)]
pub(crate) enum GenerateVerb {
    /// Generate a rule set with a realistic structure.
    #[command(after_help = GENERATE_RULES_HELP)]
    Rules {
        /// Structure of the rules.
        #[arg(long, default_value = "acl", value_name = "NAME", value_parser = values::named::<Profile>(), conflicts_with = "seed_file")]
        profile: Profile,
        /// Take the structure from a ClassBench parameter file.
        #[arg(long, value_name = "FILE")]
        seed_file: Option<PathBuf>,
        /// Number of rules.
        #[arg(long, default_value_t = 1000, value_name = "N")]
        count: usize,
        /// Number of distinct masks [default: the profile's own]. For acl, fw, ipc and openflow.
        #[arg(long, value_name = "N", conflicts_with = "seed_file")]
        masks: Option<usize>,
        /// Share of rules nested inside or around other rules, 0 to 1. For acl, fw, ipc and openflow.
        #[arg(long, value_name = "SHARE", conflicts_with = "seed_file")]
        overlap: Option<f64>,
        /// Share of rules that duplicate the match of an earlier rule and so never match, 0 to 1.
        #[arg(long, default_value_t = 0.0, value_name = "SHARE", conflicts_with = "seed_file")]
        duplicates: f64,
        /// With --seed-file: how far prefix lengths may deviate, 0 to 64.
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
        /// Seed of the rule set.
        #[arg(long, default_value_t = 1, value_name = "N")]
        seed: u64,
        /// Output format; auto: classbench for 5-tuple rules, else flows.
        #[arg(long, value_parser = values::or_auto::<Format>(), default_value = "auto", value_name = "FORMAT")]
        format: OrAuto<Format>,
        /// Write here instead of to standard output.
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Generate a ClassBench header trace for a 5-tuple rule set.
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
    /// Generate a packet capture for a rule set.
    #[command(
        after_help = "Example:\n  flowlane generate pcap --rules fw.flows --count 10000 --output fw.pcap"
    )]
    Pcap {
        #[command(flatten)]
        rules: RulesInput,
        #[command(flatten)]
        trace: TraceShape,
        /// Frame length in bytes, without FCS; longer if the headers need it.
        #[arg(long, default_value = "60", value_name = "BYTES", value_parser = values::bytes)]
        size: usize,
        /// Capture to write: pcapng if the name ends in .pcapng, else pcap.
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
}

/// Shape of a generated trace.
#[derive(Debug, Args)]
pub(crate) struct TraceShape {
    /// Number of packets.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub(crate) count: usize,
    /// Number of distinct headers [default: a new header per packet or burst].
    #[arg(long, value_name = "N")]
    pub(crate) flows: Option<usize>,
    /// Distribution of packets over headers: uniform, zipf:S or pareto:A,B.
    #[arg(long, default_value = "uniform", value_name = "LOCALITY")]
    pub(crate) locality: Locality,
    /// Share of headers that match no rule, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub(crate) miss: f64,
    /// Seed of the trace.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
}

fn variant_names() -> PossibleValuesParser {
    PossibleValuesParser::new(Variant::ALL.map(Variant::name))
}

const SELFTEST_HELP: &str = "\
Each round generates a rule set from its seed. The first difference is reported with its seed, engine and input, \
and ends the run with exit code 1; that line is sufficient for a bug report.

Examples:
  flowlane selftest
  flowlane selftest --seconds 3600 --seed 1000000
  flowlane selftest --part acl --size 2000";

#[derive(Debug, Args)]
#[command(after_help = SELFTEST_HELP)]
pub(crate) struct SelftestOptions {
    /// Approximate duration in seconds; every part runs at least once.
    #[arg(long, default_value_t = 10.0, value_name = "S")]
    pub(crate) seconds: f64,
    /// Seed of the first round; each further round adds 1.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Maximum number of rules of a set.
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub(crate) size: usize,
    /// Run only this part; repeatable.
    #[arg(long = "part", value_name = "NAME", value_parser = part_names())]
    pub(crate) parts: Vec<String>,
    /// Print the comparison counts as JSON.
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
