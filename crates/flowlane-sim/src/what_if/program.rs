//! Programs that look up packets in a user's rules.
//!
//! | approach | execution for a packet |
//! |---|---|
//! | `software`, `scalar` | table by table, until no better rule can follow; with `rte_hash`'s instructions, or without |
//! | `bulk`, `avx512` | 32 packets interleaved, each table looked up for undecided packets |
//! | `halo-blocking` | LOOKUP_B, table by table, until no better rule can follow |
//! | `halo-non-blocking` | LOOKUP_NB to all tables at once, eight results a line; with one table, eight packets |
//! | `near-l2` | loads from the engine next to L2, to all tables at once |
//! | `tcam`, `sram-tcam` | one query |
//! | `tuple-search` | the library's tuple search with its scalar kernel |
//!
//! With `halo-non-blocking`, the queries of `packets_ahead` packets are sent before the results of an earlier packet
//! are read. A flow cache in front, if any, is looked up first by every approach except those of the last two lines;
//! packets that it knows are finished.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::flow_cache::{Cached, FlowCache};
use crate::config::{Approach, KeyPlace, MachineConfig};
use crate::machine::cache::Line;
use crate::machine::op::{Class, Kind, Mismatch, Op, Program};
use crate::machine::query::{Engine, Queries, Walk};
use crate::program::{
    Batches, FlatDevice, NEXT_TABLE, NonBlocking, RESULTS, Software, ask, begin, end, pad, scalar, unit,
};
use crate::workload::rules::{Found, Own, Search, Workload};
use crate::workload::{BATCH, Lookup};

/// The address of the branch on a hit of the flow cache.
const CACHED: u32 = 103;

/// A recorded packet.
struct Packet {
    key: Line,
    cached: Option<Cached>,
    /// `None` if the flow cache knew the packet.
    search: Option<Search>,
}

/// The progress of a program, shared with its caller and with programs that end with it.
#[derive(Default)]
pub(super) struct Progress {
    /// Whether the program has ended.
    pub(super) ended: Cell<bool>,
    /// Packets that the flow cache knew.
    pub(super) known: Cell<u64>,
}

/// Looks up a number of packets.
pub(super) struct RuleProgram {
    workload: Arc<Workload>,
    own: Own,
    cache: Option<FlowCache>,
    approach: Approach,
    machine: MachineConfig,
    batches: Batches,
    next: usize,
    left: u64,
    queries: NonBlocking,
    progress: Rc<Progress>,
}

impl RuleProgram {
    pub(super) fn new(
        workload: Arc<Workload>,
        (own, cache): (Own, Option<FlowCache>),
        approach: Approach,
        machine: &MachineConfig,
        (from, count): (usize, u64),
        progress: Rc<Progress>,
    ) -> Self {
        let style = if approach == Approach::Avx512 { Software::Avx512 } else { Software::Bulk };
        let batches = Batches::new(style, &machine.software);
        let queries = NonBlocking::new(own.results.clone(), machine.accelerator.packets_ahead);
        let machine = machine.clone();
        Self { workload, own, cache, approach, machine, batches, next: from, left: count, queries, progress }
    }

    /// Records the next packet: its lookups in all tables, or in those that an ordered search visits.
    fn packet(&mut self, all: bool) -> Result<Packet, Mismatch> {
        let (number, at) = (self.next as u64, self.next % self.workload.packets.len());
        self.next += 1;
        let (key, expected) = (&self.workload.packets[at], self.workload.expected[at]);
        let place = self.own.key(number);
        let cached = self.cache.as_mut().map(|cache| cache.ask(key, number, place, expected)).transpose()?;
        let known = cached.as_ref().is_some_and(|c| c.known);
        self.progress.known.update(|n| n + u64::from(known));
        let search = match known {
            true => None,
            false => Some(self.workload.tables.search(key, (number, place), expected, all)?),
        };
        Ok(Packet { key: place.line(0), cached, search })
    }

