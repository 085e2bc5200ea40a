//! Further tests of a leaf's rules: whole words of the key, where signatures leave too many candidates.
//!
//! A signature has bits with a value or none, so ranges of ports tell it little; and it has 32 of them, which prefixes of
//! all lengths on both sides do not fit. Where packets drawn from the rules meet wrong candidates, each block gets the low
//! and high ends of one word beside it, two lines more, and what does not pass is no candidate; where they still do, those of
//! another.

use super::leaf::{Block, RANKS, RULES};
use super::record::Records;
use crate::classify::acl::WordKind;
use crate::memory::Memory;

/// Low ends of a block's rules, then high ends.
pub(super) type Ends = [u32; 32];

const _: () = assert!(size_of::<Ends>() == 128);

/// Most words that are tested.
pub(super) const TESTS_MAX: usize = 2;

/// Where the high ends begin.
pub(super) const HIGH: usize = 16;

/// A word that is tested, of every block.
#[derive(Debug)]
pub(super) struct RangeFilter {
    pub(super) word: usize,
    /// All ones where each half is a range, 0 where the word is a value under a mask.
    pub(super) ranges: u32,
    pub(super) ends: Memory<Ends>,
}

/// Whether a word can be tested so.
pub(super) fn can_be_tested(kind: WordKind) -> bool {
    kind != WordKind::Range32
}

impl RangeFilter {
    /// Of these blocks, which hold ranks of these records.
    pub(super) fn of<const W: usize>(blocks: &[Block], records: &Records<W>, word: usize) -> Self {
        let mut ends: Memory<Ends> = Memory::zeroed(blocks.len());
        for (block, ends) in blocks.iter().zip(&mut ends[..]) {
            for (i, rank) in block[RANKS..][..RULES].iter().enumerate() {
                // What is no rule is no candidate by its signature.
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

/// The definition: one bit for each rule whose ends the word of a key lies within.
///
/// Both kinds are a range for each half after one step: `key & high` lies between `low` and `low` where there is a mask.
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
