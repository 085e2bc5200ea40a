//! Transposed batch: one array per key word, one slot per packet.
//!
//! ```text
//! keys     lane 0: w0 w1 .. w63   lane 1: w0 w1 .. w63   ..            as parsed
//! batch    w25: [slot 0, slot 1, ..]   w40: [slot 0, slot 1, ..]   ..  as looked up
//! ```
//!
//! Only the words that some mask in use looks at are here, each at a fixed place. Absent fields are zero,
//! so that every packet has every word and none is exceptional (the paper's form, *Leveraging SIMD
//! parallelism* §3.2, holds a packet's n-th present word at place n, which fits only packets of the
//! majority's shape). Lanes that need no lookup get no slot, and `TransposedBatch::keep` closes the gaps
//! that resolved lanes leave, so that vectors stay full.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

use super::key::{BitIter, FlowKey, FlowMask, WORDS};
use crate::isa::Backend;
use crate::memory::Memory;

/// The most lanes that a [`LaneMask`] has.
pub const LANES_MAX: usize = 64;

/// Slots that are worked on together: one 512-bit register of 32-bit words.
pub const BLOCK: usize = 16;

/// A set of lanes of a batch: bit i is set for lane i.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LaneMask(pub u64);

impl LaneMask {
    /// The lanes 0 to `n` - 1, `n` at most 64.
    pub fn first(n: usize) -> Self {
        Self(if n == 0 { 0 } else { u64::MAX >> (64 - n) })
    }

    /// Returns whether the set is empty.
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
    #[inline(always)]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

/// The numbers of all lanes, as lanes and as slots.
const LANE_NUMBERS: [u32; LANES_MAX] = {
    let mut numbers = [0; LANES_MAX];
    let mut lane = 0;
    while lane < LANES_MAX {
        numbers[lane] = lane as u32;
        lane += 1;
    }
    numbers
};

const SLOT_NUMBERS: [u8; LANES_MAX] = {
    let mut numbers = [0; LANES_MAX];
    let mut slot = 0;
    while slot < LANES_MAX {
        numbers[slot] = slot as u8;
        slot += 1;
    }
    numbers
};

/// One word of all slots.
pub type Column = [u32; LANES_MAX];

/// Up to [`LANES_MAX`] keys, transposed.
#[derive(Debug)]
pub(crate) struct TransposedBatch {
    columns: Memory<Column>,
    /// The key words that have a column, in its order.
    words: Vec<u8>,
    /// The lane of each slot.
    lanes: [u32; LANES_MAX],
    len: usize,
    /// Whether the lanes are the first ones, so that each has its own number as its slot.
    in_place: bool,
}

impl TransposedBatch {
    /// A batch of the words that `looked_at` (the union of the masks in use) has.
    pub(crate) fn new(looked_at: &FlowMask) -> Self {
        let words: Vec<u8> =
            looked_at.present_words().filter(|&w| looked_at.word(w) != 0).map(|w| w as u8).collect();
        Self { columns: Memory::zeroed(words.len()), words, lanes: [0; LANES_MAX], len: 0, in_place: true }
    }

    /// The column of word `w`; none where no mask looks at it.
    pub(crate) fn place(&self, w: usize) -> Option<usize> {
        self.words.iter().position(|&have| usize::from(have) == w)
    }

