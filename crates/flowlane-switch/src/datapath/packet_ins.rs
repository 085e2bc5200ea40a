//! Packets for controllers that are connected by OpenFlow: a bounded queue from the workers to the agent.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use flowlane::packet::key::FlowKey;

use super::pause::{PauseToken, PausedPackets};
use crate::ruleset::ToController;

/// Packets that wait for the agent. Those beyond are dropped and counted: a flood must not fill the memory.
const WAITING_MAX: usize = 1024;

/// A packet for controllers.
#[derive(Clone, Debug)]
pub struct PacketIn {
    /// The action that sent it.
    pub to: Arc<ToController>,
    /// Its first bytes.
    pub bytes: Vec<u8>,
    /// Its length.
    pub total_len: usize,
    /// Its key, with registers.
    pub key: FlowKey,
    /// It waits for a controller to resume it.
    pub paused: Option<PauseToken>,
}

/// The queue.
#[derive(Debug, Default)]
pub struct PacketIns {
    /// The packets that controllers may resume.
    pub paused: PausedPackets,
    waiting: Mutex<VecDeque<PacketIn>>,
    arrived: Condvar,
}

impl PacketIns {
    fn lock(&self) -> MutexGuard<'_, VecDeque<PacketIn>> {
        self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns whether there is room for a packet.
    pub fn has_room(&self) -> bool {
        self.lock().len() < WAITING_MAX
    }

    /// Queues a packet. Returns whether there was room.
    pub fn push(&self, packet: PacketIn) -> bool {
        let mut waiting = self.lock();
        let has_room = waiting.len() < WAITING_MAX;
        if has_room {
            waiting.push_back(packet);
            self.arrived.notify_one();
        }
        has_room
    }

    /// Takes all packets, after waiting for the first for some time.
    pub fn take(&self, patience: Duration) -> VecDeque<PacketIn> {
        let waiting = self.lock();
        let (mut waiting, _) = self
            .arrived
            .wait_timeout_while(waiting, patience, |waiting| waiting.is_empty())
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        std::mem::take(&mut waiting)
    }
}
