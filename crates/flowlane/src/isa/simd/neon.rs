//! 128 bits of AArch64.

use std::arch::aarch64::*;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use super::{Quad, Registers, Vector};
use crate::isa::Neon;

impl Registers for Neon {
    const LANES: usize = 4;
    type Register = uint32x4_t;
    /// Words of ones, or of zeros.
    type Mask = uint32x4_t;

    #[inline(always)]
    fn splat(self, word: u32) -> uint32x4_t {
        // SAFETY: the witness proves that the CPU has NEON; so below.
        unsafe { vdupq_n_u32(word) }
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> uint32x4_t {
        let words = &words[..Self::LANES];
        // SAFETY: as above; four words.
        unsafe { vld1q_u32(words.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, register: uint32x4_t, to: &mut [u32]) {
        let to = &mut to[..Self::LANES];
        // SAFETY: as above; four words.
        unsafe { vst1q_u32(to.as_mut_ptr(), register) }
    }

    #[inline(always)]
    fn and(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vandq_u32(a, b) }
    }

    #[inline(always)]
    fn clamp(self, register: uint32x4_t, low: uint32x4_t, high: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vminq_u32(vmaxq_u32(register, low), high) }
    }

    #[inline(always)]
    fn clamp_halves(self, register: uint32x4_t, low: uint32x4_t, high: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe {
            let [register, low, high] = [register, low, high].map(|of| vreinterpretq_u16_u32(of));
            vreinterpretq_u32_u16(vminq_u16(vmaxq_u16(register, low), high))
        }
    }

    #[inline(always)]
    fn equal_in(self, mask: uint32x4_t, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vandq_u32(mask, vceqq_u32(a, b)) }
    }

    #[inline(always)]
    fn blend(self, mask: uint32x4_t, register: uint32x4_t, otherwise: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vbslq_u32(mask, register, otherwise) }
    }

    #[inline(always)]
    fn mask_all(self) -> uint32x4_t {
        self.splat(u32::MAX)
    }

    #[inline(always)]
    fn mask_none(self) -> uint32x4_t {
        self.splat(0)
    }

    #[inline(always)]
    fn mask_or(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vorrq_u32(a, b) }
    }

    #[inline(always)]
    fn mask_and_not(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vbicq_u32(a, b) }
    }

    #[inline(always)]
    fn bits(self, mask: uint32x4_t) -> u32 {
        // SAFETY: as above. Each lane has a bit of its own, so that the sum is their union.
        unsafe { vaddvq_u32(vandq_u32(mask, self.load(&[1, 2, 4, 8]))) }
    }

    #[inline(always)]
    fn any(self, mask: uint32x4_t) -> bool {
        // SAFETY: as above.
        unsafe { vmaxvq_u32(mask) != 0 }
    }

    #[inline(always)]
    fn all<const N: usize>(self, masks: [uint32x4_t; N]) -> bool {
        let all = masks.into_iter().fold(self.mask_all(), |all, mask| self.and(all, mask));
        // SAFETY: as above.
        unsafe { vminvq_u32(all) != 0 }
    }
}

impl Quad for Neon {
    #[inline(always)]
    unsafe fn load_aligned(self, from: *const u32) -> uint32x4_t {
        // SAFETY: as above; memory is the caller's promise.
        unsafe { vld1q_u32(from) }
    }

    #[inline(always)]
    fn load_bytes(self, bytes: &[u8; 16]) -> uint32x4_t {
        // SAFETY: as above; sixteen bytes.
        unsafe { vreinterpretq_u32_u8(vld1q_u8(bytes.as_ptr())) }
    }

    #[inline(always)]
    fn words(self, words: [u32; 4]) -> uint32x4_t {
        self.load(&words)
    }

