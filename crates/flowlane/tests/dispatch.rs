//! Overrides and their effect on tables. In a program of its own, since these and the cap of the width are
//! global; and in one test, since tests run side by side.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flowlane::bloom::{BlockedBloomFilter, BloomFilter, BloomKernel};
use flowlane::cache::{MegaflowCache, MegaflowConfig};
use flowlane::classify::acl::{Dynamic, DynamicConfig, Engine as _, Layout, Tree, TreeConfig};
use flowlane::cuckoo::{CuckooConfig, CuckooWriter};
use flowlane::hash::crc32c::Crc32c;
use flowlane::hash::murmur3::Murmur3;
use flowlane::isa::{MaxSimd, Variant, set_max_simd};
use flowlane::packet::Parser;
use flowlane::route::engine::{AnyFib, Engine, Family};
use flowlane::route::{Fib, FibConfig, HopSize, Rib};
use flowlane::tune::{
    Family as CpuFamily, KernelOverrides, KernelSlot, SizeClass, Source, built_in, in_use, set_overrides,
    set_trial_clock,
};

#[test]
fn tables_use_overrides_unless_given_an_explicit_choice() {
    set_max_simd(MaxSimd::Bits512);
    for slot in KernelSlot::all() {
        assert_eq!(in_use(slot), built_in(slot), "nothing is installed");
    }
    overrides_are_used();
    explicit_choices_win();
    unusable_overrides_are_refused();
    the_cap_is_respected();
    only_unmeasured_choices_without_override_are_tried();
}

fn config() -> MegaflowConfig {
    MegaflowConfig { flows_max: 16, ..MegaflowConfig::default() }
}

fn tree(variant: Option<Variant>) -> Tree<4> {
    let config = TreeConfig { variant, ..TreeConfig::default() };
    Tree::build(Layout::ipv4_five_tuple().kinds(), &[], &config).unwrap()
}

fn dynamic(variant: Option<Variant>) -> Dynamic<4> {
    let config = DynamicConfig { variant, ..DynamicConfig::new(1) };
    Dynamic::build(Layout::ipv4_five_tuple().kinds(), &[], config).unwrap()
}

fn fib_config() -> FibConfig {
    FibConfig::new(HopSize::B4)
}

fn routes<A: Family>(config: &FibConfig) -> AnyFib<A> {
    Fib::build(&Rib::new(1), config).unwrap()
}

fn overrides_are_used() {
    let mut choices = KernelOverrides::new();
    for slot in [KernelSlot::Murmur3, KernelSlot::Crc32c, KernelSlot::Parser] {
        choices.set(slot, "scalar");
    }
    choices.set(KernelSlot::Bloom(SizeClass::L1), "scalar/u2/prefetch");
    choices.set(KernelSlot::BlockedBloom(SizeClass::L1), "scalar/prefetch");
    choices.set(KernelSlot::Cuckoo(SizeClass::L1), "scalar");
    choices.set(KernelSlot::Megaflow, "scalar/from7/x1");
    choices.set(KernelSlot::AclTree, "scalar");
    choices.set(KernelSlot::AclDynamic, "scalar");
    choices.set(KernelSlot::Routes4, "dir24/scalar");
    choices.set(KernelSlot::Routes6, "compact/scalar");
    set_overrides(choices.clone());
    assert_eq!(flowlane::tune::overrides(), choices);
    assert_eq!(Murmur3::new().variant(), Variant::Scalar);
    assert_eq!(Crc32c::new().variant(), Variant::Scalar);
    assert_eq!(Parser::new().variant(), Variant::Scalar);
    let bloom = |bits| BloomFilter::with_bits(bits, 3).unwrap().kernel().to_string();
    assert_eq!(bloom(1 << 10), "scalar/u2/prefetch");
    let large = SizeClass::of(1 << 26);
    assert_eq!(bloom(1 << 29), built_in(KernelSlot::Bloom(large)).choice);
    assert_eq!(BlockedBloomFilter::with_bits(1 << 10).unwrap().kernel().to_string(), "scalar/prefetch");
    assert_eq!(CuckooWriter::<1>::new(&CuckooConfig::new(16, 1)).variant(), Variant::Scalar);
    let cache = MegaflowCache::new(config());
    assert_eq!((cache.variant(), cache.threshold()), (Variant::Scalar, 7));
    assert_eq!(cache.in_flight(), 1);
    assert_eq!(tree(None).variant(), Variant::Scalar);
    assert_eq!(dynamic(None).variant(), Variant::Scalar);
    let v4 = routes::<u32>(&fib_config());
    assert_eq!((v4.engine(), v4.variant()), (Engine::Dir24, Variant::Scalar));
    let v6 = routes::<u128>(&fib_config());
    assert_eq!((v6.engine(), v6.variant()), (Engine::Compact, Variant::Scalar));
    // Of another engine nothing was chosen.
    let compact = u32::build(Engine::Compact, &Rib::new(1), &fib_config()).unwrap().unwrap();
    assert_eq!(compact.engine(), Engine::Compact);
    assert_eq!(in_use(KernelSlot::Megaflow).source, Source::Installed);
    assert!(matches!(in_use(KernelSlot::Bloom(SizeClass::L2)).source, Source::BuiltIn(_)));
}

