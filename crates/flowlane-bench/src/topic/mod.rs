//! The topics: each makes its workload and says what is measured on it.

mod acl;
mod beside;
mod bloom;
mod cache;
mod cuckoo;
mod fib;
mod gpu;
mod hash;
mod megaflow;
mod parse;
mod tunnel;

use std::sync::Arc;

use flowlane::isa::Variant;
use flowlane::names::{self, Named, UnknownName};
use flowlane::route::read::RouteList;
use flowlane::rule::Rule;
use serde::{Serialize, Serializer};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::figure::Figure;
use crate::machine::Machine;
use crate::measure::{Effort, Meter};

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// A part of no kernel's name.
    #[error(
        "no Bloom kernel that can be used here has `{0}` in its name; names are such as avx512-staged/u8/prefetch: \
         scalar, avx2-table, avx2-staged, avx512-table, avx512-expandload, avx512-register or avx512-staged, \
         then /u1, /u2, /u4 or /u8, then perhaps /prefetch"
    )]
    Kernel(String),
    /// A variant that this machine, or the width cap, does not have.
    #[error("the variant {0} cannot be used here: {reason}", reason = reason(*.0))]
    Unavailable(Variant),
    /// A rule set without rules.
    #[error("{0}: there is no rule in it")]
    NoRules(String),
    /// A rule that only some of what is measured could take.
    #[error(
        "rule {number} of {name} is no IPv4 5-tuple of prefixes and port ranges, which is what engines are compared on"
    )]
    NotFiveTuple {
        /// The rule set.
        name: String,
        /// Which rule, from one.
        number: usize,
    },
    /// DPDK's environment does not start, or has no memory.
    #[error("DPDK cannot be measured here: {0}")]
    Dpdk(String),
    /// A device fails.
    #[error("no classifier can be measured on a device: {0}")]
    Gpu(String),
}

impl BenchError {
    /// Whether the environment lacks something, rather than the command.
    pub fn environment(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Dpdk(_) | Self::Gpu(_))
    }
}

fn reason(variant: Variant) -> &'static str {
    if variant.detected() { "the SIMD width cap forbids it" } else { "the CPU does not have it" }
}

/// What to measure, and for how long.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Options {
    /// For how long.
    pub effort: Effort,
    /// Only these variants; all, where there is none.
    #[serde(serialize_with = "names")]
    pub variants: Vec<Variant>,
    /// Only Bloom kernels with one of these in their names (and those that ratios are to); all, where there is
    /// none.
    pub kernels: Vec<String>,
    /// Forwarding tables are measured with these routes; with generated ones, where there are none.
    #[serde(serialize_with = "table_name")]
    pub routes: Option<Arc<RouteTable>>,
    /// Access lists are measured with these rule sets; with generated ones, where there are none.
    #[serde(serialize_with = "set_names")]
    pub rules: Vec<Arc<RuleSet>>,
}

/// Rules to measure with.
#[derive(Clone, Debug)]
pub struct RuleSet {
    /// Where they come from, in reports.
    pub name: String,
    /// The rules.
    pub rules: Vec<Rule>,
}

/// Routes to measure with.
#[derive(Clone, Debug)]
pub struct RouteTable {
    /// Where they come from, in reports.
    pub name: String,
    /// The routes.
    pub routes: RouteList,
}

fn table_name<S: Serializer>(table: &Option<Arc<RouteTable>>, serializer: S) -> Result<S::Ok, S::Error> {
    table.as_ref().map(|table| &table.name).serialize(serializer)
}

