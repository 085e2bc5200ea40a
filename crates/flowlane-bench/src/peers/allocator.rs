//! Large allocations of all crates on huge pages, as the library's own tables are: else figures of large filters
//! would say how often the address translation misses, not how filters differ.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, with large allocations on huge pages.
struct OnHugePages;

const HUGE_BYTES: usize = 2 << 20;

#[global_allocator]
static ALLOCATOR: OnHugePages = OnHugePages;

/// The layout that is asked for instead: large ones begin on a huge page.
fn aligned(layout: Layout) -> Layout {
    let large = layout.size() >= HUGE_BYTES;
    layout.align_to(if large { HUGE_BYTES } else { 1 }).unwrap_or(layout)
}

// SAFETY: all is left to the system's allocator, with the same larger alignment for allocation and release.
unsafe impl GlobalAlloc for OnHugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; advice changes nothing but what pages are used.
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
