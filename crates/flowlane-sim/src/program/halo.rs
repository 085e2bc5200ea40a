//! Lookups by accelerator: LOOKUP_B one by one, or LOOKUP_NB in batches of eight, whose results share a line that
//! SNAPSHOT_READ reads until all are present.

use std::collections::VecDeque;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::software::{begin, end, unit};
use crate::machine::cache::Line;
use crate::machine::op::{Class, Kind, Mismatch, Op, Program};
use crate::machine::query::{BatchId, Engine, Queries, Walk};
use crate::workload::{Lookup, Packets, Tables};

/// Results of 8 bytes that share a line (4.5, 5.1).
pub(crate) const RESULTS: usize = 8;

/// Instructions around a lookup instruction: the addresses of key, table and result.
const AROUND: u32 = 4;

/// Instructions that check a snapshot: a comparison of eight results, a mask, a branch.
const LOOK: u32 = 4;

/// Appends a query by LOOKUP_B, or a load from an engine, to a dependency chain.
pub(crate) fn ask(walk: Walk, engine: Engine, chain: u8, ops: &mut Vec<Op>, queries: &mut Queries) {
    ops.push(Op::work(AROUND, Class::Compute));
    let query = queries.add(walk, engine, None);
    ops.push(Op { gives: true, chain, ..Op::new(Kind::Lookup(query), Class::Data) });
}

/// Queries by LOOKUP_NB with unread results, and the operations that follow.
struct Unread {
    batches: Vec<BatchId>,
    after: Vec<Op>,
    packets: u32,
}

/// Queries by LOOKUP_NB, with queries of later packets sent before results of earlier ones are read.
pub(crate) struct NonBlocking {
    results: Vec<Line>,
    next: usize,
    /// The number of packets whose queries are sent ahead.
    ahead: usize,
    unread: VecDeque<Unread>,
}

impl NonBlocking {
    /// Creates the state with lines for results.
    pub(crate) fn new(results: Vec<Line>, ahead: u32) -> Self {
        Self { results, next: 0, ahead: ahead as usize, unread: VecDeque::new() }
    }

    fn send(
        &mut self,
        walks: impl IntoIterator<Item = Walk>,
        ops: &mut Vec<Op>,
        queries: &mut Queries,
    ) -> Vec<BatchId> {
        let mut batches = Vec::new();
        for (n, walk) in walks.into_iter().enumerate() {
            if n % RESULTS == 0 {
                batches.push(queries.add_batch(self.results[self.next % self.results.len()]));
                self.next += 1;
            }
            ops.push(Op::work(AROUND, Class::Compute));
            let query = queries.add(walk, Engine::Cha, batches.last().copied());
            ops.push(Op::new(Kind::LookupNonBlocking(query), Class::Data));
        }
        batches
    }

    /// Sends queries and reads their results at once, since the next step depends on them.
    pub(crate) fn ask(&mut self, walks: Vec<Walk>, ops: &mut Vec<Op>, queries: &mut Queries) {
        let batches = self.send(walks, ops, queries);
        look(batches, ops);
    }

    /// Sends the queries of packets with the operations that follow, and reads the results of earlier packets beyond
    /// the configured distance. Returns the number of packets whose results were read.
    pub(crate) fn ahead(
        &mut self,
        walks: Vec<Walk>,
        after: Vec<Op>,
        packets: u32,
        ops: &mut Vec<Op>,
        queries: &mut Queries,
    ) -> u32 {
        let batches = self.send(walks, ops, queries);
        self.unread.push_back(Unread { batches, after, packets });
        if self.unread.len() > self.ahead { self.read(ops) } else { 0 }
    }

    /// Reads the oldest results, and returns their number of packets; 0 if there are none. Queries behind them
    /// retire, and are sent, when these results are present.
    pub(crate) fn read(&mut self, ops: &mut Vec<Op>) -> u32 {
        let Some(mut unread) = self.unread.pop_front() else { return 0 };
        look(unread.batches, ops);
        ops.append(&mut unread.after);
        unread.packets
    }
}

