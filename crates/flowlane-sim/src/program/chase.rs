//! Dependent loads all over a region, to measure latencies.

use flowlane::generate::Random;

use crate::config::MachineConfig;
use crate::machine::cache::Line;
use crate::machine::op::{Class, Kind, Mismatch, Op, Program};
use crate::machine::query::Queries;
use crate::machine::space::{Region, Space};
use crate::machine::{Machine, SimError};

/// Chains of loads of random lines of a region, in turns. A region that may be cached is read completely beforehand.
pub struct Chase {
    order: Vec<Line>,
    random: Random,
    next: usize,
    left: u64,
    chains: u8,
}

impl Chase {
    /// Creates `count` loads on a number of chains.
    pub fn new(region: &Region, count: u64, chains: u8) -> Self {
        let mut order: Vec<Line> = region.lines().collect();
        let mut random = Random::new(7);
        random.shuffle(&mut order);
        Self { order, random, next: 0, left: count, chains }
    }
}

impl Program for Chase {
    fn refill(&mut self, ops: &mut Vec<Op>, _: &mut Queries) -> Result<bool, Mismatch> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let whole = self.order.len() as u64 <= WARM_UP_MAX && self.next < self.order.len();
        let at = if whole { self.next } else { self.random.index(self.order.len()) };
        let line = self.order[at];
        self.next += 1;
        ops.push(Op {
            begins: true,
            ends: 1,
            ..Op::new(Kind::Load(line), Class::Data).chained((self.left % u64::from(self.chains)) as u8)
        });
        Ok(true)
    }
}

/// The most loads before a measurement; lines of larger regions seldom recur.
const WARM_UP_MAX: u64 = 1 << 15;

/// Returns the cycles of a load of a chain over `bytes`, on a core; with `in_llc`, the lines are in the shared cache
/// at the beginning.
///
/// # Errors
/// Returns an error if the machine gets stuck.
pub fn chase_cycles(config: &MachineConfig, bytes: u64, core: u32, in_llc: bool) -> Result<f64, SimError> {
    chased(config, bytes, core, (in_llc, 1))
}

/// Returns the cycles of a load of many chains at a time over a region in memory, on the first core.
///
/// # Errors
/// Returns an error if the machine gets stuck.
pub fn parallel_chase_cycles(config: &MachineConfig, bytes: u64, chains: u8) -> Result<f64, SimError> {
    chased(config, bytes, 0, (true, chains))
}

fn chased(
    config: &MachineConfig,
    bytes: u64,
    core: u32,
    (in_llc, chains): (bool, u8),
) -> Result<f64, SimError> {
    let region = Space::default().region(bytes);
    let mut machine = Machine::new(&config.with_pieces_of(bytes));
    if in_llc {
        machine.fill_llc(region.lines());
    }
    let around = (bytes / 64).min(WARM_UP_MAX);
    machine.run_on(core, Box::new(Chase::new(&region, 2 * around + 4000, chains)), 2 * around);
    machine.run()?;
    Ok(machine.thread(core, 0).cycles_per_lookup(machine.cycle_ps()))
}

/// Returns the cycles of a load of a line that another core has modified: the mean over opposite cores.
///
/// # Errors
/// Returns an error if the machine gets stuck.
pub fn dirty_cycles(config: &MachineConfig) -> Result<f64, SimError> {
    let pairs = config.core.cores / 2;
    let mut whole = 0.0;
    for reader in 0..pairs {
        let region = Space::default().region(DIRTY_BYTES);
        let mut machine = Machine::new(&config.with_pieces_of(DIRTY_BYTES));
        machine.fill_private(config.core.cores - 1 - reader, region.lines());
        machine.run_on(reader, Box::new(Chase::new(&region, DIRTY_BYTES / 64, 1)), 0);
        machine.run()?;
        whole += machine.thread(reader, 0).cycles_per_lookup(machine.cycle_ps());
    }
    Ok(whole / f64::from(pairs.max(1)))
}

/// The size of the modified lines, which fit the second-level cache.
const DIRTY_BYTES: u64 = 64 << 10;
