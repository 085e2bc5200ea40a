//! Entries of 2, 4 and 8 bytes: a next hop, or where to look on.
//!
//! The lowest bit says which: clear, the bits above are a next hop; set, they are the number of a group of 256
//! entries for the next eight bits.

use std::fmt::Debug;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use crate::memory::Zeroed;

/// Entries of a group.
pub(super) const GROUP: usize = 256;

/// An entry that readers may read while the writer changes it.
pub(super) trait Entry: Zeroed + Send + Sync + Debug + 'static {
    fn load(&self) -> u64;
    fn store(&self, entry: u64);
}

macro_rules! entry {
    ($($atomic:ty: $number:ty),*) => { $(
        impl Entry for $atomic {
            #[inline(always)]
            fn load(&self) -> u64 {
                self.load(Acquire).into()
            }

            fn store(&self, entry: u64) {
                self.store(entry as $number, Release);
            }
        }
    )* };
}

entry!(AtomicU16: u16, AtomicU32: u32, AtomicU64: u64);

/// The entry of a next hop.
pub(super) fn of_hop(next_hop: u64) -> u64 {
    next_hop << 1
}

/// The entry that leads to a group.
pub(super) fn of_group(group: u32) -> u64 {
    u64::from(group) << 1 | 1
}

/// The group that an entry leads to.
#[inline(always)]
pub(super) fn group(entry: u64) -> Option<usize> {
    (entry & 1 == 1).then_some((entry >> 1) as usize)
}
