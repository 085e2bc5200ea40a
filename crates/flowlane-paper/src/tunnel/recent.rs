//! What packet by packet designs keep of recent packets, and the table behind it.

use flowlane::tunnel::{EndpointReader, V4Key, V6Key};

/// Keys with their endpoints.
pub(super) trait Recent<const W: usize> {
    /// The endpoint of a key that is kept.
    fn find(&mut self, key: &[u32; W]) -> Option<u32>;
    /// Keeps a key's endpoint.
    fn keep(&mut self, key: &[u32; W], endpoint: u32);
    /// Forgets all.
    fn clear(&mut self);
}

/// Whether two keys are equal: word by word, since a key that was just put together of words would have to be
/// written and read again to be compared as a whole.
#[inline(always)]
pub(super) fn same<const W: usize>(a: &[u32; W], b: &[u32; W]) -> bool {
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// The endpoint of a key, from what is kept or from the table.
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

/// The table's answer. By words, so that a key whose address nobody takes stays in registers: written word by word
/// and read as a whole, it would wait for its stores (28 cycles a packet of the eight-entry design, measured).
#[inline(never)]
fn from_table(table: &EndpointReader, source: u32, destination: u32, id: u32, tag: u32) -> Option<u32> {
    table.lookup_v4(&[source, destination, id, tag]).map(|found| found.0)
}

/// The same of a packet with IPv6 addresses.
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
