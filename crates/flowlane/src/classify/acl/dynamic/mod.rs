#![doc = include_str!("README.md")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod batch;
mod chain;
mod changes;
mod classes;
mod explain;
mod ids;
#[cfg(target_arch = "aarch64")]
mod neon;
mod plan;
mod rules;
mod scalar;
mod table;
#[cfg(test)]
mod tests;
mod winners;

use std::cmp::Reverse;
use std::fmt;

use self::chain::Directory;
use self::classes::Classes;
use self::ids::Ids;
use self::plan::Planned;
use self::rules::Rules;
use self::table::{Table, finest_mask};
use super::{BuildError, Engine, Entry, Explanation, MatchId, RankKey, WordKind, order};
use crate::dispatch::{AdaptiveDispatch, KernelSlot};
use crate::isa::{Backend, Variant};
use crate::memory::{CachePadded, Memory, Zeroed};
use crate::rule::RuleId;

pub use self::changes::{Change, ChangeError};
pub use self::plan::Costs;
pub(super) use self::winners::Cutoff;

/// Most hash tables of a plan.
pub const TABLES_MAX: usize = 32;

/// Most rules that the engine can number.
const RULES_MAX: usize = (1 << (32 - table::CLASS_BITS)) - 1;

/// The limits and settings of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct DynamicConfig {
    /// Most rules.
    pub rules_max: usize,
    /// Most bytes.
    pub memory_max: usize,
    /// The hash seed, which decides where keys collide: keep it secret from senders of packets and authors of rules.
    pub seed: u64,
    /// The variant of the kernel; `None`: the default for this CPU, or the one that the first batches find to be fastest
    /// ([`dispatch`](crate::dispatch)).
    pub variant: Option<Variant>,
    /// The costs that the plan minimises.
    pub costs: Costs,
    /// Rules of the sample that a plan is made from; `None`: 1,024, and one in 64 of all rules, up to 3,072.
    /// With three times as many a plan takes five times as long.
    pub sample: Option<usize>,
}

impl DynamicConfig {
    /// Returns the engine's own limit (33 million rules), the fastest kernel, and measured costs.
    pub fn new(seed: u64) -> Self {
        Self {
            rules_max: RULES_MAX,
            memory_max: usize::MAX,
            seed,
            variant: None,
            costs: Costs::default(),
            sample: None,
        }
    }
}

/// Rules in a few hash tables, which take changes in place.
#[derive(Clone)]
pub struct Dynamic<const W: usize> {
    kinds: [WordKind; W],
    config: DynamicConfig,
    backend: AdaptiveDispatch<Backend>,
    classes: Classes,
    /// The tables: a rule belongs to the first that suits it; the last suits all.
    tables: Vec<Table<W>>,
    /// Their masks side by side; the last is 0, so that one suits.
    masks: Vec<[u32; W]>,
    /// The tables that are not empty, in the order of the search: those with most winners first.
    order: Vec<u8>,
    rules: Rules<W>,
    directory: CachePadded<Directory>,
    ids: CachePadded<Ids>,
}

