//! Rule sets as in the paper: rules in classes of one mask each, and tuples made from rules.

use std::collections::HashSet;

use flowlane::classify::acl::{Condition, Entry, RankKey, WordKind};
use flowlane::generate::Random;
use flowlane::rule::{Priority, RuleId};

/// The shape of a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// N.
    pub(super) rules: usize,
    /// C: masks.
    pub(super) classes: usize,
    /// F: classes that share all rules but one in each of the others.
    pub(super) full: usize,
    /// C_m: classes with a rule for the same tuple.
    pub(super) overlap: usize,
}

impl Shape {
    /// Spreads rules evenly over classes, of which one has a rule for a tuple.
    pub(super) fn even(rules: usize, classes: usize) -> Self {
        Self { rules, classes, full: classes, overlap: 1 }
    }
}

/// Rules and tuples.
#[derive(Debug)]
pub(super) struct Set<const W: usize> {
    pub(super) kinds: [WordKind; W],
    pub(super) entries: Vec<Entry<W>>,
    pub(super) keys: Vec<[u32; W]>,
}

/// Tuples that pass every filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Crossing {
    /// Every class has a rule for each tuple.
    AllMatch,
    /// The last word belongs to another tuple: every class has rules for either part, and none for both.
    NoneMatches,
}

impl Crossing {
    pub(super) const ALL: [Self; 2] = [Self::AllMatch, Self::NoneMatches];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AllMatch => "all match",
            Self::NoneMatches => "none matches",
        }
    }
}

/// The bits of the last word that all masks of an adversarial set use.
const LAST_BITS: u32 = 16;

/// A field: its word, the position of its highest bit, and its width.
type FieldBits = (usize, u32, u32);

/// The five fields of a tuple of 128 bits, in four words.
const FIVE: &[FieldBits] = &[(0, 31, 16), (0, 15, 16), (1, 31, 8), (2, 31, 32), (3, 31, 32)];

/// The twelve fields of OpenFlow 1.0 in 288 bits and nine words; the two of 48 bits take a word and a half each.
const TWELVE: &[FieldBits] = &[
    (0, 31, 32),
    (1, 31, 32),
    (2, 31, 32),
    (3, 31, 16),
    (3, 15, 16),
    (4, 31, 16),
    (4, 15, 8),
    (5, 31, 32),
    (6, 31, 32),
    (7, 31, 8),
    (7, 23, 8),
    (8, 31, 32),
];

/// Draws a mask of at least `bits` bits: fields are exact, wild, or a prefix of whole nibbles.
fn mask<const W: usize>(random: &mut Random, bits: u32) -> [u32; W] {
    let fields = if W == 4 { FIVE } else { TWELVE };
    loop {
        let mut mask = [0; W];
        for (word, top, width) in fields {
            let length = match random.below(3) {
                0 => 0,
                1 => *width,
                _ => 4 * random.below(u64::from(width / 4) + 1) as u32,
            };
            let ones = u64::MAX.checked_shl(64 - length).unwrap_or(0) >> 32;
            mask[*word] |= (ones as u32).checked_shr(31 - top).unwrap_or(0);
        }
        if mask.iter().map(|m: &u32| m.count_ones()).sum::<u32>() >= bits {
            return mask;
        }
    }
}

impl<const W: usize> Set<W> {
    /// Generates a set of this shape, and `keys` tuples, each of which has a rule.
    pub(super) fn new(shape: Shape, keys: usize, seed: u64) -> Self {
        let mut random = Random::for_purpose(seed, "rules in classes");
        let per_class = shape.rules / shape.full.max(1) + 1;
        let bits = per_class.ilog2() + 8;
        let mut seen = HashSet::new();
        let mut masks: Vec<[u32; W]> = Vec::new();
        while masks.len() < shape.classes {
            let mask = mask(&mut random, bits);
            if seen.insert(mask) {
                masks.push(mask);
            }
        }
        let mut out = Self { kinds: [WordKind::Ternary; W], entries: Vec::new(), keys: Vec::new() };
        // Each tuple contributes a rule to the number of classes that overlap.
        let mut made: Vec<([u32; W], [u32; W])> = Vec::new();
        let alone = shape.classes - shape.full;
        let mut class = 0;
        while out.entries.len() < shape.rules {
            let tuple: [u32; W] = std::array::from_fn(|_| random.bits() as u32);
            let mut looked_at = [0; W];
            for _ in 0..shape.overlap.max(1) {
                // Classes with only one rule come first.
                let mask =
                    masks[if class < alone { shape.full + class } else { (class - alone) % shape.full }];
                class += 1;
                let number = out.entries.len() as u32;
                let low = std::array::from_fn(|w| tuple[w] & mask[w]);
                out.entries.push(Entry {
                    condition: Condition { low, high: mask },
                    rank: RankKey::new(Priority(random.below(256) as u32), number),
                    rule: RuleId(number),
                    categories: 1,
                });
                looked_at = std::array::from_fn(|w| looked_at[w] | mask[w]);
            }
            made.push((tuple, looked_at));
        }
        let key = |_| {
            let (tuple, looked_at) = made[random.index(made.len())];
            std::array::from_fn(|w| tuple[w] & looked_at[w] | random.bits() as u32 & !looked_at[w])
        };
        out.keys = (0..keys).map(key).collect();
        out
    }

