//! Instruction sets: which of them this CPU has, and which may be used.
//!
//! A structure has one kernel for each [`Variant`] that pays; the kernel is selected when the structure
//! is built, and stored in it. A kernel for an instruction set is reached only with that set's *witness*
//! ([`Sse42`], [`Avx2`], [`Avx512`], [`Avx512Vbmi`], [`Neon`], [`NeonCrc`]), a value without content that only detection makes: to hold one
//! is the proof that the instructions exist and that the width is allowed.
//!
//! The width cap ([`set_max_simd`]) is global state, like the overrides and the trial clock of
//! [`dispatch`](crate::dispatch). Its first value comes from the environment variable
//! [`MAX_SIMD_VARIABLE`]; lowering it affects tables that are built from then on.
//!
//! Variants have a width but no order: wider is not always faster.

pub mod cpu;
pub(crate) mod simd;
pub(crate) mod stores;
#[doc(hidden)]
pub mod testing;

use std::str::FromStr;
use std::sync::atomic::{AtomicU16, Ordering};

use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::named_enum::{self, Named, UnknownName};

/// The environment variable that caps the width: 64, 128, 256 or 512. Anything else in it counts as no
/// cap here; the command line refuses it.
pub const MAX_SIMD_VARIABLE: &str = "FLOWLANE_MAX_SIMD";

/// The widest registers that may be used, as DPDK's `--force-max-simd-bitwidth` has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum MaxSimd {
    /// 64 bits: scalar code only.
    Bits64 = 64,
    /// 128 bits.
    Bits128 = 128,
    /// 256 bits.
    Bits256 = 256,
    /// 512 bits: no cap.
    Bits512 = 512,
}

/// A text that is no width.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is no SIMD width; write 64 (none), 128, 256 or 512")]
pub struct MaxSimdError(pub String);

impl FromStr for MaxSimd {
    type Err = MaxSimdError;

    fn from_str(text: &str) -> Result<Self, MaxSimdError> {
        text.parse().ok().and_then(Self::from_bits).ok_or_else(|| MaxSimdError(text.to_owned()))
    }
}

impl MaxSimd {
    /// Returns the width of this many bits.
    pub fn from_bits(bits: u16) -> Option<Self> {
        [Self::Bits64, Self::Bits128, Self::Bits256, Self::Bits512].into_iter().find(|m| m.bits() == bits)
    }

    /// Returns the number of bits.
    pub fn bits(self) -> u16 {
        self as u16
    }
}

/// 0: not read yet.
static MAX_SIMD: AtomicU16 = AtomicU16::new(0);

/// Returns the widest registers that may be used.
pub fn max_simd() -> MaxSimd {
    if let Some(set) = MaxSimd::from_bits(MAX_SIMD.load(Ordering::Relaxed)) {
        return set;
    }
    let from_environment = std::env::var(MAX_SIMD_VARIABLE).ok().and_then(|text| text.parse().ok());
    let limit = from_environment.unwrap_or(MaxSimd::Bits512);
    set_max_simd(limit);
    limit
}

/// Caps the width of tables that are built from now on.
pub fn set_max_simd(limit: MaxSimd) {
    MAX_SIMD.store(limit.bits(), Ordering::Relaxed);
}

/// An instruction set for which structures may have a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = UnknownName::of::<Variant>)]
#[non_exhaustive]
pub enum Variant {
    /// Portable code: the definition.
    Scalar,
    /// x86-64 with SSE4.2.
    Sse42,
    /// x86-64 with AVX2, and with the instructions on bits that every CPU with AVX2 has had: BMI1, BMI2, LZCNT,
    /// POPCNT (together x86-64-v3 but for FMA and F16C).
    Avx2,
    /// All that [`Avx2`](Self::Avx2) has, and AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AArch64 with NEON (Advanced SIMD).
    Neon,
}

impl Named for Variant {
    const KIND: &'static str = "variant";
}

impl Variant {
    /// Every variant, whether this CPU has it or not.
    pub const ALL: [Self; 5] = named_enum::all();

    /// Returns the name, in files, logs and on the command line.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the width of its registers.
    pub fn width_bits(self) -> u16 {
        match self {
            Variant::Scalar => 64,
            Variant::Sse42 | Variant::Neon => 128,
            Variant::Avx2 => 256,
            Variant::Avx512 => 512,
        }
    }

    /// Returns whether this CPU has it.
    pub fn detected(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return match self {
            Variant::Scalar => true,
            Variant::Sse42 => is_x86_feature_detected!("sse4.2"),
            Variant::Avx2 => is_x86_feature_detected!("avx2") && bit_instructions(),
            Variant::Avx512 => {
                Variant::Avx2.detected()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            Variant::Neon => false,
        };
        #[cfg(target_arch = "aarch64")]
        return match self {
            Variant::Scalar => true,
            Variant::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            _ => false,
        };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        return self == Variant::Scalar;
    }

    /// Returns whether this CPU has it and the cap allows it.
    pub fn available(self) -> bool {
        self.width_bits() <= max_simd().bits() && self.detected()
    }
}

#[cfg(target_arch = "x86_64")]
fn bit_instructions() -> bool {
    is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

macro_rules! witness {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Debug)]
            pub struct $name(());

