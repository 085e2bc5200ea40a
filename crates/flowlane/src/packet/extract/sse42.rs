//! A permute of bytes (`pshufb`) for each four words that a stack has.

use super::quad::{at, be32, is, move_flags, move_v6, words};
use super::{Captured, FRAME_LEAST, FlowKey, Headers, L2_WORDS, L3_WORDS, Mover, Stack, extract_all};
use crate::isa::Sse42;
use crate::isa::simd::{Kernel, Quad, Registers};

/// With the witness of SSE4.2.
#[derive(Clone, Copy)]
struct Shuffle(Sse42);

impl Mover for Shuffle {
    #[inline(always)]
    fn is(self, frame: &[u8; FRAME_LEAST], stack: &Stack) -> bool {
        is(self.0, frame, stack)
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
fn move_ethernet(isa: Sse42, frame: &[u8; FRAME_LEAST], stack: &Stack, l2: &mut [u32; L2_WORDS]) {
    isa.store(words(isa, at(frame, 0)), l2);
    isa.store(isa.splat(0), &mut l2[4..]);
    let tags = usize::from(stack.headers.vlan_tags);
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
fn move_packet(isa: Sse42, packet: &[u8], stack: &Stack, l3: &mut [u32; L3_WORDS]) {
    if stack.v6 {
        move_v6(isa, packet, l3);
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
        move_flags(packet, stack, l3);
    }
}

/// Parses frames into keys and headers.
pub(super) struct ParseAll<'a, F> {
    pub(super) frames: F,
    pub(super) in_port: u32,
    pub(super) keys: &'a mut [FlowKey],
    pub(super) headers: &'a mut [Headers],
}

impl<'a, F: Iterator<Item = Captured<'a>>> Kernel<Sse42> for ParseAll<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: Sse42) {
        extract_all(Shuffle(isa), self.frames, self.in_port, self.keys, self.headers);
    }
}