    #[inline(always)]
    fn permute(self, register: uint32x4_t, from: [u8; 16]) -> uint32x4_t {
        // SAFETY: as above; sixteen bytes.
        unsafe {
            let from = vld1q_u8(from.as_ptr());
            vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(register), from))
        }
    }

    #[inline(always)]
    fn or(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        self.mask_or(a, b)
    }

    #[inline(always)]
    fn xor(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { veorq_u32(a, b) }
    }

    #[inline(always)]
    fn and_not(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        self.mask_and_not(a, b)
    }

    #[inline(always)]
    fn is_zero(self, register: uint32x4_t) -> bool {
        !self.any(register)
    }

    #[inline(always)]
    fn excess_halves(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vreinterpretq_u32_u16(vqsubq_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b))) }
    }

    #[inline(always)]
    fn max(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vmaxq_u32(a, b) }
    }

    #[inline(always)]
    fn min(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vminq_u32(a, b) }
    }

    #[inline(always)]
    fn bits_of_four(self, masks: [uint32x4_t; 4]) -> u32 {
        const LOW: [u16; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
        const HIGH: [u16; 8] = [256, 512, 1024, 2048, 4096, 8192, 1 << 14, 1 << 15];
        // SAFETY: as above; eight numbers each. Each lane has a bit of its own, so that the sum is their union.
        unsafe {
            let [a, b, c, d] = masks.map(|mask| vreinterpretq_u16_u32(mask));
            let low = vandq_u16(vuzp1q_u16(a, b), vld1q_u16(LOW.as_ptr()));
            let high = vandq_u16(vuzp1q_u16(c, d), vld1q_u16(HIGH.as_ptr()));
            vaddvq_u16(vorrq_u16(low, high)).into()
        }
    }
}

