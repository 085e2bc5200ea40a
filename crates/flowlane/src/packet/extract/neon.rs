//! Permutes of bytes of two registers (`tbl`): those of Ethernet, with or without tags, go by the stack's mapping, as with AVX-512.

use std::arch::aarch64::*;

use super::quad::{self, at};
use super::{Captured, FRAME_LEAST, FlowKey, Headers, L2_WORDS, L3_WORDS, Mover, Stack, extract_all};
use crate::isa::Neon;
use crate::isa::simd::{Kernel, Quad, Registers};

/// With the witness of NEON.
#[derive(Clone, Copy)]
struct Permute(Neon);

impl Permute {
    /// Loads 32 bytes from two places.
    #[inline(always)]
    fn load(self, bytes: [&[u8; 16]; 2]) -> uint8x16x2_t {
        // SAFETY: the witness proves NEON; so below. Sixteen bytes each.
        let [low, high] = bytes.map(|bytes| unsafe { vld1q_u8(bytes.as_ptr()) });
        uint8x16x2_t(low, high)
    }

    /// Returns the register whose byte `i` is byte `from[i]`, or zero where there is no such byte.
    #[inline(always)]
    fn permute(self, bytes: uint8x16x2_t, from: &[u8; 16]) -> uint32x4_t {
        // SAFETY: as above; sixteen bytes.
        unsafe { vreinterpretq_u32_u8(vqtbl2q_u8(bytes, vld1q_u8(from.as_ptr()))) }
    }
}

impl Mover for Permute {
    #[inline(always)]
    fn is(self, frame: &[u8; FRAME_LEAST], stack: &Stack) -> bool {
        quad::is(self.0, frame, stack)
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
        let isa = self.0;
        let ethernet =
            stack.ethernet.moves.from.as_chunks::<16>().0.iter().zip(stack.ethernet.set.as_chunks::<4>().0);
        let bytes = self.load([at(frame, 0), at(frame, 16)]);
        for ((from, set), to) in ethernet.zip(l2.as_chunks_mut::<4>().0) {
            isa.store(isa.or(self.permute(bytes, from), isa.load(set)), to);
        }
        if stack.v6 {
            quad::move_v6(isa, packet, l3);
        } else {
            let zero = isa.splat(0);
            isa.store(zero, l3);
            isa.store(zero, &mut l3[4..]);
            // Ports, protocol, type of service, lifetime, addresses: 28 bytes, the shortest packet.
            let from = [27, 26, 25, 24, 255, 8, 1, 9, 15, 14, 13, 12, 23, 22, 21, 20];
            let bytes = self.load([at(packet, 0), at(packet, 12)]);
            isa.store(self.permute(bytes, &from), &mut l3[8..]);
            isa.store(zero, &mut l3[12..]);
        }
        if stack.tcp {
            quad::move_flags(packet, stack, l3);
        }
    }
}

/// Parses frames into keys and headers.
pub(super) struct ParseAll<'a, F> {
    pub(super) frames: F,
    pub(super) in_port: u32,
    pub(super) keys: &'a mut [FlowKey],
    pub(super) headers: &'a mut [Headers],
}

impl<'a, F: Iterator<Item = Captured<'a>>> Kernel<Neon> for ParseAll<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self, isa: Neon) {
        extract_all(Permute(isa), self.frames, self.in_port, self.keys, self.headers);
    }
}
