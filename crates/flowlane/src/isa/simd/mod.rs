//! Kernels that differ only in the width of their registers, written once.
//!
//! A [`Kernel`] is a value with its arguments and one `run`, which takes the witness of an instruction set; the witness's
//! [`InstructionSet::run`] compiles it for those instructions, and is the only place with `#[target_feature]`. A kernel over
//! registers is generic over [`Vector`], which [`Avx2`](super::Avx2) and [`Avx512`](super::Avx512) implement:
//!
//! ```text
//! impl<V: Vector> Kernel<V> for Places<'_> {            match backend {
//!     #[inline(always)]                                     Backend::Avx2(isa) => isa.run(Places { .. }),
//!     fn run(self, isa: V) { isa.add(..) }                  Backend::Avx512(isa) => isa.run(Places { .. }),
//! }                                                         _ => scalar::places(..),
//! ```                                                   }
//!
//! Methods of `Vector`, every `Kernel::run` and the functions between them are `#[inline(always)]` and have no instructions of
//! their own: they get them where they are inlined. A function in between that is not inlined would be compiled without
//! them, and would call a function for each instruction: `docs/building.md`.
//!
//! There is no 128-bit implementation: SSE4.2 has no gathers, and what it has kernels for (`cuckoo`, access lists) is not
//! lanes of packets.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gather;

/// An instruction set, by the witness that it may be used.
pub(crate) trait InstructionSet: Copy {
    /// Runs a kernel that is compiled for these instructions.
    fn run<K: Kernel<Self>>(self, kernel: K) -> K::Output;
}

/// Work that is compiled for the instruction set whose witness is `I`.
pub(crate) trait Kernel<I> {
    /// The result.
    type Output;

    /// Does the work. Implementations are `#[inline(always)]`.
    fn run(self, isa: I) -> Self::Output;
}

/// Instructions on registers of one width, by the witness that they may be used.
///
/// Loads and stores are of unaligned memory. Shifts by a constant become shifts by an immediate number.
pub(crate) trait Vector: InstructionSet {
    /// Words of 32 bits in a register.
    const LANES: usize;

    /// A register: [`LANES`](Self::LANES) words of 32 bits, or half as many of 64.
    type Register: Copy;
    /// Half a register: as many words of 32 bits as a register has of 64.
    type Half: Copy;
    /// A choice of the words of 32 bits in a register.
    type Mask: Copy;
    /// A choice of the words of 64 bits in a register.
    type WideMask: Copy;

    /// Copies a word to all lanes.
    fn splat(self, word: u32) -> Self::Register;

    /// Loads the first [`LANES`](Self::LANES) words.
    fn load(self, words: &[u32]) -> Self::Register;

    /// Stores to the first [`LANES`](Self::LANES) words.
    fn store(self, register: Self::Register, to: &mut [u32]);

    /// Stores words of 32 bits as words of 64.
    fn store_widened(self, register: Self::Register, to: &mut [u64]);

