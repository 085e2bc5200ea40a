//! The lookup of a group of keys, for all instruction sets.
//!
//! Each step is done for the whole group before the next, so that what it waits for is asked for by the step before.

use super::leaf::{self, Block, NODE, NONE};
use super::range_filter::Ends;
use super::record::Record;
use super::{Node, PARTS_MAX, Tree};
use crate::classify::acl::engine::Tombstones;
use crate::classify::acl::{CATEGORIES_MAX, FEW, MatchId, WordKind};
use crate::isa::simd::Kernel;
use crate::memory;

/// Keys in a group.
const GROUP: usize = 32;

/// Operations on a node's masks, a leaf's block and a record, by the witness of an instruction set.
pub(super) trait TreeOps: Copy {
    /// Returns the bits of a key that make its index in a node: [`bits::gather`](super::bits::gather).
    fn cut<const W: usize>(self, node: &Node<W>, key: &[u32; W]) -> u32;

    /// Returns the bits of a key that make its signature in a node's leaves.
    fn sign<const W: usize>(self, node: &Node<W>, key: &[u32; W]) -> u32;

    /// See [`leaf::candidates`].
    fn candidates(self, block: &Block, signature: u32) -> u32;

    /// See [`range_filter::passing`](super::range_filter::passing).
    fn passing(self, ends: &Ends, ranges: u32, key: u32) -> u32;

    /// Returns whether `key` fulfils the condition of a record.
    fn matches<const W: usize>(self, kinds: &[WordKind; W], record: Record<'_, W>, key: &[u32; W]) -> bool;

    /// Looks up keys in category 0.
    #[inline(always)]
    fn lookup_batch<const W: usize>(
        self,
        tree: &Tree<W>,
        keys: &[[u32; W]],
        verdicts: &mut [MatchId],
        dead: Option<Tombstones<'_>>,
    ) {
        lookup_batch(self, tree, keys, verdicts, dead);
    }
}

/// Looks up keys in category 0, among rules that are not `dead`.
pub(super) struct LookupBatch<'a, const W: usize> {
    pub(super) tree: &'a Tree<W>,
    pub(super) keys: &'a [[u32; W]],
    pub(super) verdicts: &'a mut [MatchId],
    pub(super) dead: Option<Tombstones<'a>>,
}

impl<I: TreeOps, const W: usize> Kernel<I> for LookupBatch<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: I) {
        isa.lookup_batch(self.tree, self.keys, self.verdicts, self.dead);
    }
}

/// Looks up keys in some categories.
pub(super) struct LookupCategories<'a, const W: usize> {
    pub(super) tree: &'a Tree<W>,
    pub(super) keys: &'a [[u32; W]],
    pub(super) categories: usize,
    pub(super) verdicts: &'a mut [MatchId],
}

impl<I: TreeOps, const W: usize> Kernel<I> for LookupCategories<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: I) {
        lookup_categories(isa, self.tree, self.keys, self.categories, self.verdicts);
    }
}

/// An entry of the table.
#[inline(always)]
fn entry<const W: usize>(tree: &Tree<W>, at: u32) -> u32 {
    tree.table[at as usize]
}

#[inline(always)]
pub(super) fn block<const W: usize>(tree: &Tree<W>, at: u32) -> &Block {
    &tree.blocks[at as usize]
}

/// One bit for each rule of a block that is a candidate.
#[inline(always)]
fn candidates<I: TreeOps, const W: usize>(
    isa: I,
    tree: &Tree<W>,
    at: u32,
    signature: u32,
    key: &[u32; W],
) -> u32 {
    let candidates = isa.candidates(block(tree, at), signature);
    tree.range_filters.iter().fold(candidates, |candidates, test| {
        candidates & isa.passing(&test.ends[at as usize], test.ranges, key[test.word])
    })
}

#[inline(always)]
pub(super) fn index<I: TreeOps, const W: usize>(isa: I, node: &Node<W>, key: &[u32; W]) -> u32 {
    node.first + isa.cut(node, key)
}

/// An entry of a part's root.
#[inline(always)]
fn root_index<I: TreeOps, const W: usize>(isa: I, tree: &Tree<W>, part: usize, key: &[u32; W]) -> u32 {
    let root = &tree.nodes[part];
    match &tree.grid {
        Some(grid) if part == 0 => root.first + grid.index(key),
        _ => index(isa, root, key),
    }
}

/// Which block to scan in one part, and what for.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) block: u32,
    pub(super) signature: u32,
}

/// A node that an entry leads to.
#[inline(always)]
pub(super) fn node<const W: usize>(tree: &Tree<W>, entry: u32) -> &Node<W> {
    &tree.nodes[(entry & !NODE) as usize]
}

