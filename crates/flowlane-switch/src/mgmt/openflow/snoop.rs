//! Copies of the messages between the switch and its controllers, for `ovs-ofctl snoop`.
//!
//! A client agrees with the switch on a version, as a controller does, and then gets the messages of that version, and all greetings. A
//! client that does not read misses messages; controllers do not notice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use flowlane_openflow::{Header, Version, split};

use super::outgoing::Outgoing;

#[derive(Debug, Default)]
struct Clients {
    last: u64,
    all: BTreeMap<u64, (Version, Arc<Outgoing>)>,
}

/// The clients that get copies.
#[derive(Debug, Default)]
pub(super) struct Snoopers {
    clients: Mutex<Clients>,
    /// Without any, messages are not looked at.
    is_any: AtomicBool,
}

impl Snoopers {
    fn lock(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn add(&self, version: Version, queue: Arc<Outgoing>) -> u64 {
        let mut clients = self.lock();
        clients.last += 1;
        let id = clients.last;
        clients.all.insert(id, (version, queue));
        self.is_any.store(true, Ordering::Relaxed);
        id
    }

    pub(super) fn remove(&self, id: u64) {
        let mut clients = self.lock();
        clients.all.remove(&id);
        self.is_any.store(!clients.all.is_empty(), Ordering::Relaxed);
    }

    /// Copies messages that are sent or received.
    pub(super) fn copy(&self, mut messages: &[u8]) {
        if !self.is_any.load(Ordering::Relaxed) {
            return;
        }
        let clients = self.lock();
        while let Ok(Some((message, rest))) = split(messages) {
            let Some(header) = Header::read(message) else { return };
            let is_hello = header.kind == 0;
            for (version, queue) in clients.all.values() {
                if is_hello || header.version == version.number() {
                    queue.event(message.to_vec());
                }
            }
            messages = rest;
        }
    }
}
