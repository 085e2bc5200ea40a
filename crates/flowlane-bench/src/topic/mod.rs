//! The topics, each with its workload and its measurements.

mod acl;
mod bloom;
mod cache;
mod concurrent_writer;
mod cuckoo;
mod fib;
mod gpu;
mod hash;
mod megaflow;
mod parse;
mod tunnel;

use flowlane::isa::Variant;
use flowlane::named_enum;
use strum::{Display, IntoStaticStr, VariantArray};

use crate::figure::Figure;
use crate::machine::Machine;
use crate::measure::Meter;
use crate::options::{BenchError, Options};

impl Options {
    /// Checks the options before anything is measured.
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

    /// Returns the variants to measure.
    pub(crate) fn variants(&self) -> Vec<Variant> {
        let asked = |v: &Variant| self.variants.is_empty() || self.variants.contains(v);
        Variant::ALL.into_iter().filter(|v| v.available() && asked(v)).collect()
    }

    /// Returns whether a Bloom kernel is selected.
    pub(crate) fn has_kernel(&self, kernel: bloom::Kernel) -> bool {
        let variant = kernel.variant();
        let name = kernel.to_string();
        (self.variants.is_empty() || self.variants.contains(&variant))
            && (self.kernels.is_empty() || self.kernels.iter().any(|part| name.contains(part.as_str())))
    }
}

/// The input of all topics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) options: &'a Options,
    pub(crate) machine: &'a Machine,
}

impl Context<'_> {
    pub(crate) fn quick(&self) -> bool {
        self.options.effort.quick
    }

    /// Returns table sizes as powers of two: in L1, in L2, in L3, and beyond, at most 512 MiB.
    pub(crate) fn levels(&self) -> [usize; 4] {
        let [l1, l2, l3] = [1, 2, 3].map(|level| self.machine.cache_bytes(level));
        let power = |bytes: usize| 1 << bytes.max(1).ilog2();
        // Half of a cache holds the structure, the other half keys and other data; L3 is shared.
        [power(l1 / 2), power(l2 / 2), power(l3 / 4), power(l3 * 8).min(512 << 20)]
    }
}

/// A topic of measurements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
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
    /// Access lists of all families, at their worst.
    AclMatrix,
    /// Forwarding tables.
    Fib,
    /// Tunnel endpoints.
    Tunnel,
    /// Classifiers on a CUDA device, and on the cores of the CPU.
    Gpu,
}

impl Topic {
    /// All topics.
    pub const ALL: [Self; 11] = named_enum::all();

    /// Returns the name on the command line and in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the title in reports.
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
            Self::AclMatrix => "Access lists of all kinds",
            Self::Gpu => "Classifiers on a CUDA device and on the cores of the CPU",
        }
    }

    /// Returns the number of comparisons.
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
            Self::AclMatrix => acl::matrix::comparisons(context),
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
            Self::AclMatrix => acl::matrix::measure(meter, context)?,
            Self::Gpu => gpu::measure(meter, context)?,
        })
    }
}
