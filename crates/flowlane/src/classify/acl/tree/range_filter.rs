//! Range filters: further tests of a leaf's rules by whole words of the key, where signatures leave too many candidates.
//!
//! A signature has ternary bits, so it says little about ranges of ports; and it has 32 of them, too few for prefixes of
//! all lengths on both sides. Where packets drawn from the rules meet wrong candidates, each block gets the low
//! and high ends of one word, two lines more, and rules that do not pass are no candidates; where wrong candidates remain,
//! those of another word.

use super::leaf::{Block, RANKS, RULES};
use super::record::Records;
use crate::classify::acl::WordKind;
use crate::memory::Memory;

/// Low ends of a block's rules, then high ends.
pub(super) type Ends = [u32; 32];

const _: () = assert!(size_of::<Ends>() == 128);

/// Most range filters of a tree.
pub(super) const TESTS_MAX: usize = 2;

/// The index of the first high end.
pub(super) const HIGH: usize = 16;

/// The filter of one word, for every block.
#[derive(Clone, Debug)]
pub(super) struct RangeFilter {
    pub(super) word: usize,
    /// All ones where each half is a range, 0 where the word is a value under a mask.
    pub(super) ranges: u32,
    pub(super) ends: Memory<Ends>,
}

/// Returns whether a word of this kind can have a filter.
pub(super) fn can_be_tested(kind: WordKind) -> bool {
    kind != WordKind::Range32
}

impl RangeFilter {
    /// Builds the filter of these blocks, which hold ranks of these records.
    pub(super) fn of<const W: usize>(blocks: &[Block], records: &Records<W>, word: usize) -> Self {
        let mut ends: Memory<Ends> = Memory::zeroed(blocks.len());
        for (block, ends) in blocks.iter().zip(&mut ends[..]) {
            for (i, rank) in block[RANKS..][..RULES].iter().enumerate() {
                // The signature excludes empty places.
                if (*rank as usize) < records.len() {
                    let record = records.record(*rank);
                    (ends[i], ends[HIGH + i]) = (record.low[word], record.high[word]);
                }
            }
        }
        let ranges = if records.kinds[word] == WordKind::Ternary { 0 } else { u32::MAX };
        Self { word, ranges, ends }
    }
}

/// Returns one bit for each rule whose ends contain the word of a key: the definition.
///
/// Both kinds reduce to a range for each half: under a mask `key & high` must lie between `low` and `low`.
pub(super) fn passing(ends: &Ends, ranges: u32, key: u32) -> u32 {
    let passes = |i: &usize| {
        let (low, high) = (ends[*i], ends[HIGH + i]);
        let (key, top) = (key & (high | ranges), high & ranges | low & !ranges);
        let within = |shift: u32| {
            let half = |of: u32| (of >> shift) as u16;
            half(low) <= half(key) && half(key) <= half(top)
        };
        within(0) && within(16)
    };
    (0..RULES).filter(passes).fold(0, |all, i| all | 1 << i)
}
