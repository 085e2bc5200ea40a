//! Numbers of one to eight bytes that readers read while a writer changes them.

use std::fmt::Debug;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::memory::Zeroed;

/// A number in a table.
pub(crate) trait Cell: Zeroed + Debug + Send + Sync + 'static {
    const BYTES: usize;

    /// Loads a value. Earlier stores of the thread that stored it are visible.
    fn get(&self) -> u64;

    /// Loads a value. Earlier stores of the thread that stored it are visible behind a fence that acquires.
    fn get_relaxed(&self) -> u64;

    /// Stores a value. A thread that reads it also sees all earlier stores.
    fn set(&self, number: u64);
}

macro_rules! cell {
    ($($atomic:ty: $plain:ty,)*) => { $(
        impl Cell for $atomic {
            const BYTES: usize = size_of::<$plain>();

            #[inline(always)]
            fn get(&self) -> u64 {
                self.load(Acquire).into()
            }

            #[inline(always)]
            fn get_relaxed(&self) -> u64 {
                self.load(Relaxed).into()
            }

            #[inline(always)]
            fn set(&self, number: u64) {
                self.store(number as $plain, Release);
            }
        }
    )* };
}

cell! { AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64, }
