//! Kernels that differ only in the width of their registers, written once.
//!
//! A [`Kernel`] is a value with its arguments and one `run`, which takes the witness of an instruction set; the witness's
//! [`InstructionSet::run`] compiles it for those instructions, and is the only place with `#[target_feature]`. A kernel over
//! registers is generic over [`Registers`], or over [`Vector`] where it needs gathers, shifts or words of 64 bits:
//!
//! | | [`Sse42`](super::Sse42) | [`Neon`](super::Neon) | [`Avx2`](super::Avx2) | [`Avx512`](super::Avx512) |
//! |---|---|---|---|---|
//! | `Registers` | 4 words | 4 | 8 | 16 |
//! | [`Quad`] | yes | yes | no | no |
//! | `Vector` | no: SSE4.2 has no gathers | yes, gathers lane by lane | yes | yes |
//!
//! ```text
//! impl<V: Vector> Kernel<V> for Places<'_> {            match backend {
//!     #[inline(always)]                                     Backend::Avx2(isa) => isa.run(Places { .. }),
//!     fn run(self, isa: V) { isa.add(..) }                  Backend::Avx512(isa) => isa.run(Places { .. }),
//! }                                                         _ => scalar::places(..),
//! ```                                                   }
//!
//! Methods of both traits, every `Kernel::run` and the functions between them are `#[inline(always)]` and have no instructions of
//! their own: they get them where they are inlined. A function in between that is not inlined would be compiled without
//! them, and would call a function for each instruction: `docs/building.md`.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gather;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
mod quad;
#[cfg(target_arch = "x86_64")]
mod sse42;

pub(crate) use quad::Quad;

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

/// Instructions on registers of one width, by the witness that they may be used: 32-bit words side by side.
///
/// Loads and stores are of unaligned memory.
pub(crate) trait Registers: InstructionSet {
    /// Words of 32 bits in a register.
    const LANES: usize;

    /// A register: [`LANES`](Self::LANES) words of 32 bits.
    type Register: Copy;
    /// A choice of the words of 32 bits in a register.
    type Mask: Copy;

    /// Copies a word to all lanes.
    fn splat(self, word: u32) -> Self::Register;

    /// Loads the first [`LANES`](Self::LANES) words.
    fn load(self, words: &[u32]) -> Self::Register;

    /// Stores to the first [`LANES`](Self::LANES) words.
    fn store(self, register: Self::Register, to: &mut [u32]);

    /// Returns `a & b`.
    fn and(self, a: Self::Register, b: Self::Register) -> Self::Register;

    /// Returns `min(max(register, low), high)` of unsigned words of 32 bits.
    fn clamp(self, register: Self::Register, low: Self::Register, high: Self::Register) -> Self::Register;

    /// Returns `min(max(register, low), high)` of unsigned words of 16 bits, two in a lane.
    fn clamp_halves(
        self,
        register: Self::Register,
        low: Self::Register,
        high: Self::Register,
    ) -> Self::Register;

    /// Returns the words of the mask in which `a` and `b` are equal.
    fn equal_in(self, mask: Self::Mask, a: Self::Register, b: Self::Register) -> Self::Mask;

    /// Returns the words of `register` in the mask, and those of `otherwise` elsewhere.
    fn blend(self, mask: Self::Mask, register: Self::Register, otherwise: Self::Register) -> Self::Register;

    /// Returns the mask of all words.
    fn mask_all(self) -> Self::Mask;

    /// Returns the mask of no word.
    fn mask_none(self) -> Self::Mask;

