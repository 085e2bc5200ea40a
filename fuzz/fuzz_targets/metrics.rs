//! Feeds arbitrary bytes to the check of this name: see crates/flowlane-switch/src/fuzz_invariants.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowlane_switch::fuzz_invariants::metrics(bytes));
