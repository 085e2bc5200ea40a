//! A core that changes tables during lookups: it writes lines of buckets and meets their locks.

use flowlane::generate::Random;

use crate::machine::cache::Line;
use crate::machine::op::{Class, Kind, Mismatch, Op, Program};
use crate::machine::query::Queries;

/// A number of changes.
#[derive(Clone, Debug)]
pub struct Updates {
    lines: Vec<Line>,
    random: Random,
    pause_instructions: u32,
    left: u64,
}

impl Updates {
    /// Creates `count` changes of random lines among these, with a number of instructions between them.
    pub fn new(lines: Vec<Line>, pause_instructions: u32, seed: u64, count: u64) -> Self {
        Self { lines, random: Random::for_purpose(seed, "updates"), pause_instructions, left: count }
    }
}

impl Program for Updates {
    fn refill(&mut self, ops: &mut Vec<Op>, _: &mut Queries) -> Result<bool, Mismatch> {
        if self.left == 0 || self.lines.is_empty() {
            return Ok(false);
        }
        self.left -= 1;
        let line = self.lines[self.random.index(self.lines.len())];
        ops.push(Op { begins: true, ..Op::work(self.pause_instructions.max(1), Class::Compute) });
        ops.push(Op { ends: 1, ..Op::new(Kind::Store(line), Class::Data) });
        Ok(true)
    }
}
