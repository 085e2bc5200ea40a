//! Termination of VXLAN, for figure 12 of Intel's *Packet Processing with Intel AVX-512 Instruction Set*: cycles of
//! the decapsulation node, and of the endpoint lookup alone, against the number of interleaved endpoints.

use std::cell::RefCell;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use flowlane::generate::Random;
use flowlane::isa::Variant;
use flowlane::packet::{FlowKey, Headers, LaneMask, parse};
use flowlane::tunnel::{
    Decapsulated, Decapsulator, Encapsulation, Encapsulator, Endpoint, EndpointCache, EndpointConfig,
    EndpointId, EndpointTable, Policy, TunnelKind, V4Key,
};
use flowlane_paper::tunnel::{self as paper, Design};

use super::Context;
use crate::figure::{Figure, Ratio};
use crate::measure::{Contender, Meter};
use crate::packets::BURST;

/// The ratio that the paper's text states for figure 12: 2, 4 and 8 endpoints, the eight-entry cache over the last
/// endpoint.
const EIGHT_OVER_ONE: f64 = 1.8;

/// The shortest inner frames.
const INNER_BYTES: usize = 60;

/// Offsets of the header checksum, the source and the VNI in an outer frame.
const CHECKSUM_AT: usize = 24;
const SOURCE_AT: usize = 26;
const VNI_AT: usize = 46;

/// Up to this number, endpoints alternate, so that every packet differs from the previous one, as in the paper.
/// Beyond it, endpoints are drawn at random.
const IN_TURN: usize = 8;

/// The common part of all contenders, measured alone.
const WRITING: &str = "writing the frames";

/// The library's lookup of keys alone.
const BATCH: &str = "batch";

/// Series without a variant in their names; their colours follow those of the variants.
const ALONE: [&str; 3] = ["one-entry", BATCH, WRITING];

