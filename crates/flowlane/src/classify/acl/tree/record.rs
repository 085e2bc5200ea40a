//! Records: the conditions of the rules, best first, with which candidates are compared.

use crate::classify::acl::{Condition, Entry, MatchId, WordKind};
use crate::memory::Memory;
use crate::rule::RuleId;

/// Rules by rank. A record: low ends, high ends, so that two of an IPv4 5-tuple are a cache line; data that only winners need
/// lies in columns.
#[derive(Clone, Debug)]
pub(super) struct Records<const W: usize> {
    words: Memory<u32>,
    /// Rule numbers; empty where each equals its rule's rank, as in a list that is sorted from its best rule on.
    pub(super) handles: Option<Memory<u32>>,
    /// Categories, one bit each; empty where all rules are in category 0 only.
    pub(super) categories: Option<Memory<u32>>,
    pub(super) kinds: [WordKind; W],
    /// Whether all rules count in category 0.
    pub(super) all_plain: bool,
    /// The highest rule number.
    handle_max: u32,
}

/// The condition of a rule.
#[derive(Clone, Copy)]
pub(super) struct Record<'a, const W: usize> {
    pub(super) low: &'a [u32; W],
    pub(super) high: &'a [u32; W],
}

/// Words from one record to the next.
pub(super) const fn stride(words: usize) -> usize {
    let needed = 2 * words;
    if needed <= 16 { needed.next_power_of_two() } else { needed.next_multiple_of(16) }
}

impl<const W: usize> Records<W> {
    const STRIDE: usize = stride(W);

    /// Returns the most bytes of this number of records.
    pub(super) fn bytes(len: usize) -> usize {
        len * (Self::STRIDE + 2) * 4
    }

    /// Builds the records of entries in this order.
    pub(super) fn new<'a>(
        kinds: &[WordKind; W],
        entries: impl ExactSizeIterator<Item = &'a Entry<W>>,
    ) -> Self {
        let len = entries.len();
        let mut words = Memory::zeroed(len * Self::STRIDE);
        let (mut handles, mut categories) = (Memory::zeroed(len), Memory::zeroed(len));
        let mut are_ranks = true;
        for (rank, entry) in entries.enumerate() {
            let record = &mut words[rank * Self::STRIDE..][..2 * W];
            record[..W].copy_from_slice(&entry.condition.low);
            record[W..].copy_from_slice(&entry.condition.high);
            handles[rank] = entry.rule.0;
            are_ranks &= entry.rule.0 as usize == rank;
            categories[rank] = entry.categories.into();
        }
        let handle_max = handles.iter().copied().max().unwrap_or(0);
        let all_plain = categories.iter().all(|categories: &u32| categories & 1 == 1);
        let categories = categories.iter().any(|categories| *categories != 1).then_some(categories);
        let handles = (!are_ranks).then_some(handles);
        Self { words, handles, categories, kinds: *kinds, all_plain, handle_max }
    }

    /// Returns the number of ranks: rules, and room between them where rules [change](super::change).
    pub(super) fn len(&self) -> usize {
        self.words.len() / Self::STRIDE
    }

    /// Returns the records at the ranks that `to` gives, of this number. No key fulfils the others.
    pub(super) fn moved(&self, to: &[u32], len: usize) -> Self {
        let mut out = Self {
            words: Memory::zeroed(len * Self::STRIDE),
            handles: Some(Memory::zeroed(len)),
            categories: Some(Memory::zeroed(len)),
            ..*self
        };
        (0..len as u32).for_each(|rank| out.clear(rank));
        for (from, to) in to.iter().enumerate().filter(|(_, to)| (**to as usize) < len) {
            let (start, end) = (from * Self::STRIDE, *to as usize * Self::STRIDE);
            out.words[end..][..Self::STRIDE].copy_from_slice(&self.words[start..][..Self::STRIDE]);
            out.set_column(*to, self.handle(from as u32), self.categories(from as u32));
        }
        out
    }

    /// Sets the rule of a rank.
    pub(super) fn set(&mut self, rank: u32, entry: &Entry<W>) {
        self.set_condition(rank, &entry.condition);
        self.set_column(rank, entry.rule, entry.categories.into());
        self.all_plain &= entry.categories & 1 == 1;
        self.handle_max = self.handle_max.max(entry.rule.0);
    }

    /// Leaves a rank without a rule: no key fulfils it.
    pub(super) fn clear(&mut self, rank: u32) {
        // A value outside of the mask; a range without members.
        self.set_condition(rank, &Condition { low: [u32::MAX; W], high: [0; W] });
        self.set_column(rank, RuleId(u32::MAX), 0);
    }

    /// Moves the rule of a rank to another, and leaves the first without one.
    pub(super) fn move_one(&mut self, from: u32, to: u32) {
        let condition = self.condition(from);
        self.set_condition(to, &condition);
        self.set_column(to, self.handle(from), self.categories(from));
        self.clear(from);
    }

    fn set_condition(&mut self, rank: u32, condition: &Condition<W>) {
        let record = &mut self.words[rank as usize * Self::STRIDE..][..2 * W];
        record[..W].copy_from_slice(&condition.low);
        record[W..].copy_from_slice(&condition.high);
    }

    fn set_column(&mut self, rank: u32, rule: RuleId, categories: u32) {
        self.handles.as_mut().expect("rules that change have numbers")[rank as usize] = rule.0;
        self.categories.as_mut().expect("rules that change have categories")[rank as usize] = categories;
    }

    pub(super) fn size_bytes(&self) -> usize {
        let columns = [&self.handles, &self.categories].into_iter().flatten();
        self.words.size_bytes() + columns.map(Memory::size_bytes).sum::<usize>()
    }

    /// Returns the address of a record; the caller must not read it where there is none.
    #[inline(always)]
    pub(super) fn address(&self, rank: u32) -> *const u32 {
        self.words.as_ptr().wrapping_add(rank as usize * Self::STRIDE)
    }

    /// Returns the condition of the rule of a rank.
    #[inline(always)]
    pub(super) fn record(&self, rank: u32) -> Record<'_, W> {
        assert!((rank as usize) < self.len(), "rank {rank} of {}", self.len());
        let start = self.address(rank);
        // SAFETY: there is a rule of this rank, and each has a record of `STRIDE` words, which is 2 W at least.
        unsafe { Record { low: &*start.cast(), high: &*start.add(W).cast() } }
    }

    pub(super) fn condition(&self, rank: u32) -> Condition<W> {
        let record = self.record(rank);
        Condition { low: *record.low, high: *record.high }
    }

    #[inline(always)]
    pub(super) fn handle(&self, rank: u32) -> RuleId {
        RuleId(self.handles.as_ref().map_or(rank, |handles| handles[rank as usize]))
    }

    #[inline(always)]
    pub(super) fn verdict(&self, rank: u32) -> MatchId {
        MatchId::of(self.handle(rank))
    }

    /// Returns whether there is a bit for each rule number.
    pub(super) fn are_within(&self, bits: &[u32]) -> bool {
        self.len() == 0 || (self.handle_max as usize) < 32 * bits.len()
    }

    #[inline(always)]
    pub(super) fn categories(&self, rank: u32) -> u32 {
        self.categories.as_ref().map_or(1, |categories| categories[rank as usize])
    }

    /// Returns whether `key` fulfils the condition: the definition.
    pub(super) fn matches(&self, rank: u32, key: &[u32; W]) -> bool {
        self.condition(rank).matches(&self.kinds, key)
    }
}
