//! Asset detection against a map.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::*;
use crate::stage::ageing::NEVER;
use crate::stage::assets::{Asset, Listed};

fn draw(random: &mut Random) -> Desc {
    let port = [1, 80, 443, 32_767, 32_768, 50_000][random.index(6)];
    let l4 = match random.below(6) {
        0 | 1 => L4::Udp { src: port, dst: 9, checksum: true },
        2..5 => L4::Tcp { src: port, dst: 9, flags: [0x02, 0x12, 0x10, 0x13, 0x16, 0x52][random.index(6)] },
        _ => L4::Icmp { kind: 8, id: 1 },
    };
    let v4 = |random: &mut Random| match random.below(12) {
        0 => [0, 0x7f00_0001, 0xe000_0001, u32::MAX, 0x00aa_aaaa][random.index(5)],
        1 => 0xc0a8_0001 + random.below(2) as u32,
        _ => 0x0a00_0000 + random.below(5) as u32,
    };
    let v6 = |random: &mut Random| match random.below(5) {
        0 => [0, 1, 0xff02 << 112 | 1][random.index(3)],
        _ => 0x2001_0db8 << 96 | u128::from(random.below(3)),
    };
    let net = match random.below(10) {
        0..6 => Net::V4 {
            src: v4(random),
            dst: 9,
            id: 1,
            part: [Part::Whole, Part::Whole, Part::First, Part::Later][random.index(4)],
            l4,
        },
        6 | 7 => Net::V6 { src: v6(random), dst: 9, l4 },
        8 => Net::Arp { mac: random.below(3) as u8, sender: v4(random) },
        _ => Net::Other,
    };
    Desc {
        mac: random.below(3) as u8,
        vlan: [None, Some(0), Some(5)][random.index(3)],
        net,
        wire: Wire::default(),
    }
}

type Id = (Option<u16>, IpAddr, Asset);

struct Seen {
    first: u64,
    last: u64,
    packets: u64,
}

struct Model {
    config: AssetConfig,
    base: u64,
    seen: BTreeMap<Id, Seen>,
    /// New hosts, new services, refused, showing none, aged.
    counters: [u64; 5],
}

fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

impl Model {
    fn shown(&self, desc: &Desc) -> Vec<Id> {
        let (address, mac, service) = match &desc.net {
            Net::V4 { src, l4, part, .. } => {
                let service = if *part == Part::Later { None } else { self.service(l4) };
                (IpAddr::V4((*src).into()), mac(desc.mac), service)
            }
            Net::V6 { src, l4, .. } => (IpAddr::V6((*src).into()), mac(desc.mac), self.service(l4)),
            Net::Arp { mac: sender_mac, sender } => (IpAddr::V4((*sender).into()), mac(*sender_mac), None),
            Net::Other => return Vec::new(),
        };
        let unicast = match address {
            IpAddr::V4(a) => a.octets()[0] != 0 && !a.is_loopback() && a.octets()[0] < 224,
            IpAddr::V6(a) => !a.is_multicast() && !a.is_loopback() && !a.is_unspecified(),
        };
        let within = |&(network, length): &(IpAddr, u8)| match (network, address) {
            (IpAddr::V4(n), IpAddr::V4(a)) => (u32::from(n) ^ u32::from(a)).leading_zeros() >= length.into(),
            (IpAddr::V6(n), IpAddr::V6(a)) => {
                (u128::from(n) ^ u128::from(a)).leading_zeros() >= length.into()
            }
            _ => false,
        };
        if !unicast || !(self.config.networks.is_empty() || self.config.networks.iter().any(within)) {
            return Vec::new();
        }
        let host = (desc.vlan, address, Asset::Host(mac));
        std::iter::once(host).chain(service.map(|s| (desc.vlan, address, s))).collect()
    }

    fn service(&self, l4: &L4) -> Option<Asset> {
        match *l4 {
            L4::Udp { src, .. } if src <= self.config.udp_port_max => Some(Asset::Service(17, src)),
            L4::Tcp { src, flags, .. } if flags & 0x17 == 0x12 => Some(Asset::Service(6, src)),
            _ => None,
        }
    }

