//! A set of words of a flow key: one bit a word, in two halves of 64.
//!
//! The words that most packets have are in the first half ([`fields`](super::fields) has the layout), so that loops over a set
//! end after one test where the second half is empty.

use std::fmt;
use std::ops::Range;

use super::fields::FieldClass;
use super::key::{BitIter, WORDS};

/// Words of a half.
const HALF: usize = 64;

const _: () = assert!(WORDS == 2 * HALF);

/// A set of word numbers, 0 to [`WORDS`] - 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(C)]
pub struct WordSet {
    halves: [u64; 2],
}

impl WordSet {
    /// No word.
    pub const EMPTY: Self = Self { halves: [0; 2] };
    /// Every word.
    pub const ALL: Self = Self { halves: [u64::MAX; 2] };

    /// The set of these words of the first half (bit w for word w) and of the second (bit w for word 64 + w).
    #[inline(always)]
    pub const fn from_halves(low: u64, high: u64) -> Self {
        Self { halves: [low, high] }
    }

    /// The set of one word.
    ///
    /// # Panics
    /// If `w` is not less than [`WORDS`].
    pub const fn of(w: usize) -> Self {
        Self::EMPTY.with(w)
    }

    /// The words from `words.start` to before `words.end`.
    ///
    /// # Panics
    /// If the end is greater than [`WORDS`].
    pub const fn range(words: Range<usize>) -> Self {
        let mut set = Self::EMPTY;
        let mut w = words.start;
        while w < words.end {
            set = set.with(w);
            w += 1;
        }
        set
    }

    /// The words of all fields of a class.
    #[inline(always)]
    pub const fn of_class(class: FieldClass) -> Self {
        class.words()
    }

    /// Bit w is set where word w is in the set.
    #[inline(always)]
    pub const fn low(self) -> u64 {
        self.halves[0]
    }

    /// Bit w is set where word 64 + w is in the set.
    #[inline(always)]
    pub const fn high(self) -> u64 {
        self.halves[1]
    }

    /// This set and word `w`.
    ///
    /// # Panics
    /// If `w` is not less than [`WORDS`].
    #[inline(always)]
    #[must_use]
    pub const fn with(mut self, w: usize) -> Self {
        self.halves[w / HALF] |= 1 << (w % HALF);
        self
    }

    /// Adds word `w`.
    ///
    /// # Panics
    /// If `w` is not less than [`WORDS`].
    #[inline(always)]
    pub const fn insert(&mut self, w: usize) {
        self.halves[w / HALF] |= 1 << (w % HALF);
    }

    /// Returns whether word `w` is in the set.
    #[inline(always)]
    pub const fn contains(self, w: usize) -> bool {
        w < WORDS && self.halves[w / HALF] >> (w % HALF) & 1 == 1
    }

    /// Returns whether the set has no word.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.halves[0] | self.halves[1] == 0
    }

    /// Number of words.
    #[inline(always)]
    pub const fn len(self) -> usize {
        (self.halves[0].count_ones() + self.halves[1].count_ones()) as usize
    }

    /// Number of words of the set that are less than `w`: the place of word `w` in a packed key.
    #[inline]
    pub const fn rank(self, w: usize) -> usize {
        rank_in(self.halves[0], w) + if w < HALF { 0 } else { rank_in(self.halves[1], w - HALF) }
    }

    /// The smallest word.
    pub const fn first(self) -> Option<usize> {
        match (self.halves[0], self.halves[1]) {
            (0, 0) => None,
            (0, high) => Some(HALF + high.trailing_zeros() as usize),
            (low, _) => Some(low.trailing_zeros() as usize),
        }
    }

    /// The largest word.
    pub const fn last(self) -> Option<usize> {
        match (self.halves[0], self.halves[1]) {
            (0, 0) => None,
            (low, 0) => Some(HALF - 1 - low.leading_zeros() as usize),
            (_, high) => Some(2 * HALF - 1 - high.leading_zeros() as usize),
        }
    }

    /// The words of either set.
    #[inline(always)]
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self { halves: [self.halves[0] | other.halves[0], self.halves[1] | other.halves[1]] }
    }

    /// The words of both sets.
    #[inline(always)]
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self { halves: [self.halves[0] & other.halves[0], self.halves[1] & other.halves[1]] }
    }

    /// The words of this set that are not in `other`.
    #[inline(always)]
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self { halves: [self.halves[0] & !other.halves[0], self.halves[1] & !other.halves[1]] }
    }

    /// The words that are not in this set.
    #[inline(always)]
    #[must_use]
    pub const fn complement(self) -> Self {
        Self { halves: [!self.halves[0], !self.halves[1]] }
    }

    /// Returns whether the sets have a word in common.
    #[inline(always)]
    pub const fn intersects(self, other: Self) -> bool {
        !self.intersection(other).is_empty()
    }

    /// Returns whether every word of this set is in `other`.
    #[inline(always)]
    pub const fn is_subset(self, other: Self) -> bool {
        self.difference(other).is_empty()
    }

    /// The words, ascending.
    #[inline(always)]
    pub const fn iter(self) -> WordIter {
        WordIter { half: self.halves[0], rest: self.halves[1], base: 0 }
    }
}

