//! The batch in AVX-512: 16 keys a probe, 16 rules of a block at a time, a record in one comparison.

use std::arch::x86_64::*;

use super::Dynamic;
use super::batch::{self, Columns, DynamicOps, GROUP, Kinds, Queue};
use super::rules::{Block, Record};
use super::table::{CLASS_SHIFT, HEADS, OVERFLOWED, TAGS, Table};
use super::winners::{BATCH, Single};
use crate::classify::acl::WordKind;
use crate::hash::multilinear::FOLD;
use crate::isa;

/// The vector operations, with the witness of AVX-512; `WHOLE`: there are ranges over whole words.
#[derive(Clone, Copy)]
struct Avx512<const WHOLE: bool>(isa::Avx512);

/// The hashes of the 16 keys from `first` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn hashes<const W: usize>(table: &Table<W>, columns: &Columns<W>, first: usize) -> __m512i {
    let (mut even, mut odd) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    for term in table.terms() {
        let column = &columns.words[term.word as usize % W].as_chunks::<GROUP>().0[first / GROUP];
        // SAFETY: 16 words.
        let words = unsafe { _mm512_loadu_si512(column.as_ptr().cast()) };
        let words = _mm512_and_si512(words, _mm512_set1_epi32(term.mask.cast_signed()));
        let multiplier = _mm512_set1_epi64(term.multiplier.into());
        even = _mm512_add_epi64(even, _mm512_mul_epu32(words, multiplier));
        odd = _mm512_add_epi64(odd, _mm512_mul_epu32(_mm512_srli_epi64::<32>(words), multiplier));
    }
    let folded = _mm512_mask_blend_epi32(
        0xaaaa,
        _mm512_xor_si512(even, _mm512_srli_epi64::<32>(even)),
        _mm512_xor_si512(odd, _mm512_slli_epi64::<32>(odd)),
    );
    let folded = _mm512_mullo_epi32(folded, _mm512_set1_epi32(FOLD.cast_signed()));
    _mm512_xor_si512(folded, _mm512_srli_epi32::<15>(folded))
}

