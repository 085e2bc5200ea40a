//! Flow key and flow mask: [`WORDS`] 32-bit words each, and the set of those that may be non-zero.

use std::fmt;
use std::marker::PhantomData;

use super::fields::{Field, word};
use super::word_set::{WordIter, WordSet};
use crate::error::Error;

/// Number of 32-bit words in a flow key. A power of two, so that a word number is brought into bounds by one instruction.
pub const WORDS: usize = 128;

const _: () = assert!(WORDS <= crate::hash::multilinear::TERMS_MAX);

/// Marks a [`Flow`] that holds a packet's field values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Value {}

/// Marks a [`Flow`] that holds one mask bit for every bit of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bits {}

/// The words of a key ([`FlowKey`]) or of a mask ([`FlowMask`]); the two are one shape but not one type.
///
/// Each word holds its fields in host order of their network value: the four wire bytes
/// `c0 00 02 01` of an IPv4 address are the word `0xc000_0201` on every machine.
///
/// Invariant: a word that is not in [`present`](Self::present) is zero. The reverse does not hold: a word marked present may be
/// zero. Every operation touches present words only, so that a key costs what its packet has.
#[repr(C, align(64))]
pub struct Flow<K> {
    // In front, so that the words of L3 and L4 begin on a cache line: see `Flow::WORDS_AT`.
    present: WordSet,
    words: [u32; WORDS],
    kind: PhantomData<K>,
}

/// The fields of a packet.
///
/// ```
/// use flowlane::{Field, FlowKey, FlowMask};
///
/// let (mut key, mut network) = (FlowKey::zero(), FlowMask::zero());
/// key.set(Field::Ipv4Dst, 0xc000_0207); // 192.0.2.7
/// key.set(Field::TpDst, 443);
/// network.set(Field::Ipv4Dst, 0xffff_ff00);
/// let masked = key.masked(&network);
/// assert_eq!((masked.get(Field::Ipv4Dst), masked.get(Field::TpDst)), (0xc000_0200, 0));
/// assert!(key.agrees(&masked, &network));
/// ```
pub type FlowKey = Flow<Value>;

/// The bits of a key that a lookup depends on.
pub type FlowMask = Flow<Bits>;

// An odd number of cache lines: the same line of many keys falls into different sets of a cache.
const _: () = assert!(size_of::<FlowKey>() == 9 * 64);
const _: () = {
    const fn starts_line(w: usize) -> bool {
        (FlowKey::WORDS_AT + 4 * w).is_multiple_of(64)
    }
    assert!(starts_line(word::IPV6_SRC) && starts_line(word::REG));
};

impl<K> Flow<K> {
    /// Where the words begin, in bytes.
    pub(crate) const WORDS_AT: usize = std::mem::offset_of!(Self, words);

    /// A key or mask of zeros.
    pub const fn zero() -> Self {
        Self { present: WordSet::EMPTY, words: [0; WORDS], kind: PhantomData }
    }

    /// The words that may be non-zero.
    #[doc(hidden)]
    #[inline(always)]
    pub fn present(&self) -> WordSet {
        self.present
    }

    /// All words; those not present are zero.
    #[doc(hidden)]
    #[inline(always)]
    pub fn words(&self) -> &[u32; WORDS] {
        &self.words
    }

    /// Word `w`, less than [`WORDS`].
    #[doc(hidden)]
    #[inline(always)]
    pub fn word(&self, w: usize) -> u32 {
        self.words[w]
    }

    /// Sets word `w` and marks it present.
    #[doc(hidden)]
    #[inline(always)]
    pub fn set_word(&mut self, w: usize, value: u32) {
        self.words[w] = value;
        self.present.insert(w);
    }

    /// Sets the bits of word `w` that are set in `bits`, and marks it present if there are any.
    #[doc(hidden)]
    #[inline(always)]
    pub fn or_word(&mut self, w: usize, bits: u32) {
        self.words[w] |= bits;
        if bits != 0 {
            self.present.insert(w);
        }
    }

