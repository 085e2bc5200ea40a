//! Messages that wait for a peer to read them, bounded by bytes.
//!
//! A connection's writer sends what waits. An answer that nothing waits before is sent by the thread that has made it, as far as the
//! peer takes it at once: to wake the writer for each of many short answers took as long as the requests.

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

/// A message, or several.
struct Queued {
    bytes: Vec<u8>,
    /// The part of the budget of all connections that a large answer has taken.
    taken: Option<Taken>,
    /// It is the end of a message of which the peer has the beginning.
    is_rest: bool,
}

#[derive(Default)]
struct Waiting {
    messages: VecDeque<Queued>,
    bytes: usize,
    is_closed: bool,
    /// A thread sends bytes that are not in `messages` any more.
    is_sending: bool,
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

    /// Waits until there is room for an answer.
    fn with_room(&self) -> MutexGuard<'_, Waiting> {
        let is_full = |waiting: &mut Waiting| waiting.bytes > ANSWERS_BYTES && !waiting.is_closed;
        self.changed.wait_while(self.lock(), is_full).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Queues an answer, when there is room. Returns whether the writer lives.
    pub(super) fn answer(&self, bytes: Vec<u8>, taken: Option<Taken>) -> bool {
        let mut waiting = self.with_room();
        self.push(&mut waiting, bytes, taken);
        !waiting.is_closed
    }

    /// Sends an answer by `send`, which returns how many bytes the peer has taken at once, and queues the rest; or all of it, where
    /// others wait before it. Returns whether the writer lives.
    pub(super) fn answer_at_once(
        &self,
        bytes: Vec<u8>,
        taken: Option<Taken>,
        send: impl FnOnce(&[u8]) -> usize,
    ) -> bool {
        let mut waiting = self.with_room();
        let waits = !waiting.messages.is_empty() || waiting.is_sending || waiting.is_closed;
        if waits || bytes.is_empty() || bytes.len() > TOGETHER_BYTES {
            self.push(&mut waiting, bytes, taken);
            return !waiting.is_closed;
        }
        waiting.is_sending = true;
        drop(waiting);
        let sent = send(&bytes);
        let mut waiting = self.lock();
        waiting.is_sending = false;
        if sent < bytes.len() && !waiting.is_closed {
            let rest = if sent == 0 { bytes } else { bytes[sent..].to_vec() };
            waiting.bytes += rest.len();
            waiting.messages.push_front(Queued { bytes: rest, taken, is_rest: sent > 0 });
        }
        if !waiting.messages.is_empty() || waiting.is_closed {
            self.changed.notify_all();
        }
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
            waiting.messages.push_back(Queued { bytes, taken, is_rest: false });
            self.changed.notify_all();
        }
    }

    /// Writes messages, until the queue is closed and empty or `write` fails. Short ones are written together; the rest of a message is
    /// marked as such. A message counts until it is written.
    pub(super) fn drain(&self, mut write: impl FnMut(&[u8], bool) -> bool) {
        loop {
            let is_idle = |waiting: &mut Waiting| {
                waiting.is_sending || waiting.messages.is_empty() && !waiting.is_closed
            };
            let waiting = self.changed.wait_while(self.lock(), is_idle);
            let mut waiting = waiting.unwrap_or_else(|poisoned| poisoned.into_inner());
            let Some(Queued { mut bytes, taken, is_rest }) = waiting.messages.pop_front() else { return };
            while let Some(Queued { bytes: next, taken: None, .. }) = waiting.messages.front()
                && !is_rest
                && bytes.len() + next.len() <= TOGETHER_BYTES
            {
                bytes.extend_from_slice(next);
                waiting.messages.pop_front();
            }
            waiting.is_sending = true;
            drop(waiting);
            let is_written = write(&bytes, is_rest);
            drop(taken);
            let mut waiting = self.lock();
            waiting.is_sending = false;
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
            queue.drain(|bytes, _| {
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
        queue.drain(|_, _| panic!("what waited is gone"));
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
        queue.drain(|_, _| false);
        assert!(!queue.answer(vec![3], None));
    }

    #[test]
    fn an_answer_that_the_peer_takes_in_part_keeps_its_place() {
        let queue = Outgoing::default();
        assert!(queue.answer_at_once(vec![1; 10], None, |bytes| bytes.len()));
        assert_eq!(queue.bytes(), 0);
        // What comes meanwhile is behind it.
        assert!(queue.answer_at_once(vec![2; 10], None, |_| {
            queue.event(vec![3; 5]);
            4
        }));
        assert_eq!(queue.bytes(), 11);
        assert!(queue.answer_at_once(vec![4; 5], None, |_| panic!("others wait before it")));
        assert!(queue.answer_at_once(Vec::new(), None, |_| panic!("there is nothing to send")));
        let mut written = Vec::new();
        queue.drain(|bytes, is_rest| {
            written.push((bytes.to_vec(), is_rest));
            if bytes.contains(&4) {
                queue.close();
            }
            true
        });
        assert_eq!(written, [(vec![2; 6], true), ([[3; 5], [4; 5]].concat(), false)]);
        assert!(!queue.answer_at_once(vec![5], None, |_| panic!("it is closed")));
        // A peer that takes nothing, or is gone: the writer finds out.
        let queue = Outgoing::default();
        assert!(queue.answer_at_once(vec![6; 3], None, |_| 0));
        queue.drain(|bytes, is_rest| {
            assert_eq!((bytes, is_rest), (&[6; 3][..], false));
            false
        });
        assert!(!queue.answer(vec![7], None));
    }

    /// While one thread sends, the writer waits, though there is something for it.
    #[test]
    fn the_writer_sends_nothing_in_the_middle_of_an_answer() {
        use std::sync::mpsc;
        use std::time::Duration;
        let queue = Outgoing::default();
        let (written, writes) = mpsc::channel();
        std::thread::scope(|scope| {
            let queue = &queue;
            scope.spawn(move || {
                queue.drain(|bytes, _| {
                    written.send(bytes.to_vec()).unwrap();
                    true
                });
            });
            for sent in [10, 4] {
                while queue.lock().is_sending {
                    std::thread::yield_now();
                }
                queue.answer_at_once(vec![1; 10], None, |bytes| {
                    queue.event(vec![2; 5]);
                    assert!(writes.recv_timeout(Duration::from_millis(50)).is_err(), "in the middle");
                    assert_eq!(bytes.len(), 10);
                    sent
                });
                let mut all = Vec::new();
                while all.len() < 15 - sent {
                    all.extend(writes.recv_timeout(Duration::from_secs(30)).expect("the writer goes on"));
                }
                assert_eq!(all, [vec![1; 10 - sent], vec![2; 5]].concat());
            }
            queue.close();
        });
    }
}
