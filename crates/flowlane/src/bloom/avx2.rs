//! Parts of kernels of 8 lanes: hashes, tests of bits, and permutations of lanes.

use std::arch::x86_64::*;

use super::bits::Bits;

const LANES: usize = 8;

/// For each set of lanes the permutation that puts them first, in their order, and the others behind.
static PERMUTATIONS: [[u8; LANES]; 1 << LANES] = {
    let mut table = [[0; LANES]; 1 << LANES];
    let mut set = 0;
    while set < table.len() {
        let (mut to, mut lane) = (0, 0);
        while lane < 2 * LANES {
            let member = set >> (lane % LANES) & 1 == 1;
            if member == (lane < LANES) {
                table[set][to] = (lane % LANES) as u8;
                to += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    table
};

/// The permutation that puts the lanes of `first` first, in their order, and the others behind.
#[inline]
#[target_feature(enable = "avx2")]
pub fn permutation(first: u8) -> __m256i {
    let entry = u64::from_le_bytes(PERMUTATIONS[usize::from(first)]);
    _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(entry as i64))
}

/// The lanes in another order.
#[inline]
#[target_feature(enable = "avx2")]
pub fn permute(order: __m256i, lanes: __m256i) -> __m256i {
    _mm256_permutevar8x32_epi32(lanes, order)
}

/// One bit for each lane of ones.
#[inline]
#[target_feature(enable = "avx2")]
pub fn lane_mask(lanes: __m256i) -> u8 {
    _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) as u8
}

/// The hashes of 8 one-word keys, each under its seed.
#[inline]
#[target_feature(enable = "avx2")]
pub fn murmur3(keys: __m256i, seeds: __m256i) -> __m256i {
    let mul = |a, b: u32| _mm256_mullo_epi32(a, _mm256_set1_epi32(b as i32));
    let key = mul(keys, 0xcc9e_2d51);
    let key = _mm256_or_si256(_mm256_slli_epi32::<15>(key), _mm256_srli_epi32::<17>(key));
    let hash = _mm256_xor_si256(seeds, mul(key, 0x1b87_3593));
    let hash = _mm256_or_si256(_mm256_slli_epi32::<13>(hash), _mm256_srli_epi32::<19>(hash));
    let hash = _mm256_add_epi32(mul(hash, 5), _mm256_set1_epi32(0xe654_6b64_u32 as i32));
    let hash = _mm256_xor_si256(hash, _mm256_set1_epi32(4));
    let hash = _mm256_xor_si256(hash, _mm256_srli_epi32::<16>(hash));
    let hash = mul(hash, 0x85eb_ca6b);
    let hash = _mm256_xor_si256(hash, _mm256_srli_epi32::<13>(hash));
    let hash = mul(hash, 0xc2b2_ae35);
    _mm256_xor_si256(hash, _mm256_srli_epi32::<16>(hash))
}

/// Ones in each lane whose bit is not set.
#[inline]
#[target_feature(enable = "avx2")]
pub fn misses(bits: Bits<'_>, hash: __m256i) -> __m256i {
    let place = _mm256_srl_epi32(hash, _mm_cvtsi32_si128(bits.shift as i32));
    // SAFETY: `hash >> shift` is less than the number of words, which is at most 2^27: `Bits::new`.
    let words = unsafe { _mm256_i32gather_epi32::<4>(bits.words.as_ptr().cast(), place) };
    let bit = _mm256_and_si256(hash, _mm256_set1_epi32(31));
    let bit = _mm256_sllv_epi32(_mm256_set1_epi32(1), bit);
    _mm256_cmpeq_epi32(_mm256_and_si256(words, bit), _mm256_setzero_si256())
}

/// Asks for the words of 8 bits.
#[inline]
#[target_feature(enable = "avx2")]
pub fn prefetch(bits: Bits<'_>, hash: __m256i) {
    let mut hashes = [0u32; LANES];
    // SAFETY: the array has 8 words.
    unsafe { _mm256_storeu_si256(hashes.as_mut_ptr().cast(), hash) };
    for hash in hashes {
        bits.prefetch(hash);
    }
}