/// Where a key ends below a node, from one of its entries on.
#[inline(always)]
fn place<'a, I: TreeOps, const W: usize>(
    isa: I,
    tree: &'a Tree<W>,
    mut below: &'a Node<W>,
    mut at: u32,
    key: &[u32; W],
) -> Place {
    loop {
        let block = entry(tree, at);
        if block & NODE == 0 {
            return Place { block, signature: isa.sign(below, key) };
        }
        below = node(tree, block);
        at = index(isa, below, key);
    }
}

/// Descends from an entry that leads to a node, whose index is known.
#[inline(always)]
pub(super) fn place_below<I: TreeOps, const W: usize>(
    isa: I,
    tree: &Tree<W>,
    to: u32,
    at: u32,
    key: &[u32; W],
) -> Place {
    place(isa, tree, node(tree, to), at, key)
}

/// Follows the entries of a group to blocks, all keys that meet a node one level at a time.
#[inline(always)]
fn descend<I: TreeOps, const W: usize, const G: usize>(
    isa: I,
    tree: &Tree<W>,
    keys: &[[u32; W]],
    at: &mut [u32; G],
    signatures: &mut [u32; G],
) {
    let (mut pending, mut count) = ([0u8; G], 0);
    for (i, at) in at.iter_mut().enumerate().take(keys.len()) {
        *at = entry(tree, *at);
        // For a node this is some other block: better than a page that is not there, which takes a walk to find out.
        memory::prefetch(&tree.blocks, (*at & !NODE) as usize);
        // Without a branch: which keys meet nodes cannot be predicted.
        pending[count % G] = i as u8;
        count += usize::from(*at & NODE != 0);
    }
    while count > 0 {
        for &i in &pending[..count] {
            let i = usize::from(i) % G;
            let node = node(tree, at[i]);
            at[i] = index(isa, node, &keys[i]);
            memory::prefetch(&tree.table, at[i] as usize);
            signatures[i] = isa.sign(node, &keys[i]);
        }
        let met = std::mem::take(&mut count);
        for k in 0..met {
            let i = usize::from(pending[k]) % G;
            at[i] = entry(tree, at[i]);
            memory::prefetch(&tree.blocks, (at[i] & !NODE) as usize);
            pending[count] = i as u8;
            count += usize::from(at[i] & NODE != 0);
        }
    }
}

/// The first candidate of a leaf, or `best` where that is better.
#[inline(always)]
fn first_candidate<I: TreeOps, const W: usize>(
    isa: I,
    tree: &Tree<W>,
    place: Place,
    key: &[u32; W],
    best: u32,
) -> u32 {
    let mut at = place.block;
    loop {
        let here = block(tree, at);
        // The sentinel behind the last rule has the worst rank.
        let candidates = candidates(isa, tree, at, place.signature, key) | 1 << leaf::RULES;
        let best = leaf::rank(here, candidates.trailing_zeros() as usize).min(best);
        // Ranks ascend: those of the next block are worse than all of this one.
        if leaf::goes_on(here).is_none_or(|next| best < next) {
            return best;
        }
        at += 1;
    }
}

/// Returns whether the rule of this rank, which must be a block's, matches and counts in category 0.
#[inline(always)]
fn fulfils<I: TreeOps, const W: usize>(isa: I, tree: &Tree<W>, rank: u32, key: &[u32; W]) -> bool {
    let record = tree.records.record(rank);
    isa.matches(&tree.records.kinds, record, key) && tree.records.categories(rank) & 1 == 1
}

/// The best rank of a living rule for key `i` of a group in category 0, in any part.
#[inline(always)]
pub(super) fn best<I: TreeOps, const W: usize, const G: usize>(
    isa: I,
    tree: &Tree<W>,
    at: &[[u32; G]],
    signatures: &[[u32; G]],
    i: usize,
    key: &[u32; W],
    dead: Option<Tombstones<'_>>,
) -> u32 {
    let (mut best, mut removed) = (NONE, NONE);
    for (at, signatures) in at.iter().zip(signatures) {
        visit(isa, tree, Place { block: at[i], signature: signatures[i] }, key, |rank| {
            if rank < best && fulfils(isa, tree, rank, key) {
                let to = if tree.is_tombstone(rank, dead) { &mut removed } else { &mut best };
                *to = rank.min(*to);
            }
            rank < best
        });
    }
    tree.behind(removed, best, key, 0, dead).unwrap_or(best)
}

