//! Kernel names and defaults.

use std::fmt;
use std::str::FromStr;

use crate::isa::{Backend, Variant};

/// The contents of a register's lanes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Shape {
    /// Rules: one packet at a time against as many rules as there are lanes.
    Rules,
    /// Packets: one rule at a time against as many packets as there are lanes.
    Packets,
}

/// A shape and an instruction set, with a name such as `rules/avx2` or `packets/avx512`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BruteKernel {
    /// The contents of the lanes. The scalar variant has no lanes, and one shape.
    pub shape: Shape,
    /// The instructions.
    pub variant: Variant,
}

/// A text that names no kernel.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` names no kernel of brute force; write rules or packets, /, and scalar, sse42, avx2, avx512 or neon"
)]
pub struct BruteKernelError(pub String);

impl fmt::Display for BruteKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = if self.shape == Shape::Rules { "rules" } else { "packets" };
        write!(f, "{shape}/{}", self.variant)
    }
}

impl FromStr for BruteKernel {
    type Err = BruteKernelError;

    fn from_str(text: &str) -> Result<Self, BruteKernelError> {
        let found = Self::all().into_iter().find(|kernel| kernel.to_string() == text);
        found.ok_or_else(|| BruteKernelError(text.to_owned()))
    }
}

impl BruteKernel {
    /// Returns all kernels, whether this CPU has them or not.
    pub fn all() -> Vec<Self> {
        let of = |shape| Variant::ALL.map(|variant| Self { shape, variant });
        // The scalar variant has one shape.
        let is_one = |k: &Self| (k.shape, k.variant) != (Shape::Packets, Variant::Scalar);
        [Shape::Rules, Shape::Packets].into_iter().flat_map(of).filter(is_one).collect()
    }

    /// Returns whether this CPU has the instructions and the width limit allows them.
    pub fn available(self) -> bool {
        self.variant.available()
    }

    /// Returns the faster shape of a variant.
    pub(crate) fn fastest_of(variant: Variant) -> Self {
        let shape = if variant == Variant::Scalar { Shape::Rules } else { Shape::Packets };
        Self { shape, variant }
    }

    /// Returns the default kernel.
    pub(super) fn fastest() -> Self {
        // Without NEON: it takes up to 44 % more instructions than scalar code where packets or rules are few (`docs/lab/neon-2026-11-30.md`).
        Self::fastest_of(Backend::first_of(&[Variant::Avx512, Variant::Avx2, Variant::Sse42]).variant())
    }
}
