//! The built-in choices, for machines without measurements of their own: a row for each family of CPUs.

use strum::{Display, IntoStaticStr, VariantArray};

use super::slot::{KernelSlot, SizeClass};
use crate::isa::Variant;
use crate::isa::cpu::Cpu;
use crate::named_enum;

/// CPUs for which the same choices are built in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Display, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[non_exhaustive]
pub enum Family {
    /// AMD Zen 5 (family 26).
    Zen5,
    /// AMD Zen 4 (family 25 with AVX-512).
    Zen4,
    /// Intel Sapphire Rapids and newer.
    SapphireRapids,
    /// Intel Ice Lake and its like.
    IceLake,
    /// Intel Skylake-SP, Cascade Lake and Cooper Lake: the first servers with AVX-512.
    SkylakeSp,
    /// Any other with AVX2; what a wider one uses under a cap of 256 bits.
    Avx2,
    /// Any other with SSE4.2.
    #[strum(to_string = "sse4.2")]
    Sse42,
    /// Any of AArch64.
    Neon,
    /// Anything.
    #[strum(to_string = "any")]
    Portable,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 9] = named_enum::all();

    /// Returns the family of the CPU that this runs on.
    pub fn this() -> Self {
        Self::of(Cpu::this(), Variant::detected)
    }

    /// Returns the family of a CPU that has the variants of which `has` says so.
    pub fn of(cpu: &Cpu, has: impl Fn(Variant) -> bool) -> Self {
        match (cpu.vendor.as_str(), cpu.family) {
            ("AuthenticAMD", 26..) if has(Variant::Avx512) => Self::Zen5,
            ("AuthenticAMD", 25) if has(Variant::Avx512) => Self::Zen4,
            // Ice Lake, Tiger Lake and Rocket Lake: before them AVX-512 lacks VBMI, after them comes 0x8f.
            ("GenuineIntel", 6) if has(Variant::Avx512) => match cpu.model {
                0x6a | 0x6c | 0x7d | 0x7e | 0x8c | 0x8d | 0xa7 => Self::IceLake,
                0x8f.. => Self::SapphireRapids,
                0x55 => Self::SkylakeSp,
                _ => Self::Avx2,
            },
            ("GenuineIntel", 7..) if has(Variant::Avx512) => Self::SapphireRapids,
            _ if has(Variant::Avx2) => Self::Avx2,
            _ if has(Variant::Sse42) => Self::Sse42,
            _ if has(Variant::Neon) => Self::Neon,
            _ => Self::Portable,
        }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the CPU that its choices were measured on; none where they are those of another family. Not all need have been
    /// ([`is_measured`](Self::is_measured)).
    pub fn measured_on(self) -> Option<&'static str> {
        match self {
            Self::Zen5 => Some("EPYC (Zen 5, L2 1 MiB, L3 32 MiB), November 2026"),
            Self::SkylakeSp => Some(
                "Xeon (Cascade Lake, 2.5 GHz, L3 35.8 MiB), November 2026: filters, cuckoo, megaflow, ACL",
            ),
            Self::Avx2 | Self::Sse42 => Some("the same, its width capped"),
            _ => None,
        }
    }

    /// Returns whether its choice for a slot was measured.
    pub fn is_measured(self, slot: KernelSlot) -> bool {
        let is_left_out = self == Self::SkylakeSp
            && matches!(
                slot,
                KernelSlot::Murmur3
                    | KernelSlot::Crc32c
                    | KernelSlot::Parser
                    | KernelSlot::Routes4
                    | KernelSlot::Routes6
            );
        self.measured_on().is_some() && !is_left_out
    }

    /// Returns whether figures were taken on CPUs of this family itself. The rows for any CPU with AVX2 or SSE4.2 were measured on
    /// one CPU under a cap.
    pub(super) fn is_a_measured_cpu(self) -> bool {
        matches!(self, Self::Zen5 | Self::SkylakeSp)
    }

    /// This family, and those whose choices hold where this one's cannot be used.
    pub(super) fn and_more_general(self) -> impl Iterator<Item = Self> {
        [self, Self::Avx2, Self::Sse42, Self::Portable].into_iter()
    }

    /// Its choice for a slot.
    pub fn choice(self, slot: KernelSlot) -> &'static str {
        match self {
            // With warm caches as fast as AVX-512, out of swept ones 4 to 14 % faster.
            Self::Zen5 if slot == KernelSlot::Routes4 => avx2(slot),
            // Measured with eight vectors side by side.
            Self::Zen5 | Self::SkylakeSp if matches!(slot, KernelSlot::Bloom(size) if is_far(size)) => {
                "avx512-staged/u8/prefetch"
            }
            // Of those with AVX-512 but these two none has been measured yet. These are the choices that do not
            // depend on an instruction that is slow on one of them: none stores compressed vectors to memory, which is
            // slow on Zen (`bloom/README.md`).
            Self::Zen5 | Self::Zen4 | Self::SapphireRapids | Self::IceLake => avx512(slot),
            // Cascade Lake, 2026-11-22: AVX-512 takes 23 to 53 % fewer cycles than AVX2 for the slots that were measured. The
            // rest keeps what AVX2 has.
            Self::SkylakeSp if self.is_measured(slot) => avx512(slot),
            Self::SkylakeSp => avx2(slot),
            Self::Avx2 => avx2(slot),
            Self::Sse42 => sse42(slot),
            Self::Neon => neon(slot),
            Self::Portable => portable(slot),
        }
    }
}

