//! The batch with AVX-512: primary buckets and entries are compared for 16 keys at a time, and
//! nothing branches on a single key.
//!
//! The parts of four buckets, or the keys of four entries, are collected in a register, 128 bits of each; rows of
//! this kind are compared at once.

use std::arch::x86_64::*;

use super::batch::{BucketOps, Stages, View, note_use};
use super::bucket::{Bucket, SLOTS};
use super::entry::{EntriesView, EntryAt};
use super::{BATCH_MAX, lanes};
use crate::hash::multilinear::{self, KEYS, KeyHash};
use crate::isa;

impl BucketOps for isa::Avx512 {
    #[inline(always)]
    fn hash_keys<const W: usize>(self, hash: &KeyHash<W>, keys: &[[u32; W]; KEYS], hashes: &mut [u32; KEYS]) {
        // SAFETY: the witness proves AVX-512 F, BW, DQ and VL, and the instructions on bits; so below.
        unsafe { multilinear::avx512::hash_keys(hash, keys, hashes) }
    }

    #[inline(always)]
    fn matches(self, bucket: &Bucket, signature: u16) -> u32 {
        // SAFETY: as above.
        unsafe {
            let wanted = _mm_set1_epi16(signature.cast_signed());
            _mm_cmpeq_epi16_mask(lanes::signatures(self, bucket), wanted).into()
        }
    }

    #[inline(always)]
    fn primaries<const W: usize>(self, view: View<'_, W>, stages: &mut Stages, len: usize) {
        // SAFETY: as above.
        unsafe { primaries(view, stages, len) }
    }

    #[inline(always)]
    fn entries<const W: usize>(
        self,
        view: View<'_, W>,
        keys: &[[u32; W]],
        used: Option<u64>,
        values: &mut [u32],
        stages: &mut Stages,
        later: u64,
    ) -> u64 {
        // SAFETY: as above.
        let hits = unsafe { entries(view, keys, values, stages, stages.candidates | later) };
        note_use(view, used, hits, stages);
        hits
    }
}

/// Collects 16 bytes each from four places that are `SCALE` times so far behind `base`.
///
/// # Safety
/// They must be readable.
#[cfg(not(any(all(loom, test), miri)))]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
unsafe fn rows<const SCALE: usize>(base: *const u8, [a, b, c, d]: [usize; 4]) -> __m512i {
    let rows;
    // SAFETY: by the caller's promise. Beside a writer these are reads of atomics, relaxed, in the order of the
    // program: x86-64 reads each aligned word of a vector at once. In assembly, since Rust has no atomics of this
    // size: what the compiler sees is opaque reads. The instructions need AVX-512 F.
    unsafe {
        std::arch::asm!(
            "vbroadcasti32x4 {rows}, [{base} + {a}*{scale}]",
            "vinserti32x4 {rows}, {rows}, [{base} + {b}*{scale}], 1",
            "vinserti32x4 {rows}, {rows}, [{base} + {c}*{scale}], 2",
            "vinserti32x4 {rows}, {rows}, [{base} + {d}*{scale}], 3",
            rows = out(zmm_reg) rows, base = in(reg) base, scale = const SCALE,
            a = in(reg) a, b = in(reg) b, c = in(reg) c, d = in(reg) d,
            options(nostack, readonly, preserves_flags));
    }
    rows
}

/// Returns the numbers of four of 16 keys.
#[inline(always)]
fn four<T: Copy>(of: &[T; KEYS], part: usize) -> [T; 4] {
    std::array::from_fn(|i| of[4 * part + i])
}

/// Returns the signatures of four buckets.
///
/// # Safety
/// There must be such buckets.
#[cfg(not(any(all(loom, test), miri)))]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
unsafe fn signatures(buckets: &[Bucket], at: [u32; 4]) -> __m512i {
    // SAFETY: by the caller's promise. A bucket begins with its signatures, and is four times eight bytes.
    unsafe { rows::<8>(buckets.as_ptr().cast(), at.map(|at| 4 * at as usize)) }
}

/// Filter, version and what else is there of four buckets.
///
/// # Safety
/// There must be such buckets.
#[cfg(not(any(all(loom, test), miri)))]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
unsafe fn states(buckets: &[Bucket], at: [u32; 4]) -> __m512i {
    // SAFETY: by the caller's promise. The second half of a bucket; all of its words are read at one time, since
    // processors with AVX do so with 16 aligned bytes.
    unsafe { rows::<8>(buckets.as_ptr().cast::<u8>().add(Bucket::STATE_AT), at.map(|at| 4 * at as usize)) }
}