    /// Generates a set whose every class has a rule for each of `rules / classes` tuples, and keys made from them.
    pub(super) fn adversarial(
        rules: usize,
        classes: usize,
        crossing: Crossing,
        keys: usize,
        seed: u64,
    ) -> Self {
        let mut random = Random::for_purpose(seed, "tuples that pass every filter");
        let last = W - 1;
        let top = |word: u32| word >> (32 - LAST_BITS);
        // The last words differ in bits that all masks use.
        let mut tuples: Vec<[u32; W]> = Vec::new();
        let mut seen = HashSet::new();
        while tuples.len() < rules / classes {
            let tuple: [u32; W] = std::array::from_fn(|_| random.bits() as u32);
            if seen.insert(top(tuple[last])) {
                tuples.push(tuple);
            }
        }
        let mut masks: Vec<[u32; W]> = Vec::new();
        let mut seen = HashSet::new();
        while masks.len() < classes {
            let mut mask: [u32; W] = mask(&mut random, 0);
            mask[last] |= u32::MAX << (32 - LAST_BITS);
            // The tuples also differ in bits of the previous words.
            let before: u32 = mask[..last].iter().map(|m| m.count_ones()).sum();
            if before >= LAST_BITS && seen.insert(mask) {
                masks.push(mask);
            }
        }
        let mut out = Self { kinds: [WordKind::Ternary; W], entries: Vec::new(), keys: Vec::new() };
        for (tuple, mask) in tuples.iter().flat_map(|tuple| masks.iter().map(move |mask| (tuple, mask))) {
            let number = out.entries.len() as u32;
            out.entries.push(Entry {
                condition: Condition { low: std::array::from_fn(|w| tuple[w] & mask[w]), high: *mask },
                rank: RankKey::new(Priority(random.below(256) as u32), number),
                rule: RuleId(number),
                categories: 1,
            });
        }
        let key = |_| {
            let one = random.index(tuples.len());
            let mut key = tuples[one];
            if crossing == Crossing::NoneMatches {
                let other = (one + 1 + random.index(tuples.len() - 1)) % tuples.len();
                key[last] = tuples[other][last];
            }
            key
        };
        out.keys = (0..keys).map(key).collect();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(set: &Set<9>, key: &[u32; 9]) -> usize {
        set.entries.iter().filter(|entry| entry.condition.matches(&set.kinds, key)).count()
    }

    #[test]
    fn sets_have_the_shape_that_was_asked_for() {
        let shape = Shape { rules: 256, classes: 64, full: 16, overlap: 1 };
        let set = Set::<9>::new(shape, 50, 1);
        let mut by_mask = std::collections::HashMap::new();
        set.entries.iter().for_each(|entry| *by_mask.entry(entry.condition.high).or_insert(0) += 1);
        assert_eq!((set.entries.len(), by_mask.len()), (256, 64));
        assert_eq!(by_mask.values().filter(|rules| **rules == 1).count(), 48);
        assert_eq!(by_mask.values().filter(|rules| **rules == 13).count(), 16);
        assert!(set.keys.iter().all(|key| matching(&set, key) >= 1));
    }

    #[test]
    fn tuples_match_as_many_classes_as_are_to_overlap() {
        let set = Set::<9>::new(Shape { overlap: 8, ..Shape::even(128, 16) }, 50, 2);
        assert!(set.keys.iter().all(|key| (8..=10).contains(&matching(&set, key))));
    }

    #[test]
    fn adversarial_tuples_match_in_every_class_or_in_none() {
        let all = Set::<9>::adversarial(128, 16, Crossing::AllMatch, 50, 3);
        assert_eq!(all.entries.len(), 128);
        assert!(all.keys.iter().all(|key| matching(&all, key) == 16));
        let none = Set::<9>::adversarial(128, 16, Crossing::NoneMatches, 50, 3);
        for key in &none.keys {
            assert_eq!(matching(&none, key), 0);
            // Each single word occurs in a rule of every class.
            for (w, word) in key.iter().enumerate() {
                let has = |entry: &&Entry<9>| word & entry.condition.high[w] == entry.condition.low[w];
                let masks: HashSet<_> = none.entries.iter().filter(has).map(|e| e.condition.high).collect();
                assert_eq!(masks.len(), 16);
            }
        }
    }
}
