//! A permute of bytes (`pshufb`) for each four words that a stack has.

use std::arch::x86_64::*;

use super::{
    Captured, FRAME_LEAST, FlowKey, Headers, KEPT, L2_WORDS, L3_WORDS, Mover, Stack, extract_all, place, word,
};
use crate::isa;

/// With the witness of what its bodies need.
#[derive(Clone, Copy)]
struct Shuffle(isa::Sse42);

/// Four words from 16 bytes in network order.
#[inline]
#[target_feature(enable = "sse4.2")]
fn words(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: the array has 16 bytes.
    let bytes = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
    _mm_shuffle_epi8(bytes, _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12))
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn store(words: __m128i, to: &mut [u32]) {
    let to: &mut [u32; 4] = to.first_chunk_mut().expect("four words");
    // SAFETY: the array has four words.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), words) };
}

#[inline(always)]
fn at<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("a recognised frame has its headers")
}

#[inline(always)]
fn be32(bytes: &[u8], from: usize) -> u32 {
    u32::from_be_bytes(*at(bytes, from))
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn is(frame: &[u8; FRAME_LEAST], stack: &Stack) -> bool {
    let differs = |from: usize| {
        // SAFETY: a frame has 42 bytes at least, and the other two 32 each; `from` is 0 or 16.
        let [bytes, wanted, compared] = unsafe {
            [frame.as_ptr(), stack.wanted.as_ptr(), stack.compared.as_ptr()]
                .map(|p| _mm_loadu_si128(p.add(from).cast()))
        };
        _mm_and_si128(_mm_xor_si128(bytes, wanted), compared)
    };
    let both = _mm_or_si128(differs(0), differs(16));
    _mm_testz_si128(both, both) == 1
}

impl Mover for Shuffle {
    #[inline(always)]
    fn is(self, frame: &[u8; FRAME_LEAST], stack: &Stack) -> bool {
        // SAFETY: the witness that this holds proves SSE4.2.
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
        // SAFETY: the witness that this holds proves SSE4.2.
        unsafe {
            move_ethernet(frame, stack, l2);
            move_packet(packet, stack, l3);
        }
    }
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn move_ethernet(frame: &[u8; FRAME_LEAST], stack: &Stack, l2: &mut [u32; L2_WORDS]) {
    store(words(at(frame, 0)), l2);
    store(_mm_setzero_si128(), &mut l2[4..]);
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

#[inline]
#[target_feature(enable = "sse4.2")]
fn move_packet(packet: &[u8], stack: &Stack, l3: &mut [u32; L3_WORDS]) {
    if stack.v6 {
        store(words(at(packet, 8)), l3);
        store(words(at(packet, 24)), &mut l3[4..]);
        let ports = be32(packet, 40);
        let proto = u32::from(packet[6]) << 24 | u32::from(packet[7]) << 8;
        let label = be32(packet, 0) & KEPT[12];
        store(_mm_setr_epi32(ports as i32, proto as i32, 0, 0), &mut l3[8..]);
        store(_mm_setr_epi32(label as i32, 0, 0, 0), &mut l3[12..]);
    } else {
        let zero = _mm_setzero_si128();
        store(zero, l3);
        store(zero, &mut l3[4..]);
        // Lifetime, protocol, checksum, addresses, ports: into the key's order.
        let to = _mm_setr_epi8(15, 14, 13, 12, -1, 0, -1, 1, 7, 6, 5, 4, 11, 10, 9, 8);
        // SAFETY: the array has 16 bytes.
        let bytes = unsafe { _mm_loadu_si128(at::<16>(packet, 8).as_ptr().cast()) };
        let tos = _mm_setr_epi32(0, i32::from(packet[1]) << 16, 0, 0);
        store(_mm_or_si128(_mm_shuffle_epi8(bytes, to), tos), &mut l3[8..]);
        store(zero, &mut l3[12..]);
    }
    if stack.tcp {
        l3[place(word::FLAGS)] = be32(packet, if stack.v6 { 52 } else { 32 }) & KEPT[13];
    }
}

#[target_feature(enable = "sse4.2")]
pub(super) fn parse_all<'a>(
    isa: isa::Sse42,
    frames: impl Iterator<Item = Captured<'a>>,
    in_port: u32,
    keys: &mut [FlowKey],
    headers: &mut [Headers],
) {
    extract_all(Shuffle(isa), frames, in_port, keys, headers);
}
