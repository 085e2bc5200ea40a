//! A hardware thread: its window, its queues, its branch predictor.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::op::{Kind, Op, Program, REGISTERS};
use super::predictor::Predictor;
use super::stats::ThreadStats;
use crate::event::{Ps, UNKNOWN};

/// The location in which a load found its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Level {
    L1,
    L2,
    Llc,
    Memory,
}

/// The end of a list of operations.
pub(super) const NO_OP: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) op: Op,
    pub(super) entered: Ps,
    pub(super) done: Ps,
    pub(super) level: Level,
    pub(super) port: Option<u8>,
    /// When the operands that are known are ready, and the number of those that are not.
    pub(super) ready: Ps,
    pub(super) missing: u8,
    /// The first operand that waits for this operation, and the next one for each of its own operands.
    pub(super) first_waiter: u64,
    pub(super) next_waiter: [u64; SOURCES],
}

/// The retired operations that others may still wait for by distance.
pub(super) const RETIRED: u64 = 256;

/// The most operands of an operation: its registers, and one that it names by distance.
pub(super) const SOURCES: usize = 7;

impl Slot {
    pub(super) fn new(op: Op, entered: Ps, port: Option<u8>) -> Self {
        let (first_waiter, next_waiter) = (NO_OP, [NO_OP; SOURCES]);
        Self {
            op,
            entered,
            done: UNKNOWN,
            level: Level::L1,
            port,
            ready: entered,
            missing: 0,
            first_waiter,
            next_waiter,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Leaving {
    pub(super) at: Ps,
    pub(super) instructions: u32,
    pub(super) load: bool,
    pub(super) store: bool,
    pub(super) results: [u32; 2],
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Last {
    Known(Ps),
    Pending(u64),
}

/// The scheduler: operations in the window that have not begun.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Instructions whose beginning is unknown.
    unknown: u32,
    /// The beginnings of other instructions, and their numbers.
    known: BinaryHeap<Reverse<(Ps, u32)>>,
    known_instructions: u32,
}

impl Waiting {
    /// Returns when there is room for more instructions, at the earliest at `at`; or, if that is unknown, the time
    /// until which everything is known as an error.
    pub(super) fn room(&mut self, instructions: u32, entries: u32, mut at: Ps) -> Result<Ps, Ps> {
        while let Some(Reverse((begins, of))) = self.known.peek().copied() {
            if begins > at {
                if self.unknown + self.known_instructions + instructions.min(entries) <= entries {
                    return Ok(at);
                }
                at = begins;
            }
            self.known.pop();
            self.known_instructions -= of;
        }
        let fits = self.unknown + instructions.min(entries) <= entries;
        if fits { Ok(at) } else { Err(at) }
    }

    /// Returns the entries that are taken.
    pub(super) fn taken(&self) -> u32 {
        self.unknown + self.known_instructions
    }

    /// Adds waiting instructions, with their beginning if known.
    pub(super) fn enter(&mut self, instructions: u32, begins: Option<Ps>) {
        match begins {
            Some(begins) => {
                self.known.push(Reverse((begins, instructions)));
                self.known_instructions += instructions;
            }
            None => self.unknown += instructions,
        }
    }

    /// Removes instructions whose beginning was unknown.
    pub(super) fn unknown_ends(&mut self, instructions: u32) {
        self.unknown -= instructions;
    }
}

/// A thread of a core.
pub(super) struct Thread {
    pub(super) program: Box<dyn Program>,
    pub(super) ops: Vec<Op>,
    pub(super) next_op: usize,
    pub(super) ended: bool,
    pub(super) window: VecDeque<Slot>,
    /// The number of the first operation in the window.
    pub(super) first: u64,
    pub(super) leaving: VecDeque<Leaving>,
    pub(super) waiting: Waiting,
    pub(super) rob: u32,
    pub(super) loads: u32,
    pub(super) stores: u32,
    /// General and vector registers that results in the window take.
    pub(super) results: [u32; 2],
    /// The earliest entry of the next operation.
    pub(super) next_entry: Ps,
    /// The operation that must finish before another enters, and the cycles until then.
    pub(super) fence: Option<(u64, u64)>,
    pub(super) last_left: Ps,
    /// When the last retired operations finish, by their numbers.
    pub(super) retired: [Ps; RETIRED as usize],
    /// When they retire.
    pub(super) left: [Ps; RETIRED as usize],
    /// The loads that wait until a store has retired, behind that store.
    blocked: BinaryHeap<Reverse<(u64, u64)>>,
    /// The last writer of each register.
    pub(super) registers: [Last; REGISTERS],
    pub(super) predictor: Predictor,
    /// The entry times of unfinished units of work.
    pub(super) units_entered: VecDeque<Ps>,
    pub(super) warm_up_lookups: u64,
    pub(super) lookups: u64,
    /// Retired instructions, including the warm-up.
    pub(super) instructions: u64,
    pub(super) stats: ThreadStats,
}

impl Thread {
    pub(super) fn new(program: Box<dyn Program>, warm_up_lookups: u64) -> Self {
        Self {
            program,
            ops: Vec::new(),
            next_op: 0,
            ended: false,
            window: VecDeque::new(),
            first: 0,
            leaving: VecDeque::new(),
            waiting: Waiting::default(),
            rob: 0,
            loads: 0,
            stores: 0,
            results: [0; 2],
            next_entry: 0,
            fence: None,
            last_left: 0,
            retired: [0; RETIRED as usize],
            left: [0; RETIRED as usize],
            blocked: BinaryHeap::new(),
            registers: [Last::Known(0); REGISTERS],
            predictor: Predictor::default(),
            units_entered: VecDeque::new(),
            warm_up_lookups,
            lookups: 0,
            instructions: 0,
            stats: ThreadStats::default(),
        }
    }

    pub(super) fn slot(&mut self, op: u64) -> &mut Slot {
        &mut self.window[(op - self.first) as usize]
    }

    /// Returns when one of the last operations is done, perhaps retired since.
    pub(super) fn done(&self, op: u64) -> Ps {
        match op.checked_sub(self.first) {
            Some(place) => self.window[place as usize].done,
            None => self.retired[(op % RETIRED) as usize],
        }
    }

    /// Makes an operation wait for the last writer of one of its operands.
    pub(super) fn wait(&mut self, number: u64, source: usize, last: Last) {
        let done = match last {
            Last::Known(done) => done,
            Last::Pending(before) => self.slot(before).done,
        };
        if done != UNKNOWN {
            let slot = self.slot(number);
            slot.ready = slot.ready.max(done);
            return;
        }
        if let Last::Pending(before) = last {
            let waiter = number * SOURCES as u64 + source as u64;
            let next = std::mem::replace(&mut self.slot(before).first_waiter, waiter);
            self.slot(number).next_waiter[source] = next;
            self.slot(number).missing += 1;
        }
    }

    /// Makes an operation wait for the one that it names by distance: for its result, or until it has retired and `written_ps` later.
    pub(super) fn wait_by_distance(&mut self, number: u64, op: &Op, written_ps: Ps) {
        let distance = u64::from(op.after);
        let Some(before) = number.checked_sub(distance) else { return };
        let place = (before % RETIRED) as usize;
        match (before >= self.first, op.after_retired) {
            (true, false) => self.wait(number, SOURCES - 1, Last::Pending(before)),
            (true, true) => {
                self.blocked.push(Reverse((before, number)));
                self.slot(number).missing += 1;
                self.stats.blocked_loads += 1;
            }
            // Retired operations may finish in the future; those long ago have finished.
            _ if distance >= RETIRED => {}
            (false, false) => self.wait(number, SOURCES - 1, Last::Known(self.retired[place])),
            (false, true) => {
                let written = self.left[place] + written_ps;
                // Its retirement may be known, and in the future.
                self.stats.blocked_loads += u64::from(written > self.slot(number).ready);
                self.wait(number, SOURCES - 1, Last::Known(written));
            }
        }
    }

    /// Returns the next load that waits until this store has retired.
    pub(super) fn next_blocked(&mut self, store: u64) -> Option<u64> {
        let Reverse((before, number)) = *self.blocked.peek()?;
        (before == store).then(|| self.blocked.pop())?;
        Some(number)
    }

    pub(super) fn kind(&self, op: u64) -> Kind {
        self.window[(op - self.first) as usize].op.kind
    }

    /// Predicts a branch and returns whether the prediction was wrong.
    pub(super) fn mispredicts(&mut self, id: u32, taken: bool) -> bool {
        let wrong = self.predictor.learn(id, taken) != taken;
        self.stats.branches += 1;
        self.stats.mispredicted += u64::from(wrong);
        wrong
    }
}

pub(super) fn is_load(op: &Op) -> bool {
    matches!(
        op.kind,
        Kind::Load(_) | Kind::Prefetch(_) | Kind::Lookup(_) | Kind::Snapshot(_) | Kind::Device { .. }
    )
}

pub(super) fn is_store(op: &Op) -> bool {
    matches!(op.kind, Kind::Store(_) | Kind::LookupNonBlocking(_))
}
