//! Lookups by accelerator: LOOKUP_B one by one, or LOOKUP_NB in batches of eight whose results share a line that
//! SNAPSHOT_READ reads until all are there.

use std::collections::VecDeque;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::recorder::Lookup;
use super::software::unit;
use crate::machine::op::{Class, Kind, Mismatch, Op, Program};
use crate::machine::query::{BatchId, Engine, Queries};
use crate::workload::{Packets, Tables};

/// Results of 8 bytes that share a line (4.5, 5.1).
const BATCH: usize = 8;

/// Instructions around a lookup instruction: the addresses of key, table and result.
const AROUND: u32 = 4;

/// Instructions that look at a snapshot: a comparison of eight results, a mask, a branch.
const LOOK: u32 = 4;

/// How queries are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Halo {
    /// LOOKUP_B.
    Blocking,
    /// LOOKUP_NB and SNAPSHOT_READ.
    NonBlocking,
    /// Queries to an engine beside the second cache, as loads.
    NearL2,
}

/// Lookups by accelerator, until there are enough.
pub struct HaloProgram {
    tables: Rc<Tables>,
    packets: Packets,
    mode: Halo,
    writes_key: bool,
    left: u64,
    result: usize,
    /// Batches whose queries are sent before an earlier one's results are read.
    ahead: usize,
    /// Batches whose results are to be read: a packet's, or that of several packets, with how many.
    unread: VecDeque<(Vec<BatchId>, u32)>,
}

impl HaloProgram {
    /// So many lookups (of one table), or packets (looked up in several).
    pub fn new(tables: Rc<Tables>, packets: Packets, mode: Halo, writes_key: bool, count: u64) -> Self {
        let (result, ahead, unread) = (0, 0, VecDeque::new());
        Self { tables, packets, mode, writes_key, left: count, result, ahead, unread }
    }

    /// Non-blocking: sends the queries of so many later packets (of one table: of later batches) before it reads the
    /// results of one.
    #[must_use]
    pub fn ahead(self, ahead: u32) -> Self {
        Self { ahead: ahead as usize, ..self }
    }

    fn write_key(&self, lookup: &Lookup, ops: &mut Vec<Op>) {
        if self.writes_key {
            ops.push(Op::new(Kind::Store(lookup.walk.key), Class::Compute));
        }
    }

    /// One by one: of several tables until the first has the key.
    fn blocking(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<(), Mismatch> {
        let from = ops.len();
        let lookups = self.packets.next(&self.tables)?;
        self.write_key(&lookups[0], ops);
        let several = lookups.len() > 1;
        for lookup in lookups {
            let found = lookup.walk.answer.is_some();
            ops.push(Op::work(AROUND, Class::Compute));
            let query = queries.add(lookup.walk, Engine::Cha, None);
            ops.push(Op { gives: true, ..Op::new(Kind::Lookup(query), Class::Data) });
            if several {
                let branch = Kind::Branch { id: 0, taken: found };
                ops.push(Op { waits: true, ..Op::new(branch, Class::Compute) });
            }
            if found {
                break;
            }
        }
        unit(ops, from, 1);
        Ok(())
    }

    /// As loads that overlap: of several tables all.
    fn near_l2(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<(), Mismatch> {
        let from = ops.len();
        let lookups = self.packets.next(&self.tables)?;
        self.write_key(&lookups[0], ops);
        for lookup in lookups {
            ops.push(Op::work(AROUND, Class::Compute));
            let query = queries.add(lookup.walk, Engine::NearL2, None);
            ops.push(Op::new(Kind::Lookup(query), Class::Data));
        }
        unit(ops, from, 1);
        Ok(())
    }

    /// In batches: lookups of eight packets in one table, or of a packet in all tables at once.
    fn non_blocking(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<(), Mismatch> {
        let from = ops.len();
        let several = self.tables.len() > 1;
        let packets = if several { 1 } else { BATCH.min(self.left as usize) };
        let mut lookups = Vec::new();
        for _ in 0..packets {
            let more = self.packets.next(&self.tables)?;
            self.write_key(&more[0], ops);
            lookups.extend(more);
        }
        let mut batches = Vec::new();
        for (n, lookup) in lookups.into_iter().enumerate() {
            if n % BATCH == 0 {
                let line = self.tables.results[self.result % self.tables.results.len()];
                self.result += 1;
                batches.push(queries.add_batch(line));
            }
            ops.push(Op::work(AROUND, Class::Compute));
            let query = queries.add(lookup.walk, Engine::Cha, batches.last().copied());
            ops.push(Op::new(Kind::LookupNonBlocking(query), Class::Data));
        }
        // The packets' own end may be that of a later refill.
        ops[from].begins = true;
        self.unread.push_back((batches, packets as u32));
        self.left -= packets as u64 - 1;
        if self.unread.len() > self.ahead {
            self.read(ops);
        }
        Ok(())
    }

    /// Reads the results that were asked for longest ago. Queries behind that leave the window, and are sent, when these
    /// have been seen.
    fn read(&mut self, ops: &mut Vec<Op>) {
        let Some((batches, packets)) = self.unread.pop_front() else { return };
        for batch in batches {
            ops.push(Op { gives: true, ..Op::new(Kind::Snapshot(batch), Class::Data) });
            ops.push(Op::work(LOOK, Class::Compute).chained(0));
        }
        if let Some(last) = ops.last_mut() {
            last.ends = packets;
        }
    }
}

impl Program for HaloProgram {
    fn refill(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<bool, Mismatch> {
        if self.left == 0 {
            let more = !self.unread.is_empty();
            self.read(ops);
            return Ok(more);
        }
        match self.mode {
            Halo::Blocking => self.blocking(ops, queries)?,
            Halo::NonBlocking => self.non_blocking(ops, queries)?,
            Halo::NearL2 => self.near_l2(ops, queries)?,
        }
        self.left -= 1;
        Ok(true)
    }
}
