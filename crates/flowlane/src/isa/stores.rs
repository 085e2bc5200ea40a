//! Words that are stored together.

/// Returns `W` words, stored four at a time.
///
/// A load whose data come from several stores waits until these have retired and are in the cache (12 to 22 cycles on Golden Cove;
/// Intel 64 and IA-32 Architectures Optimization Reference Manual, store forwarding), so that lookups of keys which were just written word
/// by word do not overlap. A load of one, two or four of these words has one store.
#[inline(always)]
pub(crate) fn stored_by_fours<const W: usize>(word: impl Fn(usize) -> u32) -> [u32; W] {
    let mut words = [0; W];
    let (fours, rest) = words.as_chunks_mut::<4>();
    let whole = 4 * fours.len();
    for (n, four) in fours.iter_mut().enumerate() {
        store_together([0, 1, 2, 3].map(|i| word(4 * n + i)), four);
    }
    rest.iter_mut().enumerate().for_each(|(n, to)| *to = word(whole + n));
    words
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn store_together(words: [u32; 4], to: &mut [u32; 4]) {
    use std::arch::x86_64::{_mm_set_epi32, _mm_storeu_si128};
    let [a, b, c, d] = words.map(u32::cast_signed);
    // SAFETY: SSE2, which every x86-64 has; four words are a register.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm_set_epi32(d, c, b, a)) };
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn store_together(words: [u32; 4], to: &mut [u32; 4]) {
    *to = words;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_are_stored() {
        let word = |n: usize| 0xf000_0000 + n as u32;
        assert_eq!(stored_by_fours::<9>(word), std::array::from_fn(word));
        assert_eq!(stored_by_fours::<3>(word), std::array::from_fn(word));
        assert_eq!(stored_by_fours::<0>(word), [0; 0]);
    }
}
