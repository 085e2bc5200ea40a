//! A key without its zeros, packed.
//!
//! The set of the words that may be non-zero, and those words in ascending order: 12 + 4·n bytes instead of 528. (The paper's
//! 64-bit unit, *Leveraging SIMD parallelism*, §3.2, is two adjacent words, low then high: bit u of its bitmap is set where
//! word 2u or 2u + 1 is present here.)

use super::key::{BitIter, Flow};
use super::word_set::WordSet;

/// The words of a key or mask that may be non-zero, packed, at most `N` of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Miniflow<const N: usize> {
    low: u64,
    words: [u32; N],
    /// Words 64 to 95. Keys with later ones, which are options of tunnels and the end of NSH, are not packed.
    high: u32,
}

impl<const N: usize> Miniflow<N> {
    /// A miniflow without words.
    pub const EMPTY: Self = Self { low: 0, words: [0; N], high: 0 };

    /// Packs `flow`; `None` if it has more than `N` words, or a word that belongs to no field.
    #[inline]
    pub fn pack<K>(flow: &Flow<K>) -> Option<Self> {
        let present = flow.present();
        let mut out = Self { low: present.low(), high: present.high() as u32, ..Self::EMPTY };
        let has_room = pack_words(flow, &mut out.words);
        (has_room && u64::from(out.high) == present.high()).then_some(out)
    }

    /// The words that may be non-zero.
    #[inline(always)]
    fn present(&self) -> WordSet {
        WordSet::from_halves(self.low, self.high.into())
    }

    /// Replaces the content of `flow` with this one.
    #[inline]
    pub fn unpack<K>(&self, flow: &mut Flow<K>) {
        unpack_words(self.present(), &self.words, flow);
    }

    /// Returns whether `flow` has the same present words with the same values.
    #[inline]
    pub(crate) fn is<K>(&self, flow: &Flow<K>) -> bool {
        let (present, words) = (flow.present(), flow.words());
        let mut different = self.low ^ present.low() | u64::from(self.high) ^ present.high();
        let mut packed = self.words.iter();
        for (w, &packed) in BitIter(self.low).zip(packed.by_ref()) {
            different |= u64::from(packed ^ words[w]);
        }
        for (w, &packed) in BitIter(self.high.into()).zip(packed) {
            different |= u64::from(packed ^ words[64 | w]);
        }
        different == 0
    }
}

/// Writes the present words of `flow`, ascending, to the beginning of `packed`. Returns whether all had room.
#[inline]
pub fn pack_words<K>(flow: &Flow<K>, packed: &mut [u32]) -> bool {
    pack_some_words(flow, flow.present(), packed)
}

/// Writes the words `which` of `flow`, ascending, to the beginning of `packed`. Returns whether all had room.
#[inline]
pub fn pack_some_words<K>(flow: &Flow<K>, which: WordSet, packed: &mut [u32]) -> bool {
    let words = flow.words();
    let mut to = packed.iter_mut();
    for (w, to) in BitIter(which.low()).zip(to.by_ref()) {
        *to = words[w];
    }
    for (w, to) in BitIter(which.high()).zip(to) {
        *to = words[64 | w];
    }
    which.len() <= packed.len()
}

/// Replaces the content of `flow` with the words `present`, whose values [`pack_words`] wrote to `packed`.
#[inline]
pub fn unpack_words<K>(present: WordSet, packed: &[u32], flow: &mut Flow<K>) {
    let words = flow.words_mut();
    let mut from = packed.iter();
    for (w, &from) in BitIter(present.low()).zip(from.by_ref()) {
        words[w] = from;
    }
    for (w, &from) in BitIter(present.high()).zip(from) {
        words[64 | w] = from;
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
        for (i, w) in [0, 7, 25, 38, 63, 64, 87].into_iter().enumerate() {
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
            let packed: Option<Miniflow<9>> = Miniflow::pack(&other);
            assert_eq!(packed.is_some(), w < 96, "word {w}");
            assert!(packed.is_none_or(|packed| packed.is(&other)));
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
