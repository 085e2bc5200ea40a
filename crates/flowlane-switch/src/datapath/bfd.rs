//! Control packets of BFD: those that come in through ports with sessions leave the way of packets here, and those of sessions are
//! sent. Sessions themselves are of another thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Instant;

use flowlane::packet::batch::LaneMask;
use flowlane::packet::key::FlowKey;
use flowlane::packet::{Field, parse};
use flowlane::rule::action::PortNo;

use super::Worker;
use crate::packet::{Burst, Frame};
use crate::state::bfd::{FRAME_MAX, Filter, is_control};

/// Control packets that wait for their session; further ones are dropped. They come a few times a second.
const WAITING_MAX: usize = 16;

/// A control packet that has come in.
#[derive(Debug)]
pub struct BfdFrame {
    pub bytes: Vec<u8>,
    pub received: Instant,
    /// Its checksums have been completed, not left to a device.
    pub is_complete: bool,
}

/// The control packets of a port on their way to its session.
#[derive(Debug)]
pub struct BfdInlet {
    filter: Filter,
    /// Only those in tunnels whose key is 0.
    checks_key: bool,
    waiting: Mutex<Vec<BfdFrame>>,
    /// The thread of the session.
    thread: Thread,
}

impl BfdInlet {
    /// Makes an inlet for a session that this thread runs.
    pub fn new(filter: Filter, checks_key: bool, thread: Thread) -> Self {
        Self { filter, checks_key, waiting: Mutex::default(), thread }
    }

    /// Returns whether a packet is for the session.
    fn takes(&self, frame: &Frame, key: &FlowKey) -> bool {
        is_control(frame.bytes(), &self.filter) && (!self.checks_key || key.get(Field::TunId) == 0)
    }

    /// Passes a packet to the session. Returns whether there was room.
    fn put(&self, frame: &Frame) -> bool {
        let mut waiting = self.lock();
        let has_room = waiting.len() < WAITING_MAX && frame.len() <= FRAME_MAX;
        if has_room {
            waiting.push(BfdFrame {
                bytes: frame.bytes().to_vec(),
                received: Instant::now(),
                is_complete: frame.offload.is_none(),
            });
        }
        drop(waiting);
        self.thread.unpark();
        has_room
    }

    /// Takes the packets that have come.
    pub fn take(&self) -> Vec<BfdFrame> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<BfdFrame>> {
        // Packets are added whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes the control packets of a burst to their session; returns their lanes.
#[cold]
pub(super) fn take(worker: &mut Worker, burst: &Burst, live: LaneMask) -> LaneMask {
    let slot = &mut worker.egress.ports.slots_mut()[burst.port];
    let mut taken = LaneMask(0);
    let Some(inlet) = &slot.bfd else { return taken };
    for lane in live.lanes() {
        let frame = &burst.frames[lane];
        if inlet.takes(frame, &burst.keys[lane]) {
            taken.0 |= 1 << lane;
            slot.counters.rx_dropped += u64::from(!inlet.put(frame));
        }
    }
    taken
}

impl Worker {
    /// Gives a port a session of BFD, or takes it. Returns whether there is such a port.
    pub fn set_bfd(&mut self, port: PortNo, inlet: Option<Arc<BfdInlet>>) -> bool {
        let place = self.egress.ports.place(port);
        if let Some(place) = place {
            self.egress.ports.slots_mut()[place].bfd = inlet;
        }
        place.is_some()
    }

    /// Sends frames through ports, into their tunnels where they are such. They leave with the packets of this round.
    pub fn send_frames(&mut self, frames: &[(PortNo, Vec<u8>)]) {
        let (mut frame, mut key) = (Frame::default(), FlowKey::zero());
        for (port, bytes) in frames {
            let Some(place) = self.egress.ports.place(*port) else { continue };
            frame.fill(bytes);
            parse(frame.bytes(), 0, &mut key);
            // A port that fails for good ends the run by the next packet.
            _ = self.egress.send(place, &frame, &key);
        }
    }

    /// Returns the numbers of packets that ports have received.
    pub fn received(&self, ports: &[PortNo]) -> Vec<u64> {
        let of = |port: &PortNo| {
            let place = self.egress.ports.place(*port)?;
            Some(self.egress.ports.slots()[place].counters.rx_packets)
        };
        ports.iter().map(|port| of(port).unwrap_or(0)).collect()
    }
}