/// Shows the candidates of a leaf to `more`, best first, until it returns false.
#[inline(always)]
fn visit<I: TreeOps, const W: usize>(
    isa: I,
    tree: &Tree<W>,
    place: Place,
    key: &[u32; W],
    mut more: impl FnMut(u32) -> bool,
) {
    let mut at = place.block;
    loop {
        let block = block(tree, at);
        let mut candidates = candidates(isa, tree, at, place.signature, key);
        while candidates != 0 {
            if !more(leaf::rank(block, candidates.trailing_zeros() as usize)) {
                return;
            }
            candidates &= candidates - 1;
        }
        if leaf::goes_on(block).is_none() {
            return;
        }
        at += 1;
    }
}

/// Looks up keys in category 0, a few of them one by one.
#[inline(always)]
pub(super) fn lookup_batch<I: TreeOps, const W: usize>(
    isa: I,
    tree: &Tree<W>,
    keys: &[[u32; W]],
    verdicts: &mut [MatchId],
    dead: Option<Tombstones<'_>>,
) {
    // Clearing the room for a group takes longer than looking up a key. One or two are looked up singly.
    match keys.len() {
        ..=2 => lookup_groups::<I, W, 1>(isa, tree, keys, verdicts, dead),
        3..=FEW => lookup_groups::<I, W, FEW>(isa, tree, keys, verdicts, dead),
        _ => lookup_groups::<I, W, GROUP>(isa, tree, keys, verdicts, dead),
    }
}

/// Looks up keys in groups of `G`.
#[inline(always)]
fn lookup_groups<I: TreeOps, const W: usize, const G: usize>(
    isa: I,
    tree: &Tree<W>,
    keys: &[[u32; W]],
    verdicts: &mut [MatchId],
    dead: Option<Tombstones<'_>>,
) {
    // What the steps leave to the next, part by part: entries of the table, then blocks; and what to scan these for.
    let last = tree.records.len() as u32;
    let mut at = [[0; G]; PARTS_MAX];
    let mut signatures = [[0; G]; PARTS_MAX];
    for (keys, verdicts) in keys.chunks(G).zip(verdicts.chunks_mut(G)) {
        for (part, (at, signatures)) in at[..tree.parts].iter_mut().zip(&mut signatures).enumerate() {
            let node = &tree.nodes[part];
            for ((key, at), signature) in keys.iter().zip(at).zip(signatures) {
                *at = root_index(isa, tree, part, key);
                memory::prefetch(&tree.table, *at as usize);
                *signature = isa.sign(node, key);
            }
        }
        for (at, signatures) in at[..tree.parts].iter_mut().zip(&mut signatures) {
            descend(isa, tree, keys, at, signatures);
        }
        // The best of the first candidates of all parts.
        let mut first = [NONE; G];
        for (at, signatures) in at[..tree.parts].iter().zip(&signatures) {
            for (((&block, &signature), best), key) in at.iter().zip(signatures).zip(&mut first).zip(keys) {
                *best = first_candidate(isa, tree, Place { block, signature }, key, *best);
            }
        }
        for rank in &first[..keys.len()] {
            memory::prefetch_at(tree.records.address((*rank).min(last)).cast());
        }
        for (i, ((key, verdict), &candidate)) in keys.iter().zip(verdicts).zip(&first).enumerate() {
            *verdict = MatchId::NONE;
            if candidate == NONE {
                continue;
            }
            let sure = fulfils(isa, tree, candidate, key) && !tree.is_tombstone(candidate, dead);
            let rank = match sure {
                true => candidate,
                false => best(isa, tree, &at[..tree.parts], &signatures, i, key, dead),
            };
            if rank != NONE {
                *verdict = tree.records.verdict(rank);
            }
        }
    }
}

#[inline(always)]
fn lookup_categories<I: TreeOps, const W: usize>(
    isa: I,
    tree: &Tree<W>,
    keys: &[[u32; W]],
    categories: usize,
    verdicts: &mut [MatchId],
) {
    let asked = ((1u32 << categories) - 1) & 0xffff;
    for (key, verdicts) in keys.iter().zip(verdicts.chunks_exact_mut(categories)) {
        let mut best = [NONE; CATEGORIES_MAX];
        for part in 0..tree.parts {
            let place = place(isa, tree, &tree.nodes[part], root_index(isa, tree, part, key), key);
            // Categories that a rule of this leaf may still win.
            let mut open = asked;
            visit(isa, tree, place, key, |rank| {
                let record = tree.records.record(rank);
                let mut wins = tree.records.categories(rank) & open;
                if wins != 0 && isa.matches(&tree.records.kinds, record, key) {
                    open &= !wins;
                    while wins != 0 {
                        let category = wins.trailing_zeros() as usize;
                        best[category] = best[category].min(rank);
                        wins &= wins - 1;
                    }
                }
                open != 0
            });
        }
        for (verdict, rank) in verdicts.iter_mut().zip(best) {
            *verdict = tree.verdict((rank != NONE).then_some(rank));
        }
    }
}
