//! Nodes and leaves of a part, and how they are put together.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::cut::{self, Cut, Limits};
use super::ternary::Ternary;
use super::{PartitionPlan, Plan, SPARING_CYCLES, one_of_every, sign};
use crate::classify::acl::tree::field::Field;
use crate::classify::acl::tree::leaf::{self, Block, EMPTY, MORE, NODE, RANKS, RULES};
use crate::classify::acl::tree::{Node, bits};

/// A bucket of more rules is cut again, if that helps.
const BUCKET_RULES: usize = 200;

/// Rules that bits are chosen by: more tell nothing new.
const SAMPLE_RULES: usize = 65_536;

/// The cost of a copy, in bits.
const COPY_BITS: f32 = 0.25;

/// Most bits of an index.
const BITS_MAX: i32 = 22;

/// The cost of a part for each lookup, and of a block that it scans, in cycles (Zen 5, tables in L2 and L3).
pub(super) const PART_CYCLES: f64 = 8.0;
const BLOCK_CYCLES: f64 = 3.0;
const NODE_CYCLES: f64 = 30.0;
const MISS_CYCLES: f64 = 8.0;

/// Bytes of a table that the second-level cache holds.
const L2_BYTES: f64 = 768.0 * 1024.0;

/// Levels of nodes below a root.
const DEPTH_MAX: u32 = 2;

/// Bytes that may still be taken.
pub(super) struct Budget {
    left: AtomicUsize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Self {
        Self { left: AtomicUsize::new(bytes) }
    }

    /// Returns the bytes that are left.
    pub(super) fn bytes(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    /// Returns a budget of the bytes that are left.
    pub(super) fn rest(&self) -> Self {
        Self::new(self.bytes())
    }

    pub(super) fn take(&self, bytes: usize) -> Option<()> {
        let take = |left: usize| left.checked_sub(bytes);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| ())
    }
}

/// Offsets that entries of a piece grow by where it is appended to others.
#[derive(Clone, Copy)]
pub(super) struct Base {
    pub(super) block: u32,
    pub(super) node: u32,
    pub(super) entry: u32,
}

impl Base {
    pub(super) fn moved(&self, entry: u32) -> u32 {
        match entry & NODE {
            0 => entry + self.block,
            _ => NODE | (entry & !NODE).wrapping_add(self.node),
        }
    }
}

/// Nodes, entries and blocks that refer to each other from 0.
#[derive(Default)]
pub(super) struct Piece<const W: usize> {
    pub(super) nodes: Vec<Node<W>>,
    pub(super) table: Vec<u32>,
    pub(super) blocks: Vec<Block>,
}

impl<const W: usize> Piece<W> {
    /// Returns the bytes of its parts.
    pub(super) fn size_bytes(&self) -> usize {
        size_of_val(&self.nodes[..]) + size_of_val(&self.table[..]) + size_of_val(&self.blocks[..])
    }

    /// Adds another piece; tells how its entries are to be moved.
    fn append(&mut self, other: Self) -> Base {
        let base = Base {
            block: self.blocks.len() as u32,
            node: self.nodes.len() as u32,
            entry: self.table.len() as u32,
        };
        self.nodes.extend(other.nodes.into_iter().map(|n| Node { first: n.first + base.entry, ..n }));
        self.table.extend(other.table.into_iter().map(|entry| base.moved(entry)));
        self.blocks.extend(other.blocks);
        base
    }
}

/// Rules by index: those of bucket `i` are `ranks[starts[i]..starts[i + 1]]`, ascending.
pub(super) struct Buckets {
    starts: Vec<u32>,
    ranks: Vec<u32>,
}

/// Returns the result of a thread.
pub(super) fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Calls `visit` with each index of a cut that a rule has.
fn indices<const W: usize>(rule: &Ternary<W>, cut: &[u32; W], mut visit: impl FnMut(usize)) {
    let value = bits::gather(cut, &rule.value);
    let wild = bits::gather(cut, &rule.mask.map(|m| !m));
    let mut sub = 0u32;
    loop {
        visit((value | sub) as usize);
        sub = sub.wrapping_sub(wild) & wild;
        if sub == 0 {
            return;
        }
    }
}

