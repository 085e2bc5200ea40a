//! The twelve-field profile: which fields, and with what values.
//!
//! A shape is drawn in three layers: 15 % of the shapes look at L2 only, 35 % up to L3, 50 % up to L4,
//! where IP rules also look at L2 fields, with a small probability each. Flow tables of controllers are
//! like that: few masks, most of them exact in what they look at.

use super::five_tuple::prefix_mask;
use super::random::{Random, Weighted};
use super::rules::Draw;
use crate::packet::Field;
use crate::packet::fields::VLAN_PRESENT;
use crate::rule::Match;

/// Which fields a rule looks at.
#[derive(Clone, Default)]
pub(super) struct Shape {
    in_port: bool,
    /// Bits of the address: 0, 24 (the vendor's part) or 48.
    dl_src: u8,
    dl_dst: u8,
    dl_vlan: bool,
    dl_vlan_pcp: bool,
    dl_type: bool,
    nw_src: u8,
    nw_dst: u8,
    nw_tos: bool,
    nw_proto: bool,
    tp_src: bool,
    tp_dst: bool,
}

/// Draws matches of the profile.
pub(super) struct OpenFlow {
    random: Random,
    lengths: Weighted<u8>,
    macs: Vec<u64>,
    vlans: Vec<u16>,
    networks: Vec<u32>,
    services: Weighted<u16>,
}

impl OpenFlow {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::for_purpose(seed, "openflow");
        let vendor = |random: &mut Random| 0x0200_0000_0000 | (random.below(8) << 24);
        Self {
            lengths: Weighted::new([
                (32, 45.0),
                (24, 25.0),
                (16, 12.0),
                (28, 6.0),
                (20, 6.0),
                (8, 3.0),
                (30, 3.0),
            ]),
            macs: (0..4096).map(|_| vendor(&mut random) | random.below(1 << 24)).collect(),
            vlans: (0..64).map(|_| 1 + random.below(4094) as u16).collect(),
            networks: (0..512).map(|_| (random.below(64) << 16) as u32 | 0x0a00_0000).collect(),
            services: Weighted::new(
                [80u16, 443, 22, 53, 25, 123, 3306, 5432, 6379, 8080, 8443, 9092]
                    .into_iter()
                    .zip((1..=12).rev().map(f64::from)),
            ),
            random,
        }
    }

    fn l2(&mut self, often: f64) -> Shape {
        let random = &mut self.random;
        let mut mac = || match random.unit() {
            p if p < often => 48,
            p if p < often + 0.05 => 24,
            _ => 0,
        };
        let (dl_src, dl_dst) = (mac(), mac());
        let dl_vlan = random.chance(0.2);
        let in_port = random.chance(0.3);
        Shape {
            in_port,
            dl_src,
            dl_dst,
            dl_vlan,
            dl_vlan_pcp: dl_vlan && random.chance(0.3),
            ..Shape::default()
        }
    }

    fn prefix_len(&mut self, present: f64, strain: u32) -> u8 {
        if !self.random.chance(present) {
            return 0;
        }
        // Under strain any length will do: the profile's own are used up.
        if strain > 0 {
            1 + self.random.below(32) as u8
        } else {
            self.lengths.draw(&mut self.random).unwrap_or(32)
        }
    }

    fn address(&mut self) -> u32 {
        let network = self.networks[self.random.index(self.networks.len())];
        network | self.random.below(1 << 16) as u32
    }

    fn mac(&mut self) -> u128 {
        self.macs[self.random.index(self.macs.len())].into()
    }

    fn fill_l2(&mut self, out: &mut Match, shape: &Shape) {
        if shape.in_port {
            out.set(Field::InPort, 1 + u128::from(self.random.below(48)));
        }
        for (field, bits) in [(Field::EthSrc, shape.dl_src), (Field::EthDst, shape.dl_dst)] {
            let mask = ((1u128 << bits) - 1) << (48 - bits);
            let mac = self.mac();
            out.set_masked(field, mac & mask, mask);
        }
        if shape.dl_vlan {
            let vlan = VLAN_PRESENT | self.vlans[self.random.index(self.vlans.len())];
            out.set_masked(Field::VlanTci, vlan.into(), 0x1fff);
        }
        if shape.dl_vlan_pcp {
            out.set(Field::VlanPcp, self.random.below(8).into());
        }
        if shape.dl_type {
            let ip = shape.nw_proto || shape.nw_tos || shape.nw_src > 0 || shape.nw_dst > 0;
            let other = [0x0800, 0x0806, 0x86dd, 0x88cc][self.random.index(4)];
            out.set(Field::EthType, if ip { 0x0800 } else { other });
        }
    }
}

impl Draw for OpenFlow {
    type Shape = Shape;

    fn shape(&mut self, strain: u32) -> Shape {
        let layer = self.random.unit();
        if layer < 0.15 {
            let mut shape = self.l2(0.5);
            shape.dl_type = self.random.chance(0.3);
            if shape.dl_src | shape.dl_dst == 0 && !shape.in_port {
                shape.dl_dst = 48; // something must be looked at
            }
            return shape;
        }
        let mut shape = self.l2(0.1);
        shape.dl_type = true;
        shape.nw_src = self.prefix_len(0.6, strain);
        shape.nw_dst = self.prefix_len(0.8, strain);
        shape.nw_tos = self.random.chance(0.1);
        if layer >= 0.5 {
            shape.nw_proto = true;
            shape.tp_src = self.random.chance(0.2);
            shape.tp_dst = self.random.chance(0.85);
        }
        shape
    }

    fn fill(&mut self, shape: &Shape) -> Match {
        let mut out = Match::any();
        self.fill_l2(&mut out, shape);
        for (field, len) in [(Field::Ipv4Src, shape.nw_src), (Field::Ipv4Dst, shape.nw_dst)] {
            let mask = prefix_mask(len);
            let address = self.address();
            out.set_masked(field, (address & mask).into(), mask.into());
        }
        let random = &mut self.random;
        if shape.nw_tos {
            let dscp = [0u128, 8, 10, 18, 26, 34, 46, 48][random.index(8)];
            out.set(Field::IpDscp, dscp);
        }
        if shape.nw_proto {
            out.set(Field::NwProto, if random.chance(0.75) { 6 } else { 17 });
        }
        if shape.tp_src {
            out.set(Field::TpSrc, random.port(1024, 65535).into());
        }
        if shape.tp_dst {
            let service = self.services.draw(random).unwrap_or(80);
            let port = if random.chance(0.7) { service } else { random.port(1024, 49151) };
            out.set(Field::TpDst, port.into());
        }
        out
    }
}