/// Returns the choices of all rows for a slot, widest first.
pub(super) fn by_width(slot: KernelSlot) -> [&'static str; 5] {
    [avx512(slot), avx2(slot), sse42(slot), neon(slot), portable(slot)]
}

fn is_far(size: SizeClass) -> bool {
    size >= SizeClass::L3
}

fn avx512(slot: KernelSlot) -> &'static str {
    match slot {
        KernelSlot::Murmur3
        | KernelSlot::Parser
        | KernelSlot::Cuckoo(_)
        | KernelSlot::AclTree
        | KernelSlot::AclDynamic => "avx512",
        // Wider ones have no instruction of their own for it.
        KernelSlot::Crc32c => "sse42",
        // `bloom/README.md`: prefetching costs up to a half more in L1 and L2, is worth nothing at 8 MiB and
        // halves the time at 16. Eight vectors side by side take a Zen 4 3 % more cycles than two at 16 MiB and 34 % more at 64, an Emerald
        // Rapids 4 to 8 % (2026-12-01, `flowlane tune --dry-run`, four runs each).
        KernelSlot::Bloom(size) if is_far(size) => "avx512-staged/u2/prefetch",
        KernelSlot::Bloom(_) => "avx512-staged/u8",
        KernelSlot::BlockedBloom(size) if is_far(size) => "avx512/prefetch",
        KernelSlot::BlockedBloom(_) => "avx512",
        // With 4, 10 and 20 masks alike. (`from4` costs bursts of 4 a fifth more.)
        KernelSlot::Megaflow => "avx512/from6/x16",
        KernelSlot::Routes4 | KernelSlot::Routes6 => "compact/avx512",
    }
}

fn avx2(slot: KernelSlot) -> &'static str {
    match slot {
        KernelSlot::Murmur3 | KernelSlot::Cuckoo(_) | KernelSlot::AclTree | KernelSlot::AclDynamic => "avx2",
        KernelSlot::Crc32c | KernelSlot::Parser => "sse42",
        KernelSlot::Bloom(size) if is_far(size) => "avx2-staged/u8/prefetch",
        KernelSlot::Bloom(_) => "avx2-staged/u8",
        KernelSlot::BlockedBloom(size) if is_far(size) => "avx2/prefetch",
        KernelSlot::BlockedBloom(_) => "avx2",
        // On Zen 5 under a cap of 256 bits: bursts of 8 take 7 % longer, of 12 as long, of 16 10 % less.
        KernelSlot::Megaflow => "avx2/from12/x16",
        KernelSlot::Routes4 | KernelSlot::Routes6 => "compact/avx2",
    }
}

