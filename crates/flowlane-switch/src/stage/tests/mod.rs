//! Stages against models that process one packet at a time and build the expected frames from scratch.

mod assets;
mod dry_run;
mod filter;
mod nat;
mod nat_ipv6;
mod nat_shares;
mod shares;

use flowlane::generate::Random;
use flowlane::packet::fields::word;
use flowlane::packet::parse;

use super::*;
use crate::packet::{Burst, Frame};
use flowlane::packet::key::FlowKey;

/// A tick, in nanoseconds.
const TICK: u64 = 1 << 27;

/// A packet, described.
#[derive(Clone, PartialEq, Debug)]
struct Desc {
    mac: u8,
    vlan: Option<u16>,
    net: Net,
    wire: Wire,
}

/// The layout of a packet, which does not change its meaning.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Wire {
    /// Words of IPv4 options.
    options: usize,
    /// Bytes behind the packet.
    padding: usize,
    /// An IPv4 packet ends within its transport header.
    short: bool,
}

#[derive(Clone, PartialEq, Debug)]
enum Net {
    V4 { src: u32, dst: u32, id: u16, part: Part, l4: L4 },
    V6 { src: u128, dst: u128, l4: L4 },
    Arp { mac: u8, sender: u32 },
    Other,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    Whole,
    First,
    Middle,
    Later,
}

impl Part {
    /// Returns whether it has no transport header.
    fn is_later(self) -> bool {
        matches!(self, Part::Middle | Part::Later)
    }
}

#[derive(Clone, PartialEq, Debug)]
enum L4 {
    Tcp {
        src: u16,
        dst: u16,
        flags: u8,
    },
    Udp {
        src: u16,
        dst: u16,
        checksum: bool,
    },
    Icmp {
        kind: u8,
        id: u16,
    },
    /// Quotes `len` bytes of another IPv4 packet.
    Error {
        kind: u8,
        quoted: Box<Desc>,
        len: usize,
    },
    Raw {
        proto: u8,
    },
}

fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let bytes: Vec<u8> = parts.concat();
    let mut sum: u64 =
        bytes.chunks(2).map(|p| u64::from(p[0]) << 8 | u64::from(*p.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

impl L4 {
    fn proto(&self, v6: bool) -> u8 {
        match self {
            L4::Tcp { .. } => 6,
            L4::Udp { .. } => 17,
            L4::Icmp { .. } | L4::Error { .. } if v6 => 58,
            L4::Icmp { .. } | L4::Error { .. } => 1,
            L4::Raw { proto } => *proto,
        }
    }

    /// Builds the segment between these addresses, with its checksum.
    fn build(&self, addresses: &[u8]) -> Vec<u8> {
        let (mut out, at) = match self {
            L4::Tcp { src, dst, flags } => {
                let mut out = [src.to_be_bytes(), dst.to_be_bytes()].concat();
                out.extend([0, 0, 1, 2, 0, 0, 3, 4, 0x50, *flags, 0x10, 0, 0, 0, 0, 0]);
                out.extend(b"segment");
                (out, 16)
            }
            L4::Udp { src, dst, .. } => {
                let mut out = [src.to_be_bytes(), dst.to_be_bytes()].concat();
                out.extend([0, 15, 0, 0]);
                out.extend(b"message");
                (out, 6)
            }
            L4::Icmp { kind, id } => {
                let mut out = vec![*kind, 0, 0, 0];
                out.extend(id.to_be_bytes());
                out.extend([0, 9, b'e', b'c', b'h', b'o', b'!']);
                (out, 2)
            }
            L4::Error { kind, quoted, len } => {
                let mut out = vec![*kind, 3, 0, 0, 0, 0, 0, 0];
                let frame = quoted.build();
                out.extend(&frame[14..frame.len().min(14 + len)]);
                (out, 2)
            }
            L4::Raw { .. } => return b"whatever is in here".to_vec(),
        };
        let proto = self.proto(addresses.len() == 32);
        let pseudo = [addresses, &(out.len() as u32).to_be_bytes(), &[0, 0, 0, proto]].concat();
        let icmp_v4 = proto == 1;
        let sum = if icmp_v4 { checksum(&[&out]) } else { checksum(&[&pseudo, &out]) };
        out[at..at + 2].copy_from_slice(&sum);
        match self {
            L4::Udp { checksum: false, .. } => out[at..at + 2].fill(0),
            L4::Udp { .. } if sum == [0, 0] => out[at..at + 2].fill(0xff),
            _ => {}
        }
        out
    }
}

impl Desc {
    fn v4(src: u32, dst: u32, l4: L4) -> Self {
        Self {
            mac: 1,
            vlan: None,
            net: Net::V4 { src, dst, id: 7, part: Part::Whole, l4 },
            wire: Wire::default(),
        }
    }

    /// Builds the frame, with every checksum.
    fn build(&self) -> Vec<u8> {
        let mut out = vec![2, 0, 0, 0, 0, 0xee, 2, 0, 0, 0, 0, self.mac];
        if let Some(vlan) = self.vlan {
            out.extend([0x81, 0]);
            out.extend(vlan.to_be_bytes());
        }
        match &self.net {
            Net::V4 { src, dst, id, part, l4 } => {
                let addresses = [src.to_be_bytes(), dst.to_be_bytes()].concat();
                let body = match part {
                    part if part.is_later() => b"the rest of the datagram".to_vec(),
                    _ if self.wire.short => l4.build(&addresses)[..5].to_vec(),
                    // As long as the others, so that they can meet.
                    Part::First => [l4.build(&addresses), vec![0; 24]].concat()[..24].to_vec(),
                    _ => l4.build(&addresses),
                };
                let header_len = 20 + 4 * self.wire.options;
                let fragment: u16 = match part {
                    Part::Whole => 0x4000,
                    Part::First => 0x2000,
                    Part::Middle => 0x2003,
                    Part::Later => 6,
                };
                let mut ip = vec![0x40 | (header_len / 4) as u8, 0];
                ip.extend(((header_len + body.len()) as u16).to_be_bytes());
                ip.extend(id.to_be_bytes());
                ip.extend(fragment.to_be_bytes());
                ip.extend([64, l4.proto(false), 0, 0]);
                ip.extend(&addresses);
                // No operation.
                ip.resize(header_len, 1);
                let sum = checksum(&[&ip]);
                ip[10..12].copy_from_slice(&sum);
                out.extend([8, 0]);
                out.extend(ip);
                out.extend(body);
            }
            Net::V6 { src, dst, l4 } => {
                let addresses = [src.to_be_bytes(), dst.to_be_bytes()].concat();
                let body = l4.build(&addresses);
                out.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                out.extend((body.len() as u16).to_be_bytes());
                out.extend([l4.proto(true), 64]);
                out.extend(addresses);
                out.extend(body);
            }
            Net::Arp { mac, sender } => {
                out.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, *mac]);
                out.extend(sender.to_be_bytes());
                out.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
            }
            Net::Other => out.extend([0x88, 0xcc, 1, 2, 3, 4]),
        }
        out.resize(out.len() + self.wire.padding, 0xa5);
        out
    }
}

/// Processes a burst and returns verdicts and frames. The keys must agree with the frames afterwards.
fn process(function: &mut StageTable, frames: &[Vec<u8>], now_ns: u64) -> Vec<(u32, Vec<u8>)> {
    process_at(function, frames, &vec![now_ns; frames.len()])
}

/// Processes a burst, each frame at its own time.
fn process_at(function: &mut StageTable, frames: &[Vec<u8>], times_ns: &[u64]) -> Vec<(u32, Vec<u8>)> {
    let mut burst = Burst::new(frames.len());
    for (bytes, time_ns) in frames.iter().zip(times_ns) {
        let mut key = FlowKey::zero();
        let headers = parse(bytes, 1, &mut key);
        burst.push(bytes, &key, headers, *time_ns);
    }
    let call = StageCall::of(1, &burst);
    let verdicts = function.process(call, &mut burst, LaneMask::first(frames.len()));
    let mut out = Vec::new();
    for (i, frame) in burst.frames.iter().enumerate() {
        let mut key = FlowKey::zero();
        parse(frame.bytes(), 1, &mut key);
        for w in [word::IPV4_SRC, word::IPV4_DST, word::PORTS] {
            assert_eq!(key.word(w), burst.keys[i].word(w), "word {w} of the key of lane {i}");
        }
        out.push((verdicts[i], frame.bytes().to_vec()));
    }
    out
}

