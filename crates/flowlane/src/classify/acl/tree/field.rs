//! Fields of a key as trees see them: words, and the halves of words that hold two ranges.

use std::ops::RangeInclusive;

use crate::classify::acl::{Condition, WordKind};

/// A word of the key, or a half of one where halves are compared by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Field {
    pub(super) word: usize,
    pub(super) shift: u32,
    /// The field's highest value.
    pub(super) max: u32,
}

impl Field {
    /// Returns the fields of a key.
    pub(super) fn all<const W: usize>(kinds: &[WordKind; W]) -> impl Iterator<Item = Self> + use<'_, W> {
        kinds.iter().enumerate().flat_map(|(word, kind)| {
            let (shifts, max): (&[u32], u32) = match kind {
                WordKind::Range16 => (&[16, 0], 0xffff),
                WordKind::Ternary | WordKind::Range32 => (&[0], u32::MAX),
            };
            shifts.iter().map(move |shift| Self { word, shift: *shift, max })
        })
    }

    /// Returns the field's bits in its word.
    pub(super) fn bits(self) -> u32 {
        self.max << self.shift
    }

    #[inline(always)]
    pub(super) fn value<const W: usize>(self, key: &[u32; W]) -> u32 {
        key[self.word] >> self.shift & self.max
    }

    /// Returns the range of a condition in this field; `None` where it is a value under a mask that is no prefix.
    pub(super) fn range<const W: usize>(
        self,
        kinds: &[WordKind; W],
        condition: &Condition<W>,
    ) -> Option<RangeInclusive<u32>> {
        let (low, high) = (condition.low[self.word], condition.high[self.word]);
        if kinds[self.word] == WordKind::Ternary {
            let is_prefix = high.leading_ones() == high.count_ones();
            return is_prefix.then_some(low..=low | !high);
        }
        Some(self.value(&condition.low)..=self.value(&condition.high))
    }
}
