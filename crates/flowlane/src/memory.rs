//! Memory for tables: zeroed, aligned to cache lines, on huge pages where it is large.
//!
//! A lookup in a table of many megabytes misses the translation buffer on nearly every probe when its
//! pages have 4 KiB; with pages of 2 MiB it seldom does. Memory of [`HUGE_BYTES`] and more is mapped, and
//! the system is asked for huge pages (`madvise`, which needs no privilege and is only a wish). It is
//! committed when first touched: a table may be allocated for the most it can hold.

mod slab;

pub use slab::Slab;

use std::fmt;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Size of a cache line, to which all tables are aligned.
pub const LINE_BYTES: usize = 64;

/// Size of a huge page: from this size on memory is mapped.
pub const HUGE_BYTES: usize = 2 << 20;

/// Types for which zero bytes are a value, that own nothing, and whose alignment is at most a line's.
///
/// # Safety
/// All of that must hold.
pub unsafe trait Zeroed {}

macro_rules! zeroed {
    ($($plain:ty)*) => { $(
        // SAFETY: integers, and atomics with their layout: any bytes are a value.
        unsafe impl Zeroed for $plain {}
    )* };
}

zeroed! {
    u8 u16 u32 u64 u128
    std::sync::atomic::AtomicU8 std::sync::atomic::AtomicU16
    std::sync::atomic::AtomicU32 std::sync::atomic::AtomicU64
}

// SAFETY: an array is its elements, one behind the other.
unsafe impl<T: Zeroed, const N: usize> Zeroed for [T; N] {}

enum Bytes {
    /// A line more than needed, so that one begins in the first.
    Allocated(Vec<u8>),
    /// A huge page more, likewise.
    Mapped(MmapMut),
}

/// A slice of `T`, zero at first, that begins on a cache line.
pub struct Memory<T: Zeroed> {
    bytes: Bytes,
    start: *mut T,
    len: usize,
}

// SAFETY: the pointer leads into `bytes`, which this value owns; it is as shareable as a Vec<T>.
unsafe impl<T: Zeroed + Send> Send for Memory<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroed + Sync> Sync for Memory<T> {}

impl<T: Zeroed> Memory<T> {
    /// `len` zeros.
    ///
    /// # Panics
    /// Where the system has no memory, as all of Rust's collections do.
    pub fn zeroed(len: usize) -> Self {
        const { assert!(align_of::<T>() <= LINE_BYTES) };
        let size = len.checked_mul(size_of::<T>()).expect("the size of a table overflows");
        // With room to begin on a huge page: up to that, pages would be small.
        let room = size.checked_add(HUGE_BYTES).filter(|_| size >= HUGE_BYTES && !cfg!(miri));
        let mapped = room.and_then(|room| MmapMut::map_anon(room).ok());
        let mut bytes = match mapped {
            Some(map) => {
                // Only a wish: without huge pages the table is as right, and slower.
                #[cfg(target_os = "linux")]
                let _ = map.advise(memmap2::Advice::HugePage);
                Bytes::Mapped(map)
            }
            // Zeros of the allocator's, which it need not write where it has them from the system.
            None => Bytes::Allocated(vec![0; size.next_multiple_of(LINE_BYTES) + LINE_BYTES]),
        };
        let aligned = |first: *mut u8, to: usize| first.wrapping_add(first.addr().wrapping_neg() % to).cast();
        let start = match &mut bytes {
            Bytes::Allocated(bytes) => aligned(bytes.as_mut_ptr(), LINE_BYTES),
            Bytes::Mapped(map) => aligned(map.as_mut_ptr(), HUGE_BYTES),
        };
        Self { bytes, start, len }
    }

    /// Bytes reserved. They are committed when touched, but for small ones that the allocator had in use before.
    pub fn size_bytes(&self) -> usize {
        match &self.bytes {
            Bytes::Allocated(bytes) => bytes.len() - LINE_BYTES,
            Bytes::Mapped(map) => map.len() - HUGE_BYTES,
        }
    }
}

impl<T: Zeroed + Copy> Memory<T> {
    /// Copies the values into memory for `len` of them: those that fit, and zeros behind them.
    pub fn resized(&self, len: usize) -> Self {
        let mut out = Self::zeroed(len);
        let both = len.min(self.len);
        out[..both].copy_from_slice(&self[..both]);
        out
    }
}

impl<T: Zeroed + Copy> Clone for Memory<T> {
    fn clone(&self) -> Self {
        self.resized(self.len)
    }
}

impl<T: Zeroed> Deref for Memory<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `bytes` holds `len` values of T from `start` on, zeroed at first, aligned to a line or a
        // huge page; neither vector nor mapping moves them; `Zeroed` makes zero bytes values. (Not by `from_raw_parts`, whose
        // check of that, in tests, took a tenth of their time.)
        unsafe { &*std::ptr::slice_from_raw_parts(self.start, self.len) }
    }
}

impl<T: Zeroed> DerefMut for Memory<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { &mut *std::ptr::slice_from_raw_parts_mut(self.start, self.len) }
    }
}

impl<T: Zeroed> fmt::Debug for Memory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} × {} bytes)", self.len, size_of::<T>())
    }
}

/// A value on cache lines of its own, and apart from the neighbouring ones, too, which prefetchers bring in pairs: what
/// one thread writes beside what others read makes them fetch their lines again.
#[derive(Clone, Debug)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// Asks for the cache line at `place` of `slice`, to be read soon; does nothing where there is no such
/// place.
#[inline(always)]
pub fn prefetch<T>(slice: &[T], place: usize) {
    prefetch_at(slice.as_ptr().wrapping_add(place).cast());
}

/// Asks for the cache lines at several places of `slice`.
#[inline(always)]
pub(crate) fn prefetch_each<T>(slice: &[T], places: &[u32]) {
    // Four in a step: assembly, which a prefetch is on AArch64, keeps the compiler from unrolling a loop.
    let (fours, rest) = places.as_chunks::<4>();
    for four in fours {
        four.iter().for_each(|place| prefetch(slice, *place as usize));
    }
    rest.iter().for_each(|place| prefetch(slice, *place as usize));
}

/// Asks for the cache line at an address, which need not be one: prefetching does not fault.
#[inline(always)]
pub fn prefetch_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: prefetching has no effect on memory and does not fault, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: as above. In assembly, since the intrinsic is unstable.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address.addr(), options(nomem, nostack, preserves_flags));
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_any_size_is_zero_aligned_and_writable() {
        for len in [0, 1, 15, 17, 100_000, HUGE_BYTES / 4, HUGE_BYTES] {
            let mut memory = Memory::<u32>::zeroed(len);
            assert_eq!(memory.len(), len);
            assert_eq!(memory.as_ptr() as usize % LINE_BYTES, 0);
            assert!(
                cfg!(miri) || 4 * len < HUGE_BYTES || memory.as_ptr().addr().is_multiple_of(HUGE_BYTES),
                "a huge page"
            );
            assert!(memory.iter().all(|&w| w == 0));
            memory.iter_mut().enumerate().for_each(|(i, w)| *w = i as u32);
            assert!(memory.iter().enumerate().all(|(i, &w)| w == i as u32));
            assert!(memory.size_bytes() >= 4 * len);
            prefetch(&memory, len + 5);
        }
    }
}
