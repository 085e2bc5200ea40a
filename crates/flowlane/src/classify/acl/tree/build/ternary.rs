//! Rules as bits that are 0, 1 or wild.

use crate::classify::acl::{Condition, WordKind};

/// Which keys a rule may match, at most: a range counts with the bits that its ends have in common from the top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::classify::acl::tree) struct Ternary<const W: usize> {
    /// No bit outside the mask.
    pub(in crate::classify::acl::tree) value: [u32; W],
    pub(in crate::classify::acl::tree) mask: [u32; W],
}

impl<const W: usize> Ternary<W> {
    pub(in crate::classify::acl::tree) fn of(kinds: &[WordKind; W], condition: &Condition<W>) -> Self {
        let mask = std::array::from_fn(|w| {
            let (low, high) = (condition.low[w], condition.high[w]);
            match kinds[w] {
                WordKind::Ternary => high,
                WordKind::Range32 => common_bits(low, high),
                WordKind::Range16 => {
                    common_bits(low & 0xffff, high & 0xffff) & 0xffff
                        | common_bits(low >> 16, high >> 16) << 16
                }
            }
        });
        Self { value: std::array::from_fn(|w| condition.low[w] & mask[w]), mask }
    }

    /// How many of the bits of `cut` are wild.
    pub(in crate::classify::acl::tree) fn wild(&self, cut: &[u32; W]) -> u32 {
        cut.iter().zip(&self.mask).map(|(cut, mask)| (cut & !mask).count_ones()).sum()
    }
}

/// The leading bits that both have in common.
fn common_bits(low: u32, high: u32) -> u32 {
    match low ^ high {
        0 => u32::MAX,
        differing => u32::MAX.checked_shl(differing.ilog2() + 1).unwrap_or(0),
    }
}
