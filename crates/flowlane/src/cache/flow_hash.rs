//! The hash by which the exact-match and the signature-match cache know a packet: over what tells flows
//! apart (ports, protocol, addresses), as a network card's receive-side scaling does it, and not over the
//! whole key. Routes choose among next hops by it, too, and tunnels their source ports. A packet that is looked up again, behind
//! `ct` or in another table, is another one to the caches: else the entries of both lookups would take each other's place.
//!
//! Only a datagram's first fragment has ports, and over IPv6 only it names their protocol, so that for fragments addresses
//! alone count: all of a datagram go one way.
//!
//! Both caches compare more than the hash before they believe it, so that packets that differ
//! in other fields collide at worst.

use crate::hash::multilinear::{self, Multilinear};
use crate::packet::batch::LaneMask;
use crate::packet::fields::word;
use crate::packet::key::FlowKey;

/// Of the word of the protocol the protocol itself: lifetime and class may differ within a flow.
const PROTOCOL: u32 = 0xff00_0000;

/// Of the same word what says that the packet is a fragment (`ip_frag`).
const FRAGMENT: u32 = 0xc0;

/// A keyed hash of flows.
#[derive(Clone, Debug)]
pub struct FlowHash {
    hash: Multilinear,
}

impl FlowHash {
    /// Keyed by a secret seed.
    pub fn new(seed: u64) -> Self {
        Self { hash: Multilinear::new(seed) }
    }

    /// The hash of a packet's flow.
    #[inline(always)]
    pub fn of(&self, key: &FlowKey) -> u32 {
        multilinear::finish(self.sum(key))
    }

    /// The hash of a packet's flow, of where it is looked up, and of its connection's state.
    #[inline(always)]
    pub(super) fn of_lookup(&self, key: &FlowKey) -> u32 {
        let words = key.words();
        let term = |w: usize| multilinear::term(self.hash.multiplier(w), words[w]);
        let place = term(word::RECIRC_ID).wrapping_add(term(word::CT_STATE));
        multilinear::finish(self.sum(key).wrapping_add(place))
    }

    #[inline(always)]
    fn sum(&self, key: &FlowKey) -> u64 {
        let words = key.words();
        let term = |w: usize, mask: u32| multilinear::term(self.hash.multiplier(w), words[w] & mask);
        let whole = if words[word::NW_PROTO] & FRAGMENT == 0 { u32::MAX } else { 0 };
        let mut sum = term(word::PORTS, whole)
            .wrapping_add(term(word::NW_PROTO, PROTOCOL & whole))
            .wrapping_add(term(word::IPV4_SRC, u32::MAX))
            .wrapping_add(term(word::IPV4_DST, u32::MAX));
        // Present in every IPv6 packet's key.
        if key.present().contains(word::IPV6_SRC) {
            for w in word::IPV6_SRC..word::IPV6_DST + 4 {
                sum = sum.wrapping_add(term(w, u32::MAX));
            }
        }
        sum
    }
}

/// Says of every n-th packet that it is to be inserted, at random: which ones must not follow the traffic's
/// own period. Costs nothing for the others.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    /// Packets still to be passed over.
    left: u32,
    inverse: u32,
    state: u32,
}

impl Sampler {
    pub(super) fn new(inverse: u32, seed: u64) -> Self {
        let state = (seed ^ seed >> 32) as u32 | 1;
        Self { left: 0, inverse: inverse.max(1), state }
    }

    /// A random number.
    #[inline]
    pub(super) fn roll(&mut self) -> u32 {
        // Xorshift32 (Marsaglia 2003).
        self.state ^= self.state << 13;
        self.state ^= self.state >> 17;
        self.state ^= self.state << 5;
        self.state
    }

    /// The lanes of the next packets that are to be inserted.
    #[inline]
    pub(super) fn pick_lanes(&mut self, packets: LaneMask) -> LaneMask {
        let mut picked = LaneMask(0);
        let mut passed = 0;
        while let Some(at) = self.pick(packets.len() - passed) {
            passed += at + 1;
            let lane = packets.lanes().nth(passed - 1).expect("picked from those there are");
            picked.0 |= 1 << lane;
        }
        picked
    }

    /// Of the next `packets`: the place of the first that is to be inserted. To be asked again for those behind
    /// it.
    #[inline]
    pub(super) fn pick(&mut self, packets: usize) -> Option<usize> {
        let at = self.left as usize;
        if at >= packets {
            self.left -= packets as u32;
            return None;
        }
        // Every n-th on average: 0 to 2n - 2 are passed over before the next.
        self.left = self.roll() % (2 * self.inverse - 1);
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Field;
    use crate::packet::fields::{FRAG_ANY, FRAG_LATER};

    #[test]
    fn fragments_of_a_datagram_are_one_flow_and_whole_packets_are_told_apart_by_ports() {
        let hash = FlowHash::new(5);
        let key = |frag: u8, proto: u8, ports: u32, v6: bool| {
            let mut key = FlowKey::zero();
            key.set(Field::IpFrag, frag.into());
            key.set(Field::NwProto, proto.into());
            key.set_word(word::PORTS, ports);
            key.set(if v6 { Field::Ipv6Src } else { Field::Ipv4Src }, 0x0a00_0001);
            key
        };
        for v6 in [false, true] {
            let first = hash.of(&key(FRAG_ANY, 17, 0x1234_0035, v6));
            let later = key(FRAG_ANY | FRAG_LATER, if v6 { 44 } else { 17 }, 0, v6);
            assert_eq!(first, hash.of(&later), "v6: {v6}");
            assert_ne!(hash.of(&key(0, 17, 1, v6)), hash.of(&key(0, 17, 2, v6)), "v6: {v6}");
            assert_ne!(hash.of(&key(0, 17, 1, v6)), hash.of(&key(0, 6, 1, v6)), "v6: {v6}");
        }
        assert_ne!(hash.of(&key(FRAG_ANY, 17, 1, false)), hash.of(&key(FRAG_ANY, 17, 1, true)));
    }

    #[test]
    fn a_packet_that_is_looked_up_again_has_another_hash_for_that() {
        let (hash, before) = (FlowHash::new(5), FlowKey::zero());
        for word in [word::RECIRC_ID, word::CT_STATE] {
            let mut behind = before.clone();
            behind.set_word(word, 0x21);
            assert_eq!(hash.of(&before), hash.of(&behind));
            assert_ne!(hash.of_lookup(&before), hash.of_lookup(&behind));
        }
    }
}
