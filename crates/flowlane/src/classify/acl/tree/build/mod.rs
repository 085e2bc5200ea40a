//! How a tree is made of rules.
//!
//! ```text
//! entries ─► by rank ─► ternary bits ─► part: cut, evict ─► buckets ─► leaves, nodes ─► table, blocks
//!                                        └─ evicted rules ────► next part
//! ```

mod cost;
mod counts;
mod cut;
mod field;
mod gridded;
mod piece;
mod sharpen;
mod sign;
pub(super) mod ternary;

#[cfg(target_arch = "x86_64")]
use super::avx512::Vectors;
use super::grid::Grid;
use super::leaf::{Block, RULES};
use super::range_filter::{Ends, RangeFilter};
use super::record::{self, Records};
use super::{COLD_BYTES, Node, PARTS_MAX, Tree, TreeConfig, chosen};
use crate::classify::acl::{BuildError, Engine, Entry, WordKind, order};
use crate::dispatch::AdaptiveDispatch;
use crate::isa::Backend;
use crate::memory::Memory;
use crate::rule::RuleId;
use piece::{Budget, Draft, Least, PART_CYCLES, Piece};
use ternary::Ternary;

/// Entries and records are found by offsets of 31 bits.
const TABLE_BYTES_MAX: u64 = 4 << 31;

/// How freely rules are copied, from generous to not at all: each attempt that does not fit the budget is followed by
/// the next.
#[derive(Clone, Copy, Debug)]
struct Thrift {
    /// Wild bits of a cut that a rule may have in a part before it is left to the next.
    wild_max: u8,
    /// Copies of rules that a node may make, for each rule.
    copies_per_rule: usize,
    /// Bits of an index beyond those that number the rules.
    bits_beyond: i32,
}

const ATTEMPTS: [Thrift; 4] = [
    Thrift { wild_max: 4, copies_per_rule: 8, bits_beyond: 3 },
    Thrift { wild_max: 2, copies_per_rule: 2, bits_beyond: 0 },
    Thrift { wild_max: 1, copies_per_rule: 1, bits_beyond: -3 },
    // Lists of rules.
    Thrift { wild_max: 0, copies_per_rule: 1, bits_beyond: -64 },
];

/// Packets that cuts are chosen by.
const PACKETS: usize = 8192;

/// Packets of the sample that estimates the cost of a partition.
const SOME_PACKETS: usize = 2048;

/// The settings of a partition of the rules into parts.
#[derive(Clone, Copy, Debug)]
struct PartitionPlan {
    parts_max: usize,
    /// Wild bits of a cut that a rule may have in a part at first.
    wild_max: u8,
    /// The cost of evicting a rule to the next part, in bits.
    eviction_bits: f32,
    /// Whether a part takes only rules that are specific about one field, which is chosen for it.
    by_field: bool,
}

impl PartitionPlan {
    const fn new(parts_max: usize, wild_max: u8, eviction_bits: f32) -> Self {
        Self { parts_max, wild_max, eviction_bits, by_field: false }
    }

    const fn by_field(parts_max: usize, wild_max: u8, eviction_bits: f32) -> Self {
        Self { by_field: true, ..Self::new(parts_max, wild_max, eviction_bits) }
    }
}

/// The partition that is drafted first.
const ONE_PART: PartitionPlan = PartitionPlan::new(1, 0, 0.0);

/// Further plans to try.
const PLANS: [PartitionPlan; 9] = [
    PartitionPlan::new(2, 2, 5.0),
    PartitionPlan::new(2, 1, 12.0),
    PartitionPlan::new(2, 3, 8.0),
    PartitionPlan::new(3, 1, 5.0),
    PartitionPlan::new(3, 3, 3.0),
    PartitionPlan::new(3, 4, 3.0),
    PartitionPlan::new(4, 2, 3.0),
    PartitionPlan::new(4, 4, 3.0),
    PartitionPlan::new(4, 4, 5.0),
];

/// Plans to try where all others cost more than [`SLOW_CYCLES`]: every bit is wild in most rules then, so that
/// one bit after the other leads nowhere.
const PLANS_BY_FIELD: [PartitionPlan; 3] = [
    PartitionPlan::by_field(3, 2, 5.0),
    PartitionPlan::by_field(PARTS_MAX, 2, 5.0),
    PartitionPlan::by_field(PARTS_MAX, 4, 8.0),
];