/// Set bits of `half` below bit `bits`.
const fn rank_in(half: u64, bits: usize) -> usize {
    if bits < HALF { (half & ((1 << bits) - 1)).count_ones() as usize } else { half.count_ones() as usize }
}

impl FromIterator<usize> for WordSet {
    fn from_iter<I: IntoIterator<Item = usize>>(words: I) -> Self {
        words.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl IntoIterator for WordSet {
    type Item = usize;
    type IntoIter = WordIter;

    #[inline(always)]
    fn into_iter(self) -> WordIter {
        self.iter()
    }
}

impl fmt::Debug for WordSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// Iterates over the words of a [`WordSet`], ascending.
#[derive(Clone, Copy, Debug)]
pub struct WordIter {
    half: u64,
    rest: u64,
    base: usize,
}

impl Iterator for WordIter {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.half == 0 {
            if self.rest == 0 {
                return None;
            }
            (self.half, self.rest, self.base) = (self.rest, 0, HALF);
        }
        let bit = self.half.trailing_zeros() as usize;
        self.half &= self.half - 1;
        Some(self.base | bit)
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = (self.half.count_ones() + self.rest.count_ones()) as usize;
        (len, Some(len))
    }

    /// Two loops, each of which knows which half its words are in.
    #[inline(always)]
    fn fold<B, F: FnMut(B, usize) -> B>(self, init: B, mut f: F) -> B {
        let Self { half, rest, base } = self;
        let first = BitIter(half).fold(init, |sum, bit| f(sum, base | bit));
        BitIter(rest).fold(first, |sum, bit| f(sum, HALF | bit))
    }
}

impl ExactSizeIterator for WordIter {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::generate::Random;

    fn drawn(random: &mut Random) -> (WordSet, BTreeSet<usize>) {
        // Dense, sparse, in one half, empty.
        let words: BTreeSet<usize> = match random.below(5) {
            0 => BTreeSet::new(),
            1 => (0..WORDS).filter(|_| random.below(2) == 0).collect(),
            2 => (0..HALF).filter(|_| random.below(8) == 0).collect(),
            3 => (HALF..WORDS).filter(|_| random.below(8) == 0).collect(),
            _ => (0..WORDS).filter(|_| random.below(20) == 0).collect(),
        };
        (words.iter().copied().collect(), words)
    }

    #[test]
    fn word_set_agrees_with_a_set_of_numbers() {
        let mut random = Random::for_purpose(1, "word sets");
        for _ in 0..500 {
            let ((a, plain_a), (b, plain_b)) = (drawn(&mut random), drawn(&mut random));
            let same = |set: WordSet, plain: BTreeSet<usize>| {
                assert_eq!(set.iter().collect::<BTreeSet<_>>(), plain);
                assert!(set.iter().is_sorted());
                assert_eq!((set.len(), set.is_empty()), (plain.len(), plain.is_empty()));
                assert_eq!((set.first(), set.last()), (plain.first().copied(), plain.last().copied()));
                assert_eq!(set.iter().len(), plain.len());
                let mut folded = Vec::new();
                set.iter().for_each(|w| folded.push(w));
                assert_eq!(folded, set.iter().collect::<Vec<_>>());
            };
            same(a, plain_a.clone());
            same(a.union(b), &plain_a | &plain_b);
            same(a.intersection(b), &plain_a & &plain_b);
            same(a.difference(b), &plain_a - &plain_b);
            same(a.complement(), &(0..WORDS).collect() - &plain_a);
            assert_eq!(a.intersects(b), !plain_a.is_disjoint(&plain_b));
            assert_eq!(a.is_subset(b), plain_a.is_subset(&plain_b));
            assert_eq!(a == b, plain_a == plain_b);
            assert!(a.intersection(b).is_subset(a) && a.is_subset(a.union(b)));
            assert_eq!(WordSet::from_halves(a.low(), a.high()), a);
            for w in 0..=WORDS {
                assert_eq!(a.rank(w), plain_a.range(..w).count(), "rank of {w} in {a:?}");
                assert_eq!(a.contains(w), plain_a.contains(&w));
            }
        }
    }

    #[test]
    fn partly_used_iterator_folds_over_the_rest() {
        let set = WordSet::range(60..70).with(127);
        for taken in 0..=set.len() {
            let mut iter = set.iter();
            let mut all: Vec<usize> = iter.by_ref().take(taken).collect();
            iter.for_each(|w| all.push(w));
            assert_eq!(all, set.iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn ranges_and_single_words_are_sets() {
        assert_eq!(WordSet::range(0..WORDS), WordSet::ALL);
        assert_eq!(WordSet::range(5..5), WordSet::EMPTY);
        for w in 0..WORDS {
            assert_eq!(WordSet::of(w), WordSet::range(w..w + 1));
        }
    }
}
