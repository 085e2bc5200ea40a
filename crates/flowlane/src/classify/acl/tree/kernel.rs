//! Which body looks up.

use std::fmt;
use std::str::FromStr;

use crate::choices::{self, Slot};
use crate::isa::Variant;
#[cfg(target_arch = "x86_64")]
use crate::isa::{Avx2, Avx512, Avx512At256, Sse42};
use crate::names::UnknownName;

/// A body of [`Tree`](super::Tree), by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum TreeKernel {
    /// One key at a time: the definition.
    Scalar,
    /// Groups of keys, leaves by SSE4.2.
    Sse42,
    /// The same by AVX2, and bits by BMI2.
    Avx2,
    /// The same by AVX-512 in registers of at most 256 bits.
    Avx512x256,
    /// By AVX-512 with registers of 512 bits.
    Avx512,
}

impl TreeKernel {
    /// All of them, whether this CPU has them or not.
    pub const ALL: [Self; 5] = [Self::Scalar, Self::Sse42, Self::Avx2, Self::Avx512x256, Self::Avx512];

    /// The one that looks up where none is asked for.
    pub fn chosen() -> Self {
        Kernel::chosen().name()
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Avx512x256 => "avx512-256",
            other => other.variant().name(),
        }
    }

    /// The instruction set that it needs.
    pub fn variant(self) -> Variant {
        match self {
            Self::Scalar => Variant::Scalar,
            Self::Sse42 => Variant::Sse42,
            Self::Avx2 => Variant::Avx2,
            Self::Avx512x256 | Self::Avx512 => Variant::Avx512,
        }
    }

    /// Whether this CPU has what it needs, and the cap allows its width.
    pub fn available(self) -> bool {
        Kernel::of(self).is_some()
    }
}

impl FromStr for TreeKernel {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|k| k.name() == text).ok_or_else(|| UnknownName::of::<Variant>(text))
    }
}

impl fmt::Display for TreeKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A body with the proof that it may be used.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kernel {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Sse42(Sse42),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512x256(Avx512At256),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
}

impl Kernel {
    pub(super) fn of(name: TreeKernel) -> Option<Self> {
        match name {
            TreeKernel::Scalar => Some(Self::Scalar),
            #[cfg(target_arch = "x86_64")]
            TreeKernel::Sse42 => Sse42::detect().map(Self::Sse42),
            #[cfg(target_arch = "x86_64")]
            TreeKernel::Avx2 => Avx2::detect().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            TreeKernel::Avx512x256 => Avx512At256::detect().map(Self::Avx512x256),
            #[cfg(target_arch = "x86_64")]
            TreeKernel::Avx512 => Avx512::detect().map(Self::Avx512),
            #[cfg(not(target_arch = "x86_64"))]
            _ => None,
        }
    }

    /// The one that is chosen for trees here.
    pub(super) fn chosen() -> Self {
        choices::choose(Slot::AclTree, |text| Self::of(text.parse().ok()?))
    }

    pub(super) fn name(self) -> TreeKernel {
        match self {
            Self::Scalar => TreeKernel::Scalar,
            #[cfg(target_arch = "x86_64")]
            Self::Sse42(_) => TreeKernel::Sse42,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => TreeKernel::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512x256(_) => TreeKernel::Avx512x256,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => TreeKernel::Avx512,
        }
    }
}
