//! Sixteen addresses in a register at roots and tables; at a node its separators.

use std::arch::x86_64::*;
use std::sync::atomic::Ordering::Relaxed;

use super::View;
use super::batch::{self, GROUP};
use super::layout::{self, LINE_WORDS, PAYLOAD, THIS_WINDOW, UPPER, UPPER_SHIFT, Word};
use crate::isa::Avx512;
use crate::isa::simd::gather::{avx512_32, avx512_64};
use crate::memory::prefetch_at;
use crate::route::v6::hops::LISTED;

/// Addresses of a register.
const LANES: usize = 16;

/// Looks any number of addresses up.
pub(super) fn lookup(_: Avx512, view: View<'_>, addresses: &[u128], next_hops: &mut [u64]) {
    // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL, and the instructions on bits.
    unsafe { all(view, addresses, next_hops) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn all(view: View<'_>, addresses: &[u128], next_hops: &mut [u64]) {
    let (groups, addresses) = addresses.as_chunks::<GROUP>();
    let (hops_of_groups, next_hops) = next_hops.as_chunks_mut::<GROUP>();
    for (addresses, next_hops) in groups.iter().zip(hops_of_groups) {
        batch::ask_ahead(addresses);
        group::<{ GROUP / LANES }>(view, addresses.as_chunks().0, next_hops.as_chunks_mut().0);
    }
    let (groups, addresses) = addresses.as_chunks::<LANES>();
    let (hops_of_groups, next_hops) = next_hops.as_chunks_mut::<LANES>();
    for (addresses, next_hops) in groups.iter().zip(hops_of_groups) {
        group::<1>(view, std::slice::from_ref(addresses), std::slice::from_mut(next_hops));
    }
    if !addresses.is_empty() {
        let (mut few, mut found) = ([0; LANES], [0; LANES]);
        few[..addresses.len()].copy_from_slice(addresses);
        group::<1>(view, std::slice::from_ref(&few), std::slice::from_mut(&mut found));
        next_hops.copy_from_slice(&found[..next_hops.len()]);
    }
}

/// Looks `N` registers of addresses up: all at roots, then all at tables, then all at nodes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn group<const N: usize>(view: View<'_>, addresses: &[[u128; LANES]], next_hops: &mut [[u64; LANES]]) {
    let [mut keys, mut words] = [[_mm512_setzero_si512(); N]; 2];
    for i in 0..N {
        let [first, _] = quarters(&addresses[i], 0);
        keys[i] = window_keys(&addresses[i], 0);
        let roots = _mm512_srli_epi32::<16>(first);
        // SAFETY: the root has a word for each value of an address's first 16 bits.
        words[i] = unsafe { avx512_32::<4>(view.root.as_ptr().cast(), roots, !0, _mm512_setzero_si512()) };
    }
    step(view, keys, &mut words);
    let mut window = 0;
    loop {
        let rest = unresolved(words);
        if rest.count_ones() < batch::TOGETHER {
            if rest != 0 {
                beyond(view, addresses, &mut words, rest, window);
            }
            break;
        }
        window += 1;
        enter(addresses, &mut keys, &mut words, window);
        step(view, keys, &mut words);
    }
    for i in 0..N {
        resolve(view, words[i], &mut next_hops[i]);
    }
}

/// Lets all lanes that are not at a next hop go on in the next window, `window`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn enter<const N: usize>(
    addresses: &[[u128; LANES]],
    keys: &mut [__m512i; N],
    words: &mut [__m512i; N],
    window: u8,
) {
    let this_window = _mm512_set1_epi32(THIS_WINDOW.cast_signed());
    for i in 0..N {
        keys[i] = window_keys(&addresses[i], window);
        let rest = _mm512_cmpge_epu32_mask(words[i], _mm512_set1_epi32(1 << 30));
        words[i] = _mm512_mask_or_epi32(words[i], rest, words[i], this_window);
    }
}

