//! Software lookups.
//!
//! | style | what |
//! |---|---|
//! | `rte` | one lookup after the other, with the instructions that `rte_hash` has beside reading the table (Table 1) |
//! | `scalar` | one after the other, as this project's scalar body does it |
//! | `bulk` | batches, stage by stage, with prefetches: many misses under way at once |
//! | `avx512` | the same with vectors: the loads that were recorded, without branches, and as many instructions as were measured |
//!
//! In a search through several tables, `rte` and `scalar` ask one table after the other and end with the first hit;
//! the batches of `bulk` and `avx512` are a packet's tables.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::config::SoftwareConfig;
use crate::machine::cache::Line;
use crate::machine::op::{Class, Kind, Mismatch, Op, Program};
use crate::machine::query::Queries;
use crate::workload::{BATCH, Lookup, Packets, Tables};

/// A way of looking up in software.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Software {
    /// One by one, with `rte_hash`'s instructions.
    Rte,
    /// One by one, as the scalar body.
    Scalar,
    /// In batches with prefetches.
    Bulk,
    /// In batches with prefetches and vectors.
    Avx512,
}

/// Instructions of a batch's loop over its keys, a key.
const LOOP_INSTRUCTIONS: u32 = 3;

/// The place in the code of the loop over tables: hit or go on.
pub(crate) const NEXT_TABLE: u32 = 100;

/// The place in the code of the search through a bucket.
const SEARCH: u32 = 101;

/// Lookups in software, until there are enough.
pub struct SoftwareProgram {
    tables: Rc<Tables>,
    packets: Packets,
    style: Software,
    padding: SoftwareConfig,
    writes_key: bool,
    left: u64,
    batches: Batches,
}

impl SoftwareProgram {
    /// So many lookups (of one table), or packets (looked up in several).
    pub fn new(
        tables: Rc<Tables>,
        packets: Packets,
        style: Software,
        padding: &SoftwareConfig,
        writes_key: bool,
        count: u64,
    ) -> Self {
        let batches = Batches::new(style, padding);
        Self { tables, packets, style, padding: padding.clone(), writes_key, left: count, batches }
    }

    /// One by one.
    fn singly(&mut self, ops: &mut Vec<Op>) -> Result<(), Mismatch> {
        let lookups = self.packets.next(&self.tables)?;
        let from = ops.len();
        self.write_key(&lookups[0], ops);
        let several = lookups.len() > 1;
        for mut lookup in lookups {
            let found = lookup.walk.answer.is_some();
            match self.style {
                Software::Rte => pad(&self.padding, &self.tables.stack, &mut lookup),
                _ => scalar(&self.padding, &mut lookup),
            }
            ops.append(&mut lookup.ops);
            if several {
                let branch = Kind::Branch { id: NEXT_TABLE, taken: found };
                ops.push(Op { waits: true, ..Op::new(branch, Class::Compute) });
            }
            if self.style == Software::Rte && !self.padding.lookups_overlap {
                ops.push(Op { waits: true, fences: true, ..Op::work(1, Class::Compute) });
            }
            if found {
                break;
            }
        }
        unit(ops, from, 1);
        Ok(())
    }

    /// In batches: a table's lookups of several packets, or a packet's tables.
    fn batch(&mut self, ops: &mut Vec<Op>) -> Result<(), Mismatch> {
        let from = ops.len();
        let several = self.tables.len() > 1;
        let mut lookups = Vec::new();
        let packets = if several { 1 } else { BATCH.min(self.left as usize) };
        for _ in 0..packets {
            let more = self.packets.next(&self.tables)?;
            self.write_key(&more[0], ops);
            lookups.extend(more);
        }
        self.batches.append(lookups, ops);
        unit(ops, from, packets as u32);
        self.left -= packets as u64 - 1;
        Ok(())
    }

    fn write_key(&self, lookup: &Lookup, ops: &mut Vec<Op>) {
        if self.writes_key {
            ops.push(Op::new(Kind::Store(lookup.walk.key), Class::Compute));
        }
    }
}

