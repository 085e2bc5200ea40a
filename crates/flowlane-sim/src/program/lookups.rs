//! Lookups of packets, each in one table or in several.
//!
//! | approach | execution for a packet |
//! |---|---|
//! | `software`, `scalar` | table by table, until no better entry can follow; with `rte_hash`'s instructions, or without |
//! | `bulk`, `avx512` | 32 packets interleaved, each table looked up for undecided packets; of generated tables, all of a packet |
//! | `halo-blocking` | LOOKUP_B, table by table, until no better entry can follow |
//! | `halo-non-blocking` | LOOKUP_NB to all tables at once, eight results a line; with one table, eight packets |
//! | `near-l2` | loads from the engine next to L2, to all tables at once |
//! | `tcam`, `sram-tcam` | one query |
//!
//! With `halo-non-blocking`, the queries of `packets_ahead` packets (of one table: batches) are sent before the results
//! of an earlier packet are read. A cache in front, if any, is looked up first by every approach but those of the last
//! line; packets that it knows are finished.

use std::rc::Rc;

use super::devices::FlatDevice;
use super::halo::{NonBlocking, RESULTS, ask};
use super::software::{Batches, NEXT_TABLE, begin, end, pad, scalar, unit};
use crate::config::{Approach, KeyPlace, MachineConfig};
use crate::machine::cache::Line;
use crate::machine::op::{Class, Kind, Mismatch, Op, Program};
use crate::machine::query::{Engine, Queries, Walk};
use crate::workload::rules::Found;
use crate::workload::{BATCH, Lookup, Packets, Tables};

/// The address of the branch on a hit of the cache in front.
const CACHED: u32 = 103;

/// A recorded packet.
pub(crate) struct Packet {
    pub(crate) key: Line,
    /// The lookup of a cache in front.
    pub(crate) cached: Option<Cached>,
    /// The lookups of tables; none if the cache knew the packet.
    pub(crate) tables: Vec<Found>,
}

/// The result of a cache in front for a packet.
pub(crate) struct Cached {
    pub(crate) lookup: Lookup,
    pub(crate) known: bool,
    /// The operations of the insertion, if the packet was unknown.
    pub(crate) insertion: Vec<Op>,
}

/// A source of packets.
pub(crate) trait Source {
    /// Records the next packet: its lookups in all tables, or in those that an ordered search visits.
    fn packet(&mut self, all: bool) -> Result<Packet, Mismatch>;

    /// Returns the number of tables.
    fn tables(&self) -> usize;

    /// Returns whether a cache is in front of the tables.
    fn has_cache(&self) -> bool {
        false
    }

    /// Returns whether the core branches on the result of each table.
    fn branches(&self) -> bool;

    /// Returns whether a batch of software is a packet with all its tables, instead of several packets.
    fn batches_tables(&self) -> bool {
        false
    }

    /// Returns the lines of the stack, and those of results.
    fn lines(&self) -> (&[Line], &[Line]);

    /// Takes note that all packets were looked up.
    fn end(&mut self) {}
}

/// Packets with keys of generated tables.
pub(crate) struct Generated {
    pub(crate) tables: Rc<Tables>,
    pub(crate) packets: Packets,
}

impl Source for Generated {
    fn packet(&mut self, all: bool) -> Result<Packet, Mismatch> {
        let lookups = self.packets.next(&self.tables)?;
        let key = lookups[0].walk.key;
        let found = |lookup: Lookup| Found { rule: lookup.walk.answer, lookup, after: Vec::new() };
        let mut tables: Vec<Found> = lookups.into_iter().map(found).collect();
        if let Some(first) = tables.iter().position(|found| found.rule.is_some())
            && !all
        {
            tables.truncate(first + 1);
        }
        Ok(Packet { key, cached: None, tables })
    }

    fn tables(&self) -> usize {
        self.tables.len()
    }

    fn branches(&self) -> bool {
        self.tables.len() > 1
    }

    fn batches_tables(&self) -> bool {
        self.tables.len() > 1
    }

