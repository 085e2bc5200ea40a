//! DPDK's `rte_fib` and `rte_fib6`, through a small C shim.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use flowlane::route::{HopSize, Prefix};

/// The groups of a DIR-24-8 table, if its entries can number them.
const GROUPS_V4: u32 = 1 << 16;
/// The groups of the trie; a full table needs a few hundred thousand.
const GROUPS_V6: u32 = 1 << 18;

unsafe extern "C" {
    fn flowlane_peers_fib_create(routes: u32, size: u32, groups: u32) -> *mut c_void;
    fn flowlane_peers_fib_free(fib: *mut c_void);
    fn flowlane_peers_fib_add(fib: *mut c_void, address: u32, length: u8, next_hop: u64) -> c_int;
    fn flowlane_peers_fib_delete(fib: *mut c_void, address: u32, length: u8) -> c_int;
    fn flowlane_peers_fib_select(fib: *mut c_void, which: u32) -> c_int;
    fn flowlane_peers_fib_lookup(fib: *mut c_void, addresses: *const u32, next_hops: *mut u64, n: u32);
    fn flowlane_peers_fib6_create(routes: u32, size: u32, groups: u32) -> *mut c_void;
    fn flowlane_peers_fib6_free(fib: *mut c_void);
    fn flowlane_peers_fib6_add(fib: *mut c_void, address: *const u8, length: u8, next_hop: u64) -> c_int;
    fn flowlane_peers_fib6_delete(fib: *mut c_void, address: *const u8, length: u8) -> c_int;
    fn flowlane_peers_fib6_select(fib: *mut c_void, which: u32) -> c_int;
    fn flowlane_peers_fib6_lookup(fib: *mut c_void, addresses: *const u8, next_hops: *mut u64, n: u32);
}

/// An address family that DPDK has a table for.
pub(crate) trait Peer: flowlane::route::Address {
    /// An address in the layout of the table.
    type Wire: Copy;

    /// The lookup functions, the vectorised one last.
    const LOOKUPS: &'static [&'static str];

    fn wire(self) -> Self::Wire;
    fn create(routes: u32, hop_size: HopSize) -> *mut c_void;
    /// # Safety
    /// `fib` was made by `create`, and is not used afterwards.
    unsafe fn free(fib: *mut c_void);
    /// # Safety
    /// `fib` was made by `create`, and nothing else uses it now.
    unsafe fn change(fib: *mut c_void, prefix: Prefix<Self>, next_hop: Option<u64>) -> c_int;
    /// # Safety
    /// `fib` was made by `create`; `which` is an index of `LOOKUPS`.
    unsafe fn select(fib: *mut c_void, which: u32) -> c_int;
    /// # Safety
    /// `fib` was made by `create`; there are `n` addresses, and room for `n` next hops.
    unsafe fn lookup(fib: *mut c_void, addresses: *const Self::Wire, next_hops: *mut u64, n: u32);
}

impl Peer for u32 {
    type Wire = u32;

    const LOOKUPS: &'static [&'static str] =
        &["rte_fib, scalar macro", "rte_fib, scalar inline", "rte_fib, scalar uni", "rte_fib, avx512"];

    fn wire(self) -> u32 {
        self
    }

    fn create(routes: u32, hop_size: HopSize) -> *mut c_void {
        let groups = match hop_size {
            HopSize::B1 => 127,
            HopSize::B2 => 1 << 14,
            HopSize::B4 | HopSize::B8 => GROUPS_V4,
        };
        // SAFETY: makes a table or returns null.
        unsafe { flowlane_peers_fib_create(routes, hop_size.bytes().ilog2(), groups) }
    }

    unsafe fn free(fib: *mut c_void) {
        // SAFETY: the caller's promise.
        unsafe { flowlane_peers_fib_free(fib) }
    }

    unsafe fn change(fib: *mut c_void, prefix: Prefix<u32>, next_hop: Option<u64>) -> c_int {
        let (address, length) = (prefix.first(), prefix.len());
        // SAFETY: the caller's promise.
        unsafe {
            match next_hop {
                Some(next_hop) => flowlane_peers_fib_add(fib, address, length, next_hop),
                None => flowlane_peers_fib_delete(fib, address, length),
            }
        }
    }

    unsafe fn select(fib: *mut c_void, which: u32) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { flowlane_peers_fib_select(fib, which) }
    }

    unsafe fn lookup(fib: *mut c_void, addresses: *const u32, next_hops: *mut u64, n: u32) {
        // SAFETY: the caller's promise.
        unsafe { flowlane_peers_fib_lookup(fib, addresses, next_hops, n) }
    }
}

