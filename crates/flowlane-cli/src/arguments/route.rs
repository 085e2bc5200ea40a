//! The arguments of `flowlane route`.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use flowlane::route::HopSize;
use flowlane::route::engine::Engine;
use flowlane::route::read::AnyPrefix;

/// Most routes of a file, where nothing else is asked for.
const ROUTES_MAX: usize = 10_000_000;

/// How a file of routes is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum RoutesFormat {
    /// By its content.
    Auto,
    /// A prefix and perhaps its next hop a line.
    Plain,
    /// What `ip route` prints.
    IpRoute,
    /// An MRT dump of a table.
    Mrt,
}

/// A file of routes.
#[derive(Debug, Args)]
pub(crate) struct RoutesInput {
    /// Routes (may be packed by gzip or zstd): prefixes with next hops, the output of `ip route`, or an MRT dump.
    #[arg(long, value_name = "FILE")]
    pub(crate) routes: PathBuf,
    /// How the routes are written.
    #[arg(long, value_enum, default_value = "auto", value_name = "FORMAT")]
    pub(crate) routes_format: RoutesFormat,
    /// Of `ip route show table all`, the table to read.
    #[arg(long, default_value = "main", value_name = "NAME")]
    pub(crate) table: String,
    /// Refuse files with more routes.
    #[arg(long, default_value_t = ROUTES_MAX, value_name = "N")]
    pub(crate) routes_max: usize,
}

impl RoutesInput {
    /// A file in whichever format.
    pub(crate) fn of(path: &Path) -> Self {
        let (routes, table) = (path.to_owned(), "main".to_owned());
        Self { routes, routes_format: RoutesFormat::Auto, table, routes_max: ROUTES_MAX }
    }
}

/// How forwarding tables are made.
#[derive(Debug, Args)]
pub(crate) struct FibShape {
    /// Bytes of a next hop: 1, 2, 4 or 8; where left out, as few as hold all.
    #[arg(long, value_name = "BYTES")]
    pub(crate) hop_size: Option<HopSize>,
    /// Next hop of addresses without a route.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) default_next_hop: u64,
    /// Most memory that a forwarding table may take, in MiB.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    pub(crate) memory_max: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RouteVerb {
    /// Say which route each address takes.
    #[command(after_help = LOOKUP_HELP)]
    Lookup(RouteLookupOptions),
    /// Say what is in a file of routes, and how large its forwarding tables are.
    #[command(after_help = SHOW_HELP)]
    Show(RouteShowOptions),
    /// Measure every engine and variant on a file of routes.
    #[command(after_help = BENCH_HELP)]
    Bench(RouteBenchOptions),
}

const LOOKUP_HELP: &str = "\
Addresses as arguments give a table; a file of them gives CSV with the header `address,prefix,next_hop,via`, where \
prefix is empty if there is no route, and a summary on standard error. Every answer of the engine is compared with \
the longest prefix of the routes themselves; exit with 1 at a difference.

Examples:
  ip route show | flowlane route lookup --routes /dev/stdin 192.0.2.1
  flowlane route lookup --routes table.txt.gz 192.0.2.1 2001:db8::1
  flowlane route lookup --routes rib.mrt --engine compact --variant avx512 --addresses seen.txt --output hops.csv";

#[derive(Debug, Args)]
pub(crate) struct RouteLookupOptions {
    #[command(flatten)]
    pub(crate) routes: RoutesInput,
    /// Addresses, one a line (may be packed by gzip or zstd).
    #[arg(long, value_name = "FILE")]
    pub(crate) addresses: Option<PathBuf>,
    /// Engine: auto, dir24 (IPv4) or compact (both).
    #[arg(long, default_value = "auto", value_name = "NAME", value_parser = engine_names())]
    pub(crate) engine: String,
    /// Variant of the engine; the one chosen for this machine where left out.
    #[arg(long, value_name = "NAME", value_parser = fib_variant_names())]
    pub(crate) variant: Option<String>,
    #[command(flatten)]
    pub(crate) shape: FibShape,
    /// Write CSV here.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write answers and summary as one JSON document.
    #[arg(long)]
    pub(crate) json: bool,
    /// Addresses to look up.
    #[arg(value_name = "ADDRESS", conflicts_with = "addresses")]
    pub(crate) address: Vec<std::net::IpAddr>,
}

const SHOW_HELP: &str = "\
Examples:
  ip -6 route show | flowlane route show --routes /dev/stdin
  flowlane route show --routes table.txt.gz --subtree 10.0.0.0/8";

#[derive(Debug, Args)]
pub(crate) struct RouteShowOptions {
    #[command(flatten)]
    pub(crate) routes: RoutesInput,
    #[command(flatten)]
    pub(crate) shape: FibShape,
    /// List the routes inside this prefix, and the one around it, instead.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) subtree: Option<AnyPrefix>,
    /// Most next hops shown, those with most routes first.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) next_hops: usize,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const BENCH_HELP: &str = "\
Engines and variants take turns within one run; figures are medians. Updates are withdrawals, announcements and \
changes of routes of the table, one at a time, or those of a trace, whose lines are `time a|w prefix next-hop`.

Examples:
  flowlane route bench --routes table.txt.gz
  flowlane route bench --routes table.txt.gz --updates trace.txt.gz --locality zipf:1.0 --json";

#[derive(Debug, Args)]
pub(crate) struct RouteBenchOptions {
    #[command(flatten)]
    pub(crate) routes: RoutesInput,
    #[command(flatten)]
    pub(crate) shape: FibShape,
    /// Only this engine.
    #[arg(long, default_value = "auto", value_name = "NAME", value_parser = engine_names())]
    pub(crate) engine: String,
    /// Only this variant.
    #[arg(long, value_name = "NAME", value_parser = fib_variant_names())]
    pub(crate) variant: Option<String>,
    /// A trace of updates to be replayed (may be packed by gzip or zstd).
    #[arg(long, value_name = "FILE")]
    pub(crate) updates: Option<PathBuf>,
    /// How often the same route is hit again: uniform, zipf:S or pareto:A,B.
    #[arg(long, default_value = "uniform", value_name = "LOCALITY")]
    pub(crate) locality: String,
    /// Share of addresses that lie anywhere, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub(crate) miss: f64,
    /// Number of addresses of a pass.
    #[arg(long, default_value_t = 1 << 20, value_name = "N")]
    pub(crate) count: usize,
    /// Number of addresses of a batch.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,
    /// About so many seconds for the lookups of each family.
    #[arg(long, default_value_t = 3.0, value_name = "S")]
    pub(crate) seconds: f64,
    /// Another seed, other addresses and updates.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn engine_names() -> PossibleValuesParser {
    PossibleValuesParser::new(["auto"].into_iter().chain(Engine::ALL.map(Engine::name)))
}

/// Parses the name of a variant of forwarding tables.
fn fib_variant_names() -> PossibleValuesParser {
    PossibleValuesParser::new(["scalar", "avx2", "avx512"])
}
