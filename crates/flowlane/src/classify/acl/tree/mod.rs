#![doc = include_str!("README.md")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_tail;
mod bits;
mod build;
mod change;
mod explain;
mod field;
mod grid;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lanes;
mod leaf;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod quad;
mod range_filter;
mod record;
mod scalar;
#[cfg(test)]
mod tests;

use super::engine::{BuildError, BulkEngine, Engine, Explanation, MatchId, Tombstones};
use super::entry::{CATEGORIES_MAX, Entry};
use super::layout::WordKind;
use crate::dispatch::{AdaptiveDispatch, KernelSlot};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::isa::simd::InstructionSet;
use crate::isa::{Backend, Variant};
use crate::memory::Memory;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use lanes::{LookupBatch, LookupCategories};
use leaf::Block;
use range_filter::RangeFilter;
use record::Records;

/// Most parts of a tree. Every lookup searches all parts.
const PARTS_MAX: usize = 6;

/// A table of more bytes is asked for ahead.
const COLD_BYTES: usize = 512 << 10;

/// The limits and settings of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeConfig {
    /// The most bytes of the table. (The build needs more memory, in proportion to this and to the rules.)
    pub memory_max: usize,
    /// Threads that build the tree, the caller's included.
    pub threads: usize,
    /// Whether a grid may be the root. A tree with one takes no changes.
    pub grid: bool,
    /// The variant of the kernel; `None`, or one that this CPU lacks: the default for this CPU, or the one that the
    /// first batches find to be fastest ([`dispatch`](crate::dispatch)).
    pub variant: Option<Variant>,
}

impl Default for TreeConfig {
    /// Returns 1 GiB and one thread.
    fn default() -> Self {
        Self { memory_max: 1 << 30, threads: 1, grid: true, variant: None }
    }
}

/// Selects the kernel of trees on this machine.
pub(super) fn chosen() -> AdaptiveDispatch<Backend> {
    AdaptiveDispatch::of(KernelSlot::AclTree, |text| Backend::of(text.parse().ok()?))
}

/// A node: the bits of a key that make the index, and those of the signature that leaves are scanned for.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Node<const W: usize> {
    /// Numbers of bits of the index and of the signature: at most 32 each.
    cut: [u32; W],
    sign: [u32; W],
    /// The offset of its entries in the table.
    first: u32,
    #[cfg(target_arch = "aarch64")]
    moves: Box<neon::Moves>,
}

impl<const W: usize> Node<W> {
    /// A node whose entries begin with the table's.
    fn new(cut: [u32; W], sign: [u32; W]) -> Self {
        Self {
            cut,
            sign,
            first: 0,
            #[cfg(target_arch = "aarch64")]
            moves: neon::Moves::of(&cut, &sign),
        }
    }

    /// Returns its bytes, those outside of it included.
    fn size_bytes(&self) -> usize {
        #[cfg(target_arch = "aarch64")]
        return size_of::<Self>() + self.moves.size_bytes();
        #[cfg(not(target_arch = "aarch64"))]
        size_of::<Self>()
    }
}

/// A decision tree whose leaves are a few cache blocks each.
#[derive(Clone, Debug)]
pub struct Tree<const W: usize> {
    /// The roots of the parts, best rank first, then all other nodes.
    nodes: Vec<Node<W>>,
    parts: usize,
    #[cfg(target_arch = "x86_64")]
    vectors: avx512::Vectors,
    /// Whether the table is so large that most of it lies outside of the second-level cache.
    cold: bool,
    /// For each index of each node: a leaf's first block, or another node ([`leaf::NODE`]).
    table: Memory<u32>,
    blocks: Memory<Block>,
    /// Further tests of candidates.
    range_filters: Vec<RangeFilter>,
    records: Records<W>,
    /// How keys find the entries of the first part, where it is not by bits. Its lists of rules are not whole then.
    grid: Option<Box<grid::Grid>>,
    /// Where rules have changed, or may.
    changes: Option<Box<change::Changes>>,
    backend: AdaptiveDispatch<Backend>,
}

impl<const W: usize> Tree<W> {
    /// Builds a tree of these entries, whose ranks must differ.
    ///
    /// # Errors
    /// Where the budget is too small, or two entries have the same rule number.
    #[inline(never)]
    pub fn build(
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
        config: &TreeConfig,
    ) -> Result<Self, BuildError> {
        build::tree(kinds, entries, config)
    }

