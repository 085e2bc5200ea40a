#![doc = include_str!("README.md")]

mod kernel;
mod scalar;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lanes;

#[cfg(test)]
mod tests;

pub use kernel::{BruteKernel, BruteKernelError, Shape};

use super::engine::{BulkEngine, Tombstones};
use super::{
    BuildError, CATEGORIES_MAX, Condition, Engine, Entry, Explanation, MatchId, WordKind, order, wildcards,
};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::isa::simd::InstructionSet;
use crate::isa::{Backend, Variant};
use crate::rule::RuleId;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use lanes::Lookup;

/// Rules of a block: the lanes of the widest register.
const BLOCK: usize = 16;

/// Low ends and high ends (values and masks) of a block's rules in one word.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Column {
    low: [u32; BLOCK],
    high: [u32; BLOCK],
}

/// Brute force over entries, best first.
#[derive(Clone, Debug)]
pub struct Brute<const W: usize> {
    kinds: [WordKind; W],
    /// Best first.
    entries: Vec<Entry<W>>,
    /// The words that any entry looks at.
    tests: Vec<Test>,
    /// Block after block, a column for each of `tests`.
    columns: Vec<Column>,
    /// Of each block and category the rules that count, one bit each.
    counting: Vec<[u16; CATEGORIES_MAX]>,
    /// The indices in `entries` of those that count in category 0, and their results.
    plain: Vec<(u32, MatchId)>,
    backend: Backend,
    kernel: BruteKernel,
}

/// A word that is compared.
#[derive(Clone, Copy, Debug)]
struct Test {
    word: usize,
    kind: WordKind,
}

impl<const W: usize> Brute<W> {
    /// Builds a table of these entries, given in any order.
    #[inline(never)]
    pub fn new(kinds: &[WordKind; W], entries: &[Entry<W>]) -> Self {
        let kernel = BruteKernel::fastest();
        let backend = Backend::of(kernel.variant).expect("the default is an available variant");
        let order = order::descending(entries.iter().map(|e| e.rank.0));
        let entries: Vec<Entry<W>> = order.into_iter().map(|i| entries[i as usize]).collect();
        let any = Condition::any(kinds);
        let looks = |w: &usize| {
            entries.iter().any(|e| (e.condition.low[*w], e.condition.high[*w]) != (any.low[*w], any.high[*w]))
        };
        let tests: Vec<Test> = (0..W).filter(looks).map(|word| Test { word, kind: kinds[word] }).collect();
        let mut columns = Vec::with_capacity(entries.len().div_ceil(BLOCK) * tests.len());
        let mut counting = Vec::with_capacity(entries.len().div_ceil(BLOCK));
        for block in entries.chunks(BLOCK) {
            for test in &tests {
                let mut column = Column { low: [0; BLOCK], high: [0; BLOCK] };
                for (lane, entry) in block.iter().enumerate() {
                    column.low[lane] = entry.condition.low[test.word];
                    column.high[lane] = entry.condition.high[test.word];
                }
                columns.push(column);
            }
            // Lanes behind the last rule may match; they count in no category.
            counting.push(std::array::from_fn(|category| {
                let bit = |(lane, e): (usize, &Entry<W>)| (e.categories >> category & 1) << lane;
                block.iter().enumerate().map(bit).fold(0, |bits, bit| bits | bit)
            }));
        }
        let plain = entries.iter().enumerate().filter(|(_, e)| e.categories & 1 == 1);
        let plain = plain.map(|(place, e)| (place as u32, MatchId::of(e.rule))).collect();
        Self { kinds: *kinds, entries, tests, columns, counting, plain, backend, kernel }
    }

    /// Builds a table of these entries within a budget of bytes.
    ///
    /// # Errors
    /// Where the table would exceed the budget.
    #[inline(never)]
    pub fn build(kinds: &[WordKind; W], entries: &[Entry<W>], memory_max: usize) -> Result<Self, BuildError> {
        Self::fits(entries.len(), memory_max)?;
        Ok(Self::new(kinds, entries))
    }

    /// Checks that a table of this number of entries fits a budget of bytes.
    ///
    /// # Errors
    /// Where it would exceed the budget.
    pub(super) fn fits(rules: usize, memory_max: usize) -> Result<(), BuildError> {
        let blocks = rules.div_ceil(BLOCK);
        let needed_bytes = rules * (size_of::<Entry<W>>() + 8)
            + blocks * (W * size_of::<Column>() + size_of::<[u16; CATEGORIES_MAX]>());
        match needed_bytes > memory_max {
            true => Err(BuildError::Memory { engine: "brute", rules, needed_bytes, memory_max }),
            false => Ok(()),
        }
    }

