//! An allocator that places large allocations of all crates on huge pages, as the library does for its tables;
//! otherwise figures of large filters would measure TLB misses instead of filters.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, with large allocations on huge pages.
struct OnHugePages;

const HUGE_BYTES: usize = 2 << 20;

#[global_allocator]
static ALLOCATOR: OnHugePages = OnHugePages;

/// Returns the layout to request: large ones are aligned to huge pages.
fn aligned(layout: Layout) -> Layout {
    let large = layout.size() >= HUGE_BYTES;
    layout.align_to(if large { HUGE_BYTES } else { 1 }).unwrap_or(layout)
}

// SAFETY: the system's allocator does all the work, with the same larger alignment for allocation and release.
unsafe impl GlobalAlloc for OnHugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; the advice only changes the pages in use.
        unsafe {
            let place = System.alloc(aligned(layout));
            if layout.size() >= HUGE_BYTES && !place.is_null() {
                libc::madvise(place.cast(), layout.size(), libc::MADV_HUGEPAGE);
            }
            place
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; `size` bytes were allocated.
        unsafe {
            let place = self.alloc(layout);
            if !place.is_null() {
                place.write_bytes(0, layout.size());
            }
            place
        }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: allocated with this layout.
        unsafe { System.dealloc(place, aligned(layout)) }
    }
}
