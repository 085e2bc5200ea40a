//! The batch in registers of 128 bits: 16 keys a probe, records and blocks are compared four words at a time.

use std::arch::aarch64::*;

use super::Dynamic;
use super::batch::{self, Columns, DynamicOps, GROUP, Kinds, Portable, Queue};
use super::rules::{BLOCK, Block, Record};
use super::table::{HEADS, TAGS, Table};
use super::winners::{BATCH, BatchWinners};
use crate::classify::acl::WordKind;
use crate::hash::multilinear::neon::{add_term, finish};
use crate::isa::Neon;
use crate::isa::simd::neon::add_neighbours;
use crate::isa::simd::{Kernel, Quad, Registers};
use crate::packet::key::BitIter;

/// The vector operations, with the witness of NEON; `WHOLE`: there are ranges over whole words.
#[derive(Clone, Copy)]
struct Lanes<const WHOLE: bool>(Neon);

/// Lanes of a register of hashes.
const LANES: usize = 4;

/// Returns the hashes of the 16 keys from `first` on.
#[inline]
#[target_feature(enable = "neon")]
fn hashes<const W: usize>(
    isa: Neon,
    table: &Table<W>,
    columns: &Columns<W>,
    first: usize,
) -> [uint32x4_t; 4] {
    let mut sums = [[vdupq_n_u64(0); 2]; GROUP / LANES];
    for term in table.terms() {
        let column = &columns.words[term.word as usize % W].as_chunks::<GROUP>().0[first / GROUP];
        let mask = isa.splat(term.mask);
        for (words, sums) in column.as_chunks::<LANES>().0.iter().zip(&mut sums) {
            *sums = add_term(*sums, term.multiplier, isa.and(isa.load(words), mask));
        }
    }
    sums.map(|sums| finish(sums))
}

/// Returns the lowest byte of each word of four registers.
#[inline]
#[target_feature(enable = "neon")]
fn lowest_bytes(words: [uint32x4_t; 4]) -> uint8x16_t {
    let [a, b, c, d] = words.map(|words| vreinterpretq_u16_u32(words));
    vuzp1q_u8(vreinterpretq_u8_u16(vuzp1q_u16(a, b)), vreinterpretq_u8_u16(vuzp1q_u16(c, d)))
}

/// Returns the highest byte of each number of 64 bits of eight registers.
#[inline]
#[target_feature(enable = "neon")]
fn highest_bytes(numbers: [uint8x16_t; GROUP / 2]) -> uint8x16_t {
    let [a, b, c, d, e, f, g, h] = numbers.map(|numbers| vreinterpretq_u32_u8(numbers));
    let words = [vuzp2q_u32(a, b), vuzp2q_u32(c, d), vuzp2q_u32(e, f), vuzp2q_u32(g, h)];
    let [a, b, c, d] = words.map(|words| vreinterpretq_u16_u32(words));
    vuzp2q_u8(vreinterpretq_u8_u16(vuzp2q_u16(a, b)), vreinterpretq_u8_u16(vuzp2q_u16(c, d)))
}

/// Returns, of 16 buckets, the slots whose tag is that of the lane: a bit each, a byte a lane.
#[inline]
#[target_feature(enable = "neon")]
fn slots(isa: Neon, fronts: [uint8x16_t; GROUP / 2], tags: uint8x16_t) -> uint8x16_t {
    // Seven tags, and no bit for what follows them.
    let weights = vreinterpretq_u8_u64(vdupq_n_u64(0x0040_2010_0804_0201));
    let two = |i: usize| {
        const EACH: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
        // SAFETY: sixteen bytes.
        let of_lane = unsafe { vld1q_u8(EACH.map(|lane| lane + 2 * i as u8).as_ptr()) };
        vandq_u8(vceqq_u8(fronts[i], vqtbl1q_u8(tags, of_lane)), weights)
    };
    // Neighbours are added until a byte has the bits of a bucket.
    let add = |a, b| add_neighbours(isa, a, b);
    let four = |i: usize| add(two(i), two(i + 1));
    add(add(four(0), four(2)), add(four(4), four(6)))
}

/// Returns four bits for each byte of ones, of which the lowest is set.
#[inline]
#[target_feature(enable = "neon")]
fn nibbles(bytes: uint8x16_t) -> u64 {
    let nibbles = vshrn_n_u16::<4>(vreinterpretq_u16_u8(bytes));
    vget_lane_u64::<0>(vreinterpret_u64_u8(nibbles)) & 0x1111_1111_1111_1111
}

