//! Ternary content-addressable memories, which compare all rules of all tables at once.

use std::rc::Rc;

use super::software::unit;
use crate::config::TcamConfig;
use crate::machine::cache::Line;
use crate::machine::op::{Class, Kind, Mismatch, Op, Program};
use crate::machine::query::Queries;
use crate::workload::{Packets, Tables};

/// Instructions around a query: sending the words of the key, receiving the result.
const AROUND: u32 = 6;

/// A device with fixed latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlatDevice {
    /// The time from the query to the answer.
    pub latency_cycles: u64,
    /// The time between two queries.
    pub busy_cycles: u64,
}

impl FlatDevice {
    pub fn tcam(config: &TcamConfig) -> Self {
        Self {
            latency_cycles: config.lookup_cycles + 2 * config.attach_cycles,
            busy_cycles: config.busy_cycles,
        }
    }

    pub fn sram_tcam(config: &TcamConfig) -> Self {
        let latency_cycles = config.sram_lookup_cycles + 2 * config.attach_cycles;
        Self { latency_cycles, busy_cycles: config.busy_cycles }
    }

    /// Appends a packet's query: reading its key, and the device's answer.
    pub(crate) fn ask(self, key: Line, ops: &mut Vec<Op>) {
        let from = ops.len();
        ops.push(Op { gives: true, ..Op::new(Kind::Load(key), Class::Data) });
        ops.push(Op::work(AROUND, Class::Compute));
        let Self { latency_cycles, busy_cycles } = self;
        ops.push(Op::new(Kind::Device { latency_cycles, busy_cycles }, Class::Data).chained(1));
        unit(ops, from, 1);
    }
}

/// Lookups in a device one by one; each waits for the previous one, as LOOKUP_B does.
pub struct DeviceProgram {
    tables: Rc<Tables>,
    packets: Packets,
    device: FlatDevice,
    left: u64,
}

impl DeviceProgram {
    /// Creates `count` lookups or packets.
    pub fn new(tables: Rc<Tables>, packets: Packets, device: FlatDevice, count: u64) -> Self {
        Self { tables, packets, device, left: count }
    }
}

impl Program for DeviceProgram {
    fn refill(&mut self, ops: &mut Vec<Op>, _: &mut Queries) -> Result<bool, Mismatch> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let lookups = self.packets.next(&self.tables)?;
        self.device.ask(lookups[0].walk.key, ops);
        Ok(true)
    }
}
