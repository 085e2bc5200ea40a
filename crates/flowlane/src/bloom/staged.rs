//! No refilling: one pass per hash over what survived the pass before. One kernel for all widths.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use super::batch::{Batch, Survive};
use super::bits::Bits;
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};
use crate::isa::simd::{InstructionSet, Kernel};
#[cfg(target_arch = "x86_64")]
use crate::isa::{Avx2, Avx512};

/// Keys that go through all passes before the next ones do: what survives a pass stays in the L1 cache.
const CHUNK: usize = 4096;

/// One pass per hash.
pub(super) struct Staged<I>(pub(super) I);

impl<I: PassOps> Survive for Staged<I> {
    #[inline(always)]
    fn survive<const U: usize, const PREFETCH: bool>(self, bits: Bits<'_>, batch: &mut Batch<'_>) {
        self.0.run(Passes::<U, PREFETCH> { bits, batch });
    }
}

/// All passes over a batch, `U` registers side by side.
struct Passes<'a, 'b, const U: usize, const PREFETCH: bool> {
    bits: Bits<'a>,
    batch: &'a mut Batch<'b>,
}

impl<I: PassOps, const U: usize, const PREFETCH: bool> Kernel<I> for Passes<'_, '_, U, PREFETCH> {
    type Output = ();

    #[inline(always)]
    fn run(self, _: I) {
        // SAFETY: the witness proves that the CPU has the instructions.
        unsafe { survive::<I, U, PREFETCH>(self.bits, self.batch) }
    }
}

/// Keys and their payloads, in two arrays.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) keys: *const u32,
    pub(super) payloads: *const u32,
}

impl Source {
    #[inline(always)]
    fn at(self, place: usize) -> Self {
        Self { keys: self.keys.wrapping_add(place), payloads: self.payloads.wrapping_add(place) }
    }
}

/// Where survivors and their payloads go.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) keys: *mut u32,
    pub(super) payloads: *mut u32,
}

impl Target {
    #[inline(always)]
    fn at(self, place: usize) -> Self {
        Self { keys: self.keys.wrapping_add(place), payloads: self.payloads.wrapping_add(place) }
    }
}

/// Operations of a pass on a register of keys.
///
/// # Safety
/// Every function needs the CPU to have the instructions, and its pointers to be good for [`LANES`](Self::LANES)
/// words, or `count` of them.
pub(super) trait PassOps: InstructionSet {
    const LANES: usize;
    type Vector: Copy;

