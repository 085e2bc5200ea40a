//! Eight addresses in a register at tables; at a node its separators.

use std::arch::x86_64::*;
use std::sync::atomic::Ordering::Relaxed;

use super::View;
use super::batch::{GROUP, Group, NodeOps};
use super::layout::{Kind, LINE_WORDS, Line, PAYLOAD, UPPER, UPPER_SHIFT, Word};
use super::scalar;
use crate::isa::Avx2;
use crate::isa::simd::gather::avx2_32;
use crate::memory::prefetch;

/// Addresses of a register.
const LANES: usize = 8;

impl NodeOps for Avx2 {
    #[inline(always)]
    fn tables(self, view: View<'_>, group: &mut Group) -> bool {
        // SAFETY: the witness proves AVX2 and the instructions on bits; so below.
        unsafe { tables(view, group) }
    }

    #[inline(always)]
    fn at(self, group: &Group, kind: Kind) -> u64 {
        // SAFETY: as above.
        unsafe { at(group, kind) }
    }

    #[inline(always)]
    fn span(self, view: View<'_>, bucket: Word, key: i32) -> Word {
        let spans = bucket.bucket_spans();
        // SAFETY: as above.
        let below = unsafe { below(view, bucket.line(), key) } & ((1 << spans) - 1);
        let place = bucket.line() as usize * LINE_WORDS + spans + below.count_ones() as usize;
        Word(view.lines.as_flattened()[place].load(Relaxed))
    }

    #[inline(always)]
    fn narrow(self, view: View<'_>, group: &mut Group) {
        // SAFETY: as above.
        unsafe { narrow(view, group) }
    }
}

/// Eight lanes, some of which are at narrow nodes.
#[derive(Clone, Copy, Default)]
struct Nodes {
    /// The node's first half of a word; of other lanes the first of all.
    first: [u32; LANES],
    /// How many spans it has room for; none elsewhere.
    spans: [u32; LANES],
    /// The keys to compare.
    keys: [u32; LANES],
}

#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn narrow(view: View<'_>, group: &mut Group) {
    let mut steps = [Nodes::default(); GROUP / LANES];
    for (i, nodes) in steps.iter_mut().enumerate() {
        let words = load(&group.words, i);
        let at = _mm256_cmpeq_epi32(_mm256_srli_epi32::<29>(words), _mm256_set1_epi32(0b011));
        if _mm256_testz_si256(at, at) != 0 {
            continue;
        }
        let both = _mm256_and_si256(words, _mm256_set1_epi32((UPPER - 1).cast_signed()));
        let units = _mm256_and_si256(both, _mm256_sub_epi32(_mm256_setzero_si256(), both));
        let first = _mm256_and_si256(at, _mm256_slli_epi32::<1>(_mm256_xor_si256(both, units)));
        // The flag of an upper half becomes its shift.
        let shift = _mm256_and_si256(_mm256_srli_epi32::<25>(words), _mm256_set1_epi32(UPPER_SHIFT.into()));
        let keys =
            _mm256_srlv_epi32(_mm256_xor_si256(load_keys(group, i), _mm256_set1_epi32(i32::MIN)), shift);
        store(&mut nodes.first, first);
        store(&mut nodes.spans, _mm256_and_si256(at, _mm256_slli_epi32::<1>(units)));
        store(&mut nodes.keys, _mm256_xor_si256(keys, _mm256_set1_epi32(1 << 15)));
        nodes.first.iter().for_each(|first| prefetch(view.lines, *first as usize / HALVES));
    }
    for (i, nodes) in steps.iter().enumerate() {
        if nodes.spans == [0; LANES] {
            continue;
        }
        let words = &mut group.words.as_chunks_mut::<LANES>().0[i];
        for (lane, word) in words.iter_mut().enumerate() {
            let (first, spans) = (nodes.first[lane], nodes.spans[lane]);
            let below =
                below_16(view, first / HALVES as u32, nodes.keys[lane] as i16) >> (first as usize % HALVES);
            let span = _bzhi_u32(below, spans).count_ones();
            let found = Word::of_code(scalar::half(view, (first + spans + span) as usize));
            *word = std::hint::select_unpredictable(spans == 0, *word, found.0);
        }
    }
}

/// Halves of words in a line.
const HALVES: usize = 2 * LINE_WORDS;

#[inline]
#[target_feature(enable = "avx2")]
fn store(to: &mut [u32; LANES], register: __m256i) {
    // SAFETY: eight words are a register.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), register) };
}

/// Returns the words of a line at which a reader is.
#[inline]
#[target_feature(enable = "avx2")]
fn registers(line: &Line) -> [__m256i; 2] {
    let start = line.as_ptr().cast::<__m256i>();
    // SAFETY: a line of the table is aligned to its size, two registers. Nothing is written there as long as readers
    // may be there.
    unsafe { [_mm256_load_si256(start), _mm256_load_si256(start.add(1))] }
}

/// Which of the 32 halves of words of a line are below `key`.
#[inline]
#[target_feature(enable = "avx2")]
fn below_16(view: View<'_>, line: u32, key: i16) -> u32 {
    let [low, high] = registers(&view.lines[line as usize]);
    let below = |separators| _mm256_cmpgt_epi16(_mm256_set1_epi16(key), separators);
    let bytes = _mm256_packs_epi16(below(low), below(high));
    _mm256_movemask_epi8(_mm256_permute4x64_epi64::<0b11_01_10_00>(bytes)).cast_unsigned()
}

/// Which of the sixteen words of a line are below `key`.
#[inline]
#[target_feature(enable = "avx2")]
fn below(view: View<'_>, line: u32, key: i32) -> u32 {
    let [low, high] = registers(&view.lines[line as usize]);
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
#[target_feature(enable = "avx2")]
fn load_keys(group: &Group, i: usize) -> __m256i {
    let keys = &group.keys.as_chunks::<LANES>().0[i];
    // SAFETY: eight keys are a register.
    unsafe { _mm256_loadu_si256(keys.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,popcnt,bmi1,bmi2,lzcnt")]
fn tables(view: View<'_>, group: &mut Group) -> bool {
    let mut any = _mm256_setzero_si256();
    for i in 0..GROUP / LANES {
        let words = load(&group.words, i);
        let keys = load_keys(group, i);
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
        // fewer than 2²⁸. None is rewritten as long as readers may be there.
        let found = unsafe { avx2_32::<4>(view.lines.as_ptr().cast(), places, at) };
        let words = _mm256_blendv_epi8(words, found, at);
        store(&mut group.words.as_chunks_mut().0[i], words);
    }
    _mm256_testz_si256(any, any) == 0
}

#[inline]
#[target_feature(enable = "avx2")]
fn at(group: &Group, kind: Kind) -> u64 {
    let in_this_window = _mm256_set1_epi32((kind as i32) << 1 | 1);
    let mut lanes = 0;
    for i in 0..GROUP / LANES {
        let kinds = _mm256_srli_epi32::<29>(load(&group.words, i));
        let mask = _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(kinds, in_this_window)));
        lanes |= u64::from(mask.cast_unsigned()) << (LANES * i);
    }
    lanes
}