/// Returns this time or a later one.
fn later(now: u64, random: &mut Random) -> u64 {
    let leap = [0, 1, TICK, 3 * TICK, 20 * TICK, 2000 * TICK][random.index(6)];
    now + leap + if leap > 0 { random.below(TICK) } else { 0 }
}

/// Returns the times of a burst's packets: mostly one time, else several.
fn times(now: &mut u64, len: usize, random: &mut Random) -> Vec<u64> {
    *now = later(*now, random);
    let often = [0, 0, 3, 30][random.index(4)];
    let mut next = |_| {
        if random.index(64) < often {
            *now = later(*now, random);
        }
        *now
    };
    (0..len).map(&mut next).collect()
}

/// Bursts of up to 64, each packet with its time.
fn bursts(
    random: &mut Random,
    count: usize,
    mut draw: impl FnMut(&mut Random) -> Desc,
) -> Vec<(Vec<u64>, Vec<Desc>)> {
    let mut now = 1_700_000_000_000_000_000;
    (0..count)
        .map(|_| {
            let len = [1, 2, 7, 16, 63, 64][random.index(6)];
            (times(&mut now, len, random), (0..len).map(|_| draw(random)).collect())
        })
        .collect()
}

/// A way to process frames, each at its own time; returns verdicts and frames.
type Process = fn(&mut StageTable, &[Vec<u8>], &[u64]) -> Vec<(u32, Vec<u8>)>;

/// A stage with both kinds of lookups, and one of which each packet is first decided alone.
fn each(mut make: impl FnMut(Lookups) -> StageTable) -> [(StageTable, Process); 3] {
    let ways: [(Lookups, Process); 3] = [
        (Lookups::Batch, process_at),
        (Lookups::Scalar, process_at),
        (Lookups::Batch, dry_run::process_after_dry_run),
    ];
    ways.map(|(lookups, process)| (make(lookups), process))
}

/// A stage without actions.
fn bare(kind: AnyStage) -> StageTable {
    let verdicts = kind.verdicts().len();
    StageTable::new(1, "", kind, vec![Vec::new(); verdicts]).expect("there is nothing to refuse")
}

#[test]
fn idle_entries_expire_without_packets() {
    let second = 1_000_000_000;
    let filter = FilterConfig {
        idle: ageing::idle_ticks(5),
        learn: true,
        ..FilterConfig::new(vec![flowlane::packet::Field::Ipv4Src], 10)
    };
    let kinds = [
        (AnyStage::Filter(Filter::new(&filter).unwrap()), 5),
        (
            AnyStage::Assets(Assets::new(AssetConfig {
                idle: ageing::idle_ticks(5),
                ..AssetConfig::new(10)
            })),
            5,
        ),
    ];
    let packet = Desc::v4(0x0a00_0001, 0xc633_6401, L4::Udp { src: 40_000, dst: 53, checksum: true });
    for (kind, seconds) in kinds {
        let mut function = bare(kind);
        let len = |function: &StageTable| match &function.stage {
            AnyStage::Filter(filter) => filter.len(),
            AnyStage::Assets(assets) => assets.len(),
            AnyStage::Nat(_) | AnyStage::Routes(_) => unreachable!("they have tests of their own"),
        };
        process(&mut function, &[packet.build()], second);
        function.age((1 + seconds) * second);
        assert_eq!(len(&function), 1, "{function:?}");
        function.age((2 + seconds) * second);
        assert_eq!(len(&function), 0, "{function:?}");
        assert_eq!(function.packets, 1);
    }
}
