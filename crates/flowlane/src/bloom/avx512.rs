//! Parts of kernels of 16 lanes: hashes and tests of bits.

use std::arch::asm;
use std::arch::x86_64::*;

use super::bits::Bits;

const LANES: usize = 16;

/// The hashes of 16 one-word keys, each under its seed.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn murmur3(keys: __m512i, seeds: __m512i) -> __m512i {
    let mul = |a, b: u32| _mm512_mullo_epi32(a, _mm512_set1_epi32(b as i32));
    let key = mul(_mm512_rol_epi32::<15>(mul(keys, 0xcc9e_2d51)), 0x1b87_3593);
    let hash = _mm512_rol_epi32::<13>(_mm512_xor_si512(seeds, key));
    let hash = _mm512_add_epi32(mul(hash, 5), _mm512_set1_epi32(0xe654_6b64_u32 as i32));
    // The length of the key in bytes.
    let hash = _mm512_xor_si512(hash, _mm512_set1_epi32(4));
    let hash = mul(_mm512_xor_si512(hash, _mm512_srli_epi32::<16>(hash)), 0x85eb_ca6b);
    let hash = mul(_mm512_xor_si512(hash, _mm512_srli_epi32::<13>(hash)), 0xc2b2_ae35);
    _mm512_xor_si512(hash, _mm512_srli_epi32::<16>(hash))
}

/// Which of the lanes in `among` have their bit set.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn test(bits: Bits<'_>, hash: __m512i, among: __mmask16) -> __mmask16 {
    let place = _mm512_srl_epi32(hash, _mm_cvtsi32_si128(bits.shift as i32));
    // SAFETY: `hash >> shift` is less than the number of words, which is at most 2^27: `Bits::new`.
    let words = unsafe {
        _mm512_mask_i32gather_epi32::<4>(_mm512_setzero_si512(), among, place, bits.words.as_ptr().cast())
    };
    // A rotation takes its count modulo 32.
    _mm512_test_epi32_mask(words, _mm512_rolv_epi32(_mm512_set1_epi32(1), hash))
}

/// Asks for the words of 16 bits.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn prefetch(bits: Bits<'_>, hash: __m512i) {
    let mut hashes = [0u32; LANES];
    spill(hash, &mut hashes);
    for hash in hashes {
        bits.prefetch(hash);
    }
}

/// Writes 16 lanes to memory, from which they are then read one by one.
///
/// An ordinary store would be optimised away, and each lane taken out of the register: twice the work.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn spill(lanes: __m512i, to: &mut [u32]) {
    assert_eq!(to.len(), LANES);
    // SAFETY: 16 words are written, as many as there are.
    unsafe {
        asm!("vmovdqu64 zmmword ptr [{}], {}", in(reg) to.as_mut_ptr(), in(zmm_reg) lanes,
             options(nostack, preserves_flags));
    }
}
