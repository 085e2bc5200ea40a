//! Address space: regions on pages of 2 MiB, as for tables of packet processing.

use super::cache::{LINE_BYTES, Line};

pub(crate) const PAGE_BYTES: u64 = 2 << 20;
const LINES_OF_PAGE: u64 = PAGE_BYTES / LINE_BYTES;

/// Pages of the simulated memory, more than the largest table takes.
pub(crate) const PAGES: u64 = 1 << 18;

/// An odd factor permutes the physical pages; the other one leads back.
const FACTOR: u64 = 0x9_e377;
const INVERSE: u64 = inverse(FACTOR);

/// A contiguous region of the address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    from: u64,
    bytes: u64,
}

/// The address space, allocated from its beginning.
#[derive(Clone, Debug, Default)]
pub struct Space {
    next: u64,
}

impl Space {
    /// Allocates a region, aligned to a line, after the previous one.
    ///
    /// # Panics
    /// Panics if the simulated memory is full.
    pub fn region(&mut self, bytes: u64) -> Region {
        let from = self.next;
        self.next = (from + bytes.max(1)).next_multiple_of(LINE_BYTES);
        assert!(self.next <= PAGES * PAGE_BYTES, "regions beyond the simulated memory");
        Region { from, bytes }
    }
}

impl Region {
    /// Returns the physical line of an offset.
    pub fn line(&self, offset: u64) -> Line {
        debug_assert!(offset < self.bytes, "{offset} of {}", self.bytes);
        line_at(self.from + offset)
    }

    pub fn lines(&self) -> impl Iterator<Item = Line> + use<> {
        let region = *self;
        (0..region.bytes.div_ceil(LINE_BYTES))
            .map(move |n| region.line((n * LINE_BYTES).min(region.bytes - 1)))
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Returns the physical line of an address of the address space.
pub fn line_at(address: u64) -> Line {
    let (page, within) = (address / PAGE_BYTES, address % PAGE_BYTES);
    let frame = page.wrapping_mul(FACTOR) % PAGES;
    frame * LINES_OF_PAGE + within / LINE_BYTES
}

/// Returns the inverse of an odd number modulo 2^64 (Newton's method: each step doubles the right bits).
const fn inverse(odd: u64) -> u64 {
    let mut x = odd;
    let mut step = 0;
    while step < 6 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// Returns a physical line's number in the address space.
#[inline]
pub(super) fn virtual_line(line: Line) -> Line {
    let (frame, within) = (line / LINES_OF_PAGE, line % LINES_OF_PAGE);
    frame.wrapping_mul(INVERSE) % PAGES * LINES_OF_PAGE + within
}

/// Returns the slice of a line; neighbouring lines are in different slices.
#[inline]
pub fn slice_of(line: Line, slices: u32) -> u32 {
    let slices = u64::from(slices);
    let group = line / slices;
    let mixed = (group ^ group >> 17).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    ((line + mixed) % slices) as u32
}

/// Returns the slice of a table by the distributor's hash of its address: seed 0 is the map of lines.
pub fn slice_of_table(line: Line, slices: u32, seed: u64) -> u32 {
    match seed {
        0 => slice_of(line, slices),
        _ => {
            let mixed = (line ^ seed.wrapping_mul(0xd6e8_feb8_6659_fd93)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            ((mixed ^ mixed >> 32) % u64::from(slices)) as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_do_not_meet_and_every_line_has_one_place() {
        let mut space = Space::default();
        let regions = [100, 5 << 20, 64, 3 << 20].map(|bytes| space.region(bytes));
        let mut lines: Vec<Line> = regions.iter().flat_map(Region::lines).collect();
        let count = lines.len();
        assert!(regions[1].lines().enumerate().all(|(n, line)| virtual_line(line) == 2 + n as u64));
        assert_eq!(count, 2 + (5 << 14) + 1 + (3 << 14));
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), count);
    }

    #[test]
    fn slices_share_lines_evenly() {
        for slices in [1, 3, 16, 28] {
            let mut of_each = vec![0u32; slices as usize];
            (0..u64::from(slices) * 1000).for_each(|line| of_each[slice_of(line, slices) as usize] += 1);
            assert!(of_each.iter().all(|n| *n == 1000), "{of_each:?}");
            // Lines far apart, such as the first ones of tables, are spread as well.
            let mut of_each = vec![0u32; slices as usize];
            (0..16_000u64).for_each(|n| of_each[slice_of(n * 1040, slices) as usize] += 1);
            let mean = 16_000 / slices;
            assert!(of_each.iter().all(|n| n.abs_diff(mean) < mean / 5 + 1), "{of_each:?}");
        }
    }
}
