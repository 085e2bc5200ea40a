//! Flowlane's tables for C: `include/flowlane.h`.
//!
//! Panics never unwind into C; they become `FL_BUG`.

mod acl;
mod bloom;
mod error;
mod layout;
mod lookup;
mod map;
mod routes;
mod rules;

/// Version of the interface. It is incremented when programs compiled with an older header would no longer work. Structures
/// may grow at their end without a new version, because their size states what the program knows.
pub const FL_ABI: u32 = 1;

/// Returns the version of the interface that the library implements.
#[unsafe(no_mangle)]
pub extern "C" fn fl_abi() -> u32 {
    FL_ABI
}

/// Limits SIMD registers to 64 (none), 128, 256 or 512 bits, for tables created afterwards.
#[unsafe(no_mangle)]
pub extern "C" fn fl_set_max_simd(bits: u32) -> i32 {
    error::guarded(|| {
        flowlane::set_max_simd(bits)?;
        Ok(())
    })
}
