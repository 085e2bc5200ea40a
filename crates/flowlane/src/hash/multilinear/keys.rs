//! Keys side by side in memory, hashed together.

use super::{Multilinear, finish, term};

/// Keys that [`KeyHash::hash_keys`] takes together.
pub(crate) const KEYS: usize = 16;

/// Words that a vector sets aside for a key of this many: a power of two, so that keys do not straddle.
pub(super) const fn padded(words: usize) -> usize {
    words.next_power_of_two()
}

/// The hash of keys of `W` words, 1 to 16, under one seed: what [`Multilinear::hash_words`] gives.
#[derive(Clone, Debug)]
pub(crate) struct KeyHash<const W: usize> {
    pub(super) multipliers: [u32; W],
    /// The multipliers of words 0, 2, 4 .. of a vector of 16 words that holds as many padded keys as fit.
    pub(super) even: [u64; 8],
    /// The multipliers of words 1, 3, 5, …
    pub(super) odd: [u64; 8],
}

impl<const W: usize> KeyHash<W> {
    /// Multipliers drawn from a secret seed.
    pub(crate) fn new(seed: u64) -> Self {
        const { assert!(W >= 1 && W <= 16, "a key has 1 to 16 words") };
        let hash = Multilinear::new(seed);
        let multipliers = std::array::from_fn(|w| hash.multiplier(w));
        // A word of padding counts nothing.
        let of = |word: usize| u64::from(multipliers.get(word % padded(W)).copied().unwrap_or(0));
        Self {
            multipliers,
            even: std::array::from_fn(|i| of(2 * i)),
            odd: std::array::from_fn(|i| of(2 * i + 1)),
        }
    }

    /// Returns the hash of one key.
    #[inline(always)]
    pub(crate) fn hash(&self, key: &[u32; W]) -> u32 {
        let terms = key.iter().zip(&self.multipliers).map(|(&x, &m)| term(m, x));
        finish(terms.fold(0, u64::wrapping_add))
    }

    /// The hashes of 16 keys, in portable code.
    #[inline(always)]
    pub(crate) fn hash_keys(&self, keys: &[[u32; W]; KEYS], hashes: &mut [u32; KEYS]) {
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree<const W: usize>() {
        let hash = KeyHash::<W>::new(W as u64);
        let definition = Multilinear::new(W as u64);
        let keys: [[u32; W]; KEYS] = std::array::from_fn(|k| {
            std::array::from_fn(|w| ((k * W + w + 1) as u32).wrapping_mul(0x9e37_79b9))
        });
        let wanted = keys.map(|key| definition.hash_words(&key));
        let mut hashes = [0; KEYS];
        hash.hash_keys(&keys, &mut hashes);
        assert_eq!(hashes, wanted, "{W} words");
        #[cfg(target_arch = "x86_64")]
        if crate::isa::Avx512::detect().is_some() {
            let mut hashes = [0; KEYS];
            // SAFETY: the CPU has AVX-512, as was just detected.
            unsafe { super::super::avx512::hash_keys(&hash, &keys, &mut hashes) };
            assert_eq!(hashes, wanted, "avx512, {W} words");
        }
        #[cfg(target_arch = "aarch64")]
        if crate::isa::Neon::detect().is_some() {
            let mut hashes = [0; KEYS];
            // SAFETY: the CPU has NEON, as was just detected.
            unsafe { super::super::neon::hash_keys(&hash, &keys, &mut hashes) };
            assert_eq!(hashes, wanted, "neon, {W} words");
        }
    }

    #[test]
    fn keys_of_every_size_hash_to_what_their_words_do() {
        agree::<1>();
        agree::<2>();
        agree::<3>();
        agree::<4>();
        agree::<5>();
        agree::<6>();
        agree::<7>();
        agree::<8>();
        agree::<9>();
        agree::<11>();
        agree::<12>();
        agree::<13>();
        agree::<15>();
        agree::<16>();
    }
}
