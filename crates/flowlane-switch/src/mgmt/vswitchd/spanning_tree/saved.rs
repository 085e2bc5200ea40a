//! The tree of a daemon that ends, with which the next one goes on.
//!
//! Ports of the next daemon come one after the other, and a tree without some of its ports would say to neighbours that it has another
//! root. So all of them discard, and send nothing, until [`go_on`](BridgeTree::go_on) is called.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use serde::{Deserialize, Serialize};
use serde_json::{Value, from_value, to_value};

use super::{BridgeTree, Running};
use crate::mgmt::rpc::ControlServer;
use crate::mgmt::vswitchd::bfd::{SAVED_MAX, unix_ms};
use crate::mgmt::vswitchd::multicast::BridgeSnooping;
use crate::state::rstp::{Rstp, SavedPort};

/// A tree, for another process.
#[derive(Serialize, Deserialize)]
pub(super) struct SavedTree {
    /// When it was saved, in milliseconds since 1970.
    unix_ms: u64,
    is_rapid: bool,
    /// By their names.
    ports: BTreeMap<String, SavedPort>,
}

impl BridgeTree {
    /// Returns the tree, for another process; null where there is none.
    pub(in super::super) fn save(&self) -> Value {
        let running = self.lock();
        let Some(running) = &*running else { return Value::Null };
        let named = running.rstp.save().filter_map(|(number, port)| {
            let name = &running.ports.get(&number)?.name;
            Some((name.clone(), port))
        });
        let saved = SavedTree { unix_ms: unix_ms(), is_rapid: running.is_rapid, ports: named.collect() };
        to_value(saved).unwrap_or_default()
    }

    /// Takes the tree of another process, for ports that are opened from now on.
    pub(in super::super) fn restore(&self, saved: Value) {
        // Without it, neighbours agree again.
        let saved = from_value::<SavedTree>(saved).ok();
        let saved = saved.filter(|saved| !saved.ports.is_empty() && saved.ports.len() <= SAVED_MAX);
        *self.saved.lock().unwrap_or_else(PoisonError::into_inner) = saved;
    }

    /// Returns whether there are ports still to come.
    pub(super) fn is_waiting(&self) -> bool {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Goes on with the tree of another process, if there is one: all ports are there.
    pub(in super::super) fn go_on(&self, served: &ControlServer, snooping: &BridgeSnooping) {
        let Some(saved) = self.saved.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let turn = self.thread.take_turn();
        if let Some(running) = &mut *self.lock() {
            running.resume(saved, self.thread.now_ms(), served);
        }
        drop(turn);
        self.update(served, snooping);
    }
}

impl Running {
    fn resume(&mut self, saved: SavedTree, now_ms: u64, served: &ControlServer) {
        let SavedTree { unix_ms: then, is_rapid, mut ports } = saved;
        // A clock that went back does not say how long neighbours have waited.
        let passed_ms = unix_ms().checked_sub(then);
        if let Some(passed_ms) = passed_ms.filter(|_| is_rapid == self.is_rapid) {
            let known = self.ports.iter();
            let ports = known.filter_map(|(number, port)| Some((*number, ports.remove(&port.name)?)));
            self.rstp = Rstp::resume(self.settings.clone(), ports.collect(), passed_ms, now_ms);
        }
        self.follow_ports(served);
    }
}