    /// Gives each of the `live` lanes a slot, in their order, and fills the columns with their keys' words.
    /// The content of slots without a lane is unspecified.
    ///
    /// # Panics
    /// Where a live lane has no key.
    #[inline]
    pub(crate) fn fill(&mut self, body: Backend, keys: &[FlowKey], live: LaneMask) {
        assert!(64 - live.0.leading_zeros() as usize <= keys.len(), "a live lane has no key");
        self.len = live.len();
        self.in_place = live == LaneMask::first(self.len);
        if self.in_place {
            self.lanes = LANE_NUMBERS;
        } else {
            for (slot, lane) in self.lanes.iter_mut().zip(live.lanes()) {
                *slot = lane as u32;
            }
        }
        // Whole blocks are filled: the slots behind the last must name a lane, too.
        self.lanes[self.len..self.len.next_multiple_of(BLOCK)].fill(0);
        if self.len == 0 {
            return;
        }
        let lanes = &self.lanes[..self.len.next_multiple_of(BLOCK)];
        match body {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has AVX2.
            Backend::Avx2(_) => unsafe { avx2::fill(keys, &self.words, lanes, &mut self.columns) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
            Backend::Avx512(_) => unsafe { avx512::fill(keys, &self.words, lanes, &mut self.columns) },
            #[cfg(target_arch = "aarch64")]
            Backend::Neon(_) => {
                // It has no registers of whole blocks.
                let lanes = &self.lanes[..self.len.next_multiple_of(neon::TOGETHER)];
                neon::fill(keys, &self.words, lanes, &mut self.columns);
            }
            _ => scalar::fill(keys, &self.words, lanes, &mut self.columns),
        }
    }

    /// Keeps the slots of the bitmap `slots` only, moved together in their order.
    #[inline]
    pub(crate) fn keep(&mut self, body: Backend, slots: u64) {
        let slots = slots & LaneMask::first(self.len).0;
        self.len = slots.count_ones() as usize;
        self.in_place = false;
        match body {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
            Backend::Avx512(_) => unsafe {
                avx512::keep(slots, &mut self.lanes);
                self.columns.iter_mut().for_each(|column| avx512::keep(slots, column));
            },
            _ => {
                scalar::keep(slots, &mut self.lanes);
                self.columns.iter_mut().for_each(|column| scalar::keep(slots, column));
            }
        }
    }

    /// Number of slots in use.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The lane of a slot.
    #[inline(always)]
    pub(crate) fn lane(&self, slot: usize) -> usize {
        self.lanes[slot] as usize
    }

    /// The lanes of all slots; behind those in use, unspecified ones.
    #[inline(always)]
    pub(crate) fn lanes(&self) -> &[u32; LANES_MAX] {
        &self.lanes
    }

    /// The slot of each lane that has one.
    #[inline(always)]
    pub(crate) fn slots(&self) -> [u8; LANES_MAX] {
        let mut slots = SLOT_NUMBERS;
        if self.in_place {
            return slots;
        }
        for (slot, &lane) in self.lanes[..self.len].iter().enumerate() {
            slots[lane as usize % LANES_MAX] = slot as u8;
        }
        slots
    }

    /// Blocks that hold the slots in use.
    #[inline(always)]
    pub(crate) fn blocks(&self) -> usize {
        self.len.div_ceil(BLOCK)
    }

    /// All columns.
    #[inline(always)]
    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }
}

const _: () = assert!(size_of::<FlowKey>().is_multiple_of(4) && size_of::<FlowKey>() >= 4 * WORDS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::testing::for_each_variant;

    #[test]
    fn every_live_lane_gets_a_slot_and_keeps_it_until_it_is_dropped() {
        let mut mask = FlowMask::zero();
        mask.or_word(3, 1);
        mask.or_word(40, 1);
        mask.or_word(75, 0xff);
        let keys: Vec<FlowKey> = (0..64)
            .map(|i| {
                let mut key = FlowKey::zero();
                key.set_word(3, i + 1);
                key.set_word(75, 100 + i);
                key
            })
            .collect();
        for_each_variant(|variant| {
            let body = Backend::of(variant).unwrap();
            let mut batch = TransposedBatch::new(&mask);
            assert_eq!((batch.place(3), batch.place(4), batch.place(75)), (Some(0), None, Some(2)));
            let patterns = [0, 1, u64::MAX, 1 << 63, 0x8000_0001, 0xaaaa_5555_0f0f_3333, 0xffff_0000];
            for (i, live) in patterns.into_iter().enumerate() {
                batch.fill(body, &keys, LaneMask(live));
                let kept = [u64::MAX, 0x5555_5555_5555_5555, 0xfff0_0fff_f00f_1234, 0][i % 4];
                let lanes: Vec<usize> = LaneMask(live).lanes().collect();
                check(&batch, &lanes);
                batch.keep(body, kept);
                let lanes: Vec<usize> = lanes
                    .into_iter()
                    .enumerate()
                    .filter(|(s, _)| kept >> s & 1 == 1)
                    .map(|(_, l)| l)
                    .collect();
                check(&batch, &lanes);
            }
        });
    }

    fn check(batch: &TransposedBatch, lanes: &[usize]) {
        assert_eq!(batch.len(), lanes.len());
        for (slot, &lane) in lanes.iter().enumerate() {
            assert_eq!(batch.lane(slot), lane);
            let words: Vec<u32> = batch.columns().iter().map(|c| c[slot]).collect();
            assert_eq!(words, [lane as u32 + 1, 0, lane as u32 + 100]);
        }
    }
}