    fn lines(&self) -> (&[Line], &[Line]) {
        (&self.tables.own.stack, &self.tables.own.results)
    }
}

/// Looks up a number of packets.
pub(crate) struct LookupProgram<S> {
    source: S,
    approach: Approach,
    machine: MachineConfig,
    batches: Batches,
    queries: NonBlocking,
    left: u64,
}

impl<S: Source> LookupProgram<S> {
    pub(crate) fn new(source: S, approach: Approach, machine: &MachineConfig, count: u64) -> Self {
        let batches = Batches::new(approach == Approach::Avx512, &machine.software);
        let queries = NonBlocking::new(source.lines().1.to_vec(), machine.accelerator.packets_ahead);
        Self { source, approach, machine: machine.clone(), batches, queries, left: count }
    }

    /// Records some packets and writes their keys, if cores do that.
    fn packets(&mut self, count: usize, all: bool, ops: &mut Vec<Op>) -> Result<Vec<Packet>, Mismatch> {
        let packets = (0..count).map(|_| self.source.packet(all)).collect::<Result<Vec<_>, _>>()?;
        if self.machine.accelerator.key == KeyPlace::Core {
            ops.extend(packets.iter().map(|packet| Op::new(Kind::Store(packet.key), Class::Compute)));
        }
        Ok(packets)
    }

    /// Looks up a table in software.
    fn read(&self, mut lookup: Lookup, ops: &mut Vec<Op>) {
        match self.approach {
            Approach::Software => pad(&self.machine.software, self.source.lines().0, &mut lookup),
            Approach::Scalar => scalar(&self.machine.software, &mut lookup),
            _ => {}
        }
        ops.append(&mut lookup.ops);
    }

    /// Makes software of the paper's machine use a result before it proceeds.
    fn fence(&self, ops: &mut Vec<Op>) {
        if self.approach == Approach::Software && !self.machine.software.lookups_overlap {
            ops.push(Op { waits: true, fences: true, ..Op::work(1, Class::Compute) });
        }
    }

    /// Looks up one packet, table by table: in software, or with an engine that is asked for each table.
    fn singly(
        &mut self,
        engine: Option<Engine>,
        ops: &mut Vec<Op>,
        queries: &mut Queries,
    ) -> Result<usize, Mismatch> {
        // The engine next to L2 works on all tables at once.
        let all = engine == Some(Engine::NearL2);
        for Packet { cached, tables, .. } in self.packets(1, all, ops)? {
            let mut look_up = |lookup: Lookup, chain: u8, ops: &mut Vec<Op>| match engine {
                Some(engine) => ask(lookup.walk, engine, chain, ops, queries),
                None => self.read(lookup, ops),
            };
            if let Some(Cached { lookup, known, mut insertion }) = cached {
                look_up(lookup, 0, ops);
                ops.push(branch(CACHED, known));
                self.fence(ops);
                ops.append(&mut insertion);
            }
            for (n, Found { lookup, mut after, rule }) in tables.into_iter().enumerate() {
                let chain = if all { (n % 64) as u8 } else { 0 };
                look_up(lookup, chain, ops);
                if all {
                    after.iter_mut().for_each(|op| op.chain = chain);
                }
                ops.append(&mut after);
                if self.source.branches() && !all {
                    ops.push(branch(NEXT_TABLE, rule.is_some()));
                }
                self.fence(ops);
            }
        }
        Ok(1)
    }

    /// Looks up interleaved packets, or interleaved tables of a packet.
    fn side_by_side(&mut self, ops: &mut Vec<Op>) -> Result<usize, Mismatch> {
        let tables = self.source.batches_tables();
        let count = if tables { 1 } else { BATCH.min(self.left as usize) };
        let mut packets = self.packets(count, tables, ops)?;
        let mut insertions = Vec::new();
        let asked = packets.iter_mut().filter_map(|packet| packet.cached.take()).map(|mut cached| {
            insertions.append(&mut cached.insertion);
            cached.lookup
        });
        self.batches.append(asked.collect(), ops);
        let packets = packets.into_iter().map(|packet| packet.tables);
        let mut lanes: Vec<_> = match tables {
            true => packets.flatten().map(|found| vec![found].into_iter()).collect(),
            false => packets.map(Vec::into_iter).collect(),
        };
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
        Ok(count)
    }

