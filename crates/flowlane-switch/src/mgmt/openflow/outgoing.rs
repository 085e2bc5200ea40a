//! Messages that wait for a peer to read them, bounded by bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::mgmt::rpc::{Budget, Taken};

/// Answers wait while more than this waits.
const ANSWERS_BYTES: usize = 1 << 20;
/// Messages that the peer has not asked for are dropped while more than this waits.
const EVENTS_BYTES: usize = 1 << 18;
/// The queue of a peer that may not miss messages ends while more than this waits.
const NOTICES_BYTES: usize = 1 << 25;

/// Messages up to this length together are written at once.
const TOGETHER_BYTES: usize = 1 << 14;

#[derive(Default)]
struct Waiting {
    /// With what a large answer has taken of the budget of all connections.
    messages: VecDeque<(Vec<u8>, Option<Taken>)>,
    bytes: usize,
    is_closed: bool,
}

/// The queue between a connection and its writer.
#[derive(Default)]
pub(super) struct Outgoing {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl std::fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outgoing").field("bytes", &self.lock().bytes).finish_non_exhaustive()
    }
}

impl Outgoing {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns whether an answer would wait.
    pub(super) fn is_full(&self) -> bool {
        let waiting = self.lock();
        waiting.bytes > ANSWERS_BYTES && !waiting.is_closed
    }

    /// Queues an answer, when there is room. Returns whether the writer lives.
    pub(super) fn answer(&self, bytes: Vec<u8>, taken: Option<Taken>) -> bool {
        let waiting = self.lock();
        let is_full = |waiting: &mut Waiting| waiting.bytes > ANSWERS_BYTES && !waiting.is_closed;
        let mut waiting =
            self.changed.wait_while(waiting, is_full).unwrap_or_else(|poisoned| poisoned.into_inner());
        self.push(&mut waiting, bytes, taken);
        !waiting.is_closed
    }

    /// Queues a message that the peer has not asked for, if there is room.
    pub(super) fn event(&self, bytes: Vec<u8>) {
        let mut waiting = self.lock();
        if waiting.bytes <= EVENTS_BYTES {
            self.push(&mut waiting, bytes, None);
        }
    }

    /// Queues a message that the peer has not asked for and may not miss. Without room the queue ends, so that the
    /// peer sees that it missed something.
    pub(super) fn notice(&self, bytes: Vec<u8>, budget: &Arc<Budget>) {
        let mut waiting = self.lock();
        // What a monitor of many flows begins with is long by itself.
        let is_much = waiting.bytes.max(bytes.len()) > EVENTS_BYTES;
        let taken = is_much.then(|| budget.take(bytes.len()));
        match taken {
            _ if waiting.bytes > NOTICES_BYTES => self.end(&mut waiting),
            Some(None) => self.end(&mut waiting),
            Some(taken) => self.push(&mut waiting, bytes, taken),
            None => self.push(&mut waiting, bytes, None),
        }
    }

    /// Returns how many bytes wait.
    pub(super) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Ends the queue; what waits is not sent.
    pub(super) fn abort(&self) {
        self.end(&mut self.lock());
    }

    fn end(&self, waiting: &mut Waiting) {
        waiting.is_closed = true;
        waiting.messages.clear();
        self.changed.notify_all();
    }

    fn push(&self, waiting: &mut Waiting, bytes: Vec<u8>, taken: Option<Taken>) {
        if !bytes.is_empty() && !waiting.is_closed {
            waiting.bytes += bytes.len();
            waiting.messages.push_back((bytes, taken));
            self.changed.notify_all();
        }
    }

    /// Writes messages, until the queue is closed and empty or `write` fails. Short ones are written together. A message counts until it
    /// is written.
    pub(super) fn drain(&self, mut write: impl FnMut(&[u8]) -> bool) {
        loop {
            let waiting = self.lock();
            let is_idle = |waiting: &mut Waiting| waiting.messages.is_empty() && !waiting.is_closed;
            let waiting = self.changed.wait_while(waiting, is_idle);
            let mut waiting = waiting.unwrap_or_else(|poisoned| poisoned.into_inner());
            let Some((mut bytes, taken)) = waiting.messages.pop_front() else { return };
            while let Some((next, None)) = waiting.messages.front()
                && bytes.len() + next.len() <= TOGETHER_BYTES
            {
                bytes.extend_from_slice(next);
                waiting.messages.pop_front();
            }
            drop(waiting);
            let is_written = write(&bytes);
            drop(taken);
            let mut waiting = self.lock();
            waiting.bytes -= bytes.len();
            match is_written {
                true => self.changed.notify_all(),
                false => self.end(&mut waiting),
            }
        }
    }

    /// Accepts no further messages.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_does_not_read_loses_events_and_makes_answers_wait() {
        let queue = Outgoing::default();
        for _ in 0..10_000 {
            queue.event(vec![0; 1000]);
        }
        assert!(queue.lock().bytes <= EVENTS_BYTES + 1000);
        assert!(!queue.is_full());
        assert!(queue.answer(vec![1; 2 * ANSWERS_BYTES], None), "one answer may be longer than the queue");
        assert!(queue.is_full());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| queue.answer(vec![2; 10], None));
            let mut written = Vec::new();
            queue.drain(|bytes| {
                written.push(bytes[0]);
                if bytes[0] == 2 {
                    queue.close();
                }
                true
            });
            assert!(waits.join().unwrap());
            assert_eq!(&written[written.len() - 2..], [1, 2]);
        });
        assert!(!queue.answer(vec![3], None), "it is closed");
        assert_eq!(queue.lock().bytes, 0);
    }

    #[test]
    fn notices_wait_where_events_are_dropped_until_there_is_no_room() {
        let (queue, budget) = (Outgoing::default(), Budget::new(NOTICES_BYTES));
        let sent = (0..).find(|_| {
            queue.notice(vec![0; 1000], &budget);
            queue.lock().is_closed
        });
        assert!((NOTICES_BYTES / 1000..NOTICES_BYTES / 1000 + 3).contains(&sent.unwrap()));
        queue.drain(|_| panic!("what waited is gone"));
        let others = Outgoing::default();
        (0..2 * EVENTS_BYTES / 1000).for_each(|_| others.notice(vec![0; 1000], &budget));
        assert!(!others.lock().is_closed, "the budget is free again");
        let (none, all) = (Outgoing::default(), Budget::new(1000));
        (0..2 * EVENTS_BYTES / 1000).for_each(|_| none.notice(vec![0; 1000], &all));
        assert!(none.lock().is_closed, "all others use the budget");
    }

    #[test]
    fn a_writer_that_fails_ends_the_queue() {
        let queue = Outgoing::default();
        queue.event(vec![1]);
        queue.event(vec![2]);
        queue.drain(|_| false);
        assert!(!queue.answer(vec![3], None));
    }
}
