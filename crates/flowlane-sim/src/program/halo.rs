//! The instructions for accelerators: LOOKUP_B, or LOOKUP_NB in batches of eight, whose results share a line that
//! SNAPSHOT_READ reads until all are present.

use std::collections::VecDeque;

use crate::machine::cache::Line;
use crate::machine::op::{Class, Kind, Op};
use crate::machine::query::{BatchId, Engine, Queries, Walk};

/// Results of 8 bytes that share a line (4.5, 5.1).
pub(super) const RESULTS: usize = 8;

/// Instructions around a lookup instruction: the addresses of key, table and result.
const AROUND: u32 = 4;

/// Instructions that check a snapshot: a comparison of eight results, a mask, a branch.
const LOOK: u32 = 4;

/// Appends a query by LOOKUP_B, or a load from an engine, to a dependency chain.
pub(super) fn ask(walk: Walk, engine: Engine, chain: u8, ops: &mut Vec<Op>, queries: &mut Queries) {
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
pub(super) struct NonBlocking {
    results: Vec<Line>,
    next: usize,
    /// The number of packets whose queries are sent ahead.
    ahead: usize,
    unread: VecDeque<Unread>,
}

impl NonBlocking {
    /// Creates the state with lines for results.
    pub(super) fn new(results: Vec<Line>, ahead: u32) -> Self {
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
    pub(super) fn ask(&mut self, walks: Vec<Walk>, ops: &mut Vec<Op>, queries: &mut Queries) {
        let batches = self.send(walks, ops, queries);
        look(batches, ops);
    }

    /// Sends the queries of packets with the operations that follow, and reads the results of earlier packets beyond
    /// the configured distance. Returns the number of packets whose results were read.
    pub(super) fn ahead(
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
    pub(super) fn read(&mut self, ops: &mut Vec<Op>) -> u32 {
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