    /// Returns `a & b`.
    fn and(self, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Returns `a | b`.
    fn or(self, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Returns the sums of words of 32 bits.
    fn add(self, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Shifts words of 32 bits to the left.
    fn shl(self, register: Self::Register, bits: u32) -> Self::Register;

    /// Shifts words of 32 bits to the right, with zeros from the left.
    fn shr(self, register: Self::Register, bits: u32) -> Self::Register;

    /// Returns the words of 32 bits whose lowest bit is set.
    fn odd(self, register: Self::Register) -> Self::Mask;

    /// Returns whether there is a word in the mask.
    fn any(self, mask: Self::Mask) -> bool;

    /// Reads 32 bits from `base + SCALE × index` in each lane, as relaxed atomic loads do.
    ///
    /// # Safety
    /// 4 bytes are readable at each place.
    unsafe fn gather<const SCALE: usize>(self, base: *const u8, index: Self::Register) -> Self::Register;

    /// Reads as [`gather`](Self::gather) does in the lanes of `mask`, and takes those of `otherwise` elsewhere.
    ///
    /// # Safety
    /// 4 bytes are readable at each place in `mask`.
    unsafe fn gather_in<const SCALE: usize>(
        self,
        base: *const u8,
        index: Self::Register,
        mask: Self::Mask,
        otherwise: Self::Register,
    ) -> Self::Register;

    /// Loads half as many words as there are [`LANES`](Self::LANES).
    fn load_half(self, words: &[u32]) -> Self::Half;

    /// Returns `half & splat(word)`.
    fn and_half(self, half: Self::Half, word: u32) -> Self::Half;

    /// Returns `a | b`.
    fn or_half(self, a: Self::Half, b: Self::Half) -> Self::Half;

    /// Shifts the words of half a register to the right, with zeros from the left.
    fn shr_half(self, half: Self::Half, bits: u32) -> Self::Half;

    /// Stores words of 64 bits.
    fn store_wide(self, register: Self::Register, to: &mut [u64]);

    /// Shifts words of 64 bits to the left.
    fn shl_wide(self, register: Self::Register, bits: u32) -> Self::Register;

    /// Shifts words of 64 bits to the right, with zeros from the left.
    fn shr_wide(self, register: Self::Register, bits: u32) -> Self::Register;

    /// Returns the lower 32 bits of words of 64.
    fn narrow(self, register: Self::Register) -> Self::Half;

    /// Returns the words of 64 bits whose lowest bit is set.
    fn odd_wide(self, register: Self::Register) -> Self::WideMask;

    /// Returns whether there is a word in the mask.
    fn any_wide(self, mask: Self::WideMask) -> bool;

    /// Reads 64 bits from `base + 8 × index` in each lane, as relaxed atomic loads do.
    ///
    /// # Safety
    /// 8 bytes are readable at each place.
    unsafe fn gather_wide(self, base: *const u8, index: Self::Half) -> Self::Register;

    /// Reads as [`gather_wide`](Self::gather_wide) does in the lanes of `mask`, and takes those of `otherwise` elsewhere.
    ///
    /// # Safety
    /// 8 bytes are readable at each place in `mask`.
    unsafe fn gather_wide_in(
        self,
        base: *const u8,
        index: Self::Half,
        mask: Self::WideMask,
        otherwise: Self::Register,
    ) -> Self::Register;
}

#[cfg(target_arch = "x86_64")]
macro_rules! instruction_set {
    ($witness:ident, $features:literal) => {
        impl InstructionSet for crate::isa::$witness {
            #[inline(always)]
            fn run<K: Kernel<Self>>(self, kernel: K) -> K::Output {
                #[target_feature(enable = $features)]
                fn compiled<K: Kernel<crate::isa::$witness>>(
                    isa: crate::isa::$witness,
                    kernel: K,
                ) -> K::Output {
                    kernel.run(isa)
                }
                // SAFETY: the witness proves that the CPU has these instructions.
                unsafe { compiled(self, kernel) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
instruction_set!(Sse42, "sse4.2");
#[cfg(target_arch = "x86_64")]
instruction_set!(Avx2, "avx2,popcnt,bmi1,bmi2,lzcnt");
#[cfg(target_arch = "x86_64")]
instruction_set!(Avx512, "avx512f,avx512bw,avx512dq,avx512vl,popcnt,bmi1,bmi2,lzcnt");

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::isa::{Avx2, Avx512};

    /// Words whose bits have no order.
    fn words<const N: usize>(seed: u32) -> [u32; N] {
        std::array::from_fn(|i| (seed + i as u32).wrapping_mul(0x9e37_79b9).rotate_left(7))
    }

    /// Compares every operation with arithmetic on single words.
    struct EveryOperation;

    impl<V: Vector> Kernel<V> for EveryOperation {
        type Output = ();

        #[inline(always)]
        fn run(self, isa: V) {
            let (a, b): ([u32; 16], [u32; 16]) = (words(1), words(100));
            let (x, y) = (isa.load(&a), isa.load(&b));
            let lanes = |register| {
                let mut out = [0; 16];
                isa.store(register, &mut out);
                out
            };
            let expected = |of: &dyn Fn(u32, u32) -> u32| {
                std::array::from_fn::<u32, 16, _>(|i| if i < V::LANES { of(a[i], b[i]) } else { 0 })
            };
            assert_eq!(lanes(isa.splat(7)), expected(&|_, _| 7));
            assert_eq!(lanes(isa.and(x, y)), expected(&|a, b| a & b));
            assert_eq!(lanes(isa.or(x, y)), expected(&|a, b| a | b));
            assert_eq!(lanes(isa.add(x, y)), expected(&u32::wrapping_add));
            assert_eq!(lanes(isa.shl(x, 9)), expected(&|a, _| a << 9));
            assert_eq!(lanes(isa.shr(x, 9)), expected(&|a, _| a >> 9));
            let mut wide = [0; 16];
            isa.store_widened(x, &mut wide);
            assert_eq!(wide, expected(&|a, _| a).map(u64::from));
            narrow_gathers(isa, x, y, &a, &b);
            wide_operations(isa, &a);
        }
    }

    #[inline(always)]
    fn narrow_gathers<V: Vector>(isa: V, x: V::Register, y: V::Register, a: &[u32; 16], b: &[u32; 16]) {
        let table: [u32; 32] = words(1000);
        let index = isa.and(x, isa.splat(31));
        // SAFETY: an index of five bits in a table of 32 words.
        let (all, odd) = unsafe {
            let base = table.as_ptr().cast();
            (isa.gather::<4>(base, index), isa.gather_in::<4>(base, index, isa.odd(x), y))
        };
        let (mut found, mut some) = ([0; 16], [0; 16]);
        isa.store(all, &mut found);
        isa.store(odd, &mut some);
        for i in 0..V::LANES {
            let word = table[a[i] as usize % 32];
            assert_eq!((found[i], some[i]), (word, if a[i] & 1 == 1 { word } else { b[i] }));
        }
        assert!(isa.any(isa.odd(isa.splat(1))) && !isa.any(isa.odd(isa.splat(2))));
    }

    #[inline(always)]
    fn wide_operations<V: Vector>(isa: V, a: &[u32; 16]) {
        let table: [u64; 32] = words::<32>(1000).map(|word| u64::from(word) << 31 | u64::from(word));
        let lanes = |register| {
            let mut out = [0; 8];
            isa.store_wide(register, &mut out);
            out
        };
        let half = isa.load_half(a);
        let index = isa.and_half(isa.shr_half(half, 3), 31);
        // SAFETY: an index of five bits in a table of 32 words.
        let all = unsafe { isa.gather_wide(table.as_ptr().cast(), index) };
        let otherwise = isa.shl_wide(all, 5);
        // SAFETY: as above.
        let odd = unsafe { isa.gather_wide_in(table.as_ptr().cast(), index, isa.odd_wide(all), otherwise) };
        let (found, some, shifted) = (lanes(all), lanes(odd), lanes(isa.shr_wide(all, 5)));
        for i in 0..V::LANES / 2 {
            let word = table[(a[i] >> 3) as usize % 32];
            assert_eq!((found[i], shifted[i]), (word, word >> 5));
            assert_eq!(some[i], if word & 1 == 1 { word } else { word << 5 });
        }
        assert_eq!(isa.any_wide(isa.odd_wide(all)), found[..V::LANES / 2].iter().any(|word| word & 1 == 1));
        // The lower halves, as indices of a second gather.
        let again = isa.or_half(isa.and_half(isa.narrow(all), 15), isa.and_half(isa.narrow(all), 16));
        // SAFETY: as above.
        let again = lanes(unsafe { isa.gather_wide(table.as_ptr().cast(), again) });
        for i in 0..V::LANES / 2 {
            assert_eq!(again[i], table[found[i] as usize % 32]);
        }
    }

    #[test]
    fn every_operation_agrees_with_arithmetic() {
        if let Some(isa) = Avx2::detect() {
            isa.run(EveryOperation);
        }
        if let Some(isa) = Avx512::detect() {
            isa.run(EveryOperation);
        }
    }
}