    fn write_key(&self, packet: &Packet, ops: &mut Vec<Op>) {
        if self.machine.accelerator.key == KeyPlace::Core {
            ops.push(Op::new(Kind::Store(packet.key), Class::Compute));
        }
    }

    fn pad(&self, lookup: &mut Lookup) {
        match self.approach {
            Approach::Software => pad(&self.machine.software, &self.own.stack, lookup),
            Approach::Scalar => scalar(&self.machine.software, lookup),
            _ => {}
        }
    }

    /// Looks up one packet, table by table.
    fn singly(&mut self, ops: &mut Vec<Op>) -> Result<(), Mismatch> {
        let packet = self.packet(false)?;
        let from = ops.len();
        self.write_key(&packet, ops);
        if let Some(mut cached) = packet.cached {
            self.pad(&mut cached.lookup);
            ops.append(&mut cached.lookup.ops);
            ops.push(branch(CACHED, cached.known));
            self.fence(ops);
            ops.append(&mut cached.insertion);
        }
        for found in packet.search.into_iter().flat_map(|search| search.tables) {
            let Found { mut lookup, mut after, rule } = found;
            self.pad(&mut lookup);
            ops.append(&mut lookup.ops);
            ops.append(&mut after);
            ops.push(branch(NEXT_TABLE, rule.is_some()));
            self.fence(ops);
        }
        unit(ops, from, 1);
        Ok(())
    }

    /// Makes software of the paper's machine use a result before it proceeds.
    fn fence(&self, ops: &mut Vec<Op>) {
        if self.approach == Approach::Software && !self.machine.software.lookups_overlap {
            ops.push(Op { waits: true, fences: true, ..Op::work(1, Class::Compute) });
        }
    }

    /// Looks up interleaved packets.
    fn side_by_side(&mut self, ops: &mut Vec<Op>) -> Result<u64, Mismatch> {
        let from = ops.len();
        let count = BATCH.min(self.left as usize);
        let mut packets = (0..count).map(|_| self.packet(false)).collect::<Result<Vec<_>, _>>()?;
        packets.iter().for_each(|packet| self.write_key(packet, ops));
        let mut insertions = Vec::new();
        let asked: Vec<Lookup> = packets
            .iter_mut()
            .filter_map(|packet| packet.cached.take())
            .map(|mut cached| {
                insertions.append(&mut cached.insertion);
                cached.lookup
            })
            .collect();
        self.batches.append(asked, ops);
        let mut lanes: Vec<std::vec::IntoIter<Found>> =
            packets.into_iter().filter_map(|packet| packet.search).map(|s| s.tables.into_iter()).collect();
        loop {
            let found: Vec<Found> = lanes.iter_mut().filter_map(Iterator::next).collect();
            if found.is_empty() {
                break;
            }
            let (lookups, after): (Vec<_>, Vec<_>) = found.into_iter().map(|f| (f.lookup, f.after)).unzip();
            self.batches.append(lookups, ops);
            for (lane, mut after) in after.into_iter().enumerate() {
                after.iter_mut().for_each(|op| op.chain = (lane % 64) as u8);
                ops.append(&mut after);
            }
        }
        ops.append(&mut insertions);
        unit(ops, from, count as u32);
        Ok(count as u64)
    }