    /// Returns the words that are in `a` or in `b`.
    fn mask_or(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;

    /// Returns the words of `a` that are not in `b`.
    fn mask_and_not(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;

    /// Returns one bit for each word, the lowest for the first.
    fn bits(self, mask: Self::Mask) -> u32;

    /// Returns whether there is a word in the mask.
    #[inline(always)]
    fn any(self, mask: Self::Mask) -> bool {
        self.bits(mask) != 0
    }

    /// Returns whether all words are in each of the masks.
    #[inline(always)]
    fn all<const N: usize>(self, masks: [Self::Mask; N]) -> bool {
        masks.into_iter().all(|mask| self.bits(mask) == u32::MAX >> (32 - Self::LANES))
    }
}

/// Registers with gathers, shifts, and words of 64 bits.
///
/// Shifts by a constant become shifts by an immediate number.
pub(crate) trait Vector: Registers {
    /// Whether a gather is an instruction: else lanes are read one by one, so that indices are best where addresses are computed.
    const GATHERS: bool = true;

    /// Half a register: as many words of 32 bits as a register has of 64.
    type Half: Copy;
    /// A choice of the words of 64 bits in a register.
    type WideMask: Copy;

    /// Stores words of 32 bits as words of 64.
    fn store_widened(self, register: Self::Register, to: &mut [u64]);

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

    /// Reads 32 bits from `base + SCALE × index` in each lane, as relaxed atomic loads do: where lanes lead to what a writer published
    /// with them, a fence that acquires follows the gather. Of a `SCALE` of 1 or 2 the bits above the first `SCALE` bytes are
    /// unspecified.
    ///
    /// # Safety
    /// 4 bytes are readable at each place, and `base` is a multiple of `SCALE`.
    unsafe fn gather<const SCALE: usize>(self, base: *const u8, index: Self::Register) -> Self::Register;

    /// Reads as [`gather`](Self::gather) does in the lanes of `mask`, and takes those of `otherwise` elsewhere.
    ///
    /// # Safety
    /// 4 bytes are readable at each place in `mask`, and `base` is a multiple of `SCALE`.
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

    /// Adds a number to words of 64 bits, and drops what does not fit.
    fn add_wide(self, register: Self::Register, number: u64) -> Self::Register;

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

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
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
#[cfg(target_arch = "aarch64")]
instruction_set!(Neon, "neon");

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;
    #[cfg(target_arch = "aarch64")]
    use crate::isa::Neon;
    #[cfg(target_arch = "x86_64")]
    use crate::isa::{Avx2, Avx512, Sse42};

    /// Words whose bits have no order.
    fn words<const N: usize>(seed: u32) -> [u32; N] {
        std::array::from_fn(|i| (seed + i as u32).wrapping_mul(0x9e37_79b9).rotate_left(7))
    }

    /// Compares every operation of [`Registers`] with arithmetic on single words.
    struct EveryRegisterOperation;

    impl<R: Registers> Kernel<R> for EveryRegisterOperation {
        type Output = ();

        #[inline(always)]
        fn run(self, isa: R) {
            let (a, b, c): ([u32; 16], [u32; 16], [u32; 16]) = (words(1), words(100), words(200));
            let (x, y, z) = (isa.load(&a), isa.load(&b), isa.load(&c));
            let expected = |of: &dyn Fn(u32, u32, u32) -> u32| {
                std::array::from_fn::<u32, 16, _>(|i| if i < R::LANES { of(a[i], b[i], c[i]) } else { 0 })
            };
            assert_eq!(lanes(isa, isa.splat(7)), expected(&|_, _, _| 7));
            assert_eq!(lanes(isa, isa.and(x, y)), expected(&|a, b, _| a & b));
            // The low end is the greater one in some lanes: clamping ends with the minimum.
            assert_eq!(lanes(isa, isa.clamp(x, y, z)), expected(&|a, b, c| a.max(b).min(c)));
            let half = |a: u32, b: u32, c: u32| u32::from((a as u16).max(b as u16).min(c as u16));
            let halves = |a, b, c| half(a >> 16, b >> 16, c >> 16) << 16 | half(a, b, c);
            assert_eq!(lanes(isa, isa.clamp_halves(x, y, z)), expected(&halves));
            masks(isa, &a, &b);
        }
    }

    #[inline(always)]
    fn masks<R: Registers>(isa: R, a: &[u32; 16], b: &[u32; 16]) {
        let (x, y) = (isa.load(a), isa.load(b));
        let all = u32::MAX >> (32 - R::LANES);
        assert_eq!((isa.bits(isa.mask_all()), isa.bits(isa.mask_none())), (all, 0));
        assert!(isa.any(isa.mask_all()) && !isa.any(isa.mask_none()));
        assert!(isa.all([isa.mask_all(); 2]) && !isa.all([isa.mask_all(), isa.mask_none()]));
        // Every two sets of eight lanes, repeated in wider registers.
        for (p, q) in (0..=u8::MAX).flat_map(|p| (0..=u8::MAX).map(move |q| (p, q))) {
            let [p, q] = [p, q].map(|set| all & (u32::from(set) * 0x0101));
            // Lane i has its word of `a` where bit i is set, else a word that differs in one bit.
            let set = |bits: u32| -> R::Mask {
                let words = std::array::from_fn::<u32, 16, _>(|i| a[i] ^ (!bits >> i & 1) << (2 * i));
                isa.equal_in(isa.mask_all(), x, isa.load(&words))
            };
            let (in_p, in_q) = (set(p), set(q));
            assert_eq!((isa.bits(in_p), isa.any(in_p), isa.all([in_p])), (p, p != 0, p == all));
            assert_eq!(isa.bits(isa.equal_in(in_p, x, x)), p);
            assert_eq!(isa.bits(isa.equal_in(in_p, x, y)), 0, "the words differ");
            assert_eq!(isa.bits(isa.mask_or(in_p, in_q)), p | q);
            assert_eq!(isa.bits(isa.mask_and_not(in_p, in_q)), p & !q);
            let blended = std::array::from_fn(|i| match p >> i & 1 {
                1 => a[i],
                _ if i < R::LANES => b[i],
                _ => 0,
            });
            assert_eq!(lanes(isa, isa.blend(in_p, x, y)), blended);
        }
    }

    /// The words of a register, and zeros behind them.
    #[inline(always)]
    fn lanes<R: Registers>(isa: R, register: R::Register) -> [u32; 16] {
        let mut out = [0; 16];
        isa.store(register, &mut out);
        out
    }

    /// Compares every operation of [`Vector`] with arithmetic on single words.
    struct EveryOperation;

    impl<V: Vector> Kernel<V> for EveryOperation {
        type Output = ();

        #[inline(always)]
        fn run(self, isa: V) {
            let (a, b): ([u32; 16], [u32; 16]) = (words(1), words(100));
            let (x, y) = (isa.load(&a), isa.load(&b));
            let expected = |of: &dyn Fn(u32, u32) -> u32| {
                std::array::from_fn::<u32, 16, _>(|i| if i < V::LANES { of(a[i], b[i]) } else { 0 })
            };
            assert_eq!(lanes(isa, isa.or(x, y)), expected(&|a, b| a | b));
            assert_eq!(lanes(isa, isa.add(x, y)), expected(&u32::wrapping_add));
            assert_eq!(lanes(isa, isa.shl(x, 9)), expected(&|a, _| a << 9));
            assert_eq!(lanes(isa, isa.shr(x, 9)), expected(&|a, _| a >> 9));
            // Only the lowest bit counts.
            let odd = (0..V::LANES).fold(0, |bits, i| bits | (a[i] & 1) << i);
            assert_eq!(isa.bits(isa.odd(x)), odd);
            assert_eq!(
                lanes(isa, isa.blend(isa.odd(x), x, y)),
                expected(&|a, b| if a & 1 == 1 { a } else { b })
            );
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
        let sums = lanes(isa.add_wide(all, u64::MAX - 4));
        assert!((0..V::LANES / 2).all(|i| sums[i] == found[i].wrapping_sub(5)));
        assert_eq!(isa.any_wide(isa.odd_wide(all)), found[..V::LANES / 2].iter().any(|word| word & 1 == 1));
        // The lower halves, as indices of a second gather.
        let again = isa.or_half(isa.and_half(isa.narrow(all), 15), isa.and_half(isa.narrow(all), 16));
        // SAFETY: as above.
        let again = lanes(unsafe { isa.gather_wide(table.as_ptr().cast(), again) });
        for i in 0..V::LANES / 2 {
            assert_eq!(again[i], table[found[i] as usize % 32]);
        }
    }

    #[cfg(target_arch = "aarch64")]
    #[test]
    fn every_operation_agrees_with_arithmetic() {
        if let Some(isa) = Neon::detect() {
            isa.run(EveryRegisterOperation);
            isa.run(EveryOperation);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_operation_agrees_with_arithmetic() {
        if let Some(isa) = Sse42::detect() {
            isa.run(EveryRegisterOperation);
        }
        if let Some(isa) = Avx2::detect() {
            isa.run(EveryRegisterOperation);
            isa.run(EveryOperation);
        }
        if let Some(isa) = Avx512::detect() {
            isa.run(EveryRegisterOperation);
            isa.run(EveryOperation);
        }
    }
}
