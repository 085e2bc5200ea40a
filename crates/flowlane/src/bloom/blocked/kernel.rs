//! Kernels of blocked filters: their names, and their selection.

use std::fmt;
use std::str::FromStr;

use crate::dispatch::{AdaptiveDispatch, KernelSlot, SizeClass};
use crate::isa::{Backend, Variant};

/// A variant, and whether blocks are prefetched.
///
/// Its name is `variant` or `variant/prefetch`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockedKernel {
    /// Scalar, AVX2, AVX-512 or NEON.
    pub variant: Variant,
    /// True if blocks are prefetched.
    pub prefetch: bool,
}

/// A text that names no kernel.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` names no kernel of a blocked Bloom filter; write scalar, avx2, avx512 or neon, with or without /prefetch"
)]
pub struct BlockedKernelError(pub String);

impl fmt::Display for BlockedKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.variant, if self.prefetch { "/prefetch" } else { "" })
    }
}

impl FromStr for BlockedKernel {
    type Err = BlockedKernelError;

    fn from_str(text: &str) -> Result<Self, BlockedKernelError> {
        let (name, prefetch) = match text.strip_suffix("/prefetch") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let variant = name.parse().ok().filter(|v| *v != Variant::Sse42);
        let kernel = variant.map(|variant| Self { variant, prefetch });
        kernel.ok_or_else(|| BlockedKernelError(text.to_owned()))
    }
}

impl BlockedKernel {
    /// Returns whether it may be used here.
    pub fn available(self) -> bool {
        backend(self.variant).is_some()
    }
}

/// The kernel of a variant, where there is one here.
pub(super) fn backend(variant: Variant) -> Option<Backend> {
    Backend::of(variant).filter(|_| variant != Variant::Sse42)
}

/// Selects the kernel for a filter of this many bytes: the backend, and whether it prefetches.
pub(super) fn choose(table_bytes: usize) -> AdaptiveDispatch<(Backend, bool)> {
    AdaptiveDispatch::of(KernelSlot::BlockedBloom(SizeClass::of(table_bytes)), |text| {
        let kernel: BlockedKernel = text.parse().ok()?;
        Some((backend(kernel.variant)?, kernel.prefetch))
    })
}
