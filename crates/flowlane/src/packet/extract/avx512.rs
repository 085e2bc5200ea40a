//! Two permutes of bytes (`vpermb`, AVX-512 VBMI) a frame.

use std::arch::x86_64::*;

use super::{Captured, FRAME_LEAST, FlowKey, Headers, KEPT, L2_WORDS, L3_WORDS, Mover, Stack, extract_all};
use crate::isa;

/// With the witness of what its bodies need.
#[derive(Clone, Copy)]
struct Vbmi(isa::Avx512Vbmi);

impl Mover for Vbmi {
    #[inline(always)]
    fn is(self, frame: &[u8; FRAME_LEAST], stack: &Stack) -> bool {
        // SAFETY: the witness that this holds proves AVX-512 F, BW, DQ, VL and VBMI, and the instructions on bits.
        unsafe { is(frame, stack) }
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
        // SAFETY: the witness that this holds proves AVX-512 F, BW, DQ, VL and VBMI, and the instructions on bits.
        unsafe {
            move_ethernet(frame, stack, l2);
            move_packet(packet, stack, l3);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,bmi1,bmi2,lzcnt,popcnt")]
fn is(frame: &[u8; FRAME_LEAST], stack: &Stack) -> bool {
    // SAFETY: a frame has 42 bytes at least.
    let bytes = unsafe { _mm256_loadu_si256(frame.as_ptr().cast()) };
    // SAFETY: 32 bytes are wanted.
    let wanted = unsafe { _mm256_load_si256(stack.wanted.as_ptr().cast()) };
    // SAFETY: and compared.
    let compared = unsafe { _mm256_load_si256(stack.compared.as_ptr().cast()) };
    _mm256_testz_si256(_mm256_xor_si256(bytes, wanted), compared) == 1
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,bmi1,bmi2,lzcnt,popcnt")]
fn move_ethernet(frame: &[u8; FRAME_LEAST], stack: &Stack, l2: &mut [u32; L2_WORDS]) {
    let tags = &stack.ethernet;
    // SAFETY: a frame has 42 bytes at least.
    let bytes = unsafe { _mm256_loadu_si256(frame.as_ptr().cast()) };
    // SAFETY: there are 32 sources.
    let from = unsafe { _mm256_load_si256(tags.moves.from.as_ptr().cast()) };
    // SAFETY: there are eight words.
    let set = unsafe { _mm256_loadu_si256(tags.set.as_ptr().cast()) };
    let words = _mm256_maskz_permutexvar_epi8(tags.moves.set as u32, from, bytes);
    // SAFETY: L2 has eight words.
    unsafe { _mm256_storeu_si256(l2.as_mut_ptr().cast(), _mm256_or_si256(words, set)) };
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,bmi1,bmi2,lzcnt,popcnt")]
fn move_packet(packet: &[u8], stack: &Stack, l3: &mut [u32; L3_WORDS]) {
    let within = _bzhi_u64(u64::MAX, packet.len().min(64) as u32);
    // SAFETY: only bytes within the slice are read; the others are zero.
    let bytes = unsafe { _mm512_maskz_loadu_epi8(within, packet.as_ptr().cast()) };
    // SAFETY: there are 64 sources.
    let from = unsafe { _mm512_load_si512(stack.moves.from.as_ptr().cast()) };
    // SAFETY: there are 16 masks.
    let kept = unsafe { _mm512_loadu_si512(KEPT.as_ptr().cast()) };
    let words = _mm512_maskz_permutexvar_epi8(stack.moves.set, from, bytes);
    // SAFETY: L3 and L4 have 16 words.
    unsafe { _mm512_storeu_si512(l3.as_mut_ptr().cast(), _mm512_and_si512(words, kept)) };
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,bmi1,bmi2,lzcnt,popcnt")]
pub(super) fn parse_all<'a>(
    isa: isa::Avx512Vbmi,
    frames: impl Iterator<Item = Captured<'a>>,
    in_port: u32,
    keys: &mut [FlowKey],
    headers: &mut [Headers],
) {
    extract_all(Vbmi(isa), frames, in_port, keys, headers);
}
