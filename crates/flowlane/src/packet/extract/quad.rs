//! Parts of stacks in registers of 128 bits, for SSE4.2 and NEON: the comparison of the first bytes, IPv6, the flags of TCP.

use super::{FRAME_LEAST, KEPT, L3_WORDS, Stack, place, word};
use crate::isa::simd::Quad;

/// Four words from 16 bytes in network order.
#[inline(always)]
pub(super) fn words<Q: Quad>(isa: Q, bytes: &[u8; 16]) -> Q::Register {
    isa.permute(isa.load_bytes(bytes), [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12])
}

#[inline(always)]
pub(super) fn at<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("a recognised frame has its headers")
}

#[inline(always)]
pub(super) fn be32(bytes: &[u8], from: usize) -> u32 {
    u32::from_be_bytes(*at(bytes, from))
}

/// [`Mover::is`].
#[inline(always)]
pub(super) fn is<Q: Quad>(isa: Q, frame: &[u8; FRAME_LEAST], stack: &Stack) -> bool {
    let differs = |from: usize| {
        let [bytes, wanted, compared] =
            [&frame[..], &stack.wanted, &stack.compared].map(|bytes| isa.load_bytes(at(bytes, from)));
        isa.and(isa.xor(bytes, wanted), compared)
    };
    isa.is_zero(isa.or(differs(0), differs(16)))
}

/// Fills the words of IPv6 and its ports.
#[inline(always)]
pub(super) fn move_v6<Q: Quad>(isa: Q, packet: &[u8], l3: &mut [u32; L3_WORDS]) {
    isa.store(words(isa, at(packet, 8)), l3);
    isa.store(words(isa, at(packet, 24)), &mut l3[4..]);
    let ports = be32(packet, 40);
    let proto = u32::from(packet[6]) << 24 | u32::from(packet[7]) << 8;
    let label = be32(packet, 0) & KEPT[12];
    isa.store(isa.words([ports, proto, 0, 0]), &mut l3[8..]);
    isa.store(isa.words([label, 0, 0, 0]), &mut l3[12..]);
}

/// Fills the word of the flags of TCP.
#[inline(always)]
pub(super) fn move_flags(packet: &[u8], stack: &Stack, l3: &mut [u32; L3_WORDS]) {
    l3[place(word::FLAGS)] = be32(packet, if stack.v6 { 52 } else { 32 }) & KEPT[13];
}
