//! Merges the frames of several captures in the order of their timestamps.

use super::ports::Ports;
use crate::packet::Frames;
use crate::port::{PortError, Received};

/// Frames that were received from ports and have not been switched.
#[derive(Debug, Default)]
pub(super) struct Merge {
    /// By port.
    ahead: Vec<Ahead>,
}

#[derive(Debug)]
struct Ahead {
    frames: Frames,
    /// The first frame not yet switched.
    next: usize,
    /// The port has no more frames.
    ended: bool,
}

impl Ahead {
    fn time_ns(&self) -> Option<u64> {
        self.frames.get(self.next).map(|frame| frame.time_ns)
    }
}

impl Merge {
    /// Begins with a port that has come to a place.
    pub(super) fn restart(&mut self, place: usize) {
        if let Some(ahead) = self.ahead.get_mut(place) {
            (ahead.next, ahead.ended) = (0, false);
            ahead.frames.clear();
        }
    }

    /// Returns whether frames must be merged: several ports are open, or frames are left here.
    pub(super) fn is_needed(&self, ports: &Ports) -> bool {
        let under_way = self.ahead.iter().any(|ahead| ahead.time_ns().is_some());
        under_way || ports.slots().iter().filter(|slot| !slot.finished).count() > 1
    }

    /// Moves the next frames, all of one port, to `out`: those that are not later than any other port's next frame. Returns the
    /// port; `None` if no port has frames.
    ///
    /// # Errors
    /// A port that fails for good.
    pub(super) fn next(&mut self, ports: &mut Ports, out: &mut Frames) -> Result<Option<usize>, PortError> {
        let capacity = out.capacity();
        let empty = || Ahead { frames: Frames::new(capacity), next: 0, ended: false };
        self.ahead.resize_with(ports.len(), empty);
        for (slot, ahead) in ports.slots_mut().iter_mut().zip(&mut self.ahead) {
            if ahead.time_ns().is_none() && !ahead.ended && !slot.finished {
                ahead.frames.clear();
                ahead.next = 0;
                ahead.ended = slot.port.receive(&mut ahead.frames)? == Received::Finished;
                slot.counters.rx_dropped += slot.port.rx_dropped();
            }
            slot.finished |= ahead.ended && ahead.time_ns().is_none();
        }
        let next = |(port, ahead): (usize, &Ahead)| Some((ahead.time_ns()?, port));
        let Some((_, first)) = self.ahead.iter().enumerate().filter_map(next).min() else {
            return Ok(None);
        };
        let others = self.ahead.iter().enumerate().filter(|(port, _)| *port != first);
        let limit = others.filter_map(next).min();
        let Ahead { frames, next, .. } = &mut self.ahead[first];
        for frame in &mut frames[*next..] {
            if limit.is_some_and(|limit| limit < (frame.time_ns, first)) {
                break;
            }
            let Some(place) = out.next_frame() else { break };
            std::mem::swap(place, frame);
            *next += 1;
        }
        ports.slots_mut()[first].finished |= self.ahead[first].ended && self.ahead[first].time_ns().is_none();
        Ok(Some(first))
    }
}
