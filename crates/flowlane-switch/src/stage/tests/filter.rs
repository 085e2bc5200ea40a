//! Packet filters against a map.

use std::collections::HashMap;

use flowlane::packet::fields::Field;

use super::*;
use crate::stage::ageing::NEVER;
use crate::stage::filter::{KeyError, Listed};

pub(super) fn draw(random: &mut Random) -> Desc {
    let (src, dst) = (random.port(1, 4), random.port(1, 3));
    let l4 = match random.below(5) {
        0 | 1 => L4::Udp { src, dst, checksum: true },
        2 | 3 => L4::Tcp { src, dst, flags: 2 },
        _ => L4::Icmp { kind: 8, id: src },
    };
    let address = |random: &mut Random| 0x0a00_0000 + random.below(4) as u32;
    let net = match random.below(10) {
        0..7 => Net::V4 {
            src: address(random),
            dst: address(random),
            id: 1,
            part: [Part::Whole, Part::Whole, Part::First, Part::Later][random.index(4)],
            l4,
        },
        7 => Net::V6 { src: random.below(3).into(), dst: 1 << 100 | u128::from(random.below(3)), l4 },
        8 => Net::Arp { mac: random.below(3) as u8, sender: address(random) },
        _ => Net::Other,
    };
    Desc {
        mac: random.below(3) as u8,
        vlan: [None, Some(5), Some(6)][random.index(3)],
        net,
        wire: Wire::default(),
    }
}

/// The value of a field, where the packet has it.
fn value(desc: &Desc, field: Field) -> Option<u128> {
    let l4 = match &desc.net {
        Net::V4 { part: Part::Later, .. } | Net::Arp { .. } | Net::Other => None,
        Net::V4 { l4, .. } | Net::V6 { l4, .. } => Some(l4),
    };
    let ports = match l4 {
        Some(L4::Tcp { src, dst, .. } | L4::Udp { src, dst, .. }) => Some((*src, *dst)),
        _ => None,
    };
    match (field, &desc.net) {
        (Field::EthSrc, _) => Some(0x0200_0000_0000 + u128::from(desc.mac)),
        (Field::VlanVid, _) => desc.vlan.map(u128::from),
        (Field::Ipv4Src, Net::V4 { src, .. }) => Some((*src).into()),
        (Field::Ipv4Dst, Net::V4 { dst, .. }) => Some((*dst).into()),
        (Field::Ipv6Src, Net::V6 { src, .. }) => Some(*src),
        (Field::Ipv6Dst, Net::V6 { dst, .. }) => Some(*dst),
        (Field::ArpSpa, Net::Arp { sender, .. }) => Some((*sender).into()),
        (Field::NwProto, Net::V4 { l4, .. }) => Some(l4.proto(false).into()),
        (Field::NwProto, Net::V6 { l4, .. }) => Some(l4.proto(true).into()),
        (Field::TpSrc, _) => ports.map(|p| p.0.into()),
        (Field::TpDst, _) => ports.map(|p| p.1.into()),
        _ => None,
    }
}

const KEYS: [&[Field]; 6] = [
    &[Field::Ipv4Src],
    &[Field::NwProto, Field::Ipv4Src, Field::Ipv4Dst, Field::TpSrc, Field::TpDst],
    &[Field::EthSrc, Field::VlanVid],
    &[Field::NwProto, Field::Ipv6Src, Field::Ipv6Dst, Field::TpSrc, Field::TpDst],
    &[Field::TpDst],
    &[Field::ArpSpa, Field::EthSrc],
];

struct Entry {
    is_learned: bool,
    since: u64,
    idle: u32,
    packets: u64,
    bytes: u64,
}

/// One packet after the other: is its key in the map?
struct Model {
    config: FilterConfig,
    base: u64,
    entries: HashMap<Vec<u128>, Entry>,
    /// Without key, learnt, refused, aged.
    counters: [u64; 4],
}

impl Model {
    fn verdict(&mut self, desc: &Desc, now_ns: u64) -> u32 {
        let now = (now_ns - self.base) / TICK;
        let before = self.entries.len();
        self.entries.retain(|_, e| e.idle == NEVER || now - e.since <= e.idle.into());
        self.counters[3] += (before - self.entries.len()) as u64;
        let key: Option<Vec<u128>> = self.config.fields.iter().map(|&field| value(desc, field)).collect();
        let Some(key) = key else {
            self.counters[0] += 1;
            return 1;
        };
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.packets += 1;
            entry.bytes += desc.build().len() as u64;
            if self.config.refresh {
                entry.since = now;
            }
            return 0;
        }
        // All packets come in on one port.
        let free = self.config.entries_max - self.entries.len();
        let held = self.entries.values().filter(|entry| entry.is_learned).count();
        if self.config.learn && free > 0 && held < self.config.port_max.unwrap_or(free) {
            self.entries.insert(
                key,
                Entry { is_learned: true, since: now, idle: self.config.idle, packets: 0, bytes: 0 },
            );
            self.counters[1] += 1;
        } else if self.config.learn {
            self.counters[2] += 1;
        }
        1
    }
}

