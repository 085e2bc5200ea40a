//! Ternary rules, the form that kernels compare: value and mask. Ranges expand to prefixes.

use std::cmp::Reverse;

use flowlane::classify::Hit;
use flowlane::classify::acl::{Entry, RankKey, WordKind};

use crate::error::GpuError;

/// A condition without ranges. A rule with ranges yields several conditions of one standing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ternary<const W: usize> {
    /// The value; zero outside the mask.
    pub value: [u32; W],
    /// The bits that are compared.
    pub mask: [u32; W],
    /// The rank of the rule as an integer: larger wins, 0 means none.
    pub standing: u32,
}

/// The expanded rules, ordered by standing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TernaryRules<const W: usize> {
    /// The conditions, best first.
    pub rules: Vec<Ternary<W>>,
    /// The rule of each standing, from 1.
    pub hits: Vec<Hit>,
    /// The rank of each standing, from 1.
    pub ranks: Vec<RankKey>,
}

impl<const W: usize> TernaryRules<W> {
    /// Returns the number of conditions that these rules expand to, without expanding them.
    pub fn count(kinds: &[WordKind; W], entries: &[Entry<W>]) -> usize {
        let pieces = |entry: &Entry<W>, w: usize| {
            piece_count(kinds[w], entry.condition.low[w], entry.condition.high[w])
        };
        let of_entry = |entry: &Entry<W>| (0..W).map(|w| pieces(entry, w)).fold(1, usize::saturating_mul);
        let counted = entries.iter().filter(|entry| entry.categories & 1 == 1);
        counted.map(of_entry).fold(0, usize::saturating_add)
    }

    /// Expands the rules of category 0.
    ///
    /// # Errors
    /// Returns an error if there are more than `entries_max` conditions.
    #[inline(never)]
    pub fn new(kinds: &[WordKind; W], entries: &[Entry<W>], entries_max: usize) -> Result<Self, GpuError> {
        let mut ordered: Vec<&Entry<W>> = entries.iter().filter(|entry| entry.categories & 1 == 1).collect();
        ordered.sort_by_key(|entry| Reverse(entry.rank));
        let mut rules = Vec::new();
        for (place, entry) in ordered.iter().enumerate() {
            let standing = (ordered.len() - place) as u32;
            let mut alternatives = vec![Ternary { value: [0; W], mask: [0; W], standing }];
            for (w, kind) in kinds.iter().enumerate() {
                let pieces = pieces(*kind, entry.condition.low[w], entry.condition.high[w]);
                let needed = alternatives.len().saturating_mul(pieces.len());
                if rules.len().saturating_add(needed) > entries_max {
                    return Err(GpuError::Entries { rules: entries.len(), entries_max });
                }
                let one = |rule: &Ternary<W>, (value, mask)| {
                    let mut rule = *rule;
                    (rule.value[w], rule.mask[w]) = (value, mask);
                    rule
                };
                alternatives = pieces.iter().flat_map(|p| alternatives.iter().map(|r| one(r, *p))).collect();
            }
            rules.extend(alternatives);
        }
        let hits = ordered.iter().rev().map(|entry| entry.hit()).collect();
        let ranks = ordered.iter().rev().map(|entry| entry.rank).collect();
        Ok(Self { rules, hits, ranks })
    }
}

/// Expands a word of a condition to values and masks, of which one must match.
fn pieces(kind: WordKind, low: u32, high: u32) -> Vec<(u32, u32)> {
    match kind {
        WordKind::Ternary => vec![(low, high)],
        WordKind::Range32 => prefixes(low, high, 32).collect(),
        WordKind::Range16 => {
            let lower = || prefixes(low & 0xffff, high & 0xffff, 16);
            let both = |u: (u32, u32), l: (u32, u32)| (u.0 << 16 | l.0, u.1 << 16 | l.1);
            prefixes(low >> 16, high >> 16, 16).flat_map(|u| lower().map(move |l| both(u, l))).collect()
        }
    }
}

fn piece_count(kind: WordKind, low: u32, high: u32) -> usize {
    match kind {
        WordKind::Ternary => 1,
        WordKind::Range32 => prefixes(low, high, 32).count(),
        WordKind::Range16 => {
            prefixes(low >> 16, high >> 16, 16).count() * prefixes(low & 0xffff, high & 0xffff, 16).count()
        }
    }
}

/// Returns the fewest prefixes of `bits`-bit numbers that cover exactly `low` to `high`; none if the range is empty.
fn prefixes(low: u32, high: u32, bits: u32) -> impl Iterator<Item = (u32, u32)> {
    let ones = (1u64 << bits) - 1;
    let (mut at, high) = (u64::from(low), u64::from(high));
    std::iter::from_fn(move || {
        if at > high {
            return None;
        }
        let aligned = if at == 0 { bits } else { at.trailing_zeros().min(bits) };
        let fits = (high - at + 1).ilog2();
        let size = 1u64 << aligned.min(fits);
        at += size;
        Some(((at - size) as u32, (ones & !(size - 1)) as u32))
    })
}

#[cfg(test)]
mod tests {
    use flowlane::classify::acl::{Condition, RankKey};
    use flowlane::rule::{Priority, RuleId};

    use super::*;

    #[test]
    fn prefixes_are_the_range_and_nothing_else() {
        for (low, high) in [(0, 15), (1, 14), (7, 7), (5, 11), (0, 0), (15, 15), (8, 3)] {
            let pieces: Vec<(u32, u32)> = prefixes(low, high, 4).collect();
            for x in 0..16 {
                let matching = pieces.iter().filter(|(value, mask)| x & mask == *value).count();
                assert_eq!(matching, usize::from(low <= x && x <= high), "{x} in {low}-{high}: {pieces:?}");
            }
        }
        assert!(prefixes(0, u32::MAX, 32).eq([(0, 0)]));
        assert_eq!(prefixes(0, u32::MAX - 1, 32).count(), 32);
        assert_eq!(prefixes(1, 0xfffe, 16).count(), 30, "2 W − 2 at worst");
    }

    #[test]
    fn rules_stand_in_order_and_too_many_prefixes_are_refused() {
        let entry = |rule: u32, low: u32, high: u32| Entry {
            condition: Condition { low: [low, 0], high: [high, 0] },
            rank: RankKey::new(Priority(rule), 0),
            rule: RuleId(rule),
            categories: 1,
        };
        let kinds = [WordKind::Range16, WordKind::Ternary];
        let entries = [entry(5, 0x0001_0001, 0xfffe_fffe), entry(9, 0, 0xffff_ffff)];
        let made = TernaryRules::new(&kinds, &entries, 901).expect("900 and one");
        assert_eq!((made.rules.len(), TernaryRules::count(&kinds, &entries)), (901, 901));
        assert_eq!(made.hits, [entries[0].hit(), entries[1].hit()]);
        assert_eq!(made.rules[0].standing, 2, "the better one");
        assert!(matches!(TernaryRules::new(&kinds, &entries, 900), Err(GpuError::Entries { .. })));
    }
}