/// Four words each of four entries, from word `from` on.
///
/// # Safety
/// There must be such entries, with as many words from there to the end of their lines.
#[cfg(not(any(all(loom, test), miri)))]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
unsafe fn words<const W: usize>(entries: EntriesView<'_, W>, at: [EntryAt; 4], from: usize) -> __m512i {
    // SAFETY: by the caller's promise; entries are counted in words of four bytes.
    unsafe { rows::<4>(entries.address(from), at) }
}

/// Collects rows of words, for the model checker and the interpreter.
#[cfg(any(all(loom, test), miri))]
fn collected(rows: [[u32; 4]; 4]) -> __m512i {
    // SAFETY: 64 bytes that may have any value.
    unsafe { std::mem::transmute(rows) }
}

#[cfg(any(all(loom, test), miri))]
unsafe fn signatures(buckets: &[Bucket], at: [u32; 4]) -> __m512i {
    collected(at.map(|at| buckets[at as usize].signatures()))
}

#[cfg(any(all(loom, test), miri))]
unsafe fn states(buckets: &[Bucket], at: [u32; 4]) -> __m512i {
    collected(at.map(|at| buckets[at as usize].state()))
}

#[cfg(any(all(loom, test), miri))]
unsafe fn words<const W: usize>(entries: EntriesView<'_, W>, at: [EntryAt; 4], from: usize) -> __m512i {
    use std::sync::atomic::Ordering::Relaxed;
    collected(at.map(|at| entries.row::<4>(at + from).each_ref().map(|word| word.load(Relaxed))))
}

/// Which words of 16 bits lead from 16 signatures to those of four keys, each eight times.
const fn eight_times(part: usize) -> [u16; 32] {
    let mut order = [0; 32];
    let mut i = 0;
    while i < 32 {
        order[i] = (4 * part + i / SLOTS) as u16;
        i += 1;
    }
    order
}

static EIGHT_TIMES: [[u16; 32]; 4] = [eight_times(0), eight_times(1), eight_times(2), eight_times(3)];

/// Word `word` of each row of four registers of them, in the order of the keys.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn column(rows: &[__m512i; 4], word: i32) -> __m512i {
    let eight = _mm256_add_epi32(_mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), _mm256_set1_epi32(word));
    let order = _mm512_broadcast_i64x4(eight);
    let [low, high] = [0, 2].map(|i| _mm512_permutex2var_epi32(rows[i], order, rows[i + 1]));
    _mm512_mask_blend_epi64(0xf0, low, high)
}

/// Eight numbers as 64-bit lanes: the first of 16, and the others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn widened(words: __m512i) -> [__m512i; 2] {
    [_mm512_castsi512_si256(words), _mm512_extracti64x4_epi64::<1>(words)].map(|w| _mm512_cvtepu32_epi64(w))
}

/// Where the candidates' entries are, from their buckets and the slots with their signatures, a bit each; that of
/// others is the first, which is always cached.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn places<const W: usize>(buckets: __m512i, slots: __m512i) -> (__mmask16, [__m512i; 2]) {
    let found = _mm512_test_epi32_mask(slots, slots);
    let first = _mm512_and_si512(slots, _mm512_sub_epi32(_mm512_setzero_si512(), slots));
    // The number of the only one is the exponent as a number with a point, which is kept with 127 more.
    let exponents = _mm512_srli_epi32::<23>(_mm512_castps_si512(_mm512_cvtepi32_ps(first)));
    let by_exponent: [u32; KEYS] = const {
        let mut by_exponent = [0; KEYS];
        let mut slot = 0;
        while slot < SLOTS {
            by_exponent[(127 + slot) % KEYS] = EntriesView::<W>::PLACES[slot];
            slot += 1;
        }
        by_exponent
    };
    // SAFETY: 16 words.
    let by_exponent = unsafe { _mm512_loadu_si512(by_exponent.as_ptr().cast()) };
    let in_bucket = widened(_mm512_maskz_permutexvar_epi32(found, exponents, by_exponent));
    let stride = _mm512_set1_epi64(EntriesView::<W>::STRIDE as i64);
    let of_bucket = widened(_mm512_maskz_mov_epi32(found, buckets)).map(|b| _mm512_mul_epu32(b, stride));
    (found, std::array::from_fn(|half| _mm512_add_epi64(of_bucket[half], in_bucket[half])))
}

/// In which filters, of the buckets in four registers of [`states`], the signature's bit is set.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn may_have_moved(states: &[__m512i; 4], signatures: __m256i) -> __mmask16 {
    let filters = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    let bits = widened(_mm512_cvtepu16_epi32(_mm256_srli_epi16::<10>(signatures)));
    let [low, high] = [0, 1].map(|half| {
        let filters = _mm512_permutex2var_epi64(states[2 * half], filters, states[2 * half + 1]);
        _mm512_test_epi64_mask(_mm512_srlv_epi64(filters, bits[half]), _mm512_set1_epi64(1))
    });
    _mm512_kunpackb(high.into(), low.into())
}

