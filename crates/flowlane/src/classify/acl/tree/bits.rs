//! Bit extraction from keys.

/// Extracts the bits of `key` under `mask`, those of the first word lowest: `pext` for machines that lack it, run after run.
#[inline]
pub(super) fn gather<const W: usize>(mask: &[u32; W], key: &[u32; W]) -> u32 {
    let (mut out, mut have) = (0u64, 0);
    for (&mask, &key) in mask.iter().zip(key) {
        let mut left = mask;
        while left != 0 {
            let shift = left.trailing_zeros();
            let run = (left >> shift).trailing_ones();
            out |= (u64::from(key >> shift) & ((1 << run) - 1)) << have;
            have += run;
            left &= ((u64::MAX << (shift + run)) & u64::from(u32::MAX)) as u32;
        }
    }
    out as u32
}

/// Puts the lowest bits of `bits` into the places of `mask`, those of the first word first: what [`gather`] gave back.
pub(super) fn scatter<const W: usize>(mask: &[u32; W], mut bits: u32) -> [u32; W] {
    let mut out = [0; W];
    for (out, &mask) in out.iter_mut().zip(mask) {
        let of_word = mask.count_ones();
        let mut own = u64::from(bits) & ((1 << of_word) - 1);
        bits = (u64::from(bits) >> of_word) as u32;
        let mut left = mask;
        while own != 0 {
            *out |= (left & left.wrapping_neg()) * (own & 1) as u32;
            own >>= 1;
            left &= left - 1;
        }
    }
    out
}

/// Returns the number of bits of a mask.
pub(super) fn count<const W: usize>(mask: &[u32; W]) -> u32 {
    mask.iter().map(|m| m.count_ones()).sum()
}
