//! The header parser.

use std::hint::black_box;

use super::contest::{Measuring, Workload};
use super::{Outcome, one_contest};
use crate::dispatch::KernelSlot;
use crate::generate::packet::FRAME_MIN;
use crate::generate::{Random, build_frame};
use crate::isa::Variant;
use crate::packet::fields::VLAN_PRESENT;
use crate::packet::{Field, FlowKey, Headers, Parser};

const FRAMES: usize = 1024;
const BURST: usize = 32;

struct Parsing {
    frames: Vec<Vec<u8>>,
    keys: Vec<FlowKey>,
    headers: Vec<Headers>,
    parser: Parser,
}

impl Workload for Parsing {
    type Entrant = Variant;

    fn prepare(&mut self, variant: &Variant) {
        self.parser = Parser::with_variant(*variant).expect("is available");
    }

    fn run(&mut self, _: &Variant) {
        for burst in self.frames.chunks(BURST) {
            let frames = burst.iter().map(Vec::as_slice);
            self.parser.parse_all(frames, 1, &mut self.keys, &mut self.headers);
            black_box((&self.keys, &self.headers));
        }
    }
}

/// Three of four IPv4, two of three TCP, one of four with a tag.
fn frame(random: &mut Random) -> Vec<u8> {
    let mut key = FlowKey::zero();
    key.set(Field::EthSrc, u128::from(random.bits() >> 18));
    key.set(Field::EthDst, u128::from(random.bits() >> 18));
    if random.below(4) == 0 {
        key.set(Field::VlanTci, u128::from(VLAN_PRESENT | random.below(4096) as u16));
    }
    if random.below(4) == 0 {
        key.set(Field::EthType, 0x86dd);
        key.set(Field::Ipv6Src, u128::from(random.bits()) << 64 | u128::from(random.bits()));
        key.set(Field::Ipv6Dst, u128::from(random.bits()) << 64 | u128::from(random.bits()));
    } else {
        key.set(Field::EthType, 0x0800);
        key.set(Field::Ipv4Src, u128::from(random.bits() as u32));
        key.set(Field::Ipv4Dst, u128::from(random.bits() as u32));
    }
    key.set(Field::NwProto, if random.below(3) == 0 { 17 } else { 6 });
    key.set(Field::NwTtl, 64);
    key.set(Field::TpSrc, u128::from(random.bits() as u16));
    key.set(Field::TpDst, u128::from(random.bits() as u16));
    let mut frame = Vec::new();
    build_frame(&key, FRAME_MIN, &mut frame);
    frame
}

pub(super) fn measure(measuring: &mut Measuring<'_>) -> Outcome {
    let variants = Variant::ALL.into_iter().filter(|v| Parser::with_variant(*v).is_some());
    let variants: Vec<Variant> = variants.collect();
    let mut random = Random::for_purpose(1, "tune: parser");
    let mut parsing = Parsing {
        frames: (0..FRAMES).map(|_| frame(&mut random)).collect(),
        keys: vec![FlowKey::zero(); BURST],
        headers: vec![Headers::default(); BURST],
        parser: Parser::new(),
    };
    one_contest(measuring, KernelSlot::Parser, None, FRAMES as u64, &variants, &mut parsing)
}