/// Takes all steps of a window: tables, until no lane is at one, then nodes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn step<const N: usize>(view: View<'_>, keys: [__m512i; N], words: &mut [__m512i; N]) {
    loop {
        let (mut at, mut any) = ([0; N], 0);
        for i in 0..N {
            at[i] = _mm512_cmpge_epu32_mask(words[i], _mm512_set1_epi32(TABLE.cast_signed()));
            any |= at[i];
        }
        if any == 0 {
            break;
        }
        for i in 0..N {
            if at[i] != 0 {
                words[i] = table(view, words[i], keys[i], at[i]);
            }
        }
    }
    let at_wide = wide_lanes(*words);
    if at_wide == 0 && unresolved(*words) == 0 {
        // Tables have led everywhere.
        return;
    }
    narrow(view, keys, words);
    if at_wide != 0 {
        wide(view, keys, words, at_wide);
    }
}

/// From here on words are tables of this window.
const TABLE: u32 = 7 << 29;

/// Bits 32 × `quarter` to 32 × `quarter` + 31 of sixteen addresses, and the next 32 bits: zeros behind the last.
#[inline]
#[target_feature(enable = "avx512f")]
fn quarters(addresses: &[u128; LANES], quarter: u8) -> [__m512i; 2] {
    let mut four = [_mm512_setzero_si512(); 4];
    for (register, addresses) in four.iter_mut().zip(addresses.as_chunks::<4>().0) {
        // SAFETY: four addresses are a register.
        *register = unsafe { _mm512_loadu_si512(addresses.as_ptr().cast()) };
    }
    let [a, b, c, d] = four;
    let places = _mm512_setr_epi32(3, 7, 11, 15, 19, 23, 27, 31, 2, 6, 10, 14, 18, 22, 26, 30);
    let places = _mm512_sub_epi32(places, _mm512_set1_epi32(quarter.into()));
    let low = _mm512_permutex2var_epi32(a, places, b);
    let high = _mm512_permutex2var_epi32(c, places, d);
    let first = _mm512_shuffle_i64x2::<0b01_00_01_00>(low, high);
    let second = _mm512_shuffle_i64x2::<0b11_10_11_10>(low, high);
    [first, if quarter < 3 { second } else { _mm512_setzero_si512() }]
}

/// Returns the bits of sixteen addresses that are compared in a window.
#[inline]
#[target_feature(enable = "avx512f")]
fn window_keys(addresses: &[u128; LANES], window: u8) -> __m512i {
    let [first, second] = quarters(addresses, window);
    _mm512_or_si512(_mm512_slli_epi32::<16>(first), _mm512_srli_epi32::<16>(second))
}

/// Returns the step of the lanes `at` tables.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn table(view: View<'_>, words: __m512i, keys: __m512i, at: __mmask16) -> __m512i {
    // By a word's last four bits, of which two are its code: 4, 8, 12 or 16 bits.
    let masks = _mm512_broadcast_i32x4(_mm_setr_epi32(0xf, 0xff, 0xfff, 0xffff));
    let masks = _mm512_permutexvar_epi32(words, masks);
    let number = _mm512_srlv_epi32(keys, _mm512_and_si512(words, _mm512_set1_epi32(0x1c)));
    let first = _mm512_and_si512(_mm512_srli_epi32::<1>(words), _mm512_set1_epi32(FIRST.cast_signed()));
    // A table is aligned to its size.
    let places = _mm512_or_si512(first, _mm512_and_si512(number, masks));
    // SAFETY: words of tables lead to tables, which have a word for each value of their bits; all of them are
    // fewer than 2²⁸. None is rewritten as long as readers may be there.
    unsafe { avx512_32::<4>(view.lines.as_ptr().cast(), places, at, words) }
}

/// Half of a table's word with these bits is the number of the table's first word.
const FIRST: u32 = PAYLOAD >> 1 & !15;

/// Sixteen words in memory.
#[repr(C, align(64))]
struct Lanes([u32; LANES]);

impl Lanes {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn of(register: __m512i) -> Self {
        let mut lanes = Self([0; LANES]);
        // SAFETY: sixteen words are a register.
        unsafe { _mm512_store_si512(lanes.0.as_mut_ptr().cast(), register) };
        lanes
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(&self) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_load_si512(self.0.as_ptr().cast()) }
    }
}

