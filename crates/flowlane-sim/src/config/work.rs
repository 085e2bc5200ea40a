//! Kinds of work, which ports of a core can or cannot do.

use std::collections::BTreeMap;

use flowlane::named_enum::{self, Named, UnknownName};
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// A kind of work, for which an operation needs a port of its core.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Deserialize,
    Serialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Work>)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Nothing: moves between registers and zeroing, which renaming does.
    None,
    /// Integer arithmetic.
    Alu,
    /// Integer shifts and rotations.
    Shift,
    /// Addresses of three parts (`lea`).
    Address,
    /// Positions of the lowest or highest bit (`tzcnt`, `bsf`).
    Scan,
    /// Counts of bits (`popcnt`, `lzcnt`).
    Count,
    /// Changes of single bits (`blsr`, `bts`).
    Bit,
    /// Integer multiplications, and what shares their unit (`pdep`, `crc32`).
    Multiply,
    /// Integer divisions.
    Divide,
    /// Jumps and branches.
    Branch,
    /// Reads of memory.
    Load,
    /// Writes to memory.
    Store,
    /// Vector arithmetic and logic.
    Vector,
    /// Shifts of vectors' elements.
    VectorShift,
    /// Multiplications of vectors' elements.
    VectorMultiply,
    /// Permutations of elements within lanes of 128 bits.
    Shuffle,
    /// Permutations of elements across lanes.
    Permute,
    /// Moves between vector and other registers.
    Transfer,
    /// Not a kind by itself: any of the others on vectors of 512 bits. Ports that can do it take those; all if none is listed.
    Wide,
}

impl Named for Work {
    const KIND: &'static str = "kind of work";
}

impl Work {
    /// All kinds of work.
    pub const ALL: [Self; 19] = named_enum::all();
}

/// Numbers by kind of work; 1 for kinds that are not listed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct ByWork(BTreeMap<Work, u8>);

impl ByWork {
    /// Returns the number of a kind of work.
    pub fn of(&self, work: Work) -> u8 {
        self.0.get(&work).copied().unwrap_or(1)
    }
}
