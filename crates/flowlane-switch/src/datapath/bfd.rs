//! Control packets of BFD: those that come in through ports with sessions leave the way of packets here, and those of sessions are
//! sent. Sessions themselves are of another thread.

use std::sync::Arc;
use std::thread::Thread;

use flowlane::packet::Field;
use flowlane::packet::key::FlowKey;
use flowlane::rule::action::PortNo;

use super::Worker;
use super::inlet::{ControlFrame, Inlet};
use crate::packet::Frame;
use crate::state::bfd::{FRAME_MAX, Filter, is_control};

/// The control packets of a port on their way to its session.
#[derive(Debug)]
pub struct BfdInlet {
    filter: Filter,
    /// Only those in tunnels whose key is 0.
    checks_key: bool,
    inlet: Inlet,
}

impl BfdInlet {
    /// Makes an inlet for a session that this thread runs.
    pub fn new(filter: Filter, checks_key: bool, thread: Thread) -> Self {
        Self { filter, checks_key, inlet: Inlet::new(FRAME_MAX, thread) }
    }

    /// Returns whether a packet is for the session.
    pub(super) fn takes(&self, frame: &Frame, key: &FlowKey) -> bool {
        is_control(frame.bytes(), &self.filter) && (!self.checks_key || key.get(Field::TunId) == 0)
    }

    pub(super) fn inlet(&self) -> &Inlet {
        &self.inlet
    }

    /// Takes the packets that have come.
    pub fn take(&self) -> Vec<ControlFrame> {
        self.inlet.take()
    }
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

    /// Returns the numbers of packets that ports have received.
    pub fn received(&self, ports: &[PortNo]) -> Vec<u64> {
        let of = |port: &PortNo| {
            let place = self.egress.ports.place(*port)?;
            Some(self.egress.ports.slots()[place].counters.rx_packets)
        };
        ports.iter().map(|port| of(port).unwrap_or(0)).collect()
    }
}
