//! The workers of one switch: a thread each, on a core of its own.
//!
//! All use one ruleset and run to completion: a worker processes the packets that it receives to their end, but [hands
//! over](super::handoff) those whose state in a stage another worker owns. Workers share the FDB, meters, the ruleset and the
//! clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::handoff::Links;
use super::{RunError, Until, Worker};

/// A switch of one or more workers.
pub struct Switch {
    workers: Vec<Worker>,
}

/// State of a run that all its workers share.
#[derive(Debug)]
pub(super) struct Run<'a> {
    begun: Instant,
    duration: Option<Duration>,
    stop: &'a AtomicBool,
    /// A worker has failed: the others must stop without waiting for it.
    failed: AtomicBool,
    /// Packets that may still be received; `None` for no limit.
    left: Option<AtomicU64>,
    /// Received packets, as far as workers have reported them.
    received: AtomicU64,
}

impl<'a> Run<'a> {
    /// Begins a run now.
    pub(super) fn new(until: Until, stop: &'a AtomicBool) -> Self {
        Self {
            begun: Instant::now(),
            duration: until.duration,
            stop,
            failed: AtomicBool::new(false),
            left: until.packets.map(AtomicU64::new),
            received: AtomicU64::new(0),
        }
    }

    /// Returns when it began, the origin of all workers' clocks.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// Returns the time left; `None` for no limit.
    #[inline]
    pub(super) fn time_left(&self) -> Option<Duration> {
        self.duration.map(|duration| duration.saturating_sub(self.begun.elapsed()))
    }

    /// Returns whether workers must stop receiving.
    #[inline]
    pub(super) fn is_to_end(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.is_full() || self.time_left() == Some(Duration::ZERO)
    }

    /// Returns whether as many packets have been received as were asked for.
    pub(super) fn is_full(&self) -> bool {
        self.left.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }

    pub(super) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Claims up to `most` packets; returns how many may be received.
    #[inline]
    pub(super) fn claim(&self, most: u64) -> u64 {
        let Some(left) = &self.left else { return most };
        let less = |left: u64| Some(left - left.min(most));
        let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        before.unwrap_or_else(|left| left).min(most)
    }

    /// Returns claimed packets that were not received.
    #[inline]
    pub(super) fn give_back(&self, packets: u64) {
        if let Some(left) = &self.left {
            left.fetch_add(packets, Ordering::Relaxed);
        }
    }

    /// Adds to the received packets; returns the sum.
    pub(super) fn add_received(&self, packets: u64) -> u64 {
        self.received.fetch_add(packets, Ordering::Relaxed) + packets
    }
}

impl Switch {
    /// Makes a switch of these workers, which have the same ports at the same indices, and one ruleset.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(workers: Vec<Worker>) -> Self {
        assert!(!workers.is_empty(), "a switch has a worker");
        Self { workers }
    }

    /// Returns the workers, while the switch does not run.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// The workers, to be changed.
    pub fn workers_mut(&mut self) -> &mut [Worker] {
        &mut self.workers
    }

    /// Switches until every port has come to its end, `until` is reached, or `stop` is set. `progress` is called now and then
    /// with the packets received so far. One worker runs on the calling thread; several have threads of their own, each on a core
    /// of its own where there are as many.
    ///
    /// # Errors
    /// The first worker's failure, as of [`Worker::run`], or that it panicked; the others are stopped then.
    pub fn run(
        &mut self,
        until: Until,
        stop: &AtomicBool,
        mut progress: impl FnMut(u64) + Send,
    ) -> Result<(), RunError> {
        if let [worker] = &mut self.workers[..] {
            return worker.run(until, stop, progress);
        }
        let wakers: Vec<_> = self.workers.iter().map(|worker| worker.mail.notifier().clone()).collect();
        let links = Links::between(&wakers);
        self.workers.iter_mut().zip(links).for_each(|(worker, links)| worker.links = Some(links));
        let run = &Run::new(until, stop);
        let mut cores = cores();
        if cores.len() < self.workers.len() {
            cores.clear();
        }
        let mut first: Option<&mut (dyn FnMut(u64) + Send)> = Some(&mut progress);
        let result = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (place, worker) in self.workers.iter_mut().enumerate() {
                let (mut tell, core) = (first.take(), cores.get(place).copied());
                let body = move || {
                    if let Some(core) = core {
                        pin(core);
                    }
                    worker.run_of(run, place, &mut |packets| {
                        if let Some(tell) = &mut tell {
                            tell(packets);
                        }
                    })
                };
                let thread = std::thread::Builder::new().name(format!("worker-{place}"));
                match thread.spawn_scoped(scope, body) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        run.fail();
                        return Err(RunError::Thread(error));
                    }
                }
            }
            let ended = threads.into_iter().map(|thread| thread.join().expect("it catches panics"));
            let ended: Vec<Result<(), RunError>> = ended.collect();
            ended.into_iter().collect()
        });
        self.workers.iter_mut().for_each(|worker| worker.links = None);
        result
    }
}

/// The cores that this process may use.
#[cfg(target_os = "linux")]
fn cores() -> Vec<usize> {
    let Ok(may) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| may.is_set(core)).collect()
}

/// Keeps this thread on a core. Where that is refused it goes where the system lets it.
#[cfg(target_os = "linux")]
fn pin(core: usize) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(core);
    _ = rustix::thread::sched_setaffinity(None, &only);
}

#[cfg(not(target_os = "linux"))]
fn cores() -> Vec<usize> {
    Vec::new()
}

#[cfg(not(target_os = "linux"))]
fn pin(_: usize) {}
