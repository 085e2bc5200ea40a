//! A bounded queue of frames for a port of this process.

use std::collections::VecDeque;

use crate::packet::{Frame, Frames};

/// Frames that wait at most: further ones are dropped.
pub(super) const WAITING_MAX: usize = 4096;
/// Buffers that are kept.
const SPARE_MAX: usize = 256;

/// Frames on their way to a port.
#[derive(Debug, Default)]
pub(super) struct FrameQueue {
    frames: VecDeque<Frame>,
    /// Buffers to be used again.
    spare: Vec<Frame>,
}

impl FrameQueue {
    /// Returns whether no frame waits.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Number of frames that wait.
    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Number of frames for which there is room.
    pub(super) fn room(&self) -> usize {
        WAITING_MAX - self.frames.len()
    }

    /// Adds a frame to be filled; none where there is no room.
    pub(super) fn next_frame(&mut self) -> Option<&mut Frame> {
        if self.room() == 0 {
            return None;
        }
        self.frames.push_back(self.spare.pop().unwrap_or_default());
        self.frames.back_mut()
    }

    /// Moves waiting frames to a burst, in order, as far as it has room. Returns how many.
    pub(super) fn take(&mut self, frames: &mut Frames) -> usize {
        let mut taken = 0;
        while !self.frames.is_empty() {
            let Some(place) = frames.next_frame() else { break };
            let mut frame = self.frames.pop_front().expect("it is not empty");
            std::mem::swap(place, &mut frame);
            if self.spare.len() < SPARE_MAX {
                self.spare.push(frame);
            }
            taken += 1;
        }
        taken
    }
}
