//! Work around and next to lookups: the rest of a network function, and a function on the core's other thread.

use flowlane::generate::Random;

use crate::machine::cache::Line;
use crate::machine::op::{Class, Kind, Mismatch, Op, Program};
use crate::machine::query::Queries;
use crate::machine::space::Region;

/// The work of a function for a packet, apart from the lookup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Computing instructions.
    pub instructions: u32,
    /// Lines of the packet and its state that are read and written.
    pub lines: u32,
}

/// A program with a function's work at the end of each unit.
pub struct WithWork {
    inner: Box<dyn Program>,
    work: Work,
    packets: Vec<Line>,
    next: usize,
}

impl WithWork {
    /// Adds work to a program. Packets are in a ring, whose size decides whether it stays in the first-level cache.
    pub fn new(inner: Box<dyn Program>, work: Work, packets: &Region) -> Self {
        Self { inner, work, packets: packets.lines().collect(), next: 0 }
    }
}

impl Program for WithWork {
    fn refill(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<bool, Mismatch> {
        let from = ops.len();
        if !self.inner.refill(ops, queries)? {
            return Ok(false);
        }
        // The packets of a batch are processed one by one after their lookups.
        let ends = ops[from..].last_mut().map_or(0, |last| std::mem::take(&mut last.ends));
        for _ in 0..ends {
            for _ in 0..self.work.lines {
                let line = self.packets[self.next % self.packets.len()];
                self.next += 1;
                ops.push(Op::new(Kind::Load(line), Class::Compute));
                ops.push(Op::new(Kind::Store(line), Class::Compute));
            }
            ops.push(Op::work(self.work.instructions, Class::Compute));
        }
        if let Some(last) = ops.last_mut() {
            last.ends = ends;
        }
        Ok(true)
    }
}

/// A function on the other thread of a core: computes, and reads a working set with some locality.
#[derive(Clone, Debug)]
pub struct Neighbour {
    hot: Vec<Line>,
    cold: Vec<Line>,
    random: Random,
    cold_permille: u64,
    left: u64,
}

/// Instructions between two of its loads.
const BETWEEN: u32 = 8;

impl Neighbour {
    /// Creates a function that reads a line every few instructions, from `hot` or, for a share in thousandths, from
    /// `cold`.
    pub fn new(hot: &Region, cold: &Region, cold_permille: u64, seed: u64, count: u64) -> Self {
        Self {
            hot: hot.lines().collect(),
            cold: cold.lines().collect(),
            random: Random::for_purpose(seed, "neighbour"),
            cold_permille,
            left: count,
        }
    }
}

impl Program for Neighbour {
    fn refill(&mut self, ops: &mut Vec<Op>, _: &mut Queries) -> Result<bool, Mismatch> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let from = if self.random.below(1000) < self.cold_permille { &self.cold } else { &self.hot };
        let line = from[self.random.index(from.len())];
        ops.push(Op { begins: true, gives: true, ..Op::new(Kind::Load(line), Class::Data) });
        ops.push(Op::work(BETWEEN / 2, Class::Compute).chained(0));
        ops.push(Op { ends: 1, ..Op::work(BETWEEN / 2, Class::Compute) });
        Ok(true)
    }
}
