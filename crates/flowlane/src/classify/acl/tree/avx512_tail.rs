//! The AVX-512 kernel for a single key: a leaf's block at once, for the keys that do not fill a register in [`avx512`](super::avx512).

use std::arch::x86_64::*;

use super::lanes::TreeOps;
use super::leaf::{Block, MASKS, RULES};
use super::range_filter::{Ends, HIGH};
use super::record::Record;
use super::{Node, Tree, avx2, avx512, quad};
use crate::classify::acl::engine::Tombstones;
use crate::classify::acl::{MatchId, WordKind};
use crate::isa;

/// Returns one bit for each candidate, and the sentinel's bit, which is always set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn candidates(block: &Block, signature: u32) -> __mmask16 {
    // SAFETY: a block has sixteen values and then as many masks, and is aligned to a cache line.
    let (values, masks) = unsafe {
        (_mm512_load_si512(block.as_ptr().cast()), _mm512_load_si512(block.as_ptr().add(MASKS).cast()))
    };
    let signature = _mm512_set1_epi32(signature.cast_signed());
    _mm512_cmpeq_epi32_mask(_mm512_and_si512(signature, masks), values)
}

/// Returns one bit for each rule that passes the range filter; the sentinel's bit is undefined.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn passing(ends: &Ends, ranges: u32, key: u32) -> __mmask16 {
    // SAFETY: there are sixteen low ends and then as many high ends, aligned to a cache line.
    let (low, high) = unsafe {
        (_mm512_load_si512(ends.as_ptr().cast()), _mm512_load_si512(ends.as_ptr().add(HIGH).cast()))
    };
    let (ranges, key) = (_mm512_set1_epi32(ranges.cast_signed()), _mm512_set1_epi32(key.cast_signed()));
    // key & (high | ranges); of high and low, by the bits of ranges, the one or the other.
    let key = _mm512_ternarylogic_epi32::<0xe0>(key, high, ranges);
    let top = _mm512_ternarylogic_epi32::<0xca>(ranges, high, low);
    let beside = _mm512_or_si512(_mm512_subs_epu16(low, key), _mm512_subs_epu16(key, top));
    _mm512_testn_epi32_mask(beside, beside)
}

impl TreeOps for isa::Avx512 {
    #[inline(always)]
    fn cut<const W: usize>(self, node: &Node<W>, key: &[u32; W]) -> u32 {
        // SAFETY: the witness proves AVX-512 F, BW, DQ and VL, and the instructions on bits; so below.
        unsafe { avx2::gather(&node.cut, key) }
    }

    #[inline(always)]
    fn sign<const W: usize>(self, node: &Node<W>, key: &[u32; W]) -> u32 {
        // SAFETY: the witness proves AVX-512 F, BW, DQ and VL, and the instructions on bits; so below.
        unsafe { avx2::gather(&node.sign, key) }
    }

    #[inline(always)]
    fn candidates(self, block: &Block, signature: u32) -> u32 {
        // SAFETY: as above.
        u32::from(unsafe { candidates(block, signature) }) & ((1 << RULES) - 1)
    }

    #[inline(always)]
    fn passing(self, ends: &Ends, ranges: u32, key: u32) -> u32 {
        // SAFETY: as above.
        u32::from(unsafe { passing(ends, ranges, key) })
    }

    #[inline(always)]
    fn matches<const W: usize>(self, kinds: &[WordKind; W], record: Record<'_, W>, key: &[u32; W]) -> bool {
        quad::matches(isa::Sse42::from(isa::Avx2::from(self)), kinds, record, key)
    }

    #[inline(always)]
    fn lookup_batch<const W: usize>(
        self,
        tree: &Tree<W>,
        keys: &[[u32; W]],
        verdicts: &mut [MatchId],
        dead: Option<Tombstones<'_>>,
    ) {
        avx512::lookup_batch(self, tree, keys, verdicts, dead);
    }
}
