//! Which CPU this is: its maker, family and model, and the sizes of its caches.

use std::sync::OnceLock;

/// A CPU, as it describes itself.
///
/// Families and models are counted as makers do: with the extended bits added in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cpu {
    /// The maker: `AuthenticAMD`, `GenuineIntel`, …; empty where it does not say.
    pub vendor: String,
    /// The brand string.
    pub brand: String,
    /// Family.
    pub family: u32,
    /// Model.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Bytes of the data caches of levels 1, 2 and 3 that one core can use; typical ones where it does not say.
    pub cache_bytes: [u64; 3],
}

/// Where the CPU does not say: no CPU of the last ten years has less but for the third.
const CACHE_BYTES: [u64; 3] = [32 << 10, 256 << 10, 8 << 20];

impl Cpu {
    /// Returns the CPU that this runs on: asked once.
    pub fn this() -> &'static Self {
        static THIS: OnceLock<Cpu> = OnceLock::new();
        THIS.get_or_init(|| {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            return x86::ask();
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            return Self::unknown();
        })
    }

    /// One that says nothing.
    pub fn unknown() -> Self {
        let (vendor, brand) = (String::new(), String::new());
        Self { vendor, brand, family: 0, model: 0, stepping: 0, cache_bytes: CACHE_BYTES }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::{__cpuid_count, CpuidResult};

    use super::{CACHE_BYTES, Cpu};

    /// Returns the leaf, where the CPU has it.
    fn leaf(number: u32, sub: u32) -> Option<CpuidResult> {
        let last = __cpuid_count(number & 0x8000_0000, 0).eax;
        (number <= last).then(|| __cpuid_count(number, sub))
    }

    fn text(words: impl IntoIterator<Item = u32>) -> String {
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ']).to_owned()
    }

    pub(super) fn ask() -> Cpu {
        let vendor = leaf(0, 0).map_or(String::new(), |l| text([l.ebx, l.edx, l.ecx]));
        let brand = (0x8000_0002..=0x8000_0004).filter_map(|n| leaf(n, 0));
        let brand = text(brand.flat_map(|l| [l.eax, l.ebx, l.ecx, l.edx]));
        let signature = leaf(1, 0).map_or(0, |l| l.eax);
        let (family, model) = (signature >> 8 & 0xf, signature >> 4 & 0xf);
        let extended = signature >> 16 & 0xf;
        // AMD's leaf for caches has the form of Intel's.
        let caches = if vendor == "AuthenticAMD" { 0x8000_001d } else { 4 };
        Cpu {
            family: if family == 15 { family + (signature >> 20 & 0xff) } else { family },
            model: if family == 6 || family == 15 { model + (extended << 4) } else { model },
            stepping: signature & 0xf,
            cache_bytes: cache_bytes(caches),
            vendor,
            brand,
        }
    }

    fn cache_bytes(number: u32) -> [u64; 3] {
        let mut bytes = CACHE_BYTES;
        // More than 8 caches has none; type 0 ends the list, type 2 is for instructions.
        for cache in (0..8).map_while(|sub| leaf(number, sub).filter(|l| l.eax & 0x1f != 0)) {
            let level = (cache.eax >> 5 & 7) as usize;
            let (ways, parts) = (cache.ebx >> 22, cache.ebx >> 12 & 0x3ff);
            let (line, sets) = (cache.ebx & 0xfff, cache.ecx);
            if cache.eax & 0x1f != 2 && (1..=3).contains(&level) {
                bytes[level - 1] = [ways, parts, line, sets].iter().map(|n| u64::from(*n) + 1).product();
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_of_this_cpu_grow_with_their_level() {
        let cpu = Cpu::this();
        println!("{cpu:?}");
        let [l1, l2, l3] = cpu.cache_bytes;
        assert!((8 << 10..=1 << 20).contains(&l1) && l1 <= l2 && l2 <= l3, "{cpu:?}");
    }
}