            impl $name {
                /// Returns the witness, where the CPU has the instructions and the cap allows their width.
                pub fn detect() -> Option<Self> {
                    Variant::$name.available().then_some(Self(()))
                }
            }
        )*
    };
}

witness! {
    /// Proof that SSE4.2 may be used.
    Sse42
    /// Proof that AVX2 may be used, and what comes before it (up to SSE4.2), and the instructions on bits: BMI1, BMI2,
    /// LZCNT, POPCNT.
    Avx2
    /// Proof that AVX-512 F, BW, DQ and VL may be used, and all that [`Avx2`] is proof of.
    Avx512
    /// Proof that NEON may be used.
    Neon
}

impl From<Avx512> for Avx2 {
    /// Converts the proof: AVX-512 includes AVX2, and a cap that allows 512 bits allows 256.
    fn from(Avx512(()): Avx512) -> Self {
        Self(())
    }
}

impl From<Avx2> for Sse42 {
    /// Converts the proof: AVX2 includes SSE4.2, and a cap that allows 256 bits allows 128.
    fn from(Avx2(()): Avx2) -> Self {
        Self(())
    }
}

/// Proof that AVX-512 VBMI may be used, and all that [`Avx512`] is proof of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Avx512Vbmi(());

impl Avx512Vbmi {
    /// Returns the witness, where the CPU has the instructions and the cap allows their width.
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return (Variant::Avx512.available() && is_x86_feature_detected!("avx512vbmi")).then_some(Self(()));
        #[cfg(not(target_arch = "x86_64"))]
        return None;
    }
}

/// Proof that the instructions for CRC32C of AArch64 may be used, and all that [`Neon`] is proof of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeonCrc(());

impl NeonCrc {
    /// Returns the witness, where the CPU has the instructions and the cap allows the width of NEON.
    pub fn detect() -> Option<Self> {
        #[cfg(target_arch = "aarch64")]
        return (Variant::Neon.available() && std::arch::is_aarch64_feature_detected!("crc"))
            .then_some(Self(()));
        #[cfg(not(target_arch = "aarch64"))]
        return None;
    }
}

/// The instruction set of the kernel that a structure uses, with the proof that it may be used. Stored in the structure, and
/// matched once per batch.
#[derive(Clone, Copy, Debug)]
pub enum Backend {
    /// [`Variant::Scalar`].
    Scalar,
    /// [`Variant::Sse42`].
    #[cfg(target_arch = "x86_64")]
    Sse42(Sse42),
    /// [`Variant::Avx2`].
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// [`Variant::Avx512`].
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    /// [`Variant::Neon`].
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
}

impl Backend {
    /// Returns the backend of this variant, where it may be used here.
    pub fn of(variant: Variant) -> Option<Self> {
        match variant {
            Variant::Scalar => Some(Self::Scalar),
            #[cfg(target_arch = "x86_64")]
            Variant::Sse42 => Sse42::detect().map(Self::Sse42),
            #[cfg(target_arch = "x86_64")]
            Variant::Avx2 => Avx2::detect().map(Self::Avx2),
            #[cfg(target_arch = "x86_64")]
            Variant::Avx512 => Avx512::detect().map(Self::Avx512),
            #[cfg(target_arch = "aarch64")]
            Variant::Neon => Neon::detect().map(Self::Neon),
            _ => None,
        }
    }

    /// Returns the first of `order` that may be used here, else the scalar backend.
    pub fn first_of(order: &[Variant]) -> Self {
        order.iter().find_map(|v| Self::of(*v)).unwrap_or(Self::Scalar)
    }

    /// Returns its variant.
    pub fn variant(self) -> Variant {
        match self {
            Self::Scalar => Variant::Scalar,
            #[cfg(target_arch = "x86_64")]
            Self::Sse42(_) => Variant::Sse42,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => Variant::Avx2,
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => Variant::Avx512,
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => Variant::Neon,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_widths_are_read_back() {
        for variant in Variant::ALL {
            assert_eq!(variant.name().parse(), Ok(variant));
        }
        assert!("avx9".parse::<Variant>().unwrap_err().to_string().contains("avx512"));
        assert_eq!("256".parse(), Ok(MaxSimd::Bits256));
        assert!("300".parse::<MaxSimd>().unwrap_err().to_string().contains("64 (none), 128, 256 or 512"));
    }

    #[test]
    fn the_scalar_variant_is_always_available() {
        assert!(Variant::Scalar.available());
    }
}