    fn lookup(&self, keys: &[[u32; W]], verdicts: &mut [MatchId], dead: Option<Tombstones<'_>>) {
        self.backend.run_batch(
            || keys.len(),
            |backend| match backend {
                Backend::Scalar => scalar::lookup_batch(self, keys, verdicts, dead),
                #[cfg(target_arch = "x86_64")]
                Backend::Sse42(isa) => isa.run(LookupBatch { tree: self, keys, verdicts, dead }),
                #[cfg(target_arch = "x86_64")]
                Backend::Avx2(isa) => isa.run(LookupBatch { tree: self, keys, verdicts, dead }),
                #[cfg(target_arch = "x86_64")]
                Backend::Avx512(isa) => isa.run(LookupBatch { tree: self, keys, verdicts, dead }),
                #[cfg(target_arch = "aarch64")]
                Backend::Neon(isa) => isa.run(LookupBatch { tree: self, keys, verdicts, dead }),
            },
        );
    }

    /// Returns the number of parts that a lookup searches.
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Returns the number of cache blocks of leaves.
    pub fn leaf_blocks(&self) -> usize {
        self.blocks.len()
    }
}

impl<const W: usize> Engine<W> for Tree<W> {
    fn name(&self) -> &'static str {
        "tree"
    }

    fn variant(&self) -> Variant {
        self.backend.get().variant()
    }

    fn len(&self) -> usize {
        self.changes.as_ref().map_or(self.records.len(), |changes| changes.len())
    }

    #[inline(never)]
    fn table_bytes(&self) -> usize {
        self.table.size_bytes()
            + self.blocks.size_bytes()
            + self.range_filters.iter().map(|filter| filter.ends.size_bytes()).sum::<usize>()
            + self.records.size_bytes()
            + self.nodes.iter().map(Node::size_bytes).sum::<usize>()
            + self.grid.as_ref().map_or(0, |grid| grid.size_bytes())
            + self.changes.as_ref().map_or(0, |changes| changes.size_bytes())
    }

    #[inline(never)]
    fn lookup_batch(&self, keys: &[[u32; W]], verdicts: &mut [MatchId]) {
        assert_eq!(keys.len(), verdicts.len(), "a verdict for each key");
        self.lookup(keys, verdicts, None);
    }

    #[inline(never)]
    fn lookup_categories(&self, keys: &[[u32; W]], categories: usize, verdicts: &mut [MatchId]) {
        assert!((1..=CATEGORIES_MAX).contains(&categories), "{categories} categories; there are 1 to 16");
        assert_eq!(keys.len() * categories, verdicts.len(), "a verdict for each key and category");
        match self.backend.get() {
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(isa) => isa.run(LookupCategories { tree: self, keys, categories, verdicts }),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(isa) => {
                crate::isa::Avx2::from(isa).run(LookupCategories { tree: self, keys, categories, verdicts });
            }
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(isa) => isa.run(LookupCategories { tree: self, keys, categories, verdicts }),
            // Several categories are rare: there is no kernel for them in SSE4.2.
            _ => scalar::lookup_categories(self, keys, categories, verdicts),
        }
    }

    #[inline(never)]
    fn explain(&self, key: &[u32; W]) -> Explanation<W> {
        explain::explain(self, key, |_| true)
    }
}

impl<const W: usize> BulkEngine<W> for Tree<W> {
    fn as_tree(&self) -> Option<&Self> {
        Some(self)
    }

    fn as_tree_mut(&mut self) -> Option<&mut Self> {
        Some(self)
    }

    #[inline(never)]
    fn lookup_live(
        &self,
        keys: &[[u32; W]],
        categories: usize,
        verdicts: &mut [MatchId],
        dead: Tombstones<'_>,
    ) {
        assert!(self.records.are_within(dead.0), "a bit for each handle");
        if categories == 1 {
            assert_eq!(keys.len(), verdicts.len(), "a verdict for each key");
            return self.lookup(keys, verdicts, Some(dead));
        }
        self.lookup_categories(keys, categories, verdicts);
        for (i, verdict) in verdicts.iter_mut().enumerate() {
            if verdict.rule().is_some_and(|rule| dead.has(rule)) {
                let best = self.best_live(&keys[i / categories], i % categories, Some(dead));
                *verdict = self.verdict(best);
            }
        }
    }

    #[inline(never)]
    fn explain_live(&self, key: &[u32; W], dead: Tombstones<'_>) -> Explanation<W> {
        explain::explain(self, key, |rank| !self.is_tombstone(rank, Some(dead)))
    }
}
