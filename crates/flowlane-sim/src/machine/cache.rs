//! The tags of a set-associative cache with LRU replacement.

/// Bytes of a line.
pub const LINE_BYTES: u64 = 64;

/// A line's number: its address divided by the size of a line.
pub type Line = u64;

const FREE: u64 = u64::MAX;

/// An evicted line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evicted {
    pub line: Line,
    /// Whether the line was dirty.
    pub dirty: bool,
}

/// The tags of a cache.
#[derive(Clone, Debug)]
pub struct Cache {
    sets: u64,
    ways: usize,
    /// The line in each way of each set, or [`FREE`].
    lines: Vec<u64>,
    /// The time of the last use, counted in uses; the lowest bit is the dirty bit.
    used: Vec<u64>,
    uses: u64,
    /// The number of slices: the low bits that select the slice do not select the set.
    skip: u64,
}

impl Cache {
    /// Creates an empty cache that shares the lines with `slices` - 1 others.
    pub fn new(size_bytes: u64, ways: u64, slices: u64) -> Self {
        let sets = (size_bytes / LINE_BYTES / ways).max(1);
        let places = (sets * ways) as usize;
        Self {
            sets,
            ways: ways as usize,
            lines: vec![FREE; places],
            used: vec![0; places],
            uses: 0,
            skip: slices.max(1),
        }
    }

    /// Creates an empty cache of entries that are no lines, such as pages, in sets of `ways`.
    pub(super) fn of_entries(entries: u32, ways: u64) -> Self {
        Self::new(u64::from(entries) * LINE_BYTES, ways, 1)
    }

    /// Returns the set of a line.
    #[inline]
    pub fn set_of(&self, line: Line) -> u64 {
        line / self.skip % self.sets
    }

    #[inline]
    fn find(&self, line: Line) -> Option<usize> {
        let from = self.set_of(line) as usize * self.ways;
        self.lines[from..from + self.ways].iter().position(|l| *l == line).map(|way| from + way)
    }

    /// Returns whether the line is present, and marks it as used.
    #[inline]
    pub fn touch(&mut self, line: Line) -> bool {
        let Some(at) = self.find(line) else { return false };
        self.uses += 1;
        self.used[at] = self.uses << 1 | self.used[at] & 1;
        true
    }

    /// Returns whether the line is present.
    pub fn has(&self, line: Line) -> bool {
        self.find(line).is_some()
    }

    /// Marks a line, if present, as dirty.
    pub fn dirty(&mut self, line: Line) {
        if let Some(at) = self.find(line) {
            self.used[at] |= 1;
        }
    }

    /// Inserts a line and returns the evicted one.
    pub fn insert(&mut self, line: Line, dirty: bool) -> Option<Evicted> {
        self.uses += 1;
        let stamp = self.uses << 1 | u64::from(dirty);
        if let Some(at) = self.find(line) {
            self.used[at] = stamp | self.used[at] & 1;
            return None;
        }
        let from = self.set_of(line) as usize * self.ways;
        let ways = from..from + self.ways;
        let at = ways.min_by_key(|at| (self.lines[*at] != FREE, self.used[*at])).expect("there are ways");
        let evicted = Evicted { line: self.lines[at], dirty: self.used[at] & 1 == 1 };
        (self.lines[at], self.used[at]) = (line, stamp);
        (evicted.line != FREE).then_some(evicted)
    }

    /// Removes a line and returns whether it was dirty; `None` if it was absent.
    pub fn remove(&mut self, line: Line) -> Option<bool> {
        let at = self.find(line)?;
        let dirty = self.used[at] & 1 == 1;
        (self.lines[at], self.used[at]) = (FREE, 0);
        Some(dirty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_used_longest_ago_goes_first() {
        // Two sets of two ways.
        let mut cache = Cache::new(256, 2, 1);
        assert_eq!(cache.sets, 2);
        assert_eq!([cache.insert(0, false), cache.insert(2, true), cache.insert(1, false)], [None; 3]);
        assert!(cache.touch(0));
        assert_eq!(cache.insert(4, false), Some(Evicted { line: 2, dirty: true }));
        assert!(cache.has(0) && cache.has(1) && cache.has(4) && !cache.has(2));
        assert_eq!((cache.remove(0), cache.remove(0)), (Some(false), None));
        assert_eq!(cache.insert(6, false), None);
    }

    #[test]
    fn sets_are_those_of_size_ways_and_line() {
        // The paper's caches: 64, 1024 and, in each slice, 2048 sets.
        for (kib, ways, sets) in [(32, 8, 64), (1024, 16, 1024), (2048, 16, 2048)] {
            let mut cache = Cache::new(kib << 10, ways, 1);
            assert_eq!(cache.sets, sets);
            // Exactly as many consecutive lines fit as the cache has ways in all sets.
            let lines = kib * 16;
            assert!((1000..1000 + lines).all(|line| cache.insert(line, false).is_none()));
            assert_eq!(cache.insert(1000 + lines, false), Some(Evicted { line: 1000, dirty: false }));
        }
        let slice = Cache::new(2048 << 10, 16, 16);
        assert_eq!((slice.set_of(15), slice.set_of(16), slice.set_of(16 * 2048)), (0, 1, 0));
    }

    #[test]
    fn a_line_written_stays_so_until_it_goes() {
        let mut cache = Cache::new(64, 1, 1);
        cache.insert(3, false);
        cache.dirty(3);
        cache.insert(3, false);
        assert!(cache.touch(3));
        assert_eq!(cache.insert(5, false), Some(Evicted { line: 3, dirty: true }));
    }
}
