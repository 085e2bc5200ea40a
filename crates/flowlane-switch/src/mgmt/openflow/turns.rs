//! Turns: how many threads of connections execute requests at a time.
//!
//! A hundred controllers that ask as fast as they can would keep a hundred threads busy, each with an answer that has a message for
//! every rule, and take processors from the workers. Requests of a class are therefore executed one after another, first those from
//! this machine, then those of the connection whose requests have taken least time lately. Classes do not wait for each other's
//! turns: an answer to an echo request does not wait until a million rules are described.
//!
//! Tried and rejected: turns in the order of arrival, with which an operator's request took 5 s beside 60 connections that ask for
//! 20,000 flows.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Thread;
use std::time::{Duration, Instant};

use flowlane_openflow::Header;

/// How long a connection may keep its turn for requests that it has received already, while others wait.
const SLICE: Duration = Duration::from_millis(1);

/// How long a request of tables waits at most for changes of the switch that are under way, and between two looks at them.
const PRECEDENCE: Duration = Duration::from_millis(50);
const PAUSE: Duration = Duration::from_micros(200);

/// A class of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// They need nothing of the switch.
    Connection,
    /// They change the switch, or read a little of it.
    Switch,
    /// They may have answers as long as the tables.
    Tables,
}

impl Class {
    /// Returns the class of a request.
    pub(super) fn of(request: &[u8]) -> Self {
        // Types (OpenFlow 1.3.5, A.1). Version 1.0 has other numbers from 16 on: statistics are 16, and barriers 18.
        let header = Header::read(request);
        match header.map(|header| (header.version, header.kind)) {
            None | Some((_, 0..=3)) => Self::Connection,
            Some((1, 16)) | Some((2.., 18)) => Self::Tables,
            Some((1, 18)) | Some((2.., 20)) => Self::Connection,
            Some(_) => Self::Switch,
        }
    }
}

/// The time that the requests of a connection have taken, of which half is forgotten each second.
pub(super) struct Usage {
    is_local: bool,
    /// Seconds, as they were at a time.
    seconds: Cell<(Instant, f64)>,
}

impl Usage {
    /// The usage of a new connection. Those of this machine, to which only this user can connect, come before all others.
    pub(super) fn new(is_local: bool) -> Self {
        Self { is_local, seconds: Cell::new((Instant::now(), 0.0)) }
    }

    fn seconds(&self) -> f64 {
        let (since, seconds) = self.seconds.get();
        seconds * (-since.elapsed().as_secs_f64()).exp2()
    }

    /// The place among waiting connections: the lowest is next.
    fn rank(&self) -> (bool, u64) {
        (!self.is_local, (self.seconds() * 1e6) as u64)
    }

    fn add(&self, time: Duration) {
        self.seconds.set((Instant::now(), self.seconds() + time.as_secs_f64()));
    }
}

struct Waiting {
    rank: (bool, u64),
    thread: Thread,
    /// Set when it has the turn.
    mark: Arc<AtomicBool>,
}

#[derive(Default)]
struct Queue {
    is_taken: bool,
    /// In the order of arrival.
    waiting: Vec<Waiting>,
}

/// The turns of all classes.
#[derive(Default)]
pub(super) struct Turns([Mutex<Queue>; 3]);

/// A turn, which ends when dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    usage: &'a Usage,
    class: Class,
    begun: Instant,
}

impl Turns {
    fn lock(&self, class: Class) -> MutexGuard<'_, Queue> {
        self.0[class as usize].lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits for a turn of a connection.
    pub(super) fn take<'a>(&'a self, class: Class, usage: &'a Usage) -> Turn<'a> {
        let mut queue = self.lock(class);
        if queue.is_taken {
            let mark = Arc::new(AtomicBool::new(false));
            let (rank, thread) = (usage.rank(), std::thread::current());
            queue.waiting.push(Waiting { rank, thread, mark: mark.clone() });
            drop(queue);
            while !mark.load(Ordering::Acquire) {
                std::thread::park();
            }
        } else {
            queue.is_taken = true;
            drop(queue);
        }
        if class == Class::Tables {
            // The lock of control has no order: requests of tables, one right after another, would keep it from a change.
            let until = Instant::now() + PRECEDENCE;
            while self.lock(Class::Switch).is_taken && Instant::now() < until {
                std::thread::sleep(PAUSE);
            }
        }
        Turn { turns: self, usage, class, begun: Instant::now() }
    }
}

impl Turn<'_> {
    /// Returns whether a request of this class may be executed in this turn, too.
    pub(super) fn is_for(&self, class: Class) -> bool {
        self.class == class && class != Class::Tables && self.begun.elapsed() < SLICE
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.usage.add(self.begun.elapsed());
        let mut queue = self.turns.lock(self.class);
        // The first of those that have used as little.
        let next = (0..queue.waiting.len()).min_by_key(|place| queue.waiting[*place].rank);
        match next.map(|place| queue.waiting.remove(place)) {
            Some(Waiting { thread, mark, .. }) => {
                mark.store(true, Ordering::Release);
                thread.unpark();
            }
            None => queue.is_taken = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_that_has_used_least_is_next() {
        let (turns, order) = (Turns::default(), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            let own = Usage::new(false);
            let first = turns.take(Class::Tables, &own);
            for n in 0..20 {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let usage = Usage::new(n == 11);
                    usage.add(Duration::from_secs(1000 * (n as u64 * 7 % 20)));
                    let _turn = turns.take(Class::Tables, &usage);
                    order.lock().unwrap().push(if n == 11 { 0 } else { n * 7 % 20 });
                });
                while turns.lock(Class::Tables).waiting.len() <= n {
                    std::thread::yield_now();
                }
            }
            drop(turns.take(Class::Connection, &own));
            drop(first);
        });
        // The eleventh is of this machine, and would be the last but two.
        let others = (0..20).filter(|place| *place != 17);
        assert_eq!(*order.lock().unwrap(), std::iter::once(0).chain(others).collect::<Vec<_>>());
        assert!(!turns.lock(Class::Tables).is_taken);
    }

    #[test]
    fn statistics_are_a_class_in_every_version() {
        let request = |version, kind| [version, kind, 0, 8, 0, 0, 0, 1];
        for (version, kind, class) in [
            (1, 2, Class::Connection),
            (1, 14, Class::Switch),
            (1, 16, Class::Tables),
            (1, 18, Class::Connection),
            (4, 14, Class::Switch),
            (4, 18, Class::Tables),
            (6, 18, Class::Tables),
            (4, 20, Class::Connection),
        ] {
            assert_eq!(Class::of(&request(version, kind)), class, "{version}: {kind}");
        }
    }
}
