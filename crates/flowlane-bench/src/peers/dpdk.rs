//! DPDK's `rte_hash`, through a small C shim.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use crate::options::BenchError;

/// The most keys of a call of [`RteHash::lookup_bulk`].
const BULK_MAX: usize = 64;

unsafe extern "C" {
    fn flowlane_peers_start(huge: c_int) -> c_int;
    fn flowlane_peers_create(entries: u32, key_bytes: u32) -> *mut c_void;
    fn flowlane_peers_free(hash: *mut c_void);
    fn flowlane_peers_reset(hash: *mut c_void);
    fn flowlane_peers_add(hash: *mut c_void, key: *const u32, value: u64) -> c_int;
    fn flowlane_peers_lookup_bulk(hash: *mut c_void, keys: *const u32, key_bytes: u32, n: u32, at: *mut i32);
}

/// Returns whether the system has reserved huge pages, which DPDK needs.
fn huge_pages() -> bool {
    std::fs::read_to_string("/proc/sys/vm/nr_hugepages").is_ok_and(|n| n.trim() != "0")
}

/// Returns the conditions under which DPDK's table was measured.
pub(crate) fn conditions() -> &'static str {
    match huge_pages() {
        true => " DPDK has huge pages, as the library has.",
        false => {
            " DPDK has small pages here, which costs it dearly in large tables, and the library huge ones: reserve some for a \
             fair comparison (sysctl vm.nr_hugepages=1200)."
        }
    }
}

/// Starts DPDK's environment once a process, without devices, on reserved huge pages if there are any.
pub(crate) fn start() -> Result<(), BenchError> {
    static STARTED: OnceLock<i32> = OnceLock::new();
    let code = *STARTED.get_or_init(|| {
        // SAFETY: the shim passes constant arguments to DPDK, and this runs once a process.
        unsafe { flowlane_peers_start(huge_pages().into()) }
    });
    if code >= 0 {
        return Ok(());
    }
    Err(BenchError::Dpdk(format!(
        "its environment does not start ({}); it needs a writable runtime folder (/var/run/dpdk as root, else \
         $XDG_RUNTIME_DIR) and huge pages, or 2 GiB of memory where none are reserved; leave out the feature peers-dpdk to measure without it",
        std::io::Error::from_raw_os_error(-code)
    )))
}

/// Builds a table with keys 0 to `entries` - 1.
pub(crate) fn filled<const W: usize>(
    entries: usize,
    key: impl Fn(u32) -> [u32; W],
) -> Result<RteHash<W>, BenchError> {
    let failed = |what: &str| {
        BenchError::Dpdk(format!("rte_hash has no {what} for {entries} keys of {} bytes", 4 * W))
    };
    let room = entries.next_power_of_two() as u32;
    let mut table = RteHash::new(room).ok_or_else(|| failed("memory (reserve more huge pages, or none)"))?;
    let inserted = (0..entries as u32).all(|n| table.insert(&key(n), n.into()));
    if inserted { Ok(table) } else { Err(failed("room")) }
}

/// An `rte_hash` with keys of `W` words.
#[derive(Debug)]
pub(crate) struct RteHash<const W: usize> {
    hash: NonNull<c_void>,
}

impl<const W: usize> RteHash<W> {
    const KEY_BYTES: u32 = 4 * W as u32;

    /// Creates a table for `entries` keys, with DPDK's default hash (CRC32C if the CPU supports it).
    fn new(entries: u32) -> Option<Self> {
        // SAFETY: makes a table or returns null.
        NonNull::new(unsafe { flowlane_peers_create(entries, Self::KEY_BYTES) }).map(|hash| Self { hash })
    }

    /// Removes all keys.
    pub(crate) fn clear(&mut self) {
        // SAFETY: `new` made the table, and nothing else uses it now.
        unsafe { flowlane_peers_reset(self.hash.as_ptr()) }
    }

    /// Inserts `key`, and returns whether there was room.
    pub(crate) fn insert(&mut self, key: &[u32; W], value: u64) -> bool {
        // SAFETY: `new` made the table for keys of this size.
        unsafe { flowlane_peers_add(self.hash.as_ptr(), key.as_ptr(), value) >= 0 }
    }

    /// Looks up at most [`BULK_MAX`] keys (`rte_hash_lookup_bulk`) and writes their positions, negative for absent
    /// keys.
    ///
    /// # Panics
    /// Panics if there are more keys, or fewer positions than keys.
    pub(crate) fn lookup_bulk(&self, keys: &[[u32; W]], at: &mut [i32]) {
        assert!(keys.len() <= BULK_MAX && at.len() >= keys.len());
        let n = keys.len() as u32;
        let (hash, at) = (self.hash.as_ptr(), at.as_mut_ptr());
        // SAFETY: `new` made the table for keys of this size; there are `n` keys and room for `n` positions.
        unsafe { flowlane_peers_lookup_bulk(hash, keys.as_ptr().cast(), Self::KEY_BYTES, n, at) }
    }
}

impl<const W: usize> Drop for RteHash<W> {
    fn drop(&mut self) {
        // SAFETY: `new` made the table; it is not used after this.
        unsafe { flowlane_peers_free(self.hash.as_ptr()) }
    }
}
