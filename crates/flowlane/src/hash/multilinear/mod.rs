//! Multilinear hashing (Carter and Wegman 1979; Lemire and Kaser, *Strongly universal string hashing is
//! fast*, 2014): the sum of the words, each times a secret multiplier of its own.
//!
//! ```text
//! sum  = m[3]·x[3] + m[17]·x[17] + ..    mod 2⁶⁴      m: one secret 32-bit number a word of the key
//! hash = fold(sum)                                    32 bits
//! ```
//!
//! Two different keys have equal sums with a probability of at most 2⁻³¹ over the choice of the
//! multipliers, for any keys, chosen by an attacker too: for any word in which they differ, at most two values of its
//! multiplier close the gap that the others leave. MurmurHash3 has no such bound: keys are known that
//! collide under every seed (Aumasson and Bernstein 2012). Folding is fixed and adds 2⁻³² for sums that
//! are secret.
//!
//! The terms are independent: they are computed side by side, in any order, and what several masks have
//! in common is computed once. A term costs a multiplication and an addition; a step of MurmurHash3 two
//! multiplications, two rotations and an exclusive or, each waiting for the one before.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
mod keys;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;

pub(crate) use keys::{KEYS, KeyHash};

/// Words that have a multiplier.
pub const TERMS_MAX: usize = 128;

/// An odd constant with no structure: the fraction of the golden ratio.
pub(crate) const FOLD: u32 = 0x9e37_79b9;

/// The secret multipliers.
#[derive(Clone, Debug)]
pub struct Multilinear {
    multipliers: [u32; TERMS_MAX],
}

impl Multilinear {
    /// Multipliers drawn from a secret seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        let multipliers = std::array::from_fn(|_| {
            // SplitMix64 (Steele, Lea, Flood 2014): every seed gives other multipliers.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (z >> 32) as u32
        });
        Self { multipliers }
    }

    /// Returns the multiplier of word `w` of a key.
    #[inline(always)]
    pub fn multiplier(&self, w: usize) -> u32 {
        self.multipliers[w]
    }

    /// Returns the hash of a sequence of at most [`TERMS_MAX`] words.
    #[inline]
    pub fn hash_words(&self, words: &[u32]) -> u32 {
        let terms = words.iter().zip(&self.multipliers).map(|(&x, &m)| term(m, x));
        finish(terms.fold(0, u64::wrapping_add))
    }
}

/// Returns the term that a word adds to the sum.
#[inline(always)]
pub fn term(multiplier: u32, word: u32) -> u64 {
    u64::from(multiplier) * u64::from(word)
}

/// Returns the hash of a sum. All bits of it may be used, the upper ones as well as the lower ones.
#[inline(always)]
pub fn finish(sum: u64) -> u32 {
    let folded = (sum as u32 ^ (sum >> 32) as u32).wrapping_mul(FOLD);
    folded ^ folded >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys with the structure of real ones: a few bits of a few words vary.
    #[test]
    fn structured_keys_spread_over_all_parts_of_the_hash() {
        for seed in 0..8 {
            let hash = Multilinear::new(seed);
            for (word, shift) in [(0, 0), (0, 24), (1, 8), (3, 16)] {
                let mut low = [0u32; 256];
                let mut high = [0u32; 256];
                for i in 0..65_536u32 {
                    let mut words = [7, 9, 0x0800, 0xffff_ffff];
                    words[word] = (i & 0xff) << shift;
                    words[(word + 1) % 4] = (i >> 8) << shift;
                    let h = hash.hash_words(&words);
                    low[(h & 255) as usize] += 1;
                    high[(h >> 24) as usize] += 1;
                }
                // 256 expected in each; 16 standard deviations are far beyond chance.
                for (i, count) in low.iter().chain(&high).enumerate() {
                    assert!(count.abs_diff(256) < 256, "seed {seed}, word {word}: {count} in {i}");
                }
            }
        }
    }

    #[test]
    fn the_multipliers_decide_and_words_have_their_own() {
        let (a, b) = (Multilinear::new(1), Multilinear::new(2));
        assert_ne!(a.hash_words(&[1, 2]), b.hash_words(&[1, 2]));
        assert_ne!(a.hash_words(&[1, 2]), a.hash_words(&[2, 1]));
        // Trailing zeros add nothing: a word that a packet lacks is zero.
        assert_eq!(a.hash_words(&[1, 2, 0]), a.hash_words(&[1, 2]));
    }
}
