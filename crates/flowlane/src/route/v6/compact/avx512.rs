//! A line in a register; sixteen addresses at roots and tables.

use std::arch::x86_64::*;

use super::View;
use super::batch::{self, Again, GROUP, Lanes, Queue, Queues};
use super::layout::{LEAF_SPANS, NEXT_WINDOW, PAYLOAD, Word};
use crate::isa::Avx512;
use crate::route::gather::avx512_32;

const LANES: usize = 16;

/// Private to [`lookup`], whose target features it needs.
#[derive(Clone, Copy)]
struct Zmm;

impl Lanes for Zmm {
    #[inline(always)]
    fn roots(self, view: View<'_>, addresses: &[u128], queues: &mut Queues) {
        // SAFETY: only `all` makes bodies with this type, and it has these features.
        unsafe { roots(view, addresses, queues) }
    }

    #[inline(always)]
    fn tables(self, view: View<'_>, queues: &mut Queues, again: &mut Again<'_>) {
        // SAFETY: as above.
        unsafe { tables(view, queues, again) }
    }

    #[inline(always)]
    fn separators_below(self, view: View<'_>, line: u32, key: i32) -> usize {
        debug_assert!((line as usize) < view.lines.len());
        // SAFETY: as above. Words that lead to lines lead to lines of the table, whole ones. Nothing is
        // written there as long as readers may be there.
        unsafe {
            let separators = _mm512_load_si512(view.lines.as_ptr().add(line as usize).cast());
            _mm512_cmplt_epi32_mask(separators, _mm512_set1_epi32(key)).count_ones() as usize
        }
    }

    #[inline(always)]
    fn span(self, view: View<'_>, line: u32, key: i32) -> Word {
        debug_assert!((line as usize) < view.lines.len());
        // SAFETY: as above; eight spans' words stand behind the separators.
        unsafe {
            let line = view.lines.as_ptr().add(line as usize).cast::<u32>();
            let below = _mm256_cmplt_epi32_mask(_mm256_load_si256(line.cast()), _mm256_set1_epi32(key));
            Word(*line.add(LEAF_SPANS + below.count_ones() as usize % LEAF_SPANS))
        }
    }

    #[inline(always)]
    fn resolve(self, view: View<'_>, hops: &[u32; GROUP + LANES], next_hops: &mut [u64]) {
        // SAFETY: as above.
        unsafe { resolve(view, hops, next_hops) }
    }
}

/// Looks any number of addresses up.
pub(super) fn lookup(_: Avx512, view: View<'_>, addresses: &[u128], next_hops: &mut [u64]) {
    // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL, and the instructions on bits.
    unsafe { all(view, addresses, next_hops) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn all(view: View<'_>, addresses: &[u128], next_hops: &mut [u64]) {
    batch::lookup(Zmm, view, addresses, next_hops);
}

/// The first 64 bits of eight addresses.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn first_halves(addresses: &[u128]) -> __m512i {
    let halves = 2 * addresses.len().min(8) as u32;
    let among = (1u32 << halves) - 1;
    // SAFETY: as many halves are read as there are.
    let [low, high] = unsafe {
        let at = addresses.as_ptr().cast::<i64>();
        [
            _mm512_maskz_loadu_epi64(among as u8, at),
            _mm512_maskz_loadu_epi64((among >> 8) as u8, at.wrapping_add(8)),
        ]
    };
    _mm512_permutex2var_epi64(low, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), high)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn roots(view: View<'_>, addresses: &[u128], queues: &mut Queues) {
    let shift = _mm_cvtsi32_si128(view.root_shift.cast_signed());
    let mut lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (i, addresses) in addresses.chunks(LANES).enumerate().take(GROUP / LANES) {
        let among = (!0u32 >> (32 - addresses.len())) as __mmask16;
        let (low, high) = addresses.split_at(addresses.len().min(8));
        let halves = [first_halves(low), first_halves(high)];
        let roots = narrow(halves.map(|half| _mm512_srl_epi64(half, shift)));
        let keys = narrow(halves.map(|half| _mm512_srli_epi64::<16>(half)));
        let keys = _mm512_xor_si512(keys, _mm512_set1_epi32(i32::MIN));
        // SAFETY: a root for each value of an address's first bits.
        let words =
            unsafe { avx512_32::<4>(view.root.as_ptr().cast(), roots, among, _mm512_setzero_si512()) };
        // SAFETY: 16 of 64.
        unsafe { _mm512_storeu_si512(queues.hops.as_mut_ptr().add(LANES * i).cast(), words) };
        sort(queues, keys, words, lanes, among);
        lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(LANES as i32));
    }
}

/// The low halves of sixteen numbers.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn narrow([low, high]: [__m512i; 2]) -> __m512i {
    let low = _mm512_castsi256_si512(_mm512_cvtepi64_epi32(low));
    _mm512_inserti64x4::<1>(low, _mm512_cvtepi64_epi32(high))
}

