//! Registers of 128 bits: four words of 32 bits.

use super::Registers;

/// Instructions on registers of 128 bits that kernels for exactly this width use: permutes of bytes, comparisons of half words, and
/// one number for the words of four registers.
pub(crate) trait Quad: Registers {
    /// Loads four words whose address is a multiple of 16.
    ///
    /// # Safety
    /// `from` is readable for 16 bytes, and a multiple of 16.
    unsafe fn load_aligned(self, from: *const u32) -> Self::Register;

    /// Loads 16 bytes, the first into the lowest of the first word.
    fn load_bytes(self, bytes: &[u8; 16]) -> Self::Register;

    /// Returns a register of these words.
    fn words(self, words: [u32; 4]) -> Self::Register;

    /// Returns the register whose byte `i` is byte `from[i]` of this one, or zero where `from[i]` is 255.
    fn permute(self, register: Self::Register, from: [u8; 16]) -> Self::Register;

    /// Returns `a | b`.
    fn or(self, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Returns `a ^ b`.
    fn xor(self, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Returns `a & !b`.
    fn and_not(self, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Returns whether all bits are zero.
    fn is_zero(self, register: Self::Register) -> bool;

    /// Returns `a - b` of unsigned words of 16 bits, and zero where that is negative.
    fn excess_halves(self, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Returns the larger of unsigned words of 32 bits.
    fn max(self, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Returns the smaller of unsigned words of 32 bits.
    fn min(self, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Returns one bit for each of sixteen words, the lowest for the first of the first mask.
    fn bits_of_four(self, masks: [Self::Mask; 4]) -> u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::simd::{InstructionSet, Kernel};

    /// Compares every operation of [`Quad`] with arithmetic on single words.
    struct EveryOperation;

    impl<Q: Quad> Kernel<Q> for EveryOperation {
        type Output = ();

        #[inline(always)]
        fn run(self, isa: Q) {
            let a = [0x8001_7fff, 5, 0xffff_0000, 0x1234_5678];
            let b = [0x8000_8000, 5, 0x0001_ffff, 0x2233_4455];
            let (x, y) = (isa.load(&a), isa.words(b));
            let lanes = |register| {
                let mut out = [0; 4];
                isa.store(register, &mut out);
                out
            };
            let of = |f: fn(u32, u32) -> u32| std::array::from_fn::<u32, 4, _>(|i| f(a[i], b[i]));
            assert_eq!(lanes(isa.or(x, y)), of(|a, b| a | b));
            assert_eq!(lanes(isa.xor(x, y)), of(|a, b| a ^ b));
            assert_eq!(lanes(isa.and_not(x, y)), of(|a, b| a & !b));
            assert_eq!(lanes(isa.max(x, y)), of(u32::max));
            assert_eq!(lanes(isa.min(x, y)), of(u32::min));
            let excess = |a: u32, b: u32| u32::from((a as u16).saturating_sub(b as u16));
            let halves = std::array::from_fn(|i| excess(a[i] >> 16, b[i] >> 16) << 16 | excess(a[i], b[i]));
            assert_eq!(lanes(isa.excess_halves(x, y)), halves);
            assert!(isa.is_zero(isa.xor(x, x)) && !isa.is_zero(isa.xor(x, y)));
            let bytes: [u8; 16] = std::array::from_fn(|i| 16 * i as u8 + 1);
            let from = [15, 255, 0, 3, 3, 7, 255, 255, 8, 9, 1, 2, 255, 14, 13, 12];
            let moved = isa.permute(isa.load_bytes(&bytes), from);
            let wanted = from.map(|i| bytes.get(usize::from(i)).copied().unwrap_or(0));
            assert_eq!(
                lanes(moved),
                *wanted.as_chunks::<4>().0.iter().map(|w| u32::from_le_bytes(*w)).collect::<Vec<_>>()
            );
            for bits in (0..1 << 16).step_by(7) {
                let mask = |four: usize| {
                    let words = [0, 1, 2, 3].map(|i| !bits >> (4 * four + i) & 1);
                    isa.equal_in(isa.mask_all(), isa.words(words), isa.splat(0))
                };
                assert_eq!(isa.bits_of_four([0, 1, 2, 3].map(mask)), bits);
            }
        }
    }

    #[test]
    fn every_operation_agrees_with_arithmetic() {
        #[cfg(target_arch = "x86_64")]
        if let Some(isa) = crate::isa::Sse42::detect() {
            isa.run(EveryOperation);
        }
        #[cfg(target_arch = "aarch64")]
        if let Some(isa) = crate::isa::Neon::detect() {
            isa.run(EveryOperation);
        }
    }
}
