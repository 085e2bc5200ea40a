//! Four addresses in a register at tables; at a node its separators.

use std::arch::aarch64::*;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::View;
use super::batch::{GROUP, Group, NodeOps};
use super::layout::{self, Kind, LINE_WORDS, PAYLOAD, UNIT_WORDS, Word};
use super::scalar;
use crate::isa::Neon;
use crate::isa::simd::{Quad, Registers};

/// Addresses of a register.
const LANES: usize = 4;

impl NodeOps for Neon {
    #[inline(always)]
    fn tables(self, view: View<'_>, group: &mut Group) -> bool {
        // SAFETY: the witness proves NEON; so below.
        unsafe { tables(self, view, group) }
    }

    #[inline(always)]
    fn at(self, group: &Group, kind: Kind) -> u64 {
        // SAFETY: as above.
        unsafe { at(self, group, kind) }
    }

    #[inline(always)]
    fn span(self, view: View<'_>, bucket: Word, key: i32) -> Word {
        let spans = bucket.bucket_spans();
        let words = &view.lines.as_flattened()[bucket.line() as usize * LINE_WORDS..][..2 * spans];
        // SAFETY: as above.
        let span = unsafe { below(&words[..spans], key) };
        Word(words[spans + span % spans].load(Relaxed))
    }

    #[inline(always)]
    fn narrow_span(self, view: View<'_>, node: Word, key: u32) -> Word {
        let (unit, units) = node.units();
        if units < LANES as u32 {
            return scalar::narrow_span(view, node, key);
        }
        let key = layout::signed_16((key >> node.narrow_shift()) as u16);
        let (first, separators) = (unit as usize * UNIT_WORDS, units as usize * UNIT_WORDS / 2);
        // SAFETY: as above.
        let span = unsafe { below_16(&view.lines.as_flattened()[first..][..separators], key) };
        Word::of_code(scalar::half(view, 2 * (first + separators) + span))
    }
}

/// Returns four words at which a reader is.
#[inline]
#[target_feature(enable = "neon")]
fn load(words: &[AtomicU32; LANES]) -> int32x4_t {
    // SAFETY: four words. Nothing is written there as long as readers may be there.
    unsafe { vld1q_s32(words.as_ptr().cast()) }
}

/// Returns how many of some fours of words are below `key`.
#[inline]
#[target_feature(enable = "neon")]
fn below(separators: &[AtomicU32], key: i32) -> usize {
    // A comparison gives -1 where it holds.
    let fours = separators.as_chunks().0.iter();
    let sum = fours.fold(vdupq_n_s32(0), |sum, four| {
        vaddq_s32(sum, vreinterpretq_s32_u32(vcltq_s32(load(four), vdupq_n_s32(key))))
    });
    vaddvq_s32(sum).unsigned_abs() as usize
}

/// Returns how many halves of some fours of words are below `key`.
#[inline]
#[target_feature(enable = "neon")]
fn below_16(separators: &[AtomicU32], key: i16) -> usize {
    let halves = separators.as_chunks().0.iter().map(|four| vreinterpretq_s16_s32(load(four)));
    let sum = halves.fold(vdupq_n_s16(0), |sum, eight| {
        vaddq_s16(sum, vreinterpretq_s16_u16(vcltq_s16(eight, vdupq_n_s16(key))))
    });
    vaddvq_s16(sum).unsigned_abs().into()
}

#[inline]
#[target_feature(enable = "neon")]
fn tables(isa: Neon, view: View<'_>, group: &mut Group) -> bool {
    let lines = view.lines.as_flattened();
    let mut any = false;
    let (words, keys) = (group.words.as_chunks_mut::<LANES>().0, group.keys.as_chunks::<LANES>().0);
    for (words, keys) in words.iter_mut().zip(keys) {
        let now = isa.load(words);
        let at = vceqq_u32(vshrq_n_u32::<29>(now), isa.splat(0b111));
        if !isa.any(at) {
            continue;
        }
        any = true;
        // Of the other lanes the first word of all is read.
        let key = isa.xor(isa.load(&keys.map(i32::cast_unsigned)), isa.splat(1 << 31));
        let shift = vreinterpretq_s32_u32(isa.and(now, isa.splat(0x1c)));
        let number = vshlq_u32(key, vnegq_s32(shift));
        // 4, 8, 12 or 16 bits.
        let bits = vreinterpretq_s32_u32(vshlq_n_u32::<2>(isa.and(now, isa.splat(3))));
        let beyond = vshlq_u32(isa.splat(0xffff_fff0), bits);
        let first = vshlq_n_u32::<4>(vshrq_n_u32::<5>(isa.and(now, isa.splat(PAYLOAD))));
        let places = isa.and(vaddq_u32(first, isa.and_not(number, beyond)), at);
        let mut found = [0; LANES];
        isa.store(places, &mut found);
        let found = isa.words(found.map(|place| lines[place as usize].load(Acquire)));
        isa.store(isa.blend(at, found, now), words);
    }
    any
}

#[inline]
#[target_feature(enable = "neon")]
fn at(isa: Neon, group: &Group, kind: Kind) -> u64 {
    let in_this_window = isa.splat((kind as u32) << 1 | 1);
    let sixteens = group.words.as_chunks::<16>().0.iter().enumerate();
    sixteens.fold(0, |lanes, (i, words)| {
        let is_there =
            |four: usize| vceqq_u32(vshrq_n_u32::<29>(isa.load(&words[4 * four..])), in_this_window);
        let sixteen = isa.bits_of_four([is_there(0), is_there(1), is_there(2), is_there(3)]);
        lanes | u64::from(sixteen) << (16 * i)
    })
}

const _: () = assert!(GROUP.is_multiple_of(16));