/// [`batch::BucketOps::primaries`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn primaries<const W: usize>(view: View<'_, W>, stages: &mut Stages, len: usize) {
    let (mut moved, mut changed) = (0, _mm512_setzero_si512());
    for group in 0..len.div_ceil(KEYS) {
        let buckets = &stages.buckets.as_chunks::<KEYS>().0[group];
        // SAFETY: 16 numbers of 16 bits.
        let wanted = unsafe { _mm256_loadu_si256(stages.signatures[group * KEYS..][..KEYS].as_ptr().cast()) };
        let mut slots = [0; 4];
        let mut before = [_mm512_setzero_si512(); 4];
        for part in 0..4 {
            let at = four(buckets, part);
            // SAFETY: the geometry gives buckets of the table only. 32 numbers of 16 bits.
            let (own, after, order) = unsafe {
                before[part] = states(view.buckets, at);
                let own = signatures(view.buckets, at);
                (own, states(view.buckets, at), _mm512_loadu_si512(EIGHT_TIMES[part].as_ptr().cast()))
            };
            let wanted = _mm512_permutexvar_epi16(order, _mm512_castsi256_si512(wanted));
            slots[part] = _mm512_cmpeq_epi16_mask(own, wanted);
            // changed | (before ^ after)
            changed = _mm512_ternarylogic_epi64::<0xf6>(changed, before[part], after);
        }
        let slots = slots.map(u64::from);
        let slots = [slots[0] | slots[1] << 32, slots[2] | slots[3] << 32].map(u64::cast_signed);
        let slots = _mm_set_epi64x(slots[1], slots[0]);
        let versions = column(&before, Bucket::VERSION_WORD);
        // SAFETY: as many words, bytes and numbers of 64 bits as there are keys in a group.
        let candidates = unsafe {
            let buckets = _mm512_loadu_si512(buckets.as_ptr().cast());
            let (candidates, [low, high]) = places::<W>(buckets, _mm512_cvtepu8_epi32(slots));
            let entries: *mut EntryAt = stages.entries[group * KEYS..][..KEYS].as_mut_ptr();
            _mm512_storeu_si512(entries.cast(), low);
            _mm512_storeu_si512(entries.add(8).cast(), high);
            _mm512_storeu_si512(stages.versions[group * KEYS..][..KEYS].as_mut_ptr().cast(), versions);
            _mm_storeu_si128(stages.slots[group * KEYS..][..KEYS].as_mut_ptr().cast(), slots);
            candidates
        };
        stages.candidates |= u64::from(candidates) << (group * KEYS);
        moved |= u64::from(may_have_moved(&before, wanted)) << (group * KEYS);
        // An odd version is a change under way.
        changed = _mm512_or_si512(changed, _mm512_and_si512(versions, _mm512_set1_epi32(1)));
        for entry in &stages.entries[group * KEYS..][..KEYS] {
            view.entries.prefetch(*entry);
        }
    }
    let all = u64::MAX >> (BATCH_MAX - len);
    stages.candidates &= all;
    // As in the portable kernel: misses are decided here.
    stages.again = if _mm512_test_epi64_mask(changed, changed) != 0 { all & !stages.candidates } else { 0 };
    stages.alternates = all & moved & !stages.candidates & !stages.again;
}

/// [`batch::BucketOps::entries`], without noting uses.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn entries<const W: usize>(
    view: View<'_, W>,
    keys: &[[u32; W]],
    values: &mut [u32],
    stages: &mut Stages,
    candidates: u64,
) -> u64 {
    let mut hits = 0;
    for group in 0..keys.len().div_ceil(KEYS) {
        let wanted = (candidates >> (group * KEYS)) as u16;
        if wanted == 0 {
            continue;
        }
        let keys = &keys[group * KEYS..];
        let keys = &keys[..keys.len().min(KEYS)];
        let at = &stages.entries.as_chunks::<KEYS>().0[group];
        let (same, found) =
            if W == 4 { rows_of_four(view.entries, keys, at) } else { one_by_one(view.entries, keys, at) };
        let buckets = &stages.buckets.as_chunks::<KEYS>().0[group];
        // SAFETY: the geometry gives buckets of the table only.
        let now = [0, 1, 2, 3].map(|part| unsafe { states(view.buckets, four(buckets, part)) });
        let now = column(&now, Bucket::VERSION_WORD);
        // SAFETY: 16 words; only values of candidates are written, which are keys of the batch.
        let group_hits = unsafe {
            let before = _mm512_loadu_si512(stages.versions[group * KEYS..][..KEYS].as_ptr().cast());
            let unchanged = _mm512_cmpeq_epi32_mask(before, now);
            let even = _mm512_testn_epi32_mask(before, _mm512_set1_epi32(1));
            let hits = wanted & same & unchanged & even;
            _mm512_mask_storeu_epi32(values[group * KEYS..].as_mut_ptr().cast(), hits, found);
            hits
        };
        hits |= u64::from(group_hits) << (group * KEYS);
    }
    stages.again |= candidates & !hits;
    hits
}

