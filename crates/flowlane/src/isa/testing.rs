//! How tests run a property against every variant.

use super::Variant;

/// Comma-separated names of variants that must be there: a test fails, and does not skip, where this CPU
/// (or the cap) lacks one. Set in CI, so that no variant goes untested unnoticed.
pub const REQUIRE_VARIABLE: &str = "FLOWLANE_REQUIRE_ISA";

/// Calls `property` with every variant that may be used here, scalar first, and prints which those were.
///
/// # Panics
/// Where a variant named in [`REQUIRE_VARIABLE`] is missing, and where `property` does.
pub fn for_each_variant(mut property: impl FnMut(Variant)) {
    let required = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
    for name in required.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        let variant: Variant = name.parse().unwrap_or_else(|e| panic!("{REQUIRE_VARIABLE}: {e}"));
        assert!(variant.available(), "{REQUIRE_VARIABLE} asks for {name}, which cannot be used here");
    }
    let available: Vec<Variant> = Variant::ALL.into_iter().filter(|v| v.available()).collect();
    println!("variants: {}", available.iter().map(|v| v.name()).collect::<Vec<_>>().join(" "));
    available.into_iter().for_each(&mut property);
}