    /// The hashes of the keys at `keys`.
    unsafe fn hash(keys: *const u32, seed: u32) -> Self::Vector;
    /// Asks for the words of their bits.
    unsafe fn prefetch(bits: Bits<'_>, hash: Self::Vector);
    /// Which bits are set.
    unsafe fn test(bits: Bits<'_>, hash: Self::Vector) -> u32;
    /// Writes the keys of `hit` to the front of `to`, and anything behind them.
    unsafe fn pack(from: Source, to: Target, hit: u32);
    /// All of that for the last `count` keys, fewer than a register's. Returns how many were written.
    #[inline(always)]
    unsafe fn rest(bits: Bits<'_>, seed: u32, from: Source, count: usize, to: Target) -> usize {
        let mut kept = 0;
        for i in 0..count {
            // SAFETY: the trait's contract; `kept ≤ i`.
            unsafe {
                let (key, payload) = (*from.keys.add(i), *from.payloads.add(i));
                if scalar::test(bits, scalar::hash(key, seed)) {
                    (*to.keys.add(kept), *to.payloads.add(kept)) = (key, payload);
                    kept += 1;
                }
            }
        }
        kept
    }
}

/// # Safety
/// The CPU has the instructions of `L`.
#[inline(always)]
unsafe fn survive<L: PassOps, const U: usize, const PREFETCH: bool>(bits: Bits<'_>, batch: &mut Batch<'_>) {
    let Batch { keys, payloads, out } = batch;
    for (keys, payloads) in keys.chunks(CHUNK).zip(payloads.chunks(CHUNK)) {
        let (to_keys, to_payloads) = (&mut out.keys[out.len..], &mut out.payloads[out.len..]);
        assert!(to_keys.len() >= keys.len() && to_payloads.len() >= keys.len());
        let to = Target { keys: to_keys.as_mut_ptr(), payloads: to_payloads.as_mut_ptr() };
        let mut from = Source { keys: keys.as_ptr(), payloads: payloads.as_ptr() };
        let mut len = keys.len();
        for &seed in &bits.seeds[..bits.hashes] {
            // SAFETY: `to` has room for the chunk, asserted above; after the first pass, `from` is what that
            // pass wrote.
            len = unsafe { pass::<L, U, PREFETCH>(bits, seed, from, len, to) };
            from = Source { keys: to.keys, payloads: to.payloads };
        }
        out.len += len;
    }
}

/// Keeps, in their order, the keys whose bit under this seed is set, and says how many they are.
///
/// # Safety
/// The CPU has the instructions of `L`. `from` is readable, and `to` writable, for `len` words; `to` begins where
/// `from` does, or they do not overlap.
#[inline(always)]
unsafe fn pass<L: PassOps, const U: usize, const PREFETCH: bool>(
    bits: Bits<'_>,
    seed: u32,
    from: Source,
    len: usize,
    to: Target,
) -> usize {
    let group = U * L::LANES;
    let (mut at, mut kept) = (0, 0);
    // SAFETY: a group is read where `group` keys are left. `kept ≤ at`: a full store behind the survivors ends
    // where the register just read does, at the latest, and so overwrites nothing unread.
    unsafe {
        let mut ahead = None;
        if PREFETCH && group <= len {
            ahead = Some(hash_group::<L, U, true>(bits, seed, from.keys));
        }
        while at + group <= len {
            let hash = match ahead {
                Some(hash) => hash,
                None => hash_group::<L, U, false>(bits, seed, from.at(at).keys),
            };
            if PREFETCH && at + 2 * group <= len {
                ahead = Some(hash_group::<L, U, true>(bits, seed, from.at(at + group).keys));
            }
            let mut hits = [0; U];
            for u in 0..U {
                hits[u] = L::test(bits, hash[u]);
            }
            for hit in hits {
                L::pack(from.at(at), to.at(kept), hit);
                kept += hit.count_ones() as usize;
                at += L::LANES;
            }
        }
        while at < len {
            let count = (len - at).min(L::LANES);
            kept += L::rest(bits, seed, from.at(at), count, to.at(kept));
            at += count;
        }
    }
    kept
}

/// The hashes of `U` registers of keys.
///
/// # Safety
/// The CPU has the instructions of `L`; `keys` is readable for `U` registers.
#[inline(always)]
unsafe fn hash_group<L: PassOps, const U: usize, const PREFETCH: bool>(
    bits: Bits<'_>,
    seed: u32,
    keys: *const u32,
) -> [L::Vector; U] {
    // SAFETY: the caller's promise.
    unsafe {
        let mut hash = [L::hash(keys, seed); U];
        for (u, hash) in hash.iter_mut().enumerate().skip(1) {
            *hash = L::hash(keys.add(u * L::LANES), seed);
        }
        if PREFETCH {
            for hash in hash {
                L::prefetch(bits, hash);
            }
        }
        hash
    }
}

#[cfg(target_arch = "x86_64")]
impl PassOps for Avx512 {
    const LANES: usize = 16;
    type Vector = __m512i;

    #[inline(always)]
    unsafe fn hash(keys: *const u32, seed: u32) -> __m512i {
        // SAFETY: the trait's contract.
        unsafe { avx512::murmur3(_mm512_loadu_si512(keys.cast()), _mm512_set1_epi32(seed as i32)) }
    }

    #[inline(always)]
    unsafe fn prefetch(bits: Bits<'_>, hash: __m512i) {
        // SAFETY: the trait's contract.
        unsafe { avx512::prefetch(bits, hash) }
    }

    #[inline(always)]
    unsafe fn test(bits: Bits<'_>, hash: __m512i) -> u32 {
        // SAFETY: the trait's contract.
        unsafe { avx512::test(bits, hash, !0).into() }
    }

    #[inline(always)]
    unsafe fn pack(from: Source, to: Target, hit: u32) {
        // SAFETY: the trait's contract.
        unsafe {
            let keys = _mm512_loadu_si512(from.keys.cast());
            let payloads = _mm512_loadu_si512(from.payloads.cast());
            // Merging, not zeroing: the latter waits for the old value of its target on Zen 4 and 5.
            let keys = _mm512_mask_compress_epi32(keys, hit as __mmask16, keys);
            let payloads = _mm512_mask_compress_epi32(payloads, hit as __mmask16, payloads);
            _mm512_storeu_si512(to.keys.cast(), keys);
            _mm512_storeu_si512(to.payloads.cast(), payloads);
        }
    }

    #[inline(always)]
    unsafe fn rest(bits: Bits<'_>, seed: u32, from: Source, count: usize, to: Target) -> usize {
        let among = ((1u32 << count) - 1) as __mmask16;
        // SAFETY: the trait's contract; only the lanes of `among` are read, and as many written at most.
        unsafe {
            let keys = _mm512_maskz_loadu_epi32(among, from.keys.cast());
            let payloads = _mm512_maskz_loadu_epi32(among, from.payloads.cast());
            let hit = avx512::test(bits, avx512::murmur3(keys, _mm512_set1_epi32(seed as i32)), among);
            _mm512_mask_compressstoreu_epi32(to.keys.cast(), hit, keys);
            _mm512_mask_compressstoreu_epi32(to.payloads.cast(), hit, payloads);
            hit.count_ones() as usize
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl PassOps for Avx2 {
    const LANES: usize = 8;
    type Vector = __m256i;

    #[inline(always)]
    unsafe fn hash(keys: *const u32, seed: u32) -> __m256i {
        // SAFETY: the trait's contract.
        unsafe { avx2::murmur3(_mm256_loadu_si256(keys.cast()), _mm256_set1_epi32(seed as i32)) }
    }

    #[inline(always)]
    unsafe fn prefetch(bits: Bits<'_>, hash: __m256i) {
        // SAFETY: the trait's contract.
        unsafe { avx2::prefetch(bits, hash) }
    }

    #[inline(always)]
    unsafe fn test(bits: Bits<'_>, hash: __m256i) -> u32 {
        // SAFETY: the trait's contract.
        unsafe { (!avx2::lane_mask(avx2::misses(bits, hash))).into() }
    }

    #[inline(always)]
    unsafe fn pack(from: Source, to: Target, hit: u32) {
        // SAFETY: the trait's contract.
        unsafe {
            let order = avx2::permutation(hit as u8);
            let keys = avx2::permute(order, _mm256_loadu_si256(from.keys.cast()));
            let payloads = avx2::permute(order, _mm256_loadu_si256(from.payloads.cast()));
            _mm256_storeu_si256(to.keys.cast(), keys);
            _mm256_storeu_si256(to.payloads.cast(), payloads);
        }
    }
}