    /// Gives the parser direct access. It writes every word that it marks present, and ends with
    /// [`finish`](Self::finish).
    #[inline(always)]
    pub(crate) fn words_mut(&mut self) -> &mut [u32; WORDS] {
        &mut self.words
    }

    /// Ends a refill begun with [`words_mut`](Self::words_mut): clears the words that the previous content had and the new one,
    /// whose words are `present`, does not have. Costs two tests where both have the same words.
    #[inline(always)]
    pub(crate) fn finish(&mut self, present: WordSet) {
        self.finish_others(present, present.complement());
    }

    /// Ends a refill where all words but `others` have been written, zeros included, and none of `others` has.
    #[inline(always)]
    pub(crate) fn finish_others(&mut self, present: WordSet, others: WordSet) {
        let stale = self.present.intersection(others);
        for bit in BitIter(stale.low()) {
            self.words[bit] = 0;
        }
        // Registers and connection state: packets from ports have none.
        if stale.high() != 0 {
            self.clear_high(stale.high());
        }
        self.present = present;
    }

    #[cold]
    fn clear_high(&mut self, stale: u64) {
        BitIter(stale).for_each(|bit| self.words[64 + bit] = 0);
    }

    /// The value of `field`, right-aligned.
    pub fn get(&self, field: Field) -> u128 {
        let info = field.info();
        let mut value = 0u128;
        for (word, shift, width) in info.pieces() {
            let low = (u64::from(self.words[word]) >> shift) & ((1u64 << width) - 1);
            value = (value << width) | u128::from(low);
        }
        value
    }

    /// Sets `field` to `value`. For values that come from outside, [`try_set`](Self::try_set) returns an error instead of a panic.
    ///
    /// # Panics
    /// Where `value` is larger than the field.
    pub fn set(&mut self, field: Field, value: u128) {
        self.set_masked(field, value, u128::MAX);
    }

    /// Sets those bits of `field` that are set in `mask` to the corresponding bits of `value`.
    ///
    /// # Panics
    /// Where `value` has bits in `mask` that the field does not have.
    pub fn set_masked(&mut self, field: Field, value: u128, mask: u128) {
        field.info().assert_fits(value & mask);
        for (word, value, mask) in field.info().spread(value, mask) {
            if mask != 0 {
                self.set_word(word, (self.words[word] & !mask) | value);
            }
        }
    }

    /// Sets `field` to a `value` that may be too large for it.
    ///
    /// ```
    /// use flowlane::{Field, FlowKey};
    ///
    /// let mut key = FlowKey::zero();
    /// key.try_set(Field::TpDst, 443)?;
    /// assert!(key.try_set(Field::TpDst, 70_000).is_err());
    /// assert_eq!(key.get(Field::TpDst), 443);
    /// # Ok::<(), flowlane::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): `value` is larger than the field; nothing has changed then.
    pub fn try_set(&mut self, field: Field, value: u128) -> Result<(), Error> {
        self.try_set_masked(field, value, u128::MAX)
    }

    /// Sets those bits of `field` that are set in `mask` to the corresponding bits of `value`, as
    /// [`set_masked`](Self::set_masked) does.
    ///
    /// # Errors
    /// [`Input`](crate::ErrorKind::Input): `value` has bits in `mask` that the field does not have, or `mask` has, and is not all
    /// ones; nothing has changed then.
    pub fn try_set_masked(&mut self, field: Field, value: u128, mask: u128) -> Result<(), Error> {
        field.info().check_masked(value, mask)?;
        self.set_masked(field, value, mask);
        Ok(())
    }

    /// The indices of the words that may be non-zero, ascending.
    #[doc(hidden)]
    #[inline(always)]
    pub fn present_words(&self) -> WordIter {
        self.present.iter()
    }
}

impl FlowMask {
    /// Adds every bit of `field`.
    pub fn add_field(&mut self, field: Field) {
        self.set(field, field.info().ones());
    }

