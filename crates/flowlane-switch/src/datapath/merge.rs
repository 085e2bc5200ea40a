//! Frames of several captures in the order of their times.

use super::ports::Ports;
use crate::packet::Frames;
use crate::port::{PortError, Received};

/// What ports have given and has not been switched.
#[derive(Debug, Default)]
pub(super) struct Merge {
    /// By port.
    ahead: Vec<Ahead>,
}

#[derive(Debug)]
struct Ahead {
    frames: Frames,
    /// The first that has not been switched.
    next: usize,
    /// The port has come to its end.
    ended: bool,
}

impl Ahead {
    fn time_ns(&self) -> Option<u64> {
        self.frames.get(self.next).map(|frame| frame.time_ns)
    }
}

impl Merge {
    /// Whether there is an order to be kept: frames come from several ports.
    pub(super) fn is_needed(&self, ports: &Ports) -> bool {
        let under_way = self.ahead.iter().any(|ahead| ahead.time_ns().is_some());
        under_way || ports.slots().iter().filter(|slot| !slot.finished).count() > 1
    }

    /// Moves to `out` the frames that come next, all of one port: those that are not younger than any other port's next.
    /// Gives the port; none where no port has anything.
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