/// A lookup that is expected to take longer is worth another try.
const SLOW_CYCLES: f64 = 100.0;

/// The cost, relative to the cheapest partition, up to which one is selected that takes at most [`SPARING_BYTES`] of its memory.
const SPARING_CYCLES: f64 = 1.1;
const SPARING_BYTES: f64 = 0.5;

/// The input of all steps.
struct Plan<'a, const W: usize> {
    kinds: &'a [WordKind; W],
    rules: &'a [Ternary<W>],
    /// Their numbers.
    ranks: &'a [u32],
    /// Packets drawn from them.
    packets: &'a [[u32; W]],
    /// Fewer, which estimate the cost of partitions.
    some_packets: &'a [[u32; W]],
    thrift: Thrift,
    threads: usize,
    budget: Budget,
    /// Words that leaves test as a whole: signatures do without them.
    apart: Vec<usize>,
}

pub(super) fn tree<const W: usize>(
    kinds: &[WordKind; W],
    entries: &[Entry<W>],
    config: &TreeConfig,
) -> Result<Tree<W>, BuildError> {
    refuse_duplicates(entries)?;
    let rules_max = (1 << 31) / record::stride(W) - 1;
    if entries.len() > rules_max {
        return Err(BuildError::Rules { rules_max });
    }
    let fixed = Records::<W>::bytes(entries.len()) + PARTS_MAX * size_of::<Node<W>>();
    let least = fixed + (entries.len().div_ceil(RULES) + PARTS_MAX) * size_of::<Block>() + 4 * PARTS_MAX;
    let refused = BuildError::Memory {
        engine: "tree",
        rules: entries.len(),
        needed_bytes: least,
        memory_max: config.memory_max,
    };
    if least > config.memory_max {
        return Err(refused);
    }
    let order = order::descending(entries.iter().map(|e| e.rank.0));
    let rules: Vec<_> = order.iter().map(|&i| Ternary::of(kinds, &entries[i as usize].condition)).collect();
    let ranks: Vec<u32> = (0..rules.len() as u32).collect();
    let (packets, some_packets) = (sign::packets(&rules, PACKETS, 3), sign::packets(&rules, SOME_PACKETS, 2));
    let table_max = usize::try_from(TABLE_BYTES_MAX).unwrap_or(usize::MAX);
    for thrift in ATTEMPTS {
        let budget = Budget::new((config.memory_max - fixed).min(table_max));
        let (rules, packets, some_packets) = (&rules, &packets, &some_packets);
        let threads = config.threads.max(1);
        let apart = Vec::new();
        let mut plan =
            Plan { kinds, rules, ranks: &ranks, packets, some_packets, thrift, threads, budget, apart };
        let draft = draft(&plan);
        let Some(made) = parts(&plan, &draft) else { continue };
        let records = Records::new(kinds, order.iter().map(|&i| &entries[i as usize]));
        let tree = join(records, made, config, &[], None);
        let tree = sharpened(tree, &mut plan, config, None, |plan| parts(plan, &draft));
        return Ok(with_grid(tree, plan, &order, entries, config));
    }
    Err(refused)
}

/// The tree, or one with a grid where that is likely to be faster.
fn with_grid<const W: usize>(
    tree: Tree<W>,
    mut plan: Plan<'_, W>,
    order: &[u32],
    entries: &[Entry<W>],
    config: &TreeConfig,
) -> Tree<W> {
    let cycles = cost::cycles(&tree);
    if !config.grid || cycles <= cost::SLOW_CYCLES {
        return tree;
    }
    let ordered: Vec<&Entry<W>> = order.iter().map(|&i| &entries[i as usize]).collect();
    let Some(gridded) = gridded::of(&plan, &ordered) else { return tree };
    plan.apart.clear();
    plan.renew_budget(&tree.records, config);
    let rest = draft(&plan.of(&gridded.rest));
    let make = |plan: &Plan<'_, W>| {
        let mut made = vec![gridded::part(plan, &gridded)?];
        if !gridded.rest.is_empty() {
            let others = parts(&plan.of(&gridded.rest), &rest)?;
            plan.budget.take(others.iter().map(Piece::size_bytes).sum())?;
            made.extend(others);
        }
        (made.len() <= PARTS_MAX).then_some(made)
    };
    let Some(made) = make(&plan) else { return tree };
    let other = join(tree.records.clone(), made, config, &[], Some(&gridded.grid));
    let other = sharpened(other, &mut plan, config, Some(&gridded.grid), make);
    if cost::cycles(&other) < cost::GRID_BELOW * cycles { other } else { tree }
}

