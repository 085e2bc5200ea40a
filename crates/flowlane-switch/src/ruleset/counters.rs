//! Counters of rules: each has one writer, a worker, and may be read by any thread at any time.
//!
//! Each worker has counters of its own, so that no thread waits for another: one writes, relaxed, with a load and a store; a reader
//! of a sum reads them all. They only grow. A rule begins with what its handle's counters were when it came, and has their
//! difference; so nothing is ever set back under a worker's hands.

use std::sync::Arc;

use flowlane::memory::prefetch;
use flowlane::rule::RuleId;

use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};

/// Packets and bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowStats {
    pub packets: u64,
    pub bytes: u64,
}

impl FlowStats {
    /// Returns the difference to `before`.
    pub fn since(self, before: FlowStats) -> FlowStats {
        let FlowStats { packets, bytes } = before;
        FlowStats { packets: self.packets.wrapping_sub(packets), bytes: self.bytes.wrapping_sub(bytes) }
    }
}

impl std::ops::AddAssign for FlowStats {
    fn add_assign(&mut self, other: Self) {
        self.packets = self.packets.wrapping_add(other.packets);
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }
}

/// LocalCounters that are allocated together.
const CHUNK: usize = if cfg!(all(loom, test)) { 2 } else { 1024 };

#[derive(Debug, Default)]
struct Counter {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    /// One thread alone may add.
    #[inline]
    fn add(&self, packets: u64, bytes: u64) {
        let add = |to: &AtomicU64, n| to.store(to.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
        add(&self.packets, packets);
        add(&self.bytes, bytes);
    }

    fn get(&self) -> FlowStats {
        FlowStats { packets: self.packets.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

/// No other worker's counters lie on its lines.
#[derive(Debug)]
#[repr(align(128))]
struct Chunk([Counter; CHUNK]);

/// A table's counters of one worker, as others see them.
#[derive(Debug, Default)]
pub struct SharedCounters {
    chunks: Mutex<Vec<Arc<Chunk>>>,
    missed: Counter,
}

impl SharedCounters {
    /// Returns the counts of each id in `rules`.
    pub fn of(&self, rules: impl IntoIterator<Item = RuleId>) -> Vec<FlowStats> {
        let chunks = self.chunks();
        let count = |RuleId(id): RuleId| {
            let chunk = chunks.get(id as usize / CHUNK);
            chunk.map_or(FlowStats::default(), |chunk| chunk.0[id as usize % CHUNK].get())
        };
        rules.into_iter().map(count).collect()
    }

    /// Packets that no rule was for.
    pub fn missed(&self) -> FlowStats {
        self.missed.get()
    }

    fn chunks(&self) -> MutexGuard<'_, Vec<Arc<Chunk>>> {
        // A thread that panicked with it has left a list of chunks.
        self.chunks.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Sums the counts of several workers for each id in `rules`.
pub(crate) fn sums<'a>(
    tallies: impl IntoIterator<Item = &'a Arc<SharedCounters>>,
    rules: impl IntoIterator<Item = RuleId>,
) -> Vec<FlowStats> {
    let rules: Vec<RuleId> = rules.into_iter().collect();
    let mut sums = vec![FlowStats::default(); rules.len()];
    for tally in tallies {
        sums.iter_mut().zip(tally.of(rules.iter().copied())).for_each(|(sum, count)| *sum += count);
    }
    sums
}

/// A table's counters of one worker, in that worker's hands.
#[derive(Debug, Default)]
pub(crate) struct LocalCounters {
    chunks: Vec<Arc<Chunk>>,
    tally: Arc<SharedCounters>,
}

impl LocalCounters {
    /// The counts that other threads may read.
    pub(crate) fn tally(&self) -> &Arc<SharedCounters> {
        &self.tally
    }

    /// As many for another worker, which has counted nothing.
    pub(crate) fn alike(&self) -> Self {
        let mut alike = Self::default();
        alike.grow(self.chunks.len() * CHUNK);
        alike
    }

    /// Makes room for handles below `rules`.
    pub(crate) fn grow(&mut self, rules: usize) {
        if rules <= self.chunks.len() * CHUNK {
            return;
        }
        let chunk = || Arc::new(Chunk(std::array::from_fn(|_| Counter::default())));
        self.chunks.resize_with(rules.div_ceil(CHUNK), chunk);
        self.tally.chunks().clone_from(&self.chunks);
    }

    #[inline]
    fn counter(&self, RuleId(id): RuleId) -> &Counter {
        &self.chunks[id as usize / CHUNK].0[id as usize % CHUNK]
    }

    /// Counts packets for the rule that they matched, or among those that matched none.
    ///
    /// # Panics
    /// Where there is [no room](Self::grow) for the rule.
    #[inline]
    pub(crate) fn count(&self, rule: Option<RuleId>, packets: u64, bytes: u64) {
        match rule {
            Some(rule) => self.counter(rule).add(packets, bytes),
            None => self.tally.missed.add(packets, bytes),
        }
    }

    /// Asks for what a packet of this rule will touch.
    #[inline]
    pub(crate) fn prefetch(&self, RuleId(id): RuleId) {
        prefetch(&self.chunks[id as usize / CHUNK].0, id as usize % CHUNK);
    }

    /// Returns the counts of a rule's id.
    pub(crate) fn get(&self, rule: RuleId) -> FlowStats {
        self.tally.of([rule])[0]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_one_counts_others_read_while_it_grows() {
        let mut counters = LocalCounters::default();
        let tally = counters.tally().clone();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut last = FlowStats::default();
                while last.packets < 100 {
                    let now = tally.of([RuleId(0), RuleId(5000)])[0];
                    assert!(now.packets >= last.packets && now.bytes >= last.bytes);
                    last = now;
                }
            });
            for round in 0..100 {
                counters.grow(1 + 100 * round);
                counters.count(Some(RuleId(0)), 1, 60);
                counters.count(None, 1, 0);
            }
            reader.join().expect("nothing goes back");
        });
        counters.grow(6000);
        counters.count(Some(RuleId(5000)), 2, 7);
        let zero = FlowStats { packets: 100, bytes: 6000 };
        assert_eq!(tally.of([RuleId(0), RuleId(5000)]), [zero, FlowStats { packets: 2, bytes: 7 }]);
        assert_eq!((tally.missed().packets, counters.get(RuleId(0))), (100, zero));
        assert_eq!(tally.of([RuleId(100_000)]), [FlowStats::default()]);
    }
}
