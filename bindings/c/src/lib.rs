//! The tables, for C: `include/flowlane.h`.
//!
//! Nothing unwinds into C: what panics is caught, and is `FL_BUG`.

mod acl;
mod bloom;
mod error;
mod layout;
mod lookup;
mod map;
mod routes;

/// The version of this interface: grows by one where a program that was compiled with an older header would not work. A
/// structure that grows at its end does not: its size says what the program knows.
pub const FL_ABI: u32 = 1;

/// The version of the interface that the library has.
#[unsafe(no_mangle)]
pub extern "C" fn fl_abi() -> u32 {
    FL_ABI
}

/// Uses SIMD registers of so many bits at most: 64 (none), 128, 256 or 512. For what is made from then on.
#[unsafe(no_mangle)]
pub extern "C" fn fl_set_max_simd(bits: u32) -> i32 {
    error::guarded(|| {
        flowlane::set_max_simd(bits)?;
        Ok(())
    })
}
