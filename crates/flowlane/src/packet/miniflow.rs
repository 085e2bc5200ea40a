//! Miniflow: a key without its zeros.
//!
//! A bitmap of the words that may be non-zero, and those words, packed, in ascending order: 8 + 4·n bytes
//! instead of 264. (The paper's 64-bit unit, *Leveraging SIMD parallelism*, §3.2, is two adjacent words,
//! low then high: bit u of its bitmap is set where bit 2u or 2u + 1 is set here.)

use super::key::{BitIter, Flow};

/// The words of a key or mask that may be non-zero, packed, at most `N` of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Miniflow<const N: usize> {
    present: u64,
    words: [u32; N],
}

impl<const N: usize> Miniflow<N> {
    /// One without words.
    pub const EMPTY: Self = Self { present: 0, words: [0; N] };

    /// Packs `flow`; none where it has more than `N` words.
    #[inline]
    pub fn pack<K>(flow: &Flow<K>) -> Option<Self> {
        let mut out = Self { present: flow.present(), ..Self::EMPTY };
        pack_words(flow, &mut out.words).then_some(out)
    }

    /// Gives `flow` this content, whatever it had.
    #[inline]
    pub fn unpack<K>(&self, flow: &mut Flow<K>) {
        unpack_words(self.present, &self.words, flow);
    }

    /// Whether this is `flow`, packed: the same bitmap and the same words.
    #[inline]
    pub(crate) fn is<K>(&self, flow: &Flow<K>) -> bool {
        let mut different = self.present ^ flow.present();
        for (&packed, w) in self.words.iter().zip(BitIter(self.present)) {
            different |= u64::from(packed ^ flow.word(w));
        }
        different == 0
    }
}

/// Writes the words that `flow` marks present, ascending, to the beginning of `packed`. Says whether there was room for all.
#[inline]
pub fn pack_words<K>(flow: &Flow<K>, packed: &mut [u32]) -> bool {
    for (packed, w) in packed.iter_mut().zip(BitIter(flow.present())) {
        *packed = flow.word(w);
    }
    flow.present().count_ones() as usize <= packed.len()
}

/// Gives `flow` the words that [`pack_words`] has packed of one with this bitmap, whatever it had.
#[inline]
pub fn unpack_words<K>(present: u64, packed: &[u32], flow: &mut Flow<K>) {
    let words = flow.words_mut();
    for (&packed, w) in packed.iter().zip(BitIter(present)) {
        words[w] = packed;
    }
    flow.finish(present);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::key::{FlowKey, WORDS};

    #[test]
    fn what_is_packed_is_its_key_and_no_other() {
        let mut key = FlowKey::zero();
        for (i, w) in [0, 7, 25, 38, 63].into_iter().enumerate() {
            key.set_word(w, i as u32 * 3);
        }
        let mini: Miniflow<8> = Miniflow::pack(&key).unwrap();
        assert!(mini.is(&key));
        let mut unpacked = FlowKey::zero();
        (0..WORDS).step_by(3).for_each(|w| unpacked.set_word(w, 9));
        mini.unpack(&mut unpacked);
        assert_eq!((unpacked.present(), unpacked.words()), (key.present(), key.words()));
        for w in 0..WORDS {
            let mut other = key.clone();
            other.set_word(w, key.word(w) ^ 1000);
            assert!(!mini.is(&other), "another word {w}");
        }
    }

    #[test]
    fn a_key_with_too_many_words_is_not_packed() {
        let mut key = FlowKey::zero();
        (0..5).for_each(|w| key.set_word(w, 1));
        assert_eq!(Miniflow::<4>::pack(&key), None);
        assert!(Miniflow::<5>::pack(&key).is_some());
    }
}