/// Of eight lanes: which have a chain of their tag in a bucket of high enough a class, which have one that overflowed,
/// and the numbers of the former's heads.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn eight<const W: usize>(
    table: &Table<W>,
    buckets: __m256i,
    tags: __m256i,
    classes: &[u8; 8],
    live: u8,
) -> (u8, u8, __m256i) {
    // SAFETY: bucket numbers are below the number of buckets, by the shift; eight classes.
    let (front, classes) = unsafe {
        let front = _mm512_i32gather_epi64::<8>(buckets, table.front.as_ptr().cast());
        (front, _mm512_cvtepu8_epi64(_mm_loadl_epi64(classes.as_ptr().cast())))
    };
    let floor = _mm512_slli_epi64::<CLASS_SHIFT>(classes);
    let better = _mm512_mask_cmpge_epu64_mask(live, front, floor);
    let front = _mm512_maskz_mov_epi64(better, front);
    // Byte 0 of every lane into its bytes 0 to 6.
    let spread =
        _mm512_set4_epi32(0x8008_0808u32.cast_signed(), 0x0808_0808, 0x8000_0000u32.cast_signed(), 0);
    let tags = _mm512_shuffle_epi8(_mm512_cvtepu32_epi64(tags), spread);
    let equal = _mm512_cmpeq_epi8_mask(front, tags) & 0x7f7f_7f7f_7f7f_7f7f;
    let equal = _mm512_movm_epi8(equal);
    let numbers = _mm512_set1_epi64(0x0006_0504_0302_0100);
    // At most one is equal: the sum is its number.
    let slots = _mm512_sad_epu8(_mm512_and_si512(equal, numbers), _mm512_setzero_si512());
    let heads = _mm256_add_epi32(
        _mm256_slli_epi32::<{ HEADS.ilog2() as i32 }>(buckets),
        _mm512_cvtepi64_epi32(slots),
    );
    let overflowed = _mm512_test_epi64_mask(front, _mm512_set1_epi64(OVERFLOWED.cast_signed()));
    (_mm512_test_epi64_mask(equal, equal), overflowed, heads)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn probe<const W: usize>(
    table: &Table<W>,
    columns: &Columns<W>,
    classes: &[u8; BATCH],
    first: usize,
    queue: &mut Queue,
) {
    let live = u32::MAX.checked_shr(32 - (columns.len - first).min(GROUP) as u32).unwrap_or(0) as u16;
    let own = &classes.as_chunks::<GROUP>().0[first / GROUP];
    // SAFETY: 16 classes.
    let of_lanes = unsafe { _mm_loadu_si128(own.as_ptr().cast()) };
    // Lanes whose winner is better than all that the table has ask for nothing.
    let live = live & _mm_cmple_epu8_mask(of_lanes, _mm_set1_epi8(table.ceiling.cast_signed()));
    if live == 0 {
        return;
    }
    let hashes = hashes(table, columns, first);
    let buckets = _mm512_srl_epi32(hashes, _mm_cvtsi32_si128(table.shift.cast_signed()));
    let tags = _mm512_max_epu32(_mm512_and_si512(hashes, _mm512_set1_epi32(0xff)), _mm512_set1_epi32(1));
    let [own, own_upper] = own.as_chunks::<8>().0 else { return };
    let (found, overflowed, heads) =
        eight(table, _mm512_castsi512_si256(buckets), _mm512_castsi512_si256(tags), own, live as u8);
    let (buckets_upper, tags_upper) =
        (_mm512_extracti64x4_epi64::<1>(buckets), _mm512_extracti64x4_epi64::<1>(tags));
    let (found_upper, overflowed_upper, heads_upper) =
        eight(table, buckets_upper, tags_upper, own_upper, (live >> 8) as u8);
    let heads = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(heads), heads_upper);
    let found = u16::from(found) | u16::from(found_upper) << 8;
    let numbers = _mm512_add_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32(first as i32),
    );
    let at = queue.len;
    let (lanes, ats) = (&mut queue.lanes[at..at + GROUP], &mut queue.ats[at..at + GROUP]);
    // SAFETY: room for 16 of each.
    unsafe {
        _mm512_storeu_si512(lanes.as_mut_ptr().cast(), _mm512_mask_compress_epi32(numbers, found, numbers));
        _mm512_storeu_si512(ats.as_mut_ptr().cast(), _mm512_mask_compress_epi32(heads, found, heads));
    }
    queue.len += found.count_ones() as usize;
    let mut overflowed = u16::from(overflowed) | u16::from(overflowed_upper) << 8;
    if overflowed != 0 {
        let mut own = [0u32; GROUP];
        // SAFETY: 16 words.
        unsafe { _mm512_storeu_si512(own.as_mut_ptr().cast(), buckets) };
        while overflowed != 0 {
            let i = overflowed.trailing_zeros() as usize;
            overflowed &= overflowed - 1;
            queue.push(first + i, own[i] as usize * HEADS + TAGS);
        }
    }
}

/// Returns whether the key has the required value in every word; `$mask` has the lanes that have words.
macro_rules! record_matches {
    ($kinds:expr, $record:expr, $key:expr, $mask:ty, $load:ident, $loadz:ident, $or:ident, $xor:ident, $choose:ident,
     $below:ident, $max:ident, $min:ident, $test:ident) => {{
        let present = ((1u32 << W) - 1) as $mask;
        let (low, high) = ($record.low.as_ptr().cast(), $record.high.as_ptr().cast());
        let (key, low, high) =
            ($loadz(present, $key.as_ptr().cast()), $loadz(present, low), $loadz(present, high));
        let ranges = $load($kinds.ranges.as_ptr().cast());
        let key = $choose::<KEY_AND_EITHER>(key, high, ranges);
        let top = $choose::<FIRST_SAYS_WHICH>(ranges, high, low);
        let mut wrong = $or($below(low, key), $below(key, top));
        if WHOLE {
            let whole = $or($xor($max(key, low), key), $xor($min(key, top), key));
            wrong = $choose::<FIRST_SAYS_WHICH>($load($kinds.whole.as_ptr().cast()), whole, wrong);
        }
        $test(wrong, wrong) == 0
    }};
}

