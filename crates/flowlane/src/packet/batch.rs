//! Transposed batch: one array per key word, one lane per packet.
//!
//! `words[w][lane]` only for the words that some mask in use looks at. Absent fields are zero, so that
//! every packet has every word and none is exceptional.

use super::key::{BitIter, FlowKey, FlowMask, WORDS};

/// The most lanes that a [`LaneMask`] has.
pub const LANES_MAX: usize = 64;

/// Which lanes of a batch are meant: bit i stands for lane i.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LaneMask(pub u64);

impl LaneMask {
    /// The lanes 0 to `n` - 1, `n` at most 64.
    pub fn first(n: usize) -> Self {
        Self(if n == 0 { 0 } else { u64::MAX >> (64 - n) })
    }

    /// Whether no lane is meant.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The lanes, ascending.
    #[inline(always)]
    pub fn lanes(self) -> BitIter {
        BitIter(self.0)
    }

    /// Leaves out a lane.
    #[inline(always)]
    pub fn remove(&mut self, lane: usize) {
        self.0 &= !(1 << lane);
    }

    /// Number of lanes.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

/// Up to `N` keys, transposed.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct TransposedBatch<const N: usize = 32> {
    words: Vec<[u32; N]>,
    /// Where word `w` of the key lies in `words`; [`ABSENT`] where no mask looks at it.
    places: [u8; WORDS],
    used: u64,
    /// The lanes that hold a packet.
    pub live: LaneMask,
}

const ABSENT: u8 = u8::MAX;

impl<const N: usize> TransposedBatch<N> {
    /// A batch of the words that `looked_at` (the union of the masks in use) has.
    ///
    /// # Panics
    /// Where `N` is more than [`LANES_MAX`].
    pub fn new(looked_at: &FlowMask) -> Self {
        const { assert!(N <= LANES_MAX) };
        let mut places = [ABSENT; WORDS];
        let mut used = 0;
        let mut count = 0;
        for w in looked_at.present_words().filter(|&w| looked_at.word(w) != 0) {
            places[w] = count;
            count += 1;
            used |= 1 << w;
        }
        Self { words: vec![[0; N]; count.into()], places, used, live: LaneMask(0) }
    }

    /// Fills the first lanes with `keys`, and clears the others.
    ///
    /// # Panics
    /// Where there are more keys than lanes.
    pub fn fill(&mut self, keys: &[FlowKey]) {
        assert!(keys.len() <= N, "{} keys for {N} lanes", keys.len());
        for (place, w) in self.words.iter_mut().zip(BitIter(self.used)) {
            for (lane, key) in place.iter_mut().zip(keys) {
                *lane = key.word(w);
            }
            place[keys.len()..].fill(0);
        }
        self.live = LaneMask::first(keys.len());
    }

    /// Word `w` of every lane; none where no mask looks at it.
    #[inline]
    pub fn word(&self, w: usize) -> Option<&[u32; N]> {
        self.words.get(usize::from(self.places[w]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_holds_its_packet_and_the_rest_are_zero() {
        let mut mask = FlowMask::zero();
        mask.or_word(3, 1);
        mask.or_word(63, 0xff);
        let mut batch = TransposedBatch::<32>::new(&mask);
        for n in [32, 31, 1, 0] {
            let keys: Vec<FlowKey> = (0..n)
                .map(|i| {
                    let mut key = FlowKey::zero();
                    key.set_word(3, i + 1);
                    key.set_word(63, 100 + i);
                    key
                })
                .collect();
            batch.fill(&keys);
            assert_eq!(batch.live.len(), n as usize);
            for lane in 0..32u32 {
                let live = u32::from(lane < n);
                assert_eq!(batch.word(3).unwrap()[lane as usize], live * (lane + 1));
                assert_eq!(batch.word(63).unwrap()[lane as usize], live * (100 + lane));
            }
            assert_eq!(batch.word(4), None);
        }
    }
}