/// What `rte_hash` does beside reading the table, around a lookup that was recorded.
pub(crate) fn pad(p: &SoftwareConfig, stack: &[Line], lookup: &mut Lookup) {
    let own = lookup.instructions();
    let count = |wanted: fn(&Kind) -> bool| lookup.ops.iter().filter(|op| wanted(&op.kind)).count() as u32;
    let loads = count(|kind| matches!(kind, Kind::Load(_)));
    let stores = count(|kind| matches!(kind, Kind::Store(_)));
    let share = |permille: u32, own: u32| (p.instructions * permille / 1000).saturating_sub(own);
    let (loads, stores) = (share(p.loads_permille, loads), share(p.stores_permille, stores));
    // Those of the search come to 4.5 in the mean, and the last one uses the result.
    let rest = p.instructions.saturating_sub(own + loads + stores + 5);
    let lock = p.lock_instructions.min(rest);
    // Calls, arguments and the hash before the table is read; the search through the bucket's slots; then the
    // comparison and the way back.
    let lock_loads = (p.lock_instructions - lock).min(loads);
    let part = |n: u32, of: u32| (of * (n + 1) / 3) - of * n / 3;
    let around = |ops: &mut Vec<Op>, n: u32| {
        let (loads, stores, lock_loads) = (part(n, loads), part(n, stores), part(n, lock_loads));
        ops.push(Op::work(part(n, lock), Class::Lock));
        for n in 0..loads.max(stores) {
            let line = stack[n as usize % stack.len()];
            if n < loads {
                // Counters and flags of the lock are read, too.
                let class = if n < lock_loads { Class::Lock } else { Class::Compute };
                ops.push(Op::new(Kind::Load(line), class));
            }
            if n < stores {
                ops.push(Op::new(Kind::Store(line), Class::Compute));
            }
        }
        ops.push(Op::work(part(n, rest - lock), Class::Compute));
    };
    let [mut first, mut second, mut third] = stages_of(std::mem::take(&mut lookup.ops));
    around(&mut lookup.ops, 0);
    lookup.ops.append(&mut first);
    lookup.ops.append(&mut second);
    // Slot by slot until one has the signature: which one that is, nobody can predict. A miss sees all.
    let slot = if lookup.walk.answer.is_some() { lookup.walk.hash >> 7 & 7 } else { 8 };
    for n in 0..=slot.min(7) {
        let branch = Kind::Branch { id: SEARCH, taken: n == slot };
        lookup.ops.push(Op { waits: true, ..Op::new(branch, Class::Compute) });
    }
    around(&mut lookup.ops, 1);
    lookup.ops.append(&mut third);
    around(&mut lookup.ops, 2);
    lookup.ops.retain(|op| op.instructions > 0);
}

/// Lookups of several lanes, stage by stage, each with a prefetch of what the lane's next stage reads.
pub(crate) struct Batches {
    vectors: bool,
    /// Of a lookup, beside the loop's: of a key that is not there, and of one that is.
    instructions: [u32; 2],
}

impl Batches {
    /// As a style's batches are.
    pub(crate) fn new(style: Software, p: &SoftwareConfig) -> Self {
        let vectors = style == Software::Avx512;
        let (hit, saved) = match vectors {
            true => (p.vector_instructions, p.vector_miss_saves_instructions),
            false => (p.bulk_instructions, p.bulk_miss_saves_instructions),
        };
        let instructions =
            [hit.saturating_sub(saved), hit].map(|whole| whole.saturating_sub(3 * LOOP_INSTRUCTIONS));
        Self { vectors, instructions }
    }

    /// Appends what the lookups do, one a lane.
    pub(crate) fn append(&self, mut lookups: Vec<Lookup>, ops: &mut Vec<Op>) {
        for lookup in &mut lookups {
            if self.vectors {
                vectorise(&mut lookup.ops);
            }
            lengthen(&mut lookup.ops, self.instructions[usize::from(lookup.walk.answer.is_some())]);
        }
        let mut stages: Vec<[Vec<Op>; 3]> = lookups.into_iter().map(|l| stages_of(l.ops)).collect();
        for stage in 0..3 {
            for (lane, stages) in stages.iter_mut().enumerate() {
                let mut own = std::mem::take(&mut stages[stage]);
                let next = stages.get(stage + 1).and_then(|next| first_line(next));
                for op in &mut own {
                    op.chain = (lane % 64) as u8;
                }
                ops.append(&mut own);
                if let Some(line) = next {
                    let prefetch = Op::new(Kind::Prefetch(line), Class::Data);
                    ops.push(Op { chain: (lane % 64) as u8, waits: true, ..prefetch });
                }
                // The loop over the lanes.
                ops.push(Op::work(LOOP_INSTRUCTIONS, Class::Compute));
            }
        }
    }
}

