//! Rule sets of other networks than ClassBench's: firewalls with long lists, clouds, lists of hosts.

use super::Family;
use super::conditions::{ICMP, Prefix, TCP, UDP, any_range, between, wide_range};
use crate::generate::header::ipv4_address;
use crate::generate::random::{Random, Weighted};
use crate::packet::Field;
use crate::rule::Match;

/// `ranges`: what a policy of "these networks, these ports" becomes after years of exceptions.
pub(super) struct Ranges {
    pairs: Vec<(Prefix, Prefix)>,
}

impl Ranges {
    /// A pair of prefixes for 500 rules, but no more than 64.
    pub(super) fn new(rules: usize, random: &mut Random) -> Self {
        let mut prefix = || {
            let len = 16 + random.below(17) as u8;
            Prefix::around(ipv4_address(random), len)
        };
        Self { pairs: (0..(rules / 500).clamp(1, 64)).map(|_| (prefix(), prefix())).collect() }
    }
}

impl Family for Ranges {
    fn draw(&mut self, _: u32, random: &mut Random) -> Option<Match> {
        let (src, dst) = self.pairs[random.index(self.pairs.len())];
        let mut out = between(src, dst);
        out.set(Field::NwProto, if random.chance(0.7) { TCP } else { UDP }.into());
        for field in [Field::TpSrc, Field::TpDst] {
            let (low, high) = if random.chance(0.5) { any_range(random) } else { wide_range(random) };
            out.set_range(field, low, high);
        }
        Some(out)
    }
}

/// The private networks of RFC 1918.
const PRIVATE: [Prefix; 3] = [
    Prefix { address: 0x0a00_0000, len: 8 },
    Prefix { address: 0xac10_0000, len: 12 },
    Prefix { address: 0xc0a8_0000, len: 16 },
];

/// `groups`: from a few blocks to a few subnets and machines of 10.0.0.0/8, many services.
pub(super) struct Groups {
    sources: Vec<Prefix>,
    destinations: Vec<Prefix>,
    services: Weighted<u16>,
}

impl Groups {
    pub(super) fn new(random: &mut Random) -> Self {
        let mut inside = |len: u8| Prefix::around(0x0a00_0000 | (random.bits() >> 40) as u32, len);
        let lens = |lens: [(u8, usize); 3]| lens.into_iter().flat_map(|(len, n)| std::iter::repeat_n(len, n));
        let blocks: Vec<_> = lens([(16, 8), (24, 8), (32, 4)]).map(&mut inside).collect();
        let destinations = lens([(16, 4), (24, 12), (32, 8)]).map(&mut inside).collect();
        let services = [443u16, 80, 22, 53, 3306, 5432, 6379, 8080, 9092, 27017, 2379, 10250];
        Self {
            sources: std::iter::once(Prefix::ANY).chain(PRIVATE).chain(blocks).collect(),
            destinations,
            services: Weighted::new(services.into_iter().zip((1..=12).rev().map(f64::from))),
        }
    }
}

impl Family for Groups {
    fn draw(&mut self, _: u32, random: &mut Random) -> Option<Match> {
        let src = self.sources[random.index(self.sources.len())];
        let dst = self.destinations[random.index(self.destinations.len())];
        let mut out = between(src, dst);
        let protocol = match random.unit() {
            p if p < 0.02 => ICMP,
            p if p < 0.22 => UDP,
            _ => TCP,
        };
        out.set(Field::NwProto, protocol.into());
        if protocol == ICMP {
            return Some(out);
        }
        match random.unit() {
            p if p < 0.3 => out.set(Field::TpDst, self.services.draw(random).unwrap_or(443).into()),
            p if p < 0.8 => out.set(Field::TpDst, random.port(1024, 65535).into()),
            _ => {
                let (low, high) = any_range(random);
                out.set_range(Field::TpDst, low, high)
            }
        };
        Some(out)
    }
}

/// The share of a block list that is a /24.
const NETWORKS: f64 = 0.04;

/// `blocklist`: half of the hosts stand in a /24 of another one, as those of a careless provider do.
#[derive(Default)]
pub(super) struct Blocklist {
    hosts: Vec<u32>,
}

impl Family for Blocklist {
    fn draw(&mut self, _: u32, random: &mut Random) -> Option<Match> {
        let len = if random.chance(NETWORKS) { 24 } else { 32 };
        let near = len == 32 && !self.hosts.is_empty() && random.chance(0.5);
        let address = if near {
            self.hosts[random.index(self.hosts.len())] & !0xff | random.below(256) as u32
        } else {
            ipv4_address(random)
        };
        if len == 32 {
            self.hosts.push(address);
        }
        Some(between(Prefix::around(address, len), Prefix::ANY))
    }
}