/// Takes the step of all lanes at narrow nodes of this window. The others of their registers take it too, at no node.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn narrow<const N: usize>(view: View<'_>, keys: [__m512i; N], words: &mut [__m512i; N]) {
    let mut steps: [_; N] = std::array::from_fn(|i| Nodes::of(words[i], keys[i]));
    for nodes in &steps {
        if nodes.at != 0 {
            for first in nodes.first.0 {
                prefetch_at(view.lines.as_ptr().wrapping_add(first as usize / HALVES).cast());
            }
        }
    }
    for nodes in &mut steps {
        if nodes.at != 0 {
            nodes.step(view);
        }
    }
    for (words, nodes) in words.iter_mut().zip(&steps) {
        let codes = nodes.first.load();
        let listed = _mm512_slli_epi32::<14>(_mm512_and_si512(codes, _mm512_set1_epi32(1 << 15)));
        let number = _mm512_and_si512(codes, _mm512_set1_epi32((1 << 15) - 1));
        *words = _mm512_mask_or_epi32(*words, nodes.at, listed, number);
    }
}

/// Sixteen lanes, some of which are at narrow nodes.
struct Nodes {
    at: __mmask16,
    /// The node's first half of a word; then its code.
    first: Lanes,
    /// The number of the last span that it has room for; 0 elsewhere.
    last: Lanes,
    /// The keys to compare.
    keys: Lanes,
}

impl Nodes {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    fn of(words: __m512i, keys: __m512i) -> Self {
        let at = _mm512_cmpeq_epi32_mask(_mm512_srli_epi32::<29>(words), _mm512_set1_epi32(0b011));
        let both = _mm512_and_si512(words, _mm512_set1_epi32((UPPER - 1).cast_signed()));
        let units = _mm512_and_si512(both, _mm512_sub_epi32(_mm512_setzero_si512(), both));
        let first = _mm512_maskz_slli_epi32::<1>(at, _mm512_xor_si512(both, units));
        let last = _mm512_maskz_sub_epi32(at, _mm512_slli_epi32::<1>(units), _mm512_set1_epi32(1));
        let is_upper = _mm512_test_epi32_mask(words, _mm512_set1_epi32(UPPER.cast_signed()));
        let keys = _mm512_mask_srli_epi32::<{ UPPER_SHIFT as u32 }>(keys, is_upper, keys);
        let keys = _mm512_xor_si512(keys, _mm512_set1_epi32(1 << 15));
        Self { at, first: Lanes::of(first), last: Lanes::of(last), keys: Lanes::of(keys) }
    }

    /// Finds the codes of the spans that the keys are in.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
    fn step(&mut self, view: View<'_>) {
        // The last code of each: as many codes as separators follow them.
        let codes = _mm512_add_epi32(self.first.load(), _mm512_slli_epi32::<1>(self.last.load()));
        let halves = u32::try_from(view.lines.len() * HALVES).unwrap_or(u32::MAX);
        let beyond =
            _mm512_cmpge_epu32_mask(codes, _mm512_set1_epi32(halves.saturating_sub(1).cast_signed()));
        assert!(beyond == 0, "words of narrow nodes lead to nodes of the table");
        for lane in 0..LANES {
            let (first, last) = (self.first.0[lane], self.last.0[lane]);
            // SAFETY: the codes are in the table, as was compared, and the separators before them. Nothing is written
            // there as long as readers may be there. Other lanes read the first line. The last separator is below no
            // key, and of the others no more are counted than there are.
            self.first.0[lane] = unsafe {
                let line = view.lines.as_ptr().add(first as usize / HALVES);
                let keys = _mm512_set1_epi16(self.keys.0[lane] as i16);
                let below = _mm512_cmplt_epi16_mask(_mm512_load_si512(line.cast()), keys);
                let span = _bzhi_u32(below >> (first as usize % HALVES), last).count_ones();
                u32::from(*view.lines.as_ptr().cast::<u16>().add((first + last + 1 + span) as usize))
            };
        }
    }
}

/// Halves of words in a line.
const HALVES: usize = 2 * LINE_WORDS;

/// Returns the lanes at leaves and pairs of this window.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn wide_lanes<const N: usize>(words: [__m512i; N]) -> u64 {
    let mut lanes = 0;
    for (i, words) in words.into_iter().enumerate() {
        let at = _mm512_cmpeq_epi32_mask(_mm512_srli_epi32::<29>(words), _mm512_set1_epi32(0b101));
        lanes |= u64::from(at) << (LANES * i);
    }
    lanes
}