/// Adds neighbouring bytes, those of `a` before those of `b`.
///
/// In assembly: of the intrinsic (`vpaddq_u8`) whose operands have no bits in common, the compiler makes two permutes and an `orr`.
#[inline(always)]
pub(crate) fn add_neighbours(_: Neon, a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
    let sums;
    // SAFETY: the witness proves NEON.
    unsafe {
        std::arch::asm!("addp {0:v}.16b, {1:v}.16b, {2:v}.16b", out(vreg) sums, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sums
}

/// Reads `SCALE` bytes, 1, 2 or 4, from `base + SCALE × index`.
///
/// # Safety
/// They are readable there, and `base` is a multiple of `SCALE`.
#[inline(always)]
unsafe fn read<const SCALE: usize>(base: *const u8, index: u32) -> u32 {
    let at = base.wrapping_add(SCALE * index as usize);
    // SAFETY: the caller's promise.
    unsafe {
        match SCALE {
            1 => (*at.cast::<AtomicU8>()).load(Relaxed).into(),
            2 => (*at.cast::<AtomicU16>()).load(Relaxed).into(),
            _ => (*at.cast::<AtomicU32>()).load(Relaxed),
        }
    }
}

/// Gathers are read lane by lane, entries of fewer than four bytes without what follows them.
impl Vector for Neon {
    const GATHERS: bool = false;

    type Half = uint32x2_t;
    /// Words of ones, or of zeros.
    type WideMask = uint64x2_t;

    #[inline(always)]
    fn store_widened(self, register: uint32x4_t, to: &mut [u64]) {
        let to = to[..Self::LANES].as_mut_ptr();
        // SAFETY: as above; four words of 64 bits.
        unsafe {
            vst1q_u64(to, vmovl_u32(vget_low_u32(register)));
            vst1q_u64(to.add(2), vmovl_high_u32(register));
        }
    }

    #[inline(always)]
    fn or(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        self.mask_or(a, b)
    }

    #[inline(always)]
    fn add(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vaddq_u32(a, b) }
    }

    #[inline(always)]
    fn shl(self, register: uint32x4_t, bits: u32) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vshlq_u32(register, vdupq_n_s32(bits.cast_signed())) }
    }

    #[inline(always)]
    fn shr(self, register: uint32x4_t, bits: u32) -> uint32x4_t {
        // SAFETY: as above. Shifts by a negative number go to the right.
        unsafe { vshlq_u32(register, vdupq_n_s32(-bits.cast_signed())) }
    }

    #[inline(always)]
    fn odd(self, register: uint32x4_t) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vtstq_u32(register, self.splat(1)) }
    }

    #[inline(always)]
    unsafe fn gather<const SCALE: usize>(self, base: *const u8, index: uint32x4_t) -> uint32x4_t {
        let mut indices = [0; Self::LANES];
        self.store(index, &mut indices);
        // SAFETY: the caller's promise.
        self.words(indices.map(|index| unsafe { read::<SCALE>(base, index) }))
    }

    #[inline(always)]
    unsafe fn gather_in<const SCALE: usize>(
        self,
        base: *const u8,
        index: uint32x4_t,
        mask: uint32x4_t,
        otherwise: uint32x4_t,
    ) -> uint32x4_t {
        let (mut indices, mut words) = ([0; Self::LANES], [0; Self::LANES]);
        self.store(index, &mut indices);
        self.store(otherwise, &mut words);
        let mut lanes = self.bits(mask);
        while lanes != 0 {
            let lane = lanes.trailing_zeros() as usize % Self::LANES;
            // SAFETY: the caller's promise for the lanes of the mask.
            words[lane] = unsafe { read::<SCALE>(base, indices[lane]) };
            lanes &= lanes - 1;
        }
        self.load(&words)
    }

    #[inline(always)]
    fn load_half(self, words: &[u32]) -> uint32x2_t {
        let words = &words[..Self::LANES / 2];
        // SAFETY: as above; two words.
        unsafe { vld1_u32(words.as_ptr()) }
    }

    #[inline(always)]
    fn and_half(self, half: uint32x2_t, word: u32) -> uint32x2_t {
        // SAFETY: as above.
        unsafe { vand_u32(half, vdup_n_u32(word)) }
    }

    #[inline(always)]
    fn or_half(self, a: uint32x2_t, b: uint32x2_t) -> uint32x2_t {
        // SAFETY: as above.
        unsafe { vorr_u32(a, b) }
    }

    #[inline(always)]
    fn shr_half(self, half: uint32x2_t, bits: u32) -> uint32x2_t {
        // SAFETY: as above.
        unsafe { vshl_u32(half, vdup_n_s32(-bits.cast_signed())) }
    }

    #[inline(always)]
    fn store_wide(self, register: uint32x4_t, to: &mut [u64]) {
        let to = &mut to[..Self::LANES / 2];
        // SAFETY: as above; two words of 64 bits.
        unsafe { vst1q_u64(to.as_mut_ptr(), vreinterpretq_u64_u32(register)) }
    }

    #[inline(always)]
    fn shl_wide(self, register: uint32x4_t, bits: u32) -> uint32x4_t {
        // SAFETY: as above.
        unsafe {
            let shifted = vshlq_u64(vreinterpretq_u64_u32(register), vdupq_n_s64(bits.into()));
            vreinterpretq_u32_u64(shifted)
        }
    }

    #[inline(always)]
    fn shr_wide(self, register: uint32x4_t, bits: u32) -> uint32x4_t {
        // SAFETY: as above.
        unsafe {
            let shifted = vshlq_u64(vreinterpretq_u64_u32(register), vdupq_n_s64(-i64::from(bits)));
            vreinterpretq_u32_u64(shifted)
        }
    }

    #[inline(always)]
    fn add_wide(self, register: uint32x4_t, number: u64) -> uint32x4_t {
        // SAFETY: as above.
        unsafe { vreinterpretq_u32_u64(vaddq_u64(vreinterpretq_u64_u32(register), vdupq_n_u64(number))) }
    }

    #[inline(always)]
    fn narrow(self, register: uint32x4_t) -> uint32x2_t {
        // SAFETY: as above.
        unsafe { vmovn_u64(vreinterpretq_u64_u32(register)) }
    }

    #[inline(always)]
    fn odd_wide(self, register: uint32x4_t) -> uint64x2_t {
        // SAFETY: as above.
        unsafe { vtstq_u64(vreinterpretq_u64_u32(register), vdupq_n_u64(1)) }
    }

    #[inline(always)]
    fn any_wide(self, mask: uint64x2_t) -> bool {
        // SAFETY: as above.
        unsafe { vmaxvq_u32(vreinterpretq_u32_u64(mask)) != 0 }
    }

    #[inline(always)]
    unsafe fn gather_wide(self, base: *const u8, index: uint32x2_t) -> uint32x4_t {
        // SAFETY: as above; memory is the caller's promise.
        unsafe {
            let word = |index: u32| (*base.cast::<AtomicU64>().add(index as usize)).load(Relaxed);
            let words = [word(vget_lane_u32::<0>(index)), word(vget_lane_u32::<1>(index))];
            vreinterpretq_u32_u64(vld1q_u64(words.as_ptr()))
        }
    }

    #[inline(always)]
    unsafe fn gather_wide_in(
        self,
        base: *const u8,
        index: uint32x2_t,
        mask: uint64x2_t,
        otherwise: uint32x4_t,
    ) -> uint32x4_t {
        let mut words = [0; Self::LANES / 2];
        self.store_wide(otherwise, &mut words);
        // SAFETY: as above; memory is the caller's promise for the lanes of the mask.
        unsafe {
            let word = |index: u32| (*base.cast::<AtomicU64>().add(index as usize)).load(Relaxed);
            if vgetq_lane_u64::<0>(mask) != 0 {
                words[0] = word(vget_lane_u32::<0>(index));
            }
            if vgetq_lane_u64::<1>(mask) != 0 {
                words[1] = word(vget_lane_u32::<1>(index));
            }
            vreinterpretq_u32_u64(vld1q_u64(words.as_ptr()))
        }
    }
}
