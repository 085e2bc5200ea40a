//! Expectations: connections that messages of others have announced and that have not begun, or may begin again.
//!
//! An expectation has the tuple of the first packet, whose source port may be any. It is valid for some minutes, and while its control
//! connection is there. The number of all is limited: the oldest makes room. Packets of other connections meet it once, when they
//! begin, and then read one counter where there is none.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use super::super::entry::Translated;
use super::super::table::Place;
use super::super::tuple::{End, Tuple};

/// Expectations of all connections: some 8 MB.
pub(in super::super) const EXPECTATIONS_MAX: usize = 16_384;

/// Milliseconds for which one is valid: as in Linux, 5 minutes.
pub(in super::super) const VALID_MS: u64 = 300_000;

/// A connection that is expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in super::super) struct Expectation {
    /// The control connection, and its original tuple.
    pub(in super::super) control: Place,
    pub(in super::super) control_tuple: Tuple,
    /// The end that has announced it: 0 the client, 1 the server.
    pub(super) direction: usize,
    /// Its fields, which the expected connection begins with.
    pub(in super::super) mark: u32,
    pub(in super::super) label: u128,
    /// The reply tuple of the expected connection where it is translated: its addresses and its source port.
    pub(in super::super) reply_addresses: [u128; 2],
    pub(in super::super) reply_port: u16,
    pub(in super::super) translated: Translated,
}

impl Expectation {
    /// Returns the reply tuple of a connection that was expected, and that is translated.
    pub(in super::super) fn reply(&self, original: &Tuple) -> Tuple {
        let mut reply = original.reversed();
        [reply.source.address, reply.destination.address] = self.reply_addresses;
        reply.source.port = self.reply_port;
        reply
    }
}

#[derive(Debug)]
struct Kept {
    expectation: Expectation,
    expires_ms: u64,
    /// Its entry in the order.
    serial: u64,
}

#[derive(Debug, Default)]
struct Inner {
    all: HashMap<Tuple, Kept>,
    /// Tuples in the order in which they expire; an entry with another serial number is stale.
    order: VecDeque<(Tuple, u64)>,
    serial: u64,
}

impl Inner {
    /// Removes those whose time is over, and the oldest where there is no room for another.
    fn make_room(&mut self, now_ms: u64) {
        while let Some((tuple, serial)) = self.order.front() {
            let kept = self.all.get(tuple).filter(|kept| kept.serial == *serial);
            let may_go = kept.is_none_or(|kept| kept.expires_ms <= now_ms);
            if !may_go && self.order.len() < EXPECTATIONS_MAX {
                return;
            }
            if kept.is_some() {
                self.all.remove(tuple);
            }
            self.order.pop_front();
        }
    }
}

/// The expectations of all connections.
#[derive(Debug, Default)]
pub(in super::super) struct Expectations {
    /// Those in `inner`, which need no lock to be counted.
    count: AtomicUsize,
    inner: RwLock<Inner>,
}

/// Returns the tuple of an expectation that a packet with this tuple meets.
fn key(tuple: &Tuple) -> Tuple {
    Tuple { source: End { port: 0, ..tuple.source }, ..*tuple }
}

impl Expectations {
    /// Returns the number of expectations, those that are not valid any more included.
    pub(in super::super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Finds the expectation that the first packet of a connection meets. `is_there` says whether a control connection is.
    #[inline]
    pub(in super::super) fn find(
        &self,
        tuple: &Tuple,
        now_ms: u64,
        is_there: impl Fn(Place) -> bool,
    ) -> Option<Expectation> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let kept = inner.all.get(&key(tuple))?;
        let is_valid = kept.expires_ms > now_ms && is_there(kept.expectation.control);
        is_valid.then(|| kept.expectation.clone())
    }

    /// Adds an expectation. One that is there keeps its fields, and is valid for longer. Returns whether another connection's with
    /// this tuple is in the way.
    pub(super) fn add(
        &self,
        tuple: &Tuple,
        expectation: Expectation,
        now_ms: u64,
        is_there: impl Fn(Place) -> bool,
    ) -> bool {
        self.add_until(tuple, expectation, (now_ms, now_ms + VALID_MS), is_there)
    }

    /// Adds an expectation that is valid until a time.
    pub(super) fn add_until(
        &self,
        tuple: &Tuple,
        expectation: Expectation,
        (now_ms, expires_ms): (u64, u64),
        is_there: impl Fn(Place) -> bool,
    ) -> bool {
        let tuple = key(tuple);
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let inner = &mut *inner;
        inner.make_room(now_ms);
        let kept = inner.all.get(&tuple).filter(|kept| is_there(kept.expectation.control));
        if kept.is_some_and(|kept| kept.expectation.control != expectation.control) {
            return true;
        }
        // Messages that are sent again do not fill the order.
        if kept.is_some_and(|kept| kept.expires_ms > now_ms + VALID_MS / 2) {
            return false;
        }
        let expectation = kept.map_or(expectation, |kept| kept.expectation.clone());
        inner.serial += 1;
        let serial = inner.serial;
        inner.all.insert(tuple, Kept { expectation, expires_ms, serial });
        inner.order.push_back((tuple, serial));
        self.count.store(inner.all.len(), Ordering::Release);
        false
    }

    /// Copies some from a serial number on, in the order in which they expire: each with its tuple and the time at which it does.
    /// Returns the serial number to continue from, if any.
    pub(super) fn copy(&self, from: u64, budget: usize) -> (Vec<(Tuple, Expectation, u64)>, Option<u64>) {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let begin = inner.order.partition_point(|(_, serial)| *serial < from);
        let slice = inner.order.iter().skip(begin);
        let next = slice.clone().nth(budget).map(|(_, serial)| *serial);
        let live = slice.take(budget).filter_map(|(tuple, serial)| {
            let kept = inner.all.get(tuple).filter(|kept| kept.serial == *serial)?;
            Some((*tuple, kept.expectation.clone(), kept.expires_ms))
        });
        (live.collect(), next)
    }

    /// Removes those whose time is over, unless another thread is at it.
    pub(in super::super) fn sweep(&self, now_ms: u64) {
        if self.count.load(Ordering::Acquire) > 0
            && let Ok(mut inner) = self.inner.try_write()
        {
            inner.make_room(now_ms);
            self.count.store(inner.all.len(), Ordering::Release);
        }
    }

    /// Removes an expectation of a control connection.
    pub(super) fn remove(&self, tuple: &Tuple, control: Place) {
        let tuple = key(tuple);
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if inner.all.get(&tuple).is_some_and(|kept| kept.expectation.control == control) {
            inner.all.remove(&tuple);
        }
        self.count.store(inner.all.len(), Ordering::Release);
    }
}
