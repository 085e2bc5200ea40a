//! Entries of 2, 4 and 8 bytes: a next hop, or where to look on.
//!
//! The lowest bit says which: clear, the bits above are a next hop; set, they are the number of a group of 256
//! entries for the next eight bits.

/// Entries of a group.
pub(super) const GROUP: usize = 256;

/// The entry of a next hop.
pub(super) fn of_hop(next_hop: u64) -> u64 {
    next_hop << 1
}

/// The entry that leads to a group.
pub(super) fn of_group(group: u32) -> u64 {
    u64::from(group) << 1 | 1
}

/// The group that an entry leads to.
#[inline(always)]
pub(super) fn group(entry: u64) -> Option<usize> {
    (entry & 1 == 1).then_some((entry >> 1) as usize)
}
