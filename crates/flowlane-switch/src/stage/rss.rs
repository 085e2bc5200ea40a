//! Receive-side scaling by shard: a port delivers frames to the worker that owns their state.

use flowlane::packet::Parser;

use super::{Owner, StageTable};
use crate::packet::{Burst, Steer};

/// A [`Steer`] that asks a stage for the owner of each frame.
pub struct ShardAwareRss {
    stage: StageTable,
    in_port: u32,
    parser: Parser,
    burst: Burst,
}

impl ShardAwareRss {
    /// Steers the frames of port `in_port`. `stage` has the [empty shard](super::Shard::none_of), so that it processes no
    /// packet itself.
    pub fn new(stage: StageTable, in_port: u32) -> Self {
        Self { stage, in_port, parser: Parser::new(), burst: Burst::new(1) }
    }
}

impl Steer for ShardAwareRss {
    fn worker(&mut self, frame: &[u8], now_ns: u64) -> Option<usize> {
        let burst = &mut self.burst;
        burst.clear_for(0, 1);
        burst.frames.next_frame()?.fill(frame);
        burst.times_ns[0] = now_ns;
        self.parser.parse_all([frame].into_iter(), self.in_port, &mut burst.keys, &mut burst.headers);
        match self.stage.owner(burst, 0) {
            Owner::Worker(worker) => Some(worker),
            Owner::Any => None,
        }
    }
}