/// Reads results until all are present.
fn look(batches: Vec<BatchId>, ops: &mut Vec<Op>) {
    for batch in batches {
        ops.push(Op { gives: true, ..Op::new(Kind::Snapshot(batch), Class::Data) });
        ops.push(Op::work(LOOK, Class::Compute).chained(0));
    }
}

/// The kind of queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Halo {
    /// The instruction LOOKUP_B.
    Blocking,
    /// The instructions LOOKUP_NB and SNAPSHOT_READ.
    NonBlocking,
    /// Queries to an engine next to the second-level cache, as loads.
    NearL2,
}

/// A number of lookups by accelerator.
pub struct HaloProgram {
    tables: Rc<Tables>,
    packets: Packets,
    mode: Halo,
    writes_key: bool,
    left: u64,
    /// Packets whose queries to several tables are sent together.
    at_once: usize,
    queries: NonBlocking,
}

impl HaloProgram {
    /// Creates `count` lookups of one table, or packets looked up in several.
    pub fn new(tables: Rc<Tables>, packets: Packets, mode: Halo, writes_key: bool, count: u64) -> Self {
        let queries = NonBlocking::new(tables.results.clone(), 0);
        Self { tables, packets, mode, writes_key, left: count, at_once: 1, queries }
    }

    /// Sends the queries of `ahead` later packets (of one table: later batches) before the results of a packet are
    /// read; non-blocking only.
    #[must_use]
    pub fn ahead(self, ahead: u32) -> Self {
        Self { queries: NonBlocking { ahead: ahead as usize, ..self.queries }, ..self }
    }

    /// Sends the queries of `packets` packets to several tables together, table by table; non-blocking only.
    #[must_use]
    pub fn at_once(self, packets: u32) -> Self {
        Self { at_once: packets as usize, ..self }
    }

    fn write_key(&self, lookup: &Lookup, ops: &mut Vec<Op>) {
        if self.writes_key {
            ops.push(Op::new(Kind::Store(lookup.walk.key), Class::Compute));
        }
    }

    /// Looks up tables one by one, until the first that has the key.
    fn blocking(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<(), Mismatch> {
        let from = ops.len();
        let lookups = self.packets.next(&self.tables)?;
        self.write_key(&lookups[0], ops);
        let several = lookups.len() > 1;
        for lookup in lookups {
            let found = lookup.walk.answer.is_some();
            ask(lookup.walk, Engine::Cha, 0, ops, queries);
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

    /// Looks up all tables with overlapping loads.
    fn near_l2(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<(), Mismatch> {
        let from = ops.len();
        let lookups = self.packets.next(&self.tables)?;
        self.write_key(&lookups[0], ops);
        for lookup in lookups {
            ask(lookup.walk, Engine::NearL2, 0, ops, queries);
        }
        unit(ops, from, 1);
        Ok(())
    }

    /// Looks up batches: eight packets in one table, or one packet or more in all tables at once.
    fn non_blocking(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<(), Mismatch> {
        let from = ops.len();
        let packets = if self.tables.len() > 1 { self.at_once } else { RESULTS }.min(self.left as usize);
        let mut lookups = Vec::new();
        for _ in 0..packets {
            let more = self.packets.next(&self.tables)?;
            self.write_key(&more[0], ops);
            lookups.push(more.into_iter());
        }
        let by_table = |_| lookups.iter_mut().filter_map(|of_packet| Some(of_packet.next()?.walk)).collect();
        let walks = (0..self.tables.len()).map(by_table).collect::<Vec<Vec<Walk>>>().concat();
        self.left -= packets as u64 - 1;
        let read = self.queries.ahead(walks, Vec::new(), packets as u32, ops, queries);
        begin(ops, from);
        if read > 0 {
            end(ops, read);
        }
        Ok(())
    }
}

impl Program for HaloProgram {
    fn refill(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<bool, Mismatch> {
        if self.left == 0 {
            let read = self.queries.read(ops);
            if read > 0 {
                end(ops, read);
            }
            return Ok(read > 0);
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