/// Takes the step of the lanes `at` leaves and pairs of this window. They are few.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn wide<const N: usize>(view: View<'_>, keys: [__m512i; N], words: &mut [__m512i; N], mut at: u64) {
    let (mut lanes, keys): ([_; N], [_; N]) =
        (std::array::from_fn(|i| Lanes::of(words[i])), std::array::from_fn(|i| Lanes::of(keys[i])));
    while at != 0 {
        let lane = at.trailing_zeros() as usize % (N * LANES);
        at &= at - 1;
        let (i, lane) = (lane / LANES, lane % LANES);
        lanes[i].0[lane] = span(view, Word(lanes[i].0[lane]), layout::signed(keys[i].0[lane]));
    }
    for (words, lanes) in words.iter_mut().zip(&lanes) {
        *words = lanes.load();
    }
}

/// Follows the lanes of `rest` to next hops.
#[cold]
#[inline(never)]
#[target_feature(enable = "avx512f")]
fn beyond<const N: usize>(
    view: View<'_>,
    addresses: &[[u128; LANES]],
    words: &mut [__m512i; N],
    rest: u64,
    window: u8,
) {
    let mut lanes = [[0; LANES]; N];
    for i in 0..N {
        lanes[i] = Lanes::of(words[i]).0;
    }
    batch::follow_all(view, addresses.as_flattened(), lanes.as_flattened_mut(), rest, window);
    for i in 0..N {
        words[i] = Lanes(lanes[i]).load();
    }
}

/// Returns the word of the span of a leaf or a pair that `key` is in.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn span(view: View<'_>, bucket: Word, key: i32) -> u32 {
    let line = bucket.line() as usize;
    // SAFETY: a line of the table is aligned to its size, a register. Nothing is written there as long as readers may be
    // there.
    let separators = unsafe { _mm512_load_si512(view.lines[line].as_ptr().cast()) };
    let below = _mm512_cmplt_epi32_mask(separators, _mm512_set1_epi32(key));
    // As many words as separators follow them, and the last separator is below no key.
    let spans = bucket.bucket_spans() as u32;
    let span = _bzhi_u32(below.into(), spans).count_ones();
    view.lines.as_flattened()[line * LINE_WORDS + (spans + span) as usize].load(Relaxed)
}

/// Returns the lanes that have not come to a next hop: their ways lead into the next window.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn unresolved<const N: usize>(words: [__m512i; N]) -> u64 {
    let mut lanes = 0;
    for (i, words) in words.into_iter().enumerate() {
        let beyond = _mm512_cmpge_epu32_mask(words, _mm512_set1_epi32(1 << 30));
        lanes |= u64::from(beyond) << (LANES * i);
    }
    lanes
}

/// Writes the next hops of the words.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn resolve(view: View<'_>, words: __m512i, next_hops: &mut [u64; LANES]) {
    let halves = [_mm512_castsi512_si256(words), _mm512_extracti64x4_epi64::<1>(words)];
    let mut found = [_mm512_cvtepu32_epi64(halves[0]), _mm512_cvtepu32_epi64(halves[1])];
    let listed = _mm512_test_epi32_mask(words, _mm512_set1_epi32(LISTED.cast_signed()));
    if listed != 0 {
        for (i, listed) in [listed as u8, (listed >> 8) as u8].into_iter().enumerate() {
            let places = _mm256_and_si256(halves[i], _mm256_set1_epi32(PAYLOAD.cast_signed()));
            // SAFETY: places in the list are those of listed next hops, which do not change as long as a reader
            // may come to them.
            found[i] = unsafe { avx512_64(view.list.as_ptr().cast(), places, listed, found[i]) };
        }
    }
    let [low, high] = found;
    // SAFETY: sixteen next hops are two registers.
    unsafe {
        _mm512_storeu_si512(next_hops.as_mut_ptr().cast(), low);
        _mm512_storeu_si512(next_hops.as_mut_ptr().add(8).cast(), high);
    }
}