fn sse42(slot: KernelSlot) -> &'static str {
    match slot {
        KernelSlot::Murmur3
        | KernelSlot::Crc32c
        | KernelSlot::Parser
        | KernelSlot::Cuckoo(_)
        | KernelSlot::AclTree
        | KernelSlot::AclDynamic => "sse42",
        _ => portable(slot),
    }
}

/// Those kernels of NEON that take fewer instructions than the scalar one (`docs/lab/neon-2026-11-30.md`): no machine has been
/// measured yet.
fn neon(slot: KernelSlot) -> &'static str {
    match slot {
        KernelSlot::Bloom(_) => "neon-staged/u4",
        // Bursts of 8 take 1 to 5 % fewer instructions, of 32 a quarter to a third fewer.
        KernelSlot::Megaflow => "neon/from8/x16",
        KernelSlot::Routes4 | KernelSlot::Routes6 => "compact/neon",
        _ => "neon",
    }
}

fn portable(slot: KernelSlot) -> &'static str {
    match slot {
        KernelSlot::Bloom(size) if is_far(size) => "scalar/u1/prefetch",
        KernelSlot::Bloom(_) => "scalar/u1",
        KernelSlot::Megaflow => "scalar/from6/x16",
        KernelSlot::Routes4 | KernelSlot::Routes6 => "compact/scalar",
        _ => "scalar",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(vendor: &str, family: u32, model: u32) -> Cpu {
        Cpu { vendor: vendor.to_owned(), family, model, ..Cpu::unknown() }
    }

    #[test]
    fn families_are_distinguished() {
        let all = |_| true;
        assert_eq!(Family::of(&cpu("AuthenticAMD", 26, 2), all), Family::Zen5);
        assert_eq!(Family::of(&cpu("AuthenticAMD", 25, 0x11), all), Family::Zen4);
        assert_eq!(Family::of(&cpu("AuthenticAMD", 25, 1), |v| v != Variant::Avx512), Family::Avx2);
        assert_eq!(Family::of(&cpu("GenuineIntel", 6, 0x6a), all), Family::IceLake);
        assert_eq!(Family::of(&cpu("GenuineIntel", 6, 0x8f), all), Family::SapphireRapids);
        assert_eq!(Family::of(&cpu("GenuineIntel", 6, 0xad), all), Family::SapphireRapids);
        assert_eq!(Family::of(&cpu("GenuineIntel", 6, 0x55), all), Family::SkylakeSp);
        assert_eq!(Family::of(&cpu("GenuineIntel", 6, 0x55), |v| v != Variant::Avx512), Family::Avx2);
        assert_eq!(Family::of(&cpu("GenuineIntel", 6, 0x66), all), Family::Avx2);
        assert_eq!(Family::of(&cpu("GenuineIntel", 6, 0x2c), |v| v == Variant::Sse42), Family::Sse42);
        assert_eq!(Family::of(&Cpu::unknown(), |v| v == Variant::Neon), Family::Neon);
        assert_eq!(Family::of(&Cpu::unknown(), |_| false), Family::Portable);
    }

    #[test]
    fn skylake_takes_avx512_where_that_was_measured_and_avx2_elsewhere() {
        for slot in KernelSlot::all() {
            let is_measured = Family::SkylakeSp.is_measured(slot);
            let row = if is_measured { Family::Zen5 } else { Family::Avx2 };
            assert_eq!(Family::SkylakeSp.choice(slot), row.choice(slot), "{slot}");
            assert!(Family::Zen5.is_measured(slot) && !Family::Zen4.is_measured(slot), "{slot}");
        }
        assert_eq!(Family::SkylakeSp.choice(KernelSlot::AclTree), "avx512");
        assert_eq!(Family::SkylakeSp.choice(KernelSlot::Routes4), "compact/avx2");
    }
}