/// Leaves the loads: what is computed is so for many keys at a time, with masks where there were branches.
fn vectorise(ops: &mut Vec<Op>) {
    ops.retain(|op| !matches!(op.kind, Kind::Branch { .. } | Kind::Work));
}

/// How many of the scalar body's instructions are done, in thousandths: when the table is read, when the entry is (where there
/// is none, the second bucket), and at the end. Traced in a release build (valgrind's lackey): of a hit's 205 the first bucket
/// is read by the 93rd and the entry by the 135th; a miss of 184 reads the second bucket right behind the first.
const HIT: [u32; 3] = [455, 660, 1000];
const MISS: [u32; 3] = [505, 535, 1000];

/// Adds to a single lookup what a probe does not hear of, until there are as many instructions as the scalar body has.
pub(crate) fn scalar(p: &SoftwareConfig, lookup: &mut Lookup) {
    let (whole, done) = match lookup.walk.answer {
        Some(_) => (p.scalar_instructions, HIT),
        None => (p.scalar_instructions.saturating_sub(p.scalar_miss_saves_instructions), MISS),
    };
    let stages = stages_of(std::mem::take(&mut lookup.ops));
    for (n, mut stage) in stages.into_iter().enumerate() {
        lookup.ops.append(&mut stage);
        let missing = (whole * done[n] / 1000).saturating_sub(lookup.instructions());
        work(&mut lookup.ops, n, missing);
    }
}

/// The same for a lookup of a batch: a third before the table is read, a third before the entry is, a third after that.
fn lengthen(ops: &mut Vec<Op>, instructions: u32) {
    let own: u32 = ops.iter().map(|op| op.instructions).sum();
    let extra = instructions.saturating_sub(own);
    let stages = stages_of(std::mem::take(ops));
    for (n, mut stage) in stages.into_iter().enumerate() {
        let before = |n: usize| extra * n as u32 / 3;
        ops.append(&mut stage);
        work(ops, n, before(n + 1) - before(n));
    }
}

/// Work of a stage. What follows a load mostly works on what it brought, and is in the scheduler's way until that is there.
fn work(ops: &mut Vec<Op>, stage: usize, instructions: u32) {
    if instructions > 0 {
        ops.push(Op { waits: stage > 0, ..Op::work(instructions, Class::Compute) });
    }
}

/// Marks a unit of work.
pub(crate) fn unit(ops: &mut [Op], from: usize, lookups: u32) {
    begin(ops, from);
    end(ops, lookups);
}

/// Marks the beginning of a unit whose end is that of a later refill, perhaps.
pub(crate) fn begin(ops: &mut [Op], from: usize) {
    if let Some(first) = ops.get_mut(from) {
        first.begins = true;
    }
}

/// Marks the end of so many lookups.
pub(crate) fn end(ops: &mut [Op], lookups: u32) {
    if let Some(last) = ops.last_mut() {
        last.ends = lookups;
    }
}

/// What is done before the first bucket is read, with it, and with what follows: entries and other buckets.
fn stages_of(ops: Vec<Op>) -> [Vec<Op>; 3] {
    let mut stages: [Vec<Op>; 3] = Default::default();
    let (mut stage, mut seen): (usize, Option<Line>) = (0, None);
    for op in ops {
        if let Kind::Load(line) = op.kind
            && op.waits
            && stage < 2
            && seen != Some(line)
        {
            stage += 1;
            seen = Some(line);
        }
        stages[stage].push(op);
    }
    stages
}

/// The line that a stage reads first.
fn first_line(ops: &[Op]) -> Option<Line> {
    ops.iter().find_map(|op| match op.kind {
        Kind::Load(line) if op.waits => Some(line),
        _ => None,
    })
}

impl Program for SoftwareProgram {
    fn refill(&mut self, ops: &mut Vec<Op>, _: &mut Queries) -> Result<bool, Mismatch> {
        if self.left == 0 {
            return Ok(false);
        }
        match self.style {
            Software::Rte | Software::Scalar => self.singly(ops)?,
            Software::Bulk | Software::Avx512 => self.batch(ops)?,
        }
        self.left -= 1;
        Ok(true)
    }
}
