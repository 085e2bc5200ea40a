//! How a worker waits for work.
//!
//! Frames come in bunches, so the worker busy-polls for [`BUSY`]. After that it waits for the descriptors of its ports, if all
//! have one: the kernel wakes it with the first frame, and the core is free meanwhile. A request or a handoff wakes it, too. It holds no
//! ruleset then, so that rules change without it, and takes the newest when it goes on.

use std::time::{Duration, Instant};

use super::Worker;
use super::handoff::Links;

/// How long to busy-poll after the last packet, yielding between polls: on a busy machine the peer (a local veth sender, say) may
/// need this core. (Spinning instead: a third fewer packets, and twice the round trip, between two namespaces on two cores.)
const BUSY: Duration = Duration::from_micros(50);

/// Longest single wait: after it the worker runs its maintenance, and checks whether to stop.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Polls of ports without descriptors: spin for the first, yield until the second, then sleep.
const SPIN_POLLS: u32 = 200;
const YIELD_POLLS: u32 = 1000;
const SLEEP: Duration = Duration::from_micros(50);

/// Consecutive spurious wakeups (a ready descriptor without frames) after which the worker sleeps before the next poll.
const SPURIOUS_WAKEUPS_MAX: u32 = 8;
const SPURIOUS_BACKOFF: Duration = Duration::from_millis(1);

/// The reason that a wait ended.
enum Woken {
    /// A port may have frames.
    Port,
    /// A request or a handoff.
    Asked,
    /// The timeout expired.
    Time,
}

/// State of a worker without work.
#[derive(Debug, Default)]
pub(super) struct Idle {
    since: Option<Instant>,
    rounds: u32,
    wakes: u32,
}

/// Waits for work after a round without packets (`came` is false), for no longer than `most`.
#[inline]
pub(super) fn wait_for_work(worker: &mut Worker, idle: &mut Idle, came: bool, most: Option<Duration>) {
    // Packets that wait for answers must not wait for this thread, too.
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
        // Maintenance is otherwise run by rounds, and there are none.
        Some(Woken::Time) => worker.maintain(),
        None => match idle.rounds {
            0..SPIN_POLLS => std::hint::spin_loop(),
            SPIN_POLLS..YIELD_POLLS => std::thread::yield_now(),
            _ => std::thread::sleep(SLEEP),
        },
    }
}

/// Waits until a port may have frames or another thread notifies; `None` if some descriptor is missing. Rules change meanwhile without
/// waking the worker.
#[cfg(target_os = "linux")]
fn wait_for_ports(worker: &mut Worker, timeout: Duration) -> Option<Woken> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Worker { mail, egress, links, lookup, .. } = worker;
    let waker = mail.notifier();
    let bell = waker.bell().descriptor()?;
    let mut waited_for = vec![PollFd::from_borrowed_fd(bell, PollFlags::IN)];
    let descriptors = egress.ports.descriptors()?;
    waited_for.extend(descriptors.into_iter().map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN)));
    lookup.pipeline.rest();
    let is_asked = || {
        let has_incoming = links.as_ref().is_some_and(Links::has_incoming);
        has_incoming || !mail.is_empty() || lookup.pipeline.wants_counters()
    };
    let woken = waker.sleep(is_asked, || {
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.as_nanos() as i64 };
        match poll(&mut waited_for, Some(&timeout)) {
            Ok(0) => Woken::Time,
            Ok(_) if waited_for[0].revents().is_empty() => Woken::Port,
            // Also after a signal.
            _ => Woken::Asked,
        }
    });
    lookup.pipeline.resume();
    Some(woken.unwrap_or(Woken::Asked))
}

#[cfg(not(target_os = "linux"))]
fn wait_for_ports(_: &mut Worker, _: Duration) -> Option<Woken> {
    None
}
