//! The best rules so far for the keys of a batch.

use crate::classify::acl::{CATEGORIES_MAX, MatchId};
use crate::rule::RuleId;

/// Keys of a batch.
pub(super) const BATCH: usize = 256;

/// Keys of a batch in several categories.
pub(super) const CATEGORIES_BATCH: usize = 128;

/// The best rules so far for each lane of a batch.
pub(super) trait Winners {
    /// Returns the least rank of a rule that counts for this lane.
    fn cutoff(&self, lane: usize) -> u64;

    /// Returns the least class of such a rule.
    fn class(&self, lane: usize) -> u8;

    /// Offers a rule, and whether it matches. Returns whether rules of a lower rank can still count.
    fn offer(&mut self, lane: usize, matches: bool, found: Found) -> bool;
}

/// The winners of a whole batch.
pub(super) trait BatchWinners: Winners {
    /// Returns the least class of a rule that counts, for each lane.
    fn classes(&self) -> &[u8; BATCH];
}

/// The winner of one key: room for a batch takes longer to clear than a lookup takes.
pub(super) struct One {
    cutoff: Cutoff,
    rule: u32,
}

impl One {
    /// Starts from a cutoff.
    pub(super) fn above(cutoff: Cutoff) -> Self {
        Self { cutoff, rule: u32::MAX }
    }

    /// Returns the rule that beats the cutoff.
    pub(super) fn verdict(&self) -> Option<MatchId> {
        (self.rule != u32::MAX).then(|| MatchId::of(RuleId(self.rule)))
    }
}

impl Winners for One {
    #[inline(always)]
    fn cutoff(&self, _: usize) -> u64 {
        self.cutoff.rank
    }

    #[inline(always)]
    fn class(&self, _: usize) -> u8 {
        self.cutoff.class
    }

    #[inline(always)]
    fn offer(&mut self, _: usize, matches: bool, found: Found) -> bool {
        let wins = matches & (found.rank >= self.cutoff.rank) & (found.categories & 1 == 1);
        let counts = found.rank >= self.cutoff.rank;
        if wins {
            *self = Self { cutoff: Cutoff { rank: found.rank, class: found.class }, rule: found.rule };
        }
        !wins & counts
    }
}

/// The least rank and class of an entry that beats one found in another engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::classify::acl) struct Cutoff {
    pub(super) rank: u64,
    pub(super) class: u8,
}

/// A rule, without its condition.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) rank: u64,
    pub(super) rule: u32,
    pub(super) class: u8,
    pub(super) categories: u16,
}

/// The winners in one category. The element behind the lanes takes rules that do not win: a store there costs less than a
/// selection of the value to store.
pub(super) struct Single {
    ranks: [u64; BATCH + 1],
    classes: [u8; BATCH + 1],
    rules: [u32; BATCH + 1],
}

impl Single {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self { ranks: [0; BATCH + 1], classes: [0; BATCH + 1], rules: [u32::MAX; BATCH + 1] }
    }

    /// Starts from these cutoffs.
    #[inline(always)]
    pub(super) fn above(cutoffs: &[Cutoff]) -> Self {
        let mut made = Self::new();
        for (lane, cutoff) in cutoffs.iter().take(BATCH).enumerate() {
            (made.ranks[lane], made.classes[lane]) = (cutoff.rank, cutoff.class);
        }
        made
    }

    /// Writes the results that beat the cutoffs.
    #[inline(always)]
    pub(super) fn improve(&self, verdicts: &mut [MatchId]) {
        for (verdict, rule) in verdicts.iter_mut().zip(&self.rules) {
            *verdict = if *rule == u32::MAX { *verdict } else { MatchId::of(RuleId(*rule)) };
        }
    }

    #[inline(always)]
    pub(super) fn verdicts(&self, verdicts: &mut [MatchId]) {
        for (verdict, rule) in verdicts.iter_mut().zip(&self.rules) {
            *verdict = if *rule == u32::MAX { MatchId::NONE } else { MatchId::of(RuleId(*rule)) };
        }
    }
}

