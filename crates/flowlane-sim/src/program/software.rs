//! Software lookups: the instructions around the recorded reads of tables.
//!
//! | approach | instructions of a lookup |
//! |---|---|
//! | `software` | those of `rte_hash` apart from reading the table (Table 1) |
//! | `scalar` | those of the library's scalar kernel |
//! | `bulk` | in batches, stage by stage, with prefetches: many misses in flight |
//! | `avx512` | in batches with vectors: the recorded loads without branches, and the measured number of instructions |

use crate::config::SoftwareConfig;
use crate::machine::cache::Line;
use crate::machine::op::{Class, Kind, Op};
use crate::workload::Lookup;

/// Instructions of a batch's loop for each key.
const LOOP_INSTRUCTIONS: u32 = 3;

/// The address of the branch of the loop over tables.
pub(crate) const NEXT_TABLE: u32 = 100;

/// The address of the branch of the search through a bucket.
const SEARCH: u32 = 101;

/// Adds the instructions of `rte_hash` apart from reading the table to a recorded lookup.
pub(crate) fn pad(p: &SoftwareConfig, stack: &[Line], lookup: &mut Lookup) {
    let own = lookup.instructions();
    let count = |wanted: fn(&Kind) -> bool| lookup.ops.iter().filter(|op| wanted(&op.kind)).count() as u32;
    let loads = count(|kind| matches!(kind, Kind::Load(_)));
    let stores = count(|kind| matches!(kind, Kind::Store(_)));
    let share = |permille: u32, own: u32| (p.instructions * permille / 1000).saturating_sub(own);
    let (loads, stores) = (share(p.loads_permille, loads), share(p.stores_permille, stores));
    // The search has 4.5 instructions on average, and the last one uses the result.
    let rest = p.instructions.saturating_sub(own + loads + stores + 5);
    let lock = p.lock_instructions.min(rest);
    // Calls, arguments and the hash before the table is read; the search through the bucket's slots; then the
    // comparison and the return.
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
    // Slot by slot until one has the signature, in an unpredictable position. A miss checks all slots.
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

/// Interleaved lookups of several lanes, stage by stage, each with a prefetch for the lane's next stage.
pub(crate) struct Batches {
    vectors: bool,
    /// Instructions of a lookup apart from the loop: for an absent key, and for a present one.
    instructions: [u32; 2],
}

impl Batches {
    /// Returns batches with or without vectors.
    pub(crate) fn new(vectors: bool, p: &SoftwareConfig) -> Self {
        let (hit, saved) = match vectors {
            true => (p.vector_instructions, p.vector_miss_saves_instructions),
            false => (p.bulk_instructions, p.bulk_miss_saves_instructions),
        };
        let instructions =
            [hit.saturating_sub(saved), hit].map(|whole| whole.saturating_sub(3 * LOOP_INSTRUCTIONS));
        Self { vectors, instructions }
    }

    /// Appends the operations of one lookup for each lane.
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

/// Keeps the loads: computation covers many keys at a time, with masks instead of branches.
fn vectorise(ops: &mut Vec<Op>) {
    ops.retain(|op| !matches!(op.kind, Kind::Branch { .. } | Kind::Work));
}

/// The share of the scalar kernel's instructions in thousandths executed when the table is read, when the entry is
/// read (for a miss, the second bucket), and at the end. Traced in a release build (valgrind's lackey): of a hit's
/// 205 instructions, the first bucket is read by the 93rd and the entry by the 135th; a miss of 184 reads the second
/// bucket directly after the first.
const HIT: [u32; 3] = [455, 660, 1000];
const MISS: [u32; 3] = [505, 535, 1000];

/// Pads a single lookup to the number of instructions of the scalar kernel, which a probe does not see.
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

/// Pads a lookup of a batch: a third of the instructions before the table is read, a third before the entry is, a
/// third after that.
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

/// Adds the work of a stage. Work after a load mostly depends on its data, and occupies the scheduler until they
/// arrive.
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

/// Marks the beginning of a unit that may end in a later refill.
pub(crate) fn begin(ops: &mut [Op], from: usize) {
    if let Some(first) = ops.get_mut(from) {
        first.begins = true;
    }
}

/// Marks the end of `lookups` lookups.
pub(crate) fn end(ops: &mut [Op], lookups: u32) {
    if let Some(last) = ops.last_mut() {
        last.ends = lookups;
    }
}

/// Splits a lookup into the operations before the first bucket, those with it, and those for entries and other
/// buckets.
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

/// Returns the first line that a stage reads.
fn first_line(ops: &[Op]) -> Option<Line> {
    ops.iter().find_map(|op| match op.kind {
        Kind::Load(line) if op.waits => Some(line),
        _ => None,
    })
}
