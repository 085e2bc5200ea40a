//! The atomics and the memory of the table: the real ones, or loom's where the protocol is model-checked
//! (`RUSTFLAGS="--cfg loom" cargo test -p flowlane --release cuckoo::loom`).

#[cfg(not(all(loom, test)))]
mod alias {
    pub(in crate::cuckoo) use std::hint::spin_loop as pause;
    pub(in crate::cuckoo) use std::sync::atomic::{AtomicU32, AtomicU64, fence};

    pub(in crate::cuckoo) use crate::memory::Memory;
}

#[cfg(all(loom, test))]
mod alias {
    use std::ops::Deref;

    pub(in crate::cuckoo) use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
    pub(in crate::cuckoo) use loom::thread::yield_now as pause;

    /// Replaces the mapped memory: loom's atomics are no plain words.
    #[derive(Debug)]
    pub(in crate::cuckoo) struct Memory<T>(Vec<T>);

    impl<T: Default> Memory<T> {
        pub(in crate::cuckoo) fn zeroed(len: usize) -> Self {
            Self((0..len).map(|_| T::default()).collect())
        }

        pub(in crate::cuckoo) fn size_bytes(&self) -> usize {
            self.0.capacity() * size_of::<T>()
        }
    }

    impl<T> Deref for Memory<T> {
        type Target = [T];

        fn deref(&self) -> &[T] {
            &self.0
        }
    }
}

pub(super) use alias::*;
