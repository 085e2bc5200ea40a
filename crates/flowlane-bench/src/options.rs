//! What is to be measured, and why it is not.

use std::sync::Arc;

use flowlane::isa::Variant;
use flowlane::route::read::RouteList;
use flowlane::rule::Rule;
use serde::{Serialize, Serializer};

use crate::measure::Effort;

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
    pub rules: Vec<Rule>,
}

/// Routes to measure with.
#[derive(Clone, Debug)]
pub struct RouteTable {
    /// Where they come from, in reports.
    pub name: String,
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