impl Peer for u128 {
    type Wire = [u8; 16];

    const LOOKUPS: &'static [&'static str] = &["rte_fib6, scalar", "rte_fib6, avx512"];

    fn wire(self) -> [u8; 16] {
        self.to_be_bytes()
    }

    fn create(routes: u32, hop_size: HopSize) -> *mut c_void {
        if hop_size == HopSize::B1 {
            return std::ptr::null_mut();
        }
        let groups = if hop_size == HopSize::B2 { (1 << 15) - 1 } else { GROUPS_V6 };
        // SAFETY: makes a table or returns null.
        unsafe { flowlane_peers_fib6_create(routes, hop_size.bytes().ilog2(), groups) }
    }

    unsafe fn free(fib: *mut c_void) {
        // SAFETY: the caller's promise.
        unsafe { flowlane_peers_fib6_free(fib) }
    }

    unsafe fn change(fib: *mut c_void, prefix: Prefix<u128>, next_hop: Option<u64>) -> c_int {
        let (address, length) = (prefix.first().to_be_bytes(), prefix.len());
        // SAFETY: the caller's promise; an address has 16 bytes.
        unsafe {
            match next_hop {
                Some(next_hop) => flowlane_peers_fib6_add(fib, address.as_ptr(), length, next_hop),
                None => flowlane_peers_fib6_delete(fib, address.as_ptr(), length),
            }
        }
    }

    unsafe fn select(fib: *mut c_void, which: u32) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { flowlane_peers_fib6_select(fib, which) }
    }

    unsafe fn lookup(fib: *mut c_void, addresses: *const [u8; 16], next_hops: *mut u64, n: u32) {
        // SAFETY: the caller's promise.
        unsafe { flowlane_peers_fib6_lookup(fib, addresses.cast(), next_hops, n) }
    }
}

/// A DPDK table of an address family.
#[derive(Debug)]
pub(crate) struct RteFib<A: Peer> {
    fib: NonNull<c_void>,
    family: std::marker::PhantomData<A>,
}

impl<A: Peer> RteFib<A> {
    /// Builds a table of routes, or returns `None` if DPDK lacks memory or the next hops do not fit.
    pub(crate) fn build(routes: &[(Prefix<A>, u64)], hop_size: HopSize) -> Option<Self> {
        let fib = NonNull::new(A::create(routes.len() as u32 + 1024, hop_size))?;
        let mut table = Self { fib, family: std::marker::PhantomData };
        routes.iter().all(|(prefix, next_hop)| table.change(*prefix, Some(*next_hop))).then_some(table)
    }

    /// Adds, replaces or removes a route, and returns whether it succeeded.
    pub(crate) fn change(&mut self, prefix: Prefix<A>, next_hop: Option<u64>) -> bool {
        // SAFETY: `build` made the table, and this borrow is the only one.
        unsafe { A::change(self.fib.as_ptr(), prefix, next_hop) >= 0 }
    }

    /// Selects one of [`Peer::LOOKUPS`], and returns whether the CPU supports it.
    ///
    /// # Panics
    /// Panics if the index is out of range.
    pub(crate) fn select(&self, which: usize) -> bool {
        assert!(which < A::LOOKUPS.len());
        // SAFETY: `build` made the table; the assertion is of the index.
        unsafe { A::select(self.fib.as_ptr(), which as u32) >= 0 }
    }

    /// Looks up addresses (`rte_fib_lookup_bulk`).
    ///
    /// # Panics
    /// Panics if there are fewer next hops than addresses.
    pub(crate) fn lookup_bulk(&self, addresses: &[A::Wire], next_hops: &mut [u64]) {
        assert!(next_hops.len() >= addresses.len());
        let n = addresses.len() as u32;
        // SAFETY: `build` made the table; there are `n` addresses and, by the assertion, room for `n` next hops.
        unsafe { A::lookup(self.fib.as_ptr(), addresses.as_ptr(), next_hops.as_mut_ptr(), n) }
    }
}

impl<A: Peer> Drop for RteFib<A> {
    fn drop(&mut self) {
        // SAFETY: `build` made the table; it is not used after this.
        unsafe { A::free(self.fib.as_ptr()) }
    }
}
