//! Eight addresses in a register at tables; at a bucket eight separators.

use std::arch::x86_64::*;
use std::sync::atomic::Ordering::Relaxed;

use super::View;
use super::batch::{self, GROUP, Group, Lanes};
use super::layout::{PAYLOAD, Word};
use crate::isa::Avx2;
use crate::route::gather::avx2_32;

/// Addresses of a register.
const LANES: usize = 8;

/// Private to [`lookup`], whose target features it needs.
#[derive(Clone, Copy)]
struct Ymm;

impl Lanes for Ymm {
    #[inline(always)]
    fn tables(self, view: View<'_>, group: &mut Group) -> bool {
        // SAFETY: only `all` makes bodies with this type, and it has these features.
        unsafe { tables(view, group) }
    }

    #[inline(always)]
    fn at_buckets(self, group: &Group) -> u64 {
        // SAFETY: as above.
        unsafe { at_buckets(group) }
    }

    #[inline(always)]
    fn span(self, view: View<'_>, bucket: Word, key: i32) -> Word {
        let spans = bucket.bucket_spans();
        // SAFETY: as above.
        let below = unsafe { below(view, bucket.line(), key) } & ((1 << spans) - 1);
        let place = bucket.line() as usize * 16 + spans + below.count_ones() as usize;
        Word(view.lines.as_flattened()[place].load(Relaxed))
    }
}

/// Which of the sixteen words of a line are below `key`.
#[inline]
#[target_feature(enable = "avx2")]
fn below(view: View<'_>, line: u32, key: i32) -> u32 {
    debug_assert!((line as usize) < view.lines.len());
    // SAFETY: words that lead to lines lead to lines of the table, whole ones. Nothing is written there as long as
    // readers may be there.
    let [low, high] = unsafe {
        let start = view.lines.as_ptr().add(line as usize).cast::<__m256i>();
        [_mm256_load_si256(start), _mm256_load_si256(start.add(1))]
    };
    let mask = |separators| {
        let below = _mm256_cmpgt_epi32(_mm256_set1_epi32(key), separators);
        _mm256_movemask_ps(_mm256_castsi256_ps(below)).cast_unsigned()
    };
    mask(low) | mask(high) << LANES
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(words: &[u32; GROUP], i: usize) -> __m256i {
    let words = &words.as_chunks::<LANES>().0[i];
    // SAFETY: eight words are a register.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn tables(view: View<'_>, group: &mut Group) -> bool {
    let mut any = _mm256_setzero_si256();
    for i in 0..GROUP / LANES {
        let words = load(&group.words, i);
        let keys = &group.keys.as_chunks::<LANES>().0[i];
        // SAFETY: eight keys are a register.
        let keys = unsafe { _mm256_loadu_si256(keys.as_ptr().cast()) };
        let at = _mm256_cmpeq_epi32(_mm256_srli_epi32::<29>(words), _mm256_set1_epi32(0b111));
        any = _mm256_or_si256(any, at);
        let key = _mm256_xor_si256(keys, _mm256_set1_epi32(i32::MIN));
        let number = _mm256_srlv_epi32(key, _mm256_and_si256(words, _mm256_set1_epi32(0x1c)));
        // 4, 8, 12 or 16 bits.
        let code = _mm256_and_si256(words, _mm256_set1_epi32(3));
        let beyond = _mm256_sllv_epi32(_mm256_set1_epi32(-16), _mm256_slli_epi32::<2>(code));
        let line = _mm256_srli_epi32::<5>(_mm256_and_si256(words, _mm256_set1_epi32(PAYLOAD.cast_signed())));
        let first = _mm256_slli_epi32::<4>(line);
        let places = _mm256_add_epi32(first, _mm256_andnot_si256(beyond, number));
        // SAFETY: words of tables lead to tables, which have a word for each value of their bits; all of them are
        // fewer than 2²⁸. None is written anew as long as readers may be there.
        let found = unsafe { avx2_32::<4>(view.lines.as_ptr().cast(), places, at) };
        let words = _mm256_blendv_epi8(words, found, at);
        let to = &mut group.words.as_chunks_mut::<LANES>().0[i];
        // SAFETY: eight words are a register.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), words) };
    }
    _mm256_testz_si256(any, any) == 0
}

#[inline]
#[target_feature(enable = "avx2")]
fn at_buckets(group: &Group) -> u64 {
    let mut lanes = 0;
    for i in 0..GROUP / LANES {
        let kinds = _mm256_srli_epi32::<29>(load(&group.words, i));
        let leaves = _mm256_cmpeq_epi32(kinds, _mm256_set1_epi32(0b011));
        let pairs = _mm256_cmpeq_epi32(kinds, _mm256_set1_epi32(0b101));
        let mask = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_or_si256(leaves, pairs)));
        lanes |= u64::from(mask.cast_unsigned()) << (LANES * i);
    }
    lanes
}

/// Looks any number of addresses up.
pub(super) fn lookup(_: Avx2, view: View<'_>, addresses: &[u128], next_hops: &mut [u64]) {
    // SAFETY: the witness proves that the CPU has AVX2 and the instructions on bits.
    unsafe { all(view, addresses, next_hops) }
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn all(view: View<'_>, addresses: &[u128], next_hops: &mut [u64]) {
    batch::lookup(Ymm, view, addresses, next_hops);
}
