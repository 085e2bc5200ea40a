//! Feeds arbitrary bytes to the check of this name: see crates/flowlane-ovsdb/src/fuzz_invariants.rs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| flowlane_ovsdb::fuzz_invariants::session(bytes));
