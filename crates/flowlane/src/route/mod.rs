#![doc = include_str!("README.md")]

mod cell;
pub mod check;
mod contest;
pub mod ecmp;
pub mod engine;
pub(crate) mod epoch;
mod hop_hash;
pub mod prefix;
pub mod read;
mod recent;
pub mod rib;
mod routes;
pub mod v4;
pub mod v6;

pub use prefix::{Address, Prefix, PrefixError};
pub use recent::RecentAddresses;
pub use rib::{Rib, RibError};
pub use routes::{RouteError, Routes};

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::dispatch::AdaptiveDispatch;
use crate::isa::{Backend, Variant};
use crate::named_enum::{self, Named, UnknownName};

/// Bytes of a next hop, fixed when a table is made.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<HopSize>)]
pub enum HopSize {
    /// One byte.
    #[strum(to_string = "1")]
    B1,
    /// Two bytes.
    #[strum(to_string = "2")]
    B2,
    /// Four bytes.
    #[strum(to_string = "4")]
    B4,
    /// Eight bytes.
    #[strum(to_string = "8")]
    B8,
}

impl Named for HopSize {
    const KIND: &'static str = "size of next hops in bytes";
}

impl HopSize {
    /// All of them, smallest first.
    pub const ALL: [Self; 4] = named_enum::all();

    /// Returns the number of bytes.
    pub fn bytes(self) -> usize {
        1 << self as usize
    }

    /// Returns the number of bits.
    pub fn bits(self) -> u32 {
        8 * self.bytes() as u32
    }

    /// Returns the largest number of this size.
    pub fn max(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }
}

/// How a forwarding table is to be made.
#[derive(Clone, Copy, Debug)]
pub struct FibConfig {
    /// Bytes of a next hop.
    pub hop_size: HopSize,
    /// The answer for addresses without a route.
    pub default_next_hop: u64,
    /// Most bytes that the table may take.
    pub memory_max: usize,
    /// The backend that looks batches up; none: the one selected for such tables.
    pub backend: Option<Backend>,
    /// A second one, against which [`Compact`](engine::Engine::Compact) tables measure that in their first batches, where
    /// there is a clock ([`dispatch`](crate::dispatch::set_trial_clock)).
    pub candidate: Option<Backend>,
    /// [`AnyFib`](engine::AnyFib) measures which engine is fastest, where there is that clock.
    pub measures: bool,
}

impl FibConfig {
    /// Creates a table of next hops of this size; 0 for addresses without a route, up to a GiB of memory.
    pub fn new(hop_size: HopSize) -> Self {
        let (backend, candidate) = (None, None);
        Self { hop_size, default_next_hop: 0, memory_max: 1 << 30, backend, candidate, measures: true }
    }

    /// Chooses the engine by a rule of thumb, which is the same in each run.
    #[must_use]
    pub fn without_measuring(self) -> Self {
        Self { measures: false, ..self }
    }

    /// Answers `next_hop` for addresses without a route.
    #[must_use]
    pub fn with_default_next_hop(self, next_hop: u64) -> Self {
        Self { default_next_hop: next_hop, ..self }
    }

    /// Lets the table take up to `bytes` of memory.
    #[must_use]
    pub fn with_memory_max(self, bytes: usize) -> Self {
        Self { memory_max: bytes, ..self }
    }

    /// Selects the variant for batches, where it may be used here. A table without a kernel for
    /// it uses the scalar one, and [says](Fib::variant) so.
    pub fn with_variant(self, variant: Variant) -> Option<Self> {
        Backend::of(variant).map(|backend| Self { backend: Some(backend), candidate: None, ..self })
    }

    /// Returns the backend for a table with a scalar kernel and those of `order`, the best first.
    pub(crate) fn backend_of(&self, order: &[Variant]) -> Backend {
        match self.backend {
            None => Backend::first_of(order),
            Some(backend) if order.contains(&backend.variant()) => backend,
            Some(_) => Backend::Scalar,
        }
    }

    /// Returns the backend for a table that can hold a trial against the candidate.
    pub(crate) fn choice_of(&self, order: &[Variant]) -> AdaptiveDispatch<Backend> {
        let candidate = self.candidate.filter(|candidate| order.contains(&candidate.variant()));
        AdaptiveDispatch::between(self.backend_of(order), candidate.as_slice())
    }
}

/// A forwarding table that was not built, or a change that was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// More memory than the table may take.
    #[error(
        "the routes need {needed} bytes of the {max} that the table may take; allow more, or remove routes"
    )]
    NeedsMemory {
        /// Bytes needed.
        needed: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// A next hop that does not fit.
    #[error(
        "next hop {next_hop} is larger than {max}, the largest in {hop_size} bytes; use larger next hops"
    )]
    HopTooLarge {
        /// The next hop.
        next_hop: u64,
        /// The largest that fits.
        max: u64,
        /// The table's size of next hops.
        hop_size: HopSize,
    },
    /// More groups for long prefixes than an entry can number.
    #[error(
        "long prefixes need {needed} groups, and entries of {hop_size} bytes number {max}; use larger next hops"
    )]
    TooManyGroups {
        /// Groups needed.
        needed: usize,
        /// The most there can be.
        max: usize,
        /// The table's size of next hops.
        hop_size: HopSize,
    },
    /// More different next hops than a table can number.
    #[error("the routes have {needed} different next hops, and the compact table numbers {max}; use dir24")]
    TooManyNextHops {
        /// Next hops needed.
        needed: usize,
        /// The most there can be.
        max: usize,
    },
}

/// A forwarding table: what batches of addresses are looked up in.
///
/// It is built from a [`Rib`], and repaired after each change of that. This is the writer's handle, of which
/// there is one; other threads look up through [readers](Self::reader), which never wait.
pub trait Fib<A: Address>: Sized {
    /// A handle for another thread.
    type Reader: FibReader<A>;

    /// Returns the table of the routes in `rib`.
    ///
    /// # Errors
    /// [`BuildError`], before memory is taken.
    fn build(rib: &Rib<A>, config: &FibConfig) -> Result<Self, BuildError>;

    /// Repairs the table after the route of `changed` was added, removed or replaced in `rib`.
    ///
    /// # Errors
    /// [`BuildError`]; the table is as it was then.
    fn update(&mut self, rib: &Rib<A>, changed: Prefix<A>) -> Result<(), BuildError>;

    /// Returns another reader.
    fn reader(&self) -> Self::Reader;

    /// Returns the next hop of `address`.
    fn lookup(&self, address: A) -> u64;

    /// The next hops of many addresses, any number of them.
    ///
    /// # Panics
    /// Where `next_hops` is shorter than `addresses`.
    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [u64]);

    /// Returns the bytes of the table that lookups read, without the memory of the writer.
    fn table_bytes(&self) -> usize;

    /// Returns the variant that looks batches up: the requested one, where the table has a kernel for it.
    fn variant(&self) -> Variant;
}

/// A handle by which a thread looks addresses up while the writer is at work.
pub trait FibReader<A: Address>: Clone + Send {
    /// Returns the next hop of `address`.
    fn lookup(&self, address: A) -> u64;

    /// The next hops of many addresses, any number of them.
    ///
    /// # Panics
    /// Where `next_hops` is shorter than `addresses`.
    fn lookup_batch(&self, addresses: &[A], next_hops: &mut [u64]);
}
