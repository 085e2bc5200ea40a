//! Hit counts by rule.

use super::Hit;
use crate::rule::RuleId;

/// Packets counted by their winning rule. Each thread counts its own lookups; [`add`](Self::add) sums them up.
///
/// ```
/// use flowlane::classify::{Hit, HitCounts};
/// use flowlane::rule::{Priority, RuleId};
///
/// let mut counts = HitCounts::new(100);
/// let hit = |rule| Some(Hit { rule: RuleId(rule), priority: Priority(1) });
/// counts.count(&[hit(7), None, hit(7), hit(3)]);
/// assert_eq!([7, 3, 5].map(|rule| counts.of(RuleId(rule))), [2, 1, 0]);
/// assert_eq!(counts.misses(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct HitCounts {
    /// Misses, then rules by number. In two copies: packets of one rule follow each other, and each addition would wait for
    /// the one before.
    counts: [Vec<u64>; 2],
}

impl HitCounts {
    /// Creates counts for rules with numbers below this; 16 bytes each.
    pub fn new(handles: usize) -> Self {
        Self { counts: [vec![0; handles + 1], vec![0; handles + 1]] }
    }

    /// Counts the results of a batch of lookups.
    ///
    /// # Panics
    /// Where a rule's number is not below the limit of the counts.
    #[inline]
    pub fn count(&mut self, hits: &[Option<Hit>]) {
        let [even, odd] = &mut self.counts;
        let place = |hit: &Option<Hit>| hit.map_or(0, |hit| hit.rule.0 as usize + 1);
        let (pairs, last) = hits.as_chunks::<2>();
        for [first, second] in pairs {
            even[place(first)] += 1;
            odd[place(second)] += 1;
        }
        last.iter().for_each(|hit| even[place(hit)] += 1);
    }

    /// Returns the packets of a rule.
    pub fn of(&self, rule: RuleId) -> u64 {
        self.at(rule.0 as usize + 1)
    }

    /// Returns the packets that no rule matched.
    pub fn misses(&self) -> u64 {
        self.at(0)
    }

    fn at(&self, place: usize) -> u64 {
        self.counts.iter().filter_map(|counts| counts.get(place)).sum()
    }

    /// Adds the counts of another thread, for the same rules.
    ///
    /// # Panics
    /// Where the counts have different limits.
    pub fn add(&mut self, other: &Self) {
        for (counts, other) in self.counts.iter_mut().zip(&other.counts) {
            assert_eq!(counts.len(), other.len(), "counts of the same rules");
            counts.iter_mut().zip(other).for_each(|(count, more)| *count += more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::Priority;

    #[test]
    fn every_packet_counts_once_however_batches_are_cut() {
        let hits: Vec<Option<Hit>> = (0..1000u32)
            .map(|i| i * i % 7)
            .map(|rule| (rule < 5).then_some(Hit { rule: RuleId(rule), priority: Priority(1) }))
            .collect();
        for size in [1, 2, 3, 64, 1000] {
            let mut threads = [HitCounts::new(5), HitCounts::new(5)];
            hits.chunks(size).enumerate().for_each(|(i, batch)| threads[i % 2].count(batch));
            let [mut all, other] = threads;
            all.add(&other);
            for rule in 0..5 {
                let expected = hits.iter().flatten().filter(|hit| hit.rule.0 == rule).count() as u64;
                assert_eq!(all.of(RuleId(rule)), expected, "rule {rule}, batches of {size}");
            }
            assert_eq!(all.misses(), hits.iter().filter(|hit| hit.is_none()).count() as u64);
            assert_eq!(all.of(RuleId(5)), 0);
        }
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_rule_number_beyond_the_limit_panics() {
        HitCounts::new(5).count(&[Some(Hit { rule: RuleId(5), priority: Priority(1) })]);
    }
}