impl BatchWinners for Single {
    #[inline(always)]
    fn classes(&self) -> &[u8; BATCH] {
        self.classes.first_chunk().expect("one place for each lane")
    }
}

impl Winners for Single {
    #[inline(always)]
    fn cutoff(&self, lane: usize) -> u64 {
        self.ranks[lane % BATCH]
    }

    #[inline(always)]
    fn class(&self, lane: usize) -> u8 {
        self.classes[lane % BATCH]
    }

    #[inline(always)]
    fn offer(&mut self, lane: usize, matches: bool, found: Found) -> bool {
        let lane = lane % BATCH;
        let cutoff = self.ranks[lane];
        // Selected without a branch, since the matching rule of a chain is unpredictable.
        let wins = matches & (found.rank >= cutoff) & (found.categories & 1 == 1);
        let at = std::hint::select_unpredictable(wins, lane, BATCH);
        self.ranks[at] = found.rank;
        self.classes[at] = found.class;
        self.rules[at] = found.rule;
        !wins & (found.rank >= cutoff)
    }
}

/// The winners of up to `KEYS` keys in several categories.
pub(super) struct Several<const KEYS: usize> {
    categories: usize,
    ranks: [[u64; CATEGORIES_MAX]; KEYS],
    rules: [[u32; CATEGORIES_MAX]; KEYS],
    classes: [[u8; CATEGORIES_MAX]; KEYS],
    cutoffs: [u64; KEYS],
    cutoff_classes: [u8; BATCH],
}

impl<const KEYS: usize> Several<KEYS> {
    pub(super) fn new(categories: usize) -> Self {
        Self {
            categories,
            ranks: [[0; CATEGORIES_MAX]; KEYS],
            rules: [[u32::MAX; CATEGORIES_MAX]; KEYS],
            classes: [[0; CATEGORIES_MAX]; KEYS],
            cutoffs: [0; KEYS],
            cutoff_classes: [0; BATCH],
        }
    }

    pub(super) fn verdicts(&self, verdicts: &mut [MatchId]) {
        for (verdicts, rules) in verdicts.chunks_mut(self.categories).zip(&self.rules) {
            for (verdict, rule) in verdicts.iter_mut().zip(rules) {
                *verdict = if *rule == u32::MAX { MatchId::NONE } else { MatchId::of(RuleId(*rule)) };
            }
        }
    }
}

impl BatchWinners for Several<CATEGORIES_BATCH> {
    #[inline(always)]
    fn classes(&self) -> &[u8; BATCH] {
        &self.cutoff_classes
    }
}

impl<const KEYS: usize> Winners for Several<KEYS> {
    #[inline(always)]
    fn cutoff(&self, lane: usize) -> u64 {
        self.cutoffs[lane % KEYS]
    }

    #[inline(always)]
    fn class(&self, lane: usize) -> u8 {
        self.cutoff_classes[lane % BATCH]
    }

    fn offer(&mut self, lane: usize, matches: bool, found: Found) -> bool {
        let Found { rank, rule, class, categories } = found;
        if !matches {
            return rank >= self.cutoff(lane);
        }
        let lane = lane % KEYS;
        let (ranks, rules) = (&mut self.ranks[lane], &mut self.rules[lane]);
        for category in (0..self.categories).filter(|c| categories >> c & 1 == 1) {
            if rank >= ranks[category] {
                ranks[category] = rank;
                rules[category] = rule;
                self.classes[lane][category] = class;
            }
        }
        self.cutoffs[lane] = ranks[..self.categories].iter().copied().min().unwrap_or(0);
        self.cutoff_classes[lane] = self.classes[lane][..self.categories].iter().copied().min().unwrap_or(0);
        rank >= self.cutoffs[lane]
    }
}
