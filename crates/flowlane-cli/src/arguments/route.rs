//! Arguments of `flowlane route`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use flowlane::generate::Locality;
use flowlane::isa::Variant;
use flowlane::route::HopSize;
use flowlane::route::engine::Engine;
use flowlane::route::read::{AnyPrefix, Format};

use super::values::{OrAuto, one_of, or_auto};

/// Default limit of routes in a file.
const ROUTES_MAX: usize = 10_000_000;

/// Variants of forwarding tables.
pub(crate) const FIB_VARIANTS: [Variant; 4] =
    [Variant::Scalar, Variant::Avx2, Variant::Avx512, Variant::Neon];

/// Format of a file of routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum RoutesFormat {
    /// Detected from the content.
    Auto,
    /// A prefix and an optional next hop per line.
    Plain,
    /// Output of `ip route`.
    IpRoute,
    /// Output of `ip -j route`.
    IpRouteJson,
    /// Output of `show ip route` of FRRouting or Cisco IOS.
    ShowRoute,
    /// Output of `bgpdump -m` for a table.
    Bgpdump,
    /// MRT dump of a routing table.
    Mrt,
}

impl RoutesFormat {
    /// Returns the format of a text; `None` if it is to be detected, or is binary.
    pub(crate) fn of_text(self) -> Option<Format> {
        match self {
            Self::Auto | Self::Mrt => None,
            Self::Plain => Some(Format::Plain),
            Self::IpRoute => Some(Format::IpRoute),
            Self::IpRouteJson => Some(Format::IpRouteJson),
            Self::ShowRoute => Some(Format::ShowRoute),
            Self::Bgpdump => Some(Format::Bgpdump),
        }
    }
}

/// A file of routes.
#[derive(Debug, Args)]
pub(crate) struct RoutesInput {
    /// Routes (may be compressed by gzip or zstd): prefixes with next hops, the output of `ip route`, `ip -j route`, `show ip route`
    /// or `bgpdump -m`, or an MRT dump.
    #[arg(long, value_name = "FILE")]
    pub(crate) routes: PathBuf,
    /// Format of the routes.
    #[arg(long, value_enum, default_value = "auto", value_name = "FORMAT")]
    pub(crate) routes_format: RoutesFormat,
    /// Table to read from the output of `ip route show table all`, or VRF of `show ip route vrf all`.
    #[arg(long, default_value = "main", value_name = "NAME")]
    pub(crate) table: String,
    /// Maximum number of routes; a larger file is rejected.
    #[arg(long, default_value_t = ROUTES_MAX, value_name = "N")]
    pub(crate) routes_max: usize,
}

impl RoutesInput {
    /// A file whose format is detected.
    pub(crate) fn of(path: &Path) -> Self {
        let (routes, table) = (path.to_owned(), "main".to_owned());
        Self { routes, routes_format: RoutesFormat::Auto, table, routes_max: ROUTES_MAX }
    }
}

/// Parameters of forwarding tables.
#[derive(Debug, Args)]
pub(crate) struct FibShape {
    /// Next-hop size in bytes: 1, 2, 4 or 8 [default: the smallest that fits].
    #[arg(long, value_name = "BYTES")]
    pub(crate) hop_size: Option<HopSize>,
    /// Next hop of addresses without a route.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) default_next_hop: u64,
    /// Memory limit of a forwarding table, in bytes or with a unit (512M, 4G).
    #[arg(long, default_value = "1G", value_name = "BYTES", value_parser = super::values::bytes)]
    pub(crate) memory_max: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RouteVerb {
    /// Look up the route of each address.
    #[command(after_help = LOOKUP_HELP)]
    Lookup(RouteLookupOptions),
    /// Print a route file's prefix lengths, next hops and forwarding-table sizes.
    #[command(after_help = SHOW_HELP)]
    Show(RouteShowOptions),
    /// Benchmark every engine and variant on a file of routes.
    #[command(after_help = BENCH_HELP)]
    Bench(RouteBenchOptions),
}

const LOOKUP_HELP: &str = "\
Addresses given as arguments produce a table; a file of addresses produces CSV with the header \
`address,prefix,next_hop,via` (prefix is empty if there is no route) and a summary on standard error. Every result \
is compared with the longest matching prefix of the routes; a difference ends with exit code 1.

Examples:
  ip route show | flowlane route lookup --routes /dev/stdin 192.0.2.1
  flowlane route lookup --routes table.txt.gz 192.0.2.1 2001:db8::1
  flowlane route lookup --routes rib.mrt --engine compact --variant avx512 --addresses seen.txt --output hops.csv";

#[derive(Debug, Args)]
pub(crate) struct RouteLookupOptions {
    #[command(flatten)]
    pub(crate) routes: RoutesInput,
    /// File of addresses, one per line (may be compressed by gzip or zstd).
    #[arg(long, value_name = "FILE")]
    pub(crate) addresses: Option<PathBuf>,
    /// Engine: auto (measured with these routes), dir24 (IPv4), trie (IPv6) or compact (both).
    #[arg(long, default_value = "auto", value_name = "NAME", value_parser = or_auto::<Engine>())]
    pub(crate) engine: OrAuto<Engine>,
    /// Variant of the engine [default: the one selected for this machine].
    #[arg(long, value_name = "NAME", value_parser = one_of(&FIB_VARIANTS))]
    pub(crate) variant: Option<Variant>,
    #[command(flatten)]
    pub(crate) shape: FibShape,
    /// Write CSV here.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Write results and summary as one JSON document.
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
    /// List the routes inside this prefix and those that cover it instead.
    #[arg(long, value_name = "PREFIX")]
    pub(crate) subtree: Option<AnyPrefix>,
    /// Maximum number of next hops shown, those with most routes first.
    #[arg(long, default_value_t = 20, value_name = "N")]
    pub(crate) next_hops: usize,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const BENCH_HELP: &str = "\
Engines and variants run interleaved; figures are medians. Each update withdraws, announces or changes one route \
of the table; a trace of updates has lines `time a|w prefix next-hop`.

Examples:
  flowlane route bench --routes table.txt.gz
  flowlane route bench --routes table.txt.gz --updates trace.txt.gz --locality zipf:1.0 --json";

#[derive(Debug, Args)]
pub(crate) struct RouteBenchOptions {
    #[command(flatten)]
    pub(crate) routes: RoutesInput,
    #[command(flatten)]
    pub(crate) shape: FibShape,
    /// Measure only this engine.
    #[arg(long, default_value = "auto", value_name = "NAME", value_parser = or_auto::<Engine>())]
    pub(crate) engine: OrAuto<Engine>,
    /// Measure only this variant.
    #[arg(long, value_name = "NAME", value_parser = one_of(&FIB_VARIANTS))]
    pub(crate) variant: Option<Variant>,
    /// Trace of updates to replay (may be compressed by gzip or zstd).
    #[arg(long, value_name = "FILE")]
    pub(crate) updates: Option<PathBuf>,
    /// Distribution of lookups over routes: uniform, zipf:S or pareto:A,B.
    #[arg(long, default_value = "uniform", value_name = "LOCALITY")]
    pub(crate) locality: Locality,
    /// Share of uniformly random addresses, 0 to 1.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub(crate) miss: f64,
    /// Number of addresses per pass.
    #[arg(long, default_value_t = 1 << 20, value_name = "N")]
    pub(crate) count: usize,
    /// Number of addresses per batch.
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,
    /// Approximate time for the lookups of each family, in seconds.
    #[arg(long, default_value_t = 3.0, value_name = "S")]
    pub(crate) seconds: f64,
    /// Seed of addresses and updates.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Print as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
