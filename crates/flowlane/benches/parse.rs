//! Parsing 64-byte UDP frames: into the whole key, by each variant; by hand into a 5-tuple; with etherparse.
//! Then other stacks of headers, and a mixture of all of them.

mod support;

use std::hint::black_box;

use etherparse::{PacketBuilder, SlicedPacket};
use flowlane::isa::Variant;
use flowlane::packet::{FlowKey, Headers, Parser, parse};

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

/// Frames of one stack of headers, all different.
fn stack(tags: usize, v6: bool, tcp: bool) -> Vec<Vec<u8>> {
    (0..FRAMES as u32)
        .map(|i| {
            let [_, a, b, c] = (i * 2_654_435_761).to_be_bytes();
            let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
            let (v6_from, v6_to) = ([a, b, c, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], [c; 16]);
            let mut frame = Vec::new();
            let ports = (1000 + i as u16, 53);
            match (v6, tcp) {
                (false, false) => ethernet
                    .ipv4([10, a, b, c], [192, c, b, a], 64)
                    .udp(ports.0, ports.1)
                    .write(&mut frame, &[0; 18]),
                (false, true) => ethernet
                    .ipv4([10, a, b, c], [192, c, b, a], 64)
                    .tcp(ports.0, ports.1, i, 99)
                    .write(&mut frame, &[0; 6]),
                (true, false) => {
                    ethernet.ipv6(v6_from, v6_to, 64).udp(ports.0, ports.1).write(&mut frame, &[0; 2])
                }
                (true, true) => {
                    ethernet.ipv6(v6_from, v6_to, 64).tcp(ports.0, ports.1, i, 99).write(&mut frame, &[])
                }
            }
            .unwrap();
            for tag in 0..tags {
                frame.splice(12..12, [0x81, 0, 0x20, tag as u8]);
            }
            frame
        })
        .collect()
}

/// Compares the variants on some frames.
fn variants(title: &str, frames: &[Vec<u8>]) {
    let parsers: Vec<Parser> = Variant::ALL.into_iter().filter_map(Parser::with_variant).collect();
    let mut bodies: Vec<support::Body<'_>> = Vec::new();
    for parser in &parsers {
        let mut keys = vec![FlowKey::zero(); 32];
        let mut headers = vec![Headers::default(); 32];
        let body = move || {
            for burst in frames.chunks(32) {
                parser.parse_all(burst.iter().map(Vec::as_slice), 1, &mut keys, &mut headers);
                black_box((&keys, &headers));
            }
        };
        bodies.push((parser.variant().name(), Box::new(body)));
    }
    support::compare(title, FRAMES as u64, 2001, &mut bodies);
}

fn main() {
    let mut mixed = Vec::new();
    for (v6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
        for tags in 0..3 {
            let frames = stack(tags, v6, tcp);
            let name = format!(
                "{tags} tags, {}, {}",
                if v6 { "IPv6" } else { "IPv4" },
                if tcp { "TCP" } else { "UDP" }
            );
            variants(&name, &frames);
            mixed.extend(frames);
        }
    }
    // An order that no predictor knows: as a hash of the place has it.
    mixed.sort_by_key(|f| f.iter().fold(7u32, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193)));
    mixed.truncate(FRAMES);
    variants("all of these, mixed", &mixed);

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
