//! Signs of life of the daemon for the manager of the system's services.

use std::collections::BTreeMap;

use flowlane_ovsdb::Uuid;

use super::Daemon;
use super::bridge::Bridge;
use crate::mgmt::rpc::{LoopRounds, ReloadEvent, SwitchStatus};

/// The manager of the system's services, as far as the daemon's loop concerns it.
pub trait DaemonObserver {
    /// Called in each round of the daemon's loop, ten times a second and more.
    fn follow(&self, signs: &Signs<'_>);

    /// Called at the beginning and at the end of reopening the log.
    fn reload(&self, event: ReloadEvent);

    /// Called when the daemon ends, before its bridges do, and possibly again after them.
    fn stopping(&self);
}

/// The daemon's signs of life.
pub struct Signs<'a> {
    bridges: &'a BTreeMap<Uuid, Bridge>,
    rounds: u64,
    is_ready: bool,
}

impl Signs<'_> {
    /// Returns the rounds of the daemon's loop, and of each bridge's control loop and workers.
    pub fn loop_rounds(&self) -> Vec<LoopRounds> {
        let own = LoopRounds { name: "daemon".to_owned(), rounds: self.rounds };
        let of_bridges = self.bridges.values().flat_map(|bridge| {
            let named =
                |one: LoopRounds| LoopRounds { name: format!("{} {}", bridge.name(), one.name), ..one };
            bridge.served().loop_rounds().into_iter().map(named)
        });
        std::iter::once(own).chain(of_bridges).collect()
    }

    /// Returns a line about the daemon; `None` while ports change.
    pub fn status(&self) -> Option<String> {
        if !self.is_ready {
            return Some("waiting for the database".to_owned());
        }
        let mut all = SwitchStatus::default();
        for bridge in self.bridges.values() {
            let one = bridge.served().status()?;
            (all.ports, all.rules, all.workers) =
                (all.ports + one.ports, all.rules + one.rules, all.workers + one.workers);
        }
        Some(format!("{} bridges, {all}", self.bridges.len()))
    }
}

impl Daemon<'_> {
    pub(super) fn signs(&self) -> Signs<'_> {
        Signs { bridges: &self.bridges, rounds: self.rounds, is_ready: self.is_ready }
    }
}
