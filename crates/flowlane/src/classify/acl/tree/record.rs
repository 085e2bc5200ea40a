//! The rules themselves, best first: what a candidate is compared with.

use crate::classify::acl::{Condition, Entry, Verdict, WordKind};
use crate::memory::Memory;
use crate::rule::RuleId;

/// Rules by rank. A record: low ends, high ends, handle, categories; padded so that one of an IPv4 5-tuple is a cache
/// line.
#[derive(Debug)]
pub(super) struct Records<const W: usize> {
    words: Memory<u32>,
    pub(super) kinds: [WordKind; W],
    len: usize,
    /// Whether all count in category 0.
    pub(super) all_plain: bool,
}

/// A rule.
#[derive(Clone, Copy)]
pub(super) struct Record<'a, const W: usize> {
    pub(super) low: &'a [u32; W],
    pub(super) high: &'a [u32; W],
    pub(super) verdict: Verdict,
    pub(super) categories: u32,
}

/// Words from one record to the next.
pub(super) const fn stride(words: usize) -> usize {
    let needed = 2 * words + 2;
    if needed <= 16 { needed.next_power_of_two() } else { needed.next_multiple_of(16) }
}

impl<const W: usize> Records<W> {
    const STRIDE: usize = stride(W);

    /// Bytes of so many.
    pub(super) fn bytes(len: usize) -> usize {
        len * Self::STRIDE * 4
    }

    /// The records of entries in this order.
    pub(super) fn new<'a>(
        kinds: &[WordKind; W],
        entries: impl ExactSizeIterator<Item = &'a Entry<W>>,
    ) -> Self {
        let len = entries.len();
        let mut words = Memory::zeroed(len * Self::STRIDE);
        let mut all_plain = true;
        for (entry, record) in entries.zip(words.chunks_exact_mut(Self::STRIDE)) {
            record[..W].copy_from_slice(&entry.condition.low);
            record[W..2 * W].copy_from_slice(&entry.condition.high);
            record[2 * W] = entry.rule.0;
            record[2 * W + 1] = entry.categories.into();
            all_plain &= entry.categories & 1 == 1;
        }
        Self { words, kinds: *kinds, len, all_plain }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.words.size_bytes()
    }

    /// Where a record begins; never read where there is none.
    #[inline(always)]
    pub(super) fn address(&self, rank: u32) -> *const u32 {
        self.words.as_ptr().wrapping_add(rank as usize * Self::STRIDE)
    }

    #[inline(always)]
    fn record(&self, rank: u32) -> Record<'_, W> {
        assert!((rank as usize) < self.len, "rank {rank} of {}", self.len);
        // SAFETY: it is one.
        unsafe { self.record_unchecked(rank) }
    }

    /// The rule of a rank.
    ///
    /// # Safety
    /// The rank must be that of a rule.
    #[inline(always)]
    pub(super) unsafe fn record_unchecked(&self, rank: u32) -> Record<'_, W> {
        let start = self.address(rank);
        // SAFETY: the caller has a rule of this rank, and each has a record of `STRIDE` words, which is 2 W + 2 at least.
        unsafe {
            Record {
                low: &*start.cast(),
                high: &*start.add(W).cast(),
                verdict: Verdict::of(RuleId(*start.add(2 * W))),
                categories: *start.add(2 * W + 1),
            }
        }
    }

    pub(super) fn condition(&self, rank: u32) -> Condition<W> {
        let record = self.record(rank);
        Condition { low: *record.low, high: *record.high }
    }

    pub(super) fn verdict(&self, rank: u32) -> Verdict {
        self.record(rank).verdict
    }

    pub(super) fn categories(&self, rank: u32) -> u32 {
        self.record(rank).categories
    }

    /// The definition.
    pub(super) fn matches(&self, rank: u32, key: &[u32; W]) -> bool {
        self.condition(rank).matches(&self.kinds, key)
    }
}
