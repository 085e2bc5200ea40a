//! Which kernel looks a batch up: its name, what there is here, what measured best.

use std::fmt;
use std::str::FromStr;

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::batch::{Batch, Survive};
use super::bits::Bits;
use super::scalar::Scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::staged::Staged;
use crate::dispatch::{self, AdaptiveDispatch, KernelSlot, SizeClass};
#[cfg(target_arch = "x86_64")]
use crate::isa::Avx512;
use crate::isa::{Backend, Variant};
use crate::named_enum::{self, Named, UnknownName};

/// Vectors side by side, as many as the paper tries.
pub const UNROLLS: [u8; 4] = [1, 2, 4, 8];

/// How a batch is looked up. All keep the order of the input; others, which do not, are in `flowlane-paper`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Algorithm>)]
#[non_exhaustive]
pub enum Algorithm {
    /// One key after the other.
    Scalar,
    /// 8 lanes: see [`Avx512Staged`](Self::Avx512Staged).
    Avx2Staged,
    /// 16 lanes, never refilled: one pass per hash over what survived the pass before.
    Avx512Staged,
    /// 4 lanes: see [`Avx512Staged`](Self::Avx512Staged).
    NeonStaged,
}

impl Named for Algorithm {
    const KIND: &'static str = "Bloom algorithm";
}

impl Algorithm {
    /// Every algorithm, whether this CPU can run it or not.
    pub const ALL: [Self; 4] = named_enum::all();

    /// The name, in files, logs and on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The instruction set that it needs.
    pub fn variant(self) -> Variant {
        match self {
            Self::Scalar => Variant::Scalar,
            Self::Avx2Staged => Variant::Avx2,
            Self::Avx512Staged => Variant::Avx512,
            Self::NeonStaged => Variant::Neon,
        }
    }
}

/// A kernel: an algorithm, how many vectors it works on side by side, and whether it prefetches.
///
/// Its name is `algorithm/uN` or `algorithm/uN/prefetch`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BloomKernel {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Vectors side by side: one of [`UNROLLS`].
    pub unroll: u8,
    /// True if words are prefetched.
    pub prefetch: bool,
}

/// A kernel that there is not, or not here.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BloomKernelError {
    /// A text that names no kernel.
    #[error(
        "`{0}` names no Bloom kernel; write ALGORITHM/uN or ALGORITHM/uN/prefetch, N 1, 2, 4 or 8, \
             ALGORITHM one of {names}",
        names = Algorithm::ALL.map(Algorithm::name).join(", ")
    )]
    Name(String),
    /// A kernel that this CPU, or the cap of the width, has no instructions for.
    #[error("the Bloom kernel {kernel} cannot be used here: it needs {}", .kernel.algorithm.variant())]
    Unavailable {
        /// The requested kernel.
        kernel: BloomKernel,
    },
}

impl fmt::Display for BloomKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefetch = if self.prefetch { "/prefetch" } else { "" };
        write!(f, "{}/u{}{prefetch}", self.algorithm.name(), self.unroll)
    }
}

impl FromStr for BloomKernel {
    type Err = BloomKernelError;

    fn from_str(text: &str) -> Result<Self, BloomKernelError> {
        let (rest, prefetch) = match text.strip_suffix("/prefetch") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let read = || {
            let (name, unroll) = rest.split_once("/u")?;
            let algorithm = name.parse().ok()?;
            let unroll = UNROLLS.into_iter().find(|u| u.to_string() == unroll)?;
            Some(Self { algorithm, unroll, prefetch })
        };
        read().ok_or_else(|| BloomKernelError::Name(text.to_owned()))
    }
}

impl BloomKernel {
    /// The definition.
    pub const SCALAR: Self = Self { algorithm: Algorithm::Scalar, unroll: 1, prefetch: false };

    /// Every kernel that may be used here.
    pub fn all() -> Vec<Self> {
        let of = |algorithm| {
            UNROLLS
                .into_iter()
                .flat_map(move |unroll| [false, true].map(|prefetch| Self { algorithm, unroll, prefetch }))
        };
        Algorithm::ALL.into_iter().flat_map(of).filter(|k| k.available()).collect()
    }

    /// Returns whether it may be used here.
    pub fn available(self) -> bool {
        UNROLLS.contains(&self.unroll) && self.algorithm.variant().available()
    }

    /// The kernel chosen on this machine for a filter of this many bytes ([`dispatch`]).
    pub fn default_for(table_bytes: usize) -> Self {
        dispatch::choose(KernelSlot::Bloom(SizeClass::of(table_bytes)), |text| {
            text.parse().ok().filter(|k: &Self| k.available())
        })
    }
}

/// The kernel for a filter of this many bytes: the default one, or what the first batches find to be faster.
pub(super) fn choose(table_bytes: usize) -> AdaptiveDispatch<Chosen> {
    AdaptiveDispatch::of(KernelSlot::Bloom(SizeClass::of(table_bytes)), |text| {
        Chosen::new(text.parse().ok()?).ok()
    })
}

/// A kernel with the proof that it may be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    kernel: BloomKernel,
    backend: Backend,
}

impl Chosen {
    /// The kernel, where it may be used here.
    pub(super) fn new(kernel: BloomKernel) -> Result<Self, BloomKernelError> {
        if !UNROLLS.contains(&kernel.unroll) {
            return Err(BloomKernelError::Name(kernel.to_string()));
        }
        let backend = Backend::of(kernel.algorithm.variant());
        backend.map(|backend| Self { kernel, backend }).ok_or(BloomKernelError::Unavailable { kernel })
    }

    pub(super) fn kernel(&self) -> BloomKernel {
        self.kernel
    }

    /// The AVX-512 witness, for the tests of single batches, which have no choice but that.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn avx512(&self) -> Option<Avx512> {
        match self.backend {
            Backend::Avx512(witness) => Some(witness),
            _ => None,
        }
    }

    /// Leaves the survivors of the batch in its `out`.
    pub(super) fn survive(&self, bits: Bits<'_>, batch: &mut Batch<'_>) {
        let BloomKernel { unroll, prefetch, .. } = self.kernel;
        match self.backend {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(witness) => dispatch(Staged(witness), unroll, prefetch, bits, batch),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(witness) => dispatch(Staged(witness), unroll, prefetch, bits, batch),
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(witness) => dispatch(Staged(witness), unroll, prefetch, bits, batch),
            _ => dispatch(Scalar, unroll, prefetch, bits, batch),
        }
    }
}

/// From numbers at run time to the kernel compiled for them.
fn dispatch(kernel: impl Survive, unroll: u8, prefetch: bool, bits: Bits<'_>, batch: &mut Batch<'_>) {
    match (unroll, prefetch) {
        (1, false) => kernel.survive::<1, false>(bits, batch),
        (2, false) => kernel.survive::<2, false>(bits, batch),
        (4, false) => kernel.survive::<4, false>(bits, batch),
        (_, false) => kernel.survive::<8, false>(bits, batch),
        (1, true) => kernel.survive::<1, true>(bits, batch),
        (2, true) => kernel.survive::<2, true>(bits, batch),
        (4, true) => kernel.survive::<4, true>(bits, batch),
        (_, true) => kernel.survive::<8, true>(bits, batch),
    }
}
