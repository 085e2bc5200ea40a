//! Other implementations of what Flowlane does, to be measured against it in one run.
//!
//! So far DPDK's `rte_hash` ([`RteHash`]), through a small C shim. Start DPDK's environment once with
//! [`start`], on the thread that uses the tables.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

/// Most keys in a call of [`RteHash::lookup_bulk`].
pub const BULK_MAX: usize = 64;

unsafe extern "C" {
    fn flowlane_peers_start(huge: c_int) -> c_int;
    fn flowlane_peers_create(entries: u32, key_bytes: u32, lock_free: c_int) -> *mut c_void;
    fn flowlane_peers_free(hash: *mut c_void);
    fn flowlane_peers_reset(hash: *mut c_void);
    fn flowlane_peers_add(hash: *mut c_void, key: *const u32, value: u64) -> c_int;
    fn flowlane_peers_lookup(hash: *mut c_void, key: *const u32) -> c_int;
    fn flowlane_peers_lookup_bulk_data(
        hash: *mut c_void,
        keys: *const u32,
        key_bytes: u32,
        n: u32,
        values: *mut u64,
    ) -> u64;
    fn flowlane_peers_lookup_bulk(hash: *mut c_void, keys: *const u32, key_bytes: u32, n: u32, at: *mut i32);
}

/// Starts DPDK's environment on core 0, without devices; `huge`: on huge pages. Once per process: returns
/// whether it started.
pub fn start(huge: bool) -> bool {
    // SAFETY: the arguments that it is given are constants.
    unsafe { flowlane_peers_start(huge.into()) >= 0 }
}

/// An `rte_hash` with keys of `W` words.
#[derive(Debug)]
pub struct RteHash<const W: usize> {
    hash: NonNull<c_void>,
}

impl<const W: usize> RteHash<W> {
    const KEY_BYTES: u32 = 4 * W as u32;

    /// A table for `entries` keys, with DPDK's default hash (CRC32C where the CPU has it); `lock_free`:
    /// with readers beside a writer. None: DPDK has no memory, or was not started.
    pub fn new(entries: u32, lock_free: bool) -> Option<Self> {
        // SAFETY: makes a table or returns null.
        NonNull::new(unsafe { flowlane_peers_create(entries, Self::KEY_BYTES, lock_free.into()) })
            .map(|hash| Self { hash })
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        // SAFETY: `new` made the table, and nothing else uses it now.
        unsafe { flowlane_peers_reset(self.hash.as_ptr()) }
    }

    /// Gives `key` this value; false where there is no room.
    pub fn insert(&mut self, key: &[u32; W], value: u64) -> bool {
        // SAFETY: `new` made the table for keys of this size.
        unsafe { flowlane_peers_add(self.hash.as_ptr(), key.as_ptr(), value) >= 0 }
    }

    /// Whether the key is there.
    pub fn contains(&self, key: &[u32; W]) -> bool {
        // SAFETY: `new` made the table for keys of this size.
        unsafe { flowlane_peers_lookup(self.hash.as_ptr(), key.as_ptr()) >= 0 }
    }

    /// Looks up to [`BULK_MAX`] keys up (`rte_hash_lookup_bulk_data`): a bit for each that is there, and
    /// its value.
    ///
    /// # Panics
    /// Where there are more keys, or fewer values than keys.
    pub fn lookup_bulk_data(&self, keys: &[[u32; W]], values: &mut [u64]) -> u64 {
        assert!(keys.len() <= BULK_MAX && values.len() >= keys.len());
        let n = keys.len() as u32;
        let values = values.as_mut_ptr();
        // SAFETY: `new` made the table for keys of this size; there are `n` keys and room for `n` values.
        unsafe {
            flowlane_peers_lookup_bulk_data(
                self.hash.as_ptr(),
                keys.as_ptr().cast(),
                Self::KEY_BYTES,
                n,
                values,
            )
        }
    }

    /// The same without values (`rte_hash_lookup_bulk`): positions, negative where a key is not there.
    ///
    /// # Panics
    /// Where there are more keys, or fewer positions than keys.
    pub fn lookup_bulk(&self, keys: &[[u32; W]], at: &mut [i32]) {
        assert!(keys.len() <= BULK_MAX && at.len() >= keys.len());
        let n = keys.len() as u32;
        // SAFETY: as above.
        unsafe {
            flowlane_peers_lookup_bulk(
                self.hash.as_ptr(),
                keys.as_ptr().cast(),
                Self::KEY_BYTES,
                n,
                at.as_mut_ptr(),
            );
        }
    }
}

impl<const W: usize> Drop for RteHash<W> {
    fn drop(&mut self) {
        // SAFETY: `new` made the table; nobody uses it after this.
        unsafe { flowlane_peers_free(self.hash.as_ptr()) }
    }
}