fn set_names<S: Serializer>(sets: &[Arc<RuleSet>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(sets.iter().map(|set| &set.name))
}

fn names<S: Serializer>(variants: &[Variant], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(variants.iter().map(|v| v.name()))
}

impl Options {
    /// Finds what cannot be measured before anything is.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        if let Some(variant) = self.variants.iter().find(|v| !v.available()) {
            return Err(BenchError::Unavailable(*variant));
        }
        self.rules.iter().try_for_each(|set| acl::check(set))?;
        let kernels: Vec<String> = bloom::Kernel::all().iter().map(ToString::to_string).collect();
        match self.kernels.iter().find(|part| !kernels.iter().any(|name| name.contains(part.as_str()))) {
            Some(part) => Err(BenchError::Kernel(part.clone())),
            None => Ok(()),
        }
    }

    /// The variants to be measured.
    pub(crate) fn variants(&self) -> Vec<Variant> {
        let asked = |v: &Variant| self.variants.is_empty() || self.variants.contains(v);
        Variant::ALL.into_iter().filter(|v| v.available() && asked(v)).collect()
    }

    /// Whether a Bloom kernel is to be measured.
    pub(crate) fn has_kernel(&self, kernel: bloom::Kernel) -> bool {
        let variant = kernel.variant();
        let name = kernel.to_string();
        (self.variants.is_empty() || self.variants.contains(&variant))
            && (self.kernels.is_empty() || self.kernels.iter().any(|part| name.contains(part.as_str())))
    }
}

/// What all topics are given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) options: &'a Options,
    pub(crate) machine: &'a Machine,
}

impl Context<'_> {
    pub(crate) fn quick(&self) -> bool {
        self.options.effort.quick
    }

    /// Powers of two of bytes: in L1, in L2, in L3, and beyond, at most 512 MiB.
    pub(crate) fn levels(&self) -> [usize; 4] {
        let [l1, l2, l3] = [1, 2, 3].map(|level| self.machine.cache_bytes(level));
        let power = |bytes: usize| 1 << bytes.max(1).ilog2();
        // Half of a cache is the structure's, half the keys' and others'; L3 is shared.
        [power(l1 / 2), power(l2 / 2), power(l3 / 4), power(l3 * 8).min(512 << 20)]
    }
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Topic>)]
#[non_exhaustive]
pub enum Topic {
    /// The parser.
    Parse,
    /// Hash functions.
    Hash,
    /// Bloom filters.
    Bloom,
    /// The cuckoo table.
    Cuckoo,
    /// The exact-match and the signature-match cache.
    Cache,
    /// The megaflow cache.
    Megaflow,
    /// Access lists.
    Acl,
    /// Forwarding tables.
    Fib,
    /// Tunnel endpoints.
    Tunnel,
    /// Classifiers on a CUDA device, and on the cores of the CPU.
    Gpu,
}

impl Named for Topic {
    const KIND: &'static str = "benchmark";
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 10] = names::all();

    /// The name, on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The title in reports.
    pub fn title(self) -> &'static str {
        match self {
            Self::Parse => "Parser",
            Self::Hash => "Hash functions",
            Self::Bloom => "Bloom filters",
            Self::Cuckoo => "Cuckoo table",
            Self::Cache => "Exact and signature match",
            Self::Megaflow => "Megaflow cache",
            Self::Fib => "Routes",
            Self::Tunnel => "Tunnel endpoints",
            Self::Acl => "Access lists",
            Self::Gpu => "Classifiers on a CUDA device and on the cores of the CPU",
        }
    }

    /// How many comparisons it makes.
    pub(crate) fn comparisons(self, context: &Context<'_>) -> usize {
        match self {
            Self::Parse => parse::comparisons(context),
            Self::Hash => hash::comparisons(context),
            Self::Bloom => bloom::comparisons(context),
            Self::Cuckoo => cuckoo::comparisons(context),
            Self::Cache => cache::comparisons(context),
            Self::Megaflow => megaflow::comparisons(context),
            Self::Fib => fib::comparisons(context),
            Self::Tunnel => tunnel::comparisons(context),
            Self::Acl => acl::comparisons(context),
            Self::Gpu => gpu::comparisons(context),
        }
    }

    pub(crate) fn measure(
        self,
        meter: &mut Meter<'_>,
        context: &Context<'_>,
    ) -> Result<Vec<Figure>, BenchError> {
        Ok(match self {
            Self::Parse => parse::measure(meter, context),
            Self::Hash => hash::measure(meter, context),
            Self::Bloom => bloom::measure(meter, context),
            Self::Cuckoo => cuckoo::measure(meter, context)?,
            Self::Cache => cache::measure(meter, context),
            Self::Megaflow => megaflow::measure(meter, context),
            Self::Fib => fib::measure(meter, context)?,
            Self::Tunnel => tunnel::measure(meter, context),
            Self::Acl => acl::measure(meter, context)?,
            Self::Gpu => gpu::measure(meter, context)?,
        })
    }
}
