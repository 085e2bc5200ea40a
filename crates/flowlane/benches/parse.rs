//! Parsing 64-byte UDP frames: into the whole key; by hand into a 5-tuple; with etherparse.

mod support;

use std::hint::black_box;

use etherparse::{PacketBuilder, SlicedPacket};
use flowlane::packet::{FlowKey, parse};

const FRAMES: usize = 256;

/// 64-byte frames (60 without the checksum), all different.
fn frames() -> Vec<Vec<u8>> {
    (0..FRAMES as u32)
        .map(|i| {
            let [_, a, b, c] = (i * 2_654_435_761).to_be_bytes();
            let mut frame = Vec::new();
            PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv4([10, a, b, c], [192, c, b, a], 64)
                .udp(1000 + i as u16, 53)
                .write(&mut frame, &[0; 18])
                .unwrap();
            frame
        })
        .collect()
}

/// What a network function writes where it wants five fields and nothing else.
fn five_tuple(frame: &[u8]) -> Option<[u32; 4]> {
    let bytes: &[u8; 42] = frame.first_chunk()?;
    if bytes[12..14] != [8, 0] || bytes[14] != 0x45 {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Some([word(34), u32::from(bytes[23]), word(26), word(30)])
}

fn main() {
    let frames = frames();
    let mut keys = vec![FlowKey::zero(); 32];
    let mut tuples = vec![[0u32; 4]; 32];
    support::compare(
        "parse, 64-byte UDP",
        FRAMES as u64,
        2001,
        &mut [
            (
                "whole key",
                Box::new(|| {
                    for burst in frames.chunks(32) {
                        for (frame, key) in burst.iter().zip(&mut keys) {
                            black_box(parse(black_box(frame), 1, key));
                        }
                    }
                }),
            ),
            (
                "5-tuple by hand",
                Box::new(|| {
                    for burst in frames.chunks(32) {
                        for (frame, tuple) in burst.iter().zip(&mut tuples) {
                            *tuple = five_tuple(black_box(frame)).unwrap();
                        }
                        black_box(&tuples);
                    }
                }),
            ),
            (
                "etherparse, slices",
                Box::new(|| {
                    for frame in &frames {
                        black_box(SlicedPacket::from_ethernet(black_box(frame)).unwrap());
                    }
                }),
            ),
        ],
    );
}
