#![doc = include_str!("README.md")]

mod batch;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(test)]
mod tests;

use std::fmt;

use batch::Batch;
use flowlane::bloom::{BloomFilter, UNROLLS};
use flowlane::isa::{Backend, Variant};
use flowlane::named_enum;
use strum::{IntoStaticStr, VariantArray};

/// The method by which lanes are refilled and survivors packed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Algorithm {
    /// 8 lanes; a table of 2^8 permutations refills lanes and packs survivors (Polychroniou and Ross, 2014:
    /// the paper's baseline).
    Avx2Table,
    /// 16 lanes, with a table of 2^16 permutations (the paper's naive variant).
    Avx512Table,
    /// 16 lanes, `vpexpandd` from memory and `vpcompressd` to memory (the paper's HPBF).
    #[strum(serialize = "avx512-expandload")]
    Avx512ExpandLoad,
    /// 16 lanes, expanded and compressed in registers.
    Avx512Register,
}

impl Algorithm {
    /// All algorithms, available on this CPU or not.
    pub const ALL: [Self; 4] = named_enum::all();

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the instruction set that the algorithm needs.
    pub fn variant(self) -> Variant {
        if self == Self::Avx2Table { Variant::Avx2 } else { Variant::Avx512 }
    }
}

/// An algorithm, its unrolling, and whether it prefetches.
///
/// Its name is `algorithm/uN` or `algorithm/uN/prefetch`, as for the library's kernels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Kernel {
    pub algorithm: Algorithm,
    /// The number of vectors unrolled: one of [`UNROLLS`].
    pub unroll: u8,
    /// Whether filter words are prefetched.
    pub prefetch: bool,
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefetch = if self.prefetch { "/prefetch" } else { "" };
        write!(f, "{}/u{}{prefetch}", self.algorithm.name(), self.unroll)
    }
}

impl Kernel {
    /// The paper's baseline: 256 bits, two vectors.
    pub const BASELINE: Self = Self { algorithm: Algorithm::Avx2Table, unroll: 2, prefetch: false };

    /// Returns every kernel that this CPU can run.
    pub fn all() -> Vec<Self> {
        let mut kernels = Vec::new();
        for algorithm in Algorithm::ALL.into_iter().filter(|a| a.variant().available()) {
            for unroll in UNROLLS {
                kernels.extend([false, true].map(|prefetch| Self { algorithm, unroll, prefetch }));
            }
        }
        kernels
    }
}

/// A kernel and the witness of its instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Baseline {
    kernel: Kernel,
    body: Backend,
}

impl Baseline {
    /// Returns the kernel, or `None` if the CPU cannot run it or the factor is unsupported.
    pub fn new(kernel: Kernel) -> Option<Self> {
        let body = Backend::of(kernel.algorithm.variant()).filter(|_| UNROLLS.contains(&kernel.unroll))?;
        Some(Self { kernel, body })
    }

    /// Writes the keys that may be in the filter, with their payloads, to the front of `out_keys` and `out_payloads`
    /// in unspecified order, and returns their number. The contents behind the survivors are unspecified.
    ///
    /// # Panics
    /// Panics if the numbers of keys and payloads differ, or if a buffer is shorter than the batch.
    pub fn survivors(
        &self,
        filter: &BloomFilter,
        keys: &[u32],
        payloads: &[u32],
        out_keys: &mut [u32],
        out_payloads: &mut [u32],
    ) -> usize {
        let (bits, mut batch) = (filter.view(), Batch::new(keys, payloads, out_keys, out_payloads));
        match (self.body, self.kernel.algorithm) {
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx2(witness), Algorithm::Avx2Table) => {
                self.kernel.dispatch(avx2::Table(witness), bits, &mut batch);
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx512(witness), Algorithm::Avx512Table) => {
                self.kernel.dispatch(avx512::Table(witness), bits, &mut batch);
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx512(witness), Algorithm::Avx512ExpandLoad) => {
                self.kernel.dispatch(avx512::ExpandLoad(witness), bits, &mut batch);
            }
            #[cfg(target_arch = "x86_64")]
            (Backend::Avx512(witness), Algorithm::Avx512Register) => {
                self.kernel.dispatch(avx512::Register(witness), bits, &mut batch);
            }
            (body, algorithm) => unreachable!("{algorithm:?} has no body for {}", body.variant()),
        }
        batch.out.len
    }
}

#[cfg(target_arch = "x86_64")]
impl Kernel {
    /// Dispatches the run-time unrolling and prefetching to a compiled kernel.
    fn dispatch(self, body: impl batch::Survive, bits: flowlane::bloom::Bits<'_>, batch: &mut Batch<'_>) {
        match (self.unroll, self.prefetch) {
            (1, false) => body.survive::<1, false>(bits, batch),
            (2, false) => body.survive::<2, false>(bits, batch),
            (4, false) => body.survive::<4, false>(bits, batch),
            (8, false) => body.survive::<8, false>(bits, batch),
            (1, true) => body.survive::<1, true>(bits, batch),
            (2, true) => body.survive::<2, true>(bits, batch),
            (4, true) => body.survive::<4, true>(bits, batch),
            (8, true) => body.survive::<8, true>(bits, batch),
            (other, _) => unreachable!("{other} is none of the factors {UNROLLS:?}"),
        }
    }
}