impl Buckets {
    /// Buckets of these rules.
    pub(super) fn of(lists: &[Vec<u32>]) -> Self {
        let mut starts = vec![0u32];
        let mut ranks = Vec::new();
        for list in lists {
            ranks.extend_from_slice(list);
            starts.push(ranks.len() as u32);
        }
        Self { starts, ranks }
    }

    fn new<const W: usize>(rules: &[Ternary<W>], members: &[u32], cut: &[u32; W]) -> Self {
        let mut starts = vec![0u32; (1 << bits::count(cut)) + 1];
        for &rank in members {
            indices(&rules[rank as usize], cut, |i| starts[i + 1] += 1);
        }
        (1..starts.len()).for_each(|i| starts[i] += starts[i - 1]);
        let mut ranks = vec![0; starts[starts.len() - 1] as usize];
        let mut next = starts.clone();
        for &rank in members {
            indices(&rules[rank as usize], cut, |i| {
                ranks[next[i] as usize] = rank;
                next[i] += 1;
            });
        }
        Self { starts, ranks }
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn bucket(&self, i: usize) -> &[u32] {
        &self.ranks[self.starts[i] as usize..self.starts[i + 1] as usize]
    }

    /// Ranges of about equally many rules.
    fn shares(&self, count: usize) -> Vec<Range<usize>> {
        let end = |share: usize| {
            let rules = (self.ranks.len() * share / count) as u32;
            if share == count {
                self.len()
            } else {
                self.starts.partition_point(|s| *s < rules).min(self.len())
            }
        };
        (0..count).map(|share| end(share) * usize::from(share > 0)..end(share + 1)).collect()
    }
}

/// The cut of a new part over `left`, of which each represents `scale` rules.
pub(super) fn root<const W: usize>(
    plan: &Plan<'_, W>,
    partition: &PartitionPlan,
    left: &[u32],
    scale: f64,
    last: bool,
) -> Cut<W> {
    let thrift = plan.thrift;
    let step = left.len().div_ceil(SAMPLE_RULES).max(1);
    let mut sample: Vec<_> = one_of_every(step, left).map(|&rank| plan.rules[rank as usize]).collect();
    let stands_for = scale * step as f64;
    let field = if partition.by_field && !last { Field::telling_most(plan.kinds, &sample) } else { None };
    sample.retain(|rule| field.is_none_or(|field| field.is_told_by(rule)));
    // A small part may be cut as finely as if it had an eighth of the rules: each packet visits it too.
    let (n, all) = ((sample.len() as f64 * stands_for).max(1.0), plan.rules.len() as f64);
    let finely = n.max(all / 8.0);
    let bits_max = finely.log2().ceil() as i32 + thrift.bits_beyond;
    let wild_more = (finely / n).log2() as u8;
    let limits = Limits {
        bits_max: bits_max.clamp(0, BITS_MAX) as u32,
        copies_max: (thrift.copies_per_rule as f64 * sample.len() as f64 * finely / n) as usize,
        copy_bits: COPY_BITS * (n / all) as f32,
        wild_max: (!last).then_some(partition.wild_max.min(thrift.wild_max) + wild_more),
        eviction_bits: partition.eviction_bits,
        full: ((RULES as f64 / stands_for) as usize).max(1),
    };
    let mut cut = cut::choose(&sample, plan.packets, &limits);
    cut.field = field;
    cut
}

/// The rules that a cut leaves to the next part, and those that it keeps: all, where the others are so few that they may
/// stand everywhere.
pub(super) fn evict<const W: usize>(
    plan: &Plan<'_, W>,
    cut: &Cut<W>,
    left: Vec<u32>,
) -> (Vec<u32>, Vec<u32>) {
    let rule = |rank: u32| &plan.rules[rank as usize];
    let (rest, kept): (Vec<u32>, Vec<u32>) = left.iter().partition(|&&rank| cut.evicts(rule(rank)));
    let copies =
        |total: usize, &rank: &u32| total.saturating_add(1usize << rule(rank).wild(&cut.mask).min(32));
    let few = rest.len() <= RULES / 2 && rest.iter().fold(0, copies) <= plan.rules.len();
    if few { (Vec::new(), left) } else { (rest, kept) }
}

/// A partition, drafted on a sample of the rules.
#[derive(Clone)]
pub(super) struct Draft<const W: usize> {
    pub(super) partition: PartitionPlan,
    /// The estimated cost of a lookup; infinite where another plan is cheaper.
    pub(super) cycles: f64,
    /// Bytes of its tables and leaves, about.
    pub(super) bytes: f64,
    /// The cuts of the first parts, as far as they were chosen by all rules.
    pub(super) cuts: Vec<Cut<W>>,
}

/// The cost of the cheapest plan so far.
pub(super) struct Least(AtomicU64);

impl Least {
    pub(super) fn new(cycles: f64) -> Self {
        Self(AtomicU64::new(cycles.to_bits()))
    }

