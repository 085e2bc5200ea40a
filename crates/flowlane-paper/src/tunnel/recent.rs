//! The interface of the papers' caches, and the table behind them.

use flowlane::tunnel::{EndpointReader, V4Key, V6Key};

/// A cache of keys and their endpoints.
pub(super) trait Recent<const W: usize> {
    /// Returns the endpoint of a cached key.
    fn find(&mut self, key: &[u32; W]) -> Option<u32>;
    /// Caches a key's endpoint.
    fn keep(&mut self, key: &[u32; W], endpoint: u32);
    /// Removes all entries.
    fn clear(&mut self);
}

/// Returns whether two keys are equal, comparing word by word: a key that was just assembled from words would
/// otherwise be stored and read again.
#[inline(always)]
pub(super) fn same<const W: usize>(a: &[u32; W], b: &[u32; W]) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Returns the endpoint of an IPv4 key from the cache or the table.
#[inline(always)]
pub(super) fn endpoint_v4(table: &EndpointReader, recent: &mut impl Recent<4>, key: &V4Key) -> Option<u32> {
    let kept = recent.find(key);
    if kept.is_some() {
        return kept;
    }
    let [source, destination, id, tag] = *key;
    let found = from_table(table, source, destination, id, tag)?;
    recent.keep(key, found);
    Some(found)
}

/// Looks up the table with words as arguments, so that the key stays in registers. Written word by word and read as a
/// whole, it would wait for its stores (28 cycles a packet in the eight-entry design, measured).
#[inline(never)]
fn from_table(table: &EndpointReader, source: u32, destination: u32, id: u32, tag: u32) -> Option<u32> {
    table.lookup_v4(&[source, destination, id, tag]).map(|found| found.0)
}

/// Returns the endpoint of an IPv6 key from the cache or the table.
#[inline(always)]
pub(super) fn endpoint_v6(table: &EndpointReader, recent: &mut impl Recent<10>, key: &V6Key) -> Option<u32> {
    let kept = recent.find(key);
    if kept.is_some() {
        return kept;
    }
    let found = table.lookup_v6(key)?.0;
    recent.keep(key, found);
    Some(found)
}
