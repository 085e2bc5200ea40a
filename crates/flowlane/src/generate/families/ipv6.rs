//! Access lists of IPv6, alone and beside IPv4.

use super::Family;
use super::conditions::ICMP;
use crate::generate::five_tuple::FiveTuple;
use crate::generate::profile::Profile;
use crate::generate::random::{Random, Weighted};
use crate::generate::rules::Draw;
use crate::packet::Field;
use crate::packet::parse::ether_type;
use crate::rule::Match;

/// ICMP of IPv6.
const ICMPV6: u128 = 58;

/// How many bits of an address are the allocation's, the site's, the subnet's.
const LEVELS: [u8; 3] = [32, 48, 64];

/// Of addresses that are new, the share in a subnet that is new; of these, in a site that is new; of these,
/// in an allocation that is new. Enterprises filter many hosts of few subnets.
const NEW: [f64; 3] = [0.3, 0.5, 0.2];

/// The blocks from which the registries make allocations, and their frequencies: LACNIC, ARIN, APNIC, RIPE, AFRINIC, and the
/// block that all of them began with.
const REGISTRIES: [(u32, f64); 6] = [
    (0x2800_0000, 5.0),
    (0x2600_0000, 25.0),
    (0x2400_0000, 25.0),
    (0x2a00_0000, 30.0),
    (0x2c00_0000, 2.0),
    (0x2001_0000, 13.0),
];

/// Addresses of one side, which cluster as those in use do.
#[derive(Default)]
struct Addresses {
    /// Allocations, sites and subnets in use, as addresses without what lies below.
    blocks: [Vec<u128>; 3],
}

impl Addresses {
    fn draw(&mut self, registries: &Weighted<u32>, random: &mut Random) -> u128 {
        // Outward until a block in use takes it; from there inward, new blocks.
        let mut fresh = 0;
        while fresh < 3 && (self.blocks[2 - fresh].is_empty() || random.chance(NEW[fresh])) {
            fresh += 1;
        }
        let mut address = if fresh < 3 {
            let blocks = &self.blocks[2 - fresh];
            blocks[random.index(blocks.len())]
        } else {
            allocation(registries, random)
        };
        for (level, (bits, blocks)) in LEVELS.into_iter().zip(&mut self.blocks).enumerate().skip(3 - fresh) {
            if level > 0 {
                // Sites and subnets are numbered from 0, so small numbers are in use first.
                let digits = 1 + random.below(16);
                address |= u128::from(random.below(1 << digits)) << (128 - bits);
            }
            blocks.push(address);
        }
        address | u128::from(interface(random))
    }
}

fn allocation(registries: &Weighted<u32>, random: &mut Random) -> u128 {
    let registry = registries.draw(random).unwrap_or(0x2a00_0000);
    // A registry's /12, but for 2001::/16, which it shares with all.
    let bits = if registry == 0x2001_0000 { 16 } else { 20 };
    u128::from(registry | random.below(1 << bits) as u32) << 96
}

/// The lower half of an address: numbered by hand, made of a MAC address, of an IPv4 address, or random.
fn interface(random: &mut Random) -> u64 {
    match random.unit() {
        p if p < 0.45 => 1 + random.below(255),
        p if p < 0.65 => {
            let (vendor, device) = (random.below(64) << 40, random.below(1 << 24));
            0x0200_00ff_fe00_0000 ^ vendor | device
        }
        p if p < 0.75 => 0x0a00_0000 | random.below(1 << 24),
        _ => random.bits(),
    }
}

/// `acl6`: IPv6 5-tuples.
pub(super) struct Acl6 {
    services: FiveTuple,
    registries: Weighted<u32>,
    lengths: [Weighted<u8>; 2],
    addresses: [Addresses; 2],
}

impl Acl6 {
    pub(super) fn new(seed: u64) -> Self {
        let src = [(0, 12.0), (29, 2.0), (32, 8.0), (48, 23.0), (56, 5.0), (64, 35.0), (128, 15.0)];
        let dst = [(0, 5.0), (32, 5.0), (40, 2.0), (48, 13.0), (56, 3.0), (64, 27.0), (128, 45.0)];
        Self {
            services: FiveTuple::new(Profile::Acl6, seed),
            registries: Weighted::new(REGISTRIES),
            lengths: [Weighted::new(src), Weighted::new(dst)],
            addresses: Default::default(),
        }
    }
}

impl Family for Acl6 {
    fn draw(&mut self, _: u32, random: &mut Random) -> Option<Match> {
        let mut out = self.services.service();
        out.set(Field::EthType, ether_type::IPV6.into());
        if out.get(Field::NwProto).0 == ICMP.into() {
            out.set(Field::NwProto, ICMPV6);
        }
        let [src, dst] = [0, 1].map(|side: usize| self.lengths[side].draw(random).unwrap_or(64));
        // From anywhere to anywhere: the catch-all, which is left out.
        let dst = if src == 0 && dst == 0 { 64 } else { dst };
        let sides = [(Field::Ipv6Src, src), (Field::Ipv6Dst, dst)];
        for ((field, len), addresses) in sides.into_iter().zip(&mut self.addresses) {
            let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
            out.set_masked(field, addresses.draw(&self.registries, random) & mask, mask);
        }
        Some(out)
    }
}

/// The share of a mixed list that is IPv4.
const IPV4: f64 = 0.6;

/// `mixed`: an access list of both.
pub(super) struct Mixed {
    ipv4: FiveTuple,
    ipv6: Acl6,
}

impl Mixed {
    pub(super) fn new(seed: u64) -> Self {
        Self { ipv4: FiveTuple::new(Profile::Mixed, seed), ipv6: Acl6::new(seed) }
    }
}

impl Family for Mixed {
    fn draw(&mut self, strain: u32, random: &mut Random) -> Option<Match> {
        if !random.chance(IPV4) {
            return self.ipv6.draw(strain, random);
        }
        let shape = self.ipv4.shape(strain);
        Some(self.ipv4.fill(&shape))
    }
}