    fn lower(&self, cycles: f64) {
        // The bits of numbers that are not negative are in their order.
        self.0.fetch_min(cycles.to_bits(), Ordering::Relaxed);
    }

    fn cycles(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

/// Drafts a partition, and stops where another costs less.
pub(super) fn draft<const W: usize>(
    plan: &Plan<'_, W>,
    partition: &PartitionPlan,
    least: &Least,
) -> Draft<W> {
    let mut left = plan.ranks.to_vec();
    let mut expected = Expected::default();
    let (mut parts, mut cuts) = (0, Vec::new());
    while !left.is_empty() {
        if expected.cycles(plan) + PART_CYCLES > SPARING_CYCLES * least.cycles() {
            return Draft { partition: *partition, cycles: f64::INFINITY, bytes: f64::INFINITY, cuts };
        }
        let step = (left.len() / 4096).min(4).max(left.len().div_ceil(SAMPLE_RULES / 2)).max(1);
        let sample: Vec<u32> = one_of_every(step, &left).copied().collect();
        let cut = root(plan, partition, &sample, step as f64, parts + 1 >= partition.parts_max);
        let (rest, kept) = evict(plan, &cut, left);
        let kept: Vec<u32> = one_of_every(step, &kept).copied().collect();
        let mask = bounded(plan, cut.mask, &kept);
        expected.add(plan, &mask, &Buckets::new(plan.rules, &kept, &mask), step);
        if step == 1 && cuts.len() == parts {
            cuts.push(cut);
        }
        parts += 1;
        left = rest;
    }
    let cycles = expected.cycles(plan);
    least.lower(cycles);
    Draft { partition: *partition, cycles, bytes: expected.bytes, cuts }
}

/// The expected cost of lookups in the parts so far; more parts never cost less.
#[derive(Default)]
struct Expected {
    /// Where all lies in the second-level cache.
    near: f64,
    bytes: f64,
    /// How much of the tables of the parts is waited for.
    missing: f64,
}

impl Expected {
    /// Adds a part with this cut, where each rule represents `step`.
    fn add<const W: usize>(&mut self, plan: &Plan<'_, W>, cut: &[u32; W], buckets: &Buckets, step: usize) {
        let cycles = |packet: &[u32; W]| {
            let rules = (buckets.bucket(bits::gather(cut, packet) as usize).len() * step) as f64;
            if rules > 0.75 * BUCKET_RULES as f64 {
                NODE_CYCLES * (rules / BUCKET_RULES as f64).log2().max(1.0)
            } else {
                BLOCK_CYCLES * (rules / RULES as f64 - 1.0).max(0.0)
            }
        };
        self.near +=
            PART_CYCLES + plan.some_packets.iter().map(cycles).sum::<f64>() / plan.some_packets.len() as f64;
        let bytes = (4 * buckets.len() + 16 * step * buckets.ranks.len()) as f64;
        self.bytes += bytes;
        self.missing += (2.0 * bytes / L2_BYTES).min(1.0);
    }

    fn cycles<const W: usize>(&self, plan: &Plan<'_, W>) -> f64 {
        // What does not lie in the second-level cache is waited for.
        let all = self.bytes + (64 * plan.rules.len()) as f64;
        self.near + MISS_CYCLES * self.missing * (1.0 - L2_BYTES / all).max(0.0)
    }
}

/// Of a cut that was chosen by a sample, as many bits as do not copy the rules too often.
fn bounded<const W: usize>(plan: &Plan<'_, W>, mut cut: [u32; W], members: &[u32]) -> [u32; W] {
    let finely = members.len().max(plan.rules.len() / 8);
    let copies_max = finely.saturating_mul(2 * plan.thrift.copies_per_rule);
    loop {
        let copies = |total: usize, &rank: &u32| {
            total.saturating_add(1usize << plan.rules[rank as usize].wild(&cut).min(32))
        };
        if members.iter().fold(0, copies) <= copies_max {
            return cut;
        }
        let wild = |w: usize, b: u32| {
            members.iter().filter(|&&rank| plan.rules[rank as usize].mask[w] >> b & 1 == 0).count()
        };
        let bits = (0..W).flat_map(|w| (0..32).map(move |b| (w, b))).filter(|&(w, b)| cut[w] >> b & 1 == 1);
        let Some((w, b)) = bits.max_by_key(|&(w, b)| wild(w, b)) else { return cut };
        cut[w] &= !(1 << b);
    }
}

impl<const W: usize> Plan<'_, W> {
    /// The bits that signatures do without at a node with this cut.
    fn told_otherwise(&self, cut: &[u32; W]) -> [u32; W] {
        let mut out = *cut;
        self.apart.iter().for_each(|word| out[*word] = u32::MAX);
        out
    }
}

/// A part with this cut.
pub(super) fn part<const W: usize>(plan: &Plan<'_, W>, cut: &Cut<W>, members: &[u32]) -> Option<Piece<W>> {
    let cut = &bounded(plan, cut.mask, members);
    let mut state = 1;
    let step = plan.rules.len().div_ceil(4096).max(1);
    let packets = one_of_every(step, plan.ranks);
    let packets = packets.map(|&rank| (sign::packet(&plan.rules[rank as usize], &mut state), rank));
    node(plan, cut, members, packets, 0)
}

/// A node and all below it.
fn node<const W: usize>(
    plan: &Plan<'_, W>,
    cut: &[u32; W],
    members: &[u32],
    packets: impl Iterator<Item = ([u32; W], u32)>,
    depth: u32,
) -> Option<Piece<W>> {
    let buckets = Buckets::new(plan.rules, members, cut);
    node_of(plan, *cut, &buckets, |packet| bits::gather(cut, packet) as usize, packets, depth)
}

/// A node of these buckets, and all below it: `cut` by bits, or where it is empty by what `bucket_of` says.
pub(super) fn node_of<const W: usize>(
    plan: &Plan<'_, W>,
    cut: [u32; W],
    buckets: &Buckets,
    bucket_of: impl Fn(&[u32; W]) -> usize,
    packets: impl Iterator<Item = ([u32; W], u32)>,
    depth: u32,
) -> Option<Piece<W>> {
    plan.budget.take(4 * buckets.len() + if depth > 0 { size_of::<Node<W>>() } else { 0 })?;
    let pairs_max = if depth == 0 { sign::PAIRS_MAX } else { sign::PAIRS_MAX_BELOW };
    let sign = sign::choose(plan.rules, &plan.told_otherwise(&cut), packets, pairs_max, |packet| {
        buckets.bucket(bucket_of(packet))
    });
    let mut out = Piece { nodes: vec![Node::new(cut, sign)], table: vec![0; buckets.len()], blocks: vec![] };
    let threads = if depth == 0 && buckets.ranks.len() > 1000 { plan.threads } else { 1 };
    let shares = buckets.shares(threads);
    let build = |range: &Range<usize>| share(plan, &sign, buckets, range.clone(), depth);
    let built: Vec<_> = std::thread::scope(|scope| {
        let others: Vec<_> = shares[1..].iter().map(|range| scope.spawn(move || build(range))).collect();
        let own = build(&shares[0]);
        std::iter::once(own).chain(others.into_iter().map(join)).collect()
    });
    for (range, built) in shares.iter().zip(built) {
        let (entries, piece) = built?;
        let base = out.append(piece);
        out.table[range.clone()].iter_mut().zip(entries).for_each(|(to, entry)| *to = base.moved(entry));
    }
    Some(out)
}

/// Entries for some buckets of a node, and what they refer to.
fn share<const W: usize>(
    plan: &Plan<'_, W>,
    sign: &[u32; W],
    buckets: &Buckets,
    range: Range<usize>,
    depth: u32,
) -> Option<(Vec<u32>, Piece<W>)> {
    let mut entries = Vec::with_capacity(range.len());
    let mut out = Piece { nodes: vec![], table: vec![], blocks: vec![] };
    // Buckets that share a leaf: the rules of all of them.
    let (mut waiting, mut union) = (0, Vec::new());
    for i in range {
        let bucket = buckets.bucket(i);
        if bucket.len() > BUCKET_RULES
            && union != bucket
            && let Some(cut) = cut_again(plan, bucket, depth)
        {
            leaf(plan, sign, &union, &mut waiting, &mut entries, &mut out)?;
            union.clear();
            let mut state = 1;
            let packets = bucket.iter().take(256);
            let packets = packets.map(|&rank| (sign::packet(&plan.rules[rank as usize], &mut state), rank));
            let base = out.append(node(plan, &cut, bucket, packets, depth + 1)?);
            entries.push(base.moved(NODE));
            continue;
        }
        match united(&union, bucket, RULES.max(union.len())) {
            Some(both) if waiting > 0 => union = both,
            _ => {
                leaf(plan, sign, &union, &mut waiting, &mut entries, &mut out)?;
                union.clear();
                union.extend_from_slice(bucket);
            }
        }
        waiting += 1;
    }
    leaf(plan, sign, &union, &mut waiting, &mut entries, &mut out)?;
    Some((entries, out))
}

/// Merges both, ascending, where their sum is at most a limit.
fn united(a: &[u32], b: &[u32], len_max: usize) -> Option<Vec<u32>> {
    if a.len().max(b.len()) > len_max {
        return None;
    }
    let mut both = Vec::with_capacity(len_max.min(a.len() + b.len()));
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    while let Some(next) = match (a.peek(), b.peek()) {
        (Some(x), Some(y)) => Some(**(x.min(y))),
        (x, y) => x.or(y).map(|next| **next),
    } {
        if both.len() == len_max {
            return None;
        }
        both.push(next);
        a.next_if(|x| **x == next);
        b.next_if(|y| **y == next);
    }
    Some(both)
}

/// How to cut a large bucket, where that helps.
fn cut_again<const W: usize>(plan: &Plan<'_, W>, bucket: &[u32], depth: u32) -> Option<[u32; W]> {
    if depth == DEPTH_MAX {
        return None;
    }
    let step = bucket.len().div_ceil(SAMPLE_RULES).max(1);
    let sample: Vec<_> = one_of_every(step, bucket).map(|&rank| plan.rules[rank as usize]).collect();
    let bits_max = sample.len().ilog2() as i32 + plan.thrift.bits_beyond;
    let limits = Limits {
        bits_max: bits_max.clamp(0, BITS_MAX) as u32,
        copies_max: sample.len() * plan.thrift.copies_per_rule.min(2),
        copy_bits: COPY_BITS,
        wild_max: None,
        eviction_bits: 0.0,
        full: RULES / step.min(RULES),
    };
    Some(bounded(plan, cut::choose(&sample, &[], &limits).mask, bucket)).filter(|cut| bits::count(cut) > 0)
}

/// Writes the leaf of the `waiting` last buckets.
fn leaf<const W: usize>(
    plan: &Plan<'_, W>,
    sign: &[u32; W],
    ranks: &[u32],
    waiting: &mut usize,
    entries: &mut Vec<u32>,
    out: &mut Piece<W>,
) -> Option<()> {
    if *waiting == 0 {
        return Some(());
    }
    entries.resize(entries.len() + *waiting, out.blocks.len() as u32);
    *waiting = 0;
    let count = ranks.len().div_ceil(RULES).max(1);
    plan.budget.take(count * size_of::<Block>())?;
    for i in 0..count {
        let mut block = EMPTY;
        for (place, &rank) in ranks[i * RULES..].iter().take(RULES).enumerate() {
            let rule = &plan.rules[rank as usize];
            let signed = |of: &[u32; W]| bits::gather(sign, of);
            leaf::set(&mut block, place, signed(&rule.value), signed(&rule.mask), rank);
        }
        if let Some(&next) = ranks.get((i + 1) * RULES) {
            block[RANKS + RULES] = MORE | next;
        }
        out.blocks.push(block);
    }
    Some(())
}
