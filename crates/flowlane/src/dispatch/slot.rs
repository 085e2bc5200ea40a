//! Kernel slots: one for each table, or for each table and class of size.

use std::fmt;
use std::str::FromStr;

use strum::{Display, VariantArray};

use crate::isa::cpu::Cpu;
use crate::named_enum;

/// The cache that a table of some size is in while it is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Display, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum SizeClass {
    /// In the first-level cache.
    L1,
    /// In the second-level cache.
    L2,
    /// In the third-level cache.
    L3,
    /// In memory.
    Memory,
}

impl SizeClass {
    /// All classes, smallest first.
    pub const ALL: [Self; 4] = named_enum::all();

    /// Returns the class of a table of this many bytes on this CPU.
    pub fn of(table_bytes: usize) -> Self {
        Self::with_caches(table_bytes, Cpu::this().cache_bytes)
    }

    /// Returns the class of a table on a CPU with caches of these sizes.
    pub fn with_caches(table_bytes: usize, cache_bytes: [u64; 3]) -> Self {
        let fits = cache_bytes.iter().position(|bytes| table_bytes as u64 <= *bytes);
        fits.map_or(Self::Memory, |level| Self::ALL[level])
    }
}

/// A table, or a table of a class of size, whose kernel can be selected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum KernelSlot {
    /// The variant of [`hash::murmur3`](crate::hash::murmur3).
    Murmur3,
    /// The variant of [`hash::crc32c`](crate::hash::crc32c).
    Crc32c,
    /// The variant of the header parser ([`packet`](crate::packet)).
    Parser,
    /// The kernel of classic Bloom filters ([`bloom`](crate::bloom)).
    Bloom(SizeClass),
    /// The kernel of blocked Bloom filters.
    BlockedBloom(SizeClass),
    /// The variant of [`cuckoo`](crate::cuckoo) tables.
    Cuckoo(SizeClass),
    /// Variant, threshold and masks at once of the [megaflow cache](crate::cache::megaflow).
    Megaflow,
    /// The variant of [static trees](crate::classify::acl::Tree) of access lists.
    AclTree,
    /// The variant of [dynamic tables](crate::classify::acl::Dynamic) of access lists.
    AclDynamic,
    /// Engine and variant of [forwarding tables](crate::route::engine) of IPv4.
    Routes4,
    /// Engine and variant of forwarding tables of IPv6.
    Routes6,
}

/// A name that no slot has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no slot `{0}`; there are {slots}", slots = names())]
pub struct KernelSlotError(pub String);

fn names() -> String {
    KernelSlot::all().map(|slot| slot.to_string()).collect::<Vec<_>>().join(", ")
}

impl KernelSlot {
    /// Returns all slots.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Murmur3, Self::Crc32c, Self::Parser]
            .into_iter()
            .chain(SizeClass::ALL.map(Self::Bloom))
            .chain(SizeClass::ALL.map(Self::BlockedBloom))
            .chain(SizeClass::ALL.map(Self::Cuckoo))
            .chain([Self::Megaflow, Self::AclTree, Self::AclDynamic, Self::Routes4, Self::Routes6])
    }

    /// Returns the table's name.
    pub fn table(self) -> &'static str {
        match self {
            Self::Murmur3 => "murmur3",
            Self::Crc32c => "crc32c",
            Self::Parser => "parser",
            Self::Bloom(_) => "bloom",
            Self::BlockedBloom(_) => "blocked-bloom",
            Self::Cuckoo(_) => "cuckoo",
            Self::Megaflow => "megaflow",
            Self::AclTree => "acl-tree",
            Self::AclDynamic => "acl-dynamic",
            Self::Routes4 => "routes4",
            Self::Routes6 => "routes6",
        }
    }

    /// Returns the class of size that it is for, where kernels depend on the size.
    pub fn size(self) -> Option<SizeClass> {
        match self {
            Self::Bloom(size) | Self::BlockedBloom(size) | Self::Cuckoo(size) => Some(size),
            _ => None,
        }
    }
}

impl KernelSlot {
    /// Returns whether its tables can measure their kernels in their first batches.
    pub(super) fn can_be_tried(self) -> bool {
        // Hashes and the parser are values without memory of their own: they have nowhere to keep samples.
        !matches!(self, Self::Murmur3 | Self::Crc32c | Self::Parser)
    }
}

impl fmt::Display for KernelSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.table())?;
        self.size().map_or(Ok(()), |size| write!(f, "-{size}"))
    }
}

impl FromStr for KernelSlot {
    type Err = KernelSlotError;

    fn from_str(text: &str) -> Result<Self, KernelSlotError> {
        Self::all().find(|slot| slot.to_string() == text).ok_or_else(|| KernelSlotError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_read_back() {
        for slot in KernelSlot::all() {
            assert_eq!(slot.to_string().parse(), Ok(slot));
        }
        assert_eq!(KernelSlot::Bloom(SizeClass::Memory).to_string(), "bloom-memory");
        assert!("blom-l1".parse::<KernelSlot>().unwrap_err().to_string().contains("bloom-l1"));
    }

    #[test]
    fn a_table_belongs_to_the_smallest_cache_that_holds_it() {
        let class = |bytes| SizeClass::with_caches(bytes, [48 << 10, 1 << 20, 32 << 20]);
        assert_eq!([class(0), class(48 << 10)], [SizeClass::L1; 2]);
        assert_eq!([class(64 << 10), class(1 << 20)], [SizeClass::L2; 2]);
        assert_eq!([class(2 << 20), class(32 << 20)], [SizeClass::L3; 2]);
        assert_eq!(class(64 << 20), SizeClass::Memory);
    }
}