/// [`DynamicOps::probe`]: nothing branches on a lane that has no candidate.
#[inline]
#[target_feature(enable = "neon")]
fn probe<const W: usize>(
    isa: Neon,
    table: &Table<W>,
    columns: &Columns<W>,
    classes: &[u8; BATCH],
    first: usize,
    queue: &mut Queue,
) {
    const NUMBERS: [u8; GROUP] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    // SAFETY: sixteen bytes each.
    let (own, numbers) = unsafe {
        (vld1q_u8(classes.as_chunks::<GROUP>().0[first / GROUP].as_ptr()), vld1q_u8(NUMBERS.as_ptr()))
    };
    let is_lane = vcltq_u8(numbers, vdupq_n_u8((columns.len - first).min(GROUP) as u8));
    // Lanes whose winner is better than all that the table has ask for nothing.
    let live = vandq_u8(is_lane, vcleq_u8(own, vdupq_n_u8(table.ceiling)));
    if vmaxvq_u8(live) == 0 {
        return;
    }
    let hashes = hashes(isa, table, columns, first);
    let tags = vmaxq_u8(lowest_bytes(hashes), vdupq_n_u8(1));
    let mut buckets = [0; GROUP];
    for (hashes, buckets) in hashes.into_iter().zip(buckets.as_chunks_mut::<LANES>().0) {
        isa.store(vshlq_u32(hashes, vdupq_n_s32(-table.shift.cast_signed())), buckets);
    }
    let fronts: [uint8x16_t; GROUP / 2] = std::array::from_fn(|two| {
        // SAFETY: bucket numbers are below the number of buckets, by the shift.
        let front = |lane: usize| unsafe { vld1_u64(table.front.as_ptr().add(buckets[lane] as usize)) };
        vreinterpretq_u8_u64(vcombine_u64(front(2 * two), front(2 * two + 1)))
    });
    // The class, above the bit that says whether rules overflowed.
    let state = highest_bytes(fronts);
    let better = vandq_u8(live, vcgeq_u8(vshrq_n_u8::<1>(state), own));
    let slots = slots(isa, fronts, tags);
    let mut slot = [0; GROUP];
    // SAFETY: sixteen bytes.
    unsafe { vst1q_u8(slot.as_mut_ptr(), vclzq_u8(vrbitq_u8(slots))) };
    for nibble in BitIter(nibbles(vandq_u8(better, vtstq_u8(slots, slots)))) {
        let lane = nibble / 4 % GROUP;
        queue.push(first + lane, buckets[lane] as usize * HEADS + usize::from(slot[lane]));
    }
    for nibble in BitIter(nibbles(vandq_u8(better, vtstq_u8(state, vdupq_n_u8(1))))) {
        let lane = nibble / 4 % GROUP;
        queue.push(first + lane, buckets[lane] as usize * HEADS + TAGS);
    }
}

/// Words `at` to `at + 3` of a record that differ from what the key must have there.
#[inline(always)]
fn wrong<const W: usize, const WHOLE: bool>(
    isa: Neon,
    kinds: &Kinds,
    record: &Record<W>,
    key: &[u32; W],
    at: usize,
) -> uint32x4_t {
    let [key, low, high] = [key, &record.low, &record.high].map(|words| isa.load(&words[at..]));
    let ranges = isa.load(&kinds.ranges[at..]);
    let key = isa.and(key, isa.or(high, ranges));
    let top = isa.or(isa.and(high, ranges), isa.and_not(low, ranges));
    let halves = isa.or(isa.excess_halves(low, key), isa.excess_halves(key, top));
    if !WHOLE {
        return halves;
    }
    let whole = isa.or(isa.xor(isa.max(key, low), key), isa.xor(isa.min(key, top), key));
    let is_whole = isa.load(&kinds.whole[at..]);
    isa.or(isa.and(whole, is_whole), isa.and_not(halves, is_whole))
}

impl<const WHOLE: bool> DynamicOps for Lanes<WHOLE> {
    #[inline(always)]
    fn probe<const W: usize>(
        self,
        table: &Table<W>,
        columns: &Columns<W>,
        classes: &[u8; BATCH],
        first: usize,
        queue: &mut Queue,
    ) {
        // SAFETY: the witness proves that the CPU has NEON.
        unsafe { probe(self.0, table, columns, classes, first, queue) }
    }

    #[inline(always)]
    fn matches<const W: usize>(self, kinds: &Kinds, record: &Record<W>, key: &[u32; W]) -> bool {
        if W < 4 {
            return Portable.matches(kinds, record, key);
        }
        // The last four words, some of which may be compared twice, and all before them.
        let last = wrong::<W, WHOLE>(self.0, kinds, record, key, W - 4);
        let all = (0..W - 4)
            .step_by(4)
            .fold(last, |all, at| self.0.or(all, wrong::<W, WHOLE>(self.0, kinds, record, key, at)));
        self.0.is_zero(all)
    }

    #[inline(always)]
    fn block_matches<const W: usize>(self, kinds: &[WordKind; W], block: &Block<W>, key: &[u32; W]) -> u32 {
        let isa = self.0;
        let mut matches = [isa.mask_all(); BLOCK / 4];
        for (w, kind) in kinds.iter().enumerate() {
            let key = isa.splat(key[w]);
            for (i, matches) in matches.iter_mut().enumerate() {
                let (low, high) = (isa.load(&block.low[w][4 * i..]), isa.load(&block.high[w][4 * i..]));
                *matches = match kind {
                    WordKind::Ternary => isa.equal_in(*matches, isa.and(key, high), low),
                    WordKind::Range32 => isa.equal_in(*matches, isa.clamp(key, low, high), key),
                    WordKind::Range16 => isa.equal_in(*matches, isa.clamp_halves(key, low, high), key),
                };
            }
        }
        isa.bits_of_four(matches) & u32::MAX >> (32 - block.len)
    }
}

/// Finds the best rules for up to [`BATCH`](super::winners::BATCH) keys.
pub(super) struct Search<'a, const W: usize, B> {
    pub(super) engine: &'a Dynamic<W>,
    pub(super) keys: &'a [[u32; W]],
    pub(super) winners: &'a mut B,
}

impl<const W: usize, B: BatchWinners> Kernel<Neon> for Search<'_, W, B> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: Neon) {
        let Self { engine, keys, winners } = self;
        if engine.kinds.contains(&WordKind::Range32) {
            batch::run(Lanes::<true>(isa), engine, keys, winners);
        } else {
            batch::run(Lanes::<false>(isa), engine, keys, winners);
        }
    }
}
