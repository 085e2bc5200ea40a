//! The NEON kernel: leaves and records as in [`quad`](super::quad); bits of keys by shifts that are known for each node.
//!
//! AArch64 has no `pext`. A run of bits in a word goes to its place by one shift, and runs of four words are shifted at once, each by a
//! distance of its own (`ushl`): as many steps as the word with the most runs has.

use std::arch::aarch64::*;

use super::lanes::TreeOps;
use super::leaf::Block;
use super::range_filter::Ends;
use super::record::Record;
use super::{Node, bits, quad};
use crate::classify::acl::WordKind;
use crate::isa::Neon;
use crate::isa::simd::Registers;

/// Words of a register.
const LANES: usize = 4;

/// Most words of a key whose bits are moved in steps.
const WORDS_MAX: usize = 16;

/// A step: a run of each of four words is shifted to its place, to the right where the distance is negative.
#[derive(Clone, Copy, Debug)]
struct Step {
    distance: [i32; LANES],
    keep: [u32; LANES],
}

/// The steps that do what [`bits::gather`] does under a mask.
#[derive(Clone, Debug, Default)]
struct Steps {
    steps: Vec<Step>,
    /// How many of them each four words of the key take.
    counts: [u8; WORDS_MAX / LANES],
}

/// The steps for the index and for the signature of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    cut: Steps,
    sign: Steps,
}

impl Moves {
    /// Returns the steps for these masks.
    pub(super) fn of<const W: usize>(cut: &[u32; W], sign: &[u32; W]) -> Box<Self> {
        Box::new(Self { cut: Steps::of(cut), sign: Steps::of(sign) })
    }

    /// Returns the bytes allocated.
    pub(super) fn size_bytes(&self) -> usize {
        size_of::<Self>() + (self.cut.steps.len() + self.sign.steps.len()) * size_of::<Step>()
    }
}

impl Steps {
    fn of<const W: usize>(mask: &[u32; W]) -> Self {
        let mut made = Self::default();
        if W > WORDS_MAX {
            return made;
        }
        let mut have = 0;
        for (words, count) in mask.chunks(LANES).zip(&mut made.counts) {
            let from = made.steps.len();
            for (lane, &word) in words.iter().enumerate() {
                let (mut left, mut at) = (word, from);
                while left != 0 {
                    let run = (left >> left.trailing_zeros()).trailing_ones();
                    let bits = left & (u32::MAX >> (32 - run)) << left.trailing_zeros();
                    if at == made.steps.len() {
                        made.steps.push(Step { distance: [0; LANES], keep: [0; LANES] });
                    }
                    let distance = have - bits.trailing_zeros() as i32;
                    made.steps[at].distance[lane] = distance;
                    made.steps[at].keep[lane] =
                        if distance < 0 { bits >> -distance } else { bits << distance };
                    left &= !bits;
                    have += run as i32;
                    at += 1;
                }
            }
            *count = (made.steps.len() - from) as u8;
        }
        made
    }
}

/// [`bits::gather`] by the steps of its mask.
#[inline]
#[target_feature(enable = "neon")]
fn gather<const W: usize>(isa: Neon, steps: &Steps, key: &[u32; W]) -> u32 {
    let (mut out, mut rest) = (isa.splat(0), &steps.steps[..]);
    for (words, &count) in key.chunks(LANES).zip(&steps.counts) {
        let (own, others) = rest.split_at(count.into());
        let mut four = [0; LANES];
        four[..words.len()].copy_from_slice(words);
        let four = isa.load(&four);
        for step in own {
            // SAFETY: four distances.
            let distance = unsafe { vld1q_s32(step.distance.as_ptr()) };
            out = isa.mask_or(out, isa.and(vshlq_u32(four, distance), isa.load(&step.keep)));
        }
        rest = others;
    }
    // Each run has a place of its own, so that the sum is their union.
    vaddvq_u32(out)
}

impl TreeOps for Neon {
    #[inline(always)]
    fn cut<const W: usize>(self, node: &Node<W>, key: &[u32; W]) -> u32 {
        if W > WORDS_MAX {
            return bits::gather(&node.cut, key);
        }
        // SAFETY: the witness proves NEON; so below.
        unsafe { gather(self, &node.moves.cut, key) }
    }

    #[inline(always)]
    fn sign<const W: usize>(self, node: &Node<W>, key: &[u32; W]) -> u32 {
        if W > WORDS_MAX {
            return bits::gather(&node.sign, key);
        }
        // SAFETY: as above.
        unsafe { gather(self, &node.moves.sign, key) }
    }

    #[inline(always)]
    fn candidates(self, block: &Block, signature: u32) -> u32 {
        quad::candidates(self, block, signature)
    }

    #[inline(always)]
    fn passing(self, ends: &Ends, ranges: u32, key: u32) -> u32 {
        quad::passing(self, ends, ranges, key)
    }

    #[inline(always)]
    fn matches<const W: usize>(self, kinds: &[WordKind; W], record: Record<'_, W>, key: &[u32; W]) -> bool {
        quad::matches(self, kinds, record, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Random;

    fn steps_agree<const W: usize>() {
        let mut random = Random::new(W as u64);
        for round in 0..500 {
            // At most 32 bits, in few runs and in many.
            let mut mask = [0; W];
            for _ in 0..random.below(33) {
                let bit = random.below(32);
                mask[random.index(W)] |= if round % 2 == 0 { 1 << bit } else { 3u32 << bit };
                if bits::count(&mask) > 32 {
                    mask = [0; W];
                }
            }
            let key: [u32; W] = std::array::from_fn(|_| random.bits() as u32);
            let Some(isa) = Neon::detect() else { return };
            // SAFETY: the CPU has NEON, as was just detected.
            let found = unsafe { gather(isa, &Steps::of(&mask), &key) };
            assert_eq!(found, bits::gather(&mask, &key), "{mask:x?} {key:x?}");
        }
    }

    #[test]
    fn steps_gather_the_bits_under_a_mask_for_keys_of_every_size() {
        steps_agree::<1>();
        steps_agree::<3>();
        steps_agree::<4>();
        steps_agree::<5>();
        steps_agree::<10>();
        steps_agree::<16>();
    }
}
