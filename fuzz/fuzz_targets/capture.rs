//! Feeds arbitrary bytes to the check of this name: see crates/flowlane-switch/src/hostile.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowlane_switch::hostile::capture(bytes));
