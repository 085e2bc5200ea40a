//! Which keys of a batch may be in: one bit a key, for keys of every kind. 64 keys at a time, and of those
//! 16 at a time, each hash for the lanes that are still in.

use std::arch::x86_64::*;

use super::avx512::{murmur3, prefetch, test};
use super::bits::Bits;
use crate::isa::Avx512;

const LANES: usize = 16;
/// Vectors for one word of hits.
const VECTORS: usize = 4;

/// A kind of key: how 16 of them become what their hashes are made of.
pub(super) trait Kind: Copy {
    /// Two vectors: the keys, or the low and high halves of their digests.
    ///
    /// # Safety
    /// The CPU has AVX-512; the keys in `among` are readable from `keys` on.
    unsafe fn load16(keys: *const Self, among: __mmask16, seed: u64) -> [__m512i; 2];

    /// The low and high halves of the digests of 16 keys.
    ///
    /// # Safety
    /// As for [`load16`](Self::load16).
    #[inline(always)]
    unsafe fn digest16(keys: *const Self, among: __mmask16, seed: u64) -> [__m512i; 2] {
        // SAFETY: the caller's promise.
        unsafe { Self::load16(keys, among, seed) }
    }

    /// Hash number `i` of 16 loaded keys.
    ///
    /// # Safety
    /// The CPU has AVX-512.
    unsafe fn hash(loaded: [__m512i; 2], bits: Bits<'_>, i: usize) -> __m512i;
}

/// A 32-bit key: a seed for each hash.
impl Kind for u32 {
    #[inline(always)]
    unsafe fn load16(keys: *const Self, among: __mmask16, _: u64) -> [__m512i; 2] {
        // SAFETY: the caller's promise.
        unsafe { [_mm512_maskz_loadu_epi32(among, keys.cast()); 2] }
    }

    #[inline(always)]
    unsafe fn digest16(keys: *const Self, among: __mmask16, seed: u64) -> [__m512i; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let [first, second] = widen(_mm512_maskz_loadu_epi32(among, keys.cast()));
            digests(first, second, seed)
        }
    }

    #[inline(always)]
    unsafe fn hash(loaded: [__m512i; 2], bits: Bits<'_>, i: usize) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { murmur3(loaded[0], _mm512_set1_epi32(bits.seeds[i] as i32)) }
    }
}

/// A digest: two hashes that give all others.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Digest(pub(super) u64);

impl Kind for Digest {
    #[inline(always)]
    unsafe fn load16(keys: *const Self, among: __mmask16, _: u64) -> [__m512i; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let [first, second] = load_words(keys.cast(), among);
            halves(first, second)
        }
    }

    #[inline(always)]
    unsafe fn hash(loaded: [__m512i; 2], _: Bits<'_>, i: usize) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { digest_hash(loaded, i) }
    }
}

/// A 64-bit key, whose digest is made first.
impl Kind for u64 {
    #[inline(always)]
    unsafe fn load16(keys: *const Self, among: __mmask16, seed: u64) -> [__m512i; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let [first, second] = load_words(keys.cast(), among);
            digests(first, second, seed)
        }
    }

    #[inline(always)]
    unsafe fn hash(loaded: [__m512i; 2], _: Bits<'_>, i: usize) -> __m512i {
        // SAFETY: the caller's promise.
        unsafe { digest_hash(loaded, i) }
    }
}

/// The halves of the digests of 16 keys: see [`digest`](super::scalar::digest).
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn digests(first: __m512i, second: __m512i, seed: u64) -> [__m512i; 2] {
    halves(digest8(first, seed), digest8(second, seed))
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn digest8(key: __m512i, seed: u64) -> __m512i {
    let key = _mm512_xor_si512(key, _mm512_set1_epi64(seed as i64));
    let key = _mm512_xor_si512(key, _mm512_srli_epi64::<33>(key));
    let key = _mm512_mullo_epi64(key, _mm512_set1_epi64(0xff51_afd7_ed55_8ccd_u64 as i64));
    let key = _mm512_xor_si512(key, _mm512_srli_epi64::<33>(key));
    let key = _mm512_mullo_epi64(key, _mm512_set1_epi64(0xc4ce_b9fe_1a85_ec53_u64 as i64));
    _mm512_xor_si512(key, _mm512_srli_epi64::<33>(key))
}

/// 16 keys of 32 bits as keys of 64.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn widen(keys: __m512i) -> [__m512i; 2] {
    [
        _mm512_cvtepu32_epi64(_mm512_castsi512_si256(keys)),
        _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64::<1>(keys)),
    ]
}

/// The low and the high halves of 16 words of 64 bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn halves(first: __m512i, second: __m512i) -> [__m512i; 2] {
    let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    [_mm512_permutex2var_epi32(first, even, second), _mm512_permutex2var_epi32(first, odd, second)]
}

/// 16 words of 64 bits.
///
/// # Safety
/// Those in `among` are readable from `words` on.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load_words(words: *const i64, among: __mmask16) -> [__m512i; 2] {
    // SAFETY: the caller's promise; lanes that are not in the mask are not read.
    unsafe {
        [
            _mm512_maskz_loadu_epi64(among as u8, words),
            _mm512_maskz_loadu_epi64((among >> 8) as u8, words.wrapping_add(8)),
        ]
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn digest_hash([low, high]: [__m512i; 2], i: usize) -> __m512i {
    let step = _mm512_or_si512(high, _mm512_set1_epi32(1));
    _mm512_add_epi32(low, _mm512_mullo_epi32(step, _mm512_set1_epi32(i as i32)))
}

/// Bit `i` of `hits` says whether key `i` may be in. `hits` has a word for each 64 keys.
#[inline]
pub(super) fn contains<K: Kind>(
    _: Avx512,
    ahead: bool,
    bits: Bits<'_>,
    seed: u64,
    keys: &[K],
    hits: &mut [u64],
) {
    for (keys, hits) in keys.chunks(64).zip(hits) {
        // SAFETY: the witness proves that the CPU has AVX-512 F, BW, DQ and VL.
        *hits = unsafe {
            if ahead { word::<K, true>(bits, seed, keys) } else { word::<K, false>(bits, seed, keys) }
        };
    }
}

/// At most 64 keys.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn word<K: Kind, const PREFETCH: bool>(bits: Bits<'_>, seed: u64, keys: &[K]) -> u64 {
    let among = if keys.is_empty() { 0 } else { !0u64 >> (64 - keys.len().min(64)) };
    let mut loaded = [[_mm512_setzero_si512(); 2]; VECTORS];
    let mut hits = [0u16; VECTORS];
    let mut hash = [_mm512_setzero_si512(); VECTORS];
    for v in 0..VECTORS {
        hits[v] = (among >> (LANES * v)) as u16;
        // SAFETY: this function runs with AVX-512; the lanes of `among` are keys.
        unsafe {
            loaded[v] = K::load16(keys.as_ptr().wrapping_add(LANES * v), hits[v], seed);
            hash[v] = K::hash(loaded[v], bits, 0);
        }
        if PREFETCH {
            prefetch(bits, hash[v]);
        }
    }
    for v in 0..VECTORS {
        hits[v] = test(bits, hash[v], hits[v]);
    }
    for i in 1..bits.hashes {
        for v in 0..VECTORS {
            // SAFETY: this function runs with AVX-512.
            let hash = unsafe { K::hash(loaded[v], bits, i) };
            hits[v] = test(bits, hash, hits[v]);
        }
        if hits == [0; VECTORS] {
            break;
        }
    }
    hits.iter().rev().fold(0, |word, hits| word << 16 | u64::from(*hits))
}
