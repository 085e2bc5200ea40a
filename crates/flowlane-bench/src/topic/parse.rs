//! The parser: bursts of 64-byte frames (60 without the checksum) parsed into flow keys, by variant and header stack.

use std::hint::black_box;

use flowlane::generate::{Random, build_frame};
use flowlane::packet::{Field, FlowKey, Headers, Parser, parse};

use super::Context;
use crate::figure::Figure;
use crate::measure::{Contender, Meter};
use crate::packets::BURST;

const FRAMES: usize = 256;

/// The presence bit of an 802.1Q tag.
const TAG: u128 = 0x1000;

/// A stack of headers.
#[derive(Clone, Copy)]
struct Stack {
    tags: usize,
    v6: bool,
    tcp: bool,
}

const STACKS: [Stack; 6] = [
    Stack { tags: 0, v6: false, tcp: false },
    Stack { tags: 0, v6: false, tcp: true },
    Stack { tags: 0, v6: true, tcp: true },
    Stack { tags: 1, v6: false, tcp: true },
    Stack { tags: 1, v6: true, tcp: false },
    Stack { tags: 2, v6: false, tcp: false },
];

impl Stack {
    fn name(self) -> String {
        let tags = ["", "tag, ", "2 tags, "][self.tags];
        format!("{tags}{} {}", if self.v6 { "IPv6" } else { "IPv4" }, if self.tcp { "TCP" } else { "UDP" })
    }

    fn frame(self, random: &mut Random) -> Vec<u8> {
        let mut key = FlowKey::zero();
        key.set(Field::EthSrc, 0x0202_0000_0001);
        key.set(Field::EthDst, 0x0200_0000_0002);
        for tag in [Field::VlanTci, Field::VlanTci1].into_iter().take(self.tags) {
            key.set(tag, TAG | u128::from(random.below(4095) + 1));
        }
        key.set(Field::NwProto, if self.tcp { 6 } else { 17 });
        key.set(Field::NwTtl, 64);
        if self.v6 {
            key.set(Field::EthType, 0x86dd);
            key.set(Field::Ipv6Src, u128::from(random.bits()) << 64 | u128::from(random.bits()));
            key.set(Field::Ipv6Dst, u128::from(random.bits()) << 64 | u128::from(random.bits()));
        } else {
            key.set(Field::EthType, 0x0800);
            key.set(Field::Ipv4Src, u128::from(random.bits() as u32));
            key.set(Field::Ipv4Dst, u128::from(random.bits() as u32));
        }
        key.set(Field::TpSrc, u128::from(random.bits() as u16));
        key.set(Field::TpDst, 53);
        let mut frame = Vec::new();
        build_frame(&key, 60, &mut frame);
        frame
    }
}

/// Parses five fields only, as a specialised network function would.
fn five_tuple(frame: &[u8]) -> Option<[u32; 4]> {
    let bytes: &[u8; 42] = frame.first_chunk()?;
    if bytes[12..14] != [8, 0] || bytes[14] != 0x45 {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Some([word(34), u32::from(bytes[23]), word(26), word(30)])
}

pub(super) fn comparisons(_: &Context<'_>) -> usize {
    STACKS.len() + 1
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Vec<Figure> {
    let about = "256 different frames of 64 bytes, warm, in bursts of 64, into the whole key with offsets and checks. `mixed` has \
                 all stacks in an order that no predictor knows. Beside it, where the stack is plain: frame by frame, and a \
                 5-tuple taken out by hand without any check.";
    let mut figure = Figure::new("parse", "Parsing 64-byte frames", about)
        .over("headers", STACKS.map(Stack::name).into_iter().chain(["mixed".to_owned()]))
        .cycles("frame")
        .bars();
    let mut random = Random::new(1);
    let mut mixed = Vec::new();
    for (place, stack) in STACKS.into_iter().enumerate() {
        let frames: Vec<Vec<u8>> = (0..FRAMES).map(|_| stack.frame(&mut random)).collect();
        compare(meter, context, &frames, place, &mut figure);
        mixed.extend(frames);
    }
    random.shuffle(&mut mixed);
    mixed.truncate(FRAMES);
    compare(meter, context, &mixed, STACKS.len(), &mut figure);
    let names: Vec<String> = figure.series.iter().map(|s| s.name.clone()).collect();
    names.iter().filter(|name| *name != "scalar").for_each(|name| figure.gain(name, "scalar", None));
    vec![figure]
}

fn compare(
    meter: &mut Meter<'_>,
    context: &Context<'_>,
    frames: &[Vec<u8>],
    place: usize,
    figure: &mut Figure,
) {
    let variants = context.options.variants();
    let parsers: Vec<Parser> = variants.into_iter().filter_map(Parser::with_variant).collect();
    let mut contenders = Vec::new();
    for parser in &parsers {
        let (mut keys, mut headers) = (vec![FlowKey::zero(); BURST], vec![Headers::default(); BURST]);
        contenders.push(Contender::new(parser.variant().name(), move || {
            for burst in frames.chunks(BURST) {
                parser.parse_all(burst.iter().map(Vec::as_slice), 1, &mut keys, &mut headers);
                black_box((&keys, &headers));
            }
        }));
    }
    if place == 0 {
        contenders.extend(plain(frames));
    }
    for measured in meter.compare(&figure.places[place].clone(), FRAMES as u64, contenders) {
        figure.add(&measured.name, place, &measured);
    }
}

/// Returns further contenders for plain frames.
fn plain(frames: &[Vec<u8>]) -> Vec<Contender<'_>> {
    let mut key = FlowKey::zero();
    let contenders = vec![
        Contender::new("frame by frame", move || {
            for frame in frames {
                black_box(parse(black_box(frame), 1, &mut key));
            }
        }),
        Contender::new("5-tuple by hand", move || {
            for frame in frames {
                black_box(five_tuple(black_box(frame)));
            }
        }),
    ];
    #[cfg(feature = "peers")]
    let contenders = contenders.into_iter().chain([Contender::new("etherparse, slices", move || {
        for frame in frames {
            black_box(etherparse::SlicedPacket::from_ethernet(black_box(frame)).ok());
        }
    })]);
    contenders.into_iter().collect()
}
