//! Miniflow: a key without its zeros.
//!
//! A bitmap of the words that may be non-zero, and those words, packed, in ascending order: 8 + 4·n bytes
//! instead of 264. (The paper's 64-bit unit, *Leveraging SIMD parallelism*, §3.2, is two adjacent words,
//! low then high: bit u of its bitmap is set where bit 2u or 2u + 1 is set here.)

use super::key::{BitIter, Flow, WORDS};

/// The words of a key or mask that may be non-zero, packed, at most `N` of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Miniflow<const N: usize = WORDS> {
    present: u64,
    words: [u32; N],
}

impl<const N: usize> Miniflow<N> {
    /// One without words.
    pub const EMPTY: Self = Self { present: 0, words: [0; N] };

    /// Packs `flow`; none where it has more than `N` words.
    #[inline]
    pub fn pack<K>(flow: &Flow<K>) -> Option<Self> {
        let mut out = Self::EMPTY;
        if flow.present().count_ones() as usize > N {
            return None;
        }
        out.present = flow.present();
        for (packed, w) in out.words.iter_mut().zip(BitIter(flow.present())) {
            *packed = flow.word(w);
        }
        Some(out)
    }

    /// The key or mask that was packed.
    pub fn unpack<K>(&self) -> Flow<K> {
        let mut flow = Flow::zero();
        for (&packed, w) in self.words.iter().zip(BitIter(self.present)) {
            flow.set_word(w, packed);
        }
        flow
    }

    /// Bit `w` is set where word `w` may be non-zero.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// The packed words.
    pub fn words(&self) -> &[u32] {
        &self.words[..self.present.count_ones() as usize]
    }

    /// Word `w` of the key, zero where it is not present.
    #[inline]
    pub fn word(&self, w: usize) -> u32 {
        if self.present >> w & 1 == 0 {
            return 0;
        }
        self.words[(self.present & ((1 << w) - 1)).count_ones() as usize]
    }

    /// Whether this is `flow`, packed: the same bitmap and the same words.
    #[inline]
    pub fn is<K>(&self, flow: &Flow<K>) -> bool {
        let mut different = self.present ^ flow.present();
        for (&packed, w) in self.words.iter().zip(BitIter(self.present)) {
            different |= u64::from(packed ^ flow.word(w));
        }
        different == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::key::FlowKey;

    #[test]
    fn packing_keeps_every_word() {
        let mut key = FlowKey::zero();
        for (i, w) in [0, 7, 25, 38, 63].into_iter().enumerate() {
            key.set_word(w, i as u32 * 3);
        }
        let mini: Miniflow<8> = Miniflow::pack(&key).unwrap();
        assert_eq!(mini.unpack(), key);
        assert!(mini.is(&key));
        assert_eq!(mini.words(), [0, 3, 6, 9, 12]);
        for w in 0..WORDS {
            assert_eq!(mini.word(w), key.word(w));
        }
        key.set_word(38, 1000);
        assert!(!mini.is(&key));
    }

    #[test]
    fn a_key_with_too_many_words_is_not_packed() {
        let mut key = FlowKey::zero();
        (0..5).for_each(|w| key.set_word(w, 1));
        assert_eq!(Miniflow::<4>::pack(&key), None);
        assert!(Miniflow::<5>::pack(&key).is_some());
    }
}