    /// Selects a variant; returns `None` where this CPU lacks it.
    pub fn with_variant(self, variant: Variant) -> Option<Self> {
        self.with_kernel(BruteKernel::fastest_of(variant))
    }

    /// Selects a kernel; returns `None` where this CPU lacks it.
    #[inline(never)]
    pub fn with_kernel(self, kernel: BruteKernel) -> Option<Self> {
        Some(Self { backend: Backend::of(kernel.variant)?, kernel, ..self })
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> BruteKernel {
        self.kernel
    }

    /// Explains the answer among the rules that are `live`.
    fn explain_among(&self, key: &[u32; W], live: impl Fn(RuleId) -> bool) -> Explanation<W> {
        let mut looked_at = [0; W];
        let mut plain = self.entries.iter().filter(|e| e.categories & 1 == 1 && live(e.rule));
        let mut rules = 0;
        let winner = plain.by_ref().find(|e| {
            rules += 1;
            wildcards::look_at(&e.condition, &self.kinds, key, &mut looked_at)
        });
        let runner_up = plain.find(|e| e.condition.matches(&self.kinds, key));
        Explanation {
            winner: winner.map(|e| e.rule),
            runner_up: runner_up.map(|e| e.rule),
            nodes: 0,
            rules,
            looked_at,
        }
    }

    fn lookup(&self, keys: &[[u32; W]], categories: usize, verdicts: &mut [MatchId]) {
        match self.backend {
            Backend::Scalar => scalar::lookup(self, keys, categories, verdicts),
            #[cfg(target_arch = "x86_64")]
            Backend::Sse42(isa) => isa.run(Lookup { table: self, keys, categories, verdicts }),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx2(isa) => isa.run(Lookup { table: self, keys, categories, verdicts }),
            #[cfg(target_arch = "x86_64")]
            Backend::Avx512(isa) => isa.run(Lookup { table: self, keys, categories, verdicts }),
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(isa) => isa.run(Lookup { table: self, keys, categories, verdicts }),
        }
    }
}

impl<const W: usize> Engine<W> for Brute<W> {
    fn name(&self) -> &'static str {
        "brute"
    }

    fn variant(&self) -> Variant {
        self.backend.variant()
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline(never)]
    fn table_bytes(&self) -> usize {
        size_of_val(&self.entries[..])
            + size_of_val(&self.tests[..])
            + size_of_val(&self.columns[..])
            + size_of_val(&self.counting[..])
            + size_of_val(&self.plain[..])
    }

    #[inline(never)]
    fn lookup_batch(&self, keys: &[[u32; W]], verdicts: &mut [MatchId]) {
        assert_eq!(keys.len(), verdicts.len(), "one verdict for each key");
        self.lookup(keys, 1, verdicts);
    }

    #[inline(never)]
    fn lookup_categories(&self, keys: &[[u32; W]], categories: usize, verdicts: &mut [MatchId]) {
        assert!((1..=CATEGORIES_MAX).contains(&categories), "1 to {CATEGORIES_MAX} categories");
        assert_eq!(keys.len() * categories, verdicts.len(), "a verdict for each key and category");
        self.lookup(keys, categories, verdicts);
    }

    #[inline(never)]
    fn explain(&self, key: &[u32; W]) -> Explanation<W> {
        self.explain_among(key, |_| true)
    }
}

impl<const W: usize> BulkEngine<W> for Brute<W> {
    #[inline(never)]
    fn lookup_live(
        &self,
        keys: &[[u32; W]],
        categories: usize,
        verdicts: &mut [MatchId],
        dead: Tombstones<'_>,
    ) {
        self.lookup_categories(keys, categories, verdicts);
        for (i, verdict) in verdicts.iter_mut().enumerate() {
            if verdict.rule().is_some_and(|rule| dead.has(rule)) {
                let (key, category) = (&keys[i / categories], i % categories);
                let counts = |e: &&Entry<W>| e.categories >> category & 1 == 1 && !dead.has(e.rule);
                let found =
                    self.entries.iter().filter(counts).find(|e| e.condition.matches(&self.kinds, key));
                *verdict = found.map_or(MatchId::NONE, |e| MatchId::of(e.rule));
            }
        }
    }

    #[inline(never)]
    fn explain_live(&self, key: &[u32; W], dead: Tombstones<'_>) -> Explanation<W> {
        self.explain_among(key, |rule| !dead.has(rule))
    }
}
