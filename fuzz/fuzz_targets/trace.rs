//! Feeds arbitrary bytes to the check of this name: see crates/flowlane-sim/src/fuzz_invariants.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowlane_sim::fuzz_invariants::trace(bytes));
