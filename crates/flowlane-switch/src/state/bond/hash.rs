//! Hashes of frames, which name buckets, and the frames that tell neighbours where an address is.

use flowlane::hash::murmur3::hash_words;
use flowlane::packet::key::FlowKey;
use flowlane::packet::parse::ether_type;
use flowlane::packet::{Field, parse};

/// The halves of a 64-bit word, the lower first.
fn halves(word: u64) -> [u32; 2] {
    [word as u32, (word >> 32) as u32]
}

/// Returns the address at a place of a frame.
pub(super) fn mac_at(frame: &[u8], at: usize) -> u64 {
    let bytes = frame.get(at..at + 6).unwrap_or(&[0; 6]);
    bytes.iter().fold(0, |mac, &byte| mac << 8 | u64::from(byte))
}

/// Returns the hash of a source address in a VLAN, as Open vSwitch computes it (`ovs-appctl bond/hash`).
pub fn source_hash(mac: u64, vid: u16, basis: u32) -> u32 {
    hash_words(&halves(u64::from(vid) << 48 | mac), basis)
}

/// Returns the hash of a flow: its addresses, VLAN, protocol and ports. Fragments of a datagram have one hash.
pub(super) fn flow_hash(frame: &[u8], vid: u16, basis: u32) -> u32 {
    let mut key = FlowKey::zero();
    parse(frame, 0, &mut key);
    let word = |field| key.get(field) as u32;
    let [d0, d1] = halves(mac_at(frame, 0));
    let [s0, s1] = halves(mac_at(frame, 6));
    let ports = match word(Field::IpFrag) {
        0 => word(Field::TpSrc) << 16 | word(Field::TpDst),
        _ => 0,
    };
    let protocol = word(Field::EthType) << 16 | word(Field::NwProto);
    let mut words = [d0, d1 | u32::from(vid) << 16, s0, s1, protocol, ports, 0, 0, 0, 0, 0, 0, 0, 0];
    let wide = [key.get(Field::Ipv6Src), key.get(Field::Ipv6Dst)].map(u128::to_ne_bytes);
    let wide = wide.as_flattened().as_chunks::<4>().0;
    words[6..].iter_mut().zip(wide).for_each(|(word, bytes)| *word = u32::from_ne_bytes(*bytes));
    words[6] ^= word(Field::Ipv4Src);
    words[10] ^= word(Field::Ipv4Dst);
    hash_words(&words, basis)
}

/// Returns whether a frame announces the address of its sender to all: an ARP reply to all, or a request for its own address.
pub fn is_gratuitous_arp(frame: &[u8]) -> bool {
    let mut at = 12;
    for _ in 0..2 {
        let is_tag = |bytes: &[u8]| {
            matches!(u16::from_be_bytes([bytes[0], bytes[1]]), ether_type::VLAN | ether_type::QINQ)
        };
        at += if frame.get(at..at + 2).is_some_and(is_tag) { 4 } else { 0 };
    }
    let Some(arp) = frame.get(at..at + 30) else { return false };
    let is_arp = arp[..2] == ether_type::ARP.to_be_bytes() && frame[..6] == [0xff; 6];
    // Sender and target addresses of IPv4 are at 14 and 24 of ARP (RFC 826).
    let (sender, target) = (&arp[16..20], &arp[26..30]);
    is_arp && (arp[8..10] == [0, 2] || arp[8..10] == [0, 1] && sender == target)
}
