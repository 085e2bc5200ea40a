//! The choices of `multipath` and `bundle`: a link or a member by a hash of the packet.
//!
//! Open vSwitch documents the algorithms (ovs-actions(7)) and leaves the hash open: which link a flow gets differs from it.

use flowlane::hash::murmur3::hash_words;
use flowlane::packet::Field;
use flowlane::packet::key::FlowKey;
use flowlane::rule::action::{Multipath, MultipathAlgorithm, PacketHash};

/// Hashes the headers of a packet that a hash covers: equally for both directions where it is symmetric.
pub(super) fn hash(key: &FlowKey, over: PacketHash, basis: u32) -> u32 {
    use Field::{EthDst, EthSrc, Ipv4Dst, Ipv4Src, Ipv6Dst, Ipv6Src, TpDst, TpSrc};
    const PAIRS: [(Field, Field); 4] =
        [(EthSrc, EthDst), (Ipv4Src, Ipv4Dst), (Ipv6Src, Ipv6Dst), (TpSrc, TpDst)];
    let fields = over.fields();
    let mut words = Vec::with_capacity(4 * fields.len());
    let mut add = |value: u128| words.extend((0..4).map(|i| (value >> (32 * i)) as u32));
    for &field in fields {
        match PAIRS.iter().find(|(source, to)| *source == field || *to == field) {
            // Both ends together, in an order of their own.
            Some((source, to)) if fields.contains(source) && fields.contains(to) => {
                let ends = [key.get(*source), key.get(*to)];
                if field == *source {
                    add(ends[0] ^ ends[1]);
                    add(ends[0].wrapping_add(ends[1]));
                }
            }
            _ => add(key.get(field)),
        }
    }
    hash_words(&words, basis)
}

/// Returns the number of the link that a packet gets, below `multipath.links`.
pub(super) fn link(key: &FlowKey, multipath: &Multipath) -> u32 {
    let links = u64::from(multipath.links.max(1));
    let hash = hash(key, multipath.hash, multipath.basis.into());
    match multipath.algorithm {
        MultipathAlgorithm::ModuloN => (u64::from(hash) % links) as u32,
        MultipathAlgorithm::HashThreshold => ((u64::from(hash) * links) >> 32) as u32,
        MultipathAlgorithm::Hrw => highest(hash, 0..links as u32).unwrap_or(0),
        MultipathAlgorithm::IterHash => {
            // The argument is the number of links of the hash's range (Open vSwitch: at least half of it are links).
            let range = u64::from(multipath.argument).max(links);
            let tries =
                (0..64).map(|round| hash_words(&[hash, round], 0)).map(|hash| u64::from(hash) % range);
            tries.into_iter().find(|link| *link < links).map_or(hash % links as u32, |link| link as u32)
        }
    }
}

/// Returns that of some numbers whose own hash with a packet's is the highest (rendezvous hashing).
pub(super) fn highest(hash: u32, numbers: impl Iterator<Item = u32>) -> Option<u32> {
    numbers.max_by_key(|&number| hash_words(&[hash, number], 0))
}
