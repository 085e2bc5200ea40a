//! Wildcards: the bits of a key that an answer depends on.

use super::{Condition, WordKind};

/// Returns the mask of the shortest prefix of `key` (in the low `bits` bits) whose values all lie in `low..=high`, or all
/// outside.
fn deciding_bits(low: u32, high: u32, key: u32, bits: u32) -> u32 {
    let ones = u32::MAX >> (32 - bits);
    let decides = |mask: &u32| {
        let (first, last) = (key & mask, key | ones & !mask);
        low <= first && last <= high || last < low || high < first
    };
    let masks = (0..=bits).rev().map(|wild| (u64::from(ones) << wild) as u32 & ones);
    masks.into_iter().find(decides).unwrap_or(ones)
}

/// Returns whether word `w` fails to match, and the bits that show it.
fn word_bits<const W: usize>(condition: &Condition<W>, kind: WordKind, w: usize, key: u32) -> u32 {
    let (low, high) = (condition.low[w], condition.high[w]);
    let half = |shift: u32| {
        let of = |word: u32| word >> shift & 0xffff;
        let outside = of(key) < of(low) || of(key) > of(high);
        (outside, deciding_bits(of(low), of(high), of(key), 16) << shift)
    };
    match kind {
        WordKind::Ternary if key & high == low => high,
        // Down to the first bit that differs, which keeps the number of different masks small.
        WordKind::Ternary => high & u32::MAX << (key & high ^ low).ilog2(),
        WordKind::Range32 => deciding_bits(low, high, key, 32),
        WordKind::Range16 => match [half(0), half(16)] {
            [(true, bits), _] | [_, (true, bits)] => bits,
            [(_, low), (_, high)] => low | high,
        },
    }
}

/// Adds the bits that show whether `key` fulfils the condition, and returns whether it does. Where the bits that are
/// there already rule it out, adds none.
pub(crate) fn look_at<const W: usize>(
    condition: &Condition<W>,
    kinds: &[WordKind; W],
    key: &[u32; W],
    looked_at: &mut [u32; W],
) -> bool {
    let ruled_out = |w: usize| {
        kinds[w] == WordKind::Ternary && (key[w] ^ condition.low[w]) & condition.high[w] & looked_at[w] != 0
    };
    if (0..W).any(ruled_out) {
        return false;
    }
    if let Some(w) = (0..W).find(|w| !condition.word_matches(kinds[*w], *w, key[*w])) {
        looked_at[w] |= word_bits(condition, kinds[w], w, key[w]);
        return false;
    }
    (0..W).for_each(|w| looked_at[w] |= word_bits(condition, kinds[w], w, key[w]));
    true
}
