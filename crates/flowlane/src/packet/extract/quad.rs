//! A permute of bytes (`pshufb`, `tbl`) for each four words that a stack has.

use super::{
    Captured, FRAME_LEAST, FlowKey, Headers, KEPT, L2_WORDS, L3_WORDS, Mover, Stack, extract_all, place, word,
};
use crate::isa::simd::{Kernel, Quad};

/// With the witness of the instructions.
#[derive(Clone, Copy)]
struct Shuffle<Q>(Q);

/// Four words from 16 bytes in network order.
#[inline(always)]
fn words<Q: Quad>(isa: Q, bytes: &[u8; 16]) -> Q::Register {
    isa.permute(isa.load_bytes(bytes), [3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12])
}

#[inline(always)]
fn at<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("a recognised frame has its headers")
}

#[inline(always)]
fn be32(bytes: &[u8], from: usize) -> u32 {
    u32::from_be_bytes(*at(bytes, from))
}

impl<Q: Quad> Mover for Shuffle<Q> {
    #[inline(always)]
    fn is(self, frame: &[u8; FRAME_LEAST], stack: &Stack) -> bool {
        let Self(isa) = self;
        let differs = |from: usize| {
            let [bytes, wanted, compared] =
                [&frame[..], &stack.wanted, &stack.compared].map(|bytes| isa.load_bytes(at(bytes, from)));
            isa.and(isa.xor(bytes, wanted), compared)
        };
        isa.is_zero(isa.or(differs(0), differs(16)))
    }

    #[inline(always)]
    fn move_bytes(
        self,
        frame: &[u8; FRAME_LEAST],
        packet: &[u8],
        stack: &Stack,
        l2: &mut [u32; L2_WORDS],
        l3: &mut [u32; L3_WORDS],
    ) {
        move_ethernet(self.0, frame, stack, l2);
        move_packet(self.0, packet, stack, l3);
    }
}

#[inline(always)]
fn move_ethernet<Q: Quad>(isa: Q, frame: &[u8; FRAME_LEAST], stack: &Stack, l2: &mut [u32; L2_WORDS]) {
    isa.store(words(isa, at(frame, 0)), l2);
    isa.store(isa.splat(0), &mut l2[4..]);
    let tags = usize::from(stack.tags);
    if tags == 0 {
        l2[3] >>= 16;
        return;
    }
    let tpid_tci = be32(frame, 12);
    let set = &stack.ethernet.set;
    let eth_type = be32(frame, 10 + 4 * tags) & 0xffff;
    l2[3] = tpid_tci << 16 | set[3] | eth_type;
    l2[4] = tpid_tci & 0xffff_0000 | set[4];
    if tags == 2 {
        l2[4] |= be32(frame, 16) & 0xffff;
    }
}

#[inline(always)]
fn move_packet<Q: Quad>(isa: Q, packet: &[u8], stack: &Stack, l3: &mut [u32; L3_WORDS]) {
    if stack.v6 {
        isa.store(words(isa, at(packet, 8)), l3);
        isa.store(words(isa, at(packet, 24)), &mut l3[4..]);
        let ports = be32(packet, 40);
        let proto = u32::from(packet[6]) << 24 | u32::from(packet[7]) << 8;
        let label = be32(packet, 0) & KEPT[12];
        isa.store(isa.words([ports, proto, 0, 0]), &mut l3[8..]);
        isa.store(isa.words([label, 0, 0, 0]), &mut l3[12..]);
    } else {
        let zero = isa.splat(0);
        isa.store(zero, l3);
        isa.store(zero, &mut l3[4..]);
        // Lifetime, protocol, checksum, addresses, ports: into the key's order.
        let from = [15, 14, 13, 12, 255, 0, 255, 1, 7, 6, 5, 4, 11, 10, 9, 8];
        let moved = isa.permute(isa.load_bytes(at(packet, 8)), from);
        let tos = isa.words([0, u32::from(packet[1]) << 16, 0, 0]);
        isa.store(isa.or(moved, tos), &mut l3[8..]);
        isa.store(zero, &mut l3[12..]);
    }
    if stack.tcp {
        l3[place(word::FLAGS)] = be32(packet, if stack.v6 { 52 } else { 32 }) & KEPT[13];
    }
}

/// Parses frames into keys and headers.
pub(super) struct ParseAll<'a, F> {
    pub(super) frames: F,
    pub(super) in_port: u32,
    pub(super) keys: &'a mut [FlowKey],
    pub(super) headers: &'a mut [Headers],
}

impl<'a, Q: Quad, F: Iterator<Item = Captured<'a>>> Kernel<Q> for ParseAll<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: Q) {
        extract_all(Shuffle(isa), self.frames, self.in_port, self.keys, self.headers);
    }
}
