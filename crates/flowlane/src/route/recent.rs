//! Addresses that were looked up lately: by them an engine is chosen for the traffic that there is.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::engine::Family;
use crate::memory::Memory;

/// Addresses that are kept, the newest. Engines are measured by more than the nearest caches hold of large tables.
const KEPT: usize = 1 << 15;

/// Words of an address.
const WORDS: usize = 2;

/// A sample of the addresses that were looked up lately, for [`AnyFib::build_for`](super::engine::AnyFib::build_for) and
/// [`renew`](super::engine::AnyFib::renew).
///
/// Any thread may add to it. Record a batch in some hundred, all of it: what follows each other stays together, as caches met it.
pub struct RecentAddresses<A> {
    /// In memory as far as there are addresses.
    words: Memory<AtomicU64>,
    /// How many have been recorded.
    recorded: AtomicU64,
    of: PhantomData<A>,
}

impl<A> fmt::Debug for RecentAddresses<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentAddresses").field("recorded", &self.recorded).finish_non_exhaustive()
    }
}

impl<A: Family> Default for RecentAddresses<A> {
    fn default() -> Self {
        Self { words: Memory::zeroed(KEPT * WORDS), recorded: AtomicU64::new(0), of: PhantomData }
    }
}

impl<A: Family> RecentAddresses<A> {
    /// Adds addresses, of which the oldest ones make room.
    pub fn record(&self, addresses: &[A]) {
        let first = self.recorded.fetch_add(addresses.len() as u64, Relaxed);
        for (address, at) in addresses.iter().zip(first..) {
            let place = at as usize % KEPT * WORDS;
            // A thread that reads meanwhile may find a former address here, or halves of two: a few of thousands in a sample.
            for (word, value) in self.words[place..].iter().zip(address.to_words()) {
                word.store(value, Relaxed);
            }
        }
    }

    /// Returns the addresses, in about the order in which they were recorded.
    pub fn addresses(&self) -> Vec<A> {
        let recorded = self.recorded.load(Relaxed);
        let kept = recorded.min(KEPT as u64);
        let address = |at: u64| {
            let place = at as usize % KEPT * WORDS;
            A::from_words(self.words[place].load(Relaxed), self.words[place + 1].load(Relaxed))
        };
        (recorded - kept..recorded).map(address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_addresses_are_kept_in_order() {
        let recent = RecentAddresses::<u128>::default();
        assert_eq!(recent.addresses(), []);
        let all: Vec<u128> = (0..KEPT as u128 + 1000).map(|n| n << 100 | n).collect();
        all[..700].chunks(64).for_each(|batch| recent.record(batch));
        assert_eq!(recent.addresses(), all[..700]);
        all[700..].chunks(64).for_each(|batch| recent.record(batch));
        assert_eq!(recent.addresses(), all[1000..]);
        let recent = RecentAddresses::<u32>::default();
        recent.record(&[7, u32::MAX]);
        assert_eq!(recent.addresses(), [7, u32::MAX]);
    }
}