    /// Looks up by LOOKUP_NB: several packets if each has one table, or all tables of a packet. With a cache in front,
    /// its results decide which packets' tables are looked up. Returns the packets sent, and those that are finished.
    fn non_blocking(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<(usize, u32), Mismatch> {
        let several = self.source.tables() > 1 && !self.source.has_cache();
        let at_once = self.machine.accelerator.packets_at_once as usize;
        let count = if several { at_once } else { RESULTS }.min(self.left as usize);
        let mut packets = self.packets(count, true, ops)?;
        let cached = packets.iter_mut().filter_map(|packet| packet.cached.as_mut());
        let walks: Vec<Walk> = cached.map(|cached| std::mem::take(&mut cached.lookup.walk)).collect();
        self.queries.ask(walks, ops, queries);
        packets.retain(|packet| !packet.tables.is_empty());
        let mut done = (count - packets.len()) as u32;
        // Queries of several packets are sent together, table by table; behind a cache, those of one packet.
        let together = if several || self.source.tables() == 1 { packets.len().max(1) } else { 1 };
        for packets in packets.chunks_mut(together) {
            let (mut walks, mut after) = (Vec::new(), Vec::new());
            for packet in packets.iter_mut() {
                packet.tables.iter_mut().for_each(|found| after.append(&mut found.after));
                after.extend(packet.cached.take().into_iter().flat_map(|cached| cached.insertion));
            }
            let mut lanes: Vec<_> = packets.iter_mut().map(|packet| packet.tables.drain(..)).collect();
            for _ in 0..self.source.tables() {
                let found = lanes.iter_mut().filter_map(Iterator::next);
                walks.extend(found.map(|found| found.lookup.walk));
            }
            drop(lanes);
            done += self.queries.ahead(walks, after, packets.len() as u32, ops, queries);
        }
        Ok((count, done))
    }

    /// Sends one query to a device that has all rules.
    fn device(&mut self, device: FlatDevice, ops: &mut Vec<Op>) -> Result<usize, Mismatch> {
        device.ask(self.source.packet(false)?.key, ops);
        Ok(1)
    }
}

fn branch(id: u32, taken: bool) -> Op {
    Op { waits: true, ..Op::new(Kind::Branch { id, taken }, Class::Compute) }
}

impl<S: Source> Program for LookupProgram<S> {
    fn refill(&mut self, ops: &mut Vec<Op>, queries: &mut Queries) -> Result<bool, Mismatch> {
        if self.left == 0 {
            let read = self.queries.read(ops);
            if read > 0 {
                end(ops, read);
            } else {
                self.source.end();
            }
            return Ok(read > 0);
        }
        let from = ops.len();
        let tcam = self.machine.tcam.clone();
        let done = match self.approach {
            Approach::HaloNonBlocking => {
                let (sent, finished) = self.non_blocking(ops, queries)?;
                begin(ops, from);
                if finished > 0 {
                    end(ops, finished);
                }
                self.left -= sent as u64;
                return Ok(true);
            }
            Approach::Bulk | Approach::Avx512 => self.side_by_side(ops)?,
            Approach::HaloBlocking => self.singly(Some(Engine::Cha), ops, queries)?,
            Approach::NearL2 => self.singly(Some(Engine::NearL2), ops, queries)?,
            Approach::Tcam => self.device(FlatDevice::tcam(&tcam), ops)?,
            Approach::SramTcam => self.device(FlatDevice::sram_tcam(&tcam), ops)?,
            Approach::Software | Approach::Scalar => self.singly(None, ops, queries)?,
        };
        unit(ops, from, done as u32);
        self.left -= done as u64;
        Ok(true)
    }
}