/// The tree with further tests in its leaves, as long as those pay and there is room; `make` makes its parts again.
fn sharpened<const W: usize>(
    mut tree: Tree<W>,
    plan: &mut Plan<'_, W>,
    config: &TreeConfig,
    grid: Option<&Grid>,
    make: impl Fn(&Plan<'_, W>) -> Option<Vec<Piece<W>>>,
) -> Tree<W> {
    while let Some(word) = sharpen::word(&tree) {
        plan.apart.push(word);
        plan.renew_budget(&tree.records, config);
        let Some(made) = make(plan) else { break };
        let ends = made.iter().map(|part| part.blocks.len()).sum::<usize>() * size_of::<Ends>();
        if plan.budget.take(ends * plan.apart.len()).is_none() {
            break;
        }
        tree = join(tree.records, made, config, &plan.apart, grid);
    }
    tree
}

impl<const W: usize> Plan<'_, W> {
    /// Returns a plan for some of the rules, with the memory that is left.
    fn of<'a>(&'a self, ranks: &'a [u32]) -> Plan<'a, W> {
        Plan { ranks, budget: self.budget.rest(), apart: self.apart.clone(), ..*self }
    }

    /// Returns all memory beside the records to the budget.
    fn renew_budget(&mut self, records: &Records<W>, config: &TreeConfig) {
        let fixed = records.size_bytes() + PARTS_MAX * size_of::<Node<W>>();
        let table_max = usize::try_from(TABLE_BYTES_MAX).unwrap_or(usize::MAX);
        self.budget = Budget::new(config.memory_max.saturating_sub(fixed).min(table_max));
    }
}

/// One of every `step`, not always the same: lists of rules have periods.
fn one_of_every<T>(step: usize, items: &[T]) -> impl Iterator<Item = &T> {
    let mixed = |i: usize| (i as u32).wrapping_mul(0x9e37_79b9) as usize >> 16;
    items.chunks(step.max(1)).enumerate().map(move |(i, some)| &some[mixed(i) % some.len()])
}

fn refuse_duplicates<const W: usize>(entries: &[Entry<W>]) -> Result<(), BuildError> {
    let mut handles: Vec<u32> = entries.iter().map(|e| e.rule.0).collect();
    handles.sort_unstable();
    let twice = handles.windows(2).find(|pair| pair[0] == pair[1]);
    twice.map_or(Ok(()), |pair| Err(BuildError::Duplicate(RuleId(pair[0]))))
}

/// Drafts partitions and returns the cheapest.
fn draft<const W: usize>(plan: &Plan<'_, W>) -> Draft<W> {
    let one = piece::draft(plan, &ONE_PART, &Least::new(f64::INFINITY));
    // No two parts cost less.
    if one.cycles <= 2.0 * PART_CYCLES {
        return one;
    }
    let best = cheapest(plan, &PLANS, one);
    if best.cycles <= SLOW_CYCLES { best } else { cheapest(plan, &PLANS_BY_FIELD, best) }
}

/// Returns the cheapest of these partitions and the known one, or one that costs little more and takes far less memory.
fn cheapest<const W: usize>(plan: &Plan<'_, W>, partitions: &[PartitionPlan], known: Draft<W>) -> Draft<W> {
    let least = &Least::new(known.cycles);
    let drafts = |partitions: &[PartitionPlan]| {
        partitions.iter().map(|partition| piece::draft(plan, partition, least)).collect::<Vec<_>>()
    };
    let share = partitions.len().div_ceil(plan.threads);
    let drafts: Vec<Draft<W>> = std::thread::scope(|scope| {
        let others: Vec<_> = partitions
            .chunks(share)
            .skip(1)
            .map(|partitions| scope.spawn(move || drafts(partitions)))
            .collect();
        let own = drafts(&partitions[..share]);
        own.into_iter().chain(others.into_iter().flat_map(piece::join)).collect()
    });
    let drafts: Vec<_> = std::iter::once(known).chain(drafts).collect();
    let best = drafts.iter().min_by(|a, b| a.cycles.total_cmp(&b.cycles)).expect("one is known");
    let spares =
        |d: &&Draft<W>| d.cycles <= SPARING_CYCLES * best.cycles && d.bytes <= SPARING_BYTES * best.bytes;
    let sparing = drafts.iter().filter(spares).min_by(|a, b| a.bytes.total_cmp(&b.bytes));
    sparing.unwrap_or(best).clone()
}