fn numbers(context: &Context<'_>) -> &'static [usize] {
    if context.quick() { &[1, 4, 1000] } else { &[1, 2, 4, 8, 16, 64, 1000, 10_000, 100_000] }
}

pub(super) fn comparisons(context: &Context<'_>) -> usize {
    2 * numbers(context).len()
}

fn endpoint(number: usize) -> Endpoint {
    Endpoint {
        kind: TunnelKind::Vxlan,
        id: 1000 + number as u32,
        vrf: 0,
        source: Some(IpAddr::V4(Ipv4Addr::from(0x0a01_0000 + 7 * number as u32))),
        destination: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    }
}

/// The bytes that differ between packets: checksum, source, VNI.
#[derive(Clone, Copy)]
struct Packet {
    source: [u8; 4],
    vni: [u8; 4],
    checksum: [u8; 2],
}

/// A burst of outer frames, into which packets are written as by a receiver: in the nearest cache.
struct Burst {
    frames: Vec<[u8; 128]>,
    frame_bytes: usize,
    headers: Vec<Headers>,
}

impl Burst {
    fn new() -> Self {
        let (frame, frame_bytes) = outer_frame(&endpoint(0));
        let headers = parse(&frame[..frame_bytes], 1, &mut FlowKey::zero());
        Self { frames: vec![frame; BURST], frame_bytes, headers: vec![headers; BURST] }
    }

    #[inline(always)]
    fn write(&mut self, packets: &[Packet]) {
        for (frame, packet) in self.frames.iter_mut().zip(packets) {
            frame[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&packet.checksum);
            frame[SOURCE_AT..SOURCE_AT + 4].copy_from_slice(&packet.source);
            frame[VNI_AT..VNI_AT + 4].copy_from_slice(&packet.vni);
        }
    }

    #[inline(always)]
    fn slices(&self) -> [&[u8]; BURST] {
        std::array::from_fn(|i| &self.frames[i][..self.frame_bytes])
    }
}

/// Builds an outer frame to an endpoint.
fn outer_frame(endpoint: &Endpoint) -> ([u8; 128], usize) {
    let source = endpoint.source.expect("these have one");
    let tunnel = Encapsulation::new(TunnelKind::Vxlan, endpoint.id, source, endpoint.destination);
    let encapsulator = Encapsulator::new(&tunnel).expect("both are IPv4");
    let (mut frame, header_bytes) = ([0; 128], encapsulator.header_bytes());
    let len = header_bytes + INNER_BYTES;
    encapsulator.encapsulate(&mut frame[..len], header_bytes, 0x1234).expect("it is short");
    (frame, len)
}

fn packet(number: usize) -> Packet {
    let (frame, _) = outer_frame(&endpoint(number));
    let take = |at: usize| frame[at..at + 4].try_into().expect("four bytes");
    Packet {
        source: take(SOURCE_AT),
        vni: take(VNI_AT),
        checksum: frame[CHECKSUM_AT..CHECKSUM_AT + 2].try_into().expect("two bytes"),
    }
}

/// Returns the endpoints of packets, burst by burst.
fn order(endpoints: usize, random: &mut Random) -> Vec<usize> {
    let count = (4 * endpoints).clamp(1 << 13, 1 << 18).next_multiple_of(BURST);
    (0..count).map(|i| if endpoints <= IN_TURN { i % endpoints } else { random.index(endpoints) }).collect()
}

fn table(endpoints: usize) -> EndpointTable {
    let config = EndpointConfig { endpoints_max: endpoints, seed: 5, variant: None };
    let mut table = EndpointTable::new(&config);
    for number in 0..endpoints {
        table.insert(&endpoint(number), EndpointId(number as u32)).expect("there is room");
    }
    table
}

/// Returns the papers' designs to measure. The one-entry cache is scalar.
fn papers(context: &Context<'_>) -> Vec<(String, Design, Variant)> {
    let mut all = vec![(Design::OneEntry.name().to_owned(), Design::OneEntry, Variant::Scalar)];
    let eight = Design::EightEntry;
    all.extend(variants(context).map(|variant| (format!("{}, {variant}", eight.name()), eight, variant)));
    all
}

/// Returns the variants that have contenders.
fn variants(context: &Context<'_>) -> impl Iterator<Item = Variant> + use<> {
    context.options.variants().into_iter().filter(|v| *v != Variant::Sse42)
}

pub(super) fn measure(meter: &mut Meter<'_>, context: &Context<'_>) -> Vec<Figure> {
    let numbers = numbers(context);
    let about = "Cycles per packet of VXLAN decapsulation: from a burst of 64 parsed outer frames, headers in the nearest cache, \
                 through validation (IPv4 checksum, UDP, VXLAN flags) and endpoint lookup to endpoint, VNI, and place and length of \
                 the inner packet. Writing the packets into the frames is part of all contenders and is also measured alone. Up to 8 endpoints come \
                 in turn, so that every packet's is another than the one before; of more, every packet is of any.";
    let mut node = Figure::new("figure-12", "Figure 12: VXLAN decapsulation node", about)
        .over("endpoints", numbers.iter().map(|n| n.to_string()))
        .cycles("packet");
    let about = "Cycles per packet of the endpoint lookup alone: keys of 16 bytes in, endpoint numbers out, otherwise as the node.";
    let mut lookup = Figure::new("tunnel-lookup", "Endpoint lookup alone", about)
        .over("endpoints", numbers.iter().map(|n| n.to_string()))
        .cycles("packet");
    for (place, endpoints) in numbers.iter().enumerate() {
        meter.say(&format!("filling a table of {endpoints} endpoints"));
        let table = table(*endpoints);
        let order = order(*endpoints, &mut Random::new(7));
        measure_node(meter, context, &table, &order, &mut node, place);
        measure_lookup(meter, context, &table, &order, &mut lookup, place);
    }
    let widest = variants(context).last().unwrap_or(Variant::Scalar);
    for (figure, best) in [(&mut node, format!("batch, {widest}")), (&mut lookup, BATCH.to_owned())] {
        ratios(figure, numbers, widest, &best);
        figure.paint(look);
    }
    vec![node, lookup]
}

/// Colours series by variant; the paper's design is dashed.
fn look(name: &str) -> Option<(usize, bool)> {
    let Some((design, variant)) = name.split_once(", ") else {
        return Some((Variant::ALL.len() + ALONE.iter().position(|alone| *alone == name)?, false));
    };
    let colour = Variant::ALL.iter().position(|v| v.name() == variant)?;
    Some((colour, design == Design::EightEntry.name()))
}

/// Adds ratios by range of endpoints, as in the targets and the paper.
fn ratios(figure: &mut Figure, numbers: &[usize], widest: Variant, best: &str) {
    let one = Design::OneEntry.name();
    let eight = format!("{}, {widest}", Design::EightEntry.name());
    for (series, range, stated) in [
        (&*eight, 2..=8, Some(EIGHT_OVER_ONE)),
        (best, 1..=1, None),
        (best, 2..=8, None),
        (best, 9..=usize::MAX, None),
    ] {
        let within = |place: &usize| range.contains(&numbers[*place]);
        let ratio = |place: usize| Some((figure.ns(one, place)? / figure.ns(series, place)?, place));
        let found: Vec<(f64, usize)> = (0..numbers.len()).filter(within).filter_map(ratio).collect();
        let named =
            |&(ratio, place): &(f64, usize)| crate::figure::Extreme { ratio, at: numbers[place].to_string() };
        let by = |a: &&(f64, usize), b: &&(f64, usize)| a.0.total_cmp(&b.0);
        let (first, last) =
            (numbers.iter().find(|n| range.contains(n)), numbers.iter().rfind(|n| range.contains(n)));
        let (Some(first), Some(last)) = (first, last) else { continue };
        figure.ratios.push(Ratio {
            what: format!("{series} over {one}, {first} to {last} endpoints"),
            most: found.iter().max_by(by).map(named),
            least: found.iter().min_by(by).filter(|_| found.len() > 1).map(named),
            mean: None,
            stated,
        });
    }
}

fn measure_node(
    meter: &mut Meter<'_>,
    context: &Context<'_>,
    table: &EndpointTable,
    order: &[usize],
    figure: &mut Figure,
    place: usize,
) {
    let packets: Vec<Packet> = order.iter().map(|number| packet(*number)).collect();
    let packets = &packets;
    let burst = RefCell::new(Burst::new());
    let burst = &burst;
    let writing = Contender::new(WRITING, move || {
        let mut burst = burst.borrow_mut();
        for packets in packets.chunks_exact(BURST) {
            burst.write(packets);
            black_box(&burst.frames);
        }
    });
    let mut contenders = vec![writing];
    let policy = Policy::default();
    for (name, design, variant) in papers(context) {
        let node = paper::Decapsulator::with_variant(table.reader(), policy.clone(), design, variant);
        let Some(mut node) = node else { continue };
        contenders.push(terminating(name, packets, burst, move |burst, out| {
            node.decapsulate(&burst.slices(), &burst.headers, 0, LaneMask::first(BURST), out);
        }));
    }
    for variant in variants(context) {
        let node = Decapsulator::with_variant(table.reader(), policy.clone(), variant);
        let Some(mut node) = node else { continue };
        contenders.push(terminating(format!("batch, {variant}"), packets, burst, move |burst, out| {
            node.decapsulate(&burst.slices(), &burst.headers, 0, LaneMask::first(BURST), out);
        }));
    }
    let contenders = contenders.into_iter().map(Contender::warm).collect();
    for measured in meter.compare(&format!("node, {}", figure.places[place]), order.len() as u64, contenders)
    {
        figure.add(&measured.name, place, &measured);
    }
}

/// Runs a node over all packets, burst by burst.
fn terminating<'a>(
    name: String,
    packets: &'a [Packet],
    burst: &'a RefCell<Burst>,
    mut node: impl FnMut(&Burst, &mut Decapsulated) + 'a,
) -> Contender<'a> {
    let mut out = Decapsulated::new();
    Contender::new(name, move || {
        let mut burst = burst.borrow_mut();
        for packets in packets.chunks_exact(BURST) {
            burst.write(packets);
            node(black_box(&*burst), &mut out);
            black_box(&out);
            assert_eq!(out.terminated, LaneMask::first(BURST), "every packet is of an endpoint");
        }
    })
}