/// `a & (b | c)`, bit by bit.
const KEY_AND_EITHER: i32 = 0xe0;

/// `if a { b } else { c }`, bit by bit.
const FIRST_SAYS_WHICH: i32 = 0xca;

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn matches<const W: usize, const WHOLE: bool>(kinds: &Kinds, record: &Record<W>, key: &[u32; W]) -> bool {
    // SAFETY: only the words that there are are read of key and record; kinds have 16.
    unsafe {
        match W {
            ..=4 => record_matches!(
                kinds,
                record,
                key,
                u8,
                _mm_loadu_si128,
                _mm_maskz_loadu_epi32,
                _mm_or_si128,
                _mm_xor_si128,
                _mm_ternarylogic_epi32,
                _mm_subs_epu16,
                _mm_max_epu32,
                _mm_min_epu32,
                _mm_test_epi32_mask
            ),
            _ => record_matches!(
                kinds,
                record,
                key,
                u16,
                _mm512_loadu_si512,
                _mm512_maskz_loadu_epi32,
                _mm512_or_si512,
                _mm512_xor_si512,
                _mm512_ternarylogic_epi32,
                _mm512_subs_epu16,
                _mm512_max_epu32,
                _mm512_min_epu32,
                _mm512_test_epi32_mask
            ),
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn block_matches<const W: usize>(kinds: &[WordKind; W], block: &Block<W>, key: &[u32; W]) -> u32 {
    let mut live = (u32::MAX >> (32 - block.len)) as u16;
    for w in 0..W {
        let key = _mm512_set1_epi32(key[w].cast_signed());
        // SAFETY: 16 words each.
        let (low, high) = unsafe {
            (
                _mm512_loadu_si512(block.low[w].as_ptr().cast()),
                _mm512_loadu_si512(block.high[w].as_ptr().cast()),
            )
        };
        live = match kinds[w] {
            WordKind::Ternary => _mm512_mask_cmpeq_epi32_mask(live, _mm512_and_si512(key, high), low),
            WordKind::Range32 => {
                let from_low = _mm512_mask_cmple_epu32_mask(live, low, key);
                _mm512_mask_cmple_epu32_mask(from_low, key, high)
            }
            WordKind::Range16 => {
                let within = _mm512_min_epu16(_mm512_max_epu16(key, low), high);
                _mm512_mask_cmpeq_epi32_mask(live, within, key)
            }
        };
        if live == 0 {
            break;
        }
    }
    live.into()
}

impl<const WHOLE: bool> DynamicOps for Avx512<WHOLE> {
    #[inline(always)]
    fn probe<const W: usize>(
        self,
        table: &Table<W>,
        columns: &Columns<W>,
        classes: &[u8; BATCH],
        first: usize,
        queue: &mut Queue,
    ) {
        // SAFETY: the witness that this holds proves AVX-512 F, BW, DQ and VL, and the instructions on bits; so below.
        unsafe { probe(table, columns, classes, first, queue) }
    }

    #[inline(always)]
    fn matches<const W: usize>(self, kinds: &Kinds, record: &Record<W>, key: &[u32; W]) -> bool {
        // SAFETY: as above.
        unsafe { matches::<W, WHOLE>(kinds, record, key) }
    }

    #[inline(always)]
    fn block_matches<const W: usize>(self, kinds: &[WordKind; W], block: &Block<W>, key: &[u32; W]) -> u32 {
        // SAFETY: as above.
        unsafe { block_matches(kinds, block, key) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
pub(super) fn search<const W: usize>(
    isa: isa::Avx512,
    engine: &Dynamic<W>,
    keys: &[[u32; W]],
    winners: &mut Single,
) {
    if engine.kinds.contains(&WordKind::Range32) {
        batch::run(Avx512::<true>(isa), engine, keys, winners);
    } else {
        batch::run(Avx512::<false>(isa), engine, keys, winners);
    }
}