/// The parts, best rank first; none where the budget does not suffice.
fn parts<const W: usize>(plan: &Plan<'_, W>, draft: &Draft<W>) -> Option<Vec<Piece<W>>> {
    let partition = &draft.partition;
    let mut known = draft.cuts.iter().cloned();
    let mut left = plan.ranks.to_vec();
    let (mut bests, mut parts) = (Vec::new(), Vec::new());
    while !left.is_empty() || parts.is_empty() {
        let last = parts.len() + 1 >= partition.parts_max;
        let cut = known.next().unwrap_or_else(|| piece::root(plan, partition, &left, 1.0, last));
        let (rest, kept) = piece::evict(plan, &cut, left);
        // A part without rules, the only one, has no best rank.
        bests.push(kept.first().copied().unwrap_or(0).into());
        parts.push(piece::part(plan, &cut, &kept)?);
        left = rest;
    }
    Some(
        order::ascending(bests.into_iter())
            .into_iter()
            .map(|i| std::mem::take(&mut parts[i as usize]))
            .collect(),
    )
}

/// One table of all parts: their roots first. Leaves test these words as a whole.
fn join<const W: usize>(
    records: Records<W>,
    parts: Vec<Piece<W>>,
    config: &TreeConfig,
    words: &[usize],
    grid: Option<&Grid>,
) -> Tree<W> {
    let count = parts.len();
    let sum = |of: fn(&Piece<W>) -> usize| parts.iter().map(of).sum();
    let mut table = Memory::zeroed(sum(|p| p.table.len()));
    let mut blocks: Memory<Block> = Memory::zeroed(sum(|p| p.blocks.len()));
    let mut nodes: Vec<Node<W>> = Vec::with_capacity(sum(|p| p.nodes.len()));
    let (mut entries, mut block, mut node) = (0, 0, count);
    nodes.extend(parts.iter().map(|p| p.nodes[0].clone()));
    for (part, piece) in parts.iter().enumerate() {
        nodes[part].first += entries as u32;
        // A root is never referred to; the first node behind it becomes number `node`.
        let base =
            piece::Base { block: block as u32, node: (node as u32).wrapping_sub(1), entry: entries as u32 };
        nodes.extend(piece.nodes[1..].iter().map(|n| Node { first: n.first + base.entry, ..n.clone() }));
        let to = &mut table[entries..][..piece.table.len()];
        to.iter_mut().zip(&piece.table).for_each(|(to, entry)| *to = base.moved(*entry));
        blocks[block..][..piece.blocks.len()].copy_from_slice(&piece.blocks);
        entries += piece.table.len();
        block += piece.blocks.len();
        node += piece.nodes.len() - 1;
    }
    let backend = config.variant.and_then(Backend::of).map_or_else(chosen, AdaptiveDispatch::named);
    #[cfg(target_arch = "x86_64")]
    let vectors = {
        let bytes = |p: &Piece<W>| 4 * p.table.len() + size_of::<Block>() * p.blocks.len();
        let roots: Vec<_> = nodes.iter().zip(parts.iter().map(bytes)).collect();
        Vectors::of(&roots, &records.kinds)
    };
    let mut tree = Tree {
        nodes,
        parts: count,
        #[cfg(target_arch = "x86_64")]
        vectors,
        cold: false,
        table,
        range_filters: words.iter().map(|word| RangeFilter::of(&blocks, &records, *word)).collect(),
        blocks,
        records,
        changes: None,
        grid: grid.map(|grid| Box::new(grid.clone())),
        backend,
    };
    tree.cold = tree.table_bytes() > COLD_BYTES;
    tree
}
