//! The AVX2 kernel: bits of keys by BMI2; leaves and records as in [`quad`](super::quad), in the encoding of AVX.

use std::arch::x86_64::_pext_u64;

use super::Node;
use super::lanes::TreeOps;
use super::leaf::Block;
use super::quad;
use super::range_filter::Ends;
use super::record::Record;
use crate::classify::acl::WordKind;
use crate::isa;

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

/// Does what [`bits::gather`](super::bits::gather) does, for changes.
pub(super) fn gather_by<const W: usize>(_: isa::Avx2, mask: &[u32; W], words: &[u32; W]) -> u32 {
    // SAFETY: the witness proves the instructions on bits.
    unsafe { gather(mask, words) }
}

impl TreeOps for isa::Avx2 {
    #[inline(always)]
    fn cut<const W: usize>(self, node: &Node<W>, key: &[u32; W]) -> u32 {
        // SAFETY: the witness proves the instructions on bits.
        unsafe { gather(&node.cut, key) }
    }

    #[inline(always)]
    fn sign<const W: usize>(self, node: &Node<W>, key: &[u32; W]) -> u32 {
        // SAFETY: the witness proves the instructions on bits.
        unsafe { gather(&node.sign, key) }
    }

    #[inline(always)]
    fn candidates(self, block: &Block, signature: u32) -> u32 {
        quad::candidates(isa::Sse42::from(self), block, signature)
    }

    #[inline(always)]
    fn passing(self, ends: &Ends, ranges: u32, key: u32) -> u32 {
        quad::passing(isa::Sse42::from(self), ends, ranges, key)
    }

    #[inline(always)]
    fn matches<const W: usize>(self, kinds: &[WordKind; W], record: Record<'_, W>, key: &[u32; W]) -> bool {
        quad::matches(isa::Sse42::from(self), kinds, record, key)
    }
}