    /// Adds every bit of `other`.
    pub fn add(&mut self, other: &FlowMask) {
        for w in other.present_words() {
            self.or_word(w, other.words[w]);
        }
    }

    /// Returns whether every bit of `other` is in this mask.
    pub fn covers(&self, other: &FlowMask) -> bool {
        other.present_words().all(|w| other.words[w] & !self.words[w] == 0)
    }
}

impl FlowKey {
    /// Returns whether the two keys agree in every bit of `mask`.
    pub fn agrees(&self, other: &FlowKey, mask: &FlowMask) -> bool {
        mask.present_words().all(|w| (self.words[w] ^ other.words[w]) & mask.words[w] == 0)
    }

    /// This key with every bit outside `mask` cleared.
    pub fn masked(&self, mask: &FlowMask) -> FlowKey {
        let mut out = FlowKey::zero();
        for w in mask.present_words() {
            out.or_word(w, self.words[w] & mask.words[w]);
        }
        out
    }
}

impl<K> Default for Flow<K> {
    fn default() -> Self {
        Self::zero()
    }
}

/// Copies present words only: [`clone_from`](Clone::clone_from) does not touch the others, unless to clear them.
impl<K> Clone for Flow<K> {
    fn clone(&self) -> Self {
        let mut out = Self::zero();
        out.clone_from(self);
        out
    }

    fn clone_from(&mut self, source: &Self) {
        source.present.iter().for_each(|w| self.words[w] = source.words[w]);
        self.finish(source.present);
    }
}

/// Compares words; the sets of present words may differ where a word is zero.
impl<K> PartialEq for Flow<K> {
    fn eq(&self, other: &Self) -> bool {
        self.present.union(other.present).iter().all(|w| self.words[w] == other.words[w])
    }
}

impl<K> Eq for Flow<K> {}

impl<K> fmt::Debug for Flow<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for w in self.present_words() {
            map.entry(&w, &format_args!("{:#010x}", self.words[w]));
        }
        map.finish()
    }
}

/// Iterates over the set bits of a bitmap, lowest first.
#[derive(Clone, Copy, Debug)]
pub struct BitIter(pub u64);

impl Iterator for BitIter {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_span_words_round_trip() {
        for info in Field::named() {
            let ones = if info.width == 128 { u128::MAX } else { (1 << info.width) - 1 };
            let value = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3211 & ones;
            let mut key = FlowKey::zero();
            key.set(info.field, value);
            assert_eq!(key.get(info.field), value, "{}", info.name);
            let mut mask = FlowMask::zero();
            mask.add_field(info.field);
            assert_eq!(
                mask.words.iter().map(|w| w.count_ones()).sum::<u32>(),
                u32::from(info.width),
                "{}",
                info.name
            );
            assert!(key.masked(&mask) == key);
        }
    }

    #[test]
    fn finish_clears_what_the_previous_packet_left() {
        let mut key = FlowKey::zero();
        key.set_word(3, 7);
        key.set_word(9, 8);
        key.words_mut()[9] = 1;
        key.set_word(70, 5);
        key.finish(WordSet::of(9));
        assert_eq!((key.word(3), key.word(9), key.word(70)), (0, 1, 0));
        assert_eq!(key.present(), WordSet::of(9));
    }

    #[test]
    fn clone_copies_present_words_and_clears_the_others() {
        let mut random = crate::generate::Random::for_purpose(2, "clones");
        let mut reused = FlowKey::zero();
        for _ in 0..200 {
            let mut key = FlowKey::zero();
            for _ in 0..random.below(20) {
                key.set_word(random.index(WORDS), random.bits() as u32);
            }
            reused.clone_from(&key);
            for copy in [&reused, &key.clone()] {
                assert_eq!((copy.present(), copy.words()), (key.present(), key.words()));
                assert!(*copy == key);
            }
            let w = random.index(WORDS);
            let mut other = key.clone();
            other.set_word(w, key.word(w) ^ 1);
            assert!(other != key, "differ in word {w}");
        }
    }
}
