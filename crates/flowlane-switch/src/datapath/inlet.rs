//! Control packets of protocols between neighbours, on their way from workers to the thread of their sessions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Instant;

use flowlane::packet::batch::LaneMask;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse;
use flowlane::rule::action::PortNo;

use super::{Worker, bfd};
use crate::packet::{Burst, Frame};
use crate::ruleset::PortFlags;
use crate::state::lacp::is_slow_protocol;
use crate::state::mirror::MirrorSet;
use crate::state::rstp::is_bpdu;

/// Control packets that wait for their session; further ones are dropped. They come a few times a second.
const WAITING_MAX: usize = 16;

/// The longest PDU of LACP: later versions may be longer than the first.
const LACP_BYTES_MAX: usize = 1518;

/// A control packet that has come in.
#[derive(Debug)]
pub struct ControlFrame {
    pub bytes: Vec<u8>,
    pub received: Instant,
    /// Its checksums have been completed, not left to a device.
    pub is_complete: bool,
}

/// The control packets of a port on their way to its session.
#[derive(Debug)]
pub struct Inlet {
    /// The longest frame.
    bytes_max: usize,
    waiting: Mutex<Vec<ControlFrame>>,
    /// The thread of the session.
    thread: Thread,
}

impl Inlet {
    /// Makes an inlet for a session that this thread runs, for frames of up to `bytes_max` bytes.
    pub fn new(bytes_max: usize, thread: Thread) -> Self {
        Self { bytes_max, waiting: Mutex::default(), thread }
    }

    /// Makes an inlet for the LACP of a port.
    pub fn of_lacp(thread: Thread) -> Self {
        Self::new(LACP_BYTES_MAX, thread)
    }

    /// Passes a packet to the session. Returns whether there was room.
    pub(super) fn put(&self, frame: &Frame) -> bool {
        let mut waiting = self.lock();
        let has_room = waiting.len() < WAITING_MAX && frame.len() <= self.bytes_max;
        if has_room {
            waiting.push(ControlFrame {
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
    pub fn take(&self) -> Vec<ControlFrame> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ControlFrame>> {
        // Packets are added whole.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Passes the control packets of a burst to their sessions; returns their lanes.
#[cold]
pub(super) fn take(worker: &mut Worker, burst: &Burst, live: LaneMask) -> LaneMask {
    let slot = &mut worker.egress.ports.slots_mut()[burst.port];
    let mut taken = LaneMask(0);
    for lane in live.lanes() {
        let frame = &burst.frames[lane];
        let of_bfd = slot.bfd.as_deref().filter(|inlet| inlet.takes(frame, &burst.keys[lane]));
        let of_lacp = || slot.lacp.as_deref().filter(|_| is_slow_protocol(frame.bytes()));
        let of_tree = || slot.tree.as_deref().filter(|_| is_bpdu(frame.bytes()));
        if let Some(inlet) = of_bfd.map(bfd::BfdInlet::inlet).or_else(of_lacp).or_else(of_tree) {
            taken.0 |= 1 << lane;
            slot.counters.rx_dropped += u64::from(!inlet.put(frame));
        }
    }
    taken
}

impl Worker {
    /// Lets ports pass their PDUs of LACP to these inlets; the others have no LACP.
    pub fn set_lacp(&mut self, inlets: &[(PortNo, Arc<Inlet>)]) {
        for slot in self.egress.ports.iter_mut() {
            let inlet = inlets.iter().find(|(port, _)| *port == slot.number);
            slot.lacp = inlet.map(|(_, inlet)| inlet.clone());
        }
    }

    /// Sends frames through ports, into their tunnels where they are such. They leave with the packets of this round.
    pub fn send_frames(&mut self, frames: &[(PortNo, Vec<u8>)]) {
        let (mut frame, mut key) = (Frame::default(), FlowKey::zero());
        for (port, bytes) in frames {
            let Some(place) = self.egress.ports.place(*port) else { continue };
            frame.fill(bytes);
            parse(frame.bytes(), 0, &mut key);
            // A packet of its own: mirrors take it, if they take what the port sends.
            self.egress.mirroring.resume(MirrorSet::default());
            let flags = self.egress.ports.slots()[place].flags;
            // The spanning tree does not hold back the switch's own protocols.
            self.egress.ports.slots_mut()[place].flags =
                flags.with(PortFlags::default(), PortFlags::DISCARDS);
            // A port that fails for good ends the run by the next packet.
            _ = self.egress.send(place, &frame, &key);
            self.egress.ports.slots_mut()[place].flags = flags;
        }
    }
}