#[test]
fn filter_agrees_with_the_reference_model() {
    let mut happened = [0; 4];
    for seed in 0..240 {
        let mut random = Random::new(seed);
        let config = FilterConfig {
            idle: [NEVER, 0, 1, 5, 40, 1500][random.index(6)],
            refresh: random.chance(0.5),
            learn: random.chance(0.7),
            count: random.chance(0.5),
            port_max: [None, Some(2), Some(usize::MAX)][random.index(3)],
            seed: random.bits() as u32,
            ..FilterConfig::new(KEYS[seed as usize % KEYS.len()].to_vec(), [1, 4, 30][random.index(3)])
        };
        let bursts = bursts(&mut random, 60, draw);
        let base = bursts[0].0[0];
        let mut model = Model { config, base, entries: HashMap::new(), counters: [0; 4] };
        let mut functions = each(|lookups| {
            let config = FilterConfig { lookups, ..model.config.clone() };
            bare(AnyStage::Filter(Filter::new(&config).unwrap()))
        });
        // Some entries are there from the beginning.
        for (desc, idle) in [NEVER, 9].map(|idle| (draw(&mut random), idle)) {
            let key: Option<Vec<u128>> = model.config.fields.iter().map(|&f| value(&desc, f)).collect();
            let (Some(key), true) = (key, model.entries.is_empty() || model.config.entries_max > 1) else {
                continue;
            };
            model.entries.entry(key).or_insert(Entry {
                is_learned: false,
                since: 0,
                idle,
                packets: 0,
                bytes: 0,
            });
            let mut flow_key = FlowKey::zero();
            parse(&desc.build(), 1, &mut flow_key);
            for (function, _) in &mut functions {
                let AnyStage::Filter(filter) = &mut function.stage else { unreachable!() };
                filter.insert(&flow_key, idle).unwrap();
            }
        }
        for (step, (times, descs)) in bursts.iter().enumerate() {
            let wanted: Vec<u32> =
                descs.iter().zip(times).map(|(desc, &now)| model.verdict(desc, now)).collect();
            let frames: Vec<Vec<u8>> = descs.iter().map(Desc::build).collect();
            for (function, process) in &mut functions {
                function.age(times[0]);
                let got: Vec<u32> = process(function, &frames, times).into_iter().map(|(v, _)| v).collect();
                function.age(times[times.len() - 1]);
                assert_eq!(got, wanted, "seed {seed}, step {step}, {:?}", model.config);
            }
        }
        for (function, _) in &functions {
            let AnyStage::Filter(filter) = &function.stage else { unreachable!() };
            let c = filter.counters();
            let counters = [c.without_key, c.learnt, c.refused, filter.aged()];
            assert_eq!(counters, model.counters, "seed {seed}");
            let counts = u64::from(filter.counts());
            let listed = |e: &Listed| {
                let key: Vec<u128> = filter.fields().iter().map(|&field| e.key.get(field)).collect();
                (key, [e.packets, e.bytes])
            };
            let listed: HashMap<_, _> = filter.list().iter().map(listed).collect();
            let wanted =
                model.entries.iter().map(|(k, e)| (k.clone(), [e.packets, e.bytes].map(|n| n * counts)));
            assert_eq!(listed, wanted.collect(), "seed {seed}");
        }
        happened.iter_mut().zip(model.counters).for_each(|(sum, n)| *sum += n);
    }
    assert!(happened.iter().all(|&n| n > 100), "what has happened: {happened:?}");
}

#[test]
fn fields_that_no_packet_has_together_are_rejected() {
    let refused = |fields: &[Field]| Filter::new(&FilterConfig::new(fields.to_vec(), 10)).unwrap_err();
    assert_eq!(refused(&[]), KeyError::Empty);
    assert_eq!(refused(&[Field::Ipv4Src, Field::Ipv6Dst]), KeyError::Contradiction("nw_src", "ipv6_dst"));
    assert_eq!(refused(&[Field::TpSrc, Field::ArpSpa]), KeyError::Contradiction("tp_src", "arp_spa"));
    assert_eq!(refused(&[Field::TunId]), KeyError::Field("tun_id"));
    assert_eq!(refused(&[Field::Ipv4Src, Field::NwTtl]), KeyError::Ttl);
    assert_eq!(refused(&[Field::IcmpType]), KeyError::Field("icmp_type"));
    let long = [Field::Ipv6Src, Field::Ipv6Dst, Field::TpSrc, Field::NwProto, Field::EthSrc, Field::EthDst];
    assert_eq!(refused(&long), KeyError::Long(13));
}

#[test]
fn a_first_fragment_that_ends_within_its_ports_has_no_key() {
    let config = FilterConfig { learn: true, ..FilterConfig::new(vec![Field::Ipv4Src, Field::TpDst], 10) };
    let mut desc = Desc::v4(1, 2, L4::Tcp { src: 0, dst: 0, flags: 2 });
    if let Net::V4 { part, .. } = &mut desc.net {
        *part = Part::First;
    }
    let whole = desc.build();
    for (len, has_key) in [(0, false), (3, false), (4, false), (16, false), (20, true)] {
        let at = whole.len() - 20 + len;
        let mut frame = whole[..at].to_vec();
        // The length and the checksum of the IP header, which has no options.
        frame[16..18].copy_from_slice(&(20 + len as u16).to_be_bytes());
        frame[24..26].fill(0);
        let sum = checksum(&[&frame[14..34]]);
        frame[24..26].copy_from_slice(&sum);
        for (mut stage, process) in each(|lookups| {
            bare(AnyStage::Filter(Filter::new(&FilterConfig { lookups, ..config.clone() }).unwrap()))
        }) {
            process(&mut stage, std::slice::from_ref(&frame), &[1]);
            let AnyStage::Filter(filter) = &stage.stage else { unreachable!() };
            let counted = (filter.counters().without_key, filter.counters().learnt);
            assert_eq!(counted, (u64::from(!has_key), u64::from(has_key)), "{len} bytes of TCP");
        }
    }
}