impl<const W: usize> fmt::Debug for Dynamic<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.tables.iter().map(|t| (t.mask.map(|m| format!("{m:08x}")), t.len()));
        f.debug_struct("Dynamic")
            .field("variant", &self.backend.get().variant())
            .field("tables", &tables.collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// Copies `memory` into new memory of `len`, or as much of it as fits.
fn resized<T: Zeroed + Copy>(memory: &Memory<T>, len: usize) -> Memory<T> {
    let mut new = Memory::zeroed(len);
    let kept = len.min(memory.len());
    new[..kept].copy_from_slice(&memory[..kept]);
    new
}

fn copied<T: Zeroed + Copy>(memory: &Memory<T>) -> Memory<T> {
    resized(memory, memory.len())
}

/// Returns the bits in which all values of a word agree.
#[inline]
fn mask_of(kind: WordKind, low: u32, high: u32) -> u32 {
    // Below the highest bit in which two ends differ, bits take all values, or nearly.
    let agreed = |low: u32, high: u32| match low ^ high {
        0 => u32::MAX,
        different => !(u32::MAX >> different.leading_zeros()),
    };
    match kind {
        WordKind::Ternary => high,
        WordKind::Range32 => agreed(low, high),
        WordKind::Range16 => {
            agreed(low & 0xffff_0000, high & 0xffff_0000) & 0xffff_0000
                | agreed(low & 0xffff, high & 0xffff) & 0xffff
        }
    }
}

impl<const W: usize> Dynamic<W> {
    /// Builds a table of these entries, with a plan made for them.
    ///
    /// # Errors
    /// Where a limit does not allow them, or two have the same rule number.
    #[inline(never)]
    pub fn build(
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
        config: DynamicConfig,
    ) -> Result<Self, BuildError> {
        let rules_max = config.rules_max.min(RULES_MAX);
        if entries.len() > rules_max {
            return Err(BuildError::Rules { rules_max });
        }
        let tables = plan::tables(kinds, entries, &config, 1.0);
        Self::with_tables(kinds, entries, config, tables, None)
    }

    /// Builds a table without rules, with a plan for a part of these and for packets that any of them match.
    pub(super) fn for_a_part_of(
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
        config: DynamicConfig,
        share: f64,
    ) -> Result<Self, BuildError> {
        let tables = plan::tables(kinds, entries, &config, share);
        let mut ranks: Vec<u64> = entries.iter().map(|e| e.rank.0).collect();
        ranks.sort_unstable();
        Self::with_tables(kinds, &[], config, tables, Some(Classes::of_ranks(&ranks)))
    }

    /// Builds a table of these entries by the plan of this one, within a limit of bytes.
    ///
    /// # Errors
    /// Where a limit does not allow them, or two have the same rule number.
    pub(super) fn by_the_same_plan(
        &self,
        entries: &[Entry<W>],
        memory_max: usize,
    ) -> Result<Self, BuildError> {
        let tables = self.tables.iter().map(|t| Planned { mask: t.mask, wins: t.wins }).collect();
        let config = DynamicConfig { memory_max, ..self.config.clone() };
        Self::with_tables(&self.kinds, entries, config, tables, Some(self.classes.clone()))
    }

    /// Removes the limit of bytes: the caller enforces one.
    pub(super) fn without_memory_limit(mut self) -> Self {
        self.config.memory_max = usize::MAX;
        self
    }

    /// Builds a table of the same rules with a plan made for them. Without it answers stay right, but lookups take longer
    /// where the rules differ from those of the plan.
    ///
    /// # Errors
    /// Where the new plan needs more memory than is allowed.
    #[inline(never)]
    pub fn replan(&self) -> Result<Self, BuildError> {
        Self::build(&self.kinds, &self.entries().collect::<Vec<_>>(), self.config.clone())
    }

    /// Returns the entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = Entry<W>> {
        self.rules.numbers().map(|n| self.rules.records[n as usize].entry())
    }

    /// Returns the entry of a rule number.
    pub fn entry(&self, rule: RuleId) -> Option<Entry<W>> {
        self.ids.find(rule.0).map(|n| self.rules.records[n as usize].entry())
    }

    /// Returns the masks of the hash tables, finest first, and the number of rules of each.
    pub fn plan(&self) -> impl Iterator<Item = ([u32; W], usize)> {
        self.tables.iter().map(|t| (t.mask, t.len()))
    }

    /// Builds these tables; the last must suit all rules. Takes classes where the entries' own do not suffice.
    fn with_tables(
        kinds: &[WordKind; W],
        entries: &[Entry<W>],
        config: DynamicConfig,
        tables: Vec<Planned<W>>,
        classes: Option<Classes>,
    ) -> Result<Self, BuildError> {
        let order = order::ascending(entries.iter().map(|e| e.rank.0));
        let by_rank: Vec<&Entry<W>> = order.into_iter().map(|i| &entries[i as usize]).collect();
        let own_classes = || Classes::of_ranks(&by_rank.iter().map(|e| e.rank.0).collect::<Vec<u64>>());
        let room = entries.len() + entries.len() / 16;
        let handles = entries.iter().map(|e| e.rule.0);
        let chosen = || AdaptiveDispatch::of(KernelSlot::AclDynamic, |text| Backend::of(text.parse().ok()?));
        let backend =
            config.variant.map_or_else(chosen, |v| AdaptiveDispatch::named(Backend::first_of(&[v])));
        let table = |(i, planned)| Table::with_room(planned, i as u8, config.seed, 0);
        let mut made = Self {
            kinds: *kinds,
            masks: tables.iter().map(|t| t.mask).collect(),
            backend,
            classes: classes.unwrap_or_else(own_classes),
            tables: tables.into_iter().enumerate().map(table).collect(),
            order: Vec::new(),
            rules: Rules::with_room(0),
            directory: CachePadded(Directory::new()),
            ids: CachePadded(Ids::with_room([].into_iter(), config.seed)),
            config,
        };
        let needed = room * size_of::<rules::Record<W>>() + Ids::bytes_for(handles.clone());
        made.check(entries.len(), made.bytes() + needed)?;
        made.rules = Rules::with_room(room);
        made.ids = CachePadded(Ids::with_room(handles, made.config.seed));
        for entry in by_rank.into_iter().rev() {
            if made.ids.find(entry.rule.0).is_some() {
                return Err(BuildError::Duplicate(entry.rule));
            }
            let mask = finest_mask(kinds, &entry.condition.low, &entry.condition.high);
            let table = made.table_for(&mask);
            let number = made.rules.add(entry, table, made.classes.of(entry.rank.0));
            made.ids.insert(entry.rule.0, number);
        }
        let numbers: Vec<u32> = made.rules.numbers().collect();
        for t in 0..made.tables.len() {
            let own =
                numbers.iter().copied().filter(|n| usize::from(made.rules.records[*n as usize].table) == t);
            let own: Vec<u32> = own.collect();
            made.refill(t, &own)?;
        }
        made.sort();
        Ok(made)
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Where its rule number is in use, or a limit does not allow it: the table is as before.
    #[inline(never)]
    pub fn insert(&mut self, entry: Entry<W>) -> Result<(), BuildError> {
        let table = self.table_for(&finest_mask(&self.kinds, &entry.condition.low, &entry.condition.high));
        self.tables[usize::from(table)].prefetch(&entry.condition.low);
        if self.ids.find(entry.rule.0).is_some() {
            return Err(BuildError::Duplicate(entry.rule));
        }
        let rules_max = self.config.rules_max.min(RULES_MAX);
        if self.rules.len() >= rules_max {
            return Err(BuildError::Rules { rules_max });
        }
        let t = usize::from(table);
        let room = self.rules.wanted_room(1);
        let growth = self.rules.room_bytes(room) + self.ids.growth_bytes(entry.rule.0);
        if growth > 0 {
            self.check(self.rules.len() + 1, self.bytes() + growth)?;
            self.rules.make_room(room);
        }
        if self.tables[t].is_full() {
            self.grow(t)?;
        }
        let number = self.rules.add(&entry, table, self.classes.of(entry.rank.0));
        self.ids.insert(entry.rule.0, number);
        self.tables[t].add(&mut self.rules, &mut self.directory, number);
        if self.tables[t].len() == 1 {
            self.sort();
        }
        Ok(())
    }

    /// Removes and returns an entry.
    #[inline(never)]
    pub fn remove(&mut self, rule: RuleId) -> Option<Entry<W>> {
        let number = self.ids.remove(rule.0)?;
        let record = self.rules.records[number as usize];
        let t = usize::from(record.table);
        self.tables[t].prefetch(&record.low);
        self.tables[t].remove(&mut self.rules, &mut self.directory, number);
        self.rules.drop(number);
        if self.tables[t].len() == 0 {
            self.sort();
        }
        if self.rules.len() * 4 < self.rules.room() && self.rules.room() > SHRUNK_MIN {
            self.shrink();
        }
        Some(record.entry())
    }

    /// Returns the rank and class that beat an entry of this rank.
    pub(super) fn cutoff(&self, rank: RankKey) -> Cutoff {
        Cutoff { rank: rank.0, class: self.classes.of(rank.0) }
    }

    /// Replaces each result by this table's best entry of category 0 where that reaches the cutoff.
    ///
    /// # Panics
    /// Where the slices differ in length.
    #[inline(never)]
    pub(super) fn improve_batch(&self, keys: &[[u32; W]], cutoffs: &[Cutoff], verdicts: &mut [MatchId]) {
        assert_eq!((keys.len(), keys.len()), (cutoffs.len(), verdicts.len()), "one of each for each key");
        let timed = || if self.is_empty() { 0 } else { keys.len() };
        self.backend.run_batch(timed, |backend| batch::improve(backend, self, keys, cutoffs, verdicts));
    }

    /// Returns the table that a rule belongs to.
    #[inline]
    fn table_for(&self, mask: &[u32; W]) -> u8 {
        // Compares with all masks, since the first that suits is unpredictable.
        let takes =
            |own: &[u32; W]| own.iter().zip(mask).fold(0, |more, (own, given)| more | own & !given) == 0;
        let suit =
            self.masks.iter().enumerate().fold(0u32, |bits, (t, own)| bits | u32::from(takes(own)) << t);
        suit.trailing_zeros() as u8
    }

    /// Sorts the tables for the search.
    fn sort(&mut self) {
        let order = order::descending(self.tables.iter().map(|t| t.wins.into()));
        let filled = order.into_iter().filter(|t| self.tables[*t as usize].len() > 0);
        self.order = filled.map(|t| t as u8).collect();
    }

    /// Checks that this number of bytes is within the limit.
    fn check(&self, rules: usize, needed_bytes: usize) -> Result<(), BuildError> {
        let memory_max = self.config.memory_max;
        if needed_bytes <= memory_max {
            return Ok(());
        }
        Err(BuildError::Memory { engine: NAME, rules, needed_bytes, memory_max })
    }

    /// Returns the bytes of all allocations.
    fn bytes(&self) -> usize {
        let tables: usize = self.tables.iter().map(Table::bytes).sum();
        size_of::<Self>()
            + tables
            + self.tables.capacity() * (size_of::<Table<W>>() + size_of::<[u32; W]>())
            + self.rules.bytes()
            + self.ids.bytes()
            + self.directory.len() * DIRECTORY_BYTES
    }

    /// Grows the buckets of a table.
    fn grow(&mut self, t: usize) -> Result<(), BuildError> {
        let of_table = |n: &u32| usize::from(self.rules.records[*n as usize].table) == t;
        let own: Vec<u32> = self.rules.numbers().filter(of_table).collect();
        let order = order::descending(own.iter().map(|n| self.rules.records[*n as usize].rank));
        self.refill(t, &order.into_iter().map(|i| own[i as usize]).collect::<Vec<_>>())
    }

    /// Rebuilds a table for these records, by descending rank; without memory for it, it stays as it was.
    fn refill(&mut self, t: usize, own: &[u32]) -> Result<(), BuildError> {
        let (mut new, blocks) = self.tables[t].emptied_for(&self.rules, own);
        let room = [0, self.rules.wanted_room(blocks)[1]];
        let growth = new.bytes() + self.rules.room_bytes(room) + blocks * DIRECTORY_BYTES;
        self.check(self.rules.len(), self.bytes() + growth)?;
        self.rules.make_room(room);
        let chains = (t as u64) << 32..(t as u64 + 1) << 32;
        let blocks: Vec<_> = self
            .directory
            .range((chains.start, Reverse((u64::MAX, u32::MAX)))..(chains.end, Reverse((u64::MAX, u32::MAX))))
            .map(|(key, block)| (*key, *block))
            .collect();
        for (key, block) in blocks {
            self.directory.remove(&key);
            self.rules.counts.in_blocks -= self.rules.blocks[block as usize].len as usize;
            self.rules.drop_block(block);
        }
        for number in own {
            // Chains of several keys that share a tag may need a block more than was counted.
            self.rules.make_room([0, self.rules.wanted_room(1)[1]]);
            new.add(&mut self.rules, &mut self.directory, *number);
        }
        self.tables[t] = new;
        Ok(())
    }

    /// Moves everything into as little memory as it needs now.
    fn shrink(&mut self) {
        let tables = self.tables.iter().map(|t| Planned { mask: t.mask, wins: t.wins }).collect();
        let entries: Vec<_> = self.entries().collect();
        // The compact table is smaller; should it not fit, all stays as it is.
        // Classes stay, since callers may hold cutoffs.
        let classes = Some(self.classes.clone());
        if let Ok(made) = Self::with_tables(&self.kinds, &entries, self.config.clone(), tables, classes) {
            let backend = self.backend.clone();
            *self = Self { backend, ..made };
        }
    }
}

/// Bytes for a block in the directory: a node of a B-tree is at least half full, 16 bytes of key and 4 of value each.
const DIRECTORY_BYTES: usize = 64;

/// Least elements of an allocation that shrinks.
const SHRUNK_MIN: usize = 1024;

const NAME: &str = "dynamic";

impl<const W: usize> Engine<W> for Dynamic<W> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn variant(&self) -> Variant {
        self.backend.get().variant()
    }

    fn len(&self) -> usize {
        self.rules.len()
    }

    #[inline(never)]
    fn table_bytes(&self) -> usize {
        self.bytes()
    }

    #[inline(never)]
    fn lookup_batch(&self, keys: &[[u32; W]], verdicts: &mut [MatchId]) {
        assert_eq!(keys.len(), verdicts.len());
        let timed = || if self.is_empty() { 0 } else { keys.len() };
        self.backend.run_batch(timed, |backend| batch::lookup(backend, self, keys, verdicts));
    }

    #[inline(never)]
    fn lookup_categories(&self, keys: &[[u32; W]], categories: usize, verdicts: &mut [MatchId]) {
        assert!((1..=super::CATEGORIES_MAX).contains(&categories), "{categories} categories");
        assert_eq!(keys.len() * categories, verdicts.len());
        batch::lookup_categories(self, keys, categories, verdicts);
    }

    #[inline(never)]
    fn explain(&self, key: &[u32; W]) -> Explanation<W> {
        explain::explain(self, key)
    }
}
