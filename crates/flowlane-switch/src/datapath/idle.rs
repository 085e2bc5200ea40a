//! What a worker does while nothing comes.
//!
//! Frames come in crowds, so it looks again at once for [`BUSY`]. After that it waits for the descriptors of its ports, where
//! all have one: the kernel wakes it with the first frame, and the core is free meanwhile. A request or a new
//! ruleset wakes it, too.

use std::time::{Duration, Instant};

use super::Worker;
use super::handoff::Links;

/// So long after the last packet it looks again at once. Where all of the machine is busy, the core goes to others between two looks:
/// to whom it waits for, where that is a neighbour on this machine. (Spinning instead: a third fewer packets, and twice the
/// round trip, between two namespaces on two cores.)
const BUSY: Duration = Duration::from_micros(50);

/// It waits no longer than this at a time: then it sees to what is idle, and whether it is to stop.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Looks at ports that have no descriptor: at once, then behind other threads, then after a while.
const SPIN_POLLS: u32 = 200;
const YIELD_POLLS: u32 = 1000;
const SLEEP: Duration = Duration::from_micros(50);

/// Spurious wakeups in a row (a descriptor that is ready and has nothing) after which the worker waits before the next poll.
const SPURIOUS_WAKEUPS_MAX: u32 = 8;
const SPURIOUS_BACKOFF: Duration = Duration::from_millis(1);

/// Why it waits no longer.
enum Woken {
    /// A port may have something.
    Port,
    /// A request, a handoff or a new ruleset.
    Asked,
    /// The time is over.
    Time,
}

/// Nothing has come for some time.
#[derive(Debug, Default)]
pub(super) struct Idle {
    since: Option<Instant>,
    rounds: u32,
    wakes: u32,
}

/// After a round that `came` with packets or not: lets the core rest while it is idle, for no longer than `most`.
#[inline]
pub(super) fn wait_for_work(worker: &mut Worker, idle: &mut Idle, came: bool, most: Option<Duration>) {
    // What waits for answers is not to wait for this thread to wake.
    if came || !worker.waiting.is_empty() || worker.links.as_ref().is_some_and(Links::is_backed_up) {
        *idle = Idle::default();
    } else {
        wait_idle(worker, idle, most);
    }
}

#[cold]
fn wait_idle(worker: &mut Worker, idle: &mut Idle, most: Option<Duration>) {
    idle.rounds = idle.rounds.saturating_add(1);
    let since = *idle.since.get_or_insert_with(Instant::now);
    if since.elapsed() < BUSY {
        return std::thread::yield_now();
    }
    let timeout = most.map_or(WAIT_MAX, |most| most.min(WAIT_MAX));
    match wait_for_ports(worker, timeout) {
        Some(Woken::Port) if idle.wakes < SPURIOUS_WAKEUPS_MAX => idle.wakes += 1,
        Some(Woken::Port) => std::thread::sleep(SPURIOUS_BACKOFF),
        Some(Woken::Asked) => {}
        // What is idle is seen to by rounds, and there are none.
        Some(Woken::Time) => worker.maintain(),
        None => match idle.rounds {
            0..SPIN_POLLS => std::hint::spin_loop(),
            SPIN_POLLS..YIELD_POLLS => std::thread::yield_now(),
            _ => std::thread::sleep(SLEEP),
        },
    }
}

/// Waits until a port may have frames or another thread notifies; none where there is no descriptor to wait for.
#[cfg(target_os = "linux")]
fn wait_for_ports(worker: &Worker, timeout: Duration) -> Option<Woken> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let waker = worker.mail.notifier();
    let bell = waker.bell().descriptor()?;
    let mut waited_for = vec![PollFd::from_borrowed_fd(bell, PollFlags::IN)];
    for slot in worker.egress.ports.slots().iter().filter(|slot| !slot.finished) {
        waited_for.push(PollFd::from_borrowed_fd(slot.port.descriptor()?, PollFlags::IN));
    }
    let is_asked = || {
        let has_incoming = worker.links.as_ref().is_some_and(Links::has_incoming);
        has_incoming || !worker.mail.is_empty() || worker.lookup.pipeline.is_asked()
    };
    let woken = waker.sleep(is_asked, || {
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.as_nanos() as i64 };
        match poll(&mut waited_for, Some(&timeout)) {
            Ok(0) => Woken::Time,
            Ok(_) if waited_for[0].revents().is_empty() => Woken::Port,
            // A signal ends it, too.
            _ => Woken::Asked,
        }
    });
    Some(woken.unwrap_or(Woken::Asked))
}

#[cfg(not(target_os = "linux"))]
fn wait_for_ports(_: &Worker, _: Duration) -> Option<Woken> {
    None
}
