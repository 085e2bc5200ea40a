//! The batch in AVX2: portable probes compiled for it, records compared word by word in vectors.

use std::arch::x86_64::*;

use super::Dynamic;
use super::batch::{self, DynamicOps, Kinds};
use super::rules::{Block, Record};
use super::winners::{CATEGORIES_BATCH, Several, Single};
use crate::classify::acl::WordKind;
use crate::isa;

/// The vector operations, with the witness of AVX2; `WHOLE`: there are ranges over whole words.
#[derive(Clone, Copy)]
struct Avx2<const WHOLE: bool>(isa::Avx2);

/// Words 8·`part` .. of a record that differ from what the key must have there.
#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn wrong<const W: usize, const WHOLE: bool>(
    kinds: &Kinds,
    record: &Record<W>,
    key: &[u32; W],
    part: usize,
) -> __m256i {
    let first = 8 * part;
    let present = &Present::OF[(W - first).min(8)];
    // SAFETY: of key and record only the words that are present are read; of the kinds, which have 16 words, eight
    // from 0 or 8 on.
    unsafe {
        let load = |words: *const u32| _mm256_loadu_si256(words.add(first).cast());
        let present = _mm256_loadu_si256(present.as_ptr().cast());
        let key = _mm256_maskload_epi32(key.as_ptr().add(first).cast(), present);
        let low = _mm256_maskload_epi32(record.low.as_ptr().add(first).cast(), present);
        let high = _mm256_maskload_epi32(record.high.as_ptr().add(first).cast(), present);
        let ranges = load(kinds.ranges.as_ptr());
        let key = _mm256_and_si256(key, _mm256_or_si256(high, ranges));
        let top = _mm256_blendv_epi8(low, high, ranges);
        let halves = _mm256_or_si256(_mm256_subs_epu16(low, key), _mm256_subs_epu16(key, top));
        if !WHOLE {
            return halves;
        }
        let whole = _mm256_or_si256(
            _mm256_xor_si256(_mm256_max_epu32(key, low), key),
            _mm256_xor_si256(_mm256_min_epu32(key, top), key),
        );
        _mm256_blendv_epi8(halves, whole, load(kinds.whole.as_ptr()))
    }
}

/// For each number of words, which of eight lanes have one.
struct Present;

impl Present {
    const OF: [[u32; 8]; 9] = {
        let mut of = [[0; 8]; 9];
        let mut words = 0;
        while words <= 8 {
            let mut w = 0;
            while w < words {
                of[words][w] = u32::MAX;
                w += 1;
            }
            words += 1;
        }
        of
    };
}

#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn matches<const W: usize, const WHOLE: bool>(kinds: &Kinds, record: &Record<W>, key: &[u32; W]) -> bool {
    let mut all = wrong::<W, WHOLE>(kinds, record, key, 0);
    if W > 8 {
        all = _mm256_or_si256(all, wrong::<W, WHOLE>(kinds, record, key, 1));
    }
    _mm256_testz_si256(all, all) == 1
}

impl<const WHOLE: bool> DynamicOps for Avx2<WHOLE> {
    #[inline(always)]
    fn matches<const W: usize>(self, kinds: &Kinds, record: &Record<W>, key: &[u32; W]) -> bool {
        // SAFETY: the witness that this holds proves AVX2 and the instructions on bits.
        unsafe { matches::<W, WHOLE>(kinds, record, key) }
    }

    #[inline(always)]
    fn block_matches<const W: usize>(self, kinds: &[WordKind; W], block: &Block<W>, key: &[u32; W]) -> u32 {
        batch::block_matches(kinds, block, key)
    }
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn search<const W: usize>(
    isa: isa::Avx2,
    engine: &Dynamic<W>,
    keys: &[[u32; W]],
    winners: &mut Single,
) {
    if engine.kinds.contains(&WordKind::Range32) {
        batch::run(Avx2::<true>(isa), engine, keys, winners);
    } else {
        batch::run(Avx2::<false>(isa), engine, keys, winners);
    }
}

#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn search_categories<const W: usize>(
    isa: isa::Avx2,
    engine: &Dynamic<W>,
    keys: &[[u32; W]],
    winners: &mut Several<CATEGORIES_BATCH>,
) {
    batch::run(Avx2::<true>(isa), engine, keys, winners);
}
