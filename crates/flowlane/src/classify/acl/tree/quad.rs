//! Leaves and records in registers of 128 bits; for SSE4.2 also the kernel, with bits of keys by portable code.

use super::leaf::{Block, MASKS, RULES};
use super::range_filter::{Ends, HIGH};
use super::record::Record;
#[cfg(target_arch = "x86_64")]
use super::{Node, bits, lanes::TreeOps};
use crate::classify::acl::WordKind;
#[cfg(target_arch = "x86_64")]
use crate::isa;
use crate::isa::simd::Quad;

/// The candidates of a block.
#[inline(always)]
pub(super) fn candidates<Q: Quad>(isa: Q, block: &Block, signature: u32) -> u32 {
    let signature = isa.splat(signature);
    let equal = |four: usize| {
        // SAFETY: a block has sixteen values and then as many masks, and is aligned to a cache line.
        let (values, masks) = unsafe {
            let values = block.as_ptr().add(4 * four);
            (isa.load_aligned(values), isa.load_aligned(values.add(MASKS)))
        };
        isa.equal_in(isa.mask_all(), isa.and(signature, masks), values)
    };
    // The sentinel behind the last rule is no rule.
    isa.bits_of_four([equal(0), equal(1), equal(2), equal(3)]) & ((1 << RULES) - 1)
}

/// The rules of a block that pass the second test.
#[inline(always)]
pub(super) fn passing<Q: Quad>(isa: Q, ends: &Ends, ranges: u32, key: u32) -> u32 {
    let (ranges, key) = (isa.splat(ranges), isa.splat(key));
    let within = |four: usize| {
        // SAFETY: there are sixteen low ends and then as many high ends, aligned to a cache line.
        let (low, high) = unsafe {
            let low = ends.as_ptr().add(4 * four);
            (isa.load_aligned(low), isa.load_aligned(low.add(HIGH)))
        };
        let key = isa.and(key, isa.or(high, ranges));
        let top = isa.or(isa.and(high, ranges), isa.and_not(low, ranges));
        let beside = isa.or(isa.excess_halves(low, key), isa.excess_halves(key, top));
        isa.equal_in(isa.mask_all(), beside, isa.splat(0))
    };
    isa.bits_of_four([within(0), within(1), within(2), within(3)]) & ((1 << RULES) - 1)
}

/// Four words from number `w` on, zeros behind the last.
#[inline(always)]
fn words<Q: Quad, const W: usize>(isa: Q, of: &[u32; W], w: usize) -> Q::Register {
    if w + 4 <= W {
        return isa.load(&of[w..]);
    }
    let mut four = [0; 4];
    four[..W - w].copy_from_slice(&of[w..]);
    isa.load(&four)
}

/// Where `key` does not fulfil the condition: each word as its kind asks for.
#[inline(always)]
fn failing<Q: Quad>(
    isa: Q,
    kinds: &[WordKind],
    low: Q::Register,
    high: Q::Register,
    key: Q::Register,
) -> Q::Register {
    let of = |kind: WordKind| {
        let lane = |w: usize| if kinds.get(w) == Some(&kind) { u32::MAX } else { 0 };
        isa.words([lane(0), lane(1), lane(2), lane(3)])
    };
    let ternary = isa.xor(isa.and(key, high), low);
    let halves = isa.or(isa.excess_halves(low, key), isa.excess_halves(key, high));
    let below = isa.xor(isa.max(key, low), key);
    let whole = isa.or(below, isa.xor(isa.min(key, high), key));
    isa.or(
        isa.and(ternary, of(WordKind::Ternary)),
        isa.or(isa.and(halves, of(WordKind::Range16)), isa.and(whole, of(WordKind::Range32))),
    )
}

#[inline(always)]
pub(super) fn matches<Q: Quad, const W: usize>(
    isa: Q,
    kinds: &[WordKind; W],
    record: Record<'_, W>,
    key: &[u32; W],
) -> bool {
    let mut all = isa.splat(0);
    for w in (0..W).step_by(4) {
        let four = |of: &[u32; W]| words(isa, of, w);
        all = isa.or(all, failing(isa, &kinds[w..], four(record.low), four(record.high), four(key)));
    }
    isa.is_zero(all)
}

#[cfg(target_arch = "x86_64")]
impl TreeOps for isa::Sse42 {
    #[inline(always)]
    fn cut<const W: usize>(self, node: &Node<W>, key: &[u32; W]) -> u32 {
        bits::gather(&node.cut, key)
    }

    #[inline(always)]
    fn sign<const W: usize>(self, node: &Node<W>, key: &[u32; W]) -> u32 {
        bits::gather(&node.sign, key)
    }

    #[inline(always)]
    fn candidates(self, block: &Block, signature: u32) -> u32 {
        candidates(self, block, signature)
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
