//! The atomics and cells of the protocol: the real ones, or loom's where it is model-checked.

#[cfg(not(all(loom, test)))]
mod alias {
    pub(in crate::classify::acl::shared) use std::hint::spin_loop as pause;
    pub(in crate::classify::acl::shared) use std::sync::atomic::{AtomicUsize, fence};

    /// A cell with the interface of loom's.
    #[derive(Debug)]
    pub(in crate::classify::acl::shared) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(in crate::classify::acl::shared) fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline(always)]
        pub(in crate::classify::acl::shared) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            look(self.0.get())
        }

        #[inline(always)]
        pub(in crate::classify::acl::shared) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
            change(self.0.get())
        }
    }
}

#[cfg(all(loom, test))]
mod alias {
    pub(in crate::classify::acl::shared) use loom::cell::UnsafeCell;
    pub(in crate::classify::acl::shared) use loom::sync::atomic::{AtomicUsize, fence};
    pub(in crate::classify::acl::shared) use loom::thread::yield_now as pause;
}

pub(super) use alias::*;