/// With the choices of before installed.
fn explicit_choices_win() {
    for variant in Variant::ALL.into_iter().filter(|v| v.available()) {
        assert_eq!(Murmur3::with_variant(variant).unwrap().variant(), variant);
        assert_eq!(tree(Some(variant)).variant(), variant);
        let config = CuckooConfig::new(16, 1).with_variant(variant).unwrap();
        assert_eq!(CuckooWriter::<1>::new(&config).variant(), variant);
        let cache = MegaflowCache::new(MegaflowConfig { variant: Some(variant), ..self::config() });
        assert_eq!(cache.variant(), variant);
    }
    let cache = MegaflowCache::new(MegaflowConfig { threshold: Some(2), ..config() });
    assert_eq!((cache.threshold(), cache.in_flight()), (2, 1));
    let cache = MegaflowCache::new(MegaflowConfig { in_flight: Some(8), ..config() });
    assert_eq!((cache.threshold(), cache.in_flight()), (7, 8));
    for variant in [Variant::Scalar, Variant::Avx2, Variant::Avx512] {
        let Some(config) = fib_config().with_variant(variant) else { continue };
        assert_eq!(dynamic(Some(variant)).variant(), variant);
        assert_eq!(routes::<u32>(&config).variant(), variant);
        assert_eq!(routes::<u128>(&config).variant(), variant);
    }
    for kernel in BloomKernel::all() {
        let filter = BloomFilter::with_bits(1 << 10, 3).unwrap().with_kernel(kernel).unwrap();
        assert_eq!(filter.kernel(), kernel);
    }
    let filter = BlockedBloomFilter::with_bits(1 << 10).unwrap().with_prefetch(false);
    assert_eq!(filter.kernel().to_string(), "scalar");
}

fn unusable_overrides_are_refused() {
    let mut choices = KernelOverrides::new();
    choices.set(KernelSlot::Murmur3, "avx9");
    // There is no such body, on no CPU.
    choices.set(KernelSlot::Parser, "avx2");
    set_overrides(choices);
    for slot in [KernelSlot::Murmur3, KernelSlot::Parser] {
        let decision = in_use(slot);
        assert_eq!(decision.choice, built_in(slot).choice);
        assert!(decision.refused.is_some() && decision.source != Source::Installed);
    }
    assert_eq!(Parser::new().variant().name(), built_in(KernelSlot::Parser).choice);
}

fn the_cap_is_respected() {
    let mut choices = KernelOverrides::new();
    choices.set(KernelSlot::Murmur3, "avx512");
    choices.set(KernelSlot::Megaflow, "avx512/from2");
    choices.set(KernelSlot::Bloom(SizeClass::L1), "avx512-staged/u2");
    set_overrides(choices);
    for cap in [MaxSimd::Bits256, MaxSimd::Bits128, MaxSimd::Bits64] {
        set_max_simd(cap);
        let narrow =
            |variant: Variant| assert!(variant.width_bits() <= cap.bits(), "{variant} under {cap:?}");
        narrow(Murmur3::new().variant());
        narrow(Crc32c::new().variant());
        narrow(Parser::new().variant());
        narrow(MegaflowCache::new(config()).variant());
        narrow(CuckooWriter::<1>::new(&CuckooConfig::new(16, 1)).variant());
        for bits in [1, 1 << 20, 1 << 29] {
            narrow(BloomFilter::with_bits(bits, 3).unwrap().kernel().algorithm.variant());
            narrow(BlockedBloomFilter::with_bits(bits).unwrap().variant());
        }
        assert_eq!(in_use(KernelSlot::Murmur3).refused.as_deref(), Some("avx512"));
    }
    set_max_simd(MaxSimd::Bits512);
}

/// By a clock that counts how often it is read.
fn only_unmeasured_choices_without_override_are_tried() {
    static READINGS: AtomicU64 = AtomicU64::new(0);
    set_overrides(KernelOverrides::new());
    assert!(KernelSlot::all().all(|slot| in_use(slot).candidates.is_empty()), "there is no clock");
    set_trial_clock(|| READINGS.fetch_add(1, Relaxed));
    let looked_up = |tree: &Tree<4>| {
        let mut verdicts = [flowlane::classify::acl::MatchId::NONE; 32];
        let before = READINGS.load(Relaxed);
        (0..100).for_each(|_| tree.lookup_batch(&[[0; 4]; 32], &mut verdicts));
        READINGS.load(Relaxed) - before
    };
    let is_tried = !in_use(KernelSlot::AclTree).candidates.is_empty();
    assert_eq!(looked_up(&tree(None)), if is_tried { 2 * 30 } else { 0 });
    assert_eq!(looked_up(&tree(Some(Variant::Scalar))), 0, "the caller has named it");
    let family = CpuFamily::this();
    let is_widest = family != CpuFamily::Avx2 || !Variant::Avx512.available();
    if Source::BuiltIn(family) == in_use(KernelSlot::AclTree).source && is_widest {
        // The rows for any CPU with AVX2 or SSE4.2 were measured on one CPU under a cap.
        let is_measured_cpu = matches!(family, CpuFamily::Zen5 | CpuFamily::SkylakeSp);
        let is_settled = is_measured_cpu && family.is_measured(KernelSlot::AclTree);
        assert_eq!(is_tried, !is_settled && family != CpuFamily::Portable, "{family}");
    }
    let mut choices = KernelOverrides::new();
    choices.set(KernelSlot::AclTree, "scalar");
    set_overrides(choices);
    assert_eq!(
        (in_use(KernelSlot::AclTree).candidates.len(), looked_up(&tree(None))),
        (0, 0),
        "it is installed"
    );
}