    /// All packets come in on one port.
    fn may_add(&self) -> bool {
        let free = self.config.entries_max - self.seen.len();
        free > 0 && self.seen.len() < self.config.port_max.unwrap_or(free)
    }

    fn verdict(&mut self, desc: &Desc, now_ns: u64) -> u32 {
        let now = (now_ns - self.base) / TICK;
        let before = self.seen.len();
        self.seen.retain(|_, s| self.config.idle == NEVER || now - s.last <= self.config.idle.into());
        self.counters[4] += (before - self.seen.len()) as u64;
        let shown = self.shown(desc);
        self.counters[3] += u64::from(shown.is_empty());
        let mut new = false;
        for id in shown {
            if let Some(seen) = self.seen.get_mut(&id) {
                (seen.last, seen.packets) = (now, seen.packets + 1);
            } else if self.may_add() {
                self.counters[usize::from(matches!(id.2, Asset::Service(..)))] += 1;
                self.seen.insert(id, Seen { first: now, last: now, packets: 1 });
                new = true;
            } else {
                self.counters[2] += 1;
                new = true;
            }
        }
        new.into()
    }
}

#[test]
fn asset_detection_agrees_with_the_reference_model() {
    let mut happened = [0; 5];
    for seed in 0..120 {
        let mut random = Random::new(seed);
        let networks: &[(&str, u8)] =
            [&[][..], &[("10.0.0.0", 30)], &[("0.0.0.0", 0), ("2001:db8::", 127)]][random.index(3)];
        let config = AssetConfig {
            idle: [NEVER, 0, 1, 30, 1500][random.index(5)],
            networks: networks.iter().map(|(a, l)| (a.parse().unwrap(), *l)).collect(),
            seed: random.bits() as u32,
            port_max: [None, Some(7), Some(usize::MAX)][random.index(3)],
            ..AssetConfig::new([1, 10, 100][random.index(3)])
        };
        let bursts = bursts(&mut random, 60, draw);
        let mut model = Model { config, base: bursts[0].0[0], seen: BTreeMap::new(), counters: [0; 5] };
        let mut functions = each(|lookups| {
            bare(AnyStage::Assets(Assets::new(AssetConfig { lookups, ..model.config.clone() })))
        });
        for (step, (times, descs)) in bursts.iter().enumerate() {
            let wanted: Vec<u32> =
                descs.iter().zip(times).map(|(desc, &now)| model.verdict(desc, now)).collect();
            let frames: Vec<Vec<u8>> = descs.iter().map(Desc::build).collect();
            let at = |tick: u64| model.base + tick * TICK;
            let listed: Vec<Listed> = model
                .seen
                .iter()
                .map(|(&(vlan, address, asset), s)| Listed {
                    vlan,
                    address,
                    asset,
                    first_ns: at(s.first),
                    last_ns: at(s.last),
                    packets: s.packets,
                })
                .collect();
            for (function, process) in &mut functions {
                function.age(times[0]);
                let got = process(function, &frames, times);
                function.age(times[times.len() - 1]);
                assert!(got.iter().map(|g| &g.1).eq(&frames), "packets are not changed");
                let got: Vec<u32> = got.into_iter().map(|(v, _)| v).collect();
                assert_eq!(got, wanted, "seed {seed}, step {step}, {:?}", model.config);
                let AnyStage::Assets(assets) = &function.stage else { unreachable!() };
                assert_eq!(assets.list(), listed, "seed {seed}, step {step}");
                let c = assets.counters();
                let counters = [c.hosts, c.services, c.refused, c.without, assets.aged()];
                assert_eq!(counters, model.counters, "seed {seed}, step {step}");
            }
        }
        happened.iter_mut().zip(model.counters).for_each(|(sum, n)| *sum += n);
    }
    assert!(happened.iter().all(|&n| n > 100), "what has happened: {happened:?}");
}
