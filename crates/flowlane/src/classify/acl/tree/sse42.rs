//! Leaves and records in registers of 128 bits; bits of keys by portable code.

use std::arch::x86_64::*;

use super::bits;
use super::lanes::TreeOps;
use super::leaf::{Block, MASKS, RULES};
use super::range_filter::{Ends, HIGH};
use super::record::Record;
use crate::classify::acl::WordKind;
use crate::isa;

/// The candidates of a block.
#[inline(always)]
pub(super) fn candidates(block: &Block, signature: u32) -> u32 {
    // SAFETY: SSE2, which every x86-64 has; a block has sixteen values and then as many masks, and is aligned to a cache line.
    unsafe {
        let signature = _mm_set1_epi32(signature.cast_signed());
        let equal = |four: usize| {
            let values = _mm_load_si128(block.as_ptr().cast::<__m128i>().add(four));
            let masks = _mm_load_si128(block.as_ptr().add(MASKS).cast::<__m128i>().add(four));
            _mm_cmpeq_epi32(_mm_and_si128(signature, masks), values)
        };
        let eight = |four: usize| _mm_packs_epi32(equal(four), equal(four + 1));
        let all = _mm_movemask_epi8(_mm_packs_epi16(eight(0), eight(2))).cast_unsigned();
        // The sentinel behind the last rule is no rule.
        all & ((1 << RULES) - 1)
    }
}

/// The rules of a block that pass the second test.
#[inline(always)]
pub(super) fn passing(_: isa::Sse42, ends: &Ends, ranges: u32, key: u32) -> u32 {
    // SAFETY: the witness proves SSE4.2; there are sixteen low ends and then as many high ends, aligned to a cache line.
    unsafe {
        let (ranges, key) = (_mm_set1_epi32(ranges.cast_signed()), _mm_set1_epi32(key.cast_signed()));
        let within = |four: usize| {
            let low = _mm_load_si128(ends.as_ptr().cast::<__m128i>().add(four));
            let high = _mm_load_si128(ends.as_ptr().add(HIGH).cast::<__m128i>().add(four));
            let key = _mm_and_si128(key, _mm_or_si128(high, ranges));
            let top = _mm_or_si128(_mm_and_si128(high, ranges), _mm_andnot_si128(ranges, low));
            let beside = _mm_or_si128(_mm_subs_epu16(low, key), _mm_subs_epu16(key, top));
            _mm_cmpeq_epi32(beside, _mm_setzero_si128())
        };
        let eight = |four: usize| _mm_packs_epi32(within(four), within(four + 1));
        let all = _mm_movemask_epi8(_mm_packs_epi16(eight(0), eight(2))).cast_unsigned();
        all & ((1 << RULES) - 1)
    }
}

/// Four words from number `w` on, zeros behind the last.
#[inline(always)]
fn words<const W: usize>(of: &[u32; W], w: usize) -> __m128i {
    let mut four = [0; 4];
    // SAFETY: SSE2, which every x86-64 has; four words.
    unsafe {
        if w + 4 <= W {
            return _mm_loadu_si128(of.as_ptr().add(w).cast());
        }
        four[..W - w].copy_from_slice(&of[w..]);
        _mm_loadu_si128(four.as_ptr().cast())
    }
}

/// Where `key` does not fulfil the condition: each word as its kind asks for. (Inlined always, and so without instructions of
/// its own: it has those of its caller.)
#[inline(always)]
fn failing(_: isa::Sse42, kinds: &[WordKind], low: __m128i, high: __m128i, key: __m128i) -> __m128i {
    // SAFETY: the witness proves SSE4.2.
    unsafe {
        let of = |kind: WordKind| {
            let lane = |w: usize| if kinds.get(w) == Some(&kind) { -1 } else { 0 };
            _mm_setr_epi32(lane(0), lane(1), lane(2), lane(3))
        };
        let ternary = _mm_xor_si128(_mm_and_si128(key, high), low);
        let halves = _mm_or_si128(_mm_subs_epu16(low, key), _mm_subs_epu16(key, high));
        let below = _mm_xor_si128(_mm_max_epu32(key, low), key);
        let whole = _mm_or_si128(below, _mm_xor_si128(_mm_min_epu32(key, high), key));
        _mm_or_si128(
            _mm_and_si128(ternary, of(WordKind::Ternary)),
            _mm_or_si128(
                _mm_and_si128(halves, of(WordKind::Range16)),
                _mm_and_si128(whole, of(WordKind::Range32)),
            ),
        )
    }
}

#[inline(always)]
pub(super) fn matches<const W: usize>(
    isa: isa::Sse42,
    kinds: &[WordKind; W],
    record: Record<'_, W>,
    key: &[u32; W],
) -> bool {
    // SAFETY: the witness proves SSE4.2.
    unsafe {
        let mut all = _mm_setzero_si128();
        for w in (0..W).step_by(4) {
            let four = |of: &[u32; W]| words(of, w);
            all =
                _mm_or_si128(all, failing(isa, &kinds[w..], four(record.low), four(record.high), four(key)));
        }
        _mm_testz_si128(all, all) == 1
    }
}

impl TreeOps for isa::Sse42 {
    #[inline(always)]
    fn gather<const W: usize>(self, mask: &[u32; W], key: &[u32; W]) -> u32 {
        bits::gather(mask, key)
    }

    #[inline(always)]
    fn candidates(self, block: &Block, signature: u32) -> u32 {
        candidates(block, signature)
    }

    #[inline(always)]
    fn passing(self, ends: &Ends, ranges: u32, key: u32) -> u32 {
        passing(self, ends, ranges, key)
    }

    #[inline(always)]
    fn matches<const W: usize>(self, kinds: &[WordKind; W], record: Record<'_, W>, key: &[u32; W]) -> bool {
        matches(self, kinds, record, key)
    }
}
