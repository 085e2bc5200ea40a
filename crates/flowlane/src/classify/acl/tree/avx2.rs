//! The AVX2 kernel: bits of keys by BMI2; leaves and records as in [`sse42`](super::sse42), in the encoding of AVX.

use std::arch::x86_64::_pext_u64;

use super::leaf::Block;
use super::range_filter::Ends;
use super::record::Record;
use super::{Tree, lanes, sse42};
use crate::classify::acl::engine::Tombstones;
use crate::classify::acl::{MatchId, WordKind};
use crate::isa;

/// The vector operations, with the witness of AVX2.
#[derive(Clone, Copy)]
struct Avx2(isa::Avx2);

/// Two words of each, as one number, at a time.
#[inline]
#[target_feature(enable = "bmi2,popcnt")]
pub(super) fn gather<const W: usize>(mask: &[u32; W], key: &[u32; W]) -> u32 {
    let pair =
        |of: &[u32; W], w: usize| u64::from(of[w]) | if w + 1 < W { u64::from(of[w + 1]) << 32 } else { 0 };
    let (mut out, mut have) = (0, 0);
    for w in (0..W).step_by(2) {
        let mask = pair(mask, w);
        out |= _pext_u64(pair(key, w), mask) << (have & 63);
        have += mask.count_ones();
    }
    out as u32
}

impl lanes::Lanes for Avx2 {
    #[inline(always)]
    fn gather<const W: usize>(self, mask: &[u32; W], key: &[u32; W]) -> u32 {
        // SAFETY: the witness that this holds proves AVX2, and with it SSE4.2, and the instructions on bits; so below.
        unsafe { gather(mask, key) }
    }

    #[inline(always)]
    fn candidates(self, block: &Block, signature: u32) -> u32 {
        sse42::candidates(block, signature)
    }

    #[inline(always)]
    fn passing(self, ends: &Ends, ranges: u32, key: u32) -> u32 {
        sse42::passing(self.0.into(), ends, ranges, key)
    }

    #[inline(always)]
    fn matches<const W: usize>(self, kinds: &[WordKind; W], record: Record<'_, W>, key: &[u32; W]) -> bool {
        sse42::matches(self.0.into(), kinds, record, key)
    }
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn batch<const W: usize>(
    isa: isa::Avx2,
    tree: &Tree<W>,
    keys: &[[u32; W]],
    verdicts: &mut [MatchId],
    dead: Option<Tombstones<'_>>,
) {
    lanes::lookup_batch(Avx2(isa), tree, keys, verdicts, dead);
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn categories<const W: usize>(
    isa: isa::Avx2,
    tree: &Tree<W>,
    keys: &[[u32; W]],
    categories: usize,
    verdicts: &mut [MatchId],
) {
    lanes::lookup_categories(Avx2(isa), tree, keys, categories, verdicts);
}

pub(super) fn lookup_batch<const W: usize>(
    isa: isa::Avx2,
    tree: &Tree<W>,
    keys: &[[u32; W]],
    verdicts: &mut [MatchId],
    dead: Option<Tombstones<'_>>,
) {
    // SAFETY: the witness proves that the CPU has these.
    unsafe { batch(isa, tree, keys, verdicts, dead) }
}

pub(super) fn lookup_categories<const W: usize>(
    isa: isa::Avx2,
    tree: &Tree<W>,
    keys: &[[u32; W]],
    count: usize,
    verdicts: &mut [MatchId],
) {
    // SAFETY: as above.
    unsafe { categories(isa, tree, keys, count, verdicts) }
}