/// Looks up all keys, burst by burst.
fn looking_up<'a>(
    name: String,
    keys: &'a [V4Key],
    mut lookup: impl FnMut(&[V4Key], &mut [u32]) -> LaneMask + 'a,
) -> Contender<'a> {
    Contender::new(name, move || {
        let mut endpoints = [0; BURST];
        for keys in keys.chunks_exact(BURST) {
            let found = lookup(black_box(keys), &mut endpoints);
            black_box(&endpoints);
            assert_eq!(found, LaneMask::first(BURST), "every key is an endpoint's");
        }
    })
}

fn measure_lookup(
    meter: &mut Meter<'_>,
    context: &Context<'_>,
    table: &EndpointTable,
    order: &[usize],
    figure: &mut Figure,
    place: usize,
) {
    let key = |number: &usize| endpoint(*number).v4_key().expect("these have IPv4 addresses");
    let keys: Vec<V4Key> = order.iter().map(key).collect();
    let mut contenders = Vec::new();
    for (name, design, variant) in papers(context) {
        let cache = paper::EndpointCache::with_variant(table.reader(), design, variant);
        let Some(mut cache) = cache else { continue };
        contenders.push(looking_up(name, &keys, move |keys, endpoints| cache.lookup_batch(keys, endpoints)));
    }
    // For keys alone there is one contender: the table is vectorised.
    let mut cache = EndpointCache::new(table.reader());
    let ours = looking_up(BATCH.to_owned(), &keys, move |keys, out| cache.lookup_batch(keys, out));
    contenders.push(ours);
    let contenders = contenders.into_iter().map(Contender::warm).collect();
    for measured in
        meter.compare(&format!("lookup, {}", figure.places[place]), order.len() as u64, contenders)
    {
        figure.add(&measured.name, place, &measured);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::render::svg::SERIES;

    #[test]
    fn packets_written_into_frames_are_those_of_their_endpoints() {
        let table = table(20);
        let mut node = Decapsulator::new(table.reader(), Policy::default());
        let mut burst = Burst::new();
        let order = order(20, &mut Random::new(1));
        let mut out = Decapsulated::new();
        for numbers in order[..4 * BURST].chunks_exact(BURST) {
            let packets: Vec<Packet> = numbers.iter().map(|n| packet(*n)).collect();
            burst.write(&packets);
            node.decapsulate(&burst.slices(), &burst.headers, 0, LaneMask::first(BURST), &mut out);
            for (lane, number) in numbers.iter().enumerate() {
                assert_eq!(out.endpoint(lane), EndpointId(*number as u32));
                assert_eq!((out.ids[lane], out.inner_len[lane]), (1000 + *number as u32, INNER_BYTES as u16));
            }
        }
    }

    #[test]
    fn all_lines_of_a_figure_look_different() {
        let designs = [Design::EightEntry.name(), "batch"].into_iter();
        let names = designs.flat_map(|design| Variant::ALL.map(|variant| format!("{design}, {variant}")));
        let mut figure = Figure::new("a", "b", "c").over("endpoints", ["1".to_owned()]);
        for name in names.chain([Design::OneEntry.name(), BATCH, WRITING].map(str::to_owned)) {
            figure = figure.curve(&name, &[None]);
        }
        figure.paint(look);
        let looks: HashSet<(usize, bool)> = figure.series.iter().map(|s| (s.colour, s.dashed)).collect();
        assert_eq!(looks.len(), figure.series.len());
        assert!(looks.iter().all(|(colour, _)| *colour < SERIES.len()), "colours begin again");
    }
}