    /// Looks up tables by LOOKUP_B, one after the other.
    fn blocking(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<(), Mismatch> {
        let packet = self.packet(false)?;
        let from = ops.len();
        self.write_key(&packet, ops);
        if let Some(mut cached) = packet.cached {
            ask(cached.lookup.walk, Engine::Cha, 0, ops, queries);
            ops.push(branch(CACHED, cached.known));
            ops.append(&mut cached.insertion);
        }
        for Found { lookup, mut after, rule } in packet.search.into_iter().flat_map(|search| search.tables) {
            ask(lookup.walk, Engine::Cha, 0, ops, queries);
            ops.append(&mut after);
            ops.push(branch(NEXT_TABLE, rule.is_some()));
        }
        unit(ops, from, 1);
        Ok(())
    }

    /// Looks up tables by overlapping loads.
    fn near_l2(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<(), Mismatch> {
        let packet = self.packet(true)?;
        let from = ops.len();
        self.write_key(&packet, ops);
        if let Some(mut cached) = packet.cached {
            ask(cached.lookup.walk, Engine::NearL2, 0, ops, queries);
            ops.push(branch(CACHED, cached.known));
            ops.append(&mut cached.insertion);
        }
        for (n, found) in packet.search.into_iter().flat_map(|search| search.tables).enumerate() {
            let Found { lookup, mut after, .. } = found;
            let chain = (n % 64) as u8;
            ask(lookup.walk, Engine::NearL2, chain, ops, queries);
            after.iter_mut().for_each(|op| op.chain = chain);
            ops.append(&mut after);
        }
        unit(ops, from, 1);
        Ok(())
    }

    /// Looks up by LOOKUP_NB: several packets if each has one table, or all tables of a packet. With a flow cache in
    /// front, its results decide which tables are looked up.
    fn non_blocking(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<u64, Mismatch> {
        let from = ops.len();
        let several = self.workload.tables.len() > 1 && self.cache.is_none();
        let count = if several { 1 } else { RESULTS.min(self.left as usize) };
        let mut packets = (0..count).map(|_| self.packet(true)).collect::<Result<Vec<_>, _>>()?;
        packets.iter().for_each(|packet| self.write_key(packet, ops));
        let cached = packets.iter_mut().filter_map(|packet| packet.cached.as_mut());
        let walks: Vec<Walk> = cached.map(|cached| std::mem::take(&mut cached.lookup.walk)).collect();
        self.queries.ask(walks, ops, queries);
        packets.retain(|packet| packet.search.is_some());
        let mut done = (count - packets.len()) as u32;
        // If each packet has one table, their queries are sent together; otherwise those of one packet.
        let together = if self.workload.tables.len() == 1 { packets.len().max(1) } else { 1 };
        for packets in packets.chunks_mut(together) {
            let (mut walks, mut after) = (Vec::new(), Vec::new());
            for packet in packets.iter_mut() {
                for mut found in packet.search.take().into_iter().flat_map(|search| search.tables) {
                    walks.push(found.lookup.walk);
                    after.append(&mut found.after);
                }
                after.extend(packet.cached.take().into_iter().flat_map(|cached| cached.insertion));
            }
            done += self.queries.ahead(walks, after, packets.len() as u32, ops, queries);
        }
        begin(ops, from);
        if done > 0 {
            end(ops, done);
        }
        Ok(count as u64)
    }

    /// Sends one query to a device that has all rules.
    fn device(&mut self, device: FlatDevice, ops: &mut Vec<Op>) -> Result<(), Mismatch> {
        let packet = self.packet(false)?;
        device.ask(packet.key, ops);
        Ok(())
    }
}

fn branch(id: u32, taken: bool) -> Op {
    Op { waits: true, ..Op::new(Kind::Branch { id, taken }, Class::Compute) }
}

impl Program for RuleProgram {
    fn refill(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<bool, Mismatch> {
        if self.left == 0 {
            let read = self.queries.read(ops);
            if read > 0 {
                end(ops, read);
            }
            self.progress.ended.set(read == 0);
            return Ok(read > 0);
        }
        let done = match self.approach {
            Approach::Bulk | Approach::Avx512 => self.side_by_side(ops)?,
            Approach::HaloNonBlocking => self.non_blocking(ops, queries)?,
            Approach::HaloBlocking => self.blocking(ops, queries).map(|()| 1)?,
            Approach::NearL2 => self.near_l2(ops, queries).map(|()| 1)?,
            Approach::Tcam => self.device(FlatDevice::tcam(&self.machine.tcam), ops).map(|()| 1)?,
            Approach::SramTcam => self.device(FlatDevice::sram_tcam(&self.machine.tcam), ops).map(|()| 1)?,
            Approach::Software | Approach::Scalar | Approach::TupleSearch => self.singly(ops).map(|()| 1)?,
        };
        self.left -= done;
        Ok(true)
    }
}