/// Queues the lanes of `among` by the kinds of their words, but for those with next hops; their mask is
/// returned.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn sort(queues: &mut Queues, keys: __m512i, words: __m512i, lanes: __m512i, among: __mmask16) -> __mmask16 {
    let kinds = _mm512_srli_epi32::<30>(words);
    let lines = _mm512_and_si512(words, _mm512_set1_epi32(PAYLOAD.cast_signed()));
    let of_kind = |kind| _mm512_mask_cmpeq_epi32_mask(among, kinds, _mm512_set1_epi32(kind));
    push(&mut queues.leaves, keys, lines, lanes, of_kind(1));
    push(&mut queues.inner, keys, lines, lanes, of_kind(2));
    push(&mut queues.tables, keys, words, lanes, of_kind(3));
    of_kind(0)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn push(queue: &mut Queue, keys: __m512i, words: __m512i, lanes: __m512i, among: __mmask16) {
    let at = queue.len % (GROUP + 1);
    // SAFETY: a queue has room for a vector behind each of 64 lanes. (With the vector itself for the lanes that
    // are not filled, compressing depends on nothing else.)
    unsafe {
        let store = |to: *mut u32, from| {
            _mm512_storeu_si512(to.add(at).cast(), _mm512_mask_compress_epi32(from, among, from));
        };
        store(queue.keys.as_mut_ptr().cast(), keys);
        store(queue.words.as_mut_ptr(), words);
        store(queue.lanes.as_mut_ptr(), lanes);
    }
    queue.len = at + among.count_ones() as usize;
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn tables(view: View<'_>, queues: &mut Queues, again: &mut Again<'_>) {
    let len = std::mem::take(&mut queues.tables.len).min(GROUP);
    for at in (0..len).step_by(LANES) {
        let among = (!0u32 >> (32 - (len - at).min(LANES))) as __mmask16;
        // SAFETY: a queue has 64 lanes, and a vector's more. What is pushed to this queue below comes to stand
        // where lanes have been read.
        let [keys, words, lanes] = unsafe {
            [
                _mm512_loadu_si512(queues.tables.keys.as_ptr().add(at).cast()),
                _mm512_loadu_si512(queues.tables.words.as_ptr().add(at).cast()),
                _mm512_loadu_si512(queues.tables.lanes.as_ptr().add(at).cast()),
            ]
        };
        let number = _mm512_xor_si512(keys, _mm512_set1_epi32(i32::MIN));
        let number = _mm512_srlv_epi32(number, _mm512_and_si512(words, _mm512_set1_epi32(0x1c)));
        // 4, 8, 12 or 16 bits.
        let code = _mm512_and_si512(words, _mm512_set1_epi32(3));
        let beyond = _mm512_sllv_epi32(_mm512_set1_epi32(-16), _mm512_slli_epi32::<2>(code));
        let number = _mm512_andnot_si512(beyond, number);
        let line = _mm512_srli_epi32::<5>(_mm512_and_si512(words, _mm512_set1_epi32(PAYLOAD.cast_signed())));
        let places = _mm512_add_epi32(_mm512_slli_epi32::<4>(line), number);
        // SAFETY: a table has a word for each value of its bits; lines are fewer than 2²⁴.
        let words =
            unsafe { avx512_32::<4>(view.lines.as_ptr().cast(), places, among, _mm512_setzero_si512()) };
        let is_next = _mm512_test_epi32_mask(words, _mm512_set1_epi32(NEXT_WINDOW.cast_signed()));
        let no_hop = _mm512_test_epi32_mask(words, _mm512_set1_epi32((3u32 << 30).cast_signed()));
        let next = is_next & no_hop & among;
        let keys = if next == 0 { keys } else { next_keys(again, queues, keys, lanes, next) };
        let hops = sort(queues, keys, words, lanes, among);
        if hops != 0 {
            // SAFETY: lanes are less than 64.
            unsafe { _mm512_mask_i32scatter_epi32::<4>(queues.hops.as_mut_ptr().cast(), hops, lanes, words) };
        }
    }
}

/// `keys`, those of the lanes of `next` from their next windows.
#[cold]
#[target_feature(enable = "avx512f")]
fn next_keys(
    again: &mut Again<'_>,
    queues: &mut Queues,
    keys: __m512i,
    lanes: __m512i,
    next: __mmask16,
) -> __m512i {
    let (mut keys_of, mut lanes_of) = ([0i32; LANES], [0u32; LANES]);
    // SAFETY: 16 words each.
    unsafe {
        _mm512_storeu_si512(keys_of.as_mut_ptr().cast(), keys);
        _mm512_storeu_si512(lanes_of.as_mut_ptr().cast(), lanes);
    }
    for i in (0..LANES).filter(|i| next >> i & 1 == 1) {
        keys_of[i] = again.next_key(&mut queues.windows, lanes_of[i]);
    }
    // SAFETY: as above.
    unsafe { _mm512_loadu_si512(keys_of.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn resolve(view: View<'_>, hops: &[u32; GROUP + LANES], next_hops: &mut [u64]) {
    for (i, next_hops) in next_hops.chunks_mut(8).enumerate().take(GROUP / 8) {
        let among = (!0u32 >> (32 - next_hops.len())) as __mmask8;
        // SAFETY: 8 of 64 words; as many are written as there is room for. Places in the list are those of listed
        // next hops, which do not change as long as a reader may come to them.
        unsafe {
            let words = _mm512_cvtepu32_epi64(_mm256_loadu_si256(hops.as_ptr().add(8 * i).cast()));
            let listed = _mm512_mask_test_epi64_mask(among, words, _mm512_set1_epi64(NEXT_WINDOW.into()));
            let found = if listed == 0 {
                words
            } else {
                let places = _mm512_and_si512(words, _mm512_set1_epi64(PAYLOAD.into()));
                _mm512_mask_i64gather_epi64::<8>(words, listed, places, view.list.as_ptr().cast())
            };
            _mm512_mask_storeu_epi64(next_hops.as_mut_ptr().cast(), among, found);
        }
    }
}