/// Which entries have these keys, of four words, and the values of all.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn rows_of_four<const W: usize>(
    entries: EntriesView<'_, W>,
    keys: &[[u32; W]],
    at: &[EntryAt; KEYS],
) -> (__mmask16, __m512i) {
    let mut same = 0u64;
    let mut rows = [_mm512_setzero_si512(); 4];
    for (part, last_words) in rows.iter_mut().enumerate() {
        let at = four(at, part);
        let left = keys.len().saturating_sub(4 * part).min(4);
        // SAFETY: entries of the table, of five words in one line; as many keys as are left, of four words.
        let (stored, wanted) = unsafe {
            let stored = words(entries, at, 0);
            *last_words = words(entries, at, 1);
            let keys = keys.as_ptr().wrapping_add(4 * part).cast();
            (stored, _mm512_maskz_loadu_epi32(((1u32 << (4 * left)) - 1) as u16, keys))
        };
        same |= u64::from(_mm512_cmpeq_epi32_mask(stored, wanted)) << (16 * part);
    }
    // The first of the four bits of a key: all of them.
    let same = same & same >> 1;
    let same = same & same >> 2;
    (_pext_u64(same, 0x1111_1111_1111_1111) as u16, column(&rows, 3))
}

/// Compares entries with keys of any size.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn one_by_one<const W: usize>(
    entries: EntriesView<'_, W>,
    keys: &[[u32; W]],
    at: &[EntryAt; KEYS],
) -> (__mmask16, __m512i) {
    let mut padded = [[0; W]; KEYS];
    let keys: &[[u32; W]; KEYS] = match keys.first_chunk() {
        Some(keys) => keys,
        None => {
            padded[..keys.len()].copy_from_slice(keys);
            &padded
        }
    };
    let same = (0..KEYS).rev().fold(0, |same, i| same << 1 | u16::from(key_is(entries, at[i], &keys[i])));
    let values = at.map(|at| entries.value(at));
    // SAFETY: 16 words.
    (same, unsafe { _mm512_loadu_si512(values.as_ptr().cast()) })
}

/// Returns whether an entry has this key, by one comparison of as many words as there are in the vector that
/// holds a key.
#[cfg(not(any(all(loom, test), miri)))]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn key_is<const W: usize>(entries: EntriesView<'_, W>, entry: EntryAt, key: &[u32; W]) -> bool {
    let words = ((1u32 << W) - 1) as u16;
    // SAFETY: rows are as long as the vectors read from them, and keys are read up to their ends. Reads of
    // atomics in assembly: as in `rows`.
    unsafe {
        match W {
            ..=2 => entries.key_is(entry, key),
            3..=4 => {
                let stored;
                std::arch::asm!("vmovdqu {0}, [{1}]", out(xmm_reg) stored, in(reg) entries.row::<4>(entry),
                    options(nostack, readonly, preserves_flags));
                let key = _mm_maskz_loadu_epi32(words as u8, key.as_ptr().cast());
                _mm_mask_cmpneq_epi32_mask(words as u8, stored, key) == 0
            }
            5..=8 => {
                let stored;
                std::arch::asm!("vmovdqu {0}, [{1}]", out(ymm_reg) stored, in(reg) entries.row::<8>(entry),
                    options(nostack, readonly, preserves_flags));
                let key = _mm256_maskz_loadu_epi32(words as u8, key.as_ptr().cast());
                _mm256_mask_cmpneq_epi32_mask(words as u8, stored, key) == 0
            }
            _ => {
                let stored;
                std::arch::asm!("vmovdqu64 {0}, [{1}]", out(zmm_reg) stored, in(reg) entries.row::<16>(entry),
                    options(nostack, readonly, preserves_flags));
                let key = _mm512_maskz_loadu_epi32(words, key.as_ptr().cast());
                _mm512_mask_cmpneq_epi32_mask(words, stored, key) == 0
            }
        }
    }
}

/// Returns the definition, for the model checker.
#[cfg(any(all(loom, test), miri))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt")]
fn key_is<const W: usize>(entries: EntriesView<'_, W>, entry: EntryAt, key: &[u32; W]) -> bool {
    entries.key_is(entry, key)
}
