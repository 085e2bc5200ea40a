//! Synchronisation primitives of the standard library and of `rtrb`, or loom's where the protocols are model-checked
//! (`RUSTFLAGS="--cfg loom" cargo test -p flowlane-switch --release --lib loom`).

#[cfg(not(all(loom, test)))]
mod alias {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use std::sync::{Mutex, MutexGuard};

    pub(crate) use rtrb::{Consumer, Producer, PushError, RingBuffer};
}

#[cfg(all(loom, test))]
mod alias {
    use std::collections::VecDeque;
    use std::marker::PhantomData;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};

    /// A ring with the interface of `rtrb`.
    pub(crate) struct RingBuffer<T>(PhantomData<T>);

    pub(crate) struct Producer<T>(Arc<Mutex<VecDeque<T>>>, usize);

    pub(crate) struct Consumer<T>(Arc<Mutex<VecDeque<T>>>);

    pub(crate) enum PushError<T> {
        Full(T),
    }

    impl<T> RingBuffer<T> {
        #[expect(clippy::new_ret_no_self, reason = "as `rtrb` has it")]
        pub(crate) fn new(capacity: usize) -> (Producer<T>, Consumer<T>) {
            let ring = Arc::new(Mutex::new(VecDeque::new()));
            (Producer(ring.clone(), capacity), Consumer(ring))
        }
    }

    impl<T> Producer<T> {
        pub(crate) fn push(&mut self, value: T) -> Result<(), PushError<T>> {
            let mut ring = self.0.lock().unwrap();
            if ring.len() == self.1 {
                return Err(PushError::Full(value));
            }
            ring.push_back(value);
            Ok(())
        }
    }

    impl<T> Consumer<T> {
        pub(crate) fn pop(&mut self) -> Result<T, ()> {
            self.0.lock().unwrap().pop_front().ok_or(())
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.0.lock().unwrap().is_empty()
        }
    }
}

pub(crate) use alias::*;
