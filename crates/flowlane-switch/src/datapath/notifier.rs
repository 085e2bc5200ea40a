//! Wakes a waiting worker from another thread.

use std::sync::Arc;

use crate::sync::{AtomicBool, Ordering, fence};

/// A handle that wakes a waiting worker.
#[derive(Clone, Debug, Default)]
pub struct Notifier(Arc<Sleeper>);

#[derive(Debug, Default)]
struct Sleeper {
    asleep: AtomicBool,
    bell: EventFd,
}

impl Notifier {
    /// Wakes the worker if it sleeps. Call it after publishing the work.
    #[inline]
    pub fn wake(&self) {
        // Either the worker sees the work published before this fence, or this thread sees `asleep`.
        fence(Ordering::SeqCst);
        if self.0.asleep.load(Ordering::Relaxed) {
            self.0.bell.ring();
        }
    }

    /// Returns the event descriptor that ends the worker's sleep.
    pub(super) fn bell(&self) -> &EventFd {
        &self.0.bell
    }

    /// Runs `sleep`, which the [bell](Self::bell) must end, unless `is_asked`: returns `None` then.
    pub(super) fn sleep<T>(&self, is_asked: impl FnOnce() -> bool, sleep: impl FnOnce() -> T) -> Option<T> {
        self.0.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let slept = (!is_asked()).then(sleep);
        self.0.asleep.store(false, Ordering::Relaxed);
        self.0.bell.silence();
        slept
    }
}

/// An eventfd: readable once it has been rung, until it is silenced.
#[cfg(all(target_os = "linux", not(all(loom, test))))]
#[derive(Debug, Default)]
pub(super) struct EventFd(std::sync::OnceLock<Option<std::os::fd::OwnedFd>>);

#[cfg(all(target_os = "linux", not(all(loom, test))))]
impl EventFd {
    /// Returns the eventfd; `None` if the system has none left: the worker then polls.
    pub(super) fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        use rustix::event::{EventfdFlags, eventfd};
        use std::os::fd::AsFd;
        let made = || eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).ok();
        self.0.get_or_init(made).as_ref().map(AsFd::as_fd)
    }

    fn ring(&self) {
        if let Some(descriptor) = self.descriptor() {
            // A full counter is readable all the same.
            _ = rustix::io::write(descriptor, &1u64.to_ne_bytes());
        }
    }

    fn silence(&self) {
        if let Some(descriptor) = self.descriptor() {
            _ = rustix::io::read(descriptor, &mut [0; 8]);
        }
    }
}

/// Empty: on this system a worker does not wait for descriptors.
#[cfg(all(not(target_os = "linux"), not(all(loom, test))))]
#[derive(Debug, Default)]
pub(super) struct EventFd;

#[cfg(all(not(target_os = "linux"), not(all(loom, test))))]
impl EventFd {
    fn ring(&self) {}

    fn silence(&self) {}
}

/// Replaces the eventfd where loom checks the protocol.
#[cfg(all(loom, test))]
#[derive(Debug)]
pub(super) struct EventFd(crate::sync::Mutex<bool>, loom::sync::Condvar);

#[cfg(all(loom, test))]
impl Default for EventFd {
    fn default() -> Self {
        Self(crate::sync::Mutex::new(false), loom::sync::Condvar::new())
    }
}

#[cfg(all(loom, test))]
impl EventFd {
    pub(super) fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Waits until it has been rung.
    pub(super) fn wait(&self) {
        let mut rung = self.0.lock().unwrap();
        while !*rung {
            rung = self.1.wait(rung).unwrap();
        }
    }

    fn ring(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn silence(&self) {
        *self.0.lock().unwrap() = false;
    }
}
