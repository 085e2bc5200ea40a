//! Ternary content-addressable memories, which compare all rules of all tables at once.

use crate::config::TcamConfig;
use crate::machine::cache::Line;
use crate::machine::op::{CHAINS, Class, Kind, Op};

/// Instructions around a query: sending the words of the key, receiving the result.
const AROUND: u32 = 6;

/// A device with fixed latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FlatDevice {
    /// The time from the query to the answer.
    latency_cycles: u64,
    /// The time between two queries.
    busy_cycles: u64,
}

impl FlatDevice {
    pub(super) fn tcam(config: &TcamConfig) -> Self {
        Self {
            latency_cycles: config.lookup_cycles + 2 * config.attach_cycles,
            busy_cycles: config.busy_cycles,
        }
    }

    pub(super) fn sram_tcam(config: &TcamConfig) -> Self {
        let latency_cycles = config.sram_lookup_cycles + 2 * config.attach_cycles;
        Self { latency_cycles, busy_cycles: config.busy_cycles }
    }

    /// Appends a packet's query: reading its key, and the device's answer, for which the next packet waits, as after
    /// LOOKUP_B.
    pub(super) fn ask(self, key: Line, ops: &mut Vec<Op>) {
        ops.push(Op { gives: true, ..Op::new(Kind::Load(key), Class::Data) });
        ops.push(Op::work(AROUND, Class::Compute));
        let Self { latency_cycles, busy_cycles } = self;
        let device = Op::new(Kind::Device { latency_cycles, busy_cycles }, Class::Data).chained(1);
        // It waits for the previous packet's answer, and for the key, which is read ahead.
        ops.push(Op { reads: [CHAINS, 0, 0, 0, 0, 0], ..device });
    }
}
