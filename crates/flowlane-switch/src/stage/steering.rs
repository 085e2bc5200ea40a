//! Frames go at once to the worker whose share of a function they are for.

use flowlane::packet::Parser;

use super::{Function, Owner};
use crate::packet::{Burst, Steer};

/// A function that knows nothing, and is asked only whose packets are.
///
/// Fragments are followed as by workers: what has no ports goes where the first of its datagram went.
pub struct Steering {
    function: Function,
    in_port: u32,
    parser: Parser,
    burst: Burst,
}

impl Steering {
    /// `function` is of [nobody's](super::Share::of_nobody) share: so all packets are somebody else's, and it does nothing with them.
    /// The frames are those of the port with this number.
    pub fn new(function: Function, in_port: u32) -> Self {
        Self { function, in_port, parser: Parser::new(), burst: Burst::new(1) }
    }
}

impl Steer for Steering {
    fn worker(&mut self, frame: &[u8], now_ns: u64) -> Option<usize> {
        let burst = &mut self.burst;
        burst.clear_for(0, 1);
        burst.frames.next_frame()?.fill(frame);
        burst.times_ns[0] = now_ns;
        self.parser.parse_all([frame].into_iter(), self.in_port, &mut burst.keys, &mut burst.headers);
        match self.function.owner(burst, 0) {
            Owner::Worker(worker) | Owner::OtherHalf(worker) => Some(worker),
            Owner::Anyone | Owner::Nobody => None,
        }
    }
}
